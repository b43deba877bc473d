"""`regard translate`: sentences in, translations out, as they come."""

import json
import queue
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

if TYPE_CHECKING:
    from regard.tasks.translator import Translation

WINDOW = 256
"""Sentences decoded together at the most."""


def translate(
    run: Annotated[Path, typer.Argument(help="A run directory.", metavar="RUN")],
    text: Annotated[
        list[str] | None,
        typer.Argument(help="Sentences; without any, lines are read from --input or stdin.", metavar="TEXT"),
    ] = None,
    input: Annotated[
        Path | None, typer.Option("--input", "-i", help="A file with one sentence a line.", metavar="FILE")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write here instead of to stdout.", metavar="FILE")
    ] = None,
    beam: Annotated[int | None, typer.Option(help="Hypotheses kept at each step; 1 is greedy.")] = None,
    top_beams: Annotated[int | None, typer.Option(help="How many of them to print, best first.")] = None,
    length_penalty: Annotated[
        float | None, typer.Option(help="Higher favours longer translations; 0 for none.")
    ] = None,
    min_len: Annotated[int | None, typer.Option(help="Fewest tokens of a translation.")] = None,
    max_len: Annotated[
        str | None,
        typer.Option(
            help="Most tokens of a translation; where given, the only limit; none for all the model can write.",
            metavar="NUMBER",
        ),
    ] = None,
    max_ratio: Annotated[
        str | None,
        typer.Option(
            help="Most tokens of a translation for each of the source, plus --max-extra; or none.", metavar="NUMBER"
        ),
    ] = None,
    max_extra: Annotated[str | None, typer.Option(help="See --max-ratio; or none.", metavar="NUMBER")] = None,
    temperature: Annotated[
        float | None, typer.Option(help="Draw at random instead of searching; 1 is the model's own distribution.")
    ] = None,
    top_k: Annotated[int | None, typer.Option(help="Draw from the k likeliest tokens.")] = None,
    top_p: Annotated[
        float | None, typer.Option(help="Draw from the likeliest tokens that hold this probability.")
    ] = None,
    samples: Annotated[int | None, typer.Option(help="How many to draw.")] = None,
    seed: Annotated[int | None, typer.Option(help="Fixes the draws.")] = None,
    overlong: Annotated[
        str, typer.Option(help="A sentence longer than the model reads: split it, truncate it, or refuse it.")
    ] = "split",
    scores: Annotated[
        bool, typer.Option("--scores", help="Print the score before each translation, with a tab.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a sentence.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
) -> None:
    """Translate arguments, a file or standard input, line by line.

    Each line has its translation on a line of its own, a blank line a blank one; with --top-beams or --samples, that
    many lines.

    \b
    Examples:
      regard translate runs/demo "I am a student."
      regard translate runs/demo --input test.en --output test.fr --beam 5
      cat test.en | regard translate runs/demo --scores
    """
    from regard import load
    from regard.cli.options import check_overlong, number_or_none, standard_input, typed
    from regard.cli.progress import counting
    from regard.errors import ConfigError
    from regard.runs.files import check_output

    if text and input:
        raise ConfigError("give sentences or --input, not both")
    check_overlong(overlong)
    if output is not None:
        check_output(output)
    given = {
        "beam": beam,
        "top_beams": top_beams,
        "length_penalty": length_penalty,
        "min_len": min_len,
        "max_len": number_or_none("--max-len", max_len, int),
        "max_ratio": number_or_none("--max-ratio", max_ratio, float),
        "max_extra": number_or_none("--max-extra", max_extra, int),
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "samples": samples,
        "seed": seed,
    }
    lines = text or (_file(input) if input else standard_input())
    if not text and input is None and typed():
        print("Type sentences, one a line; Ctrl-D ends.", file=sys.stderr)
    loaded = load(run, device)
    config = loaded.decode_config(**{name: value for name, value in given.items() if value is not None})
    with ExitStack() as stack:
        out, tell = sys.stdout, _nothing
        if output is not None:
            out, tell = stack.enter_context(_opened(output)), stack.enter_context(counting("translating"))
        number = outputs = cut = 0
        for chunk in _available(lines):
            translations = loaded.translator.translate(chunk, config, overlong=overlong, before=number)
            for source, found in zip(chunk, translations, strict=True):
                number, outputs = number + 1, outputs + len(found)
                cut += sum(not one.finished for one in found)
                print(_shown(number, source, found, scores, as_json), file=out, flush=True)
            tell(number, None)
    if note := loaded.translator.cut_note(cut, outputs, config):
        print(note, file=sys.stderr)


def _shown(number: int, source: str, found: "list[Translation]", scores: bool, as_json: bool) -> str:
    if as_json:
        from regard.tasks.records import translated

        return json.dumps(translated(number, source, found), ensure_ascii=False)
    # A model over bytes may write a line break; a translation is one line all the same.
    lines = [" ".join(one.text.replace("\r", "\n").split("\n")) for one in found]
    return "\n".join(f"{one.score:.4f}\t{line}" if scores else line for one, line in zip(found, lines, strict=True))


def _file(path: Path) -> Iterator[str]:
    from regard.data import TextFiles
    from regard.errors import DataError

    if not path.exists():
        raise DataError(f"no such file: {path}")
    return iter(TextFiles((path,), format="lines"))


def _available(lines: Iterable[str]) -> Iterator[list[str]]:
    """Whatever lines are there by now, at least one and at most WINDOW: quick for a typist, full for a file."""
    ready: queue.Queue[Any] = queue.Queue(4 * WINDOW)
    end = object()

    def read() -> None:
        try:
            for line in lines:
                ready.put(line)
            ready.put(end)
        except BaseException as error:
            ready.put(error)

    threading.Thread(target=read, daemon=True).start()
    while True:
        chunk, last = [ready.get()], None
        while len(chunk) < WINDOW and not ready.empty() and isinstance(chunk[-1], str):
            chunk.append(ready.get())
        if not isinstance(chunk[-1], str):
            last = chunk.pop()
        if chunk:
            yield chunk
        if isinstance(last, BaseException):
            raise last
        if last is end:
            return


@contextmanager
def _opened(path: Path) -> Iterator[TextIO]:
    """The file to write to, which is there whole in the end or not at all."""
    from regard.runs.files import whole_file

    with whole_file(path) as aside, aside.open("w", encoding="utf-8") as file:
        yield file


def _nothing(done: int, total: int | None) -> None: ...
