"""Data that a first command meets: labels that occur once, sorted rows, many short files, folders of classes."""

import json
import random
from dataclasses import replace

import pytest
from encoder_toys import SHAPE, SMALL
from hypothesis import given
from hypothesis import strategies as st
from listeners import StopAt, Told

import regard
from regard import make_config
from regard.cli import main
from regard.data.labelled_texts import class_folders
from regard.data.mixing import even_places
from regard.data.readers import Documents, is_held_out
from regard.errors import DataError
from regard.metrics.text import bleu_tokenizer
from regard.runs.log import read_log
from regard.tasks.classification import TASK as CLASSES
from regard.tasks.corpora import documents_of
from regard.tasks.planning import Machine
from regard.tasks.probes import held_out_data
from regard.tasks.run import load_config
from regard.tasks.tagging import TASK as TAGS
from regard.trainer.training_run import Stopped

CPU = Machine(cores=2)
CLASSIFIED = ("task=classification", "data.held_out=0.3")
SHORT = ("train.steps=4", "model.width=16", "model.heads=2", "model.feed_forward=32", "train.threads=1")


def sentences(count, seed=1, most=9):
    """Sentences of made-up words, no two alike in the long run."""
    dice = random.Random(seed)
    known = ["".join(dice.choices("abcdefghijklmnopqrstuvwxyz", k=dice.randint(3, 8))) for _ in range(3000)]
    return [" ".join(dice.choices(known, k=dice.randint(4, most))) for _ in range(count)]


