"""Hugging Face directories that say a thing twice: where the two differ they are refused, or read as theirs reads them.

And directories that are made to harm: they are refused before anything large is built or read.
"""

import json
import os
import time

import pytest
import tokenizers
import torch
from refusing import refused
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors
from torch.testing import assert_close

from regard.cli import main
from regard.decode.search import search
from regard.errors import ConfigError, RegardWarning, RunError
from regard.interop.huggingface import config_fields, import_directory
from regard.nn.batch import Pairs, Tokens, Windows
from regard.runs.files import read_tensors, write_tensors

transformers = pytest.importorskip("transformers")
V, PAD, EOS, START = 31, 0, 1, 2
ENDS = {"pad_token_id": PAD, "eos_token_id": EOS, "bos_token_id": START}
STACK = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 20, "decoder_ffn_dim": 20}
STACK |= {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "max_position_embeddings": 24}
ENCODER = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 20}
MADE = {
    "gpt2": ("GPT2LMHeadModel", {"n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 24, **ENDS}),
    "llama": ("LlamaForCausalLM", {**ENCODER, "tie_word_embeddings": True, "max_position_embeddings": 24, **ENDS}),
    "marian": ("MarianMTModel", {**STACK, **ENDS, "decoder_start_token_id": PAD, "forced_eos_token_id": EOS}),
    "bart": (
        "BartForConditionalGeneration",
        {**STACK, **ENDS, "decoder_start_token_id": EOS, "forced_eos_token_id": EOS},
    ),
    "t5": (
        "T5ForConditionalGeneration",
        {"d_model": 16, "d_kv": 8, "d_ff": 20, "num_layers": 1, "num_heads": 2, **ENDS},
    ),
    "bert": ("BertForMaskedLM", {**ENCODER, "max_position_embeddings": 24}),
    "distilbert": ("DistilBertForMaskedLM", {"dim": 16, "n_layers": 1, "n_heads": 2, "hidden_dim": 20}),
    "roberta": ("RobertaForMaskedLM", {**ENCODER, "max_position_embeddings": 24}),
    "vit": ("ViTModel", {**ENCODER, "image_size": 8, "patch_size": 4}),
}
NAMES = {"roberta": ["<s>", "<pad>", "</s>", "<unk>", "<mask>"], "bert": ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]}


@pytest.fixture
def made(tmp_path):
    def make(family, **changes):
        torch.manual_seed(1)
        kind, config = MADE[family]
        model = getattr(transformers, kind)
        if family != "vit":
            config = config | {"vocab_size": V}
        model = model(model.config_class(**config))
        for name, parameter in model.named_parameters():
            if "norm" not in name.lower() and "embed_positions" not in name:
                torch.nn.init.normal_(parameter, std=0.3)
        folder = tmp_path / "theirs"
        model.save_pretrained(folder)
        names = NAMES.get(family.removeprefix("distil"), ["<pad>", "</s>", "<s>", "<unk>", "<mask>"])
        words = [*names, *(f"w{index}" for index in range(V - 5))]
        vocabulary = {word: index for index, word in enumerate(words)}
        tokenizer = tokenizers.Tokenizer(
            models.WordPiece(vocabulary, unk_token=names[1] if "[UNK]" in names else names[3])
        )
        tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.WhitespaceSplit(), decoders.WordPiece()
        if "bert" in family:
            first, last = ("<s>", "</s>") if family == "roberta" else ("[CLS]", "[SEP]")
            ends = ((last, vocabulary[last]), (first, vocabulary[first]))
            tokenizer.post_processor = processors.BertProcessing(*ends)
        tokenizer.save(str(folder / "tokenizer.json"))
        said(folder, "config.json", **changes)
        return folder

    return make


def said(folder, name, **changes):
    path = folder / name
    path.write_text(json.dumps((json.loads(path.read_text()) if path.exists() else {}) | changes))


def theirs_of(folder, kind):
    return getattr(transformers, kind).from_pretrained(folder, attn_implementation="eager").eval()


@pytest.mark.parametrize(
    ("family", "copy", "of"),
    [
        ("gpt2", "lm_head.weight", "transformer.wte.weight"),
        ("llama", "lm_head.weight", "model.embed_tokens.weight"),
        ("marian", "lm_head.weight", "model.shared.weight"),
        ("marian", "model.encoder.embed_tokens.weight", "model.shared.weight"),
        ("marian", "model.decoder.embed_tokens.weight", "model.shared.weight"),
        ("bart", "lm_head.weight", "model.shared.weight"),
        ("bart", "model.decoder.embed_tokens.weight", "model.shared.weight"),
        ("t5", "encoder.embed_tokens.weight", "shared.weight"),
        ("t5", "decoder.embed_tokens.weight", "shared.weight"),
        ("bert", "cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"),
        ("bert", "cls.predictions.decoder.bias", "cls.predictions.bias"),
        ("distilbert", "vocab_projector.weight", "distilbert.embeddings.word_embeddings.weight"),
        ("roberta", "lm_head.decoder.weight", "roberta.embeddings.word_embeddings.weight"),
        ("roberta", "lm_head.decoder.bias", "lm_head.bias"),
    ],
)
def test_a_copy_of_a_tied_weight_is_read_if_equal_and_refused_if_not(family, copy, of, made, tmp_path):
    folder = made(family)
    weights = read_tensors(folder / "model.safetensors")
    write_tensors(folder / "model.safetensors", {**weights, copy: weights[of].clone()})
    import_directory(folder, tmp_path / "run")
    other = weights[of].clone()
    other.view(-1)[3] += 0.5
    write_tensors(folder / "model.safetensors", {**weights, copy: other})
    assert copy in refused(folder, tmp_path, f"beside {of}, .*not equal", RunError)
    if of.endswith("weight"):
        write_tensors(folder / "model.safetensors", {**weights, copy: other[:5].clone()})
        refused(folder, tmp_path, "not equal", RunError)


def test_stored_sinusoids_are_compared_with_what_they_should_be(made, tmp_path):
    folder = made("marian")
    weights = read_tensors(folder / "model.safetensors")
    name = "model.encoder.embed_positions.weight"
    table = theirs_of(folder, "MarianMTModel").model.encoder.embed_positions.weight.detach().clone()
    write_tensors(folder / "model.safetensors", {**weights, name: table})
    import_directory(folder, tmp_path / "run")
    write_tensors(folder / "model.safetensors", {**weights, name: table.half()})
    with pytest.warns(RegardWarning, match=f"{name} as float16.*may differ"):
        import_directory(folder, tmp_path / "rounded")
    write_tensors(folder / "model.safetensors", {**weights, name: table + 0.01})
    refused(folder, tmp_path, f"{name}, which is not the table of sinusoids", RunError)


@pytest.mark.parametrize(
    ("changes", "pattern"),
    [
        ({"rope_scaling": {"rope_type": "linear", "factor": 4.0}}, "rope_scaling=.*linear"),
        ({"rope_scaling": {"type": "dynamic", "factor": 4.0}}, "rope_scaling=.*dynamic"),
        ({"rope_scaling": {"rope_theta": 700.0}}, "disagree on rope_theta"),
        ({"rope_theta": 700.0}, "disagree on rope_theta"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor=0.5"),
        ({"rope_parameters": {"full_attention": {"rope_type": "yarn"}}}, "rope_parameters="),
        ({"per_layer_config": {"0": {"intermediate_size": 8}}}, "per_layer_config"),
    ],
)
def test_what_turns_positions_otherwise_is_named(changes, pattern, made, tmp_path):
    refused(made("llama", **changes), tmp_path, pattern, ConfigError)


@pytest.mark.parametrize("changes", [{"rope_parameters": None, "rope_theta": 700.0}, {"rope_scaling": {}}])
@torch.no_grad()
def test_rotary_bases_are_found_where_theirs_finds_them(changes, made, tmp_path):
    folder = made("llama", **changes)
    run, rows = import_directory(folder, tmp_path / "run"), Tokens.of([[5, 9, 7, 12, 6, 8]])
    expected = theirs_of(folder, "LlamaForCausalLM")(rows.ids).logits
    assert_close(run.model.logits(Windows(rows, rows.ids, 0)), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("gpt2", {"hidden_size": 32, "n_embd": 16}),
        ("gpt2", {"num_attention_heads": 4, "n_head": 2}),
        ("bart", {"num_attention_heads": 4, "encoder_attention_heads": 2}),
        ("marian", {"hidden_size": 32, "d_model": 16}),
        ("distilbert", {"num_attention_heads": 4, "n_heads": 2}),
        ("t5", {"head_dim": 16, "d_kv": 8}),
    ],
)
def test_two_names_of_one_setting_must_agree(family, changes, made, tmp_path):
    refused(made(family, **changes), tmp_path, f"{next(iter(changes))}=.*disagree", ConfigError)


def test_a_setting_may_go_by_its_other_name(made, tmp_path):
    folder = made("gpt2")
    config = json.loads((folder / "config.json").read_text())
    del config["n_head"]
    (folder / "config.json").write_text(json.dumps(config | {"num_attention_heads": 2}))
    assert import_directory(folder, tmp_path / "run").config.model["heads"] == 2


@pytest.mark.parametrize(
    ("changes", "pattern"),
    [
        ({"dense_act_fn": "silu"}, "dense_act_fn='silu' disagrees with feed_forward_proj='relu'"),
        ({"is_gated_act": True}, "is_gated_act=True disagrees"),
        ({"feed_forward_proj": "gated-gelu"}, "dense_act_fn='relu' disagrees"),
    ],
)
def test_t5s_activation_is_said_in_two_ways_that_must_agree(changes, pattern, made, tmp_path):
    folder = made("t5", dense_act_fn="relu", is_gated_act=False)
    import_directory(folder, tmp_path / "run")
    said(folder, "config.json", **changes)
    refused(folder, tmp_path, pattern, ConfigError)


@pytest.mark.parametrize(
    "setting",
    [
        {"repetition_penalty": 1.3},
        {"begin_suppress_tokens": [7]},
        {"eos_token_id": [EOS, 9]},
        {"encoder_no_repeat_ngram_size": 2},
        {"exponential_decay_length_penalty": [3, 1.2]},
        {"no_repeat_ngram_size": 1},
        {"do_sample": True, "num_beams": 4},
        {"num_return_sequences": 2},
        {"early_stopping": "soon"},
    ],
)
def test_generation_that_has_no_like_here_is_named(setting, made, tmp_path):
    folder = made("marian")
    said(folder, "generation_config.json", **setting)
    refused(folder, tmp_path, f"{next(iter(setting))}=", ConfigError)
    said(folder, "generation_config.json", repetition_penalty=1.0, begin_suppress_tokens=[], eos_token_id=[EOS])


@torch.no_grad()
def test_lengths_and_sampling_of_generation_are_taken_over(made, tmp_path):
    folder = made("marian")
    said(folder, "generation_config.json", max_length=9, max_new_tokens=6, min_new_tokens=4, eos_token_id=[EOS])
    run = import_directory(folder, tmp_path / "run")
    assert (run.config.decode.max_len, run.config.decode.min_len) == (6, 4)
    source = Tokens.of([[5, 6, 7, EOS], [9, EOS]], PAD)
    found = theirs_of(folder, "MarianMTModel").generate(source.ids, attention_mask=source.mask().long())[:, 1:].tolist()
    first, state = torch.full((2,), run.vocabularies.target.bos), run.model.start(Pairs(source))
    ours = search(run.model, state, first, eos=EOS, config=run.config.decode)
    assert [one[0].tokens for one in ours] == [row[: row.index(EOS)] for row in found]
    assert all(4 <= len(one[0].tokens) < 6 for one in ours)
    said(folder, "generation_config.json", do_sample=True, temperature=0.7, top_p=0.9, min_new_tokens=None)
    decode = import_directory(folder, tmp_path / "drawn").config.decode
    assert (decode.temperature, decode.top_k, decode.top_p) == (0.7, 50, 0.9)


def test_one_file_alone_says_how_to_decode(made, tmp_path):
    """As in theirs: what `config.json` says of a search counts only where there is no `generation_config.json`."""
    folder = made("bart", num_beams=3, no_repeat_ngram_size=4)
    assert import_directory(folder, tmp_path / "one").config.decode.beam == 1
    os.remove(folder / "generation_config.json")
    decode = import_directory(folder, tmp_path / "other").config.decode
    assert (decode.beam, decode.no_repeat, decode.force_end) == (3, 4, True)


def test_what_may_change_outputs_is_said_once(made, tmp_path, capsys):
    folder, told = made("marian"), []
    said(
        folder, "generation_config.json", num_beams=4, early_stopping=True, renormalize_logits=True, bad_words_ids=[[0]]
    )
    import_directory(folder, tmp_path / "run", told.append)
    (line,) = told
    assert "early_stopping=True" in line
    assert "renormalize_logits=True" in line
    capsys.readouterr()
    assert main(["import", "hf", str(folder), "--out", str(tmp_path / "again")]) == 0
    assert capsys.readouterr().err == f"regard: {line}\n"


def test_a_language_model_says_what_it_does_not_take_over(made, tmp_path):
    folder, told = made("llama"), []
    import_directory(folder, tmp_path / "plain", told.append)
    assert not told
    said(folder, "generation_config.json", repetition_penalty=1.1, temperature=0.6, eos_token_id=[EOS, 9])
    run = import_directory(folder, tmp_path / "run", told.append)
    assert run.vocabularies.target.eos == EOS
    assert "temperature=0.6, repetition_penalty=1.1" in told[0]
    assert "eos_token_id=[1, 9]: a text ends at 1" in told[1]


@pytest.mark.parametrize("lower", [True, False])
def test_lower_case_is_said_alike_by_both_files_of_a_tokenizer(lower, made, tmp_path):
    folder = made("bert")
    inner = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    inner.normalizer = normalizers.BertNormalizer(lowercase=lower)
    inner.save(str(folder / "tokenizer.json"))
    said(folder, "tokenizer_config.json", tokenizer_class="BertTokenizer", do_lower_case=lower)
    import_directory(folder, tmp_path / "run")
    said(folder, "tokenizer_config.json", do_lower_case=not lower)
    refused(folder, tmp_path, f"do_lower_case={not lower}.*tokenizer.json", ConfigError)


@pytest.mark.parametrize("space", [True, False])
def test_a_space_before_a_text_is_said_alike_by_both_files_of_a_tokenizer(space, made, tmp_path):
    folder = made("gpt2")
    inner = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=space)
    inner.save(str(folder / "tokenizer.json"))
    said(folder, "tokenizer_config.json", tokenizer_class="GPT2Tokenizer", add_prefix_space=space)
    import_directory(folder, tmp_path / "run")
    said(folder, "tokenizer_config.json", add_prefix_space=not space)
    refused(folder, tmp_path, f"add_prefix_space={not space}.*tokenizer.json", ConfigError)
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "GPT2Tokenizer"}))
    if space:  # theirs then puts none
        refused(folder, tmp_path, "add_prefix_space=False.*tokenizer.json", ConfigError)


