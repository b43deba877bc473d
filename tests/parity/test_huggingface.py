"""Hugging Face's GPT-2 and Llama, imported and exported: the same logits and the same texts; nothing unsafe is read."""

import json
import os
import shutil
import struct

import pytest
import tokenizers
import torch
from refusing import refused
from tokenizers import decoders, models, pre_tokenizers
from torch.testing import assert_close

import regard
from regard.cli import main
from regard.decode.beam import beam_search
from regard.decode.config import DecodeConfig
from regard.decode.greedy import greedy
from regard.errors import ConfigError, RunError
from regard.interop.huggingface import export_run, import_directory
from regard.nn.batch import Tokens, Windows
from regard.runs.files import read_tensors, write_tensors
from regard.text.chat import Conversation

transformers = pytest.importorskip("transformers")
V, EOS, END = 61, 0, 1
FAMILIES = ["gpt2", "gpt2 untied", "llama", "llama with biases, untied"]


def their_model(family):
    torch.manual_seed(1)
    ends = {"bos_token_id": EOS, "eos_token_id": EOS, "attn_implementation": "eager"}
    if family.startswith("gpt2"):
        config = transformers.GPT2Config(
            vocab_size=V, n_embd=24, n_layer=3, n_head=4, n_inner=36, n_positions=40,
            tie_word_embeddings="untied" not in family, **ends,
        )  # fmt: skip
        model = transformers.GPT2LMHeadModel(config)
    else:
        bias = "biases" in family
        config = transformers.LlamaConfig(
            vocab_size=V, hidden_size=24, intermediate_size=36, num_hidden_layers=3, num_attention_heads=6,
            num_key_value_heads=2, max_position_embeddings=40, attention_bias=bias, mlp_bias=bias,
            tie_word_embeddings=not bias, rope_parameters={"rope_type": "default", "rope_theta": 5000.0}, **ends,
        )  # fmt: skip
        model = transformers.LlamaForCausalLM(config)
    for name, parameter in model.named_parameters():
        # Far from how a model starts, so that no two parts could be mistaken for each other. A large shift in the last
        # norm would predict the same token over and over.
        norm = ("norm" in name or ".ln_" in name) and name.endswith("weight")
        torch.nn.init.normal_(parameter, mean=float(norm), std=0.1 if name.endswith("bias") else 0.3)
    return model.eval()


