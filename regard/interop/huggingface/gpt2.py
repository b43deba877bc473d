"""GPT-2: learned positions, layer norms, queries, keys and values in one matrix that is stored on its side."""

from collections.abc import Mapping
from typing import Any

from regard.interop.huggingface.names import ACTIVATIONS, THEIR_ACTIVATIONS, Name, number, one_of, only, whole
from regard.interop.huggingface.names import ours_only as _ours_only
from regard.models.gpt import GPTConfig

MODEL, TASK = "gpt", "language"
PREFIX = "transformer."
IGNORED = r"(transformer\.)?h\.\d+\.attn\.(masked_)?bias"  # masks that old checkpoints carry along
HEAD = "lm_head.weight"
COPIES = {HEAD: "transformer.wte.weight"}
ALIASES = {
    **{"hidden_size": "n_embd", "max_position_embeddings": "n_positions"},
    **{"num_attention_heads": "n_head", "num_hidden_layers": "n_layer"},
}

_PARTS = ("query", "key", "value")
OUTSIDE = (
    Name("transformer.wte.weight", ("embedding.tokens.weight",)),
    Name("transformer.wpe.weight", ("embedding.positions.table",)),
    Name("transformer.ln_f.weight", ("norm.weight",)),
    Name("transformer.ln_f.bias", ("norm.bias",)),
)
_LAYER = (
    Name("transformer.h.{}.ln_1.weight", ("blocks.{}.around_attention.norm.weight",)),
    Name("transformer.h.{}.ln_1.bias", ("blocks.{}.around_attention.norm.bias",)),
    Name("transformer.h.{}.attn.c_attn.weight", tuple(f"blocks.{{}}.attention.{part}.weight" for part in _PARTS), True),
    Name("transformer.h.{}.attn.c_attn.bias", tuple(f"blocks.{{}}.attention.{part}.bias" for part in _PARTS)),
    Name("transformer.h.{}.attn.c_proj.weight", ("blocks.{}.attention.output.weight",), True),
    Name("transformer.h.{}.attn.c_proj.bias", ("blocks.{}.attention.output.bias",)),
    Name("transformer.h.{}.ln_2.weight", ("blocks.{}.around_feed_forward.norm.weight",)),
    Name("transformer.h.{}.ln_2.bias", ("blocks.{}.around_feed_forward.norm.bias",)),
    Name("transformer.h.{}.mlp.c_fc.weight", ("blocks.{}.feed_forward.inner.weight",), True),
    Name("transformer.h.{}.mlp.c_fc.bias", ("blocks.{}.feed_forward.inner.bias",)),
    Name("transformer.h.{}.mlp.c_proj.weight", ("blocks.{}.feed_forward.outer.weight",), True),
    Name("transformer.h.{}.mlp.c_proj.bias", ("blocks.{}.feed_forward.outer.bias",)),
)
STACKS = {"layers": _LAYER}


def settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Our settings of the model."""
    only(config, "scale_attn_weights", True)
    only(config, "scale_attn_by_inverse_layer_idx", False)
    only(config, "add_cross_attention", False)
    only(config, "tie_word_embeddings", True, False)
    width = whole(config, "n_embd", 768)
    return {
        "vocab_size": whole(config, "vocab_size", 50257),
        "width": width,
        "heads": whole(config, "n_head", 12),
        "layers": whole(config, "n_layer", 12),
        "feed_forward": whole(config, "n_inner", 4 * width),
        "activation": one_of(config, "activation_function", ACTIVATIONS, "gelu_new"),
        "norm_epsilon": number(config, "layer_norm_epsilon", 1e-5),
        "tied": config.get("tie_word_embeddings", True),
        "max_len": whole(config, "n_positions", 1024),
        "dropout": 0.0,
    }


def fits(config: Any) -> bool:
    return isinstance(config, GPTConfig) and config.positions == "learned"


def configuration(config: GPTConfig) -> dict[str, Any]:
    """Their configuration of our model."""
    _ours_only(config, "GPT-2", norm="layer", gated=False, bias=True, window=None)
    if config.kv_heads not in (None, config.heads):
        _ours_only(config, "GPT-2", kv_heads=None)
    if config.block().per_head != config.width // config.heads:
        _ours_only(config, "GPT-2", head_width=None)
    return {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "vocab_size": config.vocab_size,
        "n_embd": config.width,
        "n_head": config.heads,
        "n_layer": config.layers,
        "n_inner": config.feed_forward,
        "n_positions": config.max_len,
        "activation_function": THEIR_ACTIVATIONS[config.activation],
        "layer_norm_epsilon": config.norm_epsilon,
        "tie_word_embeddings": config.tied,
        "embd_pdrop": config.dropout,
        "resid_pdrop": config.dropout,
        "attn_pdrop": config.attention_dropout,
    }
