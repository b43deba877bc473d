"""What every encoder must obey. A new one joins by a line in model_zoo.py."""

from typing import get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from model_zoo import ENCODERS, make, texts
from torch.testing import assert_close

from regard.errors import ConfigError
from regard.look.watch import attentions, watch
from regard.models.bert import Bert, BertConfig
from regard.nn.batch import LabelledTexts, MaskedTexts, Texts, Tokens, halves
from regard.nn.losses.cross_entropy import IGNORE
from regard.nn.positions import PositionKind
from regard.training.objectives import Answering, Classification, MaskedLanguageModelling, Tagging

every_encoder = pytest.mark.parametrize("name", ENCODERS)
few = settings(max_examples=5)
lengths = st.lists(st.integers(2, 9), min_size=1, max_size=4)
TASKS = {
    "pretraining": MaskedLanguageModelling,
    "words": MaskedLanguageModelling,
    "classes": Classification,
    "tags": Tagging,
}


def rows_of(sizes):
    generator = torch.Generator().manual_seed(1)
    return [torch.randint(4, 19, (size,), generator=generator).tolist() for size in sizes]


def question(model, sizes=(7, 3, 5, 9)):
    """A batch with labels of the model's own kind, and the task that goes with it."""
    inputs, B, S = texts(rows_of(sizes)), len(sizes), max(sizes)
    head, generator = model.config.head, torch.Generator().manual_seed(2)
    if head in ("pretraining", "words"):
        places, labels = torch.tensor([[1, 2]] * B), torch.tensor([[5, IGNORE], [6, 7], [8, IGNORE], [9, 10]])
        elsewhere = torch.tensor([0, 1, 1, 0]) if head == "pretraining" else None
        return MaskedLanguageModelling(), MaskedTexts(inputs, places, labels, elsewhere, 6, 1.5)
    if head == "classes":
        return Classification(), LabelledTexts(inputs, torch.tensor([0, 1, 1, 0]), 4)
    if head == "tags":
        labels = torch.randint(0, 3, (B, S), generator=generator).masked_fill(~inputs.tokens.mask(), IGNORE)
        return Tagging(), LabelledTexts(inputs, labels, int((labels != IGNORE).sum()))
    return Answering(), LabelledTexts(inputs, torch.tensor([[0, 0], [1, 2], [2, 4], [3, 8]]), 8)


@every_encoder
@few
@given(sizes=lengths)
@torch.no_grad()
def test_padding_never_changes_a_result(name, sizes):
    model, rows = make(name), rows_of(sizes)
    together, head = model.logits(texts(rows)), model(texts(rows))
    vectors = model.text_vectors(texts(rows))
    for index, row in enumerate(rows):
        alone = model.logits(texts([row]))[0]
        assert_close(head[index, : len(row)], model(texts([row]))[0], atol=1e-5, rtol=1e-5)
        assert_close(together[index] if alone.ndim == 1 else together[index, : len(row)], alone, atol=1e-5, rtol=1e-5)
        assert_close(vectors[index], model.text_vectors(texts([row]))[0], atol=1e-5, rtol=1e-5)


@every_encoder
def test_every_token_sees_every_other(name):
    model = make(name)
    before = model(texts([[4, 5, 6, 7]]))
    for place in range(4):
        row = [4, 5, 6, 7]
        row[place] = 8
        after = model(texts([row]))
        assert all(not torch.allclose(after[0, other], before[0, other]) for other in range(4))


