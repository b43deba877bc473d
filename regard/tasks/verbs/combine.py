"""`combine`: rows of several sources in, texts out."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import MISSING, dataclass
from typing import TYPE_CHECKING, Any

from regard.errors import DataError
from regard.tasks.verbs.spec import Asked, RequestLimits, WrittenText, check_characters, lines_of, option
from regard.tasks.verbs.writing import ScoresDisplay, ToWrite, WritingRequest, WritingVerb

if TYPE_CHECKING:
    from pathlib import Path

    from regard.tasks.run import Run


@dataclass(frozen=True, kw_only=True, slots=True)
class CombineRequest(WritingRequest):
    """Rows of sources, and how to write of them."""

    rows: tuple[tuple[str, ...], ...] = option(
        MISSING, "Rows: their sources in order, with tabs between them or as a JSON list; an empty one is missing."
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class CombinedRow:
    """One row, the `line`-th, with its texts, best first."""

    line: int
    texts: tuple[WrittenText, ...]


def row_of(line: str) -> Any:
    """A row from a line: JSON where that is what it holds, else its sources with tabs between them."""
    import json

    try:
        found = json.loads(line)
    except ValueError:
        return line.split("\t")
    return found if isinstance(found, list | dict) else line.split("\t")


def sent_row(run: "Run", row: Any, number: int) -> tuple[Any, ...]:
    """A row as it was sent: a server opens no files of its own, an image or a sound comes as base64."""
    from regard.tasks.verbs.caption import SERVED_PIXELS, sent_image
    from regard.tasks.verbs.transcribe import sent_sound

    combiner = run.combiner
    if isinstance(row, str) or not isinstance(row, Sequence) or len(row) != len(combiner.names):
        raise DataError(f"row {number} must be a list of {len(combiner.names)} sources")
    read = {"image": sent_image, "sound": sent_sound}
    kinds = combiner.reader.kinds
    found = [read[kind](one, number) if kind in read and one else one for one, kind in zip(row, kinds, strict=True)]
    return combiner.checked(found, number, SERVED_PIXELS)


def _texts(combiner: Any, row: Sequence[Any]) -> list[str]:
    """The sources of a row that are texts."""
    return [row[place] for place in combiner.reader.texts if place < len(row) and isinstance(row[place], str)]


class Combine(WritingVerb[CombineRequest, CombinedRow]):
    """Rows of many requests that are searched for alike go together."""

    def inputs_read(
        self, run: "Run", request: CombineRequest, items: Sequence[Any], limits: RequestLimits | None
    ) -> list[tuple[str, Any]]:
        combiner = run.combiner
        if limits is None:
            return [("", combiner.checked(row, number)) for number, row in enumerate(items, 1)]
        texts = [one for row in items if isinstance(row, list | tuple) for one in _texts(combiner, row)]
        check_characters(texts, "rows", limits)
        return [("", sent_row(run, row, number)) for number, row in enumerate(items, 1)]

    def places(self, run: "Run", item: ToWrite) -> int:
        return run.combiner.reader.places(item.given)

    def result_of(self, asked: Asked, best: Sequence[WrittenText]) -> CombinedRow:
        return CombinedRow(line=asked.number + 1, texts=tuple(best))

    def inputs(self, run: "Run", words: Iterable[str], file: "Path | None") -> Iterator[Any]:
        return (row_of(line) for line in lines_of(words, file) if line.strip())


COMBINE = Combine(
    name="combine",
    help="""Write a text from several sources: texts, images and sounds, any of which may be missing.

    A row is a line with tabs between its sources, in the order of data.sources, or a JSON list, or a JSON object by
    their names. An image or a sound is a file's path. Each row has its text on a line of its own.

    \b
    Examples:
      regard combine runs/two '["the ▒ cat sleeps", "it is the old cat that ▒"]'
      regard combine runs/scenes '["there is a bat near the tree", "scene.png"]' --beam 3
      regard combine runs/spoken '["a ▒ dog near the river", "word.wav"]'
      regard combine runs/two --input rows.jsonl --output texts.txt
    """,
    request=CombineRequest,
    items="rows",
    result=CombinedRow,
    display=ScoresDisplay,
    engine="combiner",
    outputs="texts",
    unit="rows",
)
