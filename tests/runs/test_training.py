import json
import os
import signal
import subprocess
import sys
import time

import pytest
import torch
from listeners import StopAt, Told
from torch._dynamo.exc import TorchDynamoException
from torch.testing import assert_close

import regard
from regard import make_config
from regard.data.mixing import even_sample
from regard.data.readers import PairFiles, SplitPairs
from regard.errors import ConfigError, Diverged, RunError
from regard.runs.checkpoint import checkpoints, read_progress
from regard.runs.files import alone_in, read_tensors
from regard.runs.log import read_log
from regard.trainer.trainer import Stopped
from regard.training.objectives import SequenceToSequence

SMALL = [
    "model.width=16",
    "model.heads=2",
    "model.encoder_layers=1",
    "model.decoder_layers=1",
    "model.feed_forward=24",
    "model.dropout=0.1",
    "tokenizer.kind=word",
    "train.batch_tokens=200",
    "train.steps=12",
    "train.log_every=3",
    "train.validate_every=6",
    "train.validate_sentences=4",
    "train.save_every=4",
    "train.warmup=3",
    "train.threads=1",
]
WORDS = ["the", "a", "cat", "dog", "sees", "hears", "big", "small", "red", "house", "runs", "sleeps", "and"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    generator = torch.Generator().manual_seed(0)
    for name, count in (("train", 120), ("valid", 12)):
        lines = []
        for _ in range(count):
            length = int(torch.randint(2, 8, (), generator=generator))
            words = [WORDS[int(i)] for i in torch.randint(len(WORDS), (length,), generator=generator)]
            lines.append(" ".join(words) + "\t" + " ".join(word.upper() for word in reversed(words)))
        (folder / f"{name}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def config(corpus, *settings):
    extra = {"data": {"train": [str(corpus / "train.tsv")], "valid": [str(corpus / "valid.tsv")]}}
    return make_config(None, "tiny", [*SMALL, *settings], extra)


@pytest.fixture(scope="module")
def run(corpus, tmp_path_factory):
    return regard.train(config(corpus), tmp_path_factory.mktemp("runs") / "whole")


def model_bytes(directory):
    return (directory / "model.safetensors").read_bytes()


def test_a_run_is_one_directory_without_pickle(run):
    names = sorted(path.name for path in run.directory.iterdir())
    assert names == ["cache", "checkpoints", "config.json", "log.jsonl", "model.safetensors", "tokenizer.json"]
    assert [path.name for path in checkpoints(run.directory / "checkpoints")] == ["step-4", "step-8", "step-12"]
    for path in run.directory.rglob("*"):
        assert path.suffix in {"", ".json", ".jsonl", ".safetensors", ".tokens", ".offsets"}, path
    kinds = [record["kind"] for record in read_log(run.directory / "log.jsonl")]
    assert kinds.count("train") == 4
    assert kinds.count("validation") == 2


def test_it_translates_after_loading(run):
    loaded = regard.load(run.directory)
    sentences = ["the cat sees", "a big red house sleeps", "dog"]
    found = loaded.translate(sentences, beam=3)
    assert len(found) == 3
    assert found == run.translate(sentences, beam=3)
    assert loaded.translate(sentences[::-1], beam=3) == found[::-1]
    best = loaded.translations(sentences, beam=3, top_beams=3)
    assert [len(one) for one in best] == [3, 3, 3]
    assert all(one[0].score >= one[1].score >= one[2].score for one in best)
    assert [one[0].text for one in best] == found


@pytest.mark.parametrize("settings", [(), ("train.ema=0.9", "train.accumulate=2"), ("train.average_last=2",)])
@pytest.mark.parametrize("stop", [3, 6])
def test_a_resumed_run_equals_an_unbroken_one_byte_for_byte(corpus, tmp_path, settings, stop):
    whole = regard.train(config(corpus, *settings), tmp_path / "whole")
    with pytest.raises(Stopped, match=f"stopped at step {stop}"):
        regard.train(config(corpus, *settings), tmp_path / "broken", StopAt(stop))
    broken = regard.resume(tmp_path / "broken")
    assert model_bytes(broken.directory) == model_bytes(whole.directory)
    last = "checkpoints/step-12/optimizer.safetensors"
    assert (broken.directory / last).read_bytes() == (whole.directory / last).read_bytes()

    def shown(directory):
        timing = {"tokens_per_second", "seconds", "waiting"}
        records = read_log(directory / "log.jsonl")
        return [{key: value for key, value in record.items() if key not in timing} for record in records]

    assert shown(broken.directory) == shown(whole.directory)


def test_a_run_killed_outright_resumes_from_its_last_complete_checkpoint(corpus, tmp_path, run):
    out = tmp_path / "killed"
    settings = [f"--set={setting}" for setting in SMALL]
    data = [f"--data={corpus / 'train.tsv'}", f"--valid={corpus / 'valid.tsv'}"]
    command = [sys.executable, "-m", "regard", "train", "--preset", "tiny", "--out", str(out), *data, *settings]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not (out / "checkpoints" / "step-4").exists():
        assert process.poll() is None, "training ended before its checkpoint"
        time.sleep(0.005)
    process.kill()
    process.wait()
    # What a cut-short save leaves behind is not a checkpoint.
    (out / "checkpoints" / ".step-99.partial").mkdir()
    resumed = regard.resume(out)
    assert model_bytes(resumed.directory) == model_bytes(run.directory)


def test_a_finished_run_resumes_to_itself_and_can_be_extended(corpus, tmp_path):
    longer = regard.train(config(corpus, "train.steps=16", "train.schedule=constant"), tmp_path / "longer")
    regard.train(config(corpus, "train.schedule=constant"), tmp_path / "short")
    before = model_bytes(tmp_path / "short")
    regard.resume(tmp_path / "short")
    assert model_bytes(tmp_path / "short") == before
    regard.resume(tmp_path / "short", ("train.steps=16",))
    assert model_bytes(tmp_path / "short") == model_bytes(longer.directory)
    with pytest.raises(ConfigError, match=r"'model.width=32' cannot change in a run that has begun"):
        regard.resume(tmp_path / "short", ("model.width=32",))


@pytest.mark.parametrize(
    ("first", "later", "said"),
    [
        ("train.ema=0", "train.ema=0.9", "step-3 has no average of the weights: it starts here"),
        ("train.optimizer=adam", "train.optimizer=muon", "the optimiser is of another kind than that of step-3"),
        ("train.optimizer=muon", "train.optimizer=adamw", "the optimiser is of another kind than that of step-3"),
    ],
)
def test_what_was_not_there_before_begins_where_a_run_is_taken_up(corpus, tmp_path, first, later, said):
    out, told = tmp_path / "run", Told()
    regard.train(config(corpus, "train.steps=3", first), out)
    regard.resume(out, ("train.steps=5", later), told)
    assert sum(said in line for line in told.lines) == 1
    told = Told()
    regard.resume(out, ("train.steps=6",), told)
    assert not any(said.split(" ", 1)[1] in line for line in told.lines)


@pytest.mark.parametrize(
    ("before", "later", "chosen"),
    [
        (("train.choose=best", "train.ema=0"), "train.ema=0.9", "model"),
        (("train.choose=best", "train.ema=0.9"), "train.ema=0", "average"),
        (("train.keep=1", "train.ema=0"), "train.choose=best", None),
    ],
)
def test_the_best_is_what_was_validated_even_if_settings_changed_since(corpus, tmp_path, before, later, chosen):
    out, told = tmp_path / "run", Told()
    first = ("train.steps=6", "train.validate_every=2", "train.save_every=2", "train.validate_sentences=0", *before)
    regard.train(config(corpus, *first), out)
    # From here on it gets worse.
    worse = ("train.learning_rate=5.0", "train.schedule=constant", "train.warmup=0")
    if chosen is None:
        regard.resume(out, ("train.steps=8", *worse))
    regard.resume(out, ("train.steps=10", later, *worse), told)
    kept = read_tensors(out / "model.safetensors")
    if chosen is None:
        assert "the model is the last: that of step 6, the best validated, was not kept" in told.lines
        wanted = read_tensors(out / "checkpoints" / "step-10" / "model.safetensors")
    else:
        assert "the model is that of step 6, the best validated" in told.lines
        wanted = read_tensors(out / "checkpoints" / "step-6" / f"{chosen}.safetensors")
    assert kept.keys() == wanted.keys()
    assert all(torch.equal(kept[name], value) for name, value in wanted.items())


def test_a_run_that_could_not_be_taken_up_keeps_its_settings(run, tmp_path):
    broken = copy(run.directory, tmp_path / "broken")
    before = (broken / "config.json").read_bytes()
    for optimizer in (broken / "checkpoints").glob("*/optimizer.safetensors"):
        optimizer.write_bytes(b"")
    with pytest.raises(RunError, match="was cut short"):
        regard.resume(broken, ("train.steps=14",))
    for setting in ("train.start_from=elsewhere", "train.vectors=words.txt"):
        with pytest.raises(ConfigError, match="says what a run starts from; this one has begun"):
            regard.resume(broken, (setting,))
    assert (broken / "config.json").read_bytes() == before


def test_data_that_changed_since_is_said(corpus, tmp_path):
    data = tmp_path / "own"
    data.mkdir()
    for name in ("train.tsv", "valid.tsv"):
        (data / name).write_bytes((corpus / name).read_bytes())
    regard.train(config(data, "train.steps=2"), tmp_path / "run")
    told = Told()
    regard.resume(tmp_path / "run", ("train.steps=3",), told)
    assert not any("not what it was" in line for line in told.lines)
    with (data / "train.tsv").open("a", encoding="utf-8") as file:
        file.write("the cat\tCAT THE\n")
    regard.resume(tmp_path / "run", ("train.steps=4",), told)
    assert sum("the training data is not what it was" in line for line in told.lines) == 1


def test_a_warm_up_that_never_ends_is_said(corpus, tmp_path):
    for steps, said in ((3, 0), (2, 1)):
        told = Told()
        regard.train(config(corpus, f"train.steps={steps}"), tmp_path / str(steps), told)
        assert sum("the rate will not reach its peak: train.warmup=3" in line for line in told.lines) == said


def test_divergence_stops_with_the_last_good_checkpoint(corpus, tmp_path):
    settings = (
        "train.learning_rate=1e30",
        "train.warmup=0",
        "train.save_every=1",
        "train.clip=0",
        "train.schedule=constant",
    )
    with pytest.raises(Diverged, match=r"diverged at step \d+: .*Try a lower train.learning_rate"):
        regard.train(config(corpus, *settings), tmp_path / "run")
    for path in checkpoints(tmp_path / "run" / "checkpoints"):
        for name, value in read_tensors(path / "model.safetensors").items():
            assert torch.isfinite(value).all(), (path, name)


def test_patience_ends_a_run_and_the_best_is_kept(corpus, tmp_path):
    settings = (
        "train.patience=2",
        "train.validate_every=1",
        "train.steps=200",
        "train.choose=best",
        "train.ema=0",
        "train.learning_rate=0.5",
        "train.schedule=constant",
        "train.validate_sentences=0",
    )
    told = Told()
    regard.train(config(corpus, *settings), tmp_path / "run", told)
    records = [r for r in read_log(tmp_path / "run" / "log.jsonl") if r["kind"] == "validation"]
    assert len(records) < 200
    end = records[-1]["step"]
    why = f": 2 validations without a better loss than at step {end - 2} (train.patience=2); to go on, resume with a "
    assert f"stopped early at step {end} of 200{why}higher one" in told.lines
    again = Told()
    regard.resume(tmp_path / "run", (), again)
    assert f"the run is finished: {end} steps{why}higher one" in again.lines
    losses = [record["nll"] for record in records]
    best = losses.index(min(losses))
    assert len(losses) == best + 3
    kept = read_tensors(tmp_path / "run" / "model.safetensors")
    chosen = read_tensors(tmp_path / "run" / "checkpoints" / f"step-{records[best]['step']}" / "model.safetensors")
    for name, value in chosen.items():
        assert_close(kept[name], value, atol=0, rtol=0)
    regard.resume(tmp_path / "run", train={"patience": 3, "steps": end + 1})
    assert read_log(tmp_path / "run" / "log.jsonl")[-1]["step"] == end + 1


def as_before(run, **changes):
    """The last checkpoint's progress as versions wrote it that did not say what the best is of."""
    path = checkpoints(run / "checkpoints")[-1]
    record = json.loads((path / "progress.json").read_text(encoding="utf-8"))
    del record["best_of"], record["files"]["digests.json"]
    (path / "digests.json").unlink()
    (path / "progress.json").write_text(json.dumps(record | changes), encoding="utf-8")


@pytest.mark.parametrize(
    ("score", "sentences", "forgets"),
    [("exact_match", 4, True), ("bleu", 4, True), ("bleu", 40, False), ("loss", 4, False)],
)
def test_a_best_score_of_other_rows_is_forgotten_once_and_said(corpus, tmp_path, score, sentences, forgets):
    settings = (
        f"train.select_by={score}",
        f"train.validate_sentences={sentences}",
        "train.validate_every=2",
        "train.save_every=2",
        "train.choose=best",
        "train.patience=3",
    )
    with pytest.raises(Stopped):
        regard.train(config(corpus, *settings), tmp_path / "run", StopAt(6))
    as_before(tmp_path / "run", best=-1000.0, best_step=4, stale=2)  # better than any that can follow
    told = Told()
    regard.resume(tmp_path / "run", report=told)
    said = [line for line in told.lines if "from here on the best counts anew" in line]
    progress = read_progress(checkpoints(tmp_path / "run" / "checkpoints")[-1])
    if forgets:
        assert said == [
            f"the best score so far, of step 4, does not compare with the {score} of step 8: it was another score, or "
            f"of other rows; from here on the best counts anew"
        ]
        assert progress.step > 8
        assert progress.best_step >= 8
        assert progress.best > -1000
        assert progress.best_of == f"{score} of 4 rows from all over"
    else:
        assert not said
        assert (progress.step, progress.best_step, progress.best) == (8, 4, -1000)  # patience has ended it
        assert progress.best_of == score


def test_a_best_score_is_kept_by_a_run_that_resumes_with_the_same_settings_and_not_with_others(corpus, tmp_path):
    settings = ("train.select_by=bleu", "train.validate_every=2", "train.save_every=2")
    for name in ("same", "other"):
        with pytest.raises(Stopped):
            regard.train(config(corpus, *settings), tmp_path / name, StopAt(6))
    same, other = Told(), Told()
    regard.resume(tmp_path / "same", report=same)
    regard.resume(tmp_path / "other", report=other, train={"select_by": "loss"})
    for told, count in ((same, 0), (other, 1)):
        assert sum("from here on the best counts anew" in line for line in told.lines) == count


def test_the_pairs_to_decode_are_found_once_and_not_read_for_again(corpus, tmp_path, monkeypatch):
    data = {"train": [str(corpus / "train.tsv")], "held_out": 0.3}
    settings = make_config(None, "tiny", SMALL, {"data": data})
    with pytest.raises(Stopped):
        regard.train(settings, tmp_path / "run", StopAt(6))
    run = regard.load(tmp_path / "run")
    _, prepared = run.task.prepare(run.config, run.directory, Told(), new=False)
    held = [*SplitPairs(PairFiles(corpus / "train.tsv", keys=("en", "fr")), 0.3, True)]
    assert prepared.shown == even_sample(held, 4)

    def read(self):
        raise AssertionError("the corpus was read")

    monkeypatch.setattr(SplitPairs, "__iter__", read)
    assert regard.resume(tmp_path / "run").config == run.config
    _, again = run.task.prepare(run.config, run.directory, Told(), new=False)
    assert again.shown == prepared.shown


def test_tensorboard_is_an_option(corpus, tmp_path):
    regard.train(config(corpus, "train.tensorboard=true", "train.steps=3"), tmp_path / "run")
    assert list((tmp_path / "run" / "tensorboard").glob("events*"))


def test_repeatable_kernels_are_asked_for_and_given_back(corpus, run, tmp_path, monkeypatch):
    asked = []
    loss = SequenceToSequence.loss

    def heard(self, *given):
        asked.append(torch.are_deterministic_algorithms_enabled())
        return loss(self, *given)

    monkeypatch.setattr("regard.training.objectives.SequenceToSequence.loss", heard)
    same = regard.train(config(corpus, "train.deterministic=true"), tmp_path / "run")
    assert asked
    assert all(asked)
    assert not torch.are_deterministic_algorithms_enabled()
    assert model_bytes(same.directory) == model_bytes(run.directory)


@pytest.mark.parametrize(
    ("torchs", "said"),
    [
        ("cumsum_cuda does not have a deterministic implementation, but", "is not possible here: cumsum_cuda"),
        ("you must set CUBLAS_WORKSPACE_CONFIG=:4096:8", "must be asked for before this process first uses the GPU"),
    ],
)
def test_a_kernel_that_is_not_repeatable_is_said(corpus, tmp_path, monkeypatch, torchs, said):
    def fail(self, *_):
        raise RuntimeError(torchs)

    monkeypatch.setattr("regard.training.objectives.SequenceToSequence.loss", fail)
    with pytest.raises(RunError, match=f"train.deterministic=true {said}"):
        regard.train(config(corpus, "train.deterministic=true"), tmp_path / "run")


def test_compiling_without_a_compiler_is_refused_before_any_work(corpus, tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", str(tmp_path / "nowhere"))
    with pytest.raises(ConfigError, match=r"train.compile=true needs a C\+\+ compiler"):
        regard.train(config(corpus, "train.compile=true", "train.device=cpu"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_what_torch_cannot_compile_is_said_in_a_line(corpus, tmp_path, monkeypatch):
    def fail(self, *_):
        raise TorchDynamoException("no working compiler")

    monkeypatch.setattr("regard.training.objectives.SequenceToSequence.loss", fail)
    with pytest.raises(RunError, match=r"torch could not compile the model: .*no working compiler; go on without: .*"):
        regard.train(config(corpus), tmp_path / "run")


def test_a_compiler_that_was_stopped_too_is_no_failure(corpus, tmp_path, monkeypatch):
    def stopped(self, *_):
        os.kill(os.getpid(), signal.SIGTERM)
        raise TorchDynamoException("g++ was killed")

    monkeypatch.setattr("regard.training.objectives.SequenceToSequence.loss", stopped)
    with pytest.raises(Stopped, match="stopped while compiling, after step 0; continue with: regard train --resume"):
        regard.train(config(corpus), tmp_path / "run")


@pytest.mark.parametrize("part", ["config.json", "tokenizer.json", "model.safetensors"])
def test_a_missing_part_is_named(run, tmp_path, part):
    broken = copy(run.directory, tmp_path / "broken")
    (broken / part).unlink()
    with pytest.raises(RunError, match=f"missing its {part}"):
        regard.load(broken)


@pytest.mark.parametrize("part", ["config.json", "tokenizer.json", "model.safetensors"])
def test_a_part_cut_short_is_named(run, tmp_path, part):
    broken = copy(run.directory, tmp_path / "broken")
    whole = (broken / part).read_bytes()
    (broken / part).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(RunError, match=part):
        regard.load(broken)


def test_a_model_larger_than_any_memory_is_refused_before_it_takes_any(run, tmp_path):
    broken = copy(run.directory, tmp_path / "broken")
    mapping = json.loads((broken / "config.json").read_text())
    del mapping["sha256"]
    mapping["model"] |= {"width": 1 << 18, "feed_forward": 1 << 18}  # 256 GiB a matrix
    (broken / "config.json").write_text(json.dumps(mapping))
    with pytest.raises(RunError, match="do not fit the model"):
        regard.load(broken)


def test_weights_that_do_not_fit_are_all_named(run, tmp_path):
    broken = copy(run.directory, tmp_path / "broken")
    mapping = json.loads((broken / "config.json").read_text())
    del mapping["sha256"]
    mapping["model"]["feed_forward"] = 30
    (broken / "config.json").write_text(json.dumps(mapping))
    with pytest.raises(RunError) as found:
        regard.load(broken)
    _, _, said = str(found.value).partition("do not fit the model: ")
    shapes = {"inner.weight": "(24, 16), not (30, 16)", "inner.bias": "(24,), not (30,)"}
    shapes |= {"outer.weight": "(16, 24), not (16, 30)"}
    blocks = [f"{stack}.0.feed_forward" for stack in ("encoder", "decoder")]
    assert said == "; ".join(f"{block}.{part} is {shape}" for block in blocks for part, shape in shapes.items())


def test_a_directory_that_holds_a_run_is_not_overwritten(run, corpus):
    before = model_bytes(run.directory)
    with pytest.raises(RunError, match="already holds a run"):
        regard.train(config(corpus), run.directory)
    assert model_bytes(run.directory) == before


def test_two_cannot_train_in_one_directory(corpus, run, tmp_path):
    begun = copy(run.directory, tmp_path / "begun")
    with alone_in(begun), pytest.raises(RunError, match="begun is being written to by another process"):
        regard.resume(begun, ("train.steps=14",))
    (tmp_path / "new").mkdir()
    with alone_in(tmp_path / "new"):
        (tmp_path / "new" / "theirs").touch()
        with pytest.raises(RunError, match="new is being written to by another process"):
            regard.train(config(corpus), tmp_path / "new")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["theirs"]
    regard.resume(begun, ("train.steps=13",))


def copy(directory, to):
    import shutil

    shutil.copytree(directory, to)
    return to
