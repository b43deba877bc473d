"""`score`: the log-probability that a run gives to texts: of translations given their sources, or of texts alone."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import MISSING, dataclass
from typing import TYPE_CHECKING, Any

from regard.errors import ConfigError
from regard.tasks.verbs.spec import (
    Asked,
    Cost,
    RequestLimits,
    Verb,
    check_characters,
    check_count,
    lines_of,
    option,
    said_if_given,
)

if TYPE_CHECKING:
    from pathlib import Path

    from regard.tasks.run import Run


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoreRequest:
    """Texts, or for a run that translates pairs of a source and a target."""

    input: str | tuple[str | tuple[str, ...], ...] = option(
        MISSING, "Texts; for a run that translates, a source and its target, two at a time."
    )
    tokens: bool = option(False, "Also say the log-probability of every token.")


@dataclass(frozen=True, slots=True)
class TokenScore:
    """A token as text, and its log-probability given all before it."""

    piece: str
    log_prob: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Scored:
    """The `line`-th text, with its source where it has one; its log-probability, which is that of `length` tokens."""

    line: int
    source: str | None = said_if_given()
    text: str
    log_prob: float
    length: int
    tokens: tuple[TokenScore, ...] | None = said_if_given()


class ScoreTexts(Verb[ScoreRequest, Scored]):
    """Inputs of many requests go together."""

    def check(
        self, run: "Run", request: ScoreRequest, items: Sequence[Any], limits: RequestLimits | None = None
    ) -> list[Any]:
        check_count(len(items), "input", limits, "texts")
        pairs = run.scorer.pairs
        for one in items:
            if pairs and (isinstance(one, str) or len(one) != 2):
                raise ConfigError("input must be pairs of two texts, a source and its target")
            if not pairs and not isinstance(one, str):
                raise ConfigError("input must be texts: this run scores texts, not pairs")
        texts = [text for one in items for text in ((one,) if isinstance(one, str) else one)]
        check_characters(texts, "input", limits)
        return [run.scorer.checked(one if isinstance(one, str) else tuple(one)) for one in items]

    def cost(self, run: "Run", asked: Asked) -> Cost:
        return Cost(asked.item.read)

    def together(self, run: "Run", asked: Sequence[Asked], gone: Callable[[Asked], bool]) -> list[Scored]:
        found = run.scorer.score([one.item for one in asked])
        return [
            Scored(
                line=one.number + 1,
                source=one.item.source,
                text=one.item.text,
                log_prob=sum((token.log_prob for token in tokens), 0.0),
                length=len(tokens),
                tokens=tuple(tokens) if one.request.tokens else None,
            )
            for one, tokens in zip(asked, found, strict=True)
        ]

    def inputs(self, run: "Run", words: Iterable[str], file: "Path | tuple[Path, ...] | None") -> Iterator[Any]:
        if not run.scorer.pairs:
            if isinstance(file, tuple):
                raise ConfigError("--source and --target are for a run that translates; this one scores texts: --input")
            return iter(lines_of(words, file))
        if file is not None:
            from regard.tasks.corpora import files_corpus

            files = file if isinstance(file, tuple) else (file,)
            return iter(files_corpus(tuple(map(str, files)), run.config.data))
        if isinstance(words, list):
            if len(words) % 2:
                raise ConfigError(f"{len(words)} texts; give a source and its target, two at a time")
            return iter(zip(words[::2], words[1::2], strict=True))
        return map(_pair, words)

    def show(self, result: Scored, display: object = None) -> str:
        tokens = (f"{one.piece.replace(chr(9), ' ')} {one.log_prob:.4f}" for one in result.tokens or ())
        return "\t".join([f"{result.log_prob:.4f}", *tokens])


def _pair(line: str) -> tuple[str, str]:
    source, tab, target = line.partition("\t")
    if not tab:
        raise ConfigError(f"'{line[:40]}' is no pair: a line of standard input is a source, a tab and its target")
    return source, target


SCORE = ScoreTexts(
    name="score",
    help="""Say how likely a run finds texts: translations given their sources, or texts alone.

    Prints the log-probability of each, the natural logarithm, one per line; with --tokens that of every token after
    it. Of a translation its end counts too; of a text it does not, since it may go on.

    \b
    Examples:
      regard score runs/demo "I am a student." "Je suis étudiant."
      regard score runs/demo --source test.en --target test.fr --output scores.txt
      regard score runs/demo --input pairs.tsv --tokens --json
      regard score runs/words "To be, or not to be"
    """,
    request=ScoreRequest,
    items="input",
    result=Scored,
    unit="texts",
    files=("source", "target"),
    ensembles=True,
)
