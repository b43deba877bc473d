"""The life of a summarizer: train, stop and go on, summarize, measure, look, serve; and bad input refused."""

import json
import sys
from pathlib import Path

import pytest
import torch
from listeners import StopAt

import regard
from regard import make_config
from regard.cli import main
from regard.decode.constraints import Prefix, WordLimits, words_within
from regard.errors import ConfigError, DataError
from regard.look.attention_svg import excerpt, svg
from regard.tasks.looking import LookOptions, document
from regard.tasks.summarization import lead_sentences, lead_words
from regard.tasks.translator import word_beginnings
from regard.text import TokenizerConfig, train_vocabularies
from regard.trainer.trainer import Stopped
from regard.training.objectives import SequenceToSequence, coverage_loss

sys.path += [str(Path(__file__).parents[1] / folder) for folder in ("serve", "models")]
from model_zoo import make
from serve_toys import serving

SMALL = [
    *("data.telegrams=60", "train.steps=4", "train.warmup=2", "train.batch_tokens=400", "train.threads=1"),
    *("model.width=16", "train.validate_every=4", "train.save_every=2", "train.validate_sentences=3"),
    *("train.log_every=1", "decode.beam=2", "tokenizer.min_count=2"),
]
SHORT = {"summarize-tiny": ["model.heads=2", "model.feed_forward=16"], "summarize-recurrent": []}
LONG = " ".join(["word"] * 100_000)


@pytest.fixture(scope="module", autouse=True)
def few_telegrams():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("regard.tasks.summarization.TELEGRAMS_HELD_OUT", 12)
        yield


@pytest.fixture(scope="module", params=["summarize-tiny", "summarize-recurrent"])
def run(request, tmp_path_factory):
    made = make_config(None, request.param, [*SMALL, *SHORT[request.param]])
    return regard.train(made, tmp_path_factory.mktemp("runs") / request.param)


def test_a_run_is_measured_beside_the_beginnings_of_its_documents(run):
    result = regard.evaluate(run, limit=5, lead_words=4)
    assert result["documents"] == 5
    assert [(one["unit"], one["count"]) for one in result["lead"]] == [("words", 4), ("sentences", 1)]
    for one in result["lead"]:
        assert one["ahead"] == pytest.approx(result["rougeL"]["f1"] - one["rougeL"]["f1"])
    shown = run.task.show(result)
    assert "the first 4 words of each document" in shown
    assert "repeated trigrams" in shown
    assert list(run.task.headline(result)) == ["ROUGE-1", "ROUGE-2", "ROUGE-L", "repeated trigrams"]


def test_a_resumed_run_equals_an_unbroken_one_byte_for_byte(run, tmp_path):
    made = make_config(None, run.directory.name, [*SMALL, *SHORT[run.directory.name]])
    with pytest.raises(Stopped, match="stopped at step 2"):
        regard.train(made, tmp_path / "broken", StopAt(2))
    broken = regard.resume(tmp_path / "broken")
    one, other = ((found.directory / "model.safetensors").read_bytes() for found in (run, broken))
    assert one == other


def test_the_loss_has_the_coverage_that_the_setting_weighs(run):
    log = [json.loads(line) for line in (run.directory / "log.jsonl").read_text().splitlines()]
    first = next(one for one in log if one["kind"] == "train")
    assert first["loss"] == pytest.approx(first["nll"] + first["coverage"], rel=1e-3)


def test_python_command_and_server_summarize_alike(run, capsys):
    texts = ["The old Zanzibar never sleeps.", "", "A cat sees the small house."]
    found = run.summarize(texts, beam=2, max_words=4)
    assert found[1] == ""
    assert all(len(text.split()) <= 4 for text in found)
    words = ["summarize", str(run.directory), *texts, "--beam", "2", "--max-words", "4", "--device", "cpu"]
    assert main(words) == 0
    assert capsys.readouterr().out.splitlines() == [" ".join(text.split()) for text in found]
    assert main([*words, "--json"]) == 0
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["summaries"][0]["text"] for one in said] == found
    with serving(run) as client:
        answer = client.post("/v1/summarize", {"text": texts, "beam": 2, "max_words": 4})
        long = client.post("/v1/summarize", {"text": LONG})
        wrong = client.post("/v1/summarize", {"text": "a", "min_words": 4, "max_words": 2})
        listed = client.get("/v1/models").json["data"][0]["does"]
    assert [one["summaries"][0]["text"] for one in answer.json["results"]] == found
    assert long.status == 413
    assert wrong.status == 400
    assert "min_words=4 must be at most max_words=2" in wrong.json["error"]["message"]
    assert "summarize" in listed
    assert "translate" not in listed


