"""A look at labelled texts, alone or in pairs: what texts and labels are like, and what may be wrong with them."""

import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from regard.data.inspection.findings import (
    NUMBER,
    Finding,
    OddRows,
    names_column,
    other_distribution,
    share,
    text_findings,
    there_are,
)
from regard.data.inspection.texts import EvenSample, SideStatistics, side_statistics
from regard.data.readers import folded
from regard.errors import DataError

FEW_TEXTS = 200

TOO_FEW = 5
"""Texts of a label below which it is not learnt."""

NO_LABEL = frozenset(("", "-", "?", "nan", "null", "n/a"))
"""What stands where a text has no label, as in NLI sets whose annotators did not agree."""

WITHHELD = "-1"
"""What stands for every label of a test part whose labels are kept back, as in GLUE."""

_DATES = re.compile(r"\d{4}[-/.]\d{1,2}([-/.]\d{1,2})?([T ].*)?|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4}|\d{1,2}:\d{2}(:\d{2})?")
_DECIMALS = re.compile(r"[-+]?\d+[.,]\d+")


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelledStatistics:
    """What labelled texts are like."""

    rows: int
    text: SideStatistics
    labels: dict[str, int]
    first_texts: int = 0
    """Of pairs, how many first texts there are, case and spaces aside; 0 where texts stand alone."""
    valid_rows: int = 0
    test_withheld: bool = False
    """Whether the texts to test on have no labels."""
    findings: tuple[Finding, ...] = ()

    @property
    def words(self) -> int:
        return round(self.text.words / max(1, self.text.texts) * self.rows)


def inspect_labelled(
    train: Iterable[tuple[tuple[str, ...], str]],
    valid: Iterable[tuple[tuple[str, ...], str]] | None = None,
    test: Iterable[tuple[tuple[str, ...], str]] | None = None,
    *,
    classes: bool = True,
) -> LabelledStatistics:
    """One look at texts, or pairs, with the label of each; what labels are like matters where they are classes."""
    sample, labels, tally = EvenSample[tuple[str, ...]](), Counter[str](), OddRows()
    seen: dict[int, str] = {}
    first: tuple[str, str] | None = None
    firsts: set[int] = set()
    most_words = most_characters = 0
    for texts, label in train:
        text = "\n".join(texts)
        first = first or (texts[0], label)
        if len(texts) > 1:
            firsts.add(hash(folded(texts[0])))
        sample.add(texts)
        most_characters = max(most_characters, len(text))
        if text.count(" ") + text.count("\n") >= most_words:
            most_words = max(most_words, len(text.split()))
        labels[label] += 1
        key = hash(folded(text))
        if not text.strip():
            tally.note("empty text", sample.count, label)
        elif key not in seen:
            seen[key] = label
        elif seen[key] == label:
            tally.note("repeated texts", sample.count, _shown(texts))
        else:
            tally.note("contradicting labels", sample.count, _shown(texts))
    if not (rows := sample.count):
        raise DataError("there is not one labelled text: no row has a text and a label")
    text = side_statistics(["\n".join(one) for _, one in sample.items])
    # Words of all rows are counted by their spaces; of texts without, no row has more than characters.
    longest = most_characters if text.unspaced > 0.5 else max(most_words, text.most_words)
    text = replace(text, most_words=longest, most_characters=most_characters)
    statistics = LabelledStatistics(rows=rows, text=text, labels=dict(labels.most_common()))
    said = {
        "empty text": "have no text",
        "repeated texts": "are a text that was there before, with the same label",
        "contradicting labels": "are a text that has another label elsewhere: one of the two is wrong",
    }
    findings = [
        Finding(kind, f"{share(tally.count[kind], rows)} {what}; {tally.where(kind)}")
        for kind, what in said.items()
        if tally.count[kind] > {"repeated texts": 0.01, "contradicting labels": 0.0005}.get(kind, 0) * rows
    ]
    filled = [(number, (_shown(one),)) for number, one in sample.items if "".join(one).strip()]
    findings += text_findings(filled, statistics, ("text",))
    findings += _of_labels(labels, rows) if classes else []
    if rows < FEW_TEXTS:
        findings.append(
            Finding(
                "few rows",
                f"{there_are(rows, 'row')}: too few to learn much from; some hundreds for each label are a start, and "
                f"a trained encoder to start from (--from) helps",
            )
        )
    if classes and first is not None and labels[first[1]] == 1 < len(labels) and names_column(first[0], text):
        findings.append(
            Finding(
                "header",
                f"row 1 ({first[0]} | {first[1]}) looks like names of columns and is read as a text with its label: "
                f"set data.header=true",
            )
        )
    withheld = False
    if test is not None and classes:
        withheld, more = _of_test(test, labels)
        findings += more
    checked = 0
    if valid is not None:
        checked, more = _of_labelled_validation(valid, labels if classes else None, seen, text)
        findings += more
    return LabelledStatistics(
        rows=rows,
        text=text,
        labels=statistics.labels,
        first_texts=len(firsts),
        valid_rows=checked,
        test_withheld=withheld,
        findings=tuple(findings),
    )


def _shown(texts: Sequence[str]) -> str:
    """A text, or two as `regard classify` shows them."""
    return " ||| ".join(texts)


def withheld(labels: Iterable[str], known: Container[str]) -> bool:
    """Whether these are no labels, but what stands for those of a test part that are kept back."""
    found = iter(labels)
    return WITHHELD not in known and next(found, "") == WITHHELD and all(label == WITHHELD for label in found)


def _swapped(count: int, rows: int, what: str) -> Finding:
    return Finding(
        f"swapped {what}",
        f"{share(count, rows)} of {what} have a label of the training texts where their text is read: its columns look "
        f"swapped; write them in the order of the training file, or give both files a header",
    )


