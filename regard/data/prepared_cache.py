"""A cache of prepared data: folders of arrays, each named by everything that could change it."""

import hashlib
import json
import mmap
import os
import secrets
import shutil
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from regard.config import JsonObject
from regard.digests import DIGESTS, damage, digests_of
from regard.errors import DataError
from regard.text.tokenizing import TokenizingLost

try:
    import fcntl
except ImportError:  # on Windows
    fcntl = None

Store = TypeVar("Store")
Item = TypeVar("Item")

HELD = 256 << 20
"""Bytes of the largest file that is held in memory; a larger one is mapped."""

_ABANDONED = 3600.0  # seconds without a write after which an unfinished folder that none can lock belongs to no one
_LOCKED = ".partial-locked-"
_BEGUN = ".partial-begun-"
_KEPT = 7 * 24 * 3600.0  # seconds after which one that could be gone on with is not waited for any longer

CURSOR = "cursor.json"
"""In a folder that is being written: how far it has come, so that it can be gone on with after a kill."""


def cached(
    cache: Path,
    key: list[Any],
    open: Callable[[Path], Store],
    write: Callable[[Path], None],
    say: Callable[[str], None] | None = None,
    *,
    resumes: bool = False,
) -> Store:
    """What `open` finds in the folder of `cache` that `key` names; if that is not there or not whole, `write` it first.

    `open` raises a DataError where something is missing. Two processes may prepare the same at once. `say` is told
    where what is there is damaged, and prepared again. With `resumes`, `write` may leave a file `CURSOR` that says how
    far it has come: after a kill it is called again with what it left.
    """
    folder = cache / hashlib.sha256(json.dumps(key).encode()).hexdigest()[:24]
    begun = cache / f"{_BEGUN}{folder.name}"
    _sweep(cache, begun)
    try:
        return _whole(folder, open)
    except DataError as error:
        if say is not None and folder.exists():
            say(f"{error}: it is prepared again")
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with _partial(cache, begun if resumes else None, say) as aside:
            write(aside)
            (aside / CURSOR).unlink(missing_ok=True)
            (aside / DIGESTS).write_text(digests_of(aside), encoding="utf-8", newline="\n")
            _settle(aside, folder, open)
    except OSError as error:
        raise DataError(f"cannot write prepared data to {cache}: {error.strerror or error}") from None
    return open(folder)


def _whole(folder: Path, open: Callable[[Path], Store]) -> Store:
    """What is in the folder, if it is what was written there."""
    if (fault := damage(folder)) is not None:
        raise DataError(f"in the prepared data of {folder} {fault}")
    return open(folder)


def is_begun(cache: Path) -> bool:
    """Whether a preparation was interrupted here that can be gone on with."""
    return any((aside / CURSOR).exists() for aside in cache.glob(f"{_BEGUN}*"))


@contextmanager
def _partial(cache: Path, begun: Path | None, say: Callable[[str], None] | None) -> Iterator[Path]:
    """A folder to prepare data in, removed in the end unless it has got another name.

    While it is being written its process holds a lock on it, which ends with the process, however that ends. It is the
    one that was `begun` before, where there is one; that stays where its process is told to end.
    """
    aside, handle = (None if begun is None else _taken_up(begun)) or _claimed(cache)
    stays = False
    try:
        yield aside
    except (KeyboardInterrupt, SystemExit, TokenizingLost):
        stays = aside == begun and (aside / CURSOR).exists()
        if stays and say is not None:
            say(f"what was prepared until now stays in {aside}: the same command goes on with it")
        raise
    finally:
        if not stays:
            shutil.rmtree(aside, ignore_errors=True)
        if handle is not None:
            os.close(handle)


def _taken_up(begun: Path) -> tuple[Path, int] | None:
    """The folder that a preparation of the same data began, new or as it was left, and the lock on it.

    None where it cannot be locked: another process is at work on it, or no folder can be.
    """
    if fcntl is None:
        return None
    begun.mkdir(exist_ok=True)
    handle = os.open(begun, os.O_RDONLY)
    if not _lock(handle) or not begun.exists():
        os.close(handle)
        return None
    return begun, handle


def _claimed(cache: Path) -> tuple[Path, int | None]:
    """A new folder and the lock on it; None where folders cannot be locked, as on Windows."""
    for _ in range(8 if fcntl is not None else 0):
        aside = cache / f"{_LOCKED}{secrets.token_hex(8)}"
        aside.mkdir()
        try:
            handle = os.open(aside, os.O_RDONLY)
        except OSError:
            shutil.rmtree(aside, ignore_errors=True)
            break
        locked = _lock(handle)
        if locked and aside.exists():
            return aside, handle
        os.close(handle)  # before it was locked, another process took it for one that was left behind
        shutil.rmtree(aside, ignore_errors=True)
        if locked is None:
            break
    aside = cache / f".partial-{secrets.token_hex(8)}"
    aside.mkdir()
    return aside, None


