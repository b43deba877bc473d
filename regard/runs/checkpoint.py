"""Checkpoints: everything an exact continuation needs, as safetensors and JSON."""

import os
import shlex
import shutil
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import safetensors
import torch
from torch import Tensor, nn

from regard import config as settings
from regard.digests import DIGESTS, compares, damage, digests_of, size_of_digests
from regard.errors import ConfigError, Damaged, NotWritten, RunError
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
from regard.training.optim import ExponentialAverage, filled, optimizer_tensors, restore_optimizer
from regard.training.processes import ONE, Processes, local
from regard.training.sharding import first_row, is_shard

FORMAT = 2
WEIGHTS, OPTIMIZER, AVERAGE, CARRIED = "model", "optimizer", "average", "carried"
"""The parts of a checkpoint: each a file, or one per process with an index of what lies where."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """How far a run has come. With the weights and the optimiser's state, all that is needed to go on exactly."""

    step: int
    epoch: int = 0
    index: int = 0
    best: float | None = None
    """The best that a validation reached, less being better."""
    best_step: int = 0
    """The update whose weights are the best validated."""
    stale: int = 0
    data: str | None = None
    """A digest of the files trained on, to tell whether they are still the same."""
    kept: tuple[int, ...] | None = None
    """The steps whose checkpoints stay beside this one, itself the last; None where an older version saved it."""
    run: str | None = None
    """The identity of the run, by which its checkpoints are told from another's; None where it has none."""
    best_of: str | None = None
    """Of what `best` is the best, as `score_of` has it; None where an older version saved it."""


def save_checkpoint(
    directory: Path,
    progress: Progress,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    average: ExponentialAverage | None = None,
    carried: Mapping[str, Tensor] | None = None,
    processes: Processes = ONE,
) -> Path:
    """Write `directory/step-N`, complete or not at all. `carried` is what a task keeps from one batch to the next.

    Of several `processes` the first writes it, unless weights lie in shards: then each writes its own, and the first
    one gives the directory its name when all are written.
    """
    return write_checkpoint(directory, progress, checkpoint_parts(model, optimizer, average, carried), processes)


def checkpoint_parts(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    average: ExponentialAverage | None = None,
    carried: Mapping[str, Tensor] | None = None,
) -> dict[str, Mapping[str, Tensor]]:
    """The tensors of a checkpoint, by the part that they belong to: those of training itself, no copies."""
    return {
        WEIGHTS: weights_of(model),
        OPTIMIZER: optimizer_tensors(model, optimizer),
        **({} if average is None else {AVERAGE: average.weights}),
        **({} if carried is None else {CARRIED: carried}),
    }


def write_checkpoint(
    directory: Path, progress: Progress, parts: Mapping[str, Mapping[str, Tensor]], processes: Processes = ONE
) -> Path:
    """Write these parts as `directory/step-N`; see `save_checkpoint`."""
    path = directory / f"step-{progress.step}"
    if processes.sharded:
        _save_shards(path, progress, parts, processes)
    elif processes.rank == 0:
        with whole_directory(path) as aside:
            for name, tensors in parts.items():
                write_tensors(aside / f"{name}.safetensors", tensors)
            _describe(aside, progress)
    return path


def _describe(aside: Path, progress: Progress) -> None:
    """Write what tells that the files of a checkpoint are all there and as they were."""
    sizes = {file.name: file.stat().st_size for file in sorted(aside.iterdir())}
    sizes[DIGESTS] = size_of_digests([*sizes, "progress.json"])  # so that one without them is known to have lost them
    write_json(aside / "progress.json", {"format": FORMAT, **asdict(progress), "files": sizes})
    write_text(aside / DIGESTS, digests_of(aside))


def _save_shards(
    path: Path, progress: Progress, parts: Mapping[str, Mapping[str, Tensor]], processes: Processes
) -> None:
    first, aside = processes.rank == 0, path.with_name(f".{path.name}.partial")
    fault: NotWritten | None = None
    with ExitStack() as stack:
        try:
            aside = stack.enter_context(whole_directory(path)) if first else aside
        except NotWritten as error:
            fault = error
        _all_wrote(processes, fault)
        try:
            for name, tensors in parts.items():
                own = {key: local(value) for key, value in tensors.items() if is_shard(value) or first}
                filled_rows = {key: value for key, value in own.items() if value.numel() or first}
                write_tensors(aside / shard_file(name, processes.rank, processes.world), filled_rows)
        except NotWritten as error:
            fault = error
        _all_wrote(processes, fault)
        if first:
            for name, tensors in parts.items():
                write_json(aside / f"{name}.index.json", {"tensors": _index(name, tensors, processes.world)})
            _describe(aside, progress)


def _all_wrote(processes: Processes, fault: NotWritten | None) -> None:
    """Raise in all processes what one of them could not write."""
    (failed,) = processes.total(fault is not None)
    if failed:
        raise fault or NotWritten("another process could not write its shard of a checkpoint")


