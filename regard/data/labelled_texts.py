"""Labelled texts in TSV, CSV, JSONL or Parquet: a class per text or pair, a tag per word, answers in a context."""

import csv
import json
import os
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby, islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int

from regard.config import JsonObject
from regard.data.batches import epoch_order, evaluation_order, padded
from regard.data.file_tables import PART_NAMES, Part
from regard.data.formats import (
    COMPRESSED,
    LONGEST,
    Columns,
    Format,
    Header,
    format_of,
    lines,
    objects,
    parquet_columns,
    parquet_file,
    rows,
    shown,
    table,
    whole_characters,
    whole_lines,
)
from regard.data.pair_store import Rows
from regard.data.readers import folded, is_held_out
from regard.data.record_keys import value_of
from regard.data.shards import TABLES
from regard.errors import DataError
from regard.nn.batch import LabelledTexts, Texts
from regard.nn.losses.cross_entropy import IGNORE
from regard.text.encoder_inputs import EncoderInput

WORDS = ("words", "tokens", "word", "token")
TAGS = ("tags", "ner_tags", "pos_tags", "labels", "tag", "ner", "pos", "label")
"""What words and their tags are called."""

DOCUMENT = "-DOCSTART-"
"""What stands for a word at the beginning of each document of a CoNLL file."""


@dataclass(frozen=True, slots=True)
class Keys:
    """What the parts of a row are called: the text, a second one where there are two, and the label.

    A column may be given by its number, from 1. `header` says whether the first row of a table has the names.
    """

    text: str | int = "text"
    pair: str | int | None = None
    label: str | int = "label"
    header: Header = "auto"

    @property
    def texts(self) -> Columns:
        """The text, or the two, without the label."""
        if self.pair is None:
            return Columns((self.text,), ("data.text",), self.header)
        return Columns((self.text, self.pair), ("data.text", "data.pair"), self.header)

    @property
    def labelled(self) -> Columns:
        """The texts and the label."""
        texts = self.texts
        return Columns((*texts.names, self.label), (*texts.settings, "data.label"), self.header)

    @property
    def asked(self) -> "Keys":
        """The same of questions, which have a second text always."""
        return self if self.pair is not None else replace(self, pair="question")


@dataclass(frozen=True, slots=True)
class Example:
    """A text, or two, and its class."""

    texts: tuple[str, ...]
    label: str


@dataclass(frozen=True, slots=True)
class Tagged:
    """The words of a sentence and the tag of each."""

    words: tuple[str, ...]
    tags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Question:
    """A question, the text that answers it, and where in it the answer stands; `start` is -1 where it does not.

    `others` are answers that are as right.
    """

    question: str
    context: str
    answer: str
    start: int
    others: tuple[str, ...] = ()


def labels_of(item: Example | Tagged | Question) -> tuple[str, ...]:
    """The label of a text, or of each word; an answer is none of those that a run tells apart."""
    if isinstance(item, Example):
        return (item.label,)
    return item.tags if isinstance(item, Tagged) else ()


def held_out_rows(texts: Sequence[str], labels: Sequence[Sequence[str]], share: float) -> tuple[list[bool], int]:
    """Which rows are in the share that is held out by their text; and how many of it are not, since
    only they have a label.

    What training has never seen cannot be learnt: a text with a label that no row to train on would have is trained on,
    with its copies.
    """
    held = [is_held_out(text, share) for text in texts]
    known = {label for own, out in zip(labels, held, strict=True) if not out for label in own}
    alone = {
        folded(text) for text, own, out in zip(texts, labels, held, strict=True) if out and not known.issuperset(own)
    }
    kept = [out and folded(text) in alone for text, out in zip(texts, held, strict=True)]
    return [out and not back for out, back in zip(held, kept, strict=True)], sum(kept)


def examples(path: Path, keys: Keys) -> Iterator[Example]:
    """The rows of a file for classification.

    The columns of a TSV or CSV are the texts and the label, in that order, unless its first row names them or they are
    chosen by number.
    """
    for number, values in _records(path, keys.labelled):
        *texts, label = values
        texts = [_text(value, name, path, number) for value, name in zip(texts, keys.texts.names, strict=True)]
        label = _label(label, keys.label, path, number)
        if not label.strip():
            raise DataError(f"{path}, row {number} has no label: remove it; data.label chooses the column")
        yield Example(tuple(texts), label.strip())


TEXT_PARTS = {**PART_NAMES, "train": ("train", "training")}
"""What the files and folders of a part are called in folders of texts."""


def class_folders(folder: Path) -> dict[str, list[Path]]:
    """The `.txt` files in the folders of a folder that are called after classes, a text in each file.

    Empty where there are not two such folders, where it holds parts, and where there are tables too, which `.txt` files
    with a tab in their first line are.
    """
    return {one.name: [one / name for name in names] for one, names in _class_texts(folder).items()}


