"""Write down a run of `make docs-long`: which pages' lines, blocks, chapters and notebooks were run, when, on what, and
what was not run and why.

python tests/docs/record.py docs/results/documents.md build/docs-long.xml
"""

import datetime
import os
import platform
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
KINDS = {
    "test_shell_blocks": "shell lines",
    "test_python_blocks": "Python blocks",
    "test_lectures": "chapters",
    "test_notebooks": "notebooks",
}
TRIED = ("test_a_line_is_run", "test_a_block_runs_alone", "test_a_notebook_runs", "prints_what_it_shows", "print_what")
HEAD = """# The documents, run

`make docs-long` runs every line of the shell blocks, every Python block, every chapter of the companion with its longer
parts, and every notebook, and compares what the chapters print with what they show. Lines are run on small files and
runs of the kinds that they name ([materials.py](../../tests/docs/materials.py)): it says that they work, not how well.
What makes them long (updates, examples) is made small. This page is what it wrote.
"""


def pages_of_lines():
    from test_shell_blocks import lines

    # A report has the names that pytest shows, in ASCII.
    return {line.encode("unicode_escape").decode("ascii"): page for page, line in lines()}


def counted(reports):
    """{(page, kind): [passed, failed, seconds]} and the slowest, of the tests that run a part of the documents."""
    lines, found, slowest = pages_of_lines(), defaultdict(lambda: [0, 0, 0.0]), []
    for case in (case for report in reports for case in ElementTree.parse(report).getroot().iter("testcase")):
        name, _, rest = case.get("name", "").partition("[")
        kind = KINDS.get(case.get("classname", "").rpartition(".")[2])
        if kind is None or not name.endswith(TRIED) or case.find("skipped") is not None:
            continue
        part, seconds = rest.removesuffix("]"), float(case.get("time", 0))
        page = lines.get(part) or re.sub(r"\.md-\d+$", ".md", part)
        failed = case.find("failure") is not None or case.find("error") is not None
        one = found[page, kind]
        one[failed] += 1
        one[2] += seconds
        slowest.append((seconds, part))
    return found, sorted(slowest, reverse=True)


def written(reports, commit, machine):
    """The page, of reports in JUnit's form."""
    import torch
    from test_shell_blocks import lines, reason

    found, slowest = counted(reports)
    totals = {
        kind: [sum(one[at] for (_, own), one in found.items() if own == kind) for at in (0, 1)]
        for kind in KINDS.values()
    }
    seconds = sum(one[2] for one in found.values())
    today = datetime.datetime.now(datetime.UTC).date()
    text = [
        HEAD,
        f"{today}, commit {commit}, torch {torch.__version__}, Python {platform.python_version()}, {machine}.",
        "",
    ]
    text += ["| | run | failed |", "| --- | --- | --- |"]
    text += [f"| {kind} | {passed + failed} | {failed} |" for kind, (passed, failed) in totals.items()]
    text += ["", f"{seconds:,.0f} seconds in all. The slowest:", "", "| part | seconds |", "| --- | --- |"]
    text += [f"| `{part.replace('|', '¦')}` | {took:.1f} |" for took, part in slowest[:8]]
    text += ["", "## Pages", "", "| page | " + " | ".join(KINDS.values()) + " |", "| --- |" + " --- |" * len(KINDS)]
    for page in sorted({page for page, _ in found}):
        cells = [str(sum(found[page, kind][:2]) or "") if (page, kind) in found else "" for kind in KINDS.values()]
        text.append(f"| {page} | " + " | ".join(cells) + " |")
    text += ["", "## Not run", "", "| line | why |", "| --- | --- |"]
    text += [f"| `{line.replace('|', '¦')}` | {why} |" for _, line in lines() if (why := reason(line)) is not None]
    return "\n".join(text) + "\n"


def main(page, *reports):
    commit = subprocess.run(
        ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    Path(page).write_text(written(reports, commit or "unknown", f"{os.cpu_count()} CPU cores"), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
