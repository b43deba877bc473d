"""Commands and the actions they mean: a small grammar with nesting and repetition, for models that must be exact.

`hop left twice then wave` means `LEFT HOP LEFT HOP WAVE`. A word may change the order of what stands beside it
(`after`, `and back`), and brackets (`begin ... end`) nest. A command has exactly one meaning.
"""

import random
from collections.abc import Iterator
from typing import Literal

Part = Literal["train", "valid", "test"]

VERBS = {"walk": "WALK", "hop": "HOP", "wave": "WAVE", "dig": "DIG", "sing": "SING", "rest": "REST"}
TURNS = {"left": ("LEFT",), "right": ("RIGHT",), "about": ("LEFT", "LEFT")}
TIMES = {"twice": 2, "thrice": 3, "often": 4}
LONGEST = 50
"""Actions of a command at the most."""

Command = tuple[str, tuple[str, ...]]


def _action(random_: random.Random) -> Command:
    verb = random_.choice(list(VERBS))
    way = random_.random()
    if way < 0.35:
        return verb, (VERBS[verb],)
    turn = random_.choice(list(TURNS))
    if way < 0.75:
        return f"{verb} {turn}", (*TURNS[turn], VERBS[verb])
    if way < 0.9:  # a turn before each of four
        return f"{verb} round {turn}", (*TURNS[turn], VERBS[verb]) * 4
    return f"{verb} zigzag", ("LEFT", VERBS[verb], "RIGHT", VERBS[verb])


def _phrase(random_: random.Random, depth: int, mirrored: bool) -> Command:
    """An action, or a bracket of a sequence, perhaps some times over and, if `mirrored`, perhaps there and back."""
    words, actions = _action(random_)
    if depth and random_.random() < 0.25:
        words, actions = _sequence(random_, depth - 1, 2, 2, mirrored)
        words = f"begin {words} end"
    if random_.random() < 0.35:
        times = random_.choice(list(TIMES))
        words, actions = f"{words} {times}", actions * TIMES[times]
    if mirrored and random_.random() < 0.08:
        words, actions = f"{words} and back", (*actions, *reversed(actions))
    return words, actions


def _sequence(random_: random.Random, depth: int, fewest: int, most: int, mirrored: bool) -> Command:
    words, actions = _phrase(random_, depth, mirrored)
    for _ in range(random_.randint(fewest, most) - 1):
        more, others = _phrase(random_, depth, mirrored)
        if random_.random() < 0.6:
            words, actions = f"{words} then {more}", (*actions, *others)
        else:  # what stands after `after` is done first
            words, actions = f"{words} after {more}", (*others, *actions)
    return words, actions


def commands(counts: dict[Part, int], *, seed: int = 1, mirrored: bool = True) -> Iterator[tuple[Part, str, str]]:
    """As many distinct commands for each part, with their actions; no command is in two parts.

    Not `mirrored`, none has `and back`, which is neither nesting nor repetition, and is the hardest to learn.
    """
    random_, seen = random.Random(seed), set[str]()
    for part, count in counts.items():
        made = 0
        while made < count:
            words, actions = _sequence(random_, 2, 1, 3, mirrored)
            if words in seen or len(actions) > LONGEST:
                continue
            seen.add(words)
            made += 1
            yield part, words, " ".join(actions)
