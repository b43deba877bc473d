"""How much faster a translation model is on a CPU once heads were removed: its encoder, and the whole forward pass.

    python benchmarks/heads_speed.py runs/whole runs/smaller runs/smallest

Each run is held beside the first by its shape alone, with fresh weights, as in `beside.py`.
"""

import argparse
import random
from functools import partial
from pathlib import Path

import torch
from beside import ratios, said, timed

from regard.nn.batch import Pairs, Tokens
from regard.tasks.run import build_model, load_config


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
            with torch.inference_mode():
                found = ratios(
                    lambda batch, model=other, work=work: timed(partial(work, model), batch),
                    lambda batch, work=work: timed(partial(work, first), batch),
                    batches,
                    options.rounds,
                )
            print(f"{path} {name:8} {said(found)} times as fast as {options.runs[0]}", flush=True)


def captions(seed: int) -> Pairs:
    """Twenty pairs of random tokens, of about as many as image captions have."""
    draw = random.Random(seed)
    lengths = sorted(max(4, round(draw.lognormvariate(2.6, 0.35))) for _ in range(100))[40:60]
    rows = [[draw.randrange(4, 100) for _ in range(length)] for length in lengths]
    return Pairs(Tokens.of(rows), Tokens.of([[1, *row, 2] for row in rows]))


if __name__ == "__main__":
    main()