def test_summaries_have_as_many_words_as_are_asked_for(run):
    texts = ["The old Zanzibar never sleeps.", "A cat sees the small house with Peter."]
    for settings in ({"beam": 1}, {"beam": 3}, {"temperature": 1.0, "samples": 2}):
        for best in run.summaries(texts, min_words=3, max_words=5, **settings):
            assert all(3 <= len(one.text.split()) <= 5 for one in best), best


def test_a_document_of_100_000_words_is_read_from_its_beginning_and_that_is_said(run, tmp_path, capsys):
    path = tmp_path / "long.txt"
    path.write_text(f"{LONG}\nA cat sleeps.\n", encoding="utf-8")
    options = ["--beam", "1", "--max-words", "3", "--device", "cpu"]
    assert main(["summarize", str(run.directory), "--input", str(path), *options]) == 0
    told = capsys.readouterr()
    assert len(told.out.splitlines()) == 2
    assert "1 of 2 texts are longer than the model reads: of these the first 127 tokens were read" in told.err
    assert main(["summarize", str(run.directory), "--input", str(path), "--overlong", "refuse", *options]) == 2
    assert "text 1 has 100,000 tokens; the model reads at most 127" in capsys.readouterr().err
    with pytest.raises(DataError, match="text 1 has 100,000 tokens"):
        run.summaries([LONG], overlong="refuse")


def test_files_of_documents_are_trained_on_and_bad_ones_are_refused_in_a_line(run, tmp_path, capsys):
    rare = " ".join(f"name{number}" for number in range(300))  # more unknown words than a document may have tokens
    documents = ["The old cat sleeps .", rare, "", "A dog sees a cat ."] * 3
    summaries = ["Cat sleeps", "name1 and name299", "nothing", "Dog sees cat"] * 3
    (tmp_path / "a.doc").write_text("\n".join(documents) + "\n", encoding="utf-8")
    (tmp_path / "a.sum").write_text("\n".join(summaries) + "\n", encoding="utf-8")
    (tmp_path / "short.sum").write_text("\n".join(summaries[:5]) + "\n", encoding="utf-8")
    files = {"train": [str(tmp_path / "a.doc"), str(tmp_path / "a.sum")]}
    own = [one for one in SMALL if not one.startswith("data.telegrams")]
    made = make_config(None, run.directory.name, [*own, *SHORT[run.directory.name]], {"data": files})
    assert made.data.telegrams == 0
    mine = regard.train(made, tmp_path / "mine")
    log = [json.loads(line) for line in (mine.directory / "log.jsonl").read_text().splitlines()]
    assert all(one["loss"] < 30 for one in log if one["kind"] == "train")  # no label that cannot be predicted
    said: list[str] = []
    result = regard.evaluate(mine, files["train"], say=said.append)
    assert result["documents"] == 9
    assert "3 of 12 pairs have an empty document or summary, and are left out" in said
    assert any("3 of 9 texts are longer than the model reads" in one for one in said)
    unequal = [str(tmp_path / "a.doc"), str(tmp_path / "short.sum")]
    assert main(["evaluate", str(mine.directory), "--data", unequal[0], "--data", unequal[1]]) == 2
    assert "short.sum" in capsys.readouterr().err.splitlines()[-1]
    (tmp_path / "blank.tsv").write_text("\t\n\t\n", encoding="utf-8")
    with pytest.raises(DataError, match="no pair has a document and a summary"):
        regard.evaluate(mine, [str(tmp_path / "blank.tsv")])


def test_settings_that_do_not_go_together_are_refused():
    for settings, message in (
        (["tokenizer.kind=bpe"], "copies words"),
        (["train.r_drop=1"], "is not for models that copy"),
        (["model.copy=false", "train.r_drop=1"], "is not for model.coverage"),
        (["model.coverage=-1"], "must be 0 or more"),
        (["model.copy_head=7"], "copy_head=7 must be a cross-attention head"),
        (["model.copy_layer=2"], "copy_layer=2 must be one of 2 layers"),
        (["data.world=10"], "data.world does not apply"),
    ):
        with pytest.raises(ConfigError, match=message):
            make_config(None, "summarize-tiny", settings)
    with pytest.raises(ConfigError, match="needs an attention"):
        make_config(None, "summarize-recurrent", ["model.attention=none", "model.copy=false"])


