"""What does not fit the memory is split, and trains the same."""

from dataclasses import dataclass

import pytest
import torch
from torch.testing import assert_close
from training_toys import tiny, work

from regard.nn.batch import Pairs, doubled, halves
from regard.training.loop import train_step, validate
from regard.training.objectives import SequenceToSequence


def batches():
    return work(), work(packed=True)


@dataclass
class Small:
    """A device with room for so many rows, that runs out in the forward or in the backward pass."""

    rows: int
    where: str = "forward"
    tries: int = 0

    def loss(self, model, batch):
        self.tries += 1
        large = batch.labels.shape[0] > self.rows
        if large and self.where == "forward":
            raise torch.OutOfMemoryError("too large")
        loss = SequenceToSequence(0.1).loss(model, batch)
        if large:
            # Some gradients are in place by the time that this one fails.
            loss.total.register_hook(lambda grad: None)
            next(iter(model.parameters())).register_post_accumulate_grad_hook(self._fail)
        return loss

    def _fail(self, parameter):
        if self.where == "backward" and self.tries == 1:
            raise torch.OutOfMemoryError("too large")


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("where", ["forward", "backward"])
def test_a_batch_that_does_not_fit_is_split_and_trains_the_same(packed, where):
    batch = batches()[packed]
    rows = batch.labels.shape[0]
    assert rows > 4
    results = []
    for task in (SequenceToSequence(0.1), Small(rows // 3 if where == "forward" else rows // 2 + 1, where)):
        model = tiny()
        step = train_step(model, task, [batch], torch.optim.SGD(model.parameters(), lr=1.0))
        results.append((step, torch.cat([value.detach().flatten() for value in model.parameters()])))
    (whole, one), (split, other) = results
    assert whole.splits == 0
    assert split.splits == (3 if where == "forward" else 1)
    assert whole.count == split.count
    assert_close(whole.loss, split.loss)
    assert_close(whole.parts["nll"], split.parts["nll"])
    assert_close(one, other, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("packed", [False, True])
def test_a_batch_that_does_not_fit_is_validated_in_parts(packed):
    batch = batches()[packed]
    whole = validate(tiny(), SequenceToSequence(0.1), [batch, batch])
    task = Small(batch.labels.shape[0] // 3)
    split = validate(tiny(), task, [batch, batch])
    assert task.tries > 4
    assert split == pytest.approx(whole, rel=1e-5)
    with pytest.raises(torch.OutOfMemoryError):
        validate(tiny(), Small(0), [batch])


def test_one_row_that_does_not_fit_is_an_error():
    model = tiny()
    with pytest.raises(torch.OutOfMemoryError):
        train_step(model, Small(0), [batches()[0]], torch.optim.SGD(model.parameters(), lr=1.0))


@pytest.mark.parametrize("packed", [False, True])
def test_halves_are_the_batch_and_count_what_they_hold(packed):
    batch = batches()[packed]
    first, second = halves(batch)
    assert first.count + second.count == batch.count
    assert first.tokens + second.tokens == batch.tokens
    assert torch.equal(torch.cat((first.labels, second.labels)), batch.labels)
    assert torch.equal(torch.cat((first.source.ids, second.source.ids)), batch.source.ids)
    twice = doubled(batch)
    assert torch.equal(twice.inputs.ids, batch.inputs.ids.repeat(2, 1))
    (alone,) = halves(halves(halves(halves(halves(first)[0])[0])[0])[0])
    assert alone.labels.shape[0] == 1
    assert isinstance(alone, Pairs) != packed
