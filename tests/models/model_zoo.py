"""Models of every kind in sizes that suit tests, for the laws to be held against. A new one is a line in MODELS."""

from dataclasses import replace
from functools import partial

import torch

from regard.models.bert import Bert, BertConfig
from regard.models.convolutional import Convolutional, ConvolutionalConfig
from regard.models.recurrent import RecurrentConfig, RecurrentModel
from regard.models.transformer import Transformer, TransformerConfig
from regard.models.vit import ViT, ViTConfig
from regard.nn.batch import Pairs, Texts, Tokens

# Every size another prime times the heads, so that a swapped axis cannot pass.
TRANSFORMER = TransformerConfig(
    source_vocab_size=23,
    target_vocab_size=19,
    width=12,
    heads=2,
    encoder_layers=2,
    decoder_layers=2,
    feed_forward=14,
    norm_first=True,
    share="output",
    dropout=0.0,
    max_len=40,
)
TRANSFORMERS = {
    "norm first": {},
    "norm after": {"norm_first": False},
    "rms, gated silu, no bias": {"norm": "rms", "gated": True, "activation": "silu", "bias": False},
    "gelu, learned positions": {"activation": "gelu", "positions": "learned"},
    "rotary, shared keys": {"positions": "rotary", "kv_heads": 1},
    "alibi": {"positions": "alibi"},
    "no positions, tanh gelu": {"positions": "none", "activation": "gelu-tanh"},
    "relative, wide heads, scaled output": {
        **{"positions": "relative", "relative_buckets": 6, "relative_distance": 7, "head_width": 5},
        **{"scaled": False, "norm": "rms", "bias": False, "scale_output": True, "scale_embedding": False},
        **{"share": "input", "source_vocab_size": 19},
    },
    "learned from an offset, each side its own, normed": {
        **{"share": "all", "source_vocab_size": 19, "positions": "learned", "position_offset": 2},
        **{"own_positions": True, "norm_embedding": True, "norm_first": False},
    },
    "linear positions": {"positions": "linear"},
    "linear positions, unscaled": {"positions": "linear-unscaled"},
    "positions beside": {"position_how": "concatenate", "position_width": 4},
    "window": {"window": 3},
    "halves": {"position_layout": "halves"},
    "nothing shared": {"share": "none", "output_bias": True},
    "all shared": {"share": "all", "source_vocab_size": 19},
    "queries and keys normed, rotary of a smaller base": {"qk_norm": True, "positions": "rotary", "rotary_base": 20.0},
    "no residual, no norm, no scale": {"residual": False, "norm": "none", "scaled": False},
    "copying": {"copy": True, "share": "all", "source_vocab_size": 19},
    "copying by a shared key of the first layer, covered, rotary": {
        **{"copy": True, "copy_layer": 0, "copy_head": 1, "coverage": 1.0, "source_vocab_size": 19, "kv_heads": 1},
        **{"positions": "rotary", "scale_output": True},
    },
    "covered": {"coverage": 0.5},
}

SIZES = {"source_vocab_size": 23, "target_vocab_size": 19, "share": "output", "dropout": 0.0, "max_len": 40}
RECURRENT = RecurrentConfig(**SIZES, width=6, cell="gru-after")
CONVOLUTIONAL = ConvolutionalConfig(**SIZES, width=6, encoder_layers=2, decoder_layers=2)


def transformer(variant):
    return Transformer(replace(TRANSFORMER, **TRANSFORMERS[variant]))


