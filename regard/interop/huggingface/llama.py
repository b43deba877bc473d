"""The Llama type: rotary positions, RMS norms, grouped heads and a gated feed-forward layer. SmolLM2 is one."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from regard.errors import ConfigError
from regard.interop.huggingface.names import (
    ACTIVATIONS,
    THEIR_ACTIVATIONS,
    Name,
    number,
    one_of,
    only,
    ours_only,
    whole,
)
from regard.models.gpt import GPTConfig

MODEL, TASK = "gpt", "language"
PREFIX = ""
IGNORED = r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq"  # a table that old checkpoints carry along
HEAD = "lm_head.weight"
COPIES = {HEAD: "model.embed_tokens.weight"}

_MATRICES = {
    "self_attn.q_proj": "attention.query",
    "self_attn.k_proj": "attention.key",
    "self_attn.v_proj": "attention.value",
    "self_attn.o_proj": "attention.output",
    "mlp.gate_proj": "feed_forward.inner",  # theirs goes through the activation, as does our inner one
    "mlp.up_proj": "feed_forward.gate",
    "mlp.down_proj": "feed_forward.outer",
}
OUTSIDE = (
    Name("model.embed_tokens.weight", ("embedding.tokens.weight",)),
    Name("model.norm.weight", ("norm.weight",)),
)
_LAYER = (
    Name("model.layers.{}.input_layernorm.weight", ("blocks.{}.around_attention.norm.weight",)),
    Name("model.layers.{}.post_attention_layernorm.weight", ("blocks.{}.around_feed_forward.norm.weight",)),
    *(
        Name(f"model.layers.{{}}.{theirs}.weight", (f"blocks.{{}}.{ours}.weight",))
        for theirs, ours in _MATRICES.items()
    ),
    *(Name(f"model.layers.{{}}.{theirs}.bias", (f"blocks.{{}}.{ours}.bias",)) for theirs, ours in _MATRICES.items()),
)
STACKS = {"layers": _LAYER}


def settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Our settings of the model."""
    only(config, "pretraining_tp", 1)
    only(config, "attention_bias", False, True)
    only(config, "mlp_bias", config.get("attention_bias", False))
    only(config, "tie_word_embeddings", False, True)
    width, heads = whole(config, "hidden_size", 4096), whole(config, "num_attention_heads", 32)
    return {
        "vocab_size": whole(config, "vocab_size", 32000),
        "width": width,
        "heads": heads,
        "kv_heads": whole(config, "num_key_value_heads", heads),
        "head_width": None if config.get("head_dim") is None else whole(config, "head_dim"),
        "layers": whole(config, "num_hidden_layers", 32),
        "feed_forward": whole(config, "intermediate_size", 11008),
        "activation": one_of(config, "hidden_act", ACTIVATIONS, "silu"),
        "gated": True,
        "norm": "rms",
        "norm_epsilon": number(config, "rms_norm_eps", 1e-6),
        "bias": config.get("attention_bias", False),
        "positions": "rotary",
        "rotary_base": _rotary_base(config),
        "tied": config.get("tie_word_embeddings", False),
        "max_len": whole(config, "max_position_embeddings", 2048),
        "dropout": 0.0,
    }


def _rotary_base(config: Mapping[str, Any]) -> float:
    """Newer configurations keep it among `rope_parameters`, older ones beside `rope_scaling`; all that say it must say
    the same, for readers differ in which of them they believe."""
    only(config, "partial_rotary_factor", None, 1.0)
    said = {field: config.get(field) or {} for field in ("rope_parameters", "rope_scaling")}
    for field, parameters in said.items():
        if not isinstance(parameters, Mapping):
            raise ConfigError(f"config.json: {field}={parameters!r} must be an object")
        kinds = {parameters.get(name, "default") for name in ("rope_type", "type")}
        if kinds != {"default"} or parameters.get("partial_rotary_factor", 1.0) != 1.0 or _nested(parameters):
            raise ConfigError(f"config.json: {field}={dict(parameters)!r} is not supported, only rope_type 'default'")
    chosen = said["rope_scaling"] or said["rope_parameters"]  # theirs, all of the one or all of the other
    base = number(chosen if "rope_theta" in chosen else config, "rope_theta", 10000.0)
    if any(number(one, "rope_theta", base) != base for one in (*said.values(), config)):
        raise ConfigError(
            f"config.json: rope_theta={config.get('rope_theta')!r}, rope_parameters={said['rope_parameters']!r} and "
            f"rope_scaling={said['rope_scaling']!r} disagree on rope_theta: leave one of them"
        )
    return base


def _nested(parameters: Mapping[str, Any]) -> bool:
    """Whether layers have parameters of their own."""
    return any(isinstance(value, Mapping) for value in parameters.values())


def fits(config: Any) -> bool:
    return isinstance(config, GPTConfig) and config.positions == "rotary"


def with_equal_heads(config: GPTConfig) -> GPTConfig:
    """Where heads were removed and every layer has as many left, a model of just these: a head's width can be said."""
    counts, group = {*(config.layer_heads or ())}, config.heads // (config.kv_heads or config.heads)
    if len(counts) != 1 or counts == {0}:
        return config
    (heads,) = counts
    return replace(config, heads=heads, kv_heads=heads // group, head_width=config.block().per_head, layer_heads=None)


def configuration(config: GPTConfig) -> dict[str, Any]:
    """Their configuration of our model."""
    ours_only(config, "Llama's form", norm="rms", gated=True, window=None)
    return {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": config.vocab_size,
        "hidden_size": config.width,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads or config.heads,
        "head_dim": config.block().per_head,
        "num_hidden_layers": config.layers,
        "intermediate_size": config.feed_forward,
        "max_position_embeddings": config.max_len,
        "hidden_act": THEIR_ACTIVATIONS[config.activation],
        "rms_norm_eps": config.norm_epsilon,
        "attention_bias": config.bias,
        "mlp_bias": config.bias,
        "rope_parameters": {"rope_theta": config.rotary_base, "rope_type": "default"},
        "rope_theta": config.rotary_base,
        "tie_word_embeddings": config.tied,
    }
