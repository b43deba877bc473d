"""Guard rails: what records of a training provoke, each once; and `regard doctor`, which says it afterwards."""

import json

import pytest

from regard.cli import main
from regard.training.guard_rails import GuardRails


def said(records, **options):
    rails = GuardRails(**{"total": 1000, **options})
    return [one.kind for kind, step, values in records for one in rails.record(kind, step, values)]


def training(losses, every=25, **values):
    return [("train", every * number, {"epoch": 0, "loss": loss, **values}) for number, loss in enumerate(losses, 1)]


FALLING = [8.0 * 0.95**number for number in range(40)]


def test_a_training_that_goes_well_hears_nothing():
    records = training(FALLING, waiting=0.01, padding=0.1)
    records += [("validation", 1000, {"loss": 1.0, "cut": 0.0, "unknown": 0.001})]
    assert said(records, validated=100) == []


@pytest.mark.parametrize(
    ("kind", "records", "options"),
    [
        ("loss not falling", training([7.0] * 40), {}),
        ("waiting", training(FALLING, waiting=0.7), {}),
        ("padding", training(FALLING, padding=0.8), {}),
        (
            "overfitting",
            [*training([0.5] * 4, epoch=3), *(("validation", 100 * n, {"loss": 2.0 + 0.2 * n}) for n in range(6))],
            {},
        ),
        ("outputs cut", [("validation", 900, {"loss": 1.0, "cut": 30.0})], {"validated": 100}),
        ("unknown tokens", [("validation", 100, {"loss": 1.0, "unknown": 0.2})], {}),
        ("another distribution", [*training(FALLING[:20]), ("validation", 500, {"loss": 9.0})], {}),
    ],
)
def test_what_goes_wrong_is_said_once(kind, records, options):
    assert said(records, **options) == [kind]
    assert said([*records, *records[-2:]], **options).count(kind) == 1


def test_outputs_are_cut_early_in_any_training():
    assert said([("validation", 100, {"loss": 1.0, "cut": 100.0})], validated=100) == []


def test_the_doctor_reads_the_log_again(tmp_path, capsys):
    import regard

    made = regard.make_config(
        preset="tiny", overrides=["train.steps=1000", "train.warmup=100"], extra={"data": {"train": ["pairs.tsv"]}}
    )
    (tmp_path / "config.json").write_text(json.dumps(made.to_mapping()))
    records = [{"kind": kind, "step": step, **values} for kind, step, values in training([7.0] * 40)]
    records += [{"kind": "validation", "step": step, "loss": loss} for step, loss in ((500, 6.0), (1000, 6.5))]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    assert main(["doctor", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert "1,000 of 1,000 updates are logged" in told
    assert "by loss is that of step 500: 6; the last has 6.5" in told
    assert "train.choose=best would have kept those" in told
    assert "loss not falling: at step" in told
    for name, best in (("word_error_rate", 500), ("f1", 1000)):
        config = {**made.to_mapping(), "train": {**made.to_mapping()["train"], "select_by": name}}
        (tmp_path / "config.json").write_text(json.dumps(config))
        scored = [{"kind": "validation", "step": step, "loss": 1.0, name: step / 2000} for step in (500, 1000)]
        (tmp_path / "log.jsonl").write_text("".join(json.dumps(record) + "\n" for record in scored))
        assert main(["doctor", str(tmp_path)]) == 0
        assert f"by {name} is that of step {best:,}: {best / 2000:g}" in capsys.readouterr().out
    (tmp_path / "log.jsonl").unlink()
    assert main(["doctor", str(tmp_path)]) == 2
