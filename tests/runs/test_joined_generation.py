"""Texts written on a device that never waits are those written step by step, whoever joins or leaves meanwhile."""

import pytest
import torch

from regard.decode.config import DecodeConfig
from regard.models.gpt import GPT, GPTConfig
from regard.tasks.batched_generation import JoinedRound, Writing
from regard.tasks.generator import Generator
from regard.text import TokenizerConfig, train_tokenizer

TEXT = "the cat sees the dog and the dog hears a small red house in the big sun "


@pytest.fixture(scope="module")
def generator():
    tokenizer = train_tokenizer([TEXT], TokenizerConfig(kind="character", vocab_size=60))
    torch.manual_seed(1)
    config = GPTConfig(
        vocab_size=tokenizer.vocab_size, width=32, heads=2, layers=2, feed_forward=32, dropout=0.0, max_len=24
    )
    model = GPT(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(3.0)
    return Generator(model, tokenizer, DecodeConfig(max_len=20), 24)


def written(generator, asked, *, joining=0):
    """The texts of these prompts and settings; those from `joining` on come in one by one, two steps apart."""
    made = [generator.generation(prompt, config, **options) for prompt, config, options in asked]
    writing, waiting = Writing(), made[joining:] if joining else []
    writing.add(made[:joining] if joining else made)
    pieces = {one: [""] * one.config.samples for one in made}
    for step in range(2000):
        if waiting and step % 2:
            writing.add([waiting.pop(0)])
        writing.step()
        for one in made:
            for sample, text in one.fresh():
                pieces[one][sample] += text
        if not waiting and all(one.done for one in made):
            break
    assert [pieces[one] for one in made] == [[output.text for output in one.outputs] for one in made]
    return [one.outputs for one in made]


SETTINGS = {
    "greedy": DecodeConfig(beam=1, max_len=20),
    "sampled": DecodeConfig(temperature=1.0, samples=3, seed=4, max_len=15),
    "top-k": DecodeConfig(temperature=0.8, top_k=5, samples=2, seed=1, max_len=12),
    "past what the model reads": DecodeConfig(temperature=1.0, seed=2, max_len=60),
    "several past what the model reads": DecodeConfig(temperature=1.0, seed=2, samples=2, max_len=50),
    "without repeats": DecodeConfig(temperature=1.0, seed=3, max_len=18, no_repeat=2),
}


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("joining", [0, 1])
def test_texts_are_those_written_step_by_step(generator, name, joining, monkeypatch):
    asked = [(TEXT[: 3 + 2 * number], SETTINGS[name], {}) for number in range(5)]
    asked += [("the ", SETTINGS[name], {"stop": ["a"]}), ("a ", SETTINGS[name], {"repetition_penalty": 1.5})]
    expected = written(generator, asked)
    monkeypatch.setattr("regard.decode.device.DEVICES", ("cpu",))
    assert JoinedRound.takes(generator.generation("the ", SETTINGS[name]))
    assert written(generator, asked, joining=joining) == expected


def test_beams_are_those_searched_step_by_step(generator, monkeypatch):
    config = DecodeConfig(beam=4, top_beams=2, max_len=12)
    prompts = ["the cat", "a", "sun in the"]
    expected = generator.all_beams(prompts, config, stops=[[]] * 3, repetition_penalty=1.3)
    monkeypatch.setattr("regard.decode.device.DEVICES", ("cpu",))
    assert generator.all_beams(prompts, config, stops=[[]] * 3, repetition_penalty=1.3) == expected


def test_who_leaves_makes_room_and_changes_nothing_for_others(generator, monkeypatch):
    config = DecodeConfig(temperature=1.0, seed=6, max_len=20)
    prompts = [TEXT[: 4 + number] for number in range(4)]
    expected = written(generator, [(prompt, config, {}) for prompt in prompts])
    monkeypatch.setattr("regard.decode.device.DEVICES", ("cpu",))
    made = [generator.generation(prompt, config) for prompt in prompts]
    writing = Writing()
    writing.add(made)
    for step in range(100):
        if step == 3:
            made[1].cancel()
        writing.step()
    assert [one.outputs for one in made if one is not made[1]] == [expected[index] for index in (0, 2, 3)]
    assert len(made[1].outputs[0].tokens) < 6
