"""A Hugging Face directory to a run, and a run to such a directory."""

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from regard.decode.config import DecodeConfig
from regard.errors import ConfigError, RunError, nearest
from regard.interop.huggingface import bart, bert, distilbert, encoders, gpt2, llama, marian, roberta, t5, vit
from regard.interop.huggingface.files import Weights, open_weights, read_json
from regard.interop.huggingface.fitting import filled, unfilled
from regard.interop.huggingface.generation import (
    decode_settings,
    generation_settings,
    not_taken_over,
    said_of_decoding,
)
from regard.interop.huggingface.names import plain
from regard.interop.huggingface.pictures import export_pictures, import_pictures
from regard.interop.huggingface.sentences import pooling_of, write_pooling
from regard.interop.huggingface.vocabulary import keep_files, read_vocabularies, write_vocabularies
from regard.runs.checkpoint import weights_of
from regard.runs.files import CONFIG, MODEL, TOKENIZER, whole_directory, whole_or_nothing, write_json, write_tensors
from regard.tasks.config import RunConfig
from regard.tasks.run import Run, load
from regard.tasks.spec import TASKS
from regard.text import TokenizerConfig

FAMILIES: dict[str, ModuleType] = {
    **{"gpt2": gpt2, "llama": llama},
    **{"marian": marian, "bart": bart, "t5": t5},
    **{"bert": bert, "distilbert": distilbert, "roberta": roberta},
    "vit": vit,
}


def import_directory(directory: str | Path, out: str | Path, tell: Callable[[str], object] = warnings.warn) -> Run:
    """A new run in `out` with the model and the tokenizer of a Hugging Face directory.

    What cannot be taken over and changes outputs is refused by name; `tell` is told what is read or done otherwise.
    """
    directory, out = Path(directory), Path(out)
    if not directory.is_dir():
        raise RunError(f"no such directory: {directory}")
    if (out / CONFIG).exists():
        raise RunError(f"{out} already holds a run: choose another directory")
    if (directory / "adapter_config.json").exists():
        raise RunError(
            f"{directory} has an adapter, which adapter_config.json describes: merge it into its model first"
        )
    theirs = read_json(directory / "config.json")
    family = _family(theirs)
    path = directory / "generation_config.json"
    decoding = said_of_decoding(theirs, read_json(path) if path.exists() else None)
    # One file alone says how to decode: what the other says of it is not read.
    theirs = plain(theirs, getattr(family, "ALIASES", {}))
    if family is vit:
        return import_pictures(directory, out, theirs)
    task, model = TASKS.named(family.TASK), {"name": family.MODEL, **family.settings(theirs)}
    vocabularies, tokenizer = read_vocabularies(
        directory,
        decoding,
        entries=_entries(model),
        start=family.START if task.has_lengths else None,
        opened=encoders.encoder_tokenizer(directory) if family.MODEL == "bert" else None,
        tell=tell,
    )
    decode = DecodeConfig()
    if task.has_lengths:
        with _said_there():
            decode = decode_settings(decoding, model["max_len"], _entries(model)[1], tell)
    elif task.keeps_decoding:
        not_taken_over(decoding, tell)
    pooling = {}
    if family.MODEL == "bert":
        pooling = pooling_of(directory, tell, lower_case="".join(vocabularies.source.split("A")) == "a")
    with open_weights(directory) as weights:
        with _said_there():
            config = _config(family, model, theirs, pooling, weights, tokenizer, decode)
            config.model_config()  # before anything is built
        made = filled(config, weights, family, tell)
    with whole_or_nothing(out):
        vocabularies.save(out / TOKENIZER)
        keep_files(directory, out, vocabularies)
        write_tensors(out / MODEL, weights_of(made))
        write_json(out / CONFIG, config.to_mapping())
    del made  # so that no two of it are in memory
    return load(out, "cpu")


