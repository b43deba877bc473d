"""Recall and count over thousands of tokens: what each way to process a sequence learns in so many updates."""

import math
import time
from collections.abc import Callable, Sequence
from typing import Any, get_args

import torch
import torch.nn.functional as F

from regard.data.long_range import ANSWERS, VOCAB, Question, long_range
from regard.errors import ConfigError
from regard.models.sequence_classifier import LayerKind, SequenceClassifier

SHORTEST = 16
TOKENS = 8192
"""Of one update: a few long sequences or many short ones."""
ROWS = 64
"""Sequences that each length is tested on."""


def distance(
    longest: int = 2048,
    updates: int = 300,
    *,
    ways: Sequence[LayerKind] = get_args(LayerKind),
    questions: Sequence[Question] = get_args(Question),
    width: int = 64,
    seed: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """For each question and way, the share of right answers by length, after as many updates for each.

    An update sees sequences of one length, drawn evenly on a logarithmic scale up to `longest`: who learns at all
    learns on the short ones first. Chance is one in eight.
    """
    if longest < SHORTEST:
        raise ConfigError(f"the longest sequence of {longest} tokens must have at least {SHORTEST}")
    done, total = 0, updates * len(ways) * len(questions)
    results = []
    for question in questions:
        for way in ways:
            torch.manual_seed(seed)
            reader = SequenceClassifier(way, VOCAB, ANSWERS, width=width)
            began = time.perf_counter()
            for step in _train(reader, question, longest, updates, seed):
                if progress is not None and step % 10 == 0:
                    progress(done + step, total)
            done += updates
            results.append(
                {
                    "question": question,
                    "way": way,
                    "parameters": sum(parameter.numel() for parameter in reader.parameters()),
                    "receptive_field": reader.receptive_field,
                    "seconds": time.perf_counter() - began,
                    "accuracy": [
                        {"length": length, "share": _accuracy(reader, question, length, seed)}
                        for length in _lengths(longest)
                    ],
                }
            )
    return {
        "longest": longest,
        "updates": updates,
        "width": width,
        "chance": 1 / ANSWERS,
        "rows": ROWS,
        "results": results,
    }


def _train(reader: SequenceClassifier, question: Question, longest: int, updates: int, seed: int):
    optimizer = torch.optim.AdamW(reader.parameters(), lr=3e-3, betas=(0.9, 0.98), weight_decay=0.0)
    luck = torch.Generator().manual_seed(seed)
    for step in range(updates):
        share = float(torch.rand((), generator=luck))
        length = round(SHORTEST * (longest / SHORTEST) ** share)
        # Up over the first twentieth, then down along a cosine.
        warm = min(1.0, (step + 1) / max(1, updates // 20))
        for group in optimizer.param_groups:
            group["lr"] = 3e-3 * warm * 0.5 * (1 + math.cos(math.pi * step / updates))
        tokens, answers = long_range(question, max(4, TOKENS // length), length, seed=1_000_003 * seed + step)
        F.cross_entropy(reader(tokens), answers).backward()
        torch.nn.utils.clip_grad_norm_(reader.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        yield step + 1


def _lengths(longest: int) -> list[int]:
    lengths = [SHORTEST]
    while lengths[-1] * 2 < longest:
        lengths.append(lengths[-1] * 2)
    return [*lengths, longest] if longest > SHORTEST else lengths


@torch.inference_mode()
def _accuracy(reader: SequenceClassifier, question: Question, length: int, seed: int) -> float:
    """On sequences that training never draws: their seeds are negative."""
    reader.eval()
    right = 0
    for part in range(0, ROWS, 16):
        tokens, answers = long_range(question, 16, length, seed=-1 - seed - part - 1000 * length)
        right += int((reader(tokens).argmax(-1) == answers).sum())
    reader.train()
    return right / ROWS
