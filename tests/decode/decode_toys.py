"""Toy models to decode from, exact to the bit whatever is batched with what, and a state that checks its caller."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

EOS = 1


@dataclass
class ToyState:
    """`memory` has one entry a source, `past` one a row. Selecting holds the search to the contract."""

    memory: Tensor
    past: Tensor

    @property
    def group(self) -> int:
        return len(self.past) // max(len(self.memory), 1)

    def select(self, rows: Tensor, sources: Tensor | None = None) -> "ToyState":
        old = torch.arange(len(self.memory), device=rows.device) if sources is None else sources
        assert len(set(old.tolist())) == len(old), "memory of a source was repeated"
        assert len(rows) % len(old) == 0, "rows are not grouped evenly"
        owners = rows // self.group
        assert (owners == old.repeat_interleave(len(rows) // len(old))).all(), "a row went to another source"
        return ToyState(self.memory if sources is None else self.memory[sources], self.past[rows])


class Toy:
    """A stepper that remembers what it was asked and what it answered."""

    def __init__(self) -> None:
        self.widths: list[int] = []
        self.answers: list[Tensor] = []
        self.pasts: list[Tensor] = []

    def start(self, batch: Any) -> ToyState:
        memory = torch.as_tensor(batch)
        return ToyState(memory, torch.zeros(len(memory), 0, dtype=torch.long, device=memory.device))

    def step(self, choices: Tensor, state: ToyState) -> tuple[Tensor, ToyState]:
        assert len(choices) == len(state.past)
        past = torch.cat([state.past, choices[:, None]], 1)
        log_probs = self.log_probs(state.memory.repeat_interleave(state.group, 0), past)
        self.widths.append(len(choices))
        self.answers.append(log_probs.clone())
        self.pasts.append(past)
        return log_probs, ToyState(state.memory, past)

    def log_probs(self, memory: Tensor, past: Tensor) -> Tensor:
        raise NotImplementedError


class Markov(Toy):
    """The next choice depends on the last one only, by a table for each source: a batch is tables [B C C]."""

    def log_probs(self, memory: Tensor, past: Tensor) -> Tensor:
        return memory[torch.arange(len(past)), past[:, -1]]


class Historical(Toy):
    """The next choice depends on all that came before and on the source, through a hash: a batch is numbers [B]."""

    PRIME = 211

    def __init__(self, choices: int = 7, seed: int = 0, sharpness: float = 2.0) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.table = (torch.randn(self.PRIME, choices, generator=generator) * sharpness).log_softmax(-1)

    def log_probs(self, memory: Tensor, past: Tensor) -> Tensor:
        hashed = memory.clone()
        for column in past.T:
            hashed = (hashed * 31 + column * 17 + 7) % self.PRIME
        return self.table.to(memory.device)[hashed]


class Pointer(Toy):
    """Chooses source positions, each once, or position `EOS` to stop: a batch is scores [B S], -inf past the end.

    The choices are as many as the longest source still searched has positions.
    """

    def log_probs(self, memory: Tensor, past: Tensor) -> Tensor:
        longest = int((memory > -torch.inf).sum(1).max())
        used = torch.zeros_like(memory, dtype=torch.bool).scatter(1, past[:, 1:], value=True)
        used[:, EOS] = False
        scores = (memory + past[:, -1:] * 0.1 * torch.arange(memory.shape[1])).masked_fill(used, -torch.inf)
        return log_softmax(scores[:, :longest])


def log_softmax(scores: Tensor) -> Tensor:
    """Log-probabilities that do not depend, even in the last bit, on how much padding stands to the right."""
    rows = [row[row > -torch.inf].double() for row in scores]
    whole = torch.stack([torch.tensor(float(np.log(sum(np.exp(value) for value in row.tolist())))) for row in rows])
    return (scores.double() - whole[:, None]).float()


def one_at_a_time(toy: Toy, source: Any, prefix: tuple[int, ...], first: int) -> np.ndarray:
    """The log-probabilities after one prefix, asked of the model by themselves."""
    state = toy.start([source] if not isinstance(source, Tensor) else source[None])
    past = torch.tensor([[first, *prefix]])
    return toy.log_probs(state.memory, past)[0].numpy()
