"""The problems that a run's configuration names."""

from pathlib import Path

from regard.data.puzzles import Puzzle
from regard.data.puzzles.problems import Part, Problem, drawn, in_unit_square, read_problems
from regard.tasks.config import DataConfig

HELD_OUT = 1000
"""How many problems are drawn to validate on, and how many to test on."""
SEED = 0
"""Of held-out problems: every run of a puzzle is measured on the same ones."""


def problems_of(config: DataConfig, puzzle: Puzzle, part: Part) -> list[Problem] | None:
    """The problems of this part with their answers; None where training is to draw its own.

    Held-out problems are drawn where no file names any, unless the training problems come from files.
    """
    files = getattr(config, part)
    if files:
        problems = [one for file in files for one in read_problems(Path(file), puzzle, answered=True)]
        return [Problem(in_unit_square(one.items), one.order) for one in problems]
    if part == "train" or config.train:
        return None
    return held_out(config, puzzle, part)


def held_out(config: DataConfig, puzzle: Puzzle, part: Part, count: int = HELD_OUT) -> list[Problem]:
    """Problems of the sizes that the configuration names, which training never draws."""
    fewest, most = config.puzzle_sizes
    return drawn(puzzle, count, (fewest, most), seed=SEED, part=part)
