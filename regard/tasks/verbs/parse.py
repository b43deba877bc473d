"""`parse`: sentences in, trees out."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import MISSING, dataclass
from typing import TYPE_CHECKING, Any

from regard.tasks.verbs.spec import (
    Asked,
    Cost,
    RequestLimits,
    check_budget,
    check_characters,
    check_count,
    given,
    lines_of,
    option,
    search_rows,
    unsaid,
)
from regard.tasks.verbs.writing import ScoresDisplay, SearchRequest, ToWrite, WritingVerb

if TYPE_CHECKING:
    from pathlib import Path

    from regard.decode.config import DecodeConfig
    from regard.tasks.run import Run


@dataclass(frozen=True, kw_only=True, slots=True)
class ParseRequest(SearchRequest):
    """Sentences, and how to parse them."""

    text: str | tuple[str | tuple[str, ...], ...] = option(
        MISSING, "Sentences; to a server or in Python also lists of words, which are taken as they are."
    )
    spaced: bool = option(False, "Words are what spaces separate; otherwise words and marks are cut apart.")


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


@dataclass(frozen=True, kw_only=True, slots=True)
class ParseDisplay(ScoresDisplay):
    symbols: bool = option(False, "Print the symbols that the model wrote instead of the tree.")


class ParseSentences(WritingVerb[ParseRequest, ParsedSentence]):
    """Sentences of many requests that are searched for alike go together."""

    def config(self, run: "Run", request: ParseRequest, limits: RequestLimits | None = None) -> "DecodeConfig":
        return run.decode_config(**given(request, "text", "spaced"))

    def check(
        self, run: "Run", request: ParseRequest, items: Sequence[Any], limits: RequestLimits | None = None
    ) -> list[ToWrite]:
        check_count(len(items), "text", limits, "sentences")
        for item in items:
            check_characters([item] if isinstance(item, str) else item, "text", limits)
        config = self.config(run, request)
        sentences = run.parser.sentences(items, spaced=request.spaced)
        rows = sum(map(len, sentences)) * search_rows(config)
        each = run.parser.symbols_per_word
        said = f"{len(sentences)} sentences x {config.rows} trees x {each} symbols for each word"
        check_budget(limits, rows, each, said)
        return [ToWrite(words, config) for words in sentences]

    def cost(self, run: "Run", asked: Asked) -> Cost:
        words, config = asked.item.given, asked.item.config
        return Cost(len(words), search_rows(config) * len(words) * run.parser.symbols_per_word)

    def result_of(self, asked: Asked, best: Sequence[ParseTree]) -> ParsedSentence:
        return ParsedSentence(words=asked.item.given, trees=tuple(best))

    def written(self, result: ParsedSentence) -> int:
        return sum(len(one.symbols) for one in result.trees)

    def cut(self, result: ParsedSentence) -> tuple[int, int]:
        return 0, 1  # every tree is whole

    def inputs(self, run: "Run", words: Iterable[str], file: "Path | None") -> Iterator[Any]:
        from regard.data.trees import SUFFIXES, read_cleaned

        if file is not None and {*file.suffixes} & SUFFIXES:
            return (tree.words for tree in read_cleaned([file]))
        return (line for line in lines_of(words, file) if line.strip())

    def shown(self, one: ParseTree, display: ParseDisplay | None) -> str:
        return " ".join(one.symbols) if display and display.symbols else one.tree


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
    engine="parser",
    outputs="trees",
    unit="sentences",
)
