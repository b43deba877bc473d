"""Fine-tuning: a run that starts from another takes its model's shape, its tokenizer and its weights."""

import shutil
from collections.abc import Mapping, Sequence, Set
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from torch import nn

from regard import config as settings
from regard.config import JsonObject
from regard.errors import ConfigError, DataError, RunError
from regard.models import MODELS
from regard.models.protocols import Refits, capabilities
from regard.runs.checkpoint import read_model, weights_of
from regard.runs.files import read_json, write_errors
from regard.tasks.spec import TASKS
from regard.text import TokenizerConfig

RETRAINED = ("tokenizer.retrain", "tokenizer.vocab_size", "tokenizer.min_count")
"""What a tokenizer that is trained anew may have otherwise than that of the run it starts from."""

HEADS = ("mix", "classifier", "words", "next_text", "pooler", "head")
"""Parts that stand on an encoder: those that are new in a run begin at random, others are left behind."""


def settings_from_base(
    mapping: Mapping[str, Any], base: Path, overrides: Sequence[str] = (), own: Mapping[str, Any] | None = None
) -> JsonObject:
    """The settings with the model's shape and the tokenizer of the run in `base`, over those of a preset.

    What `overrides`, or a file of one's `own`, asks for is refused where it cannot be.
    """
    if not base.is_dir():
        raise RunError(f"no such run: {base}")
    theirs = read_json(base / "config.json")
    model, mine = dict(theirs.get("model") or {}), mapping.get("model", {})
    name = model.get("name")
    if not isinstance(name, str) or name not in MODELS:
        raise RunError(f"{base / 'config.json'} names no known model")
    kind, own_name = MODELS[name], mine.get("name", name)
    if own_name != name:
        kind = MODELS.named(own_name)
        if name not in capabilities(kind[1]).encoders:
            raise ConfigError(f"{base} is a model '{name}', from which a '{own_name}' cannot start")
        known = {field.name for field in fields(kind[0])}
        model = {**{key: value for key, value in model.items() if key in known}, "name": own_name}
    free = {*capabilities(kind[1]).tunes, *(key for key in mine if key.endswith("dropout"))}
    if own_name != name:  # what stands on the encoder is its own
        free |= {field.name for field in fields(kind[0])} - {field.name for field in fields(MODELS[name][0])}
    written = (own or {}).get("model") or {}
    asked = {setting.partition("=")[0].strip().removeprefix("model.") for setting in overrides} | {*written}
    offered = capabilities(kind[1])
    resized = asked & {*offered.resizes, *offered.stacks}  # not where a preset happens to name a size
    mended = RETRAINED if mapping.get("tokenizer", {}).get("retrain") else ()
    for setting in overrides:
        key = setting.partition("=")[0].strip()
        if key in mended:
            continue
        if key.startswith(("tokenizer.", "model.")) and key.removeprefix("model.") not in {*free, *resized, "name"}:
            raise ConfigError(f"'{setting}' cannot change in a run that starts from {base}, whose model it takes over")
    _refuse_others(own or {}, theirs, base, {*free, *resized, "name"}, mended)
    model.pop("labels", None)
    for key in resized & {*offered.stacks}:
        kept_layers(mine[key], _layers(model, own_name, key), key, base)  # refuses more than there are
    model |= {key: value for key, value in mine.items() if key in free | resized}
    if model.get("pooler") == "none" and model.get("head") in ("pretraining", "classes") and "pooler" not in mine:
        model["pooler"] = "relu" if model.get("segments") == 0 else "tanh"
    images = {**image_preparation(theirs.get("images") or {}), **mapping.get("images", {})}
    tokenizer = dict(theirs.get("tokenizer", {}))
    tokenizer |= {key: value for key, value in mapping.get("tokenizer", {}).items() if f"tokenizer.{key}" in mended}
    tokenizer.pop("taken_from", None)
    if not mended:  # that run's own start
        tokenizer.pop("retrain", None)
    taken = {"model": model, "tokenizer": tokenizer, "images": images}
    task = theirs.get("task", "translation")
    if "task" not in mapping and not TASKS.named(task).trains:
        raise ConfigError(f"{base} embeds texts, which is not trained: name a preset for what to do, as bert-tune")
    if mapping.get("task", task) == task:
        length = {name: value for name, value in (theirs.get("data") or {}).items() if name == "max_len"}
        taken |= {"task": task, "data": {**length, **mapping.get("data", {})}}
        if TASKS.named(task).keeps_decoding:
            taken["decode"] = {**theirs.get("decode", {}), **mapping.get("decode", {})}
    return {**mapping, **taken}


def settings_with_tokenizer(
    mapping: Mapping[str, Any], base: Path, overrides: Sequence[str] = (), own: Mapping[str, Any] | None = None
) -> JsonObject:
    """The settings with the tokenizer of the run in `base` instead of one to be trained, and nothing else of it.

    What `overrides`, or a file of one's `own`, says of the tokenizer is refused where that run has it otherwise.
    """
    if not base.is_dir():
        raise RunError(f"no such run: {base}")
    theirs: JsonObject = dict(read_json(base / "config.json").get("tokenizer") or {})
    has = {field.name: field.default for field in fields(TokenizerConfig)} | theirs
    asked = settings.override({"tokenizer": (own or {}).get("tokenizer") or {}}, overrides)["tokenizer"]
    unknown = {name: value for name, value in asked.items() if name not in has}  # which will be refused as such
    for name, value in asked.items():
        if name not in ("taken_from", *unknown) and value != has[name]:
            raise ConfigError(f"'tokenizer.{name}={value}' cannot change: the tokenizer is taken from {base}")
    return {**mapping, "tokenizer": {**theirs, **unknown, "taken_from": str(base)}}


