"""`regard describe` and `regard doctor`: what a run is made of, and how its training went."""

import json
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.options import NO_VERIFY


def describe(
    run: Annotated[Path, typer.Argument(help="A run directory.", metavar="RUN")],
    length: Annotated[
        int | None, typer.Option(help="Tokens on each side to count operations for; by default 32.", min=1)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    no_verify: NO_VERIFY = False,
) -> None:
    """Show what a run is made of: parameters, memory, work.

    \b
    Examples:
      regard describe runs/demo
      regard describe runs/demo --length 64 --json
    """
    from regard import load
    from regard.analysis.model_summary import describe as facts_of

    facts = facts_of(load(run, "cpu", verify=not no_verify), length)
    if as_json:
        print(json.dumps(facts, indent=2))
        return
    print(f"{facts['model']}: {facts['parameters']:,} parameters")
    for part, count in facts["parameters_by_part"].items():
        share = f"{100 * count / facts['parameters']:5.1f} %" if count else "(shared)"
        print(f"  {part:16} {count:>14,}  {share}")
    if vocabulary := facts.get("vocabulary"):
        joint = "joint" if vocabulary["joint"] else "separate"
        print(f"vocabulary: {vocabulary['source']:,} source, {vocabulary['target']:,} target ({joint})")
    weights, training = (facts["bytes"][key] / 1e6 for key in ("weights", "training"))
    print(f"memory: {weights:,.1f} MB of weights; {training:,.1f} MB with gradients and Adam's state, in float32")
    flops = facts["flops"]
    lengths = "+".join([str(flops["length"])] * flops["sides"])
    print(
        f"work at {lengths} tokens: {flops['forward'] / 1e9:,.3f} GFLOP forward, "
        f"{flops['training_step'] / 1e9:,.3f} in a training step, "
        f"{flops['forward_per_token'] / 1e6:,.2f} MFLOP per token"
    )


def doctor(directory: Annotated[Path, typer.Argument(help="A run directory.", metavar="RUN")]) -> None:
    """Say how a run's training went: how far it came, and what should be done about what went wrong.

    \b
    Examples:
      regard doctor runs/mine
    """
    from regard.trainer.doctor import diagnose

    found = diagnose(directory)
    for line in found.facts:
        print(line)
    for note in found.notes:
        print(f"note: {note}")
    for caution in found.cautions:
        print(f"{caution.kind}: {caution.line}")
    if not found.notes and not found.cautions:
        print("nothing looks wrong")
