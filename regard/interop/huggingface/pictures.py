"""Models of pictures: no tokenizer, but how a picture is prepared."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regard.data.images import ImageConfig
from regard.data.images.config import Filter, Resize
from regard.errors import ConfigError
from regard.interop.huggingface import vit
from regard.interop.huggingface.files import open_weights, read_json
from regard.interop.huggingface.fitting import filled, unfilled
from regard.runs.checkpoint import weights_of
from regard.runs.files import CONFIG, MODEL, whole_directory, whole_or_nothing, write_json, write_tensors
from regard.tasks.config import RunConfig
from regard.tasks.run import Run, load

PREPARING = "preprocessor_config.json"
FILTERS: dict[int, Filter] = {2: "bilinear", 3: "bicubic"}  # as Pillow numbers them


def import_pictures(directory: Path, out: Path, theirs: Mapping[str, Any]) -> Run:
    """A new run in `out` with a model of pictures."""
    model = {"name": vit.MODEL, **vit.settings(theirs)}
    with open_weights(directory) as weights:
        images = image_settings(_preparation(directory), model["image_size"], model["channels"])
        config = RunConfig(model={**model, **vit.found(theirs, weights.shapes)}, task=vit.TASK, images=images)
        made = filled(config, weights, vit)
    with whole_or_nothing(out):
        write_tensors(out / MODEL, weights_of(made))
        write_json(out / CONFIG, config.to_mapping())
    del made  # so that no two of it are in memory
    return load(out, "cpu")


def _preparation(directory: Path) -> Mapping[str, Any]:
    """How pictures are prepared, which may be said in either of two files."""
    path, nested = directory / PREPARING, directory / "processor_config.json"
    plain = read_json(path) if path.exists() else None
    within = read_json(nested).get("image_processor") if nested.exists() else None
    if within is not None and plain is not None and within != plain:
        raise ConfigError(f"{nested.name} and {PREPARING} disagree on how pictures are prepared: leave one of them")
    found = within if plain is None else plain
    if found is not None and not isinstance(found, Mapping):
        raise ConfigError(f"{nested.name}: image_processor={found!r} must be an object")
    return found or {}


def export_pictures(run: Run, out: Path) -> Path:
    """A Hugging Face directory with the run's model and how it prepares pictures."""
    config: Any = run.config.model_config()
    theirs = vit.configuration(config)
    tensors = unfilled(run.model, config, vit, bare=not config.labels)
    with whole_directory(out) as aside:
        write_tensors(aside / "model.safetensors", tensors)
        write_json(aside / "config.json", theirs)
        write_json(aside / PREPARING, preparing(run.config.images, config.image_size, config.channels))
    return out


def image_settings(theirs: Mapping[str, Any], side: int, channels: int) -> ImageConfig:
    """Our settings of pictures; what is not said is as in their ViT: stretched, bilinear, values from -1 to 1."""
    for field in ("image_processor_type", "feature_extractor_type"):
        kind = theirs.get(field)
        if kind is not None and not str(kind).startswith(("ViTImageProcessor", "ViTFeatureExtractor")):
            raise ConfigError(f"{PREPARING}: {field}={kind!r} is not supported, only ViTImageProcessor")
    if theirs.get("do_pad"):
        raise ConfigError(f"{PREPARING}: do_pad={theirs['do_pad']!r} is not supported")
    for field, value in (("do_resize", True), ("do_rescale", True)):
        if theirs.get(field, value) is not value:
            raise ConfigError(f"{PREPARING}: {field}={theirs[field]!r} is not supported, only {value}")
    factor = theirs.get("rescale_factor", 1 / 255)
    if not isinstance(factor, float) or abs(factor * 255 - 1) > 1e-6:
        raise ConfigError(f"{PREPARING}: rescale_factor={factor!r} is not supported, only 1 / 255")
    filter = theirs.get("resample", 2)
    if not isinstance(filter, int) or filter not in FILTERS:
        raise ConfigError(f"{PREPARING}: resample={filter!r} is not supported, only 2 (bilinear) and 3 (bicubic)")
    mean, std = (_numbers(theirs, field, channels) for field in ("image_mean", "image_std"))
    if not theirs.get("do_normalize", True):
        mean, std = (0.0,) * channels, (1.0,) * channels
    return ImageConfig(resize=_resize(theirs, side), filter=FILTERS[filter], mean=mean, std=std)


def preparing(images: ImageConfig, side: int, channels: int) -> dict[str, Any]:
    """Their settings of how a picture is prepared."""
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


def _resize(theirs: Mapping[str, Any], side: int) -> Resize:
    size, crop = theirs.get("size", side), theirs.get("crop_size", side)
    if theirs.get("do_center_crop", False):
        if size in (side, {"shortest_edge": side}) and crop in (side, {"height": side, "width": side}):
            return "crop"
    elif size in (side, {"height": side, "width": side}):
        return "stretch"
    raise ConfigError(f"{PREPARING}: size={size!r} is not supported, only what ends at the model's {side} x {side}")


def _numbers(theirs: Mapping[str, Any], field: str, channels: int) -> tuple[float, ...]:
    values = theirs.get(field, [0.5] * channels)
    numbers = isinstance(values, list) and all(isinstance(one, (int, float)) for one in values)
    if not numbers or len(values) != channels:
        raise ConfigError(f"{PREPARING}: {field}={values!r} must be {channels} numbers, one a channel")
    return tuple(map(float, values))
