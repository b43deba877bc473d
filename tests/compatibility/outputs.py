"""What a run directory answers, through the public interface alone: calls of a loaded run, and command lines.

Both sides need it: `make_runs.py`, which recorded the answers of an earlier version, and the test that asks again.
"""

import dataclasses
import hashlib
import io
import json
import platform
import runpy
import shutil
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from safetensors.torch import load_file, save

import regard

HERE = Path(__file__).parent
RUNS, DATA = HERE / "runs_0_1_0", HERE / "data_0_1_0"
PLACE = "@HERE@"
"""Stands in a saved configuration and in recorded arguments for the folder that holds the runs and their data."""
LOGGED = ("kind", "step", "epoch", "loss", "nll", "learning_rate")
"""What is kept of the log of a run: not what a clock says."""


def placed(name: str, folder: Path) -> Path:
    """A copy of a saved run and its data in `folder`, its files named by where they are now."""
    shutil.copytree(DATA, folder / DATA.name)
    run = shutil.copytree(RUNS / name, folder / RUNS.name / name)
    config = run / "config.json"
    config.write_text(config.read_text(encoding="utf-8").replace(PLACE, folder.as_posix()), encoding="utf-8")
    return run


def called(run: Any, call: dict[str, Any], folder: Path) -> Any:
    """What a recorded call gives now: a method of the run, or `evaluate`. An image is a row of a file of them."""
    arguments = [_argument(value, folder) for value in call.get("arguments", [])]
    settings = call.get("settings", {})
    if call["call"] == "evaluate":
        return plain(regard.evaluate(run, *arguments, **settings))
    return plain(getattr(run, call["call"])(*arguments, **settings))


def _argument(value: Any, folder: Path) -> Any:
    if isinstance(value, dict):
        with np.load(folder / DATA.name / value["file"]) as arrays:
            return list(arrays[value["array"]][value["rows"]])
    return value


def commanded(arguments: list[str], folder: Path) -> Any:
    """What a command line prints, read as JSON: one object, or one per line. Run as `python -m regard` runs it."""
    named = [argument.replace(PLACE, folder.as_posix()) for argument in arguments]
    out, err, code = io.StringIO(), io.StringIO(), None
    with mock.patch.object(sys, "argv", ["regard", *named]), redirect_stdout(out), redirect_stderr(err):
        try:
            runpy.run_module("regard", run_name="__main__", alter_sys=True)
        except SystemExit as error:
            code = error.code
    assert code in (0, None), err.getvalue()
    printed = out.getvalue().replace(folder.as_posix(), PLACE)
    try:
        return plain(json.loads(printed))
    except ValueError:
        return [plain(json.loads(line)) for line in printed.splitlines()]


def resumed(run: Path) -> dict[str, Any]:
    """The run taken up and finished: its log, what it said, and its weights as a digest."""
    told = Told()
    regard.resume(run, report=told)
    return {
        "said": told.lines,
        "log": logged(run),
        "model_sha256": hashlib.sha256(unsealed(run / "model.safetensors")).hexdigest(),
    }


def unsealed(path: Path) -> bytes:
    """The weights as 0.1.0 wrote them, bit for bit: without the digest that later versions put into the metadata."""
    return save(load_file(path), {"format": "pt"})


def logged(run: Path) -> list[dict[str, Any]]:
    """The records of a run's log, without times."""
    records = [json.loads(line) for line in (run / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    return [{name: record[name] for name in LOGGED if name in record} for record in records]


class Told:
    """A report that keeps what it was told in words."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(text)

    def progress(self, what: str, pairs: int) -> None: ...

    def step(self, values: Any, total: int) -> None: ...

    def validation(self, values: Any) -> None: ...


def environment() -> dict[str, str]:
    """All that the bytes of trained weights depend on, beside the code."""
    return {
        "torch": torch.__version__,
        "machine": platform.machine(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "cpu": next((line.split(":", 1)[1].strip() for line in _cpuinfo() if line.startswith("model name")), "unknown"),
    }


def _cpuinfo() -> list[str]:
    path = Path("/proc/cpuinfo")
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def plain(value: Any) -> Any:
    """The value as JSON has it. Signatures, which name versions of other packages, are left out."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return plain({field.name: getattr(value, field.name) for field in dataclasses.fields(value)})
    if isinstance(value, dict):
        return {str(name): plain(one) for name, one in value.items() if not str(name).endswith("_signature")}
    if isinstance(value, np.ndarray | torch.Tensor):
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, np.generic):
        return plain(value.item())
    return float(f"{value:.8g}") if isinstance(value, float) else value


def differences(found: Any, expected: Any, tolerance: float, where: str = "") -> list[str]:
    """Where `found` is not what was expected: texts and counts are equal, other numbers near. More fields are fine."""
    if isinstance(expected, dict) and isinstance(found, dict):
        lost = [f"{where}.{name} is missing" for name in expected if name not in found]
        common = [name for name in expected if name in found]
        return lost + [
            line for name in common for line in differences(found[name], expected[name], tolerance, f"{where}.{name}")
        ]
    if isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        pairs = enumerate(zip(found, expected, strict=True))
        return [line for at, (one, other) in pairs for line in differences(one, other, tolerance, f"{where}[{at}]")]
    if isinstance(expected, float) and isinstance(found, float | int) and not isinstance(found, bool):
        near = abs(found - expected) <= tolerance * max(1.0, abs(expected))
        return [] if near else [f"{where} is {found!r}, not {expected!r}"]
    return [] if found == expected else [f"{where} is {found!r}, not {expected!r}"]
