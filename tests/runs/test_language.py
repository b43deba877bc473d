"""A language model's life: train on plain text, stop and go on, write from a prompt, measure."""

import copy
import math
import random
from itertools import pairwise

import pytest
import torch
from listeners import StopAt
from torch.testing import assert_close

import regard
from regard import make_config
from regard.data import Documents
from regard.decode.config import DecodeConfig
from regard.decode.constraints import Prefix, repetition
from regard.errors import ConfigError, DataError, RunError
from regard.nn.batch import Tokens, Windows
from regard.runs.files import read_tensors
from regard.tasks.generator import Generator
from regard.tasks.looking import LookOptions, document
from regard.trainer.trainer import Stopped

SMALL = [
    "model.width=16",
    "model.heads=2",
    "model.layers=2",
    "model.feed_forward=24",
    "model.max_len=16",
    "data.max_len=16",
    "train.batch_tokens=64",
    "train.steps=30",
    "train.warmup=3",
    "train.validate_every=15",
    "train.save_every=10",
    "train.log_every=10",
    "train.threads=1",
    "decode.max_len=40",
]


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    folder = tmp_path_factory.mktemp("text")
    dice = random.Random(0)
    words = ["sun", "moon", "star", "été", "sky"]
    for name, count in (("train", 400), ("valid", 60)):
        (folder / f"{name}.txt").write_text(
            "".join(dice.choice(words) + dice.choice(" \n") for _ in range(count)), encoding="utf-8"
        )
    return folder


def config(text, *settings):
    data = {"train": [str(text / "train.txt")], "valid": [str(text / "valid.txt")]}
    return make_config(None, "gpt-tiny", [*SMALL, *settings], {"data": data})


@pytest.fixture(scope="module")
def run(text, tmp_path_factory):
    return regard.train(config(text), tmp_path_factory.mktemp("runs") / "words")


def test_a_stopped_run_ends_with_the_same_bytes(text, run, tmp_path):
    with pytest.raises(Stopped):
        regard.train(config(text), tmp_path / "run", StopAt(20))
    regard.resume(tmp_path / "run")
    one, other = (read_tensors(path / "model.safetensors") for path in (run.directory, tmp_path / "run"))
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_perplexity_is_that_of_each_token_given_all_before_it(run, text):
    found = regard.evaluate(run, stride=1)
    tokenizer = run.vocabularies.target
    ids = [tokenizer.eos, *tokenizer.encode((text / "valid.txt").read_text(encoding="utf-8")), tokenizer.eos]
    total = 0.0
    for place in range(1, len(ids)):
        before = Tokens.of([ids[max(0, place - 16) : place]])
        with torch.no_grad():
            logits = run.model.logits(Windows(before, before.ids, 0))
        total -= float(logits[0, -1].log_softmax(-1)[ids[place]])
    assert found["tokens"] == len(ids) - 1
    assert found["nll"] * found["tokens"] == pytest.approx(total, rel=1e-4)
    assert found["perplexity"] == pytest.approx(math.exp(total / (len(ids) - 1)), rel=1e-4)
    assert found["bits_per_byte"] == pytest.approx(total / math.log(2) / (text / "valid.txt").stat().st_size, rel=1e-4)
    assert found["bits_per_character"] > found["bits_per_byte"]
    coarse = regard.evaluate(run)
    assert (coarse["stride"], coarse["window"]) == (8, 16)
    assert coarse["tokens"] == found["tokens"]


def lively(run):
    """A generator whose every word depends on all that it has read."""
    model = copy.deepcopy(run.model)
    torch.manual_seed(3)
    for name, parameter in model.named_parameters():
        if "norm" not in name:
            torch.nn.init.normal_(parameter, std=0.1 if "embedding" in name else 0.6)
    return Generator(model, run.vocabularies.target, DecodeConfig(max_ratio=None), 16)


