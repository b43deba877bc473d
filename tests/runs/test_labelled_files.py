"""Labelled files from the command line: what evaluation reads is read everywhere, and looked at before any work."""

import builtins
import json
from types import SimpleNamespace

import pytest
from encoder_toys import SHAPE, SMALL, config, write_texts

import regard
from regard import make_config
from regard.cli import main
from regard.errors import ConfigError, DataError


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_texts(tmp_path_factory.mktemp("texts"))


@pytest.fixture(scope="module")
def runs(files, tmp_path_factory):
    """A run of each kind that reads labelled texts."""
    home = tmp_path_factory.mktemp("runs")
    kinds = {"bert-classify": ".tsv", "bert-tag": "-tags.tsv", "bert-answer": "-asked.jsonl"}
    return {
        preset: regard.train(config(files, preset, suffix, "train.steps=3"), home / preset).directory
        for preset, suffix in kinds.items()
    }


@pytest.fixture
def cli(capfd):
    def run(*arguments):
        capfd.readouterr()
        code = main([str(argument) for argument in arguments])
        written = capfd.readouterr()
        return SimpleNamespace(code=code, out=written.out, err=written.err)

    return run


class Heard:
    """What a training says."""

    def __init__(self):
        self.said = []

    def say(self, text):
        self.said.append(text)

    def progress(self, what, pairs): ...

    def step(self, values, total): ...

    def validation(self, values): ...


def test_classify_reads_what_evaluate_reads(files, runs, cli, tmp_path):
    run = runs["bert-classify"]
    lines = [line.split("\t")[0] for line in (files / "valid.tsv").read_text().splitlines()]
    (tmp_path / "valid.txt").write_text("\n".join(lines) + "\n")
    (tmp_path / "valid.csv").write_text("label,text\n" + "".join(f'x,"{line}"\n' for line in lines))
    wanted = cli("classify", run, "--input", tmp_path / "valid.txt")
    assert wanted.code == 0
    assert len(wanted.out.splitlines()) == len(lines)
    for path in (files / "valid.tsv", files / "valid-head.tsv", tmp_path / "valid.csv"):
        assert cli("classify", run, "--input", path).out == wanted.out


def test_tag_and_answer_read_what_evaluate_reads(files, runs, cli, tmp_path):
    found = cli("tag", runs["bert-tag"], "--input", files / "valid-tags.tsv")
    words = [line.split("\t")[0] for line in (files / "valid-tags.tsv").read_text().splitlines()]
    assert [line.split("\t")[0] for line in found.out.splitlines()][: len(words)] == words
    (tmp_path / "valid.conll").write_text((files / "valid-tags.tsv").read_text().replace("\t", " "))
    assert cli("tag", runs["bert-tag"], "--input", tmp_path / "valid.conll").out == found.out
    found = cli("answer", runs["bert-answer"], "--input", files / "valid-asked.jsonl", "--json")
    asked = [json.loads(line) for line in (files / "valid-asked.jsonl").read_text().splitlines()]
    assert [json.loads(line)["question"] for line in found.out.splitlines()] == [row["question"] for row in asked]
    refused = cli("answer", runs["bert-answer"], "--input", files / "valid.txt")
    assert refused.code == 2
    assert "give a question" in refused.err


def test_what_the_run_does_not_know_and_what_it_does_not_read_of_a_text_are_said(runs, cli):
    known, run = cli("classify", runs["bert-classify"], "a good day"), runs["bert-classify"]
    assert known.err == ""
    found = cli("classify", run, "a good \u2603 day \u2603", "a \u2603 day \u2604")
    assert found.err == "unknown to this run, and all read as one word: \u2603, \u2604\n"
    first, second = (
        json.loads(line)
        for line in cli("classify", run, "a good day", "a \u2603 " + "day " * 200, "--json").out.splitlines()
    )
    assert not {"unknown", "truncated"} & {*first}
    assert (second["unknown"], second["truncated"]) == (["\u2603"], True)
    long = cli("classify", run, "a good day", "day " * 200)
    assert long.err == "1 of 2 inputs is longer than the model reads; its beginning was read\n"
    tagged = cli("tag", runs["bert-tag"], "sun \u2603")
    assert tagged.err == "unknown to this run, and all read as one word: \u2603\n"
    answered = cli("answer", runs["bert-answer"], "who \u2603 ?", "the sun \u2604 shines")
    assert answered.err == "unknown to this run, and all read as one word: \u2603, \u2604\n"


def test_an_empty_text_to_classify_is_refused_as_such(runs, cli):
    refused = cli("classify", runs["bert-classify"], "a good day", " ")
    assert refused.code == 1
    assert "an input is empty" in refused.err


