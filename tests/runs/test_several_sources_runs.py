"""The life of a run of several sources: train, stop and go on, combine, measure, look, serve; and bad input refused."""

import base64
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from listeners import StopAt

import regard
from regard import make_config
from regard.cli import main
from regard.data.synthetic.several_sources import SENSES, SMUDGE, sourced_rows
from regard.errors import ConfigError, DataError
from regard.look.packed_arrays import png_bytes
from regard.tasks.looking import LookOptions, document
from regard.trainer.trainer import Stopped

sys.path.append(str(Path(__file__).parents[1] / "serve"))
from serve_toys import serving

pytest.importorskip("PIL.Image")

SMALL = [
    *("data.examples=40", "train.steps=4", "train.warmup=2", "train.batch_tokens=400", "train.threads=1"),
    *("model.width=8", "model.heads=2", "model.feed_forward=8", "train.validate_every=4", "train.save_every=2"),
    *("train.validate_sentences=3", "decode.max_len=6", "train.log_every=1"),
]


@pytest.fixture(scope="module", autouse=True)
def few_rows():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("regard.tasks.several_sources.HELD_OUT", 8)
        yield


@pytest.fixture(scope="module", params=["sources-paraphrases", "sources-ambiguous"])
def run(request, tmp_path_factory):
    return regard.train(make_config(None, request.param, SMALL), tmp_path_factory.mktemp("runs") / request.param)


def given(run, count=2):
    kind = run.config.data.bundled
    return [row.sources for row in sourced_rows(kind, count, seed=0, part="test")]


def test_a_report_says_what_each_source_is_worth_and_whose_attention_did_what(run):
    result = regard.evaluate(run, limit=5)
    assert result["rows"] == 5
    assert sum(one["share"] for one in result["sources"]) == pytest.approx(1.0, abs=1e-3)
    for one in result["sources"]:
        assert one["missing"] == 0
        assert one["left_out"]["cost"] == pytest.approx(result["exact_match"] - one["left_out"]["exact_match"])
    # With two sources, one left out is the other alone.
    assert result["sources"][0]["left_out"] == result["sources"][1]["alone"]
    shown = run.task.show(result)
    assert "left out" in shown
    assert "missing in 0 rows" in shown


def test_a_resumed_run_equals_an_unbroken_one_byte_for_byte(run, tmp_path):
    with pytest.raises(Stopped, match="stopped at step 2"):
        regard.train(make_config(None, run.directory.name, SMALL), tmp_path / "broken", StopAt(2))
    broken = regard.resume(tmp_path / "broken")
    one, other = ((found.directory / "model.safetensors").read_bytes() for found in (run, broken))
    assert one == other


def test_python_command_and_server_write_alike_with_a_source_missing_too(run, tmp_path, capsys):
    rows = [list(row) for row in given(run)]
    rows.append([rows[0][0], None])
    for number, row in enumerate(rows):
        if isinstance(row[1], np.ndarray):
            (tmp_path / f"{number}.png").write_bytes(png_bytes(row[1]))
            row[1] = str(tmp_path / f"{number}.png")
    found = run.combine(rows, beam=2)
    assert len(found) == 3
    words = [json.dumps(row) for row in rows]
    assert main(["combine", str(run.directory), *words, "--beam", "2", "--device", "cpu"]) == 0
    assert capsys.readouterr().out.splitlines() == [" ".join(text.split()) for text in found]
    names = [name.removeprefix("image:") for name in run.config.data.names]
    assert run.combine([dict(zip(names, rows[0], strict=True))], beam=2) == found[:1]
    sent = [["" if one is None else one for one in row] for row in rows]
    for row in sent:
        if row[1].endswith(".png"):
            row[1] = base64.b64encode(Path(row[1]).read_bytes()).decode()
    with serving(run) as client:
        answer = client.post("/v1/combine", {"rows": sent, "beam": 2})
        wrong = client.post("/v1/combine", {"rows": [["one"]]})
        nothing = client.post("/v1/combine", {"rows": [["", ""]]})
        listed = client.get("/v1/models").json["data"][0]["does"]
    assert [one["texts"][0]["text"] for one in answer.json["results"]] == found
    assert wrong.status == 422
    assert "row 1 must be a list of 2 sources" in wrong.json["error"]["message"]
    assert nothing.status == 422
    assert "row 1 has no source at all" in nothing.json["error"]["message"]
    assert "combine" in listed


