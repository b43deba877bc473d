"""What training needs of a machine: devices and compilers, deterministic kernels, stop signals."""

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from regard.errors import ConfigError, RunError
from regard.runs.log import summary_writer
from regard.tasks.config import RunConfig
from regard.tasks.run import choose_device


def check_machine(config: RunConfig, fit_memory: bool = False) -> None:
    """Refuse what this machine does not have before any work is done."""
    device = choose_device(config.train.device)
    if fit_memory and device.type != "cuda":
        raise ConfigError("--fit tries how much a GPU's memory holds; on a CPU set train.batch_tokens yourself")
    if config.train.compile and device.type == "cpu" and not any(map(shutil.which, _cpp_compilers())):
        raise ConfigError("train.compile=true needs a C++ compiler here, such as g++; without one set it to false")
    if config.train.tensorboard:
        summary_writer()


def _cpp_compilers() -> list[str]:
    """What torch would call."""
    return [os.environ["CXX"]] if "CXX" in os.environ else ["g++", "clang++", "cl"]


@contextmanager
def own_threads() -> Iterator[None]:
    """What a run sets the number of torch's threads to is set back in the end, for the process may go on to do more."""
    before = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def deterministic_algorithms(wanted: bool) -> Iterator[None]:
    """Ask torch for kernels whose results do not vary from run to run, and put its own choice back at the end.

    Where there are none, one line says so.
    """
    if not wanted:
        yield
        return
    memory: Any = torch.utils.deterministic
    before = torch.are_deterministic_algorithms_enabled(), memory.fill_uninitialized_memory
    # cuBLAS reads this when it is first used: one workspace for each stream, so that no two share one.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    memory.fill_uninitialized_memory = False  # nothing here reads memory before it is written
    try:
        yield
    except RuntimeError as error:
        if "does not have a deterministic implementation" in str(error):
            raise RunError(f"train.deterministic=true is not possible here: {str(error).partition(',')[0]}") from None
        if "CUBLAS_WORKSPACE_CONFIG" in str(error):
            raise RunError(
                "train.deterministic=true must be asked for before this process first uses the GPU: begin in a new one"
            ) from None
        raise
    finally:
        torch.use_deterministic_algorithms(before[0])
        memory.fill_uninitialized_memory = before[1]


@contextmanager
def stop_signals() -> Iterator[Callable[[], bool]]:
    """Yield a function that tells whether SIGINT, SIGTERM or SIGHUP has come.

    A second SIGINT or SIGTERM ends at once, as usual. A second SIGHUP does nothing: where a terminal is closed, its
    shell and the system send one each. Ignored from the start, as by nohup, SIGHUP stays so.

    On Windows nobody can send SIGTERM: there it is SIGINT or SIGBREAK, by Ctrl-C or Ctrl-Break.
    """
    asked: list[int] = []

    def note(number: int, frame: object) -> None:
        asked.append(number)
        if number != hang_up:
            signal.signal(number, before[number])

    hang_up = getattr(signal, "SIGHUP", None)
    before: dict[int, Any] = {}
    try:
        names = ("SIGINT", "SIGTERM", "SIGBREAK", "SIGHUP")
        for number in (getattr(signal, name) for name in names if hasattr(signal, name)):
            if number != hang_up or signal.getsignal(number) != signal.SIG_IGN:
                before[number] = signal.signal(number, note)
    except ValueError:
        # Signals belong to the main thread; elsewhere nobody can send them to us.
        yield lambda: False
        return
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
