"""The shell blocks of the documents are run: every line, in a folder with the files and runs that it names.

What makes a line long (updates, pairs to write, problems, seconds to measure) is made small first; a line with a pipe,
one that listens and one that starts processes are run by a shell. The companion's blocks are run by test_lectures.py.
A line that cannot be run here has a reason, and names the test that runs the like of it.
"""

import http.client
import os
import re
import shlex
import signal
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from contextlib import closing

import pytest
from materials import ROOT, brief
from record import written
from test_docs import blocks

from regard.cli import main

TRACKED = "tests/training/test_trackers.py::test_wandb_is_told_under_one_name_when_a_run_goes_on"
FIT = "tests/runs/test_batch_size.py::test_the_budget_found_fits_and_hardly_more_would"
HUB = "tests/parity/test_hub.py::test_commands_import_and_look_by_name"
ELSEWHERE = {
    # What is fetched, bought or built.
    "hf:google-bert/": f"downloads from the hub: {HUB}",
    "sentence-transformers/all-MiniLM": f"downloads from the hub: {HUB}",
    "benchmarks/emoji_captions.py": "downloads images from npm",
    "--device cuda": "needs a GPU",
    "--fit": f"needs a GPU: {FIT}",
    "--report tensorboard,wandb": f"needs wandb: {TRACKED}",
    "pip install": "installs: .ci/wheel",
    "make demo": "trains for four minutes, before a release: RELEASING.md",
    "make ": "is the check itself: .ci/run",
    "curl ": "asks a server: tests/serve/test_serving_docs.py::test_every_example_is_answered",
}
"""Why a line is not run, by what is in it; after a colon what runs the like of it."""

SHELL = ("export onnx ", " | ", " < ", " > ", "regard serve", "--processes", "torchrun", "cut ")
"""Lines for a shell: with pipes and redirections, which go on in processes of their own, or which torch traces with
sizes that are symbols: the types that tests check would refuse these."""

LONG = (
    *("regard serve", "--processes", "torchrun", "regard compare", "regard heads", "regard bench", "regard distill"),
    *("regard train", "regard data", "regard prune", "regard vectors train", "regard shortlist", "evaluate"),
    *(" | ", " < ", "export ", "--engine", "hf:", "import hf", "regard plan ", "--gradients", "--edits", "--training"),
)
"""Lines that take more than some seconds: run by `make docs-long`."""

SIZES = {
    **dict.fromkeys(("--train", "--valid", "--test", "--combinations", "--world"), 12),
    **{"--families": 4, "--limit": 4, "--updates": 2, "--long-range": 2, "--longest": 32, "--processes": 2},
    **{"--nproc-per-node": 2, "--mbr": 4, "--samples": 2},
}
"""Options that say how much is made, read or done, and how much is enough."""


def lines():
    """(page, line) of every line of a shell block, each once."""
    found = {}
    for block in blocks("bash"):
        page = block.id.rpartition("-")[0]
        if page.startswith("lectures/"):
            continue
        for line in block.values[0].replace("\\\n", " ").splitlines():
            plain = " ".join(line.partition(" #")[0].split())
            if plain:
                found.setdefault(plain, page)
    return [(page, line) for line, page in found.items()]


def reason(line):
    """Why a line is not run, or None."""
    return next((why for mark, why in ELSEWHERE.items() if mark in line), None)


def of_shell(line):
    return any(mark in f"{line} " for mark in SHELL)


def small(line):
    """The words of a line with what makes it long made small."""
    words = shlex.split(line)
    for place, word in enumerate(words[:-1]):
        if word in SIZES and words[place + 1].isdecimal():
            words[place + 1] = str(min(int(words[place + 1]), SIZES[word]))
    if words[1:3] in (
        ["data", "world"],
        ["data", "telegrams"],
    ):  # with checked types a sentence takes long
        words += [part for option in ("--train", "--valid", "--test") if option not in words for part in (option, "12")]
    if "heads" in words[:2]:  # which wants thirty questions for a role
        words = ["60" if before == "--limit" else word for before, word in zip(["", *words], words, strict=False)]
    words = [re.sub(r"^train\.steps=\d+$", "train.steps=3", word) for word in words]
    if ("train" not in words[:6] or "vectors" in words[:2]) and not {"compare", "distill", "bench", "prune"} & {
        *words[:3]
    }:
        return words
    if "--minutes" in words and "compare" not in words:
        del words[words.index("--minutes") : words.index("--minutes") + 2]
    given = [word.partition("=")[0] for word in words]
    preset = words[words.index("--preset") + 1] if "--preset" in words and "--from" not in words else None
    if "prune" in words[:2]:
        return [*words, *["--limit", "4"], *(["--steps", "2"] if "gates" in words else [])]
    if "bench" in words[:2]:
        words += ["--seconds", "0.01", "--batches", "1", "--set", "train.batch_tokens=1200"]
    elif "compare" in words[:2]:
        return _compared(words, given)
    if "--resume" not in words and "--only-data" not in words:
        words += brief(preset, given, own_data="--data" in words)
    return words


def _compared(words, given):
    """A comparison of narrow models on the bundled corpus."""
    words = [re.sub(r"^2,4(,8)?$", "1", word) for word in words]  # each depth is a training for every part gone without
    if "--minutes" in words:
        words[words.index("--minutes") + 1] = "0.02"
    extra = ["--limit", "2", "--no-growth"]
    if "--runs" not in words:
        settings = [
            "model.width=16",
            "data.world=40",
            "train.threads=1",
            "decode.max_len=4",
            "train.validate_sentences=2",
        ]
        extra += [part for one in settings if one.partition("=")[0] not in given for part in ("--set", one)]
    return [*words, *extra]