def their_tokenizer():
    letters = [chr(ord("a") + index % 26) + str(index // 26) for index in range(V - 3)]
    marks = {"<|endoftext|>": EOS, "<|im_end|>": END, "<|im_start|>": V - 1}
    vocabulary = marks | {letter: index + 2 for index, letter in enumerate(letters)}
    tokenizer = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token="<|endoftext|>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.decoder = decoders.WordPiece(cleanup=False)
    return tokenizer


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Each family as `transformers` saves it, and the run it was imported to."""
    made = {}
    for family in FAMILIES:
        folder = tmp_path_factory.mktemp("hf")
        model = their_model(family)
        model.save_pretrained(folder / "theirs")
        their_tokenizer().save(str(folder / "theirs" / "tokenizer.json"))
        made[family] = folder / "theirs", model, import_directory(folder / "theirs", folder / "run")
    return made


def prompts(count=50):
    generator = torch.Generator().manual_seed(3)
    lengths = torch.randint(1, 12, (count,), generator=generator).tolist()
    return [torch.randint(2, V, (length,), generator=generator).tolist() for length in lengths]


def our_logits(run, rows):
    tokens = Tokens.of(rows)
    with torch.no_grad():
        return run.model.logits(Windows(tokens, tokens.ids, 0))


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_logits_are_equal_after_import_and_after_a_round_trip(family, saved, tmp_path):
    _, model, run = saved[family]
    rows = torch.randint(2, V, (5, 40), generator=torch.Generator().manual_seed(4)).tolist()
    expected = model(torch.tensor(rows)).logits
    assert_close(our_logits(run, rows), expected, atol=5e-5, rtol=1e-5)  # logits of up to 20: some of their last bits
    export_run(run, tmp_path / "exported")
    again = import_directory(tmp_path / "exported", tmp_path / "again")
    assert_close(our_logits(again, rows), expected, atol=5e-5, rtol=1e-5)
    kind = type(model)
    theirs = kind.from_pretrained(tmp_path / "exported", attn_implementation="eager").eval()
    assert_close(theirs(torch.tensor(rows)).logits, expected, atol=1e-6, rtol=1e-6)
    one, other = (read_tensors(path / "model.safetensors") for path in (saved[family][0], tmp_path / "exported"))
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("family", ["gpt2", "llama"])
@torch.no_grad()
def test_greedy_outputs_are_equal_with_and_without_padding(family, saved):
    _, model, run = saved[family]
    rows = prompts()
    expected = {}
    for length in sorted({len(row) for row in rows}):  # theirs without any padding
        alike = torch.tensor([row for row in rows if len(row) == length])
        found = model.generate(
            alike, attention_mask=torch.ones_like(alike), max_new_tokens=8, do_sample=False, pad_token_id=EOS
        )
        for row, tokens in zip(alike.tolist(), found[:, length:].tolist(), strict=True):
            expected[tuple(row)] = tokens[: tokens.index(EOS)] if EOS in tokens else tokens
    expected = [expected[tuple(row)] for row in rows]
    config = DecodeConfig(beam=1, max_len=8, max_ratio=None)

    def ours(rows):
        first = torch.tensor([row[-1] for row in rows])
        return [
            one.tokens for one in greedy(run.model, run.model.start(Tokens.of(rows)), first, eos=EOS, config=config)
        ]

    assert ours(rows) == expected
    assert [ours([row])[0] for row in rows] == expected
    assert len({tuple(tokens) for tokens in expected}) > 20
    text = run.vocabularies.target.decode(rows[0])
    assert run.generate(text, temperature=0, max_len=8)[0].split() == [
        run.vocabularies.target.pieces([token])[0] for token in expected[0]
    ]


@pytest.mark.parametrize("family", ["gpt2", "llama"])
@pytest.mark.parametrize("exact", [False, True])
@torch.no_grad()
def test_beams_are_equal_with_and_without_padding(family, exact, saved):
    """The same search in both: theirs with a forced end, `early_stopping=False` or, where ours is exact, "never"."""
    _, model, run = saved[family]
    lengths = torch.tensor([1, 3, 6, 10])[torch.randint(4, (50,), generator=torch.Generator().manual_seed(5))].tolist()
    rows = [(row * 10)[:length] for row, length in zip(prompts(), lengths, strict=True)]

    def theirs(rows):
        longest = max(map(len, rows))
        ids = torch.tensor([[EOS] * (longest - len(row)) + row for row in rows])
        mask = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in rows])
        found = model.generate(
            ids, attention_mask=mask, num_beams=4, do_sample=False, max_new_tokens=8, pad_token_id=EOS,
            length_penalty=0.7, early_stopping="never" if exact else False, forced_eos_token_id=EOS,
        )[:, longest:].tolist()  # fmt: skip
        return [tokens[: tokens.index(EOS)] for tokens in found]

    config = DecodeConfig(
        beam=4, top_beams=4, length_penalty=0.7, length_form="power", exact=exact, force_end=True, max_len=8
    )

    def ours(rows):
        first, state = torch.tensor([row[-1] for row in rows]), run.model.start(Tokens.of(rows))
        return [one[0].tokens for one in beam_search(run.model, state, first, eos=EOS, config=config)]

    expected = theirs(rows)
    assert ours(rows) == expected
    alone = {}  # those of one length go together, so that nothing is padded
    for length in {len(row) for row in rows}:
        alike = [row for row in rows if len(row) == length]
        alone |= dict(zip(map(tuple, alike), zip(theirs(alike), ours(alike), strict=True), strict=True))
    assert [alone[tuple(row)] for row in rows] == [(tokens, tokens) for tokens in expected]
    assert len({tuple(tokens) for tokens in expected}) > 20
    tokenizer = run.vocabularies.target
    settings = {"beam": 4, "length_penalty": 0.7, "length_form": "power", "exact": exact, "force_end": True}
    (best,) = run.beams(tokenizer.decode(rows[0]), max_len=8, **settings)
    assert list(best.tokens) == expected[0]


def test_beams_end_where_the_model_reads_no_more_and_before_a_stop_string(saved):
    run = saved["gpt2"][2]
    texts = run.beams("a0 b0", beam=3, top_beams=3, max_len=200, min_len=150)
    assert [len(one.tokens) for one in texts] == [39] * 3  # 40 places, the last token's own not needed
    assert {one.ended for one in texts} == {"length"}
    whole = run.generate("a0 b0", beam=3, max_len=12, min_len=10)[0]
    word = whole.split()[4]
    (cut,) = run.beams("a0 b0", beam=3, max_len=12, min_len=10, stop=[word])
    assert cut.ended == "stop"
    assert cut.text == whole[: whole.index(word)]
    long = run.beams("a0 " * 100, beam=2, max_len=5)
    assert len(long[0].tokens) <= 5
    with pytest.raises(ConfigError, match=r"temperature=0\.5"):
        run.generate("a0", beam=2, temperature=0.5)


@torch.no_grad()
def test_conversations_are_answered_alike_and_end_at_their_mark(tmp_path, capsys, stdin):
    model = their_model("llama with biases, untied")
    model.lm_head.weight[END] *= 2  # so that answers end now and then
    model.save_pretrained(tmp_path / "theirs")
    their_tokenizer().save(str(tmp_path / "theirs" / "tokenizer.json"))
    run = import_directory(tmp_path / "theirs", tmp_path / "run")
    tokenizer, ended = run.vocabularies.target, []
    for row in prompts(20):
        talk = Conversation().say("system", "a0").say("user", tokenizer.decode(row))
        ids = torch.tensor([talk.ids(tokenizer)])
        assert ids[0].tolist().count(END) == 2
        found = model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=15, do_sample=False, eos_token_id=[EOS, END],
            pad_token_id=EOS,
        )[0, ids.shape[1] :].tolist()  # fmt: skip
        expected = [token for token in found if token not in (EOS, END)]
        generation = run.generation(talk, temperature=0, max_len=15)
        shown = "".join(text for _, text in generation)
        (output,) = generation.outputs
        assert (list(output.tokens), output.text) == (expected, shown)
        ended.append((output.ended, found[-1]))
    assert ("eos", END) in ended
    assert "length" in {how for how, _ in ended}
    question = tokenizer.decode(row)
    asked = ["generate", str(run.directory), "--chat", "chatml", "--system", "a0", "--temperature", "0", "--max-tokens"]
    assert main([*asked, "15", question]) == 0
    assert capsys.readouterr().out == shown + "\n"
    stdin(f"{question}\n\nb0\n".encode())
    assert main([*asked, "15", "--json"]) == 0
    first, second = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert first == {"prompt": question, "text": shown, "ended": output.ended}
    talk = talk.say("assistant", shown.strip()).say("user", "b0")
    assert second["text"] == run.generate(talk, temperature=0, max_len=15)[0]
    (best,) = run.beams(talk, beam=3, max_len=15)
    assert END not in best.tokens
    assert main(["generate", str(run.directory), "a0", "--system", "b0"]) == 2
    assert main(["generate", str(run.directory), "--chat", "chatml", "--samples", "2"]) == 2


def test_the_exported_tokenizer_is_read_back(saved, tmp_path):
    run = saved["llama"][2]
    export_run(run, tmp_path / "out")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    assert theirs("a0 b1")["input_ids"] == run.vocabularies.target.encode("a0 b1")
    assert theirs.eos_token_id == run.vocabularies.target.eos == EOS


def test_a_run_trained_here_is_read_by_transformers(tmp_path):
    (tmp_path / "text.txt").write_text("sun moon star\n" * 40, encoding="utf-8")
    small = ["model.width=16", "model.heads=2", "model.layers=1", "model.feed_forward=24", "model.bias=true"]
    small += ["model.positions=learned"]
    small += ["data.max_len=16", "train.batch_tokens=64", "train.steps=2", "train.threads=1"]
    data = {"train": [str(tmp_path / "text.txt")]}
    run = regard.train(regard.make_config(None, "gpt-tiny", small, {"data": data}), tmp_path / "run")
    export_run(run, tmp_path / "out")
    theirs = transformers.GPT2LMHeadModel.from_pretrained(tmp_path / "out").eval()
    ids = run.vocabularies.target.encode("sun moon")
    with torch.no_grad():
        assert_close(theirs(torch.tensor([ids])).logits, our_logits(run, [ids]), atol=5e-5, rtol=1e-4)
    with pytest.raises(RunError, match="is not empty"):
        export_run(run, tmp_path / "out")


@pytest.fixture
def copy(saved, tmp_path):
    def make(family="gpt2", **changes):
        folder = tmp_path / "copy"
        shutil.copytree(saved[family][0], folder)
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))
        return folder

    return make


@pytest.mark.parametrize(
    ("family", "changes", "pattern"),
    [
        ("gpt2", {"model_type": "bloom"}, "model_type='bloom'"),
        ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx=True"),
        ("gpt2", {"activation_function": "mish"}, "activation_function='mish'"),
        ("gpt2", {"n_layer": 10**9}, "n_layer=1000000000"),
        ("gpt2", {"n_layer": 10**6}, "config.json .*layers=1000000 must be at most"),
        ("gpt2", {"n_embd": "wide"}, "n_embd='wide'"),
        ("gpt2", {"auto_map": {"AutoModel": "code.Model"}}, "auto_map"),
        ("gpt2", {"vocab_size": 9}, "vocab_size=9"),
        ("llama", {"rope_parameters": {"rope_type": "yarn", "factor": 4.0}}, "rope_parameters"),
        ("llama", {"head_dim": 8}, r"q_proj.weight is \(24, 24\), not \(48, 24\)"),
        ("llama", {"mlp_bias": True}, "mlp_bias=True"),
        ("llama", {"max_position_embeddings": 10**12}, "max_position_embeddings"),
        ("llama", {"num_key_value_heads": 4}, "kv_heads=4"),
        ("llama", {"quantization_config": {"bits": 4}}, "quantization_config"),
    ],
)
def test_an_unsupported_configuration_says_which_field(copy, tmp_path, family, changes, pattern):
    refused(copy(family, **changes), tmp_path, pattern)


def test_every_missing_extra_or_misshapen_weight_is_named_at_once(copy, tmp_path):
    folder = copy("llama")
    weights = read_tensors(folder / "model.safetensors")
    del weights["model.norm.weight"]
    weights["model.layers.1.mlp.up_proj.weight"] = torch.zeros(3, 5)
    weights["model.layers.7.mlp.up_proj.weight"] = torch.zeros(36, 24)
    weights["model.layers.0.mlp.up_proj.weight"] = torch.zeros(36, 24, dtype=torch.int8)
    write_tensors(folder / "model.safetensors", weights)
    said = refused(folder, tmp_path, "do not fit", RunError)
    for part in ("missing model.norm.weight", "up_proj.weight is (3, 5), not (36, 24)", "extra model.layers.7", "I8"):
        assert part in said


def test_old_checkpoints_without_a_prefix_and_with_masks_are_read(copy, tmp_path, saved):
    folder = copy("gpt2")
    weights = {
        name.removeprefix("transformer."): value for name, value in read_tensors(folder / "model.safetensors").items()
    }
    write_tensors(folder / "model.safetensors", {**weights, "h.0.attn.bias": torch.ones(1, 1, 40, 40)})
    run = import_directory(folder, tmp_path / "new")
    rows = [[5, 6, 7]]
    assert_close(our_logits(run, rows), our_logits(saved["gpt2"][2], rows))


def test_shards_are_read_but_never_from_elsewhere(copy, tmp_path, saved):
    folder = copy("gpt2")
    weights = read_tensors(folder / "model.safetensors")
    names = sorted(weights)
    for part, chosen in (("a", names[:9]), ("b", names[9:])):
        write_tensors(folder / f"{part}.safetensors", {name: weights[name] for name in chosen})
    os.remove(folder / "model.safetensors")
    table = {name: "a.safetensors" if name in names[:9] else "b.safetensors" for name in names}
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": table}))
    run = import_directory(folder, tmp_path / "run")
    assert_close(our_logits(run, [[5, 6]]), our_logits(saved["gpt2"][2], [[5, 6]]))
    index.write_text(json.dumps({"weight_map": {"x": "../run/model.safetensors"}}))
    refused(folder, tmp_path, "no part of it")
    index.write_text(json.dumps({"weight_map": {"x": "c.safetensors"}}))
    refused(folder, tmp_path, "missing its c.safetensors")


def test_pickle_and_damaged_files_are_refused(copy, tmp_path):
    folder = copy("gpt2")
    whole = (folder / "model.safetensors").read_bytes()
    for damaged in (whole[:-4], whole[:20], b"", struct.pack("<Q", 1 << 60) + whole[8:]):
        (folder / "model.safetensors").write_bytes(damaged)
        refused(folder, tmp_path, "cut short or is not safetensors")
    os.remove(folder / "model.safetensors")
    refused(folder, tmp_path, "missing its model.safetensors")
    (folder / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'true'\ntR.")
    refused(folder, tmp_path, "pickle")
    (folder / "tokenizer.json").write_text("{}")
    refused(folder, tmp_path, "not a tokenizer")
    os.remove(folder / "tokenizer.json")
    refused(folder, tmp_path, "missing its tokenizer.json")
    (folder / "config.json").write_text("[]")
    refused(folder, tmp_path, "config.json")
    refused(tmp_path / "nowhere", tmp_path, "no such directory")


def test_what_a_family_cannot_say_is_not_exported(saved, tmp_path):
    (tmp_path / "text.txt").write_text("sun moon star\n" * 40, encoding="utf-8")
    small = ["model.width=16", "model.heads=2", "model.layers=1", "model.feed_forward=24", "data.max_len=16"]
    small += ["train.batch_tokens=64", "train.steps=1", "train.threads=1", "model.positions=rotary"]
    data = {"train": [str(tmp_path / "text.txt")]}
    run = regard.train(regard.make_config(None, "gpt-tiny", small, {"data": data}), tmp_path / "run")
    with pytest.raises(ConfigError, match="norm='layer' is not supported"):
        export_run(run, tmp_path / "out")
    assert not (tmp_path / "out").exists()
