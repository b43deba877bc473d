"""What it costs that a model can be watched: its speed unwatched beside the same model with the watcher's seam cut out.

    python benchmarks/watching.py

Both take the same batches in turn, many times over; each turn gives a ratio, and the median of those counts. Below it
stands what watching costs when one does: one head, and everything.
"""

import statistics
import time

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
    parser.add_argument("--budget", type=int, default=1024, help="source and target tokens of a batch")
    parser.set_defaults(rounds=40, pairs=200)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    pairs = store(options)
    groups = epoch_order(pairs.source.lengths, pairs.target.lengths, budget=options.budget, seed=0, epoch=0)
    batches = [collate(pairs, rows) for rows in groups][:4]
    model = ours(options)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)
    gathers = {"with": Attention.gather, "without": without_watchers(Attention.gather)}

    def forward() -> None:
        with torch.inference_mode():
            for batch in batches:
                model(batch)

    def train() -> None:
        for batch in batches:
            train_step(model, Translation(0.1), [batch], optimizer, clip=1.0)

    for name, work in (("forward", forward), ("training", train)):
        model.train(name == "training")
        ratios = []
        for turn in range(options.rounds + 1):
            seconds = {}
            for which in ("with", "without") if turn % 2 else ("without", "with"):
                Attention.gather = gathers[which]
                seconds[which] = timed(work)
            ratios.append(seconds["without"] / seconds["with"])
        ratios = ratios[1:]  # the first turn warms up
        print(f"{name:10} unwatched, of the speed without any seam: {statistics.median(ratios):.3f}")
    Attention.gather = gathers["with"]
    model.eval()
    for name, how in (("one head", {"names": "encoder.0.attention", "heads": [0]}), ("everything", {})):
        ratios = []
        for _ in range(options.rounds // 4):
            plain = timed(forward)
            with watch(model, **how):
                ratios.append(plain / timed(forward))
        print(f"{'forward':10} watched, {name}: {statistics.median(ratios):.3f} of the unwatched speed")


def timed(work) -> float:
    began = time.process_time()  # of this process alone: what else the machine does is not counted
    work()
    return time.process_time() - began


if __name__ == "__main__":
    main()
