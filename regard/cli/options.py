"""Options of commands from fields of dataclasses, and what several commands read alike."""

import dataclasses
import inspect
import os
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import typer

from regard.config import JsonObject
from regard.errors import ConfigError, DataError, nearest
from regard.tasks.verbs.spec import bounds, described


def preset_names(incomplete: str) -> list[str]:
    """The presets that begin so, for a shell to complete."""
    folder = resources.files("regard") / "presets"
    names = sorted(file.name.removesuffix(".toml") for file in folder.iterdir() if file.name.endswith(".toml"))
    return [name for name in names if name.startswith(incomplete)]


RUN = Annotated[Path, typer.Argument(help="A run directory.", metavar="RUN")]
INPUT = Annotated[Path | None, typer.Option("--input", "-i", help="A file of inputs, one per line.", metavar="FILE")]
OUTPUT = Annotated[Path | None, typer.Option("--output", "-o", help="Write here instead of to stdout.", metavar="FILE")]
JSON = Annotated[bool, typer.Option("--json", help="Print one JSON object per result.")]
WITH = Annotated[
    list[Path] | None,
    typer.Option(
        "--with", help="Average with this run, which has the same vocabulary; may be repeated.", metavar="RUN"
    ),
]
PROCESSES = Annotated[
    int,
    typer.Option(
        help="Answer in so many processes on this machine: with --input and --output.", metavar="NUMBER", min=1
    ),
]
DEVICE = Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")]
NO_VERIFY = Annotated[
    bool, typer.Option("--no-verify", help="Do not compare files with their digests, which huge ones take long for.")
]
ENGINE = Annotated[str, typer.Option(help="What decodes: torch, ctranslate2 or onnx.", metavar="NAME")]
ENGINE_FILES = Annotated[
    Path | None,
    typer.Option(
        help="The engine's model, from `regard export`; by default made beside the run, in float32.", metavar="DIR"
    ),
]
PRECISION = Annotated[
    str,
    typer.Option(help="Of the weights: float32, bfloat16 or int8 (CPU); auto is bfloat16 on a GPU that has it."),
]


THREADS = Annotated[
    str, typer.Option(help="CPU threads: a number, or auto: one where there is little to multiply.", metavar="NUMBER")
]


def number_of_threads(text: str) -> int | None:
    """What `--threads` says; None where it is auto. torch is told."""
    if text == "auto":
        return None
    count = int(text) if text.isdecimal() and len(text) < 5 else 0
    if count < 1:
        raise ConfigError(f"--threads={text} must be a number from 1 to 9999, or auto")
    import torch

    torch.set_num_threads(count)
    return count


def with_parameters(function: Callable[..., None], parameters: Sequence[inspect.Parameter], help: str) -> Any:
    """The function as typer sees it: with these parameters and this help."""
    function.__doc__ = inspect.cleandoc(help)
    function.__signature__ = inspect.Signature(list(parameters))  # type: ignore[attr-defined]
    function.__annotations__ = {one.name: one.annotation for one in parameters}
    return function


def parameter(name: str, kind: object, default: object = ...) -> inspect.Parameter:
    """A parameter of a command; one without a default must be given."""
    default = inspect.Parameter.empty if default is ... else default
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=kind, default=default)


def options_of(kind: type[Any], *leave: str) -> list[inspect.Parameter]:
    """An option for each field of a dataclass."""
    hints, helps = get_type_hints(kind), described(kind)
    found = []
    for field in dataclasses.fields(kind):
        if field.name in leave:
            continue
        asked, metavar = _asked(hints[field.name]), field.metadata.get("metavar")
        several = get_origin(asked) is list or asked == list[str] | None
        default = None if field.default is dataclasses.MISSING or several else field.default
        metavar = metavar or ("NUMBER" if _or_none(hints[field.name]) else None)
        option: dict[str, Any] = {"help": helps[field.name], "metavar": metavar}
        names = () if asked is not bool or default else (f"--{field.name.replace('_', '-')}",)
        found.append(parameter(field.name, Annotated[asked, typer.Option(*names, **option)], default))
    return found


