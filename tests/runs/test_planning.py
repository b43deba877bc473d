"""Runs planned from a look at data and machine: what is recognised, each decision, and a budget frozen in updates."""

import hashlib
import itertools
import json
import math
import random
import time
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
import torch
from listeners import StopAt, Told
from PIL import Image

import regard
from regard.cli import main
from regard.data.synthetic.commands import commands
from regard.errors import ConfigError, DataError, NotWritten, RegardError
from regard.runs.log import read_log
from regard.tasks.planning import Machine, Recipe, between
from regard.tasks.run import load_config
from regard.trainer import checkpointing, doctor, time_budget, training_run
from regard.trainer.time_budget import TimeBudget, Timing, steps_for, validations_for
from regard.trainer.training_run import Stopped, TrainingRun
from regard.training.config import TrainConfig
from regard.training.optim import ExponentialAverage

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


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A file of each kind."""
    folder = tmp_path_factory.mktemp("data")

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


@pytest.mark.parametrize(
    ("names", "task"),
    [
        (("train.en", "train.fr"), "translation"),
        (("pairs.tsv",), "translation"),
        (("commands.tsv",), "translation"),
        (("films.tsv",), "classification"),
        (("entailed.tsv",), "classification"),
        (("plain.txt",), "language"),
        (("records.jsonl",), "language"),
        (("tagged.txt",), "tagging"),
        (("asked.jsonl",), "answering"),
        (("grey.npz",), "images"),
    ],
)
def test_a_task_is_recognised_by_its_data(files, names, task):
    assert planned(files, *names).config.task == task


def test_columns_are_found_by_what_they_hold(files):
    assert planned(files, "films.tsv").config.data.label == 1
    assert planned(files, "films.tsv").config.data.text == 2
    assert planned(files, "named.tsv").config.data.text == "content"
    assert planned(files, "entailed.tsv").config.data.pair == 2


ENGLISH, FRENCH = sentences(60), sentences(60, seed=2)
WORDS = [text.split() for text in ENGLISH]

SHAPES = {
    "numbered.tsv": (
        [f"{number}\t{one}\t{two}" for number, (one, two) in enumerate(zip(ENGLISH, FRENCH, strict=True))],
        "translation",
        {"source": 2, "target": 3},
    ),
    "numbered.jsonl": (
        [
            json.dumps({"id": f"a{number}", "question": one, "sql": two})
            for number, (one, two) in enumerate(zip(ENGLISH, FRENCH, strict=True))
        ],
        "translation",
        {"source": "question", "target": "sql"},
    ),
    "documents.jsonl": (
        [json.dumps({"id": number, "text": text}) for number, text in enumerate(ENGLISH)],
        "language",
        {"text": "text"},
    ),
    "pandas.csv": (
        [
            ",text,target",
            *(f"{number},{one},{two}" for number, (one, two) in enumerate(zip(ENGLISH, FRENCH, strict=True))),
        ],
        "translation",
        {"source": "text", "target": "target"},
    ),
    "pandas-labels.csv": (
        [",text,label", *(f"{number},{one},{'ab'[number % 2]}" for number, one in enumerate(ENGLISH))],
        "classification",
        {"text": "text", "label": "label", "pair": None},
    ),
    "tickets.tsv": (
        [
            "ticket_id\tbody\tdepartment",
            *(f"T-{number:05d}\t{one}\t{'ab'[number % 2]}" for number, one in enumerate(ENGLISH)),
        ],
        "classification",
        {"text": "body", "label": "department", "pair": None},
    ),
    "unusual.csv": (
        ["Review Text,Rating", *(f"{one},{number % 5}" for number, one in enumerate(ENGLISH))],
        "classification",
        {"text": "Review Text", "label": "Rating"},
    ),
    "dates.csv": (
        ["raw,iso", *(f"on day {day} of May 19{day + 9},19{day + 9}-05-{day:02d}" for day in range(1, 29))],
        "translation",
        {"source": "raw", "target": "iso"},
    ),
    "digests.csv": (
        [f"{hashlib.md5(one.encode()).hexdigest()},{one},{'ab'[len(one) % 2]}" for one in ENGLISH],
        "classification",
        {"text": 2, "label": 3, "pair": None},
    ),
    "short-first.tsv": (
        ["Run\tCours", *(f"{one}\t{two}" for one, two in zip(ENGLISH, FRENCH, strict=True))],
        "translation",
        {"source": 1, "target": 2},
    ),
    "truths.jsonl": (
        [json.dumps({"text": one, "spam": number % 3 == 0}) for number, one in enumerate(ENGLISH)],
        "classification",
        {"text": "text", "label": "spam"},
    ),
    "truths-beside.jsonl": (
        [
            json.dumps({"text": one, "mood": "ab"[number % 2], "checked": number % 3 == 0})
            for number, one in enumerate(ENGLISH)
        ],
        "classification",
        {"text": "text", "label": "mood"},
    ),
    "halves.jsonl": (
        [json.dumps({"text": one, "stars": number % 4 / 2}) for number, one in enumerate(ENGLISH)],
        "classification",
        {"text": "text", "label": "stars"},
    ),
    "one.csv": (["text", *ENGLISH], "language", {"text": "text"}),
    "pandas-texts.csv": (
        [",text", *(f"{number},{one}" for number, one in enumerate(ENGLISH))],
        "language",
        {"text": "text"},
    ),
    "one.tsv": (ENGLISH, "language", {"text": 1}),
    "tagged.tsv": (
        [line for text in WORDS for line in (*(f"{word}\t{'NV'[len(word) % 2]}" for word in text), "")],
        "tagging",
        {},
    ),
    "tagged.csv": (
        ["word,tag", *(line for text in WORDS for line in (*(f"{word},{'NV'[len(word) % 2]}" for word in text), ""))],
        "tagging",
        {},
    ),
    "numbered-tags.jsonl": (
        [json.dumps({"tokens": text, "ner_tags": [len(word) % 2 for word in text]}) for text in WORDS],
        "tagging",
        {"text": "tokens", "label": "ner_tags"},
    ),
    "names.tsv": (
        [*(f"{word}\t{'NV'[len(word) % 2]}" for text in WORDS for word in text), ""],
        "classification",
        {"text": 1, "label": 2},
    ),
}
"""Lines of files that are often met, what they are for, and how they are read."""


@pytest.mark.parametrize("name", SHAPES)
def test_files_of_usual_shapes_are_read(tmp_path, name):
    rows, task, expected = SHAPES[name]
    (tmp_path / name).write_text("".join(f"{row}\n" for row in rows))
    found = regard.plan(tmp_path / name, machine=CPU).config
    assert found.task == task
    assert {key: getattr(found.data, key) for key in expected} == expected


@pytest.mark.parametrize(("column", "task"), [("pairs.tsv", "translation"), ("films.tsv", "classification")])
def test_a_folder_of_tables_is_read_as_its_files(files, tmp_path, column, task):
    rows = (files / column).read_text().splitlines(keepends=True)
    (tmp_path / "a.tsv").write_text("".join(rows[:700]))
    (tmp_path / "b.tsv").write_text("".join(rows[700:]))
    folder, file = regard.plan(tmp_path, machine=CPU), planned(files, column)
    assert folder.config.task == task
    assert folder.facts == ("a.tsv, b.tsv to train on", *file.facts)
    (tmp_path / "notes.docx").write_text("of something else")
    told = Told()
    asked = regard.plan(tmp_path, machine=CPU, overrides=[f"task={task}", *SHORT[1:], "train.steps=1"])
    regard.train(asked, tmp_path / "run", told)
    assert any("1 file is of a kind that is not read (notes.docx)" in line for line in told.lines)


NOT_TOLD = {
    "semicolons.csv": ([f"{text};{text}" for text in ENGLISH], "separated by semicolons, not by commas: convert it"),
    "bars.tsv": ([f"{text} ||| {text}" for text in ENGLISH], r"separated by ' \|\|\| ', not by tabs: put a tab"),
    "ragged.tsv": ([*ENGLISH[:20], *(f"{text}\t{text}" for text in ENGLISH)], "different numbers of columns"),
    "empty.tsv": ([], "empty.tsv is empty"),
    "header.csv": (["source,target"], r"it names columns \(source, target\) and has no rows"),
    "blank.txt": (["", " ", ""], "there is no text"),
    "nested.jsonl": ([json.dumps({"translation": {"en": [text]}}) for text in ENGLISH], r"\(translation: objects\)"),
    "scored.tsv": (
        [f"{text}\t{text}\t0.{number}" for number, text in enumerate(ENGLISH)],
        r"3 columns \(column 1: texts, column 2: texts, column 3: numbers\); name columns, as --set data.source=1",
    ),
}


@pytest.mark.parametrize("name", NOT_TOLD)
def test_what_was_seen_of_data_that_cannot_be_told_is_said(tmp_path, name):
    rows, what = NOT_TOLD[name]
    (tmp_path / name).write_text("".join(f"{row}\n" for row in rows))
    with pytest.raises(DataError, match=what):
        regard.plan(tmp_path / name, machine=CPU)


def test_lines_that_one_of_two_files_has_more_are_said_to_be_blank(tmp_path):
    (tmp_path / "a.en").write_text("".join(f"{text}\n" for text in ENGLISH))
    (tmp_path / "a.fr").write_text("".join(f"{text}\n" for text in FRENCH) + "\n\n")
    files = [tmp_path / "a.en", tmp_path / "a.fr"]
    with pytest.raises(
        DataError, match=r"60 lines and \S*a.fr has 62: .*; remove the blank lines at the end of \S*a.fr"
    ):
        regard.plan(files, machine=CPU)
    (tmp_path / "a.fr").write_text("".join(f"{text}\n" for text in FRENCH[1:]))
    with pytest.raises(DataError, match="has 59: pairs are line by line; to read"):
        regard.plan(files, machine=CPU)


def test_columns_of_a_table_that_are_not_read_are_said(tmp_path):
    rows = [
        f"{number},B{number % 40 + 100}X,{text},{number % 2},{'ab'[number % 3 > 0]}"
        for number, text in enumerate(ENGLISH)
    ]
    (tmp_path / "reviews.csv").write_text("\n".join(["when,product,comment,rude,angry", *rows]))
    found = regard.plan(tmp_path / "reviews.csv", machine=CPU)
    assert {name: getattr(found.config.data, name) for name in ("text", "label", "pair")} == {
        "text": "comment",
        "label": "angry",
        "pair": None,
    }
    assert "could be the label too: rude (data.label chooses); not read: when, product" in found.recognised
    # Where nothing else is a text, codes and labels are.
    (tmp_path / "codes.tsv").write_text("".join(f"C{number}N{number}O\t{number % 2}\n" for number in range(100, 200)))
    assert regard.plan(tmp_path / "codes.tsv", machine=CPU).config.data.text == 1


def test_what_of_tagged_words_is_not_read_is_said(tmp_path):
    sentence = "".join(f"{word} NN I-NP {'OB'[len(word) % 2]}\n" for word in ("a", "cat", "sits", "here")) + "\n"
    (tmp_path / "train.conll").write_text("-DOCSTART- -X- -X- O\n\n" + 60 * sentence)
    found = regard.plan(tmp_path / "train.conll", machine=CPU)
    assert "of 4 columns the first and the last are read" in found.recognised
    assert found.facts[0].startswith("60 rows of 4.0 words")


def test_files_of_a_folder_that_are_no_texts_are_counted(tmp_path):
    for number, text in enumerate(ENGLISH):
        (tmp_path / f"{number}.txt").write_text(text)
    (tmp_path / "cover.pdf").write_bytes(b"%PDF")
    assert "other files, which are passed over: 1" in regard.plan(tmp_path, machine=CPU).recognised


def test_images_without_classes_are_refused_with_how_they_should_stand(tmp_path):
    Image.fromarray(np.zeros((8, 8), dtype=np.uint8)).save(tmp_path / "a.png")
    with pytest.raises(DataError, match=r"1 of .png; images to classify stand in a folder for each class"):
        regard.plan(tmp_path, machine=CPU)


def test_rows_of_a_table_with_an_unnamed_index_are_trained_on_without_its_header(tmp_path):
    rows, _, _ = SHAPES["pandas-labels.csv"]
    (tmp_path / "pandas.csv").write_text("".join(f"{row}\n" for row in rows))
    told = Told()
    asked = regard.plan(tmp_path / "pandas.csv", machine=CPU, overrides=[*SHORT[1:], "train.steps=1"])
    assert asked.facts[0].startswith(f"{len(ENGLISH):,} rows")
    regard.train(asked, tmp_path / "run", told)
    assert any("is taken as a header: column 1, text, label" in line for line in told.lines)
    assert any("not used: column 1" in line for line in told.lines)


def test_data_sorted_by_label_is_not_said_to_have_one(tmp_path):
    texts = sentences(4200)
    (tmp_path / "sorted.tsv").write_text(
        "".join(f"{text}\t{'ab'[number // 2100]}\n" for number, text in enumerate(texts))
    )
    found = regard.plan(tmp_path / "sorted.tsv", machine=CPU)
    assert "texts with a label each" in found.recognised
    assert "a 2,100, b 2,100" in found.facts[0]


def test_a_long_text_is_said_to_be_read_in_part(tmp_path):
    rows = [
        f"{' '.join(words(400 if number % 50 == 0 else 6, seed=number))}\t{'ab'[number % 2]}" for number in range(300)
    ]
    (tmp_path / "long.tsv").write_text("\n".join(rows) + "\n")
    decisions = {one.name: one for one in regard.plan(tmp_path / "long.tsv", machine=CPU).decisions}
    assert "only the beginning is read" in decisions["data.max_len"].why


def test_columns_that_are_named_tell_the_task(files):
    asked = planned(files, "five.tsv", overrides=["data.source=2", "data.target=4"])
    assert (asked.config.task, asked.config.data.source, asked.config.data.target) == ("translation", 2, 4)
    assert "columns as asked: data.source=2, data.target=4" in asked.lines()[0]
    assert planned(files, "five.tsv", overrides=["data.text=1", "data.label=2"]).config.task == "classification"
    assert planned(files, "five.tsv", overrides=["data.text=1"]).config.task == "language"
    assert planned(files, "films.tsv", overrides=["data.source=2", "data.target=1"]).config.task == "translation"
    one = planned(files, "entailed.tsv", overrides=["data.text=1", "data.label=3"]).config
    assert (one.task, one.data.pair) == ("classification", None)


def test_what_cannot_be_told_is_refused_with_what_to_do(files):
    with pytest.raises(DataError, match="name columns"):
        planned(files, "five.tsv")
    with pytest.raises(DataError, match=r"1,500 lines and .* has 1,499"):
        planned(files, "train.en", "short.fr")
    assert planned(files, "train.en", "short.fr", overrides=["task=language"]).config.task == "language"


@pytest.mark.parametrize(
    ("name", "machine", "expected"),
    [
        (
            "commands.tsv",
            CPU,
            {
                "tokenizer.kind": "spaced",
                "tokenizer.joint": False,
                "model.positions": "rotary",
                "decode.beam": 1,
                "train.select_by": "exact_match",
                "train.smoothing": 0.0,
                "train.validate_sentences": 200,
                "model.dropout": 0.1,
            },
        ),
        (
            "rule.tsv",
            CPU,
            {"train.smoothing": 0.0, "model.dropout": 0.0, "train.weight_decay": 0.5, "model.feed_forward": 192},
        ),
        (
            "turns.tsv",
            CPU,
            {
                "tokenizer.kind": "spaced",
                "data.max_len": 64,
                "train.smoothing": 0.0,
                "train.weight_decay": 0.5,
                "decode.beam": 1,
            },
        ),
        (
            "rule.tsv",
            GPU,
            {"train.smoothing": 0.0, "model.dropout": 0.0, "model.rotary_base": 100.0, "train.ema": 0.99},
        ),
        (
            "no-rule.tsv",
            CPU,
            {"train.smoothing": 0.1, "model.dropout": 0.13, "train.batch_tokens": 2048, "model.feed_forward": 512},
        ),
        (
            "sounds.tsv",
            CPU,
            {"tokenizer.source_kind": "character", "tokenizer.target_kind": "spaced", "model.share": "output"},
        ),
        (
            "pairs.tsv",
            CPU,
            {
                "tokenizer.kind": "bpe",
                "tokenizer.joint": True,
                "model.share": "all",
                "decode.beam": 5,
                "train.r_drop": 0.0,
                "train.select_by": "bleu",
                "train.validate_sentences": 100,
                "train.cuda_graphs": False,
            },
        ),
        (
            "pairs.tsv",
            GPU,
            {
                "train.r_drop": 5.0,
                "model.dropout": 0.3,
                "train.cuda_graphs": True,
                "train.compile_blocks": True,
                "model.width": 256,
            },
        ),
        ("greek.tsv", CPU, {"tokenizer.joint": False}),
        (
            "films.tsv",
            CPU,
            {
                "model.head": "classes",
                "train.select_by": "accuracy",
                "data.overlong": "truncate",
                "tokenizer.lowercase": True,
            },
        ),
        ("tagged.txt", CPU, {"model.head": "tags"}),
        ("plain.txt", CPU, {"tokenizer.kind": "character", "data.max_len": 128, "data.held_out": 0.1}),
        ("plain.txt", GPU, {"model.width": 384, "model.dropout": 0.25, "data.max_len": 256}),
        ("words.txt", CPU, {"tokenizer.kind": "spaced"}),
        (
            "grey.npz",
            CPU,
            {
                "model.channels": 1,
                "model.image_size": 12,
                "model.patch_size": 2,
                "images.flip": False,
                "images.rotate": 10.0,
            },
        ),
        ("colour.npz", CPU, {"model.channels": 3, "model.patch_size": 8, "model.image_size": 72, "images.flip": True}),
    ],
)
def test_decisions_follow_the_data(files, name, machine, expected):
    whole = planned(files, name, machine=machine).config.to_mapping()
    found = {key: whole[key.partition(".")[0]].get(key.partition(".")[2]) for key in expected}
    assert {key: value or False for key, value in found.items()} == {
        key: value or False for key, value in expected.items()
    }


PROVOKED = {
    "data.held_out": (("pairs.tsv", CPU, 0.1), ("grey.npz", CPU, None)),
    "data.held_out_by": (("asked-twice.jsonl", CPU, "text"), ("asked.jsonl", CPU, None)),
    "data.max_len": (("films.tsv", CPU, 32), ("commands.tsv", CPU, 64)),
    "data.overlong": (("films.tsv", CPU, "truncate"), ("tagged.txt", CPU, None)),
    "data.swaps": (("rule.tsv", CPU, 16), ("no-rule.tsv", CPU, None)),
    "decode.beam": (("pairs.tsv", CPU, 5), ("commands.tsv", CPU, 1)),
    "decode.length_form": (("pairs.tsv", CPU, "power"), ("commands.tsv", CPU, None)),
    "decode.length_penalty": (("pairs.tsv", CPU, 1.0), ("commands.tsv", CPU, None)),
    "decode.temperature": (("plain.txt", CPU, 0.8), ("pairs.tsv", CPU, None)),
    "decode.top_k": (("plain.txt", CPU, 40), ("pairs.tsv", CPU, None)),
    "images.flip": (("colour.npz", CPU, True), ("grey.npz", CPU, None)),
    "images.held_out": (("grey.npz", CPU, 0.1), ("pairs.tsv", CPU, None)),
    "images.least_area": (("colour.npz", CPU, 0.4), ("grey.npz", CPU, None)),
    "images.mixup": (("grey.npz", CPU, 0.2), ("pairs.tsv", CPU, None)),
    "images.rotate": (("grey.npz", CPU, 10.0), ("colour.npz", CPU, None)),
    "images.shift": (("grey.npz", CPU, 0.1), ("colour.npz", CPU, None)),
    "images.zoom": (("grey.npz", CPU, 0.1), ("colour.npz", CPU, None)),
    "model.attention_dropout": (("plain.txt", GPU, 0.2), ("plain.txt", CPU, 0.0)),
    "model.bias": (("plain.txt", CPU, False), ("pairs.tsv", CPU, None)),
    "model.channels": (("grey.npz", CPU, 1), ("colour.npz", CPU, 3)),
    "model.decoder_layers": (("pairs.tsv", CPU, 3), ("pairs.tsv", GPU, 4)),
    "model.dropout": (("pairs.tsv", GPU, 0.3), ("no-rule.tsv", GPU, 0.2)),
    "model.encoder_layers": (("pairs.tsv", CPU, 3), ("pairs.tsv", GPU, 4)),
    "model.feed_forward": (("pairs.tsv", GPU, 512), ("no-rule.tsv", GPU, 1024)),
    "model.head": (("films.tsv", CPU, "classes"), ("asked.jsonl", CPU, "spans")),
    "model.heads": (("films.tsv", CPU, 2), ("plain.txt", GPU, 6)),
    "model.image_size": (("grey.npz", CPU, 12), ("colour.npz", CPU, 72)),
    "model.layers": (("films.tsv", CPU, 2), ("films.tsv", GPU, 4)),
    "model.max_len": (("films.tsv", CPU, 256), ("asked.jsonl", CPU, 512)),
    "model.name": (("pairs.tsv", CPU, "transformer"), ("films.tsv", CPU, "bert")),
    "model.norm_first": (("pairs.tsv", GPU, False), ("commands.tsv", GPU, True)),
    "model.patch_size": (("grey.npz", CPU, 2), ("colour.npz", CPU, 8)),
    "model.positions": (("commands.tsv", CPU, "rotary"), ("pairs.tsv", CPU, None)),
    "model.qk_norm": (("pairs.tsv", GPU, True), ("no-rule.tsv", GPU, None)),
    "model.rotary_base": (("commands.tsv", CPU, 100.0), ("pairs.tsv", CPU, None)),
    "model.share": (("pairs.tsv", CPU, "all"), ("greek.tsv", CPU, "output")),
    "model.width": (("pairs.tsv", CPU, 128), ("pairs.tsv", GPU, 256)),
    "task": (("plain.txt", CPU, "language"), ("tagged.txt", CPU, "tagging")),
    "tokenizer.joint": (("pairs.tsv", CPU, True), ("greek.tsv", CPU, False)),
    "tokenizer.kind": (("pairs.tsv", CPU, "bpe"), ("plain.txt", CPU, "character")),
    "tokenizer.lowercase": (("films.tsv", CPU, True), ("plain.txt", CPU, None)),
    "tokenizer.source_kind": (("sounds.tsv", CPU, "character"), ("pairs.tsv", CPU, None)),
    "tokenizer.target_kind": (("sounds.tsv", CPU, "spaced"), ("pairs.tsv", CPU, None)),
    "tokenizer.vocab_size": (("pairs.tsv", CPU, 500), ("words.txt", CPU, 50_000)),
    "train.batch_tokens": (("films.tsv", CPU, 1024), ("plain.txt", GPU, 16_384)),
    "train.betas": (("pairs.tsv", CPU, [0.9, 0.98]), ("films.tsv", CPU, [0.9, 0.999])),
    "train.compile_blocks": (("pairs.tsv", GPU, True), ("pairs.tsv", CPU, None)),
    "train.cuda_graphs": (("pairs.tsv", GPU, True), ("pairs.tsv", CPU, None)),
    "train.ema": (("pairs.tsv", GPU, 0.999), ("plain.txt", CPU, None)),
    "train.epsilon": (("pairs.tsv", CPU, 1e-8), ("films.tsv", CPU, 1e-6)),
    "train.floor": (("plain.txt", CPU, 0.05), ("grey.npz", CPU, 0.01)),
    "train.learning_rate": (("pairs.tsv", CPU, 3e-3), ("films.tsv", GPU, 5e-4)),
    "train.muon_precision": (("pairs.tsv", NEWER_CPU, "bfloat16"), ("films.tsv", NEWER_CPU, None)),
    "train.optimizer": (("pairs.tsv", CPU, "muon"), ("films.tsv", CPU, "adamw")),
    "train.precision": (("pairs.tsv", GPU, "auto"), ("rule.tsv", GPU, "float32")),
    "train.r_drop": (("pairs.tsv", GPU, 5.0), ("no-rule.tsv", GPU, 2.0)),
    "train.schedule": (("pairs.tsv", GPU, "inverse-sqrt"), ("films.tsv", CPU, "linear")),
    "train.select_by": (("pairs.tsv", CPU, "bleu"), ("tagged.txt", CPU, "accuracy")),
    "train.smoothing": (("pairs.tsv", CPU, 0.1), ("commands.tsv", CPU, 0.0)),
    "train.validate_sentences": (("pairs.tsv", CPU, 100), ("pairs.tsv", GPU, 300)),
    "train.warmup_share": (("pairs.tsv", GPU, 0.25), ("commands.tsv", CPU, 0.05)),
    "train.weight_decay": (("pairs.tsv", GPU, 0.0), ("commands.tsv", CPU, 0.5)),
}
"""Of each decision two data sets, or one on two machines, that lead to different ones; None where there is none."""

ALWAYS = {"train.choose": "best", "train.keep": 1}
"""Decisions that are the same for all data."""


@pytest.fixture(scope="module")
def decided(files):
    """What is decided of every kind of data on either machine, by setting."""
    names = {name for pair in PROVOKED.values() for name, _, _ in pair}
    return {
        (name, machine): {one.name: one.value for one in planned(files, name, machine=machine).decisions}
        for name in names
        for machine in (CPU, GPU, NEWER_CPU)
    }


@pytest.mark.parametrize("setting", PROVOKED)
def test_each_decision_is_provoked_by_data_or_machine(decided, setting):
    found = [decided[name, machine].get(setting) for name, machine, _ in PROVOKED[setting]]
    assert found == [value for _, _, value in PROVOKED[setting]]
    assert found[0] != found[1]


def test_there_is_no_decision_that_nothing_provokes(decided):
    assert {name for one in decided.values() for name in one} == {*PROVOKED, *ALWAYS}
    assert all(one[name] == value for one in decided.values() for name, value in ALWAYS.items())


def test_words_are_exchanged_in_fewer_ways_where_pairs_are_many(files, monkeypatch):
    ways = lambda: planned(files, "rule.tsv").config.data.swaps  # noqa: E731
    rows = len((files / "rule.tsv").read_text().splitlines())
    for most, expected in ((16 * rows, 16), (5 * rows, 5), (1, 2)):
        monkeypatch.setattr("regard.tasks.plans.pairs.MOST_SWAPPED", most)
        assert ways() == expected


def test_much_data_is_planned_otherwise_than_little(files):
    from regard.tasks.plans.pairs import pair_statistics, plan_pairs

    found = pair_statistics(planned(files, "pairs.tsv").config.data)

    def of_size(rows, machine):
        return {one.name: one.value for one in plan_pairs(replace(found, rows=rows), machine, None).decisions}

    of_sizes = [of_size(rows, GPU) for rows in (1500, 170_000, 700_000)]
    names = ("model.width", "model.norm_first", "model.decoder_layers", "train.r_drop", "train.optimizer")
    assert [[one[name] for name in names] for one in of_sizes] == [
        [256, False, 4, 5.0, "muon"],
        [512, True, 3, 2.0, "muon"],
        [512, True, 3, 0.0, "muon"],
    ]
    assert [one["tokenizer.vocab_size"] for one in of_sizes] == [500, 16_000, 32_000]
    dropped = [of_size(rows, CPU)["model.dropout"] for rows in (1500, 50_000, 170_000, 700_000)]
    assert dropped == [0.4, 0.1, 0.0, 0.0]


@pytest.mark.parametrize(
    ("rows", "minutes", "dropout"),
    [(170_000, 10, 0.0), (170_000, 60, 0.05), (170_000, 240, 0.25), (50_000, 10, 0.1), (50_000, 240, 0.4)],
)
def test_pairs_that_the_minutes_of_a_cpu_read_more_often_are_dropped_more(files, rows, minutes, dropout):
    from regard.tasks.plans.pairs import pair_statistics, plan_pairs

    found = replace(pair_statistics(planned(files, "pairs.tsv").config.data), rows=rows)
    planning = plan_pairs(found, replace(CPU, budget=float(minutes)), None)
    decided = next(one for one in planning.decisions if one.name == "model.dropout")
    assert decided.value == dropout
    assert (f"epochs fit into {minutes} minutes: 0.1 more" in decided.why) == (minutes > 10)


def test_neither_a_rule_nor_a_gpu_drops_more_for_more_minutes(files):
    for name, machine in (("rule.tsv", CPU), ("pairs.tsv", GPU)):
        asked = [planned(files, name, machine=machine, minutes=minutes) for minutes in (machine.minutes, 600)]
        assert asked[0].config.model["dropout"] == asked[1].config.model["dropout"]


def test_much_running_text_is_planned_otherwise_than_little(files):
    from regard.tasks.plans.text import plan_text, text_statistics

    found = text_statistics(planned(files, "plain.txt").config.data)

    def of_size(characters, machine, base=None):
        chosen = plan_text(replace(found, characters=characters), machine, base)
        return {one.name: one.value for one in chosen.decisions}, chosen.most_epochs

    names = ("tokenizer.kind", "train.optimizer", "train.learning_rate", "model.width", "model.dropout")
    assert [
        [of_size(size, machine)[0][name] for name in names] for size in (10**6, 10**7) for machine in (CPU, GPU)
    ] == [
        ["character", "adamw", 2e-3, 128, 0.0],
        ["character", "adamw", 1e-3, 384, 0.25],
        ["bpe", "muon", 6e-3, 128, 0.0],
        ["bpe", "adamw", 8e-4, 512, 0.3],
    ]
    assert [of_size(size, GPU)[1] for size in (10**6, 10**7)] == [36, 24]
    assert of_size(10**7, CPU, {"model": {}})[0]["train.optimizer"] == "adamw"  # what was learnt stays


def test_running_text_is_planned_for_a_cpu_as_the_preset_that_was_measured_on_it(files):
    preset = regard.make_config(None, "gpt-tiny", (), {"data": {"train": ["plain.txt"]}})
    plan = planned(files, "plain.txt").config
    assert plan.model == {**preset.model, "attention_dropout": 0.0}
    same = ("batch_tokens", "optimizer", "schedule", "learning_rate", "floor", "betas", "weight_decay", "smoothing")
    assert {name: getattr(plan.train, name) for name in same} == {name: getattr(preset.train, name) for name in same}
    assert plan.train.warmup_share * preset.train.steps == pytest.approx(preset.train.warmup)


@pytest.mark.parametrize(
    ("kind", "sizes", "classes"),
    [
        ("rare classes", [(8, 8)] * 120, [0] * 90 + [1] * 28 + [2] * 2),
        ("one class of most images", [(8, 8)] * 100, [0] * 95 + [1] * 5),
        ("images of many sizes", [(8, 8), (80, 80)] * 60, [0, 1] * 60),
        ("one image in two classes", [(8, 8)] * 120, [0, 1] * 60),
        ("repeated images", [(8, 8)] * 120, [0, 1] * 60),
        ("few images", [(8, 8)] * 20, [0, 1] * 10),
    ],
)
def test_wrong_images_get_their_line(tmp_path, kind, sizes, classes):
    random_ = np.random.default_rng(1)
    for number, (size, one) in enumerate(zip(sizes, classes, strict=True)):
        pixels = random_.integers(0, 255, size, dtype=np.uint8)
        if kind == "one image in two classes" and number < 2:
            pixels = np.zeros(size, dtype=np.uint8)
        if kind == "repeated images" and number in (0, 2, 4):
            pixels = np.zeros(size, dtype=np.uint8)
        (tmp_path / str(one)).mkdir(exist_ok=True)
        Image.fromarray(pixels).save(tmp_path / str(one) / f"{number}.png")
    assert [finding.kind for finding in regard.plan(tmp_path, machine=CPU).findings] == [kind]


def image_folders(folder, images):
    """Images by class and name; those of one number are alike."""
    for (one, name), number in images.items():
        (folder / one).mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(number).integers(0, 255, (8, 8), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / one / f"{name}.png")


def test_validation_images_that_are_trained_on_get_their_line(tmp_path):
    image_folders(tmp_path / "train", {(str(number % 2), number): number for number in range(120)})
    image_folders(tmp_path / "valid", {(str(number % 2), number): number for number in range(115, 135)})
    found = regard.plan(tmp_path / "train", valid=tmp_path / "valid", machine=CPU).findings
    assert [one.kind for one in found] == ["validation images in training"]
    assert found[0].line.startswith("5 of 20 validation images (25 %)")


def test_copies_among_all_images_are_found_in_folders_and_in_arrays(tmp_path):
    pixels = np.random.default_rng(1).integers(0, 255, (600, 8, 8), dtype=np.uint8)
    labels = np.arange(600) % 3
    pixels[1:31:3], pixels[2] = pixels[0], pixels[0]  # of another class, as is the third; none is in the sample but one
    np.savez(tmp_path / "images.npz", images=pixels, labels=labels)
    for number, (one, label) in enumerate(zip(pixels, labels, strict=True)):
        (tmp_path / "folder" / str(label)).mkdir(parents=True, exist_ok=True)
        Image.fromarray(one).save(tmp_path / "folder" / str(label) / f"{number}.png")
    for name in ("images.npz", "folder"):
        found = {one.kind: one.line for one in regard.plan(tmp_path / name, machine=CPU).findings}
        assert found["repeated images"].startswith("11 of 600 images are copies")
        assert "the same image is in two classes" in found["one image in two classes"]


def test_copies_of_images_to_train_on_are_not_validated_on(tmp_path):
    image_folders(tmp_path / "images", {(str(number % 2), number): number % 80 for number in range(120)})
    small = ("train.steps=1", "model.width=16", "model.heads=2", "model.feed_forward=32", "model.layers=1")
    told = Told()
    plan = regard.plan(tmp_path / "images", machine=CPU, overrides=(*small, "images.held_out=0.3"))
    regard.train(plan, tmp_path / "run", told)
    line = next(line for line in told.lines if "not validated on: copies of them are trained on" in line)
    left = int(line.split()[2]) - int(line.split()[0])
    assert 0 < left < 36
    assert any(f"{left} to validate on" in line for line in told.lines)
    pixels = np.random.default_rng(1).integers(0, 255, (50, 8, 8), np.uint8)
    np.savez(tmp_path / "copies.npz", images=np.concatenate([pixels, pixels[:45]]), labels=np.arange(95) % 2)
    told = Told()
    plan = regard.plan(tmp_path / "copies.npz", machine=CPU, overrides=(*small, "images.held_out=0.3"))
    regard.train(plan, tmp_path / "arrays", told)
    assert any("not validated on: copies of them are trained on" in line for line in told.lines)


def test_decisions_that_hang_on_the_amount_of_data(tmp_path, files):
    assert planned(files, "pairs.tsv").config.tokenizer.vocab_size == 500  # some 10,000 words of a side
    # Open text to a notation of more words than so little text has pieces: the one limit leaves none of them out.
    signs = itertools.cycle(f"w{number}" for number in range(700))
    mixed = (f"{line}\t{' '.join(itertools.islice(signs, 22))}\n" for line in sentences(1500))
    (tmp_path / "mixed.tsv").write_text("".join(mixed))
    plan = regard.plan(tmp_path / "mixed.tsv", machine=CPU)
    assert plan.config.tokenizer.kinds == ("bpe", "spaced")
    assert plan.config.tokenizer.vocab_size == 704
    why = next(one.why for one in plan.decisions if one.name == "tokenizer.vocab_size")
    assert why.endswith("the limit of each side: the targets have 704 entries at the most")
    (tmp_path / "much.txt").write_text("".join(f"{line}\n" for line in sentences(1500) * 60))
    much = regard.plan(tmp_path / "much.txt", machine=GPU).config
    assert (much.tokenizer.kind, 384 < much.model["width"] <= 512, much.data.held_out) == ("bpe", True, 0.02)
    long = [" ".join(words(count, seed=count)) for count in range(3, 40)] * 20
    (tmp_path / "long.tsv").write_text("".join(f"{number % 2}\t{text}\n" for number, text in enumerate(long)))
    assert regard.plan(tmp_path / "long.tsv", machine=CPU).config.data.max_len == 128
    assert planned(files, "films.tsv").config.data.max_len == 32
    few, more = (planned(files, "films.tsv", machine=GPU), regard.plan(tmp_path / "long.tsv", machine=GPU))
    assert 3 < more.most_epochs < few.most_epochs <= 30  # little is read more often
    pixels = np.random.default_rng(1).integers(0, 255, (12_000, 8, 8), np.uint8)
    np.savez(tmp_path / "many.npz", images=pixels, labels=np.arange(12_000) % 10)
    many = regard.plan(tmp_path / "many.npz", machine=CPU)
    assert (many.config.images.mixup, many.most_epochs) == (0.0, 60)
    few = planned(files, "grey.npz")
    assert (few.config.images.mixup, few.most_epochs) == (0.2, 300)


def test_names_keep_their_capitals_where_words_are_tagged(tmp_path):
    lines = [f"{word}\t{'NAME' if word[0].isupper() else 'WORD'}" for word in ("Anna", "saw", "Bert", "again")]
    (tmp_path / "names.txt").write_text("\n".join([*lines, ""] * 20))
    assert not regard.plan(tmp_path / "names.txt", machine=CPU).config.tokenizer.lowercase


def test_entities_and_answers_are_chosen_by_their_f1(tmp_path, files):
    lines = [f"{word}\t{tag}" for word, tag in (("Anna", "B-PER"), ("saw", "O"), ("New", "B-LOC"), ("York", "I-LOC"))]
    (tmp_path / "entities.txt").write_text("\n".join([*lines, ""] * 20))
    small = (*SHORT, "model.layers=1", "train.validate_every=2", "data.held_out=0.3", "tokenizer.vocab_size=100")
    for name, data in (("entities", tmp_path / "entities.txt"), ("asked", files / "asked.jsonl")):
        valid = data if name == "entities" else ()  # all its sentences are one
        plan = regard.plan(data, machine=CPU, valid=valid, overrides=small[: -2 if name == "entities" else None])
        assert plan.config.train.select_by == "f1"
        told = Told()
        run = regard.train(plan, tmp_path / name, told)
        figures = [one["f1"] for one in read_log(run.directory / "log.jsonl") if one["kind"] == "validation"]
        assert len(figures) == 2
        assert all(0 <= figure <= 100 for figure in figures)
    assert planned(files, "tagged.txt").config.train.select_by == "accuracy"


def test_a_validation_set_is_split_off_only_where_none_is_given(files):
    assert planned(files, "pairs.tsv").config.data.held_out == 0.1
    assert planned(files, "pairs.tsv", valid=files / "pairs.tsv").config.data.held_out == 0.0


def test_what_is_asked_of_one_text_is_on_one_side_of_a_split(files, tmp_path):
    from regard.tasks.answering import TASK

    config = planned(files, "asked-twice.jsonl").config
    train, valid = (TASK.items_of(config, part) for part in ("train", "valid"))
    assert not {one.context for one in train} & {one.context for one in valid}
    assert len(train) + len(valid) == 120
    assert len(valid) == 2 * len({one.context for one in valid}) > 0
    apart = replace(config, data=replace(config.data, held_out_by="row"))  # as runs of before have it
    train, valid = (TASK.items_of(apart, part) for part in ("train", "valid"))
    assert {one.context for one in train} & {one.context for one in valid}


def test_a_limit_never_leaves_out_what_the_data_needs(tmp_path, files):
    long = " ".join(words(150, seed=9))
    (tmp_path / "long.tsv").write_text((files / "pairs.tsv").read_text() + f"{long}\t{long}\n")
    assert regard.plan(tmp_path / "long.tsv", machine=CPU).config.data.max_len >= 512


def test_what_is_asked_for_is_no_decision(files):
    plan = planned(files, "pairs.tsv", overrides=["model.width=64", "tokenizer.kind=word", "train.steps=7"])
    assert (plan.config.model["width"], plan.config.tokenizer.kind, plan.config.train.steps) == (64, "word", 7)
    assert plan.minutes is None
    page = plan.page("7 updates")
    assert "| `model.width` | `64` | as asked |" in page
    with pytest.raises(ConfigError, match="both say how long"):
        planned(files, "pairs.tsv", overrides=["train.steps=7"], minutes=1)
    with pytest.raises(ConfigError, match="minutes=0 must be above 0"):
        planned(files, "pairs.tsv", minutes=0)


def test_another_model_than_the_planned_one_keeps_what_it_has_settings_for(files):
    found = planned(files, "pairs.tsv", overrides=["model.name=recurrent"])
    assert found.config.model["name"] == "recurrent"
    usual = {one.name: one.value for one in planned(files, "pairs.tsv").decisions}
    assert found.config.model["width"] == usual["model.width"]
    assert "model.feed_forward" in usual
    assert "model.feed_forward" not in {one.name for one in found.decisions}
    assert any("recurrent as asked" in fact and "model.feed_forward" in fact for fact in found.facts)


def test_minutes_are_by_the_machine_and_updates_by_the_minutes(files):
    assert (planned(files, "pairs.tsv").minutes, planned(files, "pairs.tsv", machine=GPU).minutes) == (10, 5)
    plan = planned(files, "plain.txt", minutes=2)
    assert steps_for(plan, 100.0, Timing(update=0.1, epoch=100))[0] == 950
    steps, why = steps_for(plan, 1000.0, Timing(update=0.01, epoch=100))
    assert steps == 3600
    assert "more than 36 epochs of data of this size overfit" in why
    steps, why = steps_for(plan, 5.0, Timing(update=0.1, epoch=100))
    assert (steps, why.endswith("so few teach a model little: give more than --minutes 2")) == (47, True)


def test_validations_are_paid_for_and_fewer_where_they_take_long(files):
    plan = planned(files, "plain.txt", minutes=2)
    quick, slow = (Timing(update=0.1, epoch=100, validation=one) for one in (0.5, 4.0))
    assert (validations_for(100.0, 0.5), steps_for(plan, 100.0, quick)[0]) == (10, 900)
    assert (validations_for(100.0, 4.0), steps_for(plan, 100.0, slow)[0]) == (2, 870)
    assert "8 s of validation" in steps_for(plan, 100.0, slow)[1]


def test_a_budget_far_beyond_those_of_the_recipes_says_that_a_larger_model_may_learn_more(files):
    def said(minutes, *overrides):
        plan = planned(files, "pairs.tsv", overrides=overrides, minutes=minutes)
        return steps_for(plan, 60.0, Timing(update=0.1, epoch=100))[1]

    assert "--set model.width=256" in said(CPU.minutes * 3 + 1)
    assert "larger model" not in said(CPU.minutes * 3)
    assert "larger model" not in said(CPU.minutes * 4, "model.width=64", "model.heads=2")


def test_what_is_timed_has_validation_and_average_in_it_and_tells_no_outputs(files, tmp_path, monkeypatch):
    validated, averaged = [], []
    validate, update = TrainingRun._validate, ExponentialAverage.update
    monkeypatch.setattr(TrainingRun, "_validate", lambda self, batches: validated.append(1) or validate(self, batches))
    monkeypatch.setattr(ExponentialAverage, "update", lambda self, step: averaged.append(step) or update(self, step))
    monkeypatch.setattr(TrainingRun, "go", lambda self: None)
    told = Told()
    plan = planned(files, "commands.tsv", minutes=0.01, overrides=SHORT[1:])
    with suppress(RegardError):  # nothing was trained that could be loaded
        regard.train(plan, tmp_path / "run", told)
    assert len(validated) == 1
    assert len(averaged) >= 6
    assert not any("reference" in line or "cut at" in line for line in told.lines)


def test_updates_are_timed_until_they_take_the_same(files, tmp_path, monkeypatch):
    now, made = [0.0], []

    def slow_at_first(self, step):
        made.append(step)
        now[0] += 10.0 if len(made) < 3 else 0.1

    monkeypatch.setattr(ExponentialAverage, "update", slow_at_first)
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    found = []
    timed = TrainingRun.timed
    monkeypatch.setattr(TrainingRun, "timed", lambda self, *given: found.append(timed(self, 12.0)) or found[0])
    monkeypatch.setattr(TrainingRun, "go", lambda self: None)
    with suppress(RegardError):
        regard.train(planned(files, "commands.tsv", minutes=0.01, overrides=SHORT[1:]), tmp_path / "run")
    assert found[0].update == pytest.approx(0.1)


@pytest.mark.parametrize(("alone", "threads"), [(0.1, 1), (0.3, 0)])
def test_one_thread_is_taken_where_several_wait_for_one_another(files, tmp_path, monkeypatch, alone, threads):
    before = torch.get_num_threads()
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    times = iter([0.2, alone])
    monkeypatch.setattr(TrainingRun, "_timed_updates", lambda self, seconds: (next(times), 10.0))
    monkeypatch.setattr(TrainingRun, "go", lambda self: None)
    overrides = [one for one in SHORT[1:] if not one.startswith("train.threads")]
    try:
        with suppress(RegardError):
            regard.train(planned(files, "commands.tsv", minutes=0.01, overrides=overrides), tmp_path / "run")
        assert load_config(tmp_path / "run").train.threads == threads
    finally:
        torch.set_num_threads(before)


def course(seconds_of, steps, monkeypatch, *, seconds=100.0, validation_of=lambda number: 0.5, **options):
    """A run of so many seconds whose updates and validations take so many: how many updates it makes, when it ends,
    and after which updates it is validated."""
    now, validated = [0.0], []
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    train = TrainConfig(steps=steps, validate_every=steps // 10)
    budget = TimeBudget(seconds, 0.0, validation=validation_of(0), **options)
    number = 0
    while number < train.steps:
        number += 1
        now[0] += seconds_of(number)
        if number % train.validate_every == 0 or number == train.steps:
            took = validation_of(number)
            validated.append(number)
            now[0] += took
            budget.paused += took
            budget.validation, budget.validated = took, True
        if number < train.steps and budget.due(number, train.steps):
            count, often = budget.steps(number, train), budget.validations(train)
            train = replace(train, steps=count, validate_every=max(1, math.ceil(count / often)))
    return train.steps, now[0], validated


def test_a_machine_that_gets_slower_makes_fewer_updates_and_keeps_to_its_minutes(monkeypatch):
    steps, end, _ = course(lambda number: 0.08 if number < 400 else 0.16, 1000, monkeypatch)
    assert 700 < steps < 800
    assert 90 < end < 103


def test_a_machine_that_is_faster_than_it_was_timed_makes_more_updates(monkeypatch):
    steps, end, _ = course(lambda number: 0.01, 1000, monkeypatch)
    assert 5000 < steps < 9000
    assert 85 < end < 103
    assert course(lambda number: 0.01, 1000, monkeypatch, most=3000)[0] == 3000


def test_a_machine_as_fast_as_it_was_timed_makes_all_its_updates(monkeypatch):
    assert course(lambda number: 0.091, 1000, monkeypatch)[0] == 1000
    assert course(lambda number: 0.5 if number == 300 else 0.089, 1000, monkeypatch)[0] == 1000


def test_a_machine_that_is_slow_only_at_first_uses_its_minutes(monkeypatch):
    for slow in (0.12, 0.16, 0.24):
        _, end, _ = course(lambda number, slow=slow: slow if number < 150 else 0.08, 1000, monkeypatch)
        assert 90 < end < 103, slow


def test_validations_that_take_long_become_fewer_and_leave_the_updates_their_time(monkeypatch):
    steps, end, validated = course(
        lambda number: 0.1, 1500, monkeypatch, seconds=200.0, validation_of=lambda number: 20.0
    )
    assert 1200 < steps < 1500
    assert 180 < end < 206
    assert len(validated) == 3, "the first, and two that are paid for"


def test_of_a_model_that_learns_to_end_its_outputs_validations_become_more_again(monkeypatch):
    steps, end, validated = course(
        lambda number: 0.1, 1500, monkeypatch, seconds=200.0, validation_of=lambda number: 20.0 if number < 400 else 1.0
    )
    assert 1400 < steps < 1700
    assert 180 < end < 206
    assert len(validated) > 4


def validations(monkeypatch, *figures):
    """Have each validation say these, beside what it says."""
    validate, said = TrainingRun._validate, iter(figures)
    monkeypatch.setattr(TrainingRun, "_validate", lambda self, batches: {**validate(self, batches), **next(said)})


def test_of_equal_scores_the_later_weights_are_chosen(files, tmp_path, monkeypatch):
    validations(monkeypatch, *[{"accuracy": 0.5}] * 4)
    plan = planned(files, "films.tsv", overrides=(*SHORT, "train.validate_every=1", "model.layers=1"))
    told = Told()
    regard.train(plan, tmp_path / "run", told)
    assert any("step 4" in line for line in told.lines), told.lines


def test_of_exact_matches_that_differ_by_chance_the_later_weights_are_chosen(files, tmp_path, monkeypatch):
    validations(
        monkeypatch,
        {"exact_match": 0.9, "outputs": 200, "nll": 0.3},
        {"exact_match": 0.98, "outputs": 200, "nll": 0.05},
        {"exact_match": 0.975, "outputs": 200, "nll": 0.1},  # as a model that is surer pays more for what is wrong
        {"exact_match": 0.9, "outputs": 200, "nll": 0.04},
    )
    plan = planned(
        files,
        "films.tsv",
        overrides=(*SHORT, "train.validate_every=1", "model.layers=1", "train.select_by=exact_match"),
    )
    told = Told()
    run = regard.train(plan, tmp_path / "run", told)
    assert any("step 3, the best validated" in line for line in told.lines), told.lines
    assert any("by exact_match is that of step 3" in line for line in doctor.diagnose(run.directory).facts)


def test_fewer_updates_are_in_the_run_and_its_plan_so_that_resuming_is_exact(files, tmp_path, monkeypatch):
    monkeypatch.setattr(time_budget, "steps_for", lambda plan, seconds, timing: (10, "10 updates"))
    monkeypatch.setattr(TimeBudget, "steps", lambda self, number, options: 6 if number >= 3 else options.steps)
    monkeypatch.setattr(TimeBudget, "due", lambda self, number, steps: True)
    plan = planned(files, "commands.tsv", minutes=1, overrides=(*SHORT[1:], "train.log_every=1"))
    with pytest.raises(Stopped):
        regard.train(plan, tmp_path / "run", StopAt(4))
    assert load_config(tmp_path / "run").train.steps == 6
    assert "At update 3: " in (tmp_path / "run" / "plan.md").read_text()
    regard.resume(tmp_path / "run")
    assert load_config(tmp_path / "run").train.steps == 6
    regard.train(plan, tmp_path / "whole")
    ends = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("run", "whole")]
    assert ends[0] == ends[1]


def test_the_first_validation_shows_how_many_are_paid_for():
    budget, options = TimeBudget(100.0, 0.0, validation=5.0), TrainConfig(steps=1000, validate_every=100)
    assert budget.validations(options) == 10, "what was timed was that of a model that had learnt nothing"
    budget.validated = True
    found = {}
    for budget.validation in (0.5, 0.8, 1.0, 5.0):
        found[budget.validation] = budget.validations(options)
    assert found == {0.5: 10, 0.8: 10, 1.0: 6, 5.0: 2}
    budget.validation = 1.0
    assert budget.validations(TrainConfig(steps=1000, validate_every=500)) == 6


def test_fewer_validations_are_in_the_run_and_its_plan_so_that_resuming_is_exact(files, tmp_path, monkeypatch):
    validations(monkeypatch, *[{"seconds": 100.0}] * 20)
    timed = TrainingRun.timed
    monkeypatch.setattr(TrainingRun, "timed", lambda self, *given: replace(timed(self, *given), validation=0.1))
    monkeypatch.setattr(time_budget, "steps_for", lambda plan, seconds, timing: (20, "20 updates"))
    monkeypatch.setattr(TimeBudget, "steps", lambda self, number, options: options.steps)
    monkeypatch.setattr(TimeBudget, "due", lambda self, number, steps: True)
    plan = planned(files, "commands.tsv", minutes=1, overrides=(*SHORT[1:], "train.log_every=1"))
    with pytest.raises(Stopped):
        regard.train(plan, tmp_path / "run", StopAt(4))
    assert load_config(tmp_path / "run").train.validate_every == 10
    page = (tmp_path / "run" / "plan.md").read_text()
    assert "At update 2: a validation takes 100.0 s: from here on there is one every 10 updates." in page
    regard.resume(tmp_path / "run")
    regard.train(plan, tmp_path / "whole")
    assert [one["step"] for one in read_log(tmp_path / "whole/log.jsonl") if one["kind"] == "validation"] == [2, 10, 20]
    ends = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("run", "whole")]
    assert ends[0] == ends[1]


@pytest.mark.parametrize("full", ["write_checkpoint", "write_config"])
def test_minutes_change_no_updates_while_what_these_go_on_from_cannot_be_written(files, tmp_path, monkeypatch, full):
    """The disk takes neither the checkpoint nor the settings at first: training goes on as planned, and tries again."""
    room = {"write_checkpoint": checkpointing, "write_config": training_run}[full]
    written, refused = getattr(room, full), []

    def fails_once(path, *given):
        if not refused:
            refused.append(path)
            raise NotWritten(f"the disk is full: {path} was not written")
        return written(path, *given)

    monkeypatch.setattr(room, full, fails_once)
    monkeypatch.setattr(time_budget, "steps_for", lambda plan, seconds, timing: (10, "10 updates"))
    monkeypatch.setattr(TimeBudget, "steps", lambda self, number, options: 6 if number >= 3 else options.steps)
    monkeypatch.setattr(TimeBudget, "due", lambda self, number, steps: True)
    told = Told()
    # Validations may save too, and how many there are is timed: here none comes before the updates are changed.
    rarely = ("train.log_every=1", "train.save_every=9", "train.validate_every=9")
    plan = planned(files, "commands.tsv", minutes=1, overrides=(*SHORT[1:], *rarely))
    regard.train(plan, tmp_path / "run", told)
    assert len(refused) == 1
    assert sum("the disk is full" in line for line in told.lines) == 1, told.lines
    page = (tmp_path / "run" / "plan.md").read_text()
    assert "At update 3: " not in page
    assert "At update 4: " in page
    assert [one["step"] for one in read_log(tmp_path / "run/log.jsonl") if one["kind"] == "train"][-1] == 6


def test_between_recipes_lies_what_is_between_and_that_is_said():
    one = Recipe("small", 1e6, {"model.width": 128, "train.r_drop": 4.0, "train.optimizer": "muon"})
    other = Recipe("large", 1e8, {"model.width": 512, "train.r_drop": 0.0, "train.optimizer": "adamw"})
    middle, why = between([one, other], 1e7, "words")
    assert middle == {"model.width": 256, "train.r_drop": 2.0, "train.optimizer": "adamw"}
    assert "not measured itself" in why
    assert between([one, other], 1.1e6, "words")[0] == one.settings
    far, why = between([one, other], 1e10, "words")
    assert far == other.settings
    assert "no recipe for more" in why


def test_a_budget_is_frozen_in_updates_so_that_resuming_is_exact(files, tmp_path, monkeypatch):
    timed = TrainingRun.timed
    # Updates are timed as ever, but however slow the machine is, some are paid for.
    monkeypatch.setattr(
        TrainingRun, "timed", lambda self, *given: replace(timed(self, *given), update=1.0, validation=0.0)
    )
    shape = (
        "model.width=16",
        "model.heads=2",
        "model.feed_forward=32",
        "train.threads=1",
        "train.validate_sentences=4",
        "train.log_every=1",
    )
    plan = planned(
        files, "commands.tsv", minutes=1, overrides=(*shape, "model.encoder_layers=1", "model.decoder_layers=1")
    )
    with pytest.raises(Stopped):
        regard.train(plan, tmp_path / "run", StopAt(2))
    frozen = load_config(tmp_path / "run")
    assert frozen.train.steps > 2
    assert f"{frozen.train.steps:,} updates" in (tmp_path / "run" / "plan.md").read_text()
    regard.resume(tmp_path / "run")
    made = regard.make_config(tmp_path / "run" / "config.json")
    whole = regard.train(made, tmp_path / "whole")
    ends = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("run", "whole")]
    assert ends[0] == ends[1]
    assert whole.config.data.held_out == 0.1


def test_the_best_weights_are_those_of_the_best_score(files, tmp_path):
    plan = planned(
        files, "films.tsv", overrides=(*SHORT, "train.validate_every=1", "model.layers=1", "train.learning_rate=0.03")
    )
    run = regard.train(plan, tmp_path / "run")
    scores = {
        one["step"]: one["accuracy"] for one in read_log(run.directory / "log.jsonl") if one["kind"] == "validation"
    }
    best = max(step for step, score in scores.items() if score == max(scores.values()))
    assert json.loads((run.directory / "checkpoints" / "step-4" / "progress.json").read_text())["best_step"] == best
    told = Told()
    with pytest.raises(ConfigError, match="select_by='f1' is none of"):
        regard.train(
            regard.make_config(run.directory / "config.json", overrides=["train.select_by=f1"]),
            tmp_path / "other",
            told,
        )


@pytest.mark.parametrize(("name", "best"), [("word_error_rate", 2), ("f1", 4)])
def test_of_errors_the_fewest_are_best_and_of_scores_the_highest(files, tmp_path, monkeypatch, name, best):
    validations(monkeypatch, *({name: figure} for figure in (0.5, 0.25, 0.75, 1.0)))
    plan = planned(
        files, "films.tsv", overrides=(*SHORT, "train.validate_every=1", "model.layers=1", f"train.select_by={name}")
    )
    run = regard.train(plan, tmp_path / "run")
    assert json.loads((run.directory / "checkpoints" / "step-4" / "progress.json").read_text())["best_step"] == best


def test_the_first_command_prints_its_plan(files, tmp_path, capsys):
    asked = [
        "train",
        "--data",
        str(files / "commands.tsv"),
        "--out",
        str(tmp_path / "run"),
        *(f"--set={one}" for one in SHORT),
    ]
    assert main(asked) == 0
    said = capsys.readouterr()
    assert said.out.strip() == str(tmp_path / "run")
    assert "plan: translation, spaced to spaced tokens" in said.err
    assert (tmp_path / "run" / "plan.md").read_text().startswith("# How this run was planned")
    assert main(["train", "--preset", "tiny", "--minutes", "1", "--out", str(tmp_path / "other")]) != 0
    assert "--minutes is for training without a preset" in capsys.readouterr().err


def test_a_run_starts_from_another_with_a_vocabulary_of_its_own(tmp_path):
    from regard.tasks.run import load_vocabularies

    for name, word in (("one", "cat"), ("two", "owl")):
        lines = [
            f"the {word} sees number {chr(97 + n % 26)}\tle {word} voit numero {chr(97 + n % 26)}" for n in range(60)
        ]
        (tmp_path / f"{name}.tsv").write_text("\n".join(lines) + "\n")
    shape = ("tokenizer.kind=word", "tokenizer.joint=false", *SHORT, "model.encoder_layers=1", "model.decoder_layers=1")
    shape = (*shape, "model.share=output", "train.steps=2", "data.max_len=64", "model.max_len=64")
    first = regard.train(
        regard.make_config(None, "tiny", shape, {"data": {"train": [str(tmp_path / "one.tsv")]}}), tmp_path / "first"
    )
    told = Told()
    made = regard.make_config(
        None,
        None,
        ("tokenizer.retrain=true", "train.steps=1", "train.learning_rate=1e-12", "train.schedule=constant"),
        {"data": {"train": [str(tmp_path / "two.tsv")]}, "train": {"start_from": str(tmp_path / "first")}},
    )
    second = regard.train(made, tmp_path / "second", told)
    size = second.vocabularies.source.vocab_size
    assert any(f"source.tokens.weight: {size - 1} of {size} rows kept, 1 new" in line for line in told.lines)
    ours, theirs = (load_vocabularies(run.directory, run.config.tokenizer).source for run in (second, first))
    rows = [table.model.state_dict()["source.tokens.weight"] for table in (second, first)]
    assert ours.encode("owl") != [ours.unk]
    assert (rows[0][ours.encode("sees")[0]] - rows[1][theirs.encode("sees")[0]]).abs().max() < 1e-6
    with pytest.raises(ConfigError, match="cannot change in a run that starts from"):
        regard.make_config(None, None, ("tokenizer.vocab_size=50",), {"train": {"start_from": str(tmp_path / "first")}})


def test_labelled_texts_pairs_tags_and_answers_start_from_a_trained_encoder(files, tmp_path):
    shape = ("model.width=16", "model.heads=2", "model.layers=2", "model.feed_forward=32", "train.steps=1")
    shape = (*shape, "model.head=words", "tokenizer.vocab_size=300", "train.threads=1")
    base = regard.make_config(None, "bert-tiny", shape, {"data": {"train": [str(files / "plain.txt")]}})
    regard.train(base, tmp_path / "base")
    heads = {"films.tsv": "classes", "entailed.tsv": "classes", "tagged.txt": "tags", "asked.jsonl": "spans"}
    for name, head in heads.items():
        plan = planned(files, name, start=tmp_path / "base", overrides=["train.steps=1", "train.threads=1"])
        assert (plan.config.model["head"], plan.config.model["width"]) == (head, 16)
        assert plan.config.train.layer_decay == 0.7
        if name == "entailed.tsv":
            run = regard.train(plan, tmp_path / "run")
            assert len(run.classify([("one text", "another")])[0]) == 2


def test_texts_beyond_what_is_planned_for_are_said_to_be_left_out(files, tmp_path):
    long = " ".join(["word"] * 3000)
    text = (files / "pairs.tsv").read_text(encoding="utf-8")
    (tmp_path / "long.tsv").write_text(f"{text}{long}\t{long}\n", encoding="utf-8")
    decisions = {one.name: one for one in regard.plan(tmp_path / "long.tsv", machine=CPU).decisions}
    assert decisions["data.max_len"].value == 1024
    assert "those of more than 1,024 tokens are left out" in decisions["data.max_len"].why
    assert decisions["train.batch_tokens"].value < 3000


@pytest.mark.parametrize(
    ("name", "overrides", "expected"),
    [
        ("sounds.tsv", ["tokenizer.kind=bpe"], {"tokenizer.source_kind": None, "tokenizer.target_kind": None}),
        ("pairs.tsv", ["tokenizer.joint=false"], {"model.share": "output"}),
        ("pairs.tsv", ["tokenizer.target_kind=character"], {"tokenizer.joint": False, "model.share": "output"}),
        ("pairs.tsv", ["data.max_len=2000"], {"model.max_len": 2000, "train.batch_tokens": 4008}),
        ("rule.tsv", ["model.width=128"], {"model.heads": 4, "model.feed_forward": 256}),
        ("rule.tsv", ["model.width=100"], {"model.heads": 2, "model.feed_forward": 200}),
        ("pairs.tsv", ["train.optimizer=adamw"], {"train.learning_rate": 2e-3}),
        ("films.tsv", ["train.optimizer=muon"], {"train.learning_rate": 4e-3}),
        ("pairs.tsv", ["train.optimizer=adamw", "train.learning_rate=0.01"], {"train.learning_rate": 0.01}),
    ],
)
def test_decisions_follow_the_settings_that_are_given(files, name, overrides, expected):
    plan = planned(files, name, overrides=overrides)
    settings = plan.config.to_mapping()
    found = {key: settings[key.split(".")[0]].get(key.split(".")[1]) for key in expected}
    assert found == expected
    asked = {one.split("=")[0] for one in overrides}
    reasons = [one.why for one in plan.decisions if one.name in expected.keys() - asked]
    assert all("as asked" in why for why in reasons)


@pytest.mark.parametrize(("header", "source"), [("fr\ten", "fr"), ("en\tfr", "en"), ("de\ten", "de")])
def test_columns_called_by_two_languages_are_read_in_their_order(tmp_path, header, source):
    rows = [header, *(f"{one}\t{two}" for one, two in zip(ENGLISH, FRENCH, strict=True))]
    (tmp_path / "pairs.tsv").write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
    data = regard.plan(tmp_path / "pairs.tsv", machine=CPU).config.data
    assert (data.source, {data.source, data.target}) == (source, {*header.split("\t")})


def test_columns_that_could_be_read_in_several_ways_have_to_be_named(tmp_path):
    three = [json.dumps({"en": one, "fr": two, "de": two}) for one, two in zip(ENGLISH, FRENCH, strict=True)]
    asked = [
        json.dumps({"instruction": one, "input": two, "output": two}) for one, two in zip(ENGLISH, FRENCH, strict=True)
    ]
    for name, rows in (("three.jsonl", three), ("asked.jsonl", asked)):
        (tmp_path / name).write_text("\n".join(rows), encoding="utf-8")
        with pytest.raises(DataError, match=r"--set data\.source=\w+ --set data\.target="):
            regard.plan(tmp_path / name, machine=CPU)


def test_two_files_of_tagged_words_are_no_pairs(files, tmp_path):
    text = (files / "tagged.txt").read_text()
    (tmp_path / "a.txt").write_text(text)
    (tmp_path / "b.txt").write_text(text + text[: text.index("\n\n") + 2])
    assert regard.plan([tmp_path / "a.txt", tmp_path / "b.txt"], machine=CPU).config.task == "tagging"


def test_pairs_of_which_one_side_is_blank_are_refused(files, tmp_path):
    (tmp_path / "blank.fr").write_text("\n" * 1500)
    with pytest.raises(DataError, match="no row has both a source and a target"):
        regard.plan([files / "train.en", tmp_path / "blank.fr"], machine=CPU)


SYLLABLES = [chr(0xAC00 + 7 * number) for number in range(1000)]
SIGNS = [chr(0x4E00 + number) for number in range(2500)]


def scripted(signs, count, least, most, space=""):
    random_ = random.Random(1)
    return [space.join(random_.choices(signs, k=random_.randint(least, most))) for _ in range(count)]


def test_texts_of_scripts_without_spaces_are_no_spelling(tmp_path):
    rows = zip(scripted(SIGNS, 400, 5, 30), scripted(SIGNS, 400, 5, 30), strict=True)
    (tmp_path / "pairs.tsv").write_text("".join(f"{one}\t{two}\n" for one, two in rows), encoding="utf-8")
    plan = regard.plan(tmp_path / "pairs.tsv", machine=CPU)
    assert plan.config.tokenizer.kinds == ("bpe", "bpe")
    assert plan.config.data.max_len >= 45  # three bytes for each sign, of which few are joined


def test_a_vocabulary_has_room_for_every_character(tmp_path):
    texts = scripted(SYLLABLES, 600, 4, 9, " ")
    (tmp_path / "films.tsv").write_text("".join(f"{n % 2}\t{one}\n" for n, one in enumerate(texts)), encoding="utf-8")
    (tmp_path / "plain.txt").write_text("\n".join(scripted([chr(0x3400 + n) for n in range(6000)], 2000, 20, 30)))
    found = planned(tmp_path, "films.tsv", overrides=SHORT)
    assert found.config.tokenizer.vocab_size > 2000
    regard.train(found, tmp_path / "run")
    assert planned(tmp_path, "plain.txt").config.tokenizer.vocab_size > 6000


def test_few_texts_may_be_read_more_often_by_a_trained_encoder(files, tmp_path):
    from regard.tasks.classification import ClassificationTask
    from regard.tasks.plans.labelled import plan_labelled

    found = ClassificationTask().statistics(planned(files, "films.tsv").config.data)
    often = [
        plan_labelled(replace(found, rows=rows), CPU, {"model": {}}, head="classes").most_epochs
        for rows in (100, 5000, 100_000)
    ]
    assert often == [20.0, 6.0, 3.0]


def test_the_rate_stays_where_the_planned_optimizer_is_given(files):
    given, free = planned(files, "pairs.tsv", overrides=["train.optimizer=muon"]), planned(files, "pairs.tsv")
    assert given.config.train == free.config.train


def test_a_dry_run_prints_the_plan_and_trains_nothing(files, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = ["train", "--data", str(files / "pairs.tsv"), "--dry-run"]
    assert main([*data, "--minutes", "3"]) == 0
    page = capsys.readouterr().out
    assert page.startswith("# How this run was planned")
    assert "Budget: 3 minutes in all" in page
    assert "updates are timed when training begins" in page
    assert "| `model.width` |" in page
    assert main([*data, "--out", "run", "--set", "train.epochs=3"]) == 0
    assert "Budget: 3 epochs as asked" in capsys.readouterr().out
    assert [*tmp_path.iterdir()] == []
    for option in (["--fit"], ["--report", "tensorboard"], ["--processes", "2"]):
        assert main([*data, *option]) == 2
        assert f"{option[0]} is for training" in capsys.readouterr().err
    assert main(["train", "--preset", "tiny", "--dry-run"]) == 2
    assert "`regard presets NAME --all`" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("machine", "said"),
    [
        (Machine(cores=2), "on 2 CPU cores, 10"),
        (Machine(cores=16), "on 16 CPU cores (recipes were measured on 2), 10"),
        (Machine(gpu="NVIDIA H200"), "on NVIDIA H200, 5"),
        (Machine(gpu="NVIDIA GeForce GTX 1650"), "on NVIDIA GeForce GTX 1650 (recipes were measured on one H200), 5"),
    ],
)
def test_a_machine_unlike_those_of_the_recipes_is_said(files, machine, said):
    plan = planned(files, "pairs.tsv", machine=machine)
    assert said in plan.lines()[-1]
    assert said.split(" (")[0].removeprefix("on ").split(",")[0] in plan.page()


def test_where_updates_are_given_no_minutes_are_planned_for(tmp_path):
    rows = [f"{one}\t{two}" for one, two in zip(ENGLISH, FRENCH, strict=True)]
    (tmp_path / "few.tsv").write_text("\n".join(rows))
    timed, counted = (planned(tmp_path, "few.tsv", overrides=given) for given in ([], ["train.steps=100"]))
    assert timed.config.model["dropout"] == 0.4
    assert counted.config.model["dropout"] == 0.2


def test_a_limit_below_the_longest_text_is_said(files):
    plan = planned(files, "pairs.tsv", overrides=["data.max_len=5"])
    (said,) = [one.line for one in plan.findings if one.kind == "texts left out"]
    assert said == "data.max_len=5, as asked, may leave out many texts: the longest text, which has 9 words"
    assert not any(one.kind == "texts left out" for one in planned(files, "pairs.tsv").findings)


def test_kanji_and_kana_are_one_script(tmp_path):
    random_ = random.Random(1)
    texts = ["".join(random_.choices(KANJI, k=4)) + "".join(random_.choices(KANA, k=6)) for _ in range(300)]
    texts += [text[::-1] for text in texts]
    (tmp_path / "text.txt").write_text("\n".join(texts), encoding="utf-8")
    assert not any(one.kind == "mixed scripts" for one in planned(tmp_path, "text.txt").findings)


KANJI, KANA = [chr(0x4E00 + number) for number in range(300)], [chr(0x3042 + number) for number in range(60)]


def test_parts_of_images_are_said(tmp_path):
    for part in ("train", "val"):
        image_folders(tmp_path / part, {(str(number % 2), number): number for number in range(120)})
    assert "train to train on, val besides" in planned(tmp_path, "").recognised
