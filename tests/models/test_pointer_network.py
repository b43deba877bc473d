"""The pointer network: its equations, and the laws that every model that writes from a source obeys."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from regard.data.synthetic.puzzles import PUZZLES, batch_of, sample_problems
from regard.decode.beam import beam_search
from regard.decode.config import DecodeConfig
from regard.decode.greedy import greedy
from regard.decode.search import search
from regard.errors import ConfigError
from regard.look.watch import watch
from regard.models.pointer_network import PointerConfig, PointerNetwork, features
from regard.nn.batch import END, Pointings
from regard.training.objectives import Pointing

SMALL = PointerConfig(inputs=2, width=6, heads=2, feed_forward=7, encoder_layers=2, max_len=20)
POINTERS = {
    "attention, every position once": SMALL,
    "attention, until the end": replace(SMALL, complete=False, glimpses=1, octaves=2),
    "recurrent, every position once": replace(
        SMALL, encoder="recurrent", encoder_layers=1, glimpses=2, cell="gru-after"
    ),
    "recurrent, until the end": replace(SMALL, encoder="recurrent", complete=False, decoder_layers=2, score="general"),
}
every_pointer = pytest.mark.parametrize("name", POINTERS)
sizes = st.lists(st.integers(1, 5), min_size=1, max_size=4)
few = settings(max_examples=5)


def make(name):
    torch.manual_seed(0)
    return PointerNetwork(POINTERS[name]).eval()


def problems(sizes, complete, seed=0):
    random = np.random.default_rng(seed)
    rows = [random.random((size, 2)) for size in sizes]
    orders = [random.permutation(size)[: size if complete else (size + 1) // 2] for size in sizes]
    return rows, orders


@every_pointer
@few
@given(sizes=sizes)
def test_padding_never_changes_a_result(name, sizes):
    model = make(name)
    rows, orders = problems(sizes, model.config.complete)
    together = model.logits(Pointings.of(rows, orders))
    for index, (row, order) in enumerate(zip(rows, orders, strict=True)):
        alone = model.logits(Pointings.of([row], [order]))[0]
        assert_close(together[index, : len(order) + 1, : len(row) + 1], alone, atol=1e-5, rtol=1e-5)
        assert (together[index, :, len(row) + 1 :] == -torch.inf).all()


@every_pointer
@few
@given(sizes=sizes)
def test_predictions_sum_to_one_and_no_position_is_pointed_at_twice(name, sizes):
    model = make(name)
    rows, orders = problems(sizes, model.config.complete)
    probs = model.logits(Pointings.of(rows, orders)).exp()
    for index, order in enumerate(orders):
        own = probs[index, : len(order) + 1]
        assert_close(own.sum(-1), torch.ones(len(order) + 1))
        for step, place in enumerate(order):
            assert (own[step + 1 :, place + 1] == 0).all()
        if model.config.complete:
            assert (own[:-1, END] == 0).all()
            assert own[-1, END] == 1


@every_pointer
def test_a_later_choice_never_changes_an_earlier_prediction(name):
    model = make(name)
    rows, _ = problems([5], True)
    one = model.logits(Pointings.of(rows, [np.array([0, 1, 2, 3, 4])]))
    other = model.logits(Pointings.of(rows, [np.array([0, 1, 4, 3, 2])]))
    assert_close(one[:, :3], other[:, :3], atol=0, rtol=0)
    assert not torch.allclose(one[:, 3, 4], other[:, 3, 4])


@every_pointer
@few
@given(sizes=sizes)
def test_steps_equal_full_recomputation(name, sizes):
    model = make(name)
    rows, orders = problems(sizes, model.config.complete)
    batch = Pointings.of(rows, orders)
    full, state = model.logits(batch), model.start(Pointings.of(rows))
    for step in range(batch.labels.shape[1]):
        log_probs, state = model.step(batch.inputs[:, step], state)
        assert_close(log_probs, full[:, step], atol=1e-5, rtol=1e-5)


@every_pointer
@torch.no_grad()
def test_selected_rows_go_on_as_if_they_had_been_decoded_alone(name):
    model = make(name)
    rows, _ = problems([5, 4, 5], True)
    _, state = model.step(torch.full((3,), END), model.start(Pointings.of(rows)))
    state = state.select(torch.tensor([0, 0, 1, 1, 2, 2]))
    _, state = model.step(torch.tensor([1, 2, 3, 4, 5, 1]), state)
    state = state.select(torch.tensor([5, 4, 1, 1]), torch.tensor([2, 0])[[0, 1]])
    log_probs, _ = model.step(torch.tensor([2, 3, 1, 4]), state)
    for row, (source, path) in enumerate([(2, [0, 1]), (2, [4, 2]), (0, [1, 0]), (0, [1, 3])]):
        left = [place for place in range(len(rows[source])) if place not in path]
        alone = model.logits(Pointings.of([rows[source]], [np.array(path + left)]))
        assert_close(log_probs[row, : alone.shape[-1]], alone[0, 2], atol=1e-5, rtol=1e-5)


@every_pointer
def test_splitting_a_batch_changes_no_gradient_and_every_parameter_is_used(name):
    model = make(name).train()
    rows, orders = problems([3, 5, 1, 4], model.config.complete)
    gradients = []
    for parts in ([slice(0, 4)], [slice(0, 1), slice(1, 4)]):
        total = sum(Pointing().loss(model, Pointings.of(rows[part], orders[part])).total for part in parts)
        gradients.append(torch.autograd.grad(total, list(model.parameters()), allow_unused=True))
    names = [name for name, _ in model.named_parameters()]
    for parameter, one, other in zip(names, *gradients, strict=True):
        assert one is not None, parameter
        assert_close(one, other, atol=1e-5, rtol=1e-4)


@every_pointer
def test_a_beam_of_one_is_greedy(name):
    model = make(name)
    rows, _ = problems([3, 5, 1, 4], True)
    first, config = torch.full((4,), END), DecodeConfig(beam=1, top_beams=1)
    searched = beam_search(model, model.start(Pointings.of(rows)), first, eos=END, config=config, max_len=6)
    found = greedy(model, model.start(Pointings.of(rows)), first, eos=END, config=config, max_len=6)
    assert [best[0].tokens for best in searched] == [best.tokens for best in found]


@pytest.mark.parametrize("config", [{"beam": 1}, {"beam": 4}, {"temperature": 1.0, "beam": 1, "samples": 3}])
@every_pointer
def test_untrained_answers_are_valid_however_they_are_searched_for(name, config):
    model = make(name)
    rows, _ = problems([3, 5, 1, 4, 5, 2], True)
    found = search(
        model,
        model.start(Pointings.of(rows)),
        torch.full((6,), END),
        eos=END,
        config=DecodeConfig(top_beams=1, **config),
        max_len=torch.tensor([len(row) + 1 for row in rows]),
    )
    for row, hypotheses in zip(rows, found, strict=True):
        for hypothesis in hypotheses:
            assert hypothesis.finished
            assert len(set(hypothesis.tokens)) == len(hypothesis.tokens)
            assert set(hypothesis.tokens) <= set(range(1, len(row) + 1))
            if model.config.complete:
                assert len(hypothesis.tokens) == len(row)


@every_pointer
def test_watching_changes_no_output_and_changed_weights_are_used(name):
    model = make(name)
    rows, orders = problems([4, 2], model.config.complete)
    batch = Pointings.of(rows, orders)
    expected = model.logits(batch).exp()
    with watch(model, "pointing") as trace:
        assert_close(model.logits(batch).exp(), expected, atol=1e-6, rtol=1e-5)
    assert_close(trace.weights("pointing")[:, 0], expected)
    with watch(model, "pointing", edit=lambda name, weights: torch.full_like(weights, 0.25)):
        assert_close(model.logits(batch).exp(), torch.full_like(expected, 0.25))


def test_the_pointing_is_the_papers():
    """u_j = v' tanh(W1 e_j + W2 d_i), p = softmax(u): Vinyals et al. 2015, equation 3, in double precision."""
    torch.manual_seed(0)
    model = PointerNetwork(replace(SMALL, complete=False, encoder="recurrent", encoder_layers=1)).double().eval()
    values = torch.rand(1, 4, 2, dtype=torch.float64)
    batch = Pointings.of([values[0].numpy()], [np.array([2, 0])])
    batch = replace(batch, source=replace(batch.source, values=values))
    found = model.logits(batch)
    source, states = model.encode(batch.source)
    score, decoder = model.pointing.score, model.decoder
    chosen, read = set(), model.start_vector[None]
    for step, choice in enumerate([3, 1, END]):
        state, states = decoder.step(read, states)
        u = torch.stack(
            [
                score.vector.weight[0] @ torch.tanh(score.memory.weight @ memory + score.query.weight @ state[0])
                for memory in source.memory[0]
            ]
        )
        u[list(chosen)] = -torch.inf
        assert_close(found[0, step], u - u.logsumexp(0))
        chosen.add(choice)
        read = source.read[:, choice]