def _refuse_others(
    own: Mapping[str, Any], theirs: Mapping[str, Any], base: Path, free: set[str], mended: Sequence[str] = ()
) -> None:
    """Refuse what a configuration says of the model or the tokenizer where the run in `base` has it otherwise."""
    kinds: dict[str, type] = {"model": MODELS[theirs["model"]["name"]][0], "tokenizer": TokenizerConfig}
    for section, kind in kinds.items():
        has: JsonObject = {field.name: field.default for field in fields(kind)} | dict(theirs.get(section) or {})
        for name, value in (own.get(section) or {}).items():
            plain = tuple(value) if isinstance(value, list) else value
            there = tuple(has[name]) if isinstance(has.get(name), list) else has.get(name)
            if not (section == "model" and name in free) and plain != there and f"{section}.{name}" not in mended:
                raise ConfigError(
                    f"'{section}.{name}={value}' cannot change in a run that starts from {base}, "
                    f"whose model it takes over"
                )


def image_preparation(images: Mapping[str, Any]) -> JsonObject:
    """Of a run's settings of images, how they are prepared; how they are changed in training is another matter."""
    return {name: images[name] for name in ("resize", "filter", "mean", "std") if images.get(name)}


def copy_tokenizer(base: Path, out: Path) -> None:
    """The tokenizer of the run in `base`."""
    if not (base / "tokenizer.json").exists():
        raise RunError(f"{base} is missing its tokenizer.json")
    with write_errors(out):
        shutil.copyfile(base / "tokenizer.json", out)


def known_labels(model: Mapping[str, Any], base: str | None, found: Set[str]) -> tuple[str, ...] | None:
    """The labels that the settings of the model name, which must hold those `found` in the data.

    Else those that the run in `base` tells apart, where they hold all of them; None where neither is so.
    """
    if given := tuple(model.get("labels") or ()):
        if len(set(given)) < max(2, len(given)):
            raise ConfigError(f"model.labels={list(given)} must be two names or more, each once")
        if strange := sorted(found - set(given)):
            raise DataError(f"the label '{strange[0]}' is not among model.labels={list(given)}")
        return given
    known = read_json(Path(base) / "config.json").get("model", {}).get("labels") or () if base else ()
    return tuple(known) if known and found <= set(known) else None


def _layers(model: Mapping[str, Any], name: str, setting: str) -> int:
    """How many layers the settings of a model have where `setting` counts them."""
    return model.get(setting, MODELS[name][0].__dataclass_fields__[setting].default)


def kept_layers(count: int, there: int, setting: str, base: Path) -> list[int]:
    """Which of the layers that are `there` a model with `count` of them begins with: spread evenly, from the first."""
    if not isinstance(count, int) or not 1 <= count <= there:
        raise ConfigError(f"model.{setting}={count} must be 1 to {there} in a run that starts from {base}")
    return [round(place * (there - 1) / max(count - 1, 1)) for place in range(count)]


Pieces = Mapping[str, Sequence[str]]
"""Of the source and of the target, what each entry of a vocabulary is."""


@torch.no_grad()
def load_base_weights(
    model: nn.Module, settings: Mapping[str, Any], base: Path, pieces: tuple[Pieces, Pieces] | None = None
) -> str:
    """Fill the model from the run in `base`, and say what was taken. All but heads must be there.

    `pieces` are that run's and this one's, where its vocabulary is another: rows of pieces that both have are kept.
    """
    theirs = read_model(base)
    before = read_json(base / "config.json").get("model", {})
    labels = list(settings.get("labels") or ())
    same = before.get("head") == settings.get("head") and list(before.get("labels") or ()) == labels
    fresh, faults, kept = set(), [], list[str]()
    places: dict[str, list[int]] = {}
    if isinstance(shape := before.get("name"), str) and shape == settings.get("name", shape):
        for setting, stack in capabilities(type(model)).stacks.items():
            count, there = (_layers(one, shape, setting) for one in (settings, before))
            places[stack] = kept_layers(count, there, setting, base)
            if count < there:
                which = ", ".join(str(place + 1) for place in places[stack])
                kept.append(f"of {there} layers of the {stack} {count} kept, from the first: {which}")
    for name, value in weights_of(model).items():
        part, *below = name.split(".")
        found = theirs.get(name)
        if part in places and below and below[0].isdigit():
            found = theirs.get(".".join((part, str(places[part][int(below[0])]), *below[1:])))
        if found is not None and isinstance(model, Refits):
            found = model.refitted(name, found)
        names_labels = part == "classifier" or (part == "head" and bool(labels))
        if found is not None and pieces is not None and value.ndim and part in ("source", "target", "head"):
            side = "source" if part == "source" else "target"
            before_pieces, now = pieces[0][side], pieces[1][side]
            if found.shape == (len(before_pieces), *value.shape[1:]) and len(value) == len(now):
                known = {piece: row for row, piece in enumerate(before_pieces)}
                rows = [(row, known[piece]) for row, piece in enumerate(now) if piece in known]
                value[[row for row, _ in rows]] = found[[row for _, row in rows]]
                kept.append(f"{name}: {len(rows):,} of {len(now):,} rows kept, {len(now) - len(rows):,} new")
                continue
        if found is not None and found.shape == value.shape and (same or not names_labels):
            value.copy_(found)
        elif part in HEADS:
            fresh.add(part)
        else:
            faults.append(name)
    if faults:
        raise RunError(
            f"the weights in {base} do not fit the model: {faults[0]} and {len(faults) - 1} more are not there"
        )
    said = f"starting from {base}" + "".join(f"; {one}" for one in kept)
    return said + (f"; new and at random: {', '.join(sorted(fresh))}" if fresh else "")
