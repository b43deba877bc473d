"""Files as strangers have them: which are planned, and which are refused with hints that work as they are printed."""

import gzip
import json
import random
import re
import subprocess
import sys

import pyarrow
import pytest
from listeners import Told
from pyarrow import parquet

import regard
from regard.data import PairFiles
from regard.data.formats import notes_on
from regard.data.labelled_texts import Example, Keys, examples
from regard.errors import DataError
from regard.tasks.planning import Machine

CPU = Machine(cores=2)
SHORT = ("train.steps=2", "model.width=16", "model.heads=2", "model.feed_forward=32", "train.threads=1")
DICE = random.Random(7)
KNOWN = ["".join(DICE.choices("abcdefghijklmnop", k=DICE.randint(3, 8))) for _ in range(2000)]


def sentence(least=4, most=9):
    return " ".join(DICE.choices(KNOWN, k=DICE.randint(least, most)))


TEXTS = [sentence() for _ in range(240)]
OTHERS = [sentence() for _ in range(240)]
COMMAS = [
    f"{text}, {other}" if number % 2 else text for number, (text, other) in enumerate(zip(TEXTS, OTHERS, strict=True))
]
LABELS = ["good" if number % 3 else "bad" for number in range(240)]


def write(path, rows, encoding="utf-8"):
    path.write_text("".join(f"{row}\n" for row in rows), encoding=encoding)
    return path


def records(path, *found):
    return write(path, map(json.dumps, found))


def nested(*languages):
    sides = dict(zip(languages, (TEXTS, OTHERS, COMMAS), strict=False))
    return [
        {"id": str(row), "translation": {name: side[row] for name, side in sides.items()}} for row in range(len(TEXTS))
    ]


def refused(path, **options):
    with pytest.raises(DataError) as caught:
        regard.plan(path, machine=CPU, **options)
    said = str(caught.value)
    assert "\n" not in said
    return said


def ways(said):
    """The settings that a message says could be given, each set of them."""
    return [
        [part.strip() for part in re.findall(r"--set ([^\s;,]+)", group)]
        for group in re.findall(r"(?:--set [^\s;,]+ ?)+", said.replace("(--set task=...)", ""))
    ]


NESTED = [("jsonl", ("en", "fr")), ("parquet", ("en", "fr")), ("jsonl.gz", ("ro", "fi"))]


@pytest.mark.parametrize(("suffix", "languages"), NESTED)
def test_translations_in_objects_are_pairs_in_the_order_of_their_keys(tmp_path, suffix, languages):
    path = tmp_path / f"pairs.{suffix}"
    if suffix == "parquet":
        parquet.write_table(pyarrow.Table.from_pylist(nested(*languages)), path)
    else:
        rows = "".join(f"{json.dumps(one)}\n" for one in nested(*languages)).encode()
        path.write_bytes(gzip.compress(rows) if suffix.endswith("gz") else rows)
    plan = regard.plan(path, machine=CPU, overrides=SHORT)
    one, other = (f"translation.{name}" for name in languages)
    assert (plan.config.data.source, plan.config.data.target) == (one, other)
    assert f"objects 'translation' with {languages[0]} and {languages[1]}, in this order" in plan.recognised
    assert list(PairFiles(path, keys=(one, other))) == list(zip(TEXTS, OTHERS, strict=True))
    (turned,) = ways(plan.recognised)
    assert regard.plan(path, machine=CPU, overrides=turned).config.data.source == other


def test_a_run_on_objects_is_trained_and_evaluated(tmp_path):
    found = nested("en", "fr", "de")
    train, valid, test = (
        records(tmp_path / f"{name}.jsonl", *found[first:last])
        for name, first, last in (("train", 0, 200), ("valid", 200, 220), ("test", 220, 240))
    )
    (chosen,) = ways(refused(train))
    assert chosen == ["data.source=translation.en", "data.target=translation.fr"]
    plan = regard.plan(train, valid=valid, test=test, machine=CPU, overrides=[*chosen, *SHORT])
    told = Told()
    run = regard.train(plan, tmp_path / "run", told)
    assert any(line.endswith("not used: id, translation.de") for line in told.lines)
    assert regard.evaluate(run)["sentences"] == 20


def test_a_folder_of_parts_may_have_objects(tmp_path):
    found = nested("en", "fr")
    for name, first, last in (("train", 0, 200), ("validation", 200, 220), ("test", 220, 240)):
        records(tmp_path / f"{name}.jsonl", *found[first:last])
    data = regard.plan(tmp_path, machine=CPU).config.data
    assert [len(part) for part in (data.train, data.valid, data.test)] == [1, 1, 1]


