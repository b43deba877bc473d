"""Time an update in several processes, gradients added up as regard does it and by DistributedDataParallel.

    python benchmarks/processes.py --processes 2 --width 256 --layers 4

Both read the same random rows with the same model, each process its share. What is printed is the mean of the middle
half of the updates, in milliseconds, with one process beside it that reads all rows.
"""

import argparse
import os
import statistics
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.multiprocessing.spawn import start_processes
from torch.nn.parallel import DistributedDataParallel

from regard.data.sharing import share
from regard.models.gpt import GPT, GPTConfig
from regard.nn.batch import Tokens, Windows
from regard.training.config import TrainConfig
from regard.training.loop import train_step
from regard.training.objectives import LanguageModelling
from regard.training.optim import make_optimizer
from regard.training.processes import ONE, Processes, ProcessGroup


def batches(rows: int, length: int, vocabulary: int, count: int) -> list[Windows]:
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(4, vocabulary, (count, rows, length + 1), generator=generator)
    full = torch.full((rows,), length)
    return [Windows(Tokens(one[:, :-1], full, padded=False), one[:, 1:], one[:, 1:].numel()) for one in ids]


class Wrapped(nn.Module):
    """Model and loss as one module, for DistributedDataParallel."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: Windows) -> torch.Tensor:
        return LanguageModelling().loss(self.model, batch).total


def measured(options: argparse.Namespace, processes: Processes, ddp: bool) -> float:
    torch.manual_seed(0)
    sizes = {"width": options.width, "heads": 4, "layers": options.layers, "feed_forward": 4 * options.width}
    model = GPT(GPTConfig(vocab_size=options.vocabulary, max_len=options.length, dropout=0.0, **sizes))
    optimizer = make_optimizer(model, TrainConfig(optimizer="adamw", learning_rate=1e-3))
    wrapped = DistributedDataParallel(Wrapped(model)) if ddp else None
    times = []
    for whole in batches(options.rows, options.length, options.vocabulary, options.updates):
        (part,) = share([whole], processes.rank, processes.world)
        assert isinstance(part, Windows), "there is a row for each"
        began = time.perf_counter()
        if wrapped is None:
            train_step(model, LanguageModelling(), [part], optimizer, clip=1.0, processes=processes)
        else:
            (count,) = processes.total(part.count)
            # It averages, so that the sum over processes has to be multiplied back.
            (wrapped(part) * processes.world / count).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        times.append(time.perf_counter() - began)
    middle = sorted(times)[len(times) // 4 : -len(times) // 4 or None]
    return 1000 * statistics.mean(middle)


def work(rank: int, world: int, options: argparse.Namespace, store: str) -> None:
    torch.set_num_threads(1)
    if world == 1:
        print(f"1 process: {measured(options, ONE, False):.1f} ms per update", flush=True)
        return
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    group = ProcessGroup(torch.device("cpu"), 600)
    for name, ddp in (("regard", False), ("DistributedDataParallel", True)) * 2:
        found = measured(options, group, ddp)
        if rank == 0:
            print(f"{world} processes, {name}: {found:.1f} ms per update", flush=True)
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (
        *(("processes", 2), ("width", 256), ("layers", 4), ("vocabulary", 8000)),
        *(("rows", 16), ("length", 64), ("updates", 24)),
    ):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    # This process trains nothing itself, for autograd's threads cannot be forked.
    with tempfile.TemporaryDirectory() as folder:
        for world in (1, options.processes):
            start_processes(work, (world, options, os.path.join(folder, "store")), world, start_method="fork")


if __name__ == "__main__":
    main()
