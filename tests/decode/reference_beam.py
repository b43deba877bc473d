"""Beam search and exhaustive search for one source, written to be read, not to be fast."""

import itertools
from collections.abc import Callable

import numpy as np

from regard.decode.config import DecodeConfig

Next = Callable[[tuple[int, ...]], np.ndarray]
Found = tuple[tuple[int, ...], float, bool]  # tokens, score, finished


def reference_beam(following: Next, eos: int, config: DecodeConfig, max_len: int) -> list[Found]:
    live: list[tuple[tuple[int, ...], np.float32]] = [((), np.float32(0))]
    finished: list[Found] = []
    for length in range(1, max_len + 1):
        candidates = []
        for prefix, total in live:
            log_probs = following(prefix).copy()
            if length <= config.min_len:
                log_probs[eos] = -np.inf
            candidates += [((*prefix, token), total + log_prob) for token, log_prob in enumerate(log_probs)]
        candidates = [candidate for candidate in candidates if candidate[1] > -np.inf]
        candidates.sort(key=lambda candidate: -candidate[1])  # stable, so ties keep place and token order
        ended = [one for one in candidates[: config.beam] if one[0][-1] == eos]
        finished += [(tokens[:-1], config.score(float(total), length), True) for tokens, total in ended]
        finished.sort(key=lambda found: -found[1])
        live = [one for one in candidates[: 2 * config.beam] if one[0][-1] != eos][: config.beam]
        if not live:
            return finished[: config.top_beams]
        if config.exact:
            continue  # to the very end: what it must agree with
        worst = finished[config.beam - 1][1] if len(finished) >= config.beam else -np.inf
        if config.score(float(live[0][1]), length) <= worst:
            return finished[: config.top_beams]
    cut = [(tokens, config.score(float(total), max_len), False) for tokens, total in live]
    return (finished + cut)[: config.top_beams]


def every_output(following: Next, eos: int, config: DecodeConfig, max_len: int, choices: int) -> list[Found]:
    """All there is to find, best first: the finished, then those that reached `max_len` without an end."""
    found = []
    others = [token for token in range(choices) if token != eos]
    for length in range(max_len + 1):
        for tokens in itertools.product(others, repeat=length):
            total = sum(float(following(tokens[:index])[token]) for index, token in enumerate(tokens))
            if config.min_len <= length < max_len:
                ending = total + float(following(tokens)[eos])
                found.append((tokens, config.score(ending, length + 1), True))
            if length == max_len:
                found.append((tokens, config.score(total, length), False))
    return sorted(found, key=lambda one: (not one[2], -one[1]))
