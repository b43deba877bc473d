import math
import warnings

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close
from training_toys import tiny

from regard.nn.batch import Pairs, Tokens
from regard.training.config import TrainConfig
from regard.training.loop import clip_gradients, fit, seed_step, train_step, validate
from regard.training.objectives import Loss, SequenceToSequence, precision_context
from regard.training.optim import ExponentialAverage, make_optimizer, mean_weights
from regard.training.schedule import learning_rate


def pairs(rows):
    sources, targets = [row[0] for row in rows], [row[1] for row in rows]
    return Pairs(Tokens.of(sources), Tokens.of(targets), sum(len(target) - 1 for target in targets))


row = st.tuples(
    st.lists(st.integers(4, 16), min_size=1, max_size=6),
    st.lists(st.integers(4, 16), min_size=1, max_size=6).map(lambda ids: [1, *ids, 2]),
)


@given(rows=st.lists(row, min_size=2, max_size=8), data=st.data())
def test_splitting_a_batch_changes_no_gradient(rows, data):
    cut = data.draw(st.integers(1, len(rows) - 1))
    results = []
    for parts in ([pairs(rows)], [pairs(rows[:cut]), pairs(rows[cut:])]):
        model = tiny()
        before = {name: value.detach().clone() for name, value in model.named_parameters()}
        step = train_step(model, SequenceToSequence(0.1), parts, torch.optim.SGD(model.parameters(), lr=1.0))
        moved = {name: value.detach() - before[name] for name, value in model.named_parameters()}
        results.append((step, moved))
    (whole, together), (split, apart) = results
    assert whole.count == split.count
    assert_close(whole.loss, split.loss)
    assert_close(whole.grad_norm, split.grad_norm, atol=1e-5, rtol=1e-4)
    for name in together:
        assert_close(together[name], apart[name], atol=1e-6, rtol=1e-4)


class Twice:
    """A task that makes two predictions of what a batch counts as one."""

    def predictions(self, batch):
        return 2 * batch.count

    def loss(self, model, batch):
        one = SequenceToSequence().loss(model, batch)
        return Loss(2 * one.total, 2 * one.count, one.parts)


def test_an_update_is_divided_by_the_counts_of_its_losses():
    parts = [pairs([([5, 6, 2], [1, 7, 8, 2])]), pairs([([9, 2], [1, 10, 2]), ([4, 2], [1, 2])])]
    found = []
    for task in (SequenceToSequence(), Twice()):
        model = tiny()
        step = train_step(model, task, parts, torch.optim.SGD(model.parameters(), lr=1.0))
        found.append((step.loss, step.grad_norm, torch.cat([value.detach().flatten() for value in model.parameters()])))
    assert_close(found[0], found[1])
    assert step.count == 2 * sum(part.count for part in parts)
    with pytest.raises(AssertionError, match="divided by the counts of its losses"):
        train_step(model, _Lying(), parts, torch.optim.SGD(model.parameters(), lr=1.0))


class _Lying(Twice):
    def predictions(self, batch):
        return batch.count


def test_loss_falls_to_what_a_batch_can_be_learned_to():
    model = tiny()
    batch = pairs([([5, 6, 2], [1, 7, 8, 2]), ([9, 2], [1, 10, 2])])
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    steps = list(fit(model, SequenceToSequence(), [[batch]] * 150, optimizer, lambda number: 1e-2))
    assert steps[0].loss > 2
    assert steps[-1].loss < 0.05
    assert validate(model, SequenceToSequence(), [batch])["nll"] == pytest.approx(float(steps[-1].loss), abs=0.01)
    assert [step.number for step in steps] == list(range(1, 151))


def test_bfloat16_beside_norms_in_float32_warns_of_nothing():
    model = tiny(qk_norm=True, norm="rms")
    torch.set_warn_always(True)  # else torch says it once in a process
    try:
        step = train_step(
            model,
            SequenceToSequence(),
            [pairs([([5, 6, 2], [1, 7, 8, 2])])],
            torch.optim.SGD(model.parameters(), lr=1.0),
            precision=torch.bfloat16,
        )
    finally:
        torch.set_warn_always(False)
    assert math.isfinite(float(step.loss))


def test_training_in_bfloat16_repeats_no_warning_that_was_shown():
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("default")
        for _ in range(3):
            with precision_context("cpu", torch.bfloat16):
                warnings.warn("said once", stacklevel=1)
    assert [str(one.message) for one in shown] == ["said once"]


def test_dropout_depends_on_the_seed_and_the_step_alone():
    batch = pairs([([5, 6, 2], [1, 7, 8, 2])])

    def losses(start, count, seed=3):
        model = tiny(dropout=0.3)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        return [
            float(step.loss)
            for step in fit(
                model, SequenceToSequence(), [[batch]] * count, optimizer, lambda n: 0.0, start=start, seed=seed
            )
        ]

    assert losses(0, 6)[4:] == losses(4, 2)
    assert losses(0, 2) != losses(0, 2, seed=4)


def test_no_two_updates_sample_alike():
    drawn = set()
    for seed in range(3):
        for number in range(1, 5):
            seed_step(seed, number)
            drawn.add(float(torch.rand(())))
    assert len(drawn) == 12


