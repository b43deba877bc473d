"""Beam search on a CPU beside Hugging Face and CTranslate2: the same weights, sentences, beam and output length.

    python benchmarks/decoding_cpu.py --layers 6 --width 512 --vocabulary 32000 --batch 1
    python benchmarks/decoding_cpu.py --layers 3 --width 256 --vocabulary 10000 --batch 64

Weights are random, so every output is made to have `--length` tokens. Rounds are interleaved, so that whatever else the
machine does falls on all alike; what is printed is the median, the least and the most tokens per second, and the ratio
of medians to the native int8. Peak memory is that of a process of its own that holds this one engine.
"""

import argparse
import gc
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from peer import BOS, EOS, PAD, copy_weights, ours

from regard.bench.training_speed import marian
from regard.decode.beam import beam_search
from regard.decode.config import DecodeConfig
from regard.models.transformer import Transformer
from regard.nn.batch import Pairs, Tokens
from regard.nn.quantized import quantize

NATIVE = "regard int8"
Outputs = list[list[int]]
Side = Callable[[list[list[int]]], Outputs]


def regard_side(options: argparse.Namespace, precision: str) -> Side:
    model = ours(options).eval()
    if precision == "int8":
        quantize(model)
    elif precision == "bfloat16":
        model.to(torch.bfloat16)
    length = options.length
    config = DecodeConfig(
        beam=options.beam, length_penalty=1.0, length_form="power", min_len=length, max_len=length + 1
    )

    @torch.inference_mode()
    def decode(rows: list[list[int]]) -> Outputs:
        state = model.start(Pairs(Tokens.of(rows, PAD)))
        found = beam_search(model, state, torch.full((len(rows),), BOS), eos=EOS, config=config, max_len=length)
        return [one[0].tokens for one in found]

    return decode


def peer_of(options: argparse.Namespace):
    model: Transformer = ours(options).eval()
    peer = marian(model.config).eval()
    copy_weights(model, peer)
    return peer


def hugging_face(options: argparse.Namespace) -> Side:
    peer = peer_of(options)

    @torch.inference_mode()
    def decode(rows: list[list[int]]) -> Outputs:
        source = Tokens.of(rows, PAD)
        found = peer.generate(
            input_ids=source.ids,
            attention_mask=source.mask().long(),
            num_beams=options.beam,
            do_sample=False,
            length_penalty=1.0,
            min_new_tokens=options.length,
            max_new_tokens=options.length,
        )
        return [row[1:] for row in found.tolist()]

    return decode


def ctranslate2_side(options: argparse.Namespace, precision: str) -> Side:
    import ctranslate2
    from ctranslate2.converters.transformers import BartLoader

    peer = peer_of(options)
    peer.config.normalize_before = peer.config.normalize_embedding = False
    with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
        spec = BartLoader().get_model_spec(peer)
        words = [str(number) for number in range(options.vocabulary)]
        spec.register_source_vocabulary(words)
        spec.register_target_vocabulary(words)
        spec.config.decoder_start_token = spec.config.bos_token = str(BOS)
        spec.config.eos_token, spec.config.unk_token = str(EOS), str(PAD)
        spec.validate()
        spec.optimize(quantization=precision)
        spec.save(folder)
        translator = ctranslate2.Translator(
            folder, device="cpu", compute_type=precision, intra_threads=options.threads, inter_threads=1
        )

    def decode(rows: list[list[int]]) -> Outputs:
        found = translator.translate_batch(
            [[str(token) for token in row] for row in rows],
            beam_size=options.beam,
            length_penalty=1.0,
            min_decoding_length=options.length,
            max_decoding_length=options.length,
            max_batch_size=len(rows),
        )
        return [[int(token) for token in one.hypotheses[0]] for one in found]

    return decode


SIDES: dict[str, Callable[[argparse.Namespace], Side]] = {
    NATIVE: lambda options: regard_side(options, "int8"),
    "regard bfloat16": lambda options: regard_side(options, "bfloat16"),
    "regard float32": lambda options: regard_side(options, "float32"),
    "Hugging Face float32": hugging_face,
    "CTranslate2 float32": lambda options: ctranslate2_side(options, "float32"),
    "CTranslate2 int8": lambda options: ctranslate2_side(options, "int8"),
}


def peak_memory() -> float:
    """The greatest resident memory since it was last reset, in MiB."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(re.search(r"VmHWM:\s+(\d+)", status)[1]) / 1024  # type: ignore[index]


def sentences(options: argparse.Namespace) -> list[list[int]]:
    draw = random.Random(0)
    count = max(options.batch, options.sentences // options.batch * options.batch)
    return [[*(draw.randrange(4, options.vocabulary) for _ in range(options.source)), EOS] for _ in range(count)]


def decode_all(side: Side, rows: list[list[int]], batch: int) -> Outputs:
    return [one for start in range(0, len(rows), batch) for one in side(rows[start : start + batch])]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n")[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--vocabulary", type=int, default=32_000)
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--batch", type=int, default=1, help="sentences decoded together")
    parser.add_argument("--sentences", type=int, default=4, help="sentences per round, at least one batch")
    parser.add_argument("--source", type=int, default=20, help="tokens of each source sentence")
    parser.add_argument("--length", type=int, default=30, help="tokens of each output")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES), metavar="NAME")
    parser.add_argument("--no-memory", action="store_true", help="leave out the peak memory of each side")
    parser.add_argument("--only", help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rows = sentences(options)
    if options.only:
        side = SIDES[options.only](options)
        gc.collect()
        Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")
        side(rows[: options.batch])
        print(f"{peak_memory():.0f}")
        return
    memory = {}
    if not options.no_memory:
        for name in options.sides:
            again = [sys.executable, "-W", "ignore", __file__, *sys.argv[1:], "--only", name]
            memory[name] = subprocess.run(again, check=True, capture_output=True, text=True).stdout.split()[-1]
    sides = {name: SIDES[name](options) for name in options.sides}
    speeds: dict[str, list[float]] = {name: [] for name in sides}
    found: dict[str, Outputs] = {}
    for side in sides.values():  # what is built at the first call is not timed
        side(rows[: options.batch])
    for _ in range(options.rounds):
        for name, side in sides.items():
            began = time.perf_counter()
            found[name] = decode_all(side, rows, options.batch)
            speeds[name].append(len(rows) * options.length / (time.perf_counter() - began))
    print(
        f"{options.layers}+{options.layers} x {options.width}, vocabulary {options.vocabulary:,}, beam {options.beam}, "
        f"batch {options.batch}, {options.threads} thread(s), load {os.getloadavg()[0]:.1f}, "
        f"{options.rounds} rounds of {len(rows)} sentences"
    )
    medians = {name: statistics.median(one) for name, one in speeds.items()}
    base = medians.get(NATIVE) or next(iter(medians.values()))
    exact = found.get("regard float32")
    for name, one in speeds.items():
        same = "" if exact is None else f"{sum(a == b for a, b in zip(found[name], exact, strict=True))}/{len(rows)}"
        print(
            f"{name:22} {medians[name]:8,.0f} tok/s ({min(one):,.0f} to {max(one):,.0f})  "
            f"int8 is {base / medians[name]:5.2f}x  {memory.get(name, '?'):>6} MiB  as float32: {same}"
        )
        assert all(len(output) == options.length for output in found[name]), f"{name} wrote another length"


if __name__ == "__main__":
    main()
