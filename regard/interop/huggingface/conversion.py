"""A Hugging Face directory to a run, and a run to such a directory."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tokenizers

from regard.config import JsonObject
from regard.decode.config import DecodeConfig
from regard.errors import ConfigError, RunError, nearest, warn
from regard.interop.huggingface import bert
from regard.interop.huggingface.bart import BART, MARIAN
from regard.interop.huggingface.bert import BERT, DISTILBERT, ROBERTA
from regard.interop.huggingface.config_fields import Json, read_json, resolve_aliases
from regard.interop.huggingface.generation_config import (
    decode_settings,
    decoding_fields,
    generation_settings,
    warn_not_taken_over,
)
from regard.interop.huggingface.gpt2_llama import GPT2, LLAMA, with_equal_heads
from regard.interop.huggingface.sentence_transformers import read_pooling, write_pooling
from regard.interop.huggingface.t5 import T5
from regard.interop.huggingface.tokenizer_files import (
    encoder_tokenizer,
    keep_files,
    read_tokenizer,
    read_vocabularies,
    special_tokens,
    write_vocabularies,
)
from regard.interop.huggingface.vit import PREPROCESSOR, VIT, image_settings, preprocessor_config, read_preprocessor
from regard.interop.huggingface.weights import Family, Weights, model_from_weights, open_weights, weights_by_their_names
from regard.interop.huggingface.whisper import (
    WHISPER,
    byte_level_tokenizer,
    check_preprocessor,
    generation_fields,
    with_timestamps,
)
from regard.interop.huggingface.whisper import preprocessor_config as feature_extractor_config
from regard.models.whisper import STRIDE
from regard.runs.checkpoint import weights_of
from regard.runs.files import (
    CONFIG,
    TOKENIZER,
    whole_directory,
    whole_or_nothing,
    write_config,
    write_json,
    write_model,
    write_tensors,
)
from regard.tasks.config import RunConfig
from regard.tasks.run import Run, load
from regard.tasks.spec import TASKS, field_names
from regard.text import Tokenizer, Vocabularies

FAMILIES = {
    **{"gpt2": GPT2, "llama": LLAMA, "marian": MARIAN, "bart": BART, "t5": T5},
    **{"bert": BERT, "distilbert": DISTILBERT, "roberta": ROBERTA, "vit": VIT, "whisper": WHISPER},
}
"""By `model_type`."""


def import_directory(directory: str | Path, out: str | Path, tell: Callable[[str], object] = warn) -> Run:
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
    said = read_json(path) if path.exists() else None
    # One file alone says how to decode: what the other says of it is not read.
    own, decoding = family.generation(theirs, said, decoding_fields(theirs, said))
    theirs = resolve_aliases(theirs, family.aliases)
    model = {"name": family.model, **family.settings(theirs), **own}
    if TASKS.named(family.task).has_tokenizer:
        vocabularies, sections = _text_settings(directory, family, model, decoding, tell)
    else:
        vocabularies, sections = None, {}
    with open_weights(directory) as weights:
        config = _run_config(directory, family, model, theirs, weights, sections)
        made = model_from_weights(config, weights, family, tell)
    with whole_or_nothing(out):
        if vocabularies is not None:
            vocabularies.save(out / TOKENIZER)
            keep_files(directory, out, vocabularies)
        write_model(out, weights_of(made))
        write_config(out, config.to_mapping())
    del made  # so that no two of it are in memory
    return load(out, "cpu")


def _whisper_tokenizer(directory: Path, model: Mapping[str, Any]) -> tokenizers.Tokenizer:
    path = directory / "tokenizer.json"
    inner = read_tokenizer(path) if path.exists() else byte_level_tokenizer(directory)
    return with_timestamps(inner, model["vocab_size"], model["frames"] // STRIDE)


def _family(config: Json) -> Family:
    kind = config.get("model_type")
    if not isinstance(kind, str) or kind not in FAMILIES:
        raise ConfigError(f"config.json: model_type={kind!r} is not supported{nearest(str(kind), FAMILIES)}")
    for field in ("auto_map", "quantization_config", "per_layer_config"):
        if config.get(field):
            raise ConfigError(f"config.json: {field} is not supported: the model is not of the plain {kind} kind")
    return FAMILIES[kind]


def _text_settings(
    directory: Path, family: Family, model: Mapping[str, Any], decoding: Json, tell: Callable[[str], object]
) -> tuple[Vocabularies, JsonObject]:
    """The tokenizers, and what goes with text: their settings, how to decode, and of encoders how to pool."""
    task, encodes = TASKS.named(family.task), family.model == "bert"
    one = model.get("vocab_size")
    entries = (one, one) if one is not None else (model["source_vocab_size"], model["target_vocab_size"])
    opened = encoder_tokenizer(directory) if encodes else None
    if family is WHISPER:
        check_preprocessor(directory, model["bands"], model["frames"])
        opened = _whisper_tokenizer(directory, model)
    vocabularies, tokenizer = read_vocabularies(
        directory, decoding, entries=entries, start=family.start, opened=opened, tell=tell
    )
    decode, pooling = DecodeConfig(), {}
    if task.has_lengths or family is WHISPER:
        with _named_files():
            decode = decode_settings(decoding, model["max_len"], entries[1], tell)
    elif task.keeps_decoding:
        warn_not_taken_over(decoding, tell)
    if encodes:
        pooling = read_pooling(directory, tell, lower_case="".join(vocabularies.source.split("A")) == "a")
    return vocabularies, {"tokenizer": tokenizer, "decode": decode, "pooling": pooling}


def _run_config(
    directory: Path,
    family: Family,
    model: JsonObject,
    theirs: Json,
    weights: Weights,
    sections: Mapping[str, Any],
) -> RunConfig:
    """The run's configuration, with what only its weights tell, such as the head of an encoder."""
    if not sections:
        images = image_settings(read_preprocessor(directory), model["image_size"], model["channels"])
        model = {**model, **family.found(theirs, weights.shapes)}
        return RunConfig(model=model, task=family.task, images=images)
    with _named_files():
        pooling = {**sections["pooling"]}
        length = min(model["max_len"], pooling.pop("length", model["max_len"]))
        model = {**model, **family.found(theirs, weights.shapes), **pooling}
        task = bert.TASKS[model["head"]] if family.model == "bert" else family.task
        kind = TASKS.named(task).data
        data = kind(max_len=length) if "max_len" in field_names(kind) else kind()
        shared = {name: sections[name] for name in ("tokenizer", "decode")}
        config = RunConfig(model=model, task=task, data=data, **shared)
        config.model_config()  # before anything is built
    return config


