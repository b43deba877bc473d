"""Classifying pictures: one prediction each."""

from dataclasses import dataclass
from typing import Any

from torch import nn

from regard.nn.batch import Images
from regard.training.objectives import Loss


@dataclass(frozen=True, slots=True)
class ImageClassification:
    """Predict the class of each picture; of one that two were mixed into, both, by their shares."""

    smoothing: float = 0.0

    def loss(self, model: nn.Module, batch: Images) -> Loss:
        head: Any = model.head
        log_probs = head(model(batch)).float().log_softmax(-1)
        plain = -log_probs.gather(1, batch.labels[:, None]).squeeze(1)
        if batch.others is not None and batch.shares is not None:
            other = -log_probs.gather(1, batch.others[:, None]).squeeze(1)
            plain = batch.shares * plain + (1 - batch.shares) * other
        nll = plain.sum()
        total = (1 - self.smoothing) * nll - self.smoothing * log_probs.mean(-1).sum()
        right = (log_probs.argmax(-1) == batch.labels).float().sum()
        return Loss(total, batch.count, {"nll": nll, "accuracy": right})