def test_a_validation_is_the_mean_over_predictions_with_dropout_off():
    model, task = tiny(dropout=0.5), SequenceToSequence(0.1)
    batches = [pairs([([5, 6, 2], [1, 7, 8, 9, 2]), ([7, 2], [1, 6, 6, 5, 2])]), pairs([([9, 2], [1, 10, 2])])]
    model.eval()
    losses = [task.loss(model, batch) for batch in batches]
    count = sum(loss.count for loss in losses)
    for training in (True, False):
        found = validate(model.train(training), task, batches)
        assert model.training is training
        assert found["loss"] == pytest.approx(float(sum(loss.total.detach() for loss in losses)) / count)
        assert found["nll"] == pytest.approx(float(sum(loss.parts["nll"] for loss in losses)) / count)


def test_each_group_has_its_share_of_the_rate():
    model = tiny()
    first, *rest = model.parameters()
    groups = [{"params": [first], "share": 0.25}, {"params": rest}]
    optimizer = torch.optim.SGD(groups, lr=9.0)
    [step] = fit(model, SequenceToSequence(), [[pairs([([5, 2], [1, 6, 2])])]], optimizer, lambda number: 0.1 * number)
    assert [group["lr"] for group in optimizer.param_groups] == [0.025, 0.1]
    assert step.learning_rate == 0.1


def test_clipping_bounds_the_update():
    model = tiny()
    before = torch.cat([value.detach().flatten() for value in model.parameters()])
    step = train_step(
        model, SequenceToSequence(), [pairs([([5, 2], [1, 6, 2])])], torch.optim.SGD(model.parameters(), 1.0), clip=0.01
    )
    after = torch.cat([value.detach().flatten() for value in model.parameters()])
    assert step.grad_norm > 0.01
    assert (after - before).norm().item() == pytest.approx(0.01, rel=1e-3)


def test_the_papers_schedule():
    def rate(step):
        return learning_rate(step, kind="paper", peak=1.0, warmup=4000, total=100_000, width=512)

    assert rate(4000) == pytest.approx(512**-0.5 * 4000**-0.5)
    assert rate(1000) == pytest.approx(rate(4000) / 4)
    assert rate(16000) == pytest.approx(rate(4000) / 2)


@pytest.mark.parametrize(
    ("kind", "middle", "end"),
    [
        ("cosine", 0.55, 0.1),
        ("linear", 0.55, 0.1),
        ("constant", 1.0, 1.0),
        ("inverse-sqrt", math.sqrt(100 / 550), math.sqrt(0.1)),
    ],
)
def test_schedules_warm_up_and_come_down(kind, middle, end):
    def rate(step):
        return learning_rate(step, kind=kind, peak=2.0, warmup=100, total=1000, floor=0.1)

    assert rate(50) == pytest.approx(1.0)
    assert rate(100) == pytest.approx(2.0)
    assert rate(550) == pytest.approx(2.0 * middle)
    assert rate(1000) == pytest.approx(2.0 * end)


def test_a_fall_of_one_step_falls_all_the_way():
    options = {"peak": 2.0, "warmup": 4, "total": 5, "floor": 0.25}
    assert learning_rate(4, kind="linear", **options) == 2.0
    assert [learning_rate(step, kind="linear", **options) for step in (5, 6)] == [0.5, 0.5]


def test_adamw_decays_matrices_only():
    model = tiny()
    optimizer = make_optimizer(model, TrainConfig(optimizer="adamw", weight_decay=0.1))
    decayed = {id(p): group["weight_decay"] for group in optimizer.param_groups for p in group["params"]}
    for name, parameter in model.named_parameters():
        assert decayed[id(parameter)] == (0.1 if parameter.ndim == 2 else 0.0), name


def test_the_exponential_average_is_its_formula_and_gives_the_weights_back():
    model = tiny()
    average = ExponentialAverage(model, 0.5)
    name = "source.tokens.weight"
    start = average.weights[name].clone()
    with torch.no_grad():
        model.get_parameter(name).add_(1.0)
    average.update(1000)
    assert_close(average.weights[name], start + 0.5)
    young = ExponentialAverage(model, 0.999)
    young.weights[name] = start.clone()
    young.update(2)  # keeps (1 + 2) / (10 + 2) of the old
    assert_close(young.weights[name], start + 0.75)
    with average.applied():
        assert_close(model.get_parameter(name).detach(), start + 0.5)
    assert_close(model.get_parameter(name).detach(), start + 1.0)


def test_the_mean_of_checkpoints():
    weights = [{"a": torch.full((2,), float(value))} for value in (1, 2, 6)]
    assert_close(mean_weights(iter(weights))["a"], torch.full((2,), 3.0))


@pytest.mark.parametrize("clip", [0.0, 0.1, 1e6])
def test_clipping_is_torchs_own(clip):
    torch.manual_seed(0)
    sizes = [(3, 4), (5,), (2, 2)]
    ours, theirs = ([torch.nn.Parameter(torch.zeros(size)) for size in sizes] for _ in range(2))
    for mine, other in zip(ours, theirs, strict=True):
        mine.grad = torch.randn(mine.shape)
        other.grad = mine.grad.clone()
    untouched = torch.nn.Parameter(torch.zeros(2))
    norm = clip_gradients([*ours, untouched], clip)
    assert_close(norm, torch.nn.utils.clip_grad_norm_(theirs, clip or torch.inf))
    for mine, other in zip(ours, theirs, strict=True):
        assert_close(mine.grad, other.grad)
    assert untouched.grad is None
