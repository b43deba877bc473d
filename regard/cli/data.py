"""`regard data`: corpora to train on."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Make data to train on.", no_args_is_help=True)


@app.callback()
def data() -> None:
    """Make data to train on."""


@app.command("world")
def world(
    out: Annotated[Path, typer.Argument(help="The directory to write to.")],
    train: Annotated[int, typer.Option(help="Training pairs.", min=1)] = 100_000,
    valid: Annotated[int, typer.Option(help="Validation pairs.", min=1)] = 2000,
    test: Annotated[int, typer.Option(help="Test pairs.", min=1)] = 2000,
    seed: Annotated[int, typer.Option(help="Other seeds give other sentences.")] = 1,
) -> None:
    """Write the bundled English-French corpus: train.tsv, valid.tsv, test.tsv, and beside each a .jsonl with the gold.

    The gold is each sentence's words, word alignment, pronouns with their antecedents, dependencies and parse.
    Held-out sentences never appear in training, whatever the seed.
    """
    from regard.cli.progress import counting
    from regard.data.world import Split, sentences
    from regard.runs.files import whole_file

    out.mkdir(parents=True, exist_ok=True)
    parts: dict[Split, int] = {"train": train, "valid": valid, "test": test}
    for split, count in parts.items():
        with (
            counting(split) as progress,
            whole_file(out / f"{split}.tsv") as pairs_path,
            whole_file(out / f"{split}.jsonl") as gold_path,
            pairs_path.open("w", encoding="utf-8") as pairs,
            gold_path.open("w", encoding="utf-8") as gold,
        ):
            for number, sentence in enumerate(sentences(count, seed=seed, split=split), 1):
                pairs.write(f"{sentence.english}\t{sentence.french}\n")
                record = {"en": sentence.english, "fr": sentence.french, **asdict(sentence)}
                gold.write(json.dumps(record, ensure_ascii=False) + "\n")
                if number % 1000 == 0:
                    progress(number, count)
        print(out / f"{split}.tsv")
