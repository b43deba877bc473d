"""What an update takes on a CPU that other programs use too, by how long threads spin while they wait for one another.

    python benchmarks/shared_cores.py --busy 0 1 2

Each row is a process of its own, since OpenMP reads its settings when it is loaded. `--busy` processes count upwards
beside it.
"""

import argparse
import os
import subprocess
import sys
import time

WAYS = {
    "torch's default": {},
    "as commands set it": {"GOMP_SPINCOUNT": "1000"},
    "asleep at once": {"OMP_WAIT_POLICY": "passive"},
}


def measured(threads: int, seconds: float) -> float:
    """Milliseconds of an update of a Transformer of 3+3 layers, 128 wide, with Muon and batches of 2,048 tokens."""
    import torch

    from regard.models.transformer import Transformer, TransformerConfig
    from regard.nn.batch import Pairs, Tokens
    from regard.training.config import TrainConfig
    from regard.training.loop import fit
    from regard.training.objectives import SequenceToSequence
    from regard.training.optim import make_optimizer

    torch.set_num_threads(threads)
    torch.manual_seed(1)
    sizes = {"width": 128, "heads": 4, "encoder_layers": 3, "decoder_layers": 3, "feed_forward": 256, "max_len": 128}
    model = Transformer(
        TransformerConfig(source_vocab_size=24, target_vocab_size=12, share="output", dropout=0.0, **sizes)
    )
    rows, source, target = 66, 12, 20
    batch = Pairs(
        Tokens(torch.randint(4, 24, (rows, source)), torch.full((rows,), source), False),
        Tokens(torch.randint(4, 12, (rows, target)), torch.full((rows,), target), False),
    )
    optimizer = make_optimizer(model, TrainConfig(optimizer="muon", learning_rate=1e-3))

    def endlessly():
        while True:
            yield [batch]

    steps = fit(model, SequenceToSequence(), endlessly(), optimizer, lambda number: 1e-3)
    for _ in range(3):
        next(steps)
    began, made = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        next(steps)
        made += 1
    return 1e3 * (time.perf_counter() - began) / made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--busy", type=int, nargs="+", default=[0, 1], help="other programs on the same cores")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(f"{measured(options.threads, options.seconds):.1f}")
        return
    print(f"{'beside':>7}  {'threads':>7}  {'ms per update':>13}  way")
    for busy in options.busy:
        others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(busy)]
        try:
            ways = [(name, options.threads, env) for name, env in WAYS.items()] + [("one thread", 1, {})]
            for name, threads, env in ways:
                command = [sys.executable, __file__, "--one", "--threads", str(threads)]
                command += ["--seconds", str(options.seconds)]
                kept = {key: value for key, value in os.environ.items() if not key.startswith(("OMP_", "GOMP_"))}
                found = subprocess.run(command, env=kept | env, capture_output=True, text=True, check=True).stdout
                print(f"{busy:>7}  {threads:>7}  {found.strip():>13}  {name}", flush=True)
        finally:
            for other in others:
                other.kill()


if __name__ == "__main__":
    main()
