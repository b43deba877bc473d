"""Checkpoints: everything an exact continuation needs, as safetensors and JSON."""

import os
import shlex
import shutil
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import safetensors
import torch
from torch import Tensor, nn

from regard import config as settings
from regard.digests import DIGESTS, damage, digests_of
from regard.errors import ConfigError, Damaged, RunError
from regard.runs.files import (
    CHECKPOINTS,
    MODEL,
    read_json,
    read_tensors,
    remove_directory,
    whole_directory,
    write_errors,
    write_json,
    write_tensors,
    write_text,
)
from regard.training.optim import ExponentialAverage, optimizer_tensors, restore_optimizer

FORMAT = 2
AVERAGE = "average.safetensors"
CARRIED = "carried.safetensors"


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """How far a run has come. With the weights and the optimiser's state, all that is needed to go on exactly."""

    step: int
    epoch: int = 0
    index: int = 0
    best: float | None = None
    best_step: int = 0
    stale: int = 0
    data: str | None = None
    """A digest of the files trained on, to tell whether they are still the same."""
    kept: tuple[int, ...] | None = None
    """The steps whose checkpoints stay beside this one, itself the last; None where an older version saved it."""


def save_checkpoint(
    directory: Path,
    progress: Progress,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    average: ExponentialAverage | None = None,
    carried: Mapping[str, Tensor] | None = None,
) -> Path:
    """Write `directory/step-N`, complete or not at all. `carried` is what a task keeps from one batch to the next."""
    path = directory / f"step-{progress.step}"
    with whole_directory(path) as aside:
        write_tensors(aside / "model.safetensors", weights_of(model))
        write_tensors(aside / "optimizer.safetensors", optimizer_tensors(model, optimizer))
        if average is not None:
            write_tensors(aside / AVERAGE, average.weights)
        if carried is not None:
            write_tensors(aside / CARRIED, carried)
        sizes = {file.name: file.stat().st_size for file in sorted(aside.iterdir())}
        write_json(aside / "progress.json", {"format": FORMAT, **asdict(progress), "files": sizes})
        write_text(aside / DIGESTS, digests_of(aside))
    return path


def load_checkpoint(
    path: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    average: ExponentialAverage | None = None,
    say: Callable[[str], None] | None = None,
) -> Progress:
    """Put model, optimiser and average back as they were, and tell how far the run had come.

    An optimiser of another kind, and an average where there was none, begin here; `say` is told so.
    """
    say = say or (lambda _: None)
    progress = read_progress(path)
    load_weights_strictly(model, read_tensors(path / "model.safetensors"), path)
    if not restore_optimizer(model, optimizer, read_tensors(path / "optimizer.safetensors")):
        say(f"the optimiser is of another kind than that of {path.name}: it starts afresh")
    if average is not None and (path / AVERAGE).exists():
        kept = read_tensors(path / AVERAGE)
        if any(name not in kept or kept[name].shape != value.shape for name, value in average.weights.items()):
            raise RunError(f"the weights in {path / AVERAGE} do not fit the model")
        average.weights = {name: kept[name].to(value.device) for name, value in average.weights.items()}
    elif average is not None:
        average.start()
        say(f"{path.name} has no average of the weights: it starts here")
    return progress


def read_progress(path: Path) -> Progress:
    """The progress of a checkpoint, after checking that every file it lists is there at its full size, as written.

    What is not raises Damaged. Of a checkpoint without digests, from an earlier version, sizes are all that is known.
    """
    record = read_json(path / "progress.json")
    form, sizes = record.pop("format", None), record.pop("files", None)
    if type(form) is not int or not isinstance(sizes, dict) or "step" not in record:
        raise Damaged(f"{path / 'progress.json'} is not a checkpoint's")
    there = {file.name: file.stat().st_size for file in path.iterdir()}
    for name, size in sizes.items():
        if name not in there:
            raise Damaged(f"{path} is missing its {name}")
        if there[name] != size:
            raise Damaged(f"{path / name} was cut short: {there[name]} of {size} bytes")
    if form > FORMAT:
        raise RunError(f"{path} was written by a newer version of regard")
    try:
        progress = settings.from_mapping(Progress, record)
    except ConfigError as error:
        raise Damaged(f"{path / 'progress.json'} is not a checkpoint's: {error}") from None
    if (fault := damage(path)) is not None:
        raise Damaged(f"in {path} {fault}")
    return progress


