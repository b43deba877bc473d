"""Directories of sentence-transformers: how the vectors of a text's tokens become one, both ways."""

from collections.abc import Callable
from pathlib import Path

from regard.config import JsonObject
from regard.errors import ConfigError
from regard.interop.huggingface.config_fields import Json, is_whole, read_any_json, read_json, read_json_if_there
from regard.models.bert import BertConfig
from regard.runs.files import write_json

MODULES, POOLING, LENGTH = "modules.json", "1_Pooling", "sentence_bert_config.json"
PROMPTS = "config_sentence_transformers.json"
KINDS = ("Transformer", "Pooling", "Normalize")
MODES = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "first"}
NAMES = {"mean": "mean", "cls": "first"}
"""The same in newer directories, which have one `pooling_mode`."""


def read_pooling(directory: Path, tell: Callable[[str], object], *, lower_case: bool) -> JsonObject:
    """`pooling`, and `length`, of how many tokens; each where the directory says it. `lower_case` says whether the
    tokenizer makes a text lower case, so that it changes nothing to do it before."""
    found: JsonObject = {}
    if (directory / MODULES).exists():
        _check_modules(read_any_json(directory / MODULES), tell)
    if (directory / POOLING / "config.json").exists():
        found["pooling"] = _mode(read_json(directory / POOLING / "config.json"))
    if read_json_if_there(directory / LENGTH).get("do_lower_case") and not lower_case:
        raise ConfigError(f"{LENGTH}: do_lower_case=true is not supported with a tokenizer that keeps capitals")
    if name := read_json_if_there(directory / PROMPTS).get("default_prompt_name"):
        raise ConfigError(
            f"{PROMPTS}: default_prompt_name={name!r} is not supported: write it before each text instead"
        )
    # Newer directories leave the length to the tokenizer's settings.
    for name, field in ((LENGTH, "max_seq_length"), ("tokenizer_config.json", "model_max_length")):
        length = read_json_if_there(directory / name).get(field)
        if (directory / LENGTH).exists() and "length" not in found and is_whole(length, 2):
            found["length"] = length
    return found


def write_pooling(out: Path, config: BertConfig, length: int) -> None:
    """What makes a directory one of sentence-transformers'."""
    paths = ("", POOLING, "2_Normalize")
    write_json(
        out / MODULES,
        [
            {"idx": index, "name": str(index), "path": path, "type": f"sentence_transformers.models.{kind}"}
            for index, (kind, path) in enumerate(zip(KINDS, paths, strict=True))
        ],
    )
    write_json(out / LENGTH, {"max_seq_length": length, "do_lower_case": False})
    for path in paths[1:]:
        (out / path).mkdir()
    modes = {mode: config.pooling == ours for mode, ours in MODES.items()}
    others = {f"pooling_mode_{kind}_tokens": False for kind in ("max", "mean_sqrt_len")}
    write_json(out / POOLING / "config.json", {"word_embedding_dimension": config.width, **modes, **others})
    write_json(out / paths[2] / "config.json", {})


def _check_modules(modules: object, tell: Callable[[str], object]) -> None:
    """Refuse what would make other vectors than ours, such as one more matrix."""
    if not isinstance(modules, list):
        raise ConfigError(f"{MODULES} must be a list")
    kinds = [str(one.get("type")).rpartition(".")[2] if isinstance(one, dict) else one for one in modules]
    if tuple(kinds) not in (KINDS, KINDS[:2]):
        raise ConfigError(f"{MODULES}: {kinds!r} is not supported, only {', '.join(KINDS)} in this order")
    for module, path in zip(modules, ("", POOLING), strict=False):
        if module.get("path", path) != path:
            raise ConfigError(f"{MODULES}: path={module['path']!r} is not supported, only {path!r}")
    if len(kinds) < len(KINDS):
        tell(f"{MODULES} has no Normalize: vectors are of length one here all the same, unless normalise=False is said")


def _mode(config: Json) -> str:
    where = f"{POOLING}/config.json"
    modes = [key for key, value in config.items() if key.startswith("pooling_mode_") and value is True]
    if "pooling_mode" in config:
        name = config["pooling_mode"]
        if not isinstance(name, str) or name not in NAMES:
            raise ConfigError(f"{where}: pooling_mode={name!r} is not supported, only {', '.join(NAMES)}")
        if modes and [MODES.get(mode) for mode in modes] != [NAMES[name]]:
            raise ConfigError(f"{where}: pooling_mode={name!r} and {modes} disagree")
        return NAMES[name]
    if len(modes) != 1 or modes[0] not in MODES:
        raise ConfigError(f"{where}: {modes} is not supported, only one of {', '.join(MODES)}")
    return MODES[modes[0]]
