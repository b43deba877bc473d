"""Hugging Face's Marian, BART and T5, imported and exported: the same logits, the same greedy and beam outputs.

A beam search is the same in both under these settings: ours with `length_form="power"` and `force_end=True`, theirs
with `forced_eos_token_id` the token that ends a text and `early_stopping=False`; or ours with `exact=True` and
`top_beams=beam`, theirs with `early_stopping="never"`. Without the forced end theirs would let outputs that were cut
short compete with finished ones, and ours would not.
"""

import json
import os
import shutil
from dataclasses import replace

import pytest
import tokenizers
import torch
from refusing import refused
from tokenizers import decoders, models, pre_tokenizers, processors
from torch.testing import assert_close

import regard
from regard.data import PairList
from regard.decode.config import DecodeConfig
from regard.decode.search import search
from regard.errors import RunError
from regard.interop.engines import export_run as to_engine
from regard.interop.huggingface import export_run, import_directory
from regard.interop.parity import check_engine_files, check_huggingface
from regard.nn.batch import Pairs, Tokens
from regard.runs.files import read_tensors, write_tensors
from regard.tasks.looking import document
from regard.tasks.run import Run

transformers = pytest.importorskip("transformers")
V, PAD, EOS, START, LENGTH = 61, 0, 1, 2, 12
FAMILIES = ["marian", "marian with two tables", "bart", "t5", "t5 gated, head of its own"]


