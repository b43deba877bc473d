import json
import shutil

import pytest


def test_several_models_are_drawn_together_with_their_figures_beside(cli, trained, tmp_path):
    out = tmp_path / "page.html"
    words = "the cat sees a big dog and the dog hears the red house"
    result = cli("look", "--gradients", trained, "lstm-tiny", "bahdanau-2015", words, "--out", out)
    assert result.code == 0, result.err
    assert result.out.splitlines()[-1] == str(out)
    document = json.loads(out.with_suffix(".json").read_text(encoding="utf-8"))
    run, language, translation = document["models"]
    assert [one["trained"] for one in (run, language, translation)] == [True, False, False]
    assert {step["side"] for step in translation["steps"]} == {"source", "target"}
    assert len(language["steps"]) == len(words.split())
    page = out.read_text(encoding="utf-8")
    assert "http://" not in page.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in page
    for one in document["models"]:
        assert one["name"] in page
    assert out.with_suffix(".svg").read_text(encoding="utf-8").startswith("<svg ")


def test_runs_of_one_directory_name_are_told_apart_by_their_folders(cli, trained, tmp_path):
    for day in ("monday", "friday"):
        shutil.copytree(trained, tmp_path / day / "demo")
    given = [tmp_path / "monday" / "demo", tmp_path / "friday" / "demo"]
    text = "one two three four five six"
    result = cli("look", "--gradients", *given, "lstm-tiny", text, "--out", tmp_path / "p.html")
    assert result.code == 0, result.err
    named = [one["name"] for one in json.loads((tmp_path / "p.json").read_text(encoding="utf-8"))["models"]]
    assert named == ["monday/demo", "friday/demo", "lstm-tiny"]


def test_settings_and_the_radius_reach_the_models(cli, tmp_path):
    out = tmp_path / "page.html"
    text = " ".join(f"w{number}" for number in range(40))

    def factor(*more):
        assert cli("look", "--gradients", "lstm-tiny", text, "--out", out, "--set", "model.cell=rnn", *more).code == 0
        return json.loads(out.with_suffix(".json").read_text(encoding="utf-8"))["models"][0]["factor_per_step"]

    assert factor() < 1 < factor("--spectral-radius", "4")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--gradients", "lstm-tiny"], "--gradients needs runs or presets, then the text"),
        (["--gradients", "lstm-tini", "a b c"], "'lstm-tini' is neither a run nor a preset; did you mean 'lstm-tiny'?"),
        (["--gradients", "lstm-tiny", " "], "nothing to look at: the text is blank"),
        (["--gradients", "lstm-tiny", "a"], "the text is too short to say how a gradient changes: 1 steps"),
        (["--gradients", "lstm-tiny", "a b c", "--spectral-radius", "0"], "a spectral radius of 0.0 must be above 0"),
        (["lstm-tiny", "a b c", "--spectral-radius", "2"], "--spectral-radius and --set go with --gradients"),
    ],
)
def test_mistakes_are_one_line(refused, tmp_path, given, said):
    out = tmp_path / "page.html"
    assert said in refused("look", *given, "--out", out)
    assert not list(tmp_path.iterdir())
