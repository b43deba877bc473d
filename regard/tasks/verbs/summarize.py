"""`summarize`: documents in, summaries out."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import MISSING, dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from regard.tasks.verbs.spec import (
    Asked,
    Beam,
    Between,
    Cost,
    CoveragePenalty,
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
    check_budget,
    check_phrases,
    given,
    lines_of,
    option,
)
from regard.tasks.verbs.translate import Translation

if TYPE_CHECKING:
    from pathlib import Path

    from regard.decode.config import DecodeConfig
    from regard.decode.constraints import WordLimits
    from regard.tasks.run import Run


@dataclass(frozen=True, kw_only=True, slots=True)
class SummarizeRequest:
    """Documents, and how to summarize them."""

    text: str | tuple[str, ...] = option(MISSING, "Documents, one each.")
    min_words: Annotated[int | None, Between(0, "tokens")] = option(None, "Fewest words of a summary.")
    max_words: Annotated[int | None, Between(1, "tokens")] = option(None, "Most words of a summary.")
    beam: Beam = option(None, "Hypotheses kept at each step; 1 is greedy.")
    top_beams: Beam = option(None, "How many of them to print, best first.")
    length_penalty: LengthPenalty = option(None, "Higher favours longer summaries; 0 for none.")
    max_len: Annotated[int | None, Between(1, "tokens")] = option(None, "Most tokens of a summary.")
    no_repeat: NoRepeat = option(None, "No run of so many tokens occurs twice in a summary; 0 lets any.")
    coverage_penalty: CoveragePenalty = option(None, "Of a beam: higher favours summaries of all of the document.")
    prefix: str | None = option(None, "Begin every summary with this text.", "TEXT")
    require: str | tuple[str, ...] = option((), "A phrase that summaries must have; may be repeated.", "TEXT")
    forbid: str | tuple[str, ...] = option((), "A phrase that no summary has; may be repeated.", "TEXT")
    overlong: Literal["truncate", "refuse"] = option(
        "truncate", "A document longer than the model reads: truncate it, which is said, or refuse it."
    )
    temperature: Temperature = None
    top_k: TopK = None
    top_p: TopP = None
    min_p: MinP = None
    samples: Samples = None
    seed: Seed = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Summarized:
    """One document, the `line`-th, with its summaries, best first; `truncated` where only its beginning was read."""

    line: int
    summaries: tuple[Translation, ...]
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class DocumentToSummarize:
    """A document, how it is summarized, and whether it is longer than the model reads."""

    text: str
    config: "DecodeConfig"
    words: "WordLimits"
    long: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class SummaryDisplay:
    scores: bool = option(False, "Print the score before each summary, with a tab.")


class Summarize(Verb[SummarizeRequest, Summarized]):
    """Documents of many requests that are searched for alike go together."""

    def check(
        self, run: "Run", request: SummarizeRequest, items: Sequence[Any], limits: RequestLimits | None = None
    ) -> list[DocumentToSummarize]:
        documents = super().check(run, request, items, limits)
        for name in ("prefix", "require", "forbid"):
            check_phrases(name, getattr(request, name) or (), limits)
        config, words = _config(run, request, limits), _words(request)
        run.translator.check(config)
        rows = max(config.beam, config.samples)
        said = f"{len(documents)} texts x {rows} hypotheses x {config.max_len} tokens"
        check_budget(limits, len(documents) * rows, config.max_len, said)
        long = [
            run.translator.too_long(text, number, request.overlong == "refuse")
            for number, text in enumerate(documents, 1)
        ]
        return [DocumentToSummarize(text, config, words, one) for text, one in zip(documents, long, strict=True)]

    def key(self, run: "Run", request: SummarizeRequest) -> Hashable:
        config = _config(run, request, None)
        # A seed matters to sampling only.
        return config if config.sampled else replace(config, seed=0), _words(request)

    def cost(self, run: "Run", asked: Asked) -> Cost:
        read = min(run.translator.max_len, len(run.vocabularies.source.encode(asked.item.text)) + 1)
        config = asked.item.config
        return Cost(read, max(config.beam, config.samples) * config.max_len)

    def together(self, run: "Run", asked: Sequence[Asked], gone: Callable[[Asked], bool]) -> list[Summarized]:
        found = run.translator.translate(
            [one.item.text for one in asked],
            asked[0].item.config,
            overlong="truncate",
            numbers=[one.number for one in asked],  # what is sampled goes by a document's number in its own request
            gone=lambda place: gone(asked[place]),
            words=asked[0].item.words,
        )
        return [
            Summarized(line=one.number + 1, summaries=tuple(best), truncated=one.item.long)
            for one, best in zip(asked, found, strict=True)
        ]

    def written(self, result: Summarized) -> int:
        return sum(len(one.tokens) for one in result.summaries)

    def inputs(self, run: "Run", words: Iterable[str], file: "Path | None") -> Iterator[str]:
        return iter(lines_of(words, file))  # a blank line has a blank summary

    def show(self, result: Summarized, display: SummaryDisplay | None = None) -> str:
        lines = [" ".join(one.text.split()) for one in result.summaries]
        scored = zip(result.summaries, lines, strict=True)
        return "\n".join(f"{one.score:.4f}\t{line}" if display and display.scores else line for one, line in scored)

    def cut(self, result: Summarized) -> tuple[int, int]:
        return sum(not one.finished for one in result.summaries), len(result.summaries)

    def shortened(self, result: Summarized) -> bool:
        return result.truncated

    def shortened_note(self, run: "Run", shortened: int, total: int) -> str:
        return run.translator.truncated_note(shortened, total)

    def note(self, run: "Run", request: SummarizeRequest, cut: int, total: int) -> str:
        return run.translator.cut_note(cut, total, _config(run, request, None))


def _words(request: SummarizeRequest) -> "WordLimits":
    from regard.decode.constraints import WordLimits

    return WordLimits(request.min_words, request.max_words)


def _config(run: "Run", request: SummarizeRequest, limits: RequestLimits | None) -> "DecodeConfig":
    own = given(request, "text", "overlong", "min_words", "max_words")
    config = run.decode_config(**{name: value for name, value in own.items() if value != ()})
    return config if limits is None else replace(config, max_len=min(config.max_len, limits.tokens))


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
    display=SummaryDisplay,
    unit="documents",
    ensembles=True,
)
