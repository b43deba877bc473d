"""How much faster a translation model is on a CPU once heads were removed: its encoder, and the whole forward pass.

    python benchmarks/heads_speed.py runs/whole runs/smaller runs/smallest

Each run is held beside the first by its shape alone, with fresh weights. Every batch is taken four times on end, by
one, the other, the other and the one again; the four give a ratio of process times. The median of all counts, with its
95 % interval.
"""

import argparse
import random
import statistics
import time
from pathlib import Path

import torch

from regard.nn.batch import Pairs, Tokens
from regard.runs.run import build_model, load_config


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("runs", nargs="+", type=Path, help="run directories, the whole one first")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    first, *others = [build_model(load_config(path)).eval() for path in options.runs]
    batches = [captions(number) for number in range(3)]
    works = {
        "encoder": lambda model, batch: model.encode(batch.source),
        "forward": lambda model, batch: model.logits(batch),
    }
    for path, other in zip(options.runs[1:], others, strict=True):
        for name, work in works.items():
            ratios = [
                ratio(work, first, other, batch, (turn + number) % 2)
                for turn in range(options.rounds + 1)
                for number, batch in enumerate(batches)
            ][len(batches) :]  # the first turn warms up
            print(f"{path} {name:8} {said(ratios)} times as fast as {options.runs[0]}", flush=True)


def captions(seed: int) -> Pairs:
    """Twenty pairs of random tokens, of about as many as image captions have."""
    draw = random.Random(seed)
    lengths = sorted(max(4, round(draw.lognormvariate(2.6, 0.35))) for _ in range(100))[40:60]
    rows = [[draw.randrange(4, 100) for _ in range(length)] for length in lengths]
    return Pairs(Tokens.of(rows), Tokens.of([[1, *row, 2] for row in rows]))


@torch.inference_mode()
def ratio(work, first, other, batch, swapped: int) -> float:
    seconds = {first: 0.0, other: 0.0}
    for model in (first, other, other, first) if swapped else (other, first, first, other):
        began = time.process_time()  # of this process alone: what else the machine does is not counted
        work(model, batch)
        seconds[model] += time.process_time() - began
    return seconds[first] / seconds[other]


def said(ratios: list[float]) -> str:
    draw = random.Random(0)
    medians = sorted(statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(1000))
    return f"{statistics.median(ratios):.3f} [{medians[25]:.3f}, {medians[974]:.3f}]"


if __name__ == "__main__":
    main()
