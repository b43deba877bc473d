"""Recorded gradients. What a recording is made of is tested anywhere; that it is right, where there is a GPU."""

from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close
from training_toys import tiny, work

from regard.nn.rows import halves
from regard.training.loop import fit, train_step
from regard.training.replay import MOST, Replay, form, tensors
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


class Pretended(Replay):
    """Records as little as a machine without a GPU can: the passes are made anew at each play."""

    def _record(self, batch, count):
        self._clear()
        recorded = self

        class Playing:
            def play(self, batch, parameters):
                recorded._clear()
                sums, names = recorded._pass(batch, torch.tensor(float(batch.count)))
                total, *named = sums.unbind()
                return total, dict(zip(names, named, strict=True))

        return Playing()


def pretended(model, task=None):
    return Pretended(model, task or Translation(), torch.device("cpu"), torch.float32)


def test_one_batch_in_training_is_taken_from_its_first_time_on():
    model, batch = tiny(), work(packed=True)
    replay = pretended(model)
    assert replay.takes([batch])
    assert not replay.takes([batch, batch])
    model.eval()
    assert not replay.takes([batch])


def test_no_more_forms_are_recorded_than_there_is_room_for():
    model, batch = tiny(), work(packed=True)
    replay = pretended(model)
    narrow = [replace(batch, labels=batch.labels[:, :width]) for width in range(1, MOST + 2)]
    for other in narrow[:MOST]:
        replay._recordings[form(other)] = None
    assert not replay.takes([narrow[MOST]])
    replay.forget()
    assert replay.takes([narrow[MOST]])


def test_what_is_tried_before_a_recording_leaves_nothing_behind():
    batch = work(packed=True)

    def trained(start, replayed):
        model = tiny(dropout=0.3)
        optimizer = torch.optim.SGD(model.parameters(), 0.5)
        # Each piece of the training has a recording of its own, as after a stop.
        for first in start:
            replay = pretended(model, Translation(0.1)) if replayed else None
            updates = [[batch]] * 3
            list(fit(model, Translation(0.1), updates, optimizer, lambda n: 0.5, start=first, seed=3, replay=replay))
        return torch.cat([value.detach().flatten() for value in model.parameters()])

    assert torch.equal(trained([0, 3], replayed=True), trained([0, 3], replayed=False))


def test_a_batch_too_large_to_record_is_trained_on_in_halves():
    batch = work(packed=True)
    rows = batch.labels.shape[0]

    class Small:
        def loss(self, model, batch):
            if batch.labels.shape[0] == rows:
                raise torch.OutOfMemoryError("too large")
            return Translation(0.1).loss(model, batch)

    results = []
    for task in (Translation(0.1), Small()):
        model = tiny()
        replay = pretended(model, task)
        step = train_step(model, task, [batch], torch.optim.SGD(model.parameters(), 1.0), replay=replay)
        results.append((step, torch.cat([value.detach().flatten() for value in model.parameters()])))
    (whole, one), (split, other) = results
    assert (whole.splits, split.splits) == (0, 1)
    assert not replay.takes([batch])
    assert_close(whole.loss, split.loss)
    assert_close(one, other, atol=1e-5, rtol=1e-4)


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
