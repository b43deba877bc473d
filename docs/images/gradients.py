"""Plot gradients.svg: how far back the loss reaches in models with fresh weights.

python docs/images/gradients.py
"""

from pathlib import Path

from regard.analysis.gradients import gradients, gradients_chart

TEXT = " ".join(f"word{number}" for number in range(60))
SMALL = ["model.layers=1", "model.width=96"]
MODELS = {
    "vanilla RNN": ("lstm-tiny", ["model.cell=rnn", *SMALL], None),
    "GRU": ("lstm-tiny", ["model.cell=gru-before", *SMALL], None),
    "LSTM": ("lstm-tiny", ["model.cell=lstm", *SMALL], None),
    "attention (gpt-tiny)": ("gpt-tiny", [], None),
    "vanilla RNN, radius 4": ("lstm-tiny", ["model.cell=rnn", *SMALL], 4.0),
}


def main() -> None:
    models = []
    for name, (preset, settings, radius) in MODELS.items():
        document = gradients([preset], TEXT, overrides=settings, spectral_radius=radius)
        models.append({**document["models"][0], "name": name})
        print(f"{name}: {models[-1]['factor_per_step']:.3f}")
    path = Path(__file__).with_name("gradients.svg")
    path.write_text(gradients_chart({"models": models}, alone=True), encoding="utf-8")
    print(path)


if __name__ == "__main__":
    main()
