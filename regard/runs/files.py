"""The files of a run directory: atomic writes, a lock, JSON and safetensors."""

import errno
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any

import safetensors
from safetensors.torch import load_file, save_file
from torch import Tensor

from regard import config as settings
from regard.config import JsonObject
from regard.digests import ALGORITHM, compares, file_digest
from regard.errors import ConfigError, Damaged, NotWritten, RunError

try:
    import fcntl
except ImportError:  # on Windows
    fcntl = None
    msvcrt: Any = import_module("msvcrt")

CONFIG, TOKENIZER, MODEL, CHECKPOINTS = "config.json", "tokenizer.json", "model.safetensors", "checkpoints"
"""What lies in a run directory."""

LARGEST_JSON = 256 << 20
"""Bytes of the largest JSON that is read: some times what the tokenizer of a large vocabulary takes."""


OWN_FILES = ("config.json", "tokenizer.json", "model.safetensors", "log.jsonl")
OWN_FOLDERS = ("checkpoints", "cache", "distilled", "tokenizer", "tensorboard")
"""What a run is made of."""


KINDS = frozenset({".svg", ".png", ".pdf", ".jpg", ".jpeg", ".gif", ".webp", ".html", ".json"})
"""The ends of names by which programs choose how to open a figure, a page or a document."""