@pytest.mark.parametrize("channels", [2, 4])
def test_an_odd_number_of_channels_is_what_is_named(channels, made, tmp_path):
    refused(
        made("vit", num_channels=channels), tmp_path, f"num_channels={channels} is not supported, only 1", ConfigError
    )


def test_images_are_prepared_as_one_file_says(made, tmp_path):
    folder = made("vit")
    ours = {
        "image_mean": [0.1, 0.2, 0.3],
        "size": {"height": 8, "width": 8},
        "image_processor_type": "ViTImageProcessor",
    }
    said(folder, "processor_config.json", image_processor=ours)
    assert import_directory(folder, tmp_path / "run").config.images.mean == (0.1, 0.2, 0.3)
    said(folder, "preprocessor_config.json", **ours)
    import_directory(folder, tmp_path / "both")
    said(folder, "preprocessor_config.json", image_mean=[0.5, 0.5, 0.5])
    refused(folder, tmp_path, "disagree on how images are prepared", ConfigError)
    os.remove(folder / "processor_config.json")
    said(folder, "preprocessor_config.json", image_processor_type="DeiTImageProcessor")
    refused(folder, tmp_path, "image_processor_type='DeiTImageProcessor'", ConfigError)


def test_an_adapter_is_not_left_out_in_silence(made, tmp_path):
    folder = made("gpt2")
    said(folder, "adapter_config.json", peft_type="LORA")
    refused(folder, tmp_path, "adapter_config.json", RunError)


