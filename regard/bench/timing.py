"""The speed of a training step: tokens per second, memory, and the share of the peak of one large matrix product."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from regard.tasks.config import RunConfig
from regard.tasks.run import choose_device, choose_precision


@dataclass(frozen=True, kw_only=True, slots=True)
class Speed:
    """One way of training, timed. Tokens are real ones, padding not counted: source and target, or patches."""

    name: str
    tokens_per_second: float
    tflops: float
    peak_share: float
    memory_bytes: int | None
    """The most in use at once: of the GPU, or of this process on a CPU, where its system tells."""
    first_step_seconds: float
    padding: float
    step_seconds: float
    launch_seconds: float
    """How long the host is busy with a step; near `step_seconds` it is what limits the speed."""


@dataclass(frozen=True, slots=True)
class Stopwatch:
    """A device with what it reaches, and for how many seconds each way is timed."""

    device: torch.device
    precision: torch.dtype
    peak: float
    seconds: float

    @classmethod
    def of(cls, config: RunConfig, seconds: float) -> "Stopwatch":
        if config.train.threads:
            torch.set_num_threads(config.train.threads)
        device = choose_device(config.train.device)
        precision = choose_precision(config.train.precision, device)
        return cls(device, precision, matmul_peak(device, precision), seconds)

    def speed(
        self,
        name: str,
        step: Callable[[int], None],
        tokens: Sequence[int],
        flops: Sequence[float],
        padding: float = 0.0,
    ) -> Speed:
        """How fast `step(index)` is on batches of so many tokens, each so much work, taken in turn."""
        # From the first step on: a CUDA graph's memory is taken when it is captured.
        memory = PeakMemory(self.device)
        first = timed(lambda: step(0), self.device)
        for index in range(len(tokens)):
            step(index)
        rounds, spent, launched = 0, 0.0, 0.0

        def once() -> None:
            nonlocal launched
            began = time.perf_counter()
            for index in range(len(tokens)):
                step(index)
            launched += time.perf_counter() - began

        while spent < self.seconds:
            spent += timed(once, self.device)
            rounds += 1
        work = rounds * sum(flops) / spent
        return Speed(
            name=name,
            tokens_per_second=rounds * sum(tokens) / spent,
            tflops=work / 1e12,
            peak_share=work / self.peak,
            memory_bytes=memory.bytes(),
            first_step_seconds=first,
            padding=padding,
            step_seconds=spent / (rounds * len(tokens)),
            launch_seconds=launched / (rounds * len(tokens)),
        )


class PeakMemory:
    """The most memory in use at once since this was made."""

    def __init__(self, device: torch.device) -> None:
        self._device, self._known = device, True
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
            return
        try:
            Path("/proc/self/clear_refs").write_text("5")  # Linux forgets the peak so far
        except OSError:
            self._known = False

    def bytes(self) -> int | None:
        if self._device.type == "cuda":
            return torch.cuda.max_memory_allocated(self._device)
        if not self._known:
            return None
        status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines())
        return 1024 * int(status["VmHWM"].split()[0])


def matmul_peak(device: torch.device, precision: torch.dtype) -> float:
    """Floating-point operations per second in one large matrix product: what no training can exceed."""
    size = 8192 if device.type == "cuda" else 1536
    a, b = (torch.randn(size, size, device=device, dtype=precision) for _ in range(2))
    return 2 * size**3 / min(timed(lambda: a @ b, device) for _ in range(8))


def timed(work: Callable[[], Any], device: torch.device) -> float:
    """The seconds that it takes, the device's included."""
    wait = {"cuda": lambda: torch.cuda.synchronize(device), "mps": torch.mps.synchronize}.get(device.type, lambda: None)
    wait()
    began = time.perf_counter()
    work()
    wait()
    return time.perf_counter() - began
