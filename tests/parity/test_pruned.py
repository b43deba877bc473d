"""Runs that have lost heads, of every family, used like any other and exported to Hugging Face: the same logits."""

import json

import pytest
import torch
from torch.testing import assert_close

import regard
from regard.analysis.pruning import every_head, prune, save
from regard.errors import ConfigError
from regard.interop.huggingface import export_run, import_directory
from regard.look import attentions, masked
from regard.nn.batch import Images, Pairs, Texts, Tokens, Windows

transformers = pytest.importorskip("transformers")
import test_encoders as encoders  # noqa: E402
import test_huggingface as language  # noqa: E402
import test_huggingface_images as images  # noqa: E402
import test_huggingface_pairs as pairs  # noqa: E402

FAMILIES = ["marian", "bart", "gpt2", "llama with biases, untied", "Bert", "DistilBert", "Roberta", "vit"]
GIVEN = torch.arange(5, 12)[None]
PIXELS = torch.randn(2, 3, 20, 20, generator=torch.Generator().manual_seed(2))


def imported(family, folder):
    tokenizer = None
    if family in ("marian", "bart", "t5"):
        model, tokenizer = pairs.their_model(family), pairs.their_tokenizer(family)
    elif family == "vit":
        pytest.importorskip("PIL")
        model = images.their_model("classifier")
    elif family[0].isupper():
        model, tokenizer = encoders.their_model(family, "ForSequenceClassification"), encoders.their_tokenizer(family)
    else:
        model, tokenizer = language.their_model(family), language.their_tokenizer()
    model.save_pretrained(folder / "theirs")
    if tokenizer is not None:
        tokenizer.save(str(folder / "theirs" / "tokenizer.json"))
    return import_directory(folder / "theirs", folder / "run"), type(model)


def ours(run):
    tokens = Tokens.of(GIVEN.tolist())
    task = run.config.task
    if task == "images":
        return run.model.logits(Images(PIXELS, torch.zeros(2, dtype=torch.long), 2))
    if task == "translation":
        return run.model.logits(Pairs(tokens, Tokens.of([[*GIVEN[0].tolist(), 1]])))
    return run.model.logits(Texts(tokens) if task == "classification" else Windows(tokens, GIVEN, GIVEN.numel()))


def theirs(model, run):
    task = run.config.task
    if task == "images":
        return model(PIXELS).logits
    return model(GIVEN, **({"decoder_input_ids": GIVEN} if task == "translation" else {})).logits


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_a_pruned_run_is_the_masked_one_and_goes_out_with_the_same_logits(family, tmp_path):
    run, kind = imported(family, tmp_path)
    heads = every_head(run.model)
    # All heads of the last attention, the first of the first: layers differ, and one has none left.
    last = heads[-1][0]
    gone = [head for head in heads if head[0] == last] + heads[:1]
    size = run.config.model["heads"] // (run.config.model.get("kv_heads") or run.config.model["heads"])
    by_name = {}
    for name, head in gone:
        by_name.setdefault(name, []).extend(range(head * size, (head + 1) * size))
    with masked(run.model, by_name):
        expected = ours(run)
    smaller = prune(run, gone)
    assert_close(ours(smaller), expected, atol=1e-5, rtol=1e-5)
    assert sum(one.numel() for one in smaller.model.parameters()) < sum(one.numel() for one in run.model.parameters())
    save(smaller, run.directory, tmp_path / "smaller")
    loaded = regard.load(tmp_path / "smaller", "cpu")
    assert_close(ours(loaded), expected, atol=1e-5, rtol=1e-5)
    export_run(loaded, tmp_path / "out")
    back = kind.from_pretrained(tmp_path / "out", attn_implementation="eager").eval()
    assert_close(theirs(back, run), expected, atol=1e-5, rtol=1e-5)
    # And it comes back as a run, with heads that give nothing in the place of those that were removed.
    assert_close(ours(import_directory(tmp_path / "out", tmp_path / "again")), expected, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_where_every_layer_has_as_many_heads_left_llama_is_exported_smaller(tmp_path):
    run, kind = imported("llama", tmp_path)
    smaller = prune(run, [(name, layer % 2) for layer, name in enumerate(attentions(run.model))])
    export_run(smaller, tmp_path / "out")
    config = json.loads((tmp_path / "out" / "config.json").read_text(encoding="utf-8"))
    assert (config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"]) == (3, 1, 4)
    back = kind.from_pretrained(tmp_path / "out", attn_implementation="eager").eval()
    assert back.num_parameters() == sum(one.numel() for one in smaller.model.parameters())
    assert_close(theirs(back, run), ours(smaller), atol=1e-5, rtol=1e-5)
    again = import_directory(tmp_path / "out", tmp_path / "again")
    assert again.config.model["head_width"] == 4
    assert_close(ours(again), ours(smaller), atol=1e-5, rtol=1e-5)


def test_heads_with_a_bias_by_their_number_stay(tmp_path):
    run, _ = imported("t5", tmp_path)
    with pytest.raises(ConfigError, match="cannot be removed from a model with relative positions"):
        prune(run, every_head(run.model)[:1])
