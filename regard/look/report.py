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
    """The page of a report that `regard.analysis.heads` made."""
    title = title.encode("utf-8", "replace").decode()  # half of a surrogate pair cannot be written to a file
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
    word = escape(str(found["pronoun"]))
    kinds = "".join(
        f"<tr><td>{escape(one['attention'])}</td><td>{one['head']}</td><td>{escape(one['asks'])}</td>"
        f"{_evidence(one['evidence'])}"
        f'<td class="number">{_percent(one["chance"])}</td>'
        f'<td class="number">{_percent(one["by_value"]["accuracy"])}</td></tr>'
        for one in found["by_kind"].values()
    )
    masked = "".join(
        f'<tr><td>{escape(name)}</td><td>{head}</td><td class="number">{_percent(share)}</td>'
        f'<td class="number">{_looks(found, name, head)}</td></tr>'
        for name, shares in found["translated_when_masked"].items()
        for head, share in enumerate(shares)
    )
    together = "".join(
        f"<tr><td>{' and '.join(escape(_named(one)) for one in two['heads'])}</td>"
        f'<td class="number">{_percent(two["translated"])}</td>'
        f'<td class="number">{_points(two["lost"])}</td><td class="number">{_points(two["lost_apart"])}</td></tr>'
        for two in found["together"]
    )
    low, high = found["translated_interval"]
    return f"""<h2>From “{word}” to its noun</h2>
<p>{escape(where_the_work_is(found))}</p>
<p>Of each kind of attention the head that looks there most often, chosen on validation sentences and measured on
{found["sentences"]:,} test sentences, by its weights and by what it takes from each place.</p>
<table><thead><tr><th>attention</th><th>head</th><th>asks whether</th><th colspan="2">looks there</th>
<th>95 % interval</th><th>without a model</th><th>questions</th><th>chance</th><th>by value</th></tr></thead>
<tbody>{kinds}</tbody></table>
<p>The whole model translates {_percent(found["translated"])} of the pronouns right ({_percent(low)} to
{_percent(high)}).</p>
<table><thead><tr><th>attention</th><th>head</th><th>pronouns right without it</th><th>looks at the noun</th></tr>
</thead><tbody>{masked}</tbody></table>
<table><thead><tr><th>without both</th><th>pronouns right</th><th>lost</th><th>lost apart, added up</th></tr></thead>
<tbody>{together}</tbody></table>"""


def where_the_work_is(found: Mapping[str, Any]) -> str:
    """One sentence: the head that follows the pronoun, and whether the translation hangs on it alone."""
    best, needed = _named(found), [_named(one) for one in found["needed"]]
    said = f"{best} follows the pronoun best, {_percent(found['evidence']['accuracy'])} of the times. "
    if not needed:
        return said + "No head is needed alone: masking any one of them costs less than the figures are sure of."
    listed = ", ".join(f"{_named(one)} ({_points(one['lost'])})" for one in found["needed"])
    if needed == [best]:
        lost = _points(found["needed"][0]["lost"])
        return said + f"The work is its own: masking it costs {lost}, any other less than the figures are sure of."
    if needed[0] == best:
        return said + f"Masking it also costs most; the work is spread over {listed}."
    return said + f"The work is spread over {listed}."


def _named(one: Mapping[str, Any]) -> str:
    return f"{one['attention']} head {one['head']}"


def _looks(found: Mapping[str, Any], name: str, head: int) -> str:
    shares = found["by_head"].get(name)
    return "" if shares is None else _percent(shares[head])


def _points(share: float) -> str:
    return f"{100 * share:.1f} points"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