def their_model(family):
    torch.manual_seed(1)
    ends = {"pad_token_id": PAD, "eos_token_id": EOS, "attn_implementation": "eager"}
    if family.startswith("t5"):
        config = transformers.T5Config(
            vocab_size=V, d_model=24, d_kv=5, d_ff=36, num_layers=2, num_decoder_layers=2, num_heads=4,
            relative_attention_num_buckets=8, relative_attention_max_distance=12, decoder_start_token_id=PAD,
            feed_forward_proj="gated-gelu" if "gated" in family else "relu",
            tie_word_embeddings="own" not in family, **ends,
        )  # fmt: skip
        model = transformers.T5ForConditionalGeneration(config)
        if "own" in family:
            model.lm_head.weight = torch.nn.Parameter(torch.empty(V, 24))
    else:
        shared = {} if "two" not in family else {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": V}
        kinds = {"marian": ("Marian", "MarianMTModel"), "bart": ("Bart", "BartForConditionalGeneration")}
        name, kind = kinds[family.split()[0]]
        config = getattr(transformers, f"{name}Config")(
            vocab_size=V, d_model=24, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
            decoder_attention_heads=4, encoder_ffn_dim=36, decoder_ffn_dim=36, max_position_embeddings=40,
            scale_embedding=name == "Marian", decoder_start_token_id=PAD if name == "Marian" else EOS,
            bos_token_id=START, forced_eos_token_id=EOS, **shared, **ends,
        )  # fmt: skip
        model = getattr(transformers, kind)(config)
    torch.manual_seed(2)
    matrices = 0.6 if family.startswith("marian") else 0.3
    for name, parameter in model.named_parameters():
        # Far from how a model starts, so that no two parts could be mistaken for each other, and so that what is
        # written depends on the source and ends now and then.
        if "embed_positions" in name and family.startswith("marian"):
            continue
        norm = "norm" in name and name.endswith("weight")
        table = "shared" in name or "embed_tokens" in name or "lm_head" in name
        spread = 0.1 if norm or name.endswith("bias") else 0.2 if table else matrices
        torch.nn.init.normal_(parameter, mean=float(norm), std=spread)
    if hasattr(model, "final_logits_bias"):
        model.final_logits_bias.normal_(std=0.3)[0, EOS] += 1.25 if family.startswith("marian") else 1.5
    else:
        model.lm_head.weight.data[EOS] *= 1.5
    return model.eval()


def their_tokenizer(family):
    letters = [chr(ord("a") + index % 26) + str(index // 26) for index in range(V - 4)]
    named = {"<pad>": PAD, "</s>": EOS, "<s>": START, "<unk>": 3}
    tokenizer = tokenizers.Tokenizer(
        models.WordLevel(named | {letter: 4 + place for place, letter in enumerate(letters)}, unk_token="<unk>")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.decoder = decoders.WordPiece(cleanup=False)
    before = "<s> " if family == "bart" else ""
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{before}$A </s>", special_tokens=[("<s>", START), ("</s>", EOS)]
    )
    return tokenizer


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Each family as `transformers` saves it, and the run it was imported to."""
    made = {}
    for family in FAMILIES:
        folder = tmp_path_factory.mktemp("hf")
        model = their_model(family)
        model.save_pretrained(folder / "theirs")
        their_tokenizer(family).save(str(folder / "theirs" / "tokenizer.json"))
        made[family] = folder / "theirs", model, import_directory(folder / "theirs", folder / "run")
    return made


def sources(count=50):
    generator = torch.Generator().manual_seed(3)
    lengths = torch.tensor([1, 2, 4, 7, 11])[torch.randint(5, (count,), generator=generator)].tolist()
    return [[*torch.randint(4, V, (length,), generator=generator).tolist(), EOS] for length in lengths]


def their_logits(model, rows, targets):
    padded, inputs = Tokens.of(rows, PAD), Tokens.of([row[:-1] for row in targets], PAD)
    return model(input_ids=padded.ids, attention_mask=padded.mask().long(), decoder_input_ids=inputs.ids).logits


def our_logits(run, rows, targets):
    return run.model.logits(Pairs(Tokens.of(rows, PAD), Tokens.of(targets, PAD)))


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_logits_are_equal_after_import_and_after_a_round_trip(family, saved, tmp_path):
    folder, model, run = saved[family]
    rows, begin = sources(12), run.vocabularies.target.bos
    assert begin == model.config.decoder_start_token_id
    targets = [[begin, *torch.randint(4, V, (13,)).tolist()] for _ in rows]
    expected = their_logits(model, rows, targets)
    assert_close(our_logits(run, rows, targets), expected, atol=5e-5, rtol=1e-4)
    export_run(run, tmp_path / "exported")
    again = import_directory(tmp_path / "exported", tmp_path / "again")
    assert_close(our_logits(again, rows, targets), expected, atol=5e-5, rtol=1e-4)
    theirs = type(model).from_pretrained(tmp_path / "exported", attn_implementation="eager").eval()
    assert_close(their_logits(theirs, rows, targets), expected, atol=1e-6, rtol=1e-6)
    one, other = (read_tensors(path / "model.safetensors") for path in (folder, tmp_path / "exported"))
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("family", FAMILIES)
def test_an_imported_model_goes_on_to_ctranslate2(family, saved, tmp_path):
    pytest.importorskip("ctranslate2")
    run = saved[family][2]
    short = replace(run.config, decode=replace(run.config.decode, max_len=LENGTH))
    run = Run(run.directory, short, run.vocabularies, run.model)
    texts = [" ".join(run.vocabularies.source.pieces(row[:-1])) for row in sources(20)]
    out = to_engine(run, "ctranslate2", tmp_path / "exported")
    report, _ = check_engine_files(run, "ctranslate2", out, texts)
    # By beam a model that says anything at random shows where a search stops, and the two stop by unlike rules.
    assert report["compared"][0]["share"] == 1.0
    _, lines = check_huggingface(run, export_run(run, tmp_path / "back"), texts)
    assert lines[0].startswith("logits of 20 inputs")


def their_outputs(model, rows, **options):
    """Their outputs; rows of unequal length are padded."""
    padded = Tokens.of(rows, PAD)
    found = model.generate(
        padded.ids, attention_mask=padded.mask().long(), do_sample=False, max_new_tokens=LENGTH,
        forced_eos_token_id=EOS, **options,
    )[:, 1:].tolist()  # fmt: skip
    return [tokens[: tokens.index(EOS)] for tokens in found]


def our_outputs(run, rows, **options):
    config = DecodeConfig(
        max_len=LENGTH, max_ratio=None, length_form="power", force_end=True, forbid=run.config.decode.forbid, **options
    )
    first = torch.full((len(rows),), run.vocabularies.target.bos)
    found = search(run.model, run.model.start(Pairs(Tokens.of(rows, PAD))), first, eos=EOS, config=config)
    return [one[0].tokens for one in found]


SEARCHES = {
    "greedy": ({"num_beams": 1}, {"beam": 1}),
    "beam": (
        {"num_beams": 4, "length_penalty": 1.0, "early_stopping": False},
        {"beam": 4, "length_penalty": 1.0},
    ),
    "beam, plain sums": (
        {"num_beams": 3, "length_penalty": 0.0, "early_stopping": False},
        {"beam": 3, "length_penalty": 0.0},
    ),
    "exact beam": (
        {"num_beams": 4, "length_penalty": 0.6, "early_stopping": "never"},
        {"beam": 4, "length_penalty": 0.6, "exact": True, "top_beams": 4},
    ),
}


@pytest.mark.parametrize("how", SEARCHES)
@pytest.mark.parametrize("family", ["marian", "bart", "t5"])
@torch.no_grad()
def test_outputs_are_equal_with_and_without_padding(family, how, saved):
    _, model, run = saved[family]
    rows, (theirs, ours) = sources(), SEARCHES[how]
    expected = their_outputs(model, rows, **theirs)
    assert our_outputs(run, rows, **ours) == expected
    alone = {}  # those of one length go together, so that nothing is padded
    for length in {len(row) for row in rows}:
        alike = [row for row in rows if len(row) == length]
        outputs = zip(their_outputs(model, alike, **theirs), our_outputs(run, alike, **ours), strict=True)
        alone |= dict(zip(map(tuple, alike), outputs, strict=True))
    assert [alone[tuple(row)] for row in rows] == [(tokens, tokens) for tokens in expected]
    assert len({tuple(tokens) for tokens in expected}) > 5
    assert len({len(tokens) for tokens in expected}) > 1


def test_an_imported_run_takes_over_how_it_is_decoded(saved, tmp_path):
    folder, _, run = saved["marian"]
    decode = run.config.decode
    assert (decode.beam, decode.length_form, decode.length_penalty, decode.force_end) == (1, "power", 1.0, True)
    shutil.copytree(folder, tmp_path / "copy")
    path = tmp_path / "copy" / "generation_config.json"
    said = {"num_beams": 6, "length_penalty": 0.5, "max_length": 30, "min_length": 3, "no_repeat_ngram_size": 2}
    said |= {"bad_words_ids": [[PAD]], "forced_bos_token_id": 7, "early_stopping": "never"}
    path.write_text(json.dumps(json.loads(path.read_text()) | said))
    run = import_directory(tmp_path / "copy", tmp_path / "run")
    decode = run.config.decode
    assert (decode.beam, decode.length_penalty, decode.max_len, decode.min_len) == (6, 0.5, 29, 2)
    assert (decode.no_repeat, decode.forbid, decode.force_first, decode.exact) == (2, (PAD,), 7, True)
    export_run(run, tmp_path / "out")
    assert json.loads((tmp_path / "out" / "generation_config.json").read_text()).items() >= said.items()
    path.write_text(json.dumps(said | {"bad_words_ids": [[4, 5]]}))
    refused(tmp_path / "copy", tmp_path, "bad_words_ids")
    path.write_text(json.dumps(said | {"length_penalty": -1.0}))
    refused(tmp_path / "copy", tmp_path, "length_penalty=-1.0")


@torch.no_grad()
def test_settings_of_theirs_that_only_restrict_the_search_give_the_same_outputs(saved):
    _, model, run = saved["bart"]
    rows = sources(20)
    theirs = {"num_beams": 3, "length_penalty": 1.0, "early_stopping": False}
    expected = their_outputs(
        model, rows, **theirs, no_repeat_ngram_size=2, min_length=4, bad_words_ids=[[33], [40]], forced_bos_token_id=9
    )
    ours = {"beam": 3, "length_penalty": 1.0, "no_repeat": 2, "min_len": 3, "force_first": 9}
    config = DecodeConfig(max_len=LENGTH, max_ratio=None, length_form="power", force_end=True, forbid=(33, 40), **ours)
    state, first = run.model.start(Pairs(Tokens.of(rows, PAD))), torch.full((len(rows),), run.vocabularies.target.bos)
    found = search(run.model, state, first, eos=EOS, config=config)
    assert [one[0].tokens for one in found] == expected
    assert len({tuple(tokens) for tokens in expected}) > 5


@pytest.mark.parametrize("family", ["marian", "bart", "t5"])
def test_an_imported_run_translates_is_measured_and_looked_into(family, saved, tmp_path):
    _, model, run = saved[family]
    texts = ["a0 b1 c0 d0", "e0 f1"]
    ids = [their_tokenizer(family).encode(text).ids for text in texts]
    assert [run.vocabularies.source_row(run.vocabularies.source.encode(text)) for text in texts] == ids
    padded = Tokens.of(ids, PAD)
    expected = model.generate(
        padded.ids, attention_mask=padded.mask().long(), num_beams=2, max_new_tokens=8, length_penalty=1.0,
        early_stopping=False, do_sample=False, forced_eos_token_id=EOS,
    )  # fmt: skip
    names = {PAD, EOS, *run.vocabularies.target.opening}
    written = [
        " ".join(run.vocabularies.target.pieces([i for i in row if i not in names])) for row in expected.tolist()
    ]
    assert run.translate(texts, beam=2, max_len=8, length_penalty=1.0, force_end=True) == written
    scores = regard.evaluate(run, PairList([(text, "a0 b0") for text in texts]), beam=2, max_len=8)
    assert scores["sentences"] == 2
    assert scores["perplexity"] > 1
    seen = document(run, texts[:1], beam=1, max_len=5)
    assert {one.kind for one in seen.sentences[0].attentions} == {"self", "cross"}


@pytest.mark.parametrize("family", ["marian", "bart", "t5"])
def test_an_imported_run_is_trained_on_in_a_new_one(family, saved, tmp_path):
    base = saved[family][2]
    (tmp_path / "pairs.tsv").write_text("a0 b1 c0\tb0 a1\nd0\te0 f0\n" * 30, encoding="utf-8")
    extra = {"data": {"train": [str(tmp_path / "pairs.tsv")]}, "train": {"start_from": str(base.directory)}}
    small = [
        "train.steps=20",
        "train.batch_tokens=200",
        "train.schedule=constant",
        "train.learning_rate=0.003",
        "train.warmup=1",
    ]
    small += ["data.max_len=20", "train.log_every=1", "train.threads=1", "train.smoothing=0", "model.dropout=0.1"]
    run = regard.train(regard.make_config(None, None, small, extra), tmp_path / "run")
    assert run.vocabularies.target_row([5]) == base.vocabularies.target_row([5])
    assert run.config.decode == base.config.decode
    assert run.config.model["dropout"] == 0.1
    losses = [json.loads(line)["nll"] for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert losses[-1] < 0.8 * losses[0]
    one, other = (dict(model.named_parameters()) for model in (base.model, run.model))
    assert all(0 < (one[name] - other[name]).abs().max() < 0.2 for name in one if "positions" not in name)
    export_run(run, tmp_path / "out")
    with pytest.raises(RunError, match=r"no checkpoint to resume.*regard train --from"):
        regard.resume(base.directory)


@pytest.mark.parametrize(
    ("family", "changes", "pattern"),
    [
        ("marian", {"normalize_before": True}, "normalize_before=True"),
        ("marian", {"decoder_attention_heads": 2}, "decoder_attention_heads=2"),
        ("marian", {"static_position_embeddings": False}, "static_position_embeddings=False"),
        ("marian", {"decoder_vocab_size": 70}, "decoder_vocab_size=70"),
        ("marian", {"encoder_layers": 10**6}, "layers"),
        ("marian", {"d_model": 10**9}, "d_model=1000000000"),
        ("bart", {"add_final_layer_norm": True}, "add_final_layer_norm=True"),
        ("bart", {"decoder_ffn_dim": 12}, "decoder_ffn_dim=12"),
        ("bart", {"activation_function": "mish"}, "activation_function='mish'"),
        ("bart", {"scale_embedding": "yes"}, "scale_embedding='yes'"),
        ("bart", {"vocab_size": 9}, "vocab_size=9"),
        ("bart", {"forced_eos_token_id": 5}, "forced_eos_token_id=5"),
        ("t5", {"feed_forward_proj": "gated-mish"}, "feed_forward_proj='gated-mish'"),
        ("t5", {"is_encoder_decoder": False}, "is_encoder_decoder=False"),
        ("t5", {"relative_attention_num_buckets": 300}, "relative_buckets=300"),
        ("t5", {"d_kv": 0}, "d_kv=0"),
        ("t5", {"auto_map": {"AutoModel": "code.Model"}}, "auto_map"),
    ],
)
def test_an_unsupported_configuration_says_which_field(family, changes, pattern, saved, tmp_path):
    shutil.copytree(saved[family][0], tmp_path / "copy")
    for name in ("config.json", "generation_config.json"):
        path = tmp_path / "copy" / name
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    refused(tmp_path / "copy", tmp_path, pattern)


@pytest.mark.parametrize(
    ("family", "gone", "shape"),
    [
        ("marian", "model.shared.weight", "model.encoder.layers.0.fc1.weight"),
        ("bart", "model.decoder.layernorm_embedding.bias", "model.decoder.embed_positions.weight"),
        ("t5", "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight", "shared.weight"),
    ],
)
def test_every_missing_extra_or_misshapen_weight_is_named_at_once(family, gone, shape, saved, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(saved[family][0], folder)
    weights = read_tensors(folder / "model.safetensors")
    del weights[gone]
    weights |= {shape: torch.zeros(3, 5), "decoder.strange.weight": torch.zeros(2)}
    write_tensors(folder / "model.safetensors", weights)
    said = refused(folder, tmp_path, "do not fit", RunError)
    for part in (f"missing {gone}", f"{shape} is (3, 5), not", "extra decoder.strange.weight"):
        assert part in said
    os.remove(folder / "model.safetensors")
    (folder / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'true'\ntR.")
    refused(folder, tmp_path, "pickle")


def test_weights_that_are_stored_twice_or_may_be_missing_are_read(saved, tmp_path):
    folder, model, run = saved["bart"]
    shutil.copytree(folder, tmp_path / "copy")
    weights = {name.removeprefix("model."): value for name, value in read_tensors(folder / "model.safetensors").items()}
    del weights["final_logits_bias"]
    weights["encoder.embed_tokens.weight"] = weights["shared.weight"].clone()
    write_tensors(tmp_path / "copy" / "model.safetensors", weights)
    bare = import_directory(tmp_path / "copy", tmp_path / "run")
    rows, targets = [[5, 6, EOS]], [[EOS, 7, 8]]
    with torch.no_grad():
        assert_close(our_logits(bare, rows, targets) + model.final_logits_bias, our_logits(run, rows, targets))


def test_a_run_trained_here_goes_out_and_comes_back(tmp_path):
    small = ["model.width=16", "model.heads=2", "model.encoder_layers=1", "model.decoder_layers=1"]
    small += ["train.steps=1", "train.batch_tokens=800", "train.validate_sentences=0", "train.threads=1"]
    small += ["tokenizer.vocab_size=300", "model.norm_first=false", "model.position_layout=halves"]
    for name in ("en", "fr"):
        (tmp_path / f"text.{name}").write_text(f"sun moon star {name}\n" * 20, encoding="utf-8")
    data = {"train": [str(tmp_path / "text.en"), str(tmp_path / "text.fr")], "world": 0}
    run = regard.train(regard.make_config(None, "tiny", small, {"data": data}), tmp_path / "run")
    export_run(run, tmp_path / "out")
    told = []
    again = import_directory(tmp_path / "out", tmp_path / "again", told.append)
    assert "without forced_eos_token_id" in told[0]  # a run trained here forces no end, and has a beam
    batch = Pairs(Tokens.of([[5, 6, 2]]), Tokens.of([[1, 7, 8, 2]]))
    with torch.no_grad():
        assert_close(again.model.logits(batch), run.model.logits(batch), atol=1e-5, rtol=1e-5)
    assert again.translate(["moon sun"], beam=1, max_len=6) == run.translate(["moon sun"], beam=1, max_len=6)
