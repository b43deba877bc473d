"""Training tokens per second beside the PyTorch translation toolkits that are installed: the same batches, in one run.

    python benchmarks/toolkits.py --data train.en train.de --fairseq VENV --opennmt VENV --eole VENV --joey VENV

Each toolkit runs in its own process, from the virtual environment given (Hugging Face from this one). They train in
turn, one batch at a time, so that whatever else the machine does slows all alike; a toolkit's time is the sum over the
batches of the median over the rounds. Real tokens are counted, source and target, never padding. Beside the seconds
that passed stand those that cores were busy for a toolkit, which a loaded machine changes less;
`OMP_WAIT_POLICY=passive` keeps threads that only wait for each other out of them. A toolkit that is not given or does
not start is named with the reason.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from peer import arguments, store

from regard.data import epoch_order

WORKER = Path(__file__).with_name("toolkit_peers.py")
OTHERS = ("huggingface", "fairseq", "opennmt", "eole", "joey")


class Toolkit:
    """A process that trains on one batch each time it is asked."""

    def __init__(self, name: str, python: str, work: Path, threads: int) -> None:
        self.name = name
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 (as long as the process)
        self.process = subprocess.Popen(
            [python, str(WORKER), name, str(work), str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)},
        )
        self.facts = json.loads(self._read())
        self.passed, self.busy = defaultdict(list), defaultdict(list)

    def train(self, batch: int) -> None:
        assert self.process.stdin
        self.process.stdin.write(f"{batch}\n")
        self.process.stdin.flush()
        passed, busy = self._read().split()
        self.passed[batch].append(float(passed))
        self.busy[batch].append(float(busy))

    @property
    def times(self) -> tuple[float, float]:
        """The seconds of a round, and how many the cores were busy in it."""
        passed, busy = (sum(map(statistics.median, found.values())) for found in (self.passed, self.busy))
        return passed, busy

    def _read(self) -> str:
        assert self.process.stdout
        line = self.process.stdout.readline()
        if not line:
            self.errors.seek(0)
            last = [text.strip() for text in self.errors if text.strip()][-1:]
            raise ChildProcessError(last[0] if last else f"it ended with {self.process.wait()}")
        return line


def main() -> None:
    parser = arguments(__doc__.split("\n")[0])
    parser.add_argument("--budget", type=int, default=4096, help="source and target tokens of a batch")
    for name in OTHERS:
        default = sys.prefix if name == "huggingface" else None
        parser.add_argument(f"--{name}", metavar="VENV", default=default, help=f"where {name} is installed")
    parser.set_defaults(rounds=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder) / "work.json"
        batches, tokens = write_work(options, work)
        toolkits = list(start(options, work))
        load = os.getloadavg()[0]
        for index in range(options.rounds * batches):
            for toolkit in toolkits[:: -1 if index % 2 else 1]:
                toolkit.train(index % batches)
    report(toolkits, tokens, options, load)


def write_work(options: argparse.Namespace, path: Path) -> tuple[int, int]:
    """The batches, by regard's own order (like lengths together), as words without `bos`, `eos` and padding."""
    pairs = store(options)
    groups = epoch_order(pairs.source.lengths, pairs.target.lengths, budget=options.budget, seed=0, epoch=0)
    batches = [
        [(pairs.source[row].tolist()[:-1], pairs.target[row].tolist()[1:-1]) for row in group] for group in groups
    ]
    sizes = {
        "layers": options.layers,
        "width": options.width,
        "heads": options.heads,
        "feed_forward": 4 * options.width,
        "vocabulary": options.vocabulary,
    }
    path.write_text(json.dumps({"sizes": sizes, "batches": batches}), encoding="utf-8")
    return len(groups), int(pairs.source.lengths.sum() + pairs.target.lengths.sum() - len(pairs))


def start(options: argparse.Namespace, work: Path):
    for name in ("regard", *OTHERS):
        venv = sys.prefix if name == "regard" else getattr(options, name)
        if venv is None:
            print(f"{name:12} skipped: no --{name} given")
            continue
        try:
            yield Toolkit(name, str(Path(venv) / "bin" / "python"), work, options.threads)
        except (ChildProcessError, OSError) as error:
            print(f"{name:12} skipped: {error}")


def report(toolkits: list[Toolkit], tokens: int, options: argparse.Namespace, load: float) -> None:
    print(
        f"{options.layers}+{options.layers} layers, {options.width} wide, {options.vocabulary} words; "
        f"{tokens} tokens per round, {options.rounds} rounds, {options.threads} threads; load before {load:.1f}, "
        f"after {os.getloadavg()[0]:.1f}"
    )
    ours = toolkits[0].times
    for toolkit in toolkits:
        facts, (passed, busy) = toolkit.facts, toolkit.times
        named = "" if toolkit is toolkits[0] else f"{facts['version']}, "
        print(
            f"{toolkit.name:12} {tokens / passed:>8,.0f} tokens/s   regard is {passed / ours[0]:.2f}x, by busy cores "
            f"{busy / ours[1]:.2f}x   {named}torch {facts['torch']}, {facts['parameters']:,} parameters, "
            f"first loss {facts['loss']:.2f}"
        )


if __name__ == "__main__":
    main()
