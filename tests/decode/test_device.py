"""The device-resident decoder finds what the step-by-step searches find, for every setting and model that it serves."""

from dataclasses import replace
from itertools import islice

import pytest
import torch

from regard.decode.config import DecodeConfig
from regard.decode.constraints import repetition
from regard.decode.device import DeviceDecoder
from regard.decode.greedy import collect, decode
from regard.decode.sample import Sampler, uniform_numbers
from regard.decode.search import search
from regard.decode.slots import BeamSlots, FixedStepper, Room, Rules, Source, bucket
from regard.errors import RegardWarning
from regard.models.gpt import GPT, GPTConfig
from regard.models.transformer import Transformer, TransformerConfig
from regard.nn.batch import Pairs, Tokens

EOS, BOS, V = 2, 1, 211
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
SMALL: dict = {"width": 64, "heads": 4, "feed_forward": 64, "dropout": 0.0, "max_len": 40}


def transformer(vocab: int = V, **settings) -> Transformer:
    torch.manual_seed(3)
    config = TransformerConfig(
        source_vocab_size=vocab,
        target_vocab_size=vocab,
        encoder_layers=2,
        decoder_layers=2,
        **SMALL | {"output_bias": True} | settings,
    )
    model = Transformer(config).eval()
    sharpen(model)
    if model.head.bias is not None:
        with torch.no_grad():
            model.head.bias[EOS] = 6.0  # so that many outputs end before they must
    return model.to(DEVICE)


def gpt(**settings) -> GPT:
    torch.manual_seed(4)
    model = GPT(GPTConfig(vocab_size=V, layers=2, **SMALL | settings)).eval()
    sharpen(model)
    return model.to(DEVICE)


