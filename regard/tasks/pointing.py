"""Pointing: problems whose answers are positions of the input, to a model that points."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float
from torch import nn

from regard.config import JsonObject, Setting
from regard.data.batches import Layout
from regard.data.mixing import even_sample
from regard.data.synthetic.puzzle_solvers import EXACT, area, tour_length
from regard.data.synthetic.puzzles import (
    PUZZLES,
    Part,
    Problem,
    ProblemList,
    Puzzle,
    SampledProblems,
    in_unit_square,
    problem_batches,
    problem_of,
    puzzle_named,
    read_problems,
    sample_problems,
    solved,
)
from regard.errors import ConfigError, DataError
from regard.look.document import Document
from regard.look.watch import attentions
from regard.metrics.classification_metrics import wilson_interval
from regard.nn.batch import Pointings
from regard.tasks.config import RunConfig
from regard.tasks.corpora import PreparedData
from regard.tasks.looking.look_options import LookOptions
from regard.tasks.pointer import Pointer
from regard.tasks.run import Run, absolute
from regard.tasks.spec import MEASURING, Files, Measuring, Progress, Report, Task
from regard.training.objectives import Objective, Pointing


@dataclass(frozen=True, kw_only=True, slots=True)
class PointingData(Files):
    """`puzzle` is what a pointing model learns: `sort`, `hull` or `tsp`.

    Its problems are in `.jsonl` or `.csv` files or, without any, sampled for every batch, with as many items as
    `puzzle_sizes` says: the fewest and the most.
    """

    puzzle: str | None = None
    puzzle_sizes: tuple[int, ...] = (10, 10)

    def __post_init__(self) -> None:
        if self.puzzle is not None:
            least = puzzle_named(self.puzzle).fewest
            if len(self.puzzle_sizes) != 2 or not least <= self.puzzle_sizes[0] <= self.puzzle_sizes[1]:
                raise ConfigError(
                    f"data.puzzle_sizes={list(self.puzzle_sizes)} must be the fewest and the most items of a problem, "
                    f"at least {least} for '{self.puzzle}'"
                )


class PointingRun(PreparedData):
    """Problems to train on, sampled for every batch or from files, and others to validate on."""

    def __init__(self, config: RunConfig, puzzle: Puzzle, report: Report) -> None:
        self.config, self.puzzle = config, puzzle
        self.objective: Objective = Pointing()
        train = problems_of(config.data, puzzle, "train")
        if train is None:
            fewest, most = config.data.puzzle_sizes
            items = f"{most}" if fewest == most else f"{fewest} to {most}"
            report.say(f"sampling new problems for every batch: {puzzle.name}, {items} items")
        else:
            report.say(f"{len(train):,} problems")
            self._check_sizes(train)
        self.train = train
        self.valid = problems_of(config.data, puzzle, "valid")

    def validation(self) -> Iterator[Pointings] | None:
        return None if self.valid is None else problem_batches(self.valid, self.config.train.batch_tokens)

    def scores(self, model: nn.Module) -> dict[str, float]:
        shown = even_sample(self.valid or [], self.config.train.validate_sentences)
        if not shown:
            return {}
        answers = Pointer(model, self.puzzle, self.config.decode.greedy()).answers(shown)
        right = [_right(answer[0].order, problem) for answer, problem in zip(answers, shown, strict=True)]
        return {"exact_match": sum(right) / len(right)}

    def layout(self, budget: int, *, pack: bool = False) -> Layout:
        """Problems of a batch are of one size or nearly, so there is little to pack."""
        data = self.config.data
        if self.train is not None:
            return ProblemList(self.train, budget)
        return SampledProblems(self.puzzle, (data.puzzle_sizes[0], data.puzzle_sizes[1]), budget)

    def _check_sizes(self, problems: list[Problem]) -> None:
        most, longest = max(len(problem.items) for problem in problems), self.config.model_config().max_len
        if most > longest:
            raise DataError(f"a problem has {most} items; model.max_len={longest} is the most")


def _right(order: list[int], problem: Problem) -> bool:
    return problem.order is not None and order == problem.order.tolist()


HELD_OUT = 1000
"""How many problems are sampled to validate on, and how many to test on."""
SEED = 0
"""Of held-out problems: every run of a puzzle is measured on the same ones."""


def problems_of(config: PointingData, puzzle: Puzzle, part: Part) -> list[Problem] | None:
    """The problems of this part with their answers; None where training samples its own.

    Held-out problems are sampled where no file names any, unless the training problems come from files.
    """
    files = getattr(config, part)
    if files:
        problems = [one for file in files for one in read_problems(Path(file), puzzle, answered=True)]
        return [Problem(in_unit_square(one.items), one.order) for one in problems]
    if part == "train" or config.train:
        return None
    return held_out(config, puzzle, part)


def held_out(config: PointingData, puzzle: Puzzle, part: Part, count: int = HELD_OUT) -> list[Problem]:
    """Problems of the sizes that the configuration names, which training never samples."""
    fewest, most = config.puzzle_sizes
    return sample_problems(puzzle, count, (fewest, most), seed=SEED, part=part)


WINDOW = 256


def is_simple(shape: Float[np.ndarray, "S 2"]) -> bool:
    """Whether these corners, in order, are those of a polygon no two of whose sides cross."""
    if len(shape) < 3:
        return False
    sides = [(shape[place - 1], shape[place]) for place in range(len(shape))]
    return not any(_cross(*one, *other) for one, other in combinations(sides, 2))


def _cross(a: np.ndarray, b: np.ndarray, c: np.ndarray, d: np.ndarray) -> bool:
    """Whether the inner parts of the segments ab and cd have a point in common; neighbours share only an end."""

    def side(p: np.ndarray, q: np.ndarray, r: np.ndarray) -> float:
        return float((q[0] - p[0]) * (r[1] - p[1]) - (q[1] - p[1]) * (r[0] - p[0]))

    return side(a, b, c) * side(a, b, d) < 0 and side(c, d, a) * side(c, d, b) < 0


def _reference(problem: Problem) -> list[int]:
    assert problem.order is not None
    return problem.order.tolist()


def _share(name: str, hits: Sequence[bool]) -> JsonObject:
    """A share and its interval by Wilson's formula, which stays within 0 and 1."""
    right, count = sum(hits), len(hits)
    return {name: right / count, f"{name}_interval": list(wilson_interval(right, count, 1.96))}


