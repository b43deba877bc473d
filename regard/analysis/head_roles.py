"""The role of each head of a run, with the evidence, over held-out sentences; and the few neurons that carry it.

A score is a sum of products, one per neuron, so it can be taken apart.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TypeAlias, get_args

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from regard.config import JsonObject
from regard.data import Corpus, Documents
from regard.errors import ConfigError, DataError
from regard.look.alignment import merge
from regard.look.measures import Measures, value_norms
from regard.look.roles import MIN_QUESTIONS, HeadRoles, Quiz, RoleCounts, largest_margins, roles_of_heads, thresholds
from regard.look.watch import Part, Trace, attentions, watch
from regard.nn.attention import ACROSS, BEFORE, WITHIN, Attention, Sides, Watchable
from regard.tasks.probes import Kind, Labelled, Probe
from regard.tasks.run import Run, build_model

SCALING, JUDGING = 10, 19
"""Untrained models that say how high chance reaches at each role, and that set the threshold: 1 in 20 exceeds 19."""


def head_roles(
    run: Run,
    corpus: Corpus | Documents | Sequence[Labelled] | Sequence[str] | None = None,
    *,
    limit: int = 400,
    judging: int = JUDGING,
    progress: Callable[[int, int], None] | None = None,
) -> JsonObject:
    """The role of every head with its evidence, as one JSON-ready object.

    `corpus` has pairs for a run that translates, running text, labelled texts for a run fine-tuned on such, or the
    files of any of these; by default it is the run's own test or validation set.
    Roles are chosen on every second of `limit` pairs and reported on the others. A role is claimed where its margin is
    larger than untrained models of the same shape reach on the same sentences (see `regard.look.roles.thresholds`), so
    that an untrained model is given any role at all with a chance of at most 1 in `judging` + 1.
    """
    if judging < 1:
        raise ConfigError(f"judging={judging} must be at least 1")
    items = _items(run, corpus, limit)
    quizzes = make_quizzes(items)
    seen = answers(run, run.model, items, quizzes)
    largest = []
    for number in range(SCALING + judging):
        found = answers(run, untrained(run, number), items, quizzes)
        largest.append(largest_margins(head for own in found.values() for head in own))
        if progress is not None:
            progress(number + 1, SCALING + judging)
    limits = thresholds(largest[:SCALING], largest[SCALING:])
    measures = _measures(run, items)
    heads = [
        _described(name, head, found, limits, {key: value[head] for key, value in measures[name].items()})
        for name, own in seen.items()
        for head, found in enumerate(own)
    ]
    _add_neurons(run, items, heads)
    return {
        "best": _best_by_role(seen, limits),
        "too_few": too_few(quizzes),
        "sentences": len(items),
        "untrained_models": SCALING + judging,
        "false_positive_rate": 1 / (judging + 1),
        "thresholds": limits,
        "heads": heads,
    }


def _described(
    name: str, head: int, found: HeadRoles, limits: dict[str, float], measures: dict[str, float]
) -> JsonObject:
    claimed = [one for one in found.all if one.margin > limits[one.role]]
    first = claimed[0] if claimed else found.best
    return {
        "attention": name,
        "head": head,
        "role": first.role if claimed else None,
        "evidence": first.to_mapping(),
        "also": [one.to_mapping() for one in claimed[1:]],
        "measures": measures,
    }


def _best_by_role(seen: dict[str, list[HeadRoles]], limits: dict[str, float]) -> list[JsonObject]:
    """For each role the head that is furthest above its baseline, whether it has the role or not."""
    best: dict[str, JsonObject] = {}
    for name, own in seen.items():
        for head, found in enumerate(own):
            for one in found.all:
                if one.role not in best or one.margin > best[one.role]["evidence"]["margin"]:
                    claimed = one.margin > limits[one.role]
                    best[one.role] = {
                        "role": one.role,
                        "claimed": claimed,
                        "attention": name,
                        "head": head,
                        "evidence": one.to_mapping(),
                    }
    return list(best.values())


def untrained(run: Run, number: int) -> nn.Module:
    """A model like the run's with fresh weights, another for each number."""
    model = build_model(replace(run.config, train=replace(run.config.train, seed=10_000 + number)))
    return model.to(next(run.model.parameters()).device).eval()


def _items(run: Run, data: object, limit: int) -> list[Probe]:
    if not attentions(run.model):
        raise ConfigError(
            f"heads are given roles where a run reads text with attention, not in one for {run.config.task}"
        )
    items = run.task.probes(run, data, limit)
    if len(items) < 2:
        raise DataError("at least two sentences, or pairs, that the model can read are needed")
    return items


Quizzes: TypeAlias = dict[Kind, tuple[Quiz, ...]]
"""The questions about each kind of attention: to choose roles by, and to report them by."""


