"""Names to files: of a file, of a folder with all that is in it, or of all that match a pattern."""

import glob
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from regard.data.formats import COMPRESSED
from regard.errors import DataError

_NUMBERED = re.compile(r"(.*?)(\d+)-of-(\d+)(.*)")


def is_pattern(name: str) -> bool:
    """Whether a name stands for all files that match it: `shards/*.jsonl.gz`."""
    return glob.has_magic(name) and not _exists(name)


def is_there(name: str) -> bool:
    """Whether a name is that of a file or folder, or a pattern that some match."""
    return _exists(name) or (is_pattern(name) and next(glob.iglob(name, recursive=True), None) is not None)


def _exists(name: str) -> bool:
    try:
        return Path(name).exists()
    except (OSError, ValueError):  # too long for a name, or with a null in it: a text
        return False


def check_there(names: Sequence[str]) -> None:
    """Refuse a name that no file has, and a pattern that none matches."""
    for name in names:
        if not is_there(name):
            raise DataError(f"no file matches {name}" if glob.has_magic(name) else f"no such file or folder: {name}")


def matching(name: str) -> list[Path]:
    """The files and folders that a name stands for, in order of their names; all of `00000-of-00008` and so on."""
    check_there([name])
    if not is_pattern(name):
        return [Path(name)]
    found = sorted(Path(path) for path in glob.glob(name, recursive=True))
    _refuse_gaps(found)
    return found


def matching_all(names: Iterable[str | Path]) -> list[Path]:
    """The files and folders that all these names stand for."""
    return [path for name in names for path in matching(str(name))]


def files_of(name: str, suffixes: Sequence[str] | None = None) -> list[Path]:
    """The files that a name stands for: one, those that match a pattern, or those in a folder and below.

    Of folders, files with one of the `suffixes`, compressed or not, or all that are not hidden.
    """
    found: list[Path] = []
    for path in matching(name):
        if not path.is_dir():
            found.append(path)
            continue
        inside = sorted(file for file in path.rglob("*") if file.is_file() and _visible(file, path))
        kept = [file for file in inside if suffixes is None or inner_suffix(file) in suffixes]
        if not kept:
            kinds = "" if suffixes is None else f"; known kinds: {', '.join(suffixes)}"
            raise DataError(f"{path} holds no file to read{kinds}")
        _refuse_gaps(kept)
        found += kept
    return found


def passed_over(names: Iterable[str | Path], suffixes: Sequence[str]) -> Iterator[str]:
    """A note on each folder that holds files of other kinds than the `suffixes`, which are not read."""
    for folder in matching_all(names):
        if not folder.is_dir():
            continue
        inside = (file for file in folder.rglob("*") if file.is_file() and _visible(file, folder))
        others = sorted(str(file.relative_to(folder)) for file in inside if inner_suffix(file) not in suffixes)
        if others:
            listed = ", ".join(others[:3]) + ", ..." * (len(others) > 3)
            count = "1 file is" if len(others) == 1 else f"{len(others):,} files are"
            yield f"{folder}: {count} of a kind that is not read ({listed}); known kinds: {', '.join(suffixes)}"


def inner_suffix(file: Path) -> str:
    """The suffix, that of a compression aside."""
    suffix = file.suffix.lower()
    return Path(file.stem).suffix.lower() if suffix in COMPRESSED else suffix


def _visible(file: Path, folder: Path) -> bool:
    return not any(part.startswith(".") for part in file.relative_to(folder).parts)


def _refuse_gaps(files: Sequence[Path]) -> None:
    """Refuse shards numbered `3-of-8` of which one is not there."""
    groups: dict[tuple[str, ...], set[int]] = {}
    for file in files:
        if found := _NUMBERED.fullmatch(file.name):
            before, number, total, after = found.groups()
            groups.setdefault((str(file.parent), before, total, after, str(len(number))), set()).add(int(number))
    for (folder, before, total, after, width), numbers in groups.items():
        first = 0 if 0 in numbers else 1
        missing = sorted(set(range(first, first + int(total))) - numbers)
        if missing:
            name = Path(folder) / f"{before}{missing[0]:0{width}}-of-{total}{after}"
            more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            raise DataError(f"a shard is missing: {name}{more}; there are {len(numbers)} of {int(total)}")
