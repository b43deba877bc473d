"""The neurons behind the roles that a run's heads were found to have."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor, nn

from regard.look.carriers import Asked, carriers
from regard.look.watch import attentions, watch
from regard.nn.attention import Attention
from regard.tasks.probes import Kind, Probe

MOST = 150
"""Questions of a role that are looked into, of each half."""

Claims = Mapping[str, Mapping[int, str]]
"""For each attention the heads that have a role, and which."""


@torch.inference_mode()
def role_neurons(
    model: nn.Module,
    items: Sequence[Probe],
    batch: Callable[[Sequence[Probe]], Any],
    kinds: Mapping[str, Kind],
    claims: Claims,
) -> dict[tuple[str, int], dict[str, Any]]:
    """For each head with a role, the few neurons that carry it. Heads whose score is no plain q.k have none."""
    known = attentions(model)
    names = [name for name in claims if isinstance(one := known[name], Attention) and one.distances is None]
    asked: dict[tuple[str, int], tuple[list[Asked], list[Asked]]] = {
        (name, head): ([], []) for name in names for head in claims[name]
    }
    for start in range(0, len(items) if names else 0, 64):
        part = items[start : start + 64]
        with watch(model, names, parts=("q", "k")) as trace:
            model(batch(part))
        for (name, head), halves in asked.items():
            seen = trace[name]
            assert seen.q is not None
            assert seen.k is not None
            for index, item in enumerate(part):
                half = halves[(start + index) % 2]
                q, k = seen.q[index, head].float().cpu(), seen.k[index, head].float().cpu()
                half += _asked(q, k, item, kinds[name], claims[name][head])[: MOST - len(half)]
        if all(len(half) >= MOST for halves in asked.values() for half in halves):
            break
    found = {head: carriers(*halves) for head, halves in asked.items()}
    return {head: asdict(own) for head, own in found.items() if own is not None}


def _asked(q: Tensor, k: Tensor, item: Probe, kind: Kind, role: str) -> list[Asked]:
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
        found.append(Asked(products, right[:places]))
    return found
