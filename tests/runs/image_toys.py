"""Images for tests, and a model small enough for them."""

import numpy as np

SMALL = [
    "model.width=16",
    "model.heads=2",
    "model.layers=2",
    "model.feed_forward=24",
    "train.batch_tokens=340",
    "train.steps=40",
    "train.warmup=5",
    "train.learning_rate=5e-3",
    "train.ema=0",
    "images.rotate=0",
    "train.log_every=1",
    "train.validate_every=30",
    "train.threads=1",
]


def shapes(count, seed=0):
    """A bright spot on a dark ground, or the other way round, and which the ground is."""
    rng = np.random.default_rng(seed)
    pictures = rng.integers(0, 80, (count, 8, 8), dtype=np.uint8)
    labels = []
    for picture in pictures:
        top, left = rng.integers(0, 7, 2)
        picture[top : top + 2, left : left + 2] = rng.integers(180, 255)
        labels.append(str(rng.choice(["dark", "light"])))
        if labels[-1] == "light":
            picture[:] = 255 - picture
    return pictures, labels