@pytest.mark.parametrize(
    "name",
    ["config.json", "generation_config.json", "tokenizer.json", "model.safetensors", "model.safetensors.index.json"],
)
@pytest.mark.parametrize("what", ["device", "pipe", "directory", "large"])
def test_only_files_of_bounded_size_are_read(name, what, made, tmp_path, monkeypatch):
    folder = made("gpt2")
    if name == "model.safetensors.index.json":
        os.remove(folder / "model.safetensors")
    if (folder / name).exists():
        os.remove(folder / name)
    if what == "device":
        (folder / name).symlink_to("/dev/zero")
    elif what == "pipe":
        os.mkfifo(folder / name)
    elif what == "directory":
        (folder / name).mkdir()
    else:
        monkeypatch.setattr(config_fields, "LARGEST_JSON", 10)
        (folder / name).write_text("[" * 100)
    refused(folder, tmp_path, "is not a file|at most 10 are read|cut short", RunError)


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("gpt2", {"n_layer": 3000}),
        ("gpt2", {"n_positions": 10**12}),
        ("gpt2", {"n_embd": 1 << 62}),
        ("gpt2", {"vocab_size": 2_000_000}),
        ("llama", {"max_position_embeddings": 1 << 20, "head_dim": 1 << 20}),
        ("llama", {"max_position_embeddings": 10**7}),
        ("llama", {"num_hidden_layers": 10**6}),
        ("marian", {"max_position_embeddings": 1 << 20, "d_model": 1 << 20}),
        ("marian", {"decoder_layers": 10**6}),
        ("t5", {"n_positions": 10**12}),
        ("t5", {"d_model": 1 << 20, "d_ff": 1 << 20, "num_layers": 20}),
        ("bert", {"num_hidden_layers": 10**6}),
        ("vit", {"image_size": 1 << 20, "patch_size": 1, "hidden_size": 1 << 20}),
        ("vit", {"patch_size": 1 << 20, "image_size": 1 << 20, "hidden_size": 1 << 20}),
    ],
)
def test_sizes_that_no_weights_bear_out_are_refused_at_once(family, changes, made, tmp_path):
    folder = made(family, **changes)
    began = time.process_time()
    refused(folder, tmp_path, "config.json|vocab_size|do not fit")
    assert time.process_time() - began < 5
