"""GPT-2 124M trained by regard, Hugging Face and nanoGPT on the same random windows, in one run: by hand, on a GPU.

    python benchmarks/gpt2.py [--windows 32] [--seconds 8] [--replay] [--nanogpt FOLDER]

Prints tokens per second, the first step's seconds and the memory of each, all in bfloat16, compiled, with fused
attention and a fused AdamW; rounds take turns. FOLDER is a checkout of nanoGPT; its own model and optimiser are timed.
"""

import argparse
import json
import sys
import time
from pathlib import Path

import torch

from regard import make_config
from regard.nn.batch import Tokens, Windows
from regard.tasks.run import build_model
from regard.training.cuda_graphs import GraphReplay
from regard.training.loop import train_step
from regard.training.objectives import LanguageModelling, compiled
from regard.training.optim import make_optimizer

VOCABULARY = 50257
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def ours(batches: list[torch.Tensor], replay: bool, compile: bool):
    settings = [f"train.compile_blocks={str(compile).lower()}", f"train.cuda_graphs={str(replay).lower()}"]
    settings += ["model.dropout=0.0", "train.accumulate=1"]
    config = make_config(None, "gpt2-small", settings)
    config.model["vocab_size"] = VOCABULARY
    length = batches[0].shape[1] - 1
    model = build_model(config).to(DEVICE).train()
    optimizer = make_optimizer(model, config.train)
    task, trained = compiled(LanguageModelling(), model, config.train, dynamic=False)
    windows = [
        Windows(
            Tokens(ids[:, :-1].contiguous(), torch.full((len(ids),), length, device=DEVICE), padded=False),
            ids[:, 1:].contiguous(),
            len(ids) * length,
        )
        for ids in batches
    ]
    recorded = GraphReplay(trained, task, DEVICE, torch.bfloat16) if replay else None

    def step(index: int) -> torch.Tensor:
        part = windows[index % len(windows)]
        return train_step(
            trained, task, [part], optimizer, clip=1.0, device=DEVICE, precision=torch.bfloat16, replay=recorded
        ).loss

    return step, sum(parameter.numel() for parameter in model.parameters())


def theirs(batches: list[torch.Tensor], compile: bool):
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False)
    model = GPT2LMHeadModel._from_config(config, attn_implementation="sdpa").to(DEVICE).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    trained = torch.compile(model) if compile else model

    def step(index: int) -> torch.Tensor:
        ids = batches[index % len(batches)][:, :-1]
        with torch.autocast(DEVICE.type, torch.bfloat16):
            loss = trained(input_ids=ids, labels=ids).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step, sum(parameter.numel() for parameter in model.parameters())


def nanogpt(batches: list[torch.Tensor], folder: Path, compile: bool):
    """nanoGPT's own model and optimiser, its vocabulary padded to 50,304 as its training has it."""
    sys.path.insert(0, str(folder))
    from model import GPT, GPTConfig  # type: ignore[import-not-found]

    model = GPT(GPTConfig(block_size=batches[0].shape[1] - 1, vocab_size=50304, dropout=0.0, bias=False)).to(DEVICE)
    optimizer = model.configure_optimizers(0.1, 6e-4, (0.9, 0.95), DEVICE.type)
    trained = torch.compile(model) if compile else model

    def step(index: int) -> torch.Tensor:
        ids = batches[index % len(batches)]
        with torch.autocast(DEVICE.type, torch.bfloat16):
            _, loss = trained(ids[:, :-1].contiguous(), ids[:, 1:].contiguous())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return step, sum(parameter.numel() for parameter in model.parameters())


def _wait() -> None:
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--windows", type=int, default=32)
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--replay", action="store_true")
    parser.add_argument("--eager", action="store_true", help="compile none of them")
    parser.add_argument("--nanogpt", type=Path, help="a checkout of nanoGPT")
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    batches = [torch.randint(VOCABULARY, (options.windows, options.length + 1), device=DEVICE) for _ in range(4)]
    compile = not options.eager
    makers = {
        "regard": lambda: ours(batches, options.replay, compile),
        "Hugging Face": lambda: theirs(batches, compile),
    }
    if options.nanogpt is not None:
        makers["nanoGPT"] = lambda: nanogpt(batches, options.nanogpt, compile)
    ways, found = {}, {}
    for name, make in makers.items():
        # From the model's making on, since a recorded step takes its memory when it is recorded; others' left out.
        held = torch.cuda.memory_allocated() if DEVICE.type == "cuda" else 0
        if DEVICE.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        step, parameters = ways[name] = make()
        began = time.perf_counter()
        loss = float(step(0))
        _wait()
        found[name] = {"parameters": parameters, "first": time.perf_counter() - began, "loss": loss, "speeds": []}
        for index in range(6):
            step(index)
        _wait()
        if DEVICE.type == "cuda":
            found[name]["memory"] = torch.cuda.max_memory_allocated() - held
    for _ in range(options.rounds):
        for name, (step, _parameters) in ways.items():
            began, steps = time.perf_counter(), 0
            while time.perf_counter() - began < options.seconds / options.rounds:
                for _ in range(5):
                    step(steps)
                    steps += 1
                _wait()
            speed = steps * options.windows * options.length / (time.perf_counter() - began)
            found[name]["speeds"].append(round(speed))
    for name, one in found.items():
        one["tokens_per_second"] = sorted(one["speeds"])[len(one["speeds"]) // 2]
        print(f"{name:14}{one['tokens_per_second']:>10,} tokens/s  {one}", flush=True)
    speed = found["regard"]["tokens_per_second"]
    ratios = {name: speed / one["tokens_per_second"] for name, one in found.items() if name != "regard"}
    print(json.dumps({"device": str(DEVICE), "torch": torch.__version__, "ratios": ratios, **found}))


if __name__ == "__main__":
    main()
