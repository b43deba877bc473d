"""`regard embed-text`: the vectors of the verb `embed`, kept in a file; and the texts nearest to one."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.options import (
    DEVICE,
    INPUT,
    JSON,
    NO_VERIFY,
    PRECISION,
    RUN,
    checked,
    options_of,
    parameter,
    with_parameters,
)
from regard.cli.verbs import check_inputs, opened
from regard.errors import ConfigError
from regard.tasks.verbs.encoders import EMBED, EmbedRequest

if TYPE_CHECKING:
    import numpy as np

    from regard.tasks.encoder import Encoder

TEXTS = Annotated[list[str] | None, typer.Argument(help="Texts.", metavar="TEXT")]
OUT = Annotated[
    Path | None,
    typer.Option("--out", "-o", help="Write the vectors here: .npy, or .jsonl with the texts.", metavar="FILE"),
]
SEARCH = Annotated[
    Path | None, typer.Option(help="Show the lines of this file that are nearest to each text instead.", metavar="FILE")
]
TOKENS = Annotated[
    bool, typer.Option("--tokens", help="A vector for each token, which has seen the others, instead of one for all.")
]
WORD = Annotated[str | None, typer.Option(help="With --plane: the word to follow from text to text.", metavar="WORD")]
PLANE = Annotated[
    Path | None,
    typer.Option(help="Plot --word as it stands in each text, beside its static vector, as SVG.", metavar="FILE"),
]
TOP = Annotated[int, typer.Option(help="With --search, how many lines to show for each text.", min=1)]


def _embed(
    run: Path,
    text: list[str] | None,
    input: Path | None,
    out: Path | None,
    search: Path | None,
    top: int,
    tokens: bool,
    word: str | None,
    plane: Path | None,
    as_json: bool,
    device: str,
    precision: str,
    no_verify: bool,
    **given: object,
) -> None:
    from regard.cli.progress import counting
    from regard.data import TextFiles
    from regard.runs.files import check_output
    from regard.tasks.encoder import embed, nearest_texts

    options = checked(EmbedRequest, given)
    check_inputs(EMBED, text, input)
    if search is not None and (out is not None or not options["normalise"]):
        raise ConfigError("--search compares by cosine and writes no file: give it without --out and --no-normalise")
    if (plane is None) != (word is None):
        raise ConfigError("--plane plots the --word that is named: give both or neither")
    if (tokens or plane) and (search is not None or given.get("pooling") is not None or (tokens and plane)):
        raise ConfigError("--tokens and --plane are each for vectors of tokens alone: without --search and --pooling")
    if out is None and search is None and plane is None and not as_json:
        raise ConfigError("say where the vectors go with --out, or what to --search, or print them with --json")
    if out is not None and out.suffix not in ((".jsonl",) if tokens else (".npy", ".jsonl")):
        raise ConfigError(f"--out={out} must end in {'.jsonl' if tokens else '.npy or .jsonl'}")
    if out is not None:
        check_output(out)
    if plane is not None:
        check_output(plane, kind=".svg")
    texts = list(text or ()) if input is None else list(TextFiles((input,), format="lines"))
    encoder = opened(EMBED, run, device, precision, verify=not no_verify).encoder
    if tokens:
        _tokens(encoder, texts, out)
        return
    if plane is not None and word is not None:
        _plane(encoder, word, texts, plane)
        return
    lines = list(TextFiles((search,), format="lines")) if search else []
    with counting("embedding", "texts") as progress:
        vectors = embed(encoder, texts, **options, progress=progress)
        others = embed(encoder, lines, **{**options, "normalise": True}, progress=progress)
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
            print(json.dumps({"text": one, "vector": vector.tolist()}, ensure_ascii=False))


def _tokens(encoder: "Encoder", texts: list[str], out: Path | None) -> None:
    from regard.runs.files import whole_file
    from regard.tasks.encoder import token_vectors

    lines = [
        json.dumps({"text": text, "tokens": found.tokens, "vectors": found.vectors.tolist()}, ensure_ascii=False)
        for text, found in zip(texts, token_vectors(encoder, texts), strict=True)
    ]
    if out is None:
        print("\n".join(lines))
        return
    with whole_file(out) as aside:
        aside.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")
    print(out)


def _plane(encoder: "Encoder", word: str, texts: list[str], out: Path) -> None:
    """The word in its contexts on the plane that keeps most of how they differ, and its static vector on it."""
    import numpy as np

    from regard.look.charts import words_on_a_plane
    from regard.runs.files import whole_file
    from regard.tasks.encoder import nearest_texts, word_in_contexts
    from regard.text.word_vectors import WordVectors

    names, vectors, static = word_in_contexts(encoder, word, texts)
    every = [*names, f"{word}, static"]
    table = WordVectors(tuple(every), np.concatenate((vectors, static[None])))
    note = f"{word} in {len(names)} places: two principal components, {100 * table.spread(every):.0f} % of the variance"
    with whole_file(out) as aside:
        aside.write_text(words_on_a_plane(every, table.plane(every), note), encoding="utf-8", newline="\n")
    for name, near in zip(names, nearest_texts(vectors, vectors, len(names)), strict=True):
        others = [f"{one.cosine:.3f} to {names[one.index]}" for one in near if names[one.index] != name]
        print(f"{name}\t{'; '.join(others)}")
    print(out)


def write(out: Path, texts: list[str], vectors: "np.ndarray") -> None:
    """The vectors as an array or, with their texts, as lines of JSON; whole or not at all."""
    import numpy as np

    from regard.runs.files import whole_file

    with whole_file(out) as aside:
        if out.suffix == ".npy":
            with aside.open("wb") as file:
                np.save(file, vectors)
            return
        with aside.open("w", encoding="utf-8", newline="\n") as lines:
            for text, vector in zip(texts, vectors, strict=True):
                lines.write(json.dumps({"text": text, "vector": vector.tolist()}, ensure_ascii=False) + "\n")


embed_text = with_parameters(
    _embed,
    [
        parameter("run", RUN),
        parameter("text", TEXTS, None),
        parameter("input", INPUT, None),
        parameter("out", OUT, None),
        parameter("search", SEARCH, None),
        parameter("top", TOP, 5),
        parameter("tokens", TOKENS, False),
        parameter("word", WORD, None),
        parameter("plane", PLANE, None),
        *options_of(EmbedRequest, "text"),
        parameter("as_json", JSON, False),
        parameter("device", DEVICE, "auto"),
        parameter("precision", PRECISION, "auto"),
        parameter("no_verify", NO_VERIFY, False),
    ],
    EMBED.help,
)