def test_labelled_texts_in_objects_are_read(tmp_path):
    rows = [{"row": {"text": text, "label": label}} for text, label in zip(TEXTS, LABELS, strict=True)]
    keys = Keys(text="row.text", label="row.label")
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "a.parquet")
    for path in (records(tmp_path / "a.jsonl", *rows), tmp_path / "a.parquet"):
        plan = regard.plan(path, machine=CPU)
        assert (plan.config.data.text, plan.config.data.label) == ("row.text", "row.label")
        assert next(examples(path, keys)) == Example((TEXTS[0],), LABELS[0])
        assert notes_on(path, path.suffix[1:], keys.labelled) == ()
    about = records(tmp_path / "b.jsonl", *({"text": text, "meta": {"from": "web"}} for text in TEXTS))
    plan = regard.plan(about, machine=CPU)
    assert (plan.config.task, plan.config.data.text) == ("language", "text")
    assert "not read: meta.from" in plan.recognised


def test_what_is_null_in_records_is_empty(tmp_path):
    rows = [{"en": None if number % 9 == 0 else text, "fr": text} for number, text in enumerate(TEXTS)]
    plan = regard.plan(records(tmp_path / "a.jsonl", *rows), machine=CPU)
    assert any("27 of 240 rows" in one.line and "no source and are left out" in one.line for one in plan.findings)
    rows = [{"text": text, "label": None if number == 20 else number % 2} for number, text in enumerate(TEXTS)]
    assert "row 21 has no label: remove it" in refused(records(tmp_path / "b.jsonl", *rows))


@pytest.mark.parametrize(("messages", "role", "content"), [("messages", "role", "content"), ("chat", "from", "value")])
def test_conversations_are_refused_as_such(tmp_path, messages, role, content):
    said = refused(
        records(
            tmp_path / "chat.jsonl",
            *({messages: [{role: "user", content: one}, {role: "assistant", content: one}]} for one in TEXTS),
        )
    )
    assert f"its '{messages}' are conversations, lists of messages, which no task trains on; write each answer" in said
    assert not ways(said)
    asked = [{"source": one, "target": other} for one, other in zip(TEXTS, OTHERS, strict=True)]
    assert regard.plan(records(tmp_path / "a.jsonl", *asked), machine=CPU).config.task == "translation"
    assert regard.plan(records(tmp_path / "b.jsonl", *({"text": one} for one in TEXTS)), machine=CPU)


def test_instructions_are_planned_where_their_inputs_are_empty_and_else_to_be_named(tmp_path):
    rows = [{"instruction": one, "input": "", "output": two} for one, two in zip(TEXTS, OTHERS, strict=True)]
    plan = regard.plan(records(tmp_path / "a.jsonl", *rows), machine=CPU)
    assert (plan.config.data.source, plan.config.data.target) == ("instruction", "output")
    assert "not read, as it seems to be empty: input" in plan.recognised
    rows[3]["input"] = "something"
    path = records(tmp_path / "b.jsonl", *rows)
    said = refused(path)
    assert "an input that 1 of the first 240 have" in said
    (asked,) = ways(said)
    data = regard.plan(path, machine=CPU, overrides=asked).config.data
    assert (data.source, data.target) == ("instruction", "output")


PRICES = [f"{DICE.uniform(0, 9):.3f}" for _ in TEXTS]
DAYS = [f"20{DICE.randint(10, 24)}-{DICE.randint(1, 12):02}-{DICE.randint(1, 28):02}" for _ in TEXTS]
MEASURED = {
    "price.tsv": [f"{text}\t{price}" for text, price in zip(TEXTS, PRICES, strict=True)],
    "first.tsv": [f"{price}\t{text}" for text, price in zip(TEXTS, PRICES, strict=True)],
    "whole.csv": ["text,price", *(f"{text},{DICE.randint(100, 99999)}" for text in TEXTS)],
    "days.tsv": [f"{text}\t{day}" for text, day in zip(TEXTS, DAYS, strict=True)],
    "label.tsv": ["text\tlabel", *(f"{text}\t{price}" for text, price in zip(TEXTS, PRICES, strict=True))],
    "score.jsonl": [json.dumps({"text": one, "score": float(two)}) for one, two in zip(TEXTS, PRICES, strict=True)],
}


