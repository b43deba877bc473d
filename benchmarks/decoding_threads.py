"""Beam search on a CPU by one thread and by several, for batches and widths: what `--threads auto` goes by.

    python benchmarks/decoding_threads.py --threads 2 4

Weights are random, 3+3 layers, every output has `--length` tokens. Rounds are interleaved; printed is the median
of each, in output tokens per second, and the ratio to one thread: above 1 more threads are faster.
"""

import argparse
import statistics
import time

import torch
from decoding_cpu import regard_side, sentences


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--threads", type=int, nargs="+", default=[2])
    parser.add_argument("--widths", type=int, nargs="+", default=[128, 256, 512, 1024])
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 2, 4, 8, 16])
    parser.add_argument("--precisions", nargs="+", default=["float32", "int8"])
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--vocabulary", type=int, default=10_000)
    parser.add_argument("--length", type=int, default=15)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    counts = [1, *options.threads]
    print(f"beam {options.beam}, {options.layers}+{options.layers} layers, vocabulary {options.vocabulary:,}")
    for precision in options.precisions:
        for width in options.widths:
            shape = argparse.Namespace(**vars(options), width=width, heads=8, source=15, batch=1, sentences=1)
            side = regard_side(shape, precision)
            for batch in options.batches:
                shape.batch = batch
                rows = sentences(shape)
                seconds: dict[int, list[float]] = {count: [] for count in counts}
                for turn in range(options.rounds + 1):
                    for count in counts:
                        torch.set_num_threads(count)
                        began = time.perf_counter()
                        side(rows)
                        if turn:  # the first is not timed
                            seconds[count].append(time.perf_counter() - began)
                speeds = {count: len(rows) * options.length / statistics.median(one) for count, one in seconds.items()}
                told = "  ".join(f"{count}: {speed:7,.0f} ({speed / speeds[1]:.2f})" for count, speed in speeds.items())
                print(f"{precision:8} width {width:5} batch {batch:3}  {told}", flush=True)


if __name__ == "__main__":
    main()
