"""A checkpoint's weights and our models: whether they fit, models filled with them, and the way back."""

import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from regard.errors import ConfigError, RunError
from regard.interop.huggingface.files import KINDS, Weights
from regard.interop.huggingface.names import Name
from regard.interop.huggingface.whole_heads import whole_heads
from regard.runs.checkpoint import weights_of
from regard.tasks.config import RunConfig
from regard.tasks.run import build_model

MOST_LAYERS = 2000
LARGEST_TABLE = 1 << 27
"""Numbers in the largest table of positions that is worked out: no weight's shape says that it is meant."""
LONGEST = 200
"""Characters of a strange weight's name that are shown, and how many faults: a file may hold any number of either."""
Shapes = Mapping[str, tuple[int, ...]]


def filled(
    config: RunConfig, weights: Weights, family: ModuleType, tell: Callable[[str], object] = warnings.warn
) -> nn.Module:
    """The model with the checkpoint's weights. No memory is taken for it before all are known to fit."""
    settings = asdict(config.model_config())
    layers = sum(settings[count] for count in family.STACKS)
    if layers > min(MOST_LAYERS, len(weights.shapes)):
        raise RunError(
            f"config.json says {layers} layers; {weights.where} has {len(weights.shapes)} weights, and no more than "
            f"{MOST_LAYERS:,} layers are read"
        )
    if "positions" in settings:
        _check_table(settings)
    try:
        with torch.device("meta"):  # shapes alone
            shapes = shapes_of(build_model(config))
    except (RuntimeError, OverflowError) as error:  # no number can say how many bytes that would be
        raise RunError(f"config.json in {weights.where} says sizes that no model can have ({error})") from None
    table = list(table_of(family, settings, shapes))
    stored = check_weights(weights, table, shapes, family, settings)
    check_copies(weights, family, settings, stored, tell)
    model = build_model(config)
    fill(model, weights, table, stored)
    return model


def _check_table(model: Mapping[str, Any]) -> None:
    """Refuse a length that asks for more memory than its checkpoint gives reason for."""
    alone = model["head_width"] or model["width"] // model["heads"] if "head_width" in model else 1
    width = model["width"] if model["positions"] == "sinusoidal" else alone
    if model["positions"] in ("sinusoidal", "rotary") and model["max_len"] * width > LARGEST_TABLE:
        raise ConfigError(
            f"config.json: a length of {model['max_len']:,} at a width of {width:,} is not supported: a table of "
            f"{model['positions']} positions has at most {LARGEST_TABLE:,} numbers"
        )


def unfilled(model: nn.Module, config: Any, family: ModuleType, *, bare: bool) -> dict[str, Tensor]:
    """The model's weights by their names there; `bare` without what comes before each name where there is a head."""
    ours = whole_heads(model, config)
    rows = table_of(family, asdict(config), {name: tuple(value.shape) for name, value in ours.items()})
    return {row.theirs.removeprefix(family.PREFIX if bare else ""): row.join(ours) for row in rows}


def shapes_of(model: nn.Module) -> Shapes:
    return {name: tuple(value.shape) for name, value in weights_of(model).items()}


def table_of(family: ModuleType, model: Mapping[str, Any], shapes: Shapes) -> Iterator[Name]:
    """The names of this very model: rows for weights that it does not have, such as biases, are left out."""
    rows = list(family.outside(model) if hasattr(family, "outside") else family.OUTSIDE)
    for count, stack in family.STACKS.items():
        rows += [row.of_layer(layer) for layer in range(model[count]) for row in stack]
    rows.append(Name(family.HEAD, ("head.weight",)))
    rows = [row for row in rows if row.when is None or model[row.when[0]] == row.when[1]]
    found = [row for row in rows if row.ours[0] in shapes]
    covered = {name for row in found for name in row.ours}
    assert covered == shapes.keys(), f"no name for {sorted(shapes.keys() - covered)}"
    yield from found


def copies_of(family: ModuleType, model: Mapping[str, Any], stored: Mapping[str, str]) -> dict[str, str]:
    """Names that a checkpoint may store once more, though the model ties them, and what each is a copy of."""
    pairs = family.copies(model) if hasattr(family, "copies") else getattr(family, "COPIES", {})
    bare = any(name != theirs for theirs, name in stored.items())
    there = {copy: name for copy, name in pairs.items() if name in stored and copy not in stored}
    return {copy.removeprefix(family.PREFIX) if bare else copy: stored[name] for copy, name in there.items()}