MODELS = {
    **{f"transformer, {variant}": partial(transformer, variant) for variant in TRANSFORMERS},
    "context first": lambda: RecurrentModel(replace(RECURRENT, attention="none")),
    "context first, backward, copied": lambda: RecurrentModel(
        replace(
            RECURRENT,
            attention="none",
            cell="lstm",
            direction="backward",
            bridge="copy",
            encoder_layers=2,
            decoder_layers=2,
        )
    ),
    "context at every step": lambda: RecurrentModel(
        replace(RECURRENT, attention="none", context="every", cell="gru-before", direction="forward")
    ),
    "additive before": lambda: RecurrentModel(RECURRENT),
    "additive before, fed": lambda: RecurrentModel(replace(RECURRENT, input_feeding=True, cell="lstm")),
    "general after": lambda: RecurrentModel(replace(RECURRENT, attention="general", attend="after", decoder_layers=2)),
    "dot after, fed": lambda: RecurrentModel(
        replace(RECURRENT, attention="dot", attend="after", input_feeding=True, cell="lstm", bridge="copy")
    ),
    "cosine after": lambda: RecurrentModel(replace(RECURRENT, attention="cosine", attend="after", cell="mut1")),
    "location before": lambda: RecurrentModel(replace(RECURRENT, attention="location", cell="mut2")),
    "scaled dot before": lambda: RecurrentModel(replace(RECURRENT, attention="scaled-dot", cell="mut3")),
    "vanilla, additive after": lambda: RecurrentModel(
        replace(RECURRENT, attend="after", cell="rnn", share="none", output_bias=True)
    ),
    "copying after": lambda: RecurrentModel(
        replace(RECURRENT, attend="after", copy=True, share="all", source_vocab_size=19)
    ),
    "copying before, fed": lambda: RecurrentModel(
        replace(RECURRENT, copy=True, input_feeding=True, cell="lstm", share="output", source_vocab_size=19)
    ),
    "covered, copying after": lambda: RecurrentModel(
        replace(RECURRENT, attend="after", copy=True, coverage=1.0, share="all", source_vocab_size=19)
    ),
    "covered, before": lambda: RecurrentModel(replace(RECURRENT, coverage=0.5)),
    "convolutional": lambda: Convolutional(CONVOLUTIONAL),
    "convolutional, wide kernels": lambda: Convolutional(
        replace(CONVOLUTIONAL, encoder_kernel=5, decoder_kernel=4, attention="additive")
    ),
}


BERT = BertConfig(vocab_size=19, width=12, heads=2, layers=2, feed_forward=14, max_len=20, dropout=0.0)
BERT = replace(BERT, attention_dropout=0.0, head_dropout=0.0)
ENCODERS = {
    "words and next text": lambda: Bert(BERT),
    "words, no segments": lambda: Bert(replace(BERT, head="words", segments=0, pooler="none")),
    "classes": lambda: Bert(replace(BERT, head="classes", labels=("a", "b", "c"))),
    "classes, shifted positions, relu": lambda: Bert(
        replace(BERT, head="classes", labels=("a", "b"), pooler="relu", position_offset=2, activation="relu")
    ),
    "classes by the mean": lambda: Bert(replace(BERT, head="classes", labels=("a", "b"), pooler="none")),
    "tags": lambda: Bert(replace(BERT, head="tags", labels=("a", "b", "c"), pooler="none")),
    "spans": lambda: Bert(replace(BERT, head="spans", pooler="none")),
    "classes, rotary": lambda: Bert(replace(BERT, head="classes", labels=("a", "b"), positions="rotary")),
    "words, ALiBi": lambda: Bert(replace(BERT, head="words", pooler="none", positions="alibi")),
    "tags, relative": lambda: Bert(
        replace(BERT, head="tags", labels=("a", "b", "c"), pooler="none", positions="relative")
    ),
    "words, sinusoidal": lambda: Bert(replace(BERT, head="words", pooler="none", positions="sinusoidal")),
}

# A grid of 3 x 3 patches and [CLS].
VIT = ViTConfig(labels=tuple("abcde"), image_size=12, patch_size=4, width=12, heads=2, layers=2, feed_forward=14)
PICTURE_MODELS = {
    "pictures": lambda: ViT(VIT),
    "pictures, pooled": lambda: ViT(replace(VIT, pooler=True)),
    "pictures, rms, gated, no biases": lambda: ViT(replace(VIT, norm="rms", gated=True, activation="silu", bias=False)),
    "pictures, grey, normed queries": lambda: ViT(replace(VIT, channels=1, qk_norm=True)),
}


def make(name):
    """The named model, the same every time."""
    torch.manual_seed(0)
    return {**MODELS, **ENCODERS, **PICTURE_MODELS}[name]().eval()


def texts(rows):
    """Rows as an encoder reads them; the second half of each is of the second segment."""
    tokens = Tokens.of(rows)
    halves = (torch.arange(tokens.ids.shape[1]) >= tokens.lengths[:, None] // 2).long()
    return Texts(tokens, halves)


def rows(sizes, generator=None):
    sources = [torch.randint(4, 19, (source,), generator=generator).tolist() for source, _ in sizes]
    targets = [torch.randint(4, 19, (target,), generator=generator).tolist() for _, target in sizes]
    return sources, targets


def batch(sources, targets):
    return Pairs(Tokens.of(sources), Tokens.of(targets), sum(len(target) - 1 for target in targets))
