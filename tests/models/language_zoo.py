"""Language models, most of which remember by a state, in sizes that suit tests, for the laws to be held against."""

import torch
from torch import nn

from regard.models.elmo import Elmo, ElmoConfig
from regard.models.gpt import GPT, GPTConfig
from regard.models.lstmn import LSTMN, LSTMNConfig
from regard.models.recurrent_language import RecurrentLanguageConfig, RecurrentLanguageModel
from regard.models.rwkv import RWKV, RWKVConfig
from regard.nn.batch import StreamedWindows, Tokens, Windows
from regard.nn.recurrent.cells import CELLS

SIZES = {"vocab_size": 19, "width": 6, "dropout": 0.0, "max_len": 40}


def recurrent(**changes):
    return RecurrentLanguageModel(RecurrentLanguageConfig(**SIZES, **changes))


LANGUAGE_MODELS = {
    **{cell: lambda cell=cell: recurrent(cell=cell) for cell in CELLS},
    "lstm, one layer, untied": lambda: recurrent(layers=1, tied=False),
    "lstm, pointing back": lambda: recurrent(pointer=30),
    "gru, pointing back a little": lambda: recurrent(cell="gru-after", layers=1, pointer=2, tied=False),
    "rwkv": lambda: RWKV(RWKVConfig(**SIZES, layers=2, feed_forward=10)),
    "rwkv, one layer, tied": lambda: RWKV(RWKVConfig(**SIZES, layers=1, feed_forward=7, tied=True)),
    "lstmn": lambda: LSTMN(LSTMNConfig(**SIZES, layers=2, span=30)),
    "lstmn, short span": lambda: LSTMN(LSTMNConfig(**SIZES, span=3, tied=False, output_bias=False)),
}


STATELESS = {
    "gpt": lambda: GPT(GPTConfig(**{**SIZES, "width": 12}, heads=2, layers=2, feed_forward=14)),
    "gpt, rotary, shared keys": lambda: GPT(
        GPTConfig(**{**SIZES, "width": 12}, heads=2, layers=1, feed_forward=14, positions="rotary", kv_heads=1)
    ),
    **{
        f"gpt, {kind}": lambda kind=kind: GPT(
            GPTConfig(**{**SIZES, "width": 12}, heads=2, layers=1, feed_forward=14, positions=kind)
        )
        for kind in ("sinusoidal", "linear", "linear-unscaled", "alibi", "relative", "none")
    },
    "elmo": lambda: Elmo(ElmoConfig(**SIZES)),
    "elmo, one layer, gru": lambda: Elmo(ElmoConfig(**SIZES, layers=1, cell="gru-after")),
}
"""Language models without a state to carry from window to window."""


def make_language(name):
    """The named model, the same every time; no matrix of it is zero, as some are before training."""
    torch.manual_seed(0)
    model = {**LANGUAGE_MODELS, **STATELESS}[name]()
    for part in model.modules():
        if isinstance(part, nn.Linear) and not part.weight.any():
            nn.init.normal_(part.weight, std=0.5)
    return model.eval()


def windows(rows):
    tokens = Tokens.of(rows)
    return Windows(tokens, tokens.ids.roll(-1, 1), tokens.ids.numel())


def stretch(ids, begin, end, number):
    """A window of some streams of tokens, each with the one after it."""
    read, labels = ids[:, begin:end], ids[:, begin + 1 : end + 1]
    B, T = read.shape
    return StreamedWindows(
        Tokens(read, torch.full((B,), T), padded=False), labels, B * T, torch.arange(B), streams=B, number=number
    )
