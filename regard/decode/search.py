"""The front door: one call that decodes as a `DecodeConfig` says."""

from collections.abc import Sequence

from jaxtyping import Int
from torch import Tensor

from regard.decode.beam import beam_search
from regard.decode.config import DecodeConfig
from regard.decode.constraints import Constraint
from regard.decode.greedy import greedy
from regard.decode.sample import sample
from regard.decode.stepper import Hypothesis, S, Stepper


def search(
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
    """For each source its outputs: drawn if `config` has a temperature, else greedy for a beam of 1, else by beam.

    `ids` name the sources to the draws, as in `sample`; the other searches have no use for them.
    """
    if config.temperature is not None:
        return sample(stepper, state, first, eos=eos, config=config, max_len=max_len, ids=ids, constraints=constraints)
    if config.beam == 1:
        found = greedy(stepper, state, first, eos=eos, config=config, max_len=max_len, constraints=constraints)
        return [[hypothesis] for hypothesis in found]
    return beam_search(stepper, state, first, eos=eos, config=config, max_len=max_len, constraints=constraints)