def test_gradients_agree_with_finite_differences():
    torch.manual_seed(0)
    model = PointerNetwork(replace(SMALL, complete=False, glimpses=1, octaves=1)).double()
    rows, orders = problems([4], False)
    batch = Pointings.of(rows, orders)
    values = batch.source.values.double().requires_grad_()

    def loss(values):
        return Pointing().loss(model, replace(batch, source=replace(batch.source, values=values))).total

    assert torch.autograd.gradcheck(loss, (values,))


def test_without_an_order_of_its_own_the_encoder_cannot_tell_how_items_were_listed():
    model = make("attention, until the end")
    rows, _ = problems([5], True)
    order, other = np.array([3, 0, 1]), np.array([4, 2, 0, 3, 1])
    one = model.logits(Pointings.of(rows, [order]))
    moved = model.logits(Pointings.of([rows[0][other]], [np.array([list(other).index(place) for place in order])]))
    assert_close(moved[0, :, 1:], one[0, :, 1:][:, other], atol=1e-5, rtol=1e-5)


def test_octaves_show_each_number_as_sines_and_cosines():
    found = features(torch.tensor([[[0.25]]]), 2)
    assert_close(found[0, 0], torch.tensor([0.25, 0.5**0.5, 1.0, 0.5**0.5, 0.0]), atol=1e-6, rtol=0)


def test_what_cannot_be_is_refused():
    with pytest.raises(ConfigError, match="glimpses=-1"):
        replace(SMALL, glimpses=-1)
    with pytest.raises(ConfigError, match="width=7 must be"):
        replace(SMALL, width=7, heads=7, encoder="recurrent")


def test_it_learns():
    torch.manual_seed(0)
    model = PointerNetwork(PointerConfig(inputs=1, width=32, heads=2, feed_forward=32, encoder_layers=1))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    batch = batch_of(sample_problems(PUZZLES["sort"], 64, (4, 4), seed=1, part="train"))
    losses = []
    for _ in range(40):
        loss = Pointing().loss(model, batch).total / batch.count
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 3
