import json
import shutil

from cli_toys import SMALL

STUDENT = [f"--set={one}" for one in SMALL if one.startswith(("model.", "train.")) and "decoder" not in one]


def test_a_student_is_distilled_and_trained_on(cli, trained, tmp_path):
    out = tmp_path / "student"
    result = cli("distill", trained, "--preset", "tiny-deep-shallow", *STUDENT, "--out", out, "--device", "cpu")
    assert (result.code, result.out.strip()) == (0, str(out)), result.err
    assert "translating 60 training sources, beam 5" in result.err
    assert "of 60 sources have a translation to learn from" in result.err
    config = json.loads((out / "config.json").read_text(encoding="utf-8"))
    assert (config["model"]["decoder_layers"], config["decode"]["beam"]) == (1, 1)
    assert cli("translate", out, "the cat sees").code == 0
    assert cli("train", "--resume", out, "--set", "train.steps=8").code == 0
    assert cli("evaluate", out, "--limit", 2).code == 0


def test_the_pairs_alone_and_then_the_student(cli, trained, tmp_path):
    out, other = tmp_path / "student", tmp_path / "other"
    shutil.copytree(trained, other)
    options = ["--out", out, "--beam", 2, "--keep-references", "--with", other, "--device", "cpu"]
    result = cli("distill", trained, *options, "--only-data")
    assert (result.code, result.out.strip()) == (0, str(out / "distilled/train.jsonl")), result.err
    pairs = [json.loads(line) for line in (out / "distilled/train.jsonl").read_text(encoding="utf-8").splitlines()]
    assert all(list(pair) == ["en", "fr"] for pair in pairs)
    assert len(pairs) > 60
    assert not (out / "config.json").exists()
    result = cli("distill", trained, *options, "--set=model.decoder_layers=1")
    assert result.code == 0, result.err
    assert "is there already" in result.err


def test_what_cannot_be_is_refused(refused, trained, tmp_path):
    out = ["--out", tmp_path / "new"]
    assert "--only-data trains nothing" in refused("distill", trained, *out, "--only-data", "--preset", "tiny")
    assert "one teacher: leave out --with" in refused("distill", trained, *out, "--from-teacher", "--with", trained)
    assert "unknown preset 'tinny'" in refused("distill", trained, *out, "--preset", "tinny")
    assert "is for language" in refused("distill", trained, *out, "--preset", "gpt-tiny")
    assert "already holds a run" in refused("distill", trained, "--out", trained)
    assert "Missing option '--out'" in refused("distill", trained)
    assert not (tmp_path / "new").exists()