@torch.no_grad()
def written_out(model, ids, count, kept, banned):
    """Greedy tokens, each from all that was read; where 16 have been, from the last `kept` of them on."""
    ids, start, before = list(ids), 0, len(ids)
    for _ in range(count):
        if len(ids) - start > 16:
            start = len(ids) - kept
        read = Tokens.of([ids[start:]])
        logits = model.logits(Windows(read, read.ids, 0))[0, -1]
        logits[banned] = -torch.inf
        ids.append(int(logits.argmax()))
    return ids[before:]


def test_greedy_text_past_the_models_length_follows_the_stated_rule(run):
    generator, tokenizer = lively(run), run.vocabularies.target
    for prompt in ("sun moon star", "sun moon star été sky sun moon"):  # the second is longer than the model reads
        found = generator.generation(prompt, DecodeConfig(max_len=40, max_ratio=None, forbid=(tokenizer.eos,)))
        parts, (output,) = list(found), found.outputs
        ids = tokenizer.encode(prompt)[-16:]
        tokens = written_out(generator.model, ids, 40, 8, tokenizer.eos)
        assert list(output.tokens) == tokens
        assert "".join(text for _, text in parts) == output.text == tokenizer.decode(tokens)
        assert tokens not in [written_out(generator.model, ids, 40, kept, tokenizer.eos) for kept in (7, 9)]


def test_a_beam_reads_as_much_of_a_long_prompt_as_leaves_room(run):
    generator, tokenizer = lively(run), run.vocabularies.target
    prompt, settings = "sun moon star été sky sun moon", {"beam": 3, "max_ratio": None}
    for most, read in ((5, 12), (3, 14), (30, 8)):  # at least half of what it reads
        config = DecodeConfig(max_len=most, min_len=most - 1, **settings)
        (found,) = generator.beams(prompt, config)
        (again,) = generator.beams(tokenizer.decode(tokenizer.encode(prompt)[-read:]), config)
        (less,) = generator.beams(tokenizer.decode(tokenizer.encode(prompt)[1 - read :]), config)
        assert len(found.tokens) >= min(most - 1, 9)
        assert found == again
        assert found.tokens != less.tokens


def test_draws_are_a_function_of_seed_and_sample(run):
    both = run.generate("sun", temperature=1.0, samples=3, seed=4, max_len=30)
    assert both == run.generate("sun", temperature=1.0, samples=3, seed=4, max_len=30)
    assert both[:1] == run.generate("sun", temperature=1.0, seed=4, max_len=30)
    assert both != run.generate("sun", temperature=1.0, samples=3, seed=5, max_len=30)
    assert len(set(both)) == 3
    assert isinstance(run.generate(max_len=2)[0], str)  # no prompt: as a document begins


def test_a_stop_string_ends_one_sample_and_not_the_others(run):
    whole = run.generate("sun", temperature=1.0, samples=4, seed=1)
    cut = run.generation("sun", temperature=1.0, samples=4, seed=1, stop=["s"])
    heard = ["", "", "", ""]
    for sample, part in cut:
        heard[sample] += part
    assert heard == [text.partition("s")[0] for text in whole] == [output.text for output in cut.outputs]
    assert {output.ended for output in cut.outputs} >= {"stop"}


def test_repetition_multiplies_what_a_row_has_had():
    log_probs = torch.tensor([[-1.0, -2.0, -3.0], [-1.0, -2.0, -torch.inf]])
    prefix = Prefix(1, torch.tensor([[1], [2]]), torch.tensor([1, 0]))
    found = repetition(2.0, [[0], [2, 2]])(log_probs, prefix)
    assert_close(found, torch.tensor([[-1.0, -4.0, -6.0], [-2.0, -2.0, -torch.inf]]))


def test_a_repetition_penalty_keeps_a_text_from_going_round(run):
    plain = run.generation("sun ", temperature=0, max_len=12)
    varied = run.generation("sun ", temperature=0, max_len=12, repetition_penalty=1e6)
    list(plain), list(varied)
    tokens = varied.outputs[0].tokens
    assert len(set(tokens)) == len(tokens)  # every token is new while there are others
    assert not set(tokens[:8]) & set(run.vocabularies.target.encode("sun "))


