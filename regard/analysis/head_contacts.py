"""Which heads of an encoder of symbols find contacts: symmetric, corrected attention, its best pairs counted."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from regard.config import JsonObject
from regard.data.synthetic.proteins import APART, SymbolSequence
from regard.errors import ConfigError, DataError
from regard.look.watch import attentions, watch
from regard.metrics.text import bootstrap_rows, bootstrap_signature, percentile_interval
from regard.nn.attention import WITHIN
from regard.tasks.run import Run


def corrected(weights: Float[np.ndarray, "H L L"]) -> Float[np.ndarray, "H L L"]:
    """Both directions added, less what the two places have with all others (average product correction, APC)."""
    both = weights + weights.transpose(0, 2, 1)
    sums = both.sum(2)
    return both - sums[:, :, None] * sums[:, None, :] / np.maximum(both.sum((1, 2)), 1e-12)[:, None, None]


def precision_at_length(scores: Float[np.ndarray, "H L L"], sequence: SymbolSequence) -> Float[np.ndarray, " H"]:
    """Of each head the share of contacts among its L best pairs of places that are at least 6 apart."""
    length = scores.shape[1]
    first, second = np.triu_indices(length, APART)
    true = np.zeros((length, length), dtype=bool)
    for one, other in sequence.contacts:
        true[one, other] = True
    best = np.argsort(-scores[:, first, second], axis=1, kind="stable")[:, :length]
    return true[first, second][best].mean(1)


def chance(sequence: SymbolSequence) -> float:
    """The share of contacts among all pairs of places that are so far apart."""
    first, _ = np.triu_indices(len(sequence.symbols), APART)
    return sum(other - one >= APART for one, other in sequence.contacts) / len(first)


def contact_report(run: Run, sequences: Sequence[SymbolSequence], limit: int = 400) -> JsonObject:
    """Precision at L of every head beside chance. The best is chosen on the first half, and measured on the second."""
    names = [name for name, one in attentions(run.model).items() if one.sides == WITHIN]
    if not run.task.applies("data.mask") or "encoder" not in run.task.parts or not names:
        raise ConfigError(f"contacts are looked for in an encoder of symbols with attention, not in {run.directory}")
    kept = [one for one in sequences[:limit] if one.contacts and len(one.symbols) > APART + 1]
    if len(kept) < 2:
        raise DataError(f"contacts need two sequences of more than {APART + 1} symbols with contacts, or more")
    table = np.stack([_measured(run, names, one) for one in kept])
    known = [(name, head) for name in names for head in range(attentions(run.model)[name].heads)]
    half = len(kept) // 2
    best = int(table[:half].mean(0).argmax())
    rest, luck = table[half:, best], np.array([chance(one) for one in kept])
    ratios = np.array([rest[rows].mean() / luck[half:][rows].mean() for rows in bootstrap_rows(len(rest))])
    return {
        "sequences": len(kept),
        "apart": APART,
        "chance": float(luck.mean()),
        "heads": [
            {"attention": name, "head": head, "precision_at_length": float(value)}
            for (name, head), value in sorted(zip(known, table.mean(0), strict=True), key=lambda one: -one[1])
        ],
        "best": {
            "attention": known[best][0],
            "head": known[best][1],
            "sequences": len(rest),
            "precision_at_length": float(rest.mean()),
            "chance": float(luck[half:].mean()),
            "times_chance": float(rest.mean() / luck[half:].mean()),
            "times_chance_interval": list(percentile_interval(ratios)),
            "most_possible": float(np.mean([len(one.contacts) / len(one.symbols) for one in kept[half:]])),
        },
        "signature": f"precision@L|apart:{APART}|symmetric|APC|{bootstrap_signature()}",
    }


@torch.inference_mode()
def _measured(run: Run, names: Sequence[str], sequence: SymbolSequence) -> Float[np.ndarray, " heads"]:
    encoder: Any = run.encoder
    row = encoder.framer.texts(sequence.text, overlong="refuse")
    places = [place for place, source in enumerate(row.sources) if source == 0]
    if len(places) != len(sequence.symbols):
        raise DataError(
            f"'{sequence.text[:30]}' is {len(places)} tokens to the run and {len(sequence.symbols)} symbols: "
            "contacts need a token for each symbol, as tokenizer.kind='character' or 'spaced' make them"
        )
    run.model.eval()
    with watch(run.model, names) as trace:
        run.model(encoder.texts([row]))
    weights = (trace.weights(name)[0].float().cpu().numpy()[:, places][:, :, places] for name in names)
    return np.concatenate([precision_at_length(corrected(one), sequence) for one in weights])
