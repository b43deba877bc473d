"""A cache of prepared data: folders of mapped arrays, each named by everything that could change it."""

import hashlib
import json
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from regard.config import JsonObject
from regard.errors import DataError

Store = TypeVar("Store")

_ABANDONED = 3600.0  # seconds without a write after which an unfinished folder belongs to no one


def cached(cache: Path, key: list[Any], open: Callable[[Path], Store], write: Callable[[Path], None]) -> Store:
    """What `open` finds in the folder of `cache` that `key` names; if that is not there or not whole, `write` it first.

    `open` raises a DataError where something is missing. Two processes may prepare the same at once.
    """
    folder = cache / hashlib.sha256(json.dumps(key).encode()).hexdigest()[:24]
    try:
        return open(folder)
    except DataError:
        pass
    try:
        cache.mkdir(parents=True, exist_ok=True)
        _sweep(cache)
        aside = cache / f".partial-{secrets.token_hex(8)}"
        aside.mkdir()
        try:
            write(aside)
            _settle(aside, folder, open)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    except OSError as error:
        raise DataError(f"cannot write prepared data to {cache}: {error.strerror or error}") from None
    return open(folder)


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
        open(folder)
    except DataError:
        return False
    return True


def _sweep(cache: Path) -> None:
    """Remove what preparations that were killed left behind."""
    for aside in cache.glob(".partial-*"):
        with suppress(FileNotFoundError):  # finished meanwhile
            newest = max(path.stat().st_mtime for path in [aside, *aside.iterdir()])
            if time.time() - newest > _ABANDONED:
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


def mapped(path: Path, dtype: npt.DTypeLike, length: int) -> np.ndarray:
    """The array of so many numbers in a file, mapped into memory."""
    # asarray: the plain array over the same mapped pages, since every slice of a memmap pays for being one.
    array = np.asarray(np.memmap(path, dtype=dtype, mode="r"))
    if len(array) != length:
        raise ValueError(f"{path.name} is cut short")
    return array


def token_dtype(vocab_size: int) -> np.dtype:
    """The narrowest type that holds the ids of a vocabulary."""
    return np.dtype(np.uint16 if vocab_size <= 2**16 else np.uint32)
