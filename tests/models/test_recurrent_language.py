from dataclasses import replace

import pytest
import torch
from listeners import StopAt

import regard
from regard.errors import ConfigError
from regard.models.recurrent_language import RecurrentLanguageConfig, RecurrentLanguageModel
from regard.nn.batch import Tokens, Windows
from regard.tasks.config import make_config
from regard.trainer.trainer import Stopped

TINY = RecurrentLanguageConfig(vocab_size=19, width=6, dropout=0.0, max_len=40)


def make(**changes):
    torch.manual_seed(0)
    return RecurrentLanguageModel(replace(TINY, **changes)).eval()


def windows(rows):
    tokens = Tokens.of(rows)
    return Windows(tokens, tokens.ids.roll(-1, 1), tokens.ids.numel())


def test_a_tie_is_a_tie_and_impossible_settings_are_refused():
    model, loose = make(), make(tied=False)
    assert model.head.weight is model.embedding.tokens.weight
    assert loose.head.weight is not loose.embedding.tokens.weight
    with pytest.raises(ConfigError, match="layers=0 must be at least 1"):
        replace(TINY, layers=0)
    with pytest.raises(ConfigError, match=r"dropout=1.0 must be at least 0 and below 1"):
        replace(TINY, dropout=1.0)


def test_a_resumed_run_equals_an_unbroken_one_byte_for_byte_and_writes(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("the cat sees the dog and the dog hears the cat\n" * 20, encoding="utf-8")
    settings = ["model.width=8", "model.layers=1", "model.dropout=0.1", "data.max_len=16", "train.batch_tokens=64"]
    settings += ["train.steps=6", "train.log_every=1", "train.save_every=6", "train.threads=1", "train.warmup=2"]
    extra = {"data": {"train": [str(text)], "valid": [str(text)]}}
    config = make_config(None, "lstm-tiny", settings, extra)
    whole = regard.train(config, tmp_path / "whole")
    with pytest.raises(Stopped, match="stopped at step 3"):
        regard.train(config, tmp_path / "broken", StopAt(3))
    broken = regard.resume(tmp_path / "broken")
    one, other = ((run.directory / "model.safetensors").read_bytes() for run in (whole, broken))
    assert one == other


def test_documents_that_must_not_see_each_other_are_refused_before_anything_is_read():
    with pytest.raises(ConfigError, match=r"data.isolate=true is not possible: a recurrent-language model"):
        make_config(None, "lstm-tiny", ["data.isolate=true"])


def test_what_cannot_be_captured_is_refused_before_anything_is_read():
    with pytest.raises(ConfigError, match=r"cuda_graphs=true is not possible: .* carries a state from batch to batch"):
        make_config(None, "lstm-words", ["train.cuda_graphs=true"])
    with pytest.raises(ConfigError, match=r"train.cuda_graphs=true is not possible: .* has batches of many shapes"):
        make_config(None, "bahdanau-2015", ["train.cuda_graphs=true"])
    make_config(None, "gpt-tiny", ["train.cuda_graphs=true"])


def test_a_model_that_carries_its_state_resumes_exactly_and_is_measured_on_the_whole_text(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text(" the cat sees the <unk> and the dog hears N cats \n" * 30, encoding="utf-8")
    settings = ["model.width=8", "data.max_len=8", "train.batch_tokens=24", "train.validate_every=4"]
    settings += ["train.steps=9", "train.log_every=1", "train.save_every=9", "train.threads=1", "train.warmup=2"]
    extra = {"data": {"train": [str(text)], "valid": [str(text)]}}
    config = make_config(None, "lstm-words", settings, extra)
    whole = regard.train(config, tmp_path / "whole")
    with pytest.raises(Stopped, match="stopped at step 5"):
        regard.train(config, tmp_path / "broken", StopAt(5))
    broken = regard.resume(tmp_path / "broken")
    one, other = ((run.directory / "model.safetensors").read_bytes() for run in (whole, broken))
    assert one == other
    found = regard.evaluate(whole)
    tokenizer = whole.vocabularies.target
    ids = [tokenizer.eos, *tokenizer.encode(text.read_text()), tokenizer.eos]
    with torch.no_grad():
        log_probs = whole.model.logits(windows([ids])).log_softmax(-1)[0, :-1]
    wanted = -float(log_probs.gather(1, torch.tensor(ids[1:])[:, None]).mean())
    assert found["nll"] == pytest.approx(wanted, rel=1e-5)
    assert (found["carried"], found["window"], found["tokens"]) == (True, None, len(ids) - 1)
    assert len(whole.generation("the cat", max_len=40, min_len=39, seed=1).ids) == 2
    assert len(whole.generate("the cat", max_len=40, min_len=39, seed=1)[0]) > 40  # far past a window, without a break
    with pytest.raises(ConfigError, match="a stride is for windows"):
        regard.evaluate(whole, stride=2)
    with pytest.raises(ConfigError, match="a gpt model has no state between windows"):
        make_config(None, "gpt-tiny", ["data.carry=true"])
