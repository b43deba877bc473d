"""`regard embed-text`: texts as vectors, and the texts nearest to one."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    import numpy as np


def embed_text(
    run: Annotated[Path, typer.Argument(help="A run directory of an encoder.", metavar="RUN")],
    text: Annotated[list[str] | None, typer.Argument(help="Texts.", metavar="TEXT")] = None,
    input: Annotated[
        Path | None, typer.Option("--input", "-i", help="A file with one text a line instead.", metavar="FILE")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Write the vectors here: .npy, or .jsonl with the texts.", metavar="FILE"),
    ] = None,
    search: Annotated[
        Path | None,
        typer.Option(help="Show the lines of this file that are nearest to each text instead.", metavar="FILE"),
    ] = None,
    top: Annotated[int, typer.Option(help="With --search, how many lines to show for each text.", min=1)] = 5,
    pooling: Annotated[
        str | None, typer.Option(help="mean or first: of the tokens' vectors, or the first token's.")
    ] = None,
    normalise: Annotated[
        bool, typer.Option("--normalise/--no-normalise", help="Give every vector the length one.")
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a text.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
) -> None:
    """Turn texts into vectors, or search a file for the texts nearest in meaning.

    \b
    Examples:
      regard embed-text runs/minilm --input sentences.txt --out vectors.npy
      regard embed-text runs/minilm "how tall is the tower?" --search sentences.txt --top 3
    """
    from regard import load
    from regard.cli.progress import counting
    from regard.data import TextFiles
    from regard.errors import ConfigError
    from regard.runs.files import check_output
    from regard.tasks.encoder import embed, nearest_texts
    from regard.tasks.records import embedded

    if bool(text) == bool(input):
        raise ConfigError("give texts, or --input with a file of them")
    if search is not None and (out is not None or not normalise):
        raise ConfigError("--search compares by cosine and writes no file: give it without --out and --no-normalise")
    if out is None and search is None and not as_json:
        raise ConfigError("say where the vectors go with --out, or what to --search, or print them with --json")
    if out is not None and out.suffix not in (".npy", ".jsonl"):
        raise ConfigError(f"--out={out} must end in .npy or .jsonl")
    if out is not None:
        check_output(out)
    if pooling not in (None, "mean", "first"):
        raise ConfigError(f"--pooling={pooling} must be mean or first")
    texts = list(text or ()) if input is None else list(TextFiles((input,), format="lines"))
    encoder = load(run, device).encoder
    lines = list(TextFiles((search,), format="lines")) if search else []
    with counting("embedding", "texts") as progress:
        vectors = embed(encoder, texts, pooling=pooling, normalise=normalise, progress=progress)
        others = embed(encoder, lines, pooling=pooling, progress=progress)
    if search is not None:
        for one, found in zip(texts, nearest_texts(vectors, others, top), strict=True):
            near = [{"line": near.index + 1, "cosine": near.cosine, "text": lines[near.index]} for near in found]
            if as_json:
                print(json.dumps({"text": one, "nearest": near}, ensure_ascii=False))
            else:
                print("".join(f"{row['cosine']:.4f}\t{row['line']}\t{row['text']}\n" for row in near), end="")
    elif out is not None:
        write(out, texts, vectors)
        print(out)
    else:
        for one, vector in zip(texts, vectors, strict=True):
            print(json.dumps(embedded(one, vector), ensure_ascii=False))


def write(out: Path, texts: list[str], vectors: "np.ndarray") -> None:
    """The vectors as an array or, with their texts, as lines of JSON; whole or not at all."""
    import numpy as np

    from regard.runs.files import whole_file
    from regard.tasks.records import embedded

    with whole_file(out) as aside:
        if out.suffix == ".npy":
            with aside.open("wb") as file:
                np.save(file, vectors)
            return
        with aside.open("w", encoding="utf-8") as lines:
            for text, vector in zip(texts, vectors, strict=True):
                lines.write(json.dumps(embedded(text, vector), ensure_ascii=False) + "\n")
