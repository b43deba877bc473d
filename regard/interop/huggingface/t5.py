"""T5: a learned bias of distances in place of positions, RMS norms first, no biases, scores that are not scaled."""

from collections.abc import Mapping

from regard.config import JsonObject
from regard.errors import ConfigError
from regard.interop.huggingface.config_fields import (
    ACTIVATIONS,
    THEIR_ACTIVATIONS,
    Field,
    Json,
    number,
    only,
    only_ours,
    read_fields,
    whole,
    write_fields,
    yes_or_no,
)
from regard.interop.huggingface.weights import Family, Name, Shapes, names
from regard.models.transformer import TransformerConfig

LONGEST = 512
"""The length T5 was trained at: its positions have no end, so a checkpoint need not say any."""
FIELDS = (
    Field("vocab_size", "source_vocab_size", whole, 32128),
    Field("vocab_size", "target_vocab_size", whole, 32128),
    Field("d_model", "width", whole, 512),
    Field("num_heads", "heads", whole, 8),
    Field("d_kv", "head_width", whole, 64),
    Field("num_layers", "encoder_layers", whole, 6),
    Field("num_decoder_layers", "decoder_layers", whole, lambda ours: ours["encoder_layers"]),
    Field("d_ff", "feed_forward", whole, 2048),
    Field("layer_norm_epsilon", "norm_epsilon", number, 1e-6),
    Field("relative_attention_num_buckets", "relative_buckets", whole, 32),
    Field("relative_attention_max_distance", "relative_distance", whole, 128),
    Field("n_positions", "max_len", whole, LONGEST),
)
FORM = {"norm": "rms", "norm_first": True, "scaled": False, "bias": False, "scale_embedding": False}
"""Settings that every T5 has."""
_HEAD = "lm_head.weight"
_SIDES = ("encoder", "decoder")
_ATTENTION = {"q": "query", "k": "key", "v": "value", "o": "output"}
_FEED_FORWARD = {"wi": "inner", "wo": "outer"}
_GATED_FEED_FORWARD = {"wi_0": "inner", "wi_1": "gate", "wo": "outer"}


def _stack(side: str, attentions: Mapping[str, str]) -> tuple[Name, ...]:
    """The names of one stack's layers: its attentions in their order, then the feed-forward layer."""
    rows: list[Name] = []
    for place, (theirs, ours) in enumerate({**attentions, "DenseReluDense": "feed_forward"}.items()):
        layer, own = f"{side}.block.{{}}.layer.{place}.", f"{side}.{{}}."
        inside = (f"{layer}{theirs}.", f"{own}{ours}.")
        if theirs in attentions:
            rows += names(_ATTENTION, *inside)
        else:
            rows += names(_FEED_FORWARD, *inside, when=("gated", (False,)))
            rows += names(_GATED_FEED_FORWARD, *inside, when=("gated", (True,)))
        rows += names({"layer_norm": f"around_{ours}.norm"}, layer, own)
    return tuple(rows)


def settings(config: Json) -> JsonObject:
    only(config, "is_encoder_decoder", True)
    activation, gated = _feed_forward(config)
    return {
        **read_fields(FIELDS, config),
        **FORM,
        "activation": activation,
        "gated": gated,
        "positions": "relative",
        # Older configurations say by the tie alone whether the head's input is scaled.
        "scale_output": yes_or_no(config, "scale_decoder_outputs", yes_or_no(config, "tie_word_embeddings", True)),
        "dropout": 0.0,
    }


def found(config: Json, shapes: Shapes) -> dict[str, object]:
    """What only the stored weights tell: whether the head has a table of its own."""
    return {"share": "input" if _HEAD in shapes else "all"}


def _feed_forward(config: Json) -> tuple[str, bool]:
    said = config.get("feed_forward_proj", "relu")
    gated, name = str(said).startswith("gated-"), str(said).removeprefix("gated-")
    if name not in ACTIVATIONS:
        raise ConfigError(f"config.json: feed_forward_proj={said!r} is not supported, only {', '.join(ACTIVATIONS)}")
    name = "gelu_new" if said == "gated-gelu" else name  # the approximation is meant there
    # What the above stands for may be said as well, and is then what counts.
    for field, meant in (("dense_act_fn", name), ("is_gated_act", gated)):
        if field in config and config[field] != meant:
            raise ConfigError(
                f"config.json: {field}={config[field]!r} disagrees with feed_forward_proj={said!r}, that is {meant!r}"
            )
    return ACTIVATIONS[name], gated


def configuration(config: TransformerConfig) -> dict[str, object]:
    only_ours(config, "T5", **FORM, output_bias=False, window=None, qk_norm=False)
    only_ours(config, "T5", residual=True, norm_embedding=False, layer_drop=0.0, copy=False)
    if config.share != "input":
        only_ours(config, "T5", share="all")
    if config.kv_heads not in (None, config.heads):
        only_ours(config, "T5", kv_heads=None)
    name = THEIR_ACTIVATIONS[config.activation]
    if config.gated and config.activation == "gelu":
        only_ours(config, "T5's gated layers", activation="gelu-tanh")
    return {
        "model_type": "t5",
        "architectures": ["T5ForConditionalGeneration"],
        "is_encoder_decoder": True,
        **write_fields(FIELDS, config),
        "vocab_size": config.source_vocab_size,
        "d_kv": config.block().per_head,
        "feed_forward_proj": f"gated-{name.replace('gelu_new', 'gelu')}" if config.gated else name,
        "dropout_rate": config.dropout,
        # Both, for readers of either age: a head that is scaled is one that is tied.
        "tie_word_embeddings": config.scale_output,
        "scale_decoder_outputs": config.scale_output,
    }


T5 = Family(
    model="transformer",
    task="translation",
    start="pad_token_id",
    settings=settings,
    found=found,
    fits=lambda config: config.positions == "relative",
    configuration=configuration,
    outside=(
        Name("shared.weight", ("source.tokens.weight",)),
        *(
            Name(f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight", (f"{side}_distances.table",))
            for side in _SIDES
        ),
        *(Name(f"{side}.final_layer_norm.weight", (f"{side}_norm.weight",)) for side in _SIDES),
    ),
    stacks={
        "encoder_layers": _stack("encoder", {"SelfAttention": "attention"}),
        "decoder_layers": _stack("decoder", {"SelfAttention": "attention", "EncDecAttention": "cross_attention"}),
    },
    head=_HEAD,
    copies=tuple((f"{side}.embed_tokens.weight", "shared.weight") for side in _SIDES),
    # A bias that old checkpoints carry along and nothing uses.
    ignored=r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight",
    aliases={
        **{"hidden_size": "d_model", "num_attention_heads": "num_heads"},
        **{"num_hidden_layers": "num_layers", "head_dim": "d_kv"},
    },
)
