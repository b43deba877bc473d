"""ViT: patches, [CLS] and learned positions, norms before, a classifier or a pooler or neither; its image processor."""

from collections.abc import Mapping
from pathlib import Path

from regard.config import JsonObject
from regard.data.images import ImageConfig
from regard.data.images.config import Filter, Resize
from regard.errors import ConfigError, RunError
from regard.interop.huggingface.bert import ENCODER_FIELDS
from regard.interop.huggingface.config_fields import (
    Field,
    Json,
    label_tables,
    only,
    only_ours,
    rate,
    read_fields,
    read_json,
    whole,
    write_fields,
)
from regard.interop.huggingface.weights import Family, Name, Shapes, names
from regard.models.vit import ViTConfig

PREPROCESSOR = "preprocessor_config.json"
FILTERS: dict[int, Filter] = {2: "bilinear", 3: "bicubic"}  # as Pillow numbers them
_HEAD = "classifier.weight"


def _side(config: Json, field: str, default: int) -> int:
    """A height that is also the width."""
    value = config.get(field)
    if isinstance(value, list):
        if not value or any(side != value[0] for side in value):
            raise ConfigError(f"config.json: {field}={value!r} is not supported, only height and width alike")
        config = {**config, field: value[0]}
    return whole(config, field, default)


def _channels(config: Json, field: str, default: int) -> int:
    channels = whole(config, field, default)
    if channels not in (1, 3):
        raise ConfigError(
            f"config.json: {field}={channels} is not supported, only 1 for grey images or 3 for coloured ones"
        )
    return channels


FIELDS = (
    Field("image_size", "image_size", _side, 224),
    Field("patch_size", "patch_size", _side, 16),
    Field("num_channels", "channels", _channels, 3),
    *ENCODER_FIELDS,
    Field("hidden_dropout_prob", "dropout", rate, 0.0),
    Field("attention_probs_dropout_prob", "attention_dropout", rate, 0.0),
)
_LAYER = {
    "attention.attention.query": "attention.query",
    "attention.attention.key": "attention.key",
    "attention.attention.value": "attention.value",
    "attention.output.dense": "attention.output",
    "layernorm_before": "around_attention.norm",
    "layernorm_after": "around_feed_forward.norm",
    "intermediate.dense": "feed_forward.inner",
    "output.dense": "feed_forward.outer",
}


