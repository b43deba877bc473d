"""`regard check`: exercises in the arithmetic of attention, and what slip an answer was."""

from typing import Annotated

import typer

from regard.cli.options import JSON


def _exercises(incomplete: str) -> list[str]:
    from regard.analysis.exercises import EXERCISES

    return [name for name in EXERCISES if name.startswith(incomplete)]


def check(
    name: Annotated[
        str | None, typer.Argument(help="The exercise; without one, all are listed.", autocompletion=_exercises)
    ] = None,
    values: Annotated[
        list[str] | None,
        typer.Argument(help="Its inputs if it has any, then your answer: numbers. Without them it is asked."),
    ] = None,
    show: Annotated[bool, typer.Option("--show", help="Print the right values too.")] = False,
    as_json: JSON = False,
) -> None:
    """Check an answer to an exercise of the companion: right, or which known slip it was.

    The exit code is 0 where it is right and 1 where it is not.

    \b
    Examples:
      regard check
      regard check positions
      regard check positions 3 "0.551 -0.910 0.540 1.870"
      regard check scores 0.881 0.119
    """
    import json

    from regard.analysis import exercises

    if name is None:
        told = {each: one.question for each, one in exercises.EXERCISES.items()}
        wide = max(map(len, told))
        print(json.dumps(told) if as_json else "\n".join(f"{each:{wide}} {text}" for each, text in told.items()))
        return
    if not values:
        exercise = exercises.find(name)
        wanted = " ".join((*exercise.inputs, *(f"({one})" for one in exercise.names)))
        places = "whole numbers" if exercise.decimals == 0 else f"to {exercise.decimals} decimals"
        asked = {"question": exercise.question, "answer": wanted, "decimals": exercise.decimals}
        print(json.dumps(asked) if as_json else f"{exercise.question}\nanswer: regard check {name} {wanted}, {places}")
        return
    verdict = exercises.check(name, values)
    if as_json:
        shown = {"right": verdict.right, "slip": verdict.slip, "text": verdict.text}
        print(json.dumps({**shown, "expected": list(verdict.expected)} if show else shown))
    else:
        print(verdict.text)
        if show:
            decimals = exercises.find(name).decimals
            print("the right values:", " ".join(f"{value:.{decimals}f}" for value in verdict.expected))
    if not verdict.right:
        raise typer.Exit(1)
