from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from regard.errors import ConfigError, DataError
from regard.look.watch import watch
from regard.models.recurrent import RecurrentConfig, RecurrentModel
from regard.nn.attention_scores import SCORES
from regard.nn.batch import Pairs, Tokens
from regard.tasks.config import make_config

TINY = RecurrentConfig(source_vocab_size=23, target_vocab_size=19, width=6, share="output", dropout=0.0, max_len=9)


def make(**changes):
    torch.manual_seed(0)
    return RecurrentModel(replace(TINY, **changes)).eval()


def batch(source, target):
    return Pairs(Tokens.of([source]), Tokens.of([target]), len(target) - 1)


def test_without_attention_all_the_decoder_knows_of_the_source_is_one_vector():
    model = make(attention="none", cell="gru-after")
    source, states = model.encode(Tokens.of([[4, 5, 6, 7]]))
    inputs = Tokens.of([[1, 9, 10]])
    expected, _ = model.decode(inputs, source, states)
    blind = replace(source, memory=torch.randn_like(source.memory), context=torch.randn_like(source.context))
    assert_close(model.decode(inputs, blind, states)[0], expected)
    given = make(attention="none", cell="gru-after", context="every")
    source, states = given.encode(Tokens.of([[4, 5, 6, 7]]))
    forgetful = tuple(tuple(torch.zeros_like(part) for part in state) for state in states)
    other, _ = given.encode(Tokens.of([[8, 5, 6, 7]]))
    (mine, _), (others, _) = (given.decode(inputs, one, forgetful) for one in (source, other))
    assert not torch.allclose(mine, others)


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("attend", ["before", "after"])
def test_each_score_looks_with_the_state_that_its_order_says(score, attend):
    model = make(attention=score, attend=attend)
    words = Tokens.of([[1, 9, 10, 11]])
    source, states = model.encode(Tokens.of([[4, 5, 6]]))
    with watch(model, parts=("weights", "q", "k")) as trace:
        model.decode(words, source, states)
    seen = trace["cross_attention"]
    first, second = seen.q[0, 0, 0], seen.q[0, 0, 1]
    if attend == "before":
        assert_close(first, states[-1][0][0])  # nothing has been read yet
    else:
        outputs, _ = model.decoder(model.target(words.ids), None, states)
        assert_close(first, outputs[0, 0])
    assert not torch.allclose(first, second)
    wanted = model.cross_attention.score(seen.q[:, 0], source.memory).softmax(-1)
    assert_close(seen.weights[:, 0], wanted)


def test_a_copied_bridge_hands_on_every_layers_state():
    model = make(attention="none", bridge="copy", encoder_layers=2, decoder_layers=2, direction="backward")
    tokens = Tokens.of([[4, 5, 6]])
    _, ends = model.encoder(model.source(tokens.ids))
    assert_close(model.encode(tokens)[1], ends)
    assert len(make(encoder_layers=2, decoder_layers=3).encode(tokens)[1]) == 3


def test_memory_of_a_source_is_kept_once_however_many_rows_read_it():
    model = make()
    state = model.start(Pairs(Tokens.of([[4, 5, 6], [7, 8]])))
    wide = state.select(torch.tensor([0, 0, 0, 1, 1, 1]))
    assert wide.source.memory is state.source.memory
    assert wide.states[0][0].shape == (6, 6)
    assert wide.select(torch.tensor([3, 3, 4]), torch.tensor([1])).source.memory.shape[0] == 1


def test_a_model_without_attention_says_that_there_is_none_to_watch():
    with pytest.raises(ConfigError, match="this model has no attention to watch"), watch(make(attention="none")):
        pass


def test_the_location_score_says_when_a_source_is_too_long():
    with pytest.raises(DataError, match="10 tokens is longer than the location score's max_len=9"):
        make(attention="location")(batch([4] * 10, [1, 5, 2]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"share": "all"}, "share='all' needs one vocabulary"),
        ({"width": 7}, "width=7 must be even"),
        ({"width": 0}, "width=0 must be at least 1"),
        ({"dropout": 1.0}, "dropout=1.0 must be at least 0 and below 1"),
        ({"bridge": "copy", "decoder_layers": 2}, "encoder_layers=1 and decoder_layers=2; use bridge='project'"),
        ({"attention": "none", "input_feeding": True}, "input_feeding=true needs an attention"),
        ({"context": "every"}, "context='every' is for attention='none'"),
    ],
)
def test_impossible_settings_are_refused_with_the_rule(change, message):
    with pytest.raises(ConfigError, match=message):
        replace(TINY, **change)


def test_packing_is_refused_before_anything_is_read():
    with pytest.raises(ConfigError, match="a recurrent model reads one sequence per row"):
        make_config(None, "cho-2014", ["train.pack=always"])


@pytest.mark.parametrize(
    ("preset", "count"),
    [
        # Two tables of 4,000, two LSTM layers a side; each has four gates of inputs, state and bias.
        ("sutskever-2014", 2 * 4000 * 192 + 2 * 2 * 4 * (2 * 192 * 192 + 192)),
        # A GRU of 192 + 192 inputs for the decoder, a bridge, and a readout of three vectors.
        (
            "cho-2014",
            2 * 4000 * 192 + 3 * (2 * 192**2 + 192) + 3 * (3 * 192**2 + 192) + (192**2 + 192) + (3 * 192**2 + 192),
        ),
    ],
)
def test_the_presets_have_the_parameters_that_their_equations_ask_for(preset, count):
    mapping = {key: value for key, value in make_config(None, preset).model.items() if key != "name"}
    model = RecurrentModel(RecurrentConfig(source_vocab_size=4000, target_vocab_size=4000, **mapping))
    assert sum(parameter.numel() for parameter in model.parameters()) == count
