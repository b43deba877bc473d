"""`regard translate`: sentences in, translations out, as they come."""

import json
import queue
import sys
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

WINDOW = 256
"""Sentences decoded together at the most."""


def translate(
    run: Annotated[Path, typer.Argument(help="A run directory.")],
    text: Annotated[
        list[str] | None, typer.Argument(help="Sentences; without any, lines are read from --input or stdin.")
    ] = None,
    input: Annotated[Path | None, typer.Option("--input", "-i", help="A file with one sentence a line.")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write here instead of to stdout.")] = None,
    beam: Annotated[int | None, typer.Option(help="Hypotheses kept at each step; 1 is greedy.")] = None,
    top_beams: Annotated[int | None, typer.Option(help="How many of them to print, best first.")] = None,
    length_penalty: Annotated[
        float | None, typer.Option(help="Higher favours longer translations; 0 for none.")
    ] = None,
    min_len: Annotated[int | None, typer.Option(help="Fewest tokens of a translation.")] = None,
    max_len: Annotated[int | None, typer.Option(help="Most tokens of a translation.")] = None,
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
    scores: Annotated[bool, typer.Option(help="Print the score before each translation, with a tab.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a sentence.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
) -> None:
    """Translate arguments, a file or standard input, line by line.

    Examples:

      regard translate runs/demo "I am a student."

      regard translate runs/demo --input test.en --output test.fr --beam 5

      cat test.en | regard translate runs/demo --scores
    """
    from regard.errors import ConfigError
    from regard.runs import load

    if text and input:
        raise ConfigError("give sentences or --input, not both")
    if overlong not in ("split", "truncate", "refuse"):
        raise ConfigError(f"--overlong={overlong}: must be split, truncate or refuse")
    names = (
        "beam",
        "top_beams",
        "length_penalty",
        "min_len",
        "max_len",
        "temperature",
        "top_k",
        "top_p",
        "samples",
        "seed",
    )
    given = dict(
        zip(
            names,
            (beam, top_beams, length_penalty, min_len, max_len, temperature, top_k, top_p, samples, seed),
            strict=True,
        )
    )
    loaded = load(run, device)
    config = loaded.decode_config(**{name: value for name, value in given.items() if value is not None})
    lines = text or (_file(input) if input else _stdin())
    number = 0
    with _output(output) as out:
        for chunk in _available(lines):
            for source, found in zip(chunk, loaded.translator.translate(chunk, config, overlong=overlong), strict=True):  # type: ignore[arg-type]
                number += 1
                print(_shown(number, source, found, scores, as_json), file=out, flush=True)


def _shown(number: int, source: str, found: list[Any], scores: bool, as_json: bool) -> str:
    if as_json:
        results = [
            {"text": one.text, "score": one.score, "log_prob": one.log_prob, "pieces": one.pieces} for one in found
        ]
        return json.dumps({"line": number, "source": source, "translations": results}, ensure_ascii=False)
    return "\n".join(f"{one.score:.4f}\t{one.text}" if scores else one.text for one in found)


def _file(path: Path) -> Iterator[str]:
    from regard.data import TextFiles

    return iter(TextFiles((path,), format="lines"))


def _stdin() -> Iterator[str]:
    from regard.errors import DataError

    try:
        for line in sys.stdin:
            yield line.rstrip("\n")
    except UnicodeDecodeError as error:
        raise DataError(f"standard input is not UTF-8: byte {error.start} of a line") from None


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


def _output(path: Path | None) -> Any:
    from contextlib import nullcontext

    from regard.errors import DataError

    if path is None:
        return nullcontext(sys.stdout)
    try:
        return path.open("w", encoding="utf-8")
    except OSError as error:
        raise DataError(f"cannot write {path}: {error.strerror}") from None
