"""What heads do, as one self-contained page without scripts."""

from collections.abc import Mapping
from html import escape
from typing import Any

_STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 80rem; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .25rem .6rem; border-bottom: 1px solid #8884; vertical-align: top; }
td.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
meter { width: 5rem; }
.none { opacity: .6; }
"""


def heads_page(title: str, report: Mapping[str, Any]) -> str:
    """The page of a report that `regard.runs.heads` made."""
    rows = "".join(_rows(head) for head in report["heads"])
    pronoun = _pronoun(report["pronoun"]) if report.get("pronoun") else ""
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title><style>{_STYLE}</style></head><body>
<h1>{escape(title)}</h1>
<p>{report["sentences"]:,} sentences. A head has a role when it looks where the role says more often than the best rule
without a model, by more than untrained models of the same shape reach. An untrained model would be given any role at
all with a chance of at most {_percent(report["false_positive_rate"])}, by comparison with
{report["untrained_models"]} of them.</p>
<table><thead><tr><th>attention</th><th>head</th><th>role</th><th colspan="2">looks there</th><th>95 % interval</th>
<th>without a model</th><th>questions</th><th>entropy</th><th>distance</th></tr></thead>
<tbody>{rows}</tbody></table>{pronoun}</body></html>
"""


def _rows(head: Mapping[str, Any]) -> str:
    role, evidence = head["role"], head["evidence"]
    name = f"<td>{escape(head['attention'])}</td><td>{head['head']}</td>"
    what = f"<td>{escape(role)}</td>" if role else f'<td class="none">none ({escape(evidence["role"])}?)</td>'
    measures = "".join(f'<td class="number">{head["measures"][one]:.2f}</td>' for one in ("entropy", "distance"))
    rows = f"<tr>{name}{what}{_evidence(evidence)}{measures}</tr>"
    if carried := head.get("neurons"):
        few, listed = len(carried["neurons"]), ", ".join(map(str, carried["neurons"]))
        said = f"by {few} of {carried['width']} neurons ({listed}): {_percent(carried['alone'])} alone"
        rows += f'<tr><td></td><td></td><td colspan="8">{said}, {_percent(carried["whole"])} all</td></tr>'
    for one in head["also"]:
        rows += f"<tr><td></td><td></td><td>also {escape(one['role'])}</td>{_evidence(one)}<td></td><td></td></tr>"
    return rows


def _evidence(one: Mapping[str, Any]) -> str:
    cells = (
        _percent(one["accuracy"]),
        f"{_percent(one['low'])} to {_percent(one['high'])}",
        f"{_percent(one['baseline'])} ({escape(one['rule'])})",
        f"{one['questions']:,}",
    )
    numbers = "".join(f'<td class="number">{cell}</td>' for cell in cells)
    return f'<td><meter min="0" max="1" value="{one["accuracy"]:.4f}"></meter></td>{numbers}'


def _pronoun(found: Mapping[str, Any]) -> str:
    evidence, word = found["evidence"], escape(str(found["pronoun"]))
    masked = "".join(
        f'<tr><td>{escape(name)}</td><td>{head}</td><td class="number">{_percent(share)}</td>'
        f'<td class="number">{_percent(found["by_head"][name][head])}</td></tr>'
        for name, shares in found["translated_when_masked"].items()
        for head, share in enumerate(shares)
    )
    return f"""<h2>From “{word}” to its noun</h2>
<p>Of the encoder's heads, {escape(found["attention"])} head {found["head"]} follows it best, chosen on validation
sentences: on {found["sentences"]:,} test sentences it looks at the right noun {_percent(evidence["accuracy"])} of
{evidence["questions"]:,} times. Chance is {_percent(found["chance"])}, {escape(evidence["rule"])}
{_percent(evidence["baseline"])}. The whole model translates {_percent(found["translated"])} of the pronouns right.</p>
<table><thead><tr><th>attention</th><th>head</th><th>pronouns right without it</th><th>looks at the noun</th></tr>
</thead>
<tbody>{masked}</tbody></table>"""


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
