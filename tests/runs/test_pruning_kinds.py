"""Every kind of run loses heads, and then loads, is measured, used, trained on and tuned like any other."""

import json
import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from image_toys import SMALL as PICTURES
from image_toys import shapes

import regard
from regard import make_config
from regard.analysis.pruning import curve, every_head, importance, learn_to_prune, prune, save
from regard.cli import main
from regard.errors import ConfigError, DataError
from regard.look import attentions
from regard.tasks.corpora import TextData
from regard.tasks.probes import held_out_data
from regard.tasks.run import Run, build_model
from regard.trainer.trainer import resume, train

SHAPE = ["model.width=16", "model.heads=4", "model.layers=2", "model.feed_forward=24"]
BRIEF = ["train.steps=6", "train.warmup=3", "train.validate_every=6", "train.save_every=6", "train.threads=1"]
KINDS = {
    "text": ("gpt-tiny", "txt", "perplexity", ["model.max_len=16", "data.max_len=16", "train.batch_tokens=64"]),
    "words": ("bert-tiny", "txt", "accuracy", ["model.head=words", "data.max_len=32", "train.batch_tokens=128"]),
    "classes": ("bert-classify", "tsv", "accuracy", ["data.max_len=32", "train.batch_tokens=128"]),
    "tags": ("bert-tag", "tags.tsv", "accuracy", ["data.max_len=32", "train.batch_tokens=128"]),
    "answers": ("bert-answer", "jsonl", "accuracy", ["data.max_len=32", "train.batch_tokens=128"]),
    "pictures": ("vit-digits", "npz", "accuracy", []),
}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder, dice = tmp_path_factory.mktemp("kinds"), random.Random(0)
    for name, count in (("train", 40), ("valid", 16)):
        said = [f"the {dice.choice(['sun', 'sea'])} was {dice.choice(['good', 'bad'])} today." for _ in range(count)]
        (folder / f"{name}.txt").write_text("\n".join(said), encoding="utf-8")
        (folder / f"{name}.tsv").write_text("".join(f"{a}\t{a.split()[3]}\n" for a in said), encoding="utf-8")
        tags = ["\n".join(f"{word}\t{'X' if word == 'sun' else 'O'}" for word in a.split()) for a in said]
        (folder / f"{name}.tags.tsv").write_text("\n\n".join(tags), encoding="utf-8")
        asked = [{"question": "what was it?", "context": a, "answer": a.split()[1], "start": 4} for a in said]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in asked), encoding="utf-8")
        pictures, labels = shapes(count)
        np.savez(folder / f"{name}.npz", images=pictures, labels=np.array(labels))
    return folder


@pytest.fixture(scope="module")
def trained(files):
    made = {}

    def of(kind):
        if kind not in made:
            preset, ending, _, more = KINDS[kind]
            names = {part: [str(files / f"{part}.{ending}")] for part in ("train", "valid")}
            shape = [*PICTURES, "model.heads=4"] if kind == "pictures" else [*SHAPE, "tokenizer.vocab_size=200"]
            made[kind] = train(make_config(None, preset, [*shape, *more, *BRIEF], {"data": names}), files / kind)
        return made[kind]

    return of


def used(run):
    task, text = run.config.task, "the sun was good today."
    if task == "language":
        return run.generate("the sun", temperature=0, max_len=6)
    if task == "masking":
        return [one.token for one in run.fill("the [MASK] was good today.")[0]]
    if task == "images":
        return [[one.label for one in row] for row in run.classify(list(shapes(3, seed=5)[0]))]
    if task == "tagging":
        return [one.tag for one in run.tag([text])[0]]
    return run.answer("what was it?", text) if task == "answering" else run.classify([text])[0][0].label


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_without_some_heads_is_used_like_any_other(kind, trained, tmp_path):
    run = trained(kind)
    judge = held_out_data(run, limit=8)
    assert judge.name == KINDS[kind][2]
    assert judge.count == sum(batch.labels.shape[0] for batch in judge.batches)
    assert judge.count == 8 or kind == "words"  # whose rows of text come by whole batches
    order = every_head(run.model)
    for by in ("masking", "gradient"):
        ranked = importance(run, judge, by)
        assert list(ranked) == order
        assert any(ranked.values())
    points = list(curve(run, judge, order, [0, 5, 8]))
    assert [point["kept"] for point in points] == [8, 3, 0]
    for name in ("parameters", "flops"):
        assert points[0][name] > points[1][name] > points[2][name]
    assert all(point[judge.name] >= 0 and point["milliseconds"] > 0 for point in points)
    smaller = prune(run, order[:5])
    assert smaller.config.model["layer_heads"] == [0, 3]
    save(smaller, run.directory, tmp_path / "smaller")
    loaded = regard.load(tmp_path / "smaller", "cpu")
    assert used(loaded) == used(smaller)
    assert len(attentions(loaded.model)) == 1
    assert regard.evaluate(loaded)
    after = resume(tmp_path / "smaller", ("train.steps=2",))
    assert [(name, value.shape) for name, value in after.model.state_dict().items()] == [
        (name, value.shape) for name, value in loaded.model.state_dict().items()
    ]


