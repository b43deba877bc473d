"""CUDA graphs. What surrounds a captured graph is tested anywhere; that it is right, where there is a GPU."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close
from training_toys import tiny, work

from regard.models.elmo import Elmo, ElmoConfig
from regard.nn.batch import Tokens, Windows, halves
from regard.training.cuda_graphs import MOST, GraphReplay, form, tensors
from regard.training.loop import fit, train_step
from regard.training.objectives import BidirectionalLanguageModelling, SequenceToSequence


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


class Pretended(GraphReplay):
    """Records as little as a machine without a GPU can: the passes are made anew at each play.

    As with captured graphs, all leave their gradients in the same memory: each writes over what the last left.
    """

    left = None

    def _capture(self, batch, count):
        self._clear()
        recorded = self

        class Playing:
            names: list[str]

            def play(self, batch, count):
                for gradient in recorded.left or []:
                    gradient.fill_(torch.nan)
                given = [parameter.grad for parameter in recorded.parameters]
                recorded._clear()
                sums, self.names = recorded._pass(batch, torch.tensor(float(count)))
                recorded.left = [parameter.grad for parameter in recorded.parameters]
                for parameter, gradient in zip(recorded.parameters, given, strict=True):
                    parameter.grad = gradient
                return sums, recorded.left

        return Playing()


def pretended(model, task=None):
    return Pretended(model, task or SequenceToSequence(), torch.device("cpu"), torch.float32)


def test_batches_in_training_are_taken_from_their_first_time_on():
    model, batch = tiny(), work(packed=True)
    replay = pretended(model)
    assert replay.takes([batch])
    assert replay.takes([batch, *halves(batch)])
    model.eval()
    assert not replay.takes([batch])


def test_no_more_forms_are_captured_than_there_is_room_for():
    model, batch = tiny(), work(packed=True)
    replay = pretended(model)
    narrow = [replace(batch, labels=batch.labels[:, :width]) for width in range(1, MOST + 2)]
    for other in narrow[:MOST]:
        replay._graphs[form(other)] = None
    assert not replay.takes([narrow[MOST]])
    assert not replay.takes(narrow[:2])  # what there was no memory for
    replay.forget()
    assert replay.takes(narrow[:MOST])
    assert not replay.takes(narrow)
    assert replay.takes([narrow[MOST]])


def test_what_is_tried_before_a_capture_leaves_nothing_behind():
    batch = work(packed=True)

    def trained(start, replayed):
        model = tiny(dropout=0.3)
        optimizer = torch.optim.SGD(model.parameters(), 0.5)
        # Each piece of the training has a graph of its own, as after a stop.
        for first in start:
            replay = pretended(model, SequenceToSequence(0.1)) if replayed else None
            updates = [[batch]] * 3
            list(
                fit(
                    model,
                    SequenceToSequence(0.1),
                    updates,
                    optimizer,
                    lambda n: 0.5,
                    start=first,
                    seed=3,
                    replay=replay,
                )
            )
        return torch.cat([value.detach().flatten() for value in model.parameters()])

    assert torch.equal(trained([0, 3], replayed=True), trained([0, 3], replayed=False))


def updates_of(batch):
    """Updates of one, two and three batches of unlike counts and forms."""
    one, other = halves(batch)
    return [[batch], [one, other], [other, one, batch], [one]]


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_the_parts_of_an_update_are_replayed_as_they_are_trained_on(dropout):
    def trained(replayed):
        model = tiny(dropout=dropout)
        optimizer = torch.optim.SGD(model.parameters(), 0.5)
        replay = pretended(model, SequenceToSequence(0.1)) if replayed else None
        updates = updates_of(work(packed=True))
        steps = list(fit(model, SequenceToSequence(0.1), updates, optimizer, lambda n: 0.5, clip=1.0, replay=replay))
        assert replay is None or replay._graphs
        weights = torch.cat([value.detach().flatten() for value in model.parameters()])
        return weights, torch.stack([step.loss for step in steps]), torch.stack([step.grad_norm for step in steps])

    for mine, theirs in zip(trained(True), trained(False), strict=True):
        assert_close(mine, theirs, atol=1e-6, rtol=1e-5)


def test_an_update_whose_sums_do_not_fit_the_memory_is_trained_on_without():
    class Full(dict):
        def __setitem__(self, parameter, sums):
            raise torch.OutOfMemoryError("full")

    one, other = halves(work(packed=True))
    losses = []
    for memory in (True, False):
        model = tiny(dropout=0.3)
        replay = pretended(model, SequenceToSequence(0.1))
        if not memory:
            replay._sums = Full()
        [step] = fit(
            model,
            SequenceToSequence(0.1),
            [[one, other]],
            torch.optim.SGD(model.parameters(), 0.5),
            lambda n: 0.5,
            replay=replay,
        )
        assert replay.takes([one, other]) == memory
        losses.append((step.loss, torch.cat([value.detach().flatten() for value in model.parameters()])))
    assert_close(losses[0], losses[1])


def test_what_is_replayed_is_divided_by_the_counts_of_the_losses():
    """The forward and the backward model of ELMo make two predictions of a token."""
    model = Elmo(ElmoConfig(vocab_size=17, width=6, dropout=0.0, max_len=40))
    tokens = Tokens.of([[4, 5, 6, 7], [8, 9, 10, 11]])
    batch = Windows(tokens, tokens.ids.roll(-1, 1), tokens.ids.numel())
    task = BidirectionalLanguageModelling()
    before = [value.detach().clone() for value in model.parameters()]
    moved = []
    for replay in (None, pretended(model, task)):
        for value, start in zip(model.parameters(), before, strict=True):
            value.data.copy_(start)
        step = train_step(model, task, [batch, batch], torch.optim.SGD(model.parameters(), 1.0), replay=replay)
        loss = task.loss(model, batch)
        assert step.count == 2 * loss.count == 32
        moved.append((step.loss, torch.cat([value.detach().flatten() for value in model.parameters()])))
    assert_close(moved[0], moved[1])


def test_a_batch_too_large_to_record_is_trained_on_in_halves():
    batch = work(packed=True)
    rows = batch.labels.shape[0]

    class Small:
        def loss(self, model, batch):
            if batch.labels.shape[0] == rows:
                raise torch.OutOfMemoryError("too large")
            return SequenceToSequence(0.1).loss(model, batch)

    results = []
    for task in (SequenceToSequence(0.1), Small()):
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
        task, device = SequenceToSequence(0.1), torch.device("cuda")
        replay = GraphReplay(model, task, device, torch.float32) if replayed else None
        updates = [[batch]] * 6 + updates_of(batch) + [[batch, batch]] * 3 + [[batch]] * 3
        optimizer = torch.optim.Adam(model.parameters(), 1e-2)
        steps = list(fit(model, task, updates, optimizer, lambda n: 1e-2, clip=1.0, device=device, replay=replay))
        return torch.stack([step.loss for step in steps]), model.head.weight.detach()

    for mine, theirs in zip(trained(True), trained(False), strict=True):
        assert_close(mine, theirs)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="elsewhere they are not skipped")
def test_several_processes_are_tested_where_the_gpu_is_hidden():
    """Those tests fork, which torch's autograd does not survive once it has threads for a GPU."""
    here, hidden = Path(__file__).parent, os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    files = [str(here / name) for name in ("test_processes.py", "test_process_runs.py", "test_kills.py")]
    ended = subprocess.run([sys.executable, "-m", "pytest", "-q", *files], env=hidden, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout[-3000:]
    assert "skipped" not in ended.stdout
