"""Pointing: problems whose answers are positions of the input, to a model that points."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from torch import nn

from regard.data import Loader, Position
from regard.data.loader import Layout
from regard.data.puzzles import Puzzle, puzzle_named
from regard.data.puzzles.problems import FreshProblems, Problem, ProblemList, problem_batches
from regard.errors import DataError
from regard.nn.points import Pointings
from regard.tasks.config import RunConfig
from regard.tasks.pointer import Pointer
from regard.tasks.problems import problems_of
from regard.tasks.report import Report
from regard.tasks.run import absolute
from regard.training.pointing import Pointing
from regard.training.objectives import Objective


def prepare_job(config: RunConfig, directory: Path, report: Report, new: bool) -> tuple[RunConfig, "PointingJob"]:
    """The problems read, or made ready to be drawn."""
    puzzle = puzzle_named(config.data.puzzle or "")
    if new:
        config = absolute(replace(config, model={**config.model, "inputs": puzzle.inputs, "complete": puzzle.complete}))
    return config, PointingJob(config, puzzle, report)


class PointingJob:
    """Problems to train on, drawn afresh or from files, and others to validate on, some of which are answered."""

    def __init__(self, config: RunConfig, puzzle: Puzzle, report: Report) -> None:
        self.config, self.puzzle = config, puzzle
        self.objective: Objective = Pointing()
        train = problems_of(config.data, puzzle, "train")
        if train is None:
            fewest, most = config.data.puzzle_sizes
            items = f"{most}" if fewest == most else f"{fewest} to {most}"
            report.say(f"drawing problems afresh for every batch: {puzzle.name}, {items} items")
        else:
            report.say(f"{len(train):,} problems")
            self._check_sizes(train)
        self.train = train
        self.valid = problems_of(config.data, puzzle, "valid")

    def stream(self, position: Position, *, pin: bool, pack: bool) -> Loader:
        """Problems of a batch are of one size or nearly, so there is little to pack."""
        return Loader(self._layout(), seed=self.config.train.seed, position=position, pin=pin)

    def validation(self) -> Iterator[Pointings] | None:
        return None if self.valid is None else problem_batches(self.valid, self.config.train.batch_tokens)

    def scores(self, model: nn.Module) -> dict[str, float]:
        shown = (self.valid or [])[: self.config.train.validate_sentences]
        if not shown:
            return {}
        answers = Pointer(model, self.puzzle, self.config.decode.greedy()).answers(shown)
        right = [_right(answer[0].order, problem) for answer, problem in zip(answers, shown, strict=True)]
        return {"exact_match": sum(right) / len(right)}

    def _layout(self) -> Layout:
        data, budget = self.config.data, self.config.train.batch_tokens
        if self.train is not None:
            return ProblemList(self.train, budget)
        return FreshProblems(self.puzzle, (data.puzzle_sizes[0], data.puzzle_sizes[1]), budget)

    def _check_sizes(self, problems: list[Problem]) -> None:
        most, longest = max(len(problem.items) for problem in problems), self.config.model_config().max_len
        if most > longest:
            raise DataError(f"a problem has {most} items; model.max_len={longest} is the most")


def _right(order: list[int], problem: Problem) -> bool:
    return problem.order is not None and order == problem.order.tolist()
