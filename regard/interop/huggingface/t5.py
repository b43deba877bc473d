"""T5: a learned bias of distances in place of positions, RMS norms first, no biases, scores that are not scaled."""

from collections.abc import Collection, Mapping
from typing import Any

from regard.errors import ConfigError
from regard.interop.huggingface.names import ACTIVATIONS, Name, number, only, ours_only, whole, yes_or_no
from regard.models.transformer import TransformerConfig

MODEL, TASK, START = "transformer", "translation", "pad_token_id"
PREFIX = ""
# A bias that old checkpoints carry along and nothing uses.
IGNORED = r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight"
HEAD = "lm_head.weight"
COPIES = {f"{side}.embed_tokens.weight": "shared.weight" for side in ("encoder", "decoder")}
ALIASES = {
    **{"hidden_size": "d_model", "num_attention_heads": "num_heads"},
    **{"num_hidden_layers": "num_layers", "head_dim": "d_kv"},
}
LONGEST = 512
"""The length T5 was trained at: its positions have no end, so a checkpoint need not say any."""

_SIDES = ("encoder", "decoder")
_ATTENTION = {"q": "query", "k": "key", "v": "value", "o": "output"}
_FEED_FORWARD = {"wi": "inner", "wo": "outer"}
_GATED_FEED_FORWARD = {"wi_0": "inner", "wi_1": "gate", "wo": "outer"}
OUTSIDE = (
    Name("shared.weight", ("source.tokens.weight",)),
    *(
        Name(f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight", (f"{side}_distances.table",))
        for side in _SIDES
    ),
    *(Name(f"{side}.final_layer_norm.weight", (f"{side}_norm.weight",)) for side in _SIDES),
)


def _sublayer(theirs: str, ours: str, parts: Mapping[str, str], when: tuple[str, Any] | None = None) -> list[Name]:
    return [Name(f"{theirs}.{one}.weight", (f"{ours}.{other}.weight",), when=when) for one, other in parts.items()]


def _stack(side: str, attentions: Mapping[str, str]) -> tuple[Name, ...]:
    """The names of one stack's layers: its attentions in their order, then the feed-forward layer."""
    rows: list[Name] = []
    for place, (theirs, ours) in enumerate({**attentions, "DenseReluDense": "feed_forward"}.items()):
        block, own = f"{side}.block.{{}}.layer.{place}", f"{side}.{{}}.{ours}"
        if theirs in attentions:
            rows += _sublayer(f"{block}.{theirs}", own, _ATTENTION)
        else:
            rows += _sublayer(f"{block}.{theirs}", own, _FEED_FORWARD, when=("gated", False))
            rows += _sublayer(f"{block}.{theirs}", own, _GATED_FEED_FORWARD, when=("gated", True))
        rows.append(Name(f"{block}.layer_norm.weight", (f"{side}.{{}}.around_{ours}.norm.weight",)))
    return tuple(rows)


STACKS = {
    "encoder_layers": _stack("encoder", {"SelfAttention": "attention"}),
    "decoder_layers": _stack("decoder", {"SelfAttention": "attention", "EncDecAttention": "cross_attention"}),
}


def settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Our settings of the model."""
    only(config, "is_encoder_decoder", True)
    activation, gated = _feed_forward(config)
    layers, vocab_size = whole(config, "num_layers", 6), whole(config, "vocab_size", 32128)
    return {
        "source_vocab_size": vocab_size,
        "target_vocab_size": vocab_size,
        "width": whole(config, "d_model", 512),
        "heads": whole(config, "num_heads", 8),
        "head_width": whole(config, "d_kv", 64),
        "encoder_layers": layers,
        "decoder_layers": whole(config, "num_decoder_layers", layers),
        "feed_forward": whole(config, "d_ff", 2048),
        "activation": activation,
        "gated": gated,
        "norm": "rms",
        "norm_first": True,
        "norm_epsilon": number(config, "layer_norm_epsilon", 1e-6),
        "scaled": False,
        "bias": False,
        "positions": "relative",
        "relative_buckets": whole(config, "relative_attention_num_buckets", 32),
        "relative_distance": whole(config, "relative_attention_max_distance", 128),
        "scale_embedding": False,
        # Older configurations say by the tie alone whether the head's input is scaled.
        "scale_output": yes_or_no(config, "scale_decoder_outputs", yes_or_no(config, "tie_word_embeddings", True)),
        "dropout": 0.0,
        "max_len": whole(config, "n_positions", LONGEST),
    }


def found(config: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """What only the stored weights tell: whether the head has a table of its own."""
    return {"share": "input" if HEAD in names else "all"}


def _feed_forward(config: Mapping[str, Any]) -> tuple[str, bool]:
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


def fits(config: TransformerConfig) -> bool:
    return config.positions == "relative"


def configuration(config: TransformerConfig) -> dict[str, Any]:
    """Their configuration of our model."""
    ours_only(config, "T5", norm="rms", norm_first=True, bias=False, output_bias=False, window=None, qk_norm=False)
    ours_only(config, "T5", scaled=False, residual=True, scale_embedding=False, norm_embedding=False, layer_drop=0.0)
    if config.share != "input":
        ours_only(config, "T5", share="all")
    if config.kv_heads not in (None, config.heads):
        ours_only(config, "T5", kv_heads=None)
    name = {"gelu-tanh": "gelu_new", "relu": "relu", "silu": "silu", "gelu": "gelu"}[config.activation]
    if config.gated and config.activation == "gelu":
        ours_only(config, "T5's gated layers", activation="gelu-tanh")
    return {
        "model_type": "t5",
        "architectures": ["T5ForConditionalGeneration"],
        "is_encoder_decoder": True,
        "vocab_size": config.source_vocab_size,
        "d_model": config.width,
        "d_kv": config.block().per_head,
        "d_ff": config.feed_forward,
        "num_layers": config.encoder_layers,
        "num_decoder_layers": config.decoder_layers,
        "num_heads": config.heads,
        "relative_attention_num_buckets": config.relative_buckets,
        "relative_attention_max_distance": config.relative_distance,
        "feed_forward_proj": f"gated-{name.replace('gelu_new', 'gelu')}" if config.gated else name,
        "layer_norm_epsilon": config.norm_epsilon,
        "dropout_rate": config.dropout,
        # Both, for readers of either age: a head that is scaled is one that is tied.
        "tie_word_embeddings": config.scale_output,
        "scale_decoder_outputs": config.scale_output,
        "n_positions": config.max_len,
    }
