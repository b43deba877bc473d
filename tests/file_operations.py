"""Kills a training at a file operation that is counted, not timed."""

import os
import sys
from contextlib import contextmanager

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


class Killed(BaseException):
    """What stands for SIGKILL in one process: from here on no file operation is done any more, not even in cleaning."""


class Operations:
    """Counts what is done to files under a directory; the one numbered `kill_at` and all after it are not done."""

    def __init__(self, directory, kill_at, counted):
        self.directory, self.kill_at, self.counted, self.count = f"{directory}{os.sep}", kill_at, counted, 0

    def hear(self, event, arguments):
        if not self._changes(event, arguments):
            return
        self.count += self.counted in ("", event)
        if self.count >= self.kill_at:
            raise Killed(f"{event} {arguments[0]}")

    def _changes(self, event, arguments):
        if event == "open":
            path, _, flags = arguments
            return isinstance(flags, int) and bool(flags & WRITING) and self._inside(path)
        if event == "os.rename":
            return self._inside(arguments[1])
        if event in ("os.remove", "os.rmdir"):  # removing a tree names its files by their directory's descriptor
            return arguments[1] != -1 or self._inside(arguments[0])
        return event in ("os.mkdir", "os.chmod") and self._inside(arguments[0])

    def _inside(self, path):
        return not isinstance(path, int) and os.fsdecode(path).startswith(self.directory)


class Failing(Operations):
    """From a counted change on, whatever takes room on the disk, new files and folders, fails with this error."""

    def __init__(self, directory, first, number):
        super().__init__(directory, first, "")
        self.number, self.failed = number, []

    def hear(self, event, arguments):
        if event in ("open", "os.mkdir") and self._changes(event, arguments):
            self.count += 1
            if self.count >= self.kill_at:
                self.failed.append(arguments[0])
                raise OSError(self.number, os.strerror(self.number), arguments[0])


_listening: list[Operations] = []


def _hook(event, arguments):
    for one in _listening:
        one.hear(event, arguments)


_hooked: list[bool] = []


def _listen(one):
    if not _hooked:
        sys.addaudithook(_hook)  # for good: there is no way to take it away
        _hooked.append(True)
    _listening.append(one)


@contextmanager
def failing(directory, first, number):
    """Nothing new can be written under `directory` from the change numbered `first` on. Gives what failed."""
    one = Failing(directory, first, number)
    _listen(one)
    try:
        yield one.failed
    finally:
        _listening.remove(one)


@contextmanager
def killed(directory, kill_at, counted=""):
    """Kills at the change to files under `directory` that is numbered `kill_at`, by counting those of one kind or all.

    Gives a list that says afterwards whether there were as many.
    """
    one, found = Operations(directory, kill_at, counted), []
    _listen(one)
    try:
        yield found
    except Killed as kill:
        found.append(str(kill))
    finally:
        _listening.remove(one)
