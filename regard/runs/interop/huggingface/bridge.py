"""A Hugging Face directory to a run, and a run to such a directory."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any

import tokenizers
import torch
from torch import nn

from regard import config as settings
from regard.errors import ConfigError, DataError, RunError, nearest
from regard.runs.checkpoint import weights_of
from regard.runs.config import DataConfig, RunConfig
from regard.runs.files import read_json, whole_directory, whole_or_nothing, write_json, write_tensors
from regard.runs.interop.huggingface import bert, distilbert, encoders, gpt2, llama, roberta, vit
from regard.runs.interop.huggingface.files import KINDS, Weights, open_weights
from regard.runs.interop.huggingface.names import Name
from regard.runs.run import CONFIG, MODEL, TOKENIZER, Run, build_model, load
from regard.text import TokenizerConfig, Vocabularies
from regard.text.tokenizer import Tokenizer

ENCODERS: dict[str, ModuleType] = {"bert": bert, "distilbert": distilbert, "roberta": roberta}
FAMILIES: dict[str, ModuleType] = {"gpt2": gpt2, "llama": llama, "vit": vit, **ENCODERS}
SHOWN = 20
"""How many faults are named one by one."""


def import_directory(directory: str | Path, out: str | Path) -> Run:
    """A new run in `out` with the model and the tokenizer of a Hugging Face directory."""
    directory, out = Path(directory), Path(out)
    if not directory.is_dir():
        raise RunError(f"no such directory: {directory}")
    if (out / CONFIG).exists():
        raise RunError(f"{out} already holds a run: choose another directory")
    theirs = read_json(directory / "config.json")
    family = _family(theirs)
    if family is vit:
        from regard.runs.interop.huggingface.pictures import import_pictures

        return import_pictures(directory, out, theirs)
    model = {"name": family.MODEL, **family.settings(theirs)}
    tokenizer, eos = _read_tokenizer(directory, theirs, model["vocab_size"], family)
    with open_weights(directory) as weights:
        if model["layers"] > len(weights.shapes):
            raise RunError(f"config.json says {model['layers']} layers; {directory} has {len(weights.shapes)} weights")
        config = _config(family, model, theirs, directory, weights, eos)
        model = config.model
        with torch.device("meta"):  # shapes alone: nothing is allocated until they are known to fit
            shapes = {name: tuple(value.shape) for name, value in weights_of(build_model(config)).items()}
        table = list(table_of(family, model, shapes))
        stored = check_weights(weights, table, shapes, family)
        filled = build_model(config)
        fill(filled, weights, table, stored)
    with whole_or_nothing(out):
        Vocabularies(tokenizer, tokenizer).save(out / TOKENIZER)
        write_tensors(out / MODEL, weights_of(filled))
        write_json(out / CONFIG, settings.to_mapping(config, nulls=True))
    return load(out, "cpu")


def _config(
    family: ModuleType,
    model: dict[str, Any],
    theirs: dict[str, Any],
    directory: Path,
    weights: Weights,
    eos: str | None,
) -> RunConfig:
    """The run's configuration: of an encoder, with the head that its weights tell of."""
    kind, task, length = "bpe", family.TASK, model["max_len"]
    if family in ENCODERS.values():
        pooling = encoders.pooling_of(directory)
        length = min(length, pooling.pop("length", length))
        model = {**model, **family.found(theirs, weights.shapes), **pooling}
        kind, task = "wordpiece" if family is not roberta else "bpe", family.task(model)
    return RunConfig(
        model=model,
        task=task,
        data=DataConfig(max_len=length),
        tokenizer=TokenizerConfig(kind=kind, vocab_size=max(260, model["vocab_size"]), eos=eos),  # type: ignore[arg-type]
    )


