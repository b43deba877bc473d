"""The task of pointing models."""

from dataclasses import dataclass

import torch.nn.functional as F
from torch import nn

from regard.nn.loss import IGNORE
from regard.nn.points import Pointings
from regard.training.objectives import Loss


@dataclass(frozen=True, slots=True)
class Pointing:
    """Predict each position to point at, and the end, given the right ones before it."""

    def loss(self, model: nn.Module, batch: Pointings) -> Loss:
        log_probs = model(batch).flatten(0, 1)
        total = F.nll_loss(log_probs, batch.labels.flatten(), ignore_index=IGNORE, reduction="sum")
        return Loss(total, batch.count, {"nll": total})
