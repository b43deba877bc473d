"""What every language model must obey, and every one with a state. A new one joins by a line in language_zoo.py."""

import pytest
import torch
from language_zoo import LANGUAGE_MODELS, STATELESS, make_language, stretch, windows
from listeners import StopAt
from torch.testing import assert_close

import regard
from regard.errors import DataError
from regard.look.watch import attentions, watch
from regard.nn.batch import Tokens, halves
from regard.tasks.config import make_config
from regard.tasks.looking import LookOptions, page
from regard.trainer.trainer import Stopped
from regard.training.objectives import LanguageModelling, StreamedLanguageModelling, language_objective

every_model = pytest.mark.parametrize("name", [*LANGUAGE_MODELS, *STATELESS])
every_one_with_a_state = pytest.mark.parametrize("name", LANGUAGE_MODELS)
IDS = torch.randint(4, 19, (3, 13), generator=torch.Generator().manual_seed(0))


@every_model
def test_a_later_token_never_changes_an_earlier_prediction(name):
    model = make_language(name)
    rows = IDS[:, :7].tolist()
    before = model.logits(windows(rows))
    for row in rows:
        row[4] = 4 + (row[4] - 3) % 15
    after = model.logits(windows(rows))
    assert_close(after[:, :4], before[:, :4])
    assert not torch.allclose(after[:, 4:], before[:, 4:])


@every_model
@torch.no_grad()
def test_prompts_of_any_length_go_on_as_if_each_had_been_read_alone(name):
    model = make_language(name)
    prompts, more = [[4], [4, 5, 6, 7, 8, 9], [4, 8]], [9, 10, 11]
    log_probs, state = model.step(torch.tensor([prompt[-1] for prompt in prompts]), model.start(Tokens.of(prompts)))
    picks = torch.tensor([2, 0, 0, 1])
    found, _ = model.step(torch.tensor([more[pick] for pick in picks.tolist()]), state.select(picks))
    for row, pick in enumerate(picks.tolist()):
        alone = model.logits(windows([[*prompts[pick], more[pick]]])).log_softmax(-1)[0]
        assert_close(log_probs[pick], alone[-2], atol=1e-5, rtol=1e-5)
        assert_close(found[row], alone[-1], atol=1e-5, rtol=1e-5)
    one, _ = model.step(torch.tensor([4]), model.start(Tokens.of([[4]])))
    assert_close(one, log_probs[:1], atol=1e-5, rtol=1e-5)
    with pytest.raises(DataError, match="a prompt without a token"):
        model.start(Tokens.of([[]]))


@every_model
@torch.no_grad()
def test_steps_equal_the_whole_sequence_and_the_state_keeps_its_size(name):
    model = make_language(name)
    whole = model.logits(windows(IDS.tolist())).log_softmax(-1)
    state, sizes = model.start(Tokens.of(IDS[:, :1].tolist())), []
    for t in range(12):
        log_probs, state = model.step(IDS[:, t], state)
        assert_close(log_probs, whole[:, t], atol=1e-5, rtol=1e-5)
        if name in LANGUAGE_MODELS:
            sizes.append(sum(part.numel() for own in state.states for part in own))
    assert name == "lstmn" or len(set(sizes[3:])) <= 1


@every_one_with_a_state
def test_windows_with_a_carried_state_lose_what_the_whole_text_loses(name):
    model, task = make_language(name).train(), StreamedLanguageModelling()
    whole = LanguageModelling().loss(model, stretch(IDS, 0, 12, 0)).total
    parts = [task.loss(model, stretch(IDS, 4 * number, 4 * number + 4, number)).total for number in range(3)]
    assert_close(sum(parts), whole, atol=1e-4, rtol=1e-5)


@every_model
def test_splitting_a_batch_changes_no_gradient_and_every_parameter_is_used(name):
    model, batch = make_language(name).train(), windows(IDS[:, :6].tolist())
    task, gradients = language_objective(type(model)), []
    for parts in ([batch], halves(batch)):
        total = sum(task.loss(model, part).total for part in parts)
        gradients.append(torch.autograd.grad(total, list(model.parameters()), allow_unused=True))
    assert [name for (name, _), one in zip(model.named_parameters(), gradients[0], strict=True) if one is None] == []
    for one, other in zip(*gradients, strict=True):
        assert_close(one, other, atol=1e-5, rtol=1e-4)


@every_one_with_a_state
def test_watching_changes_no_output_and_sees_only_what_came_before(name):
    model = make_language(name)
    batch = windows(IDS[:, :6].tolist())
    expected = model.logits(batch)
    assert_close(model.head(model.read(batch.inputs)), expected)
    if not attentions(model):
        return
    with watch(model) as trace:
        assert_close(model.logits(batch), expected, atol=1e-6, rtol=1e-6)
    for one in attentions(model):
        weights = trace.weights(one)
        assert weights.shape == (3, 1, 6, 6)
        # An attention that points also sees the token just read; within a cell only those before it.
        assert not weights.triu(1 if "pointing" in one else 0).any()
        assert_close(weights.sum(-1)[..., 1:], torch.ones(3, 1, 5))

    def first_only(name, weights):
        return torch.zeros_like(weights).index_fill(-1, torch.tensor([0]), 1.0)

    with watch(model, edit=first_only):
        assert not torch.allclose(model.logits(batch), expected)
    with watch(model, edit=lambda name, weights: weights.clone()):
        assert_close(model.logits(batch), expected)


@pytest.mark.parametrize("preset", ["rwkv-tiny", "lstmn-tiny"])
def test_a_resumed_run_equals_an_unbroken_one_byte_for_byte_and_writes(preset, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("the cat sees the dog and the dog hears the cat\n" * 20, encoding="utf-8")
    settings = ["model.width=8", "model.dropout=0.1", "data.max_len=16", "train.batch_tokens=64"]
    settings += ["train.steps=6", "train.log_every=1", "train.save_every=6", "train.threads=1", "train.warmup=2"]
    config = make_config(None, preset, settings, {"data": {"train": [str(text)], "valid": [str(text)]}})
    whole = regard.train(config, tmp_path / "whole")
    with pytest.raises(Stopped, match="stopped at step 3"):
        regard.train(config, tmp_path / "broken", StopAt(3))
    broken = regard.resume(tmp_path / "broken")
    one, other = ((run.directory / "model.safetensors").read_bytes() for run in (whole, broken))
    assert one == other
    assert whole.generate("the", max_len=30, seed=1) == broken.generate("the", max_len=30, seed=1)
    assert regard.evaluate(whole)["carried"]
    if attentions(whole.model):
        assert next(iter(attentions(whole.model))) in page(whole, ["the cat sees"], LookOptions(edits=True))
