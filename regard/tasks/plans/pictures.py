"""Images with classes: what they are recognised by, and how a run that names the class of each is planned."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from regard.config import JsonObject
from regard.data.images import ImageSource
from regard.data.images.image_files import NAMES, SUFFIXES, copied, parts_of, repeated
from regard.data.inspection import Finding
from regard.data.inspection.findings import there_are
from regard.tasks.planning import Choices, Decisions, Machine, Recipe, Recognised, between

LOOKED_AT = 200
"""Images that are opened to see their size and colours."""

FEW_IMAGES = 100
"""Fewer than these get a line."""

FEW = 10_000
"""Fewer images than these are read more often, and mixed with one another."""

DIGITS = Recipe(
    "8 x 8 digits", 1500, {"model.width": 64, "model.layers": 4, "model.feed_forward": 128, "model.dropout": 0.0}
)
MNIST = Recipe(
    "MNIST", 60_000, {"model.width": 128, "model.layers": 6, "model.feed_forward": 512, "model.dropout": 0.1}
)


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageStatistics:
    """What images are like."""

    count: int
    labels: dict[str, int]
    side: int
    same_size: bool
    grey: bool
    valid: bool
    findings: tuple[Finding, ...] = ()


def recognise_images(files: Sequence[Path]) -> Recognised | None:
    """A folder with one of images for each class, or arrays."""
    if len(files) == 1 and files[0].suffix == ".npz":
        return Recognised(certainty=0.9, why="an archive of arrays: images with labels")
    if len(files) == 2 and all(file.suffix == ".npy" for file in files):
        return Recognised(certainty=0.9, why="arrays of images and of their labels")
    if len(files) != 1 or not files[0].is_dir():
        return None
    folder = files[0] / "train" if parts_of(files[0]) else files[0]
    classes = [one for one in folder.iterdir() if one.is_dir() and not one.name.startswith(".")]
    if len(classes) < 2:
        return None
    if not all(any(file.suffix.lower() in SUFFIXES for file in one.rglob("*")) for one in classes):
        return None
    others = [name for part in ("valid", "test") for name in NAMES[part] if (files[0] / name).is_dir()]
    said = f"; {folder.name} to train on, {', '.join(others) or 'no other part'} besides" * (folder != files[0])
    return Recognised(certainty=0.95, why=f"a folder of {len(classes)} folders of images, one for each class{said}")


def image_statistics(train: ImageSource, others: Sequence[ImageSource | None]) -> ImageStatistics:
    labels = Counter(train.labels or ())
    count = len(train.names)
    rows = np.unique(np.linspace(0, count - 1, min(LOOKED_AT, count)).round().astype(int)).tolist()
    sizes: Counter[tuple[int, int]] = Counter()
    grey = True
    findings: list[Finding] = []
    chosen = train.select(rows)
    for pixels in chosen.read(3, lambda image: image):
        sizes[pixels.shape[0], pixels.shape[1]] += 1
        grey = grey and bool((pixels[..., 0] == pixels[..., 1]).all() and (pixels[..., 1] == pixels[..., 2]).all())
    shorter = sorted(min(size) for size in sizes.elements())
    side = shorter[len(shorter) // 2]
    copies = repeated(train)
    if twice := [found for found in copies if len({(train.labels or ())[row] for row in found}) > 1]:
        first = next(row for row in twice[0] if (train.labels or ())[row] != (train.labels or ())[twice[0][0]])
        more = f", and {len(twice) - 1:,} more" if len(twice) > 1 else ""
        line = (
            f"the same image is in two classes: {train.names[twice[0][0]]} and {train.names[first]}{more}; remove one"
        )
        findings.append(Finding("one image in two classes", line))
    for other in others:
        if other is not None and (known := sum(copied(other, train))):
            share = f"{known:,} of {len(other.names):,} validation images ({100 * known / len(other.names):.3g} %)"
            line = f"{share} are training images too: its scores are too good; remove them"
            findings.append(Finding("validation images in training", line))
            break
    again = sum(len(found) - 1 for found in copies)
    if again > 0.01 * count:
        findings.append(Finding("repeated images", f"{again:,} of {count:,} images are copies of others: remove them"))
    if count < FEW_IMAGES:
        line = f"{there_are(count, 'image')}: too few to learn much from; some hundreds of each class are a start"
        findings.append(Finding("few images", line))
    rare = [name for name, number in labels.items() if number < 5]
    if rare:
        findings.append(
            Finding("rare classes", f"classes of fewer than 5 images, too few to learn: {', '.join(rare[:5])}")
        )
    most, number = labels.most_common(1)[0]
    if number > 0.9 * count:
        findings.append(
            Finding("one class of most images", f"{100 * number / count:.0f} % of the images are of class '{most}'")
        )
    if len(sizes) > 1 and max(shorter) > 4 * min(shorter):
        findings.append(
            Finding(
                "images of many sizes",
                f"images are from {min(shorter)} to {max(shorter)} pixels wide: all become one size",
            )
        )
    return ImageStatistics(
        count=count,
        labels=dict(labels),
        side=side,
        same_size=len(sizes) == 1 and all(high == wide for high, wide in sizes),
        grey=grey,
        valid=any(one is not None for one in others),
        findings=tuple(findings),
    )


def plan_images(found: ImageStatistics, machine: Machine, base: JsonObject | None) -> Choices:
    gpu = machine.gpu is not None
    decide = Decisions()
    patch = next(size for size, most in ((2, 16), (4, 40), (8, 72), (16, 10_000)) if found.side <= most)
    size = min(224 if gpu else 96, found.side)
    size = max(patch, patch * round(size / patch))
    small = size < 64
    if not found.valid:
        decide("images.held_out", 0.1, "no validation images were given: a tenth of each class")
    if base is None:
        chosen, origin = between([DIGITS, MNIST], found.count, "images")
        decide("model.name", "vit", "a Vision Transformer, which reads an image as patches")
        why = f"images are {found.side} pixels wide" + (
            "" if found.same_size else " at their shorter side, in the median"
        )
        decide("model.image_size", size, why)
        decide("model.patch_size", patch, f"{(size // patch) ** 2} patches of an image")
        decide("model.channels", 1 if found.grey else 3, "grey, all of a sample" if found.grey else "in colour")
        for name, value in chosen.items():
            decide(name, value, f"by the number of images; {origin}")
        heads = max(4, chosen["model.width"] // 32)
        decide("model.heads", heads, f"each {chosen['model.width'] // heads} wide")
    if small:
        decide("images.rotate", 10.0, "a class stays the same if an image is rotated, shifted or scaled a little")
        decide("images.shift", 0.1, "likewise")
        decide("images.zoom", 0.1, "likewise")
    else:
        decide("images.least_area", 0.4, "a part of an image shows its class too")
        decide(
            "images.flip",
            not found.grey,
            "a mirrored scene keeps its class" if not found.grey else "grey images may be text, which has a direction",
        )
    few = found.count < FEW
    if few and base is None:
        decide("images.mixup", 0.2, "few images are memorised less quickly if they are mixed with one another")
    tokens = (size // patch) ** 2 + 1
    decide(
        "train.batch_tokens",
        (128 if not gpu else 512) * tokens,
        "128 images at a time" if not gpu else "512 images at a time",
    )
    rate = 2e-3 if base is None else 1e-4
    decide(
        "train.learning_rate",
        rate,
        "as in the recipes" if base is None else "small steps, so that the run to start from keeps what it learnt",
    )
    decide.usual(optimizer="adamw", schedule="cosine", warmup_share=0.05, floor=0.01, betas=[0.9, 0.99])
    decide.usual(epsilon=1e-8, weight_decay=0.05)
    decide("train.smoothing", 0.1, "a model that is never fully certain generalises better")
    decide("train.ema", 0.998, "a moving average of the weights is better than the last weights")
    decide("train.select_by", "accuracy", "what the model is for")
    decide.keep_best()
    decide.compile(machine, blocks=False)
    facts = (f"{found.count:,} images of {len(found.labels)} classes, {found.side} pixels wide",)
    return Choices(decisions=tuple(decide.made), facts=facts, most_epochs=300.0 if few else 60.0)
