"""Several configurations trained under one budget, and one report about them."""

from regard.runs.comparison.comparing import compare

__all__ = ["compare"]
