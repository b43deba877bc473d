"""What every tokenizer must do: give text back, keep special tokens to itself, be the same every time."""

import subprocess
import sys
from itertools import pairwise

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.errors import ConfigError, DataError
from regard.text import Tokenizer, TokenizerConfig, train_tokenizer
from regard.text.tokenizer import panics

CORPUS = [
    "The animal didn't cross the street because it was too tired.",
    "L'animal n'a pas traversé la rue parce qu'il était trop fatigué.",
    "The agreement on the European Economic Area was signed in August 1992.",
    "L'accord sur la zone économique européenne a été signé en août 1992.",
    'She said: "it costs 3.14 euros (or 1,000 francs), doesn\'t it?"',
    "Aujourd'hui l’eau est froide, jusqu'à demain ; c'est-à-dire « très » froide !",
    "<eos> <eos> <pad> <pad> <bos> <unk> <eos>",
] * 3
KINDS = ("word", "spaced", "character", "bpe", "wordpiece", "unigram")
SIZES = {"word": 500, "spaced": 500, "character": 500, "bpe": 400, "wordpiece": 300, "unigram": 150}


def train(kind, texts=CORPUS, **settings):
    return train_tokenizer(texts, TokenizerConfig(kind=kind, vocab_size=SIZES[kind], **settings))


TOKENIZERS = {kind: train(kind) for kind in KINDS}
WORDS = sorted({word for text in CORPUS[:6] for word in text.split()})


def words(text):
    tokenizer = TOKENIZERS["word"]
    return tokenizer.pieces(tokenizer.encode(text))


@settings(deadline=None, derandomize=True, max_examples=200)
@given(text=st.text())
def test_bpe_gives_any_unicode_text_back_exactly(text):
    tokenizer = TOKENIZERS["bpe"]
    assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize("text", ["\0", "a\0b", "\r\n\t\x7f", "\u0301", "👩‍👩‍👧", "\u2028", "﻿x", " ", "￭ ␣ ▁ Ġ"])
def test_bpe_gives_hard_cases_back_exactly(text):
    tokenizer = TOKENIZERS["bpe"]
    assert tokenizer.decode(tokenizer.encode(text)) == text


@settings(deadline=None, derandomize=True, max_examples=200)
@given(text=st.text(alphabet="aé1 \n\t.,'’-(«»\"!<>_", max_size=30), lowercase=st.booleans())
def test_word_gives_back_every_text_whose_words_it_knows(text, lowercase):
    tokenizer = train("word", [text, "x"], lowercase=lowercase)
    ids = tokenizer.encode(text)
    assert tokenizer.unk not in ids
    assert tokenizer.decode(ids) == text


@settings(deadline=None, derandomize=True, max_examples=60)
@given(text=st.lists(st.sampled_from(WORDS)).map(" ".join))
@pytest.mark.parametrize("kind", ["word", "character", "unigram"])
def test_ordinary_text_of_known_words_comes_back(kind, text):
    tokenizer = TOKENIZERS[kind]
    ids = tokenizer.encode(text)
    assert tokenizer.unk not in ids
    assert tokenizer.decode(ids) == text


@settings(deadline=None, derandomize=True, max_examples=60)
@given(text=st.text(alphabet=st.sampled_from(sorted(set("".join(CORPUS)))), max_size=30))
@pytest.mark.parametrize("kind", ["character", "unigram"])
def test_any_spacing_of_known_characters_comes_back(kind, text):
    tokenizer = TOKENIZERS[kind]
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_words_are_split_from_punctuation_with_marks_on_the_affix():
    assert words("L'animal n'a pas traversé.") == ["L'￭", "animal", "n'￭", "a", "pas", "traversé", "￭."]
    assert words("l’eau") == ["l’￭", "eau"]
    assert words("jusqu'à demain") == ["jusqu'￭", "à", "demain"]
    assert words("It didn't, Aujourd'hui") == ["<unk>", "didn't", "￭,", "Aujourd'hui"]
    assert words("3.14 euros (or 1,000 francs),") == ["3.14", "euros", "(￭", "or", "1,000", "francs", "￭)", "￭,"]


def test_a_word_is_one_type_after_an_elision_and_after_a_space():
    tokenizer = TOKENIZERS["word"]
    assert tokenizer.encode("L'animal")[1] == tokenizer.encode("The animal")[1]