def settings(config: Json) -> JsonObject:
    """All but what stands on [CLS]."""
    only(config, "qkv_bias", True)
    ours = read_fields(FIELDS, config)
    only(config, "head_dim", None, ours["width"] // ours["heads"])
    return ours


def found(config: Json, shapes: Shapes) -> dict[str, object]:
    """What stands on [CLS], as the weights tell: a classifier with its labels, or else a pooler or nothing."""
    if _HEAD in shapes:
        return {"labels": _labels(config, shapes[_HEAD][0])}
    pooler = "pooler.dense.weight" in shapes
    if pooler:
        only(config, "pooler_act", "tanh")
        only(config, "pooler_output_size", None, config.get("hidden_size", 768))
    return {"pooler": pooler}


def _labels(config: Json, count: int) -> list[str]:
    """The names of the classes; one that occurs again has its number behind it."""
    named = config.get("id2label")
    if named is None:
        return [f"LABEL_{index}" for index in range(count)]
    if not isinstance(named, dict) or not all(str(index) in named for index in range(count)) or len(named) != count:
        raise RunError(f"config.json: id2label must name the {count} classes that {_HEAD} has")
    labels: list[str] = []
    for index in range(count):
        label = str(named[str(index)])
        labels.append(f"{label} ({index})" if label in labels else label)
    return labels


def configuration(config: ViTConfig) -> dict[str, object]:
    only_ours(config, "ViT", norm="layer", gated=False, bias=True, qk_norm=False)
    if config.labels:
        only_ours(config, "ViT with a classifier", pooler=False)
    return {
        "model_type": "vit",
        "architectures": ["ViTForImageClassification" if config.labels else "ViTModel"],
        **write_fields(FIELDS, config),
        "qkv_bias": True,
        "dtype": "float32",
        **label_tables(config.labels),
    }


VIT = Family(
    model="vit",
    task="images",
    settings=settings,
    found=found,
    configuration=configuration,
    outside=(
        Name("vit.embeddings.cls_token", ("embedding.cls",)),
        Name("vit.embeddings.position_embeddings", ("embedding.positions",)),
        *names(
            {"embeddings.patch_embeddings.projection": "embedding", "layernorm": "norm", "pooler.dense": "pooler"},
            "vit.",
        ),
        Name("classifier.bias", ("head.bias",)),
    ),
    stacks={"layers": names(_LAYER, "vit.encoder.layer.{}.", "blocks.{}.")},
    head=_HEAD,
    prefix="vit.",
    ignored=r"(vit\.)?embeddings\.mask_token|vit\.pooler\..*",  # a classifier does without its pooler
)


def read_preprocessor(directory: Path) -> Json:
    """How images are prepared, which may be said in either of two files."""
    path, nested = directory / PREPROCESSOR, directory / "processor_config.json"
    plain = read_json(path) if path.exists() else None
    within = read_json(nested).get("image_processor") if nested.exists() else None
    if within is not None and plain is not None and within != plain:
        raise ConfigError(f"{nested.name} and {PREPROCESSOR} disagree on how images are prepared: leave one of them")
    found = within if plain is None else plain
    if found is not None and not isinstance(found, Mapping):
        raise ConfigError(f"{nested.name}: image_processor={found!r} must be an object")
    return found or {}


def image_settings(theirs: Json, side: int, channels: int) -> ImageConfig:
    """Our settings of images; what is not said is as in their ViT: stretched, bilinear, values from -1 to 1."""
    for field in ("image_processor_type", "feature_extractor_type"):
        kind = theirs.get(field)
        if kind is not None and not str(kind).startswith(("ViTImageProcessor", "ViTFeatureExtractor")):
            raise ConfigError(f"{PREPROCESSOR}: {field}={kind!r} is not supported, only ViTImageProcessor")
    if theirs.get("do_pad"):
        raise ConfigError(f"{PREPROCESSOR}: do_pad={theirs['do_pad']!r} is not supported")
    for field, value in (("do_resize", True), ("do_rescale", True)):
        if theirs.get(field, value) is not value:
            raise ConfigError(f"{PREPROCESSOR}: {field}={theirs[field]!r} is not supported, only {value}")
    factor = theirs.get("rescale_factor", 1 / 255)
    if not isinstance(factor, float) or abs(factor * 255 - 1) > 1e-6:
        raise ConfigError(f"{PREPROCESSOR}: rescale_factor={factor!r} is not supported, only 1 / 255")
    filter = theirs.get("resample", 2)
    if not isinstance(filter, int) or filter not in FILTERS:
        raise ConfigError(f"{PREPROCESSOR}: resample={filter!r} is not supported, only 2 (bilinear) and 3 (bicubic)")
    mean, std = (_numbers(theirs, field, channels) for field in ("image_mean", "image_std"))
    if not theirs.get("do_normalize", True):
        mean, std = (0.0,) * channels, (1.0,) * channels
    return ImageConfig(resize=_resize(theirs, side), filter=FILTERS[filter], mean=mean, std=std)


def preprocessor_config(images: ImageConfig, side: int, channels: int) -> dict[str, object]:
    """Their settings of how an image is prepared."""
    stretch = images.resize == "stretch"
    return {
        "image_processor_type": "ViTImageProcessor",
        "do_resize": True,
        "size": {"height": side, "width": side} if stretch else {"shortest_edge": side},
        "do_center_crop": not stretch,
        "crop_size": {"height": side, "width": side},
        "resample": next(number for number, name in FILTERS.items() if name == images.filter),
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": list(images.mean) or [0.0] * channels,
        "image_std": list(images.std) or [1.0] * channels,
    }


def _resize(theirs: Json, side: int) -> Resize:
    size, crop = theirs.get("size", side), theirs.get("crop_size", side)
    if theirs.get("do_center_crop", False):
        if size in (side, {"shortest_edge": side}) and crop in (side, {"height": side, "width": side}):
            return "crop"
    elif size in (side, {"height": side, "width": side}):
        return "stretch"
    raise ConfigError(f"{PREPROCESSOR}: size={size!r} is not supported, only what ends at the model's {side} x {side}")


def _numbers(theirs: Json, field: str, channels: int) -> tuple[float, ...]:
    values = theirs.get(field, [0.5] * channels)
    numbers = values if isinstance(values, list) and all(isinstance(one, (int, float)) for one in values) else None
    if numbers is None or len(numbers) != channels:
        raise ConfigError(f"{PREPROCESSOR}: {field}={values!r} must be {channels} numbers, one per channel")
    return tuple(map(float, numbers))
