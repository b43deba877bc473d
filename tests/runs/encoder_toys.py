"""Texts for small encoders, and how they are trained."""

import json
import random

from regard import make_config

SMALL = [
    "train.batch_tokens=256",
    "train.steps=24",
    "train.warmup=3",
    "train.learning_rate=0.004",
    "train.validate_every=12",
    "train.save_every=8",
    "train.log_every=4",
    "train.threads=1",
]
SHAPE = ["model.width=16", "model.heads=2", "model.layers=2", "model.feed_forward=24", "tokenizer.vocab_size=200"]
GOOD, BAD = ["good", "fine", "warm"], ["bad", "poor", "cold"]


def write_texts(folder):
    """Plain text and labelled texts of each kind, to train on and to validate on."""
    dice = random.Random(0)

    def sentence():
        return f"the {dice.choice(['sun', 'sea', 'day'])} was {dice.choice(GOOD + BAD)} today."

    for name, count in (("train", 40), ("valid", 12)):
        documents = ["\n".join(sentence().capitalize() for _ in range(4)) for _ in range(count)]
        (folder / f"{name}.txt").write_text("\n\n".join(documents), encoding="utf-8")
        rows = [
            (text, "good" if any(word in text for word in GOOD) else "bad") for text in (sentence() for _ in range(80))
        ]
        (folder / f"{name}.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in rows), encoding="utf-8")
        (folder / f"{name}-head.tsv").write_text(
            "label\tsentence\n" + "".join(f"{b}\t{a}\n" for a, b in rows), encoding="utf-8"
        )
        pairs = [{"one": a, "two": sentence(), "same": int(b == "good")} for a, b in rows]
        (folder / f"{name}-pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in pairs), encoding="utf-8")
        tags = [[f"{word}\t{'B-X' if word in ('sun', 'sea', 'day') else 'O'}" for word in a.split()] for a, _ in rows]
        (folder / f"{name}-tags.tsv").write_text("\n\n".join("\n".join(one) for one in tags), encoding="utf-8")
        asked = [{"question": "what was it?", "context": a, "answer": a.split()[1], "start": 4} for a, _ in rows]
        (folder / f"{name}-asked.jsonl").write_text("".join(json.dumps(row) + "\n" for row in asked), encoding="utf-8")
    return folder


def config(files, preset, suffix, *settings, start=None, **data):
    names = {part: [str(files / f"{part}{suffix}")] for part in ("train", "valid")}
    extra = {"data": {**names, **data}} | ({"train": {"start_from": str(start)}} if start else {})
    shape = [] if start else SHAPE
    return make_config(None, preset, [*SMALL, *shape, "data.max_len=32", *settings], extra)


def same_bytes(one, other):
    first, second = ((run / "model.safetensors").read_bytes() for run in (one, other))
    return first == second
