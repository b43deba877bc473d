"""`regard export` with its report of parity, and `--engine` of translate, evaluate and serve."""

import json
import subprocess
import sys
import urllib.error
import urllib.request

import pytest

from regard.interop.parity import LEAST

pytest.importorskip("ctranslate2")
TEXTS = ["the cat sees a big dog", "a red house", "the dog runs and sleeps"]


@pytest.fixture(scope="module")
def exported(trained, tmp_path_factory):
    from regard.cli import main

    out = tmp_path_factory.mktemp("exported") / "ct2"
    assert main(["export", "ctranslate2", str(trained), "--out", str(out)]) == 0
    return out


def test_an_export_compares_itself_with_the_run_on_its_own_data(exported):
    report = json.loads((exported / "parity.json").read_text())
    assert report["engine"] == "ctranslate2"
    assert [one["search"] for one in report["compared"]] == ["greedy", "beam 3"]
    assert [one["sentences"] for one in report["compared"]] == [6, 6]
    assert report["compared"][0]["share"] == 1.0
    assert report["passed"] is True


def test_the_report_is_printed_and_sentences_may_be_given(cli, trained, tmp_path):
    (tmp_path / "mine.txt").write_text("the cat\n\na dog\n", encoding="utf-8")
    result = cli("export", "ctranslate2", trained, "--out", tmp_path / "out", "--sentences", tmp_path / "mine.txt")
    assert result.code == 0
    assert result.out.strip() == str(tmp_path / "out")
    assert "regard: greedy: 2 of 2 outputs equal (100.0%)" in result.err


def test_bad_parity_is_loud_unless_it_is_accepted(cli, trained, tmp_path, monkeypatch):
    monkeypatch.setitem(LEAST, "int8", 1.01)  # more than anything can reach
    ask = ("export", "ctranslate2", trained, "--quantization", "int8", "--out")
    result = cli(*ask, tmp_path / "out")
    assert result.code == 1
    assert "does not say what the run says" in result.err.splitlines()[-1]
    assert "accept it with --force" in result.err.splitlines()[-1]
    assert json.loads((tmp_path / "out" / "parity.json").read_text())["passed"] is False
    assert cli(*ask, tmp_path / "forced", "--force").code == 0


def test_translate_and_evaluate_by_another_engine(cli, trained, exported, corpus):
    plain = cli("translate", trained, *TEXTS, "--json", "--beam", 1)
    other = cli("translate", trained, *TEXTS, "--json", "--beam", 1, "--engine", "ctranslate2")
    assert other.code == 0
    assert other.err.startswith("regard: writing the model for ctranslate2 to ")
    for one, two in zip(plain.out.splitlines(), other.out.splitlines(), strict=True):
        (first,), (second,) = json.loads(one)["translations"], json.loads(two)["translations"]
        assert second["score"] == pytest.approx(first["score"], abs=1e-3)
        assert {**second, "score": 0, "log_prob": 0} == {**first, "score": 0, "log_prob": 0}
    files = ("--engine", "ctranslate2", "--engine-files", exported)
    scores = [
        json.loads(cli("evaluate", trained, "--data", corpus / "valid.tsv", "--beam", 1, "--json", *more).out)
        for more in ((), files)
    ]
    assert scores[1] == {**scores[0], "engine": "ctranslate2"}
    shown = cli("evaluate", trained, "--data", corpus / "valid.tsv", "--beam", 1, *files)
    assert shown.code == 0
    assert "BLEU" in shown.out


def test_what_an_engine_cannot_do_is_said(refused, trained, exported, tmp_path):
    assert refused("translate", trained, "a", "--engine", "tensorrt").startswith("engine=tensorrt must be torch or one")
    assert "needs an engine" in refused("translate", trained, "a", "--engine-files", exported)
    asked = ("translate", trained, "a", "--engine", "ctranslate2", "--engine-files", exported)
    assert "decode.seed=3 does not apply" in refused(*asked, "--temperature", 1, "--seed", 3)
    assert "must be one of float32" in refused(
        "export", "ctranslate2", trained, "-o", tmp_path / "o", "--quantization=x"
    )
    assert "is not empty" in refused("export", "ctranslate2", trained, "--out", exported)
    assert "no such file" in refused("export", "onnx", trained, "--out", tmp_path / "o", "--sentences", tmp_path / "no")
    two = ("serve", trained, "--run", f"again={trained}", "--engine", "ctranslate2", "--engine-files", exported)
    assert "is of one model, and 2 runs are served" in refused(*two)


def test_a_server_translates_by_another_engine(cli, trained, exported):
    command = [sys.executable, "-m", "regard", "serve", str(trained), "--port", "0", "--device", "cpu"]
    engine = ["--engine", "ctranslate2", "--engine-files", str(exported)]
    with subprocess.Popen([*command, *engine], stdout=subprocess.PIPE, text=True) as server:
        try:
            url = server.stdout.readline().split()[-1]
            body = json.dumps({"text": TEXTS, "beam": 1}).encode()
            request = urllib.request.Request(f"{url}/v1/translate", body, {"Content-Type": "application/json"})
            with urllib.request.urlopen(request, timeout=60) as answer:
                found = json.load(answer)["results"]
            request.data = json.dumps({"text": TEXTS, "temperature": 1.0, "seed": 3}).encode()
            with pytest.raises(urllib.error.HTTPError) as refusal:
                urllib.request.urlopen(request, timeout=60)
            assert refusal.value.code == 400
            assert "decode.seed=3 does not apply" in json.load(refusal.value)["error"]["message"]
        finally:
            server.terminate()
    expected = [json.loads(line) for line in cli("translate", trained, *TEXTS, "--json", "--beam", 1).out.splitlines()]
    assert [one["translations"][0]["text"] for one in found] == [one["translations"][0]["text"] for one in expected]
