"""How often a run names the right class of a picture."""

import math
from collections.abc import Callable
from typing import Any

import torch

from regard.data.images import Pictures
from regard.data.images.store import class_numbers
from regard.metrics.text import matthews_correlation
from regard.tasks.image_classifier import ImageClassifier
from regard.tasks.pictures import evaluation_pictures
from regard.tasks.run import Run

CONFUSED = 5
"""How many of the most frequent mistakes are told."""


def picture_accuracy(
    run: Run, pictures: Pictures | None = None, *, progress: Callable[[int, int], None] | None = None
) -> dict[str, Any]:
    """Scores of the run on `pictures`, by default its test or validation part, as one JSON-ready object.

    The intervals are Wilson's, at 95 %: what the share would be on other pictures of the same kind, given how few
    these are.
    """
    config = run.config
    pictures = pictures or evaluation_pictures(config)
    classes = config.model_config().labels
    labels = torch.from_numpy(class_numbers(pictures, classes))
    classifier, rows = ImageClassifier(run.model, config), []
    for images in classifier.batches(pictures):
        rows.append(classifier.probabilities(images))
        if progress is not None:
            progress(sum(map(len, rows)), len(labels))
    probabilities = torch.cat(rows)
    found = probabilities.argmax(-1)
    right = found == labels
    top = min(5, len(classes))
    among = (probabilities.topk(top).indices == labels[:, None]).any(-1)
    own = probabilities.gather(1, labels[:, None]).clamp_min(1e-45)
    correlation = matthews_correlation(found.tolist(), labels.tolist())
    kinds = [(name, labels == number, found == number) for number, name in enumerate(classes)]
    seen = [(name, mine, ours, _f1(mine, ours)) for name, mine, ours in kinds if mine.any() or ours.any()]
    return {
        "pictures": len(labels),
        "classes": len(classes),
        "accuracy": float(right.double().mean()),
        "accuracy_interval": wilson_interval(int(right.sum()), len(labels)),
        "top": top,
        "top_accuracy": float(among.double().mean()),
        "top_accuracy_interval": wilson_interval(int(among.sum()), len(labels)),
        "matthews_correlation": correlation.value,
        "matthews_correlation_interval": correlation.interval,
        "matthews_correlation_signature": correlation.signature,
        "macro_f1": sum(f1 for *_, f1 in seen) / len(seen),
        "nll": float(-own.double().log().mean()),
        "by_class": [
            {"label": name, "pictures": int(mine.sum()), "accuracy": float(right[mine].double().mean()), "f1": f1}
            for name, mine, _, f1 in seen
            if mine.any()
        ],
        "confused": _confused(labels, found, classes),
    }


def _f1(gold: torch.Tensor, found: torch.Tensor) -> float:
    return 2 * int((gold & found).sum()) / int(gold.sum() + found.sum())


def wilson_interval(right: int, count: int, z: float = 1.959964) -> tuple[float, float]:
    """Where a share lies, at 95 %, of which `right` of `count` were seen."""
    share = right / count
    middle = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z / (1 + z * z / count) * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    return max(0.0, middle - half), min(1.0, middle + half)


def _confused(labels: torch.Tensor, found: torch.Tensor, classes: tuple[str, ...]) -> list[dict[str, Any]]:
    counts: dict[tuple[int, int], int] = {}
    for label, guess in zip(labels.tolist(), found.tolist(), strict=True):
        if label != guess:
            counts[label, guess] = counts.get((label, guess), 0) + 1
    worst = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:CONFUSED]
    return [{"label": classes[label], "taken_for": classes[guess], "times": times} for (label, guess), times in worst]
