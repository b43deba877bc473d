"""The device-resident decoder finds what the step-by-step searches find, for every setting and model that it serves."""

from dataclasses import replace
from itertools import islice

import pytest
import torch

from regard.decode.config import DecodeConfig
from regard.decode.constraints import repetition
from regard.decode.device import DeviceDecoder, FixedStepper, Source, bucket
from regard.decode.greedy import collect, decode
from regard.decode.sample import Sampler, uniform_numbers
from regard.decode.search import search
from regard.models.gpt import GPT, GPTConfig
from regard.models.transformer import Transformer, TransformerConfig
from regard.nn.batch import Pairs, Tokens

EOS, BOS, V = 2, 1, 23
SMALL: dict = {"width": 16, "heads": 4, "feed_forward": 32, "dropout": 0.0, "max_len": 40}


def transformer(**settings) -> Transformer:
    torch.manual_seed(3)
    config = TransformerConfig(
        source_vocab_size=V, target_vocab_size=V, encoder_layers=2, decoder_layers=2, **SMALL | {"output_bias": True} | settings
    )
    model = Transformer(config).eval()
    sharpen(model)
    if model.head.bias is not None:
        with torch.no_grad():
            model.head.bias[EOS] = 4.0  # so that many outputs end before they must
    return model


def gpt(**settings) -> GPT:
    torch.manual_seed(4)
    model = GPT(GPTConfig(vocab_size=V, layers=2, **SMALL | settings)).eval()
    sharpen(model)
    return model


