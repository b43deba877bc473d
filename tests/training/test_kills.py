"""Trainings killed outright: whatever file operation or instant it was, restarts end with an unbroken run's bytes."""

import pytest
import torch
from kill_harness import KINDS, Harness, every

pytestmark = pytest.mark.skipif(
    torch.cuda.is_available(), reason="torch's autograd cannot be forked once it has threads for a GPU"
)


def test_twenty_kills_change_nothing(tmp_path):
    """Fifteen file operations all over an unbroken run, five kills in a run, then random instants."""
    harness = Harness("language", tmp_path, "train.steps=3", "train.save_every=1", "train.validate_every=2")
    apart = harness.operations() // 8  # what is taken up begins to count anew, some operations further on
    for more in (0, 3, 6):
        harness.kill_at(*[apart + more] * 5)
    assert harness.kills > 12
    while harness.kills < 20:
        harness.kill_after(*(part * harness.usual for part in (0.05, 0.1, 0.2, 0.3, 0.4, 0.6)))


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_a_kill_at_every_file_operation_and_seventy_at_random_change_nothing(kind, tmp_path):
    found = every(kind, tmp_path, 70)
    assert found["killed at operations"] == found["operations"] > 100
    assert found["killed at random"] >= 70
