"""Several processes that train one model: each reads its share of every update, and their gradients are added up.

Losses are sums with counts, so nothing depends on who read what: the count of an update is added up over all processes
before the backward pass, each divides its own losses by it, and gradients are then sums, never means of means.
"""

import json
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from datetime import timedelta
from typing import Any, Protocol, runtime_checkable

import torch
import torch.distributed as dist
from torch import Tensor

from regard.errors import ConfigError, ProcessLost, RegardError

BUCKET = 32 << 20
"""Bytes of gradients that are added up together."""

BEAT = 0.5
"""Seconds between two signs of life while the first process works and the others wait for it."""


@runtime_checkable
class Processes(Protocol):
    """The processes that train together, and which of them this one is."""

    rank: int
    world: int
    sharded: bool
    """Whether each keeps only its shard of the weights, so that gradients are added up on the way (FSDP2)."""

    def total(self, *numbers: float | int) -> list[float | int]:
        """The sums of these numbers over all processes. Waits for all; nothing on a GPU is waited for."""
        ...

    def add(self, tensors: Sequence[Tensor]) -> None:
        """Add up tensors over all processes, in place."""
        ...

    def gathered(self, tensors: Tensor) -> Tensor:
        """The rows of all processes, which have equally many, one after the other."""
        ...

    def from_first(self, value: Any) -> Any:
        """The first process's value, which must be JSON's."""
        ...

    def spread(self, tensors: Sequence[Tensor]) -> None:
        """Give tensors the first process's values, in place."""
        ...

    def first_works(self) -> AbstractContextManager[Callable[[Any], None]]:
        """In the first process: the others wait for what the function that this gives is told, for as long as it takes.

        They give up where this process shows no sign of life for as long as processes wait for each other.
        """
        ...

    def wait_for_first(self) -> Any:
        """In all others: what the first process tells when its work is done."""
        ...


class OneProcess:
    """A process that trains alone."""

    rank, world, sharded = 0, 1, False

    def total(self, *numbers: float | int) -> list[float | int]:
        return list(numbers)

    def add(self, tensors: Sequence[Tensor]) -> None:
        """There is nobody to add."""

    def gathered(self, tensors: Tensor) -> Tensor:
        return tensors

    def from_first(self, value: Any) -> Any:
        return value

    def spread(self, tensors: Sequence[Tensor]) -> None:
        """There is nobody to give them to."""

    def first_works(self) -> AbstractContextManager[Callable[[Any], None]]:
        return nullcontext(lambda value: None)

    def wait_for_first(self) -> Any:
        raise AssertionError("there is only one process")


ONE = OneProcess()


