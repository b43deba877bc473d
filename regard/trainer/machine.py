"""What training needs of a machine, looked at before any work is done."""

import os
import shutil

from regard.errors import ConfigError
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