@pytest.mark.parametrize("kind", ["text", "classes", "pictures"])
def test_gates_are_learnt_in_every_kind_of_run(kind, trained):
    smaller, chances = learn_to_prune(trained(kind), 4, steps=6)
    assert len(chances) == 8
    assert sum(smaller.config.model["layer_heads"]) == 4


def test_vectors_of_texts_stay_near_those_of_the_whole_model(trained, files, tmp_path):
    base = trained("words")
    model = {**base.config.model, "head": "none"}
    config = replace(base.config, task="embedding", model=model, data=TextData(max_len=32))
    run = Run(base.directory, config, base.vocabularies, build_model(config).eval())
    with pytest.raises(ConfigError, match="names no validation or test set; give --data"):
        held_out_data(run)
    judge = held_out_data(run, [str(files / "valid.txt")], 6)
    assert judge.score(run) == pytest.approx(100, abs=1e-3)
    ranked = importance(run, judge)
    assert all(value > 0 for value in ranked.values())
    with pytest.raises(ConfigError, match="no slope ranks heads"):
        importance(run, judge, "gradient")
    smaller = prune(run, sorted(ranked, key=ranked.get)[:3])
    assert 50 < judge.score(smaller) < 100
    save(smaller, run.directory, tmp_path / "smaller")
    assert regard.load(tmp_path / "smaller", "cpu").embed(["the sun was good"]).shape == (1, 16)


def test_what_heads_cannot_be_judged_by_is_refused(trained, tmp_path):
    run = trained("text")
    (tmp_path / "empty.txt").write_text("", encoding="utf-8")
    with pytest.raises(DataError, match=r"empty\.txt is empty"):
        held_out_data(run, [str(tmp_path / "empty.txt")])
    for changes, said in (
        ({"data": replace(run.config.data, carry=True)}, "carries its state cannot be scored"),
        ({"task": "pointing", "data": None}, "heads of a run for pointing cannot be scored"),
    ):
        other = Run(run.directory, replace(run.config, **changes), run.vocabularies, run.model)
        with pytest.raises(ConfigError, match=said):
            held_out_data(other)


def test_a_pruned_encoder_is_tuned_for_another_task(trained, files, tmp_path):
    save(prune(trained("words"), every_head(trained("words").model)[:3]), files / "words", tmp_path / "smaller")
    names = {part: [str(files / f"{part}.tsv")] for part in ("train", "valid")}
    extra = {"data": names, "train": {"start_from": str(tmp_path / "smaller")}}
    settings = ["data.max_len=32", "train.batch_tokens=128", *BRIEF]
    tuned = train(make_config(None, "bert-classify", settings, extra), tmp_path / "tuned")
    assert tuned.config.model["layer_heads"] == [1, 4]
    assert tuned.classify(["the sun was good today."])[0][0].label in ("good", "bad")


def test_images_lose_heads_from_the_command_line(trained, files, tmp_path, capsys):
    trained("pictures")
    out, curve = tmp_path / "smaller", tmp_path / "curve.json"
    wanted = ["--keep-score", "100", "--limit", "8", "--curve", str(curve), "--picture", str(tmp_path / "curve.svg")]
    assert main(["prune", str(files / "pictures"), *wanted, "--out", str(out), "--device", "cpu"]) == 0
    record = json.loads(curve.read_text(encoding="utf-8"))
    assert (record["score"], record["judged"]) == ("accuracy", 8)
    assert all(0 <= point["accuracy"] <= 100 for point in record["curve"])
    assert main(["classify", str(out), str(files / "valid.npz")]) == 0
    assert main(["describe", str(out)]) == 0


def test_models_whose_heads_cannot_go_are_refused(tmp_path, capsys):
    torch.manual_seed(0)
    (tmp_path / "text.txt").write_text("one two three four " * 20, encoding="utf-8")
    extra = {"data": {"train": [str(tmp_path / "text.txt")], "valid": [str(tmp_path / "text.txt")]}}
    settings = ["model.width=8", "data.max_len=8", "train.batch_tokens=32", *BRIEF]
    train(make_config(None, "lstmn-tiny", settings, extra), tmp_path / "run")
    assert main(["prune", str(tmp_path / "run"), "--heads", "1", "--out", str(tmp_path / "new")]) == 2
    kinds = "transformer, gpt, bert, vit, captioner, whisper, listener, parser"
    said = f"heads can be removed from a {kinds} model, not from a lstmn"
    assert said in capsys.readouterr().err
    assert not (tmp_path / "new").exists()
