"""A Hugging Face directory as it lies on disk: JSON and safetensors, never pickle, never code."""

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import safetensors
from torch import Tensor

from regard.errors import RunError
from regard.runs import files

KINDS = ("F32", "F16", "BF16", "F64")
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")


LARGEST_JSON = 64 << 20
"""Bytes of the largest JSON that is read: several times the tokenizer of the largest vocabulary in use."""


def plain_file(path: Path) -> Path:
    """The path again if a file lies there, behind links or not: a device, a pipe or a directory is not read."""
    if not path.exists():
        raise RunError(f"{path.parent} is missing its {path.name}")
    if not path.is_file():
        raise RunError(f"{path} is not a file: a device, a pipe or a directory is not read")
    return path


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file of the directory, which is of bounded size."""
    value = read_any_json(path)
    if not isinstance(value, dict):
        raise RunError(f"{path} does not hold a JSON object")
    return value


def read_any_json(path: Path) -> Any:
    """What the JSON in a file of the directory says, whatever it is."""
    if (size := plain_file(path).stat().st_size) > LARGEST_JSON:
        raise RunError(f"{path} has {size:,} bytes; of JSON at most {LARGEST_JSON:,} are read")
    return files.read_any_json(path)


class Weights:
    """The weights of a checkpoint, known by shape from the files' headers; a weight is read when it is asked for."""

    def __init__(self, files: dict[str, Any], where: Path) -> None:
        self._files, self.where = files, where
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.kinds: dict[str, str] = {}
        for name, file in files.items():
            part = file.get_slice(name)
            self.shapes[name], self.kinds[name] = tuple(part.get_shape()), part.get_dtype()

    def __getitem__(self, name: str) -> Tensor:
        return self._files[name].get_tensor(name)


@contextmanager
def open_weights(directory: Path) -> Iterator[Weights]:
    """The weights in `model.safetensors`, or in the shards that `model.safetensors.index.json` lists."""
    with ExitStack() as stack:
        files: dict[str, Any] = {}
        for path in _parts(directory):
            try:
                file: Any = stack.enter_context(safetensors.safe_open(path, framework="pt"))
            except FileNotFoundError:
                raise RunError(f"{directory} is missing its {path.name}") from None
            except (safetensors.SafetensorError, OSError, ValueError) as error:
                raise RunError(f"{path} was cut short or is not safetensors ({error})") from None
            for name in file.keys():  # noqa: SIM118, the library's own object
                if name in files:
                    raise RunError(f"{path} holds {name}, which another part holds too")
                files[name] = file
        yield Weights(files, directory)


def _parts(directory: Path) -> list[Path]:
    if (directory / "model.safetensors").exists():
        return [plain_file(directory / "model.safetensors")]
    if (directory / "model.safetensors.index.json").exists():
        table = read_json(directory / "model.safetensors.index.json").get("weight_map")
        if not isinstance(table, dict) or not table:
            raise RunError(f"{directory / 'model.safetensors.index.json'} lists no weights")
        for name in table.values():
            # A name, not a path: an index must not lead out of its directory.
            if not isinstance(name, str) or not re.fullmatch(r"[\w-][\w.-]*\.safetensors", name):
                raise RunError(f"{directory / 'model.safetensors.index.json'} names {name!r}, which is no part of it")
        return [plain_file(directory / name) for name in sorted(set(table.values()))]
    pickles = sorted(path.name for path in directory.iterdir() if path.suffix in PICKLES)
    if pickles:
        raise RunError(f"{directory} has its weights as pickle ({pickles[0]}), which is never read: save safetensors")
    raise RunError(f"{directory} is missing its model.safetensors")
