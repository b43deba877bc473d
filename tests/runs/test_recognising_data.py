"""What data is recognised as: its task and its columns, and what is said of data that cannot be told."""

import hashlib
import json

import numpy as np
import pytest
from listeners import Told
from PIL import Image
from planning_toys import (
    CPU,
    ENGLISH,
    FRENCH,
    SHORT,
    image_folders,
    planned,
    sentences,
    write_every_kind,
)

import regard
from regard.errors import DataError


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A file of each kind."""
    return write_every_kind(tmp_path_factory.mktemp("data"))


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


@pytest.mark.parametrize("parts", [(), ("train", "test")])
def test_images_of_one_class_are_refused_with_its_name(tmp_path, parts):
    image_folders(tmp_path, {(f"{part}/cat", number): number for part in parts or "." for number in range(3)})
    with pytest.raises(DataError, match="here is one class only, 'cat', where at least two are wanted"):
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


def test_parts_of_images_are_said(tmp_path):
    for part in ("train", "val"):
        image_folders(tmp_path / part, {(str(number % 2), number): number for number in range(120)})
    assert "train to train on, val besides" in planned(tmp_path, "").recognised
