"""Trainings killed outright: whatever file operation or instant it was, restarts end with an unbroken run's bytes."""

import pytest
import torch
from kill_harness import KINDS, Harness, every

pytestmark = pytest.mark.skipif(
    torch.cuda.is_available(), reason="torch's autograd cannot be forked once it has threads for a GPU"
)


def test_twenty_kills_change_nothing(tmp_path):
    """Every tenth file operation of an unbroken run, three kills in a run, then random instants."""
    harness = Harness("language", tmp_path)
    numbers = list(range(1, harness.operations(), 10))
    assert len(numbers) > 12
    while numbers:
        # The later ones first: what is taken up has fewer operations before it.
        some, numbers = numbers[:1] + numbers[-2:], numbers[1:-2]
        harness.kill_at(*reversed(some))
    while harness.kills < 20:
        harness.kill_after(*(part * harness.usual for part in (0.7, 0.4, 0.3, 0.2)))


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_a_kill_at_every_file_operation_and_seventy_at_random_change_nothing(kind, tmp_path):
    found = every(kind, tmp_path, 70)
    assert found["killed at operations"] == found["operations"] > 100
    assert found["killed at random"] >= 70
