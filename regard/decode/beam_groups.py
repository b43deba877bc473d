"""Diverse beam search (Vijayakumar et al. 2016): groups of hypotheses, each kept away from what earlier ones chose."""

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.decode.topk import best_sums
from regard.nn.double_precision import doubles


class Groups:
    """Chooses the candidates of a step group by group.

    A choice loses `penalty` for each place of an earlier group that has made it in the same step. What a hypothesis has
    lost so far decides whether it is kept, and is remembered here by its source: log-probabilities stay the model's.
    """

    def __init__(self, groups: int, penalty: float, beam: int, sources: int) -> None:
        self.groups, self.penalty, self.each = groups, penalty, beam // groups
        self.lost = np.zeros((sources, beam), dtype=np.float32)

    def choose(
        self,
        sums: Float[Tensor, "B W"],
        log_probs: Float[Tensor, "R C"],
        sources: Int[np.ndarray, " B"],
        *,
        eos: int,
    ) -> tuple[Float[np.ndarray, "B N"], Int[np.ndarray, "B N"], Bool[np.ndarray, "B N"], Int[np.ndarray, "B L"]]:
        """The candidates of a step: log-probabilities, places among W * C, which finish, and which go on in order."""
        (B, W), C, each = sums.shape, log_probs.shape[1], self.each
        scores = log_probs.view(B, W, C)
        before = torch.from_numpy(self.lost[sources]).to(sums.device)
        made = torch.zeros(B, C, device=sums.device)  # how often earlier groups made each choice in this step
        parts = []
        for group in range(self.groups):
            # At first there is one row, from which every group begins.
            first, last = (0, 1) if W == 1 else (group * each, (group + 1) * each)
            own = scores[:, first:last]
            penalised = own - self.penalty * made[:, None]
            so_far = sums[:, first:last] - before[:, first:last]
            values, places = best_sums(so_far, penalised.flatten(0, 1), 2 * each)
            place, token = places // C + first, places % C
            real = sums.gather(1, place) + scores.flatten(1).gather(1, place * C + token)
            lost, missing = real - values, 2 * each - values.shape[1]
            part = [
                np.pad(doubles(one).cpu().numpy(), ((0, 0), (0, missing)), constant_values=fill)
                for one, fill in ((real, -np.inf), (place * C + token, eos), (lost, 0.0))
            ]
            ended = part[1].astype(np.int64) % C == eos
            live = np.argsort(ended, axis=1, kind="stable")[:, :each]
            finished = ended & (part[0] > -np.inf)
            finished[:, each:] = False
            parts.append((*part, finished, live + 2 * each * group))
            alive = torch.from_numpy(np.take_along_axis(part[0], live, 1) > -np.inf)
            chosen = torch.from_numpy(np.take_along_axis(part[1], live, 1).astype(np.int64) % C)
            made.scatter_add_(1, chosen.to(made.device), alive.to(made))
        values, places, lost, finished, live = (np.concatenate(each_part, 1) for each_part in zip(*parts, strict=True))
        kept = np.take_along_axis(lost, live, 1)
        self.lost[sources] = np.where(np.isfinite(kept), kept, 0.0)
        return values.astype(np.float32), places.astype(np.int64), finished, live
