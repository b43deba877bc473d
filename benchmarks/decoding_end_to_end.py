"""A file translated from end to end on a GPU, beside Hugging Face's generate with the same weights, in one run.

    python benchmarks/decoding_end_to_end.py RUN test.en test.de [--times 20] [--batch 256] [--rounds 3]

Tokenising, decoding and detokenising are timed together, greedy and with a beam of 5, for the lines of the file so many
times over. The peer is the run exported to Hugging Face, in bfloat16; it has the same tokenizer, and its sentences go
in batches of like length. Printed are sentences and output tokens per second (median, least and most of the rounds),
the memory that each took at most, and apart from it the first call, in which steps are captured (of all lines; the peer
warms up with the file once). Beside them BLEU of bfloat16 and float32.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import sacrebleu
import torch

import regard
from regard.interop.huggingface import export_run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("run")
    parser.add_argument("source")
    parser.add_argument("reference")
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument(
        "--batch", type=int, nargs="*", default=[256], help="the peer's sentences per batch; best counts"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--beams", type=int, nargs="*", default=[1, 5])
    options = parser.parse_args()
    lines, references = (
        Path(path).read_text(encoding="utf-8").splitlines() for path in (options.source, options.reference)
    )
    run = regard.load(options.run, "cuda", precision="bfloat16")
    peer = exported(options.run)
    many = lines * options.times
    for beam in options.beams:
        sides = {"regard": lambda lines, beam=beam: ours(run, lines, beam)}
        for batch in options.batch:
            sides[f"Hugging Face, batches of {batch}"] = lambda lines, beam=beam, batch=batch: theirs(
                run, peer, lines, beam, batch
            )
        show(f"beam {beam}, {len(many):,} sentences", sides, options.rounds, many, references)
        plain = regard.load(options.run, "cuda", precision="float32")
        print(f"  BLEU in float32: {bleu([one.text for one in ours(plain, lines, beam)], references):.2f}", flush=True)


def exported(run: str):
    from transformers import MarianMTModel
    from transformers.utils import logging

    logging.set_verbosity_error()
    with tempfile.TemporaryDirectory() as folder:
        export_run(regard.load(run, "cpu"), Path(folder) / "hf")
        return MarianMTModel.from_pretrained(Path(folder) / "hf").eval().to("cuda", torch.bfloat16)


def ours(run, lines: list[str], beam: int) -> list:
    return [best[0] for best in run.translator.translate(lines, run.decode_config(beam=beam, length_penalty=0.6))]


def theirs(run, peer, lines: list[str], beam: int, batch: int) -> list[str]:
    source, target = run.vocabularies.source, run.vocabularies.target
    rows = [[*source.encode(line), source.eos] for line in lines]
    order = sorted(range(len(rows)), key=lambda index: -len(rows[index]))
    found: list = [None] * len(rows)
    for start in range(0, len(order), batch):
        places = order[start : start + batch]
        longest = len(rows[places[0]])
        ids = torch.full((len(places), longest), source.pad)
        for row, place in enumerate(places):
            ids[row, : len(rows[place])] = torch.tensor(rows[place])
        ids = ids.to("cuda")
        with torch.inference_mode():
            made = peer.generate(
                input_ids=ids,
                attention_mask=(ids != source.pad).long(),
                num_beams=beam,
                do_sample=False,
                max_new_tokens=longest + 50,
            )
        for place, row in zip(places, made.tolist(), strict=True):
            found[place] = target.decode([token for token in row[1:] if token not in (target.eos, target.pad)])
    return found


def bleu(texts: list[str], references: list[str]) -> float:
    return sacrebleu.corpus_bleu(texts, [references]).score


def show(title: str, sides: dict, rounds: int, lines: list[str], references: list[str]) -> None:
    print(title)
    seconds = {name: [] for name in sides}
    first, peaks, outputs = {}, {}, {}
    for name, decode in reversed(sides.items()):  # the peer before regard's slots are there, which stay
        torch.cuda.reset_peak_memory_stats()
        began = time.perf_counter()
        decode(lines if name == "regard" else lines[: len(references)])
        first[name], peaks[name] = time.perf_counter() - began, torch.cuda.max_memory_allocated() / 1e9
    for _ in range(rounds):
        for name, decode in sides.items():
            torch.cuda.synchronize()
            began = time.perf_counter()
            outputs[name] = decode(lines)
            seconds[name].append(time.perf_counter() - began)
    best = min(statistics.median(took) for name, took in seconds.items() if name != "regard")
    texts = {name: [one if isinstance(one, str) else one.text for one in found] for name, found in outputs.items()}
    tokens = sum(len(one.tokens) + 1 for one in outputs["regard"])
    for name, took in seconds.items():
        middle, count = statistics.median(took), len(texts[name])
        print(
            f"  {name:30} {middle:6.2f} s ({min(took):.2f} to {max(took):.2f}), {count / middle:,.0f} sentences/s, "
            f"{tokens / middle:,.0f} tokens/s, {best / middle:5.2f}x, first call {first[name]:.2f} s, "
            f"{peaks[name]:.2f} GB, BLEU {bleu(texts[name][: len(references)], references):.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
