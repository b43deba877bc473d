"""What each kind of position is worth beyond the trained length: one small language model of characters per kind.

python benchmarks/positions.py TRAIN VALID --out FOLDER [--steps 1500] [--length 128] [--kinds rotary,alibi]
python benchmarks/positions.py TRAIN VALID --out FOLDER --layers 2 --width 96 --batch-tokens 4096 --set model.dropout=0

Each is trained on windows of LENGTH characters and measured on the same last LENGTH / 2 characters of windows of
LENGTH, of one more before them (all positions shifted by one), of twice and of four times as many: nats per character.
A kind that knows no length gains from more text; one that does loses where its positions were never trained.
FOLDER/positions.json keeps the figures, and kinds that it has are not measured again; positions.svg is their plot.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import torch

import regard
from regard.look.charts import Chart, Series, plot
from regard.nn.batch import Tokens

KINDS = ("none", "linear", "linear-unscaled", "sinusoidal", "learned", "rotary", "alibi", "relative")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("train", type=Path)
    parser.add_argument("valid", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--width", type=int, default=192)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--batch-tokens", type=int, default=None, help="of an update; the preset's unless given")
    parser.add_argument("--norm", default="rms", choices=("rms", "layer"), help="layer norms cannot see linear kinds")
    parser.add_argument("--set", action="append", default=[], help="a setting of every model, NAME=VALUE")
    parser.add_argument("--windows", type=int, default=200)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--kinds", default=",".join(KINDS))
    options = parser.parse_args()
    kept = options.out / "positions.json"
    found: dict[str, list[float]] = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}
    for kind in options.kinds.split(","):
        if kind not in found:
            found[kind] = measured(trained(kind, options), options)
            kept.write_text(json.dumps(found, indent=1), encoding="utf-8")
    kept.with_suffix(".svg").write_text(plot(chart(found, options.length), alone=True), encoding="utf-8")
    names = [f"{options.length}", "shifted by one", f"{2 * options.length}", f"{4 * options.length}"]
    print(f"| positions | {' | '.join(names)} |")
    print(f"| --- {'| --- ' * len(names)}|")
    for kind, values in found.items():
        print(f"| {kind} | {' | '.join(f'{value:.3f}' for value in values)} |")


def chart(found: dict[str, list[float]], length: int) -> Chart:
    """The loss by how much was read, a line for each kind."""
    read = (length, 2 * length, 4 * length)
    return Chart(
        title=f"Trained on {length} characters, read on more",
        x="characters read",
        y="nats per character",
        series=[
            Series(name=kind, points=[(count, values[place]) for count, place in zip(read, (0, 2, 3), strict=True)])
            for kind, values in found.items()
        ],
        ticks=[(count, str(count)) for count in read],
    )


def trained(kind: str, options: argparse.Namespace) -> regard.Run:
    directory = options.out / kind
    if (directory / "model.safetensors").exists():
        return regard.load(directory, options.device)
    settings = {
        "data.max_len": options.length,
        "model.max_len": 4 * options.length + 1,
        "model.positions": kind,
        # A layer norm takes away what is the same in every feature, and so all of linear positions.
        "model.norm": options.norm,
        "model.width": options.width,
        "model.feed_forward": 4 * options.width,
        "model.layers": options.layers,
        "model.heads": 6,
        "train.steps": options.steps,
        "train.validate_every": options.steps,
        "train.save_every": options.steps,
        "train.device": options.device,
        "train.cuda_graphs": False,
    }
    if options.batch_tokens is not None:
        settings["train.batch_tokens"] = options.batch_tokens
    overrides = [
        f"{name}={str(value).lower() if isinstance(value, bool) else value}" for name, value in settings.items()
    ] + options.set
    data = {"train": [str(options.train)], "valid": [str(options.valid)]}
    return regard.train(regard.make_config(None, "gpt-characters", overrides, {"data": data}), directory)


@torch.inference_mode()
def measured(run: regard.Run, options: argparse.Namespace) -> list[float]:
    """The loss of the same characters with as much, one more, twice and four times as much read up to them."""
    model: Any = run.model
    ids = run.generator.tokenizer.encode(options.valid.read_text(encoding="utf-8"))
    length, last = options.length, options.length // 2
    device = next(model.parameters()).device
    step = max(last, (len(ids) - 4 * length) // options.windows)
    ends = range(4 * length + 1, len(ids), step)
    losses = []
    for reads in (length, length + 1, 2 * length, 4 * length):
        total, count = 0.0, 0
        for start in range(0, len(ends), 16):
            rows = [ids[end - reads - 1 : end] for end in ends[start : start + 16]]
            inputs = Tokens.of([row[:-1] for row in rows]).to(device)
            labels = torch.tensor([row[-last:] for row in rows], device=device)
            logits = model.head(model.read(inputs)[:, -last:]).float()
            total += float(torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum"))
            count += labels.numel()
        losses.append(total / count)
    return losses


if __name__ == "__main__":
    main()