def newest_whole(directory: Path, say: Callable[[str], None]) -> Path | None:
    """The newest checkpoint that is whole; None where there is none at all.

    Damaged ones after it get another name, so that nothing of them is lost, and `say` is told. Where all are damaged,
    nothing is renamed, and the newest one's fault is raised.
    """
    faults: dict[Path, Damaged] = {}
    for path in reversed(checkpoints(directory)):
        try:
            check_whole(path)
        except Damaged as fault:
            faults[path] = fault
            continue
        for damaged, fault in faults.items():
            say(f"{fault}; {damaged.name} is set aside as {set_aside(damaged).name}, and {path.name} is taken up")
        return path
    if faults:
        newest, fault = next(iter(faults.items()))
        raise RunError(
            f"{fault}; no checkpoint before {newest.name} is whole. Nothing was changed: put a whole copy in its "
            f"place, or move {directory} away to train from the first step"
        )
    return None


def check_whole(path: Path) -> None:
    """Raise Damaged where a checkpoint is not what was saved, so far as it tells."""
    read_progress(path)
    for file in path.glob("*.safetensors"):  # what was saved without digests has at least a table of its tensors
        try:
            with safetensors.safe_open(file, "pt"):
                pass
        except (safetensors.SafetensorError, ValueError) as error:
            raise Damaged(f"{file} was cut short or is not safetensors ({error})") from None


def set_aside(checkpoint: Path) -> Path:
    """Give a damaged checkpoint a name that is no checkpoint's."""
    names = (f"{checkpoint.name}.damaged{again}" for again in ("", *(f"-{number}" for number in range(2, 1000))))
    aside = next(path for path in map(checkpoint.with_name, names) if not path.exists())
    with write_errors(aside):
        os.replace(checkpoint, aside)
    return aside


def read_model(directory: Path) -> dict[str, Tensor]:
    """The weights that a run is used with. Where they are missing or damaged, it is said how to have them again."""
    try:
        return read_tensors(directory / MODEL)
    except Damaged as fault:
        whole = next(filter(_is_whole, reversed(checkpoints(directory / CHECKPOINTS))), None)
        if whole is None:
            raise
        raise Damaged(
            f"{fault}; its checkpoint {whole.name} is whole: regard train --resume {shlex.quote(str(directory))} "
            f"makes the model again"
        ) from None


def _is_whole(checkpoint: Path) -> bool:
    try:
        check_whole(checkpoint)
    except RunError:
        return False
    return True


def checkpoints(directory: Path) -> list[Path]:
    """The complete checkpoints under `directory`, oldest first. What was cut short has another name until complete."""
    found = [path for path in directory.glob("step-*") if path.name[5:].isdigit()]
    return sorted(found, key=step_of)


def step_of(checkpoint: Path) -> int:
    return int(checkpoint.name[5:])


def kept_steps(steps: Iterable[int], keep: int, always: set[int]) -> tuple[int, ...]:
    """Of checkpoints at these steps, those that stay: the last `keep`, and those in `always`."""
    ordered = sorted(steps)
    return tuple(step for index, step in enumerate(ordered, 1) if step in always or index > len(ordered) - keep)


def forget_checkpoints(directory: Path, keep: int, always: set[int]) -> None:
    """Remove all but the last `keep` checkpoints and those of the steps in `always`, and what a kill left of others."""
    found = checkpoints(directory)
    kept = kept_steps(map(step_of, found), keep, always)
    for path in found:
        if step_of(path) not in kept:
            with suppress(PermissionError):  # Windows: in use, so it goes with the next
                remove_directory(path)
    for pattern in (".step-*.partial", ".step-*.removed"):
        for path in directory.glob(pattern):
            shutil.rmtree(path, ignore_errors=True)


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and lasting buffers by name; a tied one once, under its first name."""
    lasting = set(model.state_dict())
    buffers = {name: value for name, value in model.named_buffers() if name in lasting}
    return {**dict(model.named_parameters()), **buffers}


def check_weights(model: nn.Module, weights: Mapping[str, Tensor], where: Path) -> None:
    """Say at once every weight that is missing, extra or of another shape. The model may be one of shapes alone."""
    wanted = weights_of(model)
    faults = [f"missing {name}" for name in wanted if name not in weights]
    faults += [f"extra {name}" for name in weights if name not in wanted]
    faults += [
        f"{name} is {tuple(weights[name].shape)}, not {tuple(value.shape)}"
        for name, value in wanted.items()
        if name in weights and weights[name].shape != value.shape
    ]
    if faults:
        shown = "; ".join(faults[:8]) + (f"; and {len(faults) - 8} more" if len(faults) > 8 else "")
        raise RunError(f"the weights in {where} do not fit the model: {shown}")


@torch.no_grad()
def load_weights_strictly(model: nn.Module, weights: Mapping[str, Tensor], where: Path) -> None:
    """Fill the model, or say at once every weight that is missing, extra or of another shape."""
    check_weights(model, weights, where)
    for name, value in weights_of(model).items():
        value.copy_(weights[name])