def shard_file(name: str, rank: int, world: int) -> str:
    return f"{name}-{rank + 1:05}-of-{world:05}.safetensors"


def _index(name: str, tensors: Mapping[str, Tensor], world: int) -> dict[str, dict[str, Any]]:
    """Of every tensor its shape, and the files that hold its rows with the first row of each."""
    found: dict[str, dict[str, Any]] = {}
    for key, value in tensors.items():
        holders = range(world) if is_shard(value) else (0,)
        starts = {rank: first_row(value, rank, world) if is_shard(value) else 0 for rank in holders}
        pieces = [
            [shard_file(name, rank, world), start]
            for rank, start in starts.items()
            if rank == 0 or start < value.shape[0]
        ]
        found[key] = {"shape": list(value.shape), "pieces": pieces}
    return found


def has_part(path: Path, name: str) -> bool:
    """Whether a checkpoint has this part, in one file or in shards."""
    return (path / f"{name}.safetensors").exists() or (path / f"{name}.index.json").exists()


def read_part(path: Path, name: str) -> dict[str, Tensor]:
    """The tensors of a checkpoint's part, whole, however many processes wrote it."""
    index = path / f"{name}.index.json"
    if not index.exists():
        return read_tensors(path / f"{name}.safetensors")
    files: dict[str, dict[str, Tensor]] = {}
    found: dict[str, Tensor] = {}
    try:
        for key, entry in read_json(index)["tensors"].items():
            pieces: list[Tensor] = []
            rows = 0
            for file, start in entry["pieces"]:
                if Path(file).name != file or start != rows:
                    raise ValueError(f"the pieces of {key} do not follow each other")
                if file not in files:
                    files[file] = read_tensors(path / file)
                pieces.append(files[file].pop(key))
                rows += pieces[-1].shape[0] if pieces[-1].ndim else 0
            found[key] = pieces[0] if len(pieces) == 1 else torch.cat(pieces)
            if list(found[key].shape) != entry["shape"]:
                raise ValueError(f"{key} is {tuple(found[key].shape)}, not {tuple(entry['shape'])}")
    except (KeyError, TypeError, ValueError, RuntimeError, IndexError) as error:
        raise Damaged(f"{index} does not fit its shards: {error}") from None
    return found


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
    load_weights_strictly(model, read_part(path, WEIGHTS), path)
    if not restore_optimizer(model, optimizer, read_part(path, OPTIMIZER)):
        say(f"the optimiser is of another kind than that of {path.name}: it starts afresh")
    if average is not None and has_part(path, AVERAGE):
        kept = read_part(path, AVERAGE)
        if any(name not in kept or kept[name].shape != value.shape for name, value in average.weights.items()):
            raise RunError(f"the weights in {path / AVERAGE}.safetensors do not fit the model")
        for name, value in average.weights.items():
            filled(value, kept[name])
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
    record.pop("best_loss", None)  # of earlier versions, which told exact matches apart by it
    if type(form) is not int or not isinstance(sizes, dict) or "step" not in record:
        raise Damaged(f"{path / 'progress.json'} is not a checkpoint's")
    there = {file.name: file.stat().st_size for file in path.iterdir()}
    if not compares():
        sizes.pop(DIGESTS, None)
    elif DIGESTS in there and (fault := damage(path, "progress.json")) is not None:
        raise Damaged(f"in {path} {fault}")  # before what it says of others is believed
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
    if _is_checkpoint(path) and progress.step != step_of(path):
        raise Damaged(f"{path} holds what was saved at step {progress.step}, and is not what its name says")
    return progress


def newest_whole(directory: Path, say: Callable[[str], None], identity: str | None = None) -> Path | None:
    """The newest checkpoint that is whole, and of the run of this identity; None where there is none at all.

    Damaged ones after it get another name, so that nothing of them is lost, and `say` is told. Where all are damaged,
    nothing is renamed, and the newest one's fault is raised.
    """
    if directory.exists() and not directory.is_dir():
        raise RunError(
            f"{directory} is not a directory: put back what was there, or move it away to train from the start"
        )
    faults: dict[Path, Damaged] = {}
    for path in reversed(checkpoints(directory)):
        try:
            check_whole(path, identity)
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


def check_whole(path: Path, identity: str | None = None) -> None:
    """Raise Damaged where a checkpoint is not what was saved, so far as it tells, or is another run's."""
    progress = read_progress(path)
    if identity is not None and progress.run != identity:
        raise Damaged(f"{path} was saved by another run")
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
    return sorted(filter(_is_checkpoint, directory.glob("step-*")), key=step_of)


def _is_checkpoint(path: Path) -> bool:
    """Whether a path is named as a complete checkpoint is."""
    return path.name.startswith("step-") and path.name[5:].isdigit()


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
        filled(value, weights[name])