def test_the_tasks_do_not_mix(run, text):
    with pytest.raises(RunError, match="is a run for language, not for translation"):
        run.translate(["sun"])
    with pytest.raises(ConfigError, match="task='translation' is not for model 'gpt'"):
        config(text, 'task="translation"')
    with pytest.raises(ConfigError, match="task='language' is not for model 'transformer'"):
        make_config(None, "tiny", ['task="language"'])
    with pytest.raises(ConfigError, match=r"data\.world does not apply to task='language'"):
        make_config(None, "gpt-tiny", ["data.world=5"])
    with pytest.raises(ConfigError, match="must be at least"):
        make_config(None, "gpt-tiny", ["train.batch_tokens=8"])
    with pytest.raises(DataError, match="no such file or folder"):
        regard.train(make_config(None, "gpt-tiny", SMALL, {"data": {"train": ["nowhere.txt"]}}), text / "none")
    with pytest.raises(ConfigError, match="no training data"):
        regard.train(make_config(None, "gpt-tiny", SMALL), text / "none")
    assert not (text / "none").exists()
    generator = Generator(run.model, run.vocabularies.target, DecodeConfig(), 16)
    with pytest.raises(ConfigError, match="stop="):
        generator.generation("a", stop=[""])
    with pytest.raises(ConfigError, match="repetition_penalty=0"):
        generator.generation("a", repetition_penalty=0.0)


def test_isolated_documents_train_and_score(text, tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"body": "sun moon"}\n' * 30, encoding="utf-8")
    data = {"train": [str(tmp_path / "rows.jsonl")], "text": "body", "isolate": True}
    found = regard.train(make_config(None, "gpt-tiny", [*SMALL, "train.steps=3"], {"data": data}), tmp_path / "run")
    assert regard.evaluate(found, Documents.of([text / "valid.txt"]))["perplexity"] > 1


def test_a_resumed_run_refuses_what_a_new_one_would(run):
    before = (run.directory / "config.json").read_bytes()
    for setting, message in (
        ("train.r_drop=1.0", "train.r_drop=1.0 does not apply to task='language'"),
        ("train.batch_tokens=4", "at least data.max_len"),
    ):
        with pytest.raises(ConfigError, match=message):
            regard.resume(run.directory, ("train.steps=99", setting))
    assert (run.directory / "config.json").read_bytes() == before


def test_what_a_text_drawn_has_no_use_for_is_refused(run):
    for given in ({"top_beams": 2}, {"length_penalty": 2.0}, {"exact": True}):
        with pytest.raises(ConfigError, match="is for beam search: give beam too"):
            run.generate("a", **given)
    with pytest.raises(ConfigError, match="is for sampling"):
        run.generate("a", beam=3, temperature=0.7)
    assert run.generate("a", beam=1, max_len=9) == run.generate("a", temperature=0, max_len=9)


def test_no_run_of_tokens_comes_twice_in_a_text_however_often_it_starts_afresh(run):
    generation = run.generation("a", temperature=0, max_len=40, no_repeat=2)
    for _ in generation:
        pass
    tokens = generation.outputs[0].tokens
    pairs = list(pairwise(tokens))
    assert len(tokens) > run.config.data.max_len  # it has started afresh
    assert len(set(pairs)) == len(pairs)
    forced = run.vocabularies.target.encode("m")[0]
    assert run.generate("s", temperature=0, max_len=5, force_first=forced)[0].startswith("m")


def test_looking_refuses_what_does_not_apply_to_a_text_that_is_only_read(run):
    with pytest.raises(ConfigError, match="beam=2 is for a search"):
        document(run, ["sun"], beam=2)
    with pytest.raises(ConfigError, match="targets are for translations"):
        document(run, ["sun"], LookOptions(targets=("moon",)))