def test_unknown_labels_are_counted_and_named(runs, cli, tmp_path):
    (tmp_path / "a.tsv").write_text("a good day\tgood\na day\tfine\na bad day\tbad\na day\tfine\na day\todd\n")
    shown = cli("evaluate", runs["bert-classify"], "--data", tmp_path / "a.tsv")
    assert "unknown labels     3 of 5, counted as wrong: fine 2, odd 1" in shown.out
    assert "Matthews corr." in shown.out
    (tmp_path / "b.tsv").write_text("a day\tfine\n")
    with pytest.raises(DataError, match=r"knows none of the labels of these texts \(fine\): its labels are bad, good"):
        regard.evaluate(regard.load(runs["bert-classify"]), [str(tmp_path / "b.tsv")])
    (tmp_path / "c.tsv").write_text("sun\tB-X\nis\tODD\n")
    shown = cli("evaluate", runs["bert-tag"], "--data", tmp_path / "c.tsv")
    assert "unknown labels     1 of 2, counted as wrong: ODD 1" in shown.out


def test_a_header_is_said_where_it_is_evaluated(files, runs, cli):
    shown = cli("evaluate", runs["bert-classify"], "--data", files / "valid-head.tsv")
    assert f"row 1 of {files / 'valid-head.tsv'} is taken as a header: label, sentence" in shown.err
    assert "column 'sentence' is taken for data.text" in shown.err


def test_a_header_and_what_is_not_used_are_said_once_in_training(tmp_path):
    rows = "".join(f"{n}\tthe day was good\tsecond\t{n % 2}\n" for n in range(8))
    (tmp_path / "a.tsv").write_text("id\tsentence1\tsentence2\tlabel\n" + rows)
    heard, extra = Heard(), {"data": {"train": [str(tmp_path / "a.tsv")]}}
    settings = [*SMALL, *SHAPE, "train.steps=1", "data.text=sentence1"]
    run = regard.train(make_config(None, "bert-classify", settings, extra), tmp_path / "run", heard)
    assert run.config.model["labels"] == ["0", "1"]
    assert sum("is taken as a header" in line for line in heard.said) == 1
    assert [line.partition(": ")[2] for line in heard.said if "not used" in line] == [
        "not used: id, sentence2; data.pair=sentence2 would read it as a second text"
    ]
    settings = [*SMALL, *SHAPE, "train.steps=1", "data.text=2", "data.label=4", "data.pair=3"]
    run = regard.train(make_config(None, "bert-classify", settings, extra), tmp_path / "numbers")
    assert run.config.model["labels"] == ["0", "1"]
    assert regard.load(tmp_path / "numbers").config.data.pair == 3
    with pytest.raises(ConfigError, match=r"data\.text=0 must be the name of a column or its number, from 1"):
        make_config(None, "bert-classify", [*settings, "data.text=0"], extra)


GOOD = {
    "translation": ("tiny", "a.tsv", "a b\tc d\n" * 20),
    "language": ("gpt-tiny", "a.txt", "some text\n" * 200),
    "masking": ("bert-tiny", "a.txt", "Some text. More text.\n" * 200),
    "classification": ("bert-classify", "a.tsv", "good\t1\nbad\t0\n"),
    "tagging": ("bert-tag", "a.tsv", "sun\tX\nis\tO\n"),
    "answering": ("bert-answer", "a.jsonl", '{"question": "q", "context": "a b", "answer": "a"}\n'),
}
FAULTS = [
    ("b.parquet", b"", "needs pyarrow"),
    ("b.tsv", b"", "is empty"),
    ("b.jsonl", b"\n", "is empty"),
    ("b.csv.gz", b"nothing", r"not a readable \.gz file"),
    ("b.jsonl", b'{"strange": "x"}\n', r"no key '.*data\.\w+ chooses the key"),
    ("b.csv", b"strange,name,here\n1,2,3\n", r"columns? where|no column|none such"),
]


@pytest.mark.parametrize("part", ["train", "valid"])
@pytest.mark.parametrize("task", GOOD)
def test_a_file_that_cannot_be_used_is_refused_before_any_work(task, part, tmp_path, monkeypatch):
    preset, good, text = GOOD[task]
    (tmp_path / good).write_text(text)
    real = builtins.__import__

    def without(module, *rest):
        if module.startswith("pyarrow"):
            raise ModuleNotFoundError(module)
        return real(module, *rest)

    for name, content, message in FAULTS:
        if name == "b.csv" and task in ("tagging", "answering"):
            continue  # such a file may have three columns
        (tmp_path / name).write_bytes(content)
        parts = {"train": [str(tmp_path / good)], part: [str(tmp_path / name)]}
        made = make_config(None, preset, [], {"data": parts})
        heard = Heard()
        with monkeypatch.context() as patch:
            patch.setattr(builtins, "__import__", without)
            with pytest.raises(DataError, match=message):
                regard.train(made, tmp_path / "run", heard)
        assert not any("tokenizer" in line or "reading" in line for line in heard.said)
        assert not (tmp_path / "run").exists()
