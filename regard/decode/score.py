"""The log-probability of outputs that are given, by any stepper: what decoding would have paid for them."""

from collections.abc import Sequence

import torch
from jaxtyping import Int
from torch import Tensor

from regard.decode.stepper import S, Stepper, unfinished
from regard.errors import RegardError


@torch.inference_mode()
def forced_log_probs(
    stepper: Stepper[S], state: S, first: Int[Tensor, " B"], targets: Sequence[Sequence[int]]
) -> list[list[float]]:
    """For each source the log-probability of every token of its target, `eos` with them where the target has it.

    Targets are fed a token at a time, as in decoding (teacher forcing), so a model's score of its own output is the one
    it was decoded with. A source whose target has ended is dropped.
    """
    device = first.device
    lengths = torch.tensor([len(target) for target in targets])
    padded = torch.zeros(len(targets), max(map(len, targets), default=0), dtype=torch.long)
    for row, target in enumerate(targets):
        padded[row, : len(target)] = torch.tensor(target, dtype=torch.long)
    columns, tokens, computed = [], first, torch.arange(len(targets))
    for step in range(padded.shape[1]):
        log_probs, state = stepper.step(tokens, state)
        tokens = padded[computed, step].to(device)
        chosen = log_probs.gather(1, tokens[:, None])[:, 0].float().cpu()
        column = torch.zeros(len(targets))
        column[computed] = chosen
        columns.append(column)
        running = (lengths[computed] > step + 1).numpy()
        if (kept := unfinished(running)) is not None and running.any():
            places = torch.from_numpy(kept).to(device)
            state, tokens, computed = state.select(places, places), tokens[places], computed[torch.from_numpy(kept)]
    found = torch.stack(columns, 1) if columns else torch.zeros(len(targets), 0)
    scored = [row[:length].tolist() for row, length in zip(found, lengths.tolist(), strict=True)]
    if any(value != value for row in scored for value in row):
        raise RegardError("the model gave a log-probability that is not a number")
    return scored
