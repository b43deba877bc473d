"""Recall and count with every way to read a sequence trained until it has learned or its updates are spent.

python benchmarks/long_range.py --longest 128 --updates 10000 --processes 4 --device cuda --out long-range.json

Each question, way and learning rate is a process of its own with one thread, so that all are trained at once. A reader
that has learned its question (99 % right at every length) stops; of several rates that one counts which was right most
often on the sequences that are tried along the way.

With --growth nothing is trained: it is timed how long each way reads, by length, on that device.
"""

import argparse
import json
import multiprocessing
from pathlib import Path
from typing import get_args


def one(work):
    import torch

    from regard.comparison.sequence_length import long_range_accuracy

    torch.set_num_threads(1)
    question, way, rate, asked = work
    found = long_range_accuracy(
        *(asked.longest, asked.updates),
        **{"ways": [way], "questions": [question], "deep": True, "until": 0.99, "rate": rate, "rows": asked.rows},
        device=asked.device,
    )
    return {**{name: value for name, value in found.items() if name != "results"}, **found["results"][0]}


def numbers(text):
    return [float(number) for number in text.split(",")]


if __name__ == "__main__":
    from regard.data.synthetic.long_range import LongRangeQuestion
    from regard.models.sequence_classifier import LayerKind

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--longest", type=int, default=128)
    parser.add_argument("--updates", type=int, default=10_000, help="the most that each gets")
    parser.add_argument("--ways", nargs="+", default=list(get_args(LayerKind)), choices=get_args(LayerKind))
    parser.add_argument("--rates", type=numbers, default=[3e-3], help="learning rates, with commas between them")
    parser.add_argument("--rows", type=int, default=512, help="sequences of each length in the last test")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--growth", action="store_true", help="time and memory by length instead")
    parser.add_argument("--out", type=Path, default=Path("long-range.json"))
    asked = parser.parse_args()

    if asked.growth:
        from regard.comparison.sequence_length import growth

        grown = growth(repeats=7, device=asked.device)
        asked.out.write_text(json.dumps(grown, indent=1), encoding="utf-8")
        for way in grown["ways"]:
            times = " ".join(f"{at['length']}:{1e3 * at['seconds']:.1f}" for at in way["points"])
            layer = "  ".join(f"{one['flops'] / 1e6:.1f} M at {one['length']}" for one in way["layer"])
            print(f"{way['name']:26} ms {times}; operations of one layer {layer}", flush=True)
        raise SystemExit

    works = [
        (question, way, rate, asked)
        for rate in asked.rates
        for question in get_args(LongRangeQuestion)
        for way in asked.ways
    ]
    found = []
    with multiprocessing.get_context("spawn").Pool(asked.processes) as pool:
        for result in pool.imap_unordered(one, works):
            found.append(result)
            asked.out.write_text(json.dumps(found, indent=1), encoding="utf-8")
            shares = " ".join(f"{at['length']}:{100 * at['share']:.0f}" for at in result["accuracy"])
            took = f"{result['updates']:6} updates {result['seconds']:6.0f} s"
            print(f"{result['question']:7} {result['way']:12} {result['rate']:.0e} {took}  {shares}", flush=True)
