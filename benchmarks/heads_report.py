"""Tables about heads: what each does and what masking it costs, which go last, and what differs from seed to seed.

python benchmarks/heads_report.py heads RUN --data FILE ... --gates 2000 --among "encoder.*" --json heads.json
python benchmarks/heads_report.py table heads.json
python benchmarks/heads_report.py order heads-1.json heads-2.json ...
python benchmarks/heads_report.py pronouns RUN RUN ...
python benchmarks/heads_report.py text FOLDER

`heads` asks about what `regard heads` would: its own test set, or text, pairs or trees given. `order` puts the reports
of several models together: whether heads with a specialised role are removed later than the others, by a permutation
test within each model. `text` writes sentences of the bundled corpus as documents to pre-train a BERT on with next
sentences: those of one document have the same subject.
"""

import argparse
import json
import random
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import torch

import regard
from regard.analysis.head_pronouns import pronoun_report
from regard.analysis.head_roles import head_roles
from regard.analysis.pruning import every_head, gates_shut, importance
from regard.data.synthetic.world.corpus import Split, sentences
from regard.look.edits import masked
from regard.tasks.probes import HeldOutData, held_out_data

NEIGHBOURS = ("previous", "next")
LANDMARKS = ("same", "first", "separator")
"""Where a head looks that has nothing to do: it is not counted as specialised."""


def kind_of(role: str) -> str:
    if role in NEIGHBOURS:
        return "positional"
    if role in LANDMARKS:
        return "landmark"
    if role == "rare":
        return "rare words"
    if role == "pronoun" or role.endswith(" to its head") or role.startswith("head to its "):
        return "syntactic"
    return role


ENOUGH = 10
"""Fewer batches than this say nothing about an interval."""

SPECIALISED = ("positional", "syntactic", "rare words")


def kinds_of(head: dict[str, Any]) -> list[str]:
    """The kinds of all roles that a head has, that of its best role first."""
    roles = [] if head["role"] is None else [head["role"], *(one["role"] for one in head["also"])]
    return list(dict.fromkeys(map(kind_of, roles)))


@torch.inference_mode()
def masking(run: regard.Run, evidence: HeldOutData) -> dict[tuple[str, int], tuple[float, float | None]]:
    """How much the loss per token rises without each head, and half of its 95 % interval over batches, if enough."""

    def losses() -> list[tuple[float, int]]:
        found = (evidence.objective.loss(run.model, batch) for batch in evidence.batches)
        return [(float(loss.total), int(loss.count)) for loss in found]

    run.model.eval()
    whole = losses()
    tokens = sum(count for _, count in whole)
    result = {}
    for name, head in every_head(run.model):
        with masked(run.model, {name: [head]}):
            changes = [(new - old, count) for (new, _), (old, count) in zip(losses(), whole, strict=True)]
        rise = sum(change for change, _ in changes) / tokens
        spread = sum((change - rise * count) ** 2 for change, count in changes) ** 0.5 / tokens
        result[name, head] = (rise, 1.96 * spread if len(changes) >= ENOUGH else None)
    return result


def report(options: argparse.Namespace) -> None:
    run = regard.load(options.run, options.device)
    found = head_roles(run, options.data or None, limit=options.limit, judging=options.judging)
    if options.trees:
        add_syntax(found, head_roles(run, options.trees, limit=options.limit, judging=options.judging))
    costs: dict[tuple[str, int], tuple[float, float | None]] = {}
    shut: dict[tuple[str, int], int] = {}
    fixed: dict[tuple[str, int], float] = {}
    if options.gates or not options.no_masking:
        evidence = held_out_data(run, options.held_out or None, options.score)
        costs = {} if options.no_masking else masking(run, evidence)
        if options.gates:
            shut = gates_shut(run, steps=options.gates, among=options.among)
            fixed = importance(run, evidence, "gates", options.among)
    ranks, fixed_ranks = ranked(shut), ranked(fixed)
    for head in found["heads"]:
        key = head["attention"], head["head"]
        head["kinds"] = kinds_of(head)
        head["masking"] = costs.get(key)
        head["gate"] = {"shut": shut[key], "rank": ranks[key], "fixed": fixed_ranks[key]} if key in shut else None
    found |= {"run": str(options.run), "gate_steps": options.gates, "among": options.among}
    if options.json:
        Path(options.json).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(table(found))


def add_syntax(found: dict[str, Any], parsed: dict[str, Any]) -> None:
    """Add what heads do with the dependencies of trees to what they do with other text."""
    heads = {(head["attention"], head["head"]): head for head in found["heads"]}
    for head in parsed["heads"]:
        syntactic = [{**one, "neurons": carried} for role, one, carried in claims(head) if kind_of(role) == "syntactic"]
        own = heads[head["attention"], head["head"]]
        if own["role"] is None and syntactic:
            first, *syntactic = syntactic
            own |= {"role": first["role"], "evidence": first, "neurons": first["neurons"]}
        own["also"] += syntactic
    found["best"] += [one for one in parsed["best"] if kind_of(one["role"]) == "syntactic"]
    found["trees"] = parsed["sentences"]