def write(path, lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def rare(tmp_path_factory):
    """Texts of two labels, of which some have one of their own, and one such text stands there twice."""
    texts = sentences(400)
    rows = [f"{text}\t{('good', 'bad')[n % 2] if n < 340 else f'rare {n:03}'}" for n, text in enumerate(texts)]
    return write(tmp_path_factory.mktemp("rare") / "rare.tsv", [*rows, *rows[340:345]])


def test_rows_with_a_label_of_their_own_are_trained_on_wherever_a_split_would_have_them(rare, tmp_path):
    plan = regard.plan(rare, machine=CPU, overrides=(*CLASSIFIED, *SHORT))
    split = CLASSES.split(plan.config)
    assert {one.label for one in split.valid} == {"good", "bad"}
    assert len({one.label for one in split.train}) == 62
    assert 10 < split.kept < 35
    assert len(split.train) + len(split.valid) == 405
    assert not {one.texts for one in split.train} & {one.texts for one in split.valid}
    told = Told()
    run = regard.train(plan, tmp_path / "run", told)
    assert len(run.config.model["labels"]) == 62
    assert f"{split.kept} rows of the share to validate on are trained on: no others have their labels" in told.lines
    assert regard.evaluate(run)["texts"] == held_out_data(run, limit=1000).count == len(split.valid)


def test_a_stopped_run_with_rare_labels_ends_with_the_same_bytes(rare, tmp_path):
    plan = regard.plan(rare, machine=CPU, overrides=(*CLASSIFIED, *SHORT, "train.log_every=1"))
    whole = regard.train(plan, tmp_path / "whole")
    with pytest.raises(Stopped):
        regard.train(plan, tmp_path / "stopped", StopAt(2))
    again = Told()
    regard.resume(tmp_path / "stopped", report=again)
    first, second = (path / "model.safetensors" for path in (whole.directory, tmp_path / "stopped"))
    assert first.read_bytes() == second.read_bytes()
    assert not any("no others have their labels" in line for line in again.lines)


def test_a_tag_that_one_sentence_has_is_trained_on(tmp_path):
    lines = [line for n in range(60) for line in (f"word{n}\tN", f"runs{n}\tTAG{n}" if n > 40 else f"runs{n}\tV", "")]
    config = make_config(
        None,
        "bert-tag",
        [*SMALL, *SHAPE, "train.steps=2", "data.held_out=0.3"],
        {"data": {"train": [str(write(tmp_path / "tags.tsv", lines))]}},
    )
    split = TAGS.split(config)
    assert {tag for one in split.valid for tag in one.tags} == {"N", "V"}
    assert split.kept
    assert len(regard.train(config, tmp_path / "run").config.model["labels"]) == 21


def test_where_each_row_has_a_label_of_its_own_nothing_is_validated_on_and_that_is_said(tmp_path):
    path = write(tmp_path / "all.tsv", (f"{text}\tlabel {n}" for n, text in enumerate(sentences(40))))
    config = make_config(
        None,
        "bert-classify",
        [*SMALL, *SHAPE, "train.steps=2", "data.held_out=0.3"],
        {"data": {"train": [str(path)]}},
    )
    told = Told()
    regard.train(config, tmp_path / "run", told)
    assert any(line.startswith("there is nothing to validate on: data.held_out=0.3 of 40 rows") for line in told.lines)


def test_rows_that_would_all_be_held_out_are_trained_on(tmp_path):
    path = write(tmp_path / "same.tsv", ["the same text\t0", "The same  text\t0"])
    config = make_config(None, "bert-classify", ["data.held_out=0.9999"], {"data": {"train": [str(path)]}})
    rows = CLASSES.read_all(config, config.data.train)
    assert len(CLASSES.split(config).train) == len(rows) == 2  # no others have their label


@pytest.mark.parametrize("task", ["classify", "tag"])
def test_labels_of_validation_files_alone_are_left_out_and_said(task, tmp_path):
    if task == "classify":
        rows = [f"{text}\t{('good', 'bad')[n % 2]}" for n, text in enumerate(sentences(60))]
        odd, most = [*rows[:9], "a text\tfair"], "1 of 10 texts have a label that is not trained for (fair)"
    else:
        rows = [line for n in range(40) for line in (f"word{n}\tN", f"runs{n}\tV", "")]
        odd, most = [*rows[:9], "most\tODD", ""], "1 of 7 words have a label that is not trained for (ODD)"
    parts = {"train": [str(write(tmp_path / "train.tsv", rows))], "valid": [str(write(tmp_path / "valid.tsv", odd))]}
    config = make_config(None, f"bert-{task}", [*SMALL, *SHAPE, "train.steps=2"], {"data": parts})
    told = Told()
    run = regard.train(config, tmp_path / "run", told)
    assert any(most in line and "regard evaluate counts them as wrong" in line for line in told.lines)
    (name,) = regard.evaluate(run, parts["valid"])["unknown_labels"]
    assert name in most
    write(tmp_path / "valid.tsv", ["a text\tfair"] if task == "classify" else ["most\tODD"])
    refused = Told()
    with pytest.raises(DataError, match=r"are none of those of the (texts|words) to validate on \((fair|ODD)\)"):
        regard.train(config, tmp_path / "other", refused)
    assert not any("tokenizer" in line for line in refused.lines)


def test_a_validation_decodes_rows_from_all_over_a_sorted_set(tmp_path):
    pairs = sorted(zip(sentences(400, most=14), sentences(400, seed=2), strict=True), key=lambda pair: len(pair[0]))
    train = write(tmp_path / "train.tsv", map("\t".join, pairs))
    valid = write(tmp_path / "valid.tsv", [*map("\t".join, pairs[:300]), " \tblank", *map("\t".join, pairs[300:])])
    extra = {"data": {"train": [str(train)], "valid": [str(valid)]}}
    small = [*SHORT, "train.validate_sentences=40", "tokenizer.vocab_size=300", "decode.max_len=3"]
    config = make_config(None, "tiny", [*small, "train.batch_tokens=2000"], extra)
    told = Told()
    run = regard.train(config, tmp_path / "run", told)
    assert "of 400 validation pairs 40, taken evenly, are also decoded" in told.lines
    shown = [line.strip().partition("\n")[0] for line in told.lines if "    reference  " in line]
    shown = [pairs.index(pair) for line in shown[:2] for pair in pairs if pair[0] == line]
    assert shown[0] < 200 < shown[1]
    _, prepared = run.task.prepare(run.config, run.directory, Told(), new=False)
    places = [pairs.index(pair) for pair in prepared.shown]
    assert len(places) == 40
    assert all(10 * part <= place < 10 * part + 10 for part, place in enumerate(places))
    assert len({place % 10 for place in places}) > 5  # not every tenth
    _, again = run.task.prepare(run.config, run.directory, Told(), new=False)
    assert again.shown == prepared.shown


@given(total=st.integers(0, 300), count=st.integers(0, 300))
def test_an_even_sample_has_one_row_of_each_of_as_many_equal_parts(total, count):
    places = even_places(total, count)
    assert places == even_places(total, count) == sorted({*places})
    assert len(places) == min(total, count)
    assert all(place * count // total in (part, part - 1) for part, place in enumerate(places) if count < total)


SMALLER = ("train.steps=2", "model.width=16", "model.heads=2", "model.layers=1", "model.feed_forward=32")
SMALLER += ("data.max_len=16", "model.max_len=16", "train.threads=1")


def sides(plan):
    """The texts to train on and to validate on."""
    found = [documents_of(plan.config.data, part) for part in ("train", "valid")]
    return [[part.text for part in one] for one in found]


@pytest.mark.parametrize("count", [20, 4000])  # below and above a hundred thousand characters
def test_of_a_folder_of_files_of_one_line_whole_files_are_held_out(count, tmp_path):
    for number, text in enumerate(sentences(count)):
        write(tmp_path / "texts" / f"{number:04}.txt", [text])
    write(tmp_path / "texts" / "copy.txt", [sentences(count)[0].upper()])
    plan = regard.plan(tmp_path / "texts", machine=CPU, overrides=SMALLER)
    assert plan.config.data.held_out_by == "file"
    (why,) = [one.why for one in plan.decisions if one.name == "data.held_out"]
    assert why == f"no validation text was given: some of the {count + 1:,} files are held out whole"
    train, valid = sides(plan)
    assert len(train) + len(valid) == count + 1
    assert {text.lower() for text in train}.isdisjoint(text.lower() for text in valid)
    assert max(1, 0.08 * count) <= len(valid) <= max(4, 0.12 * count)
    if count < 100:
        run = regard.train(plan, tmp_path / "run")
        assert [one["kind"] for one in read_log(run.directory / "log.jsonl")].count("validation")


def test_how_plain_files_are_held_out_is_by_how_many_and_how_long_they_are(tmp_path):
    lines = sentences(3000)
    for number in range(60):
        write(tmp_path / "many" / f"{number}.txt", lines[50 * number : 50 * number + 50])
        write(tmp_path / "one" / f"{number}.txt", lines[number : number + 1])
    write(tmp_path / "one" / "long.txt", lines)
    write(tmp_path / "few" / "a.txt", lines[:1500])
    write(tmp_path / "few" / "b.txt", lines[1500:])
    write(tmp_path / "books.jsonl", (json.dumps({"text": " ".join(lines[60 * n : 60 * n + 60])}) for n in range(50)))
    by = {name: regard.plan(tmp_path / name, machine=CPU) for name in ("many", "one", "few", "books.jsonl")}
    assert {name: plan.config.data.held_out_by for name, plan in by.items()} == {
        "many": "file",
        "one": "end",  # else nearly all of the text could be held out
        "few": "end",
        "books.jsonl": "end",
    }
    (why,) = [one.why for one in by["books.jsonl"].decisions if one.name == "data.held_out"]
    assert why == "no validation text was given: some of its 50 documents are held out, by their text"


@pytest.mark.parametrize("share", [1e-9, 0.02, 0.5, 1 - 1e-9])
def test_of_few_documents_at_least_one_is_held_out_and_one_is_not(share, tmp_path):
    texts = [f"A book about {word}." for word in ("rain", "snow", "hail")]
    write(tmp_path / "books.jsonl", (json.dumps({"text": text}) for text in [*texts, texts[0].upper()]))
    for number, text in enumerate([*texts, texts[0].upper()]):
        write(tmp_path / "files" / f"{number}.txt", [text])
    for name, whole in (("books.jsonl", False), ("files", True)):
        documents = Documents.of([tmp_path / name])
        both = [documents.split(share, out, whole_files=whole) for out in (False, True)]
        train, valid = ({part.text.strip().lower() for part in one} for one in both)
        assert train
        assert valid
        assert train.isdisjoint(valid)
        assert train | valid == {text.lower() for text in texts}
        assert both[0].digest() != both[1].digest()
    assert [*documents.split(0.5, True)] != [*documents.split(0.5, True, whole_files=True)]
    assert documents.split(0.5, True).digest() != documents.split(0.5, True, whole_files=True).digest()


def test_a_long_file_is_held_out_by_all_of_its_text(tmp_path):
    lines = sentences(9000)
    write(tmp_path / "texts" / "a.txt", lines)
    write(tmp_path / "texts" / "b.txt", [*lines[:-1], "another end"])
    write(tmp_path / "texts" / "c.txt", [line.upper() + " " for line in lines])
    held, rest = (Documents.of([tmp_path / "texts"]).split(0.5, out, whole_files=True) for out in (True, False))
    texts = [" ".join("".join(part.text for part in one).lower().split()) for one in (held, rest)]
    whole = " ".join(" ".join(lines).split())
    assert sorted((text.count(whole), text.count("another end")) for text in texts) == [(0, 1), (2, 0)]
    assert sum(part.last for part in held) + sum(part.last for part in rest) == 3
    assert len([*held]) + len([*rest]) > 10


@pytest.mark.parametrize(("preset", "more"), [("gpt-tiny", ()), ("bert-tiny", ("model.head=words",))])
def test_what_has_no_line_to_hold_out_says_what_to_set(preset, more, tmp_path):
    for number, text in enumerate(sentences(30)):
        write(tmp_path / "texts" / f"{number}.txt", [text])
    data = {"data": {"train": [str(tmp_path / "texts")]}}
    small = ("model.width=16", "model.heads=2", "train.steps=1", "data.held_out=0.2", "data.max_len=16")
    small += ("train.batch_tokens=64", "train.threads=1", "tokenizer.vocab_size=100", *more)
    with pytest.raises(DataError, match=r"no text is held out .* set data\.held_out_by=file to set whole files aside"):
        regard.train(make_config(None, preset, small, data), tmp_path / "run")
    config = make_config(None, preset, [*small, "data.held_out_by=file"], data)
    assert regard.train(config, tmp_path / "run").config.data.held_out_by == "file"


HAN = "".join(map(chr, range(0x4E00, 0x4E60)))


def test_bleu_is_per_character_where_targets_have_no_spaces(tmp_path, capsys):
    dice = random.Random(1)
    pairs = [(text, "".join(dice.choices(HAN, k=dice.randint(8, 20))) + "。") for text in sentences(60)]
    file = write(tmp_path / "han.tsv", map("\t".join, pairs))
    small = [*SHORT, "tokenizer.vocab_size=300", "train.batch_tokens=2000", "decode.max_len=4", "train.select_by=bleu"]
    config = make_config(None, "tiny", small, {"data": {"train": [str(file)], "valid": [str(file)]}})
    told = Told()
    run = regard.train(config, tmp_path / "run", told)
    assert (
        "validation: BLEU is per character (tokenize=char): the references have no spaces between words" in told.lines
    )
    _, prepared = run.task.prepare(run.config, run.directory, Told(), new=False)
    nearly = [target[:-2] + "。" for _, target in prepared.shown]
    assert prepared.text_scores(nearly, [target for _, target in prepared.shown])["bleu"] > 80
    heard = []
    scores = regard.evaluate(run, pairs[:8], say=heard.append)
    assert "tok:char" in scores["bleu_signature"]
    assert any(line.endswith("have no spaces between words; --tokenize chooses another") for line in heard)
    assert "tok:13a" in regard.evaluate(run, pairs[:8], tokenize="13a")["bleu_signature"]
    assert "tok:13a" in regard.evaluate(run, [(target, source) for source, target in pairs[:8]])["bleu_signature"]
    assert main(["evaluate", str(run.directory), "--data", str(file), "--limit", "4"]) == 0
    shown = capsys.readouterr()
    assert "tok:char" in shown.out
    assert shown.err.count("BLEU is per character") == 1


@pytest.mark.parametrize(
    ("texts", "tokenizer"),
    [
        (["我是学生。", "你好"], "char"),
        (["我 是 学生 。", "你 好"], "13a"),  # cut into words already
        (["これはペンです", "東京 タワー"], "char"),
        (["ฉันเป็นนักเรียน", "สวัสดี ครับ ผมชื่อสมชาย"], "char"),
        (["the word 学 means study"], "13a"),
        (["나는 학생입니다"], "13a"),
        (["I am a student"], "13a"),
        ([["我是学生", "我是一个学生"], ["你好"]], "char"),
        ([], "13a"),
    ],
)
def test_the_tokenizer_of_bleu_is_told_by_the_references(texts, tokenizer):
    assert bleu_tokenizer(texts) == tokenizer


def reviews(folder, count=40, seed=1, names=("bad", "good")):
    """A folder for each class, with one text of two lines in each file."""
    for place, name in enumerate(names):
        for number, text in enumerate(sentences(count, seed=seed + place)):
            write(folder / name / f"{number:03}.txt", [f"{text} {name}", f"and {name}."])
    return folder


def test_folders_of_texts_are_classes_with_a_text_in_each_file(tmp_path, capsys):
    folder = reviews(tmp_path / "reviews")
    write(folder / "good" / ".hidden.txt", ["no text"])
    plan = regard.plan(folder, machine=CPU, overrides=(*SHORT, "data.held_out=0.2"))
    assert plan.config.task == "classification"
    assert plan.recognised == (
        "task classification: a folder of 2 folders of texts, one for each class (bad, good), a text in each file; "
        "--set task=language reads them as running text"
    )
    assert plan.facts[0].startswith("80 rows")
    assert "bad 40, good 40" in plan.facts[0]
    items = CLASSES.read_all(plan.config, plan.config.data.train)
    first = sentences(1)[0]
    assert (items[0].texts, items[0].label) == ((f"{first} bad\nand bad.",), "bad")
    run = regard.train(plan, tmp_path / "run")
    assert run.config.model["labels"] == ["bad", "good"]
    assert regard.evaluate(run, [str(folder)])["texts"] == 80
    assert main(["classify", str(run.directory), "a good text"]) == 0
    assert capsys.readouterr().out
    as_text = regard.plan(folder, machine=CPU, overrides=("task=language",))
    assert as_text.config.task == "language"
    (folder / "good" / "odd.txt").write_bytes(b"caf\xe9")
    with pytest.raises(DataError, match=r"odd\.txt is not UTF-8 text: byte 3, on line 1"):
        regard.plan(folder, machine=CPU)


@pytest.mark.parametrize("valid", ["", "valid", "dev"])
def test_folders_of_classes_may_stand_below_parts(valid, tmp_path):
    for part, count in {"train": 30, "test": 10, **({valid: 8} if valid else {})}.items():
        reviews(tmp_path / "set" / part, count, seed=len(part) * 10)
    write(tmp_path / "set" / "README.txt", ["about this set"])
    plan = regard.plan(tmp_path / "set", machine=CPU, overrides=(*SHORT, "train.steps=2"))
    assert "test for test" in plan.recognised
    assert (f"{valid} for valid" in plan.recognised) is bool(valid)
    assert plan.config.data.held_out == (0.0 if valid else 0.1)
    split = CLASSES.split(plan.config)
    assert (len(split.train) + len(split.valid), bool(split.valid)) == (76 if valid else 60, True)
    write(tmp_path / "set" / "train" / "urls.txt", ["where they are from"])
    told = Told()
    run = regard.train(plan, tmp_path / "run", told)
    assert any("1 file not in a folder of a class is not read (urls.txt)" in line for line in told.lines)
    assert regard.evaluate(run)["texts"] == regard.evaluate(run, [str(tmp_path / "set")])["texts"] == 20
    assert regard.evaluate(run, [str(tmp_path / "set" / "train")])["texts"] == 60
    for named in (None, [str(tmp_path / "set")]):
        assert held_out_data(run, named).count == (16 if valid else 20)
    assert held_out_data(run, [str(tmp_path / "set" / "train")]).count == 60
    if not valid:
        made = make_config(
            None, "bert-classify", SMALL, {"data": {"train": plan.config.data.train, "valid": plan.config.data.train}}
        )
        with pytest.raises(DataError, match="set has no folder of classes for this part; name a folder of classes"):
            regard.train(made, tmp_path / "none")


def test_what_is_no_folder_of_classes_is_read_as_before(tmp_path):
    for chapter in range(6):
        for book in ("one", "two"):
            write(tmp_path / "chapters" / book / f"{chapter}.txt", sentences(400, seed=chapter))
    assert regard.plan(tmp_path / "chapters", machine=CPU).config.task == "language"
    reviews(tmp_path / "few", count=4)
    assert regard.plan(tmp_path / "few", machine=CPU).config.task == "language"
    for name in ("a", "b"):
        write(tmp_path / "tables" / name / "rows.txt", [f"{text}\t{n % 2}" for n, text in enumerate(sentences(50))])
        write(tmp_path / "named" / name / "rows.tsv", [f"{text}\t{n % 2}" for n, text in enumerate(sentences(50))])
        write(tmp_path / "named" / name / "about.txt", ["about the rows"])
    assert class_folders(tmp_path / "tables") == class_folders(tmp_path / "named") == {}
    config = make_config(None, "bert-classify", SMALL, {"data": {"train": [str(tmp_path / "tables")]}})
    assert {one.label for one in CLASSES.read_all(config, config.data.train)} == {"0", "1"}


def test_a_class_that_only_training_has_is_said(tmp_path):
    reviews(tmp_path / "set" / "train", names=("neg", "pos", "unsup"))
    reviews(tmp_path / "set" / "test", names=("neg", "pos"))
    assert (
        "test for test, which has no unsup (if that is no class, move its folder elsewhere);"
        in regard.plan(tmp_path / "set", machine=CPU).recognised
    )


def as_before(directory):
    """The run's settings as versions wrote them that did not know `data.lone_labels`."""
    path = directory / "config.json"
    mapping = json.loads(path.read_text(encoding="utf-8"))
    assert mapping["data"].pop("lone_labels") == "train"
    mapping.pop("sha256", None)
    path.write_text(json.dumps(mapping), encoding="utf-8")


def test_a_run_that_began_before_lone_labels_were_trained_on_goes_on_with_its_split(rare, tmp_path):
    plan = regard.plan(rare, machine=CPU, overrides=(*CLASSIFIED, *SHORT))
    with pytest.raises(Stopped):
        regard.train(plan, tmp_path / "run", StopAt(2))
    new = load_config(tmp_path / "run")
    assert CLASSES.split(new) == CLASSES.split(plan.config)
    as_before(tmp_path / "run")
    old = load_config(tmp_path / "run")
    assert old.data == replace(new.data, lone_labels="valid")
    split, texts = CLASSES.split(old), [one.texts[0] for one in CLASSES.read_all(new, new.data.train)]
    assert [one.texts[0] for one in split.valid] == [text for text in texts if is_held_out(text, 0.3)]
    assert len(split.train) + len(split.valid) == len(texts)
    assert split.kept == 0
    told = Told()
    run = regard.resume(tmp_path / "run", report=told)  # whose labels are those of all rows
    assert run.config.data.lone_labels == "valid"
    assert any(line.startswith(f"{len(split.train)} rows of") for line in told.lines)


def test_labels_that_the_split_of_before_leaves_to_validation_alone_are_refused_as_then(rare, tmp_path):
    plan = regard.plan(rare, machine=CPU, overrides=(*CLASSIFIED, *SHORT, "data.lone_labels=valid"))
    with pytest.raises(DataError, match=r"no text to train on has the label of \d+ of .* as data\.lone_labels=valid"):
        regard.train(plan, tmp_path / "run")
