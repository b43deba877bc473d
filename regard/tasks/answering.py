"""Extractive question answering: where in a text the answer to a question stands."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from regard.config import JsonObject
from regard.data.formats import Columns
from regard.data.labelled_texts import Keys, questions
from regard.errors import ConfigError, DataError
from regard.metrics.classification_metrics import answer_scores
from regard.tasks.config import RunConfig
from regard.tasks.corpora import TextData
from regard.tasks.encoder import Encoder
from regard.tasks.encoder_tasks import HeldOutBy, LabelledTask
from regard.tasks.run import Run
from regard.tasks.spec import Progress, check_columns
from regard.tasks.verbs.encoders import Answer
from regard.text.encoder_inputs import ContextWindow
from regard.training.objectives import Answering

if TYPE_CHECKING:
    from regard.tasks.planning import Recognised

LONGEST = 30
"""Tokens of an answer at the most."""


def answer(encoder: Encoder, question: str, context: str, *, top: int = 1) -> list[Answer]:
    """The likeliest answers in the text, best first, no two of the same characters."""
    (found,) = answer_all(encoder, [(question, context)], top=top)
    return found


def answer_all(encoder: Encoder, asked: Sequence[tuple[str, str]], *, top: int = 1) -> list[list[Answer]]:
    """The same for many questions, each with its text, at a time."""
    stretches = [_stretches(encoder, question, context) for question, context in asked]
    rows = [one.row for several in stretches for one in several]
    found = iter(encoder.each(rows, lambda texts: encoder.model.logits(texts)))
    return [
        _best(context, several, [next(found) for _ in several], top)
        for (_, context), several in zip(asked, stretches, strict=True)
    ]


def _stretches(encoder: Encoder, question: str, context: str) -> list[ContextWindow]:
    if encoder.model.config.head != "spans":
        raise ConfigError("this run has no head for answers: train one with task='answering'")
    if not question.strip() or not context.strip():
        raise DataError("an answer needs a question and a text")
    return encoder.framer.question(question, context)


def _best(context: str, stretches: Sequence[ContextWindow], found: Sequence[Tensor], top: int) -> list[Answer]:
    best: dict[tuple[int, int], float] = {}
    for stretch, logits in zip(stretches, found, strict=True):
        inside = [place for place, span in enumerate(stretch.spans) if span is not None]
        none = float(logits[0].sum())
        best[0, 0] = min(best.get((0, 0), torch.inf), none)  # there is none only where no stretch has one
        if not inside:
            continue
        first, size = inside[0], len(inside)
        begin, end = logits[first : first + size].unbind(-1)
        forward = torch.ones(size, size, dtype=torch.bool).triu()
        scores = (begin[:, None] + end[None]).masked_fill(~forward | forward.triu(LONGEST), -torch.inf)
        values, places = scores.flatten().topk(min(4 * top, size))
        for value, place in zip(values.tolist(), places.tolist(), strict=True):
            if value == -torch.inf:
                continue
            low, high = stretch.spans[first + place // size], stretch.spans[first + place % size]
            assert low is not None
            assert high is not None
            key = (low[0], high[1])
            best[key] = max(best.get(key, -torch.inf), value)
    ranked = sorted(best.items(), key=lambda item: (-item[1], item[0]))
    return [_answer(context, start, end, score) for (start, end), score in ranked[:top]]


def _answer(context: str, start: int, end: int, score: float) -> Answer:
    text = context[start:end]
    start += len(text) - len(text.lstrip())  # a space before a word may be part of its first token
    return Answer(context[start:end], start, end, score)


@dataclass(frozen=True, kw_only=True, slots=True)
class AnsweringData(TextData):
    """Questions with the texts that answer them.

    `text`, `pair` and `label` are the keys or columns of the text (`context`, say), of the question, by default
    `question`, and of the answer in the text.
    `held_out_by` says what is on one side of a split: a question with its text, or all questions about a text.
    """

    pair: str | int | None = None
    label: str | int = "label"
    held_out_by: HeldOutBy = "row"

    def __post_init__(self) -> None:
        TextData.__post_init__(self)
        check_columns(pair=self.pair, label=self.label)

    @property
    def overlong(self) -> str:
        """A text longer than the model reads is read in parts."""
        return "skip"


def find_answer(run: Run, question: str, context: str, *, top: int = 1) -> list[Answer]:
    """The stretches of the text that answer the question best."""
    return answer(run.encoder, question, context, top=top)


class AnsweringTask(LabelledTask):
    """Where in a text the answer to a question stands."""

    name = "answering"
    about = "the stretch of a text that answers a question"
    data = AnsweringData
    row_columns: ClassVar = ("text", "pair", "label")
    heads = ("spans",)
    objective = Answering
    names_labels = False
    read = staticmethod(questions)
    label_shape = staticmethod(lambda rows, length: (rows, 2))
    methods: ClassVar = {**LabelledTask.methods, "answer": find_answer}

    def columns(self, path: Path, keys: Keys) -> Columns:
        return keys.asked.labelled

    def check(self, config: RunConfig) -> None:
        super().check(config)
        if config.train.smoothing:
            raise ConfigError(f"train.smoothing={config.train.smoothing} must be 0: an answer stands in one place")

    def recognise(self, files: Sequence[Path]) -> "Recognised | None":
        from regard.tasks.plans.labelled import recognise_answers

        return recognise_answers(files)

    def validation_scores(self, encoder: Encoder, items: list[Any]) -> dict[str, float]:
        """How many answers are right word for word, and the F1 of their words, of 100."""
        found = [answer(encoder, item.question, item.context)[0].text for item in items]
        scores = answer_scores(found, [(item.answer, *item.others) for item in items])
        return {"exact_match": scores["exact_match"], "f1": 100 * scores["f1"]}

    def score_items(self, run: Run, items: list[Any], progress: Progress | None) -> JsonObject:
        found = []
        for item in items:
            found.append(run.answer(item.question, item.context)[0].text)
            if progress is not None:
                progress(len(found), len(items))
        return {"questions": len(items), **answer_scores(found, [(item.answer, *item.others) for item in items])}


TASK = AnsweringTask()
