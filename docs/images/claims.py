"""The lectures' claims as measured: from `docs/results/claims.json`, the figures of long runs, to charts and tables.

python docs/images/claims.py            plots claims-*.svg and writes the tables of docs/results/ anew

The commands that gave the figures stand beside the tables. A figure is in the record once.
"""

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from regard.look.charts import Chart, Series, label, plot

HERE = Path(__file__).parent
RECORD = HERE.parent / "results/claims.json"
PAGES = [HERE.parent / "results" / name for name in ("comparison.md", "models.md")]
WITHOUT = {
    **{"residual": "without residual sums", "norm": "without norms", "scale": "without scaling"},
    **{"heads": "one head as wide as all", "feed-forward": "without feed-forward", "positions": "without positions"},
}
CELLS = {
    **{"rnn": "vanilla RNN", "lstm": "LSTM", "gru-before": "GRU, reset before", "gru-after": "GRU, reset after"},
    **{"mut1": "MUT1", "mut2": "MUT2", "mut3": "MUT3", "gpt": "GPT", "rwkv": "RWKV"},
}
IMAGE_MODELS = {"vit": "Vision Transformer", "convnet": "convolutional network"}
MOST = 3000
"""Updates of a reader that has not learned."""
Record = dict[str, Any]


def far_charts(record: Record) -> Iterator[tuple[str, Chart]]:
    """Recall and count by length, and how often a reader is right as its training goes on."""
    for question in ("recall", "count"):
        best = _best(record["long_range"], question)
        lengths = [length for length, _ in best[0]["accuracy"]]
        yield (
            f"claims-{question}",
            Chart(
                title=f"{question.capitalize()} over a distance: right answers",
                x="tokens",
                y="share right",
                log_x=True,
                low=0.0,
                high=1.0,
                series=[Series(name=_way(one), points=_points(one["accuracy"])) for one in best],
                ticks=[(length, label(length)) for length in lengths],
            ),
        )
        yield (
            f"claims-{question}-learning",
            Chart(
                title=f"{question.capitalize()}: right answers at all lengths, as training goes on",
                x="updates",
                y="share right",
                low=0.0,
                high=1.0,
                marks=False,
                series=[Series(name=_way(one), points=_points(one["curve"])) for one in best],
            ),
        )


def ablation_chart(record: Record) -> tuple[str, Chart]:
    lines = [
        Series(name=_said(run), points=[(step, match) for step, _, match in run["validations"]])
        for run in _ablated(record["ablation"])
        if not run["diverged"]
    ]
    return "claims-ablation", Chart(
        title="Six layers on each side: sentences translated exactly",
        x="updates",
        y="share of sentences",
        low=0.0,
        high=1.0,
        series=lines,
    )


def growth_chart(record: Record) -> tuple[str, Chart]:
    lines = [Series(name=way["name"], points=_points(way["milliseconds"])) for way in record["growth"]]
    return "claims-growth", Chart(
        title="Time to read one sequence on a GPU, forward and backward",
        x="tokens",
        y="milliseconds",
        log_x=True,
        log_y=True,
        series=lines,
        ticks=[(length, label(length)) for length, _ in record["growth"][0]["milliseconds"][::2]],
    )


def cells_chart(record: Record) -> tuple[str, Chart]:
    lines = [Series(name=CELLS[run["model"]], points=_points(run["validations"])) for run in _by_loss(record["cells"])]
    return "claims-cells", Chart(
        title="Language models of characters, of one size",
        x="updates",
        y="nats per character",
        series=lines,
    )


def charts(record: Record) -> dict[str, Chart]:
    """Every chart by the name of its file."""
    return dict(
        [
            *far_charts(record),
            ablation_chart(record),
            growth_chart(record),
            cells_chart(record),
        ]
    )


def tables(record: Record) -> dict[str, str]:
    """Every table of the pages, by its name there."""
    return {
        "long-range": _far_table(record["long_range"]),
        "ablation": _ablation_table(record["ablation"]),
        "ablation-six": _ablation_table(record["ablation_six"]),
        "ablation-four": _ablation_table(record["ablation_four"]),
        "layers": _layers_table(record["growth"]),
        "cells": _cells_table(record["cells"]),
        "images": _images_table(record["images"]),
    }


def _far_table(runs: Sequence[Record]) -> str:
    """The best rate of each way; the others that were tried stand beside it, with the updates each of them had."""
    lengths = [length for length, _ in runs[0]["accuracy"]]
    rows = []
    for question in ("recall", "count"):
        for one in _best(runs, question):
            shares = [f"{100 * share:.1f}" for _, share in one["accuracy"]]
            others = [f"{run['rate']:g} ({_outcome(run)})" for run in _rivals(runs, one) if run is not one]
            about = [question, _way(one), one["layers"], f"{one['parameters']:,}", f"{one['rate']:g}"]
            rows.append([*about, f"{one['updates']:,}", *shares, ", ".join(others)])
    names = ["question", "way", "layers", "parameters", "rate", "updates", *(f"{one:,}" for one in lengths)]
    return _table([*names, "other rates"], rows)


def _outcome(run: Record) -> str:
    """After how many updates a reader had learned; else how often it was right in the end."""
    learned = run["updates"] < MOST
    return f"{run['updates']:,}" if learned else f"{100 * _mean([share for _, share in run['accuracy']]):.1f} %"


def _way(run: Record) -> str:
    """With what makes readers of one way differ."""
    if run.get("start") == "identity":
        return f"{run['way']}, identity at first"
    return f"{run['way']}, dilated" if run.get("dilation", 1) > 1 else run["way"]


