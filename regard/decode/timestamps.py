"""The rules of Whisper's timestamps: they come in pairs around segments, never go back, and begin an output."""

import torch
from jaxtyping import Float
from torch import Tensor

from regard.decode.constraints import Constraint, Prefix


def not_first(tokens: list[int]) -> Constraint:
    """A rule that no output begins with one of these tokens."""

    def constraint(log_probs: Float[Tensor, "R C"], prefix: Prefix) -> Float[Tensor, "R C"]:
        if prefix.step == 0:
            log_probs[:, tokens] = -torch.inf
        return log_probs

    return constraint


def timestamp_rules(first: int, eos: int, no_timestamps: int, latest: int | None = None) -> Constraint:
    """A rule over the tokens from `first` on, which are timestamps; all text tokens come before `eos`.

    - An output begins with a timestamp, at most the one `latest` after the first.
    - After a timestamp that ends a segment comes another, which begins the next, or `eos`; after one that begins a
      segment comes text.
    - Timestamps never go back, and a segment does not end where it began.
    - Where all timestamps together are likelier than any single other token, one of them is chosen.

    It comes after all rules that forbid tokens, since it compares what these leave.
    """

    def constraint(log_probs: Float[Tensor, "R C"], prefix: Prefix) -> Float[Tensor, "R C"]:
        log_probs[:, no_timestamps] = -torch.inf
        tokens, columns = prefix.tokens, torch.arange(log_probs.shape[1], device=log_probs.device)
        if prefix.step == 0:
            log_probs[:, :first] = -torch.inf
            if latest is not None:
                log_probs[:, first + latest + 1 :] = -torch.inf
            return log_probs
        stamped = tokens >= first
        last = stamped[:, -1]
        begins = last & (stamped[:, -2] if prefix.step > 1 else torch.ones_like(last))
        ends = last & ~begins
        log_probs[begins, first:] = -torch.inf
        log_probs.masked_fill_(ends[:, None] & (columns < eos), -torch.inf)
        # The next one may repeat the last only where a segment has just ended there.
        latest_so_far = torch.where(stamped, tokens, first - 1).gather(1, _last_true(stamped)[:, None])[:, 0]
        least = torch.where(ends, latest_so_far, latest_so_far + 1)
        log_probs.masked_fill_((columns >= first) & (columns < least[:, None]), -torch.inf)
        stamps = log_probs[:, first:].logsumexp(-1) > log_probs[:, :first].amax(-1)
        log_probs[:, :first] = log_probs[:, :first].masked_fill(stamps[:, None], -torch.inf)
        return log_probs

    return constraint


def _last_true(flags: Tensor) -> Tensor:
    """The column of the last True of each row; 0 where there is none."""
    places = torch.arange(flags.shape[1], device=flags.device)
    return torch.where(flags, places, 0).amax(-1)
