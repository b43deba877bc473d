"""`regard heads`: what each head is for, with the evidence."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.options import NO_VERIFY
from regard.config import JsonObject

if TYPE_CHECKING:
    from regard.tasks.run import Run


def heads(
    run: Annotated[Path, typer.Argument(help="A run directory.", metavar="RUN")],
    data: Annotated[
        list[str] | None,
        typer.Option(
            help="Pairs, text (.txt or a folder), labelled texts or trees (.mrg, .trees) to look at; by default the "
            "run's own test or validation set.",
            metavar="FILE",
        ),
    ] = None,
    world: Annotated[bool, typer.Option("--world", help="Look at the bundled corpus's held-out sentences.")] = False,
    contacts: Annotated[
        Path | None,
        typer.Option(
            help="For an encoder of symbols: a .jsonl of sequences ('text') with pairs of places in contact "
            "('contacts'); says which heads find them.",
            metavar="FILE",
        ),
    ] = None,
    limit: Annotated[int, typer.Option(help="Look at the first so many pairs.", min=2)] = 400,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write the report as a page.", metavar="FILE")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    no_verify: NO_VERIFY = False,
) -> None:
    """Find what each attention head does: looks at a neighbour, follows a relation, aligns, or nothing nameable.

    Every role comes with how often the head looked where it says, a 95 % interval, and what the best rule without a
    model gets. On the bundled corpus also which head follows `it` to its noun, and what masking it costs.

    \b
    Examples:
      regard heads runs/demo --out heads.html
      regard heads runs/mine --data test.en --data test.fr --json
      regard heads runs/mine --data treebank.mrg
      regard heads runs/proteins --contacts proteins/test.jsonl
    """
    from regard import load
    from regard.analysis.head_pronouns import pronoun_report
    from regard.analysis.head_roles import head_roles
    from regard.analysis.heads_page import heads_page
    from regard.cli.progress import counting
    from regard.errors import ConfigError
    from regard.runs.files import check_output, whole_file
    from regard.tasks.corpora import world_held_out

    if data and world:
        raise ConfigError("give --data or --world, not both")
    if out is not None:
        check_output(out)
    if contacts is not None:
        if data or world or out is not None:
            raise ConfigError("--contacts has its own report: give it without --data, --world and --out")
        report_contacts(load(run, device, verify=not no_verify), contacts, limit, as_json)
        return
    loaded = load(run, device, verify=not no_verify)
    if world and not loaded.task.has_lengths:
        raise ConfigError("--world is for runs that translate; give --data with text")
    corpus = world_held_out("test", str(loaded.config.data.source)) if world else data or None
    with counting("comparing", "untrained models") as progress:
        result = head_roles(loaded, corpus, limit=limit, progress=progress)
    if loaded.task.has_gold(loaded, corpus):
        with counting("masking", "heads") as progress:
            result["pronoun"] = pronoun_report(loaded, limit=min(limit, 200), progress=progress)
    if out is not None:
        with whole_file(out) as aside:
            aside.write_text(
                heads_page(f"What the heads of {loaded.directory.name} do", result), encoding="utf-8", newline="\n"
            )
    if as_json:
        print(json.dumps(result, indent=2, ensure_ascii=False))
    else:
        print(out if out is not None else shown(result))


def report_contacts(run: "Run", file: Path, limit: int, as_json: bool) -> None:
    """Print which heads find the contacts of a file's sequences."""
    from regard.analysis.head_contacts import contact_report
    from regard.data.synthetic.proteins import read_sequences

    found = contact_report(run, read_sequences(file), limit)
    if as_json:
        print(json.dumps(found, indent=2))
        return
    print(f"{'head':32} precision at L   times chance")
    for one in found["heads"]:
        share = one["precision_at_length"]
        name = f"{one['attention']} {one['head']}"
        print(f"{name:32} {100 * share:6.2f} %         {share / found['chance']:5.1f}")
    best = found["best"]
    low, high = best["times_chance_interval"]
    print(
        f"chance is {100 * found['chance']:.2f} %, over {found['sequences']:,} sequences; the best head of the first "
        f"half, {best['attention']} {best['head']}, has {100 * best['precision_at_length']:.2f} % on the second: "
        f"{best['times_chance']:.1f} times chance [{low:.1f}, {high:.1f}]; at most "
        f"{100 * best['most_possible']:.2f} % is possible"
    )