def _class_texts(folder: Path) -> dict[Path, list[str]]:
    """The folders of classes with the names of their files: a path for each of many files takes time."""
    if not folder.is_dir() or has_class_parts(folder):
        return {}
    inside = sorted(one for one in folder.iterdir() if one.is_dir() and one.name[0] != ".")
    names = {one: _files_in(one) for one in inside}
    if any(name.lower().endswith(_TABLES) for several in names.values() for name in several):
        return {}
    texts = {one: [name for name in several if name.lower().endswith(_TEXTS)] for one, several in names.items()}
    found = {one: several for one, several in texts.items() if several}
    if len(found) < 2 or all("\t" in _first_line(one / several[0]) for one, several in found.items()):
        return {}
    return found


def _files_in(folder: Path) -> list[str]:
    """The names of its files, in their order: no folders, pipes or links that lead nowhere."""
    with os.scandir(folder) as entries:
        return sorted(entry.name for entry in entries if entry.name[0] != "." and entry.is_file())


def has_class_parts(folder: Path) -> bool:
    """Whether a folder holds one to train on, called `train`, which has folders of classes."""
    return any(_class_texts(folder / name) for name in TEXT_PARTS["train"])


def class_part(folder: Path, part: Part) -> Path | None:
    """Of a folder of parts, each with folders of classes, that of this part; None where it has none."""
    if not has_class_parts(folder):
        return None
    return next((folder / name for name in TEXT_PARTS[part] if _class_texts(folder / name)), None)


def examples_in(folders: Mapping[str, Sequence[Path]]) -> Iterator[Example]:
    """The text of each file with its class, line breaks inside as they are."""
    for label, files in folders.items():
        for file in files:
            yield Example((whole_characters(_whole(file).strip(), str(file)),), label)


def _whole(file: Path) -> str:
    """The text of a file, which may be compressed, within bounds."""
    found, size = list[str](), 0
    for _, line in whole_lines(file):
        found.append(line)
        size += len(line)
        if size > LONGEST:
            raise DataError(f"{file} has more than {LONGEST >> 20} million characters; a text must be shorter")
    return "".join(found)


def _kinds(suffixes: Sequence[str]) -> tuple[str, ...]:
    """How the names of files end that have one of these suffixes, compressed or not."""
    return tuple(suffix + packed for suffix in suffixes for packed in ("", *COMPRESSED))


_TEXTS, _TABLES = _kinds((".txt",)), _kinds(TABLES)


def _first_line(file: Path) -> str:
    return next((line for _, line in whole_lines(file)), "")


def unlabelled(path: Path, keys: Keys) -> Iterator[tuple[str, ...]]:
    """The texts of a file for classification, whether or not it has labels: of a plain file its lines, or for pairs
    lines with a tab between the two."""
    format = format_of(path)
    if format == "lines" and keys.pair is None:
        yield from ((line,) for line in lines(path))
    elif format in ("jsonl", "parquet"):
        for number, values in _records(path, keys.texts):
            yield tuple(_text(value, name, path, number) for value, name in zip(values, keys.texts.names, strict=True))
    else:
        wanted, count = replace(keys.labelled, label_optional=True), len(keys.texts.names)
        found = rows(path, "csv" if format == "csv" else "tsv", wanted)
        yield from (cells[:count] for cells in found)


def tagged(path: Path, keys: Keys) -> Iterator[Tagged]:
    """The sentences of a file for tagging: lines of a word and its tag with a tab between them, in a CSV a comma, and a
    blank line after each sentence, or JSONL or Parquet with lists of words and of tags, which may be whole numbers.

    A first line that names the columns is no word, and the mark of CoNLL files at the beginning of a document no
    sentence."""
    if format_of(path) in ("jsonl", "parquet"):
        for number, (words, tags) in _records(path, replace(keys, pair=None).labelled):
            if isinstance(tags, list) and all(type(tag) is int for tag in tags):  # numbered, as classes may be
                tags = [str(tag) for tag in tags]
            good = all(isinstance(one, list) and all(isinstance(word, str) for word in one) for one in (words, tags))
            if not good or len(words) != len(tags):
                raise DataError(
                    f"{path}, row {number}: '{keys.text}' and '{keys.label}' must be lists of texts of one length"
                )
            if words and tags:
                yield _sentence([*zip(words, tags, strict=True)], f"{path}, row {number}")
        return
    for number, sentence in _word_lines(lines(path), format_of(path)):
        for line, cells in enumerate(sentence, number):
            if len(cells) < 2:
                raise DataError(f"{path}, line {line} is no word and tag: {cells[0][:40]}")
        yield _sentence([(cells[0], cells[-1]) for cells in sentence], f"{path}, sentence from line {number}")


