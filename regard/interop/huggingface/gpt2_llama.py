"""GPT-2: learned positions, layer norms, queries, keys and values in one matrix that is stored transposed.

The Llama type, such as SmolLM2: rotary positions, RMS norms, grouped heads and a gated feed-forward layer.
"""

from collections.abc import Mapping
from dataclasses import replace

from regard.config import JsonObject
from regard.errors import ConfigError
from regard.interop.huggingface.config_fields import (
    Field,
    Json,
    activation,
    number,
    only,
    only_ours,
    read_fields,
    tie,
    whole,
    write_fields,
)
from regard.interop.huggingface.weights import Family, Name, names
from regard.models.gpt import GPTConfig

GPT2_FIELDS = (
    Field("vocab_size", "vocab_size", whole, 50257),
    Field("n_embd", "width", whole, 768),
    Field("n_head", "heads", whole, 12),
    Field("n_layer", "layers", whole, 12),
    Field("n_inner", "feed_forward", whole, lambda ours: 4 * ours["width"]),
    Field("activation_function", "activation", activation, "gelu_new"),
    Field("layer_norm_epsilon", "norm_epsilon", number, 1e-5),
    Field("tie_word_embeddings", "tied", tie, True),
    Field("n_positions", "max_len", whole, 1024),
)
_NORMS = {"ln_1": "around_attention.norm", "ln_2": "around_feed_forward.norm"}
_ATTENTION = {"attn.c_attn": ("attention.query", "attention.key", "attention.value")}
_MATRICES = {
    "attn.c_proj": "attention.output",
    "mlp.c_fc": "feed_forward.inner",
    "mlp.c_proj": "feed_forward.outer",
}
_LAYER = ("transformer.h.{}.", "blocks.{}.")


def gpt2_settings(config: Json) -> JsonObject:
    only(config, "scale_attn_weights", True)
    only(config, "scale_attn_by_inverse_layer_idx", False)
    only(config, "add_cross_attention", False)
    return {**read_fields(GPT2_FIELDS, config), "dropout": 0.0}


def gpt2_configuration(config: GPTConfig) -> dict[str, object]:
    only_ours(config, "GPT-2", norm="layer", gated=False, bias=True, window=None)
    if config.kv_heads not in (None, config.heads):
        only_ours(config, "GPT-2", kv_heads=None)
    if config.block().per_head != config.width // config.heads:
        only_ours(config, "GPT-2", head_width=None)
    return {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        **write_fields(GPT2_FIELDS, config),
        "embd_pdrop": config.dropout,
        "resid_pdrop": config.dropout,
        "attn_pdrop": config.attention_dropout,
    }


GPT2 = Family(
    model="gpt",
    task="language",
    settings=gpt2_settings,
    fits=lambda config: config.positions == "learned",
    configuration=gpt2_configuration,
    outside=(
        Name("transformer.wte.weight", ("embedding.tokens.weight",)),
        Name("transformer.wpe.weight", ("embedding.positions.table",)),
        *names({"transformer.ln_f": "norm"}),
    ),
    stacks={
        "layers": (
            *names(_NORMS, *_LAYER),
            *names(_ATTENTION, *_LAYER, transposed=True),
            *names(_MATRICES, *_LAYER, transposed=True),
        )
    },
    head="lm_head.weight",
    copies=(("lm_head.weight", "transformer.wte.weight"),),
    prefix="transformer.",
    ignored=r"(transformer\.)?h\.\d+\.attn\.(masked_)?bias",  # masks that old checkpoints carry along
    aliases={
        **{"hidden_size": "n_embd", "max_position_embeddings": "n_positions"},
        **{"num_attention_heads": "n_head", "num_hidden_layers": "n_layer"},
    },
)


LLAMA_FIELDS = (
    Field("vocab_size", "vocab_size", whole, 32000),
    Field("hidden_size", "width", whole, 4096),
    Field("num_attention_heads", "heads", whole, 32),
    Field("num_key_value_heads", "kv_heads", whole, lambda ours: ours["heads"]),
    Field("num_hidden_layers", "layers", whole, 32),
    Field("intermediate_size", "feed_forward", whole, 11008),
    Field("hidden_act", "activation", activation, "silu"),
    Field("rms_norm_eps", "norm_epsilon", number, 1e-6),
    Field("attention_bias", "bias", tie, False),
    Field("tie_word_embeddings", "tied", tie, False),
    Field("max_position_embeddings", "max_len", whole, 2048),
)
_LLAMA_LAYER = {
    "input_layernorm": "around_attention.norm",
    "post_attention_layernorm": "around_feed_forward.norm",
    "self_attn.q_proj": "attention.query",
    "self_attn.k_proj": "attention.key",
    "self_attn.v_proj": "attention.value",
    "self_attn.o_proj": "attention.output",
    "mlp.gate_proj": "feed_forward.inner",  # theirs goes through the activation, as does our inner one
    "mlp.up_proj": "feed_forward.gate",
    "mlp.down_proj": "feed_forward.outer",
}


def llama_settings(config: Json) -> JsonObject:
    only(config, "pretraining_tp", 1)
    ours = read_fields(LLAMA_FIELDS, config)
    only(config, "mlp_bias", ours["bias"])
    return {
        **ours,
        "head_width": None if config.get("head_dim") is None else whole(config, "head_dim"),
        "gated": True,
        "norm": "rms",
        "positions": "rotary",
        "rotary_base": _rotary_base(config),
        "dropout": 0.0,
    }


def _rotary_base(config: Json) -> float:
    """Newer configurations keep it among `rope_parameters`, older ones beside `rope_scaling`; all that say it must say
    the same, for readers differ in which of them they believe."""
    only(config, "partial_rotary_factor", None, 1.0)
    said: JsonObject = {field: config.get(field) or {} for field in ("rope_parameters", "rope_scaling")}
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


def _nested(parameters: Json) -> bool:
    """Whether layers have parameters of their own."""
    return any(isinstance(value, Mapping) for value in parameters.values())


def with_equal_heads(config: GPTConfig) -> GPTConfig:
    """Where heads were removed and every layer has as many left, a model of just these: a head's width can be said."""
    counts, group = {*(config.layer_heads or ())}, config.heads // (config.kv_heads or config.heads)
    if len(counts) != 1 or counts == {0}:
        return config
    (heads,) = counts
    return replace(config, heads=heads, kv_heads=heads // group, head_width=config.block().per_head, layer_heads=None)


def llama_configuration(config: GPTConfig) -> dict[str, object]:
    only_ours(config, "Llama's form", norm="rms", gated=True, window=None)
    return {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        **write_fields(LLAMA_FIELDS, config),
        "num_key_value_heads": config.kv_heads or config.heads,
        "head_dim": config.block().per_head,
        "mlp_bias": config.bias,
        "rope_parameters": {"rope_theta": config.rotary_base, "rope_type": "default"},
        "rope_theta": config.rotary_base,
    }


LLAMA = Family(
    model="gpt",
    task="language",
    settings=llama_settings,
    fits=lambda config: config.positions == "rotary",
    configuration=llama_configuration,
    outside=(
        Name("model.embed_tokens.weight", ("embedding.tokens.weight",)),
        Name("model.norm.weight", ("norm.weight",)),
    ),
    stacks={"layers": names(_LLAMA_LAYER, "model.layers.{}.", "blocks.{}.")},
    head="lm_head.weight",
    copies=(("lm_head.weight", "model.embed_tokens.weight"),),
    ignored=r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq",  # a table that old checkpoints carry along
)