def make_quizzes(items: Sequence[Probe]) -> Quizzes:
    """Every second item for choosing, the others for reporting."""
    kinds: list[Kind] = [own for own in get_args(Kind) if own in items[0].questions]
    return {own: (quiz(items[::2], own), quiz(items[1::2], own)) for own in kinds}


def too_few(quizzes: Quizzes) -> list[JsonObject]:
    """The roles that no head was considered for, with how many questions there were, of the half that had fewer."""
    found = []
    for kind, halves in quizzes.items():
        asked = [dict(zip(half.roles, half.asked, strict=True)) for half in halves]
        for role in dict.fromkeys(role for half in halves for role in half.roles):
            fewest = int(min(half.get(role, 0) for half in asked))
            if fewest < MIN_QUESTIONS:
                found.append({"attention": kind, "role": role, "questions": fewest})
    return found


def quiz(items: Sequence[Probe], own: Kind) -> Quiz:
    """The questions of these items about one kind of attention."""
    return Quiz([item.questions[own] for item in items], [item.places[own][3] for item in items])


def answers(run: Run, model: nn.Module, items: Sequence[Probe], quizzes: Quizzes) -> dict[str, list[HeadRoles]]:
    """What every head of every attention did at each role."""
    return {name: roles_of_heads(*counts) for name, counts in ask(run, model, items, quizzes).items()}


