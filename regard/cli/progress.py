"""How the progress of long work is shown: a bar on a terminal, plain lines in a pipe."""

import io
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import IO, Any, cast

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

SECONDS = 5.0
"""How often work that has no steps to tell of says in a pipe that it goes on."""


class LastingErrors(io.TextIOBase):
    """Standard error, but that nothing ends because it takes no more: its disk is full, its terminal was closed, or
    whoever read it has gone. What is shown there is in the run's log too, or is known by the exit code."""

    @property
    def stream(self) -> Any:
        """Standard error itself, also while a bar stands in its place."""
        return getattr(sys.stderr, "rich_proxied_file", sys.stderr)

    def write(self, text: str, /) -> int:
        with suppress(OSError, ValueError):
            self.stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            self.stream.flush()

    def isatty(self) -> bool:
        return self.stream.isatty()

    def fileno(self) -> int:
        return self.stream.fileno()

    @property
    def encoding(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return getattr(self.stream, "encoding", None) or "utf-8"


class Counter:
    """Shows a count that grows: a bar where the console is a terminal, else now and then a line."""

    def __init__(self, console: Console, unit: str) -> None:
        self._console, self._unit = console, unit
        self._what, self._told = "", time.monotonic()
        self._begun = 0, self._told  # how many were done when it was first heard of, and when that was
        self._bar: Progress | None = None
        self._task = TaskID(0)

    def show(self, what: str, done: int, total: int | None = None) -> None:
        """`what` is being done, and so far with `done` of `total`."""
        if what != self._what:
            self.close()
            self._what, self._told = what, time.monotonic()
            self._begun = done, self._told
        if self._console.is_terminal:
            if self._bar is None:
                self._bar = _bar(self._console, TextColumn(self._unit))
                self._bar.start()
                self._task = self._bar.add_task(what, total=total, completed=done)
            self._bar.update(self._task, completed=done, total=total)
        elif time.monotonic() - self._told > SECONDS:
            self._told = time.monotonic()
            count = f"{done:,}" if total is None else f"{done:,} of {total:,}"
            left = "" if total is None else remaining(self._begun, done, total)
            print(f"{what}: {count} {self._unit}{left}", file=LastingErrors(), flush=True)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


class TrainingProgress:
    """Hears how training goes and shows it on standard error."""

    def __init__(self) -> None:
        self._console = Console(file=cast(IO[str], LastingErrors()), highlight=False)
        self._counter = Counter(self._console, "pairs")
        self._bar: Progress | None = None
        self._task = TaskID(0)
        self._last = ""
        self._number = 0
        self._begun: tuple[int, float] | None = None  # how many updates were there at the start, and when that was

    def __enter__(self) -> "TrainingProgress":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._counter.close()
        if self._bar is not None:
            self._bar.stop()
            self.say(self._last)

    def say(self, text: str) -> None:
        self._counter.close()
        self._console.print(text, markup=False, soft_wrap=True)

    def progress(self, what: str, pairs: int) -> None:
        self._stop_bar()
        self._counter.show(what, pairs)

    def counted(self, what: str, done: int, total: int) -> None:
        self._stop_bar()
        self._counter.show(what, done, total)

    def updated(self, number: int, total: int) -> None:
        """So many updates are made; first heard before the first of them, and of a resumed run before the next."""
        if self._begun is None or number < self._number:  # a comparison trains one run after another
            self._stop_bar()
            self._begun = number, time.monotonic()
        self._number = number
        if not self._console.is_terminal:
            return
        self._counter.close()
        if self._bar is None:
            self._bar = _bar(self._console, TextColumn("{task.fields[line]}"))
            self._bar.start()
            # What was done before this process does not tell how long the rest will take.
            self._task = self._bar.add_task("training", total=total, completed=number, line="")
        self._bar.update(self._task, completed=number)

    def step(self, values: Mapping[str, Any], total: int) -> None:
        line = (
            f"loss {values['loss']:.4f}  gradient {values['grad_norm']:.2f}  "
            f"rate {values['learning_rate']:.2e}  {values['tokens_per_second']:,.0f} tokens/s"
        )
        self._last = f"step {values['step']}/{total}  {line}  {values['seconds']:.0f} s"
        if not self._console.is_terminal:
            print(f"{self._last}{self._remaining(values['step'], total)}", file=LastingErrors(), flush=True)
            return
        self.updated(values["step"], total)
        assert self._bar is not None
        self._bar.update(self._task, line=line)

    def _remaining(self, step: int, total: int) -> str:
        """How long the rest will take if it goes on as it went since this process began, validation and all."""
        return "" if self._begun is None else remaining(self._begun, step, total)

    def _stop_bar(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def validation(self, values: Mapping[str, Any]) -> None:
        text = f"step {values['step']}  validation loss {values.get('nll', values['loss']):.4f}"
        if "bleu" in values:
            text += f"  BLEU {values['bleu']:.1f} (greedy)"
        if "rougeL" in values:
            text += f"  ROUGE-L {values['rougeL']:.1f} (greedy)"
        if "word_error_rate" in values:
            text += f"  word errors {100 * values['word_error_rate']:.1f} % (greedy)"
        if "f1" in values:
            text += f"  F1 {values['f1']:.1f}"
        if "exact_match" in values:
            text += f"  exact match {100 * values['exact_match']:.1f} %"
        for name in ("accuracy", "word_accuracy", "next_accuracy"):
            if name in values:
                text += f"  {name.replace('_', ' ')} {100 * values[name]:.1f} %"
        self.say(text)


def remaining(begun: tuple[int, float], done: int, total: int) -> str:
    """How long the rest will take if it goes on as it went since `begun`: a count, and when it was reached."""
    first, since = begun
    if done <= first or done >= total:
        return ""
    seconds = round((time.monotonic() - since) / (done - first) * (total - done))
    return f"  ETA {seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"


@contextmanager
def counting(what: str, unit: str = "sentences") -> Iterator[Callable[[int, int | None], None]]:
    """A callback taking (done, total), which shows them on standard error."""
    counter = Counter(Console(file=cast(IO[str], LastingErrors())), unit)
    try:
        yield lambda done, total: counter.show(what, done, total)
    finally:
        counter.close()


def _bar(console: Console, *columns: ProgressColumn) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        *columns,
        console=console,
        transient=True,
    )