def test_the_heat_map_has_the_summary_along_the_top_and_the_document_down_the_side(run):
    found = document(run, ["The old Zanzibar never sleeps."], LookOptions())
    shown = excerpt(found)
    turned = shown.turned()
    assert turned.rows == shown.columns
    assert "Zanzibar" in turned.rows
    assert turned.mean.sum(0) == pytest.approx(1.0, abs=1e-4)  # each column is a distribution over the document
    written = svg(found, view="columns")
    assert written.index(">never<") < written.index("</svg>")


def test_coverage_is_what_steps_attend_to_again():
    weights = torch.tensor([[[0.5, 0.5, 0.0], [0.2, 0.0, 0.8], [1.0, 0.0, 0.0]]])
    real = torch.tensor([[True, True, True]])
    assert float(coverage_loss(weights, real)) == pytest.approx(0.2 + 0.7)
    assert float(coverage_loss(weights, torch.tensor([[True, False, True]]))) == pytest.approx(0.5)


def test_packed_rows_have_the_loss_of_padded_ones():
    """Sequences of one row copy and cover their own sources alone."""
    from regard.data import PairStore
    from regard.data.batches import PaddedLayout
    from regard.data.sequence_packing import PackedLayout

    model = make("transformer, copying by a shared key of the first layer, covered, rotary")
    pairs = [([4, 5, 19, 2], [1, 19, 5, 2]), ([6, 7, 2], [1, 7, 2]), ([8, 19, 20, 9, 2], [1, 20, 9, 19, 2])]
    store, objective = PairStore.of(pairs), SequenceToSequence(0.1, coverage=1.0)
    totals = []
    for layout in (PaddedLayout(store, 40), PackedLayout(store, 40)):
        batches = [layout.batch(rows) for rows in layout.order(1, 0)]
        totals.append(float(sum(objective.loss(model, batch).total for batch in batches).detach()))
    assert totals[0] == pytest.approx(totals[1], rel=1e-4)


def test_words_are_counted_in_any_tokenizer():
    pairs = [("the cat sat on the mat , quietly", "a dog ran off")] * 3
    for kind in ("word", "bpe", "character", "unigram"):
        target = train_vocabularies(pairs, TokenizerConfig(kind=kind, vocab_size=300, joint=True)).target
        begins, ids = word_beginnings(target), target.encode("the cat sat")
        rule = words_within(WordLimits(2, 3), lambda _, row, one=target: one.decode(row), begins, target.eos)
        for length in range(len(ids) + 1):
            words = len(target.decode(ids[:length]).split())
            prefix = Prefix(length, torch.tensor([ids[:length]], dtype=torch.long), torch.tensor([0]))
            after = rule(torch.zeros(1, target.vocab_size), prefix)[0]
            assert bool(after[target.eos].isinf()) == (words < 2)
            allowed = [index for index in range(4, target.vocab_size) if not after[index].isinf()]
            for index in allowed if words == 3 else ():
                assert len(target.decode([*ids[:length], index, *ids[:1]]).split()) <= 4


def test_leads_are_beginnings():
    assert lead_words(" a b  c d", 3) == "a b c"
    assert lead_sentences("One went. Two came! Three? Four", 2) == "One went. Two came!"


def test_what_cannot_copy_is_not_given_a_model_that_does(tmp_path):
    from regard.analysis.pruning import check_kind
    from regard.interop.huggingface.bart import only_ours
    from regard.models.transformer import TransformerConfig
    from regard.tasks.run import Run

    config = make_config(None, "summarize-tiny", [*SMALL, *SHORT["summarize-tiny"]]).with_stand_ins()
    run = Run(tmp_path, config, None, make("transformer, copying"))
    with pytest.raises(ConfigError, match="heads cannot be removed from a model that copies"):
        check_kind(run)
    with pytest.raises(ConfigError, match=r"model.copy=True is not supported by BART"):
        only_ours(TransformerConfig(source_vocab_size=9, target_vocab_size=9, copy=True), "BART", copy=False)
