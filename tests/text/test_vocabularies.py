"""One tokenizer.json for one or two vocabularies."""

import json

import pytest
import tokenizers

from regard.errors import ConfigError, DataError, RunError
from regard.text import Tokenizer, TokenizerConfig, Vocabularies, train_tokenizer, train_vocabularies
from regard.text.tokenizer_training import sampled

PAIRS = [("the street", "la rue"), ("the animal", "l'animal"), ("the wide street", "la rue large")]


@pytest.mark.parametrize("joint", [True, False])
def test_saved_vocabularies_come_back(tmp_path, joint):
    before = train_vocabularies(PAIRS, TokenizerConfig(kind="word", joint=joint))
    before.save(tmp_path / "tokenizer.json")
    after = Vocabularies.load(tmp_path / "tokenizer.json")
    assert before.joint is after.joint is joint
    assert after.digest() == before.digest()
    assert after.target.decode(after.target.encode("la rue")) == "la rue"
    assert (after.source.unk in after.source.encode("la rue")) is not joint
    assert [path.name for path in tmp_path.iterdir()] == ["tokenizer.json"]


def test_a_joint_file_is_the_librarys_own(tmp_path):
    vocabularies = train_vocabularies(PAIRS, TokenizerConfig(vocab_size=300))
    vocabularies.save(tmp_path / "tokenizer.json")
    plain = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert plain.encode("the street").ids == vocabularies.source.encode("the street")


def test_a_separate_file_names_its_sides(tmp_path):
    train_vocabularies(PAIRS, TokenizerConfig(kind="character", joint=False)).save(tmp_path / "tokenizer.json")
    state = json.loads((tmp_path / "tokenizer.json").read_text())
    assert state.keys() == {"source", "target"}
    assert Tokenizer.from_json(json.dumps(state["target"])).encode("l")


def test_joint_pairs_may_be_an_iterator_but_separate_ones_are_read_twice():
    assert train_vocabularies(iter(PAIRS), TokenizerConfig(kind="word")).joint
    with pytest.raises(DataError, match="read the pairs twice"):
        train_vocabularies(iter(PAIRS), TokenizerConfig(kind="word", joint=False))


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"{}", b"\xff\xfe", b'{"source": {}, "target": {}}', b'{"model": {"type": "BPE"}}']
)
def test_a_corrupt_file_is_named(tmp_path, content):
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content)
    with pytest.raises(RunError, match=r"tokenizer.json") as caught:
        Vocabularies.load(path)
    assert "\n" not in str(caught.value)


def with_parts(**parts):
    vocab = {"<pad>": 0, "<bos>": 1, "<eos>": 2, "<unk>": 3, "a": 4}
    state = json.loads(tokenizers.Tokenizer(tokenizers.models.WordLevel(vocab, "<unk>")).to_str())
    return json.dumps({**state, **parts})


@pytest.mark.parametrize("places", [("single",), ("pair",)])
def test_a_file_that_frames_texts_by_what_it_lacks_is_refused(tmp_path, places):
    unknown = {"SpecialToken": {"id": "[CLS]", "type_id": 0}}
    texts = {"single": [{"Sequence": {"id": "A", "type_id": 0}}], "pair": [{"Sequence": {"id": "B", "type_id": 0}}]}
    frame = {name: [*([unknown] if name in places else []), *texts[name]] for name in texts}
    path = tmp_path / "tokenizer.json"
    path.write_text(with_parts(post_processor={"type": "TemplateProcessing", **frame, "special_tokens": {}}))
    with pytest.raises(RunError, match=r"tokenizer.json: not a tokenizer"):
        Vocabularies.load(path)


def test_a_file_nested_too_deeply_is_named(tmp_path):
    (tmp_path / "tokenizer.json").write_text("[" * 100_000)
    with pytest.raises(RunError, match=r"tokenizer.json is not a tokenizer"):
        Vocabularies.load(tmp_path / "tokenizer.json")


def test_a_files_own_padding_and_cutting_are_left_out():
    padding = {"strategy": {"Fixed": 50}, "direction": "Right", "pad_to_multiple_of": None}
    padding |= {"pad_id": 0, "pad_type_id": 0, "pad_token": "<pad>"}
    cutting = {"direction": "Right", "max_length": 1, "strategy": "LongestFirst", "stride": 0}
    words = {"type": "WhitespaceSplit"}
    found = Tokenizer.from_json(with_parts(padding=padding, truncation=cutting, pre_tokenizer=words))
    assert found.encode("a a a") == [4, 4, 4]


def test_a_tokenizer_without_special_tokens_is_refused_by_name(tmp_path):
    path = tmp_path / "tokenizer.json"
    path.write_text(tokenizers.Tokenizer(tokenizers.models.BPE()).to_str())
    with pytest.raises(RunError, match=r"tokenizer.json: the vocabulary has no pad token; known names: <pad>, \[PAD\]"):
        Vocabularies.load(path)


def test_a_missing_file_and_an_unwritable_place_are_said(tmp_path):
    with pytest.raises(RunError, match="no such file"):
        Vocabularies.load(tmp_path / "none.json")
    with pytest.raises(RunError, match="cannot write"):
        train_vocabularies(PAIRS, TokenizerConfig(kind="word")).save(tmp_path / "no" / "tokenizer.json")


def test_a_tokenizer_is_trained_on_a_sample_of_many_texts_the_same_one_each_time():
    assert sampled(range(10), 20) == list(range(10))
    found = sampled(iter(range(10_000)), 100)
    assert found == sampled(range(10_000), 100)
    assert found == sorted(set(found))
    assert len(found) == 100
    assert 3000 < sum(found) / 100 < 7000
    pairs = [(f"a{n}", f"b{n}") for n in range(200)]
    config = TokenizerConfig(kind="word", vocab_size=1000, joint=False, sample=10)
    vocabularies = train_vocabularies(iter(pairs), config)
    assert vocabularies.source.vocab_size == vocabularies.target.vocab_size == 14  # ten words and four special tokens
    assert train_tokenizer((f"w{n}" for n in range(50)), TokenizerConfig(kind="word", sample=7)).vocab_size == 11
    with pytest.raises(ConfigError, match="sample=-1 must not be negative"):
        TokenizerConfig(sample=-1)