def untagged(path: Path, keys: Keys, tags: Container[str] = ()) -> Iterator[str | tuple[str, ...]]:
    """The sentences of a file for tagging, whether or not it has tags: of a plain file its lines, or the words of lines
    that end in one of these `tags`; of a TSV or CSV the words, one per line; of JSONL or Parquet lists of words, or
    texts."""
    format = format_of(path)
    if format in ("jsonl", "parquet"):
        for number, (words,) in _records(path, Columns((keys.text,), ("data.text",))):
            if isinstance(words, list) and all(isinstance(word, str) for word in words):
                yield tuple(whole_characters(word, f"{path}, row {number}: a word") for word in words)
            else:
                yield _text(words, keys.text, path, number)
        return
    found = lines(path)
    first = list(islice(found, _FIRST))  # read once, as what is named may be a pipe
    texts = chain(first, found)
    if format == "lines" and not _end_in_tags(first, tags):
        yield from texts
    else:
        yield from (tuple(cells[0] for cells in sentence) for _, sentence in _word_lines(texts, format))


_FIRST = 100
"""Lines by which a file of words with tags is told from one of sentences."""


def _end_in_tags(texts: Sequence[str], tags: Container[str]) -> bool:
    """Whether lines are words with their tags: each has two cells or more, and most end in one of these tags.

    Marks are no tags here, though some sets have them: sentences end in marks too.
    """
    cells = [word_cells(text, "lines") for text in texts if text.strip()]
    cells = [row for row in cells[names_words(cells[0]) :] if row[0] != DOCUMENT] if cells else []
    ends = sum(row[-1] in tags and any(map(str.isalnum, row[-1])) for row in cells)
    return len(cells) > 1 and all(len(row) > 1 for row in cells) and ends > 0.5 * len(cells)


def _word_lines(texts: Iterable[str], format: Format) -> Iterator[tuple[int, list[list[str]]]]:
    """The lines of each sentence, up to a blank one, as cells, with the number of the first: tabs or commas lie between
    cells, or else spaces."""
    for filled, numbered in groupby(enumerate(texts, 1), lambda numbered: bool(numbered[1].strip())):
        if filled:
            numbers, kept = zip(*numbered, strict=True)
            sentence = [word_cells(text, format) for text in kept]
            named = numbers[0] == 1 and names_words(sentence[0])
            sentence = sentence[named:]
            if sentence and not (len(sentence) == 1 and sentence[0][0] == DOCUMENT):
                yield numbers[0] + named, sentence


def word_cells(line: str, format: Format) -> list[str]:
    """The cells of a word's line: tabs or commas lie between them, or else spaces."""
    if format == "csv":
        return [cell.strip() for cell in next(csv.reader([line]), [])]
    return [cell.strip() for cell in line.split("\t")] if "\t" in line else line.split()


def names_words(cells: Sequence[str]) -> bool:
    """Whether the cells of a first line name the columns of words and their tags."""
    return len(cells) > 1 and cells[0].casefold() in WORDS and cells[-1].casefold() in TAGS


def questions(path: Path, keys: Keys) -> Iterator[Question]:
    """The questions of a file: contexts, questions and answers, which stand where `start` says or else first occur.

    An answer may also be an object with lists `text` and `answer_start`, as SQuAD has them: the first is to be learned,
    any is right. An empty one says that the context has none.
    """
    names = keys.asked.labelled
    for number, (context, question, value, start) in _records(path, names, start=True):
        context, question = _text(context, names.names[0], path, number), _text(question, names.names[1], path, number)
        others = ()
        if isinstance(value, dict):
            texts, starts = value.get("text"), value.get("answer_start")
            value, *more = texts if isinstance(texts, list) and texts else [""]
            start = starts[0] if isinstance(starts, list) and starts else None
            others = tuple(text for text in more if isinstance(text, str))
        if not isinstance(value, str):
            raise DataError(f"{path}, row {number}: '{keys.label}' is {shown(value)}, not an answer")
        whole_characters(value, f"{path}, row {number}: '{keys.label}'")
        if not value:
            yield Question(question, context, "", -1)
            continue
        start = context.find(value) if start is None else start
        if not isinstance(start, int) or start < 0 or context[start : start + len(value)] != value:
            raise DataError(f"{path}, row {number}: the answer '{value[:40]}' does not stand in its context")
        yield Question(question, context, value, start, others)


def unanswered(path: Path, keys: Keys) -> Iterator[tuple[str, str]]:
    """Each question of a file with its context, whether or not it has answers."""
    return ((question, context) for context, question in unlabelled(path, keys.asked))


