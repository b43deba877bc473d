"""Files that are not what their names say, or of a kind that is not read: what each is, and what to do with it."""

import csv
import gzip
import json
import shlex
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from regard.data.file_names import inner_suffix
from regard.data.formats import COMPRESSED, Format, format_of, lines
from regard.errors import DataError

HEAD = 1 << 16
"""Bytes at the beginning of a file that tell what it is."""

LOOKED = 200
"""Lines that tell what separates the columns of a table."""

LARGEST_JSON = 1 << 26
"""Bytes of a file of JSON up to which it is read whole to see what it holds."""

_SIGNATURES = {
    b"\x1f\x8b": "it is compressed with gzip: add .gz to its name",
    b"BZh": "it is compressed with bzip2: add .bz2 to its name",
    b"\xfd7zXZ": "it is compressed with xz: add .xz to its name",
    b"\x28\xb5\x2f\xfd": "it is compressed with Zstandard: add .zst to its name",
    b"PAR1": "it is a Parquet file: name it .parquet",
    b"PK\x03\x04": "it is a ZIP archive or an Office document: unpack it, or save it as CSV or plain text",
    b"\xd0\xcf\x11\xe0": "it is an Office document: save it as CSV or plain text",
    b"%PDF": "it is a PDF: save its text as a .txt",
}

_SUBTITLES = "it is subtitles, with times between the lines: write what is said to a .txt, a line for each"
_PAIRS = "write a source, a tab and its target on each line of a .tsv"
_KINDS = {
    **dict.fromkeys((".tmx", ".xlf", ".xliff"), f"it is a translation memory in XML: {_PAIRS}"),
    **dict.fromkeys((".po", ".pot"), f"it is a catalogue of messages for gettext: {_PAIRS}"),
    **dict.fromkeys((".srt", ".vtt"), _SUBTITLES),
    **dict.fromkeys((".xml", ".html", ".htm"), "it is markup: write its text to a .txt, or its records to a .jsonl"),
    **dict.fromkeys((".yaml", ".yml"), "it is YAML: write each record as a JSON object on a line of a .jsonl"),
    ".arrow": "it is an Arrow file: write it as Parquet, as with to_parquet of a Dataset of Hugging Face",
}
"""What files of text are that have records or marks of their own, and what to do, by their suffixes."""

_MARKS: dict[Format, tuple[str, ...]] = {"tsv": (" ||| ", "|", ";", ","), "csv": ("\t", ";", "|")}
"""What may separate the columns of a table where it is not what its name says."""

_NAMES = {"\t": "tabs", ";": "semicolons", ",": "commas", "|": "'|'", " ||| ": "' ||| '"}


def unreadable(path: Path) -> str:
    """Why a file is no text as it is, and what to do; empty where its first bytes are those of a text."""
    try:
        with gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb") as file:
            head = file.read(HEAD)
    except (OSError, EOFError):  # said where it is read
        return ""
    if path.suffix.lower() in COMPRESSED[1:]:
        return ""
    for start, what in _SIGNATURES.items():
        if head.startswith(start):
            return what
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "it is UTF-16: convert it, as with iconv -f UTF-16 -t UTF-8"
    if b"\0" in head:
        odd = [head[1::2].count(0), head[::2].count(0)]
        if max(odd) > 0.4 * len(head) / 2:
            kind = "UTF-16LE" if odd[0] > odd[1] else "UTF-16BE"
            return f"it seems to be {kind}: convert it, as with iconv -f {kind} -t UTF-8"
        return "it holds zero bytes, as no text does"
    if b"\r" in head[:-1] and b"\n" not in head:
        return (
            f"its lines end in carriage returns alone, which end no line here: convert it, as with "
            f"tr '\\r' '\\n' {_redirected(path, _renamed(path, inner_suffix(path), '-lines'))}"
        )
    return ""


def foreign(path: Path) -> str:
    """What a file of text is that is not what its name says, and what to do; empty where nothing speaks against it."""
    suffix = inner_suffix(path)
    if suffix in _KINDS:
        return f"{_KINDS[suffix]}; --set task=language reads it as running text"
    if suffix == ".json":
        return _json(path)
    format = format_of(path)
    if format == "jsonl":
        return _json(path) if next(filter(str.strip, lines(path)), "").lstrip().startswith("[") else ""
    return _separated(path, format) if format in _MARKS else ""


def _json(path: Path) -> str:
    """What a file of JSON holds that is no JSONL."""
    first = [line for line in islice(lines(path), LOOKED) if line.strip()][:2]
    values = [_loaded(line) for line in first]
    if len(values) == 2 and all(isinstance(value, dict) for value in values):
        return f"it has an object on each line: name it {_renamed(path, '.jsonl')}"
    if len(values) == 2 and all(isinstance(value, list) for value in values):
        return 'it has a list on each line: write an object on each, such as {"source": "...", "target": "..."}'
    whole = _loaded("\n".join(lines(path))) if path.stat().st_size < LARGEST_JSON else None
    records = {key: value for key, value in whole.items() if isinstance(value, list)} if isinstance(whole, dict) else {}
    if isinstance(whole, dict) and not records:
        return "it is one JSON object: write a .jsonl, with an object for each record on a line"
    held, found = next(iter(records.items()), ("", []))
    if any(isinstance(one, dict) and "paragraphs" in one for one in found):
        return (
            "it has the questions of each paragraph below it, as SQuAD has them: write each question as an object on a "
            "line of a .jsonl, with context, question and answers"
        )
    inside = f"[{held!r}]" if records else ""
    program = f"import json, sys; [print(json.dumps(one)) for one in json.load(sys.stdin){inside}]"
    what = f"one array below '{held}'" if records else "one array"
    wanted = _renamed(path, ".jsonl", "-lines" * (inner_suffix(path) == ".jsonl"))
    return f"it holds {what}, not an object on each line: convert it, as with {_converted(path, program, wanted)}"


