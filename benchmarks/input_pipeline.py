"""What reading data costs a training, beside batches that lie ready in memory.

The same model is trained by turns on the run's own stream (cached tokens, an order for each epoch, batches gathered
and packed by a thread) and on some of its batches that are held in page-locked memory and come round again. Both turns
take the same updates of the same loop. What saving costs is measured by benchmarks/saving.py.

    python benchmarks/input_pipeline.py --preset transformer-base --data train.en train.de [--seconds 8] [--rounds 4]
"""

import argparse
import itertools
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import torch

from regard.data import Position
from regard.nn.batch import moved
from regard.tasks.config import make_config
from regard.tasks.run import choose_device, choose_precision, packs
from regard.tasks.spec import Silence
from regard.trainer.initialize import initialize_model
from regard.training.cuda_graphs import GraphReplay
from regard.training.loop import fit
from regard.training.objectives import compiled
from regard.training.optim import ExponentialAverage, make_optimizer

LEAST = 0.97


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--preset", default="transformer-base")
    parser.add_argument("--data", nargs="+", default=[], help="files of pairs; by default 20,000 bundled ones")
    parser.add_argument("--set", action="append", default=[], dest="settings")
    parser.add_argument("--seconds", type=float, default=8.0, help="of each turn")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--held", type=int, default=64, help="batches held in memory")
    args = parser.parse_args()
    sys.stdout.reconfigure(line_buffering=True)  # pyright: ignore[reportAttributeAccessIssue]
    with tempfile.TemporaryDirectory() as name:
        sys.exit(0 if measured(args, Path(name)) else "not reached")


def measured(args: argparse.Namespace, directory: Path) -> bool:
    data = {"train": args.data} if args.data else {"world": 20_000, "source": "en", "target": "fr"}
    config = make_config(None, args.preset, args.settings, {"data": data})
    config, prepared = config.kind.prepare(config, directory, Silence(), new=True)
    options, device = config.train, choose_device(config.train.device)
    precision, pack = choose_precision(options.precision, device), packs(config.architecture()[1], options.pack, device)
    model = initialize_model(config, directory, Silence()).to(device)
    optimizer = make_optimizer(model, options)
    average = ExponentialAverage(model, options.ema) if options.ema else None
    task, fast = compiled(prepared.objective, model, options, dynamic=not pack)
    replay = GraphReplay(fast, task, device, precision) if options.cuda_graphs and device.type == "cuda" else None
    size = sum(parameter.numel() for parameter in model.parameters())
    kind = torch.cuda.get_device_name() if device.type == "cuda" else "CPU"
    print(f"{args.preset}: {size / 1e6:.1f} M parameters, {precision}, {'packed' if pack else 'padded'}, {kind}")

    stream: Any = prepared.stream(Position(), pin=device.type == "cuda", pack=pack)
    with closing(stream):
        where = "pinned" if device.type == "cuda" else "cpu"
        held = [moved(next(stream), where) for _ in range(args.held)]
        print(
            f"{stream.batches()} batches an epoch, {sum(batch.tokens for batch in held) / len(held):,.0f} tokens each"
        )
        done = 0

        def turn(batches: Iterator[Any], seconds: float) -> float:
            """Tokens per second of a turn."""
            nonlocal done
            tokens = 0

            def updates() -> Iterator[list[Any]]:
                nonlocal tokens
                while True:
                    parts = [next(batches) for _ in range(options.accumulate)]
                    tokens += sum(part.tokens for part in parts)
                    yield parts

            start, last, ahead = time.perf_counter(), 0, 0
            steps = fit(
                fast,
                task,
                updates(),
                optimizer,
                lambda number: 1e-4,
                start=done,
                clip=options.clip,
                seed=options.seed,
                device=device,
                precision=precision,
                average=average,
                replay=replay,
            )
            for step in steps:
                done, last, ahead = step.number, tokens, ahead + 1
                if ahead % 16 == 0:  # now and then, so that the host does not run far ahead of the GPU
                    float(step.loss)
                if time.perf_counter() - start > seconds:
                    float(step.loss)
                    break
            return last / (time.perf_counter() - start)

        ready = itertools.cycle(held)
        turn(ready, args.seconds)  # compiling, capturing, warming up
        turn(stream, args.seconds / 2)
        pairs = []
        for number in range(args.rounds):
            ways = {"held": ready, "stream": stream}
            order = ("held", "stream") if number % 2 == 0 else ("stream", "held")
            found = {way: turn(ways[way], args.seconds) for way in order}
            pairs.append(found)
            share = found["stream"] / found["held"]
            print(f"round {number + 1}: held {found['held']:,.0f}, stream {found['stream']:,.0f} tokens/s: {share:.1%}")
    shares = [found["stream"] / found["held"] for found in pairs]
    reached = statistics.median(shares)
    print(f"the stream reaches {reached:.1%} (median of {len(shares)} rounds) of batches held in memory; at least 97 %")
    return reached >= LEAST


if __name__ == "__main__":
    main()
