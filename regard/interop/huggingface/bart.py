"""BART: learned positions from row 2, norms after the embedding and each sublayer; Marian: the same with sinusoids."""

from regard.config import JsonObject
from regard.interop.huggingface.config_fields import (
    Field,
    Json,
    activation,
    only,
    only_ours,
    read_fields,
    whole,
    write_fields,
    yes_or_no,
)
from regard.interop.huggingface.weights import Family, Name, names
from regard.models.transformer import TransformerConfig

FIELDS = (
    Field("d_model", "width", whole, 1024),
    Field("encoder_attention_heads", "heads", whole, 16),
    Field("encoder_layers", "encoder_layers", whole, 12),
    Field("decoder_layers", "decoder_layers", whole, 12),
    Field("encoder_ffn_dim", "feed_forward", whole, 4096),
    Field("activation_function", "activation", activation, "gelu"),
    Field("scale_embedding", "scale_embedding", yes_or_no, False),
    Field("max_position_embeddings", "max_len", whole, 1024),
)
BART_FORM = {
    "share": "all",
    "positions": "learned",
    "position_offset": 2,
    "own_positions": True,
    "norm_embedding": True,
}
"""Settings that every BART has."""
_ATTENTION = {"q_proj": "query", "k_proj": "key", "v_proj": "value", "out_proj": "output"}
_ENCODER = {
    **{f"self_attn.{theirs}": f"attention.{ours}" for theirs, ours in _ATTENTION.items()},
    "self_attn_layer_norm": "around_attention.norm",
    "fc1": "feed_forward.inner",
    "fc2": "feed_forward.outer",
    "final_layer_norm": "around_feed_forward.norm",
}
_DECODER = {
    **_ENCODER,
    **{f"encoder_attn.{theirs}": f"cross_attention.{ours}" for theirs, ours in _ATTENTION.items()},
    "encoder_attn_layer_norm": "around_cross_attention.norm",
}
_STACKS = {
    "encoder_layers": names(_ENCODER, "model.encoder.layers.{}.", "encoder.{}."),
    "decoder_layers": names(_DECODER, "model.decoder.layers.{}.", "decoder.{}."),
}
_HEAD = "lm_head.weight"
_EMBEDDINGS = ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight")
_COPIES = (
    *((name, "model.shared.weight") for name in (_HEAD, *_EMBEDDINGS)),
    (_HEAD, "model.decoder.embed_tokens.weight"),  # where Marian has a table per side
)
_POSITIONS = ("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight")
_BIAS = Name("final_logits_bias", ("head.bias",), nested=True, optional=True)
_ALIASES = {
    "num_attention_heads": "encoder_attention_heads",
    "hidden_size": "d_model",
    "num_hidden_layers": "encoder_layers",
}


def _sizes(config: Json, entries: int) -> JsonObject:
    """What BART and Marian say alike: both stacks have heads and feed-forward layers of one size."""
    for field, wanted in (("normalize_before", False), ("add_final_layer_norm", False), ("tie_word_embeddings", True)):
        only(config, field, wanted)
    only(config, "is_encoder_decoder", True)
    ours = read_fields(FIELDS, config)
    only(config, "decoder_attention_heads", ours["heads"])
    only(config, "decoder_ffn_dim", ours["feed_forward"])
    vocabulary = dict.fromkeys(("source_vocab_size", "target_vocab_size"), whole(config, "vocab_size", entries))
    return {**vocabulary, **ours, "output_bias": True, "dropout": 0.0}


def bart_settings(config: Json) -> JsonObject:
    only(config, "normalize_embedding", True)
    only(config, "static_position_embeddings", False)
    return {**_sizes(config, 50265), **BART_FORM}


def marian_settings(config: Json) -> JsonObject:
    only(config, "normalize_embedding", False)
    only(config, "static_position_embeddings", True)
    shared = yes_or_no(config, "share_encoder_decoder_embeddings", True)
    ours = _sizes(config, 58101)
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


def _configuration(config: TransformerConfig, family: str) -> dict[str, object]:
    only_ours(config, family, norm="layer", norm_first=False, norm_epsilon=1e-5, gated=False, bias=True, window=None)
    only_ours(config, family, scaled=True, qk_norm=False, residual=True, position_how="add", scale_output=False)
    only_ours(config, family, copy=False)
    for name, usual in (("kv_heads", config.heads), ("head_width", config.width // config.heads)):
        if getattr(config, name) != usual:
            only_ours(config, family, **{name: None})
    return {
        "is_encoder_decoder": True,
        **write_fields(FIELDS, config),
        "vocab_size": config.source_vocab_size,
        "decoder_attention_heads": config.heads,
        "decoder_ffn_dim": config.feed_forward,
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "activation_dropout": config.activation_dropout,
        "encoder_layerdrop": config.layer_drop,
        "decoder_layerdrop": config.layer_drop,
        "tie_word_embeddings": True,
    }


def bart_configuration(config: TransformerConfig) -> dict[str, object]:
    only_ours(config, "BART", **BART_FORM)
    named = {"model_type": "bart", "architectures": ["BartForConditionalGeneration"]}
    return {**named, **_configuration(config, "BART")}


def marian_configuration(config: TransformerConfig) -> dict[str, object]:
    only_ours(config, "Marian", position_layout="halves", norm_embedding=False)
    if config.share != "output":
        only_ours(config, "Marian", share="all")
    return {
        "model_type": "marian",
        "architectures": ["MarianMTModel"],
        **_configuration(config, "Marian"),
        "decoder_vocab_size": config.target_vocab_size,
        "share_encoder_decoder_embeddings": config.share == "all",
    }


BART = Family(
    model="transformer",
    task="translation",
    start="eos_token_id",
    settings=bart_settings,
    fits=lambda config: config.positions == "learned",
    configuration=bart_configuration,
    outside=(
        Name("model.shared.weight", ("source.tokens.weight",)),
        Name(_POSITIONS[0], ("source.positions.table",)),
        Name(_POSITIONS[1], ("target.positions.table",)),
        *names({"encoder.layernorm_embedding": "source.norm", "decoder.layernorm_embedding": "target.norm"}, "model."),
        _BIAS,
    ),
    stacks=_STACKS,
    head=_HEAD,
    copies=_COPIES,
    prefix="model.",
    ignored=r"(model\.)?(encoder|decoder)\.version",
    aliases=_ALIASES,
)
MARIAN = Family(
    model="transformer",
    task="translation",
    start="pad_token_id",
    settings=marian_settings,
    fits=lambda config: config.positions == "sinusoidal",
    configuration=marian_configuration,
    outside=(
        Name("model.shared.weight", ("source.tokens.weight",), when=("share", ("all",))),
        Name(_EMBEDDINGS[0], ("source.tokens.weight",), when=("share", ("output",))),
        Name(_EMBEDDINGS[1], ("target.tokens.weight",), when=("share", ("output",))),
        _BIAS,
    ),
    stacks=_STACKS,
    head=_HEAD,
    copies=_COPIES,
    sinusoids=_POSITIONS,
    aliases=_ALIASES,
)
