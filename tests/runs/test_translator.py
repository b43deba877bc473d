import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.decode.config import DecodeConfig
from regard.errors import ConfigError, DataError
from regard.models.transformer import Transformer, TransformerConfig
from regard.tasks.translator import Translation, Translator, _join, split_text
from regard.text import TokenizerConfig, train_vocabularies

WORDS = ["the", "a", "cat", "dog", "sees", "hears", "big", "small", "red", "house", "runs", "sleeps", "and", "."]


@pytest.fixture(scope="module", params=["step by step", "on the device"])
def translator(request):
    """Both ways to decode, the second without a GPU's graphs."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "on the device":
            patch.setattr("regard.decode.device.DEVICES", ("cpu",))
        made = make_translator()
        assert made.resident(made.config) == (request.param == "on the device")
        yield made


def make_translator():
    pairs = [(" ".join(WORDS), " ".join(WORDS).upper())]
    vocabularies = train_vocabularies(pairs, TokenizerConfig(kind="word", vocab_size=100))
    torch.manual_seed(3)
    config = TransformerConfig(
        source_vocab_size=vocabularies.source.vocab_size,
        target_vocab_size=vocabularies.target.vocab_size,
        width=16,
        heads=2,
        encoder_layers=1,
        decoder_layers=1,
        feed_forward=16,
        dropout=0.0,
        max_len=12,
    )
    decode = DecodeConfig(beam=3, max_len=8, max_extra=2)
    return Translator(Transformer(config).eval(), vocabularies, decode, config.max_len)


def texts(found):
    return [[one.text for one in best] for best in found]


def test_sentences_are_translated_apart_in_the_order_given(translator):
    sentences = [" ".join(WORDS[:length]) for length in (3, 9, 1, 11, 2, 5)]
    together = translator.translate(sentences)
    for budget in (1, 30):
        assert texts(translator.translate(sentences, budget=budget)) == texts(together)
    assert texts(translator.translate([one])[0] for one in sentences) == texts(together)
    assert texts(translator.translate(sentences[::-1])) == texts(together)[::-1]
    assert texts(translator.stream(sentences, window=2)) == texts(together)
    assert translator.translate([]) == []


def test_nbest_is_sorted_and_begins_with_the_best(translator):
    best = translator.translate(["the cat sees"])[0]
    several = translator.translate(["the cat sees"], DecodeConfig(beam=3, top_beams=3, max_len=8, max_extra=2))[0]
    assert len(best) == 1
    assert len(several) == 3
    assert several[0] == best[0]
    assert [one.score for one in several] == sorted((one.score for one in several), reverse=True)
    assert len({one.pieces for one in several}) == 3


@pytest.mark.parametrize("blank", ["", " ", "\t \u3000"])
def test_blank_gives_blank_as_often_as_asked(translator, blank):
    assert texts(translator.translate(["the cat", blank, "dog"]))[1] == [""]
    assert texts(translator.translate([blank], DecodeConfig(beam=3, top_beams=3))) == [["", "", ""]]
    assert texts(translator.translate([blank], DecodeConfig(temperature=1.0, samples=2))) == [["", ""]]


def test_a_long_sentence_is_translated_in_pieces_and_joined(translator):
    first, second, third = "the cat sees a big red house .", "the dog sleeps .", "a cat hears a dog and runs"
    found = translator.translate([f"{first} {second} {third}"])[0]
    # Eight and four tokens are more than the eleven that fit; so each is a piece of its own, or with its neighbour.
    parts = split_text(f"{first} {second} {third}", lambda text: len(translator.vocabularies.source.encode(text)), 11)
    assert parts == [first, f"{second} {third}"]
    pieces = [translator.translate([part])[0][0] for part in parts]
    assert found[0].text == " ".join(one.text for one in pieces if one.text)
    assert found[0].log_prob == pytest.approx(sum(one.log_prob for one in pieces))
    assert found[0].pieces == tuple(itertools.chain.from_iterable(one.pieces for one in pieces))


def test_too_long_is_cut_or_refused_where_asked(translator):
    long = " ".join(WORDS)
    cut = translator.translate([long], overlong="truncate")
    assert texts(cut) == texts(translator.translate([" ".join(WORDS[:11])]))
    with pytest.raises(DataError, match="sentence 8 has 14 tokens; the model reads at most 11"):
        translator.translate(["dog", long], overlong="refuse", before=6)
    with pytest.raises(DataError, match="sentence 5 has 14 tokens"):
        list(translator.stream(["dog"] * 4 + [long], overlong="refuse", window=2))


def test_draws_belong_to_the_sentences_number(translator):
    config = DecodeConfig(temperature=1.0, samples=2, seed=5, max_len=8, max_extra=2)
    sentences = ["the cat sees", "dog", " ".join(WORDS), "the cat sees", ""] * 3
    whole = translator.translate(sentences, config)
    assert texts(translator.stream(sentences, config, window=4)) == texts(whole)
    assert texts(translator.translate(sentences, config, budget=1)) == texts(whole)
    assert texts(translator.translate(sentences[7:], config, before=7)) == texts(whole)[7:]
    assert whole[0] != whole[3]
    assert all(len(one) == 2 for one in whole)


def test_an_output_ended_by_force_is_not_finished(translator):
    eos = translator.vocabularies.target.eos
    settings = {"max_len": 5, "max_ratio": None, "forbid": (eos,), "beam": 2}
    for end in (False, True):
        for search in ({}, {"beam": 1}, {"temperature": 1.0, "beam": 1}):
            found = translator.translate(["the cat"], DecodeConfig(**{**settings, **search, "force_end": end}))[0][0]
            assert len(found.tokens) == 5 - end
            assert not found.finished
    assert translator.translate([""])[0][0].finished
    # A sentence in pieces is finished where all of them are.
    pieces = [[Translation("a", 0.0, 0.0, (), (), one)] for one in (True, False, True)]
    assert not _join(pieces, DecodeConfig())[0].finished
    assert _join(pieces[::2], DecodeConfig())[0].finished


def scored(values, name):
    return [
        Translation(text=f"{name}{i}", score=v, log_prob=2 * v, tokens=(i,), pieces=(name,))
        for i, v in enumerate(values)
    ]


scores = st.lists(st.floats(-9, 0), min_size=1, max_size=4).map(lambda values: sorted(values, reverse=True))


@given(parts=st.lists(scores, min_size=1, max_size=3), best=st.integers(1, 4))
def test_the_joined_are_the_best_of_all_ways_to_join(parts, best):
    pieces = [scored(values, name)[:best] for values, name in zip(parts, "abc", strict=False)]
    found = _join(pieces, DecodeConfig(beam=4, top_beams=best))
    ways = sorted((sum(one.score for one in way) for way in itertools.product(*pieces)), reverse=True)[:best]
    assert [one.score for one in found] == pytest.approx(ways)
    assert found[0].text == " ".join(f"{name}0" for name, _ in zip("abc", parts, strict=False))
    assert all(one.log_prob == pytest.approx(2 * one.score) for one in found)


def test_what_is_drawn_is_joined_in_the_order_drawn_and_blanks_leave_no_space():
    drawn = DecodeConfig(temperature=1.0, samples=2)
    joined = _join([scored([-5.0, -1.0], "a"), scored([-9.0, -2.0], "b")], drawn)
    assert [one.text for one in joined] == ["a0 b0", "a1 b1"]
    silent = [Translation(text="", score=0.0, log_prob=0.0, tokens=(), pieces=())]
    assert _join([silent, scored([-1.0], "b"), silent], DecodeConfig())[0].text == "b0"


@given(text=st.text(alphabet="ab .。! \t", max_size=60), room=st.integers(1, 9))
def test_split_parts_fit_and_lose_nothing(text, room):
    parts = split_text(text, len, room)
    assert all(len(part) <= room for part in parts)
    assert all(parts) or parts == [""]
    assert "".join("".join(parts).split()) == "".join(text.split())


def test_split_prefers_sentences_then_words_then_characters():
    assert split_text("One two. Three four! Five.", len, 16) == ["One two.", "Three four!", "Five."]
    assert split_text("One two. Three four! Five.", len, 21) == ["One two. Three four!", "Five."]
    assert split_text("one two three", len, 7) == ["one two", "three"]
    assert split_text("一二三。四五六。", len, 4) == ["一二三。", "四五六。"]
    assert split_text("abcdefgh", len, 4) == ["abcd", "efgh"]


def test_a_run_refuses_what_is_not_a_list(translator, tmp_path):
    from regard import Run, make_config

    config = make_config(None, "tiny", ["model.width=16", "model.heads=2", "model.max_len=12", "data.max_len=12"])
    run = Run(tmp_path, config.with_vocabularies(translator.vocabularies), translator.vocabularies, translator.model)
    (best,) = texts(translator.translate(["the cat"]))
    assert run.translate(["the cat"], beam=3, max_len=8, max_extra=2) == best
    assert run.translate([]) == []
    for ask in (run.translate, run.translations):
        with pytest.raises(DataError, match="give a list of sentences"):
            ask("the cat")
    with pytest.raises(ConfigError, match=r"unknown setting 'decode.bema'; did you mean 'decode.beam'\?"):
        run.translate(["the cat"], bema=3)
    assert run.decode_config(beam=2).top_beams == 1


def test_batches_on_a_cpu_are_sized_by_the_free_memory(monkeypatch):
    monkeypatch.setattr("regard.decode.device.DEVICES", ())
    made, sizes = make_translator(), []
    decode = made._decode_batch
    monkeypatch.setattr(made, "_decode_batch", lambda batch, **how: sizes.append(len(batch)) or decode(batch, **how))
    sentences = [" ".join(WORDS[:5])] * 12
    whole = texts(made.translate(sentences))
    assert sizes == [12]
    one = made._source_bytes(made.config)(6)
    monkeypatch.setattr("regard.decode.memory.free_memory", lambda: 8 * 5 * one + 8)  # an eighth has room for five
    sizes.clear()
    assert texts(made.translate(sentences)) == whole
    assert sizes == [5, 5, 2]
    monkeypatch.setattr("regard.decode.memory.free_memory", lambda: 0)
    sizes.clear()
    assert texts(made.translate(sentences[:2])) == whole[:2]
    assert sizes == [1, 1]
