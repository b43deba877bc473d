"""A look at running text: what its lines are like, and what may be wrong with them."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from regard.data.inspection.findings import Finding, OddRows, other_distribution, share, text_findings
from regard.data.inspection.texts import EvenSample, SideStatistics, side_statistics

BARS = " ||| "
"""What separates the sides of pairs in files that are not tables."""

TREEBANK_TABS = 9
"""In a line of CoNLL-U, which has ten columns."""

FASTTEXT = "__label__"
"""What the lines of labelled texts begin with that are for fastText."""

_TABLE_ROW = re.compile(r"\s*\|.*\|\s*")
_TIMES = re.compile(r"(\d+:)?\d+:\d+[,.]\d+ --> ")

_RECORD = re.compile(
    r'\s*(?:\{\s*(?:"|$)|\[\s*(?:[\[{"]|$|-?\d[\d.eE+-]*\s*(?:,|\]\s*,?\s*$))|[}\]]\s*,?\s*$|"[^"]*"\s*(?::|,?\s*$))'
)
"""How a line of JSON begins; speech in quotation marks, code and stage directions begin otherwise, or go on."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TextStatistics:
    """What running text is like."""

    documents: int
    characters: int
    line: SideStatistics
    lines: int = 0
    longest: int = 0
    """The characters of the longest document."""
    files: int = 0
    """How many of its documents are plain files; others are rows of tables."""
    valid_lines: int = 0
    findings: tuple[Finding, ...] = ()


def inspect_text(parts: Iterable[tuple[str, bool]], valid: Iterable[tuple[str, bool]] | None = None) -> TextStatistics:
    """One look at running text: parts of documents, and whether each is its document's last."""
    documents = characters = here = longest = 0
    sample, tally = EvenSample[tuple[str, ...]](), OddRows()
    seen: set[int] = set()
    for text, last in parts:
        documents += last
        characters, here = characters + len(text), here + len(text)
        longest, here = max(longest, here), 0 if last else here
        for line in text.split("\n"):
            if line.strip():
                sample.add((line,))
                if len(line) > 20:
                    key = hash(line)
                    if key in seen:
                        tally.note("repeated lines", sample.count, line)
                    seen.add(key)
                if "\t" in line:
                    tally.note("tabs", sample.count, line)
                if line.count("\t") == TREEBANK_TABS or line.startswith("# "):
                    tally.note("treebank", sample.count, line)
                if BARS in line:
                    tally.note("bars", sample.count, line)
                if _TABLE_ROW.fullmatch(line):
                    tally.note("markdown", sample.count, line)
                if line.startswith(FASTTEXT):
                    tally.note("fasttext", sample.count, line)
                if _TIMES.match(line):
                    tally.note("times", sample.count, line)
                if _RECORD.match(line):
                    tally.note("records", sample.count, line)
    line = side_statistics([one[0] for _, one in sample.items])
    statistics = TextStatistics(documents=documents, characters=characters, line=line)
    findings = list(text_findings(sample.items, statistics, ("line",)))
    rows = max(1, sample.count)
    if tally.count["repeated lines"] > 0.2 * rows:
        findings.append(
            Finding(
                "repeated lines",
                f"{share(tally.count['repeated lines'], rows)} were there before: the model will learn them by heart; "
                f"{tally.where('repeated lines')}",
            )
        )
    if tally.count["records"] > 0.9 * rows:
        findings.append(
            Finding(
                "records as text",
                "the text is JSON: are they records? write one object on each line, and name the file .jsonl",
            )
        )
    if tally.count["treebank"] > 0.9 * rows and tally.count["tabs"] > 0.5 * rows:
        said = "the text is a treebank in CoNLL-U: to learn its tags, write a word, a tab and its tag on each line"
        findings.append(Finding("a treebank as text", f"{said}, and name the file .tsv"))
    elif tally.count["tabs"] > 0.9 * rows:
        findings.append(Finding("a table as text", "nearly every line holds a tab: is it a table? name it .tsv"))
    if tally.count["bars"] > 0.9 * rows:
        said = f"nearly every line holds '{BARS}': are they pairs? put a tab in its place, and name the file .tsv"
        findings.append(Finding("a table as text", said))
    if tally.count["markdown"] > 0.9 * rows:
        said = "the text is a table in Markdown: write its cells with tabs between them, and name the file .tsv"
        findings.append(Finding("a table as text", said))
    if tally.count["fasttext"] > 0.9 * rows:
        said = f"nearly every line begins with {FASTTEXT}: write the text, a tab and its label, and name the file .tsv"
        findings.append(Finding("labels as text", said))
    if tally.count["times"] > 0.2 * rows:
        said = "the text is subtitles, with times between the lines, which the model will write too: remove them"
        findings.append(Finding("subtitles as text", said))
    if characters < 100_000:
        findings.append(Finding("little text", f"{characters:,} characters are too few to learn to write from"))
    kept = EvenSample[str](2000)
    if valid is not None:
        known = count = 0
        for text, _ in valid:
            for one in text.split("\n"):
                if one.strip():
                    kept.add(one)
                    if len(one) > 20:
                        count, known = count + 1, known + (hash(one) in seen)
        if known > max(3, 0.05 * count):
            findings.append(
                Finding(
                    "validation text in training",
                    f"{known:,} of {count:,} longer lines of validation stand in the training text too",
                )
            )
        if note := other_distribution([one for _, one in kept.items], line, "validation text"):
            findings.append(Finding("another distribution", note))
    return TextStatistics(
        documents=documents,
        characters=characters,
        line=line,
        lines=sample.count,
        longest=longest,
        valid_lines=kept.count,
        findings=tuple(findings),
    )
