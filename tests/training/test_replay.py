"""Recorded gradients. What a recording is made of is tested anywhere; that it is right, where there is a GPU."""

from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close
from training_toys import tiny, work

from regard.nn.rows import halves
from regard.training.loop import fit
from regard.training.replay import WARM, Replay, form, tensors
from regard.training.tasks import Translation


def test_batches_of_one_form_are_told_from_others():
    batch = work(packed=True)
    assert form(replace(batch, count=1, tokens=2)) == form(batch)
    assert form(halves(batch)[0]) != form(batch)
    assert form(work()) != form(batch)
    padded = work()
    assert form(replace(padded, source=replace(padded.source, padded=not padded.source.padded))) != form(padded)


def test_all_tensors_of_a_batch_are_found():
    batch = work(packed=True)
    assert len(list(tensors(batch))) == 7
    assert sum(one.numel() for one in tensors(batch)) == 3 * (batch.source.ids.numel() + batch.labels.numel()) + (
        batch.labels.numel()
    )


def test_only_one_batch_of_the_recorded_form_is_taken_once_all_is_warm():
    model, batch = tiny(), work(packed=True)
    replay = Replay(model, Translation(), torch.device("cpu"), torch.float32)
    assert [replay.takes([batch]) for _ in range(WARM + 2)] == [False] * WARM + [True, True]
    assert not replay.takes([batch, batch])
    assert not replay.takes([halves(batch)[0]])
    model.eval()
    assert not replay.takes([batch])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_replayed_training_is_training(dropout):
    def trained(replayed):
        model, batch = tiny(dropout=dropout).cuda(), work(packed=True)
        task, device = Translation(0.1), torch.device("cuda")
        replay = Replay(model, task, device, torch.float32) if replayed else None
        updates = [[batch]] * 6 + [[halves(batch)[0]]] + [[batch]] * 3
        optimizer = torch.optim.Adam(model.parameters(), 1e-2)
        steps = list(fit(model, task, updates, optimizer, lambda n: 1e-2, clip=1.0, device=device, replay=replay))
        return torch.stack([step.loss for step in steps]), model.head.weight.detach()

    for mine, theirs in zip(trained(True), trained(False), strict=True):
        assert_close(mine, theirs)
