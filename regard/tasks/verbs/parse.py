"""`parse`: sentences in, trees out."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import MISSING, dataclass, replace
from typing import TYPE_CHECKING, Any

from regard.tasks.verbs.spec import (
    Asked,
    Beam,
    Cost,
    LengthPenalty,
    MinP,
    RequestLimits,
    Samples,
    Seed,
    Temperature,
    TopK,
    TopP,
    Verb,
    check_budget,
    check_characters,
    check_count,
    given,
    lines_of,
    option,
    unsaid,
)

if TYPE_CHECKING:
    from pathlib import Path

    from regard.decode.config import DecodeConfig
    from regard.tasks.run import Run


@dataclass(frozen=True, kw_only=True, slots=True)
class ParseRequest:
    """Sentences, and how to parse them."""

    text: str | tuple[str | tuple[str, ...], ...] = option(
        MISSING, "Sentences; to a server or in Python also lists of words, which are taken as they are."
    )
    spaced: bool = option(False, "Words are what spaces separate; otherwise words and marks are cut apart.")
    beam: Beam = option(None, "Hypotheses kept at each step; 1 is greedy.")
    top_beams: Beam = option(None, "How many of them to print, best first.")
    length_penalty: LengthPenalty = option(None, "Higher favours trees with more brackets; 0 for none.")
    temperature: Temperature = None
    top_k: TopK = None
    top_p: TopP = None
    min_p: MinP = None
    samples: Samples = None
    seed: Seed = None


@dataclass(frozen=True, slots=True)
class ParseTree:
    """A tree in brackets, its length-normalised score and log-probability, and the symbols that wrote it."""

    tree: str
    score: float
    log_prob: float
    symbols: tuple[str, ...] = ()
    choices: tuple[int, ...] = unsaid(())


@dataclass(frozen=True, kw_only=True, slots=True)
class ParsedSentence:
    """The words of one sentence with its trees, best first."""

    words: tuple[str, ...]
    trees: tuple[ParseTree, ...]


@dataclass(frozen=True, slots=True)
class SentenceToParse:
    """Words, and how they are parsed."""

    words: tuple[str, ...]
    config: "DecodeConfig"


@dataclass(frozen=True, kw_only=True, slots=True)
class ParseDisplay:
    scores: bool = option(False, "Print the score before each tree, with a tab.")
    symbols: bool = option(False, "Print the symbols that the model wrote instead of the tree.")


class ParseSentences(Verb[ParseRequest, ParsedSentence]):
    """Sentences of many requests that are searched for alike go together."""

    def check(
        self, run: "Run", request: ParseRequest, items: Sequence[Any], limits: RequestLimits | None = None
    ) -> list[SentenceToParse]:
        check_count(len(items), "text", limits, "sentences")
        for item in items:
            check_characters([item] if isinstance(item, str) else item, "text", limits)
        config = _config(run, request)
        sentences = run.parser.sentences(items, spaced=request.spaced)
        rows = sum(map(len, sentences)) * max(config.beam, config.samples)
        each = run.parser.symbols_per_word
        said = f"{len(sentences)} sentences x {config.rows} trees x {each} symbols for each word"
        check_budget(limits, rows, each, said)
        return [SentenceToParse(words, config) for words in sentences]

    def key(self, run: "Run", request: ParseRequest) -> Hashable:
        config = _config(run, request)
        # A seed matters to sampling only.
        return config if config.sampled else replace(config, seed=0)

    def cost(self, run: "Run", asked: Asked) -> Cost:
        words, config = asked.item.words, asked.item.config
        return Cost(len(words), max(config.beam, config.samples) * len(words) * run.parser.symbols_per_word)

    def together(self, run: "Run", asked: Sequence[Asked], gone: Callable[[Asked], bool]) -> list[ParsedSentence]:
        found = run.parser.parse(
            [one.item.words for one in asked],
            asked[0].item.config,
            numbers=[one.number for one in asked],  # what is sampled goes by a sentence's number in its own request
            gone=lambda place: gone(asked[place]),
        )
        return [ParsedSentence(words=one.item.words, trees=tuple(best)) for one, best in zip(asked, found, strict=True)]

    def written(self, result: ParsedSentence) -> int:
        return sum(len(one.symbols) for one in result.trees)

    def inputs(self, run: "Run", words: Iterable[str], file: "Path | None") -> Iterator[Any]:
        from regard.data.trees import SUFFIXES, read_cleaned

        if file is not None and {*file.suffixes} & SUFFIXES:
            return (tree.words for tree in read_cleaned([file]))
        return (line for line in lines_of(words, file) if line.strip())

    def show(self, result: ParsedSentence, display: ParseDisplay | None = None) -> str:
        lines = []
        for one in result.trees:
            score = [f"{one.score:.4f}"] if display and display.scores else []
            lines.append("\t".join([*score, " ".join(one.symbols) if display and display.symbols else one.tree]))
        return "\n".join(lines)


def _config(run: "Run", request: ParseRequest) -> "DecodeConfig":
    return run.decode_config(**given(request, "text", "spaced"))


PARSE = ParseSentences(
    name="parse",
    help="""Parse sentences: print the tree of each in brackets, one line per sentence.

    Every output is a tree over exactly the words given. With --top-beams or --samples, that many lines for each
    sentence. Of a file whose name has .mrg or .trees in it, the trees' own words are parsed.

    \b
    Examples:
      regard parse runs/trees "The animal didn't cross the street because it was too tired."
      regard parse runs/trees --input sentences.txt --spaced --beam 5 --top-beams 3 --scores
      regard parse runs/trees --input test.trees --output parsed.trees
    """,
    request=ParseRequest,
    items="text",
    result=ParsedSentence,
    display=ParseDisplay,
    unit="sentences",
)
