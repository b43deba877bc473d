"""`classify`, `tag`, `fill`, `follows`, `answer` and `embed`: what a model says of its inputs, many at a time."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import MISSING, dataclass
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Annotated, Any, Literal

from regard.errors import ConfigError, DataError
from regard.tasks.verbs.spec import (
    Asked,
    Between,
    Cost,
    Request,
    RequestLimits,
    Result,
    Verb,
    check_characters,
    check_count,
    option,
    read_each,
    said_if_given,
    unsaid,
)

if TYPE_CHECKING:
    from pathlib import Path

    from regard.tasks.run import Run

MOST = 1000
"""The most classes or answers to ask a server for."""

MOST_FILLINGS = 20
"""The most candidates for a masked word: each comes with the whole text."""


class OfTexts(Verb[Request, Result]):
    """Inputs are texts, or tuples of texts."""

    def cost(self, run: "Run", asked: Asked) -> Cost:
        """How many tokens the texts have, of which the model may read fewer."""
        tokenizer = run.vocabularies.target
        texts = (asked.item,) if isinstance(asked.item, str) else asked.item
        return Cost(sum(len(tokenizer.encode(text)) + 2 for text in texts))

    def read(self, line: str) -> str:
        return line

    def unknown(self, result: Result) -> Sequence[str]:
        return getattr(result, "unknown", None) or ()

    def unknown_words(self, run: "Run", texts: str | Sequence[str]) -> tuple[str, ...] | None:
        """The words of a text, or of several, that the run does not know, each once."""
        several = (texts,) if isinstance(texts, str) else texts
        return tuple(dict.fromkeys(word for text in several for word in run.task.unknown_words(run, text))) or None


@dataclass(frozen=True, slots=True)
class Choice:
    """A class, and how likely the model thinks it."""

    label: str
    probability: float


@dataclass(frozen=True, kw_only=True, slots=True)
class ClassifyRequest:
    """Texts, or for a run on pairs two texts each."""

    input: str | tuple[str | tuple[str, ...], ...] = option(
        MISSING, "Texts, two at a time for a run on pairs; or images, folders, arrays."
    )
    top: Annotated[int, Between(1, MOST)] = option(1, "How many classes to show of each input.")


@dataclass(frozen=True, kw_only=True, slots=True)
class Classified:
    """One input, as it is shown, with its classes, the likeliest first."""

    input: str
    classes: tuple[Choice, ...]
    named: bool = unsaid(False)
    unknown: tuple[str, ...] | None = said_if_given()
    truncated: bool | None = said_if_given()
    """True where the text is longer than the model reads, so that only its beginning was read."""


class Classify(OfTexts[ClassifyRequest, Classified]):
    """What an input is, the run knows."""

    def served(self, run: "Run") -> bool:
        return self.offered(run) and run.task.has_tokenizer

    def check(
        self, run: "Run", request: ClassifyRequest, items: Sequence[Any], limits: RequestLimits | None = None
    ) -> list[Any]:
        classifier = run.classifier()
        nested = [one for one in items if isinstance(one, tuple | list)]
        texts = [one for one in chain.from_iterable(nested or (items,)) if isinstance(one, str)]
        if nested and (len(nested) != len(items) or any(len(one) != 2 for one in nested)):
            raise ConfigError("input must be texts, or pairs of two texts")
        if nested and not classifier.pairs:
            raise DataError("this model classifies texts, not pairs: input must be a text or a list of texts")
        check_count(len(items), "input", limits, "texts")
        check_characters(texts, "input", limits)
        return classifier.arguments(texts) if len(texts) == len(items) else list(items)

    def together(self, run: "Run", asked: Sequence[Asked], gone: Callable[[Asked], bool]) -> list[Classified]:
        classifier, top = run.classifier(), asked[0].request.top
        items, of_texts = [one.item for one in asked], self.reads_texts(run)
        return [
            Classified(
                input=classifier.shown(item),
                classes=tuple(choices[:top]),
                named=classifier.named,
                unknown=self.unknown_words(run, item) if of_texts else None,
                truncated=(of_texts and run.encoder.framer.too_long(item)) or None,
            )
            for item, choices in zip(items, classifier.classify(items), strict=True)
        ]

    def shortened(self, result: Classified) -> bool:
        return bool(result.truncated)

    def reads_texts(self, run: "Run") -> bool:
        return not run.classifier().named

    def inputs(self, run: "Run", words: Iterable[str], file: "Path | None") -> Iterator[Any]:
        classifier = run.classifier()
        if file or classifier.pairs:
            return classifier.file(file) if file else iter(classifier.arguments(list(words)))
        return read_each(words, lambda word: classifier.arguments([word]))

    def show(self, result: Classified, display: object = None) -> str:
        # A text is known from its place; an image, of a folder perhaps, by its name.
        name = [result.input] if result.named else []
        return "\t".join([*name, *(f"{one.label}\t{one.probability:.4f}" for one in result.classes)])


CLASSIFY = Classify(
    name="classify",
    help="""Tell the class of texts, of pairs of texts, or of images, as the run was trained to.

    Prints the likeliest class and its probability, one line per input; with --top, so many classes on the line. Before
    those of an image stands its name. A labelled file, as `regard evaluate` takes it, is read without its labels.

    \b
    Examples:
      regard classify runs/films "a moving , beautiful film ."
      regard classify runs/films --input reviews.txt --json
      regard classify runs/films --input test.tsv
      regard classify runs/digits seven.png --top 3
    """,
    request=ClassifyRequest,
    items="input",
    result=Classified,
    reads_files=True,
    reads_standard_input=False,
)


@dataclass(frozen=True, slots=True)
class Tag:
    """A word, its likeliest tag, and how likely the model thinks that."""

    word: str
    tag: str
    probability: float


@dataclass(frozen=True, kw_only=True, slots=True)
class TagRequest:
    """Sentences."""

    text: str | tuple[str, ...] = option(MISSING, "Sentences.")


@dataclass(frozen=True, kw_only=True, slots=True)
class TaggedText:
    """One sentence with its words."""

    text: str
    words: tuple[Tag, ...]
    unknown: tuple[str, ...] | None = said_if_given()


class TagWords(OfTexts[TagRequest, TaggedText]):
    """A sentence is a text, or a tuple of words."""

    def together(self, run: "Run", asked: Sequence[Asked], gone: Callable[[Asked], bool]) -> list[TaggedText]:
        items = [one.item for one in asked]
        texts = [item if isinstance(item, str) else " ".join(item) for item in items]
        return [
            TaggedText(text=text, words=tuple(tags), unknown=self.unknown_words(run, text))
            for text, tags in zip(texts, run.tag(items), strict=True)
        ]

    def inputs(self, run: "Run", words: Iterable[str], file: "Path | None") -> Iterator[Any]:
        if file is None:
            return iter(words)
        from regard.data.labelled_texts import untagged
        from regard.tasks.encoder_tasks import keys_of

        return iter(untagged(file, keys_of(run.config), run.encoder.model.config.labels))

    def show(self, result: TaggedText, display: object = None) -> str:
        return "".join(f"{one.word}\t{one.tag}\t{one.probability:.4f}\n" for one in result.words)


TAG = TagWords(
    name="tag",
    help="""Tag the words of sentences: one line per word with its tag and probability, a blank line after a sentence.

    A labelled file, as `regard evaluate` takes it, is read without its tags, its words as they are.

    \b
    Examples:
      regard tag runs/names "Ada Lovelace lived in London."
      regard tag runs/names --input sentences.txt --json
      regard tag runs/names --input test.tsv
    """,
    request=TagRequest,
    items="text",
    result=TaggedText,
    unit="texts",
    reads_standard_input=False,
)


@dataclass(frozen=True, slots=True)
class Filling:
    """A token for a masked word, how likely the model thinks it, and the whole text with it in its place.

    Where several words are masked, the text has the likeliest in the other places.
    """

    token: str
    probability: float
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class FillRequest:
    """Texts with `[MASK]` in the place of words."""

    text: str | tuple[str, ...] = option(MISSING, "Texts with [MASK] in the place of words.")
    top: Annotated[int, Between(1, MOST_FILLINGS)] = option(5, "How many candidates to show for each masked word.")


@dataclass(frozen=True, kw_only=True, slots=True)
class Filled:
    """One text with what might stand in each of its masked places."""

    text: str
    masks: tuple[tuple[Filling, ...], ...]


class Fill(OfTexts[FillRequest, Filled]):
    """An input is a text with the row of tokens that the model reads."""

    def offered(self, run: "Run") -> bool:
        return _encodes(run) and run.encoder.model.words is not None

    def check(
        self, run: "Run", request: FillRequest, items: Sequence[Any], limits: RequestLimits | None = None
    ) -> list[Any]:
        rows = super().check(run, request, items, limits)
        mask, most = run.encoder.tokenizer.mask, None if limits is None else limits.texts
        for _, row in rows:
            hidden = sum(token == mask for token in row.ids)
            if most is not None and hidden > most:
                raise DataError(f"a text has {hidden} masked words; this server fills {most}")
        return list(rows)

    def checked(self, run: "Run", item: str) -> tuple[str, Any]:
        from regard.tasks.encoder import masked_row

        return item, masked_row(run.encoder, item)

    def cost(self, run: "Run", asked: Asked) -> Cost:
        return Cost(len(asked.item[1].ids))

    def together(self, run: "Run", asked: Sequence[Asked], gone: Callable[[Asked], bool]) -> list[Filled]:
        from regard.tasks.encoder import fill_rows

        found = fill_rows(run.encoder, [one.item[1] for one in asked], top=asked[0].request.top)
        return [
            Filled(text=one.item[0], masks=tuple(tuple(mask) for mask in masks))
            for one, masks in zip(asked, found, strict=True)
        ]

    def show(self, result: Filled, display: object = None) -> str:
        lines = []
        for number, mask in enumerate(result.masks, 1):
            lines += [f"[MASK] {number}"] if len(result.masks) > 1 else []
            lines += [f"{one.probability:.4f}\t{one.token}\t{one.text}" for one in mask]
        return "\n".join(lines)


FILL = Fill(
    name="fill",
    help="""Show what might stand in the place of masked words, with probabilities.

    \b
    Examples:
      regard fill runs/bert "The capital of France is [MASK]."
      regard fill runs/bert "The [MASK] sat on the [MASK]." --top 3 --json
    """,
    request=FillRequest,
    items="text",
    result=Filled,
    unit="texts",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class FollowsRequest:
    """Pairs of texts: whether the second follows the first."""

    input: tuple[tuple[str, ...], ...] = option(MISSING, "Texts two at a time: does the second follow the first?")


@dataclass(frozen=True, kw_only=True, slots=True)
class Followed:
    """Two texts, and how likely the model thinks that the second follows the first."""

    first: str
    second: str
    probability: float
    follows: bool


class Follows(OfTexts[FollowsRequest, Followed]):
    """An input is a pair of texts. For a model that was pre-trained to tell whether one text follows another."""

    def offered(self, run: "Run") -> bool:
        from regard.models.bert import Bert

        return isinstance(run.model, Bert) and run.model.next_text is not None

    def check(
        self, run: "Run", request: FollowsRequest, items: Sequence[Any], limits: RequestLimits | None = None
    ) -> list[Any]:
        if any(isinstance(one, str) or len(one) != 2 for one in items):
            raise DataError("input must be pairs of texts: a text, and one that may follow it")
        check_count(len(items), "input", limits, "texts")
        check_characters(list(chain.from_iterable(items)), "input", limits)
        return [tuple(one) for one in items]

    def together(self, run: "Run", asked: Sequence[Asked], gone: Callable[[Asked], bool]) -> list[Followed]:
        from regard.tasks.encoder import follows

        pairs = [one.item for one in asked]
        return [
            Followed(first=pair[0], second=pair[1], probability=found, follows=found > 0.5)
            for pair, found in zip(pairs, follows(run.encoder, pairs), strict=True)
        ]

    def inputs(self, run: "Run", words: Iterable[str], file: "Path | None") -> Iterator[Any]:
        given = list(words)
        if file is not None:
            from regard.data import TextFiles

            lines = list(TextFiles((file,), format="lines"))
            return pairwise(lines)
        if len(given) % 2:
            raise DataError(f"{len(given)} texts; give two at a time: a text, and one that may follow it")
        return iter(list(zip(given[::2], given[1::2], strict=True)))

    def show(self, result: Followed, display: object = None) -> str:
        return f"{'yes' if result.follows else 'no'}\t{result.probability:.4f}"


FOLLOWS = Follows(
    name="follows",
    needs="a model that was pre-trained to tell whether a text follows (model.head=pretraining)",
    help="""Tell whether a text follows another, by an encoder that was pre-trained to (next-sentence prediction).

    Prints yes or no and the probability of yes, one line per pair. With --input every line of a file is asked for with
    the one before it.

    \b
    Examples:
      regard follows runs/bert "The man went to the shop." "He bought a litre of milk."
      regard follows runs/bert --input story.txt --json
    """,
    request=FollowsRequest,
    items="input",
    result=Followed,
    unit="pairs",
    reads_standard_input=False,
)


@dataclass(frozen=True, slots=True)
class Answer:
    """A stretch of the text, from character `start` to before `end`; an empty one says that the text has no answer.

    `score` is the sum of the model's scores for its first and its last token.
    """

    text: str
    start: int
    end: int
    score: float


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerRequest:
    """A question, and the text to look in."""

    question: str = option(MISSING, "The question; without one, --input is a file of them.")
    text: str = option(MISSING, "The text to look in.")
    top: Annotated[int, Between(1, MOST)] = option(1, "How many answers to show.")


@dataclass(frozen=True, kw_only=True, slots=True)
class Answered:
    """One answer to a question, and where in the text it stands."""

    question: str = unsaid()
    answer: str
    start: int
    end: int
    score: float
    unknown: tuple[str, ...] | None = said_if_given()


class FindAnswer(OfTexts[AnswerRequest, list[Answered]]):
    """An input is a question and the text to look in."""

    def inputs_of(self, request: AnswerRequest) -> list[tuple[str, str]]:
        return [(request.question, request.text)]

    def check(
        self, run: "Run", request: AnswerRequest, items: Sequence[Any], limits: RequestLimits | None = None
    ) -> list[tuple[str, str]]:
        check_characters([question for question, _ in items], "question", limits)
        check_characters([text for _, text in items], "text", limits)
        if not all(question.strip() and text.strip() for question, text in items):
            raise DataError("an answer needs a question and a text")
        return list(items)

    def key(self, run: "Run", request: AnswerRequest) -> int:
        return request.top

    def together(self, run: "Run", asked: Sequence[Asked], gone: Callable[[Asked], bool]) -> list[list[Answered]]:
        from regard.tasks.answering import answer_all

        found = answer_all(run.encoder, [one.item for one in asked], top=asked[0].request.top)
        unknown = [self.unknown_words(run, one.item) for one in asked]
        return [
            [
                Answered(
                    question=one.item[0],
                    answer=best.text,
                    start=best.start,
                    end=best.end,
                    score=best.score,
                    unknown=words,
                )
                for best in several
            ]
            for one, several, words in zip(asked, found, unknown, strict=True)
        ]

    def unknown(self, result: list[Answered]) -> Sequence[str]:
        return (result[0].unknown or ()) if result else ()

    def show(self, result: list[Answered], display: object = None) -> str:
        return "\n".join(" ".join(one.answer.split()) for one in result)


ANSWER = FindAnswer(
    name="answer",
    help="""Find the answer to a question in a text of any length; an empty line says that the text has none.

    A labelled file, as `regard evaluate` takes it, is read without its answers where no question is given; with --top,
    a blank line follows the answers to each of its questions.

    \b
    Examples:
      regard answer runs/answers "Who wrote it?" "The book was written by Ada."
      regard answer runs/answers "Who wrote it?" --input book.txt --top 3 --json
      regard answer runs/answers --input questions.jsonl
    """,
    request=AnswerRequest,
    items="question",
    result=Answered,
    unit="questions",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class EmbedRequest:
    """Texts to turn into vectors."""

    text: str | tuple[str, ...] = option(MISSING, "Texts.")
    pooling: Literal["mean", "first"] | None = option(
        None, "mean or first: of the tokens' vectors, or the first token's."
    )
    normalise: bool = option(True, "Give every vector the length one.")


@dataclass(frozen=True, kw_only=True, slots=True)
class Embedded:
    """One text as a vector."""

    text: str
    vector: tuple[float, ...]


class Embed(OfTexts[EmbedRequest, Embedded]):
    """A vector for each text."""

    def offered(self, run: "Run") -> bool:
        return _encodes(run)

    def together(self, run: "Run", asked: Sequence[Asked], gone: Callable[[Asked], bool]) -> list[Embedded]:
        texts = [one.item for one in asked]
        vectors = run.embed(texts, **self.options(asked[0].request))
        return [Embedded(text=text, vector=tuple(row)) for text, row in zip(texts, vectors.tolist(), strict=True)]


EMBED = Embed(
    name="embed",
    help="""Turn texts into vectors, or search a file for the texts nearest in meaning.

    \b
    Examples:
      regard embed-text runs/minilm --input sentences.txt --out vectors.npy
      regard embed-text runs/minilm "how tall is the tower?" --search sentences.txt --top 3
      regard embed-text runs/bert "the river bank" "the bank lent it" --word bank --plane bank.svg
    """,
    request=EmbedRequest,
    items="text",
    result=Embedded,
    command="embed-text",
    unit="texts",
    reads_standard_input=False,
)


def _encodes(run: "Run") -> bool:
    from regard.models.protocols import TextEncoder

    return isinstance(run.model, TextEncoder)
