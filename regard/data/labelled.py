"""Labelled texts in TSV, JSONL or Parquet: a class a text or a pair, a tag a word, an answer in a context."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.data.formats import format_of, objects, rows, shown, whole_characters
from regard.errors import DataError, nearest


@dataclass(frozen=True, slots=True)
class Keys:
    """What the parts of a row are called: the text, a second one where there are two, and the label."""

    text: str = "text"
    pair: str | None = None
    label: str = "label"

    @property
    def texts(self) -> tuple[str, ...]:
        return (self.text,) if self.pair is None else (self.text, self.pair)


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


def examples(path: Path, keys: Keys) -> Iterator[Example]:
    """The rows of a file for classification.

    The columns of a TSV are the texts and the label, in that order, unless its first line names them: a line with the
    label's name in it is a header.
    """
    for number, row in _records(path, (*keys.texts, keys.label)):
        *texts, label = (_text(row, key, path, number) for key in (*keys.texts, keys.label))
        if not label.strip():
            raise DataError(f"{path}, row {number} has no label")
        yield Example(tuple(texts), label.strip())


def tagged(path: Path, keys: Keys) -> Iterator[Tagged]:
    """The sentences of a file for tagging: lines of a word and its tag with a tab between them and a blank line after
    each sentence, or JSONL or Parquet with lists of words and of tags."""
    if format_of(path) in ("jsonl", "parquet"):
        for number, row in _records(path, (keys.text, keys.label)):
            words, tags = (row.get(key) for key in (keys.text, keys.label))
            good = all(isinstance(one, list) and all(isinstance(word, str) for word in one) for one in (words, tags))
            if not good or len(words) != len(tags):  # type: ignore[arg-type]
                raise DataError(
                    f"{path}, row {number}: '{keys.text}' and '{keys.label}' must be lists of texts of one length"
                )
            if words and tags:
                yield _sentence([*zip(words, tags, strict=True)], f"{path}, row {number}")  # type: ignore[arg-type]
        return
    lines: list[tuple[str, str]] = []
    for number, (line,) in enumerate(rows(path, "lines", ["text"]), 1):
        cells = line.split("\t") if "\t" in line else line.split()
        if line.strip() and len(cells) < 2:
            raise DataError(f"{path}, line {number} is no word and tag: {line[:40]}")
        if line.strip():
            lines.append((cells[0].strip(), cells[-1].strip()))
        elif lines:
            yield _sentence(lines, f"{path}, before line {number}")
            lines = []
    if lines:
        yield _sentence(lines, f"{path}, at the end")


def questions(path: Path, keys: Keys) -> Iterator[Question]:
    """The questions of a file: contexts, questions and answers, which stand where `start` says or else first occur.

    An answer may also be an object with lists `text` and `answer_start`, as SQuAD has them: the first is to be learned,
    any is right. An empty one says that the context has none.
    """
    asked = keys.pair or "question"
    for number, row in _records(path, (keys.text, asked, keys.label)):
        context, question = _text(row, keys.text, path, number), _text(row, asked, path, number)
        value, start, others = row.get(keys.label), row.get("start"), ()
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


def _sentence(words: list[tuple[str, str]], where: str) -> Tagged:
    for word, tag in words:
        if not tag.strip():
            raise DataError(f"{where}: '{word}' has no tag")
        whole_characters(word + tag, f"{where}: a word")
    return Tagged(tuple(word for word, _ in words), tuple(tag for _, tag in words))


def _records(path: Path, names: Sequence[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Each row by name, with its number."""
    format = format_of(path)
    if format == "jsonl":
        yield from _objects(path)
    elif format == "parquet":
        yield from _parquet(path, names)
    else:
        yield from _table(path, names)


def _objects(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    lines = rows(path, "lines", ["text"])
    return objects(path, ((number, line) for number, (line,) in enumerate(lines, 1)))


def _parquet(path: Path, names: Sequence[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """The rows with their values as they are: texts, numbers, lists."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ModuleNotFoundError:
        raise DataError(f"reading {path} needs pyarrow: pip install 'regard[parquet]'") from None
    if not path.is_file():
        raise DataError(f"no such file: {path}")
    number = 0
    try:
        with parquet.ParquetFile(path) as file:
            known = file.schema_arrow.names
            for name in names:
                if name not in known:
                    raise DataError(f"{path} has no column '{name}'{nearest(name, known)}")
            for batch in file.iter_batches(batch_size=4096, columns=[*names, *{"start"} & set(known)]):
                for row in batch.to_pylist():
                    number += 1
                    yield number, row
    except (pyarrow.ArrowInvalid, UnicodeDecodeError, OSError) as error:
        raise DataError(f"{path} is not a readable Parquet file: {str(error).splitlines()[0]}") from None


def _table(path: Path, names: Sequence[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    order: list[str] = []
    width = 0
    for number, (line,) in enumerate(rows(path, "lines", ["text"]), 1):
        cells = line.split("\t")
        if number == 1:
            header = names[-1] in (cell.strip() for cell in cells)
            order = _columns([cell.strip() for cell in cells], names, path) if header else list(names)
            width = len(order)
            if header:
                continue
        if not line.strip():
            continue
        if len(cells) != width:
            raise DataError(f"{path}, line {number}: {len(cells)} columns where {width} should be ({', '.join(order)})")
        yield number, dict(zip(order, cells, strict=True))


def _columns(cells: list[str], names: Sequence[str], path: Path) -> list[str]:
    """The header's names; where one column is left for one name, it is that."""
    missing = [name for name in names if name not in cells]
    spare = [place for place, cell in enumerate(cells) if cell not in names]
    if len(missing) == 1 and len(spare) == 1:
        cells[spare[0]] = missing[0]
    elif missing:
        raise DataError(f"{path} has no column '{missing[0]}'{nearest(missing[0], cells)}")
    return cells


def _text(row: dict[str, Any], key: str, path: Path, number: int) -> str:
    if key not in row:
        raise DataError(f"{path}, row {number} has no key '{key}'{nearest(key, row)}")
    value = row[key]
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise DataError(f"{path}, row {number}: '{key}' is {shown(value)}, not text")
    return whole_characters(str(value), f"{path}, row {number}: '{key}'")
