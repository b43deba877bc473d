"""The rows of one file, one at a time: lines, TSV, CSV, JSONL, Parquet, the first four also compressed.

What is wrong is said with its place.
"""

import bz2
import codecs
import csv
import gzip
import io
import json
import lzma
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from regard.config import JsonObject
from regard.data.record_keys import PATH, column_at, field_path, inner_fields, inner_names, value_of
from regard.errors import DataError, nearest

Format = Literal["lines", "tsv", "csv", "jsonl", "parquet"]
Header = Literal["auto", True, False]
"""Whether the first row of a table names its columns; `auto` takes it for that where it holds their names."""

_SUFFIXES: dict[str, Format] = {".tsv": "tsv", ".csv": "csv", ".jsonl": "jsonl", ".parquet": "parquet"}
COMPRESSED = (".gz", ".bz2", ".xz", ".zst")
_UNREAD = (".zip", ".7z", ".lz4", ".tgz", ".tar")
_SHEETS = (".xls", ".xlsx", ".ods")

LONGEST = 1 << 28
"""Bytes of a compressed file's line, or characters of a CSV cell, at the most: a small file may unpack to any size."""

# fmt: off
LANGUAGES = frozenset((
    "en", "fr", "de", "es", "it", "pt", "nl", "pl", "ru", "uk", "zh", "ja", "ko", "ar", "tr", "cs", "sv", "english",
    "french", "german", "spanish", "italian", "portuguese", "dutch", "polish", "russian", "chinese", "japanese",
))
"""What columns of translations are called: each by its language."""

KNOWN = LANGUAGES | frozenset((
    "source", "target", "src", "tgt", "trg", "input", "output", "text", "label", "labels", "class", "category",
    "sentiment", "sentence", "sentence1", "sentence2", "text1", "text2", "pair", "premise", "hypothesis", "question",
    "question1", "question2", "context", "answer", "answers", "start", "word", "words", "token", "tokens", "tag",
    "tags", "id", "idx", "index", "title", "review", "score",
))
# fmt: on
"""What columns are called: a first row of nothing but these is a header."""

SECOND = frozenset(("sentence2", "text2", "question2", "hypothesis", "pair"))
"""What the second text of a pair is called."""


@dataclass(frozen=True, slots=True)
class Columns:
    """What is wanted of each row: keys of JSONL, columns of Parquet, TSV or CSV by name or by number, from 1.

    `settings` names what chooses each, for messages. With `label_optional` the label, which is the last, may be missing
    from a TSV or CSV: it has no place then.
    """

    names: tuple[str | int, ...]
    settings: tuple[str, ...]
    header: Header = "auto"
    label_optional: bool = False


class TableLayout(NamedTuple):
    """Where the wanted columns of a table stand, how many it has, and what should be said about it once."""

    places: tuple[int, ...]
    width: int
    header: bool
    notes: tuple[str, ...]


def format_of(path: Path) -> Format:
    """The format that the file's suffix names, one of compression aside; lines when it names none."""
    suffix = path.suffix.lower()
    if suffix in _UNREAD:
        raise DataError(f"{path}: {suffix} files are not read; unpack it, or compress with .gz, .bz2, .xz or .zst")
    if suffix in _SHEETS:
        raise DataError(
            f"{path}: {suffix} files are not read; save it as CSV in UTF-8, with commas between its columns"
        )
    if suffix in COMPRESSED:
        inner = _SUFFIXES.get(Path(path.stem).suffix.lower(), "lines")
        if inner == "parquet":
            raise DataError(f"{path}: Parquet is compressed inside; decompress the file")
        return inner
    return _SUFFIXES.get(suffix, "lines")


def rows(path: Path, format: Format, columns: Columns) -> Iterator[tuple[str, ...]]:
    """One tuple of texts for each row, as many as there are `columns`; at least one row."""
    readers = {"tsv": _cells, "csv": _cells, "jsonl": _jsonl, "parquet": _parquet}
    if format == "lines":
        yield from ((line,) for line in lines(path))
        return
    yield from _at_least_one(path, readers[format](path, format, columns))


