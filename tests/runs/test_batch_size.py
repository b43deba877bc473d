"""The largest batch that fits, found on a device that is made to run out of memory."""

from contextlib import closing
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from listeners import Told
from torch.testing import assert_close

import regard
from regard import make_config
from regard.data import PairList, Position
from regard.errors import ConfigError, RunError
from regard.runs.log import read_log
from regard.tasks.run import build_model
from regard.tasks.spec import Silence
from regard.tasks.translation_data import TranslationRun
from regard.text import train_vocabularies
from regard.trainer import trainer as training_module
from regard.trainer.batch_size import BatchSizeFinder, HasTrialBatches, largest_budget
from regard.training.objectives import SequenceToSequence
from regard.training.optim import make_optimizer

PAIRS = [(" ".join("abcdefghij"[: 1 + i % 10]), " ".join("klmnopqrst"[: 1 + i % 7])) for i in range(300)]
SETTINGS = [
    "model.width=8",
    "model.heads=2",
    "model.encoder_layers=1",
    "model.decoder_layers=1",
    "model.feed_forward=8",
    "tokenizer.kind=word",
    "train.threads=1",
    "train.device=cpu",
]


class Room:
    """A task on a device that holds so many tokens, padding included."""

    def __init__(self, tokens):
        self.tokens, self.largest = tokens, 0

    def loss(self, model, batch):
        size = batch.source.ids.numel() + batch.inputs.ids.numel()
        if size > self.tokens:
            raise torch.OutOfMemoryError("too large")
        self.largest = max(self.largest, size)
        return SequenceToSequence(0.1).loss(model, batch)


@given(least=st.integers(1, 3000), more=st.integers(0, 10**6), room=st.integers(1, 10**6))
def test_the_budget_found_fits_and_hardly_more_would(least, more, room):
    most, tried = least + more, []

    def fits(size):
        tried.append(size)
        return size <= room

    if room < least:
        with pytest.raises(RunError, match=f"even the smallest batch, of {least} tokens"):
            largest_budget(fits, least, most)
        return
    found = largest_budget(fits, least, most)
    assert least <= found <= min(most, room)
    assert min(most, room) <= found + max(1, found // 16)
    assert len(tried) < 45
    assert all(least <= size <= most for size in tried)


@pytest.mark.parametrize("pack", [False, True])
@pytest.mark.parametrize("optimizer", ["adam", "muon"])
def test_it_leaves_the_model_as_it_was(tmp_path, pack, optimizer):
    config = make_config(None, "tiny", [*SETTINGS, f"train.optimizer={optimizer}", "train.accumulate=2"])
    vocabularies = train_vocabularies(PAIRS, config.tokenizer)
    config = config.with_vocabularies(vocabularies)
    prepared = TranslationRun(config, PairList(PAIRS), vocabularies, tmp_path, Silence())
    model = build_model(config)
    made = make_optimizer(model, config.train)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    task = Room(1300)
    found = BatchSizeFinder(model, made, task, torch.device("cpu"), torch.float32, 2).largest(prepared, pack=pack)
    assert 1000 < found <= 1450
    assert 1000 < task.largest <= 1300
    for name, value in model.state_dict().items():
        assert_close(value, before[name], rtol=0, atol=0)
    assert not made.state
    assert all(parameter.grad is None for parameter in model.parameters())
    assert made.param_groups[0]["lr"] == config.train.learning_rate


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "train.tsv"
    path.write_text("".join(f"{a}\t{b}\n" for a, b in PAIRS), encoding="utf-8")
    return {"data": {"train": [str(path)]}}


def test_it_is_refused_on_a_cpu_before_any_work(data, tmp_path):
    with pytest.raises(ConfigError, match=r"--fit tries how much a GPU's memory holds; on a CPU set"):
        regard.train(make_config(None, "tiny", SETTINGS, data), tmp_path / "run", fit_memory=True)
    assert not (tmp_path / "run").exists()


TEXT = "".join(f"The cat number {i} sees {i % 7} dogs. It sleeps.{chr(10) * (1 + i % 2)}" for i in range(200))
LABELLED = "".join(f"the cat sees {'a ' * (i % 9)}dog\t{'long' if i % 9 > 4 else 'short'}\n" for i in range(200))
KINDS = {
    "gpt-tiny": ["data.max_len=32", "model.width=8", "model.heads=2", "model.layers=1"],
    "lstm-words": ["data.max_len=16", "model.width=8"],
    "bert-tiny": ["data.max_len=32", "model.width=8", "model.heads=2", "model.layers=1", "tokenizer.vocab_size=200"],
    "lstm-classify": ["model.width=8", "tokenizer.vocab_size=100"],
}


@pytest.mark.parametrize("preset", KINDS)
def test_every_kind_of_text_can_be_fitted(tmp_path, preset):
    path = tmp_path / ("text.tsv" if preset == "lstm-classify" else "text.txt")
    path.write_text(LABELLED if preset == "lstm-classify" else TEXT, encoding="utf-8")
    settings = [*KINDS[preset], "train.threads=1", "train.device=cpu", "train.batch_tokens=500"]
    config = make_config(None, preset, settings, {"data": {"train": [str(path)]}})
    config, job = config.kind.prepare(config, tmp_path, Silence(), new=True)
    assert isinstance(job, HasTrialBatches)
    least, most = job.bounds()
    assert least < 500 < most
    for budget in (least, 500, most):
        sizes = [batch.labels.shape[0] for batch in job.trials(budget, pack=False)]
        assert max(sizes) >= (1 if budget == least else 2)
        assert all(batch.tokens <= budget for batch in job.trials(budget, pack=False))
    # What was found is what is trained with.
    rows = []
    for budget in (least, 500):
        job.config = replace(config, train=replace(config.train, batch_tokens=budget))
        with closing(job.stream(Position(), pin=False, pack=False)) as stream:
            rows.append(next(stream).labels.shape[0])
    assert rows[0] < rows[1]


def test_a_run_trains_with_what_was_found_and_splits_what_does_not_fit(data, tmp_path, monkeypatch):
    monkeypatch.setattr(training_module, "check_machine", lambda config, fit_memory=False: None)
    room = Room(700)
    monkeypatch.setattr("regard.tasks.translation_data.SequenceToSequence", lambda *_: room)
    asked, tried = [], BatchSizeFinder.largest

    def largest(*given, **options):
        asked.append(torch.are_deterministic_algorithms_enabled())
        return tried(*given, **options)

    monkeypatch.setattr(BatchSizeFinder, "largest", largest)
    settings = [*SETTINGS, "train.steps=3", "train.log_every=1", "train.deterministic=true"]
    told = Told()
    run = regard.train(make_config(None, "tiny", settings, data), tmp_path / "fit", told, fit_memory=True)
    assert 500 < run.config.train.batch_tokens <= 760
    assert asked == [True]  # the kernels that training will use, which may need more memory
    assert not any("was split" in line for line in told.lines)
    told = Told()
    large = make_config(None, "tiny", [*settings, "train.batch_tokens=2000"], data)
    run = regard.train(large, tmp_path / "split", told)
    assert sum("did not fit the memory and was split" in line for line in told.lines) == 1
    assert run.config.train.batch_tokens == 2000
    assert [record["step"] for record in read_log(run.directory / "log.jsonl") if record["kind"] == "train"] == [
        1,
        2,
        3,
    ]
