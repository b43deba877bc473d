"""What a model of several sources must obey, however it combines them."""

from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from regard.decode.beam import beam_search
from regard.decode.config import DecodeConfig
from regard.errors import ConfigError
from regard.look.watch import attentions, watch
from regard.models.several_sources import SeveralSources, SourcesConfig
from regard.nn.attention import ACROSS
from regard.nn.batch import SourcedTexts, Tokens
from regard.training.objectives import SequenceToSequence

# Every size another prime times the heads, so that a swapped axis cannot pass.
SMALL = SourcesConfig(
    vocab_size=19, sources=("text", "image", "text", "sound"), width=12, heads=2, feed_forward=14, dropout=0.0
)
SMALL = replace(SMALL, image_size=8, patch_size=4, source_dropout=0.0, max_len=17, encoder_layers=1)
SMALL = replace(SMALL, bands=5, max_frames=40, subsampling=2)
KINDS = [{"combine": "turn"}, {"combine": "concatenate"}, {"combine": "gate"}, {"combine": "gate", "shared": False}]
every_kind = pytest.mark.parametrize("kind", KINDS, ids=str)

TEXTS = [([4, 5, 2], [6, 7, 8, 9, 2]), ([7, 2], []), ([], [5, 2])]
TARGETS = [[1, 9, 10, 2], [1, 11, 2], [1, 4, 5, 6, 2]]
PICTURED = [True, False, True]
HEARD = [7, 11, 0]


def make(kind):
    torch.manual_seed(0)
    return SeveralSources(replace(SMALL, **kind)).eval()


def batch(rows=(0, 1, 2), texts=TEXTS, pictured=PICTURED, length=None, heard=HEARD):
    longest = length or max(len(one) for row in rows for one in texts[row])
    ids = torch.zeros(len(rows), 2, longest, dtype=torch.long)
    for b, row in enumerate(rows):
        for k, one in enumerate(texts[row]):
            ids[b, k, : len(one)] = torch.tensor(one, dtype=torch.long)
    lengths = torch.tensor([[len(one) for one in texts[row]] for row in rows])
    pixels = torch.stack([torch.full((1, 3, 8, 8), 0.1 * row) + torch.linspace(0, 1, 8) for row in rows])
    there = torch.tensor([[pictured[row]] for row in rows])
    target = Tokens.of([TARGETS[row] for row in rows])
    frames = torch.zeros(len(rows), 1, max(1, *(heard[row] for row in rows), length or 0), SMALL.bands)
    for b, row in enumerate(rows):
        frames[b, 0, : heard[row]] = torch.linspace(row, 1, 13)[: heard[row], None] * torch.arange(1, SMALL.bands + 1)
    found = SourcedTexts(ids, lengths, pixels, there, target, sum(len(TARGETS[row]) - 1 for row in rows), SMALL.places)
    return replace(found, frames=frames, frame_lengths=torch.tensor([[heard[row]] for row in rows]), reduction=2)


@every_kind
def test_a_row_is_the_same_alone_and_among_others_padded_or_not(kind):
    model = make(kind)
    together = model.logits(batch(length=17))
    for row in range(3):
        alone = model.logits(batch([row]))
        assert_close(together[row, : len(TARGETS[row]) - 1], alone[0], atol=1e-5, rtol=1e-5)


@every_kind
def test_what_a_missing_source_holds_never_matters_and_one_that_is_there_does(kind):
    model, plain = make(kind), batch()
    other = replace(plain, pixels=torch.where(plain.pictured[..., None, None, None], plain.pixels, 9.0))
    assert torch.equal(model.logits(plain), model.logits(other))
    frames = plain.frames.clone()
    frames[2] = 9.0  # is missing there
    assert torch.equal(model.logits(plain), model.logits(replace(plain, frames=frames)))
    frames[1] += 1
    assert not torch.allclose(model.logits(replace(plain, frames=frames))[1], model.logits(plain)[1])
    ids = plain.ids.clone()
    ids[1, 1], ids[2, 0] = 8, 8  # both are missing there
    assert_close(model.logits(replace(plain, ids=ids)), model.logits(plain))
    assert not torch.allclose(model.logits(replace(plain, pixels=plain.pixels + 1))[0], model.logits(plain)[0])
    ids = plain.ids.clone()
    ids[0, 1, 2] = 12
    assert not torch.allclose(model.logits(replace(plain, ids=ids))[0], model.logits(plain)[0])


