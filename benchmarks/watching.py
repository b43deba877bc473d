"""What it costs that a model can be watched: its speed unwatched beside the same model with the watcher's seam cut out.

    python benchmarks/watching.py --threads 1

Each batch is taken four times on end: by one, the other, the other and the one again, so that a machine that slows down
or a cache that gets warm favours neither. The four give a ratio of process times. The median of all ratios counts, with
its 95 % interval from 2,000 resamplings. The same is done with two that are alike, which shows what the measurement
itself is worth. Below stand the seam timed alone, and what watching costs when one does.
"""

import random
import statistics
import time
import timeit
from contextlib import nullcontext

import torch
from peer import arguments, ours, store

from regard.data import collate, epoch_order
from regard.look import watch
from regard.nn.attention import Attention
from regard.training.loop import train_step
from regard.training.tasks import Translation


def without_watchers(gather):
    """`Attention.gather` as it would be if there were no watching."""

    def plain(self, q, k, v, visible=gather.__defaults__[0]):
        return self.output(self._fused(q, k, v, visible).transpose(1, 2).flatten(2))

    return plain


def main() -> None:
    parser = arguments(__doc__.split("\n")[0])
    parser.add_argument("--budget", type=int, default=512, help="source and target tokens of a batch")
    parser.set_defaults(rounds=60, pairs=200)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    pairs = store(options)
    groups = epoch_order(pairs.source.lengths, pairs.target.lengths, budget=options.budget, seed=0, epoch=0)
    batches = [collate(pairs, rows) for rows in groups][:4]
    model = ours(options)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)
    seam, plain = Attention.gather, without_watchers(Attention.gather)

    def forward(batch) -> None:
        with torch.inference_mode():
            model(batch)

    def train(batch) -> None:
        train_step(model, Translation(0.1), [batch], optimizer, clip=1.0)

    for name, work in (("forward", forward), ("training", train)):
        model.train(name == "training")
        for what, other in (("without any seam", plain), ("itself, as a control", seam)):
            ratios = interleaved(work, batches, options.rounds, with_gather(seam), with_gather(other))
            print(f"{name:10} unwatched, of the speed {what}: {said(ratios)}", flush=True)
    Attention.gather = seam
    model.eval()
    print(seam_itself(model, lambda: forward(batches[0])), flush=True)
    for name, how in (("one head", {"names": "encoder.0.attention", "heads": [0]}), ("everything", {})):
        ratios = interleaved(
            forward, batches, max(1, options.rounds // 4), lambda how=how: watch(model, **how), nullcontext
        )
        print(f"{'forward':10} watched, {name}, of the unwatched speed: {said(ratios)}", flush=True)


def seam_itself(model, work) -> str:
    """What is asked at the seam, timed alone, beside a whole pass."""
    attention, times = model.encoder[0].attention, 200_000
    asked = min(timeit.repeat(lambda: attention.watcher is None, number=times, timer=time.process_time)) / times
    plain = min(timeit.repeat(lambda: None, number=times, timer=time.process_time)) / times
    whole = min(timeit.repeat(work, number=1, repeat=20, timer=time.process_time))
    calls = sum(isinstance(part, Attention) for part in model.modules())
    cost = calls * (asked - plain)
    return f"the seam alone: {1e6 * cost:.2f} microseconds of {1e3 * whole:.1f} ms forward, {100 * cost / whole:.4f} %"


def with_gather(gather):
    class Swapped:
        def __enter__(self):
            Attention.gather = gather

        def __exit__(self, *raised): ...

    return Swapped


def interleaved(work, batches, rounds, first, second) -> list[float]:
    """How fast `work` is in `first` as a share of how fast in `second`, batch by batch, one right after the other."""
    ratios = []
    for turn in range(rounds + 1):
        for number, batch in enumerate(batches):
            seconds = [0.0, 0.0]
            for which in (0, 1, 1, 0) if (turn + number) % 2 else (1, 0, 0, 1):
                with (first, second)[which]():
                    seconds[which] += timed(work, batch)
            if turn:  # the first turn warms up
                ratios.append(seconds[1] / seconds[0])
    return ratios


def said(ratios: list[float]) -> str:
    draw = random.Random(0)
    medians = sorted(statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(2000))
    return f"{statistics.median(ratios):.4f} [{medians[50]:.4f}, {medians[1949]:.4f}] of {len(ratios)}"


def timed(work, batch) -> float:
    began = time.process_time()  # of this process alone: what else the machine does is not counted
    work(batch)
    return time.process_time() - began


if __name__ == "__main__":
    main()
