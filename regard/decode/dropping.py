"""When it pays to leave out what has ended."""

import numpy as np
from jaxtyping import Bool, Int

ENDED_SHARE = 1 / 32  # leaving sources out copies the state of the rest, so wait until so many of them have ended


def staying(running: Bool[np.ndarray, " B"]) -> Int[np.ndarray, " A"] | None:
    """The places of the sources to go on with; None while too few have ended to be worth it."""
    kept = np.flatnonzero(running)
    return None if len(running) - len(kept) < max(1, ENDED_SHARE * len(running)) else kept