def lines(path: Path) -> Iterator[str]:
    """The lines of a file, at least one."""
    return _at_least_one(path, (line for _, line in numbered(path)))


def table(
    path: Path, format: Format, columns: Columns, *, skip_blank: bool = False
) -> Iterator[tuple[int, tuple[str, ...]]]:
    """The wanted cells of each row of a TSV or CSV with the number of its line; a header is not a row."""
    layout = None
    for number, cells in raw_rows(path, format):
        if skip_blank and not any(cell.strip() for cell in cells):
            continue
        if layout is None:
            layout = table_layout(path, cells, columns)
            if layout.header:
                continue
        if len(cells) != layout.width:
            more = "; a text with commas must stand in quotation marks" if format == "csv" else ""
            raise DataError(
                f"{path}, line {number}: {_columns(len(cells))} where {_columns(layout.width)} should be{more}"
            )
        yield number, tuple(cells[place] for place in layout.places)


def table_layout(path: Path, first: Sequence[str], columns: Columns) -> TableLayout:
    """Where the columns stand in a table with this first row."""
    cells = [cell.strip() for cell in first]
    header = _is_header(cells, columns) if columns.header == "auto" else columns.header
    if not header:
        return _by_number_or_order(path, cells, columns)
    if twice := [cell for number, cell in enumerate(cells) if cell and cell in cells[:number]]:
        raise DataError(f"{path}: two columns of its header are called '{twice[0]}'")
    found: dict[str, int | None] = {}
    for name, setting in zip(columns.names, columns.settings, strict=True):
        found[setting] = (
            _numbered_column(path, name, setting, len(cells)) if isinstance(name, int) else _named(name, cells)
        )
    missing = [setting for setting, place in found.items() if place is None]
    needed = missing[:-1] if columns.label_optional and found[columns.settings[-1]] is None else missing
    spare = [place for place in range(len(cells)) if place not in found.values()]
    named = dict(zip(columns.settings, columns.names, strict=True))
    called = [cell or f"column {place + 1}" for place, cell in enumerate(cells)]
    notes = [f"row 1 of {path} is taken as a header: {', '.join(called)}"]
    # Where only one column can be meant, or all stand in their order under other names, it is clear which is which.
    if len(needed) == len(spare) == 1 or (len(needed) == len(spare) == len(columns.names)):
        found |= dict(zip(needed, spare, strict=True))
        notes += [
            f"{path}: column '{cells[place]}' is taken for {setting}"
            for setting, place in zip(needed, spare, strict=True)
        ]
        spare = []
    elif needed:
        raise _no_column(path, str(named[needed[0]]), needed[0], cells)
    places = tuple(place for place in found.values() if place is not None)
    if columns.label_optional:
        return TableLayout(places, len(cells), True, tuple(notes))
    return TableLayout(places, len(cells), True, (*notes, *unused(path, [called[place] for place in spare], columns)))


def unused(path: Path, names: Sequence[str], columns: Columns) -> list[str]:
    """What to say of columns or keys that nothing reads."""
    if not names:
        return []
    second = next((name for name in names if name.casefold() in SECOND), None)
    hint = f"; data.pair={second} would read it as a second text" if second and "data.label" in columns.settings else ""
    listed = ", ".join(names)
    return [f"{path}: not used: {listed}{hint}"]


def notes_on(path: Path, format: Format, columns: Columns) -> tuple[str, ...]:
    """What should be said once about a file before it is read: its header, and what of it is not used."""
    if format in ("tsv", "csv"):
        return first_layout(path, format, columns).notes
    if format == "lines":
        return ()
    if format == "jsonl":
        record = next(_at_least_one(path, (record for _, record in objects(path, numbered(path)))))
        known = {name: [*inner_names(name, [value])] for name, value in record.items()}
    else:
        with parquet_file(path) as file:
            known = {field.name: [*inner_fields(field)] for field in file.schema_arrow}
    used = {
        name if isinstance(name, str) else list(known)[name - 1]
        for name in columns.names
        if isinstance(name, str) or format == "parquet"
    }
    spare: list[str] = []
    for name, inside in known.items():
        if used & {*inside}:  # of an object that is read in part the other keys are named
            spare += [one for one in inside if one not in used]
        elif name not in used and not any(one.startswith(f"{name}{PATH}") for one in used):
            spare.append(name)
    return tuple(unused(path, spare, columns))


