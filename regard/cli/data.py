"""`regard data`: corpora to train on."""

import json
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, cast, get_args

import typer

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def data() -> None:
    """Make data to train on."""


@app.command("world")
def world(
    out: Annotated[Path, typer.Argument(help="The directory to write to.", metavar="DIRECTORY")],
    train: Annotated[int, typer.Option(help="Training pairs.", min=1)] = 100_000,
    valid: Annotated[int, typer.Option(help="Validation pairs.", min=1)] = 2000,
    test: Annotated[int, typer.Option(help="Test pairs.", min=1)] = 2000,
    seed: Annotated[int, typer.Option(help="Other seeds give other sentences.")] = 1,
    grammar: Annotated[
        str, typer.Option(help="whole, or plain: fewer words, no pronouns, long sentences as common as short.")
    ] = "whole",
) -> None:
    """Write the bundled English-French corpus, with its gold.

    Writes train.tsv, valid.tsv and test.tsv, and beside each a .jsonl that holds each sentence's words, word
    alignment, pronouns with their antecedents, dependencies and parse. Held-out sentences never appear in training,
    whatever the seed.

    \b
    Examples:
      regard data world corpus
      regard data world corpus --train 5000
      regard train --preset tiny --data corpus/train.tsv --valid corpus/valid.tsv --out runs/mine
    """
    from regard.cli.progress import counting
    from regard.data.world import Grammar, Split, sentences
    from regard.errors import ConfigError, nearest
    from regard.runs.files import whole_file, whole_or_nothing

    if grammar not in get_args(Grammar):
        raise ConfigError(f"unknown grammar '{grammar}'{nearest(grammar, get_args(Grammar))}")
    parts: dict[Split, int] = {"train": train, "valid": valid, "test": test}
    with whole_or_nothing(out), ExitStack() as stack:
        for split, count in parts.items():
            with (
                counting(f"writing {split}") as progress,
                stack.enter_context(whole_file(out / f"{split}.tsv")).open("w", encoding="utf-8") as pairs,
                stack.enter_context(whole_file(out / f"{split}.jsonl")).open("w", encoding="utf-8") as gold,
            ):
                drawn = sentences(count, seed=seed, split=split, grammar=cast("Grammar", grammar))
                for number, sentence in enumerate(drawn, 1):
                    pairs.write(f"{sentence.english}\t{sentence.french}\n")
                    record = {"en": sentence.english, "fr": sentence.french, **asdict(sentence)}
                    gold.write(json.dumps(record, ensure_ascii=False) + "\n")
                    if number % 1000 == 0:
                        progress(number, count)
    for split in parts:
        print(out / f"{split}.tsv")


@app.command("digits")
def digits(
    out: Annotated[Path, typer.Argument(help="The directory to write to.", metavar="DIRECTORY")],
) -> None:
    """Write scikit-learn's handwritten digits as arrays: 1,797 pictures of 8 x 8 pixels.

    Writes digits.npz with train_images, train_labels, test_images and test_labels. The last fifth is the test part:
    scikit-learn has the digits in the order of their writers, so most of it is by hands that are not trained on.

    \b
    Examples:
      regard data digits digits
      regard train --preset vit-digits --data digits/digits.npz --out runs/digits
    """
    import numpy as np

    from regard.errors import ConfigError
    from regard.runs.files import whole_file, whole_or_nothing

    try:
        from sklearn.datasets import load_digits  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise ConfigError(
            "the digits come with scikit-learn, which is not installed: pip install scikit-learn"
        ) from None
    values, labels = load_digits(return_X_y=True)
    pictures, labels = np.rint(values.reshape(-1, 8, 8) * (255 / 16)).astype(np.uint8), labels.astype(np.uint8)
    cut = len(labels) - len(labels) // 5
    arrays = {"train_images": pictures[:cut], "train_labels": labels[:cut]}
    arrays |= {"test_images": pictures[cut:], "test_labels": labels[cut:]}
    with whole_or_nothing(out), whole_file(out / "digits.npz") as aside, aside.open("wb") as file:
        np.savez_compressed(file, **arrays)
    print(out / "digits.npz")
