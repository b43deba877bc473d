"""Decoding on a GPU beside Hugging Face's generate: the same weights, inputs, beam and output length, in one run.

    python benchmarks/decoding_gpu.py [--batches 1 32 256] [--rounds 5] [--static] [--gpt2]

The translation model is the base model (6 + 6 layers of 512, 32,000 entries) with random weights, so each output is
made to have 30 tokens; Marian has the same weights. Rounds take turns; printed are output tokens per second (median,
least and most), the memory that each took at most, and the first call apart, in which steps are captured or compiled.
Hugging Face is timed in bfloat16 and float32, and its better one counts; `--static` adds its static cache, compiled.
`--gpt2` times sampling of 256 tokens by GPT-2 124M at batch 1 instead.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from itertools import islice

import torch
from peer import BOS, EOS, copy_weights, ours

from regard.bench.training_speed import marian
from regard.decode.config import DecodeConfig
from regard.decode.device import DeviceDecoder, Source
from regard.decode.sample import uniform_numbers
from regard.models.gpt import GPT, GPTConfig
from regard.nn.batch import Pairs, Tokens

DEVICE = torch.device("cuda")
LENGTH = 30


def rounds(sides: dict[str, Callable[[], object]], tokens: int, count: int) -> list[dict]:
    """Each side's speed, the sides taking turns, beside the memory that it needs."""
    first, seconds, peak = {}, {name: [] for name in sides}, {}
    for name, decode in list(sides.items()):
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        began = time.perf_counter()
        try:
            decode()
        except Exception as error:  # a peer's setting that does not run is reported as such
            print(f"{name} does not run: {type(error).__name__}: {str(error).splitlines()[0][:150]}", flush=True)
            del sides[name]
            continue
        torch.cuda.synchronize()
        first[name], peak[name] = time.perf_counter() - began, torch.cuda.max_memory_allocated() / 1e9
    for _ in range(count):
        for name, decode in sides.items():
            torch.cuda.synchronize()
            began = time.perf_counter()
            decode()
            torch.cuda.synchronize()
            seconds[name].append(time.perf_counter() - began)
    return [
        {
            "name": name,
            "tokens_per_second": round(tokens / statistics.median(seconds[name])),
            "least": round(tokens / max(seconds[name])),
            "most": round(tokens / min(seconds[name])),
            "first_call_seconds": round(first[name], 2),
            "peak_gb": round(peak[name], 2),
        }
        for name in sides
    ]


def show(title: str, found: list[dict]) -> None:
    peers = [one["tokens_per_second"] for one in found if one["name"].startswith("Hugging Face b")]
    peers += [one["tokens_per_second"] for one in found if one["name"].startswith("Hugging Face f")]
    best = max(peers, default=0)
    print(title)
    for one in found:
        ratio = f"{one['tokens_per_second'] / best:6.2f}x" if best else ""
        print(
            f"  {one['name']:34} {one['tokens_per_second']:>9,} tokens/s ({one['least']:,} to {one['most']:,}) {ratio}"
            f"  first call {one['first_call_seconds']:.2f} s, {one['peak_gb']:.2f} GB",
            flush=True,
        )


def decode_all(decoder: DeviceDecoder, config: DecodeConfig, sources: list[Source], longest: int) -> list:
    waiting, found = iter(enumerate(sources)), {}
    steps = max(one.limit for one in sources)
    for came in decoder.run(lambda count: list(islice(waiting, count)), config, eos=EOS, longest=longest, steps=steps):
        found.update(came)
    return [found[index] for index in range(len(sources))]


