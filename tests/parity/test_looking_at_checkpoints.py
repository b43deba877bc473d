"""`regard look hf:DIR` opens a checkpoint as it is."""

import json

import pytest
import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

from regard.cli import main
from regard.errors import ConfigError, RegardError, RunError
from regard.interop.huggingface.looking import look_at_checkpoint
from regard.tasks.looking import LookOptions

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "cat", "sat", ".", "##s", "le", "chat"]


def saved(directory, model):
    own = Tokenizer(models.WordPiece({word: number for number, word in enumerate(WORDS)}, unk_token="[UNK]"))
    own.pre_tokenizer, own.decoder = pre_tokenizers.BertPreTokenizer(), decoders.WordPiece()
    own.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    named = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    transformers.PreTrainedTokenizerFast(tokenizer_object=own, **named).save_pretrained(directory)
    model.save_pretrained(directory)
    return directory


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    sizes = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 8}
    config = transformers.BertConfig(vocab_size=len(WORDS), **sizes, max_position_embeddings=12)
    return saved(tmp_path_factory.mktemp("bert"), transformers.BertModel(config))


@pytest.fixture(scope="module")
def t5(tmp_path_factory):
    torch.manual_seed(0)
    sizes = {"d_model": 8, "d_kv": 4, "num_heads": 2, "num_layers": 1, "d_ff": 8}
    tokens = {"pad_token_id": 0, "eos_token_id": 3, "decoder_start_token_id": 0}
    config = transformers.T5Config(vocab_size=len(WORDS), **sizes, **tokens)
    return saved(tmp_path_factory.mktemp("t5"), transformers.T5ForConditionalGeneration(config))


def test_command_writes_page_and_json(bert, tmp_path):
    out, told = tmp_path / "page.html", tmp_path / "page.json"
    assert main(["look", f"hf:{bert}", "the cats sat.", "-o", str(out), "--json", str(told)]) == 0
    assert "cat" in out.read_text(encoding="utf-8")
    (sentence,) = json.loads(told.read_text(encoding="utf-8"))["sentences"]
    assert sentence["source"]["pieces"] == ["[CLS]", "the", "cat", "##s", "sat", ".", "[SEP]"]
    assert sentence["source"]["words"] == ["[CLS]", "the", "cats", "sat.", "[SEP]"]
    assert [one["name"] for one in sentence["attentions"]] == [f"encoder.layer.{n}.attention.self" for n in (0, 1)]


def test_pairs_have_the_words_of_both(bert):
    side = look_at_checkpoint(bert, ["the cat ||| sat ."], LookOptions(heads=(1,))).sentences[0].source
    assert side.pieces == ("[CLS]", "the", "cat", "[SEP]", "sat", ".", "[SEP]")
    # What separates is a word of its own, and the mark between the two, which the model never saw, is none.
    assert side.words == ("[CLS]", "the", "cat", "[SEP]", "sat", ".", "[SEP]")
    assert side.word_of == (0, 1, 2, 3, 4, 5, 6)


def test_neurons_of_the_chosen_heads_are_on_the_page(bert):
    (own,) = look_at_checkpoint(bert, ["the cat sat"], LookOptions(heads=(1,))).sentences
    assert [one.neurons.q.shape for one in own.attentions] == [(1, 5, 4)] * 2
    (bare,) = look_at_checkpoint(bert, ["the cat sat"], LookOptions(vectors=False)).sentences
    assert [one.neurons for one in bare.attentions] == [None] * 2


def test_a_model_with_a_decoder_writes_or_reads_a_target(t5):
    (own,) = look_at_checkpoint(t5, ["the cat sat"]).sentences
    assert [one.name.split(".")[0] for one in own.attentions] == ["encoder", "decoder", "decoder"]
    assert own.target is not None
    assert own.prefix is not None
    assert own.prefix.pieces[1:] == own.target.pieces[:-1]
    (given,) = look_at_checkpoint(t5, ["the cat sat"], LookOptions(targets=("le chat",))).sentences
    assert given.prefix.pieces == ("[PAD]", "le", "chat")
    assert given.prefix.words == ("[PAD]", "le", "chat")
    (cut,) = look_at_checkpoint(t5, ["the cat sat"], LookOptions(targets=("le chats",))).sentences
    assert cut.prefix.words == ("[PAD]", "le", "chats")
    assert cut.target.words == ("le", "chats", "…")
    assert cut.target.word_of == (0, 1, 1, 2)


