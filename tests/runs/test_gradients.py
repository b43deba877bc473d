import math

import pytest
import torch

from regard.analysis.gradients import factor_per_step, set_spectral_radius, step_gradients
from regard.errors import ConfigError
from regard.models.gpt import GPT, GPTConfig
from regard.models.recurrent import RecurrentConfig, RecurrentModel
from regard.models.recurrent_language import RecurrentLanguageConfig, RecurrentLanguageModel
from regard.nn.batch import Pairs, Tokens, Windows

STEPS = 50


def text():
    ids = torch.randint(4, 60, (STEPS + 1,), generator=torch.Generator().manual_seed(0)).tolist()
    return Windows(Tokens.of([ids[:-1]]), torch.tensor([ids[1:]]), STEPS)


def recurrent(cell, radius=None, seed=1):
    torch.manual_seed(seed)
    model = RecurrentLanguageModel(
        RecurrentLanguageConfig(vocab_size=64, width=48, cell=cell, layers=1, dropout=0.0)
    ).eval()
    if radius is not None:
        set_spectral_radius(model, radius)
    return model


def factor(model):
    (norms,) = step_gradients(model, text())
    assert norms.shape == (STEPS,)
    return factor_per_step(norms.tolist())


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_it_vanishes_in_the_vanilla_rnn_slower_with_gates_and_not_at_all_with_attention(seed):
    plain = factor(recurrent("rnn", seed=seed))
    gru, lstm = factor(recurrent("gru-before", seed=seed)), factor(recurrent("lstm", seed=seed))
    torch.manual_seed(seed)
    attention = GPT(GPTConfig(vocab_size=64, width=48, heads=2, layers=2, feed_forward=64, dropout=0.0))
    assert plain < 0.65 < gru < 0.75 < lstm < 0.92
    assert factor(attention) == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize("cell", ["rnn", "gru-before", "gru-after", "mut2"])
def test_it_explodes_where_the_recurrent_weights_radius_is_well_above_one(cell):
    assert factor(recurrent(cell, 0.5)) < factor(recurrent(cell, 1.0)) < factor(recurrent(cell, 5.0))
    assert factor(recurrent(cell, 5.0)) > 1.1
    norms = step_gradients(recurrent(cell, 5.0), text())[0]
    assert norms[0] > 100 * norms[-2]


def test_the_radius_is_the_largest_eigenvalue_of_every_gates_own_matrix():
    model = recurrent("lstm")
    assert set_spectral_radius(model, 1.7) == 4
    for matrix in model.layers.layers[0].cells[0].hidden.weight.detach().split(48):
        assert float(torch.linalg.eigvals(matrix).abs().max()) == pytest.approx(1.7, rel=1e-4)
    with pytest.raises(ConfigError, match=r"a spectral radius of 0\.0 must be above 0"):
        set_spectral_radius(model, 0.0)


def test_the_norms_are_those_of_small_changes():
    model, batch = recurrent("gru-after").double(), text()
    (norms,) = step_gradients(model, batch)
    ids = batch.inputs.ids
    base = model.embedding(ids).detach()
    place = STEPS - 3

    @torch.no_grad()
    def loss(vectors):
        outputs, _ = model.layers(vectors)
        return -float(model.head(outputs[0, -1]).log_softmax(-1)[batch.labels[0, -1]])

    slopes = []
    for index in range(base.shape[-1]):
        moved = []
        for sign in (1, -1):
            changed = base.clone()
            changed[0, place, index] += sign * 1e-5
            moved.append(loss(changed))
        slopes.append((moved[0] - moved[1]) / 2e-5)
    assert float(norms[place]) == pytest.approx(math.hypot(*slopes), rel=1e-5)


def test_a_translation_model_has_a_norm_for_each_token_of_either_side_and_keeps_no_gradient():
    config = RecurrentConfig(source_vocab_size=20, target_vocab_size=20, width=8, share="all", dropout=0.0, max_len=40)
    torch.manual_seed(0)
    model = RecurrentModel(config)
    batch = Pairs(Tokens.of([[4, 5, 6, 7, 2]]), Tokens.of([[1, 8, 9, 2]]), 3)
    source, target = step_gradients(model, batch)
    assert (source.shape, target.shape) == ((5,), (3,))
    assert (source > 0).all()
    assert all(parameter.grad is None for parameter in model.parameters())
    assert model.training


def test_the_factor_is_exact_for_a_geometric_row_and_ignores_the_step_just_read():
    assert factor_per_step([0.5**back for back in range(10)][::-1]) == pytest.approx(0.5)
    assert factor_per_step([*[2.0**back for back in range(1, 10)][::-1], 1e6]) == pytest.approx(2.0)
    assert math.isnan(factor_per_step([1.0]))
