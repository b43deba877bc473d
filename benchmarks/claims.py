"""The lectures' claims, measured: recall and count, going without, cells by perplexity, images, time by length.

regard data digits digits
python benchmarks/claims.py digits/digits.npz train.txt valid.txt --processes 6 --device cuda --graphs

The texts are a megabyte of characters and what is held out of it. Every model is trained in one of the processes, with
one thread; each result is a line of the file, as soon as it is there. `docs/images/claims.py` plots
what was recorded of them.
"""

import argparse
import json
import multiprocessing
import tempfile
import time
import traceback
from pathlib import Path
from types import SimpleNamespace

WHOLE = "whole"
WITHOUT = (None, "residual", "norm", "scale", "heads", "feed-forward", "positions")
WAYS = {"attention": 3e-3, "gru": 3e-3, "lstm": 3e-3, "rnn": 1e-3, "convolution": 1e-3}
"""Ways to read a sequence, and the learning rate of each unless told."""
QUESTIONS = ("recall", "count")
CELLS = ("lstm", "rnn", "gru-before", "gru-after", "mut1", "mut2", "mut3")
IMAGES = {"as they are": (50, 100, 200, 400, 1438), "strewn": (300, 1000, 3000, 10_000, 100_000)}


def works(asked):
    """What is to be measured, the most wanted first."""
    far = [
        ("long-range", question, way, rate)
        for way in asked.ways
        for question in asked.questions
        for rate in asked.rates or [WAYS[way]]
    ]
    deep, *flat = ([("ablation", depth, without) for without in asked.without] for depth in asked.layers)
    cells = [("cell", cell) for cell in (*CELLS, "gpt", "rwkv")]
    images = [("images", question, count) for question in IMAGES for count in IMAGES[question]]
    found = [("growth",), *far, *deep, *cells, *images, *(work for depth in flat for work in depth)]
    return [(*work, asked) for work in found if work[0] in asked.only]


def one(work):
    what, *rest, asked = work
    began = time.perf_counter()
    try:
        kinds = {"long-range": long_range, "ablation": ablation, "cell": cell, "images": images, "growth": growth}
        found = list(kinds[what](*rest, asked))
    except Exception:
        return [{"what": what, "of": rest, "error": traceback.format_exc()}]
    return [{"what": what, **result, "seconds": round(time.perf_counter() - began)} for result in found]


def growth(asked):
    from regard.comparison.sequence_length import growth

    grown = growth(repeats=5, work_lengths=(), device=asked.device)
    for way in grown["ways"]:
        times = [[point["length"], round(1e3 * point["seconds"], 3)] for point in way["points"]]
        yield {"name": way["name"], "milliseconds": times}


def long_range(question, way, rate, asked):
    from regard.comparison.sequence_length import long_range_accuracy

    how = {"deep": True, "dilation": asked.dilation, "start": asked.start, "until": 0.99, "rows": 512}
    how |= {"rate": rate, "tokens": asked.tokens, "seed": asked.seed, "device": asked.device}
    found = long_range_accuracy(128, asked.updates, ways=[way], questions=[question], **how)
    result = found["results"][0]
    result["accuracy"] = [[point["length"], round(point["share"], 4)] for point in result["accuracy"]]
    result["curve"] = [
        [point["updates"], round(point["share"], 4), round(point["loss"], 4)] for point in result["curve"]
    ]
    own = {"start": asked.start} if way == "rnn" else {"dilation": asked.dilation} if way == "convolution" else {}
    yield {"rate": rate, "tokens": asked.tokens, "seed": asked.seed, **own, **result}


def settings(asked, steps, rate):
    return [
        *(f"train.steps={steps}", f"train.save_every={steps}", f"train.validate_every={max(1, steps // 2)}"),
        *(f"train.warmup={max(1, steps // 10)}", f"train.learning_rate={rate}", "train.threads=1"),
        *(f"train.device={asked.device}", f"train.cuda_graphs={'true' if asked.graphs else 'false'}"),
        *("train.precision=float32", f'data.cache="{asked.cache}"'),
    ]


def trained(config):
    """A run of that configuration: its parameters, and its validations as the log has them."""
    from regard.comparison.budget import count_parameters
    from regard.comparison.run_results import training_curves
    from regard.errors import Diverged
    from regard.tasks.run import load_config
    from regard.trainer.trainer import train

    with tempfile.TemporaryDirectory() as folder:
        try:
            train(config, Path(folder) / "run", verify=False)
            diverged = None
        except Diverged as error:
            diverged = str(error)
        updates, _, _, _, validations = training_curves(Path(folder) / "run")
        made = load_config(Path(folder) / "run")
    return {"parameters": count_parameters(made), "updates": updates, "diverged": diverged}, made, validations