@every_kind
@torch.no_grad()
def test_steps_equal_full_recomputation_for_selected_rows_too(kind):
    model, whole = make(kind), batch([0, 1, 2])
    full = model.logits(whole).log_softmax(-1)
    state = model.start(replace(whole, target=None))
    _, state = model.step(torch.tensor([1, 1, 1]), state)
    state = state.select(torch.tensor([0, 0, 2, 2]), torch.tensor([0, 2]))
    log_probs, state = model.step(torch.tensor([9, 3, 4, 3]), state)
    assert_close(log_probs[0], full[0, 1], atol=1e-5, rtol=1e-5)
    assert_close(log_probs[2], full[2, 1], atol=1e-5, rtol=1e-5)
    config = DecodeConfig(beam=2, top_beams=1, max_len=5)
    several = beam_search(model, model.start(whole), torch.full((3,), 1), eos=2, config=config)
    alone = beam_search(model, model.start(batch([1])), torch.full((1,), 1), eos=2, config=config)
    assert several[1][0].tokens == alone[0][0].tokens


@every_kind
def test_every_parameter_is_used_and_a_split_batch_has_the_same_gradient(kind):
    model, objective = make(kind).train(), SequenceToSequence(0.1)
    whole = torch.autograd.grad(objective.loss(model, batch()).total, list(model.parameters()), allow_unused=True)
    names = [name for name, _ in model.named_parameters()]
    assert [name for name, one in zip(names, whole, strict=True) if one is None] == []
    parts = objective.loss(model, batch([0])).total + objective.loss(model, batch([1, 2])).total
    for one, other in zip(whole, torch.autograd.grad(parts, list(model.parameters())), strict=True):
        assert_close(one, other, atol=1e-5, rtol=1e-4)


@every_kind
def test_shares_are_of_the_sources_that_are_there(kind):
    model = make(kind)
    found = model.shares(batch())
    assert found.shape == (3, 4, 4)
    assert_close(found.sum(-1), torch.ones(3, 4), atol=1e-4, rtol=1e-4)
    assert not found[1, :, 1:3].any()
    assert found[1, :, 3].all()
    assert not found[2, :, [0, 3]].any()
    assert all(block.shares is None for block in model.decoder)


@every_kind
def test_watching_changes_no_output(kind):
    model, whole = make(kind), batch()
    expected = model.logits(whole)
    crossing = [name for name, one in attentions(model).items() if one.sides == ACROSS]
    assert len(crossing) == (2 if kind["combine"] == "concatenate" else 8)
    with watch(model) as trace:
        assert_close(model.logits(whole), expected, atol=1e-6, rtol=1e-6)
    for name in crossing:
        assert_close(trace.weights(name).sum(-1), torch.ones(3, 2, 4))


def test_training_leaves_sources_out_but_never_all():
    model = SeveralSources(replace(SMALL, source_dropout=0.9))
    present = torch.tensor([[True, True, False]] * 200)
    torch.manual_seed(0)
    kept = model._some(present)
    assert kept.any(1).all()
    assert not kept[:, 2].any()
    assert 0 < int((kept.sum(1) == 1).sum()) < 200


def test_a_batch_counts_positions_of_sounds_as_tokens_read():
    whole = batch()
    assert whole.tokens == 12 + 2 * SMALL.places + (4 + 6) + whole.count


def test_what_cannot_be_is_refused():
    for settings, message in (
        ({"sources": ()}, "must name at least one"),
        ({"source_dropout": 1.5}, "source_dropout"),
        ({"image_std": 0.0}, "image_std=0.0 must be positive"),
        ({"image_size": 9}, "must be a multiple of patch_size"),
        ({"width": 13}, "must be a multiple of heads"),
        ({"subsampling": 3}, "subsampling=3 must be a power of 2"),
        ({"hop": 900}, "hop=900 must be at most window=400"),
    ):
        with pytest.raises(ConfigError, match=message):
            replace(SMALL, **settings)
