"""SentencePiece models as pipelines: the same pieces as the library itself and as `transformers`; the rest refused."""

import json
import random
import re
import warnings

import pytest
import tokenizers

from regard.errors import DataError, RunError
from regard.interop.huggingface.tokenizer_files import marian_tokenizers, read_vocabularies, t5_tokenizer
from regard.text import Vocabularies
from regard.text.tokenizer import Tokenizer

sentencepiece = pytest.importorskip("sentencepiece")
pytest.importorskip("google.protobuf")
transformers = pytest.importorskip("transformers")

TEXT = {
    "source": "the cat sat on the mat and the dogs ran. What a day, isn't it? He said: no. 1992 was ﬁne",
    "target": "le chat était assis sur l'étagère; où sont les chiens? Il a dit non. Été 1992, ça va bien",
}
TRIED = [
    "the cat sat on the dogs",
    "  the   cat\tsat ",
    "Où était le chat? ÉTÉ",
    "ﬁne ½ ﬀ ＡＢＣ",
    "unknown 漢字 here",
    "a\u00a0b \u200bc",
    "e\u0301te\u0301",
    "",
    "x",
    "isn't 1992, it?",
    "…—“quotes”",
]


def train(folder, side, **options):
    words = TEXT[side].split()
    lines = [" ".join(words[start : start + 5]) for start in range(len(words)) for _ in range(6)]
    (folder / f"{side}.txt").write_text("\n".join(lines), encoding="utf-8")
    options = {"model_type": "unigram", "vocab_size": 70, "hard_vocab_limit": False, "minloglevel": 2} | options
    sentencepiece.SentencePieceTrainer.train(
        input=str(folder / f"{side}.txt"), model_prefix=str(folder / side), **options
    )
    path = folder / f"{side}.model"
    return path.rename(path.with_suffix(".spm"))


@pytest.fixture(scope="module")
def marian(tmp_path_factory):
    """A directory as Marian's: two models, one table of numbers over both."""
    folder = tmp_path_factory.mktemp("spm")
    models = [sentencepiece.SentencePieceProcessor(str(train(folder, side))) for side in ("source", "target")]
    pieces = {model.id_to_piece(index) for model in models for index in range(model.vocab_size())}
    numbers = ["</s>", "<unk>", *sorted(pieces - {"<s>", "</s>", "<unk>"}), ">>fra<<", "<pad>"]
    (folder / "vocab.json").write_text(json.dumps({piece: index for index, piece in enumerate(numbers)}))
    return folder, models, numbers


def test_pieces_are_those_of_the_library(marian):
    folder, models, numbers = marian
    made = marian_tokenizers(*(folder / name for name in ("source.spm", "target.spm", "vocab.json")))
    for pipeline, model in zip(made, models, strict=True):
        pipeline.encode_special_tokens = True
        for text in [*TRIED, *TEXT.values()]:
            wanted = [piece if piece in numbers else "<unk>" for piece in model.encode(text, out_type=str)]
            wanted = [piece if model.piece_to_id(piece) != model.unk_id() else "<unk>" for piece in wanted]
            assert [numbers[index] for index in pipeline.encode(text, add_special_tokens=False).ids] == wanted, text
    ids = made[0].encode(">>fra<< the cat").ids
    assert numbers[ids[0]] == ">>fra<<"
    assert ids[1:] == made[0].encode("the cat").ids


def test_the_directory_is_read_as_transformers_reads_it(marian):
    folder, _, numbers = marian
    config = {"eos_token_id": 0, "pad_token_id": len(numbers) - 1}
    entries = (len(numbers), len(numbers))
    ours, settings = read_vocabularies(folder, config, entries=entries, start="pad_token_id")
    assert (settings.eos, settings.bos, settings.joint, settings.kind) == ("</s>", "<pad>", False, "unigram")
    with warnings.catch_warnings(action="ignore"):  # it recommends another package
        files = (str(folder / name) for name in ("source.spm", "target.spm", "vocab.json"))
        theirs = transformers.MarianTokenizer(*files)
    for text in ["the cat sat on the dogs", "isn't 1992, it?", ">>fra<< What a day"]:
        assert ours.source_row(ours.source.encode(text)) == theirs(text)["input_ids"]
    target = theirs(text_target="le chat était assis")["input_ids"]
    assert ours.target_row(ours.target.encode("le chat était assis"))[1:] == target
    assert ours.target.decode(target) == theirs.decode(target, skip_special_tokens=True)
    with pytest.raises(DataError, match="vocab_size=9 is fewer"):
        read_vocabularies(folder, config, entries=(9, 9))


LETTERS = "abcdefgéèñ 的世京漢字ßœ.,!?'’0123½ﬁ…\u00a0\u200b\uffff"


def mismatched(folder, seed):
    """A Marian directory whose sides and whose vocab.json each lack pieces of the others, as real ones do."""
    draw = random.Random(seed)
    for side, letters in (("source", LETTERS[:12] + "世"), ("target", LETTERS[4:18] + "’")):
        words = ["".join(draw.choices(letters.replace(" ", ""), k=draw.randint(1, 6))) for _ in range(60)]
        lines = [" ".join(draw.choices(words, k=6)) for _ in range(200)]
        (folder / f"{side}.txt").write_text("\n".join(lines), encoding="utf-8")
        sentencepiece.SentencePieceTrainer.train(
            input=str(folder / f"{side}.txt"), model_prefix=str(folder / side), model_type="unigram", vocab_size=60,
            hard_vocab_limit=False, minloglevel=2, split_by_whitespace=draw.random() < 0.7,
            character_coverage=draw.choice([0.98, 1.0]),
        )  # fmt: skip
        (folder / f"{side}.model").rename(folder / f"{side}.spm")
    models = [sentencepiece.SentencePieceProcessor(str(folder / f"{side}.spm")) for side in ("source", "target")]
    pieces = sorted({model.id_to_piece(index) for model in models for index in range(model.vocab_size())})
    kept = [piece for piece in pieces if piece not in ("<s>", "</s>", "<unk>") and draw.random() < 0.9]
    numbers = ["</s>", "<unk>", *kept, "▁only", "of", "none", ">>fra<<", ">>deu<<", "<pad>"]
    (folder / "vocab.json").write_text(json.dumps({piece: index for index, piece in enumerate(numbers)}))
    return numbers, len(pieces) - 3 - len(kept)


