"""Data of every kind that a run is planned for, made-up words and sentences, and the machines it is planned on."""

import itertools
import json
import random

import numpy as np
from PIL import Image

import regard
from regard.data.synthetic.commands import commands
from regard.tasks.planning import Machine

CPU, GPU = Machine(cores=2), Machine(gpu="a GPU", cores=8, compiles=True)
NEWER_CPU = Machine(cores=2, bfloat16=True)
LETTERS = "abcdefghijklmnopqrstuvwxyz"
SHORT = ("train.steps=4", "model.width=16", "model.heads=2", "model.feed_forward=32", "train.threads=1")


def words(count, seed=1, least=3, most=8):
    """Made-up words, no two alike in the long run: an open vocabulary."""
    random_ = random.Random(seed)
    return ["".join(random_.choices(LETTERS, k=random_.randint(least, most))) for _ in range(count)]


def sentences(count, seed=1):
    random_, known = random.Random(seed), words(3000, seed)
    return [" ".join(random_.choices(known, k=random_.randint(4, 9))) for _ in range(count)]


def turns():
    """Commands of another grammar than the bundled one: short ones, whose meanings are five times as long."""
    ways = {"": ("{0}",), " left": ("L", "{0}"), " opposite left": ("L", "L", "{0}"), " around left": ("L", "{0}") * 4}
    ways |= {key.replace("left", "right"): tuple(part.replace("L", "R") for part in way) for key, way in ways.items()}
    phrases = [
        (f"{verb}{way}{times}", " ".join(part.format(verb.upper()) for part in ways[way] * number))
        for verb in ("walk", "look", "run", "jump")
        for way in ways
        for times, number in (("", 1), (" twice", 2), (" thrice", 3))
    ]
    for (one, first), (two, second) in itertools.product(phrases, phrases):
        yield f"{one} and {two}\t{first} {second}"
        yield f"{one} after {two}\t{second} {first}"


def write_every_kind(folder):
    """A file of each kind, in this folder."""

    def write(name, lines):
        (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")

    english, french = sentences(1500), sentences(1500, seed=2)
    write("train.en", english)
    write("train.fr", french)
    write("short.fr", french[:-1])
    write("pairs.tsv", map("\t".join, zip(english, french, strict=True)))
    write(
        "greek.tsv",
        (
            f"{one}\t{'λόγος ' * 3}{two}".translate(str.maketrans("a", "α"))
            for one, two in zip(english, words(1500, 3), strict=True)
        ),
    )
    write("commands.tsv", (f"{source}\t{target}" for _, source, target in commands({"train": 1200})))
    many = [f"{source}\t{target}" for _, source, target in commands({"train": 12_000})]
    write("rule.tsv", many)
    write("no-rule.tsv", (*many, *(f"{line} WALK" for line in many[:1000])))
    write("turns.tsv", turns())
    spelt = words(1200, seed=4)
    write("sounds.tsv", (f"{word}\t{' '.join(word.upper())}" for word in spelt))
    write("films.tsv", (f"{number % 2}\t{text}" for number, text in enumerate(english)))
    write("named.tsv", ["label\tcontent", *(f"{number % 2}\t{text}" for number, text in enumerate(english))])
    write(
        "entailed.tsv",
        (
            f"{one}\t{two}\t{'yes' if number % 3 else 'no'}"
            for number, (one, two) in enumerate(zip(english, french, strict=True))
        ),
    )
    write("plain.txt", english * 3)
    write("words.txt", (f"{line} <unk> ." for line in english))
    write(
        "tagged.txt",
        (
            line
            for text in english[:40]
            for line in (*(f"{word}\t{'NV'[number % 2]}" for number, word in enumerate(text.split())), "")
        ),
    )
    write(
        "asked.jsonl",
        (json.dumps({"context": text, "question": "what?", "answer": text.split()[0]}) for text in english[:60]),
    )
    write(
        "asked-twice.jsonl",
        (
            json.dumps({"context": text, "question": asked, "answer": text.split()[0]})
            for text in english[:60]
            for asked in ("what?", "who?")
        ),
    )
    write("records.jsonl", (json.dumps({"text": text}) for text in english))
    write("five.tsv", (f"{text}\t{text}\t{text}\t{text}\t{text}" for text in english[:50]))
    pixels = np.random.default_rng(1).integers(0, 255, (60, 12, 12), dtype=np.uint8)
    np.savez(folder / "grey.npz", images=pixels, labels=np.arange(60) % 3)
    colours = np.random.default_rng(1).integers(0, 255, (60, 70, 70, 3), dtype=np.uint8)
    np.savez(folder / "colour.npz", images=colours, labels=np.arange(60) % 3)
    return folder


def planned(files, *names, machine=CPU, **options):
    return regard.plan([files / name for name in names], machine=machine, **options)


ENGLISH, FRENCH = sentences(60), sentences(60, seed=2)


def image_folders(folder, images):
    """Images by class and name; those of one number are alike."""
    for (one, name), number in images.items():
        (folder / one).mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(number).integers(0, 255, (8, 8), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / one / f"{name}.png")