class ProcessGroup:
    """Processes that torch has brought together: NCCL adds up what is on GPUs, gloo what is on the host.

    What is agreed on, counts and signals, always goes by the host: no GPU is waited for, and a process that has died or
    does not answer is noticed there, the one within moments and the other after `timeout` seconds.
    """

    def __init__(self, device: torch.device, timeout: int) -> None:
        self.rank, self.world, self.sharded = dist.get_rank(), dist.get_world_size(), False
        self.device, self.timeout = device, timeout
        self._host: Any = dist.new_group(backend="gloo", timeout=timedelta(seconds=timeout))
        self._store: Any = dist.distributed_c10d._get_default_store()
        # A store may outlive its processes, as torchrun's does: words that were left in it before are none of ours.
        self._name = self.from_first(f"regard/{secrets.token_hex(8)}")
        self._number = 0

    def total(self, *numbers: float | int) -> list[float | int]:
        sums = torch.tensor([*numbers, 0], dtype=torch.float64)  # nobody waits for an empty tensor
        dist.all_reduce(sums, group=self._host)
        return sums.tolist()[:-1]

    def add(self, tensors: Sequence[Tensor]) -> None:
        kinds: dict[tuple[torch.dtype, torch.device], list[Tensor]] = {}
        for tensor in tensors:
            kinds.setdefault((tensor.dtype, tensor.device), []).append(tensor)
        waiting: list[_Bucket] = []
        for alike in kinds.values():
            for some in _buckets(alike):
                waiting.append(_Bucket(some, self._group(some[0])))
                if len(waiting) > 2:  # one is filled while another is on its way; more would take memory for nothing
                    waiting.pop(0).finish()
        for bucket in waiting:
            bucket.finish()

    def gathered(self, tensors: Tensor) -> Tensor:
        everyone = tensors.new_empty(self.world * tensors.shape[0], *tensors.shape[1:])
        dist.all_gather(list(everyone.chunk(self.world)), tensors.contiguous(), group=self._group(tensors))
        return everyone

    def from_first(self, value: Any) -> Any:
        text = json.dumps(value).encode() if self.rank == 0 else b""
        (size,) = self.total(len(text))
        data = torch.frombuffer(bytearray(text or bytes(int(size))), dtype=torch.uint8)
        dist.broadcast(data, 0, group=self._host)
        return json.loads(bytes(data.tolist()))

    @torch.no_grad()
    def spread(self, tensors: Sequence[Tensor]) -> None:
        for tensor in tensors:
            dist.broadcast(tensor, 0, group=self._group(tensor))

    def _group(self, tensor: Tensor) -> Any:
        return self._host if tensor.device.type == "cpu" else None

    # What follows goes by the store that brought the processes together, while some of them may have gone.

    @contextmanager
    def first_works(self) -> Iterator[Callable[[Any], None]]:
        done = threading.Event()
        number = self._number

        def beat() -> None:
            while not done.wait(BEAT):
                with suppress(RuntimeError):
                    self._store.add(f"{self._name}/{number}/beat", 1)

        def tell(value: Any) -> None:
            done.set()
            self._store.set(f"{self._name}/{number}/ready", json.dumps(value))

        thread = threading.Thread(target=beat, name="regard-beat", daemon=True)
        thread.start()
        try:
            yield tell
        finally:
            done.set()
            thread.join()
            self._number += 1

    def wait_for_first(self) -> Any:
        key, heard, since = f"{self._name}/{self._number}", -1, time.monotonic()
        while not self._store.check([f"{key}/ready"]):
            if self._store.check([f"{self._name}/failed/0"]):
                raise ProcessLost("the first process has failed")
            if (beats := self._store.add(f"{key}/beat", 0)) != heard:
                heard, since = beats, time.monotonic()
            if time.monotonic() - since > self.timeout:
                raise ProcessLost(f"process 0 of {self.world} has not answered for {self.timeout} s")
            time.sleep(BEAT / 5)
        self._number += 1
        return json.loads(self._store.get(f"{key}/ready"))

    def fail(self, error: BaseException) -> None:
        """Leave word of why this process ends, for the first one to say."""
        with suppress(RuntimeError):
            self._store.set(
                f"{self._name}/failed/{self.rank}", str(error) if isinstance(error, RegardError) else repr(error)
            )

    def lost(self) -> str:
        """In the first process, after others were found not to answer: which of them, and why where that is known."""
        others = range(1, self.world)
        with suppress(RuntimeError):
            self._store.set(f"{self._name}/failed/0", _LOST)
            until = time.monotonic() + 3.0
            while not all(self._heard(rank) for rank in others) and time.monotonic() < until:
                time.sleep(0.05)
            for rank in others:
                if (word := self._heard(rank)) and word != _LOST:
                    return f"process {rank} of {self.world} failed: {word}"
            silent = [str(rank) for rank in others if not self._heard(rank)]
            if silent:
                many = len(silent) > 1
                return (
                    f"process{'es' * many} {', '.join(silent)} of {self.world} died, or did not answer for "
                    f"{self.timeout} s"
                )
        return f"the {self.world} processes lost each other"

    def _heard(self, rank: int) -> str | None:
        key = f"{self._name}/failed/{rank}"
        return self._store.get(key).decode() if self._store.check([key]) else None


_LOST = "another process was lost"


class _Bucket:
    """Tensors on their way through one sum."""

    def __init__(self, tensors: Sequence[Tensor], group: Any) -> None:
        self.tensors = tensors
        self.flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
        self.work = dist.all_reduce(self.flat, group=group, async_op=True)

    @torch.no_grad()
    def finish(self) -> None:
        assert self.work is not None
        self.work.wait()
        pieces = self.flat.split([tensor.numel() for tensor in self.tensors])
        sums = [piece.view_as(tensor) for piece, tensor in zip(pieces, self.tensors, strict=True)]
        torch._foreach_copy_(list(self.tensors), sums)  # pyright: ignore[reportPrivateImportUsage]


