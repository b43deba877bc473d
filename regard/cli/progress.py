"""How long work shows itself: a bar on a terminal, plain lines in a pipe."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn


class TrainingProgress:
    """Hears how training goes and shows it on standard error."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._bar: Progress | None = None
        self._task: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def say(self, text: str) -> None:
        self._console.print(text, markup=False)

    def step(self, values: Mapping[str, Any], total: int) -> None:
        line = (
            f"loss {values['loss']:.4f}  gradient {values['grad_norm']:.2f}  "
            f"rate {values['learning_rate']:.2e}  {values['tokens_per_second']:,.0f} tokens/s"
        )
        if not self._console.is_terminal:
            print(f"step {values['step']}/{total}  {line}  {values['seconds']:.0f} s", file=sys.stderr, flush=True)
            return
        if self._bar is None:
            self._bar = _bar(self._console, TextColumn("{task.fields[line]}"))
            self._bar.start()
            self._task = self._bar.add_task("training", total=total, line="")
        self._bar.update(self._task, completed=values["step"], line=line)

    def validation(self, values: Mapping[str, Any]) -> None:
        text = f"step {values['step']}  validation loss {values['nll']:.4f}"
        if "bleu" in values:
            text += f"  BLEU {values['bleu']:.1f} (greedy)  exact match {100 * values['exact_match']:.1f} %"
        self.say(text)


@contextmanager
def counting(label: str) -> Iterator[Callable[[int, int], None]]:
    """A callback taking (done, total); drawn as a bar on a terminal, silent in a pipe."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda done, total: None
        return
    with _bar(console) as bar:
        task = bar.add_task(label, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _bar(console: Console, *columns: Any) -> Progress:
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
