"""What saving a checkpoint costs a training: in the background, as `regard train` saves, and while training waits.

The same model is trained by turns of some seconds on a batch of random tokens: without saving, with one checkpoint
begun at the start of the turn and written in the background, and with one that training waits for. What fewer tokens
per second come to over the turn are seconds per checkpoint; of a minute, that is what saving once a minute costs.

    python benchmarks/saving.py --preset transformer-base [--seconds 6] [--rounds 8]
"""

import argparse
import itertools
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from regard.runs.checkpoint import Progress
from regard.tasks.config import make_config
from regard.tasks.run import build_model, choose_device, choose_precision
from regard.trainer.checkpointing import Checkpointer
from regard.training.cuda_graphs import GraphReplay
from regard.training.loop import Step, fit
from regard.training.objectives import compiled
from regard.training.optim import ExponentialAverage, make_optimizer

MOST_OF_A_MINUTE = 0.02
WAITING = 2
"""Rounds in which one checkpoint is also waited for."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--preset", default="transformer-base")
    parser.add_argument("--set", action="append", default=[], dest="settings")
    parser.add_argument("--seconds", type=float, default=6.0, help="of each turn, if a checkpoint takes no longer")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--out", type=Path, help="a folder on the disk to write to; by default a temporary one")
    args = parser.parse_args()
    sys.stdout.reconfigure(line_buffering=True)  # pyright: ignore[reportAttributeAccessIssue]
    with tempfile.TemporaryDirectory(dir=args.out) as name:
        sys.exit(0 if measured(args, Path(name)) else "not reached")


def measured(args: argparse.Namespace, directory: Path) -> bool:
    config = make_config(None, args.preset, args.settings).with_stand_ins()
    config, objective, batches = config.kind.random_batches(config, 1)
    config = config.with_stand_ins()
    options, device = config.train, choose_device(config.train.device)
    precision, model = choose_precision(options.precision, device), build_model(config).to(device)
    optimizer = make_optimizer(model, options)
    average = ExponentialAverage(model, options.ema) if options.ema else None
    task, fast = compiled(objective, model, options, dynamic=False)
    replay = GraphReplay(fast, task, device, precision) if options.cuda_graphs and device.type == "cuda" else None
    parts = [batches[0].to(device)] * options.accumulate
    tokens = sum(part.tokens for part in parts)
    size = sum(parameter.numel() for parameter in model.parameters())
    kind = torch.cuda.get_device_name() if device.type == "cuda" else "CPU"
    print(f"{args.preset}: {size / 1e6:.1f} M parameters, {precision}, {tokens:,} tokens an update, {kind}")
    steps: Iterator[Step] = fit(
        *(fast, task, itertools.repeat(parts), optimizer, lambda number: 1e-5),
        clip=options.clip,
        seed=options.seed,
        device=device,
        precision=precision,
        average=average,
        replay=replay,
    )
    checkpointer = Checkpointer(directory, options, model, optimizer, average, objective)
    number = 0

    def turn(way: str, seconds: float) -> dict[str, float]:
        """Tokens per second of a turn, the seconds that training waited for its save and those until it was written."""
        nonlocal number
        start, made, waited, written = time.perf_counter(), 0, 0.0, 0.0
        if way != "none":
            number += 1
            checkpointer.begin(Progress(step=number))
            if way == "waiting":
                checkpointer.saving.outcome()
            waited = time.perf_counter() - start
        while time.perf_counter() - start < seconds or checkpointer.saving.step is not None:
            step, made = next(steps), made + 1
            if made % 16 == 0:  # as a log would, so that the host does not run far ahead of the GPU
                float(step.loss)
            if checkpointer.saving.step is not None and checkpointer.saving.wait(0.0):
                checkpointer.saving.outcome()
                written = time.perf_counter() - start
        if device.type == "cuda":
            torch.cuda.synchronize()
        took = time.perf_counter() - start
        return {"rate": made * tokens / took, "took": took, "waited": waited, "written": written or waited}

    turn("none", args.seconds / 2)  # compiling, capturing, warming up
    before = peaks(device)
    first = turn("background", args.seconds)
    after = peaks(device)
    print(
        f"the first save, which also gets its memory: training waits {1000 * first['waited']:.0f} ms, written after "
        f"{first['written']:.1f} s; greatest memory of the process {before[0]:.2f} GB before it, {after[0]:.2f} GB "
        f"after, of the GPU {before[1]:.2f} and {after[1]:.2f} GB; "
        f"{sum(file.stat().st_size for file in directory.rglob('*') if file.is_file()) / 1e9:.2f} GB of files"
    )
    found: dict[str, list[float]] = {"background": [], "waiting": []}
    for round_ in range(args.rounds):
        ways = ("none", "background", "waiting")[: 3 if round_ < WAITING else 2]
        values: dict[str, Any] = {way: turn(way, args.seconds) for way in (ways if round_ % 2 == 0 else ways[::-1])}
        for way in ways[1:]:
            found[way].append(values[way]["took"] * (1 - values[way]["rate"] / values["none"]["rate"]))
        print(f"round {round_ + 1}: none {values['none']['rate']:,.0f} tokens/s")
        for way in ways[1:]:
            one = values[way]
            print(
                f"  {way} {one['rate']:,.0f} tokens/s, training waits {1000 * one['waited']:.0f} ms, written after "
                f"{one['written']:.1f} s"
            )
    for way, costs in found.items():
        print(
            f"{way}: {statistics.median(costs):.2f} s per checkpoint ({', '.join(f'{cost:.2f}' for cost in costs)}); "
            f"once a minute {statistics.median(costs) / 60:.1%}; at most 2 %"
        )
    return statistics.median(found["background"]) / 60 <= MOST_OF_A_MINUTE


def peaks(device: torch.device) -> tuple[float, float]:
    """The greatest memory so far in GB: of the process on the host, and of torch's tensors on the GPU."""
    host = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    return host, torch.cuda.max_memory_allocated() / 1e9 if device.type == "cuda" else 0.0


if __name__ == "__main__":
    main()
