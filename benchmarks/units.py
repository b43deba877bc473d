"""Which units of a recurrent language model track a quotation, a bracket or the place in a line: found, then measured.

python benchmarks/units.py RUN TEXT [--characters 40000] [--json FILE]

The unit that goes best with each feature is chosen on the first half of the text and measured on the second, of every
gate and state of every cell. Beside it stands what the same search finds in the same model with fresh weights.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

import regard
from regard.look import text_features, tracking
from regard.nn.batch import Tokens
from regard.tasks.run import build_model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("text", type=Path)
    parser.add_argument("--characters", type=int, default=40_000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    run = regard.load(options.run, "cpu")
    text = options.text.read_text(encoding="utf-8")[: options.characters]
    found = {
        "trained": best_units(run, run.model, text),
        "fresh": best_units(run, build_model(run.config).eval(), text),
    }
    print("| feature | cell, part and unit | correlation, second half | with fresh weights |")
    print("| --- | --- | --- | --- |")
    for feature, one in found["trained"].items():
        fresh = found["fresh"][feature]
        where = f"`{one['cell']}` {one['part']} {one['unit']}"
        print(f"| {feature} | {where} | {one['measured']:+.2f} | {fresh['measured']:+.2f} |")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1), encoding="utf-8")


@torch.inference_mode()
def best_units(run: regard.Run, model: Any, text: str) -> dict[str, dict[str, object]]:
    """For each feature of the text the unit that tracks it best on the first half, and how well on the second."""
    tokenizer = run.generator.tokenizer
    ids, spans = tokenizer.encode(text), tokenizer.offsets(text)
    half, states, parts = len(ids) // 2, None, {}
    window = run.config.model_config().max_len
    for start in range(0, len(ids), window):  # the state is carried on, so that nothing is forgotten between windows
        with regard.watch(model, parts=("gates", "states")) as trace:
            _, states = model.carry(Tokens.of([ids[start : start + window]]), states)
        for name in trace.cells:
            for letter, values in {**trace.gates(name), **trace.states(name)}.items():
                parts.setdefault((name, letter), []).append(values[0].numpy())
    values = {key: np.concatenate(found) for key, found in parts.items()}
    best = {}
    for feature in text_features(text, spans):
        wanted = list(feature.values)
        chosen = {key: tracking(one[:half], wanted[:half]) for key, one in values.items()}
        cell, part = max(chosen, key=lambda key: float(np.abs(chosen[key]).max()))
        unit = int(np.abs(chosen[cell, part]).argmax())
        measured = tracking(values[cell, part][half:, [unit]], wanted[half:])[0]
        best[feature.name] = {
            "cell": cell,
            "part": part,
            "unit": unit,
            "chosen": float(chosen[cell, part][unit]),
            "measured": float(measured),
        }
    return best


if __name__ == "__main__":
    main()
