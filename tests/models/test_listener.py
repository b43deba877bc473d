"""Speech models: padding changes nothing, steps agree with teacher forcing, CTC aligns, attention knows its past."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from regard.errors import ConfigError, DataError
from regard.look.watch import attentions, watch
from regard.models.listener import ListenerConfig, SpeechModel
from regard.nn.attention_scores import LocationAwareAttention
from regard.nn.batch import Points, Tokens, TranscribedSounds
from regard.nn.masks import Visible
from regard.tasks.transcriber import ctc_alignment, ctc_positions

CONFIG = ListenerConfig(
    **{"vocab_size": 19, "window": 40, "hop": 20, "bands": 5, "subsampling": 2, "width": 8, "heads": 2},
    **{"feed_forward": 7, "encoder_layers": 2, "decoder_layers": 1, "max_len": 20, "dropout": 0.0},
)
KINDS = {
    "transformer": CONFIG,
    "listen-attend-spell": replace(CONFIG, encoder="pyramidal", decoder="recurrent", subsampling=1),
    "gru and additive": replace(
        CONFIG, encoder="pyramidal", decoder="recurrent", cell="gru-after", attention="additive"
    ),
    "pyramid below a Transformer": replace(CONFIG, encoder="pyramidal"),
    "recurrent above a Transformer": replace(CONFIG, decoder="recurrent", decoder_layers=2, ctc=0.0),
}
every_kind = pytest.mark.parametrize("kind", KINDS)
SIZES, TEXTS = (21, 10, 16), ([1, 5, 6, 7, 2], [1, 8, 2], [1, 9, 10, 2])


def made(kind):
    torch.manual_seed(0)
    return SpeechModel(KINDS[kind]).eval()


def frames():
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(size, 5, generator=generator).numpy() for size in SIZES]


def batch(rows=slice(None)):
    target = Tokens.of(TEXTS[rows])
    return TranscribedSounds(Points.of(frames()[rows]), target, int(target.lengths.sum()) - len(TEXTS[rows]), 2)


@every_kind
@torch.no_grad()
def test_padding_changes_nothing(kind):
    model = made(kind)
    together = model.logits(batch())
    for row, text in enumerate(TEXTS):
        alone = model.logits(batch(slice(row, row + 1)))
        assert_close(together[row, : len(text) - 1], alone[0], atol=1e-5, rtol=1e-4)


@every_kind
@torch.no_grad()
def test_steps_are_teacher_forcing(kind):
    model, given = made(kind), batch()
    logits = model.logits(given).log_softmax(-1)
    state = model.start(TranscribedSounds(given.source))
    state = state.select(torch.tensor([0, 0, 1, 1, 2, 2]))  # two rows of each sound
    for t in range(2):
        choices = given.target.ids[:, t].repeat_interleave(2)
        found, state = model.step(choices, state)
        assert_close(found[::2], logits[:, t], atol=1e-5, rtol=1e-4)
        assert_close(found[1::2], logits[:, t], atol=1e-5, rtol=1e-4)
    state = state.select(torch.tensor([3, 5]), torch.tensor([1, 2]))
    found, _ = model.step(given.target.ids[1:, 2], state)
    assert_close(found[1], logits[2, 2], atol=1e-5, rtol=1e-4)


@every_kind
@torch.no_grad()
def test_watched_weights_are_seen_and_can_be_changed(kind):
    model, given = made(kind), batch()
    before = model.logits(given)
    across = [
        name for name, one in attentions(model).items() if one.sides.keys == "source" and one.sides.queries != "source"
    ]
    with watch(model, across) as trace:
        assert_close(model.logits(given), before)
    weights = trace.weights(across[-1])
    assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))
    reduction = model.config.reduction
    assert (weights[1, :, :, -(-SIZES[1] // reduction) :] == 0).all()  # padding is not looked at
    with watch(model, across, edit=lambda _, weights: torch.full_like(weights, 1 / weights.shape[-1])):
        assert not torch.allclose(model.logits(given), before)


def test_a_pyramid_halves_and_counts():
    config = replace(CONFIG, encoder="pyramidal", encoder_layers=3, subsampling=4)
    assert config.reduction == 16
    memory = SpeechModel(config).encode(Points.of(frames()))
    assert memory.lengths.tolist() == [2, 1, 1]
    assert ListenerConfig(vocab_size=9).seconds == 30.0


def test_attention_that_knows_its_past_moves_on():
    torch.manual_seed(0)
    attention = LocationAwareAttention(4, 4, filters=2, kernel=3)
    query, memory = torch.randn(1, 1, 4), torch.randn(1, 6, 4)
    keys, visible = attention.keys(memory), Visible(lengths=torch.tensor([5]))
    first = attention.weights(query, keys, visible, torch.zeros(1, 1, 6))
    second = attention.weights(query, keys, visible, first)
    assert not torch.allclose(first, second)
    assert first[0, 0, 5] == second[0, 0, 5] == 0
    with pytest.raises(ConfigError, match="kernel=4 must be odd"):
        LocationAwareAttention(4, 4, kernel=4)


def test_ctc_finds_the_likeliest_way():
    """Against all ways, one by one."""
    import itertools

    random = np.random.default_rng(0)
    log_probs = np.log(random.dirichlet(np.ones(4), size=6))
    for tokens in ([1, 2], [1, 1], [2, 3, 2]):
        best = max(
            (way for way in itertools.product(range(4), repeat=6) if _collapsed(way) == tokens),
            key=lambda way: sum(log_probs[t, one] for t, one in enumerate(way)),
        )
        assert ctc_alignment(log_probs, tokens) == _spans(best)
    assert ctc_alignment(log_probs, [1, 1, 1, 1]) == []  # needs seven positions
    assert ctc_positions([1, 1, 1, 1]) == 7


def _collapsed(way):
    return [one for number, one in enumerate(way) if one and (number == 0 or way[number - 1] != one)]


def _spans(way):
    found, number = [], 0
    while number < len(way):
        end = number
        while end < len(way) and way[end] == way[number]:
            end += 1
        if way[number]:
            found.append((number, end))
        number = end
    return found


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"subsampling": 3}, "subsampling=3 must be a power of 2"),
        ({"encoder": "pyramidal", "encoder_heads": (2, 2)}, "encoder_heads is for encoder='transformer'"),
        ({"decoder": "recurrent", "cross_heads": (2,)}, "cross_heads is for decoder='transformer'"),
        ({"ctc": 1.0}, "ctc=1.0"),
        ({"hop": 50}, "hop=50 must be at most window=40"),
        ({"max_frames": 100_000}, "max_frames=100,000 must be at most"),
    ],
)
def test_impossible_settings_are_refused(wrong, said):
    with pytest.raises(ConfigError, match=said):
        replace(CONFIG, **wrong)


def test_what_the_model_does_not_read_is_refused():
    model = made("transformer")
    with pytest.raises(DataError, match="frames of 6 bands; the model reads 5"):
        model.encode(Points.of([np.zeros((4, 6), np.float32)]))
    with pytest.raises(DataError, match="longer than the model's max_frames=3,000"):
        model.encode(Points.of([np.zeros((3001, 5), np.float32)]))
    with pytest.raises(ConfigError, match="was not trained with CTC"):
        made("recurrent above a Transformer").by_position(Points.of(frames()))


@pytest.mark.parametrize("kind", ["listen-attend-spell", "gru and additive"])
@torch.no_grad()
def test_states_are_those_of_the_steps_that_an_edit_makes_it_take(kind):
    model, given = made(kind), batch(slice(0, 1))
    with watch(model, "decoder.cells.*", parts="states") as before:
        model(given)
    with (
        watch(model, "decoder.cross_attention", edit=lambda name, weights: torch.full_like(weights, 0.1)),
        watch(model, "decoder.cells.*", parts="states") as after,
    ):
        model(given)
    (name,) = after.cells
    plain, edited = before.states(name)["h"], after.states(name)["h"]
    assert plain.shape == edited.shape == (1, 4, 8)
    assert_close(plain[:, 0], edited[:, 0])  # nothing had been gathered yet
    assert not torch.allclose(plain[:, 1:], edited[:, 1:], atol=1e-4)