def test_rows_that_are_no_rows_are_refused_in_a_line(run):
    for row, message in (
        (["a", "b", "c"], "row 1 has 3 sources; this run reads 2"),
        ("a", "row 1 has 1 sources"),
        (["", None], "row 1 has no source at all"),
        ({"other": "a"}, "row 1 has 'other'; the sources of this run are"),
        ([" ".join(["word"] * 100_000), None], "has 100,001 tokens; the model reads 64"),
        ([3, None], "must be a text"),
    ):
        with pytest.raises(DataError, match=message):
            run.combine([row])


def test_the_page_shows_all_sources_side_by_side(run):
    found = document(run, given(run), LookOptions())
    assert len(found.sentences) == 2
    first = found.sentences[0]
    for one in (one for one in first.attentions if one.kind == "cross"):
        assert np.asarray(one.weights).shape[-1] == len(first.source.pieces)
    with pytest.raises(ConfigError, match="only weights can be shown"):
        document(run, given(run), LookOptions(edits=True))


def test_tables_with_missing_sources_are_trained_on_and_bad_ones_refused(tmp_path, capsys):
    assert main(["data", "sources", str(tmp_path / "rows"), "--train", "20", "--valid", "4", "--test", "4"]) == 0
    lines = (tmp_path / "rows" / "train.tsv").read_text(encoding="utf-8").splitlines()
    lines[2] = "\t".join(["", *lines[2].split("\t")[1:]])
    (tmp_path / "rows" / "train.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    data = {"train": [str(tmp_path / "rows" / "train.tsv")], "sources": ["first", "second"]}
    own = [one for one in SMALL if not one.startswith("data.examples")]
    made = make_config(None, "sources-paraphrases", [*own, "model.combine=turn"], {"data": data})
    mine = regard.train(made, tmp_path / "mine")
    result = regard.evaluate(mine, data["train"])
    assert [one["missing"] for one in result["sources"]] == [1, 0]
    assert result["sources"][1]["left_out"]["rows"] == 19  # of one row nothing would be left
    for text, message in (
        ("first\tsecond\toutput\na\tb\n", "line 2: 2 columns where 3 columns should be"),
        ("first\tsecond\toutput\n\t\tsomething\n", "no row with a source and a text"),
    ):
        (tmp_path / "bad.tsv").write_text(text, encoding="utf-8")
        with pytest.raises(DataError, match=message):
            regard.evaluate(mine, [str(tmp_path / "bad.tsv")])
    with pytest.raises(ConfigError, match=r"must say what data\.sources are"):
        make_config(None, "sources-paraphrases", own, {"data": {**data, "sources": ["first", "image:second"]}})
    with pytest.raises(ConfigError, match="must be different columns"):
        make_config(None, "sources-paraphrases", own, {"data": {**data, "sources": ["first", "first"]}})


def test_each_smudged_word_can_be_read_in_the_other_paraphrase_and_both_have_one():
    kinds = set()
    for row in sourced_rows("paraphrases", 50, seed=0, part="test"):
        first, second = row.sources
        assert SMUDGE in first
        assert SMUDGE in second
        for word in row.output.split():
            assert word in first or word in second
        kinds.add(row.output)
    train = {row.output for row in sourced_rows("paraphrases", 200, seed=3)}
    assert not kinds & train


def test_a_sentence_alone_never_says_which_sense_is_meant():
    answers: dict[str, set[str]] = {}
    for row in sourced_rows("ambiguous", 1500, seed=0, part="test"):
        answers.setdefault(row.sources[0], set()).add(row.output)
    senses = {said: found for said, found in answers.items() if " . it is " not in said}
    assert len(senses) == 8 * len(SENSES)
    assert all(len(found) == 2 for found in senses.values())
    first = next(sourced_rows("ambiguous", 1, seed=0, part="test"))
    again = next(sourced_rows("ambiguous", 1, seed=0, part="test"))
    assert np.array_equal(first.sources[1], again.sources[1])
