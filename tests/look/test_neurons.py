import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from regard.look.watch import attentions, neurons_of, watch
from regard.models.convolutional import Convolutional, ConvolutionalConfig
from regard.models.gpt import GPT, GPTConfig
from regard.models.recurrent import RecurrentConfig, RecurrentModel
from regard.models.transformer import Transformer, TransformerConfig
from regard.nn.batch import Pairs, Tokens

SIZES = {"source_vocab_size": 23, "target_vocab_size": 19, "share": "output", "width": 12, "dropout": 0.0}
SCORES = ["additive", "general", "dot", "cosine", "scaled-dot"]
BLOCKS = {"heads": 2, "encoder_layers": 1, "decoder_layers": 1, "feed_forward": 14}
MODELS = {
    **{
        f"transformer, {name}": lambda more=more: Transformer(TransformerConfig(**SIZES, **BLOCKS, **more))
        for name, more in {
            "plain": {},
            "rotary": {"positions": "rotary", "kv_heads": 1},
            "alibi": {"positions": "alibi"},
            "relative": {"positions": "relative"},
            "normed": {"qk_norm": True},
            "not scaled": {"scaled": False},
        }.items()
    },
    **{f"recurrent, {one}": lambda one=one: RecurrentModel(RecurrentConfig(**SIZES, attention=one)) for one in SCORES},
    "convolutional": lambda: Convolutional(ConvolutionalConfig(**SIZES, encoder_layers=1, decoder_layers=2)),
    "gpt": lambda: GPT(GPTConfig(vocab_size=19, width=12, heads=2, layers=2, feed_forward=8, dropout=0.0)),
}


def weights_from(neurons, visible):
    """The six steps up to the softmax, as the page does them."""
    found = neurons.arrays()
    q, k = found["q"].astype(np.float64), found["k"].astype(np.float64)
    if neurons.combine == "additive":
        scores = (np.tanh(q[:, :, None] + k[:, None]) * found["vector"]).sum(-1)
    else:
        scores = (q[:, :, None] * k[:, None]).sum(-1)
    scores = scores * neurons.scale
    if neurons.offsets is not None:
        places = np.arange(q.shape[1])[:, None] - np.arange(k.shape[1]) + k.shape[1] - 1
        scores = scores + found["offsets"][:, places]
    scores = np.where(visible, scores, -np.inf)
    raised = np.exp(scores - scores.max(-1, keepdims=True))
    return raised / raised.sum(-1, keepdims=True)


@pytest.mark.parametrize("name", MODELS)
def test_vectors_give_the_weights_again(name):
    torch.manual_seed(0)
    model = MODELS[name]().eval()
    batch = Pairs(Tokens.of([[4, 5, 6, 7, 8]]), Tokens.of([[1, 9, 10, 11, 2]]))
    with torch.no_grad(), watch(model, parts=("weights", "q", "k", "v")) as trace:
        model(batch)
    for attention, module in attentions(model).items():
        weights = trace.weights(attention)[0].double().numpy()
        neurons = neurons_of(module, trace[attention])
        assert_allclose(weights_from(neurons, weights > 0), weights, atol=1e-5)


def test_a_score_without_keys_has_no_vectors_to_show():
    torch.manual_seed(0)
    model = RecurrentModel(RecurrentConfig(**SIZES, attention="location", max_len=8)).eval()
    with torch.no_grad(), watch(model, parts=("weights", "q", "k", "v")) as trace:
        model(Pairs(Tokens.of([[4, 5, 6]]), Tokens.of([[1, 9, 2]])))
    assert neurons_of(model.cross_attention, trace["cross_attention"]) is None
