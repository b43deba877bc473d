"""Folders of data as people keep them: which of their files are trained on, validated on, tested on and passed over."""

import json
import os

import pytest
from listeners import Told

import regard
from regard.errors import DataError
from regard.tasks.planning import Machine

CPU = Machine(cores=2)
COLOURS = ["red", "green", "blue", "black", "white", "brown", "grey", "pink", "gold"]
THINGS = ["cat", "dog", "house", "tree", "river", "bird", "horse", "stone", "cloud"]
ENGLISH = [f"the {colour} {one} sees the {other}" for colour in COLOURS for one in THINGS for other in THINGS]
FRENCH = [f"{one} {colour} voit {other} ." for colour in COLOURS for one in THINGS for other in THINGS]
SHORT = ("train.steps=2", "model.width=16", "model.heads=2", "model.feed_forward=32", "train.threads=1")


def write(folder, files):
    for name, rows in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")


def pairs(first, last):
    return [f"{one}\t{two}" for one, two in zip(ENGLISH[first:last], FRENCH[first:last], strict=True)]


def labelled(first, last, header=()):
    rows = [f"{text},{'ab'[number % 2]}" for number, text in enumerate(ENGLISH[first:last])]
    return [*header, *rows]


def records(first, last):
    return [json.dumps({"text": text, "label": number % 3}) for number, text in enumerate(ENGLISH[first:last])]


FOLDERS = {
    "tables": (
        {"train.tsv": pairs(0, 400), "dev.tsv": pairs(400, 450), "test.tsv": pairs(450, 500)},
        "translation",
        {"train": ["train.tsv"], "valid": ["dev.tsv"], "test": ["test.tsv"]},
        "",
    ),
    "shards with notes": (
        {
            "README.md": ["about"],
            "LICENSE": ["free"],
            "data/train-00000-of-00002.jsonl": records(0, 200),
            "data/train-00001-of-00002.jsonl": records(200, 400),
            "data/validation-00000-of-00001.jsonl": records(400, 450),
        },
        "classification",
        {
            "train": ["data/train-00000-of-00002.jsonl", "data/train-00001-of-00002.jsonl"],
            "valid": ["data/validation-00000-of-00001.jsonl"],
            "test": [],
        },
        "",
    ),
    "line-aligned": (
        {
            "train.en": ENGLISH[:400],
            "train.fr": FRENCH[:400],
            "val.en": ENGLISH[400:450],
            "val.fr": FRENCH[400:450],
            "test_2016.en": ENGLISH[450:480],
            "test_2016.fr": FRENCH[450:480],
            "test_2017.en": ENGLISH[480:500],
            "test_2017.fr": FRENCH[480:500],
        },
        "translation",
        {"train": ["train.en", "train.fr"], "valid": ["val.en", "val.fr"], "test": ["test_2016.en", "test_2016.fr"]},
        "test_2017.en, test_2017.fr",
    ),
    "contest": (
        {
            "train.csv": labelled(0, 400, ["text,label"]),
            "valid.csv": labelled(400, 450, ["text,label"]),
            "test.csv": ["text,id", *(f"{text},{number}" for number, text in enumerate(ENGLISH[450:500]))],
            "sample_submission.csv": ["id,label", *(f"{number},a" for number in range(50))],
        },
        "classification",
        {"train": ["train.csv"], "valid": ["valid.csv"], "test": []},
        "sample_submission.csv, test.csv (it has no 'label')",
    ),
    "running text": (
        {"wiki.train.txt": ENGLISH[:400], "wiki.valid.txt": ENGLISH[400:450], "wiki.test.txt": ENGLISH[450:500]},
        "language",
        {"train": ["wiki.train.txt"], "valid": ["wiki.valid.txt"], "test": ["wiki.test.txt"]},
        "",
    ),
    "folders of parts": (
        {
            "train/a.jsonl": records(0, 300),
            "train/b.jsonl": records(300, 400),
            "dev/a.jsonl": records(400, 450),
        },
        "classification",
        {"train": ["train"], "valid": ["dev"], "test": []},
        "",
    ),
}


@pytest.mark.parametrize("kind", FOLDERS)
def test_files_of_a_folder_are_used_as_their_names_say(tmp_path, kind):
    files, task, expected, passed_over = FOLDERS[kind]
    write(tmp_path, files)
    plan = regard.plan(tmp_path, machine=CPU)
    assert plan.config.task == task
    found = {part: [*map(str, getattr(plan.config.data, part) or ())] for part in expected}
    assert found == {part: [str(tmp_path / name) for name in names] for part, names in expected.items()}
    assert "to train on" in plan.facts[0]
    assert ("for validation" in plan.facts[0]) == bool(expected["valid"])
    said = [finding.line for finding in plan.findings if finding.kind == "files passed over"]
    assert [line.split("not read: ")[1].split("; to read them")[0] for line in said] == (
        [passed_over] if passed_over else []
    )