@pytest.mark.parametrize("name", MEASURED)
def test_regression_is_refused_by_name_with_what_would_read_it_otherwise(tmp_path, name):
    path = write(tmp_path / name, MEASURED[name])
    said = refused(path)
    assert "regression, which would predict them, is not one of the tasks" in said
    assert ("dates" if name == "days.tsv" else "numbers") in said
    tasks = [regard.plan(path, machine=CPU, overrides=asked).config.task for asked in ways(said)]
    assert tasks == ["classification"] + ["translation"] * (not name.endswith(".jsonl"))


NUMBERED = {
    "stars.tsv": ([f"{text}\t{row % 5 + 1}" for row, text in enumerate(TEXTS)], "classification"),
    "decimals.tsv": ([f"{text}\t{row % 5 + 1}.0" for row, text in enumerate(TEXTS)], "classification"),
    "many.tsv": (["text\tlabel", *(f"{text}\t{row % 100}" for row, text in enumerate(TEXTS))], "classification"),
    "sums.tsv": (
        [f"{one} + {two}\t{one + two}" for one in range(150, 165) for two in range(16, 320, 19)],
        "translation",
    ),
    "dates.tsv": ([f"{text} in {day[:4]}\t{day}" for text, day in zip(TEXTS, DAYS, strict=True)], "translation"),
}


@pytest.mark.parametrize("name", NUMBERED)
def test_ratings_are_classes_and_what_follows_from_texts_is_written(tmp_path, name):
    rows, task = NUMBERED[name]
    assert regard.plan(write(tmp_path / name, rows), machine=CPU).config.task == task


def test_two_texts_and_a_score_are_refused_with_settings_that_work(tmp_path):
    rows = [f"{one}\t{two}\t{price}" for one, two, price in zip(TEXTS, OTHERS, PRICES, strict=True)]
    path = write(tmp_path / "alike.tsv", ["sentence1\tsentence2\tscore", *rows])
    said = refused(path)
    assert "regression, which would predict score, is not one of the tasks" in said
    planned = [regard.plan(path, machine=CPU, overrides=asked).config for asked in ways(said)[:2]]
    assert [one.task for one in planned] == ["translation", "classification"]
    assert (planned[1].data.text, planned[1].data.pair, planned[1].data.label) == ("sentence1", "sentence2", "score")


def test_lists_of_labels_are_not_proposed_as_labels(tmp_path):
    path = records(tmp_path / "a.jsonl", *({"text": text, "labels": ["a", "b"]} for text in TEXTS))
    said = refused(path)
    assert "labels: a text has one label, not a list of them" in said
    assert regard.plan(path, machine=CPU, overrides=ways(said)[0]).config.task == "language"


def rows_of(one, mark, other, header=()):
    return [*header, *(f"{text}{mark}{label}" for text, label in zip(one, other, strict=True))]


