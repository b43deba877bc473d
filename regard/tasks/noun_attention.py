"""Where a captioner looked when it wrote a noun, against the boxes of what the noun names; and what its heads do."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch

from regard.config import JsonObject
from regard.data.images.captions import Box, Caption, CaptionSource
from regard.data.images.image_store import resized_box
from regard.errors import ConfigError
from regard.look.roles import RoleQuestion, on_grid
from regard.look.watch import attentions, watch
from regard.metrics.classification_metrics import wilson_interval
from regard.nn.attention import ACROSS
from regard.nn.batch import CaptionedImages
from regard.tasks.probes import Probe, written_probe
from regard.tasks.run import Run

BATCH = 64


@dataclass(frozen=True, slots=True)
class NounHits:
    """Of one head, over nouns: whether the place looked at most lies in a box, and the share of weight in the boxes."""

    hits: np.ndarray
    shares: np.ndarray


class NounAttention:
    """Where heads look in the step that writes a noun. Captions are read by teacher forcing."""

    def __init__(self, run: Run, given: CaptionSource) -> None:
        self.run, self.given = run, given
        self.model: Any = run.config.model_config()

    def heads(self) -> list[tuple[str, int]]:
        """Every head that looks at the image from the caption."""
        known = attentions(self.run.model)
        return [(name, head) for name, one in known.items() if one.sides == ACROSS for head in range(one.heads)]

    @torch.inference_mode()
    def measured(self) -> tuple[dict[tuple[str, int], NounHits], NounHits]:
        """Of every head, and what looking evenly at all patches would give: chance."""
        heads, captioner = self.heads(), self.run.captioner
        hits: dict[tuple[str, int], list[float]] = {head: [] for head in heads}
        shares: dict[tuple[str, int], list[float]] = {head: [] for head in heads}
        chance_hits, chance_shares = [], []
        names = list(dict.fromkeys(name for name, _ in heads))
        self.run.model.eval()
        read = fitted(self.run, self.given)
        while part := list(islice(read, BATCH)):
            rows = [target_row(self.run, gold.text) for _, gold in part]
            with watch(self.run.model, names) as trace:
                self.run.model(captioner.batch([pixels for pixels, _ in part], rows))
            weights = {name: trace.weights(name).float().cpu().numpy() for name in names}
            for row, (_, gold) in enumerate(part):
                for step, boxes in noun_steps(self.run, gold, rows[row]):
                    covered, centred = boxes_on_grid(boxes, self.model.grid, self.model.image_size)
                    chance_hits.append(centred.mean())
                    chance_shares.append(covered.mean())
                    for name, head in heads:
                        seen = weights[name][row, head, step, self.model.first :]
                        hits[name, head].append(float(centred[seen.argmax()]))
                        shares[name, head].append(float((seen * covered).sum()))
        found = {head: NounHits(np.array(hits[head]), np.array(shares[head])) for head in heads}
        return found, NounHits(np.array(chance_hits), np.array(chance_shares))


def fitted(run: Run, given: CaptionSource) -> Iterator[tuple[np.ndarray, Caption]]:
    """The images at the model's size, each with its caption, or its first one without any boxes, at that size."""
    reader, model = run.captioner.reader, run.config.model_config()

    def fit(image: np.ndarray) -> tuple[np.ndarray, tuple[int, int]]:
        return reader.fit(image), image.shape[:2]

    for number, (pixels, shape) in enumerate(given.images.read(reader.channels, fit)):
        gold = given.gold[number] if given.gold else None
        known = Caption(given.captions[number][0], ()) if gold is None else gold
        yield (
            pixels,
            known.moved(lambda box, shape=shape: resized_box(box, shape, model.image_size, reader.config.resize)),
        )


def target_row(run: Run, text: str) -> list[int]:
    """A caption as the decoder reads it."""
    vocabularies = run.vocabularies
    return vocabularies.target_row(vocabularies.target.encode(text))


def noun_steps(run: Run, gold: Caption, row: Sequence[int]) -> list[tuple[int, tuple[Box, ...]]]:
    """For each noun the step that writes its first piece, and its boxes."""
    offsets = run.vocabularies.target.offsets(gold.text)
    opening = len(row) - 2 - len(offsets)
    found = []
    for noun in gold.nouns:
        steps = [place for place, (begin, end) in enumerate(offsets) if begin < noun.end and end > noun.start]
        if steps:
            found.append((opening + steps[0], noun.boxes))
    return found


def boxes_on_grid(boxes: Sequence[Box], grid: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Of each patch of an image the share that lies in any of the boxes, and whether its middle does."""
    inside = np.zeros((size, size))
    for left, top, right, bottom in boxes:
        inside[max(0, top) : max(0, bottom), max(0, left) : max(0, right)] = 1.0
    step = size // grid
    patches = inside.reshape(grid, step, grid, step)
    return patches.mean((1, 3)).reshape(-1), patches[:, step // 2, :, step // 2].reshape(-1) > 0


def pointing_scores(run: Run, given: CaptionSource, choosing: CaptionSource | None) -> JsonObject:
    """How well the cross-attention head that points best at the nouns of `choosing` does so on those of `given`.

    Where there is nothing to choose on, every second image of `given` serves for that, and the others are reported.
    """
    chosen_on = "validation images"
    if choosing is None:
        count, chosen_on = len(given.captions), "every second image"
        if count < 2:
            raise ConfigError("pointing is scored on two images at least: one to choose a head on, one to report")
        choosing, given = given.select(range(0, count, 2)), given.select(range(1, count, 2))
    known, _ = NounAttention(run, choosing).measured()
    if not known:
        raise ConfigError("this model has no head that looks at the image")
    attention, head = max(known, key=lambda one: (known[one].hits.mean(), known[one].shares.mean()))
    found, chance = NounAttention(run, given).measured()
    best = found[attention, head]
    return {
        "attention": attention,
        "head": head,
        "chosen_on": chosen_on,
        "nouns": len(best.hits),
        "hits": float(best.hits.mean()),
        "hits_interval": list(wilson_interval(int(best.hits.sum()), len(best.hits), 1.96)),
        "chance_hits": float(chance.hits.mean()),
        "share": float(best.shares.mean()),
        "chance_share": float(chance.shares.mean()),
    }


def caption_probes(run: Run, given: CaptionSource) -> list[Probe]:
    """Captioned images with what can be asked of heads: neighbours, words said before, and the boxes of nouns."""
    return [
        probe
        for pixels, gold in fitted(run, given)
        if len((probe := _probe(run, pixels, gold, bool(given.gold))).rows[1]) - 1 <= run.captioner.max_len
    ]


def _probe(run: Run, pixels: np.ndarray, gold: Caption, boxed: bool) -> Probe:
    model, row = run.config.model_config(), target_row(run, gold.text)
    nouns = [
        RoleQuestion("noun", step, frozenset((model.first + np.flatnonzero(centred)).tolist()), model.places)
        for step, boxes in noun_steps(run, gold, row)
        if (centred := boxes_on_grid(boxes, model.grid, model.image_size)[1]).any()
    ]
    on_image = on_grid(model.grid, model.grid, model.first)
    return written_probe(pixels, row, model.places, on_image, nouns if boxed else None)


def probe_images(run: Run, items: Sequence[Probe]) -> CaptionedImages:
    """Probes as a batch."""
    arrays = [item.given for item in items if item.given is not None]
    return run.captioner.batch(arrays, [item.rows[1] for item in items])
