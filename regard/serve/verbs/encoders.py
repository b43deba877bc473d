"""POST /v1/classify, tag, fill, answer and embed: what an encoder says of texts, those of many requests at a time."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from regard.errors import DataError
from regard.models.bert import Pooling
from regard.models.protocols import TextEncoder
from regard.serve.bodies import Between, check_characters, texts
from regard.serve.limits import Limits
from regard.serve.refusals import Refused
from regard.serve.verbs.many import Many
from regard.serve.verbs.verb import Verb
from regard.tasks.answering import answer_all
from regard.tasks.classification import Classifier
from regard.tasks.encoder import embed, fill_rows, masked_row
from regard.tasks.records import answered, classified, embedded, filled, tagged
from regard.tasks.run import Run

MOST = 1000
"""The most classes or answers to ask for."""

MOST_FILLINGS = 20
"""The most candidates for a hidden word: each comes with the whole text."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ClassifyBody:
    """Texts, or for a run on pairs two texts each, and the options of `regard classify`."""

    input: str | tuple[str | tuple[str, ...], ...]
    model: str | None = None
    top: Annotated[int, Between(1, MOST)] = 1


def _classify(run: Run, body: ClassifyBody, limits: Limits) -> Many:
    classifier = run.classifier()
    items = _inputs(classifier, body.input, limits)
    return Many(
        ("classify", body.top),
        items,
        lambda item: (item, _tokens(run, [item] if isinstance(item, str) else item)),
        classifier.classify,
        lambda item, choices: [classified(classifier.shown(item), choices[: body.top])],
    )


def _inputs(classifier: Classifier, given: Any, limits: Limits) -> tuple[Any, ...]:
    given = (given,) if isinstance(given, str) else given
    nested = [one for one in given if not isinstance(one, str)]
    flat = [text for one in given for text in ([one] if isinstance(one, str) else one)]
    if any(len(one) != 2 for one in nested) or len(nested) not in (0, len(given)):
        raise Refused("bad_request", "input must be texts, or pairs of two texts")
    if nested and not getattr(classifier, "pairs", False):
        raise Refused(
            "unusable_input", "this model classifies texts, not pairs: input must be a text or a list of texts"
        )
    texts(flat, "input", limits)
    return tuple(classifier.arguments(flat))


@dataclass(frozen=True, kw_only=True, slots=True)
class TextBody:
    """Texts."""

    text: str | tuple[str, ...]
    model: str | None = None


def _tag(run: Run, body: TextBody, limits: Limits) -> Many:
    sentences = texts(body.text, "text", limits)
    return Many(
        "tag",
        sentences,
        lambda item: (item, _tokens(run, [item])),
        run.tag,
        lambda item, tags: [tagged(item, tags)],
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class FillBody:
    """Texts with `[MASK]` where a word is hidden, and the options of `regard fill`."""

    text: str | tuple[str, ...]
    model: str | None = None
    top: Annotated[int, Between(1, MOST_FILLINGS)] = 5


def _fill(run: Run, body: FillBody, limits: Limits) -> Many:
    def prepared(text: str) -> tuple[Any, int]:
        row = masked_row(run.encoder, text)
        if (hidden := sum(token == run.encoder.tokenizer.mask for token in row.ids)) > limits.texts:
            raise DataError(f"a text has {hidden} hidden words; this server fills {limits.texts}")
        return row, len(row.ids)

    return Many(
        ("fill", body.top),
        texts(body.text, "text", limits),
        prepared,
        lambda rows: fill_rows(run.encoder, rows, top=body.top),
        lambda item, found: [filled(item, found)],
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerBody:
    """A question, the text to look in, and the options of `regard answer`."""

    question: str
    text: str
    model: str | None = None
    top: Annotated[int, Between(1, MOST)] = 1


def _answer(run: Run, body: AnswerBody, limits: Limits) -> Many:
    check_characters([body.question], "question", limits)
    check_characters([body.text], "text", limits)
    if not body.question.strip() or not body.text.strip():
        raise DataError("an answer needs a question and a text")
    return Many(
        ("answer", body.top),
        ((body.question, body.text),),
        lambda item: (item, _tokens(run, item)),
        lambda asked: answer_all(run.encoder, asked, top=body.top),
        lambda item, found: [answered(one) for one in found],
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class EmbedBody:
    """Texts, and the options of `regard embed-text`."""

    text: str | tuple[str, ...]
    model: str | None = None
    pooling: Pooling | None = None
    normalise: bool = True


def _embed(run: Run, body: EmbedBody, limits: Limits) -> Many:
    return Many(
        ("embed", body.pooling, body.normalise),
        texts(body.text, "text", limits),
        lambda item: (item, _tokens(run, [item])),
        lambda items: list(embed(run.encoder, items, pooling=body.pooling, normalise=body.normalise)),
        lambda item, vector: [embedded(item, vector)],
    )


def _tokens(run: Run, parts: Sequence[str]) -> int:
    """How many tokens the texts have, of which the model may read fewer."""
    tokenizer = run.vocabularies.target
    return sum(len(tokenizer.encode(part)) + 2 for part in parts)


def _encodes(run: Run) -> bool:
    return isinstance(run.model, TextEncoder)


CLASSIFY = Verb(
    "classify",
    "Tell the class of texts.",
    ClassifyBody,
    lambda run: "classify" in run.task.methods and run.task.has_tokenizer,
    _classify,
)
TAG = Verb("tag", "Tag the words of sentences.", TextBody, lambda run: "tag" in run.task.methods, _tag)
FILL = Verb(
    "fill",
    "Show what might stand where words are hidden.",
    FillBody,
    lambda run: _encodes(run) and run.encoder.model.words is not None,
    _fill,
)
ANSWER = Verb(
    "answer",
    "Find the answer to a question in a text.",
    AnswerBody,
    lambda run: "answer" in run.task.methods,
    _answer,
)
EMBED = Verb("embed", "Turn texts into vectors.", EmbedBody, _encodes, _embed)
