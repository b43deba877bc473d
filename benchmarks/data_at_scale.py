"""Millions of pairs prepared and trained from: what it takes of memory above the model, and of time.

Writes numbered lines as shards of pairs, prepares them as `regard train` does (tokenizer, token ids, digests), trains a
small model on them for some updates, and prints the peak resident memory of all its processes above that of an
interpreter that has loaded torch and the same model with its optimiser. Mapped files count as far as they are resident.

    python benchmarks/data_at_scale.py [--pairs 10000000] [--shards 16] [--format tsv] [--workers 0] [--steps 40]
"""

import argparse
import gzip
import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prepare_memory import resident

LIMIT_MB = 1500
SUBJECTS = (("the old house", "la vieille maison"), ("a small boat", "un petit bateau"), ("my friend", "mon ami"))
VERBS = (("stands near", "se trouve près de"), ("looks like", "ressemble à"), ("comes before", "vient avant"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--pairs", type=int, default=10_000_000)
    parser.add_argument("--shards", type=int, default=16)
    parser.add_argument("--format", choices=("tsv", "tsv.gz", "jsonl"), default="tsv")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        measure(args.measure, args)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        start = time.perf_counter()
        size = write_shards(folder, args.pairs, args.shards, args.format)
        seconds = time.perf_counter() - start
        print(f"{args.pairs:,} pairs in {args.shards} shards of {args.format}: {size / 2**20:,.0f} MB, {seconds:.0f} s")
        # A process of its own, so that what writing left in memory does not hide in the baseline.
        subprocess.run([sys.executable, __file__, *sys.argv[1:], "--measure", str(folder)], check=True)


def write_shards(folder: Path, pairs: int, shards: int, format: str) -> int:
    """Pairs of lines repeated with a number, every line another."""
    total = 0
    for shard in range(shards):
        path = folder / f"pairs-{shard:05}-of-{shards:05}.{format}"
        with gzip.open(path, "wt", 1) if format.endswith("gz") else path.open("w", encoding="utf-8") as file:
            for number in range(shard * pairs // shards, (shard + 1) * pairs // shards):
                (one, un), (verb, verbe) = SUBJECTS[number % 3], VERBS[number // 3 % 3]
                source, target = f"{one} {verb} number {number} .", f"{un} {verbe} numéro {number} ."
                pair = json.dumps({"en": source, "fr": target}) if format == "jsonl" else f"{source}\t{target}"
                file.write(pair + "\n")
        total += path.stat().st_size
    return total


class Told:
    """What is said while training, with the time and the memory of each part."""

    def __init__(self) -> None:
        self.baseline = self.most = resident()
        self.part, self.parts = "start", dict[str, list[float]]()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def _watch(self) -> None:
        began = time.perf_counter()
        while not self._stop.wait(0.05):
            now, seconds = resident(), time.perf_counter()
            self.most = max(self.most, now)
            known = self.parts.setdefault(self.part, [0.0, 0.0])
            known[0], known[1] = max(known[0], now - self.baseline), known[1] + seconds - began
            began = seconds

    def end(self) -> None:
        self._stop.set()
        self._thread.join()

    def say(self, text: str) -> None:
        print(text)
        for begin in ("training the tokenizer", "reading and tokenising", "training for"):
            if text.startswith(begin):
                self.part = begin

    def progress(self, what: str, pairs: int) -> None: ...

    def step(self, values: Mapping[str, Any], total: int) -> None:
        print(f"step {values['step']}: {values['tokens_per_second']:,.0f} tokens/s, waited {values['waiting']:.0%}")

    def validation(self, values: Mapping[str, Any]) -> None: ...


def measure(folder: Path, args: argparse.Namespace) -> None:
    from regard.tasks.config import make_config
    from regard.trainer.trainer import train

    settings = [
        f"data.workers={args.workers}",
        "tokenizer.vocab_size=2000",
        "tokenizer.sample=200000",
        f"train.steps={args.steps}",
        "train.log_every=10",
        f"train.threads={args.threads or 1}",
        "train.save_every=20",
        "data.header=false",
    ]
    # The same model trained on a few of the pairs first: what it takes is the baseline.
    first = folder / "first.tsv"
    write_first(first)
    train(make_config(None, "tiny", [f'data.train=["{first}"]', *settings]), folder / "small")
    pattern = folder / f"pairs-*.{args.format}"
    told, start = Told(), time.perf_counter()
    try:
        train(make_config(None, "tiny", [f'data.train=["{pattern}"]', *settings]), folder / "run", told)
    finally:
        told.end()
    for part, (above, seconds) in told.parts.items():
        print(f"{part:24} {seconds:6.0f} s, peak {above / 2**20:6,.0f} MB above the model")
    size = sum(path.stat().st_size for path in (folder / "run" / "cache").rglob("*") if path.is_file())
    above = (told.most - told.baseline) / 2**20
    print(f"{size / 2**20:,.0f} MB of token ids on disk; {time.perf_counter() - start:.0f} s in all")
    print(f"peak {above:,.0f} MB above {told.baseline / 2**20:,.0f} MB with torch and the model; limit {LIMIT_MB} MB")
    shutil.rmtree(folder / "run")
    if above > LIMIT_MB:
        sys.exit("over the limit")


def write_first(path: Path) -> None:
    lines = [f"{one} {verb} number .\t{un} {verbe} numéro .\n" for one, un in SUBJECTS for verb, verbe in VERBS]
    path.write_text("".join(lines * 300), encoding="utf-8")


if __name__ == "__main__":
    main()
