"""SentencePiece models as pipelines: the same pieces as the library itself and as `transformers`; the rest refused."""

import json
import warnings

import pytest
import tokenizers

from regard.errors import DataError, RunError
from regard.runs.interop.huggingface.spm import marian_tokenizers, t5_tokenizer
from regard.runs.interop.huggingface.vocabulary import read_vocabularies

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
    folder, _, numbers = marian
    for name in ("source.spm", "target.spm", "vocab.json"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    config = {"eos_token_id": 0}

    def refused(pattern, kind=DataError):
        with pytest.raises(kind, match=pattern):
            read_vocabularies(tmp_path, config, entries=(1000, 1000))

    (tmp_path / "vocab.json").write_text(json.dumps({name: index for index, name in enumerate(numbers[:40])}))
    refused(r"source\.spm has \d+ pieces that vocab\.json has no number for")
    (tmp_path / "vocab.json").write_text(json.dumps({"a": 5}))
    refused(r"vocab\.json does not number its pieces")
    (tmp_path / "vocab.json").unlink()
    refused(r"missing its vocab\.json", RunError)
    (tmp_path / "vocab.json").write_bytes((folder / "vocab.json").read_bytes())
    (tmp_path / "target.spm").write_bytes(b"\xff" * 40)
    refused(r"target\.spm was cut short or is not a SentencePiece model")