def ablation(depth, without, asked):
    from regard.comparison.experiment import TRICKS
    from regard.tasks.config import make_config

    deep = [f"model.encoder_layers={depth}", f"model.decoder_layers={depth}"]
    data = [f"train.batch_tokens={asked.batch_tokens}", "data.world=20000", "data.world_grammar=plain"]
    own = [TRICKS[without]] if without else []
    steps = asked.steps or max(10, asked.updates // 3)
    about, _, validations = trained(make_config(None, "demo", [*settings(asked, steps, 2e-3), *data, *deep, *own]))
    yield {"depth": depth, "without": without, "batch_tokens": asked.batch_tokens, **about, "validations": validations}


def cell(name, asked):
    from regard.comparison.budget import with_parameters
    from regard.tasks.config import make_config

    preset = {"gpt": "gpt-tiny", "rwkv": "rwkv-tiny"}.get(name, "lstm-tiny")
    rate = {"rnn": 1e-3, "gpt": 2e-3, "rwkv": 2e-3}.get(name, 3e-3)
    own = [f"model.cell={name}"] if preset == "lstm-tiny" else []
    data = [f'data.train=["{asked.train}"]', f'data.valid=["{asked.valid}"]', "data.carry=false"]
    steps = asked.steps or max(10, asked.updates // 3)
    config = make_config(None, preset, [*settings(asked, steps, rate), "train.batch_tokens=8192", *data, *own])
    adjusted = with_parameters(sized(config, asked), 600_000)
    about, made, validations = trained(adjusted)
    yield {"model": name, "rate": rate, "width": made.model["width"], "layers": made.model["layers"], **about} | {
        "validations": [[point["step"], round(point["nll"], 4)] for point in validations]
    }


def sized(config, asked):
    """With the number of characters, so that the parameters can be counted before the text is read."""
    from dataclasses import replace

    size = len(set(Path(asked.train).read_text(encoding="utf-8"))) + 4
    return replace(config, model={**config.model, "vocab_size": size})


def images(question, count, asked):
    import vision

    how = {"digits": asked.digits, "updates": max(10, asked.updates // 2), "device": asked.device}
    for kind in ("vit", "convnet"):
        found = vision.one((question, kind, count, 1, SimpleNamespace(**how, graphs=asked.graphs, parameters=136_000)))
        yield {**found, "accuracy": round(found["accuracy"], 4)}


def left_out(name):
    """What an ablation goes without; nothing where it is whole."""
    if name not in (WHOLE, *WITHOUT[1:]):
        raise argparse.ArgumentTypeError(f"must be of {WHOLE}, {', '.join(WITHOUT[1:])}, not {name}")
    return None if name == WHOLE else name


def started():
    import torch

    torch.set_num_threads(1)


def main():
    kinds = ("growth", "long-range", "ablation", "cell", "images")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("digits", type=Path, help="what `regard data digits` wrote")
    parser.add_argument("train", type=Path, help="characters to train on")
    parser.add_argument("valid", type=Path, help="characters held out")
    parser.add_argument("--updates", type=int, default=3000, help="the most of a reader; others have a share of them")
    parser.add_argument("--questions", nargs="+", default=QUESTIONS, choices=QUESTIONS, help="of readers")
    parser.add_argument("--ways", nargs="+", default=tuple(WAYS), choices=tuple(WAYS), help="to read a sequence")
    parser.add_argument("--rates", nargs="+", type=float, help="of each reader; one of its own unless given")
    parser.add_argument("--tokens", type=int, default=8192, help="of an update of a reader")
    parser.add_argument("--dilation", type=int, default=1, help="how much further each convolution reaches")
    parser.add_argument("--start", default="orthogonal", choices=("orthogonal", "identity"), help="of a vanilla RNN")
    parser.add_argument("--seed", type=int, default=1, help="of readers")
    parser.add_argument("--steps", type=int, help="of an ablation or a cell, in place of a third of --updates")
    parser.add_argument("--batch-tokens", type=int, default=6000, help="of an update of an ablation")
    parser.add_argument("--layers", type=int, nargs="+", default=(6, 2), help="on each side, of the ablations")
    parser.add_argument("--without", nargs="+", type=left_out, default=WITHOUT, help=f"{WHOLE} is the model itself")
    parser.add_argument("--only", nargs="+", default=kinds, choices=kinds)
    parser.add_argument("--first", type=int, help="measure only so many")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--graphs", action="store_true", help="CUDA graphs where models are trained as runs")
    parser.add_argument("--out", type=Path, default=Path("claims.jsonl"))
    asked = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as asked.cache,
        asked.out.open("w", encoding="utf-8") as file,
        multiprocessing.get_context("spawn").Pool(asked.processes, started) as pool,
    ):
        for results in pool.imap_unordered(one, works(asked)[: asked.first]):
            for result in results:
                file.write(json.dumps(result) + "\n")
                file.flush()
                print(json.dumps(result)[:200], flush=True)


if __name__ == "__main__":
    main()