def _rivals(runs: Sequence[Record], one: Record) -> list[Record]:
    """The runs of the same question and way at every rate, the lowest first."""
    same = [run for run in runs if run["question"] == one["question"] and _way(run) == _way(one)]
    return sorted(same, key=lambda run: run["rate"])


def _ablation_table(runs: Sequence[Record]) -> str:
    steps = sorted({step for run in runs for step, _, _ in run["validations"]})
    names = ["", "parameters"]
    for step in steps:
        names += [f"validation loss, {step:,} updates", "exact match, %"]
    rows = []
    for run in _ablated(runs):
        row = [_said(run), f"{run['parameters']:,}"]
        for _, loss, match in run["validations"]:
            row += [f"{loss:.4f}", f"{100 * match:.1f}"]
        if run["diverged"]:
            row += ["diverged", ""] * len(steps)
        rows.append(row)
    return _table(names, rows)


def _ablated(runs: Sequence[Record]) -> list[Record]:
    return sorted(runs, key=lambda run: (None, *WITHOUT).index(run["without"]))


def _said(run: Record) -> str:
    return WITHOUT[run["without"]] if run["without"] else "whole"


def _layers_table(ways: Sequence[Record]) -> str:
    lengths = [one["length"] for one in ways[0]["layer"]]
    names = ["way"]
    for length in lengths:
        names += [f"million operations at {length:,}", "sequential steps", "longest path", "ms on a GPU"]
    rows = []
    for way in ways:
        times, row = dict(way["milliseconds"]), [way["name"]]
        for one in way["layer"]:
            row += [f"{one['flops'] / 1e6:,.1f}", f"{one['sequential_steps']:,}", f"{one['longest_path']:,}"]
            row.append(f"{times[one['length']]:.1f}")
        rows.append(row)
    return _table(names, rows)


def _cells_table(runs: Sequence[Record]) -> str:
    steps = [step for step, _ in runs[0]["validations"]]
    names = ["model", "layers", "width", "parameters", "rate"]
    for step in steps:
        names += [f"nats per character, {step:,} updates", "perplexity"]
    rows = []
    for run in _by_loss(runs):
        row = [CELLS[run["model"]], run["layers"], run["width"], f"{run['parameters']:,}", f"{run['rate']:g}"]
        for _, loss in run["validations"]:
            row += [f"{loss:.3f}", f"{math.exp(loss):.2f}"]
        rows.append(row)
    return _table(names, rows)


def _images_table(runs: Sequence[Record]) -> str:
    """A row for each set of images, with both models side by side."""
    rows = []
    for question, count in dict.fromkeys((run["question"], run["images"]) for run in runs):
        both = [run for run in runs if (run["question"], run["images"]) == (question, count)]
        row: list[object] = [question, f"{count:,}", f"{both[0]['updates']:,}", f"{both[0]['tested']:,}"]
        for kind in IMAGE_MODELS:
            run = next(run for run in both if run["model"] == kind)
            low, high = run["interval"]
            row.append(f"{100 * run['accuracy']:.1f} % [{100 * low:.1f}, {100 * high:.1f}], {run['parameters']:,}")
        rows.append(row)
    names = [f"{name}: right, parameters" for name in IMAGE_MODELS.values()]
    return _table(["digits", "images to train on", "updates", "tested", *names], rows)


def _by_loss(runs: Sequence[Record]) -> list[Record]:
    return sorted(runs, key=lambda run: run["validations"][-1][1])


def _best(runs: Sequence[Record], question: str) -> list[Record]:
    """Of each way the run at the rate that was right most often while it was trained; the best way first."""
    found: dict[str, Record] = {}
    for run in runs:
        if run["question"] == question:
            known = found.get(_way(run))
            found[_way(run)] = run if known is None or _rank(run) < _rank(known) else known
    return sorted(found.values(), key=lambda run: (-_mean([share for _, share in run["accuracy"]]), run["updates"]))


def _rank(run: Record) -> tuple[float, int]:
    """How good a rate was on the sequences tried along the way: right most often in the end, then soonest."""
    return -run["curve"][-1][1], run["updates"]


def _points(rows: Sequence[Sequence[float]]) -> list[tuple[float, float]]:
    """The first two numbers of each row; the third of a curve is the loss."""
    return [(row[0], row[1]) for row in rows]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _table(names: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = [names, ["---"] * len(names), *rows]
    return "\n".join(f"| {' | '.join(str(cell) for cell in line)} |" for line in lines)


def made() -> dict[Path, str]:
    """Every file that the record gives, with what it should hold."""
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    pages = {path: path.read_text(encoding="utf-8") for path in PAGES}
    for name, table in tables(record).items():
        begin = f"<!-- claims: {name} -->\n"
        holders = [path for path, text in pages.items() if begin in text]
        assert len(holders) == 1, f"{len(holders)} pages of {len(PAGES)} have a place for the table {name}"
        before, _, rest = pages[holders[0]].partition(begin)
        pages[holders[0]] = f"{before}{begin}\n{table}\n\n<!-- end -->{rest.partition('<!-- end -->')[2]}"
    drawn = {HERE / f"{name}.svg": plot(chart, alone=True) for name, chart in charts(record).items()}
    return {**pages, **drawn}


def stale() -> list[str]:
    """Files that are not as the record is."""
    return [path.name for path, text in made().items() if not path.exists() or path.read_text(encoding="utf-8") != text]


if __name__ == "__main__":
    for path, text in made().items():
        path.write_text(text, encoding="utf-8")
        print(path)
