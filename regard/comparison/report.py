"""The report of a comparison as one page, and its charts one by one."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from regard.look.charts import Chart, Series, label, plot
from regard.look.page import figure, heading, paragraph, percent, static_page, table

Record = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A heading with what stands below it: text, charts by name, then tables and more text."""

    heading: str
    text: str = ""
    charts: Mapping[str, Chart] = field(default_factory=dict)
    below: Sequence[str] = ()

    def html(self) -> list[str]:
        above = [heading(self.heading), *([paragraph(self.text)] if self.text else [])]
        return [*above, *(figure(plot(chart)) for chart in self.charts.values()), *self.below]


def comparison_page(report: Record) -> str:
    """A self-contained page: tables and charts, no script, nothing fetched."""
    return static_page("Comparison", [*_overview(report), *(part for one in _sections(report) for part in one.html())])


def comparison_charts(report: Record) -> dict[str, Chart]:
    """Every chart that the report has figures for, by name."""
    return {name: chart for section in _sections(report) for name, chart in section.charts.items()}


def _sections(report: Record) -> list[Section]:
    made = (_lengths, _curves, _words, _ablation, _growth, _long_range)
    return [section for make in made if (section := make(report)) is not None]


def _overview(report: Record) -> list[str]:
    machine = report["machine"]
    said = [
        f"Budget: {report['budget']}.",
        "Widths are chosen so that all have about as many parameters." if report["equal"] else "",
        f"Measured with torch {machine['torch']}, {machine['threads']} threads, on {machine['processor']}.",
    ]
    aligned = any("alignment_error_rate" in run.get("test", {}) for run in report["runs"])
    columns: list[tuple[str, Callable[[Record], str]]] = [
        ("configuration", lambda run: run["name"]),
        ("parameters", lambda run: f"{run['parameters']:,}"),
        ("updates", lambda run: f"{run['updates']:,}"),
        ("seconds", lambda run: f"{run['seconds']:,.0f}"),
        ("FLOPs", lambda run: f"{run['flops']:.2e}"),
    ]
    if named := list(dict.fromkeys(name for run in report["runs"] for name in run.get("headline") or ())):
        columns += [(name, lambda run, name=name: (run.get("headline") or {}).get(name, "-")) for name in named]
    elif any("exact_match" in run.get("test", {}) for run in report["runs"]):
        columns += [
            ("exact match", lambda run: percent(_of(run, "exact_match"))),
            ("BLEU", lambda run: _number(_of(run, "bleu"), 1)),
            ("under 12 words", lambda run: percent(_of(run, "short", "exact_match"))),
            ("30 words and more", lambda run: percent(_of(run, "long", "exact_match"))),
        ]
    else:
        columns.append(("perplexity", lambda run: _number(_of(run, "perplexity"), 2)))
    if aligned:
        columns.append(("alignment error rate", lambda run: _number(_of(run, "alignment_error_rate"), 3)))
    rows = [[show(run) for _, show in columns] for run in report["runs"]]
    parts = [paragraph(" ".join(filter(None, said))), table([name for name, _ in columns], rows)]
    parts += [paragraph(f"{run['name']}: {run['diverged']}") for run in report["runs"] if "diverged" in run]
    signatures = sorted(
        {run["test"]["bleu_signature"] for run in report["runs"] if "bleu_signature" in run.get("test", {})}
    )
    if signatures:
        sentences = max(run["test"]["sentences"] for run in report["runs"] if run.get("test"))
        parts.append(
            paragraph(f"{sentences:,} test sentences, decoded greedily. BLEU: {'; '.join(signatures)}.", muted=True)
        )
    return parts


def _lengths(report: Record) -> Section | None:
    runs = [run for run in report["runs"] if run.get("test")]
    if not any(run["test"].get("by_length") for run in runs):
        return None
    bands = runs[0]["test"]["by_length"]
    used = [index for index, band in enumerate(bands) if band["count"]]
    names = [_band(bands[index]) for index in used]
    lines, rows = [], []
    for run in runs:
        shares = [run["test"]["by_length"][index]["exact_match"] for index in used]
        points = [(float(place), share) for place, share in enumerate(shares) if share is not None]
        lines.append(Series(name=run["name"], points=points))
        rows.append([run["name"], *map(percent, shares)])
    chart = Chart(
        title="Exact match by sentence length",
        x="words of the source",
        y="exact match",
        series=lines,
        low=0.0,
        high=1.0,
        ticks=[(float(place), name) for place, name in enumerate(names)],
    )
    counted = [f"{name} ({bands[index]['count']})" for name, index in zip(names, used, strict=True)]
    return Section(
        heading="Score by sentence length",
        text="Without attention the whole source has to pass through one vector, and what does not fit is lost: the "
        "longer the sentence, the more. With attention every step looks at the source again.",
        charts={"by-length": chart},
        below=[table(["configuration", *counted], rows)],
    )


