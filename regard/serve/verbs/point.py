"""POST /v1/point: positions of numbers or points, for problems of many requests at a time."""

from dataclasses import dataclass
from typing import Any

from regard.serve.bodies import Beam, check_budget
from regard.serve.limits import Limits
from regard.serve.refusals import Refused
from regard.serve.verbs.many import Many
from regard.serve.verbs.verb import Verb
from regard.tasks.records import pointed
from regard.tasks.run import Run


@dataclass(frozen=True, kw_only=True, slots=True)
class Body:
    """Problems, each a list of numbers or of points, and the options of `regard point`."""

    problems: tuple[Any, ...]
    model: str | None = None
    beam: Beam = None


def _work(run: Run, body: Body, limits: Limits) -> Many:
    if not body.problems:
        raise Refused("bad_request", "problems is an empty list")
    if len(body.problems) > limits.texts:
        count = len(body.problems)
        raise Refused("too_large", f"problems has {count} problems; this server takes {limits.texts} a request")
    config = run.decode_config(**({} if body.beam is None else {"beam": body.beam}))
    problems = tuple(run.pointer.checked(body.problems))
    rows, longest = len(problems) * max(config.beam, config.samples), max(len(one.items) for one in problems)
    check_budget(limits, rows, longest, f"{len(problems)} problems x {config.beam} hypotheses x {longest} items")
    return Many(
        ("point", config),
        problems,
        lambda problem: (problem, len(problem.items)),
        lambda problems: run.pointer.answers(problems, config),
        lambda problem, answers: [pointed(answers[0])],
        # What is drawn goes by a problem's number.
        alone=config.temperature is not None,
    )


POINT = Verb("point", "Answer problems with positions.", Body, lambda run: "point" in run.task.methods, _work)
