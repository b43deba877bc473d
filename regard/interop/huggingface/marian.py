"""Marian: BART's layers with sinusoidal positions, all sines before all cosines, and no norm after the embedding."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from regard.interop.huggingface import bart
from regard.interop.huggingface.names import Name, only, ours_only, whole, yes_or_no
from regard.models.transformer import TransformerConfig
from regard.nn.positions import sinusoidal

MODEL, TASK, START = "transformer", "translation", "pad_token_id"
PREFIX = ""
IGNORED = r"(?!)"
SINUSOIDS = tuple(f"model.{side}.embed_positions.weight" for side in ("encoder", "decoder"))
"""Tables that anyone can work out, and some store all the same."""
HEAD = bart.HEAD
ALIASES = bart.ALIASES
STACKS = bart.STACKS
OUTSIDE = (
    Name("model.shared.weight", ("source.tokens.weight",), when=("share", "all")),
    Name("model.encoder.embed_tokens.weight", ("source.tokens.weight",), when=("share", "output")),
    Name("model.decoder.embed_tokens.weight", ("target.tokens.weight",), when=("share", "output")),
    bart.BIAS,
)


def copies(model: Mapping[str, Any]) -> dict[str, str]:
    """What may be stored once more, and what it is a copy of."""
    return bart.COPIES if model["share"] == "all" else {HEAD: "model.decoder.embed_tokens.weight"}


def sinusoids(model: Mapping[str, Any]) -> Tensor:
    """What stands under the names in SINUSOIDS, where it is stored."""
    return sinusoidal(model["max_len"], model["width"], "halves")


def settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Our settings of the model."""
    for field, wanted in (("normalize_before", False), ("normalize_embedding", False), ("add_final_layer_norm", False)):
        only(config, field, wanted)
    only(config, "static_position_embeddings", True)
    only(config, "tie_word_embeddings", True)
    shared = yes_or_no(config, "share_encoder_decoder_embeddings", True)
    ours = bart.sizes({"vocab_size": 58101, **config})
    target = whole(config, "decoder_vocab_size", ours["source_vocab_size"])
    if shared:
        only(config, "decoder_vocab_size", ours["source_vocab_size"], None)
    return {
        **ours,
        "target_vocab_size": target,
        "share": "all" if shared else "output",
        "positions": "sinusoidal",
        "position_layout": "halves",
    }


def fits(config: TransformerConfig) -> bool:
    return config.positions == "sinusoidal"


def configuration(config: TransformerConfig) -> dict[str, Any]:
    """Their configuration of our model."""
    ours_only(config, "Marian", position_layout="halves", norm_embedding=False)
    if config.share != "output":
        ours_only(config, "Marian", share="all")
    return {
        "model_type": "marian",
        "architectures": ["MarianMTModel"],
        **bart.their_sizes(config, "Marian"),
        "decoder_vocab_size": config.target_vocab_size,
        "share_encoder_decoder_embeddings": config.share == "all",
    }