def beams(options: argparse.Namespace) -> list[dict]:
    options.layers, options.width, options.heads, options.vocabulary = 6, 512, 8, 32_000
    models = {}
    for precision in (torch.float32, torch.bfloat16):
        mine = ours(options).eval()
        peer = marian(mine.config).eval()
        copy_weights(mine, peer)
        models[precision] = mine.to(DEVICE, precision), peer.to(DEVICE, precision)
    config = DecodeConfig(
        beam=options.beam, length_penalty=1.0, length_form="power", min_len=LENGTH, max_len=LENGTH + 1, max_ratio=None
    )
    decoders = {
        precision: DeviceDecoder(mine, DEVICE, lambda items, length: Pairs(Tokens.of(items, length=length).to(DEVICE)))
        for precision, (mine, _) in models.items()
    }
    results = []
    for batch in options.batches:
        torch.manual_seed(1)
        rows = [[*torch.randint(4, 32_000, (20,)).tolist(), EOS] for _ in range(batch)]
        ids = torch.tensor(rows, device=DEVICE)

        def mine(precision: torch.dtype, rows: list = rows) -> list:
            sources = [Source(row, len(row), BOS, LENGTH) for row in rows]
            return decode_all(decoders[precision], config, sources, 21)

        def peer(precision: torch.dtype, ids: torch.Tensor = ids, **more) -> torch.Tensor:
            with torch.inference_mode():
                return models[precision][1].generate(
                    input_ids=ids,
                    attention_mask=torch.ones_like(ids),
                    num_beams=options.beam,
                    do_sample=False,
                    length_penalty=1.0,
                    min_new_tokens=LENGTH,
                    max_new_tokens=LENGTH,
                    **more,
                )

        sides = {
            "regard bfloat16": lambda: mine(torch.bfloat16),
            "regard float32": lambda: mine(torch.float32),
            "Hugging Face bfloat16": lambda: peer(torch.bfloat16),
            "Hugging Face float32": lambda: peer(torch.float32),
        }
        if options.static:  # first: its compiler throws away memory that graphs captured before it still use
            sides = {"static cache, Hugging Face": lambda: peer(torch.bfloat16, cache_implementation="static"), **sides}
        found = rounds(sides, batch * LENGTH, options.rounds)
        same = [one[0].tokens for one in mine(torch.float32)]
        other = [row[1 : LENGTH + 1] for row in peer(torch.float32).tolist()]
        equal = sum(one == two[: len(one)] for one, two in zip(same, other, strict=True))
        show(
            f"beam {options.beam}, batch {batch} ({equal} of {batch} outputs equal to Hugging Face's in float32)", found
        )
        results.append({"batch": batch, "beam": options.beam, "equal": equal, "sides": found})
    return results


def gpt2(options: argparse.Namespace) -> list[dict]:
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    peer = GPT2LMHeadModel(GPT2Config()).eval().to(DEVICE, torch.bfloat16)
    sizes = GPTConfig(vocab_size=50257, width=768, heads=12, layers=12, feed_forward=3072, max_len=1024)
    model = GPT(sizes).eval().to(DEVICE, torch.bfloat16)
    prompt = torch.randint(0, 50000, (16,)).tolist()
    config = DecodeConfig(temperature=1.0, top_k=50, min_len=255, max_len=256, max_ratio=None)
    decoder = DeviceDecoder(model, DEVICE, lambda items, length: Tokens.of(items, length=length).to(DEVICE))
    uniforms = uniform_numbers(0, [0], samples=1, steps=256)

    def mine() -> list:
        return decode_all(decoder, config, [Source(prompt, 16, prompt[-1], 256, uniforms=uniforms)], 16)

    ids = torch.tensor([prompt], device=DEVICE)

    def theirs(**more) -> torch.Tensor:
        with torch.inference_mode():
            return peer.generate(
                input_ids=ids,
                attention_mask=torch.ones_like(ids),
                do_sample=True,
                top_k=50,
                min_new_tokens=256,
                max_new_tokens=256,
                pad_token_id=0,
                **more,
            )

    sides = {
        "static cache, Hugging Face": lambda: theirs(cache_implementation="static"),
        "regard bfloat16": mine,
        "Hugging Face bfloat16": theirs,
    }
    found = rounds(sides, 256, options.rounds)
    show("GPT-2 124M, batch 1, 256 tokens sampled with top-k 50", found)
    return found


def profile(options: argparse.Namespace) -> None:
    """Where the time of a step goes."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as profiled

    options.layers, options.width, options.heads, options.vocabulary = 6, 512, 8, 32_000
    model = ours(options).eval().to(DEVICE, torch.bfloat16)
    decoder = DeviceDecoder(model, DEVICE, lambda items, length: Pairs(Tokens.of(items, length=length).to(DEVICE)))
    config = DecodeConfig(beam=options.beam, min_len=LENGTH, max_len=LENGTH + 1, max_ratio=None)
    for batch in options.batches:
        rows = [[*torch.randint(4, 32_000, (20,)).tolist(), EOS] for _ in range(batch)]
        sources = [Source(row, len(row), BOS, LENGTH) for row in rows]
        decode_all(decoder, config, sources, 21)
        with profiled(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as trace:
            decode_all(decoder, config, sources, 21)
            torch.cuda.synchronize()
        print(f"batch {batch}")
        print(trace.key_averages().table(sort_by="cuda_time_total", row_limit=28, max_name_column_width=90), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--batches", type=int, nargs="*", default=[1, 32, 256])
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--static", action="store_true", help="time Hugging Face's static cache, compiled, as well")
    parser.add_argument("--gpt2", action="store_true", help="time sampling by GPT-2 124M")
    parser.add_argument("--profile", action="store_true", help="print where the time of a step goes")
    parser.add_argument("--json", help="a file for the figures")
    options = parser.parse_args()
    if options.profile:
        profile(options)
        return
    results: dict = {"device": torch.cuda.get_device_name()}
    if options.gpt2:
        results["gpt2"] = gpt2(options)
    elif options.batches:
        results["beams"] = beams(options)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(results, file, indent=1)


if __name__ == "__main__":
    main()
