"""What tasks with an encoder have in common, and fine-tuning it on labelled texts: classes, tags, or answers."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import torch
from torch import nn

from regard.config import JsonObject, Setting
from regard.data import Documents
from regard.data.file_names import files_of, passed_over
from regard.data.formats import Columns, format_of, notes_on
from regard.data.inspection.labelled import TOO_FEW, withheld
from regard.data.labelled_texts import (
    Example,
    Keys,
    LabelledLayout,
    LabelledRows,
    Question,
    Tagged,
    held_out_rows,
    labels_of,
)
from regard.data.mixing import even_sample
from regard.data.shards import TABLES
from regard.errors import ConfigError, DataError, nearest
from regard.look.document import Document
from regard.look.watch import attentions
from regard.models.protocols import HasClassifier
from regard.nn.batch import LabelledTexts, Texts, Tokens
from regard.nn.losses.cross_entropy import IGNORE
from regard.tasks.config import RunConfig
from regard.tasks.corpora import (
    FIRST_TOKEN,
    PARTS,
    Overlong,
    Part,
    PreparedData,
    TextData,
    random_texts,
    train_shared_tokenizer,
    unknown_tokens,
)
from regard.tasks.encoder import Encoder, embed_texts, encoder_of, fill_text
from regard.tasks.fine_tuning import known_labels
from regard.tasks.looking.look_options import LookOptions
from regard.tasks.probes import (
    HELD_OUT_BUDGET,
    HeldOutData,
    Labelled,
    Probe,
    are_trees,
    framed_probe_batch,
    framed_text_probes,
    framed_tree_probes,
    labelled_text_probes,
)
from regard.tasks.run import Run, prepared_vocabularies
from regard.tasks.spec import MEASURING, OF_PAIRS, Measuring, Progress, Report, Say, Task, check_columns, warn
from regard.text import Tokenizer
from regard.text.encoder_inputs import EncoderInput, InputBuilder
from regard.training.objectives import Objective

if TYPE_CHECKING:
    from regard.tasks.planning import Choices, Machine

Row = tuple[EncoderInput, list[int]]


class EncoderTask(Task):
    """What the tasks have in common whose model is an encoder of texts."""

    parts: ClassVar = {"encoder": encoder_of}
    methods: ClassVar = {"embed": embed_texts, "fill": fill_text}

    def look(self, run: Run, inputs: Sequence[Any], wanted: LookOptions, **decode: Setting) -> Document:
        from regard.tasks.looking.encoder_runs import encoder_document

        return encoder_document(run, inputs, wanted, **decode)

    def looks(self, run: Run) -> bool:
        return bool(attentions(run.model))

    def unknown_words(self, run: Run, text: str) -> tuple[str, ...]:
        return run.vocabularies.target.unknown_words(text)

    def probe_batch(self, run: Run, items: Sequence[Probe]) -> Texts:
        return framed_probe_batch(run, items)

    def example(self, config: RunConfig, length: int, rows: int = 1) -> Any:
        return Texts(Tokens.of([[FIRST_TOKEN] * length] * rows))


HeldOutBy = Literal["row", "text"]
LoneLabels = Literal["train", "valid"]

NO_LABELS = "the texts to test on have no labels, since every one is -1"

KINDS = (*TABLES, ".txt")
"""What is read of a folder of labelled texts."""


def labelled_files(names: Iterable[str | Path]) -> list[Path]:
    """The files that these names stand for: of a folder, those of a known kind."""
    return [file for name in names for file in files_of(str(name), KINDS)]


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelledData(TextData):
    """Labelled texts in any number of files.

    `label` is the key or column of a text's label, `pair` that of a second text, where there are two. `overlong` says
    what becomes of texts longer than `max_len` tokens. `held_out_by` says what is on one side of a split: a row with
    its copies, or all rows of one text, whatever their second. `lone_labels` says what becomes of rows that it would
    hold out whose label no others have: they are for `train`, or as before that was a setting for `valid`.
    """

    pair: str | int | None = None
    label: str | int = "label"
    overlong: Overlong = "skip"
    held_out_by: HeldOutBy = "row"
    lone_labels: LoneLabels = "train"

    def __post_init__(self) -> None:
        TextData.__post_init__(self)
        check_columns(pair=self.pair, label=self.label)


class LabelledTask(EncoderTask):
    """What the tasks have in common that fine-tune an encoder on labelled texts, or train it on them from the start."""

    data = LabelledData
    row_columns: ClassVar = ("text", "pair", "label")
    unused: ClassVar = (*OF_PAIRS, "images", "decode", "train.compile_loss", "train.pack")
    heads: ClassVar[tuple[str, ...]]
    """The head of an encoder that the task needs."""
    objective: ClassVar[type[Any]]
    read: ClassVar[Callable[[Path, Keys], Iterator[Labelled]]]
    """What a file holds."""
    label_shape: ClassVar[Callable[[int, int], tuple[int, ...]]]
    """Of the labels of so many rows of so many tokens."""
    names_labels: ClassVar[bool] = True

    def read_names(self, names: Iterable[str | Path], keys: Keys) -> Iterator[Labelled]:
        """What these files and folders hold, one item at a time."""
        for name in names:
            if (found := self.in_folder(Path(name))) is not None:
                yield from found
            else:
                for path in labelled_files([name]):
                    yield from type(self).read(path, keys)

    def in_folder(self, path: Path) -> Iterator[Labelled] | None:
        """The items of a folder of which each file is one; None where files hold items."""
        return None

    def part_of(self, name: str | Path, part: Part) -> str | None:
        """Of a folder that has parts itself the one of this part, or None; of all else what was given."""
        return str(name)

    def names_of(self, data: Any, part: Part) -> tuple[str, ...]:
        """The names of the files of a part, or the part of the one folder that is trained on."""
        if names := getattr(data, part):
            return tuple(self.part_of(name, part) or name for name in names)
        found = self.part_of(data.train[0], part) if len(data.train) == 1 else None
        return () if found in (None, *data.train) else (str(found),)

    def read_all(self, config: RunConfig, files: Iterable[str | Path]) -> list[Labelled]:
        """What these files hold, in the way of the run."""
        items = list(self.read_names(files, keys_of(config)))
        if not items:
            raise DataError("there is not one labelled text")
        return items

    def items_of(self, config: RunConfig, part: Literal["train", "valid"]) -> list[Labelled]:
        """What to train on, or to validate on: by default a share of the former; nothing where there is none."""
        if self.names_of(config.data, "valid") or not config.data.held_out:
            files = self.names_of(config.data, part)
            return self.read_all(config, files) if files else []
        split = self.split(config)
        return split.train if part == "train" else split.valid

    def split(self, config: RunConfig) -> "Split":
        """What to train on and to validate on."""
        data = config.data
        if self.names_of(data, "valid") or not data.held_out:
            return Split(self.items_of(config, "train"), self.items_of(config, "valid"))
        items = self.read_all(config, self.names_of(data, "train"))
        by_text = getattr(data, "held_out_by", "row") == "text"
        told = [main_text(item) if by_text else "\n".join(texts_of(item)) for item in items]
        learns = getattr(data, "lone_labels", "train") == "train"
        held, kept = held_out_rows(told, [labels_of(item) if learns else () for item in items], data.held_out)
        train, valid = ([one for one, out in zip(items, held, strict=True) if out is side] for side in (False, True))
        if not train:
            raise DataError(
                f"no row is left to train on: data.held_out={data.held_out:g} sets rows aside by their text, and these "
                f"are too few or alike; give more, or files to validate on"
            )
        return Split(train, valid, kept)

    def statistics(self, data: Any) -> Any:
        from regard.tasks.plans.labelled import labelled_statistics

        keys = Keys(data.text, data.pair, data.label, data.header)
        train, valid, test = (self.names_of(data, part) for part in PARTS)
        checked, tested = (self.read_names(names, keys) if names else None for names in (valid, test))
        return labelled_statistics(self.read_names(train, keys), checked, tested, classes="classes" in self.heads)

    def plan(self, statistics: Any, machine: "Machine", base: JsonObject | None) -> "Choices":
        from regard.tasks.plans.labelled import plan_labelled

        return plan_labelled(statistics, machine, base, head=self.heads[0])

    def columns(self, path: Path, keys: Keys) -> Columns | None:
        """The columns of a file that are read; None where it has none."""
        return keys.labelled

    def check(self, config: RunConfig) -> None:
        config.check_head(*self.heads)

    def check_files(self, config: RunConfig, say: Say) -> None:
        super().check_files(config, say)
        for part in PARTS:
            self.check_labelled(config, self.names_of(config.data, part), say)

    def check_labelled(self, config: RunConfig, files: Iterable[str | Path], say: Say) -> None:
        """Read the first item of each file."""
        keys = keys_of(config)
        for note in passed_over(files := list(files), KINDS):
            say(note)
        for path in labelled_files(name for name in files if self.in_folder(Path(name)) is None):
            if next(type(self).read(path, keys), None) is None:
                raise DataError(f"{path} is empty")
            if wanted := self.columns(path, keys):
                # A plain file of labelled texts is read as a TSV.
                format = format_of(path)
                for note in notes_on(path, "tsv" if format == "lines" else format, wanted):
                    say(note)

    def warn(self, items: list[Labelled], say: Say) -> None:
        """Say what looks odd about the items to train on."""

    def prepare(
        self, config: RunConfig, directory: Path, report: Report, *, new: bool
    ) -> "tuple[RunConfig, LabelledRun]":
        """The labelled texts tokenised; for a new run, their labels found, and a tokenizer made or taken over."""
        if not config.data.train:
            raise ConfigError("no training data: give --data with your files (data.train in a configuration)")
        report.say("reading the labelled texts")
        split = self.split(config)
        self.warn(split.train, partial(warn, report))
        if new and self.names_labels:
            config = replace(config, model={**config.model, "labels": list(_labels(config, split.train))})
        self.check_split(config, split, report, new=new)
        tests = self.names_of(config.data, "test")
        if new and tests and self.names_labels and self.without_labels(config, self.read_all(config, tests)):
            warn(report, f"{NO_LABELS}, and are not evaluated on: {', '.join(tests)}")
        texts = (text for item in split.train for text in texts_of(item))
        config, vocabularies = prepared_vocabularies(
            config, directory, lambda: train_shared_tokenizer(texts, config, report, masks=True), new=new
        )
        return config, LabelledRun(self, config, split, vocabularies.target, report)

    def check_split(self, config: RunConfig, split: "Split", report: Report, *, new: bool) -> None:
        """Say of a new run what is not validated on, and refuse to validate on labels of which the run knows none."""
        data = config.data
        if new and split.kept:
            rows = f"{split.kept:,} row" + "s" * (split.kept != 1)
            report.say(f"{rows} of the share to validate on are trained on: no others have their labels")
        if new and data.held_out and not split.valid:
            warn(
                report,
                f"there is nothing to validate on: data.held_out={data.held_out:g} of {len(split.train):,} rows sets "
                f"none aside; give more, or files to validate on",
            )
        if not self.names_labels:
            return
        known = {*config.model["labels"]}
        total, strange = 0, Counter[str]()
        for item in split.valid:
            labels = labels_of(item)
            total += len(labels)
            strange.update(label for label in labels if label not in known)
        if not strange:
            return
        what = "words" if isinstance(split.valid[0], Tagged) else "texts"
        listed = ", ".join(sorted(strange)[:5]) + ", ..." * (len(strange) > 5)
        if data.held_out and not self.names_of(data, "valid") and data.lone_labels == "valid":
            raise DataError(
                f"no {what[:-1]} to train on has the label of {strange.total():,} of the {total:,} {what} that "
                f"data.held_out={data.held_out:g} sets aside ({listed}), as data.lone_labels=valid has it"
            )
        if strange.total() == total:
            raise DataError(
                f"the labels to train on ({', '.join(sorted(known)[:5])}) are none of those of the {what} to validate "
                f"on ({listed}); data.label chooses the column"
            )
        if new:
            warn(
                report,
                f"validation: {strange.total():,} of {total:,} {what} have a label that is not trained for ({listed}) "
                f"and are left out of its loss and accuracy; regard evaluate counts them as wrong",
            )

    def validation_scores(self, encoder: Encoder, items: list[Labelled]) -> dict[str, float]:
        """What a validation says of these items beside the loss and the share that is right."""
        return {}

    def evaluate(self, run: Run, data: Sequence[str | Path] | None = None, how: Measuring = MEASURING) -> JsonObject:
        given = tuple(self.part_of(name, "test") or name for name in data or ())
        if files := given or self.names_of(run.config.data, "test"):
            if data and how.say is not None:
                self.check_labelled(run.config, files, how.say)
            items = self.read_all(run.config, files)
        else:
            items = self.items_of(run.config, "valid")
        if files and not given and self.without_labels(run.config, items):
            if how.say is not None:
                how.say(f"{NO_LABELS}: {', '.join(map(str, files))}; the validation texts are evaluated on")
            items = self.items_of(run.config, "valid")
        if not items:
            raise ConfigError("nothing to evaluate on: the run names no test or validation set; give one")
        return self.score_items(run, items, how.progress)

    def without_labels(self, config: RunConfig, items: list[Labelled]) -> bool:
        """Whether the labels of these items are kept back, as of the test parts of GLUE."""
        classes = "classes" in self.heads
        return classes and withheld((label for item in items for label in labels_of(item)), config.model["labels"])

    def score_items(self, run: Run, items: list[Labelled], progress: Progress | None) -> JsonObject:
        """Scores of the run on these items."""
        raise NotImplementedError

    def show(self, scores: Mapping[str, Any]) -> str:
        return show_scores(scores)

    def probes(self, run: Run, data: Any, limit: int) -> list[Probe]:
        files: Any = data or self.names_of(run.config.data, "test") or self.names_of(run.config.data, "valid")
        if not files:
            raise ConfigError("no text to look at: the run names no test or validation text; give some")
        if isinstance(files, Documents):
            return framed_text_probes(run, files, limit)
        if are_trees(data):
            return framed_tree_probes(run, files, limit)
        if isinstance(files[0], str | Path):
            if all(self.reads_as_text(Path(name)) for name in files):
                return framed_text_probes(run, Documents.of(files, run.config.data.text, run.config.data.header), limit)
            files = self.read_all(run.config, files)
        return labelled_text_probes(run, files, limit)

    def reads_as_text(self, path: Path) -> bool:
        """Whether a file of this name holds running text rather than labelled texts."""
        return path.suffix == ".txt" or path.is_dir()

    def held_out_data(self, run: Run, files: Sequence[str] | None, limit: int) -> HeldOutData:
        data = run.config.data
        given = tuple(self.part_of(name, "valid") or self.part_of(name, "test") or name for name in files or ())
        found = given or self.names_of(data, "valid") or self.names_of(data, "test")
        items = self.read_all(run.config, found) if found else self.items_of(run.config, "valid")
        if not (items := items[:limit]):
            raise ConfigError("nothing to score heads by: the run names no validation or test set; give --data")
        rows = labelled_rows(run.config, items, run.encoder.tokenizer, held_out=True)
        budget = max(HELD_OUT_BUDGET, run.config.data.max_len)
        return HeldOutData(run, self.objective(), list(rows.evaluation(budget)), len(items))

    def example(self, config: RunConfig, length: int, rows: int = 1) -> LabelledTexts:
        texts = Texts(Tokens.of([[FIRST_TOKEN] * length] * rows))
        labels = torch.zeros(type(self).label_shape(rows, length), dtype=torch.long)
        return LabelledTexts(texts, labels, labels.numel())

    def random_batches(self, config: RunConfig, count: int) -> tuple[RunConfig, Objective, list[LabelledTexts]]:
        generator = torch.Generator().manual_seed(0)
        config = config.with_stand_in_labels() if self.names_labels else config

        def batch() -> LabelledTexts:
            texts = random_texts(config, generator)
            labels = torch.randint(2, type(self).label_shape(*texts.ids.shape), generator=generator)
            return LabelledTexts(texts, labels, labels.numel())

        return config, self.objective(config.train.smoothing), [batch() for _ in range(count)]


@dataclass(frozen=True, slots=True)
class Split:
    """What to train on and to validate on; of the share for the latter `kept` rows are trained on, for their labels."""

    train: list[Labelled]
    valid: list[Labelled]
    kept: int = 0


class LabelledRun(PreparedData):
    """Rows to train on and, where there are any, to validate on."""

    def __init__(
        self, task: LabelledTask, config: RunConfig, split: Split, tokenizer: Tokenizer, report: Report
    ) -> None:
        self.config, self.task, self.tokenizer = config, task, tokenizer
        self.objective: Objective = task.objective(config.train.smoothing, config.train.r_drop)
        items, valid = split.train, split.valid
        self.train = labelled_rows(config, items, tokenizer)
        skipped = f"; {len(items) - len(self.train):,} skipped as too long" if len(self.train) < len(items) else ""
        if self.train.cut:
            skipped += f"; of {self.train.cut:,} only the beginning is read (data.max_len={config.data.max_len})"
        rows = f"{len(self.train):,} row" + "s" * (len(self.train) != 1)
        told = f"{rows} of {int(self.train.ids.lengths.sum()):,} tokens{skipped}"
        if skipped:
            warn(report, told)
        else:
            report.say(told)
        longest = int(self.train.ids.lengths.max())
        if config.train.batch_tokens < longest:
            raise ConfigError(
                f"train.batch_tokens={config.train.batch_tokens} is less than the longest row of {longest} tokens"
            )
        self.valid = labelled_rows(config, valid, tokenizer, held_out=True) if valid else None
        if self.valid is not None and self.valid.cut:
            read = f"only the beginning is read (data.max_len={config.data.max_len})"
            warn(report, f"validation: of {self.valid.cut:,} {read}")
        self.shown = even_sample(valid, config.train.validate_sentences)

    def start(self, model: nn.Module) -> str:
        """Start a fresh head with classes of too few texts to be learnt as rare as they are.

        Otherwise the first updates teach that they are rare, by vectors that are alike for all texts, and these then
        have to be told apart again: 20 classes of one text each among 2,000 texts cost more than 400 updates.
        """
        head = model.classifier if isinstance(model, HasClassifier) else None
        if "classes" not in self.task.heads or head is None or bool(head.bias.any()):
            return ""
        counts = np.bincount(np.concatenate(self.train.labels), minlength=len(head.bias))
        if not (rare := counts < TOO_FEW).any() or rare.all():
            return ""
        share = np.maximum(counts, 1) / counts[~rare].mean()
        with torch.no_grad():
            head.bias.copy_(torch.from_numpy(np.where(rare, np.log(share), 0.0)))
        are = "1 has" if rare.sum() == 1 else f"{rare.sum():,} have"
        return f"of {len(counts):,} classes {are} fewer than {TOO_FEW} texts: to the model they are rare from the start"

    def layout(self, budget: int, *, pack: bool = False) -> LabelledLayout:
        return LabelledLayout(self.train, budget)

    def bounds(self) -> tuple[int, int]:
        lengths = self.train.ids.lengths
        return int(lengths.max()), int(lengths.sum())

    def trials(self, budget: int, *, pack: bool) -> list[LabelledTexts]:
        layout = self.layout(budget)
        order = layout.order(self.config.train.seed, 0)
        longest = max(order, key=lambda rows: int(self.train.ids.lengths[rows].max()))
        return [layout.batch(rows) for rows in (longest, max(order, key=len))]

    def validation(self) -> Iterator[LabelledTexts] | None:
        return None if self.valid is None else self.valid.evaluation(self.config.train.batch_tokens)

    def scores(self, model: nn.Module) -> dict[str, float]:
        if not self.shown or self.valid is None:
            return {}
        encoder = Encoder(model, self.tokenizer, self.config.data.max_len)
        return self.task.validation_scores(encoder, self.shown) | unknown_tokens(self.valid.ids.tokens, self.tokenizer)


def texts_of(item: Labelled) -> tuple[str, ...]:
    """The texts of an item, for a tokenizer to be trained on."""
    if isinstance(item, Example):
        return item.texts
    return (" ".join(item.words),) if isinstance(item, Tagged) else (item.question, item.context)


def main_text(item: Labelled) -> str:
    """The text that others may be asked or told of: the context of a question, the first of a pair."""
    return item.context if isinstance(item, Question) else texts_of(item)[0]


def labelled_rows(
    config: RunConfig, items: list[Labelled], tokenizer: Tokenizer, *, held_out: bool = False
) -> LabelledRows:
    """The items as rows of tokens and labels; of those that are `held_out` long ones are cut, and a label that the run
    does not know is left out."""
    data, model = config.data, config.model_config()
    framer = InputBuilder(tokenizer, data.max_len)
    numbers = {label: number for number, label in enumerate(model.labels)}
    overlong: Overlong = "truncate" if held_out else data.overlong
    rows: list[Row] = []
    for item in items:
        if not held_out and (strange := sorted({*labels_of(item)} - {*numbers})):
            hint = "model.labels may name what the training data has not"
            raise DataError(f"unknown label '{strange[0]}'{nearest(strange[0], numbers)}; {hint}")
        if isinstance(item, Example):
            framed = framer.texts(*item.texts, overlong=overlong) if item.label in numbers else None
            rows += [] if framed is None else [(framed, [numbers[item.label]])]
        elif isinstance(item, Tagged):
            rows += _tag_rows(framer, item, numbers)
        else:
            rows += _answer_rows(framer, item)
    if not rows:
        raise DataError(
            f"no text fits into data.max_len={data.max_len} tokens; raise it or set data.overlong='truncate'"
        )
    framed_rows, labels = zip(*rows, strict=True)
    made = LabelledRows.of(framed_rows, labels, tokenizer.pad, segmented=model.segments > 1)
    return replace(made, cut=framer.truncated)


def _tag_rows(framer: InputBuilder, item: Tagged, numbers: dict[str, int]) -> Iterator[Row]:
    for row, first in framer.words(item.words):
        labels = [IGNORE] * len(row.ids)
        for word, place in first.items():
            labels[place] = numbers.get(item.tags[word], IGNORE)
        if first:
            yield row, labels


def _answer_rows(framer: InputBuilder, item: Question) -> Iterator[Row]:
    """Each stretch with where the answer begins and ends in it: at the first token where it is not there."""
    end = item.start + len(item.answer)
    for stretch in framer.question(item.question, item.context):
        inside = [
            (place, span)
            for place, span in enumerate(stretch.spans)
            if span is not None and span[0] < end and span[1] > item.start and item.start >= 0
        ]
        if inside and inside[0][1][0] <= item.start and inside[-1][1][1] >= end:
            yield stretch.row, [inside[0][0], inside[-1][0]]
        else:
            yield stretch.row, [0, 0]


def _labels(config: RunConfig, items: list[Any]) -> tuple[str, ...]:
    """Every label of the data, numbers by value; those of the run it starts from, where they hold all of them.

    Where the configuration names labels, it is those, in that order.
    """
    found = {label for item in items for label in labels_of(item)}
    if (known := known_labels(config.model, config.train.start_from, found)) is not None:
        return known
    if len(found) < 2:
        raise DataError(f"every label is '{next(iter(found))}': there is nothing to tell apart")
    plain = all(label.lstrip("-").isdigit() for label in found)
    return tuple(sorted(found, key=(lambda label: (int(label), label)) if plain else None))


def unknown_labels(run: Run, gold: Sequence[str], what: str) -> JsonObject:
    """How often each label occurs that the run does not know, and so gets wrong; nothing where it knows them all."""
    known = run.model.config.labels
    strange = Counter(label for label in gold if label not in known)
    if sum(strange.values()) == len(gold):
        listed = ", ".join(sorted(strange)[:5])
        raise DataError(
            f"the run knows none of the labels of these {what} ({listed}): its labels are {', '.join(known)}; "
            f"data.label chooses the column"
        )
    return {"unknown_labels": dict(strange.most_common())} if strange else {}


def keys_of(config: RunConfig) -> Keys:
    """What the parts of a labelled row are called."""
    data = config.data
    return Keys(data.text, data.pair, data.label, data.header)


def show_scores(result: Mapping[str, Any]) -> str:
    """An encoder's scores for a person: one per line, then those of each class."""
    lines = []
    for name, value in result.items():
        if name == "accuracy":
            low, high = result["accuracy_interval"]
            lines.append(f"accuracy           {100 * value:.2f} %  [{100 * low:.2f}, {100 * high:.2f}]")
        elif name == "matthews_correlation":
            low, high = result[f"{name}_interval"]
            lines.append(f"Matthews corr.     {value:.4f}  [{low:.4f}, {high:.4f}]  {result[f'{name}_signature']}")
        elif name == "unknown_labels":
            count, total = sum(value.values()), result.get("words", result.get("texts"))
            listed = ", ".join(f"{label} {times:,}" for label, times in [*value.items()][:5])
            listed += ", ..." if len(value) > 5 else ""
            lines.append(f"unknown labels     {count:,} of {total:,}, counted as wrong: {listed}")
        elif name == "entities":
            lines.append(f"{name:18} " + "  ".join(f"{part} {100 * value[part]:.2f} %" for part in FIGURES))
        elif isinstance(value, float):
            share = name.endswith(("accuracy", "f1", "match"))
            lines.append(f"{name.replace('_', ' '):18} " + (f"{100 * value:.2f} %" if share else f"{value:.4f}"))
        elif isinstance(value, int):
            lines.append(f"{name.replace('_', ' '):18} {value:,}")
    for label, scores in result.get("classes", {}).items():
        figures = "  ".join(f"{part} {100 * scores[part]:.2f} %" for part in FIGURES)
        lines.append(f"{label:18} {figures}  of {scores['count']:,}")
    return "\n".join(lines)


FIGURES = ("precision", "recall", "f1")
