"""`combine`: rows of several sources in, texts out."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import MISSING, dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

from regard.errors import DataError
from regard.tasks.verbs.spec import (
    Asked,
    Beam,
    Between,
    Cost,
    LengthPenalty,
    MinP,
    NoRepeat,
    RequestLimits,
    Samples,
    Seed,
    Temperature,
    TopK,
    TopP,
    Verb,
    WrittenText,
    check_budget,
    check_characters,
    check_count,
    given,
    lines_of,
    option,
)

if TYPE_CHECKING:
    from pathlib import Path

    from regard.decode.config import DecodeConfig
    from regard.tasks.run import Run


@dataclass(frozen=True, kw_only=True, slots=True)
class CombineRequest:
    """Rows of sources, and how to write of them."""

    rows: tuple[tuple[str, ...], ...] = option(
        MISSING, "Rows: their sources in order, with tabs between them or as a JSON list; an empty one is missing."
    )
    beam: Beam = option(None, "Hypotheses kept at each step; 1 is greedy.")
    top_beams: Beam = option(None, "How many of them to print, best first.")
    length_penalty: LengthPenalty = option(None, "Higher favours longer texts; 0 for none.")
    max_len: Annotated[int | None, Between(1, "tokens")] = option(None, "Most tokens of a text.")
    no_repeat: NoRepeat = option(None, "No run of so many tokens occurs twice in a text; 0 lets any.")
    temperature: Temperature = None
    top_k: TopK = None
    top_p: TopP = None
    min_p: MinP = None
    samples: Samples = None
    seed: Seed = None


@dataclass(frozen=True, kw_only=True, slots=True)
class CombinedRow:
    """One row, the `line`-th, with its texts, best first."""

    line: int
    texts: tuple[WrittenText, ...]


@dataclass(frozen=True, slots=True)
class RowToCombine:
    """The sources of a row, and how a text is searched for."""

    sources: tuple[Any, ...]
    config: "DecodeConfig"


@dataclass(frozen=True, kw_only=True, slots=True)
class CombineDisplay:
    scores: bool = option(False, "Print the score before each text, with a tab.")


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


class Combine(Verb[CombineRequest, CombinedRow]):
    """Rows of many requests that are searched for alike go together."""

    def check(
        self, run: "Run", request: CombineRequest, items: Sequence[Any], limits: RequestLimits | None = None
    ) -> list[RowToCombine]:
        check_count(len(items), "rows", limits, "rows")
        combiner = run.combiner
        if limits is not None:
            check_characters(
                [one for row in items if isinstance(row, list | tuple) for one in _texts(combiner, row)], "rows", limits
            )
        config = _config(run, request, limits)
        rows = max(config.beam, config.samples)
        said = f"{len(items)} rows x {rows} hypotheses x {config.max_len} tokens"
        check_budget(limits, len(items) * rows, config.max_len, said)
        checked = combiner.checked if limits is None else lambda row, number: sent_row(run, row, number)
        return [RowToCombine(checked(row, number), config) for number, row in enumerate(items, 1)]

    def key(self, run: "Run", request: CombineRequest) -> Hashable:
        config = _config(run, request, None)
        # A seed matters to sampling only.
        return config if config.sampled else replace(config, seed=0)

    def cost(self, run: "Run", asked: Asked) -> Cost:
        config = asked.item.config
        return Cost(run.combiner.reader.places(asked.item.sources), max(config.beam, config.samples) * config.max_len)

    def together(self, run: "Run", asked: Sequence[Asked], gone: Callable[[Asked], bool]) -> list[CombinedRow]:
        found = run.combiner.combine(
            [one.item.sources for one in asked],
            asked[0].item.config,
            numbers=[one.number for one in asked],  # what is sampled goes by a row's number in its own request
            gone=lambda place: gone(asked[place]),
        )
        return [CombinedRow(line=one.number + 1, texts=tuple(best)) for one, best in zip(asked, found, strict=True)]

    def written(self, result: CombinedRow) -> int:
        return sum(len(one.tokens) for one in result.texts)

    def inputs(self, run: "Run", words: Iterable[str], file: "Path | None") -> Iterator[Any]:
        return (row_of(line) for line in lines_of(words, file) if line.strip())

    def show(self, result: CombinedRow, display: CombineDisplay | None = None) -> str:
        lines = [" ".join(one.text.split()) for one in result.texts]
        scored = zip(result.texts, lines, strict=True)
        return "\n".join(f"{one.score:.4f}\t{line}" if display and display.scores else line for one, line in scored)

    def cut(self, result: CombinedRow) -> tuple[int, int]:
        return sum(not one.finished for one in result.texts), len(result.texts)

    def note(self, run: "Run", request: CombineRequest, cut: int, total: int) -> str:
        return run.combiner.cut_note(cut, total, _config(run, request, None))


def _config(run: "Run", request: CombineRequest, limits: RequestLimits | None) -> "DecodeConfig":
    config = run.decode_config(**given(request, "rows"))
    return config if limits is None else replace(config, max_len=min(config.max_len, limits.tokens))


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
    display=CombineDisplay,
    unit="rows",
)