@contextmanager
def _named_files() -> Iterator[None]:
    """Name the files whose values our settings refuse."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"what config.json and generation_config.json say makes no run: {error}") from None


def export_run(run: Run, out: str | Path) -> Path:
    """A Hugging Face directory with the run's model and tokenizer, which `transformers` reads."""
    out, name = Path(out), run.config.model["name"]
    if out.exists() and any(out.iterdir()):
        raise RunError(f"{out} is not empty: choose another directory")
    config: Any = run.config.model_config()
    family = next((one for one in FAMILIES.values() if name == one.model and one.fits(config)), None)
    if family is None:
        raise ConfigError(f"a model '{name}' like this is not supported by any known family")
    if family is LLAMA:
        config = with_equal_heads(config)
    headless = config.head == "none" if family.model == "bert" else family is VIT and not config.labels
    names, written = {}, {"config.json": family.configuration(config)}
    if run.task.has_tokenizer:
        names = _add_special_tokens(run, family, config, written)
    else:
        written[PREPROCESSOR] = preprocessor_config(run.config.images, config.image_size, config.channels)
    tensors = weights_by_their_names(run.model, config, family, bare=headless)
    with whole_directory(out) as aside:
        write_tensors(aside / "model.safetensors", tensors)
        for file, values in written.items():
            write_json(aside / file, values)
        if run.task.has_tokenizer:
            write_vocabularies(run.vocabularies, run.directory, aside, names)
            if headless:
                write_pooling(aside, config, run.config.data.max_len)
    return out


def _add_special_tokens(run: Run, family: Family, config: Any, written: dict[str, dict[str, object]]) -> Json:
    """The names of special tokens, for the tokenizer's settings; their ids go into the configurations."""
    tokenizer, theirs = run.vocabularies.target, written["config.json"]
    theirs |= {"bos_token_id": tokenizer.bos, "eos_token_id": tokenizer.eos, "dtype": "float32"}
    if run.task.sides == 2:
        theirs |= {
            "bos_token_id": tokenizer.opening[0] if tokenizer.opening else tokenizer.bos,
            "pad_token_id": tokenizer.pad,
            "decoder_start_token_id": tokenizer.bos,
            "forced_eos_token_id": tokenizer.eos if run.config.decode.force_end else None,
        }
        written["generation_config.json"] = generation_settings(
            run.config.decode, start=tokenizer.bos, pad=tokenizer.pad, eos=tokenizer.eos
        )
    if family is WHISPER:
        written["generation_config.json"] |= generation_fields(config, run.config.decode, tokenizer)
        written[PREPROCESSOR] = feature_extractor_config(config)
        return {"tokenizer_class": "WhisperTokenizer", **_named_tokens(tokenizer, "bos", "eos", "pad", "unk")}
    if family.model == "bert":
        if theirs.setdefault("pad_token_id", tokenizer.pad) != tokenizer.pad:
            raise ConfigError(
                f"model.position_offset={config.position_offset} is not supported by RoBERTa, only "
                f"{tokenizer.pad + 1}: one more than the padding's id"
            )
        return special_tokens(tokenizer, segments=config.segments > 1)
    return _named_tokens(tokenizer, "eos", *(["pad"] if run.task.sides == 2 else []))


def _named_tokens(tokenizer: Tokenizer, *roles: str) -> Json:
    return {f"{role}_token": tokenizer.pieces([getattr(tokenizer, role)])[0] for role in roles}
