"""A student with a deep encoder and a shallow decoder beside its teacher on a CPU: BLEU and sentences per second.

    python benchmarks/deep_shallow.py OUT/teacher OUT/distilled --data test_2016_flickr.en test_2016_flickr.de

Each run by torch in float32, by torch in int8 where this version has that, and by CTranslate2 in int8, the teacher by
beam 5, the students also greedily. All in one process on the same sentences, in turns; medians and spreads. The last
lines say how many times as fast as the teacher in CTranslate2 int8 by beam each student is, and how many BLEU it loses.
Without `--batch` all sentences are given at once, and each engine makes its own batches; 1 is one after the other.
"""

import argparse
import inspect
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import torch

import regard
from regard.decode.config import DecodeConfig
from regard.interop.engines import export_run, use_engine
from regard.metrics.text import corpus_bleu
from regard.tasks.corpora import files_corpus, full_pairs
from regard.tasks.translator import Translator

PEER = "CTranslate2 int8"
"""What a student is compared with: its teacher by this engine, by beam 5."""


def engines(directory: Path, folder: Path) -> Iterator[tuple[str, regard.Run]]:
    """The run as each engine has it."""
    yield "torch float32", regard.load(directory, "cpu")
    if "precision" in inspect.signature(regard.load).parameters:
        yield "torch int8", regard.load(directory, "cpu", precision="int8")  # pyright: ignore[reportCallIssue]
    else:
        print("torch int8 is not measured: this version has no precision of inference", file=sys.stderr)
    run = regard.load(directory, "cpu")
    use_engine(run, "ctranslate2", export_run(run, "ctranslate2", folder / f"{directory.name}-int8", "int8"))
    yield PEER, run


def translated(translator: Translator, sentences: list[str], config: DecodeConfig, batch: int) -> list[str]:
    """Their translations, so many at a time, those of like length together; in the order given."""
    batch = batch or len(sentences)
    order = sorted(range(len(sentences)), key=lambda place: len(sentences[place].split()))
    found: list[str] = [""] * len(sentences)
    for first in range(0, len(order), batch):
        places = order[first : first + batch]
        best = translator.translate([sentences[place] for place in places], config)
        for place, one in zip(places, best, strict=True):
            found[place] = one[0].text
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("teacher", type=Path)
    parser.add_argument("students", type=Path, nargs="+")
    parser.add_argument("--data", nargs="+", required=True, help="pairs: two line-aligned files, or one")
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=0, help="sentences at a time; 0 is all")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tokenize", default="none", help="sacreBLEU's tokenizer; Multi30k's text has spaces already")
    parser.add_argument("--beams", type=int, nargs="+", default=[5, 1])
    parser.add_argument("--only", nargs="+", metavar="ENGINE", help=f"these engines alone, {PEER} among them")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    config = regard.load(options.teacher, "cpu").config
    pairs = full_pairs(files_corpus(tuple(options.data), config.data), options.sentences)
    sources, references = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    with tempfile.TemporaryDirectory() as folder:
        cells: dict[tuple[str, str, int], tuple[Translator, DecodeConfig]] = {}
        for directory in (options.teacher, *options.students):
            for engine, run in engines(directory, Path(folder)):
                if options.only and engine not in options.only:
                    continue
                for beam in options.beams:
                    how = run.decode_config(beam=beam, top_beams=1)
                    cells[directory.name, engine, beam] = run.translator, how
        seconds: dict[tuple[str, str, int], list[float]] = {cell: [] for cell in cells}
        bleu: dict[tuple[str, str, int], float] = {}
        signature = ""
        for translator, how in cells.values():
            translated(translator, sources[:32], how, options.batch)  # what is made once is made
        for _ in range(options.rounds):
            for cell, (translator, how) in cells.items():
                began = time.perf_counter()
                found = translated(translator, sources, how, options.batch)
                seconds[cell].append(time.perf_counter() - began)
                bleu[cell], signature = corpus_bleu(found, references, tokenize=options.tokenize)
    print(f"{len(sources)} sentences, {options.batch or 'all'} at a time, {options.threads} threads, {signature}")
    speed = {cell: len(sources) / statistics.median(taken) for cell, taken in seconds.items()}
    for (name, engine, beam), taken in seconds.items():
        cell = name, engine, beam
        least, most = len(sources) / max(taken), len(sources) / min(taken)
        print(
            f"{name} | {engine} | beam {beam} | BLEU {bleu[cell]:.2f} | "
            f"{speed[cell]:.1f} sentences/s ({least:.1f} to {most:.1f})"
        )
    peer = options.teacher.name, PEER, 5
    for cell in cells:
        if cell[0] != options.teacher.name:
            print(
                f"{cell[0]}, {cell[1]}, beam {cell[2]}: {speed[cell] / speed[peer]:.2f} times the teacher's speed in "
                f"{PEER}, {bleu[cell] - bleu[peer]:+.2f} BLEU"
            )


if __name__ == "__main__":
    main()