def sharpen(model: torch.nn.Module) -> None:
    """Weights large enough that a row's next choice depends on all it has chosen."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(2.0)


def rows_of(count: int, seed: int = 0) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 14, (count,), generator=generator).tolist()
    return [torch.randint(3, 23, (length,), generator=generator).tolist() for length in lengths]


def pairs_of(items, length: int | None = None) -> Pairs:
    return Pairs(tokens_of(items, length))


def tokens_of(items, length: int | None = None) -> Tokens:
    return Tokens.of(items, length=length).to(DEVICE)


@torch.inference_mode()
def step_by_step(model, rows, config, limits):
    if isinstance(model, Transformer):
        state, first = model.start(Pairs(Tokens.of(rows).to(DEVICE))), torch.full((len(rows),), BOS, device=DEVICE)
    else:
        state = model.start(Tokens.of(rows).to(DEVICE))
        first = torch.tensor([row[-1] for row in rows], device=DEVICE)
    return search(model, state, first, eos=EOS, config=config, max_len=torch.tensor(limits))


def on_device(model, rows, config, limits, *, slots=4):
    """What the device-resident decoder finds, with fewer slots than sources: they take turns."""
    pairs = isinstance(model, Transformer)
    decoder = DeviceDecoder(model, DEVICE, pairs_of if pairs else tokens_of)
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
    return all_of(decoder, sources, config, slots)


def all_of(decoder, sources, config, slots, **options):
    """What comes of sources, given out as slots become free, never more than so many at a time."""
    out, found = 0, {}

    def pull(count: int) -> list:
        nonlocal out
        given = list(islice(sources, min(count, slots - out)))
        out += len(given)
        return given

    for came in decoder.run(pull, config, eos=EOS, longest=14, steps=40, **options):
        found.update(came)
        out -= len(came)
    return [found[index] for index in range(len(found))]


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
            assert mine.log_prob == pytest.approx(theirs.log_prob, rel=1e-5, abs=1e-4)
            assert mine.score == pytest.approx(theirs.score, rel=1e-5, abs=1e-4)
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
    "min-p": DecodeConfig(temperature=1.3, min_p=0.1, samples=2),
    "least": DecodeConfig(beam=3, min_len=5),
    "forbidden": DecodeConfig(beam=3, forbid=(4, 5, 6, 7)),
    "forced first": DecodeConfig(beam=3, force_first=9),
    "forced end": DecodeConfig(beam=3, force_end=True),
    "no repeats": DecodeConfig(beam=3, no_repeat=2),
    "greedy without repeats": DecodeConfig(beam=1, no_repeat=1, min_len=3),
}


@pytest.mark.parametrize("name", SEARCHES)
def test_searches_of_a_translation_model(name):
    found = check(transformer(), SEARCHES[name])
    assert any(one.finished for several in found for one in several) or name == "least"


@pytest.mark.parametrize("name", SEARCHES)
def test_searches_of_a_language_model(name):
    check(gpt(), SEARCHES[name])


def test_a_beam_wider_than_the_vocabulary():
    check(transformer(vocab=23), DecodeConfig(beam=30, top_beams=30))


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


LANGUAGE_MODELS = [
    {"positions": "rotary", "kv_heads": 2},
    {"window": 4},
    {"layer_heads": (0, 2)},
    {"positions": "alibi", "kv_heads": 2},
    {"positions": "relative", "relative_buckets": 8, "relative_distance": 20},
]


@pytest.mark.parametrize("settings", LANGUAGE_MODELS)
@pytest.mark.parametrize("search_name", ["n-best", "top-k"])
def test_every_kind_of_language_model(settings, search_name):
    check(gpt(**settings), SEARCHES[search_name])


@pytest.mark.parametrize("slots", [1, 3, 16])
@pytest.mark.parametrize("name", ["n-best", "top-k"])
def test_outputs_do_not_depend_on_who_takes_turns(slots, name):
    check(transformer(), SEARCHES[name], slots=slots)


@pytest.mark.parametrize("name", ["n-best", "top-k"])
def test_slots_become_more_and_fewer_while_sources_are_under_way(name):
    """One comes first, then five at once, then one by one, then nothing more while the last go on."""
    model, rows, config = transformer(), rows_of(24), replace(SEARCHES[name], forbid=(EOS,))
    limits = [3 + 7 * (index % 5) for index in range(24)]
    sources = [
        (
            index,
            Source(row, len(row), BOS, limit, uniforms=uniform_numbers(0, [index], samples=config.samples, steps=40)),
        )
        for index, (row, limit) in enumerate(zip(rows, limits, strict=True))
    ]
    arrivals = iter([sources[:1], [], sources[1:6], *([one] for one in sources[6:12]), [], [], sources[12:]])
    decoder, found, sizes = DeviceDecoder(model, DEVICE, pairs_of), {}, set()
    for came in decoder.run(lambda count: next(arrivals, []), config, eos=EOS, longest=14, steps=40):
        found.update(came)
        sizes |= {key[1].sources for key in decoder._idle}
    expected = step_by_step(model, rows, config, limits)
    assert [[one.tokens for one in found[index]] for index in range(24)] == [
        [one.tokens for one in several] for several in expected
    ]
    assert len(sizes) > 2


def test_as_long_as_the_model_has_positions():
    """A source that ends at the last position waits there without leaving the table."""
    check(transformer(positions="learned"), DecodeConfig(beam=2, forbid=(EOS,)), limit=40)


@torch.inference_mode()
def test_repetition_penalty():
    model, rows, limits = gpt(), rows_of(6), [12] * 6
    config = DecodeConfig(temperature=1.0, samples=1, seed=2)
    columns = decode(
        model,
        model.start(tokens_of(rows)),
        torch.tensor([row[-1] for row in rows], device=DEVICE),
        eos=EOS,
        max_len=12,
        pick=Sampler(uniform_numbers(2, range(6), samples=1, steps=12).to(DEVICE), temperature=1.0),
        constraints=[repetition(1.7, rows, DEVICE)],
    )
    expected = [one.tokens for one in collect(columns, eos=EOS, config=config)]
    decoder = DeviceDecoder(model, DEVICE, tokens_of)
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
    found = all_of(decoder, sources, config, 4, penalty=1.7)
    assert [several[0].tokens for several in found] == expected
    assert expected != [one[0].tokens for one in step_by_step(model, rows, config, limits)]


def test_one_that_is_gone_is_dropped_and_others_go_on():
    model, rows = transformer(), rows_of(5)
    config = replace(SEARCHES["beam"], forbid=(EOS,))
    decoder = DeviceDecoder(model, DEVICE, pairs_of)
    sources = iter((index, Source(row, len(row), BOS, 20)) for index, row in enumerate(rows))
    found = all_of(decoder, sources, config, 2, gone=lambda key: key == 1)
    assert len(found) == 5
    assert found[1] == []
    assert [len(found[index][0].tokens) for index in (0, 2, 3, 4)] == [20] * 4


def test_slots_are_used_again():
    model = transformer()
    decoder = DeviceDecoder(model, DEVICE, pairs_of)
    config = SEARCHES["beam"]
    room = decoder.room(config, sources=2, longest=14, steps=20)
    first = decoder.slots(config, room, eos=EOS)
    assert decoder.slots(config, room, eos=EOS) is not first  # two searches at a time have their own
    decoder.back(first)
    assert decoder.slots(replace(config, max_len=7), room, eos=EOS) is first


@pytest.mark.parametrize("fits", [2, 5])
def test_where_memory_is_short_fewer_are_decoded_together(fits, monkeypatch):
    model, config, asked = transformer(), DecodeConfig(beam=2), []
    allocate = Transformer.allocate

    def short(self, room):
        asked.append(room.sources)
        if room.sources > fits:
            raise torch.OutOfMemoryError("too little")
        return allocate(self, room)

    monkeypatch.setattr(Transformer, "allocate", short)
    monkeypatch.setattr(DeviceDecoder, "_fitting", lambda self, room: 64)
    with pytest.warns(RegardWarning, match="memory is free to decode 64 sources together; going on with [24]"):
        check(model, config, count=23, slots=23)
    assert asked.count(64) == 1  # what did not fit is not tried again


def test_slots_are_not_used_again_with_other_weights():
    model, rows, config = transformer(), rows_of(3), SEARCHES["beam"]
    decoder = DeviceDecoder(model, DEVICE, pairs_of)
    for scale in (1.0, 0.5):
        with torch.no_grad():
            model.decoder[0].attention.query.weight.mul_(scale)
            model.decoder[1].attention.value.weight.mul_(scale)
        sources = iter((index, Source(row, len(row), BOS, 12)) for index, row in enumerate(rows))
        found = all_of(decoder, sources, config, 4)
        expected = step_by_step(model, rows, config, [12] * 3)
        assert [one[0].log_prob for one in found] == pytest.approx([one[0].log_prob for one in expected], abs=1e-4)


def test_buckets():
    assert [bucket(length) for length in (1, 16, 17, 1024, 1025, 3000)] == [16, 16, 32, 1024, 2048, 3072]


@pytest.mark.skipif(DEVICE.type != "cuda", reason="needs a GPU")
class TestKernels:
    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
    @pytest.mark.parametrize(("heads", "groups", "width", "cells"), [(8, 8, 5, 160), (4, 1, 3, 48), (2, 2, 1, 512)])
    def test_attention(self, dtype, heads, groups, width, cells):
        from regard.nn.decoding_kernels import attend

        torch.manual_seed(0)
        B, K = 6, 32
        q = torch.randn(B, heads, width, K, device=DEVICE, dtype=dtype)
        store = torch.randn(B, 2 * groups, cells + 16, K, device=DEVICE, dtype=dtype)
        visible = torch.rand(B, 1, width, cells, device=DEVICE) < 0.4
        visible[..., 7] = True
        bias = torch.zeros(visible.shape, device=DEVICE, dtype=dtype).masked_fill_(~visible, -torch.inf)
        k, v = (torch.randn(B, groups, width, K, device=DEVICE, dtype=dtype) for _ in range(2))
        into = torch.stack([torch.randperm(cells, device=DEVICE)[:width] for _ in range(B)])
        wanted = store.clone()
        wanted.scatter_(2, into[:, None, :, None].expand(B, 2 * groups, width, K), torch.cat((k, v), 1))
        keys, values = (
            part[:, :, :cells].repeat_interleave(heads // groups, 1)
            for part in (wanted[:, :groups], wanted[:, groups:])
        )
        expected = torch.nn.functional.scaled_dot_product_attention(
            q.double(), keys.double(), values.double(), attn_mask=bias.double().expand(B, heads, width, cells)
        )
        found = attend(q, store, bias, K**-0.5, (k, v, into))
        assert torch.equal(store, wanted)
        close = 1e-5 if dtype == torch.float32 else 2e-2
        torch.testing.assert_close(found.double(), expected.transpose(1, 2).flatten(2), atol=close, rtol=close)

    @pytest.mark.parametrize(("vocabulary", "width"), [(32_000, 5), (50_257, 2), (1000, 3)])
    @pytest.mark.parametrize("exact", [False, True])
    def test_a_step_of_beam_search(self, vocabulary, width, exact):
        """What the kernels leave after each of several steps is what torch leaves, of rounded scores with many ties."""
        config = DecodeConfig(beam=width, min_len=2, length_penalty=1.0, exact=exact)
        mine, theirs = (
            BeamSlots(Sliced(vocabulary), Room(4, width, 16, 16), Rules(config, 7, (), 1.0), DEVICE, config)
            for _ in range(2)
        )
        assert mine.kernels is not None
        assert mine.kernels.serves_beam(width, vocabulary, 2 * width)
        theirs.kernels = None
        generator = torch.Generator(DEVICE).manual_seed(width)
        for slots in (mine, theirs):
            slots.fill([Source([3], 1, 0, limit) for limit in (16, 16, 3, 16)], [0, 1, 2, 3], tokens_of)
        for _ in range(6):
            logits = torch.randint(-20, 20, (4 * width, vocabulary), device=DEVICE, generator=generator) / 4
            logits[:, 7] = torch.rand(4 * width, device=DEVICE, generator=generator) * 12
            for slots in (mine, theirs):
                slots._choose(logits.clone(), 16)
            for name, value in mine._changing().items():
                other = theirs._changing()[name]
                if name.startswith("pool"):
                    continue  # in another order
                close(value, other, name)
            for name in ("pool_scores", "pool_order", "pool_parents", "pool_steps", "pool_sums"):
                one, two = (
                    getattr(slots, name)
                    .gather(1, slots.pool_order.sort(dim=1, descending=True, stable=True).indices)
                    .double()
                    for slots in (mine, theirs)
                )
                close(one, two, name)
        assert (theirs.pool_scores > -torch.inf).any()
        assert not theirs.running.all()

    def test_what_is_not_a_number_is_told(self):
        config = DecodeConfig(beam=2)
        slots = BeamSlots(Sliced(4096), Room(2, 2, 16, 16), Rules(config, 7, (), 1.0), DEVICE, config)
        slots.fill([Source([3], 1, 0, 9)] * 2, [0, 1], tokens_of)
        logits = torch.zeros(4, 4096, device=DEVICE)
        slots._choose(logits, 16)
        logits[3, 100] = torch.nan
        slots._choose(logits, 16)
        assert slots.failed.tolist() == [False, True]
        assert slots.running.tolist() == [True, False]


def close(one: torch.Tensor, other: torch.Tensor, name: str) -> None:
    torch.testing.assert_close(one, other, atol=2e-5, rtol=0, msg=lambda text: f"{name}: {text}")


class Sliced:
    """A stepper of which only the choice is tested."""

    def __init__(self, choices: int) -> None:
        self.choices = choices

    def allocate(self, room: Room) -> "Sliced":
        self.position = torch.zeros(room.sources, dtype=torch.long, device=DEVICE)
        self.parents = torch.zeros(room.sources, room.width, dtype=torch.long, device=DEVICE)
        state = Sliced(self.choices)
        state.position, state.parents = self.position, self.parents
        return state

    def fill(self, batch, state, slots) -> None:
        state.position.index_fill_(0, slots, 0)

    def reorder(self, parents) -> None:
        self.parents.copy_(parents)
