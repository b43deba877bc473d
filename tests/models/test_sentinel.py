"""The pointer-sentinel mixture: its equations in double precision, and what it makes of repeated words."""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from torch.testing import assert_close

import regard
from regard.data import Documents
from regard.errors import ConfigError
from regard.models.recurrent_language import RecurrentLanguageConfig, RecurrentLanguageModel
from regard.nn.batch import Tokens, Windows
from regard.nn.copy_mechanism import last_entries, window_mask
from regard.tasks.config import make_config
from regard.tasks.looking import document, page
from regard.training.objectives import LanguageModelling

TINY = RecurrentLanguageConfig(vocab_size=11, width=6, layers=1, dropout=0.0, pointer=3, max_len=40)


def make(**changes):
    torch.manual_seed(0)
    return RecurrentLanguageModel(replace(TINY, **changes)).double().eval()


def windows(rows):
    tokens = Tokens.of(rows)
    return Windows(tokens, tokens.ids.roll(-1, 1), tokens.ids.numel())


def test_the_mixture_is_the_papers():
    """p = g p_vocabulary + sum of a_i over the places of the word; a and g are one softmax over the window and s."""
    model, ids = make(), [4, 5, 4, 7, 4]
    found = model.logits(windows([ids]))[0].exp()
    assert_close(found.sum(-1), torch.ones(5, dtype=torch.float64))
    h, _ = model.layers(model.embedding(torch.tensor([ids])))
    h, own = h[0], model.sentinel
    written = (h @ model.head.weight.T + model.head.bias).softmax(-1)
    for t in range(5):
        seen = range(max(0, t - 2), t + 1)
        q = torch.tanh(own.query.weight @ h[t] + own.query.bias)
        *a, g = torch.stack([q @ h[i] for i in seen] + [q @ own.vector]).softmax(0)
        expected = g * written[t]
        for weight, place in zip(a, seen, strict=True):
            expected = expected.clone()
            expected[ids[place]] += weight
        assert_close(found[t], expected)


def test_gradients_agree_with_finite_differences():
    model, batch = make(), windows([[4, 5, 4, 7], [5, 5, 6, 4]])
    parameters = [model.sentinel.vector, model.sentinel.query.weight]

    def loss(vector, weight):
        values = {"model.sentinel.vector": vector, "model.sentinel.query.weight": weight}
        return torch.func.functional_call(_Summed(model), values, (batch,))

    assert torch.autograd.gradcheck(loss, tuple(one.detach().clone().requires_grad_() for one in parameters))


class _Summed(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, batch):
        return LanguageModelling().loss(self.model, batch).total


def test_the_loss_is_that_of_the_predictions():
    model, batch = make(), windows([[4, 5, 4, 7], [5, 5, 6, 4]])
    log_probs = model.logits(batch)
    expected = -log_probs.gather(-1, batch.labels[..., None]).sum()
    assert_close(LanguageModelling().loss(model, batch).total, expected)


def test_prompts_of_unequal_length_go_on_as_if_each_were_alone():
    model = make()
    prompts = [[4, 5, 6, 7, 8], [4], [9, 4]]
    state = model.start(Tokens.of(prompts))
    log_probs, state = model.step(torch.tensor([prompt[-1] for prompt in prompts]), state)
    chosen = torch.tensor([5, 6, 7])
    again, _ = model.step(chosen, state)
    for row, prompt in enumerate(prompts):
        alone = model.logits(windows([[*prompt, int(chosen[row])]]))[0]
        assert_close(log_probs[row], alone[-2])
        assert_close(again[row], alone[-1])


def test_only_the_last_few_are_in_the_window():
    outputs, ids = torch.arange(8.0).view(2, 4, 1), torch.arange(8).view(2, 4)
    memory, words, real = last_entries(outputs, ids, torch.tensor([4, 1]), 2)
    assert words.tolist() == [[2, 3], [4, 4]]
    assert real.tolist() == [[True, True], [False, True]]
    assert_close(memory[..., 0].long(), words)
    seen = window_mask(torch.tensor([[False, True, True, True]]), 2, 2)
    assert seen.tolist() == [[[False, True, True, False], [False, False, True, True]]]
    with pytest.raises(ConfigError, match="pointer=-1"):
        replace(TINY, pointer=-1)


def test_perplexity_is_that_of_the_steps_and_a_run_writes_and_is_looked_into(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("the cat sees the dog and the dog hears the cat\n" * 20, encoding="utf-8")
    settings = ["model.width=8", "data.max_len=16", "train.batch_tokens=64", "train.steps=6", "train.threads=1"]
    settings += ["train.validate_every=6", "tokenizer.min_count=1", "train.warmup=2", "train.save_every=6"]
    extra = {"data": {"train": [str(text)], "valid": [str(text)], "test": [str(text)]}}
    run = regard.train(make_config(None, "merity-2017", settings, extra), tmp_path / "run")
    assert run.config.model["pointer"] == 100
    (written,) = run.generate("the cat", temperature=0, max_len=5)
    assert isinstance(written, str)
    short = tmp_path / "short.txt"
    short.write_text("the cat hears the dog and the dog sees the cat", encoding="utf-8")
    found = regard.evaluate(run, Documents.of([str(short)], "text"), stride=16)
    tokenizer = run.vocabularies.target
    ids = [tokenizer.eos, *tokenizer.encode(short.read_text(encoding="utf-8")), tokenizer.eos]
    state, total = run.model.start(Tokens.of([[tokenizer.eos]])), 0.0
    with torch.no_grad():
        for here, there in pairwise(ids):
            log_probs, state = run.model.step(torch.tensor([here]), state)
            total -= float(log_probs[0, there])
    assert found["tokens"] == len(ids) - 1
    assert found["nll"] == pytest.approx(total / (len(ids) - 1), rel=1e-4)
    assert "sentinel.pointing" in page(run, ["the cat"])
    check_what_is_shown_of_the_sentinel(run)


@torch.no_grad()
def check_what_is_shown_of_the_sentinel(run):
    """The sentinel's share of every step, and the two parts of what followed; nothing follows the last piece."""
    (sentence,) = document(run, ["the cat sees the cat"]).sentences
    *mixture, last = sentence.decoding.mixture
    ids = torch.tensor(run.generator.prompt_ids("the cat sees the cat"))
    h, _ = run.model.layers(run.model.embedding(ids[None]))
    h, own = h[0], run.model.sentinel
    q = torch.tanh(h @ own.query.weight.T + own.query.bias)
    for t, one in enumerate(mixture):
        scores = torch.cat((q[t] @ h[: t + 1].T, (q[t] @ own.vector)[None])).softmax(-1)
        assert one.writing == pytest.approx(float(scores[-1]), abs=1e-5)
        assert one.copied == pytest.approx(float(scores[:-1][ids[: t + 1] == ids[t + 1]].sum()), abs=1e-5)
    assert (last.written, last.copied) == (None, None)
