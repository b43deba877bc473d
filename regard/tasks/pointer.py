"""Problems in, positions out: a pointing model answering many problems at a time."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from regard.data.puzzles import Puzzle
from regard.data.puzzles.problems import Problem, in_unit_square, problem_of
from regard.decode.config import DecodeConfig
from regard.decode.search import batches, search
from regard.decode.stepper import Hypothesis, Stepper
from regard.errors import DataError
from regard.nn.batch import END, Pointings

BUDGET = 4096
"""Items of one batch."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Positions of the input, counted from 0, and the log-probability of having pointed at just these."""

    order: list[int]
    log_prob: float
    score: float


class Pointer:
    """Decodes with a model that points: `Stepper` is all it knows of it."""

    def __init__(self, model: Any, puzzle: Puzzle, config: DecodeConfig) -> None:
        self.model, self.puzzle, self.config = model, puzzle, config
        self.max_len: int = model.config.max_len
        self._stepper: Stepper[Any] = model

    def answers(
        self, problems: Sequence[Problem | Any], config: DecodeConfig | None = None, *, budget: int = BUDGET
    ) -> list[list[Answer]]:
        """The `top_beams` likeliest answers (or `samples`) to each problem, likeliest first.

        A problem may be a plain list of numbers or of points. Numbers outside 0 to 1 are first brought there.
        """
        found: list[list[Answer]] = [[] for _ in problems]
        for indices, answers in self._in_batches(self.checked(problems), config or self.config, budget):
            for index, best in zip(indices, answers, strict=True):
                found[index] = best
        return found

    def checked(self, problems: Sequence[Problem | Any]) -> list[Problem]:
        """The problems as such, none of them larger than the model reads."""
        made = [
            problem if isinstance(problem, Problem) else problem_of(problem, self.puzzle, f"problem {number}")
            for number, problem in enumerate(problems, 1)
        ]
        for number, problem in enumerate(made, 1):
            if (count := len(problem.items)) > self.max_len:
                raise DataError(f"problem {number} has {count} items; the model reads at most {self.max_len}")
        return made

    def _in_batches(
        self, problems: Sequence[Problem], config: DecodeConfig, budget: int
    ) -> Iterator[tuple[list[int], list[list[Answer]]]]:
        width = config.samples if config.temperature is not None else config.beam
        for indices in batches([len(problem.items) for problem in problems], budget // width + 1):
            yield indices, self._decode([problems[index] for index in indices], indices, config)

    @torch.inference_mode()
    def _decode(self, problems: Sequence[Problem], names: Sequence[int], config: DecodeConfig) -> list[list[Answer]]:
        self.model.eval()
        device = next(self.model.parameters()).device
        batch = Pointings.of([in_unit_square(problem.items) for problem in problems]).to(device)
        first = torch.full((len(problems),), END, device=device)
        limits = batch.source.lengths.cpu() + 1
        found = search(
            self._stepper, self._stepper.start(batch), first, eos=END, config=config, max_len=limits, ids=names
        )
        return [[_answer(hypothesis) for hypothesis in hypotheses] for hypotheses in found]


def _answer(hypothesis: Hypothesis) -> Answer:
    return Answer([choice - 1 for choice in hypothesis.tokens], hypothesis.log_prob, hypothesis.score)