def _curves(report: Record) -> Section | None:
    trained = report["runs"] if report["runs"][0].get("depth") is None else []
    counted = next((run["loss_unit"] for run in trained if "loss_unit" in run), "nats")
    loss = f"loss ({counted})" if counted else "loss"
    charts: dict[str, Chart] = {}
    for name, unit in (("step", "updates"), ("seconds", "seconds of training"), ("flops", "FLOPs of training")):
        for key, kind, what, y, high in (
            ("exact_match", "validations", "exact match", "exact match", 1.0),
            ("nll", "validations", f"validation {loss}", f"validation {loss}", None),
            ("loss", "curve", "training loss", loss, None),
        ):
            lines = [
                Series(name=run["name"], points=[(one[name], one[key]) for one in run[kind] if key in one])
                for run in trained
            ]
            if any(line.points for line in lines):
                charts[f"{key.replace('_', '-')}-by-{name}"] = Chart(
                    title=f"{what} against {unit}",
                    x=unit,
                    y=y,
                    series=lines,
                    log_x=name == "flops" and key != "loss",
                    low=0.0,
                    high=high,
                    marks=key != "loss",
                )
    return Section(heading="Learning curves", charts=charts) if charts else None


def _words(report: Record) -> Section | None:
    runs = [run for run in report["runs"] if "words" in run.get("test", {})]
    if not runs:
        return None
    rows = [
        [
            run["name"],
            *(percent(run["test"]["words"][key], 2) for key in ("repeated", "omitted", "over_translated")),
            _number(_of(run, "alignment_error_rate"), 3),
        ]
        for run in runs
    ]
    names = ("configuration", "repeated", "omitted", "over-translated", "alignment error rate")
    return Section(
        heading="Words said twice, left out or said too often",
        text="Counted with the gold alignment of the bundled corpus. Repeated: words too many that are part of a "
        "phrase said twice in a row, of all words said. Omitted: source words of whose translation nothing is there. "
        "Over-translated: source words of whose translation some is said once more than it should be. Both of all "
        "source words.",
        below=[
            table(names, rows),
            paragraph(
                "The alignment error rate compares, at the step that predicts a word, the source word looked at most "
                "with the one it translates: 0 is perfect. A model can be right with a high one: an encoder that reads "
                "both ways puts what a word says into its neighbours too, and looking there serves as well. So a low "
                "rate shows that attention aligns; a high one does not show that translation fails."
            ),
        ],
    )


def _ablation(report: Record) -> Section | None:
    runs = [run for run in report["runs"] if run.get("depth") is not None]
    if not runs:
        return None

    def chart(title: str, y: str, value: Callable[[Record], float | None], high: float | None = None) -> Chart:
        lines = []
        for kind in dict.fromkeys(run["without"] for run in runs):
            points = [(run["depth"], value(run)) for run in runs if run["without"] == kind]
            shown = [(depth, share) for depth, share in points if share is not None]
            lines.append(Series(name=f"without {kind}" if kind else "whole", points=shown))
        depths = [(depth, str(depth)) for depth in sorted({run["depth"] for run in runs})]
        return Chart(title=title, x="layers on each side", y=y, series=lines, ticks=depths, low=0.0, high=high)

    def last_loss(run: Record) -> float | None:
        return run["validations"][-1]["nll"] if run["validations"] else None

    return Section(
        heading="Going without",
        text="The same configuration at several depths, whole and without each of: the residual around each sublayer; "
        "norms; the division of scores by the root of the head's width (scale); several heads, one as wide as all in "
        "their place; the feed-forward layer, one neuron in its place; positions. What was asked for is shown.",
        charts={
            "ablation": chart("Last validation loss by depth", "validation loss (nats)", last_loss),
            "ablation-match": chart(
                "Exact match by depth", "exact match", lambda run: _of(run, "exact_match"), high=1.0
            ),
        },
    )


