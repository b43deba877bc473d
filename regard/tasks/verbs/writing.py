"""What verbs have in common whose outputs are searched for or sampled: options, limits, costs, and how they print."""

import dataclasses
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from regard.errors import DataError
from regard.tasks.verbs.spec import (
    Asked,
    Beam,
    Between,
    Cost,
    LengthPenalty,
    NoRepeat,
    Request,
    RequestLimits,
    Result,
    Sampling,
    Verb,
    check_constraints,
    check_count,
    check_search,
    given,
    option,
    search_key,
    search_rows,
)

if TYPE_CHECKING:
    from regard.decode.config import DecodeConfig
    from regard.tasks.run import Run


@dataclasses.dataclass(frozen=True, kw_only=True)  # without slots, so that it can be one of several bases
class SearchRequest(Sampling):
    """How outputs are searched for."""

    beam: Beam = option(None, "Hypotheses kept at each step; 1 is greedy.")
    top_beams: Beam = option(None, "How many of them to print, best first.")
    length_penalty: LengthPenalty = option(None, "Higher favours longer outputs; 0 for none.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class WritingRequest(SearchRequest):
    """The same of texts, which have a length of their own."""

    max_len: Annotated[int | None, Between(1, "tokens")] = option(None, "Most tokens of an output.")
    no_repeat: NoRepeat = option(None, "No run of so many tokens occurs twice in an output; 0 lets any.")


@dataclasses.dataclass(frozen=True, slots=True)
class ToWrite:
    """An input as the model reads it, how an output of it is searched for, and what it is called."""

    given: Any
    config: "DecodeConfig"
    name: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class ScoresDisplay:
    scores: bool = option(False, "Print the score before each output, with a tab.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class WritingVerb(Verb[Request, Result]):
    """Inputs of many requests that are searched for alike go together.

    `engine` is the part of a run that writes, `outputs` the field of a result that holds what was written, and `apart`
    are the options of a request that are no settings of the search.
    """

    engine: str
    outputs: str
    apart: tuple[str, ...] = ()

    def writer(self, run: "Run") -> Any:
        return getattr(run, self.engine)

    def config(self, run: "Run", request: Request, limits: RequestLimits | None = None) -> "DecodeConfig":
        """How outputs are searched for: none longer than the model writes, or a server takes."""
        decode = {name: value for name, value in given(request, self.items, *self.apart).items() if value != ()}
        config = run.decode_config(**decode)
        longest = min(config.max_len, self.writer(run).max_len)
        longest = longest if limits is None else min(longest, limits.tokens)
        return dataclasses.replace(config, max_len=longest, min_len=min(config.min_len, longest - 1))

    def check(
        self, run: "Run", request: Request, items: Sequence[Any], limits: RequestLimits | None = None
    ) -> Sequence[Any]:
        check_count(len(items), self.items, limits, self.unit)
        check_constraints(request, limits)
        config = self.config(run, request, limits)
        check_search(config, len(items), self.unit, limits)
        return [ToWrite(item, config, name) for name, item in self.inputs_read(run, request, items, limits)]

    def inputs_read(
        self, run: "Run", request: Request, items: Sequence[Any], limits: RequestLimits | None
    ) -> Sequence[tuple[str, Any]]:
        """The name and the content of each input. A server, with `limits`, reads no files of its own."""
        raise NotImplementedError

    def places(self, run: "Run", item: Any) -> int:
        """How many tokens a model reads of an input."""
        raise NotImplementedError

    def result_of(self, asked: Asked, best: Sequence[Any]) -> Result:
        """What is said of one input."""
        raise NotImplementedError

    def leading(self, result: Result) -> tuple[str, ...]:
        """What stands before each output where it is printed."""
        return ()

    def key(self, run: "Run", request: Request) -> Hashable:
        return search_key(self.config(run, request))

    def cost(self, run: "Run", asked: Asked) -> Cost:
        config = asked.item.config
        return Cost(self.places(run, asked.item), search_rows(config) * config.max_len)

    def together(self, run: "Run", asked: Sequence[Asked], gone: Callable[[Asked], bool]) -> list[Any]:
        found = self.write(
            run,
            asked,
            numbers=[one.number for one in asked],  # what is sampled goes by an input's number in its own request
            gone=lambda place: gone(asked[place]),
        )
        return [
            best if isinstance(best, DataError) else self.result_of(one, best)
            for one, best in zip(asked, found, strict=True)
        ]

    def write(
        self, run: "Run", asked: Sequence[Asked], *, numbers: Sequence[int], gone: Callable[[int], bool]
    ) -> Sequence[Any]:
        """The outputs of each input, best first; the `DataError` of one that could not be read to its end."""
        inputs = [one.item.given for one in asked]
        return self.writer(run).write(inputs, asked[0].item.config, numbers=numbers, gone=gone)

    def written(self, result: Result) -> int:
        return sum(len(one.tokens) for one in getattr(result, self.outputs))

    def show(self, result: Result, display: Any = None) -> str:
        lines = []
        for one in getattr(result, self.outputs):
            score = [f"{one.score:.4f}"] if display and display.scores else []
            lines.append("\t".join([*self.leading(result), *score, self.shown(one, display)]))
        return "\n".join(lines)

    def shown(self, one: Any, display: Any) -> str:
        """An output as one line."""
        return " ".join(one.text.split())

    def cut(self, result: Result) -> tuple[int, int]:
        found = getattr(result, self.outputs)
        return sum(not one.finished for one in found), len(found)

    def note(self, run: "Run", request: Request, cut: int, total: int) -> str:
        return self.writer(run).cut_note(cut, total, self.config(run, request))


def sent_file(item: object, where: str, kind: str) -> tuple[str, bytes]:
    """The bytes of a file that was sent in base64, plain or as a data: address; `kind` is what it is, as `a sound`."""
    import base64
    import binascii

    if not isinstance(item, str):
        raise DataError(f"{where} must be {kind} file in base64")
    head, comma, rest = item.partition(",")
    text = rest if comma and head.startswith("data:") else item
    try:
        return where, base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise DataError(f"{where} is not base64: send the bytes of {kind} file, as base64 or a data: address") from None