def _mean(name: str, values: Sequence[float]) -> JsonObject:
    """A mean and its interval from the values' own spread; none where there are no values."""
    if not values:
        return {name: None, f"{name}_interval": None}
    mean = float(np.mean(values))
    error = 1.96 * float(np.std(values, ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else 0.0
    return {name: mean, f"{name}_interval": [mean - error, mean + error]}


def pointer_of(run: Run) -> Pointer:
    """Numbers or points in, positions out."""
    return Pointer(run.model, puzzle_named(run.config.data.puzzle or ""), run.config.decode)


def point(run: Run, problems: Sequence[Any], **decode: Setting) -> list[list[int]]:
    """The positions that answer each problem, a list of numbers or of points: `point([[0.3, 0.1, 0.2]])`."""
    return [found[0].order for found in run.pointer.answers(problems, run.decode_config(**decode))]


@dataclass(frozen=True, kw_only=True, slots=True)
class PointingOptions:
    """The first `limit` problems."""

    limit: int | None = None


class PointingTask(Task):
    """Problems whose answers are positions of the input, to a model that points."""

    name = "pointing"
    about = "problems whose answers are positions of their items"
    data = PointingData
    evaluation = PointingOptions
    unused: ClassVar = (
        *("tokenizer", "images", "train.vectors", "train.compile_loss", "train.r_drop", "train.pack"),
        *("train.compile", "train.compile_blocks", "train.cuda_graphs"),
        *("decode.max_len", "decode.max_ratio", "decode.max_extra"),  # an answer is at most as long as its problem
        *("decode.coverage_penalty", "decode.mbr", "decode.shortlist"),
    )
    parts: ClassVar = {"pointer": pointer_of}
    methods: ClassVar = {"point": point}
    has_tokenizer = False
    reads_text = False
    searches = True
    sides = 2
    unit = "problems"

    def check(self, config: RunConfig) -> None:
        data, longest = config.data, config.model_config().max_len
        if data.puzzle is None:
            raise ConfigError(f"data.puzzle says what to learn: {', '.join(PUZZLES)}")
        if config.train.epochs and not data.train:
            raise ConfigError(f"train.epochs={config.train.epochs:g} is not possible: sampled problems never repeat")
        if data.puzzle_sizes[1] > longest:
            raise ConfigError(f"data.puzzle_sizes={list(data.puzzle_sizes)} must be at most model.max_len={longest}")
        if config.train.batch_tokens <= 2 * data.puzzle_sizes[1]:
            raise ConfigError(
                f"train.batch_tokens={config.train.batch_tokens} must hold one problem of {data.puzzle_sizes[1]} "
                f"items, its answer and the end: at least {2 * data.puzzle_sizes[1] + 1}"
            )
        if config.train.smoothing:
            raise ConfigError(f"train.smoothing={config.train.smoothing} must be 0: a puzzle has one right answer")

    def prepare(
        self, config: RunConfig, directory: Path, report: Report, *, new: bool
    ) -> tuple[RunConfig, PointingRun]:
        """The problems read, or made ready to be sampled."""
        puzzle = puzzle_named(config.data.puzzle or "")
        if new:
            model = {**config.model, "inputs": puzzle.inputs, "complete": puzzle.complete}
            config = absolute(replace(config, model=model))
        return config, PointingRun(config, puzzle, report)

    def evaluate(self, run: Run, data: Any = None, how: Measuring = MEASURING) -> JsonObject:
        """Scores on the problems given, by default the run's test problems.

        `exact_match` is the share of answers that are right in every position. Of hulls, `area_covered` is the mean
        share of the hull's area that an answer's polygon holds, where its sides do not cross (`simple`). Of tours,
        `valid` is the share that visit every city once, and `excess` how much longer they are than the reference on
        average: the shortest tour up to 12 cities, a good one above. Every figure comes with its 95 % interval.
        """
        puzzle, own, limit = run.pointer.puzzle, run.config.data, how.chosen(PointingOptions).limit
        problems: Sequence[Problem] | None = data
        if data is not None and all(isinstance(one, str | Path) for one in data):
            problems = [one for file in data for one in read_problems(Path(file), puzzle)]
        if problems is None:
            named = problems_of(own, puzzle, "test") or problems_of(own, puzzle, "valid")
            problems = named or held_out(own, puzzle, "test")
        problems = [solved(problem, puzzle) for problem in problems[:limit]]
        config = run.decode_config(**how.decode)
        orders: list[list[int]] = []
        for start in range(0, len(problems), WINDOW):
            orders += [best[0].order for best in run.pointer.answers(problems[start : start + WINDOW], config)]
            if how.progress is not None:
                how.progress(len(orders), len(problems))
        if how.out is not None:
            for order in orders:
                how.out(json.dumps(order))
        judged = list(zip(problems, orders, strict=True))
        sizes = [len(problem.items) for problem in problems]
        result: JsonObject = {
            "puzzle": puzzle.name,
            "problems": len(problems),
            "sizes": [min(sizes), max(sizes)],
            **_share("exact_match", [_reference(problem) == order for problem, order in judged]),
            "decode": {"beam": config.beam, "length_penalty": config.length_penalty, "length_form": config.length_form},
        }
        if puzzle.name == "hull":
            shapes = [problem.items[order] for problem, order in judged]
            wholes = [area(problem.items[problem.order]) for problem in problems]
            simple = [is_simple(shape) for shape in shapes]
            both = zip(shapes, wholes, simple, strict=True)
            covered = [abs(area(shape)) / whole for shape, whole, fine in both if fine]
            result |= {**_share("simple", simple), **_mean("area_covered", covered)}
        if puzzle.name == "tsp":
            valid = [sorted(order) == list(range(len(problem.items))) for problem, order in judged]
            lengths = np.array([tour_length(problem.items, np.array(order)) for problem, order in judged])
            shortest = np.array([tour_length(problem.items, np.array(problem.order)) for problem in problems])
            result |= {
                **_share("valid", valid),
                "length": float(lengths.mean()),
                "reference_length": float(shortest.mean()),
                "reference": "shortest" if max(sizes) <= EXACT else "heuristic",
                **_mean("excess", (lengths / shortest - 1).tolist()),
            }
        return result

    def show(self, scores: Mapping[str, Any]) -> str:
        """A pointing model's scores for a person, every one with its 95 % interval."""

        def line(label: str, name: str, note: str = "") -> str:
            low, high = scores[f"{name}_interval"] or (math.nan, math.nan)
            value = math.nan if scores[name] is None else scores[name]
            return f"{label:18} {100 * value:.2f} %  [{100 * low:.2f}, {100 * high:.2f}]{note}"

        low, high = scores["sizes"]
        items = f"{low}" if low == high else f"{low} to {high}"
        how = f"{scores['puzzle']}, {items} items, beam {scores['decode']['beam']}"
        lines = [f"problems           {scores['problems']:,}  ({how})", line("exact match", "exact_match")]
        if "area_covered" in scores:
            lines.append(line("area covered", "area_covered", "  of the hull, by answers whose sides do not cross"))
            lines.append(line("sides not crossing", "simple"))
        if "excess" in scores:
            reference = "the shortest tour" if scores["reference"] == "shortest" else "a good heuristic's tour"
            lines.append(line("valid tours", "valid"))
            lines.append(line("longer by", "excess", f"  than {reference}"))
            lines.append(f"{'mean length':18} {scores['length']:.4f}  (reference {scores['reference_length']:.4f})")
        return "\n".join(lines)

    def compared(self, run: Run, limit: int | None, progress: Progress | None) -> JsonObject:
        return self.evaluate(run, how=Measuring(options=PointingOptions(limit=limit), progress=progress))

    def look(self, run: Run, inputs: Sequence[Any], wanted: LookOptions, **decode: Setting) -> Document:
        from regard.tasks.looking.decoder_runs import pointing_document

        return pointing_document(run, inputs, wanted, **decode)

    def looks(self, run: Run) -> bool:
        return bool(attentions(run.model))

    def inputs(self, run: Run, words: Sequence[str], file: Path | None) -> list[Any]:
        """The problems on the command line or in the file, of the puzzle that the run has learnt."""
        if bool(words) == bool(file):
            raise ConfigError("give problems as JSON lists, or --input with a file of them")
        puzzle = run.pointer.puzzle
        if file:
            return list(read_problems(file, puzzle))
        problems = []
        for number, text in enumerate(words, 1):
            try:
                given = json.loads(text)
            except (ValueError, RecursionError) as error:
                raise DataError(f"problem {number} is not JSON: {error}") from None
            problems.append(problem_of(given, puzzle, f"problem {number}"))
        return problems

    def requested(self, run: Run, given: Sequence[Any]) -> list[Any]:
        return [problem.items for problem in run.pointer.checked(given)]

    def random_batches(self, config: RunConfig, count: int) -> tuple[RunConfig, Objective, list[Pointings]]:
        if count:
            raise ConfigError("training is timed on text and on images, not on what a run for pointing reads")
        return config, Pointing(), []

    def example(self, config: RunConfig, length: int, rows: int = 1) -> Pointings:
        inputs = config.model_config().inputs
        return Pointings.of([np.zeros((length, inputs))] * rows, [np.arange(length)] * rows)


TASK = PointingTask()