def _growth(report: Record) -> Section | None:
    grown = report.get("growth")
    if not grown:
        return None
    ticks = [(point["length"], str(point["length"])) for point in grown["ways"][0]["points"][::2]]

    def chart(title: str, y: str, key: str, scale: float) -> Chart:
        lines = [
            Series(name=way["name"], points=[(one["length"], one[key] * scale) for one in way["points"]])
            for way in grown["ways"]
        ]
        return Chart(title=title, x="tokens", y=y, series=lines, log_x=True, log_y=True, ticks=ticks)

    rows = [
        (
            way["name"],
            f"{way['parameters']:,}",
            "n" if way["steps_in_a_row"] == "length" else str(way["steps_in_a_row"]),
            "all" if way["receptive_field"] is None else f"{way['receptive_field']} tokens",
            *(f"{1e3 * point['seconds']:,.1f}" for point in way["points"][-1:]),
            *(f"{point['bytes'] / 1e6:,.1f}" for point in way["points"][-1:]),
        )
        for way in grown["ways"]
    ]
    last = grown["ways"][0]["points"][-1]["length"]
    names = ("way", "parameters", "steps in a row", "sees", f"ms at {last:,}", f"MB at {last:,}")
    below = [table(names, rows)]
    if "layer" in grown["ways"][0]:  # reports of older versions have none
        below.append(_layer_costs(grown["ways"]))
    return Section(
        heading="Time and memory as a sequence grows",
        text=f"Stacks of {grown['layers']} layers, {grown['width']} wide, one sequence, {grown['threads']} threads. "
        f"A recurrence takes one step after the other; a convolution of {grown['kernel']} positions sees "
        f"{grown['kernel'] - 1} more with each layer; attention takes all at once and compares each with each. "
        "With the fused kernel its memory grows as n, with its weights formed as n squared.",
        charts={
            "growth-time": chart("Time to read one sequence, forward and backward", "milliseconds", "seconds", 1e3),
            "growth-memory": chart("Memory kept for the backward pass", "megabytes", "bytes", 1e-6),
        },
        below=below,
    )


def _layer_costs(ways: Sequence[Record]) -> str:
    """Work, sequential steps and longest path of one layer, at each length where they were counted."""
    names = ["one layer"]
    for one in ways[0]["layer"]:
        at = f"at {one['length']:,}"
        names += [f"million operations {at}", f"sequential steps {at}", f"longest path {at}"]
    rows = [
        (
            way["name"],
            *(
                cell
                for one in way["layer"]
                for cell in (f"{one['flops'] / 1e6:,.1f}", f"{one['sequential_steps']:,}", f"{one['longest_path']:,}")
            ),
        )
        for way in ways
    ]
    return table(names, rows)


def _long_range(report: Record) -> Section | None:
    far = report.get("long_range")
    if not far:
        return None
    charts = {}
    for question in dict.fromkeys(one["question"] for one in far["results"]):
        found = [one for one in far["results"] if one["question"] == question]
        charts[f"far-{question}"] = Chart(
            title=f"{question.capitalize()} over a distance: right answers",
            x="tokens",
            y="share right",
            series=[
                Series(name=one["way"], points=[(point["length"], point["share"]) for point in one["accuracy"]])
                for one in found
            ],
            log_x=True,
            low=0.0,
            high=1.0,
            ticks=[(point["length"], label(point["length"])) for point in found[0]["accuracy"]],
        )
    return Section(
        heading="Recall and count over a distance",
        text="Recall: one of eight values is shown once, in the first tenth of a sequence of noise, and asked for at "
        "its end. Count: how many of the tokens, zero to seven, were marks. Each way was trained for "
        f"{far['updates']:,} updates on lengths up to {far['longest']:,}; chance is {percent(far['chance'])}.",
        charts=charts,
    )


def _band(band: Record) -> str:
    return f"{band['low']}+" if band["high"] is None else f"{band['low']}-{band['high'] - 1}"


def _of(run: Record, *names: str) -> Any:
    value: Any = run.get("test") or {}
    for name in names:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