def table_header(path: Path, format: Format, columns: Columns) -> bool:
    """Whether the file is a table whose first row names its columns."""
    return format in ("tsv", "csv") and first_layout(path, format, columns).header


def first_layout(path: Path, format: Format, columns: Columns) -> TableLayout:
    """Where the wanted columns stand, by the first row of a TSV or CSV."""
    first = next(_at_least_one(path, (cells for _, cells in raw_rows(path, format))))
    return table_layout(path, first, columns)


def numbered(path: Path) -> Iterator[tuple[int, str]]:
    """Each line with its number, without its end."""
    for number, line in whole_lines(path):
        yield number, line.removesuffix("\n").removesuffix("\r")


def whole_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Each line, its end included, with its number. Only a newline ends one: other separators of Unicode are text."""
    offset = 0
    for number, raw in enumerate(_raw_lines(path), start=1):
        try:
            line = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            place = offset + error.start
            raise DataError(
                f"{path} is not UTF-8 text: byte {place}, on line {number}; {_other_encoding(raw, number)}"
            ) from None
        offset += len(raw)
        yield number, line.removeprefix("\ufeff") if number == 1 else line


def _other_encoding(raw: bytes, number: int) -> str:
    """What a line that is not UTF-8 may be instead, and how to convert it."""
    if number == 1 and raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "it is UTF-16: convert it, as with iconv -f UTF-16 -t UTF-8"
    if b"\0" in raw:
        return "it holds zero bytes, as no text does: is it a text?"
    return "if it is Latin-1, or Windows' code page 1252, convert it, as with iconv -f CP1252 -t UTF-8"


def _raw_lines(path: Path) -> Iterator[bytes]:
    suffix = path.suffix.lower()
    if suffix not in COMPRESSED:
        with path.open("rb") as file:
            yield from file
        return
    # A path of its own error is said as such; what is wrong inside is the compression's.
    path.open("rb").close()
    try:
        with _decompressed(path, suffix) as file:
            number = 0
            while raw := file.readline(LONGEST):
                number += 1
                if len(raw) >= LONGEST:
                    raise DataError(
                        f"{path}: line {number} unpacks to more than {LONGEST >> 20} MiB; a line must be shorter"
                    )
                yield raw
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise DataError(f"{path} is not a readable {suffix} file: {error}") from None


def _decompressed(path: Path, suffix: str) -> Any:
    """A compressed file, open for reading what it holds."""
    if suffix != ".zst":
        return {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}[suffix](path)
    try:
        import pyarrow
    except ModuleNotFoundError:
        raise DataError(f"reading {path} needs pyarrow: pip install 'regard[zstd]'") from None
    return io.BufferedReader(pyarrow.input_stream(str(path), compression="zstd"), buffer_size=1 << 16)


def check_file(path: Path) -> None:
    """Refuse what is not there, or is not a file."""
    if not path.is_file():
        raise DataError(f"no such file: {path}" if not path.exists() else f"{path} is not a file")


def _at_least_one(path: Path, found: Iterator[Any]) -> Iterator[Any]:
    check_file(path)
    empty = True
    try:
        for one in found:
            empty = False
            yield one
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from None
    if empty:
        raise DataError(f"{path} is empty")


def raw_rows(path: Path, format: Format) -> Iterator[tuple[int, list[str]]]:
    """All cells of each row of a TSV or CSV, with the number of its line; in a CSV, of its last."""
    if format == "tsv":
        yield from ((number, line.split("\t")) for number, line in numbered(path))
        return
    csv.field_size_limit(max(csv.field_size_limit(), LONGEST))
    reader = csv.reader((line for _, line in whole_lines(path)), strict=True)
    try:
        for cells in reader:
            if cells:  # a blank line
                yield reader.line_num, cells
    except csv.Error as error:
        raise DataError(f"{path}, line {reader.line_num} is not CSV: {error}") from None


def _is_header(cells: Sequence[str], columns: Columns) -> bool:
    """Whether a first row holds the label's name, the names of all that is wanted, or nothing but names of columns."""
    if unnamed_index(cells):
        cells = cells[1:]
    if not all(cells) or len({cell.casefold() for cell in cells}) < len(cells):
        return False
    named = {s: name for s, name in zip(columns.settings, columns.names, strict=True) if isinstance(name, str)}
    label = named.get("data.label")
    wanted = [name for name in named.values() if not (columns.label_optional and name == label)]
    if label in cells or (wanted and all(name in cells for name in wanted)):
        return True
    return all(cell.casefold() in KNOWN for cell in cells)


