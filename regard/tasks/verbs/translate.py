"""`translate`: sentences in, translations out."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import MISSING, dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from regard.tasks.verbs.spec import (
    Asked,
    Beam,
    Between,
    Cost,
    LengthPenalty,
    RequestLimits,
    Seed,
    Temperature,
    TopK,
    TopP,
    Verb,
    check_budget,
    given,
    lines_of,
    option,
    unsaid,
)

if TYPE_CHECKING:
    from pathlib import Path

    from regard.decode.config import DecodeConfig
    from regard.tasks.run import Run

Overlong = Literal["split", "truncate", "refuse"]


@dataclass(frozen=True, slots=True)
class Translation:
    """A translation, its length-normalised score and log-probability, its tokens, and these as text, `pieces`.

    One that is not `finished` was cut at the greatest length that the settings, or the model, allow.
    """

    text: str
    score: float
    log_prob: float
    tokens: tuple[int, ...] = unsaid()
    pieces: tuple[str, ...] = ()
    finished: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchOptions:
    """How translations are searched for: what `translate` and `evaluate` have in common."""

    beam: Beam = option(None, "Hypotheses kept at each step; 1 is greedy.")
    length_penalty: LengthPenalty = option(None, "Higher favours longer translations; 0 for none.")
    max_len: Annotated[int | Literal["none"] | None, Between(1, "tokens")] = option(
        None, "Most tokens of a translation; where given, the only limit; none for all the model can write."
    )
    max_ratio: Annotated[float | Literal["none"] | None, Between(0.0, 1e6)] = option(
        None, "Most tokens of a translation for each of the source, plus --max-extra; or none."
    )
    max_extra: Annotated[int | Literal["none"] | None, Between(1, 1_000_000)] = option(
        None, "See --max-ratio; or none."
    )
    overlong: Overlong = option("split", "A sentence longer than the model reads: split it, truncate it, or refuse it.")


@dataclass(frozen=True, kw_only=True, slots=True)
class TranslateRequest(SearchOptions):
    """Sentences, and how to translate them."""

    text: str | tuple[str, ...] = option(MISSING, "Sentences.")
    top_beams: Beam = option(None, "How many of them to print, best first.")
    min_len: Annotated[int | None, Between(0, "tokens")] = option(None, "Fewest tokens of a translation.")
    temperature: Temperature = option(
        None, "Sample instead of searching; 1 is the model's own distribution, lower is more careful."
    )
    top_k: TopK = option(None, "Top-k sampling: from the k likeliest tokens.")
    top_p: TopP = option(None, "Top-p sampling: from the likeliest tokens that hold this probability.")
    samples: Beam = option(None, "How many to sample.")
    seed: Seed = option(None, "The seed of the random numbers.")


@dataclass(frozen=True, kw_only=True, slots=True)
class Translated:
    """One sentence, the `line`-th, with its translations, best first."""

    line: int
    source: str
    translations: tuple[Translation, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Display:
    scores: bool = option(False, "Print the score before each translation, with a tab.")


class Translate(Verb[TranslateRequest, Translated]):
    """Sentences of many requests that are searched for alike go together."""

    def check(
        self, run: "Run", request: TranslateRequest, items: Sequence[Any], limits: RequestLimits | None = None
    ) -> "list[SourceSentence]":
        sentences = super().check(run, request, items, limits)
        config = _config(run, request, limits)
        run.translator.check(config)
        rows = max(config.beam, config.samples)
        said = f"{len(sentences)} texts x {rows} hypotheses x {config.max_len} tokens"
        check_budget(limits, len(sentences) * rows, config.max_len, said)
        return [SourceSentence(text, config) for text in sentences]

    def key(self, run: "Run", request: TranslateRequest) -> Hashable:
        config = _config(run, request, None)
        # A seed matters to sampling only.
        return config if config.temperature is not None else replace(config, seed=0), request.overlong

    def cost(self, run: "Run", asked: Asked) -> Cost:
        read = len(run.vocabularies.source.encode(asked.item.text)) + 1
        config = asked.item.config
        return Cost(read, max(config.beam, config.samples) * config.max_len)

    def together(self, run: "Run", asked: Sequence[Asked], gone: Callable[[Asked], bool]) -> list[Translated]:
        found = run.translator.translate(
            [one.item.text for one in asked],
            asked[0].item.config,
            overlong=asked[0].request.overlong,
            numbers=[one.number for one in asked],  # what is sampled goes by a sentence's number in its own request
            gone=lambda place: gone(asked[place]),
        )
        return [
            Translated(line=one.number + 1, source=one.item.text, translations=tuple(best))
            for one, best in zip(asked, found, strict=True)
        ]

    def written(self, result: Translated) -> int:
        return sum(len(one.tokens) for one in result.translations)

    def inputs(self, run: "Run", words: Iterable[str], file: "Path | None") -> Iterator[str]:
        return iter(lines_of(words, file))  # a blank line has a blank translation

    def show(self, result: Translated, display: Display | None = None) -> str:
        # A model over bytes may write a line break; a translation is one line all the same.
        lines = [" ".join(one.text.replace("\r", "\n").split("\n")) for one in result.translations]
        scored = zip(result.translations, lines, strict=True)
        return "\n".join(f"{one.score:.4f}\t{line}" if display and display.scores else line for one, line in scored)

    def cut(self, result: Translated) -> tuple[int, int]:
        return sum(not one.finished for one in result.translations), len(result.translations)

    def note(self, run: "Run", request: TranslateRequest, cut: int, total: int) -> str:
        return run.translator.cut_note(cut, total, _config(run, request, None))


@dataclass(frozen=True, slots=True)
class SourceSentence:
    """A sentence, and how it is translated."""

    text: str
    config: "DecodeConfig"


def _config(run: "Run", request: TranslateRequest, limits: RequestLimits | None) -> "DecodeConfig":
    config = run.decode_config(**given(request, "text", "overlong"))
    # A length that a request names lifts the run's other limits, the server's own does not.
    return config if limits is None else replace(config, max_len=min(config.max_len, limits.tokens))


TRANSLATE = Translate(
    name="translate",
    help="""Translate arguments, a file or standard input, line by line.

    Each line has its translation on a line of its own, a blank line a blank one; with --top-beams or --samples, that
    many lines.

    \b
    Examples:
      regard translate runs/demo "I am a student."
      regard translate runs/demo --input test.en --output test.fr --beam 5
      cat test.en | regard translate runs/demo --scores
    """,
    request=TranslateRequest,
    items="text",
    result=Translated,
    display=Display,
    unit="texts",
    engines=True,
)
