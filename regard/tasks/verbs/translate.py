"""`translate`: sentences in, translations out."""

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
    NoRepeat,
    Pull,
    RequestLimits,
    SamplingOptions,
    Told,
    Verb,
    WrittenText,
    check_constraints,
    check_search,
    given,
    lines_of,
    option,
    said_if_given,
    search_key,
    search_rows,
)

if TYPE_CHECKING:
    from pathlib import Path

    from regard.decode.config import DecodeConfig
    from regard.tasks.run import Run

Overlong = Literal["split", "truncate", "refuse"]


@dataclass(frozen=True, slots=True)
class Translation(WrittenText):
    """A translation. `alignment`, where it was asked for, has pairs of a source word and a target word, from 0.

    By minimum Bayes risk the score is the mean chrF against the samples.
    """

    alignment: tuple[tuple[int, int], ...] | None = said_if_given()


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
    no_repeat: NoRepeat = option(None, "No run of so many tokens occurs twice in a translation; 0 lets any.")
    coverage_penalty: CoveragePenalty = option(None, "Of a beam: higher favours translations of all of the source.")
    mbr: Annotated[int | None, Between(2, "beam", or_zero=True)] = option(
        None, "Sample so many, and give the one of least Bayes risk: nearest to the others by chrF."
    )
    shortlist: bool | None = option(
        None, "Choose among words that `regard shortlist` found likely for a source's: faster on a CPU."
    )
    overlong: Overlong = option("split", "A sentence longer than the model reads: split it, truncate it, or refuse it.")


@dataclass(frozen=True, kw_only=True, slots=True)
class TranslateRequest(SamplingOptions, SearchOptions):
    """Sentences, and how to translate them."""

    text: str | tuple[str, ...] = option(MISSING, "Sentences.")
    top_beams: Beam = option(None, "How many of them to print, best first.")
    min_len: Annotated[int | None, Between(0, "tokens")] = option(None, "Fewest tokens of a translation.")
    prefix: str | None = option(None, "Begin every translation with this text.", "TEXT")
    require: str | tuple[str, ...] = option((), "A phrase that translations must have; may be repeated.", "TEXT")
    forbid: str | tuple[str, ...] = option((), "A phrase that no translation has; may be repeated.", "TEXT")
    alignments: bool = option(False, "Say which words belong together, as in 0-0 1-2, from the attention.")


@dataclass(frozen=True, kw_only=True, slots=True)
class Translated:
    """One sentence, the `line`-th, with its translations, best first, and its words that the run does not know."""

    line: int
    source: str
    translations: tuple[Translation, ...]
    unknown: tuple[str, ...] | None = said_if_given()


@dataclass(frozen=True, kw_only=True, slots=True)
class Display:
    scores: bool = option(False, "Print the score before each translation, with a tab.")


class Translate(Verb[TranslateRequest, Translated]):
    """Sentences of many requests that are searched for alike go together."""

    def check(
        self, run: "Run", request: TranslateRequest, items: Sequence[Any], limits: RequestLimits | None = None
    ) -> "list[SourceSentence]":
        sentences = super().check(run, request, items, limits)
        check_constraints(request, limits)
        config = _config(run, request, limits)
        run.translator.check(config, request.alignments)
        check_search(config, len(sentences), "texts", limits)
        return [SourceSentence(text, config) for text in sentences]

    def key(self, run: "Run", request: TranslateRequest) -> Hashable:
        return search_key(_config(run, request, None)), request.overlong, request.alignments

    def cost(self, run: "Run", asked: Asked) -> Cost:
        read = len(run.vocabularies.source.encode(asked.item.text)) + 1
        return Cost(read, search_rows(asked.item.config) * asked.item.config.max_len)

    def answer(self, run: "Run", pull: Pull, *, gone: Callable[[Asked], bool]) -> Iterator[Told]:
        first = list(pull())
        if not first:
            return
        if first[0].request.alignments or not run.translator.resident(first[0].item.config):
            rest = iter([first])
            yield from super().answer(run, lambda: next(rest, None) or pull(), gone=gone)
            return

        def fresh() -> list[tuple[Asked, str, int]]:
            nonlocal first
            asked, first = first or list(pull()), []
            # What is sampled goes by a sentence's number in its own request.
            return [(one, one.item.text, one.number) for one in asked]

        config, overlong = first[0].item.config, first[0].request.overlong
        for came in run.translator.answering(fresh, config, overlong=overlong, gone=gone):
            yield [(one, _translated(run, one, best)) for one, best in came if best]

    def together(self, run: "Run", asked: Sequence[Asked], gone: Callable[[Asked], bool]) -> list[Translated]:
        found = run.translator.translate(
            [one.item.text for one in asked],
            asked[0].item.config,
            overlong=asked[0].request.overlong,
            numbers=[one.number for one in asked],  # what is sampled goes by a sentence's number in its own request
            gone=lambda place: gone(asked[place]),
            alignments=asked[0].request.alignments,
        )
        return [_translated(run, one, best) for one, best in zip(asked, found, strict=True)]

    def written(self, result: Translated) -> int:
        return sum(len(one.tokens) for one in result.translations)

    def inputs(self, run: "Run", words: Iterable[str], file: "Path | None") -> Iterator[str]:
        return iter(lines_of(words, file))  # a blank line has a blank translation

    def show(self, result: Translated, display: Display | None = None) -> str:
        # A model over bytes may write a line break; a translation is one line all the same.
        lines = [
            " ".join(one.text.replace("\r", "\n").split("\n")) + _pharaoh(one.alignment) for one in result.translations
        ]
        scored = zip(result.translations, lines, strict=True)
        return "\n".join(f"{one.score:.4f}\t{line}" if display and display.scores else line for one, line in scored)

    def cut(self, result: Translated) -> tuple[int, int]:
        return sum(not one.finished for one in result.translations), len(result.translations)

    def unknown(self, result: Translated) -> Sequence[str]:
        return result.unknown or ()

    def note(self, run: "Run", request: TranslateRequest, cut: int, total: int) -> str:
        return run.translator.cut_note(cut, total, _config(run, request, None))


def _translated(run: "Run", asked: Asked, best: Sequence[Translation]) -> Translated:
    text = asked.item.text
    unknown = run.task.unknown_words(run, text)
    return Translated(line=asked.number + 1, source=text, translations=tuple(best), unknown=unknown or None)


@dataclass(frozen=True, slots=True)
class SourceSentence:
    """A sentence, and how it is translated."""

    text: str
    config: "DecodeConfig"


def _pharaoh(alignment: Sequence[tuple[int, int]] | None) -> str:
    """An alignment after its translation, in Pharaoh format."""
    return "" if alignment is None else " ||| " + " ".join(f"{source}-{target}" for source, target in alignment)


def _config(run: "Run", request: TranslateRequest, limits: RequestLimits | None) -> "DecodeConfig":
    decode = {name: value for name, value in given(request, "text", "overlong", "alignments").items() if value != ()}
    config = run.decode_config(**decode)
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
      regard translate runs/demo "I am a student." --beam 4 --require étudiant --forbid large --alignments
    """,
    request=TranslateRequest,
    items="text",
    result=Translated,
    display=Display,
    unit="texts",
    ensembles=True,
    engines=True,
)