def test_every_character_is_a_piece_and_a_space_is_seen():
    tokenizer = TOKENIZERS["character"]
    assert tokenizer.pieces(tokenizer.encode("la rue")) == ["l", "a", "␣", "r", "u", "e"]


def test_wordpiece_marks_what_continues_a_word():
    tokenizer = TOKENIZERS["wordpiece"]
    pieces = tokenizer.pieces(tokenizer.encode("streets"))
    assert pieces == ["street", "##s"]
    assert tokenizer.decode(tokenizer.encode("the streets.")) == "the streets."


def test_byte_pieces_read_as_text_and_split_characters_as_escapes():
    tokenizer = TOKENIZERS["bpe"]
    pieces = tokenizer.pieces(tokenizer.encode("the été 漢"))
    assert "".join(piece for piece in pieces if "\\x" not in piece).startswith("the ét")
    assert pieces[-3:] == ["\\xe6", "\\xbc", "\\xa2"]
    assert not any("Ġ" in piece or "Ã" in piece for piece in pieces)
    assert tokenizer.pieces([0, 1, 2, 3]) == ["<pad>", "<bos>", "<eos>", "<unk>"]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "spaced"])
def test_text_that_spells_a_special_token_is_plain_text(kind):
    tokenizer = Tokenizer.from_json(TOKENIZERS[kind].to_json())
    for text in ("<eos>", "a <pad> b", "<bos><eos>", "<unk>"):
        ids = tokenizer.encode(text)
        assert len(ids) > 1
        assert not {tokenizer.pad, tokenizer.bos, tokenizer.eos} & set(ids)


def test_spaced_text_is_cut_at_spaces_and_lines_and_only_the_unknown_word_may_be_spelled():
    tokenizer = train("spaced", [" no it was n't <unk> \n n.v. N <unk>\n", "<eos> <UNK> no"], lowercase=True)
    ids = tokenizer.encode("no <unk>  n't\nN <eos> <pad> odd \n\n")
    assert tokenizer.pieces(ids) == ["no", "<unk>", "n't", "↵", "n", "<unk>", "<unk>", "<unk>", "↵", "↵"]
    assert ids.count(tokenizer.unk) == 4
    assert tokenizer.decode(ids) == "no <unk> n't\nn <unk> <unk> <unk>\n\n"
    assert tokenizer.vocab_size == 4 + len({"no", "it", "was", "n't", "\n", "n.v.", "n"})


@pytest.mark.parametrize("kind", KINDS)
def test_special_tokens_have_their_ids_and_are_left_out_of_decoded_text(kind):
    tokenizer = TOKENIZERS[kind]
    assert (tokenizer.pad, tokenizer.bos, tokenizer.eos, tokenizer.unk) == (0, 1, 2, 3)
    ids = tokenizer.encode("The animal")
    assert tokenizer.decode([1, *ids, 2, 0, 0]) == "The animal"
    assert tokenizer.decode([3]).strip() == "<unk>"


@pytest.mark.parametrize("kind", KINDS)
def test_offsets_cover_the_text_in_order(kind):
    tokenizer, text = TOKENIZERS[kind], "L'animal n'a pas traversé la rue (1992)."
    spans = tokenizer.offsets(text)
    assert len(spans) == len(tokenizer.encode(text))
    assert all(start < stop for start, stop in spans)
    assert all(before[0] <= after[0] and before[1] <= after[1] for before, after in pairwise(spans))
    covered = {place for start, stop in spans for place in range(start, stop)}
    assert {place for place, character in enumerate(text) if character != " "} <= covered


def test_offsets_of_words_leave_their_marks_out():
    text = "L'animal, (fatigué)."
    spans = TOKENIZERS["word"].offsets(text)
    assert [text[start:stop] for start, stop in spans] == ["L'", "animal", ",", "(", "fatigué", ")", "."]


@pytest.mark.parametrize("kind", KINDS)
def test_json_carries_the_whole_tokenizer(kind):
    tokenizer = TOKENIZERS[kind]
    again = Tokenizer.from_json(tokenizer.to_json())
    assert again.digest() == tokenizer.digest()
    assert again.encode_batch(CORPUS) == tokenizer.encode_batch(CORPUS)
    assert again.vocab_size == tokenizer.vocab_size <= SIZES[kind]
    plain = tokenizers.Tokenizer.from_str(tokenizer.to_json())
    assert plain.decode(tokenizer.encode("la rue")) == "la rue"


