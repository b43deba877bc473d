"""ViT: patches, [CLS] and learned positions, norms before, a classifier or a pooler or neither on [CLS]."""

from collections.abc import Mapping
from typing import Any

from regard.errors import ConfigError, RunError
from regard.interop.huggingface.names import (
    ACTIVATIONS,
    THEIR_ACTIVATIONS,
    Name,
    number,
    one_of,
    only,
    ours_only,
    rate,
    whole,
)
from regard.models.vit import ViTConfig

MODEL, TASK = "vit", "images"
PREFIX = "vit."
IGNORED = r"(vit\.)?embeddings\.mask_token|vit\.pooler\..*"  # a classifier does without its pooler
HEAD = "classifier.weight"

OUTSIDE = (
    Name("vit.embeddings.cls_token", ("embedding.cls",)),
    Name("vit.embeddings.position_embeddings", ("embedding.positions",)),
    Name("vit.embeddings.patch_embeddings.projection.weight", ("embedding.weight",)),
    Name("vit.embeddings.patch_embeddings.projection.bias", ("embedding.bias",)),
    Name("vit.layernorm.weight", ("norm.weight",)),
    Name("vit.layernorm.bias", ("norm.bias",)),
    Name("vit.pooler.dense.weight", ("pooler.weight",)),
    Name("vit.pooler.dense.bias", ("pooler.bias",)),
    Name("classifier.bias", ("head.bias",)),
)
_PARTS = {
    "attention.attention.query": "attention.query",
    "attention.attention.key": "attention.key",
    "attention.attention.value": "attention.value",
    "attention.output.dense": "attention.output",
    "layernorm_before": "around_attention.norm",
    "layernorm_after": "around_feed_forward.norm",
    "intermediate.dense": "feed_forward.inner",
    "output.dense": "feed_forward.outer",
}
LAYER = tuple(
    Name(f"vit.encoder.layer.{{}}.{theirs}.{kind}", (f"blocks.{{}}.{ours}.{kind}",))
    for theirs, ours in _PARTS.items()
    for kind in ("weight", "bias")
)
STACKS = {"layers": LAYER}


def settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Our settings of the model, all but what stands on [CLS]."""
    only(config, "qkv_bias", True)
    width, heads = whole(config, "hidden_size", 768), whole(config, "num_attention_heads", 12)
    only(config, "head_dim", None, width // heads)
    return {
        "image_size": _side(config, "image_size", 224),
        "patch_size": _side(config, "patch_size", 16),
        "channels": _channels(config),
        "width": width,
        "heads": heads,
        "layers": whole(config, "num_hidden_layers", 12),
        "feed_forward": whole(config, "intermediate_size", 3072),
        "activation": one_of(config, "hidden_act", ACTIVATIONS, "gelu"),
        "norm_epsilon": number(config, "layer_norm_eps", 1e-12),
        "dropout": rate(config, "hidden_dropout_prob", 0.0),
        "attention_dropout": rate(config, "attention_probs_dropout_prob", 0.0),
    }


def found(config: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    """What stands on [CLS], as the weights tell: a classifier with its labels, or else a pooler or nothing."""
    if HEAD in shapes:
        return {"labels": _labels(config, shapes[HEAD][0])}
    pooler = "pooler.dense.weight" in shapes
    if pooler:
        only(config, "pooler_act", "tanh")
        only(config, "pooler_output_size", None, config.get("hidden_size", 768))
    return {"pooler": pooler}


def fits(config: Any) -> bool:
    return isinstance(config, ViTConfig)


def configuration(config: ViTConfig) -> dict[str, Any]:
    """Their configuration of our model."""
    ours_only(config, "ViT", norm="layer", gated=False, bias=True, qk_norm=False)
    if config.labels:
        ours_only(config, "ViT with a classifier", pooler=False)
    theirs = {
        "model_type": "vit",
        "architectures": ["ViTForImageClassification" if config.labels else "ViTModel"],
        "image_size": config.image_size,
        "patch_size": config.patch_size,
        "num_channels": config.channels,
        "hidden_size": config.width,
        "num_attention_heads": config.heads,
        "num_hidden_layers": config.layers,
        "intermediate_size": config.feed_forward,
        "hidden_act": THEIR_ACTIVATIONS[config.activation],
        "layer_norm_eps": config.norm_epsilon,
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": config.attention_dropout,
        "qkv_bias": True,
        "dtype": "float32",
    }
    if config.labels:
        theirs["id2label"] = {str(index): label for index, label in enumerate(config.labels)}
        theirs["label2id"] = {label: index for index, label in enumerate(config.labels)}
    return theirs


def _side(config: Mapping[str, Any], field: str, default: int) -> int:
    """A height that is also the width."""
    value = config.get(field)
    if isinstance(value, list):
        if not value or any(side != value[0] for side in value):
            raise ConfigError(f"config.json: {field}={value!r} is not supported, only height and width alike")
        config = {**config, field: value[0]}
    return whole(config, field, default)


def _channels(config: Mapping[str, Any]) -> int:
    channels = whole(config, "num_channels", 3)
    if channels not in (1, 3):
        raise ConfigError(
            f"config.json: num_channels={channels} is not supported, only 1 for grey pictures or 3 for coloured ones"
        )
    return channels


def _labels(config: Mapping[str, Any], count: int) -> list[str]:
    """The names of the classes; one that occurs again has its number behind it."""
    named = config.get("id2label")
    if named is None:
        return [f"LABEL_{index}" for index in range(count)]
    if not isinstance(named, dict) or not all(str(index) in named for index in range(count)) or len(named) != count:
        raise RunError(f"config.json: id2label must name the {count} classes that {HEAD} has")
    labels: list[str] = []
    for index in range(count):
        label = str(named[str(index)])
        labels.append(f"{label} ({index})" if label in labels else label)
    return labels