def shown(result: JsonObject) -> str:
    """The report for a person."""
    from regard.analysis.heads_page import few_questions

    lines = [f"{'head':32} {'role':28} {'right':>7}  {'95 % interval':15} {'without a model':24} questions"]
    for head in result["heads"]:
        for role, evidence in _claims(head):
            low, high = 100 * evidence["low"], 100 * evidence["high"]
            rule = f"{100 * evidence['baseline']:.1f} % ({evidence['rule']})"
            name = f"{head['attention']} {head['head']}" if role != "also" else ""
            lines.append(
                f"{name:32} {_named(role, evidence):28} {100 * evidence['accuracy']:5.1f} %  "
                f"{f'{low:.1f} to {high:.1f}':15} {rule:24} {evidence['questions']:,}"
            )
            if evidence.get("neurons"):
                lines.append(f"{'':32} {_neurons(evidence['neurons'])}")
    lines += [f"no head has the role {_nearest(one)}" for one in result.get("best", ()) if not one["claimed"]]
    if result.get("too_few"):
        lines.append(few_questions(result))
    rate = result["false_positive_rate"]
    lines.append(
        f"{result['sentences']:,} sentences; an untrained model of this shape gets any role at all with a chance of "
        f"at most {100 * rate:.0f} %, by comparison with {result['untrained_models']} of them"
    )
    if result.get("pronoun"):
        lines += ["", *_pronoun_lines(result["pronoun"])]
    return "\n".join(lines)


def _claims(head: JsonObject) -> list[tuple[str | None, JsonObject]]:
    first = {**head["evidence"], "neurons": head.get("neurons")}
    return [(head["role"], first), *(("also", one) for one in head["also"])]


def _named(role: str | None, evidence: JsonObject) -> str:
    if role is None:
        return f"none ({evidence['role']}?)"
    return f"also {evidence['role']}" if role == "also" else role


def _nearest(one: JsonObject) -> str:
    evidence = one["evidence"]
    return (
        f"'{one['role']}': nearest {one['attention']} {one['head']}, {100 * evidence['accuracy']:.1f} % "
        f"[{100 * evidence['low']:.1f}, {100 * evidence['high']:.1f}], without a model "
        f"{100 * evidence['baseline']:.1f} % ({evidence['rule']})"
    )


def _neurons(found: JsonObject) -> str:
    named = ", ".join(map(str, found["neurons"][:8])) + (", ..." if len(found["neurons"]) > 8 else "")
    return (
        f"by {len(found['neurons'])} of {found['width']} neurons ({named}): "
        f"{100 * found['alone']:.1f} % alone, {100 * found['whole']:.1f} % all"
    )


def _pronoun_lines(found: JsonObject) -> list[str]:
    from regard.analysis.heads_page import where_the_work_is

    lines = [f"'{found['pronoun']}' to its noun, {found['sentences']:,} test sentences; the best head of each kind:"]
    for one in found["by_kind"].values():
        evidence, rule = one["evidence"], one["evidence"]["rule"]
        low, high = 100 * evidence["low"], 100 * evidence["high"]
        fixed = "" if rule == "chance" else f", {rule} {100 * evidence['baseline']:.1f} %"
        lines.append(
            f"  {one['attention']} {one['head']}: {one['asks']} {100 * evidence['accuracy']:.1f} % "
            f"[{low:.1f}, {high:.1f}] of {evidence['questions']} times (chance {100 * one['chance']:.1f} %{fixed}); "
            f"by what it takes from there {100 * one['by_value']['accuracy']:.1f} %"
        )
    low, high = (100 * share for share in found["translated_interval"])
    lines.append(
        f"pronouns translated right: {100 * found['translated']:.1f} % [{low:.1f}, {high:.1f}]; with one head masked:"
    )
    for name, shares in found["translated_when_masked"].items():
        lines += [f"  {name} {head:<3} {100 * share:5.1f} %" for head, share in enumerate(shares)]
    lines.append("with two masked, and what each of them alone adds up to:")
    for two in found["together"]:
        named = " and ".join(f"{one['attention']} {one['head']}" for one in two["heads"])
        lines.append(
            f"  {named}: {100 * two['translated']:.1f} %, {100 * two['lost']:.1f} points lost; apart "
            f"{100 * two['lost_apart']:.1f}"
        )
    return [*lines, where_the_work_is(found)]