def export_run(run: Run, out: str | Path) -> Path:
    """A Hugging Face directory with the run's model and tokenizer, which `transformers` reads."""
    out = Path(out)
    if out.exists() and any(out.iterdir()):
        raise RunError(f"{out} is not empty: choose another directory")
    if run.config.task == "images":
        from regard.runs.interop.huggingface.pictures import export_pictures

        return export_pictures(run, out)
    config = run.config.model_config()
    family = next((family for family in FAMILIES.values() if family.fits(config)), None)
    if family is None:
        raise ConfigError(f"a model '{run.config.model['name']}' like this cannot be said in any known family")
    tokenizer = run.vocabularies.target
    theirs = {
        **family.configuration(config),
        "bos_token_id": tokenizer.bos,
        "eos_token_id": tokenizer.eos,
        "dtype": "float32",
    }
    names: dict[str, Any] = {"eos_token": tokenizer.pieces([tokenizer.eos])[0]}
    if family in ENCODERS.values():
        names = encoders.tokenizer_settings(tokenizer, segments=config.segments > 1)
        if theirs.setdefault("pad_token_id", tokenizer.pad) != tokenizer.pad:
            raise ConfigError(
                f"model.position_offset={config.position_offset} cannot be said in RoBERTa, only {tokenizer.pad + 1}: "
                f"one more than the padding's id"
            )
    ours = weights_of(run.model)
    shapes = {name: tuple(value.shape) for name, value in ours.items()}
    tensors = {}
    for name in table_of(family, asdict(config), shapes):
        tensors[name.theirs] = name.join(ours)
    if family in ENCODERS.values() and config.head == "none":  # without a head, names stand for themselves
        tensors = {name.removeprefix(family.PREFIX): value for name, value in tensors.items()}
    with whole_directory(out) as aside:
        write_tensors(aside / "model.safetensors", tensors)
        write_json(aside / "config.json", theirs)
        (aside / "tokenizer.json").write_text(tokenizer.to_json(), encoding="utf-8")
        write_json(aside / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", **names})
    return out


def _family(config: Mapping[str, Any]) -> ModuleType:
    kind = config.get("model_type")
    if kind not in FAMILIES:
        raise ConfigError(f"config.json: model_type={kind!r} is not supported{nearest(str(kind), FAMILIES)}")
    for field in ("auto_map", "quantization_config"):
        if config.get(field):
            raise ConfigError(f"config.json: {field} is not supported: the model is not of the plain {kind} kind")
    return FAMILIES[kind]


def table_of(family: ModuleType, model: Mapping[str, Any], shapes: Mapping[str, Any]) -> Iterator[Name]:
    """The names of this very model: rows for weights that it does not have, such as biases, are left out."""
    rows = list(family.outside(model) if family in ENCODERS.values() else family.OUTSIDE)
    for count, stack in family.STACKS.items():
        rows += [row.of_layer(layer) for layer in range(model[count]) for row in stack]
    rows.append(Name(family.HEAD, ("head.weight",)))
    found = [row for row in rows if row.ours[0] in shapes]
    covered = {name for row in found for name in row.ours}
    assert covered == shapes.keys(), f"no name for {sorted(shapes.keys() - covered)}"
    yield from found


def check_weights(
    weights: Weights, table: list[Name], shapes: Mapping[str, tuple[int, ...]], family: ModuleType
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
    known = {*stored.values(), family.HEAD}  # a head that is tied may be stored all the same
    faults += [
        f"extra {name}" for name in weights.shapes if name not in known and not re.fullmatch(family.IGNORED, name)
    ]
    if faults:
        shown = "; ".join(faults[:SHOWN]) + (f"; and {len(faults) - SHOWN} more" if len(faults) > SHOWN else "")
        raise RunError(f"the weights in {weights.where} do not fit its config.json: {shown}")
    return stored


@torch.no_grad()
def fill(model: nn.Module, weights: Weights, table: list[Name], stored: Mapping[str, str]) -> None:
    ours = weights_of(model)
    shapes = {name: tuple(value.shape) for name, value in ours.items()}
    for row in table:
        if (name := stored[row.theirs]) in weights.shapes:
            for part, value in row.split(weights[name], shapes).items():
                ours[part].copy_(value)


def _read_tokenizer(
    directory: Path, config: Mapping[str, Any], entries: int, family: ModuleType
) -> tuple[Tokenizer, str | None]:
    """The directory's tokenizer, and the name of the token that ends a text where the configuration says which."""
    path = directory / "tokenizer.json"
    if family in ENCODERS.values():
        inner = encoders.read_tokenizer(directory)
    elif not path.exists():
        raise RunError(f"{directory} is missing its tokenizer.json; `transformers` writes one with save_pretrained")
    else:
        try:
            inner = tokenizers.Tokenizer.from_str(json.dumps(read_json(path)))
        except Exception as error:  # the library raises plain Exception
            raise DataError(f"{path} is not a tokenizer: {error}") from None
    if inner.get_vocab_size() > entries:
        raise DataError(f"{path} has {inner.get_vocab_size()} entries; the model's vocab_size={entries} is fewer")
    inner.no_padding()
    inner.no_truncation()
    if family in ENCODERS.values():
        return Tokenizer(inner), None
    index = config.get("eos_token_id")
    index = index[0] if isinstance(index, list) and index else index
    name = inner.id_to_token(index) if isinstance(index, int) and index >= 0 else None
    return Tokenizer(inner, eos=name), name
