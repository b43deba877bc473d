"""Problems in, positions out: a pointing model answering many problems at a time."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from regard.data.synthetic.puzzles import Problem, Puzzle, in_unit_square, problem_of
from regard.decode.config import DecodeConfig
from regard.decode.search import batches, search
from regard.decode.stepper import Hypothesis, Stepper
from regard.errors import DataError
from regard.nn.batch import END, Pointings
from regard.tasks.verbs.point import Pointed

BUDGET = 4096
"""Items of one batch."""


class Pointer:
    """Decodes with a model that points: `Stepper` is all it knows of it."""

    def __init__(self, model: Any, puzzle: Puzzle, config: DecodeConfig) -> None:
        self.model, self.puzzle, self.config = model, puzzle, config
        self.max_len: int = model.config.max_len
        self._stepper: Stepper[Any] = model

    def answers(
        self,
        problems: Sequence[Problem | Any],
        config: DecodeConfig | None = None,
        *,
        budget: int = BUDGET,
        numbers: Sequence[int] | None = None,
    ) -> list[list[Pointed]]:
        """The `top_beams` likeliest answers (or `samples`) to each problem, likeliest first.

        A problem may be a plain list of numbers or of points. Numbers outside 0 to 1 are first brought there. What is
        sampled goes by a problem's number: its place here, or that in `numbers`.
        """
        found: list[list[Pointed]] = [[] for _ in problems]
        numbers = range(len(problems)) if numbers is None else numbers
        for indices, answers in self._in_batches(self.checked(problems), config or self.config, budget, numbers):
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
        self, problems: Sequence[Problem], config: DecodeConfig, budget: int, numbers: Sequence[int]
    ) -> Iterator[tuple[list[int], list[list[Pointed]]]]:
        width = config.samples if config.temperature is not None else config.beam
        for indices in batches([len(problem.items) for problem in problems], budget // width + 1):
            yield (
                indices,
                self._decode([problems[index] for index in indices], [numbers[index] for index in indices], config),
            )

    @torch.inference_mode()
    def _decode(self, problems: Sequence[Problem], names: Sequence[int], config: DecodeConfig) -> list[list[Pointed]]:
        self.model.eval()
        device = next(self.model.parameters()).device
        batch = Pointings.of([in_unit_square(problem.items) for problem in problems]).to(device)
        first = torch.full((len(problems),), END, device=device)
        limits = batch.source.lengths.cpu() + 1
        found = search(
            self._stepper, self._stepper.start(batch), first, eos=END, config=config, max_len=limits, ids=names
        )
        return [[_answer(hypothesis) for hypothesis in hypotheses] for hypotheses in found]


def _answer(hypothesis: Hypothesis) -> Pointed:
    order = [choice - 1 for choice in hypothesis.tokens]
    return Pointed(order=order, score=hypothesis.score, log_prob=hypothesis.log_prob)
