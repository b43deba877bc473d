"""An output that is written bit by bit, and a journal beside it: after a kill it is gone on with from the last note.

What comes after the last note is cut off. An output that has been changed since, or that was begun by another command
or on other data, is begun anew, and that is said.
"""

import dataclasses
import json
import os
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from regard.config import JsonObject
from regard.errors import ConfigError, DataError, NotWritten
from regard.runs.files import alone_with, sync, write_errors

NOTE_SECONDS = 1.0
"""Seconds between two notes in the journal: a kill loses so much, and the chunks under way."""

Tell = Callable[[str], object]
"""Is told one line."""


@dataclasses.dataclass
class Tally:
    """How many inputs were answered, how many of their outputs were cut, and what else is to be said in the end."""

    inputs: int = 0
    cut: int = 0
    total: int = 0
    shortened: int = 0
    refused: int = 0
    unknown: dict[str, None] = dataclasses.field(default_factory=dict)

    def add(self, more: "Tally") -> None:
        self.inputs, self.cut = self.inputs + more.inputs, self.cut + more.cut
        self.total, self.shortened = self.total + more.total, self.shortened + more.shortened
        self.refused += more.refused
        self.unknown.update(more.unknown)

    def to_mapping(self) -> JsonObject:
        return {**vars(self), "unknown": list(self.unknown)}

    @classmethod
    def of(cls, mapping: Mapping[str, Any]) -> "Tally":
        return cls(**{**mapping, "unknown": dict.fromkeys(mapping["unknown"])})


class Journal:
    """An output that is being written, and what is known of it: after a kill, as of the last note."""

    def __init__(self, out: Path, partial: Path, path: Path) -> None:
        self.out, self.partial, self.path = out, partial, path
        self.forget()

    def forget(self) -> None:
        self.done, self._since, self._bytes, self._crc = Tally(), Tally(), 0, 0
        self._file: BinaryIO | None = None
        self._log: BinaryIO | None = None
        self.notes: str | None = None
        """What is said in the end, once all is done."""
        self.noted, self._when = 0, time.monotonic()

    def begin(self, identity: JsonObject, out: Path) -> str | None:
        """Go on with what is there, or start anew; says why anew, where something was there."""
        before = self.path.stat().st_size > 0
        why = self._found(identity)
        if self.notes is not None and not self.partial.exists() and out.exists():
            return None  # the kill came between the output's name and the end
        if why is not None:
            self.forget()
            self.partial.unlink(missing_ok=True)
            # Made here, and by nobody else: a link of this name in a folder of many could lead to any file.
            os.close(os.open(self.partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
            self.path.write_text(json.dumps({"job": identity}) + "\n", encoding="utf-8", newline="\n")
        self._file = self.partial.open("ab")
        self._log = self.path.open("ab")
        return why if before else None

    def _found(self, identity: JsonObject) -> str | None:
        """Take over what the journal says. Returns why that cannot be."""
        whole, at = [], 0
        for line in self.path.read_bytes().splitlines(keepends=True):
            try:
                whole.append(json.loads(line))
            except ValueError:  # the kill came while this was written
                break
            at += len(line)
        before = whole[0]["job"] if whole else {}
        if before != identity:
            names = sorted(name for name in {*before, *identity} if before.get(name) != identity.get(name))
            return f"it was begun by another command, or on other data ({', '.join(names)} differ)"
        for note in whole[1:]:
            self.done.add(Tally.of(note["done"]))
            self._bytes, self._crc, self.notes = note["bytes"], note["crc"], note.get("notes")
        self.noted = self.done.inputs
        if self.partial.is_symlink() or not self.partial.is_file() or not self._unchanged():
            return "what had been written has been changed since"
        os.truncate(self.path, at)
        os.truncate(self.partial, self._bytes)
        return None

    def _unchanged(self) -> bool:
        """Whether the output holds what the last note says; what comes after that is cut off."""
        found, left = 0, self._bytes
        with self.partial.open("rb") as file:
            while left and (some := file.read(min(left, 1 << 20))):
                found, left = zlib.crc32(some, found), left - len(some)
        return not left and found == self._crc

    def write(self, text: str, more: Tally) -> None:
        """Add results; they are noted now or with later ones."""
        assert self._file is not None, "what is finished is not written to"
        data = text.encode()
        with write_errors(self.out):
            self._file.write(data)
        self._bytes, self._crc = self._bytes + len(data), zlib.crc32(data, self._crc)
        more.unknown = {word: None for word in more.unknown if word not in self.done.unknown}
        self.done.add(more)
        self._since.add(more)
        if time.monotonic() - self._when >= NOTE_SECONDS:
            self.note()

    def note(self) -> None:
        """Say in the journal what is written by now, once it is on the disk."""
        if self._file is None or self._log is None:
            return
        note: JsonObject = {"done": self._since.to_mapping(), "bytes": self._bytes, "crc": self._crc}
        with write_errors(self.out):
            self._file.flush()
            os.fsync(self._file.fileno())
            self._log.write(json.dumps(note | ({} if self.notes is None else {"notes": self.notes})).encode() + b"\n")
            self._log.flush()
            os.fsync(self._log.fileno())
        self._since, self.noted, self._when = Tally(), self.done.inputs, time.monotonic()

    def close(self) -> None:
        for file in (self._file, self._log):
            with suppress(OSError):  # a full disk, of which a note has told already
                if file is not None:
                    file.close()


@contextmanager
def journaled(out: Path, identity: JsonObject, unit: str, tell: Tell) -> Iterator[Journal]:
    """A journal of `out`, which has its name when all is written.

    What was begun before is gone on with. After an error what is written stays for the same command to go on with,
    unless that is nothing, or the command or its data are what is wrong, and must change.
    """
    real = Path(os.path.realpath(out))
    partial_file, path = real.with_name(f".{real.name}.partial"), real.with_name(f".{real.name}.journal")
    # What is read or computed meanwhile is not under `write_errors`: its errors are not of the output.
    with alone_with(path, out):
        journal = Journal(out, partial_file, path)
        try:
            with write_errors(out):
                why = journal.begin(identity, real)
            if why is not None:
                tell(f"{out} is begun anew: {why}")
            yield journal
            journal.note()
        except (Exception, KeyboardInterrupt) as error:
            with suppress(OSError, NotWritten):  # the disk is full, perhaps: then the note before counts
                journal.note()
            if journal.noted and not isinstance(error, ConfigError | DataError):
                tell(f"{journal.noted:,} {unit} are done: the same command goes on from there")
            else:
                partial_file.unlink(missing_ok=True)
                path.unlink(missing_ok=True)
            raise
        finally:
            journal.close()
        with write_errors(out):
            if partial_file.exists():
                os.replace(partial_file, real)
                sync(real.parent)
            path.unlink()
