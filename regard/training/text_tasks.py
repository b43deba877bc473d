"""What is asked of an encoder: hidden words and next sentences, classes, tags, and where answers stand."""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.nn.batch import LabelledTexts, MaskedTexts
from regard.nn.loss import IGNORE
from regard.training.tasks import Loss


@dataclass(frozen=True, slots=True)
class MaskedWords:
    """Say which words are hidden and, of pairs, whether the second text goes on from the first.

    Both are means that add up: all words of a batch weigh as much as all its pairs.
    """

    smoothing: float = 0.0

    def loss(self, model: nn.Module, batch: MaskedTexts) -> Loss:
        words: Any = model.words
        x = model(batch)
        asked = words.vectors(x.gather(1, batch.places[..., None].expand(-1, -1, x.shape[-1])))
        total, plain = words.output.loss(asked, batch.labels, self.smoothing)
        if batch.elsewhere is None:
            return Loss(total, batch.count, {"nll": plain, "words": plain})
        logits = model.next_logits(x).float()  # type: ignore[operator]
        following = F.cross_entropy(logits, batch.elsewhere, reduction="sum") * batch.share
        right = (logits.argmax(-1) == batch.elsewhere).sum() * batch.share
        parts = {"nll": plain + following.detach(), "words": plain, "next": following, "next_accuracy": right}
        return Loss(total + following, batch.count, parts)


@dataclass(frozen=True, slots=True)
class Classification:
    """Say of each text which class it is of."""

    smoothing: float = 0.0

    def loss(self, model: nn.Module, batch: LabelledTexts) -> Loss:
        logits = model.classes(model(batch), batch)  # type: ignore[operator]
        return labelled_loss(logits, batch.labels, batch.count, self.smoothing)


@dataclass(frozen=True, slots=True)
class Tagging:
    """Say of each word which tag it has; a word of several tokens is asked of at its first."""

    smoothing: float = 0.0

    def loss(self, model: nn.Module, batch: LabelledTexts) -> Loss:
        logits = model.classifier(model.dropout(model(batch)))  # type: ignore[operator]
        return labelled_loss(logits.flatten(0, 1), batch.labels.flatten(), batch.count, self.smoothing)


@dataclass(frozen=True, slots=True)
class Answering:
    """Say at which token the answer begins, and at which it ends."""

    smoothing: float = 0.0

    def loss(self, model: nn.Module, batch: LabelledTexts) -> Loss:
        logits = model.classifier(model.dropout(model(batch)))  # type: ignore[operator]
        hidden = ~batch.inputs.tokens.mask()[..., None]
        both = (
            logits.masked_fill(hidden, -1e4 if logits.dtype == torch.float16 else -1e30).transpose(1, 2).flatten(0, 1)
        )
        return labelled_loss(both, batch.labels.flatten(), batch.count)


def labelled_loss(logits: Float[Tensor, "N C"], labels: Int[Tensor, " N"], count: int, smoothing: float = 0.0) -> Loss:
    """Cross-entropy, and how many are right."""
    logits = logits.float()
    total = F.cross_entropy(logits, labels, ignore_index=IGNORE, label_smoothing=smoothing, reduction="sum")
    plain = total if not smoothing else F.cross_entropy(logits, labels, ignore_index=IGNORE, reduction="sum")
    right = (logits.argmax(-1) == labels).sum()
    return Loss(total, count, {"nll": plain.detach(), "accuracy": right.to(total.dtype)})
