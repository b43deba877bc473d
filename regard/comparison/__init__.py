"""Several configurations trained under one budget, and one report about them."""

from regard.comparison.experiment import compare

__all__ = ["compare"]
