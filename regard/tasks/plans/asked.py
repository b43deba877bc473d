"""What follows from settings that were given: planned ones that hang on them are decided again, so that both agree."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from regard.tasks.planning import Choices, Decision, room_for

ADAMW, MUON = (2e-3, 0.65), (4e-3, 0.5)
"""A usual rate at a width of 128, and the power of the width by which it falls."""


def following(chosen: Choices, asked: Mapping[str, Any]) -> Choices:
    """The decisions as they are with these settings, each by its whole name; those that were given are left as they
    are."""
    decided = {one.name: one for one in chosen.decisions}
    planned = {name: one.value for name, one in decided.items()}
    changed: dict[str, Decision | None] = {}
    lengths = _lengths(chosen, planned, asked)
    reach = lengths["data.max_len"].value if lengths else asked.get("data.max_len")
    room = _room(planned, reach, "with the tokenizer as asked" if lengths else "as asked")
    for found in (_tokenizer(planned, asked), lengths, room, _width(planned, asked), _rate(planned, asked)):
        changed |= {name: one for name, one in found.items() if name not in asked}
    kept = [changed.pop(name, one) for name, one in decided.items()]
    return replace(chosen, decisions=tuple(one for one in (*kept, *changed.values()) if one is not None))


def _tokenizer(planned: Mapping[str, Any], asked: Mapping[str, Any]) -> dict[str, Decision | None]:
    """One kind for both sides as asked, or a vocabulary for each side, which have no table in common."""
    if "tokenizer.kind" in asked:
        return {"tokenizer.source_kind": None, "tokenizer.target_kind": None}
    apart = asked.get("tokenizer.joint") is False or {"tokenizer.source_kind", "tokenizer.target_kind"} & {*asked}
    if not apart or planned.get("tokenizer.joint") is not True:
        return {}
    why = "a vocabulary for each side, as asked"
    found: dict[str, Decision | None] = {"tokenizer.joint": Decision("tokenizer.joint", False, why)}
    if planned.get("model.share") == "all":
        found["model.share"] = Decision("model.share", "output", why)
    return found


def _lengths(chosen: Choices, planned: Mapping[str, Any], asked: Mapping[str, Any]) -> dict[str, Decision]:
    """Room for the longest text as it is cut by the tokenizers that were asked for."""
    if "data.max_len" not in planned or "data.max_len" in asked:
        return {}
    sides = ("tokenizer.source_kind", "tokenizer.target_kind")
    if not {"tokenizer.kind", *sides} & {*asked}:
        return {}
    usual = asked.get("tokenizer.kind")
    kinds = [asked.get(side) or usual or planned.get(side) or planned.get("tokenizer.kind") for side in sides]
    if any(kind not in chosen.longest for kind in kinds):
        return {}
    longest = [chosen.longest[str(kind)][side] for side, kind in enumerate(kinds)]
    reach, long = room_for(longest), f"has about {max(longest):,} tokens, with the tokenizer as asked"
    why = f"room for the longest text, which {long}"
    if max(longest) > reach:
        why = f"the longest text {long}: those of more than {reach:,} are left out, and counted"
    return {"data.max_len": Decision("data.max_len", reach, why)}


def _room(planned: Mapping[str, Any], reach: object, why: str) -> dict[str, Decision | None]:
    """A model and batches with room for texts as long as asked, or as the tokenizer that was asked for makes them."""
    if not isinstance(reach, int):
        return {}
    found: dict[str, Decision | None] = {}
    for name, least in (("model.max_len", reach), ("train.batch_tokens", 2 * reach + 8)):
        if isinstance(planned.get(name), int) and planned[name] < least:
            found[name] = Decision(name, least, f"room for texts of data.max_len={reach}, {why}")
    return found


def _width(planned: Mapping[str, Any], asked: Mapping[str, Any]) -> dict[str, Decision | None]:
    """Heads about as wide as planned, of which the width asked for is a multiple, and as wide inside."""
    width, before = asked.get("model.width"), planned.get("model.width")
    if not isinstance(width, int) or not isinstance(before, int) or width < 1:
        return {}
    why = f"goes with model.width={width}, as asked"
    found: dict[str, Decision | None] = {}
    if heads := planned.get("model.heads"):
        most = max(1, round(width * heads / before))
        # Rotary positions turn pairs of values, so a head has an even number of them.
        fitting = [count for count in range(1, most + 1) if width % count == 0 and (width // count) % 2 == 0]
        found["model.heads"] = Decision("model.heads", max(fitting, default=1), why)
    if inside := planned.get("model.feed_forward"):
        found["model.feed_forward"] = Decision(
            "model.feed_forward", max(8, 8 * round(inside * width / before / 8)), why
        )
    return found


def _rate(planned: Mapping[str, Any], asked: Mapping[str, Any]) -> dict[str, Decision | None]:
    """A rate for the optimiser that was asked for, where another was planned."""
    optimizer = asked.get("train.optimizer")
    if optimizer in (None, planned.get("train.optimizer")) or "train.learning_rate" not in planned:
        return {}
    width = asked.get("model.width", planned.get("model.width"))
    at_128, power = MUON if optimizer == "muon" else ADAMW
    rate = float(f"{at_128 * (128 / width) ** power:.1g}") if isinstance(width, int) and width > 0 else 1e-4
    why = f"usual with {optimizer}, as asked, at this width; not measured on such data"
    return {"train.learning_rate": Decision("train.learning_rate", rate, why)}
