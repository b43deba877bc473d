"""`point`: numbers or points in, positions out."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import MISSING, dataclass
from typing import TYPE_CHECKING, Any

from regard.tasks.verbs.spec import (
    Asked,
    Beam,
    Cost,
    RequestLimits,
    Verb,
    check_budget,
    check_count,
    given,
    option,
)

if TYPE_CHECKING:
    from pathlib import Path

    from regard.decode.config import DecodeConfig
    from regard.tasks.run import Run


@dataclass(frozen=True, kw_only=True, slots=True)
class PointRequest:
    """Problems, each a list of numbers or of points."""

    problems: tuple[Any, ...] = option(
        MISSING, 'Problems as JSON lists: "[3, 1, 2]" or "[[0.1, 0.2], [0.5, 0.9], [0.7, 0.3]]".'
    )
    beam: Beam = option(None, "Hypotheses kept at each step; 1 is greedy.")


@dataclass(frozen=True, kw_only=True, slots=True)
class Pointed:
    """Positions of the input, counted from 0, and the log-probability of having pointed at just these."""

    order: list[int]
    score: float
    log_prob: float


class PointAt(Verb[PointRequest, Pointed]):
    """Problems of many requests go together."""

    def check(
        self, run: "Run", request: PointRequest, items: Sequence[Any], limits: RequestLimits | None = None
    ) -> list[Any]:
        check_count(len(items), "problems", limits, "problems")
        config = _config(run, request)
        problems = run.pointer.checked(items)
        rows, longest = len(problems) * max(config.beam, config.samples), max(len(one.items) for one in problems)
        check_budget(limits, rows, longest, f"{len(problems)} problems x {config.beam} hypotheses x {longest} items")
        return list(problems)

    def key(self, run: "Run", request: PointRequest) -> Hashable:
        return _config(run, request)

    def cost(self, run: "Run", asked: Asked) -> Cost:
        return Cost(len(asked.item.items))

    def together(self, run: "Run", asked: Sequence[Asked], gone: Callable[[Asked], bool]) -> list[Pointed]:
        config, numbers = _config(run, asked[0].request), [one.number for one in asked]
        return [best[0] for best in run.pointer.answers([one.item for one in asked], config, numbers=numbers)]

    def inputs(self, run: "Run", words: Iterable[str], file: "Path | None") -> Iterator[Any]:
        return iter(run.task.inputs(run, list(words), file))

    def show(self, result: Pointed, display: object = None) -> str:
        return " ".join(map(str, result.order))


def _config(run: "Run", request: PointRequest) -> "DecodeConfig":
    return run.decode_config(**given(request, "problems"))


POINT = PointAt(
    name="point",
    help="""Answer problems with a pointing model: print the positions that it points at, in order, counted from 0.

    Numbers of any size may be given: what lies outside 0 to 1 is moved and scaled, its shape kept.

    \b
    Examples:
      regard point runs/sort "[31, 4, 15, 9, 26, 5]"
      regard point runs/tsp --input cities.csv
      regard point runs/hull --input problems.jsonl --beam 4 --json
    """,
    request=PointRequest,
    items="problems",
    result=Pointed,
    unit="problems",
    reads_standard_input=False,
)
