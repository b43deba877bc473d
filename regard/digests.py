"""Digests: what files held when they were written, compared when they are read.

A folder that is written once, as a checkpoint or prepared data, keeps them in a `digests.json` of its own. One without
it, from an earlier version, is read as it is.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

DIGESTS = "digests.json"
ALGORITHM = "sha256"
"""The fastest that comes with Python on processors of the last years, which have instructions for it."""

_LARGEST = 1 << 20  # bytes of a digests.json
_compared: ContextVar[bool] = ContextVar("compared", default=True)


@contextmanager
def verifying(wanted: bool = True) -> Iterator[None]:
    """Whether files that are read inside are compared with their digests; huge ones take a second per gigabyte."""
    before = _compared.set(wanted and _compared.get())
    try:
        yield
    finally:
        _compared.reset(before)


def compares() -> bool:
    """Whether digests are compared here."""
    return _compared.get()


def file_digest(path: Path) -> str:
    """The digest of all that is in a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, ALGORITHM).hexdigest()


def digests_of(folder: Path) -> str:
    """The text of a `digests.json` for what is in the folder now."""
    files = sorted(path for path in folder.iterdir() if path.is_file() and path.name != DIGESTS)
    with ThreadPoolExecutor(4) as pool:  # hashing leaves Python's lock to others
        found = dict(zip((path.name for path in files), pool.map(file_digest, files), strict=True))
    return _manifest(found)


def size_of_digests(names: Iterable[str]) -> int:
    """Bytes of a `digests.json` for files of these names, whatever they hold."""
    return len(_manifest(dict.fromkeys(names, "0" * hashlib.new(ALGORITHM).digest_size * 2)).encode())


def _manifest(files: Mapping[str, str]) -> str:
    return json.dumps({"algorithm": ALGORITHM, "files": files}, indent=2) + "\n"


def damage(folder: Path, only: str | None = None) -> str | None:
    """What of the folder is not as it was written, in a few words; None where all is, or where nothing is known.

    `only` asks for one of its files.
    """
    manifest = folder / DIGESTS
    if not compares() or not manifest.exists():
        return None
    try:
        if manifest.stat().st_size > _LARGEST:
            raise ValueError("larger than any")
        record = json.loads(manifest.read_bytes())
        files = {str(name): str(digest) for name, digest in record["files"].items()}
        if record["algorithm"] != ALGORITHM:
            raise ValueError("another algorithm")
        if only is not None:
            files = {only: files[only]}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return f"{DIGESTS} is damaged"
    for name in files:
        if Path(name).name != name or not (folder / name).is_file():
            return f"{name} is missing"
    with ThreadPoolExecutor(4) as pool:
        found = pool.map(_readable_digest, (folder / name for name in files))
        for name, digest in zip(files, found, strict=True):
            if isinstance(digest, OSError):
                return f"{name} is damaged: it cannot be read ({digest.strerror or digest})"
            if digest != files[name]:
                return f"{name} is damaged: it does not match its digest"
    return None


def _readable_digest(path: Path) -> str | OSError:
    """The digest, or what the disk says instead; what may not be read is another matter than what cannot."""
    try:
        return file_digest(path)
    except PermissionError:
        raise
    except OSError as error:
        return error