def unnamed_index(cells: Sequence[str]) -> bool:
    """Whether a first row may name all columns but the first, as pandas writes a table whose rows it numbers."""
    return len(cells) > 1 and not cells[0] and all(cells[1:])


def _by_number_or_order(path: Path, cells: Sequence[str], columns: Columns) -> TableLayout:
    """The columns of a table without a header: by their numbers, or in their order where there are no others."""
    width = len(cells)
    named = [
        (name, setting) for name, setting in zip(columns.names, columns.settings, strict=True) if isinstance(name, str)
    ]
    if (
        columns.label_optional
        and named
        and named[-1][1] == columns.settings[-1]
        and (len(named) == 1 or width < len(columns.names))
    ):
        named, names = named[:-1], columns.names[:-1]
    else:
        names = columns.names
    if not named or len(named) < len(names):
        if named:
            raise DataError(
                f"{path} has no header that names a column '{named[0][0]}': give {named[0][1]} as a number too, from 1"
            )
        numbers = [
            (name, setting) for name, setting in zip(names, columns.settings, strict=False) if isinstance(name, int)
        ]
        places = tuple(_numbered_column(path, *one, width) for one in numbers)
        spare = [f"column {place + 1}" for place in range(width) if place not in places]
        notes = () if columns.label_optional else tuple(unused(path, spare, columns))
        return TableLayout(places, width, False, notes)
    if width != len(names):
        hint = ""
        if mark := next((mark for mark in ("\t", ";") if width == 1 and mark in cells[0]), None):
            hint = f"; a CSV has commas between its columns, not {mark!r}"
        elif width > len(names):
            chosen = ", ".join(f"{setting}={number}" for number, setting in enumerate(columns.settings, 1))
            hint = f"; choose them by number ({chosen}) or by the names of a header (data.header=true)"
            if columns.settings == ("data.text", "data.label") and width == 3:
                hint += ", or name a second text as well (data.text=1, data.pair=2, data.label=3)"
        wanted = f"{_columns(len(names))} should be ({', '.join(map(str, names))})"
        raise DataError(f"{path}, line 1: {_columns(width)} where {wanted}{hint}")
    return TableLayout(tuple(range(width)), width, False, ())


def _named(name: str, cells: Sequence[str]) -> int | None:
    if name in cells:
        return cells.index(name)
    folded = [cell.casefold() for cell in cells]
    return folded.index(name.casefold()) if folded.count(name.casefold()) == 1 else None


def _numbered_column(path: Path, number: int, setting: str, width: int) -> int:
    if not 1 <= number <= width:
        raise DataError(f"{setting}={number}: {path} has columns 1 to {width}")
    return number - 1


def _no_column(path: Path, name: str, setting: str, known: Sequence[str]) -> DataError:
    hint = nearest(name, known)
    hint = hint if "?" in hint else ";"
    rule = f"set {setting} to one of them, by name or number"
    return DataError(f"{path} has no column '{name}'{hint} it has {', '.join(known)}: {rule}")


