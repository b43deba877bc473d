"""A captioner, with either encoder and either decoder: steps are the whole, and attention is what the weights say."""

from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from regard.decode.config import DecodeConfig
from regard.decode.search import search
from regard.errors import ConfigError, DataError
from regard.look.edits import masked
from regard.look.watch import attentions, watch
from regard.models.captioner import CaptionConfig, CaptionModel
from regard.nn.attention import ACROSS
from regard.nn.batch import CaptionedImages, Tokens, halves
from regard.training.objectives import Captioning

SMALL = CaptionConfig(
    **{"vocab_size": 19, "image_size": 12, "patch_size": 4, "width": 6, "heads": 2, "feed_forward": 7},
    **{"encoder_layers": 1, "decoder_layers": 2, "max_len": 20},
)
LAYERS = {"attend": "layers", "attention": "scaled-dot"}
KINDS = {
    "patches, transformer": {},
    "convolution, transformer": {"encoder": "convolution"},
    "patches, recurrent": {"decoder": "recurrent"},
    "convolution alone, recurrent": {"encoder": "convolution", "encoder_layers": 0, "decoder": "recurrent"},
    "recurrent, gru": {"decoder": "recurrent", "cell": "gru-after", "attention": "scaled-dot"},
    "convolution by itself": {"encoder": "convolution", "last_kernel": 1},
    "recurrent, looks after": {"decoder": "recurrent", "attend": "after", "attention": "general", "readout": "linear"},
    "recurrent, looks between layers": {"decoder": "recurrent", **LAYERS},
    "recurrent, reads what it saw": {
        "decoder": "recurrent",
        **LAYERS,
        "readout": "context",
        "start": "zeros",
        "cell": "gru-after",
    },
    "recurrent, no gate": {"decoder": "recurrent", **LAYERS, "gate": False, "cell": "gru-after"},
    "recurrent, widening cell": {"decoder": "recurrent", "attend": "after", "cell": "mut1", "gate": False},
}
every_kind = pytest.mark.parametrize("kind", KINDS)


def make(kind):
    torch.manual_seed(0)
    return CaptionModel(replace(SMALL, **KINDS[kind])).eval()


def batch():
    generator = torch.Generator().manual_seed(0)
    target = Tokens.of([[1, 5, 6, 7, 2], [1, 8, 2], [1, 9, 10, 2]])
    return CaptionedImages(torch.rand(3, 3, 12, 12, generator=generator), target, 9, 9)


@every_kind
@torch.no_grad()
def test_steps_give_what_the_whole_gives(kind):
    model, given = make(kind), batch()
    whole = model.logits(given).log_softmax(-1)
    state = model.start(given)
    for t in range(given.inputs.ids.shape[1]):
        log_probs, state = model.step(given.inputs.ids[:, t], state)
        assert_close(log_probs, whole[:, t], atol=1e-5, rtol=1e-5)


@every_kind
@torch.no_grad()
def test_a_later_word_changes_no_earlier_prediction_and_another_image_changes_its_own_alone(kind):
    model, given = make(kind), batch()
    before = model.logits(given)
    ids = given.target.ids.clone()
    ids[:, 2:] = 11
    later = model.logits(replace(given, target=replace(given.target, ids=ids)))
    assert_close(later[:, :2], before[:, :2])
    pixels = given.pixels.clone()
    pixels[1] = 0.5
    other = model.logits(replace(given, pixels=pixels))
    assert_close(other[[0, 2]], before[[0, 2]])
    assert not torch.allclose(other[1], before[1])


@every_kind
@torch.no_grad()
def test_a_beam_finds_what_its_score_says(kind):
    model, given = make(kind), batch()
    config = DecodeConfig(beam=3, top_beams=2, length_penalty=0.0)
    found = search(model, model.start(given), torch.ones(3, dtype=torch.long), eos=2, config=config, max_len=5)
    for row, best in enumerate(found):
        tokens = [1, *best[0].tokens, *([2] if best[0].finished else [])]
        alone = CaptionedImages(given.pixels[row : row + 1], Tokens.of([tokens]), len(tokens) - 1, 9)
        log_probs = model.logits(alone).log_softmax(-1)[0]
        again = log_probs.gather(1, torch.tensor(tokens[1:])[:, None]).sum()
        assert float(again) == pytest.approx(best[0].log_prob, abs=1e-4)


@every_kind
@torch.no_grad()
def test_each_step_attends_to_the_places_of_the_image_and_masking_that_changes_the_caption(kind):
    model, given = make(kind), batch()
    across = [name for name, one in attentions(model).items() if one.sides == ACROSS]
    with watch(model, across) as trace:
        before = model.logits(given)
    for name in across:
        weights = trace.weights(name)
        assert weights.shape[2:] == (4, model.config.places)
        assert_close(weights.sum(-1), torch.ones_like(weights.sum(-1)))
    with masked(model, {across[0]: [0]}):
        assert not torch.allclose(model.logits(given), before)


@pytest.mark.parametrize("kind", ["patches, recurrent", "recurrent, looks between layers"])
def test_the_place_penalty_counts_what_no_step_looked_at_row_by_row(kind):
    model, given = make(kind), batch()
    x, weights = model.attended(given)
    assert_close(x, model(given))
    real = (given.labels != -100)[..., None]
    missed = ((1 - (weights * real).sum(1)) ** 2).sum()
    plain, found = Captioning().loss(model, given), Captioning(place_penalty=0.5).loss(model, given)
    assert_close(found.total, plain.total + 0.5 * missed)
    assert_close(found.parts["missed"], missed.detach())
    parts = [Captioning(place_penalty=0.5).loss(model, part) for part in halves(given)]
    assert_close(found.total, parts[0].total + parts[1].total)


