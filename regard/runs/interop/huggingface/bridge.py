"""A Hugging Face directory to a run, and a run to such a directory."""

import json
import re
from collections.abc import Iterator, Mapping
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
from regard.runs.interop.huggingface import gpt2, llama
from regard.runs.interop.huggingface.files import KINDS, Weights, open_weights
from regard.runs.interop.huggingface.names import Name
from regard.runs.run import CONFIG, MODEL, TOKENIZER, Run, build_model, load
from regard.text import TokenizerConfig, Vocabularies
from regard.text.tokenizer import Tokenizer

FAMILIES: dict[str, ModuleType] = {"gpt2": gpt2, "llama": llama}
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
    model = {"name": "gpt", **family.settings(theirs)}
    tokenizer, eos = _read_tokenizer(directory, theirs, model["vocab_size"])
    config = RunConfig(
        model=model,
        task="language",
        data=DataConfig(max_len=model["max_len"]),
        tokenizer=TokenizerConfig(kind="bpe", vocab_size=max(260, model["vocab_size"]), eos=eos),
    )
    with open_weights(directory) as weights:
        if model["layers"] > len(weights.shapes):
            raise RunError(f"config.json says {model['layers']} layers; {directory} has {len(weights.shapes)} weights")
        with torch.device("meta"):  # shapes alone: nothing is allocated until they are known to fit
            shapes = {name: tuple(value.shape) for name, value in weights_of(build_model(config)).items()}
        table = list(_table(family, model["layers"], shapes))
        stored = _check(weights, table, shapes, family)
        filled = build_model(config)
        _fill(filled, weights, table, stored)
    with whole_or_nothing(out):
        Vocabularies(tokenizer, tokenizer).save(out / TOKENIZER)
        write_tensors(out / MODEL, weights_of(filled))
        write_json(out / CONFIG, settings.to_mapping(config, nulls=True))
    return load(out, "cpu")


def export_run(run: Run, out: str | Path) -> Path:
    """A Hugging Face directory with the run's model and tokenizer, which `transformers` reads."""
    out = Path(out)
    run.check_task("language")
    if out.exists() and any(out.iterdir()):
        raise RunError(f"{out} is not empty: choose another directory")
    config = run.config.model_config()
    family = next((family for family in FAMILIES.values() if family.fits(config)), None)
    if family is None:
        raise ConfigError(f"model.positions={config.positions!r} cannot be said in any known family")
    tokenizer = run.vocabularies.target
    theirs = {
        **family.configuration(config),
        "bos_token_id": tokenizer.bos,
        "eos_token_id": tokenizer.eos,
        "dtype": "float32",
    }
    ours = weights_of(run.model)
    shapes = {name: tuple(value.shape) for name, value in ours.items()}
    tensors = {}
    for name in _table(family, config.layers, shapes):
        joined = torch.cat([ours[part].detach() for part in name.ours])
        tensors[name.theirs] = joined.T if name.transposed else joined
    with whole_directory(out) as aside:
        write_tensors(aside / "model.safetensors", tensors)
        write_json(aside / "config.json", theirs)
        (aside / "tokenizer.json").write_text(tokenizer.to_json(), encoding="utf-8")
        (eos,) = tokenizer.pieces([tokenizer.eos])
        write_json(aside / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": eos})
    return out


def _family(config: Mapping[str, Any]) -> ModuleType:
    kind = config.get("model_type")
    if kind not in FAMILIES:
        raise ConfigError(f"config.json: model_type={kind!r} is not supported{nearest(str(kind), FAMILIES)}")
    for field in ("auto_map", "quantization_config"):
        if config.get(field):
            raise ConfigError(f"config.json: {field} is not supported: the model is not of the plain {kind} kind")
    return FAMILIES[kind]


def _table(family: ModuleType, layers: int, shapes: Mapping[str, Any]) -> Iterator[Name]:
    """The names of this very model: rows for weights that it does not have, such as biases, are left out."""
    rows = [*family.OUTSIDE, *(row.of_layer(layer) for layer in range(layers) for row in family.LAYER)]
    rows.append(Name(family.HEAD, ("head.weight",)))
    found = [row for row in rows if row.ours[0] in shapes]
    covered = {name for row in found for name in row.ours}
    assert covered == shapes.keys(), f"no name for {sorted(shapes.keys() - covered)}"
    yield from found


def _check(
    weights: Weights, table: list[Name], shapes: Mapping[str, tuple[int, ...]], family: ModuleType
) -> dict[str, str]:
    """The name each weight is stored under; or every one that is missing, extra or misshapen, said at once."""
    bare = not any(name.startswith(family.PREFIX) for name in weights.shapes)
    stored = {row.theirs: row.theirs.removeprefix(family.PREFIX) if bare else row.theirs for row in table}
    faults = []
    for row in table:
        name = stored[row.theirs]
        wanted = (sum(shapes[part][0] for part in row.ours), *shapes[row.ours[0]][1:])
        wanted = wanted[::-1] if row.transposed else wanted
        if name not in weights.shapes:
            faults.append(f"missing {name}")
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
def _fill(model: nn.Module, weights: Weights, table: list[Name], stored: Mapping[str, str]) -> None:
    ours = weights_of(model)
    for row in table:
        theirs = weights[stored[row.theirs]]
        sizes = [ours[part].shape[0] for part in row.ours]
        for part, value in zip(row.ours, (theirs.T if row.transposed else theirs).split(sizes), strict=True):
            ours[part].copy_(value)


def _read_tokenizer(directory: Path, config: Mapping[str, Any], entries: int) -> tuple[Tokenizer, str | None]:
    """The directory's tokenizer, and the name of the token that ends a text where the configuration says which."""
    path = directory / "tokenizer.json"
    if not path.exists():
        raise RunError(f"{directory} is missing its tokenizer.json; `transformers` writes one with save_pretrained")
    try:
        inner = tokenizers.Tokenizer.from_str(json.dumps(read_json(path)))
    except Exception as error:  # the library raises plain Exception
        raise DataError(f"{path} is not a tokenizer: {error}") from None
    if inner.get_vocab_size() > entries:
        raise DataError(f"{path} has {inner.get_vocab_size()} entries; the model's vocab_size={entries} is fewer")
    inner.no_padding()
    inner.no_truncation()
    index = config.get("eos_token_id")
    index = index[0] if isinstance(index, list) and index else index
    name = inner.id_to_token(index) if isinstance(index, int) and index >= 0 else None
    return Tokenizer(inner, eos=name), name
