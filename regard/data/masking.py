"""Hiding words: which ones, and what is put in their place."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

MASKED, RANDOM = 0.8, 0.1  # of hidden tokens; the rest stay as they are


@dataclass(frozen=True)
class Masking:
    """`share` of the tokens are hidden: 80 % of them behind `mask`, 10 % behind a random one of `ordinary`, 10 % left
    as they are. `whole_words` hides all pieces of a word or none."""

    mask: int
    ordinary: Int[np.ndarray, " V"]
    share: float = 0.15
    whole_words: bool = False

    def hide(
        self,
        ids: Int[np.ndarray, "B S"],
        may: Bool[np.ndarray, "B S"],
        begins: Bool[np.ndarray, "B S"],
        random: np.random.Philox,
    ) -> tuple[Int[np.ndarray, "B S"], Bool[np.ndarray, "B S"]]:
        """The ids with words hidden, and where. Only tokens that `may` be are; `begins` says where words begin."""
        hidden = self._chosen(may, begins, uniform(random, ids.shape))
        what = uniform(random, ids.shape)
        words = self.ordinary[random.random_raw(ids.size).reshape(ids.shape) % len(self.ordinary)]
        changed = np.where(hidden & (what < MASKED), self.mask, ids)
        return np.where(hidden & (what >= MASKED) & (what < MASKED + RANDOM), words, changed), hidden

    def _chosen(
        self, may: Bool[np.ndarray, "B S"], begins: Bool[np.ndarray, "B S"], draws: Float[np.ndarray, "B S"]
    ) -> Bool[np.ndarray, "B S"]:
        """Of each row the `share` of its tokens with the lowest draws, rounded, and at least one."""
        counts = np.maximum(1, np.rint(self.share * may.sum(1))).astype(np.int64)
        if self.whole_words:
            # The pieces of a word share the draw of its first, so that they stand together in the order below.
            columns = np.broadcast_to(np.arange(may.shape[1]), may.shape)
            first = np.maximum.accumulate(np.where(begins | ~may, columns, 0), axis=1)
            draws = np.take_along_axis(draws, first, 1)
        draws = np.where(may, draws, 2.0)
        order = np.argsort(draws, axis=1, kind="stable")
        sorted_draws = np.take_along_axis(draws, order, 1)
        taken = np.broadcast_to(np.arange(may.shape[1]), may.shape) < counts[:, None]
        if self.whole_words:
            beyond = np.minimum(counts, may.shape[1] - 1)[:, None]
            cut = np.take_along_axis(sorted_draws, beyond, 1)  # a word that does not fit whole is left alone
            taken &= (sorted_draws != cut) | (counts[:, None] >= may.shape[1])
            taken |= sorted_draws == sorted_draws[:, :1]  # but one word is hidden in any case
        chosen = np.zeros_like(may)
        np.put_along_axis(chosen, order, taken, 1)
        return chosen & may


def uniform(random: np.random.Philox, shape: tuple[int, ...]) -> Float[np.ndarray, "*shape"]:
    """Numbers from 0 to below 1, made of raw bits, which numpy promises never to change."""
    raw = random.random_raw(int(np.prod(shape)))
    return (raw >> np.uint64(11)).astype(np.float64).reshape(shape) * 2.0**-53
