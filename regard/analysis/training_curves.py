"""How trainings went, from their logs: charts of what was logged, the same in the characters of a terminal, or live."""

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from regard.config import JsonObject
from regard.errors import ConfigError, RunError
from regard.look.charts import STYLE, Chart, Series, label, plot
from regard.runs.log import NOTE, read_log

TITLES = {
    "loss": ("Loss", "loss"),
    "learning_rate": ("Learning rate", "rate"),
    "tokens_per_second": ("Throughput", "tokens per second"),
}
SCORES = {"bleu": "BLEU", "nll": "Negative log-likelihood", "f1": "F1"}
NOT_SCORES = {
    "kind",
    "step",
    "loss",
    "nll",
    "seconds",
    "cut",
    "learning_rate",
    "tokens_per_second",
    "epoch",
    "grad_norm",
}
"""What is logged beside the scores of a task."""

WIDE, TALL = 72, 12
"""Columns and rows of a chart in the terminal."""

LETTERS = "*o+x#@%&"


def curves(runs: Sequence[Path], values: Sequence[str] | None = None) -> list[Chart]:
    """A chart for each value: those named, or loss, the first score of each task, learning rate and throughput."""
    logs = {_name(run, runs): _records(run) for run in runs}
    known = sorted({name for records in logs.values() for one in records for name in one if _is_number(one[name])})
    if values is None:
        scores = dict.fromkeys(score for records in logs.values() if (score := _score(records)) is not None)
        values = [name for name in ("loss", *scores, "learning_rate", "tokens_per_second") if name in known]
    for value in values:
        if value not in known or value == "step":
            shown = ", ".join(name for name in known if name != "step")
            raise RunError(f"no log has the value '{value}'; there are {shown}")
    return [_chart(value, logs) for value in values]


def _name(run: Path, runs: Sequence[Path]) -> str:
    """Its last part, unless another has the same."""
    return run.name if [one.name for one in runs].count(run.name) == 1 and run.name else str(run)


def _records(run: Path) -> list[JsonObject]:
    path = run / "log.jsonl" if run.is_dir() else run
    if not path.exists():
        raise RunError(f"{path} does not exist: plot takes run directories, whose log.jsonl it reads")
    records = [one for one in read_log(path) if one.get("kind") != NOTE]
    if not records:
        raise RunError(f"{path} has no records yet: training logs every train.log_every updates")
    return records


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _score(records: Sequence[JsonObject]) -> str | None:
    """The first score that validation logs."""
    for record in records:
        if record.get("kind") == "validation":
            return next((name for name in record if name not in NOT_SCORES and _is_number(record[name])), None)
    return None


def _chart(value: str, logs: dict[str, list[JsonObject]]) -> Chart:
    series = []
    for style, (name, records) in enumerate(logs.items()):
        for kind in ("train", "validation"):
            points = [
                (one["step"], one[value])
                for one in records
                if one.get("kind") == kind and _is_number(one.get(value)) and _is_number(one.get("step"))
            ]
            if points:
                told = f"{name}, {kind}" if value in ("loss", "nll") else name
                series.append(Series(name=told, points=points, style=2 * style + (kind == "validation")))
    title, unit = TITLES.get(value, (SCORES.get(value, value.replace("_", " ")), value))
    return Chart(title=title, x="update", y=unit, series=series, marks=False)


def in_the_terminal(chart: Chart, wide: int = WIDE, tall: int = TALL) -> str:
    """The chart in characters: a letter for each line, the last of them on top where they meet."""
    points = [point for one in chart.series for point in one.points]
    xs, ys = [x for x, _ in points], [y for _, y in points]
    finite = [y for y in ys if abs(y) < float("inf")] or [0.0]
    low, high, left, right = min(finite), max(finite), min(xs), max(xs)
    cells = [[" "] * wide for _ in range(tall)]
    for index, one in enumerate(chart.series):
        for x, y in one.points:
            if not low <= y <= high:
                continue
            column = round((x - left) / ((right - left) or 1) * (wide - 1))
            row = round((high - y) / ((high - low) or 1) * (tall - 1))
            cells[row][column] = LETTERS[index % len(LETTERS)]
    edge = max(len(label(low)), len(label(high)))
    sides = [label(high), *[""] * (tall - 2), label(low)]
    lines = [f"{side:>{edge}} |{''.join(row).rstrip()}" for side, row in zip(sides, cells, strict=True)]
    across = f"{' ' * edge} +{'-' * wide}"
    ends = f"{' ' * edge}  {label(left)}{label(right):>{wide - len(label(left))}}"
    keys = [LETTERS[index % len(LETTERS)] for index in range(len(chart.series))]
    names = [
        f"  {key} {one.name}: {label(one.points[-1][1])} at the end"
        for key, one in zip(keys, chart.series, strict=True)
    ]
    left_out = len(ys) - len([y for y in ys if low <= y <= high])
    note = [f"  {left_out} values are not finite, and not plotted"] if left_out else []
    head = chart.title if chart.title.lower() == chart.y.lower() else f"{chart.title} ({chart.y})"
    return "\n".join([head, *lines, across, ends, *names, *note])


class LiveCurves:
    """Shows in a notebook how a training goes, while it goes: `regard.train(..., report=regard.LiveCurves())`.

    It is a `Report`: its curves are redrawn with every logged step and every validation, and stay when it ends. What is
    warned of stays below them.
    """

    def __init__(self, values: Sequence[str] = ("loss",)) -> None:
        try:
            from IPython.display import HTML, display
        except ImportError:
            raise ConfigError("LiveCurves is for notebooks and needs IPython: pip install 'regard[notebook]'") from None
        self.values, self.records, self.total = tuple(values), list[JsonObject](), 0
        self._said, self._html, self.warnings = "", HTML, list[str]()
        self._shown = display(HTML(""), display_id=True)

    def say(self, text: str) -> None:
        self._said = text
        self._show()

    def warn(self, text: str) -> None:
        self.warnings.append(text)
        self._show()

    def progress(self, what: str, pairs: int) -> None:
        self._said = f"{what}: {pairs:,}"
        self._show()

    def step(self, values: Mapping[str, Any], total: int) -> None:
        self.total = total
        self.records.append({"kind": "train", **values})
        self._show()

    def validation(self, values: Mapping[str, Any]) -> None:
        self.records.append({"kind": "validation", **values})
        self._show()

    def page(self) -> str:
        """The curves as HTML."""
        logs = {"run": self.records}
        known = {name for one in self.records for name in one if _is_number(one[name])}
        charts = [plot(_chart(value, logs)) for value in self.values if value in known]
        where = f"update {self.records[-1]['step']:,} of {self.total:,}" if self.records and self.total else self._said
        warned = "".join(f"<li>{escape(text)}</li>" for text in self.warnings)
        notes = f"<ul>{warned}</ul>" if warned else ""
        return f"<style>{STYLE}</style><p>{escape(where)}</p>{''.join(charts)}{notes}"

    def _show(self) -> None:
        if self._shown is not None:
            self._shown.update(self._html(self.page()))
