"""BART: learned positions counted from row 2, a norm after the embedding, norms after each sublayer."""

from collections.abc import Mapping
from typing import Any

from regard.interop.huggingface.names import (
    ACTIVATIONS,
    THEIR_ACTIVATIONS,
    Name,
    one_of,
    only,
    ours_only,
    whole,
    yes_or_no,
)
from regard.models.transformer import TransformerConfig

MODEL, TASK, START = "transformer", "translation", "eos_token_id"
PREFIX = "model."
IGNORED = r"(model\.)?(encoder|decoder)\.version"
HEAD = "lm_head.weight"
COPIES: dict[str, str] = dict.fromkeys(
    (HEAD, "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"), "model.shared.weight"
)
ALIASES = {
    "num_attention_heads": "encoder_attention_heads",
    "hidden_size": "d_model",
    "num_hidden_layers": "encoder_layers",
}
OFFSET = 2

_ATTENTION = {"q_proj": "query", "k_proj": "key", "v_proj": "value", "out_proj": "output"}
_PARTS = {
    **{f"self_attn.{theirs}": f"attention.{ours}" for theirs, ours in _ATTENTION.items()},
    "self_attn_layer_norm": "around_attention.norm",
    "fc1": "feed_forward.inner",
    "fc2": "feed_forward.outer",
    "final_layer_norm": "around_feed_forward.norm",
}
_CROSS_PARTS = {
    **{f"encoder_attn.{theirs}": f"cross_attention.{ours}" for theirs, ours in _ATTENTION.items()},
    "encoder_attn_layer_norm": "around_cross_attention.norm",
}
BIAS = Name("final_logits_bias", ("head.bias",), nested=True, optional=True)
OUTSIDE = (
    Name("model.shared.weight", ("source.tokens.weight",)),
    Name("model.encoder.embed_positions.weight", ("source.positions.table",)),
    Name("model.decoder.embed_positions.weight", ("target.positions.table",)),
    *(
        Name(f"model.{side}.layernorm_embedding.{part}", (f"{ours}.norm.{part}",))
        for side, ours in (("encoder", "source"), ("decoder", "target"))
        for part in ("weight", "bias")
    ),
    BIAS,
)


def stack(side: str, parts: Mapping[str, str]) -> tuple[Name, ...]:
    """The names of one stack's layers."""
    return tuple(
        Name(f"model.{side}.layers.{{}}.{theirs}.{part}", (f"{side}.{{}}.{ours}.{part}",))
        for theirs, ours in parts.items()
        for part in ("weight", "bias")
    )


STACKS = {
    "encoder_layers": stack("encoder", _PARTS),
    "decoder_layers": stack("decoder", {**_PARTS, **_CROSS_PARTS}),
}


def settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Our settings of the model."""
    only(config, "normalize_before", False)
    only(config, "normalize_embedding", True)
    only(config, "add_final_layer_norm", False)
    only(config, "static_position_embeddings", False)
    only(config, "tie_word_embeddings", True)
    return {
        **sizes(config),
        "positions": "learned",
        "position_offset": OFFSET,
        "own_positions": True,
        "norm_embedding": True,
    }


def sizes(config: Mapping[str, Any]) -> dict[str, Any]:
    """What BART and Marian say alike: both stacks have heads and feed-forward layers of one size."""
    heads, hidden = whole(config, "encoder_attention_heads", 16), whole(config, "encoder_ffn_dim", 4096)
    only(config, "decoder_attention_heads", heads)
    only(config, "decoder_ffn_dim", hidden)
    only(config, "is_encoder_decoder", True)
    vocab_size = whole(config, "vocab_size", 50265)
    return {
        "source_vocab_size": vocab_size,
        "target_vocab_size": vocab_size,
        "width": whole(config, "d_model", 1024),
        "heads": heads,
        "encoder_layers": whole(config, "encoder_layers", 12),
        "decoder_layers": whole(config, "decoder_layers", 12),
        "feed_forward": hidden,
        "activation": one_of(config, "activation_function", ACTIVATIONS, "gelu"),
        "share": "all",
        "output_bias": True,
        "scale_embedding": yes_or_no(config, "scale_embedding", False),
        "dropout": 0.0,
        "max_len": whole(config, "max_position_embeddings", 1024),
    }


def fits(config: TransformerConfig) -> bool:
    return config.positions == "learned"


def configuration(config: TransformerConfig) -> dict[str, Any]:
    """Their configuration of our model."""
    ours_only(config, "BART", share="all", own_positions=True, position_offset=OFFSET, norm_embedding=True)
    return {"model_type": "bart", "architectures": ["BartForConditionalGeneration"], **their_sizes(config, "BART")}


def their_sizes(config: TransformerConfig, where: str) -> dict[str, Any]:
    ours_only(config, where, norm="layer", norm_first=False, norm_epsilon=1e-5, gated=False, bias=True, window=None)
    ours_only(config, where, scaled=True, qk_norm=False, residual=True, position_how="add", scale_output=False)
    for name, usual in (("kv_heads", config.heads), ("head_width", config.width // config.heads)):
        if getattr(config, name) != usual:
            ours_only(config, where, **{name: None})
    return {
        "is_encoder_decoder": True,
        "vocab_size": config.source_vocab_size,
        "d_model": config.width,
        "encoder_layers": config.encoder_layers,
        "decoder_layers": config.decoder_layers,
        "encoder_attention_heads": config.heads,
        "decoder_attention_heads": config.heads,
        "encoder_ffn_dim": config.feed_forward,
        "decoder_ffn_dim": config.feed_forward,
        "activation_function": THEIR_ACTIVATIONS[config.activation],
        "scale_embedding": config.scale_embedding,
        "max_position_embeddings": config.max_len,
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "activation_dropout": config.activation_dropout,
        "encoder_layerdrop": config.layer_drop,
        "decoder_layerdrop": config.layer_drop,
        "tie_word_embeddings": True,
    }