def _lock(handle: int) -> bool | None:
    """Whether a folder is now locked by this process; None where it cannot be, as on a file system without locks."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _settle(aside: Path, folder: Path, open: Callable[[Path], Any]) -> None:
    """Give the finished folder its name, once its bytes are on the disk."""
    for path in aside.iterdir():
        with path.open("r+b") as file:  # Windows syncs only what is open for writing
            os.fsync(file.fileno())
    if folder.exists() and not _complete(folder, open):
        shutil.rmtree(folder)
    try:
        aside.rename(folder)
    except OSError:
        # Another process prepared the same data meanwhile: its folder holds the same bytes.
        if not _complete(folder, open):
            raise


def _complete(folder: Path, open: Callable[[Path], Any]) -> bool:
    try:
        _whole(folder, open)
    except DataError:
        return False
    return True


def _sweep(cache: Path, begun: Path) -> None:
    """Remove what preparations that were killed left behind: at once where its lock is free, else once it is old.

    What was `begun` of the same data stays, to be gone on with; what was of other data stays for a week.
    """
    for aside in cache.glob(".partial-*"):
        if aside == begun:
            continue
        with suppress(OSError):  # finished meanwhile, or not ours to remove
            newest = max(path.stat().st_mtime for path in [aside, *aside.iterdir()])
            age = time.time() - newest
            if not aside.name.startswith((_LOCKED, _BEGUN)) or fcntl is None:
                _remove(aside, age > _ABANDONED)
                continue
            handle = os.open(aside, os.O_RDONLY)
            try:
                free = _lock(handle)
                if free and aside.name.startswith(_BEGUN) and (aside / CURSOR).exists():
                    _remove(aside, age > _KEPT)
                else:
                    _remove(aside, age > _ABANDONED if free is None else free)
            finally:
                os.close(handle)


def _remove(aside: Path, abandoned: bool) -> None:
    if abandoned:
        shutil.rmtree(aside, ignore_errors=True)


@contextmanager
def opened(folder: Path, what: str, version: int) -> Iterator[JsonObject]:
    """What `write_meta` wrote into the folder; whatever goes wrong inside says that it holds no such data."""
    try:
        meta = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
        if meta["version"] != version:
            raise ValueError("it was prepared by another version of regard")
        yield meta
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{folder} holds no prepared {what}: {error}") from None


def write_meta(folder: Path, version: int, **values: object) -> None:
    """Describe the arrays in `folder`."""
    text = json.dumps({"version": version, **values}, indent=2)
    (folder / "meta.json").write_text(text + "\n", encoding="utf-8", newline="\n")


class AppendedFiles:
    """Files of a folder that are written piece by piece; what is committed outlives a kill, and can be gone on with."""

    def __init__(self, folder: Path, names: Sequence[str], version: int, stack: ExitStack) -> None:
        self._folder, self._names, self._version, self._stack = folder, tuple(names), version, stack
        self._files: dict[str, IO[bytes]] = {}
        self._written: dict[str, tuple[int, int]] = dict.fromkeys(names, (0, 0))
        """Of each its bytes, and their checksum."""

    def take_up(self) -> JsonObject | None:
        """What was said when an earlier process last committed; None, and empty files, where that is not whole."""
        state = self._committed()
        for name, (size, _) in self._written.items():
            file = self._stack.enter_context((self._folder / name).open("r+b" if size else "wb"))
            file.truncate(size)
            file.seek(size)
            self._files[name] = file
        return state

    def write(self, name: str, data: bytes) -> None:
        size, checksum = self._written[name]
        self._files[name].write(data)
        self._written[name] = size + len(data), zlib.crc32(data, checksum)

    def commit(self, state: JsonObject) -> None:
        """Sync what has been written, with what is to be known to go on from there."""
        for file in self._files.values():
            file.flush()
            os.fsync(file.fileno())
        aside = self._folder / f"{CURSOR}.partial"
        with aside.open("w", encoding="utf-8", newline="\n") as file:
            json.dump({"version": self._version, "written": self._written, "state": state}, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, self._folder / CURSOR)

    def _committed(self) -> JsonObject | None:
        try:
            found = json.loads((self._folder / CURSOR).read_text(encoding="utf-8"))
            written = {name: (int(size), int(checksum)) for name, (size, checksum) in found["written"].items()}
            if found["version"] != self._version or tuple(written) != self._names:
                return None
            if any(_checksum(self._folder / name, size) != checksum for name, (size, checksum) in written.items()):
                return None
            state = dict(found["state"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None
        self._written = written
        return state


def _checksum(path: Path, size: int) -> int | None:
    """Of the first bytes of a file; None where it has not so many."""
    checksum = 0
    with path.open("rb") as file:
        while size:
            if not (data := file.read(min(size, 1 << 20))):
                return None
            checksum, size = zlib.crc32(data, checksum), size - len(data)
    return checksum


_mapped: WeakKeyDictionary[mmap.mmap, Path] = WeakKeyDictionary()
"""The files that are mapped into memory now."""


def stored(path: Path, dtype: npt.DTypeLike, length: int) -> np.ndarray:
    """The array of so many numbers in a file: held in memory, or mapped where it is larger than HELD.

    Whatever becomes of the file, what is held stays. Of a mapped file that is cut short, reading on would end the
    process: see `whole_batches`.
    """
    if path.stat().st_size <= HELD:
        array = np.fromfile(path, dtype=dtype)
        array.flags.writeable = False
    else:
        with path.open("rb") as file:
            mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        _mapped[mapping] = path
        array = np.frombuffer(mapping, dtype=dtype)
    if len(array) != length or array.nbytes != path.stat().st_size:
        raise ValueError(f"{path.name} is cut short")
    return array


def whole_batches(batches: Iterable[Item]) -> Iterator[Item]:
    """The batches, as long as every mapped file has its full size, before each and after it."""
    _check_mapped()
    for batch in batches:
        _check_mapped()
        yield batch
        _check_mapped()


def _check_mapped() -> None:
    for mapping, path in list(_mapped.items()):
        if mapping.size() < len(mapping):
            raise DataError(
                f"{path} was cut short while it was in use: {mapping.size():,} of {len(mapping):,} bytes are left; "
                f"what is prepared is made again at the next start"
            )


def token_dtype(vocab_size: int) -> np.dtype:
    """The narrowest type that holds the ids of a vocabulary."""
    return np.dtype(np.uint16 if vocab_size <= 2**16 else np.uint32)