def check_output(path: Path, *, makes: Path | None = None, kind: str | None = None) -> None:
    """Refuse an output file before anything is computed for it: one that cannot be written, or that is part of a run.

    `makes` is the run that the same command makes, whose directory need not be there yet. `kind` is what will be in
    the file, such as ".svg": a name that says another kind is refused, since no program would open it.
    """
    if kind is not None and path.suffix.lower() in KINDS - {kind}:
        raise ConfigError(f"{path} would hold {kind[1:].upper()}: call it {path.with_suffix(kind).name}")
    if str(path).startswith("-"):
        raise ConfigError(f"'{path}' is an option where a file's name should be; a file of that name is ./{path}")
    real, made = Path(os.path.realpath(path)), None if makes is None else Path(os.path.realpath(makes))
    for folder in real.parents:
        part = real.relative_to(folder).parts
        # In any case, for many file systems of Windows and macOS know no difference.
        own = part[0].casefold() in OWN_FOLDERS or (len(part) == 1 and part[0].casefold() in OWN_FILES)
        if own and (folder == made or _is_run(folder)):
            raise RunError(f"{path} is part of the run in {folder}: choose another file")
    with write_errors(path):
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if real.parent == made and not real.parent.exists():
            return
        if not real.parent.is_dir():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        device = path.exists() and not path.is_file()
        if not os.access(path if device else real.parent, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def check_output_directory(path: Path) -> None:
    """Refuse, before anything is computed, a directory that cannot be made or written to."""
    if str(path).startswith("-"):
        raise ConfigError(f"'{path}' is an option where a directory should be; one of that name is ./{path}")
    with write_errors(path):
        nearest = next(folder for folder in (path, *path.resolve().parents) if folder.exists())
        if not nearest.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        if not os.access(nearest, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def _is_run(folder: Path) -> bool:
    return (folder / "config.json").is_file() and any(
        (folder / name).exists() for name in ("model.safetensors", "checkpoints", "log.jsonl")
    )


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A path to write to, which takes the place of `path` when all is written and synced, and else is removed.

    A link is followed to what it names. A device or a pipe is written to directly, for nothing can take its place.
    """
    if path.exists() and not path.is_file():
        with write_errors(path):
            yield path
        return
    real = Path(os.path.realpath(path))
    aside = real.with_name(f".{real.name}.partial")
    with write_errors(path):
        aside.unlink(missing_ok=True)
        # Made here, and by nobody else: a link of this name in a folder of many could lead to any file.
        os.close(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
        try:
            yield aside
            sync(aside)
            os.replace(aside, real)
            sync(real.parent)
        except BaseException:
            aside.unlink(missing_ok=True)
            raise


@contextmanager
def whole_directory(path: Path) -> Iterator[Path]:
    """The same for a directory of files."""
    aside = path.with_name(f".{path.name}.partial")
    with write_errors(path):
        shutil.rmtree(aside, ignore_errors=True)
        try:
            aside.mkdir(parents=True)
            yield aside
            for file in aside.iterdir():
                sync(file)
            sync(aside)
            if path.exists():
                remove_directory(path)
            os.replace(aside, path)
            sync(path.parent)
        except BaseException:
            shutil.rmtree(aside, ignore_errors=True)
            raise


def remove_directory(path: Path) -> None:
    """Remove a directory of files, which is whole as long as it is there under its name.

    What cannot be removed now, since another program has it open, is left under the other name, for the next call.
    """
    gone = path.with_name(f".{path.name}.removed")
    shutil.rmtree(gone, ignore_errors=True)
    os.replace(path, gone)
    shutil.rmtree(gone, ignore_errors=True)


@contextmanager
def whole_or_nothing(
    directory: Path, stays: Callable[[Path], bool] = lambda path: False, say: Callable[[str], None] | None = None
) -> Iterator[None]:
    """Make `directory`. If what follows fails, everything new in it goes again, and the directories made for it.

    What `stays` is left, as it can be gone on with. `say` is for `alone_in`.
    """
    missing = [path for path in (directory, *directory.parents) if not path.exists()]
    with write_errors(directory):
        directory.mkdir(parents=True, exist_ok=True)
    with alone_in(directory, say):
        before = set(directory.iterdir())
        try:
            yield
        except BaseException:
            for path in set(directory.iterdir()) - before:
                if stays(path):
                    continue
                shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink()
            for path in missing:
                with suppress(OSError):  # someone else has put something there meanwhile
                    path.rmdir()
            raise


@contextmanager
def alone_in(directory: Path, say: Callable[[str], None] | None = None) -> Iterator[None]:
    """Refuse to write to `directory` while another process does. The lock ends with its process, however that ends.

    Where directories cannot be locked, as over NFS, a file beside it is; where nothing can, `say` is told.
    """
    taken = RunError(f"{directory} is being written to by another process")
    if fcntl is None:
        with _lock_file(directory, taken):
            yield
        return
    with write_errors(directory):
        handle = os.open(directory, os.O_RDONLY)
    with ExitStack() as held:
        held.callback(os.close, handle)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise taken from None
        except OSError:  # NFS locks only what is open for writing, which a directory never is
            real = Path(os.path.realpath(directory))
            beside = real.with_name(f".{real.name}.lock")
            held.enter_context(alone_with(beside, directory, say))
            held.callback(beside.unlink, missing_ok=True)  # while it is still locked
        yield


@contextmanager
def alone_with(path: Path, out: Path, say: Callable[[str], None] | None = None) -> Iterator[None]:
    """Make the file at `path` if need be, and refuse to go on while another process has it, as it writes `out`.

    On a file system without locks nobody is refused, and `say` is told.
    """
    taken = RunError(f"{out} is being written to by another process")
    if fcntl is None:
        with _lock_file(path, taken):
            with write_errors(out):
                path.touch()
            yield
        return
    while True:
        with write_errors(out):
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise taken from None
            except OSError as error:
                if say is not None:
                    say(
                        f"{out} cannot be locked ({error.strerror or error}): see that no other process writes to it "
                        f"meanwhile"
                    )
            if not path.exists() or not os.path.samestat(os.fstat(handle), path.stat()):
                continue  # its owner has ended meanwhile, and removed it
            yield
            return
        finally:
            os.close(handle)


@contextmanager
def _lock_file(directory: Path, taken: RunError) -> Iterator[None]:
    """Holds a lock on a file beside `directory`, for Windows locks no directories; another's raises `taken`."""
    real = Path(os.path.realpath(directory))
    path = real.with_name(f".{real.name}.lock")
    with write_errors(path):
        handle = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
    except OSError:
        os.close(handle)
        raise taken from None
    try:
        yield
    finally:
        msvcrt.locking(handle, msvcrt.LK_UNLCK, 1)
        os.close(handle)
        with suppress(OSError):  # Windows keeps a file that another process has opened meanwhile, to lock it
            path.unlink()


def write_json(path: Path, value: object) -> None:
    with whole_file(path) as aside:
        aside.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8", newline="\n")


def write_text(path: Path, text: str) -> None:
    with whole_file(path) as aside:
        aside.write_text(text, encoding="utf-8", newline="\n")


def read_json(path: Path, largest: int | None = None) -> JsonObject:
    """The JSON object in a part of a run."""
    value = read_any_json(path, largest)
    if not isinstance(value, dict):
        raise RunError(f"{path} does not hold a JSON object")
    return value


def read_any_json(path: Path, largest: int | None = None) -> Any:
    """What the JSON in a file holds, object or not, if it has at most `largest` bytes, by default LARGEST_JSON."""
    largest = LARGEST_JSON if largest is None else largest
    try:
        if (size := path.stat().st_size) > largest:
            raise RunError(f"{path} has {size:,} bytes; of JSON at most {largest:,} are read")
        return json.loads(settings.bounded_text(path, largest, RunError, regular=True))
    except (FileNotFoundError, NotADirectoryError):
        raise Damaged(f"{path.parent} is missing its {path.name}") from None
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, RecursionError):  # not JSON, not UTF-8, a number of thousands of digits, or nested too deeply
        raise Damaged(f"{path} was cut short or is not JSON") from None


IDENTITY = "run"
"""What tells a run from others in its settings: see `identity_of`."""


def identity_of(settings: Mapping[str, Any], data: str | None) -> str:
    """What tells a run from others, which its settings and each of its checkpoints say: a digest of the settings that
    it begins with, and of its data. Runs for which these are the same have the same checkpoints.

    Where prepared data is kept does not matter. The settings may change as the run goes on; this does not.
    """
    begun = {name: value for name, value in settings.items() if name != IDENTITY}
    if isinstance(begun.get("data"), Mapping):
        begun["data"] = {name: value for name, value in begun["data"].items() if name != "cache"}
    return _digest_of_values({"settings": begun, "data": data})[:32]


def write_config(directory: Path, settings: Mapping[str, Any], identity: str | None = None) -> None:
    """The settings of a run, sealed: with a digest of their values; and its identity, where it has one."""
    # At the start: a line that can be taken out, and JSON is left.
    own = {name: value for name, value in settings.items() if name != ALGORITHM}
    own |= {} if identity is None else {IDENTITY: identity}
    write_json(directory / CONFIG, {ALGORITHM: _digest_of_values(own), **own})


def check_config(directory: Path, settings: Mapping[str, Any]) -> None:
    """Refuse settings, read from a run, whose values are not those that they were sealed with.

    Their layout may be another. What was never sealed, or whose seal was taken off, is whoever's who wrote it.
    """
    if compares() and settings.get(ALGORITHM) not in (None, _digest_of_values(settings)):
        raise RunError(
            f"{directory / CONFIG} is not as it was written: it is damaged, or was edited. Put a copy of what it was "
            f"in its place; if it was edited on purpose, take its line '{ALGORITHM}' out"
        )


def _digest_of_values(settings: Mapping[str, Any]) -> str:
    own = {name: value for name, value in settings.items() if name != ALGORITHM}
    text = json.dumps(own, sort_keys=True, separators=(",", ":"))
    return hashlib.new(ALGORITHM, text.encode()).hexdigest()


def write_model(directory: Path, weights: Mapping[str, Tensor]) -> None:
    """The weights that a run is used with, sealed, with a digest of the tokenizer that they were trained with."""
    tokenizer = directory / TOKENIZER
    with write_errors(directory):
        beside = {TOKENIZER: file_digest(tokenizer)} if tokenizer.is_file() else {}  # models of images have none
        # The library writes to a file of a name of its own first, which a kill in the midst of it leaves.
        for left in directory.glob(".tmp??????"):
            left.unlink(missing_ok=True)
    write_tensors(directory / MODEL, weights, sealed=True, metadata=beside)


def check_tokenizer(directory: Path) -> None:
    """Refuse a tokenizer other than the one that the run's model was written with, where the model says so."""
    model, tokenizer = directory / MODEL, directory / TOKENIZER
    if not compares() or not model.is_file() or not tokenizer.is_file():
        return
    try:
        with safetensors.safe_open(model, "pt") as file:
            digest = (file.metadata() or {}).get(TOKENIZER)
    except (safetensors.SafetensorError, ValueError, OSError):  # which whoever reads the weights will say
        return
    if digest is not None and digest != file_digest(tokenizer):
        raise RunError(
            f"{tokenizer} is not what the model was trained with: it is damaged, or was edited. Put a copy of what it "
            f"was in its place, or take it as it is with --no-verify"
        )


def write_tensors(
    path: Path,
    tensors: Mapping[str, Tensor],
    *,
    sealed: bool = False,
    metadata: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """The tensors as safetensors, always the same bytes for the same values.

    `sealed` puts a digest of the file into its own metadata, which readers of safetensors leave alone: one file is
    replaced at once, and two, a file and its digest, are not. `metadata` goes there too.
    """
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with whole_file(path) as aside:
        save_file(plain, aside, metadata={"format": "pt", **metadata, **({ALGORITHM: _UNSEALED} if sealed else {})})
        if sealed:
            _seal(aside)
        # The library keeps its files to their owner; these are as open as the rest of the run.
        os.chmod(aside, (aside.parent / ".").stat().st_mode & 0o666)


_UNSEALED = "0" * hashlib.new(ALGORITHM).digest_size * 2
"""What stands for the digest of a file in that file while the digest is computed."""


def _seal(path: Path) -> None:
    with path.open("r+b") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
        # The library writes metadata in an order that changes from call to call.
        header = {"__metadata__": dict(sorted(header.pop("__metadata__").items())), **header}
        text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode().ljust(size)
        assert len(text) == size, "the header is the same in another order"
        file.seek(8)
        file.write(text)
        file.flush()
        file.seek(0)
        digest = hashlib.file_digest(file, ALGORITHM).hexdigest()
        file.seek(8 + text.index(_UNSEALED.encode()))
        file.write(digest.encode())


def _check_seal(path: Path) -> None:
    """Refuse a file that is not as it was sealed. One that never was is left to its reader."""
    with path.open("rb") as file:
        start = file.read(8)
        size = int.from_bytes(start, "little")
        if size > _LARGEST_HEADER:
            return
        header = file.read(size)
        marked = re.search(rb'"__metadata__":\{[^{}]*"%s":"([^"]*)"' % ALGORITHM.encode(), header)
        if marked is None:
            return
        found = hashlib.new(ALGORITHM, start)
        found.update(header[: marked.start(1)] + _UNSEALED.encode() + header[marked.end(1) :])
        buffer = memoryview(bytearray(1 << 20))
        while count := file.readinto(buffer):
            found.update(buffer[:count])
    if found.hexdigest().encode() != marked[1]:
        raise Damaged(f"{path} is damaged: it does not match its digest")


_LARGEST_HEADER = 100_000_000
"""Bytes of a header; safetensors reads no longer one."""


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors in a file, which is as it was written where it was sealed."""
    if path.exists() and not path.is_file():
        raise RunError(f"{path} is not a regular file")
    try:
        found = load_file(path)
        if compares():
            _check_seal(path)
        return found
    except FileNotFoundError:
        raise Damaged(f"{path.parent} is missing its {path.name}") from None
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror or error}") from None
    except (safetensors.SafetensorError, ValueError) as error:
        raise Damaged(f"{path} was cut short or is not safetensors ({error})") from None


@contextmanager
def write_errors(path: Path) -> Iterator[None]:
    """Raise what the disk refuses while `path` is written as a RunError of one line.

    An error that names another file, such as one that is read meanwhile, is left as it is.
    """
    try:
        yield
    except safetensors.SafetensorError as error:
        # The library has no kinds of error, only the system's words.
        if any(words in str(error) for words in ("No space left", "os error 28", "os error 112")):  # 112: Windows
            raise NotWritten(f"the disk is full: {path} was not written") from None
        if "os error" in str(error):
            raise NotWritten(f"cannot write {path}: {error}") from None
        raise
    except BrokenPipeError:
        raise
    except OSError as error:
        if not _is_of(error, path):
            raise
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise NotWritten(f"the disk is full: {path} was not written") from None
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise NotWritten(f"no permission to write {path}") from None
        raise NotWritten(f"cannot write {path}: {error.strerror or error}") from None


def _is_of(error: OSError, path: Path) -> bool:
    """Whether an error is of `path`: it names no file, or this one, one in it or above it, or what it is written as."""
    if error.filename is None or isinstance(error.filename, int):
        return True
    real, named = Path(os.path.realpath(path)), Path(os.path.realpath(os.fsdecode(error.filename)))
    if real.is_relative_to(named):
        return True
    aside = f".{real.name}."
    return any(
        one == real or (one.parent == real.parent and one.name.startswith(aside)) for one in (named, *named.parents)
    )


def sync(path: Path) -> None:
    """Have what was written on the disk; of a directory the names in it, where the system can do that."""
    folder = path.is_dir()
    try:
        # Windows syncs only what is open for writing, and opens no directory at all.
        descriptor = os.open(path, os.O_RDWR if not folder and os.access(path, os.W_OK) else os.O_RDONLY)
    except PermissionError:
        if folder:
            return
        raise
    try:
        os.fsync(descriptor)
    except OSError as error:
        if not folder or error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some file systems of a network
            raise
    finally:
        os.close(descriptor)


def run_names(directories: Sequence[Path]) -> list[str]:
    """A name for each run: its directory's own, or as many folders above it as tell it from the others."""
    whole = [directory.resolve() for directory in directories]
    for place, path in enumerate(whole):
        if path in whole[:place]:
            first = directories[whole.index(path)]
            raise ConfigError(f"'{first}' and '{directories[place]}' are the same run: name each run once")
    names = []
    for path in whole:
        others = [other for other in whole if other != path]
        count = 1
        while any(other.parts[-count:] == path.parts[-count:] for other in others):
            count += 1
        names.append("/".join(part.strip(os.sep) for part in path.parts[-count:]))
    return names
