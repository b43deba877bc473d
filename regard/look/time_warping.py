"""When each piece of a text was said: dynamic time warping over the attention that its steps pay to a sound."""

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.nn.double_precision import doubles

MEDIAN = 7
"""Positions over which weights are smoothed."""


def median_filtered(weights: Float[Tensor, "*rows S"], width: int = MEDIAN) -> Float[Tensor, "*rows S"]:
    """Each number replaced by the median of the `width` around it; edges are reflected."""
    reach = width // 2
    if weights.shape[-1] <= reach:
        return weights
    flat = torch.nn.functional.pad(weights.reshape(1, -1, weights.shape[-1]), (reach, reach), mode="reflect")
    return flat.unfold(-1, width, 1).sort(-1).values[..., reach].reshape(weights.shape)


def sharpened(weights: Float[Tensor, "H T S"], width: int = MEDIAN) -> Float[Tensor, "T S"]:
    """The mean of the heads, each position compared with what it is paid by all steps, and smoothed over time."""
    mean, spread = weights.mean(-2, keepdim=True), weights.std(-2, keepdim=True, correction=0)
    # A position that all steps look at alike tells nothing.
    return median_filtered((weights - mean) / spread.clamp_min(1e-10), width).mean(0)


def warping_path(cost: Float[np.ndarray, "T S"]) -> tuple[Int[np.ndarray, " N"], Int[np.ndarray, " N"]]:
    """The cheapest way from the first row and column to the last, a step down, right or both at a time."""
    T, S = cost.shape
    total = np.full((T + 1, S + 1), np.inf)
    total[0, 0] = 0.0
    moves = np.zeros((T + 1, S + 1), dtype=np.int8)
    for diagonal in range(2, T + S + 1):  # all cells of one depend on the two before
        rows = np.arange(max(1, diagonal - S), min(T, diagonal - 1) + 1)
        columns = diagonal - rows
        both, down, right = total[rows - 1, columns - 1], total[rows - 1, columns], total[rows, columns - 1]
        move = np.where((both < down) & (both < right), 0, np.where((down < both) & (down < right), 1, 2))
        total[rows, columns] = cost[rows - 1, columns - 1] + np.choose(move, (both, down, right))
        moves[rows, columns] = move
    moves[0, :], moves[:, 0] = 2, 1
    row, column, path = T, S, []
    while row > 0 or column > 0:
        path.append((row - 1, column - 1))
        move = moves[row, column]
        row, column = row - (move != 2), column - (move != 1)
    rows, columns = np.array(path[::-1], dtype=np.int64).reshape(-1, 2).T
    return rows, columns


def step_starts(weights: Float[Tensor, "H T S"], width: int = MEDIAN) -> Int[np.ndarray, " T"]:
    """The position of the sound at which each step of T begins."""
    rows, columns = warping_path(-sharpened(doubles(weights), width).cpu().numpy())
    return columns[np.flatnonzero(np.diff(rows, prepend=-1))]