@pytest.mark.parametrize("seed", range(8))
def test_sides_that_do_not_match_are_cut_and_joined_as_transformers_does(seed, tmp_path):
    numbers, lost = mismatched(tmp_path, seed)
    config = {"eos_token_id": 0, "pad_token_id": len(numbers) - 1}
    said = []
    entries = (len(numbers), len(numbers))
    made, _ = read_vocabularies(tmp_path, config, entries=entries, start="pad_token_id", tell=said.append)
    assert lost
    assert len(said) == 1
    assert re.search(r"(source|target)\.spm .*vocab\.json has no number for.*count as unknown", said[0])
    made.save(tmp_path / "tokenizer.json")
    with warnings.catch_warnings(action="ignore"):  # it recommends another package
        theirs = transformers.MarianTokenizer(*(str(tmp_path / f) for f in ("source.spm", "target.spm", "vocab.json")))
    draw, unknown = random.Random(seed), 0
    for ours in (made, Vocabularies.load(tmp_path / "tokenizer.json", "</s>", "<pad>")):
        assert ours.source.vocab_size == ours.target.vocab_size == len(numbers)
        for _ in range(150):
            text = draw.choice(["", "", ">>fra<< "]) + "".join(draw.choices(LETTERS, k=draw.randint(0, 30)))
            expected = theirs(text)["input_ids"]
            assert ours.source_row(ours.source.encode(text)) == expected, text
            assert ours.source.encode_batch([text]) == [expected[:-1]]
            assert len(ours.source.offsets(text)) == len(expected) - 1
            expected = theirs(text_target=text)["input_ids"]
            assert ours.target_row(ours.target.encode(text))[1:] == expected, text
            unknown += expected.count(1)
            ids = draw.choices(range(2, len(numbers) - 1), k=draw.randint(0, 12))
            for side in (ours.source, ours.target):
                assert side.decode([*ids, 0]) == theirs.decode([*ids, 0], skip_special_tokens=True)
                assert side.pieces(ids) == [numbers[index].replace("▁", " ") for index in ids]
    assert unknown


def test_a_run_imported_before_writes_the_other_sides_pieces_too():
    """Its tokenizer has the mark before such pieces, and joins them as Metaspace does."""
    pieces = [("</s>", 0.0), ("<unk>", 0.0), ("▁tn", -1.0), ("\uffff世", -2.0), ("\uffff▁京", -2.0), ("<pad>", 0.0)]
    inner = tokenizers.Tokenizer(tokenizers.models.Unigram(pieces, 1, False))
    inner.decoder = tokenizers.decoders.Metaspace("▁", prepend_scheme="always")
    made = Tokenizer(inner, "</s>", "<pad>")
    assert made.decode([2, 3, 4, 0]) == "tn世 京"
    assert made.pieces([2, 3, 4]) == [" tn", "世", " 京"]


def test_t5_has_the_models_own_numbers_and_extra_ones(tmp_path):
    path = train(tmp_path, "source", pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
    model = sentencepiece.SentencePieceProcessor(str(path))
    made = t5_tokenizer(path, 10)
    assert made.get_vocab_size() == model.vocab_size() + 10
    assert made.token_to_id("<extra_id_0>") == model.vocab_size() + 9
    made.encode_special_tokens = True
    for text in TRIED:
        assert made.encode(text).ids == [*model.encode(text), 1], text
    again = tokenizers.Tokenizer.from_str(made.to_str())
    assert again.encode("the cat").ids == made.encode("the cat").ids


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"model_type": "bpe"}, "model_type is not unigram"),
        ({"add_dummy_prefix": False}, "add_dummy_prefix is off"),
        ({"remove_extra_whitespaces": False}, "remove_extra_whitespaces is off"),
        ({"user_defined_symbols": ["dogs"]}, "defined by its user"),
        ({"byte_fallback": True, "vocab_size": 400}, "byte_fallback is set"),
    ],
)
def test_a_model_that_a_pipeline_would_cut_otherwise_is_refused_by_name(tmp_path, options, reason):
    path = train(tmp_path, "source", **options)
    with pytest.raises(RunError, match=rf"source\.spm cannot be turned .* {reason}"):
        t5_tokenizer(path, 0)


def test_damaged_and_incomplete_files_are_named(marian, tmp_path):
    folder = marian[0]
    for name in ("source.spm", "target.spm", "vocab.json"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    config = {"eos_token_id": 0}

    def refused(pattern, kind=DataError):
        with pytest.raises(kind, match=pattern):
            read_vocabularies(tmp_path, config, entries=(1000, 1000))

    (tmp_path / "vocab.json").write_text(json.dumps({"a": 5}))
    refused(r"vocab\.json does not number its pieces")
    (tmp_path / "vocab.json").unlink()
    refused(r"missing its vocab\.json", RunError)
    (tmp_path / "vocab.json").write_bytes((folder / "vocab.json").read_bytes())
    (tmp_path / "target.spm").write_bytes(b"\xff" * 40)
    refused(r"target\.spm was cut short or is not a SentencePiece model")
