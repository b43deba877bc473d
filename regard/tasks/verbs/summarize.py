"""`summarize`: documents in, summaries out."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import MISSING, dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from regard.tasks.verbs.spec import (
    Asked,
    Between,
    CoveragePenalty,
    RequestLimits,
    Verb,
    check_constraints,
    check_search,
    given,
    lines_of,
    option,
)
from regard.tasks.verbs.translate import Translation
from regard.tasks.verbs.writing import ScoresDisplay, ToWrite, WritingRequest, WritingVerb

if TYPE_CHECKING:
    from pathlib import Path

    from regard.decode.config import DecodeConfig
    from regard.decode.constraints import WordLimits
    from regard.tasks.run import Run


@dataclass(frozen=True, kw_only=True, slots=True)
class SummarizeRequest(WritingRequest):
    """Documents, and how to summarize them."""

    text: str | tuple[str, ...] = option(MISSING, "Documents, one each.")
    min_words: Annotated[int | None, Between(0, "tokens")] = option(None, "Fewest words of a summary.")
    max_words: Annotated[int | None, Between(1, "tokens")] = option(None, "Most words of a summary.")
    coverage_penalty: CoveragePenalty = option(None, "Of a beam: higher favours summaries of all of the document.")
    prefix: str | None = option(None, "Begin every summary with this text.", "TEXT")
    require: str | tuple[str, ...] = option((), "A phrase that summaries must have; may be repeated.", "TEXT")
    forbid: str | tuple[str, ...] = option((), "A phrase that no summary has; may be repeated.", "TEXT")
    overlong: Literal["truncate", "refuse"] = option(
        "truncate", "A document longer than the model reads: truncate it, which is said, or refuse it."
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Summarized:
    """One document, the `line`-th, with its summaries, best first; `truncated` where only its beginning was read."""

    line: int
    summaries: tuple[Translation, ...]
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class DocumentToSummarize(ToWrite):
    """A document, how it is summarized, and whether it is longer than the model reads."""

    words: "WordLimits | None" = None
    long: bool = False


class Summarize(WritingVerb[SummarizeRequest, Summarized]):
    """Documents of many requests that are searched for alike go together."""

    def config(self, run: "Run", request: SummarizeRequest, limits: RequestLimits | None = None) -> "DecodeConfig":
        decode = {name: value for name, value in given(request, self.items, *self.apart).items() if value != ()}
        config = run.decode_config(**decode)
        return config if limits is None else replace(config, max_len=min(config.max_len, limits.tokens))

    def check(
        self, run: "Run", request: SummarizeRequest, items: Sequence[Any], limits: RequestLimits | None = None
    ) -> list[DocumentToSummarize]:
        documents = Verb.check(self, run, request, items, limits)
        check_constraints(request, limits)
        config, words = self.config(run, request, limits), _words(request)
        run.translator.check(config)
        check_search(config, len(documents), "texts", limits)
        long = [
            run.translator.too_long(text, number, request.overlong == "refuse")
            for number, text in enumerate(documents, 1)
        ]
        return [
            DocumentToSummarize(text, config, words=words, long=one) for text, one in zip(documents, long, strict=True)
        ]

    def key(self, run: "Run", request: SummarizeRequest) -> Hashable:
        return super().key(run, request), _words(request)

    def places(self, run: "Run", item: DocumentToSummarize) -> int:
        return min(run.translator.max_len, len(run.vocabularies.source.encode(item.given)) + 1)

    def write(
        self, run: "Run", asked: Sequence[Asked], *, numbers: Sequence[int], gone: Callable[[int], bool]
    ) -> Sequence[Sequence[Translation]]:
        first, documents = asked[0].item, [one.item.given for one in asked]
        return run.translator.translate(
            documents, first.config, overlong="truncate", numbers=numbers, gone=gone, words=first.words
        )

    def result_of(self, asked: Asked, best: Sequence[Translation]) -> Summarized:
        return Summarized(line=asked.number + 1, summaries=tuple(best), truncated=asked.item.long)

    def inputs(self, run: "Run", words: Iterable[str], file: "Path | None") -> Iterator[str]:
        return iter(lines_of(words, file))  # a blank line has a blank summary

    def shortened(self, result: Summarized) -> bool:
        return result.truncated

    def shortened_note(self, run: "Run", shortened: int, total: int) -> str:
        return run.translator.truncated_note(shortened, total)


def _words(request: SummarizeRequest) -> "WordLimits":
    from regard.decode.constraints import WordLimits

    return WordLimits(request.min_words, request.max_words)


SUMMARIZE = Summarize(
    name="summarize",
    help="""Summarize documents: arguments, or the lines of a file or of standard input.

    Each document has its summary on a line of its own, a blank one a blank one; with --top-beams or --samples, that
    many lines. A document longer than the model reads is summarized from its beginning, which is said.

    \b
    Examples:
      regard summarize runs/headlines "The old king of France died on Monday in his palace ."
      regard summarize runs/headlines --input articles.txt --output headlines.txt --max-words 8
      cat articles.txt | regard summarize runs/headlines --beam 5 --no-repeat 3 --json
    """,
    request=SummarizeRequest,
    items="text",
    result=Summarized,
    display=ScoresDisplay,
    engine="translator",
    outputs="summaries",
    apart=("overlong", "min_words", "max_words"),
    unit="documents",
    ensembles=True,
)
