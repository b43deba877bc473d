"""Peak memory and speed of preparing a large corpus.

Writes a synthetic corpus of line-aligned pairs, prepares it in a fresh process and prints, against 500 MB, the peak
resident memory of that process and its children above an interpreter that has only loaded torch.

    python benchmarks/prepare_memory.py [--pairs 1000000]
"""

import argparse
import random
import subprocess
import sys
import tempfile
import threading
import time
from itertools import islice
from pathlib import Path

LIMIT_MB = 500


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--pairs", type=int, default=1_000_000)
    parser.add_argument("--prepare", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.prepare:
        prepare_and_measure(args.prepare)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_corpus(folder, args.pairs)
        train_vocabulary(folder)
        # A process of its own, so that what all this left in memory does not hide in the baseline.
        subprocess.run([sys.executable, __file__, "--prepare", str(folder)], check=True)


def write_corpus(folder: Path, pairs: int) -> None:
    """Sentences of 5 to 60 words, most of them short, with words as rare as in real text."""
    draw = random.Random(0)
    letters = "etaoinshrdlucmfwypvbgk"
    words = ["".join(draw.choices(letters, k=draw.randint(2, 9))) for _ in range(30_000)]
    weights = [1 / rank for rank in range(1, len(words) + 1)]
    stream = draw.choices(words, weights, k=200_000)
    for side in ("source", "target"):
        with (folder / side).open("w", encoding="utf-8") as file:
            for _ in range(pairs):
                start = draw.randrange(len(stream) - 60)
                length = min(60, max(5, int(draw.lognormvariate(2.7, 0.5))))
                file.write(" ".join(stream[start : start + length]) + " .\n")


def train_vocabulary(folder: Path) -> None:
    from regard.data import PairFiles
    from regard.text import TokenizerConfig, train_vocabularies

    sample = list(islice(PairFiles(folder / "source", folder / "target"), 20_000))
    train_vocabularies(sample, TokenizerConfig(vocab_size=16_000)).save(folder / "tokenizer.json")


def prepare_and_measure(folder: Path) -> None:
    import torch  # noqa: F401 - part of the baseline

    with Peak() as peak:
        from regard.data import PairFiles, prepare
        from regard.text import Vocabularies

        corpus = PairFiles(folder / "source", folder / "target")
        vocabularies = Vocabularies.load(folder / "tokenizer.json")
        start = time.perf_counter()
        store = prepare(corpus, vocabularies, folder / "cache")
        seconds = time.perf_counter() - start
    size = sum(path.stat().st_size for path in (folder / "cache").rglob("*") if path.is_file())
    print(store.counts.describe())
    print(f"{store.counts.read / seconds:,.0f} pairs/s, {size / 2**20:.0f} MB on disk")
    print(f"peak {peak.above / 2**20:.0f} MB above the baseline of {peak.baseline / 2**20:.0f} MB; limit {LIMIT_MB} MB")
    if peak.above > LIMIT_MB * 2**20:
        sys.exit("over the limit")


class Peak:
    """The most resident memory of this process and its descendants while open, sampled every 20 ms."""

    def __enter__(self) -> "Peak":
        self.baseline = self.most = resident()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(0.02):
            self.most = max(self.most, resident())

    @property
    def above(self) -> int:
        return self.most - self.baseline


def resident() -> int:
    """Bytes resident in this process and all its descendants."""
    waiting, total = ["self"], 0
    while waiting:
        process = Path("/proc") / waiting.pop()
        try:
            status = (process / "status").read_text()
            total += int(status.partition("VmRSS:")[2].split()[0]) * 1024
            waiting += [child for task in process.glob("task/*/children") for child in task.read_text().split()]
        except (OSError, IndexError):  # ended meanwhile
            continue
    return total


if __name__ == "__main__":
    main()
