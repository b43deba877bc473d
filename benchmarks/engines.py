"""Other engines beside torch: how many translations are the same, how far scores are apart, BLEU and seconds.

    python benchmarks/engines.py RUN --data test.en test.de --rounds 3

All in one process on the same sentences, in turns. Greedy, then by beam as the run's settings say, then by beam with a
score divided by the length. The model's files are made first; the time that takes, and their size, are printed apart.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import torch

import regard
from regard.interop.engines import export_run, translator_with
from regard.interop.parity import Output, compare
from regard.metrics.text import corpus_bleu
from regard.tasks.corpora import files_corpus, full_pairs

ENGINES = {"ctranslate2": "float32", "ctranslate2 int8": "int8", "onnx": "float32"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--data", nargs="+", required=True, help="pairs: two line-aligned files, or one")
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    run = regard.load(options.run, "cpu")
    pairs = full_pairs(files_corpus(tuple(options.data), run.config.data), options.sentences)
    sources, references = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    translators = {"torch": run.translator}
    with tempfile.TemporaryDirectory() as folder:
        for name, quantization in ENGINES.items():
            began, out = time.perf_counter(), Path(folder) / name.replace(" ", "-")
            engine = name.partition(" ")[0]
            export_run(run, engine, out, quantization)
            size = sum(file.stat().st_size for file in out.iterdir()) / 1e6
            print(f"{name}: written in {time.perf_counter() - began:.1f} s, {size:.1f} MB")
            translators[name] = translator_with(run, engine, out)
        searches = {
            "greedy": run.decode_config(beam=1),
            "beam 5": run.decode_config(beam=5, top_beams=1),
            "beam 5, power 1.0": run.decode_config(beam=5, top_beams=1, length_form="power", length_penalty=1.0),
        }
        for search, config in searches.items():
            seconds, found = {name: [] for name in translators}, {}
            for _ in range(options.rounds):
                for name, translator in translators.items():
                    began = time.perf_counter()
                    best = [one[0] for one in translator.translate(sources, config)]
                    seconds[name].append(time.perf_counter() - began)
                    found[name] = [Output(one.tokens, one.text, one.score) for one in best]
            for name, outputs in found.items():
                said = compare(search, sources, found["torch"], outputs)
                bleu = corpus_bleu([one.text for one in outputs], references)[0]
                middle, least, most = statistics.median(seconds[name]), min(seconds[name]), max(seconds[name])
                print(
                    f"{search} | {name} | {said.equal} of {said.total} equal | {said.near} equal or within 1e-4 | "
                    f"largest difference {said.largest:.1e} | BLEU {bleu:.2f} | "
                    f"{middle:.2f} s ({least:.2f} to {most:.2f})",
                    flush=True,
                )


if __name__ == "__main__":
    main()
