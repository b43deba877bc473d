"""The roles of heads as one self-contained page without scripts."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from regard.analysis.head_pronouns import pronoun_report
from regard.analysis.head_roles import head_roles
from regard.look.page import heading, in_a_frame, meter, paragraph, percent, static_page, table
from regard.look.roles import MIN_QUESTIONS
from regard.runs.files import check_output, whole_file
from regard.tasks.run import Run

EVIDENCE = ("looks there", "", "95 % interval", "without a model", "questions")


class HeadsReport(dict[str, Any]):
    """What the heads of a run do, as `head_roles` gives it; shown as a page in a notebook."""

    title = "What the heads do"

    def __repr__(self) -> str:
        claimed = [head for head in self["heads"] if head["role"] is not None]
        rows = [
            f"  {head['attention']} head {head['head']}: {head['role']}, {percent(head['evidence']['accuracy'])} right "
            f"(without a model {percent(head['evidence']['baseline'])})"
            for head in claimed
        ]
        counted = f"{len(claimed)} of {len(self['heads'])} heads have a role, by {self['sentences']:,} sentences"
        return "\n".join([counted, *rows])

    def _repr_html_(self) -> str:
        return in_a_frame(heads_page(self.title, self), self.title)

    def save(self, path: str | Path) -> Path:
        """Write the page to a file that any browser opens."""
        check_output(Path(path))
        with whole_file(Path(path)) as aside:
            aside.write_text(heads_page(self.title, self), encoding="utf-8", newline="\n")
        return Path(path)


def heads_report(
    run: Run, data: Any = None, *, limit: int = 400, progress: Callable[[int, int], None] | None = None
) -> HeadsReport:
    """What each head of the run does, and on the bundled corpus which of them follow pronouns."""
    found = HeadsReport(head_roles(run, data, limit=limit, progress=progress))
    found.title = f"What the heads of {run.directory.name} do"
    if run.task.has_gold(run, data):
        found["pronoun"] = pronoun_report(run, limit=min(limit, 200))
    return found


def heads_page(title: str, report: Mapping[str, Any]) -> str:
    """The page of a report that `regard.analysis.head_roles` made."""
    said = (
        f"{report['sentences']:,} sentences. A head has a role when it looks where the role says more often than the "
        "best rule without a model, by more than untrained models of the same shape reach. An untrained model would be "
        f"given any role at all with a chance of at most {percent(report['false_positive_rate'])}, by comparison with "
        f"{report['untrained_models']} of them."
    )
    names = ("attention", "head", "role", *EVIDENCE, "entropy", "distance")
    rows = [row for head in report["heads"] for row in _rows(head)]
    pronoun = _pronoun(report["pronoun"]) if report.get("pronoun") else []
    absent = [
        (one["role"], one["attention"], str(one["head"]), *_evidence(one["evidence"]))
        for one in report.get("best", ())
        if not one["claimed"]
    ]
    missing = [
        heading("Roles that no head has, with the nearest"),
        table(("role", "attention", "head", *EVIDENCE), absent, text_columns=3),
    ]
    few = [paragraph(few_questions(report), muted=True)] if report.get("too_few") else []
    return static_page(
        title, [paragraph(said), table(names, rows, text_columns=3), *(missing if absent else []), *few, *pronoun]
    )


def few_questions(report: Mapping[str, Any]) -> str:
    """One sentence: the roles that were not considered, for want of questions."""
    listed = ", ".join(f"{one['role']} ({one['attention']}, {one['questions']})" for one in report["too_few"])
    return (
        f"Not considered, with fewer than {MIN_QUESTIONS} questions in either half of the sentences: {listed}. "
        "More sentences would ask more."
    )


def _rows(head: Mapping[str, Any]) -> list[Sequence[str]]:
    role, evidence = head["role"], head["evidence"]
    measures = [f"{head['measures'][one]:.2f}" for one in ("entropy", "distance")]
    name = (head["attention"], str(head["head"]), role or f"none ({evidence['role']}?)")
    rows: list[Sequence[str]] = [(*name, *_evidence(evidence), *measures), *_neurons(head)]
    for one in head["also"]:
        rows += [("", "", f"also {one['role']}", *_evidence(one)), *_neurons(one)]
    return rows


def _neurons(one: Mapping[str, Any]) -> list[Sequence[str]]:
    carried = one.get("neurons")
    if not carried:
        return []
    few, listed = len(carried["neurons"]), ", ".join(map(str, carried["neurons"]))
    said = f"by {few} of {carried['width']} neurons ({listed})"
    return [("", "", said, "", f"{percent(carried['alone'])} alone", f"{percent(carried['whole'])} all")]


def _evidence(one: Mapping[str, Any]) -> Sequence[str]:
    return (
        meter(one["accuracy"]),
        percent(one["accuracy"]),
        f"{percent(one['low'])} to {percent(one['high'])}",
        f"{percent(one['baseline'])} ({one['rule']})",
        f"{one['questions']:,}",
    )


def _pronoun(found: Mapping[str, Any]) -> list[str]:
    kinds = [
        (
            *(one["attention"], str(one["head"]), one["asks"]),
            *_evidence(one["evidence"]),
            *(percent(one["chance"]), percent(one["by_value"]["accuracy"])),
        )
        for one in found["by_kind"].values()
    ]
    masked = [
        (name, str(head), percent(share), percent(found["by_head"][name][head]) if name in found["by_head"] else "")
        for name, shares in found["translated_when_masked"].items()
        for head, share in enumerate(shares)
    ]
    together = [
        (
            " and ".join(map(_named, two["heads"])),
            percent(two["translated"]),
            *map(_points, (two["lost"], two["lost_apart"])),
        )
        for two in found["together"]
    ]
    low, high = found["translated_interval"]
    return [
        heading(f"From “{found['pronoun']}” to its noun"),
        paragraph(where_the_work_is(found)),
        paragraph(
            "Of each kind of attention the head that looks there most often, chosen on validation sentences and "
            f"measured on {found['sentences']:,} test sentences, by its weights and by what it takes from each place."
        ),
        table(("attention", "head", "asks whether", *EVIDENCE, "chance", "by value"), kinds, text_columns=3),
        paragraph(
            f"The whole model translates {percent(found['translated'])} of the pronouns right ({percent(low)} to "
            f"{percent(high)})."
        ),
        table(("attention", "head", "pronouns right without it", "looks at the noun"), masked, text_columns=2),
        table(("without both", "pronouns right", "lost", "lost apart, added up"), together),
    ]


def where_the_work_is(found: Mapping[str, Any]) -> str:
    """One sentence: the head that follows the pronoun, and whether the translation hangs on it alone."""
    best, needed = _named(found), [_named(one) for one in found["needed"]]
    said = f"{best} follows the pronoun best, {percent(found['evidence']['accuracy'])} of the times. "
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


def _points(share: float) -> str:
    return f"{100 * share:.1f} points"
