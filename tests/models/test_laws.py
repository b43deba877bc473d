"""What every model that writes a target from a source must obey. A new one joins by a line in model_zoo.py."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from listeners import StopAt
from model_zoo import MODELS, batch, make, rows
from torch.testing import assert_close

import regard
from regard import make_config
from regard.decode.beam import beam_search
from regard.decode.config import DecodeConfig
from regard.decode.greedy import greedy
from regard.look.watch import attentions, watch
from regard.nn.batch import Pairs, Tokens
from regard.trainer.trainer import Stopped
from regard.training.objectives import SequenceToSequence

every_model = pytest.mark.parametrize("name", MODELS)
lengths = st.lists(st.tuples(st.integers(1, 7), st.integers(2, 7)), min_size=1, max_size=4)
few = settings(max_examples=4)


@every_model
@few
@given(sizes=lengths)
def test_padding_never_changes_a_result(name, sizes):
    model = make(name)
    sources, targets = rows(sizes)
    together = model.logits(batch(sources, targets))
    for index, (source, target) in enumerate(zip(sources, targets, strict=True)):
        alone = model.logits(batch([source], [target]))
        assert_close(together[index, : len(target) - 1], alone[0], atol=1e-5, rtol=1e-5)


@every_model
@few
@given(sizes=lengths, place=st.integers(1, 5))
def test_a_later_target_token_never_changes_an_earlier_logit(name, sizes, place):
    model = make(name)
    sources, targets = rows([(source, 7) for source, _ in sizes])
    before = model.logits(batch(sources, targets))
    for target in targets:
        target[place] = 4 + (target[place] - 3) % 15
    after = model.logits(batch(sources, targets))
    assert_close(after[:, :place], before[:, :place], atol=1e-6, rtol=1e-6)
    if getattr(
        model.config, "residual", True
    ):  # without it all news comes through the source, and one token says nothing
        assert not torch.allclose(after[:, place:], before[:, place:])


@every_model
def test_every_source_token_matters(name):
    model = make(name)
    before = model.logits(batch([[4, 5, 6, 7]], [[1, 9, 10, 2]]))
    for place in range(4):
        source = [4, 5, 6, 7]
        source[place] = 8
        assert not torch.equal(model.logits(batch([source], [[1, 9, 10, 2]])), before)


@every_model
@few
@given(sizes=lengths)
def test_steps_equal_full_recomputation(name, sizes):
    model = make(name)
    sources, targets = rows([(source, 6) for source, _ in sizes])
    full = model.logits(batch(sources, targets)).log_softmax(-1)
    state = model.start(Pairs(Tokens.of(sources)))
    for step in range(5):
        log_probs, state = model.step(torch.tensor([target[step] for target in targets]), state)
        assert_close(log_probs, full[:, step], atol=1e-5, rtol=1e-5)


@every_model
@few
@given(sizes=lengths, width=st.integers(1, 3), data=st.data())
@torch.no_grad()
def test_selected_rows_go_on_as_if_they_had_been_decoded_alone(name, sizes, width, data):
    model = make(name)
    sources, _ = rows(sizes)
    B = len(sources)
    state = model.start(Pairs(Tokens.of(sources)))
    _, state = model.step(torch.full((B,), 1), state)
    state = state.select(torch.arange(B).repeat_interleave(width))
    words = torch.randint(4, 19, (B * width,))
    _, state = model.step(words, state)
    kept = data.draw(st.lists(st.integers(0, B - 1), min_size=1, max_size=B, unique=True).map(sorted))
    picks = [source * width + data.draw(st.integers(0, width - 1)) for source in kept for _ in range(width)]
    state = state.select(torch.tensor(picks), torch.tensor(kept))
    log_probs, state = model.step(torch.full((len(picks),), 5), state)
    for row, pick in enumerate(picks):
        alone = model.logits(batch([sources[pick // width]], [[1, int(words[pick]), 5, 2]]))
        assert_close(log_probs[row], alone[0, 2].log_softmax(-1), atol=1e-5, rtol=1e-5)


@every_model
def test_splitting_a_batch_changes_no_gradient(name):
    model = make(name).train()
    sources, targets = rows([(3, 4), (5, 2), (1, 6), (7, 3)], torch.Generator().manual_seed(0))
    gradients = []
    for parts in ([slice(0, 4)], [slice(0, 1), slice(1, 4)]):
        total = sum(SequenceToSequence(0.1).loss(model, batch(sources[part], targets[part])).total for part in parts)
        gradients.append(torch.autograd.grad(total, list(model.parameters()), allow_unused=True))
    for one, other in zip(*gradients, strict=True):
        assert_close(one, other, atol=1e-5, rtol=1e-4)


@every_model
def test_every_parameter_is_used(name):
    model = make(name).train()
    loss = SequenceToSequence().loss(model, batch([[4, 5, 6], [7, 8]], [[1, 9, 10, 2], [1, 11, 2]])).total
    unused = [
        parameter
        for parameter, gradient in zip(
            dict(model.named_parameters()),
            torch.autograd.grad(loss, list(model.parameters()), allow_unused=True),
            strict=True,
        )
        if gradient is None
    ]
    assert unused == []


@every_model
def test_a_beam_of_one_is_greedy(name):
    model = make(name)
    sources, _ = rows([(3, 2), (5, 2), (1, 2)], torch.Generator().manual_seed(0))
    first, config = torch.full((3,), 1), DecodeConfig(beam=1, top_beams=1)
    searched = beam_search(model, model.start(Pairs(Tokens.of(sources))), first, eos=2, config=config, max_len=9)
    found = greedy(model, model.start(Pairs(Tokens.of(sources))), first, eos=2, config=config, max_len=9)
    assert [best[0].tokens for best in searched] == [best.tokens for best in found]


@every_model
def test_watching_changes_no_output_and_sees_every_step_at_once(name):
    model = make(name)
    given_batch = batch([[4, 5, 6], [7, 8]], [[1, 9, 10, 2], [1, 11, 2]])
    expected = model.logits(given_batch)
    if not attentions(model):
        return
    with watch(model) as trace:
        assert_close(model.logits(given_batch), expected, atol=1e-6, rtol=1e-6)
    for one in (one for one in attentions(model) if "cross" in one):
        weights = trace.weights(one)
        assert weights.shape[2:] == (3, 3)
        assert_close(weights.sum(-1), torch.ones(weights.shape[:3]))
        assert not weights[1, :, :, 2].any()


@every_model
def test_weights_that_a_watcher_changes_are_the_weights_used(name):
    model = make(name)
    names = [one for one in attentions(model) if "cross" in one]
    if not names:
        return
    given_batch = batch([[4, 5, 6]], [[1, 9, 10, 2]])

    def first_only(name, weights):
        return torch.zeros_like(weights).index_fill(-1, torch.tensor([0]), 1.0)

    with watch(model, names, edit=first_only):
        changed = model.logits(given_batch)
    assert not torch.allclose(changed, model.logits(given_batch))
    with watch(model, names, edit=lambda name, weights: weights.clone()):
        assert_close(model.logits(given_batch), model.logits(given_batch))


SMALL = [
    "tokenizer.kind=word",
    "model.width=8",
    "model.dropout=0.1",
    "model.share=all",
    "tokenizer.joint=true",
    "data.world=0",
    "train.batch_tokens=200",
    "train.steps=6",
    "train.log_every=1",
    "train.validate_every=6",
    "train.validate_sentences=2",
    "train.save_every=6",
    "train.warmup=2",
    "train.threads=1",
]
PRESETS = ["sutskever-2014", "cho-2014", "bahdanau-2015", "luong-2015-general", "gehring-2017"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("corpus") / "train.tsv"
    words = ["the", "cat", "dog", "sees", "hears", "house", "runs"]
    generator = torch.Generator().manual_seed(0)
    lines = []
    for _ in range(60):
        length = int(torch.randint(2, 7, (), generator=generator))
        said = [words[int(i)] for i in torch.randint(len(words), (length,), generator=generator)]
        lines.append(" ".join(said) + "\t" + " ".join(reversed(said)))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("preset", PRESETS)
def test_a_resumed_run_equals_an_unbroken_one_byte_for_byte_and_translates(preset, corpus, tmp_path):
    extra = {"data": {"train": [corpus], "valid": [corpus]}}
    config = make_config(None, preset, SMALL, extra)
    whole = regard.train(config, tmp_path / "whole")
    with pytest.raises(Stopped, match="stopped at step 3"):
        regard.train(config, tmp_path / "broken", StopAt(3))
    broken = regard.resume(tmp_path / "broken")
    one, other = ((run.directory / "model.safetensors").read_bytes() for run in (whole, broken))
    assert one == other
    assert whole.translate(["the cat sees", "dog"], beam=2) == broken.translate(["the cat sees", "dog"], beam=2)