@dataclass(frozen=True)
class LabelledRows:
    """Rows and their labels: a class, a pair of places, or as many tags as the row has tokens."""

    ids: Rows
    segments: Rows
    labels: list[Int[np.ndarray, " _"]]
    segmented: bool
    cut: int = 0
    """How many texts lost their end, as they were too long."""

    @classmethod
    def of(
        cls, rows: Sequence[EncoderInput], labels: Sequence[Sequence[int]], pad: int, *, segmented: bool
    ) -> "LabelledRows":
        ids = Rows.of([row.ids for row in rows], pad)
        segments = Rows.of([row.segments for row in rows])
        return cls(ids, segments, [np.array(one, dtype=np.int64) for one in labels], segmented)

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, chosen: np.ndarray) -> LabelledTexts:
        tokens = padded(self.ids, chosen)
        segments = padded(self.segments, chosen).ids if self.segmented else None
        labels = [self.labels[index] for index in chosen.tolist()]
        longest = max(map(len, labels))
        table = np.full((len(labels), longest), IGNORE, dtype=np.int64)
        for index, row in enumerate(labels):
            table[index, : len(row)] = row
        wide = torch.from_numpy(table)
        return LabelledTexts(
            Texts(tokens, segments), wide.squeeze(1) if longest == 1 else wide, int((table != IGNORE).sum())
        )

    def evaluation(self, budget: int) -> Iterator[LabelledTexts]:
        """Every row once, shortest first."""
        lengths = self.ids.lengths
        for chosen in evaluation_order(lengths, np.zeros_like(lengths), budget=max(budget, int(lengths.max()))):
            yield self.batch(chosen)


class LabelledLayout:
    """Batches of at most `budget` tokens, padding included."""

    def __init__(self, rows: LabelledRows, budget: int) -> None:
        self.rows, self.budget = rows, budget

    def order(self, seed: int, epoch: int) -> list[np.ndarray]:
        lengths = self.rows.ids.lengths
        return epoch_order(lengths, np.zeros_like(lengths), budget=self.budget, seed=seed, epoch=epoch)

    def batch(self, rows: np.ndarray) -> LabelledTexts:
        return self.rows.batch(rows)


def _sentence(words: list[tuple[str, str]], where: str) -> Tagged:
    if 2 * sum(len(word.split()) > 1 for word, _ in words) > len(words):
        raise DataError(
            f"{where}: '{words[0][0][:40]}' is a text, not a word: a line must be one word and its tag; texts with one "
            f"label each are for task='classification'"
        )
    for word, tag in words:
        if not tag.strip():
            raise DataError(f"{where}: '{word}' has no tag")
        whole_characters(word + tag, f"{where}: a word")
    return Tagged(tuple(word for word, _ in words), tuple(tag for _, tag in words))


def _records(path: Path, columns: Columns, *, start: bool = False) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """The wanted values of each row, as they are, with its number; with `start`, then the one called so, or None."""
    format = format_of(path)
    more = (None,) if start else ()
    if format == "jsonl":
        for number, record in _objects(path):
            values = (
                value_of(record, name, f"{path}, row {number}", setting)
                for name, setting in zip(columns.names, columns.settings, strict=True)
            )
            yield number, (*values, *((record.get("start"),) if start else ()))
    elif format == "parquet":
        yield from _parquet(path, columns, start)
    else:
        found = table(path, "csv" if format == "csv" else "tsv", columns, skip_blank=True)
        yield from ((number, (*cells, *more)) for number, cells in found)


def _objects(path: Path) -> Iterator[tuple[int, JsonObject]]:
    return objects(path, enumerate(lines(path), 1))


def _parquet(path: Path, columns: Columns, start: bool) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """The values as they are: texts, numbers, lists."""
    number = 0
    with parquet_file(path) as file:
        names = parquet_columns(path, file, columns)
        more = {"start"} & set(file.schema_arrow.names) if start else set()
        for batch in file.iter_batches(batch_size=4096, columns=[*names, *more - {*names}]):
            for row in batch.to_pylist():
                number += 1
                values = (value_of(row, name, f"{path}, row {number}", "data") for name in names)
                yield number, (*values, *((row.get("start"),) if start else ()))
    if not number:
        raise DataError(f"{path} is empty")


def _label(value: object, key: str | int, path: Path, number: int) -> str:
    """A label as text: numbers and truth values, as JSON and Parquet have them, as JSON writes them."""
    if isinstance(value, bool | float):
        value = json.dumps(value)
    return _text(value, key, path, number)


def _text(value: object, key: str | int, path: Path, number: int) -> str:
    """A text as it is; one that is missing is empty, as in a table."""
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise DataError(f"{path}, row {number}: '{key}' is {shown(value)}, not text")
    return whole_characters(str(value), f"{path}, row {number}: '{key}'")