def ranked(values: Mapping[tuple[str, int], float]) -> dict[tuple[str, int], float]:
    """The place of each in the order of removal, from 1; equals share the mean of theirs."""
    order = sorted(values.values())
    return {key: order.index(value) + (order.count(value) + 1) / 2 for key, value in values.items()}


SHOWN = 3
"""Roles of one head that the table spells out."""


def table(found: dict[str, Any]) -> str:
    """Heads with a role, one per row, then those without, then the roles that no head has."""
    lines = [
        "| head | kind | role, right, best rule without a model | fewest neurons | masked: loss per token | removed |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for head in found["heads"]:
        own = claims(head)
        if own:
            roles = [f"{role} {right(one)}, {rule(one)}" for role, one, _ in own[:SHOWN]]
            roles += [f"and {len(own) - SHOWN} more"] * (len(own) > SHOWN)
            lines.append(
                f"| {named(head)} | {', '.join(head['kinds'])} | {'; '.join(roles)} | {neurons(own[0][2])} | "
                f"{cost(head)} | {place(head)} |"
            )
    without = [
        f"{named(head)} ({', '.join(filter(None, (cost(head), place(head))))})"
        for head in found["heads"]
        if head["role"] is None
    ]
    lines += ["", f"Without a role: {'; '.join(without) or 'none'}", ""]
    for one in found["best"]:
        if not one["claimed"]:
            lines.append(
                f"- not found: {one['role']}; nearest {named(one)}, {right(one['evidence'])}, {rule(one['evidence'])}"
            )
    return "\n".join(lines)


def named(head: dict[str, Any]) -> str:
    return f"`{head['attention'].replace('.attention', '').replace('.cross_attention', ' cross')}` {head['head']}"


def cost(head: dict[str, Any]) -> str:
    if head["masking"] is None:
        return ""
    rise, half = head["masking"]
    return f"{rise:+.3f}" if half is None else f"{rise:+.3f} ± {half:.3f}"


def place(head: dict[str, Any]) -> str:
    return "" if head["gate"] is None else f"{head['gate']['rank']:g}"


def again(options: argparse.Namespace) -> None:
    for name in options.reports:
        print(f"{name}\n\n{table(json.loads(Path(name).read_text(encoding='utf-8')))}\n")


def claims(head: dict[str, Any]) -> list[tuple[str, dict[str, Any], dict[str, Any] | None]]:
    if head["role"] is None:
        return []
    first = (head["role"], head["evidence"], head["neurons"])
    return [first, *((one["role"], one, one["neurons"]) for one in head["also"])]


def right(one: dict[str, Any]) -> str:
    return f"{100 * one['accuracy']:.1f} % [{100 * one['low']:.1f}, {100 * one['high']:.1f}]"


def rule(one: dict[str, Any]) -> str:
    return f"{100 * one['baseline']:.1f} % ({one['rule']})"


def neurons(carried: dict[str, Any] | None) -> str:
    if carried is None:
        return ""
    few = len(carried["neurons"])
    return f"{few} of {carried['width']}: {100 * carried['alone']:.0f} % (all {100 * carried['whole']:.0f} %)"


def order(options: argparse.Namespace) -> None:
    """Mean place in the order of removal, as a share from 0, first, to 1, last, of heads with and without a role."""
    models = [json.loads(Path(name).read_text(encoding="utf-8")) for name in options.reports]
    print("| specialised | by | heads with / without | mean place with | without | difference | p |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for title, kinds in (*((kind, (kind,)) for kind in SPECIALISED), ("any of these", SPECIALISED)):
        for by, score in SCORES.items():
            print(f"| {title} | {by} | {compared([places(model, kinds, score) for model in models])} |")


SCORES: dict[str, Callable[[dict[str, Any]], float | None]] = {
    "gates and weights learnt": lambda head: head["gate"] and head["gate"]["rank"],
    "gates alone": lambda head: head["gate"] and head["gate"]["fixed"],
    "what masking costs": lambda head: head["masking"] and head["masking"][0],
}
"""What heads are ordered by, the first to go having the least; None where it was not measured."""


def places(
    model: dict[str, Any], kinds: Sequence[str], score: Callable[[dict[str, Any]], float | None]
) -> list[tuple[bool, float]]:
    """Of each head that could be gated whether it has a role of these kinds, and its place in the order as a share."""
    heads = [head for head in model["heads"] if fnmatch(head["attention"], model["among"])]
    scores = {(head["attention"], head["head"]): own for head in heads if (own := score(head)) is not None}
    ranks, last = ranked(scores), max(1, len(scores) - 1)
    found = [(kinds_of(head), ranks.get((head["attention"], head["head"]))) for head in heads]
    return [(any(kind in kinds for kind in own), (rank - 1) / last) for own, rank in found if rank is not None]


def compared(models: Sequence[Sequence[tuple[bool, float]]], rounds: int = 20_000) -> str:
    """The mean places of both groups, their difference, and how often shuffling within models gives as large a one."""
    # A model in which all heads are of one group says nothing about the other.
    models = [model for model in models if 0 < sum(one for one, _ in model) < len(model)]
    if not models:
        return "no model has both | | | | "
    labels = [[one for one, _ in model] for model in models]
    shares = [[place for _, place in model] for model in models]

    def means(marked: Sequence[Sequence[bool]]) -> tuple[float, float]:
        both: tuple[list[float], list[float]] = ([], [])
        for own, of in zip(marked, shares, strict=True):
            for with_role, place in zip(own, of, strict=True):
                both[not with_role].append(place)
        return statistics.fmean(both[0]), statistics.fmean(both[1])

    have, lack = means(labels)
    rng, as_large = random.Random(0), 0
    for _ in range(rounds):
        one, other = means([rng.sample(own, len(own)) for own in labels])
        as_large += one - other >= have - lack - 1e-12
    count = sum(map(sum, labels))
    p = (as_large + 1) / (rounds + 1)
    return f"{count} / {sum(map(len, labels)) - count} | {have:.2f} | {lack:.2f} | {have - lack:+.2f} | {p:.4f}"


def pronouns(options: argparse.Namespace) -> None:
    """Which head follows `it` in each run, and what the translation needs."""
    print("| run | seed | pronouns right | follows best | right | masking it costs | needed heads (points lost) |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name in options.runs:
        run = regard.load(name, options.device)
        found = pronoun_report(run, limit=options.limit)
        if found is None:
            sys.exit(f"{name} does not read English")
        low, high = found["translated_interval"]
        needed = ", ".join(f"`{one['attention']}` {one['head']} ({100 * one['lost']:.1f})" for one in found["needed"])
        lost = found["translated"] - found["translated_when_masked"][found["attention"]][found["head"]]
        print(
            f"| {Path(name).name} | {run.config.train.seed} | {100 * found['translated']:.1f} % [{100 * low:.1f}, "
            f"{100 * high:.1f}] | `{found['attention']}` {found['head']} | {right(found['evidence'])} | "
            f"{100 * lost:.1f} points | {needed or 'none alone'} |",
            flush=True,
        )
        for own in found["by_kind"].values():
            where = f"`{own['attention']}` {own['head']}"
            print(
                f"|  |  |  | {where} | {right(own['evidence'])}, {rule(own['evidence'])} | | {own['asks']} |",
                flush=True,
            )


PRONOUNS = frozenset(["i", "you", "he", "she", "it", "we", "they", "who", "that", "which"])


def text(options: argparse.Namespace) -> None:
    """The bundled corpus as documents: English sentences with one subject together, so that a next one can be told."""
    parts: tuple[tuple[Split, int], ...] = (("train", options.sentences), ("valid", options.sentences // 20))
    for split, count in parts:
        by_subject: dict[str, list[str]] = {}
        for one in sentences(count, seed=5, split=split):
            words = zip(one.english_words, one.relations, strict=True)
            subjects = [word.lower() for word, relation in words if relation == "subject"]
            named = [word for word in subjects if word not in PRONOUNS]
            if named:
                by_subject.setdefault(named[0], []).append(one.english)
        documents = [own[at : at + 8] for own in by_subject.values() for at in range(0, len(own) - 3, 8)]
        random.Random(0).shuffle(documents)
        whole = "\n\n".join("\n".join(document) for document in documents) + "\n"
        (options.folder / f"{split}.txt").write_text(whole, encoding="utf-8")
        print(f"{split}: {len(documents):,} documents about {len(by_subject):,} subjects")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("heads")
    one.add_argument("run")
    one.add_argument("--data", action="append", help="What heads are asked about: pairs, text or trees.")
    one.add_argument("--trees", action="append", help="Trees for the roles of dependencies, beside --data.")
    one.add_argument("--held-out", action="append", help="What the loss is measured on; by default the run's own.")
    one.add_argument("--limit", type=int, default=400, help="Sentences that heads are asked about.")
    one.add_argument("--score", type=int, default=400, help="Sentences that the loss is measured on.")
    one.add_argument("--gates", type=int, default=0, help="Updates in which gates shut one by one; 0 for none.")
    one.add_argument("--among", default="encoder.*", help="The attentions that are gated.")
    one.add_argument("--judging", type=int, default=19, help="Untrained models that set the thresholds, beside ten.")
    one.add_argument("--no-masking", action="store_true", help="Do not measure the loss without each head.")
    one.add_argument("--json", help="Write the whole report here.")
    one.add_argument("--device", default="auto")
    one.set_defaults(do=report)
    several = commands.add_parser("order")
    several.add_argument("reports", nargs="+")
    several.set_defaults(do=order)
    tables = commands.add_parser("table")
    tables.add_argument("reports", nargs="+")
    tables.set_defaults(do=again)
    seeds = commands.add_parser("pronouns")
    seeds.add_argument("runs", nargs="+")
    seeds.add_argument("--limit", type=int, default=200)
    seeds.add_argument("--device", default="auto")
    seeds.set_defaults(do=pronouns)
    documents = commands.add_parser("text")
    documents.add_argument("folder", type=Path)
    documents.add_argument("--sentences", type=int, default=40_000)
    documents.set_defaults(do=text)
    options = parser.parse_args()
    options.do(options)


if __name__ == "__main__":
    main()