def _of_test(test: Iterable[tuple[tuple[str, ...], str]], labels: Counter[str]) -> tuple[bool, list[Finding]]:
    """Whether the texts to test on have no labels, and what may be wrong with them."""
    rows = swapped = 0
    found: Counter[str] = Counter()
    for texts, label in test:
        rows += 1
        found[label] += 1
        swapped += label not in labels and texts[0].strip() in labels
    if withheld(found, labels):
        line = (
            f"every label of the {rows:,} rows to test on is {WITHHELD}, which stands for labels that are kept back: "
            f"they are not evaluated on; give others with --test"
        )
        return True, [Finding("test without labels", line)]
    if swapped > 0.5 * rows:
        return False, [_swapped(swapped, rows, "test")]
    strange = [label for label in found if label not in labels]
    if not strange:
        return False, []
    line = (
        f"{share(sum(found[label] for label in strange), rows)} of test have labels that no training text has, and "
        f"count as wrong in regard evaluate: {', '.join(strange[:5])}"
    )
    return False, [Finding("labels of test alone", line)]


def _of_labels(labels: Counter[str], rows: int) -> Iterator[Finding]:
    if len(labels) == 1:
        yield Finding("one label", f"every label is '{next(iter(labels))}': there is nothing to tell apart")
        return
    if len(labels) > 0.5 * rows and rows >= 20:
        yield Finding(
            "as many labels as rows",
            f"{len(labels):,} labels of {rows:,} rows: are they labels? data.label chooses the column",
        )
    alike: dict[str, list[str]] = {}
    for label in labels:
        alike.setdefault(folded(label), []).append(label)
    if twice := [names for names in alike.values() if len(names) > 1]:
        yield Finding(
            "labels that differ in case",
            f"labels that differ in case or spaces alone: {', '.join(map(repr, twice[0]))}",
        )
    if nothing := [label for label in labels if label.strip().casefold() in NO_LABEL]:
        yield Finding(
            "labels that mean none",
            f"{share(sum(labels[label] for label in nothing), rows)} have the label {', '.join(map(repr, nothing))}, "
            f"which is learnt as a class like any other: remove them if it means that there is no label",
        )
    if mark := _joined_by(labels):
        yield Finding(
            "several labels in one",
            f"labels such as '{next(label for label in labels if mark in label)}' look like several, joined by "
            f"'{mark}': a text has one label here, so each combination is learnt as a class of its own",
        )
    written = list(map(str.strip, labels))
    if all(map(_DATES.fullmatch, written)):
        yield Finding(
            "dates as labels",
            f"labels are dates or times, such as '{written[0]}', each learnt as a class of its own: data.label chooses "
            f"another column",
        )
    elif all(map(NUMBER.fullmatch, written)) and (
        decimals := [one for one in written if _DECIMALS.fullmatch(one) and not one.endswith((".0", ",0"))]
    ):
        yield Finding(
            "decimals as labels",
            f"labels are numbers such as {decimals[0]}, each learnt as a class of its own: that some are closer to one "
            f"another is not learnt; fewer classes, such as low and high, are learnt from fewer texts",
        )
    rare = [label for label, count in labels.items() if count < TOO_FEW]
    if rare and len(labels) <= 0.5 * rows:
        yield Finding(
            "rare labels",
            f"{len(rare)} of {len(labels)} labels have fewer than {TOO_FEW} texts, too few to learn: "
            f"{', '.join(rare[:5])}",
        )
    most, count = labels.most_common(1)[0]
    if count > 0.9 * rows:
        yield Finding(
            "one label of most texts",
            f"{100 * count / rows:.0f} % of the texts have the label '{most}': look at macro F1, not at accuracy",
        )


def _joined_by(labels: Counter[str]) -> str | None:
    """What joins several labels in one, where the parts of nearly all combinations come again in others."""
    for mark in "|;,+":
        joined = [label for label in labels if mark in label]
        if len(joined) < max(3, 0.3 * len(labels)):
            continue
        parts = Counter(part.strip() for label in labels for part in label.split(mark))
        if sum(count > 1 for count in parts.values()) > 0.8 * len(parts):
            return mark
    return None


def _of_labelled_validation(
    valid: Iterable[tuple[tuple[str, ...], str]],
    labels: Counter[str] | None,
    seen: dict[int, str],
    text: SideStatistics,
) -> tuple[int, list[Finding]]:
    """How many rows there are, and what may be wrong with them; `labels` are those to train on, where classes."""
    rows = known = swapped = 0
    found: list[Finding] = []
    strange: Counter[str] = Counter()
    kept = EvenSample[str](2000)
    for texts, label in valid:
        rows += 1
        joined = "\n".join(texts)
        kept.add(joined)
        known += hash(folded(joined)) in seen
        if labels is not None and label not in labels:
            strange[label] += 1
            swapped += texts[0].strip() in labels
    if known:
        line = f"{share(known, rows)} of validation are training texts too: its scores are too good; remove them"
        found.append(Finding("validation texts in training", line))
    if swapped > 0.5 * rows:
        return rows, [*found, _swapped(swapped, rows, "validation")]
    if strange:
        line = (
            f"{share(strange.total(), rows)} of validation have labels that no training text has, and nothing can "
            f"learn: {', '.join(list(strange)[:5])}; they are left out while training, and count as wrong in regard "
            f"evaluate"
        )
        found.append(Finding("labels of validation alone", line))
    if line := other_distribution([one for _, one in kept.items], text, "validation texts"):
        found.append(Finding("another distribution", line))
    return rows, found