def test_training_is_the_same_in_another_process():
    # The library's hash tables are keyed at random in each process: the order of ties must not leak out of them.
    folder = str(__file__).rpartition("/")[0]
    code = f"import sys; sys.path.insert(0, {folder!r}); import test_tokenizers as t\n"
    code += "print(*(t.TOKENIZERS[kind].digest() for kind in t.KINDS))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [TOKENIZERS[kind].digest() for kind in KINDS]


def test_lowercase_and_min_count_are_obeyed():
    assert train("word", lowercase=True).encode("THE Animal") == train("word", lowercase=True).encode("the animal")
    rare = train("word", ["a a b"], min_count=2)
    assert rare.encode("a b") == [4, rare.unk]


def test_vocabularies_made_elsewhere_are_read_by_their_own_names():
    model = tokenizers.models.WordLevel({"[PAD]": 5, "[CLS]": 1, "[SEP]": 0, "[UNK]": 2, "a": 3}, unk_token="[UNK]")
    tokenizer = Tokenizer(tokenizers.Tokenizer(model))
    assert (tokenizer.pad, tokenizer.bos, tokenizer.eos, tokenizer.unk) == (5, 1, 0, 2)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kind": "bpe", "vocab_size": 259}, "vocab_size=259 must be at least 260"),
        ({"kind": "word", "vocab_size": 4}, "vocab_size=4 must exceed the 4 special tokens"),
        ({"min_count": 0}, "min_count=0 must be at least 1"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        TokenizerConfig(**settings)


@pytest.mark.parametrize("kind", ["wordpiece", "unigram"])
def test_a_vocabulary_too_small_for_the_characters_is_refused(kind):
    with pytest.raises(ConfigError, match="vocab_size=12 is too small"):
        train_tokenizer(CORPUS, TokenizerConfig(kind=kind, vocab_size=12))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("texts", [[], ["", " "]])
def test_an_empty_corpus_is_refused(kind, texts):
    with pytest.raises(DataError, match="no text to train"):
        train(kind, texts)


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_while_reading_the_corpus_is_passed_on(kind):
    def texts():
        yield "a"
        raise DataError("line 2 is broken")

    with pytest.raises(DataError, match="line 2 is broken"):
        train(kind, texts())


def test_half_a_surrogate_pair_and_an_unknown_id_are_refused():
    with pytest.raises(DataError, match="not Unicode text"):
        TOKENIZERS["bpe"].encode("a\ud800")
    with pytest.raises(DataError, match="not Unicode text"):
        TOKENIZERS["bpe"].encode_batch(["a", "\ud800"])
    with pytest.raises(DataError, match="no token has id 99999"):
        TOKENIZERS["bpe"].pieces([99999])


GREEDY = "a" * 40 + "b"
"""What the library's regular expressions give up on, with a panic: no Exception, but a BaseException."""


@pytest.fixture
def panicking():
    inner = tokenizers.Tokenizer.from_str(TOKENIZERS["word"].to_json())
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Split(tokenizers.Regex(r"(a+)+$"), "isolated")
    return Tokenizer(inner)


@pytest.mark.parametrize(
    "ask",
    [
        lambda tokenizer: tokenizer.encode(GREEDY),
        lambda tokenizer: tokenizer.encode_batch(["fine", GREEDY, "fine"]),
        lambda tokenizer: tokenizer.words(["fine", GREEDY]),
        lambda tokenizer: tokenizer.offsets(GREEDY),
        lambda tokenizer: tokenizer.split(GREEDY),
        lambda tokenizer: tokenizer.with_special_tokens(GREEDY),
        lambda tokenizer: tokenizer.with_special_tokens("fine", GREEDY),
    ],
)
def test_a_panic_of_the_library_is_an_error_that_names_the_text(panicking, ask):
    with pytest.raises(DataError, match=f"the tokenizer cannot read .*'{GREEDY}': it failed with 'Onig"):
        ask(panicking)


def test_an_interrupt_within_the_library_stays_one():
    with pytest.raises(KeyboardInterrupt), panics("cannot read"):
        raise KeyboardInterrupt
