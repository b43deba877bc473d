"""Hugging Face's BERT, DistilBERT and RoBERTa, imported and exported with any head: the same numbers either way."""

import json
import shutil

import pytest
import tokenizers
import torch
from refusing import refused
from tokenizers import decoders, models, pre_tokenizers, processors
from torch.testing import assert_close

import regard
from regard.cli import main
from regard.errors import ConfigError, DataError, RunError
from regard.interop.huggingface import export_run, import_directory
from regard.nn.batch import Texts, Tokens
from regard.runs.files import read_tensors, write_tensors
from regard.text.encoder_inputs import InputTemplate

transformers = pytest.importorskip("transformers")
V, LABELS = 61, ("red", "green", "blue")
HEADS = {
    "Model": "none",
    "ForMaskedLM": "words",
    "ForSequenceClassification": "classes",
    "ForTokenClassification": "tags",
    "ForQuestionAnswering": "spans",
}
KINDS = [(family, ending) for family in ("Bert", "DistilBert", "Roberta") for ending in HEADS]
KINDS.append(("Bert", "ForPreTraining"))


def their_model(family, ending):
    torch.manual_seed(1)
    shared = {"vocab_size": V, "max_position_embeddings": 40, "attn_implementation": "eager"}
    if ending != "ForQuestionAnswering":
        shared["id2label"] = dict(enumerate(LABELS))
        shared["label2id"] = {label: index for index, label in enumerate(LABELS)}
    if family == "DistilBert":
        config = transformers.DistilBertConfig(**shared, dim=24, n_layers=3, n_heads=4, hidden_dim=36)
    else:
        sizes = {"hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 36}
        kind = getattr(transformers, f"{family}Config")
        config = kind(**shared, **sizes, type_vocab_size=2 if family == "Bert" else 1)
    model = getattr(transformers, family + ending)(config)
    for name, parameter in model.named_parameters():
        # Far from how a model starts, so that no two parts could be mistaken for each other.
        norm = "norm" in name.lower() and name.endswith("weight")
        torch.nn.init.normal_(parameter, mean=float(norm), std=0.1 if name.endswith("bias") else 0.3)
    return model.eval()


def their_tokenizer(family):
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    if family == "Roberta":
        names = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    words = [chr(ord("a") + index % 26) + str(index // 26) for index in range(V - len(names))]
    vocabulary = {name: index for index, name in enumerate(names + words)}
    if family == "Roberta":
        tokenizer = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
        tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    else:
        tokenizer = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
        tokenizer.decoder = decoders.WordPiece()
    tokenizer.add_special_tokens(names)
    return tokenizer


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Each kind as `transformers` saves it, and the run it was imported to."""
    made = {}
    for family, ending in KINDS:
        folder = tmp_path_factory.mktemp("hf")
        model = their_model(family, ending)
        model.save_pretrained(folder / "theirs")
        their_tokenizer(family).save(str(folder / "theirs" / "tokenizer.json"))
        made[family, ending] = folder / "theirs", model, import_directory(folder / "theirs", folder / "run")
    return made


def rows_of(lengths):
    generator = torch.Generator().manual_seed(3)
    return [torch.randint(5, V, (length,), generator=generator).tolist() for length in lengths]


def theirs_on(model, rows, pad):
    tokens = Tokens.of(rows, pad)
    given = {"input_ids": tokens.ids, "attention_mask": tokens.mask().long()}
    segments = (torch.arange(tokens.ids.shape[1]) > 4).long().expand_as(tokens.ids)
    if getattr(model.config, "type_vocab_size", 0) > 1:
        given["token_type_ids"] = segments
    with torch.no_grad():
        return model(**given, output_hidden_states=True)


@torch.no_grad()
def ours_on(run, rows, pad):
    tokens = Tokens.of(rows, pad)
    segments = (torch.arange(tokens.ids.shape[1]) > 4).long().expand_as(tokens.ids)
    texts = Texts(tokens, segments if run.config.model["segments"] > 1 else None)
    return run.model(texts), run.model.logits(texts), run.model


def assert_same(run, expected, rows, pad):
    x, logits, model = ours_on(run, rows, pad)
    close = {"atol": 5e-5, "rtol": 1e-4}  # float32, kernels of any processor: 1.3e-5 without vector instructions
    for index, row in enumerate(rows):  # what padding gathers is read by nobody
        size = len(row)
        assert_close(x[index, :size], expected.hidden_states[-1][index, :size], **close)
        if run.config.model["head"] == "spans":
            assert_close(logits[index, :size, 0], expected.start_logits[index, :size], **close)
            assert_close(logits[index, :size, 1], expected.end_logits[index, :size], **close)
        elif run.config.model["head"] == "classes":
            assert_close(logits[index], expected.logits[index], **close)
        elif run.config.model["head"] == "pretraining":
            assert_close(logits[index, :size], expected.prediction_logits[index, :size], **close)
            assert_close(model.next_logits(x)[index], expected.seq_relationship_logits[index], **close)
        elif run.config.model["head"] != "none":
            assert_close(logits[index, :size], expected.logits[index, :size], **close)
        elif "pooler_output" in expected and run.config.model["pooler"] != "none":
            assert_close(model.pooler(x)[index], expected.pooler_output[index], **close)


@pytest.mark.parametrize(("family", "ending"), KINDS)
def test_numbers_are_equal_after_import_and_after_a_round_trip(family, ending, saved, tmp_path):
    folder, model, run = saved[family, ending]
    assert run.config.model["head"] == HEADS.get(ending, "pretraining")
    pad = run.vocabularies.target.pad
    export_run(run, tmp_path / "exported")
    again = import_directory(tmp_path / "exported", tmp_path / "again")
    theirs = type(model).from_pretrained(tmp_path / "exported", attn_implementation="eager").eval()
    for lengths in ([38] * 3, [9, 1, 5, 7]):
        rows = rows_of(lengths)
        expected = theirs_on(model, rows, pad)
        assert_same(run, expected, rows, pad)
        assert_same(again, expected, rows, pad)
        back = theirs_on(theirs, rows, pad)
        assert_close(back.hidden_states[-1], expected.hidden_states[-1], atol=1e-6, rtol=1e-6)
    one, other = (read_tensors(path / "model.safetensors") for path in (folder, tmp_path / "exported"))
    assert all(torch.equal(other[name], one[name]) for name in other)
    if ending in ("ForSequenceClassification", "ForTokenClassification"):
        assert tuple(run.config.model["labels"]) == LABELS
        assert theirs.config.id2label == dict(enumerate(LABELS))


@pytest.mark.parametrize("family", ["Bert", "DistilBert", "Roberta"])
def test_texts_are_framed_as_transformers_frames_them(family, saved, tmp_path):
    run = saved[family, "Model"][2]
    export_run(run, tmp_path / "out")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    tokenizer = run.vocabularies.target
    framing = InputTemplate.of(tokenizer)
    pair = framing.build(tokenizer.encode("a0 b1"), tokenizer.encode("c0"))
    expected = theirs("a0 b1", "c0")
    assert pair.ids == expected["input_ids"]
    assert framing.build(tokenizer.encode("a0 b1")).ids == theirs("a0 b1")["input_ids"]
    if "token_type_ids" in expected:
        assert pair.segments == expected["token_type_ids"]
    assert framing.room(10, pair=True) == 10 - (len(pair.ids) - 3)
    assert theirs.mask_token_id == tokenizer.mask
    assert theirs(f"a0 {theirs.mask_token} c0", add_special_tokens=False)["input_ids"] == tokenizer.encode_masked(
        "a0 [MASK] c0"
    )


@pytest.mark.parametrize("family", ["Bert", "DistilBert", "Roberta"])
def test_classes_and_their_probabilities_are_theirs(family, saved, tmp_path, capsys):
    _, model, run = saved[family, "ForSequenceClassification"]
    export_run(run, tmp_path / "out")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    items = ["a0 b1 c0", ("d0 e1", "f0"), "a1"]
    found = run.classify(items)
    for item, choices in zip(items, found, strict=True):
        given = theirs(*([item] if isinstance(item, str) else item), return_tensors="pt")
        with torch.no_grad():
            expected = model(**given).logits.softmax(-1)[0]
        by_label = {choice.label: choice.probability for choice in choices}
        assert_close(torch.tensor([by_label[label] for label in LABELS]), expected, atol=1e-5, rtol=1e-5)
        assert choices[0].probability == max(by_label.values())
    assert main(["classify", str(run.directory), "a0 b1 c0", "a1", "--top", "2", "--device", "cpu"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.split("\t")[0] == found[0][0].label
    assert len(second.split("\t")) == 4
    (tmp_path / "texts.txt").write_text("a1\n", encoding="utf-8")
    assert main(["classify", str(run.directory), "-i", str(tmp_path / "texts.txt"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["classes"][0]["label"] == found[2][0].label
    assert main(["classify", str(saved[family, "Model"][2].directory), "a1"]) == 2
    assert "is a run for embedding, not for classification or images" in capsys.readouterr().err


@pytest.fixture
def copy(saved, tmp_path):
    def make(family="Bert", ending="Model", **changes):
        folder = tmp_path / "copy"
        shutil.copytree(saved[family, ending][0], folder)
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))
        return folder

    return make


@pytest.mark.parametrize(
    ("family", "ending", "changes", "pattern"),
    [
        ("Bert", "Model", {"position_embedding_type": "relative_key"}, "position_embedding_type='relative_key'"),
        ("Bert", "Model", {"is_decoder": True}, "is_decoder=True"),
        ("Bert", "ForMaskedLM", {"tie_word_embeddings": False}, "tie_word_embeddings=False"),
        ("Bert", "Model", {"hidden_dropout_prob": 2}, "hidden_dropout_prob=2"),
        ("Bert", "ForSequenceClassification", {"architectures": ["BertForMultipleChoice"]}, "architectures="),
        ("Bert", "ForSequenceClassification", {"problem_type": "regression"}, "problem_type='regression'"),
        ("Bert", "ForSequenceClassification", {"id2label": {"0": "a", "2": "b"}}, "id2label="),
        ("DistilBert", "Model", {"activation": "mish"}, "activation='mish'"),
        ("Roberta", "Model", {"pad_token_id": "x"}, "pad_token_id='x'"),
        ("Roberta", "Model", {"pad_token_id": 39}, "max_position_embeddings=40"),
        ("Roberta", "ForMaskedLM", {"hidden_act": "relu"}, "hidden_act='relu'"),
    ],
)
def test_an_unsupported_configuration_says_which_field(copy, tmp_path, family, ending, changes, pattern):
    refused(copy(family, ending, **changes), tmp_path, pattern, ConfigError)


def write(folder, name, value):
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text(json.dumps(value))


def test_how_a_text_becomes_one_vector_comes_along_and_goes_back(copy, tmp_path):
    folder = copy()
    kinds = ("Transformer", "Pooling", "Normalize")
    modules = [{"idx": index, "type": f"sentence_transformers.models.{kind}"} for index, kind in enumerate(kinds)]
    write(folder, "modules.json", modules)
    write(folder, "1_Pooling/config.json", {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False})
    write(folder, "sentence_bert_config.json", {"max_seq_length": 17})
    run = import_directory(folder, tmp_path / "run")
    assert (run.config.model["pooling"], run.config.data.max_len) == ("first", 17)
    again = import_directory(export_run(run, tmp_path / "out"), tmp_path / "again")
    assert (again.config.model["pooling"], again.config.data.max_len) == ("first", 17)
    write(folder, "1_Pooling/config.json", {"pooling_mode": "cls"})  # as newer versions write it, the length elsewhere
    write(folder, "sentence_bert_config.json", {})
    write(folder, "tokenizer_config.json", {"model_max_length": 23})
    newer = import_directory(folder, tmp_path / "newer")
    assert (newer.config.model["pooling"], newer.config.data.max_len) == ("first", 23)
    write(folder, "1_Pooling/config.json", {"pooling_mode": "cls", "pooling_mode_mean_tokens": True})
    refused(folder, tmp_path, "pooling_mode='cls' and .* disagree", ConfigError)
    for mode in ("max", ["mean"], None):
        write(folder, "1_Pooling/config.json", {"pooling_mode": mode})
        refused(folder, tmp_path, "pooling_mode=", ConfigError)
    write(folder, "1_Pooling/config.json", {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True})
    refused(folder, tmp_path, "is not supported, only one of", ConfigError)
    for said in ([*modules, {"type": "sentence_transformers.models.Dense"}], modules[:1], {}, [3]):
        write(folder, "modules.json", said)
        refused(folder, tmp_path, "modules.json", ConfigError)
    write(folder, "1_Pooling/config.json", {"pooling_mode": "cls"})
    write(folder, "modules.json", [modules[0], {**modules[1], "path": "9_Pooling"}, modules[2]])
    refused(folder, tmp_path, "path='9_Pooling'", ConfigError)
    write(folder, "modules.json", modules[:2])
    told = []
    import_directory(folder, tmp_path / "not normalised", told.append)
    assert "no Normalize" in told[0]
    write(folder, "modules.json", modules)
    write(folder, "sentence_bert_config.json", {"do_lower_case": True})
    refused(folder, tmp_path, "do_lower_case=true", ConfigError)
    write(folder, "sentence_bert_config.json", {})
    write(folder, "config_sentence_transformers.json", {"prompts": {"q": "query: "}, "default_prompt_name": "q"})
    refused(folder, tmp_path, "default_prompt_name='q'", ConfigError)


def test_every_missing_or_extra_weight_is_named_at_once(copy, tmp_path):
    folder = copy("Bert", "ForTokenClassification")
    weights = read_tensors(folder / "model.safetensors")
    del weights["bert.encoder.layer.1.output.dense.bias"]
    weights["classifier.weight"] = torch.zeros(7, 24)
    weights["bert.encoder.layer.9.output.dense.bias"] = torch.zeros(24)
    write_tensors(folder / "model.safetensors", weights)
    said = refused(folder, tmp_path, "do not fit", RunError)
    for part in ("missing bert.encoder.layer.1.output", "classifier.weight is (7, 24), not (3, 24)", "extra bert.enc"):
        assert part in said


def test_a_vocabulary_alone_is_a_wordpiece_tokenizer(copy, tmp_path):
    folder = copy()
    entries = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "sun", "##ny", "ete"]
    (folder / "tokenizer.json").unlink()
    refused(folder, tmp_path, "missing its tokenizer.json or vocab.txt")
    (folder / "vocab.txt").write_text("\n".join(entries) + "\n", encoding="utf-8")
    tokenizer = import_directory(folder, tmp_path / "run").vocabularies.target
    theirs = transformers.BertTokenizer(vocab=str(folder / "vocab.txt"))
    for text in ("The SUNNY été", "sun, moon"):
        assert InputTemplate.of(tokenizer).build(tokenizer.encode(text)).ids == theirs(text)["input_ids"]
    (folder / "vocab.txt").write_text("the\nsun\n", encoding="utf-8")
    refused(folder, tmp_path, r"lacks \[PAD\]", DataError)
    (folder / "vocab.txt").write_text("\n".join([*entries, "sun"]), encoding="utf-8")
    refused(folder, tmp_path, "an entry is twice", DataError)


def test_a_run_trained_here_is_read_by_transformers(tmp_path):
    lines = ["The sun is up. The sea is warm.", "", "A day was cold. The moon came up."] * 20
    (tmp_path / "text.txt").write_text("\n".join(lines), encoding="utf-8")
    small = ["model.width=16", "model.heads=2", "model.layers=1", "model.feed_forward=24", "data.max_len=24"]
    small += ["train.batch_tokens=96", "train.steps=2", "train.threads=1", "tokenizer.vocab_size=90"]
    data = {"train": [str(tmp_path / "text.txt")]}
    run = regard.train(regard.make_config(None, "bert-tiny", small, {"data": data}), tmp_path / "run")
    export_run(run, tmp_path / "out")
    theirs = transformers.BertForPreTraining.from_pretrained(tmp_path / "out").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    given = tokenizer("the <mask> is up.", "a cold day", return_tensors="pt")
    ours = run.vocabularies.target
    row = run.encoder.framer.ids(ours.encode_masked("the [MASK] is up."), ours.encode("a cold day"))
    assert given["input_ids"][0].tolist() == row.ids
    assert given["token_type_ids"][0].tolist() == row.segments
    with torch.no_grad():
        expected = theirs(**given)
        texts = run.encoder.texts([row])
        assert_close(run.model.logits(texts), expected.prediction_logits, atol=1e-5, rtol=1e-5)
        assert_close(run.model.next_logits(run.model(texts)), expected.seq_relationship_logits, atol=1e-5, rtol=1e-5)
