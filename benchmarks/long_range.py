"""Recall and count with every way to read a sequence trained until it has learned or its updates are spent.

python benchmarks/long_range.py --longest 128 --updates 3000 --processes 10 --out long-range.json

Each question and way is a process of its own with one thread, so that all are trained at once.
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
    question, way, longest, updates, device = work
    found = long_range_accuracy(longest, updates, ways=[way], questions=[question], deep=True, device=device)
    return {**found, "results": None, **found["results"][0]}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--longest", type=int, default=128)
    parser.add_argument("--updates", type=int, default=3000)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=Path("long-range.json"))
    asked = parser.parse_args()

    from regard.data.synthetic.long_range import LongRangeQuestion
    from regard.models.sequence_classifier import LayerKind

    how = (asked.longest, asked.updates, asked.device)
    works = [(question, way, *how) for question in get_args(LongRangeQuestion) for way in get_args(LayerKind)]
    found = []
    with multiprocessing.get_context("spawn").Pool(asked.processes) as pool:
        for result in pool.imap_unordered(one, works):
            found.append({name: value for name, value in result.items() if name != "results"})
            asked.out.write_text(json.dumps(found, indent=1), encoding="utf-8")
            shares = " ".join(f"{at['length']}:{100 * at['share']:.0f}" for at in result["accuracy"])
            print(f"{result['question']:7} {result['way']:12} {result['seconds']:6.0f} s  {shares}", flush=True)