def _cells(path: Path, format: Format, columns: Columns) -> Iterator[tuple[str, ...]]:
    return (cells for _, cells in table(path, format, columns))


def _jsonl(path: Path, format: Format, columns: Columns) -> Iterator[tuple[str, ...]]:
    for number, record in objects(path, numbered(path)):
        yield tuple(
            _field(record, name, f"{path}, line {number}", setting)
            for name, setting in zip(columns.names, columns.settings, strict=True)
        )


def objects(path: Path, lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, JsonObject]]:
    """The JSON object of each numbered line of a file; blank lines are passed over."""
    for number, line in lines:
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{path}, line {number} is not JSON: {error}") from None
        if not isinstance(record, dict):
            raise DataError(f"{path}, line {number} is not a JSON object: {line[:40]}")
        yield number, record


def _field(record: JsonObject, key: str | int, where: str, setting: str) -> str:
    value = value_of(record, key, where, setting)
    if value is None:  # as in Parquet: blank rows are dealt with, and counted, further on
        return ""
    if not isinstance(value, str):
        raise DataError(f"{where}: '{key}' is {shown(value)}, not text")
    return whole_characters(value, f"{where}: '{key}'")


def shown(value: object) -> str:
    """The beginning of a value, as JSON where it can be."""
    return json.dumps(value, default=str)[:40]


def whole_characters(text: str, where: str) -> str:
    """The text itself; one with half of a character, which JSON can spell, is refused."""
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        raise DataError(f"{where} is not Unicode text: it holds half of a surrogate pair")
    return text


@contextmanager
def parquet_file(path: Path) -> Iterator[Any]:
    """A Parquet file, open; what is wrong with it is said in one line."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ModuleNotFoundError:
        raise DataError(f"reading {path} needs pyarrow: pip install 'regard[parquet]'") from None
    check_file(path)
    try:
        with parquet.ParquetFile(path) as file:
            yield file
    except UnicodeDecodeError:
        raise DataError(f"{path} holds text that is not UTF-8") from None
    except (pyarrow.ArrowException, OSError) as error:  # damaged, or packed in a way that this build does not read
        raise DataError(f"{path} is not a readable Parquet file: {str(error).splitlines()[0]}") from None


def parquet_columns(path: Path, file: Any, columns: Columns) -> list[str]:
    """The names of the wanted columns, which must be there, or in a column of objects."""
    known, names = file.schema_arrow.names, []
    paths = [inside for field in file.schema_arrow for inside in inner_fields(field)]
    for name, setting in zip(columns.names, columns.settings, strict=True):
        if isinstance(name, int):
            name = known[_numbered_column(path, name, setting, len(known))]
        if name not in known and name not in paths:
            raise _no_column(path, name, setting, paths)
        names.append(name)
    return names


def _parquet(path: Path, format: Format, columns: Columns) -> Iterator[tuple[str, ...]]:
    with parquet_file(path) as file:
        from pyarrow import types

        names = parquet_columns(path, file, columns)
        keys = [field_path(name, file.schema_arrow) for name in names]
        for name, (first, *inside) in zip(names, keys, strict=True):
            kind = file.schema_arrow.field(first).type
            for key in inside:
                kind = kind.field(key).type
            if types.is_dictionary(kind):
                kind = kind.value_type
            if not (types.is_string(kind) or types.is_large_string(kind)):
                raise DataError(f"{path}: column '{name}' holds {kind}, not text")
        for batch in file.iter_batches(batch_size=4096, columns=names):
            found = (column_at(batch, path).to_pylist() for path in keys)
            # A missing value is an empty text: blank rows are dealt with, and counted, further on.
            yield from (tuple(cell or "" for cell in row) for row in zip(*found, strict=True))


def _columns(count: int) -> str:
    return f"{count} column" + "s" * (count != 1)
