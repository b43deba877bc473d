"""Sampling with temperature, top-k and top-p; what a row samples does not depend on what is decoded beside it."""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.decode.config import DecodeConfig, limits
from regard.decode.constraints import Constraint, rules
from regard.decode.greedy import collect, decode
from regard.decode.stepper import Hypothesis, S, Stepper
from regard.decode.topk import best_sums
from regard.nn.double_precision import doubles, doubles_on


def uniform_numbers(seed: int, ids: Sequence[int], *, samples: int, steps: int) -> Float[Tensor, "R T"]:
    """Numbers from 0 to below 1, one for each step of each row; a row's depend only on seed, source id and sample."""
    streams = [np.random.default_rng((seed, index, sample)) for index in ids for sample in range(samples)]
    return torch.from_numpy(np.array([stream.random(steps) for stream in streams]).reshape(len(streams), steps))


class Sampler:
    """Picks a choice with its probability at `temperature`, from the `top_k` likeliest, or the `top_p` of the mass.

    Where both are given, `top_p` is measured within the `top_k`. Of what is left, only choices at least `min_p` times
    as likely as the likeliest stay. `uniforms` decides: one number per row and step; None where `choose` is given them.
    """

    def __init__(
        self,
        uniforms: Float[Tensor, "R T"] | None,
        *,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        min_p: float | None = None,
    ) -> None:
        self.uniforms = uniforms
        self.temperature = temperature
        self.top_k = top_k
        self.top_p = top_p
        self.min_p = min_p

    def __call__(self, log_probs: Float[Tensor, "N C"], rows: Int[Tensor, " N"], step: int) -> Int[Tensor, " N"]:
        assert self.uniforms is not None
        return self.choose(log_probs, self.uniforms[rows.to(self.uniforms.device), step])

    def choose(self, log_probs: Float[Tensor, "N C"], uniforms: Float[Tensor, " N"]) -> Int[Tensor, " N"]:
        """The choice of each row that its number decides; nothing here waits for a device."""
        values, places = log_probs.float(), None
        if self.top_k is not None:
            values, places = best_sums(values.new_zeros(len(values), 1), values, self.top_k)
        elif self.top_p is not None and self.top_p < 1:
            values, places = torch.sort(values, dim=-1, descending=True, stable=True)
        # Measured from the likeliest and in twofold precision, so that no temperature takes the likeliest to infinity.
        # A row without a possible choice has none; its numbers mean nothing.
        greatest = values.amax(-1, keepdim=True)
        scaled = doubles(values - greatest.masked_fill(greatest == -torch.inf, 0.0)) / self.temperature
        probs = scaled.softmax(-1)
        if self.top_p is not None and places is not None:
            # A choice stays while those likelier than it do not yet hold top_p; the likeliest always does.
            probs = probs.masked_fill(probs.cumsum(-1) - probs >= self.top_p, 0.0)
        if self.min_p is not None:
            probs = probs.masked_fill(probs < self.min_p * probs.amax(-1, keepdim=True), 0.0)
        chosen = invert(probs, uniforms).to(log_probs.device)
        return chosen if places is None else places.gather(1, chosen[:, None])[:, 0]


def invert(probs: Float[Tensor, "N C"], uniforms: Float[Tensor, " N"]) -> Int[Tensor, " N"]:
    """The choice at which the running sum of `probs` passes `uniforms` of its whole; never one of probability 0."""
    sums = doubles(probs).cumsum(-1)
    # Twofold precision: a number below 1 is then at most 1 - 2**-53, and its product with the whole below the whole.
    aim = doubles(uniforms) * sums[:, -1]
    # A row without a possible choice has no sum to look in; its choice is refused by its log-probability later.
    return torch.searchsorted(sums, aim[:, None], right=True)[:, 0].clamp(max=probs.shape[1] - 1)


def sample(
    stepper: Stepper[S],
    state: S,
    first: Int[Tensor, " B"],
    *,
    eos: int,
    config: DecodeConfig,
    max_len: int | Int[Tensor, " B"] | None = None,
    ids: Sequence[int] | None = None,
    constraints: Sequence[Constraint] = (),
) -> list[list[Hypothesis]]:
    """For each source, `config.samples` outputs in the order sampled; log-probabilities are the model's own.

    The samples of a source depend on `config.seed` and its number in `ids` alone (by default its place in this batch),
    so naming sources keeps their outputs however they are batched.
    """
    B, samples = len(first), config.samples
    of_sources = limits(config.max_len if max_len is None else max_len, B)
    ends = torch.from_numpy(of_sources).repeat_interleave(samples)
    steps = int(ends.max()) if B else 0
    uniforms = uniform_numbers(config.seed, range(B) if ids is None else ids, samples=samples, steps=steps)
    pick = Sampler(
        doubles_on(first.device, uniforms),
        temperature=1.0 if config.temperature is None else config.temperature,
        top_k=config.top_k,
        top_p=config.top_p,
        min_p=config.min_p,
    )
    rows = torch.arange(B, device=first.device).repeat_interleave(samples)
    columns = decode(
        stepper,
        state.select(rows) if samples > 1 else state,
        first[rows],
        eos=eos,
        max_len=ends,
        min_len=config.min_len,
        pick=pick,
        per_source=samples,
        constraints=[*constraints, *rules(config, eos, of_sources)],
    )
    outputs = collect(columns, eos=eos, config=config)
    return [outputs[start : start + samples] for start in range(0, len(outputs), samples)]
