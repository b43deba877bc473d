"""GPT-2: learned positions, layer norms, queries, keys and values in one matrix that is stored transposed."""

from typing import Any

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

FIELDS = (
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


def settings(config: Json) -> dict[str, Any]:
    only(config, "scale_attn_weights", True)
    only(config, "scale_attn_by_inverse_layer_idx", False)
    only(config, "add_cross_attention", False)
    return {**read_fields(FIELDS, config), "dropout": 0.0}


def configuration(config: GPTConfig) -> dict[str, Any]:
    only_ours(config, "GPT-2", norm="layer", gated=False, bias=True, window=None)
    if config.kv_heads not in (None, config.heads):
        only_ours(config, "GPT-2", kv_heads=None)
    if config.block().per_head != config.width // config.heads:
        only_ours(config, "GPT-2", head_width=None)
    return {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        **write_fields(FIELDS, config),
        "embd_pdrop": config.dropout,
        "resid_pdrop": config.dropout,
        "attn_pdrop": config.attention_dropout,
    }


GPT2 = Family(
    model="gpt",
    task="language",
    settings=settings,
    fits=lambda config: config.positions == "learned",
    configuration=configuration,
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
