"""Which few neurons of a head carry its role: a score is a sum of products, one a neuron, so it can be taken apart."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

ENOUGH = 0.9
"""The share of what all neurons get right that a few must get, to carry the role."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One question put to a head: q times k of every place it sees, neuron by neuron, and which places are right."""

    products: Float[Tensor, "S K"]
    right: Bool[Tensor, " S"]


@dataclass(frozen=True, slots=True)
class Carriers:
    """The fewest neurons that do nearly what all do, strongest first, with the share of the pull that each has.

    `alone` is how often they alone point at a right place, `whole` how often all neurons do; `width` is how many all
    are. Neurons are chosen on one half of the questions and measured on the other.
    """

    neurons: tuple[int, ...]
    shares: tuple[float, ...]
    alone: float
    whole: float
    width: int


def carriers(choosing: Sequence[Asked], reporting: Sequence[Asked]) -> Carriers | None:
    """The neurons that pull the right places above the others; None where nothing was asked."""
    if not choosing or not reporting:
        return None
    pull = torch.stack([one.products[one.right].mean(0) - one.products.mean(0) for one in choosing]).double().mean(0)
    order = pull.argsort(descending=True, stable=True)
    whole = _accuracy(choosing, order)
    count = next(n for n in range(1, len(order) + 1) if _accuracy(choosing, order[:n]) >= ENOUGH * whole)
    chosen, positive = order[:count], pull.clamp(min=0).sum()
    return Carriers(
        tuple(chosen.tolist()),
        tuple((pull[chosen].clamp(min=0) / positive.clamp(min=1e-12)).tolist()),
        _accuracy(reporting, chosen),
        _accuracy(reporting, order),
        len(order),
    )


def _accuracy(asked: Sequence[Asked], neurons: Tensor) -> float:
    """How often the place with the largest sum over these neurons is a right one."""
    return sum(bool(one.right[one.products[:, neurons].sum(-1).argmax()]) for one in asked) / len(asked)