@torch.no_grad()
def test_looks_between_layers_are_told_as_the_mean_of_all_heads():
    model, given = make("recurrent, looks between layers"), batch()
    with watch(model) as trace:
        _, told = model.attended(given)
        looks = [
            trace.weights(name) for name in ("decoder.blocks.0.cross_attention", "decoder.blocks.1.cross_attention")
        ]
    assert_close(told, torch.stack(looks).mean((0, 2)))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"image_size": 13}, "image_size=13 must be a multiple of patch_size=4"),
        ({"encoder": "convolution", "patch_size": 6}, "patch_size=6 must be a power of 2"),
        ({"place_penalty": 1.0}, "place_penalty=1.0 is for decoder='recurrent'"),
        ({"readout": "linear"}, "readout='linear' is for decoder='recurrent'"),
        ({"last_kernel": 1}, "last_kernel=1 is for encoder='convolution'"),
        ({"encoder": "convolution", "last_kernel": 2}, "last_kernel=2 must be odd"),
        ({"attend": "after"}, "attend='after' is for decoder='recurrent'"),
        ({"decoder": "recurrent", "cross_heads": (1, 1)}, "cross_heads is for decoder='transformer'"),
        ({"decoder": "recurrent", **LAYERS, "decoder_heads": (1, 1)}, "decoder_heads is for decoder='transformer'"),
        ({"decoder": "recurrent", "attend": "layers"}, "attention='additive' has one head"),
        ({"decoder": "recurrent", "readout": "context"}, "readout='context' is for attend='layers'"),
        ({"decoder": "recurrent", **LAYERS, "place_penalty": 0.1, "cross_heads": (0, 0)}, "needs a head that looks"),
        ({"start": "zeros"}, "start='zeros' is for decoder='recurrent'"),
        ({"gate": False}, "gate=False is for decoder='recurrent'"),
        ({"channels": 2}, "channels=2 must be 1"),
        ({"encoder_heads": (3,)}, "encoder_heads"),
    ],
)
def test_settings_that_cannot_be_are_refused_by_name(settings, said):
    with pytest.raises(ConfigError, match=said):
        replace(SMALL, **settings)


@pytest.mark.parametrize("encoder", ["patches", "convolution"])
def test_an_image_of_other_channels_is_refused(encoder):
    model = CaptionModel(replace(SMALL, encoder=encoder))
    with pytest.raises(DataError, match="an image with 1 channels; the model reads 3"):
        model.encode(torch.zeros(1, 1, 12, 12))


def test_words_are_hidden_from_the_decoder_in_training_alone():
    torch.manual_seed(0)
    model, given = CaptionModel(replace(SMALL, word_dropout=0.5)), batch()
    plain = CaptionModel(replace(SMALL))
    plain.load_state_dict(model.state_dict())
    assert_close(model.eval().logits(given), plain.eval().logits(given))
    words = model.train()._words(given.inputs) - model.target.positions(torch.zeros(3, 4, 6))
    hidden = (words.abs().sum(-1) < 1e-6).float().mean()
    assert 0 < hidden < 1
    with pytest.raises(ConfigError, match="word_dropout"):
        replace(SMALL, word_dropout=1.5)


@pytest.mark.parametrize("patch", [2, 4, 8])
def test_a_place_of_the_convolution_looks_at_its_own_middle(patch):
    """The pixels that a place depends on lie about the middle of its patch, to a pixel."""
    torch.manual_seed(0)
    config = replace(SMALL, encoder="convolution", image_size=8 * patch, patch_size=patch)
    stem = CaptionModel(config).image
    pixels = torch.rand(1, 3, 8 * patch, 8 * patch, requires_grad=True)
    with pytest.MonkeyPatch.context() as patched:  # a norm of the whole image lets a place depend on all of it
        patched.setattr(torch.nn.GroupNorm, "forward", lambda self, x: x)
        patched.setattr(torch.Tensor, "relu", lambda x: x)
        places = stem(pixels)
    places[0, 8 * 3 + 4].sum().backward()
    seen = pixels.grad[0].abs().sum(0) > 0
    for axis, place in ((1, 3), (0, 4)):
        reached = seen.any(axis).nonzero().flatten()
        middle = (reached.min() + reached.max()).item() / 2
        assert abs(middle - (patch * place + (patch - 1) / 2)) <= 1


@pytest.mark.parametrize("kind", ["patches, recurrent", "recurrent, looks after"])
@torch.no_grad()
def test_states_are_those_of_the_steps_that_an_edit_makes_it_take(kind):
    model, given, seen = make(kind), batch(), []
    for edit in (lambda name, weights: weights, lambda name, weights: torch.full_like(weights, 0.1)):
        with (
            watch(model, "decoder.cross_attention", edit=edit),
            watch(model, "decoder.cells.*", parts="states") as trace,
        ):
            model(given)
        seen.append(trace.states(list(trace.cells)[-1])["h"])
    assert seen[0].shape == seen[1].shape == (3, 4, 6)
    assert not torch.allclose(seen[0][:, -1], seen[1][:, -1], atol=1e-5)
