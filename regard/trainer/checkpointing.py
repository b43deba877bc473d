"""What a training run saves: checkpoints on its way, the weights to use in the end."""

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from regard.config import JsonObject
from regard.digests import verifying
from regard.errors import Damaged, NotWritten, RunError
from regard.runs.checkpoint import (
    AVERAGE,
    CARRIED,
    WEIGHTS,
    Progress,
    check_whole,
    checkpoint_parts,
    checkpoints,
    forget_checkpoints,
    has_part,
    kept_steps,
    load_checkpoint,
    read_part,
    set_aside,
    step_of,
    weights_of,
    write_checkpoint,
)
from regard.runs.files import (
    CHECKPOINTS,
    CONFIG,
    MODEL,
    TOKENIZER,
    read_tensors,
    write_config,
    write_errors,
    write_model,
)
from regard.training.config import TrainConfig
from regard.training.objectives import Objective, StreamedLanguageModelling
from regard.training.optim import ExponentialAverage, mean_weights
from regard.training.processes import ONE, Processes
from regard.training.sharding import whole


@dataclass(frozen=True, slots=True)
class Ending:
    """How a run ended: which weights its model has where not the last, and whether these had yet to be written."""

    which: str | None
    rewritten: bool


class HostCopies:
    """Copies of tensors in the host's memory, which is the same from one time to the next; of a GPU's page-locked, so
    that they come as fast as the bus brings them."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, str], Tensor] = {}

    @torch.no_grad()
    def of(self, parts: Mapping[str, Mapping[str, Tensor]]) -> dict[str, dict[str, Tensor]]:
        """Copies of all these tensors, which are good until the next call. Waits until they are made."""
        before, self._held = self._held, {}
        busy: set[torch.device] = set()
        for part, tensors in parts.items():
            for name, tensor in tensors.items():
                held, gpu = before.pop((part, name), None), tensor.device.type == "cuda"
                if held is None or (held.shape, held.dtype) != (tensor.shape, tensor.dtype):
                    held = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=gpu)
                self._held[part, name] = held.copy_(tensor, non_blocking=gpu)
                if gpu:
                    busy.add(tensor.device)
        for device in busy:
            torch.cuda.synchronize(device)
        return {part: {name: self._held[part, name] for name in tensors} for part, tensors in parts.items()}


class BackgroundSave:
    """Writes one checkpoint at a time in a thread of its own, which touches nothing that training does.

    What the thread raised is raised by `outcome`. It is no daemon: a process that ends waits for it.
    """

    def __init__(self) -> None:
        self.step: int | None = None
        """The step that is being saved, or has been and was not yet asked for its outcome."""
        self.copies = HostCopies()
        self.notes: list[str] = []
        """What was found and mended on the way, for whoever asks for the outcome to say."""
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._saved: Progress | None = None
        self._error: BaseException | None = None

    def begin(self, progress: Progress, write: Callable[[], Progress], *, aside: bool) -> None:
        """Start to `write`; not `aside`, do it at once. The one before must have been asked for its outcome."""
        self.step, self._saved, self._error = progress.step, None, None
        if aside:
            self._ended.clear()
            self._thread = threading.Thread(target=self._run, args=(write,), name=SAVING)
            self._thread.start()
            return
        try:
            self._saved = write()
        except NotWritten as error:
            self._error = error
        except BaseException:  # as where another process was lost: nobody goes on to ask
            self.step = None
            raise

    def _run(self, write: Callable[[], Progress]) -> None:
        try:
            self._saved = write()
        except BaseException as error:
            self._error = error
        finally:
            self._ended.set()

    def wait(self, seconds: float | None = None) -> bool:
        """Whether what was begun has ended, waiting at most so long for it."""
        if self._thread is not None:
            # Joined only at its end: Python takes a thread that goes on for one that has ended after a Ctrl-C in the
            # midst of a join.
            if not self._ended.wait(seconds):
                return False
            self._thread.join()
            self._thread = None
        return True

    def outcome(self) -> Progress:
        """What was saved, once that has ended; or the error that ended it."""
        self.wait()
        self.step, error, self._error = None, self._error, None
        if error is not None:
            raise error
        assert self._saved is not None
        return self._saved


SAVING = "regard-saving"
"""The name of the thread that writes checkpoints."""


@dataclass(frozen=True, slots=True)
class Checkpointer:
    """Saves and restores a training run in its directory.

    `save` returns when all is written. `begin` copies what is to be saved and leaves writing it to a thread, which
    `saving` tells of; shards are written by all processes together, and at once.

    Several `processes` must all ask for the same; the first one writes, and each its shards where there are any.
    """

    directory: Path
    options: TrainConfig
    model: nn.Module
    optimizer: Optimizer
    average: ExponentialAverage | None
    objective: Objective
    processes: Processes = ONE
    saving: BackgroundSave = field(default_factory=BackgroundSave)
    settings: JsonObject | None = None
    """What the run's `config.json` holds, to write it again where someone has removed it."""
    identity: str | None = None
    """The run's own: see `identity_of`."""

    def restore(self, checkpoint: Path, say: Callable[[str], None]) -> Progress:
        """Put everything back as it was at a checkpoint, which was found to be whole."""
        with verifying(False):  # once is enough
            progress = load_checkpoint(checkpoint, self.model, self.optimizer, self.average, say)
        if isinstance(self.objective, StreamedLanguageModelling):
            self.objective.restore(read_part(checkpoint, CARRIED))
        return progress

    def mend(self) -> bool:
        """Write the weights to use so far where they are missing or damaged; whether they were."""
        last = self._last()
        if self.processes.rank or self._model_is_whole():
            return False
        write_model(self.directory, last)
        return True

    def _model_is_whole(self) -> bool:
        try:
            read_tensors(self.directory / MODEL)
        except Damaged:
            return False
        return True

    def save(self, progress: Progress) -> Progress:
        """A checkpoint, and the weights to use so far, so that a run can be tried while it trains."""
        self.begin(progress)
        return self.saving.outcome()

    def begin(self, progress: Progress) -> None:
        """The same, written in the background from a copy: training can go on, and asks `saving` how it went."""
        assert self.saving.step is None, "copies are of one save at a time"
        carried, first = self._carried(), self.processes.rank == 0  # what takes all processes comes first
        parts = checkpoint_parts(self.model, self.optimizer, self.average, carried)
        if self.processes.sharded:
            last = self._last()
            self.saving.begin(progress, lambda: self._write(progress, parts, last), aside=False)
        elif first:
            copies = self.saving.copies.of(parts)
            last = {**copies[WEIGHTS], **copies.get(AVERAGE, {})}
            self.saving.begin(progress, lambda: self._write(progress, copies, last), aside=True)
        else:
            self.saving.begin(progress, lambda: progress, aside=False)

    def _write(
        self, progress: Progress, parts: Mapping[str, Mapping[str, Tensor]], last: Mapping[str, Tensor]
    ) -> Progress:
        folder, first = self.directory / CHECKPOINTS, self.processes.rank == 0
        with write_errors(folder):
            if first:
                self._check_directory()
                folder.mkdir(exist_ok=True)
                steps = {progress.step, *map(step_of, checkpoints(folder))}
                progress = replace(progress, kept=kept_steps(steps, self.options.keep, self._always(progress)))
            write_checkpoint(folder, progress, parts, self.processes)
            if first:
                self._forget(progress)
                write_model(self.directory, last)
        return progress

    def _check_directory(self) -> None:
        """Refuse to save into a directory that is not the run's: a mount that is lost leaves an empty one behind."""
        if self.settings is None or (self.directory / CONFIG).exists():
            return
        if not any((self.directory / name).exists() for name in (TOKENIZER, CHECKPOINTS, MODEL)):
            raise NotWritten(
                f"{self.directory} does not hold the run any more, as where a mount is lost: nothing was saved"
            )
        write_config(self.directory, self.settings, self.identity)
        self.saving.notes.append(f"{self.directory / CONFIG} was gone and has been written again")

    def _carried(self) -> dict[str, Tensor] | None:
        """The states of all streams, each from the process that reads it."""
        if not isinstance(self.objective, StreamedLanguageModelling):
            return None
        rank, world = self.processes.rank, self.processes.world
        if world == 1:
            return self.objective.tensors()
        found = {name: tensor.clone() for name, tensor in self.objective.tensors().items()}
        for tensor in found.values():
            tensor[: len(tensor) * rank // world] = 0
            tensor[len(tensor) * (rank + 1) // world :] = 0
        self.processes.add(list(found.values()))
        return found

    def finish(self, progress: Progress) -> Ending:
        """Leave the directory as that of a finished run, whatever of this was done before; to do it twice is harmless.

        All that it needs is in the checkpoints, so that a run that was killed at its end can be finished later.
        """
        last = self._last()
        if self.processes.rank:
            return Ending(None, rewritten=False)
        self._forget(progress)
        model = self.directory / MODEL
        weights, which = self._final(progress, last)
        if weights is None or _holds(model, weights):
            return Ending(which, rewritten=False)
        write_model(self.directory, weights)
        return Ending(which, rewritten=True)

    def _final(self, progress: Progress, last: dict[str, Tensor]) -> tuple[Mapping[str, Tensor] | None, str | None]:
        """The weights that a finished run is used with, and which these are where they are not the last.

        None where the checkpoints that they came from are there no longer, as where someone made room on the disk: the
        model that was made of them is all there is.
        """
        folder, best = self.directory / CHECKPOINTS, progress.best_step
        there = [step_of(path) for path in checkpoints(folder)]
        if self.options.average_last > 1:
            wanted = (there if progress.kept is None else progress.kept)[-self.options.average_last :]
            unknown = progress.kept is None and len(wanted) < self.options.average_last
            if unknown or not {*wanted} <= {*there}:
                return self._as_it_is("the mean of checkpoints that are there no longer")
            if damaged := self._damaged(wanted):
                return self._as_it_is(f"the mean of checkpoints of which one is damaged ({damaged})")
            mean = mean_weights(read_part(folder / f"step-{step}", WEIGHTS) for step in wanted)
            return mean, f"the model is the mean of {len(wanted)} checkpoints" if len(wanted) > 1 else None
        if self.options.choose == "best" and best:
            if best in there:
                path = folder / f"step-{best}"
                if damaged := self._damaged([best]):
                    return self._as_it_is(f"that of step {best}, the best validated, which is damaged ({damaged})")
                # Its average, if it had one, is what was validated, whatever was set when the run was taken up again.
                averaged = read_part(path, AVERAGE) if has_part(path, AVERAGE) else {}
                return {
                    **read_part(path, WEIGHTS),
                    **averaged,
                }, f"the model is that of step {best}, the best validated"
            if progress.kept is None or best in progress.kept:
                return self._as_it_is(f"that of step {best}, the best validated, whose checkpoint is there no longer")
            return last, f"the model is the last: that of step {best}, the best validated, was not kept"
        return last, None

    def _damaged(self, steps: Iterable[int]) -> str:
        """What is wrong with the first of these checkpoints that is not whole, which is set aside; or nothing."""
        for step in steps:
            path = self.directory / CHECKPOINTS / f"step-{step}"
            try:
                check_whole(path, self.identity)
            except Damaged as fault:
                return f"{fault}; set aside as {set_aside(path).name}"
        return ""

    def _as_it_is(self, which: str) -> tuple[None, str]:
        if not self._model_is_whole():
            raise RunError(f"{self.directory} has no whole {MODEL}, and it cannot be made again: it was {which}")
        return None, f"the model is left as it is, for it cannot be compared: it should be {which}"

    def _last(self) -> dict[str, Tensor]:
        """The weights as they are, or their average; from shards whole, in the first process's memory alone."""
        averaged = {} if self.average is None else self.average.weights
        found = {**weights_of(self.model), **averaged}
        if not self.processes.sharded:
            return found
        gathered = ((name, whole(tensor.detach())) for name, tensor in found.items())
        return {name: tensor.cpu() for name, tensor in gathered if self.processes.rank == 0}

    def _forget(self, progress: Progress) -> None:
        forget_checkpoints(self.directory / CHECKPOINTS, self.options.keep, self._always(progress))

    def _always(self, progress: Progress) -> set[int]:
        return {progress.best_step} if self.options.choose == "best" else set()


def _holds(path: Path, weights: Mapping[str, Tensor]) -> bool:
    """Whether a file holds these weights and nothing else, bit for bit."""
    try:
        found = read_tensors(path)
    except RunError:  # not there, cut short or something else
        return False
    return found.keys() == weights.keys() and all(_same(found[name], weights[name]) for name in found)


def _same(one: Tensor, other: Tensor) -> bool:
    one, other = one.contiguous(), other.detach().cpu().contiguous()
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        return False
    return torch.equal(one.flatten().view(torch.uint8), other.flatten().view(torch.uint8))