def test_a_token_that_the_tokenizer_has_no_name_for_is_shown_by_its_number(tmp_path):
    torch.manual_seed(0)
    sizes = {"d_model": 8, "d_kv": 4, "num_heads": 2, "num_layers": 1, "d_ff": 8}
    tokens = {"pad_token_id": 0, "eos_token_id": 3, "decoder_start_token_id": 0}
    model = transformers.T5ForConditionalGeneration(transformers.T5Config(vocab_size=40, **sizes, **tokens))
    model.config.tie_word_embeddings = False
    with torch.no_grad():
        head = torch.zeros_like(model.lm_head.weight)
        head[30], head[31] = 1.0, -1.0  # one of the two is always the likeliest
        model.lm_head.weight = torch.nn.Parameter(head)
    found = look_at_checkpoint(saved(tmp_path, model), ["the cat"])
    assert set(found.sentences[0].target.pieces[:-1]) <= {"<30>", "<31>"}
    assert found.note == "An output was cut at 64 tokens."


def test_layers_that_share_an_attention_are_all_shown_and_random_weights_are_said(tmp_path, capfd):
    sizes = {"hidden_size": 8, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 8}
    config = transformers.AlbertConfig(vocab_size=len(WORDS), embedding_size=4, **sizes, max_position_embeddings=12)
    saved(tmp_path, transformers.AlbertForMaskedLM(config))
    capfd.readouterr()
    said = []
    (own,) = look_at_checkpoint(tmp_path, ["the cats sat"], tell=said.append).sentences
    assert [one.name.rpartition(", ")[2] for one in own.attentions] == ["use 1 of 3", "use 2 of 3", "use 3 of 3"]
    assert said == ["the checkpoint has no weights for pooler.bias and 1 more of AlbertModel: these are random"]
    assert capfd.readouterr().err == ""


def test_attention_past_the_interface_is_what_the_model_reports_itself(tmp_path):
    sizes = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 8}
    config = transformers.MPNetConfig(vocab_size=len(WORDS), **sizes, max_position_embeddings=12)
    model = transformers.MPNetModel(config).eval()
    saved(tmp_path, model)
    (own,) = look_at_checkpoint(tmp_path, ["the cats sat"]).sentences
    assert own.source.pieces == ("[CLS]", "the", "cat", "##s", "sat", "[SEP]")
    ids = torch.tensor([[WORDS.index(piece) for piece in own.source.pieces]])
    with torch.no_grad():
        wanted = model(input_ids=ids, output_attentions=True).attentions
    for layer, one in zip(wanted, own.attentions, strict=True):
        torch.testing.assert_close(torch.as_tensor(one.array()), layer[0])
    (some,) = look_at_checkpoint(tmp_path, ["the cats sat"], LookOptions(names=("1",), heads=(1,))).sentences
    assert [(one.name, one.heads) for one in some.attentions] == [("1", (1,))]
    torch.testing.assert_close(torch.as_tensor(some.attentions[0].array())[0], wanted[1][0, 1])
    with pytest.raises(ConfigError, match="no head 2 in '0': it has 2"):
        look_at_checkpoint(tmp_path, ["the cat"], LookOptions(heads=(2,)))


def test_two_checkpoints_stand_side_by_side(bert, t5, tmp_path):
    out = tmp_path / "two.html"
    assert main(["look", f"hf:{bert}", "the cats sat.", "--beside", f"hf:{t5}", "-o", str(out)]) == 0
    page = out.read_text(encoding="utf-8")
    assert f"Where {bert.name} looked beside Where {t5.name} looked" in page
    assert page.count("<iframe") == 2


def test_what_cannot_be_looked_at_is_refused(bert, tmp_path):
    with pytest.raises(RunError, match=r"no config\.json"):
        look_at_checkpoint(tmp_path, ["the cat"])
    with pytest.raises(ConfigError, match="15 tokens; the model reads at most 12"):
        look_at_checkpoint(bert, ["the " * 13])
    with pytest.raises(ConfigError, match="regard import hf"):
        look_at_checkpoint(bert, ["the cat"], LookOptions(edits=True))
    with pytest.raises(ConfigError, match="takes one each"):
        look_at_checkpoint(bert, ["the cat"], LookOptions(targets=("le chat",)))
    (tmp_path / "config.json").write_text('{"model_type": "no-such-thing"}', encoding="utf-8")
    with pytest.raises(RegardError, match="no-such-thing"):
        look_at_checkpoint(tmp_path, ["the cat"])
