"""Draws whisper.png: where the aligning heads of a Whisper looked in a sound, against time.

python docs/images/whisper.py RUN sound.wav
"""

import sys
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure

import regard
from regard.look.watch import watch
from regard.text.whisper_tokens import SECONDS


def main(directory: str, sound: str) -> None:
    run = regard.load(directory, "cpu")
    transcriber = run.transcriber
    best = run.transcripts([sound], beam=5)[0][0]
    windows = transcriber.windows(transcriber.read([sound])[0])
    frames, positions = windows.window(0), windows.length // 2
    prompt, heads = transcriber.prompt(best.language), transcriber.aligning_heads()
    batch = transcriber.batch(frames[None], [[*prompt, *best.tokens, transcriber.known.eos]])
    with torch.inference_mode(), watch(run.model, list(heads)) as trace:
        run.model(batch)
    seen = torch.cat([trace.weights(name)[0, own] for name, own in heads.items()]).mean(0)
    weights = seen[len(prompt) - 1 : -1, :positions].numpy()
    end = positions * SECONDS
    figure = Figure(figsize=(9, 4.6), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(1, 2))
    upper.imshow(frames[: windows.length].T, origin="lower", aspect="auto", extent=(0, end, 0, 80), cmap="gray_r")
    upper.set_ylabel("mel band")
    lower.imshow(weights / weights.max(1, keepdims=True), aspect="auto", extent=(0, end, len(weights), 0), cmap="Blues")
    lower.set_yticks(np.arange(len(weights)) + 0.5, [piece.strip() for piece in best.pieces])
    lower.set_xlabel("seconds")
    for axes in (upper, lower):
        for word in best.words:
            axes.axvline(word.start, color="tab:orange", linewidth=0.8)
    figure.savefig(Path(__file__).with_name("whisper.png"), dpi=110)


if __name__ == "__main__":
    main(*sys.argv[1:])
