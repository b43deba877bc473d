"""Tuning an encoder on labelled texts: classes, tags, or answers in a text."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from regard.data import Loader, Position
from regard.data.framer import Framer
from regard.data.labelled import Example, Question, Tagged
from regard.data.labelled_rows import LabelledLayout, LabelledRows
from regard.errors import ConfigError, DataError, nearest
from regard.nn.batch import LabelledTexts
from regard.nn.loss import IGNORE
from regard.runs.files import TOKENIZER
from regard.tasks.config import RunConfig
from regard.tasks.corpora import READERS, keys_of
from regard.tasks.report import Report
from regard.tasks.run import absolute, load_vocabularies
from regard.tasks.starting import base_labels, check_labels, copy_tokenizer
from regard.text import Tokenizer, Vocabularies, train_tokenizer
from regard.text.framing import Framed
from regard.training.objectives import Objective
from regard.training.text_tasks import Answering, Classification, Tagging

Row = tuple[Framed, list[int]]

LONG_SENTENCE = 1000
"""Words of a sentence above which it is told: its file may lack the blank lines between sentences."""

TASKS: dict[str, type] = {"classification": Classification, "tagging": Tagging, "answering": Answering}


def prepare_job(config: RunConfig, directory: Path, report: Report, new: bool) -> tuple[RunConfig, "LabelledJob"]:
    """The labelled texts tokenised; for a new run, their labels found, and a tokenizer made or taken over."""
    if not config.data.train:
        raise ConfigError("no training data: give --data with your files (data.train in a configuration)")
    report.say("reading the labelled texts")
    items = read_items(config, "train")
    if config.task == "tagging" and (longest := max(len(item.words) for item in items)) > LONG_SENTENCE:
        report.say(f"one sentence has {longest:,} words: a blank line ends a sentence")
    if new:
        if config.train.start_from:
            copy_tokenizer(Path(config.train.start_from), directory / TOKENIZER)
        else:
            report.say("training the tokenizer")
            shared = train_tokenizer((text for item in items for text in texts_of(item)), config.tokenizer, masks=True)
            vocabularies = Vocabularies(shared, shared)
            config = config.with_vocabularies(vocabularies)
            vocabularies.save(directory / TOKENIZER)
        if config.task != "answering":
            config = replace(config, model={**config.model, "labels": list(_labels(config, items))})
        config = absolute(config)
    return config, LabelledJob(config, items, load_vocabularies(directory, config.tokenizer).target, report)


class LabelledJob:
    """Rows to train on and, where there are any, to validate on."""

    def __init__(self, config: RunConfig, items: list[Any], tokenizer: Tokenizer, report: Report) -> None:
        self.config = config
        self.objective: Objective = TASKS[config.task](config.train.smoothing, config.train.r_drop)
        self.train = labelled_rows(config, items, tokenizer)
        skipped = f"; {len(items) - len(self.train):,} skipped as too long" if len(self.train) < len(items) else ""
        rows = f"{len(self.train):,} row" + "s" * (len(self.train) != 1)
        report.say(f"{rows} of {int(self.train.ids.lengths.sum()):,} tokens{skipped}")
        longest = int(self.train.ids.lengths.max())
        if config.train.batch_tokens < longest:
            raise ConfigError(
                f"train.batch_tokens={config.train.batch_tokens} is less than the longest row of {longest} tokens"
            )
        self.valid = None
        if config.data.valid:
            self.valid = labelled_rows(config, read_items(config, "valid"), tokenizer, overlong="truncate")

    def stream(self, position: Position, *, pin: bool, pack: bool) -> Loader:
        options = self.config.train
        return Loader(LabelledLayout(self.train, options.batch_tokens), seed=options.seed, position=position, pin=pin)

    def bounds(self) -> tuple[int, int]:
        lengths = self.train.ids.lengths
        return int(lengths.max()), int(lengths.sum())

    def trials(self, budget: int, *, pack: bool) -> list[LabelledTexts]:
        layout = LabelledLayout(self.train, budget)
        order = layout.order(self.config.train.seed, 0)
        longest = max(order, key=lambda rows: int(self.train.ids.lengths[rows].max()))
        return [layout.batch(rows) for rows in (longest, max(order, key=len))]

    def validation(self) -> Iterator[LabelledTexts] | None:
        return None if self.valid is None else self.valid.evaluation(self.config.train.batch_tokens)

    def scores(self, model: nn.Module) -> dict[str, float]:
        return {}


def read_items(config: RunConfig, part: str) -> list[Any]:
    """What the files of a part hold."""
    return items_of(config, [Path(name) for name in getattr(config.data, part)])


def items_of(config: RunConfig, paths: Iterable[Path]) -> list[Any]:
    """What these files hold, in the way of the run."""
    keys = keys_of(config)
    items = [item for path in paths for item in READERS[config.task](path, keys)]
    if not items:
        raise DataError("there is not one labelled text")
    return items


def texts_of(item: Any) -> tuple[str, ...]:
    """The texts of an item, for a tokenizer to be trained on."""
    if isinstance(item, Example):
        return item.texts
    return (" ".join(item.words),) if isinstance(item, Tagged) else (item.question, item.context)


def labelled_rows(config: RunConfig, items: list[Any], tokenizer: Tokenizer, overlong: Any = None) -> LabelledRows:
    """The items as rows of tokens and labels."""
    data, model = config.data, config.model_config()
    framer = Framer(tokenizer, data.max_len)
    numbers = {label: number for number, label in enumerate(model.labels)}
    rows: list[Row] = []
    for item in items:
        if isinstance(item, Example):
            framed = framer.texts(*item.texts, overlong=overlong or data.overlong)
            rows += [] if framed is None else [(framed, [_number(item.label, numbers)])]
        elif isinstance(item, Tagged):
            rows += _tag_rows(framer, item, numbers)
        else:
            rows += _answer_rows(framer, item)
    if not rows:
        raise DataError(
            f"no text fits into data.max_len={data.max_len} tokens; raise it or set data.overlong='truncate'"
        )
    framed_rows, labels = zip(*rows, strict=True)
    return LabelledRows.of(framed_rows, labels, tokenizer.pad, segmented=model.segments > 1)


def _tag_rows(framer: Framer, item: Tagged, numbers: dict[str, int]) -> Iterator[Row]:
    for row, first in framer.words(item.words):
        labels = [IGNORE] * len(row.ids)
        for word, place in first.items():
            labels[place] = _number(item.tags[word], numbers)
        if first:
            yield row, labels


def _answer_rows(framer: Framer, item: Question) -> Iterator[Row]:
    """Each stretch with where the answer begins and ends in it: at the first token where it is not there."""
    end = item.start + len(item.answer)
    for stretch in framer.question(item.question, item.context):
        inside = [
            place
            for place, span in enumerate(stretch.spans)
            if span is not None and span[0] < end and span[1] > item.start and item.start >= 0
        ]
        whole = inside and stretch.spans[inside[0]][0] <= item.start and stretch.spans[inside[-1]][1] >= end  # type: ignore[index]
        yield stretch.row, [inside[0], inside[-1]] if whole else [0, 0]


def _labels(config: RunConfig, items: list[Any]) -> tuple[str, ...]:
    """Every label of the data, numbers by value; those of the run it starts from, where they hold all of them.

    Where the configuration names labels, it is those, in that order.
    """
    found = {label for item in items for label in ([item.label] if isinstance(item, Example) else item.tags)}
    if given := tuple(config.model.get("labels") or ()):
        check_labels(found, given)
        return given
    if config.train.start_from and found <= set(known := base_labels(Path(config.train.start_from))):
        return known
    if len(found) < 2:
        raise DataError(f"every label is '{next(iter(found))}': there is nothing to tell apart")
    plain = all(label.lstrip("-").isdigit() for label in found)
    return tuple(sorted(found, key=(lambda label: (int(label), label)) if plain else None))  # type: ignore[arg-type]


def _number(label: str, numbers: dict[str, int]) -> int:
    if label not in numbers:
        hint = "model.labels may name what the training data has not"
        raise DataError(f"unknown label '{label}'{nearest(label, numbers)}; {hint}")
    return numbers[label]