@contextmanager
def _said_there() -> Iterator[None]:
    """What our settings refuse is said of the files that it comes from."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"what config.json and generation_config.json say makes no run: {error}") from None


def _entries(model: Mapping[str, Any]) -> tuple[int, int]:
    """The sizes of the source's table and of the target's."""
    one = model.get("vocab_size")
    return (one, one) if one is not None else (model["source_vocab_size"], model["target_vocab_size"])


def _config(
    family: ModuleType,
    model: dict[str, Any],
    theirs: dict[str, Any],
    pooling: Mapping[str, Any],
    weights: Weights,
    tokenizer: TokenizerConfig,
    decode: DecodeConfig,
) -> RunConfig:
    """The run's configuration, with what only its weights tell, such as the head of an encoder."""
    task, length = family.TASK, model["max_len"]
    if family.MODEL == "bert":
        length = min(length, pooling.get("length", length))
        pooled = {name: value for name, value in pooling.items() if name != "length"}
        model = {**model, **family.found(theirs, weights.shapes), **pooled}
        task = family.task(model)
    elif hasattr(family, "found"):
        model = {**model, **family.found(theirs, weights.shapes)}
    data = TASKS.named(task).data(max_len=length)
    return RunConfig(model=model, task=task, data=data, tokenizer=tokenizer, decode=decode)


def export_run(run: Run, out: str | Path) -> Path:
    """A Hugging Face directory with the run's model and tokenizer, which `transformers` reads."""
    out = Path(out)
    if out.exists() and any(out.iterdir()):
        raise RunError(f"{out} is not empty: choose another directory")
    if not run.task.has_tokenizer:
        return export_pictures(run, out)
    config: Any = run.config.model_config()
    fitting = (one for one in FAMILIES.values() if run.config.model["name"] == one.MODEL and one.fits(config))
    family = next(fitting, None)
    if family is None:
        raise ConfigError(f"a model '{run.config.model['name']}' like this cannot be said in any known family")
    if family is llama:
        config = llama.with_equal_heads(config)
    tokenizer = run.vocabularies.target
    theirs = {
        **family.configuration(config),
        "bos_token_id": tokenizer.bos,
        "eos_token_id": tokenizer.eos,
        "dtype": "float32",
    }
    names: dict[str, Any] = {"eos_token": tokenizer.pieces([tokenizer.eos])[0]}
    if run.task.sides == 2:
        theirs |= _special_tokens(run)
        names["pad_token"] = tokenizer.pieces([tokenizer.pad])[0]
    if family.MODEL == "bert":
        names = encoders.tokenizer_settings(tokenizer, segments=config.segments > 1)
        if theirs.setdefault("pad_token_id", tokenizer.pad) != tokenizer.pad:
            raise ConfigError(
                f"model.position_offset={config.position_offset} cannot be said in RoBERTa, only {tokenizer.pad + 1}: "
                f"one more than the padding's id"
            )
    headless = family.MODEL == "bert" and config.head == "none"
    tensors = unfilled(run.model, config, family, bare=headless)
    with whole_directory(out) as aside:
        write_tensors(aside / "model.safetensors", tensors)
        write_json(aside / "config.json", theirs)
        if run.task.sides == 2:
            write_json(aside / "generation_config.json", _generation(run))
        if headless:
            write_pooling(aside, config, run.config.data.max_len)
        write_vocabularies(run.vocabularies, run.directory, aside, names)
    return out


def _special_tokens(run: Run) -> dict[str, Any]:
    """The tokens by which an encoder-decoder begins, ends and is padded."""
    tokenizer = run.vocabularies.target
    return {
        "bos_token_id": tokenizer.opening[0] if tokenizer.opening else tokenizer.bos,
        "pad_token_id": tokenizer.pad,
        "decoder_start_token_id": tokenizer.bos,
        "forced_eos_token_id": tokenizer.eos if run.config.decode.force_end else None,
    }


def _generation(run: Run) -> dict[str, Any]:
    tokenizer = run.vocabularies.target
    return generation_settings(run.config.decode, start=tokenizer.bos, pad=tokenizer.pad, eos=tokenizer.eos)


def _family(config: Mapping[str, Any]) -> ModuleType:
    kind = config.get("model_type")
    if not isinstance(kind, str) or kind not in FAMILIES:
        raise ConfigError(f"config.json: model_type={kind!r} is not supported{nearest(str(kind), FAMILIES)}")
    for field in ("auto_map", "quantization_config", "per_layer_config"):
        if config.get(field):
            raise ConfigError(f"config.json: {field} is not supported: the model is not of the plain {kind} kind")
    return FAMILIES[kind]