def check_copies(
    weights: Weights,
    family: ModuleType,
    model: Mapping[str, Any],
    stored: Mapping[str, str],
    tell: Callable[[str], object],
) -> None:
    """Refuse a second copy of a weight that is not equal to the first: readers differ in which of the two they take."""
    for copy, name in copies_of(family, model, stored).items():
        if copy in weights.shapes and not torch.equal(weights[copy], weights[name].to(weights[copy].dtype)):
            raise RunError(
                f"{weights.where} holds {copy} beside {name}, which config.json says are one, and they are not equal: "
                f"remove the one that is not meant, or untie them with tie_word_embeddings=false where the model can"
            )
    for name in (name for name in getattr(family, "SINUSOIDS", ()) if name in weights.shapes):
        found, table = weights[name], family.sinusoids(model)
        rounded = found.dtype not in (torch.float32, torch.float64)
        close = torch.finfo(found.dtype).eps if rounded else 1e-5
        if found.shape != table.shape or not torch.allclose(found.float(), table, rtol=0.0, atol=close):
            raise RunError(f"{weights.where} holds {name}, which is not the table of sinusoids that this family has")
        if rounded:
            tell(
                f"{weights.where} holds {name} as {str(found.dtype).removeprefix('torch.')}; here sinusoids are exact: "
                f"outputs may differ in that digit"
            )


def check_weights(
    weights: Weights, table: list[Name], shapes: Shapes, family: ModuleType, settings: Mapping[str, Any]
) -> dict[str, str]:
    """The name each weight is stored under; or every one that is missing, extra or misshapen, said at once."""
    bare = not any(name.startswith(family.PREFIX) for name in weights.shapes)
    stored = {row.theirs: row.theirs.removeprefix(family.PREFIX) if bare else row.theirs for row in table}
    faults = []
    for row in table:
        name = stored[row.theirs]
        wanted = row.shape(shapes)
        if name not in weights.shapes:
            faults += [] if row.optional else [f"missing {name}"]
        elif weights.shapes[name] != wanted:
            faults.append(f"{name} is {weights.shapes[name]}, not {wanted}")
        elif weights.kinds[name] not in KINDS:
            faults.append(f"{name} holds {weights.kinds[name]}, not one of {', '.join(KINDS)}")
    known = {*stored.values(), *copies_of(family, settings, stored), *getattr(family, "SINUSOIDS", ())}
    faults += [
        f"extra {name[:LONGEST]}"
        for name in weights.shapes
        if name not in known and not re.fullmatch(family.IGNORED, name)
    ]
    if faults:
        raise RunError(f"the weights in {weights.where} do not fit its config.json: {together(faults)}")
    return stored


@torch.no_grad()
def fill(model: nn.Module, weights: Weights, table: list[Name], stored: Mapping[str, str]) -> None:
    ours, shapes = weights_of(model), shapes_of(model)
    broken = []
    for row in table:
        if (name := stored[row.theirs]) not in weights.shapes:
            continue
        for part, value in row.split(weights[name], shapes).items():
            ours[part].copy_(value)
        if not all(bool(ours[part].isfinite().all()) for part in row.ours):
            broken.append(name)
    if broken:
        raise RunError(f"the weights in {weights.where} are not all finite numbers: {together(broken)}")


def together(faults: Iterable[str]) -> str:
    """All faults in one line; those that differ by the number of a layer alone as one: `missing h.{3,4}.ln_1.bias`."""
    groups: dict[tuple[str, str], list[str]] = {}
    for fault in faults:
        before, *layer = re.split(r"\.(\d+)\.", fault, maxsplit=1)
        groups.setdefault((before, layer[1] if layer else ""), []).extend(layer[:1])
    said = [
        f"{before}.{numbers[0] if len(numbers) == 1 else '{' + ','.join(numbers) + '}'}.{after}" if numbers else before
        for (before, after), numbers in groups.items()
    ]
    return "; ".join(said[:LONGEST]) + (f"; and {len(said) - LONGEST} more" if len(said) > LONGEST else "")