def names(words):
    """What is named by the words of a line and is not written by it."""
    written = {place + 1 for place, word in enumerate(words) if word in ("--out", "-o", "--output", ">", "--preset")}
    if words[1:2] == ["data"]:
        written |= {1, 2, 3}
    listed = [one for word in words if word.startswith("[") for one in re.findall(r'"([^"]+)"', word)]
    found = [word for place, word in enumerate(words) if place not in written and not word.startswith("-")] + listed
    return [
        *found,
        *(["pairs.tsv"] if "my.toml" in found else []),
        *(["talk.wav"] if "recordings.tsv" in found else []),
    ]


def run(page, line, materials, folder, monkeypatch):
    monkeypatch.chdir(folder)
    words = small(line)
    materials.lay_out(names(words), folder, f"{page} {line}")
    if of_shell(line):
        by_shell(line, folder)
        return
    assert words[0] == "regard", line
    try:
        code = main(words[1:])
    except SystemExit as end:
        code = end.code or 0
    assert code == 0, f"exit code {code}: {shlex.join(words)}"


def by_shell(line, folder):
    """The line as a shell runs it, `regard` and `torchrun` being those of this interpreter."""
    for name, module in (("regard", "regard"), ("torchrun", "torch.distributed.run")):
        script = folder / "bin" / name
        script.parent.mkdir(exist_ok=True)
        script.write_text(f'#!/bin/sh\nexec {sys.executable} -m {module} "$@"\n', encoding="utf-8")
        script.chmod(0o755)
    paths = {
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}",
    }
    words = [word if word in ("|", "<", ">") else shlex.quote(word) for word in small(line)]
    command, kept = " ".join(words), {**os.environ, **paths, "OMP_NUM_THREADS": "1"}
    if "regard serve" not in line:
        done = subprocess.run(["bash", "-c", command], env=kept, capture_output=True, text=True, timeout=200)
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return
    with subprocess.Popen(
        ["bash", "-c", f"exec {command} --port 0"],
        env=kept,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as server:
        said = []
        for one in server.stdout:
            said.append(one)
            if found := re.search(r"http://[\w.]+:(\d+)", one):
                break
        else:
            raise AssertionError(f"{command}\n{''.join(said)}")
        host = re.search(r"--allow-host (\S+)", line)  # where one is named, no other is answered
        with closing(http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=60)) as asked:
            asked.request("GET", "/health", headers={"Host": host[1]} if host else {})
            answer = asked.getresponse().status
        server.send_signal(signal.SIGTERM)
        server.communicate(timeout=60)
        assert (answer, server.returncode) == (200, 0), command


RUN = [(page, line) for page, line in lines() if reason(line) is None]


def is_long(line):
    return any(mark in line for mark in LONG)


LINES = [pytest.param(page, one, id=one, marks=[pytest.mark.long] if is_long(one) else []) for page, one in RUN]


@pytest.mark.usefixtures("few_held_out")
@pytest.mark.parametrize(("page", "line"), LINES)
def test_a_line_is_run(page, line, materials, tmp_path, monkeypatch, capsys):
    run(page, line, materials, tmp_path, monkeypatch)


def test_a_line_that_is_not_run_has_a_reason_and_a_reason_a_line():
    assert [mark for mark in ELSEWHERE if not any(mark in line for _, line in lines())] == []
    assert [mark for mark in LONG if not any(mark in line for _, line in RUN)] == []
    commands = [line for _, line in lines() if line.startswith("regard ")]
    assert sum(reason(line) is None for line in commands) > 0.97 * len(commands)


@pytest.mark.parametrize("why", sorted({why for why in ELSEWHERE.values() if ": " in why}))
def test_where_else_a_line_is_said_to_be_tried_is_there(why):
    path, _, test = why.partition(": ")[2].partition("::")
    text = (ROOT / path).read_text(encoding="utf-8")
    assert f"def {test}(" in text if test else text


def test_a_run_of_the_documents_is_written_down(tmp_path):
    line = next(one for _, one in RUN if "é" in one)
    names = {"test_a_line_is_run": ascii(line)[1:-1], "test_a_block_runs_alone": "python.md-2", "test_other": "x"}
    kinds = dict(zip(names, ("test_shell_blocks", "test_python_blocks", "test_shell_blocks"), strict=True))
    suite = ElementTree.Element("testsuite")
    for name, part in names.items():
        case = {"classname": f"tests.docs.{kinds[name]}", "name": f"{name}[{part}]", "time": "1.5"}
        ElementTree.SubElement(suite, "testcase", case)
    ElementTree.SubElement(suite[1], "failure")
    ElementTree.ElementTree(suite).write(tmp_path / "report.xml")
    text = written([tmp_path / "report.xml"], "abc1234", "2 CPU cores")
    page = next(page for page, one in RUN if one == line)
    for row in ("| shell lines | 1 | 0 |", "| Python blocks | 1 | 1 |", f"| {page} | 1 |", "| python.md |  | 1 |"):
        assert row in text, text
    assert "commit abc1234" in text
    assert "| `make test` | is the check itself" in text