@torch.inference_mode()
def ask(
    run: Run, model: nn.Module, items: Sequence[Probe], quizzes: Quizzes, *, by_value: bool = False
) -> dict[str, tuple[RoleCounts, ...]]:
    """The answers of every attention that there is a quiz about; items are dealt to its quizzes in turn.

    `by_value` reads off what each place adds to the output, not its weight alone (see `value_norms`).
    """
    known = attentions(model)
    kinds: dict[str, Kind] = {name: attention_kind(one) for name, one in known.items()}
    found = {name: tuple(map(RoleCounts, quizzes[own])) for name, own in kinds.items() if own in quizzes}
    for start, part, trace in _watched(run, model, items, list(found), ("weights", "v") if by_value else ("weights",)):
        for name, counts in found.items():
            weights = trace.weights(name).cpu()
            attention = known[name]
            if by_value and (v := trace[name].v) is not None and isinstance(attention, Attention):
                weights = value_norms(weights, v.cpu(), attention.output.weight.cpu())
            for index, item in enumerate(part, start):
                own = _between_places(weights[index - start], item, kinds[name])
                counts[index % len(counts)].add(index // len(counts), own)
    return found


WEIGHTS = 64 * 256 * 256
"""Of one head that are watched at a time: of a sound in thousands of positions, those of one item."""


def _watched(
    run: Run, model: nn.Module, items: Sequence[Probe], names: Sequence[str], parts: Sequence[Part]
) -> Iterator[tuple[int, Sequence[Probe], Trace]]:
    """Batch after batch of the items: the number of its first, the batch, and what was seen of these attentions."""
    sides = [side for item in items for side in item.places.values()]
    size = max((len(rows) * len(columns) for rows, columns, _, _ in sides), default=1)
    count = max(1, min(64, WEIGHTS // size))
    for start in range(0, len(items), count):
        batch = items[start : start + count]
        with watch(model, names, parts=parts) as trace:
            model(run.task.probe_batch(run, batch))
        yield start, batch, trace


def _between_places(weights: Tensor, item: Probe, kind: Kind) -> Tensor:
    rows, columns, height, breadth = item.places[kind]
    weights = weights[:, : len(rows), : len(columns)]
    if rows == list(range(height)) and columns == list(range(breadth)):
        return weights.float()
    return merge(weights, columns, rows, sources=breadth, targets=height)


@torch.inference_mode()
def _measures(run: Run, items: Sequence[Probe]) -> dict[str, dict[str, list[float]]]:
    found = {name: Measures() for name in attentions(run.model)}
    for _, part, trace in _watched(run, run.model, items, list(found), ("weights",)):
        lengths = _lengths(run, part)
        for name, measures in found.items():
            queries, keys = lengths[KINDS[trace.sides[name]]]
            measures.add(trace.weights(name), queries=queries, keys=keys)
    names = ("entropy", "maximum", "distance", "first", "last")
    return {name: {one: getattr(own.means(), one).tolist() for one in names} for name, own in found.items()}


def _lengths(run: Run, items: Sequence[Probe]) -> dict[Kind, tuple[Tensor, Tensor]]:
    """How many queries and keys of each row are real, for each kind of attention."""

    def counts(own: Kind) -> tuple[Tensor, Tensor]:
        queries, keys = zip(*((len(item.places[own][0]), len(item.places[own][1])) for item in items), strict=True)
        return torch.tensor(queries, device=run.device), torch.tensor(keys, device=run.device)

    return {own: counts(own) for own in items[0].places}


def attention_kind(attention: Watchable) -> Kind:
    """What an attention looks from and at."""
    return KINDS[attention.sides]


KINDS: dict[Sides, Kind] = {WITHIN: "encoder", BEFORE: "decoder", ACROSS: "cross"}


ENOUGH = 0.9
"""The share of what all neurons get right that a few must get, to carry the role."""


@dataclass(frozen=True, slots=True)
class NeuronProducts:
    """One question put to a head: q times k of every place it sees, neuron by neuron, and which places are right."""

    products: Float[Tensor, "S K"]
    right: Bool[Tensor, " S"]


@dataclass(frozen=True, slots=True)
class RoleNeurons:
    """The fewest neurons that do nearly what all do, strongest first, with the share of the pull that each has.

    `alone` is how often they alone point at a right place, `whole` how often all neurons do; `width` is how many all
    are. Neurons are chosen on one half of the questions and measured on the other.
    """

    neurons: tuple[int, ...]
    shares: tuple[float, ...]
    alone: float
    whole: float
    width: int


MOST = 150
"""Questions of a role that are looked into, of each half."""


@torch.inference_mode()
def _add_neurons(run: Run, items: Sequence[Probe], heads: list[JsonObject]) -> None:
    """Add to each role of each head the few neurons that carry it, or None: for a score that is no plain q.k."""
    known = attentions(run.model)
    roles = [
        (one["attention"], one["head"], role)
        for one in heads
        if one["role"]
        for role in (one["role"], *(other["role"] for other in one["also"]))
    ]
    plain = {name for name, _, _ in roles if isinstance(one := known[name], Attention) and one.distances is None}
    asked: dict[tuple[str, int, str], tuple[list[NeuronProducts], list[NeuronProducts]]] = {
        role: ([], []) for role in roles if role[0] in plain
    }
    for start, part, trace in _watched(run, run.model, items if asked else [], list(plain), ("q", "k")):
        for (name, head, role), halves in asked.items():
            seen = trace[name]
            assert seen.q is not None
            assert seen.k is not None
            for index, item in enumerate(part):
                half = halves[(start + index) % 2]
                if len(half) >= MOST:
                    continue
                q, k = seen.q[index, head].float().cpu(), seen.k[index, head].float().cpu()
                half += _neuron_products(q, k, item, attention_kind(known[name]), role)[: MOST - len(half)]
        if all(len(half) >= MOST for halves in asked.values() for half in halves):
            break
    for one in heads:
        for told, role in ((one, one["role"]), *((other, other["role"]) for other in one["also"])):
            found = fewest_neurons(*asked.get((one["attention"], one["head"], role), ([], [])))
            told["neurons"] = None if found is None else asdict(found)


def _neuron_products(q: Tensor, k: Tensor, item: Probe, kind: Kind, role: str) -> list[NeuronProducts]:
    rows, columns, _, breadth = item.places[kind]
    first = {place: token for token, place in reversed(list(enumerate(rows)))}
    keys = {place: token for token, place in reversed(list(enumerate(columns)))}
    if len([place for place in keys if place is not None]) < breadth:
        return []  # a word without a token of its own
    at = torch.tensor([keys[place] for place in range(breadth)])
    found = []
    for one in item.questions[kind]:
        if one.role != role or one.query not in first:
            continue
        right = torch.zeros(breadth, dtype=torch.bool)
        right[list(one.answers)] = True
        # What a causal query sees is what comes up to it.
        places = one.visible if kind == "decoder" else breadth
        products = q[first[one.query]] * k[at[:places]]
        found.append(NeuronProducts(products, right[:places]))
    return found


def fewest_neurons(choosing: Sequence[NeuronProducts], reporting: Sequence[NeuronProducts]) -> RoleNeurons | None:
    """The neurons that pull the right places above the others; None where nothing was asked."""
    if not choosing or not reporting:
        return None
    pull = torch.stack([one.products[one.right].mean(0) - one.products.mean(0) for one in choosing]).double().mean(0)
    order = pull.argsort(descending=True, stable=True)
    whole = _accuracy(choosing, order)
    count = next(n for n in range(1, len(order) + 1) if _accuracy(choosing, order[:n]) >= ENOUGH * whole)
    chosen, positive = order[:count], pull.clamp(min=0).sum()
    return RoleNeurons(
        tuple(chosen.tolist()),
        tuple((pull[chosen].clamp(min=0) / positive.clamp(min=1e-12)).tolist()),
        _accuracy(reporting, chosen),
        _accuracy(reporting, order),
        len(order),
    )


def _accuracy(asked: Sequence[NeuronProducts], neurons: Tensor) -> float:
    """How often the place with the largest sum over these neurons is a right one."""
    return sum(bool(one.right[one.products[:, neurons].sum(-1).argmax()]) for one in asked) / len(asked)
