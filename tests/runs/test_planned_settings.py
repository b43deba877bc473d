"""The settings of a planned run: each decision, the data or machine that provokes it, and what follows given ones."""

import itertools
import random
import re
from dataclasses import replace

import numpy as np
import pytest
from planning_toys import (
    CPU,
    ENGLISH,
    FRENCH,
    GPU,
    NEWER_CPU,
    SHORT,
    planned,
    sentences,
    words,
    write_every_kind,
)

import regard
from regard.errors import ConfigError
from regard.tasks.planning import Machine, Recipe, between


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A file of each kind."""
    return write_every_kind(tmp_path_factory.mktemp("data"))


def test_a_long_text_is_said_to_be_read_in_part(tmp_path):
    rows = [
        f"{' '.join(words(400 if number % 50 == 0 else 6, seed=number))}\t{'ab'[number % 2]}" for number in range(300)
    ]
    (tmp_path / "long.tsv").write_text("\n".join(rows) + "\n")
    decisions = {one.name: one for one in regard.plan(tmp_path / "long.tsv", machine=CPU).decisions}
    assert "only the beginning is read" in decisions["data.max_len"].why


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


REASONS = {
    "data.held_out": (("records.jsonl", CPU, "some of its 1,500 documents"), ("plain.txt", CPU, "the end of the text")),
    "decode.beam": (("pairs.tsv", CPU, "beam search finds better"), ("rule.tsv", CPU, "needs no search")),
    "model.channels": (("colour.npz", CPU, "in colour"), ("grey.npz", CPU, "grey, all")),
    "model.dropout": (("pairs.tsv", GPU, "less data needs more dropout"), ("plain.txt", CPU, "memorise little")),
    "model.norm_first": (("pairs.tsv", GPU, "norms after sublayers"), ("pairs.tsv", CPU, "norms before sublayers")),
    "model.share": (("pairs.tsv", CPU, "as there is one vocabulary"), ("greek.tsv", CPU, "the target's embeddings")),
    "model.width": (("sounds.tsv", CPU, "no recipe for fewer tokens"), ("pairs.tsv", CPU, "no recipe for fewer words")),
    "tokenizer.joint": (("pairs.tsv", CPU, "both sides are in one script"), ("greek.tsv", CPU, "in different scripts")),
    "tokenizer.kind": (("pairs.tsv", CPU, "sources: open text: "), ("rule.tsv", CPU, "sources: a closed vocabulary: ")),
    "tokenizer.lowercase": (("films.tsv", CPU, "fewer pieces"), ("tagged.txt", CPU, "hardly any capital letters")),
    "tokenizer.vocab_size": (("pairs.tsv", CPU, "so little text"), ("rule.tsv", CPU, "entries of both sides")),
    "train.batch_tokens": (("grey.npz", CPU, "128 images at a time"), ("grey.npz", GPU, "512 images at a time")),
    "train.ema": (("rule.tsv", CPU, "for a rule over fewer updates"), ("pairs.tsv", CPU, "than the last weights")),
    "train.precision": (("pairs.tsv", GPU, "bfloat16 where the GPU"), ("rule.tsv", GPU, "as the recipe was measured")),
    "train.r_drop": (("pairs.tsv", GPU, "two passes with different dropout"), ("pairs.tsv", CPU, "no R-Drop, ")),
    "train.smoothing": (("rule.tsv", CPU, "by a rule"), ("pairs.tsv", CPU, "never fully certain")),
}
"""Of decisions that have several reasons, data or machines that lead to each."""


@pytest.fixture(scope="module")
def reasons(files):
    cases = {(name, machine) for pair in REASONS.values() for name, machine, _ in pair}
    return {
        (name, machine): {one.name: one for one in planned(files, name, machine=machine).decisions}
        for name, machine in cases
    }


@pytest.mark.parametrize("setting", REASONS)
def test_each_reason_is_that_of_its_data(reasons, setting):
    (one, here, first), (other, there, second) = REASONS[setting]
    whys = reasons[one, here][setting].why, reasons[other, there][setting].why
    assert first in whys[0]
    assert second in whys[1]
    assert first not in whys[1]


def test_a_reason_for_r_drop_is_that_of_its_weight(reasons):
    found = [one["train.r_drop"] for one in reasons.values() if "train.r_drop" in one]
    assert {bool(one.value) for one in found} == {True, False}
    assert all(one.why.startswith("two passes" if one.value else "no R-Drop") for one in found)


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


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("data.held_out_by=file", "data.held_out_by does not apply to task='translation': it is for language, "),
        ("model.head=tags", "model.head does not apply to model 'transformer'; did you mean 'model.heads'?"),
        ("model.widht=64", "unknown setting 'model.widht'; did you mean 'model.width'?"),
        ("data.max_length=64", "unknown setting 'data.max_length'; did you mean 'data.max_len'?"),
    ],
)
def test_settings_of_other_tasks_and_models_are_not_called_unknown(files, setting, said):
    with pytest.raises(ConfigError, match=re.escape(said)):
        planned(files, "pairs.tsv", overrides=[setting])


def test_another_model_than_the_planned_one_keeps_what_it_has_settings_for(files):
    found = planned(files, "pairs.tsv", overrides=["model.name=recurrent"])
    assert found.config.model["name"] == "recurrent"
    usual = {one.name: one.value for one in planned(files, "pairs.tsv").decisions}
    assert found.config.model["width"] == usual["model.width"]
    assert "model.feed_forward" in usual
    assert "model.feed_forward" not in {one.name for one in found.decisions}
    assert any("recurrent as asked" in fact and "model.feed_forward" in fact for fact in found.facts)


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
        ("pairs.tsv", ["tokenizer.kind=character"], {"data.max_len": 128}),
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


@pytest.mark.parametrize(
    ("rows", "pairs", "texts"),
    [
        (100, 0.1, 0.1),
        (10_000, 0.1, 0.1),
        (50_000, 0.04, 0.02),
        (200_000, 0.01, 0.01),
        (1_000_000, 0.0032, 0.01),
        (10**8, 0.002, 0.01),
    ],
)
def test_of_more_rows_a_smaller_share_is_held_out(files, rows, pairs, texts):
    from regard.tasks.classification import ClassificationTask
    from regard.tasks.plans.labelled import plan_labelled
    from regard.tasks.plans.pairs import held_out_share

    assert held_out_share(rows) == pairs
    found = ClassificationTask().statistics(planned(files, "films.tsv").config.data)
    made = plan_labelled(replace(found, rows=rows), CPU, None, head="classes").decisions
    assert next(one.value for one in made if one.name == "data.held_out") == texts


def test_pairs_that_share_few_first_texts_are_split_by_rows(tmp_path):
    texts = sentences(80)
    for name, firsts, expected in (("few", 29, "row"), ("some", 30, "text"), ("all", 80, "row")):
        rows = (f"{texts[number % firsts]}\t{text}\t{'ab'[number % 2]}" for number, text in enumerate(texts))
        (tmp_path / f"{name}.tsv").write_text("\n".join(rows))
        assert planned(tmp_path, f"{name}.tsv").config.data.held_out_by == expected, name


def test_words_are_spelt_unless_they_are_long_or_mostly_not_alone(tmp_path):
    short, long = words(400, seed=2), words(400, least=45, most=60)
    mixed = [f"{one} {one[::-1]}" if number % 5 == 0 else one for number, one in enumerate(short)]
    for name, texts, kind in (("short", short, "character"), ("long", long, "bpe"), ("mixed", mixed, "bpe")):
        (tmp_path / f"{name}.tsv").write_text("".join(f"{one}\t{one[::-1]}\n" for one in texts))
        assert planned(tmp_path, f"{name}.tsv").config.tokenizer.kinds == (kind, kind), name


def test_a_run_on_pairs_text_or_images_starts_from_another_with_small_steps(files):
    base = {"data": {"max_len": 8}, "model": {"width": 32}}
    rates = {"pairs.tsv": 3e-4, "plain.txt": 2e-4, "grey.npz": 1e-4}
    for name, rate in rates.items():
        config = planned(files, name).config
        statistics = config.kind.statistics(config.data)
        chosen = config.kind.plan(statistics, CPU, base)
        made = {one.name: one for one in chosen.decisions}
        assert made["train.learning_rate"].value == rate
        assert "so that the run to start from keeps what it learnt" in made["train.learning_rate"].why
        assert made["train.optimizer"].value == "adamw"
        fresh = [one for one in made if one.startswith(("model.", "tokenizer.")) or one == "data.max_len"]
        assert not fresh, name
        assert "images.mixup" not in made
        if name == "pairs.tsv":
            left_out = "pairs of more than the 8 tokens that the run to start from reads are left out"
            assert (made["train.schedule"].value, made["train.warmup_share"].value) == ("linear", 0.05)
            assert chosen.facts[-1] == left_out
            wide = config.kind.plan(statistics, CPU, {**base, "data": {"max_len": 500}})
            assert len(wide.facts) == len(chosen.facts) - 1


def test_heads_are_as_wide_as_is_usual_for_the_model(files):
    for name, machine, expected in (
        ("pairs.tsv", CPU, (128, 4, "each 32 wide")),
        ("pairs.tsv", GPU, (256, 4, "each 64 wide")),
        ("commands.tsv", CPU, (96, 3, "each 32 wide")),
        ("plain.txt", CPU, (128, 4, "each 32 wide")),
        ("plain.txt", GPU, (384, 6, "each 64 wide")),
        ("films.tsv", CPU, (128, 2, "each 64 wide")),
        ("grey.npz", CPU, (64, 4, "each 16 wide")),
    ):
        made = {one.name: one for one in planned(files, name, machine=machine).decisions}
        assert (made["model.width"].value, made["model.heads"].value, made["model.heads"].why) == expected


def test_much_text_has_a_piece_for_each_thousand_characters(files):
    from regard.tasks.plans.text import plan_text, text_statistics

    found = text_statistics(planned(files, "plain.txt").config.data)
    sizes = {}
    for characters in (2_999_999, 3_000_000, 10_400_000, 10**9):
        made = plan_text(replace(found, characters=characters), CPU, None).decisions
        sizes[characters] = next(one.value for one in made if one.name == "tokenizer.vocab_size")
    assert sizes == {2_999_999: 4000, 3_000_000: 3000, 10_400_000: 10_000, 10**9: 32_000}


def test_images_are_cut_into_patches_by_their_size(tmp_path):
    expected = {16: (16, 2), 17: (16, 4), 40: (40, 4), 41: (40, 8), 72: (72, 8), 73: (80, 16), 300: (96, 16)}
    for side, shape in expected.items():
        pixels = np.random.default_rng(side).integers(0, 255, (12, side, side), dtype=np.uint8)
        np.savez(tmp_path / f"{side}.npz", images=pixels, labels=np.arange(12) % 3)
        config = planned(tmp_path, f"{side}.npz").config
        assert (config.model["image_size"], config.model["patch_size"]) == shape, side
        assert (config.images.rotate > 0) == (side < 64)
        assert not config.images.flip, "grey images may be text"
    assert planned(tmp_path, "300.npz", machine=GPU).config.model["image_size"] == 224


def test_a_batch_has_room_for_the_longest_pair(tmp_path, files):
    long = " ".join(["word"] * 700)
    (tmp_path / "long.tsv").write_text((files / "pairs.tsv").read_text() + f"{long}\t{long}\n")
    made = {one.name: one for one in planned(tmp_path, "long.tsv").decisions}
    assert made["data.max_len"].value == made["model.max_len"].value == 1024
    assert (made["train.batch_tokens"].value, made["train.batch_tokens"].why) == (2056, "room for the longest pair")


def test_little_data_may_be_read_more_often_than_much(files):
    from regard.tasks.plans.pairs import pair_statistics, plan_pairs

    found = pair_statistics(planned(files, "pairs.tsv").config.data)
    words_of_a_pair = found.words / found.rows
    often = [
        plan_pairs(replace(found, rows=round(size / words_of_a_pair)), CPU, None).most_epochs
        for size in (1_990_000, 2_010_000)
    ]
    assert often == [400, 100]


@pytest.mark.parametrize(
    ("letters", "reach"), [("abcdefgh", 64), ("абвгдежз", 128), ("".join(chr(0x4E00 + n) for n in range(8)), 256)]
)
def test_a_text_has_room_by_the_bytes_of_its_script(tmp_path, letters, reach):
    """Each of a hundred characters: half a token of Latin, one of other letters, one and a half of signs."""
    rows = scripted(letters, 300, 100, 100)
    (tmp_path / "pairs.tsv").write_text("".join(f"{one}\t{one}\n" for one in rows), encoding="utf-8")
    asked = planned(tmp_path, "pairs.tsv")
    assert asked.config.tokenizer.kinds == ("bpe", "bpe")
    assert asked.config.data.max_len == reach


def test_a_vocabulary_of_characters_holds_all_of_both_sides(tmp_path):
    rows = scripted([chr(0xAC00 + n) for n in range(2500)], 3000, 3, 6)
    (tmp_path / "names.tsv").write_text("".join(f"{one}\t{one[::-1]}\n" for one in rows), encoding="utf-8")
    made = {one.name: one for one in planned(tmp_path, "names.tsv").decisions}
    assert made["tokenizer.kind"].value == "character"
    assert made["tokenizer.vocab_size"].value > 2 * 2500
    assert made["tokenizer.vocab_size"].why == "all characters of both sides"


@pytest.mark.parametrize(
    ("name", "origin", "fact"),
    [
        ("films.tsv", "measured on SST-2", ": 0 750, 1 750"),
        (
            "tagged.txt",
            "as for classes (measured on SST-2; there is no recipe for fewer words); not measured for tags",
            "",
        ),
        ("asked.jsonl", "not measured for answers", ""),
    ],
)
def test_recipes_of_classes_are_said_to_be_so_for_tags_and_answers(files, name, origin, fact):
    plan = planned(files, name)
    made = {one.name: one for one in plan.decisions}
    assert origin in made["model.width"].why
    assert ("not measured for" in made["model.width"].why) == (name != "films.tsv")
    assert plan.facts[0].endswith(" words" + fact)
    assert (made["tokenizer.kind"].value, made["tokenizer.vocab_size"].why) == ("wordpiece", "by the amount of text")


def test_of_labelled_texts_as_much_is_read_as_pays_and_as_the_encoder_reads(files, tmp_path):
    rows = [f"{' '.join(words(count, seed=count))}\t{'ab'[count % 2]}" for count in range(150, 190)]
    (tmp_path / "long.tsv").write_text("\n".join(rows))
    lengths = [planned(tmp_path, "long.tsv", machine=machine).config.data.max_len for machine in (CPU, GPU)]
    assert lengths == [128, 256]
    for folder, name, reads, expected in (
        (tmp_path, "long.tsv", 64, 64),
        (files, "films.tsv", 512, 32),
        (files, "asked.jsonl", 512, 256),
        (files, "asked.jsonl", 64, 64),
    ):
        config = planned(folder, name).config
        chosen = config.kind.plan(config.kind.statistics(config.data), CPU, {"model": {"max_len": reads}})
        made = {one.name: one for one in chosen.decisions}
        assert made["data.max_len"].value == expected, (name, reads)
    assert made["data.max_len"].why == "a longer context is read in stretches"
    whys = [
        next(one.why for one in planned(folder, name).decisions if one.name == "data.max_len")
        for folder, name in ((tmp_path, "long.tsv"), (files, "films.tsv"))
    ]
    assert ["only the beginning is read" in one for one in whys] == [True, False]


def test_a_vocabulary_of_word_pieces_has_room_for_every_character(tmp_path):
    texts = scripted(SYLLABLES, 600, 4, 9, " ")
    (tmp_path / "films.tsv").write_text("".join(f"{n % 2}\t{one}\n" for n, one in enumerate(texts)), encoding="utf-8")
    made = {one.name: one for one in planned(tmp_path, "films.tsv").decisions}
    assert made["tokenizer.vocab_size"].why == "every character, at the beginning of a word and inside"
    assert made["tokenizer.vocab_size"].value > 2 * len(SYLLABLES)


def test_why_whole_files_are_held_out_is_said(tmp_path):
    lines = sentences(900)
    for folder, files_of, lines_of in (("many", 60, 15), ("short", 20, 2)):
        (tmp_path / folder).mkdir()
        for number in range(files_of):
            text = "\n".join(lines[lines_of * number : lines_of * (number + 1)])
            (tmp_path / folder / f"{number}.txt").write_text(f"{text}\n")
    found = {
        name: next(one for one in planned(tmp_path, name).decisions if one.name == "data.held_out_by")
        for name in ("many", "short")
    }
    assert {name: (one.value, one.why) for name, one in found.items()} == {
        "many": ("file", "files are many"),
        "short": ("file", "files have few lines, too few to hold out the end of each"),
    }


def test_what_a_gpu_has_beside_a_larger_model_is_by_the_kind_of_data(files):
    names = ("train.ema", "train.floor", "train.precision", "train.cuda_graphs", "train.compile_blocks")
    expected = {
        ("plain.txt", CPU): [None, 0.05, None, None, None],
        ("plain.txt", GPU): [0.998, 0.1, "auto", True, None],
        ("grey.npz", CPU): [0.998, 0.01, None, None, None],
        ("grey.npz", GPU): [0.998, 0.01, "auto", True, None],
        ("pairs.tsv", replace(GPU, compiles=False)): [0.999, None, "auto", True, None],
    }
    for (name, machine), values in expected.items():
        made = {one.name: one.value for one in planned(files, name, machine=machine).decisions}
        assert [made.get(one) for one in names] == values, (name, machine)
