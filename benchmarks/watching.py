"""What it costs that a model can be watched: its speed unwatched beside the same model with the watcher's seam cut out.

    python benchmarks/watching.py --threads 1

The two are timed batch beside batch, as in `beside.py`. The same is done with two that are alike, which shows what the
measurement itself is worth. Below stand the seam timed alone, and what watching costs when one does.
"""

import time
import timeit
from contextlib import contextmanager, nullcontext
from functools import partial

import torch
from beside import ratios, said, timed
from peer import arguments, ours, store

from regard.data import collate, epoch_order
from regard.look import watch
from regard.nn.attention import Attention
from regard.training.loop import train_step
from regard.training.objectives import SequenceToSequence


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
        train_step(model, SequenceToSequence(0.1), [batch], optimizer, clip=1.0)

    for name, work in (("forward", forward), ("training", train)):
        model.train(name == "training")
        for what, other in (("without any seam", plain), ("itself, as a control", seam)):
            one, two = (within(partial(with_gather, gather), work) for gather in (seam, other))
            found = ratios(one, two, batches, options.rounds)
            print(f"{name:10} unwatched, of the speed {what}: {said(found)}", flush=True)
    Attention.gather = seam
    model.eval()
    print(seam_itself(model, lambda: forward(batches[0])), flush=True)
    for name, how in (("one head", {"names": "encoder.0.attention", "heads": [0]}), ("everything", {})):
        watched, plainly = within(partial(watch, model, **how), forward), within(nullcontext, forward)
        found = ratios(watched, plainly, batches, max(1, options.rounds // 4))
        print(f"{'forward':10} watched, {name}, of the unwatched speed: {said(found)}", flush=True)


def seam_itself(model, work) -> str:
    """What is asked at the seam, timed alone, beside a whole pass."""
    attention, times = model.encoder[0].attention, 200_000
    asked = min(timeit.repeat(lambda: attention.watcher is None, number=times, timer=time.process_time)) / times
    plain = min(timeit.repeat(lambda: None, number=times, timer=time.process_time)) / times
    whole = min(timeit.repeat(work, number=1, repeat=20, timer=time.process_time))
    calls = sum(isinstance(part, Attention) for part in model.modules())
    cost = calls * (asked - plain)
    return f"the seam alone: {1e6 * cost:.2f} microseconds of {1e3 * whole:.1f} ms forward, {100 * cost / whole:.4f} %"


@contextmanager
def with_gather(gather):
    Attention.gather = gather
    yield


def within(context, work):
    """The seconds of the work alone, in this context."""

    def run(batch) -> float:
        with context():
            return timed(work, batch)

    return run


if __name__ == "__main__":
    main()