def test_a_folder_of_parts_trains_and_is_evaluated_on_its_test_part(tmp_path):
    files, *_ = FOLDERS["tables"]
    write(tmp_path / "data", files)
    told = Told()
    run = regard.train(data=tmp_path / "data", out=tmp_path / "run", overrides=SHORT, report=told)
    assert any("train.tsv to train on; dev.tsv for validation; test.tsv for testing" in line for line in told.lines)
    assert run.config.data.held_out == 0
    assert regard.evaluate(run, beam=1)["sentences"] == 50


def test_parts_that_are_given_otherwise_are_not_trained_on(tmp_path):
    files, *_ = FOLDERS["tables"]
    write(tmp_path / "data", {**files, "other.tsv": pairs(500, 550)})
    folder, other = tmp_path / "data", str(tmp_path / "data/other.tsv")
    for options in ({"valid": other}, {"overrides": [f"data.valid=['{other}']"]}):
        plan = regard.plan(folder, machine=CPU, **options)
        assert [*plan.config.data.train] == [str(folder / "train.tsv")]
        assert [*plan.config.data.valid] == [other]
        assert [*plan.config.data.test] == [str(folder / "test.tsv")]
        (said,) = [finding.line for finding in plan.findings if finding.kind == "files passed over"]
        assert "dev.tsv (others were given)" in said
    plan = regard.plan(folder, test=folder / "test.tsv", machine=CPU)
    assert [*plan.config.data.train] == [str(folder / "train.tsv")]
    assert not any("test.tsv" in finding.line for finding in plan.findings)


def test_parts_may_be_tables_of_several_formats(tmp_path):
    write(
        tmp_path,
        {"train.tsv": pairs(0, 400), "dev.csv": ["source,target", "the cat,chat"], "test.tsv": pairs(450, 500)},
    )
    data = regard.plan(tmp_path, machine=CPU).config.data
    assert [len(data.train), len(data.valid), len(data.test)] == [1, 1, 1]
    assert data.valid == (str(tmp_path / "dev.csv"),)


def test_of_a_part_only_the_tables_that_cannot_be_read_are_passed_over(tmp_path):
    files = {"train.csv": labelled(0, 400, ["text,label"]), "dev-1.csv": labelled(400, 450, ["text,label"])}
    write(tmp_path, {**files, "dev-2.csv": ["text,id", "a text,1"]})
    plan = regard.plan(tmp_path, machine=CPU)
    assert [*plan.config.data.valid] == [str(tmp_path / "dev-1.csv")]
    assert any("dev-2.csv (it has no 'label')" in finding.line for finding in plan.findings)


def test_tables_about_sounds_or_images_are_no_translations(tmp_path):
    rows = ["file\ttext", *(f"wavs/{number}.wav\t{text}" for number, text in enumerate(ENGLISH[:60]))]
    write(tmp_path, {"train.tsv": rows, "valid.tsv": rows[:9], "wavs/0.wav": ["RIFF"]})
    with pytest.raises(DataError, match="cannot tell what"):
        regard.plan(tmp_path, machine=CPU)


def test_pipes_and_links_that_lead_nowhere_are_no_texts_of_a_class(tmp_path):
    for one in ("pos", "neg"):
        write(tmp_path / "training" / one, {f"{number}.txt": [text] for number, text in enumerate(ENGLISH[:20])})
    os.mkfifo(tmp_path / "training/pos/00.txt")
    (tmp_path / "training/pos/z.txt").symlink_to("/nowhere")
    (tmp_path / "training/pos/d.txt").mkdir()
    plan = regard.plan(tmp_path, machine=CPU)
    assert plan.config.task == "classification"
    assert "40 rows" in plan.facts[-1]


def test_a_name_too_long_for_a_file_is_refused():
    with pytest.raises(DataError, match="no such file"):
        regard.plan("a" * 300, machine=CPU)


def test_line_aligned_files_of_a_folder_say_which_way_they_are_read(tmp_path):
    files, *_ = FOLDERS["line-aligned"]
    write(tmp_path, files)
    plan = regard.plan(tmp_path, machine=CPU)
    assert plan.facts[0].startswith("train.en to train.fr to train on; val.en to val.fr for validation")
    said = next(finding.line for finding in plan.findings if finding.kind == "direction")
    assert "to turn it round give --data train.fr --data train.en" in said


def test_tables_whose_text_has_another_name_are_read_as_they_are_elsewhere(tmp_path):
    files = {"train.csv": labelled(0, 400, ["sentence,label"]), "dev.csv": labelled(400, 450, ["content,label"])}
    write(tmp_path, files)
    assert regard.plan(tmp_path, machine=CPU).config.data.valid == (str(tmp_path / "dev.csv"),)


@pytest.mark.parametrize(
    "names",
    [
        ["a.tsv", "b.tsv"],  # no parts
        ["train.tsv", "more.tsv"],  # a part alone
        ["training-test.tsv", "b.tsv"],  # a name that says two
    ],
)
def test_other_folders_are_read_whole_and_their_files_named(tmp_path, names):
    write(tmp_path, {name: pairs(200 * number, 200 * number + 200) for number, name in enumerate(names)})
    plan = regard.plan(tmp_path, machine=CPU)
    assert [*plan.config.data.train] == [str(tmp_path)]
    assert plan.facts[0] == f"{', '.join(sorted(names))} to train on"
    assert "400 pairs" in plan.facts[1]