def _asked(kind: object) -> Any:
    """What typer reads for a field of this type: numbers and words, and what may be `none` as a word."""
    plain = [one for one in get_args(kind) if one is not type(None)] if _is_union(kind) else [kind]
    if any(get_origin(one) is tuple for one in plain):
        return list[str] | None
    if any(get_origin(one) is Literal for one in plain):
        return str | None if _is_union(kind) else str
    return kind


def _is_union(kind: object) -> bool:
    return get_origin(kind) in (Union, types.UnionType)


def _or_none(kind: object) -> bool:
    return any(get_origin(one) is Literal and get_args(one) == ("none",) for one in get_args(kind))


def checked(kind: type[Any], given: Mapping[str, Any]) -> JsonObject:
    """What was given on a command line as the dataclass takes it; refused by the option's name where it cannot be."""
    hints, least = get_type_hints(kind), bounds(kind)
    found = {}
    for name, value in given.items():
        flag, hint = f"--{name.replace('_', '-')}", hints[name]
        known = [word for one in (hint, *get_args(hint)) if get_origin(one) is Literal for word in get_args(one)]
        if known == ["none"]:
            value = number_or_none(flag, value, float if float in get_args(hint) else int)
        elif known and value is not None and value not in known:
            raise ConfigError(f"{flag}={value} must be one of {', '.join(known)}{nearest(value, known)}")
        value = tuple(value) if isinstance(value, list) else value
        if isinstance(value, int) and not isinstance(value, bool) and name in least and value < least[name].least:
            raise ConfigError(f"{flag}={value} must be at least {least[name].least}")
        found[name] = value
    return {name: value for name, value in found.items() if value is not None}


def precision_for(engine: str, precision: str) -> str:
    """The precision to load a run in; another engine than torch has its own, from how its model was exported."""
    if engine == "torch":
        return precision
    if precision not in ("auto", "float32"):
        raise ConfigError(
            f"--precision {precision} does not apply to --engine {engine}: export the model with --quantization, "
            "and name it with --engine-files"
        )
    return "float32"


def with_engine(run: Any, engine: str, files: Path | None) -> Any:
    """The loaded run, with another engine in torch's place if one is asked for."""
    if engine == "torch" and files is None:
        return run
    from regard.interop.engines import use_engine

    return use_engine(run, engine, files, lambda said: print(f"regard: {said}", file=sys.stderr))


def number_or_none(option: str, text: str | None, kind: type[int] | type[float]) -> Any:
    """What an option that may be `none` says: a number, or the word itself; None where it was not given."""
    if text is None or text == "none":
        return text
    try:
        return kind(text)
    except ValueError:
        what = "a whole number" if kind is int else "a number"
        raise ConfigError(f"{option}={text} must be {what}, or none") from None


def typed() -> bool:
    """Whether someone types at a terminal."""
    return os.isatty(0)


def end_of_input() -> str:
    """What is typed to end it."""
    return "Ctrl-Z and Enter" if sys.platform == "win32" else "Ctrl-D"


def standard_input(ask: str = "") -> Iterator[str]:
    """The lines of standard input; who types them is shown `ask` before each.

    Only a newline ends a line, as in a file, and the text is UTF-8 in any locale.
    """
    # Not through sys.stdin: Python would close that while a thread still waits for a line, and abort.
    try:
        lines = open(0, "rb", closefd=False)  # noqa: SIM115
    except OSError as error:
        raise DataError(f"cannot read standard input: {error.strerror}") from None
    number, asked = 0, ask if typed() else ""
    while True:
        print(asked, end="", file=sys.stderr, flush=True)
        try:
            raw = lines.readline()
        except OSError as error:  # a folder, say
            raise DataError(f"cannot read standard input: {error.strerror}") from None
        if not raw:
            return
        number += 1
        try:
            line = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise DataError(f"standard input is not UTF-8 text: byte {error.start} of line {number}") from None
        yield (line.removeprefix("\ufeff") if number == 1 else line).removesuffix("\n").removesuffix("\r")
