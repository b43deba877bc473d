"""What is said of data that no task takes for its own: what was seen, and what to do."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from regard.data.formats import format_of
from regard.data.images.image_files import SUFFIXES as IMAGES
from regard.data.images.image_files import parts_of
from regard.data.inspection.foreign import foreign, unreadable
from regard.data.readers import SUFFIXES
from regard.errors import DataError
from regard.tasks.plans.columns import (
    DataColumn,
    all_columns,
    columns,
    free_numbers,
    label_column,
    plain,
    regression,
    tabular,
)

OR_TASK = "; or name a task (--set task=...) or a preset, see `regard presets`"

CHECKED = 100
"""Files whose beginning is looked at, at the most."""


def refuse_foreign(paths: Sequence[Path], *, as_text: bool) -> None:
    """Refuse files that are not what their names say; with `as_text`, as another task was asked for, those alone that
    are no text."""
    for path in [path for path in paths if plain(path) or tabular(path)][:CHECKED]:
        if format_of(path) == "parquet" or path.stat().st_size == 0:
            continue
        if what := unreadable(path) or ("" if as_text else foreign(path)):
            raise DataError(f"{path} cannot be read as it is: {what}")


def described(path: Path) -> str:
    """What was seen in a file or folder that no task takes for its own, and what may be done about it."""
    if path.is_dir():
        return _folder(path)
    found, seen = all_columns(path)
    if not found:
        return "it has no rows; give another file"
    widths = Counter(len(row) for row in seen.rows if any(str(cell).strip() for cell in row))
    if seen.format in ("tsv", "csv") and len(widths) > 1:
        listed = ", ".join(f"{count:,} of {width}" for width, count in widths.most_common(3))
        return f"its rows have different numbers of columns ({listed}); give all as many{UNEVEN[seen.format]}"
    if not found[0].values:
        return f"it names columns ({', '.join(column.name for column in found)}) and has no rows; give another file"
    if talk := next((column for column in found if _conversations(column)), None):
        return (
            f"its '{talk.key}' are conversations, lists of messages, which no task trains on; write each answer as a "
            f'record of its own, {{"source": what was said before it, "target": the answer}}, or each conversation as '
            f'one text, {{"text": ...}}'
        )
    shown = [f"{column.title}: {column.kind}" for column in found[:8]]
    what = f"it has {len(found)} column{'s' * (len(found) != 1)} ({', '.join(shown)}{', ...' * (len(found) > 8)})"
    if len(found) == 1:
        return f"{what}; give texts, and what belongs to each, columns of their own{OR_TASK}"
    kept, _ = columns(path)
    numbers = [column for column in kept if free_numbers(column)]
    texts = [column for column in kept if column.textual and not column.blank and column not in numbers]
    if regression(kept):
        return _regression(texts[0], numbers[0])
    named = {column.name.casefold(): column for column in texts}
    if {"instruction", "input", "output"} <= {*named}:
        filled = [value for value in named["input"].texts if value.strip()]
        return (
            f"{what}, instructions with an input that {len(filled):,} of the first {len(named['input'].values):,} "
            f"have; {_as_pairs(named['instruction'], named['output'])} leaves inputs out; to read them write "
            f"instruction and input as one text"
        )
    return f"{what}; {_ways(texts, kept, found)}"


UNEVEN = {"csv": "; texts that hold commas stand in quotation marks", "tsv": "; texts hold no tabs"}
"""What rows of different numbers of columns mostly lack."""


def _folder(path: Path) -> str:
    kinds = Counter(file.suffix.lower() or "no suffix" for file in path.rglob("*") if file.is_file())
    listed = ", ".join(f"{count:,} of {kind}" for kind, count in kinds.most_common(4)) or "no files"
    hint = (
        f"images to classify stand in a folder for each class{_one_class(path)}"
        if {*kinds} & {*IMAGES}
        else f"of a folder files that end in {', '.join(SUFFIXES)} are read, or tables where all are tables: "
        f"rename the files, or name those to read with --data"
    )
    return f"a folder with {listed}; {hint}{OR_TASK}"


def _one_class(path: Path) -> str:
    """What to say where all images stand in one folder."""
    folder = path / "train" if parts_of(path) else path
    images = [file.relative_to(folder) for file in folder.rglob("*") if file.suffix.lower() in IMAGES]
    names = {file.parts[0] for file in images if len(file.parts) > 1}
    if len(names) != 1 or not all(len(file.parts) > 1 for file in images):
        return ""
    return f", and here is one class only, '{names.pop()}', where at least two are wanted"


def _conversations(column: DataColumn) -> bool:
    """Whether the cells are lists of messages, as {"role": ..., "content": ...}."""
    there = [value for value in column.values if value]
    return bool(there) and all(
        isinstance(value, list) and all(isinstance(one, Mapping) and {*one} & {"role", "from"} for one in value)
        for value in there
    )


def _regression(text: DataColumn, numbers: DataColumn) -> str:
    kinds = "numbers" if numbers.numeric else "dates"
    distinct = len({str(value) for value in numbers.values})
    said = (
        f"{numbers.title} holds {kinds} of {distinct:,} values beside the texts of {text.title}, and regression, which "
        f"would predict them, is not one of the tasks"
    )
    if all(isinstance(value, str | int | float) for value in numbers.values):
        said += f"; {_as_classes(text, numbers)} learns each value as a class of its own"
    return said + f"; {_as_pairs(text, numbers)} writes them as texts" * numbers.textual


def _ways(texts: Sequence[DataColumn], kept: Sequence[DataColumn], found: Sequence[DataColumn]) -> str:
    """Which columns may be named for which task."""
    if not texts:
        return f"no column holds texts in most of its rows; write each text to one column{OR_TASK}"
    ways = [f"{_as_pairs(texts[0], texts[1])} for pairs"] if len(texts) > 1 else []
    numbers = [column for column in kept if column.numeric]
    labels = [column for column in (label_column(kept), *numbers) if column is not None and not column.lists]
    if labels and (named := [column for column in texts if column is not labels[0]]):
        second = f" --set data.pair={_shown(named[1].key)}" if len(named) == 2 else ""
        ways.append(f"{_as_classes(named[0], labels[0])}{second} for classes")
    if len(texts) == 1:
        ways.append(f"--set data.text={_shown(texts[0].key)} --set task=language to continue its texts")
    said = f"name columns, as {', or '.join(ways)}{OR_TASK}"
    if lists := [column.title for column in found if column.kind == "lists"]:
        said += f"; {', '.join(lists)}: a text has one label, not a list of them"
    if measured := [column.title for column in numbers if free_numbers(column)]:
        said += f"; regression, which would predict {', '.join(measured)}, is not one of the tasks"
    return said


def _as_pairs(source: DataColumn, target: DataColumn) -> str:
    return f"--set data.source={_shown(source.key)} --set data.target={_shown(target.key)}"


def _as_classes(text: DataColumn, label: DataColumn) -> str:
    return f"--set data.text={_shown(text.key)} --set data.label={_shown(label.key)}"


def _shown(key: str | int) -> str:
    """A key as a shell reads it."""
    return str(key) if str(key).replace("_", "").replace(".", "").isalnum() else f"'{key}'"
