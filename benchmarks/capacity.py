"""What `regard plan` estimates beside what one GPU takes: peak memory and time of an update.

    python benchmarks/capacity.py --gpu h200

For each configuration an update of random tokens is trained as `regard train` does, in bfloat16, and the greatest
memory of torch's tensors is read. `efficiency` is the share of the stated operations per second that was reached.
"""

import argparse
import time

import torch

from regard import make_config
from regard.analysis.capacity import plan_capacity
from regard.tasks.run import build_model, choose_precision
from regard.training.config import TrainConfig
from regard.training.cuda_graphs import GraphReplay
from regard.training.loop import fit
from regard.training.objectives import compiled
from regard.training.optim import ExponentialAverage, make_optimizer

CASES: list[tuple[str, list[str]]] = [
    ("transformer-base", ["train.compile_blocks=false", "train.cuda_graphs=false", "train.accumulate=1"]),
    ("transformer-base", ["train.accumulate=1"]),
    ("transformer-big", ["train.accumulate=1"]),
    ("transformer-big", ["train.ema=0.999"]),
    ("gpt2-small", ["train.accumulate=1", "train.compile=false", "train.compile_blocks=false"]),
    ("bert-base", []),
    ("vit-b16", []),
    ("gpt2-medium", ["train.accumulate=1"]),
    ("transformer-big", ["train.accumulate=1", "train.compile_blocks=true", "train.batch_tokens=50000"]),
    ("small", ["train.optimizer=muon", "train.schedule=trapezoid", "train.batch_tokens=30000"]),
    ("gpt2-large", ["train.accumulate=1", "train.batch_tokens=4096"]),
]


def measured(preset: str, settings: list[str], device: torch.device, updates: int) -> tuple[float, float]:
    """The greatest memory in bytes, and the seconds of an update."""
    config = make_config(None, preset, settings).with_stand_ins()
    config, objective, batches = config.kind.random_batches(config, 1)
    config = config.with_stand_ins()
    options: TrainConfig = config.train
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    model = build_model(config).to(device)
    optimizer = make_optimizer(model, options)
    average = ExponentialAverage(model, options.ema) if options.ema else None
    precision = choose_precision("auto", device)
    parts = [batches[0].to(device)] * options.accumulate
    task, model = compiled(objective, model, options, dynamic=False)
    replay = GraphReplay(model, task, device, precision) if options.cuda_graphs else None
    began = 0.0
    steps = fit(
        *(model, task, iter([parts] * updates), optimizer, lambda number: 1e-4),
        clip=options.clip,
        device=device,
        precision=precision,
        average=average,
        replay=replay,
    )
    for step in steps:
        if step.number == updates // 2:
            torch.cuda.synchronize()
            began = time.perf_counter()
    torch.cuda.synchronize()
    return float(torch.cuda.max_memory_allocated()), (time.perf_counter() - began) / (updates - updates // 2)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--gpu", default="h200")
    parser.add_argument("--updates", type=int, default=16)
    parser.add_argument("--first", type=int, default=0, help="the case to begin with")
    parser.add_argument("--only-estimates", action="store_true", help="where there is no GPU")
    options = parser.parse_args()
    print("| preset | settings | estimated GB | measured GB | ratio | estimated ms | measured ms | efficiency |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for preset, settings in CASES[options.first :]:
        plan = plan_capacity(make_config(None, preset, settings), options.gpu)
        memory, seconds = plan.copies
        row = f"| {preset} | {' '.join(settings)} | {memory.peak / 1e9:.2f} |"
        if options.only_estimates:
            print(f"{row} {1000 * seconds.update:.1f} ms", flush=True)
            continue
        found, took = measured(preset, settings, torch.device("cuda"), options.updates)
        row += f" {found / 1e9:.2f} | {memory.peak / found:.2f} | {1000 * seconds.update:.1f} | {1000 * took:.1f} |"
        print(f"{row} {plan.flops / took / plan.rates.flops:.2f} |", flush=True)


if __name__ == "__main__":
    main()