def sharpen(model: torch.nn.Module) -> None:
    """Weights large enough that a row's next choice depends on all it has chosen."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(2.0)


def rows_of(count: int, seed: int = 0) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 14, (count,), generator=generator).tolist()
    return [torch.randint(3, V, (length,), generator=generator).tolist() for length in lengths]


@torch.inference_mode()
def step_by_step(model, rows, config, limits):
    if isinstance(model, Transformer):
        state, first = model.start(Pairs(Tokens.of(rows))), torch.full((len(rows),), BOS)
    else:
        state, first = model.start(Tokens.of(rows)), torch.tensor([row[-1] for row in rows])
    return search(model, state, first, eos=EOS, config=config, max_len=torch.tensor(limits))


def on_device(model, rows, config, limits, *, slots=4, collect_from=None):
    """What the device-resident decoder finds, with fewer slots than sources: they take turns."""
    pairs = isinstance(model, Transformer)
    collate = (lambda items: Pairs(Tokens.of(items))) if pairs else Tokens.of
    decoder = DeviceDecoder(model, torch.device("cpu"), collate)
    room = decoder.room(config, sources=slots, longest=max(map(len, rows)), steps=max(limits))
    uniforms = [None] * len(rows)
    if config.temperature is not None:
        uniforms = [
            uniform_numbers(config.seed, [number], samples=config.samples, steps=max(limits))
            for number in range(len(rows))
        ]
    sources = iter(
        (index, Source(row, len(row), BOS if pairs else row[-1], limit, uniforms=numbers))
        for index, (row, limit, numbers) in enumerate(zip(rows, limits, uniforms, strict=True))
    )
    held = decoder.slots(config, room, eos=EOS)
    found = {}
    for came in decoder.run(held, lambda count: list(islice(sources, count))):
        found.update(came)
    return [found[index] for index in range(len(rows))]


def check(model, config, *, count=11, limit=12, **options):
    rows = rows_of(count)
    limits = [limit - index % 3 for index in range(count)]
    assert isinstance(model, FixedStepper)
    expected = step_by_step(model, rows, config, limits)
    found = on_device(model, rows, config, limits, **options)
    for one, other in zip(found, expected, strict=True):
        assert [each.tokens for each in one] == [each.tokens for each in other]
        assert [each.finished for each in one] == [each.finished for each in other]
        for mine, theirs in zip(one, other, strict=True):
            assert mine.log_prob == pytest.approx(theirs.log_prob, abs=1e-4)
            assert mine.score == pytest.approx(theirs.score, abs=1e-4)
            assert mine.token_log_probs == pytest.approx(theirs.token_log_probs, abs=1e-4)
    return expected


SEARCHES = {
    "beam": DecodeConfig(beam=4),
    "n-best": DecodeConfig(beam=5, top_beams=5, length_penalty=1.0, length_form="power"),
    "exact": DecodeConfig(beam=3, top_beams=2, exact=True),
    "plain sums": DecodeConfig(beam=4, length_penalty=0.0),
    "greedy": DecodeConfig(beam=1),
    "sampling": DecodeConfig(temperature=0.9, samples=3, seed=5),
    "top-k": DecodeConfig(temperature=1.1, top_k=4, samples=2),
    "top-p": DecodeConfig(temperature=1.3, top_p=0.8),
    "least": DecodeConfig(beam=3, min_len=5),
    "forbidden": DecodeConfig(beam=3, forbid=(4, 5, 6, 7)),
    "forced first": DecodeConfig(beam=3, force_first=9),
    "forced end": DecodeConfig(beam=3, force_end=True),
    "no repeats": DecodeConfig(beam=3, no_repeat=2),
    "greedy without repeats": DecodeConfig(beam=1, no_repeat=1, min_len=3),
    "wider than the vocabulary": DecodeConfig(beam=30, top_beams=30),
}


@pytest.mark.parametrize("name", SEARCHES)
def test_searches_of_a_translation_model(name):
    found = check(transformer(), SEARCHES[name])
    assert any(one.finished for several in found for one in several) or name == "least"


@pytest.mark.parametrize("name", SEARCHES)
def test_searches_of_a_language_model(name):
    check(gpt(), SEARCHES[name])


MODELS = {
    "norm first": {"norm_first": True},
    "grouped heads": {"kv_heads": 2},
    "one key head": {"kv_heads": 1, "qk_norm": True},
    "rotary": {"positions": "rotary"},
    "alibi": {"positions": "alibi"},
    "relative": {"positions": "relative", "relative_buckets": 8, "relative_distance": 20},
    "grouped relative": {"positions": "relative", "relative_buckets": 8, "relative_distance": 20, "kv_heads": 2},
    "learned": {"positions": "learned", "own_positions": True},
    "concatenated": {"position_how": "concatenate", "position_width": 4},
    "window": {"window": 3},
    "pruned": {"decoder_heads": (0, 2), "cross_heads": (3, 0)},
    "scaled output": {"scale_output": True, "output_bias": True, "gated": True, "activation": "silu", "norm": "rms"},
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("search_name", ["n-best", "top-k"])
def test_every_kind_of_translation_model(name, search_name):
    check(transformer(**MODELS[name]), SEARCHES[search_name])


@pytest.mark.parametrize("settings", [{"positions": "rotary", "kv_heads": 2}, {"window": 4}, {"layer_heads": (0, 2)}])
@pytest.mark.parametrize("search_name", ["n-best", "top-k"])
def test_every_kind_of_language_model(settings, search_name):
    check(gpt(**settings), SEARCHES[search_name])


@pytest.mark.parametrize("slots", [1, 3, 16])
def test_outputs_do_not_depend_on_who_takes_turns(slots):
    check(transformer(), SEARCHES["n-best"], slots=slots)


def test_as_long_as_the_model_has_positions():
    """A source that ends at the last position waits there without leaving the table."""
    check(transformer(positions="learned"), DecodeConfig(beam=2, forbid=(EOS,)), limit=40)


@torch.inference_mode()
def test_repetition_penalty():
    model, rows, limits = gpt(), rows_of(6), [12] * 6
    config = DecodeConfig(temperature=1.0, samples=1, seed=2)
    columns = decode(
        model,
        model.start(Tokens.of(rows)),
        torch.tensor([row[-1] for row in rows]),
        eos=EOS,
        max_len=12,
        pick=Sampler(uniform_numbers(2, range(6), samples=1, steps=12), temperature=1.0),
        constraints=[repetition(1.7, rows)],
    )
    expected = [one.tokens for one in collect(columns, eos=EOS, config=config)]
    decoder = DeviceDecoder(model, torch.device("cpu"), Tokens.of)
    room = decoder.room(config, sources=4, longest=13, steps=12)
    slots = decoder.slots(config, room, eos=EOS, penalty=1.7)
    sources = iter(
        (
            index,
            Source(
                row,
                len(row),
                row[-1],
                12,
                uniforms=uniform_numbers(2, [index], samples=1, steps=12),
                before=row,
            ),
        )
        for index, row in enumerate(rows)
    )
    found = {}
    for came in decoder.run(slots, lambda count: list(islice(sources, count))):
        found.update(came)
    assert [found[index][0].tokens for index in range(6)] == expected
    assert expected != [one[0].tokens for one in step_by_step(model, rows, config, limits)]


def test_one_that_is_gone_is_dropped_and_others_go_on():
    model, rows = transformer(), rows_of(5)
    config = replace(SEARCHES["beam"], forbid=(EOS,))
    decoder = DeviceDecoder(model, torch.device("cpu"), lambda items: Pairs(Tokens.of(items)))
    slots = decoder.slots(config, decoder.room(config, sources=2, longest=14, steps=20), eos=EOS)
    sources = iter((index, Source(row, len(row), BOS, 20)) for index, row in enumerate(rows))
    steps, found = 0, {}
    for came in decoder.run(slots, lambda count: list(islice(sources, count)), gone=lambda key: key == 1):
        steps += 1
        found.update(came)
    assert found.keys() == set(range(5))
    assert found[1] == []
    assert [len(found[index][0].tokens) for index in (0, 2, 3, 4)] == [20] * 4
    assert steps < 3 * 20  # its slot was given to another at once


def test_slots_are_used_again():
    model = transformer()
    decoder = DeviceDecoder(model, torch.device("cpu"), lambda items: Pairs(Tokens.of(items)))
    config = SEARCHES["beam"]
    room = decoder.room(config, sources=2, longest=14, steps=20)
    first = decoder.slots(config, room, eos=EOS)
    assert decoder.slots(config, room, eos=EOS) is not first  # two searches at a time have their own
    decoder.back(first)
    assert decoder.slots(replace(config, max_len=7), room, eos=EOS) is first


def test_buckets():
    assert [bucket(length) for length in (1, 16, 17, 1024, 1025, 3000)] == [16, 16, 32, 1024, 2048, 3072]
