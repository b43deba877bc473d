import json


def test_a_run_is_pruned_used_and_trained_on(cli, trained, tmp_path):
    out, curve = tmp_path / "smaller", tmp_path / "curve.json"
    result = cli("prune", trained, "--heads", "50%", "--out", out, "--limit", 4, "--curve", curve, "--device", "cpu")
    assert (result.code, result.out.strip()) == (0, str(out))
    assert "3 of 6 heads removed: " in result.err
    record = json.loads(curve.read_text(encoding="utf-8"))
    assert [point["kept"] for point in record["curve"]] == [6, 5, 4, 3, 2, 1, 0]
    assert len(record["heads"]) == 6
    config = json.loads((out / "config.json").read_text(encoding="utf-8"))["model"]
    assert sum(sum(config[name]) for name in ("encoder_heads", "decoder_heads", "cross_heads")) == 3
    assert cli("translate", out, "the cat sees").code == 0
    assert cli("describe", out).code == 0
    assert cli("train", "--resume", out, "--set", "train.steps=2").code == 0
    assert cli("look", out, "the cat sees", "--out", tmp_path / "page.html").code == 0


def test_as_many_go_as_the_score_allows(cli, trained, tmp_path):
    # Any loss of BLEU is allowed, so every encoder head goes.
    settings = ["--keep-score", 100, "--among", "encoder.*", "--by", "gradient", "--limit", 4]
    assert cli("prune", trained, *settings, "--out", tmp_path / "none").code == 0
    config = json.loads((tmp_path / "none" / "config.json").read_text(encoding="utf-8"))["model"]
    assert (config["encoder_heads"], config["decoder_heads"]) == ([0], [2])
    assert cli("translate", tmp_path / "none", "the cat sees").code == 0


def test_gates_are_learnt_and_the_curve_is_drawn(cli, trained, tmp_path):
    out, curve, picture = tmp_path / "learnt", tmp_path / "curve.json", tmp_path / "curve.svg"
    settings = ["--heads", "50%", "--by", "gates", "--steps", 4, "--limit", 2, "--curve", curve, "--picture", picture]
    assert cli("prune", trained, *settings, "--out", out, "--device", "cpu").code == 0
    record = json.loads(curve.read_text(encoding="utf-8"))
    assert record["result"]["learnt"]
    assert (record["result"]["kept"], record["result"]["removed"]) == (3, 3)
    assert picture.read_text(encoding="utf-8").startswith("<?xml")
    assert cli("translate", out, "the cat sees").code == 0


def test_what_cannot_be_is_refused(refused, trained, tmp_path):
    out = ["--out", tmp_path / "new"]
    assert "give --heads or --keep-score" in refused("prune", trained, *out)
    assert "--by=masks must be one of masking" in refused("prune", trained, *out, "--heads", 1, "--by", "masks")
    assert "must be a number up to 6" in refused("prune", trained, *out, "--heads", 7, "--limit", 2)
    assert "already holds a run" in refused("prune", trained, "--out", trained, "--heads", 1)
    assert "give --by gates and --heads with it" in refused("prune", trained, *out, "--heads", 1, "--steps", 5)
    wrong = ["--heads", 1, "--picture", tmp_path / "curve.txt"]
    assert "must end in .png, .svg or .pdf" in refused("prune", trained, *out, *wrong)
    assert not (tmp_path / "new").exists()


def test_without_matplotlib_a_curve_is_written_as_json_not_drawn_as_svg(refused, trained, tmp_path, monkeypatch):
    monkeypatch.setattr("regard.look.figures.find_spec", lambda name: None)
    said = refused("prune", trained, "--heads", 1, "--out", tmp_path / "new", "--picture", tmp_path / "c.svg")
    assert said == "matplotlib is not here: pip install 'regard[plots]', or give --curve for the figures as JSON"
