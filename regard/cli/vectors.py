"""`regard vectors`: word vectors, made, compared and plotted."""

import json
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

File = Annotated[Path, typer.Argument(help="Word vectors: word2vec text or binary, or GloVe text.", metavar="VECTORS")]
Count = Annotated[int, typer.Option(help="How many words to show.", min=1)]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


@app.callback()
def vectors() -> None:
    """Make word vectors from text, and see what they know."""


@app.command("train", short_help="Learn word vectors from text.")
def train(
    texts: Annotated[list[str], typer.Argument(help="Files and folders of text.", metavar="TEXT")],
    out: Annotated[Path, typer.Option(help="The file to write; a name in .bin makes it binary.")],
    width: Annotated[int, typer.Option(help="Numbers per vector.")] = 100,
    window: Annotated[int, typer.Option(help="How far away the words around a word may be.")] = 5,
    negatives: Annotated[int, typer.Option(help="Words sampled at random for each pair.")] = 5,
    subsample: Annotated[float, typer.Option(help="Skip some of the words more frequent than this.")] = 1e-3,
    min_count: Annotated[int, typer.Option(help="How often a word must occur.", min=1)] = 5,
    words: Annotated[int, typer.Option(help="Most words.", min=1)] = 100_000,
    epochs: Annotated[int, typer.Option(help="How often the text is read.")] = 5,
    learning_rate: Annotated[float, typer.Option(help="The rate at the start; it goes down to 0.")] = 0.2,
    seed: Annotated[int, typer.Option(help="Other seeds, other vectors.")] = 1,
    spaced: Annotated[bool, typer.Option("--spaced", help="Words are what spaces separate.")] = False,
    cased: Annotated[bool, typer.Option("--cased", help="Keep capital letters apart.")] = False,
    method: Annotated[
        str, typer.Option(help="skip-gram: a word predicts those around it; cbow: they, together, predict it.")
    ] = "skip-gram",
    threads: Annotated[int, typer.Option(help="CPU threads; 0 leaves torch's choice.", min=0)] = 0,
) -> None:
    """Learn word vectors from text by skip-gram or CBOW with negative sampling.

    \b
    Examples:
      regard vectors train corpus/ --out vectors.txt
      regard vectors train corpus/ --method cbow --out cbow.txt
      regard vectors train prepared.txt --spaced --width 50 --out vectors.bin
    """
    import torch

    from regard.cli.progress import counting
    from regard.data import Documents
    from regard.runs.files import check_output
    from regard.text import TokenizerConfig
    from regard.trainer.initialize import save_vectors, train_vectors
    from regard.training.skipgram import SkipGramConfig

    config = SkipGramConfig(
        width=width,
        window=window,
        negatives=negatives,
        subsample=subsample,
        epochs=epochs,
        learning_rate=learning_rate,
        seed=seed,
        method=method,
    )
    check_output(out)
    if threads:
        torch.set_num_threads(threads)
    kind = TokenizerConfig(
        kind="spaced" if spaced else "word", vocab_size=words + 4, lowercase=not cased, min_count=min_count
    )
    with counting("reading", "words") as progress:
        found = train_vectors(Documents.of(texts), config, kind, progress)
    save_vectors(found, out)
    print(f"{out}  {len(found):,} words, {found.width} numbers each")


@app.command("near")
def near(
    file: File,
    word: Annotated[str, typer.Argument(help="A word.", metavar="WORD")],
    count: Count = 10,
    metric: Annotated[str, typer.Option(help="cosine or euclidean.")] = "cosine",
    as_json: Json = False,
) -> None:
    """Show the words nearest to a word.

    \b
    Examples:
      regard vectors near vectors.txt river
      regard vectors near glove.6B.50d.txt river --metric euclidean --count 20
    """
    found = _read(file).near(word, count, metric=metric)
    _show(found, as_json)


@app.command("analogy")
def analogy(
    file: File,
    a: Annotated[str, typer.Argument(help="As this word ...", metavar="A")],
    b: Annotated[str, typer.Argument(help="... is to this one ...", metavar="B")],
    c: Annotated[str, typer.Argument(help="... so is this one to what?", metavar="C")],
    count: Count = 10,
    as_json: Json = False,
) -> None:
    """Show what is to C as B is to A: the words nearest to B - A + C.

    \b
    Examples:
      regard vectors analogy glove.6B.50d.txt man king woman
    """
    _show(_read(file).analogy(a, b, c, count), as_json)


@app.command("plane")
def plane(
    file: File,
    words: Annotated[list[str], typer.Argument(help="The words to plot.", metavar="WORD")],
    out: Annotated[Path, typer.Option(help="The SVG file to write.")],
) -> None:
    """Plot words on the plane that keeps most of how they differ.

    \b
    Examples:
      regard vectors plane vectors.txt king queen man woman --out words.svg
    """
    from regard.errors import ConfigError
    from regard.look.charts import words_on_a_plane
    from regard.runs.files import check_output, whole_file

    check_output(out, kind=".svg")
    if out.exists() and file.exists() and out.samefile(file):
        raise ConfigError(f"--out {out} is the file of vectors itself: choose another")
    vectors = _read(file)
    note = f"{file.name}: the first two principal components, {100 * vectors.spread(words):.0f} % of the variance"
    picture = words_on_a_plane(words, vectors.plane(words), note)
    with whole_file(out) as aside:
        aside.write_text(picture, encoding="utf-8", newline="\n")
    print(out)


def _read(file: Path):
    from regard.cli.progress import counting
    from regard.text.word_vectors import read_vectors

    with counting("reading", "vectors") as progress:
        return read_vectors(file, progress=progress)


def _show(found: list[tuple[str, float]], as_json: bool) -> None:
    if as_json:
        print(json.dumps([{"word": word, "value": value} for word, value in found], ensure_ascii=False))
        return
    for word, value in found:
        print(f"{value:7.4f}  {word}")