@every_encoder
@torch.no_grad()
def test_a_loss_is_what_it_says_of_each_row_alone(name):
    """Row by row and label by label, without padding: the mean surprise of words and that of pairs add up."""
    model = make(name)
    task, batch = question(model)
    loss = task.loss(model, batch)
    said: dict[str, list[float]] = {"own": [], "next": []}
    for index, row in enumerate(rows_of((7, 3, 5, 9))):
        alone = texts([row])
        logits, labels = model.logits(alone)[0], batch.labels[index]
        if model.config.head in ("pretraining", "words"):
            asked = [(logits[place], label) for place, label in zip(batch.places[index], labels, strict=True)]
        elif model.config.head == "spans":
            asked = list(zip(logits.T, labels, strict=True))
        else:
            asked = [(logits, labels)] if model.config.head == "classes" else list(zip(logits, labels, strict=False))
        said["own"] += [-float(scores.log_softmax(-1)[label]) for scores, label in asked if label != IGNORE]
        if model.config.head == "pretraining":
            chances = model.next_logits(model(alone))[0].log_softmax(-1)
            said["next"].append(-float(chances[batch.elsewhere[index]]))
    mean = {part: sum(values) / max(1, len(values)) for part, values in said.items()}
    assert len(said["own"]) == loss.count
    assert float(loss.total) / loss.count == pytest.approx(mean["own"] + mean["next"], rel=1e-4)
    if said["next"]:
        assert float(loss.parts["words"]) / loss.count == pytest.approx(mean["own"], rel=1e-4)
        assert float(loss.parts["next"]) / loss.count == pytest.approx(mean["next"], rel=1e-4)


@every_encoder
def test_splitting_a_batch_changes_no_gradient(name):
    model = make(name).train()
    task, batch = question(model)
    gradients = []
    for parts in ([batch], [part for half in halves(batch) for part in halves(half)]):
        losses = [task.loss(model, part) for part in parts]
        assert sum(loss.count for loss in losses) == batch.count
        gradients.append(torch.autograd.grad(sum(loss.total for loss in losses), list(model.parameters())))
    for one, other in zip(*gradients, strict=True):  # and every parameter has one, so every parameter is used
        assert_close(one, other, atol=1e-5, rtol=1e-4)


@every_encoder
@torch.no_grad()
def test_watching_changes_no_output(name):
    model = make(name)
    given_texts = texts(rows_of((6, 3)))
    expected = model.logits(given_texts)
    with watch(model) as trace:
        assert_close(model.logits(given_texts), expected, atol=1e-6, rtol=1e-6)
    assert list(attentions(model)) == trace.names == ["encoder.0.attention", "encoder.1.attention"]
    weights = trace.weights("encoder.1.attention")
    assert_close(weights.sum(-1), torch.ones(2, 2, 6))
    assert not weights[1, :, :, 3:].any()


@torch.no_grad()
def test_segments_and_positions_are_added_before_the_norm():
    model = make("classes, shifted positions, relu")
    given_texts = texts([[4, 5, 6]])
    part = model.embedding
    total = part.tokens.weight[[4, 5, 6]] + part.positions.table[2:5] + part.segments.weight[[0, 1, 1]]
    assert_close(part(given_texts)[0], part.norm(total))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"positions": "rotary", "rotary_base": 0.5}, "rotary_base=0.5 must be above 1"),
        ({"positions": "rotary", "position_offset": 2}, "position_offset=2 is for learned positions, not rotary"),
        ({"positions": "alibi", "layer_heads": (1, 2)}, "layer_heads cannot differ between layers with alibi"),
        ({"positions": "linear"}, "adds the same number to every feature"),
        ({"positions": "relative", "relative_buckets": 3}, "relative_buckets=3 must be at least 4"),
    ],
)
def test_positions_that_do_not_go_together_are_refused(settings, said):
    with pytest.raises(ConfigError, match=said):
        BertConfig(vocab_size=9, width=8, heads=2, layers=2, **settings)


@torch.no_grad()
def test_an_encoder_knows_the_order_of_words_by_its_positions_alone():
    """Swapping two words swaps their vectors, and changes no other, only where there are no positions."""
    swapped = [5, 7, 6, 8]
    for kind in set(get_args(PositionKind)) - {"linear", "linear-unscaled"}:
        torch.manual_seed(0)
        plain = {"head": "none", "pooler": "none", "segments": 0, "dropout": 0.0, "positions": kind}
        model = Bert(BertConfig(vocab_size=9, width=8, heads=2, layers=2, feed_forward=8, **plain)).eval()
        for matrix in (one for one in model.parameters() if one.ndim == 2):
            torch.nn.init.normal_(matrix, std=0.5)  # at first all words are looked at alike, wherever they stand
        before, after = (model(Texts(Tokens.of([row]), None))[0] for row in ([5, 6, 7, 8], swapped))
        assert torch.allclose(before, after[[0, 2, 1, 3]], atol=1e-5) == (kind == "none"), kind