def _loaded(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _separated(path: Path, format: Format) -> str:
    """What separates the columns of a table in truth, or that they stand in quotation marks, and what to do."""
    try:
        rows = [line for line in islice(lines(path), LOOKED) if line.strip()]
    except DataError:  # said where it is read
        return ""
    own = "\t" if format == "tsv" else ","
    if len(rows) > 1 and (mark := _other_mark(rows, own, _MARKS[format])):
        what = f"its columns are separated by {_NAMES[mark]}, not by {_NAMES[own]}"
        quoted = any(row.startswith('"') for row in rows)
        if (mark == "\t" and not quoted) or mark == ",":
            return f"{what}: name it {_renamed(path, '.tsv' if mark == '	' else '.csv')}"
        if len(mark) > 1:
            return f"{what}: put a tab in place of each"
        return f"{what}: convert it, as with {_with_commas(path, mark)}"
    if format == "tsv" and _quoted(rows):
        return (
            f"its cells stand in quotation marks, which a TSV keeps as text: write it as a CSV, as with "
            f"{_with_commas(path, own)}"
        )
    return ""


def _other_mark(rows: Sequence[str], own: str, marks: Sequence[str]) -> str:
    """What separates as many cells in each row where the mark that should does not, or stands in sentences; or what
    every row has of one cell."""
    ours = {len(cells) for cells in _cells(rows, own)}
    alike = len(ours) == 1 and ours != {1}
    for mark in marks:
        widths = {len(cells) for cells in _cells(rows, mark)}
        if mark == "," and _in_sentences(rows, mark):
            continue
        if len(widths) == 1 and widths != {1} and (not alike or (_in_sentences(rows, own) and own == ",")):
            if not alike or not _in_sentences(rows, mark):
                return mark
        elif ours == {1} and mark != "," and all(mark in row for row in rows):
            return mark
    return ""


def _in_sentences(rows: Sequence[str], mark: str) -> bool:
    """Whether a mark has a space after it wherever it stands, as in sentences."""
    return all(row.count(mark) == row.count(f"{mark} ") for row in rows)


def _quoted(rows: Sequence[str]) -> bool:
    """Whether the cells of a TSV stand in quotation marks: nearly all of them, or those with line breaks inside."""
    if not any(row.startswith('"') or '\t"' in row for row in rows):
        return False
    plain, unquoted = [row.split("\t") for row in rows], [*_cells(rows, "\t")]
    marked = [all(len(cell) > 1 and cell[0] == cell[-1] == '"' for cell in row) for row in plain]
    if len(plain[0]) > 1 and len(plain) > 1 and sum(marked) > 0.9 * len(plain):
        return True
    return len({*map(len, plain)}) > 1 and len({*map(len, unquoted)}) == 1 and len(unquoted[0]) > 1


def _cells(rows: Sequence[str], mark: str) -> list[list[str]]:
    """The cells of rows, quoted or not; without the last row where it may be cut within a cell."""
    if len(mark) > 1:
        return [row.split(mark) for row in rows]
    found = list(csv.reader((f"{row}\n" for row in rows), delimiter=mark))
    return found[:-1] if len(rows) >= LOOKED - 1 and len(found) > 1 else found


def _with_commas(path: Path, mark: str) -> str:
    """How a table with another mark between its columns is written with commas."""
    shown = "\\t" if mark == "\t" else mark
    program = f"import csv, sys; csv.writer(sys.stdout).writerows(csv.reader(sys.stdin, delimiter='{shown}'))"
    return _converted(path, program, _renamed(path, ".csv", "-commas" * (inner_suffix(path) == ".csv")))


def _converted(path: Path, program: str, wanted: str) -> str:
    return f'python -c "{program}" {_redirected(path, wanted)}'


def _redirected(path: Path, wanted: str) -> str:
    """The end of a command that reads a file and writes another; one that is compressed is to be unpacked first."""
    read = path.with_suffix("") if path.suffix.lower() in COMPRESSED else path
    said = f"< {shlex.quote(str(read))} > {shlex.quote(wanted)}"
    return said if read == path else f"{said} once it is unpacked"


def _renamed(path: Path, suffix: str, more: str = "") -> str:
    """The name of a file with another suffix, in its folder."""
    inner = path.with_suffix("") if path.suffix.lower() in COMPRESSED else path
    return str(inner.with_name(f"{inner.stem}{more}{suffix}"))