QUOTED = [f'"{text}"' for text in COMMAS]
FOREIGN = {
    "european.csv": (rows_of(COMMAS, ";", LABELS, ["Text;Label"]), "separated by semicolons", "classification"),
    "quoted.csv": (rows_of(QUOTED, ";", LABELS, ['"Text";"Label"']), "separated by semicolons", "classification"),
    "pairs.csv": (rows_of(COMMAS, ";", COMMAS[::-1]), "separated by semicolons", "translation"),
    "everywhere.csv": (
        [f"{one}, {two};{two}, {one}" for one, two in zip(TEXTS, OTHERS, strict=True)],
        "semicolons",
        "translation",
    ),
    "bars.csv": (rows_of(COMMAS, "|", LABELS), r"separated by '|'", "classification"),
    "quoted tabs.csv": (rows_of(QUOTED, "\t", LABELS), "separated by tabs", "classification"),
    "quoted.tsv": (rows_of(QUOTED, "\t", QUOTED[::-1], ['"en"\t"fr"']), "stand in quotation marks", "translation"),
    "breaks.tsv": (
        [f'"{one}\n{one}"\t{two}' for one, two in zip(TEXTS, LABELS, strict=True)],
        "quotation marks",
        "classification",
    ),
    "array.json": (
        [json.dumps([{"text": a, "label": b} for a, b in zip(TEXTS, LABELS, strict=True)])],
        "array",
        "classification",
    ),
    "below.json": ([json.dumps({"data": [{"text": one} for one in TEXTS]}, indent=1)], "below 'data'", "language"),
    "array.jsonl": (
        [json.dumps([{"en": a, "fr": b} for a, b in zip(TEXTS, OTHERS, strict=True)])],
        "one array",
        "translation",
    ),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_the_command_that_is_proposed_converts_the_file(tmp_path, name):
    rows, what, task = FOREIGN[name]
    said = refused(write(tmp_path / name, rows))
    assert what in said
    command = said.partition(", as with ")[2].replace("python -c", f"{sys.executable} -c")
    subprocess.run(command, shell=True, check=True)
    wanted = command.rpartition("> ")[2].strip("'")
    assert regard.plan(wanted, machine=CPU).config.task == task


def test_files_to_validate_and_test_on_are_looked_at_too(tmp_path):
    train = write(tmp_path / "train.tsv", rows_of(TEXTS, "\t", LABELS))
    other = write(tmp_path / "other.csv", rows_of(COMMAS, ";", LABELS))
    for part in ("valid", "test"):
        assert "separated by semicolons" in refused(train, **{part: other})


NAMED = {
    "tabs.csv": (rows_of(COMMAS, "\t", LABELS), "separated by tabs, not by commas"),
    "commas.tsv": (rows_of(TEXTS, ",", LABELS, ["text,label"]), "separated by commas, not by tabs"),
    "quoted.tsv": (rows_of(QUOTED, ",", LABELS), "separated by commas, not by tabs"),
    "lines.json": ([json.dumps({"text": text}) for text in TEXTS], "an object on each line"),
}


@pytest.mark.parametrize("name", NAMED)
def test_a_file_can_be_read_by_the_name_that_is_proposed(tmp_path, name):
    rows, what = NAMED[name]
    path = write(tmp_path / name, rows)
    said = refused(path)
    assert what in said
    assert regard.plan(path.rename(said.partition(": name it ")[2]), machine=CPU)


def test_a_pair_of_direct_speech_is_no_quoting_of_cells(tmp_path):
    rows = [
        f'"{one}!"\t"{two} !"' if place % 3 == 0 else f"{one}\t{two}"
        for place, (one, two) in enumerate(zip(TEXTS, OTHERS, strict=True))
    ]
    assert regard.plan(write(tmp_path / "a.tsv", rows), machine=CPU).config.task == "translation"


def test_commas_in_sentences_separate_no_columns(tmp_path):
    names = write(tmp_path / "names.tsv", (f"{text}, {label}" for text, label in zip(TEXTS, LABELS, strict=True)))
    assert regard.plan(names, machine=CPU).config.task == "language"
    rows = [f'"{text}",a;{label}' for text, label in zip(COMMAS, LABELS, strict=True)]
    assert regard.plan(write(tmp_path / "a.csv", rows), machine=CPU).config.data.label == 2


TEXT_KINDS = {
    "memory.tmx": ["<tmx><body>", *(f"<tu><tuv><seg>{text}</seg></tuv></tu>" for text in TEXTS), "</body></tmx>"],
    "units.xlf": [f"<trans-unit><source>{text}</source></trans-unit>" for text in TEXTS],
    "film.srt": [line for text in TEXTS for line in ("1", "00:00:01,000 --> 00:00:02,000", text, "")],
    "messages.po": [line for text in TEXTS for line in (f'msgid "{text}"', f'msgstr "{text}"', "")],
    "records.yaml": [f"- text: {text}" for text in TEXTS],
    "page.html": [f"<p>{text}</p>" for text in TEXTS],
}


@pytest.mark.parametrize("name", TEXT_KINDS)
def test_files_of_other_kinds_are_refused_unless_they_are_asked_for_as_text(tmp_path, name):
    path = write(tmp_path / name, TEXT_KINDS[name])
    (asked,) = ways(refused(path))
    assert regard.plan(path, machine=CPU, overrides=asked).config.task == "language"


BYTES = {
    "gzipped.csv": (gzip.compress(b"text,label\n"), "compressed with gzip: add .gz to its name"),
    "report.docx": (b"PK\x03\x04rest", "an Office document: unpack it, or save it"),
    "paper.txt": (b"%PDF-1.7\n", "it is a PDF"),
    "records.tsv": (b"PAR1\x15\x04", "it is a Parquet file: name it .parquet"),
    "wide.txt": (("text\n" * 20).encode("utf-16-le"), "as with iconv -f UTF-16LE -t UTF-8"),
    "mac.csv": (b"text,label\ra,b\rc,d", r"as with tr '\r' '\n' <"),
}


@pytest.mark.parametrize("name", BYTES)
def test_files_that_are_no_text_are_known_by_their_first_bytes(tmp_path, name):
    content, what = BYTES[name]
    (tmp_path / name).write_bytes(content)
    assert what in refused(tmp_path / name)
    assert what in refused(tmp_path / name, overrides=["task=language"])


def test_sheets_are_to_be_saved_as_csv(tmp_path):
    (tmp_path / "sheet.xlsx").write_bytes(b"PK\x03\x04")
    assert "save it as CSV in UTF-8" in refused(tmp_path / "sheet.xlsx")


@pytest.mark.parametrize(
    ("line", "kind"),
    [("| {} | {} |", "a table as text"), ("__label__x {} {}", "labels as text")],
)
def test_tables_and_labels_in_running_text_get_their_line(tmp_path, line, kind):
    rows = [line.format(one, two) for one, two in zip(TEXTS, OTHERS, strict=True)]
    assert kind in {one.kind for one in regard.plan(write(tmp_path / "a.txt", rows), machine=CPU).findings}


def test_excel_writes_csv_that_is_read(tmp_path):
    rows = [f'"{text}, ""so"" it is",{label}\r' for text, label in zip(TEXTS, LABELS, strict=True)]
    path = write(tmp_path / "excel.csv", ["\ufefftext,label\r", *rows])
    plan = regard.plan(path, machine=CPU)
    assert plan.facts[0].endswith("good 160, bad 80")
    ragged = write(tmp_path / "ragged.csv", ["text,label", *rows_of(COMMAS, ",", LABELS)])
    assert "3 columns where 2 columns should be; a text with commas must stand in quotation marks" in refused(ragged)


@pytest.mark.parametrize("part", ["valid", "test"])
def test_labelled_files_with_swapped_columns_are_said_to_be_so(tmp_path, part):
    train = write(tmp_path / "train.tsv", rows_of(TEXTS, "\t", LABELS))
    other = write(tmp_path / "other.tsv", rows_of(LABELS[:40], "\t", OTHERS[:40]))
    kinds = {one.kind: one.line for one in regard.plan(train, machine=CPU, **{part: other}).findings}
    assert "its columns look swapped" in kinds["swapped validation" if part == "valid" else "swapped test"]
    assert not {"labels of validation alone", "labels of test alone"} & {*kinds}
    right = write(tmp_path / "right.tsv", rows_of(OTHERS[:40], "\t", LABELS[:40]))
    kinds = {one.kind for one in regard.plan(train, machine=CPU, **{part: right}).findings}
    assert not any(kind.startswith("swapped") for kind in kinds)


def glue(folder):
    numbers = [str(number % 2) for number in range(240)]
    return (
        write(folder / "train.tsv", rows_of(TEXTS, "\t", numbers, ["sentence\tlabel"])),
        write(folder / "dev.tsv", rows_of(OTHERS[:40], "\t", numbers[:40], ["sentence\tlabel"])),
        write(folder / "test.tsv", rows_of(OTHERS[40:80], "\t", ["-1"] * 40, ["sentence\tlabel"])),
    )


def test_a_test_part_without_labels_is_not_evaluated_on(tmp_path):
    train, valid, test = glue(tmp_path)
    for plan in (
        regard.plan(train, valid=valid, test=test, machine=CPU),
        regard.plan(tmp_path, machine=CPU, overrides=SHORT),
    ):
        assert plan.config.data.test == ()
        assert any(
            one.line.startswith("every label of the 40 rows to test on is -1") and "not evaluated on" in one.line
            for one in plan.findings
        )
    told = Told()
    run = regard.train(plan, tmp_path / "run", told)
    assert sum("to test on" in line for line in told.lines) == 1
    assert regard.evaluate(run)["texts"] == 40


def test_a_run_that_names_such_a_test_part_says_so_and_is_evaluated_on_its_validation_texts(tmp_path):
    train, valid, test = glue(tmp_path)
    data = {"train": [str(train)], "valid": [str(valid)], "test": [str(test)], "text": "sentence"}
    shape = ["model.layers=1", "tokenizer.vocab_size=200", *SHORT]
    told, said = Told(), []
    run = regard.train(regard.make_config(None, "bert-classify", shape, {"data": data}), tmp_path / "run", told)
    assert sum("every one is -1" in line for line in told.lines) == 1
    assert regard.evaluate(run, say=said.append)["texts"] == 40
    assert any("the validation texts are evaluated on" in line for line in said)