def _buckets(tensors: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    some: list[Tensor] = []
    size = 0
    for tensor in tensors:
        some.append(tensor)
        size += tensor.nbytes
        if size >= BUCKET:
            yield some
            some, size = [], 0
    if some:
        yield some


def launched() -> bool:
    """Whether this process was started with others, by torchrun or `regard train --processes`."""
    return dist.is_available() and (
        dist.is_initialized()
        or all(name in os.environ for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"))
    )


def restarted() -> bool:
    """Whether torchrun has started this process in the place of one that failed."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0


def own_rank() -> int:
    """Which of the processes that were started together this one is."""
    if not launched():
        return 0
    return dist.get_rank() if dist.is_initialized() else int(os.environ["RANK"])


@contextmanager
def said_once() -> Iterator[None]:
    """What a user can cause is raised in every process, and left to the first one to say."""
    try:
        yield
    except RegardError as error:
        error.quiet = own_rank() > 0
        raise


@contextmanager
def joined(device: torch.device, timeout: int) -> Iterator[Processes]:
    """The processes that this one was started with: itself alone, unless a launcher says that there are more.

    A failure in one of them ends all: it leaves word of why, and the first one says it.
    """
    if not launched():
        yield ONE
        return
    own = not dist.is_initialized()
    group = _join(device, timeout, own=own)
    try:
        yield group
    except BaseException as error:
        if not _is_lost(error):
            group.fail(error)
            raise
        if group.rank:
            group.fail(ProcessLost(_LOST))
        raise ProcessLost(_LOST if group.rank else group.lost()) from None
    if own:
        dist.destroy_process_group()


def _join(device: torch.device, timeout: int, *, own: bool) -> ProcessGroup:
    device = _own_device(device)
    on_gpu = device.type == "cuda"
    # Longer than the host's: there a process that does not answer is found out with a word of its own.
    patience = timedelta(seconds=2 * timeout + 60 if on_gpu else timeout)
    try:
        if own:
            dist.init_process_group(
                "nccl" if on_gpu else "gloo", timeout=patience, device_id=device if on_gpu else None, **_met()
            )
        return ProcessGroup(device, timeout)
    except (RuntimeError, ValueError) as error:  # also where one dies when only some have met
        reason = str(error).splitlines()[0]
        raise ProcessLost(f"the processes did not find each other: {reason}") from None


def _met() -> dict[str, Any]:
    """Where the processes meet: as torch finds it, but in a place of its own after each of torchrun's restarts.

    Torchrun's store outlives them, and addresses of those that died lead nowhere.
    """
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return {}
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch_stores: Any = dist
    store = torch_stores.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), world, is_master=False)
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return {"store": torch_stores.PrefixStore(f"regard/{attempt}", store), "rank": rank, "world_size": world}


def _own_device(device: torch.device) -> torch.device:
    """This process's own: of GPUs the one with its number on this machine."""
    world, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("LOCAL_RANK", "0"))
    if device.type == "mps" and world > 1:
        raise ConfigError(f"train.device={device}: {world} processes train on CPUs or on CUDA's GPUs; use cpu")
    if device.type != "cuda":
        return device
    if device.index is not None and world > 1:
        raise ConfigError(f"train.device='{device}' names one GPU, and {world} processes need one each: use 'cuda'")
    here, count = int(os.environ.get("LOCAL_WORLD_SIZE", "1")), torch.cuda.device_count()
    if here > count:
        raise ConfigError(
            f"{here} processes need a GPU each, and this machine has {count}: two cannot share one; start fewer, or "
            f"train on the CPU with train.device=cpu"
        )
    index = rank if device.index is None else device.index
    torch.cuda.set_device(index)
    return torch.device("cuda", index)


def _is_lost(error: BaseException) -> bool:
    """Whether this is how torch says that another process does not answer."""
    if isinstance(error, ProcessLost):
        return True
    words = ("gloo", "Connection closed", "Connection reset", "Broken pipe", "Timed out")
    return isinstance(error, dist.DistError) or (
        isinstance(error, RuntimeError)
        and not isinstance(error, torch.OutOfMemoryError)
        and any(word in str(error) for word in words)
    )


def local(tensor: Tensor) -> Tensor:
    """What this process keeps of a tensor: its shard, or all of it."""
    shard: Any = getattr(tensor, "to_local", None)  # torch's DTensor, whose import takes a second
    return tensor if shard is None else shard()
