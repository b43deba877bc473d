"""The report of a comparison as one page, and its pictures one by one."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from regard.look.charts import Chart, Series, draw, label
from regard.look.page import figure, heading, paragraph, percent, static_page, table

Report = Mapping[str, Any]


def comparison_page(report: Report) -> str:
    """A self-contained page: tables and charts, no script, nothing fetched."""
    charts = {name: draw(chart) for name, chart in comparison_charts(report).items()}
    shown = [*_overview(report), *_lengths(report, charts), *_curves(charts), *_words(report)]
    return static_page(
        "Comparison", [*shown, *_ablation(report, charts), *_growth(report, charts), *_far(report, charts)]
    )


def comparison_charts(report: Report) -> dict[str, Chart]:
    """Every chart that the report has figures for, by name."""
    runs = [run for run in report["runs"] if run.get("test")]
    charts: dict[str, Chart] = {}
    if any(run["test"].get("by_length") for run in runs):
        charts["by-length"] = _length_chart(runs)
    trained = report["runs"] if report["runs"][0].get("depth") is None else []
    counted = next((run["loss_unit"] for run in trained if "loss_unit" in run), "nats")
    loss = f"loss ({counted})" if counted else "loss"
    for name, unit in (("step", "updates"), ("seconds", "seconds of training"), ("flops", "FLOPs of training")):
        for key, what, high in (("nll", f"validation {loss}", None), ("exact_match", "exact match", 1.0)):
            lines = [
                Series(name=run["name"], points=[(one[name], one[key]) for one in run["validations"] if key in one])
                for run in trained
            ]
            if any(line.points for line in lines):
                charts[f"{key.replace('_', '-')}-by-{name}"] = Chart(
                    title=f"{what} against {unit}",
                    x=unit,
                    y=what,
                    series=lines,
                    log_x=name == "flops",
                    low=0.0,
                    high=high,
                )
        lines = [Series(name=run["name"], points=[(one[name], one["loss"]) for one in run["curve"]]) for run in trained]
        if any(line.points for line in lines):
            charts[f"loss-by-{name}"] = Chart(
                title=f"training loss against {unit}", x=unit, y=loss, series=lines, low=0.0, marks=False
            )
    return charts | _ablation_charts(report) | _growth_charts(report) | _far_charts(report)


def _length_chart(runs: Sequence[Report]) -> Chart:
    bands = runs[0]["test"]["by_length"]
    used = [index for index, band in enumerate(bands) if band["count"]]
    names = [_band(bands[index]) for index in used]
    lines = []
    for run in runs:
        shares = [run["test"]["by_length"][index]["exact_match"] for index in used]
        points = [(float(place), share) for place, share in enumerate(shares) if share is not None]
        lines.append(Series(name=run["name"], points=points))
    return Chart(
        title="Exact match by sentence length",
        x="words of the source",
        y="exact match",
        series=lines,
        low=0.0,
        high=1.0,
        ticks=[(float(place), name) for place, name in enumerate(names)],
    )


def _overview(report: Report) -> list[str]:
    machine = report["machine"]
    said = [
        f"Budget: {report['budget']}.",
        "Widths are chosen so that all have about as many parameters." if report["equal"] else "",
        f"Measured with torch {machine['torch']}, {machine['threads']} threads, on {machine['processor']}.",
    ]
    aligned = any("alignment_error_rate" in run.get("test", {}) for run in report["runs"])
    columns: list[tuple[str, Callable[[Report], str]]] = [
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


def _lengths(report: Report, charts: Mapping[str, str]) -> list[str]:
    if "by-length" not in charts:
        return []
    bands = next(run for run in report["runs"] if run.get("test"))["test"]["by_length"]
    used = [index for index, band in enumerate(bands) if band["count"]]
    names = ["configuration", *(f"{_band(bands[index])} ({bands[index]['count']})" for index in used)]
    rows = [
        [run["name"], *(percent(run["test"]["by_length"][index]["exact_match"]) for index in used)]
        for run in report["runs"]
        if run.get("test")
    ]
    return [
        heading("Score by sentence length"),
        paragraph(
            "Without attention the whole source has to pass through one vector, and what does not fit is lost: the "
            "longer the sentence, the more. With attention every step looks at the source again."
        ),
        figure(charts["by-length"]),
        table(names, rows),
    ]


def _curves(charts: Mapping[str, str]) -> list[str]:
    names = [f"{what}-by-{unit}" for unit in ("step", "seconds", "flops") for what in ("exact-match", "nll", "loss")]
    found = [figure(charts[name]) for name in names if name in charts]
    return [heading("Learning curves"), *found] if found else []


def _words(report: Report) -> list[str]:
    runs = [run for run in report["runs"] if "words" in run.get("test", {})]
    if not runs:
        return []
    rows = [
        [
            run["name"],
            *(percent(run["test"]["words"][key], 2) for key in ("repeated", "omitted", "over_translated")),
            _number(_of(run, "alignment_error_rate"), 3),
        ]
        for run in runs
    ]
    return [
        heading("Words said twice, left out or said too often"),
        paragraph(
            "Counted with the gold alignment of the bundled corpus. Repeated: words too many that are part of a phrase "
            "said twice in a row, of all words said. Omitted: source words of whose translation nothing is there. "
            "Over-translated: source words of whose translation some is said once more than it should be. Both of all "
            "source words."
        ),
        table(("configuration", "repeated", "omitted", "over-translated", "alignment error rate"), rows),
        paragraph(
            "The alignment error rate compares, at the step that predicts a word, the source word looked at most with "
            "the one it translates: 0 is perfect. A model can be right with a high one: an encoder that reads both "
            "ways puts what a word says into its neighbours too, and looking there serves as well. So a low rate "
            "shows that attention aligns; a high one does not show that translation fails."
        ),
    ]


def _ablation_charts(report: Report) -> dict[str, Chart]:
    runs = [run for run in report["runs"] if run.get("depth") is not None]
    if not runs:
        return {}
    kinds = list(dict.fromkeys(run["without"] for run in runs))

    def lines(value: Callable[[Report], float | None]) -> list[Series]:
        found = []
        for kind in kinds:
            points = [(run["depth"], value(run)) for run in runs if run["without"] == kind]
            shown = [(depth, share) for depth, share in points if share is not None]
            found.append(Series(name=f"without {kind}" if kind else "all three", points=shown))
        return found

    depths = [(depth, str(depth)) for depth in sorted({run["depth"] for run in runs})]
    return {
        "ablation": Chart(
            title="Last validation loss by depth",
            x="layers on each side",
            y="validation loss (nats)",
            series=lines(lambda run: run["validations"][-1]["nll"] if run["validations"] else None),
            ticks=depths,
            low=0.0,
        ),
        "ablation-match": Chart(
            title="Exact match by depth",
            x="layers on each side",
            y="exact match",
            series=lines(lambda run: _of(run, "exact_match")),
            ticks=depths,
            low=0.0,
            high=1.0,
        ),
    }


def _ablation(report: Report, charts: Mapping[str, str]) -> list[str]:
    if "ablation" not in charts:
        return []
    return [
        heading("Without each of the three training tricks"),
        paragraph(
            "The same configuration at several depths: whole; without the residual around each sublayer; without "
            "norms; with scores that are not divided by the root of the head's width."
        ),
        figure(charts["ablation"]),
        figure(charts["ablation-match"]),
    ]


def _growth_charts(report: Report) -> dict[str, Chart]:
    grown = report.get("growth")
    if not grown:
        return {}
    lengths = [point["length"] for point in grown["ways"][0]["points"]]
    ticks = [(length, str(length)) for length in lengths[::2]]

    def chart(title: str, y: str, key: str, scale: float) -> Chart:
        lines = [
            Series(name=way["name"], points=[(one["length"], one[key] * scale) for one in way["points"]])
            for way in grown["ways"]
        ]
        return Chart(title=title, x="tokens", y=y, series=lines, log_x=True, log_y=True, ticks=ticks)

    return {
        "growth-time": chart("Time to read one sequence, forward and back", "milliseconds", "seconds", 1e3),
        "growth-memory": chart("Memory kept for the way back", "megabytes", "bytes", 1e-6),
    }


def _growth(report: Report, charts: Mapping[str, str]) -> list[str]:
    grown = report.get("growth")
    if not grown:
        return []
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
    return [
        heading("Time and memory as a sequence grows"),
        paragraph(
            f"Stacks of {grown['layers']} layers, {grown['width']} wide, one sequence, {grown['threads']} threads. "
            f"A recurrence takes one step after the other; a convolution of {grown['kernel']} positions sees "
            f"{grown['kernel'] - 1} more with each layer; attention takes all at once and compares each with each. "
            "With the fused kernel its memory grows as n, with its weights formed as n squared."
        ),
        figure(charts["growth-time"]),
        figure(charts["growth-memory"]),
        table(names, rows),
    ]


def _far_charts(report: Report) -> dict[str, Chart]:
    far = report.get("long_range")
    if not far:
        return {}
    charts = {}
    for question in dict.fromkeys(one["question"] for one in far["results"]):
        found = [one for one in far["results"] if one["question"] == question]
        lines = [
            Series(name=one["way"], points=[(point["length"], point["share"]) for point in one["accuracy"]])
            for one in found
        ]
        lengths = [point["length"] for point in found[0]["accuracy"]]
        charts[f"far-{question}"] = Chart(
            title=f"{question.capitalize()} over a distance: right answers",
            x="tokens",
            y="share right",
            series=lines,
            log_x=True,
            low=0.0,
            high=1.0,
            ticks=[(length, label(length)) for length in lengths],
        )
    return charts


def _far(report: Report, charts: Mapping[str, str]) -> list[str]:
    far = report.get("long_range")
    if not far:
        return []
    return [
        heading("Recall and count over a distance"),
        paragraph(
            "Recall: one of eight values is shown once, in the first tenth of a sequence of noise, and asked for at "
            "its end. Count: how many of the tokens, zero to seven, were marks. Each way was trained for "
            f"{far['updates']:,} updates on lengths up to {far['longest']:,}; chance is {percent(far['chance'])}."
        ),
        *(figure(svg) for name, svg in charts.items() if name.startswith("far-")),
    ]


def _band(band: Report) -> str:
    return f"{band['low']}+" if band["high"] is None else f"{band['low']}-{band['high'] - 1}"


def _of(run: Report, *names: str) -> Any:
    value: Any = run.get("test") or {}
    for name in names:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
