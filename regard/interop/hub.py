"""Models by their names on the Hugging Face hub: `regard.load("hf:NAME")`. What was fetched once is kept.

Only JSON, tokenizer files and safetensors are fetched, never pickle and never code. A model that the hub's cache has is
used as it is there, without asking the network; where that is switched off (HF_HUB_OFFLINE), it stays so.
"""

import hashlib
import re
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from regard.config import path_of
from regard.errors import ConfigError, RunError, warn
from regard.runs.files import CONFIG, read_json
from regard.tasks.run import Run
from regard.tasks.run import load as load_run

PREFIX = "hf:"
"""Before a name on the hub or a directory: not a run, but a checkpoint in transformers' format."""

FETCHED = ("*.json", "*.txt", "*.model", "model.safetensors", "model-*.safetensors")
LEFT = ("onnx/*", "openvino/*", "*/model.safetensors", "*/model-*.safetensors")
"""Other engines' files, and weights of other parts than the model itself."""


def looks_like_name(text: str) -> bool:
    """Whether a text could be a model's name on the hub, such as `gpt2` or `sentence-transformers/all-MiniLM-L6-v2`."""
    return bool(re.fullmatch(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?", text)) and not text.endswith((".", ".json"))


def load(
    directory: str | Path,
    device: str = "auto",
    precision: str = "float32",
    tell: Callable[[str], object] = warn,
    *,
    verify: bool = True,
) -> Run:
    """The run in `directory`, ready to use; or `hf:NAME`, a model by its name on the Hugging Face hub.

    `precision` is that of its weights: `bfloat16` halves them, for a GPU or a CPU that multiplies such numbers; `int8`,
    for a CPU, has matrices of whole numbers with a scale for each row. `auto` is bfloat16 on a GPU that has it, where
    the model allows, and float32 elsewhere. Log-probabilities are float32 in any case. `tell` hears what is slow here.
    `verify` compares the weights with the digest that they were written with.

    A model of the hub is fetched once, imported once, and found again in the hub's cache. `hf:` may also stand before
    a directory in transformers' format.
    """
    name = str(directory)
    if name.startswith(PREFIX):
        directory = imported(name.removeprefix(PREFIX), tell)
    elif not path_of(directory, "the run to load").exists() and looks_like_name(name):
        raise RunError(f"no such run: {directory}; a model of that name on the Hugging Face hub is {PREFIX}{name}")
    return load_run(directory, device, precision, tell, verify=verify)


def imported(name: str, tell: Callable[[str], object] = warn) -> Path:
    """The run that was made of a checkpoint, made if it is not there yet; it lies beside the hub's cache."""
    from regard.interop.huggingface import import_directory

    directory = checkpoint(name, tell=tell)
    state = "\n".join(f"{path} {path.stat().st_size} {path.stat().st_mtime_ns}" for path in sorted(directory.iterdir()))
    key = hashlib.sha256(f"{directory.resolve()}\n{state}".encode()).hexdigest()[:16]
    run = Path(_hub().constants.HF_HOME) / "regard" / f"{Path(name).name}-{key}"
    if not (run / CONFIG).exists():
        import_directory(directory, run, tell)
    return run


def checkpoint(
    name: str, *, revision: str | None = None, fresh: bool = False, tell: Callable[[str], object] = warn
) -> Path:
    """The directory of a checkpoint: `name` itself where that is one, else what the hub has by this name.

    What is in the cache is taken unless a `fresh` look at the hub is asked for; `revision` is a branch, tag or commit.
    """
    if Path(name).is_dir():
        if revision is not None:
            raise ConfigError(f"revision={revision} is of a model on the hub, and {name} is a directory here")
        return Path(name)
    if not looks_like_name(name):
        raise RunError(f"no such directory: {name}, and no model on the hub can have that name")
    hub = _hub()
    if not fresh or hub.constants.HF_HUB_OFFLINE:
        if found := _cached(hub, name, revision):
            return found
        if hub.constants.HF_HUB_OFFLINE:
            raise RunError(
                f"no directory {name} here, and no such model in {hub.constants.HF_HUB_CACHE}; the hub is not asked, "
                "since HF_HUB_OFFLINE is set"
            )
    return _fetched(hub, name, revision, tell)


def _hub() -> Any:
    if find_spec("huggingface_hub") is None:
        raise ConfigError("huggingface_hub is not here: pip install 'regard[hf]'")
    import huggingface_hub
    import huggingface_hub.constants

    return huggingface_hub


def _cached(hub: Any, name: str, revision: str | None) -> Path | None:
    """What the cache has of a model, whoever put it there, where its weights are whole."""
    cache = hub.constants.HF_HUB_CACHE
    config = hub.try_to_load_from_cache(name, "config.json", cache_dir=cache, revision=revision)
    if not isinstance(config, str):
        return None
    found = Path(config).parent
    index = found / "model.safetensors.index.json"
    shards = set(read_json(index)["weight_map"].values()) if index.is_file() else {"model.safetensors"}
    return found if all((found / Path(shard).name).is_file() for shard in shards) else None


def _fetched(hub: Any, name: str, revision: str | None, tell: Callable[[str], object]) -> Path:
    try:
        info = hub.HfApi().model_info(name, revision=revision)
        files = [one.rfilename for one in info.siblings or ()]
        weights = [file for file in files if re.fullmatch(r"model(-\S+)?\.safetensors", file)]
        if "config.json" not in files or not weights:
            others = [file for file in files if file.endswith((".bin", ".pt", ".ckpt", ".safetensors", ".gguf"))]
            raise RunError(
                f"{name} on the hub has no config.json with model.safetensors, which is all that is read from there"
                + (f"; its weights are {', '.join(others[:4])}" if others else "")
            )
        tell(f"fetching {name} at {info.sha[:12]} from {hub.constants.ENDPOINT}")
        kept = {"allow_patterns": list(FETCHED), "ignore_patterns": list(LEFT)}
        return Path(hub.snapshot_download(name, revision=revision or "main", **kept))
    except hub.errors.GatedRepoError:
        raise RunError(f"{name} on the hub is for those who were let in: ask there, then `hf auth login`") from None
    except hub.errors.RevisionNotFoundError:
        raise RunError(f"{name} on the hub has no revision {revision}") from None
    except hub.errors.RepositoryNotFoundError:
        raise RunError(f"no directory {name} here, and no model of that name on {hub.constants.ENDPOINT}") from None
    except (hub.errors.HfHubHTTPError, hub.errors.LocalEntryNotFoundError, OSError, *_connection_errors()) as error:
        said = str(error).strip().partition("\n")[0]
        raise RunError(
            f"no directory {name} here, and {name} could not be fetched from {hub.constants.ENDPOINT}: {said}"
        ) from None


def _connection_errors() -> tuple[type[Exception], ...]:
    """What the library that asks the hub raises where the hub cannot be reached: which library that is has changed."""
    return tuple(sys.modules[name].HTTPError for name in ("httpx", "httpx2") if name in sys.modules)
