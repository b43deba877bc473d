"""Guard rails: what records of a training provoke, each once; and `regard doctor`, which says it afterwards."""

import json

import pytest
from listeners import StopAt, Told

from regard.cli import main
from regard.errors import DataError
from regard.trainer.training_run import Stopped
from regard.training.config import TrainConfig
from regard.training.guard_rails import GuardRails
from regard.training.selection import is_better


def said(records, **options):
    rails = GuardRails(TrainConfig(**{"steps": 1000, "warmup": 0, "log_every": 25, **options}))
    return [one.kind for kind, step, values in records for one in rails.record(kind, step, values)]


def training(losses, every=25, **values):
    return [("train", every * number, {"epoch": 0, "loss": loss, **values}) for number, loss in enumerate(losses, 1)]


FALLING = [8.0 * 0.95**number for number in range(40)]


def test_a_training_that_goes_well_hears_nothing():
    records = training(FALLING, waiting=0.01, padding=0.1)
    records += [("validation", 1000, {"loss": 1.0, "cut": 0.0, "unknown": 0.001})]
    assert said(records, validate_sentences=100) == []


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
        ("outputs cut", [("validation", 900, {"loss": 1.0, "cut": 30.0})], {"validate_sentences": 100}),
        ("unknown tokens", [("validation", 100, {"loss": 1.0, "unknown": 0.2})], {}),
        ("another distribution", [*training(FALLING[:20]), ("validation", 500, {"loss": 9.0})], {}),
    ],
)
def test_what_goes_wrong_is_said_once(kind, records, options):
    assert said(records, **options) == [kind]
    assert said([*records, *records[-2:]], **options).count(kind) == 1


def validations(losses, **scores):
    """Validations with these losses and scores, of a training whose own loss is lower."""
    values = [dict(zip(["loss", *scores], row, strict=True)) for row in zip(losses, *scores.values(), strict=True)]
    return [*training([0.1] * 4, epoch=3), *(("validation", 100 * n, one) for n, one in enumerate(values, 1))]


def test_a_training_overfits_where_what_it_selects_by_gets_worse_as_the_loss_rises():
    rising = [1.0, 1.2, 1.3, 1.4, 1.5]
    worse = validations(rising, bleu=[30.0, 28.0, 27.0, 26.0, 25.0])
    assert said(worse, select_by="bleu") == said(validations(rising)) == ["overfitting"]
    rails = GuardRails(TrainConfig(select_by="bleu", choose="best"))
    (line,) = [one.line for kind, step, values in worse for one in rails.record(kind, step, values)]
    assert "bleu is 26, was 30 at step 100, the validation loss is 1.400, was 1.000, and rises" in line
    assert "train.patience=3 stops where bleu does not get better" in line
    assert "train.choose" not in line
    for better in ([26.0, 27.0, 28.0, 29.0, 30.0], [30.0, 29.9, 29.7, 29.9, 29.8], [30.0, 28.0, 30.5, 28.0, 29.0]):
        assert said(validations(rising, bleu=better), select_by="bleu") == [], "a loss that rises alone says nothing"
    assert said(validations([1.0] * 5, bleu=[30.0, 28.0, 27.0, 26.0, 25.0]), select_by="bleu") == []
    rates = validations(rising, word_error_rate=[0.2, 0.3, 0.3, 0.4, 0.4])
    assert said(rates, select_by="word_error_rate") == ["overfitting"]
    chance = validations(rising, exact_match=[0.9, 0.88, 0.88, 0.88, 0.88], outputs=[100] * 5)
    assert said(chance, select_by="exact_match") == []


def test_rises_are_on_end_and_do_not_fall_between():
    assert said(validations([1.0, 1.3, 1.2, 1.15, 1.1, 1.05])) == [], "after one bad validation it gets better"
    assert said(validations([1.0, 1.1, 1.2, 1.0, 1.1, 1.2])) == []
    assert said(validations([1.0, 1.1, 1.1, 1.2])) == ["overfitting"]


@pytest.mark.parametrize("records", [8, 16, 40])
def test_few_records_say_it_too(records):
    steps = {"steps": 100, "log_every": 100 // records}
    flat = [("train", 100 // records * n, {"loss": 7.0, "waiting": 0.9}) for n in range(1, records + 1)]
    assert {*said(flat, **steps)} == {"loss not falling", "waiting"}
    falling = [(kind, step, {"loss": 7.0 - step / 50, "waiting": 0.0}) for kind, step, _ in flat]
    assert said(falling, **steps) == []
    assert (
        said([(kind, step, {"loss": 7.0 - step / 50, "waiting": 0.9 * (step == 100)}) for kind, step, _ in flat]) == []
    )


def apart(trained, loss, step=500, **values):
    return [*training([trained] * 4, **values), ("validation", step, {"loss": loss})]


@pytest.mark.parametrize(
    ("kind", "below", "above", "options"),
    [
        ("waiting", training(FALLING, waiting=0.39), training(FALLING, waiting=0.41), {}),
        ("padding", training(FALLING, padding=0.49), training(FALLING, padding=0.51), {}),
        (
            "unknown tokens",
            [("validation", 100, {"loss": 1.0, "unknown": 0.03})],
            [("validation", 100, {"loss": 1.0, "unknown": 0.031})],
            {},
        ),
        (
            "outputs cut",
            [("validation", 900, {"loss": 1.0, "cut": 5.0, "outputs": 100.0})],
            [("validation", 900, {"loss": 1.0, "cut": 6.0, "outputs": 100.0})],
            {},
        ),
        (
            "outputs cut",
            [("validation", 500, {"loss": 1.0, "cut": 9.0, "outputs": 100.0})],
            [("validation", 501, {"loss": 1.0, "cut": 9.0, "outputs": 100.0})],
            {},
        ),
        ("another distribution", apart(2.0, 2.79), apart(2.0, 2.81), {}),
        ("another distribution", apart(0.5, 0.99), apart(0.5, 1.01), {}),
        ("another distribution", apart(2.0, 9.0, epoch=1), apart(2.0, 9.0, epoch=0), {}),
        ("another distribution", apart(2.0, 9.0, step=100), apart(2.0, 9.0, step=101), {"warmup": 100}),
        ("loss not falling", training([7.0] * 8 + [6.9] * 32), training([7.0] * 8 + [6.95] * 32), {}),
        ("loss not falling", training([7.0] * 17), training([7.0] * 18), {}),
        ("loss not falling", training([7.0] * 39), training([7.0] * 40), {"warmup": 800}),
    ],
)
def test_each_is_said_above_its_bound_and_not_below(kind, below, above, options):
    assert said(below, **options) == []
    assert said(above, **options) == [kind]


@pytest.mark.parametrize(("kind", "updates"), [("loss not falling", 20), ("outputs cut", 50)])
def test_of_so_few_updates_that_nothing_is_learnt_it_is_not_said(kind, updates):
    def kinds(steps):
        cut = {"loss": 7.0, "cut": 90.0, "outputs": 100.0}
        records = [*training([7.0] * steps, every=1), ("validation", steps, cut)]
        return said(records, steps=steps, log_every=1)

    assert kind not in kinds(updates - 1)
    assert kind in kinds(updates)


def test_a_loss_that_leaps_once_is_falling():
    losses = [8.0 - 0.02 * number for number in range(40)]
    for place in range(3, 40):
        assert said(training([*losses[:place], 80.0, *losses[place + 1 :]])) == []


def test_a_validation_loss_below_that_of_training_does_not_overfit():
    rising = [("validation", 100 * n, {"loss": 1.0 + 0.2 * n}) for n in range(6)]
    for trained, expected in ((0.5, ["overfitting"]), (5.0, [])):
        assert said([*training([trained] * 4, epoch=3), *rising]) == expected


def test_how_late_it_is_follows_the_updates_that_are_to_be_made_after_all():
    rails = GuardRails(TrainConfig(steps=1000, warmup=0, validate_sentences=100))
    cut = {"loss": 1.0, "cut": 50.0}
    assert rails.record("validation", 400, cut) == []
    rails.lasts(TrainConfig(steps=600, warmup=0, validate_sentences=100))
    assert [one.kind for one in rails.record("validation", 400, cut)] == ["outputs cut"]


def test_of_other_records_nothing_is_said():
    assert said([("note", 0, {"text": "3 rows are left out"})]) == []


def test_each_says_what_to_do():
    apart = [*training(FALLING[:20]), ("validation", 500, {"loss": 9.0})]
    rails = GuardRails(TrainConfig(steps=1000, warmup=0, log_every=25))
    lines = [one.line for kind, step, values in apart for one in rails.record(kind, step, values)]
    assert len(lines) == 1
    assert "data.held_out" in lines[0]


def test_a_short_planned_run_hears_that_its_loss_does_not_fall(tmp_path):
    import regard

    pairs = [f"{'ab'[n % 2]} {'cd'[n % 3 % 2]} x{n % 7}\t{'efg'[n % 3]} y{n % 5}" for n in range(300)]
    (tmp_path / "pairs.tsv").write_text("\n".join(pairs) + "\n")
    small = ("model.width=16", "model.heads=2", "model.encoder_layers=1", "model.decoder_layers=1", "train.threads=1")
    plan = regard.plan(
        tmp_path / "pairs.tsv",
        overrides=(*small, "train.steps=40", "train.learning_rate=1e-12", "train.validate_sentences=0"),
        extra={"train": {"select_by": "loss"}},
    )
    told = Told()
    run = regard.train(plan, tmp_path / "run", told)
    assert [line for line in told.lines if line.startswith("loss not falling: at step ")], told.lines
    assert main(["doctor", str(run.directory)]) == 0


def test_outputs_are_cut_early_in_any_training():
    assert said([("validation", 100, {"loss": 1.0, "cut": 100.0})], validate_sentences=100) == []


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
    alike = [{"kind": "validation", "step": step, "loss": 1.0, "f1": 3.0} for step in (500, 1000)]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(record) + "\n" for record in alike))
    assert main(["doctor", str(tmp_path)]) == 0
    assert "by f1 is that of step 1,000" in capsys.readouterr().out  # the weights that training keeps
    (tmp_path / "log.jsonl").unlink()
    assert main(["doctor", str(tmp_path)]) == 2


def test_the_doctor_repeats_what_was_said_of_the_data(tmp_path, capsys):
    import regard

    rows = [f"word{n} aa\t{'AB'[n % 2]} {n}" for n in range(120)]
    rows[5], rows[9] = "\tB 5", rows[8]
    (tmp_path / "pairs.tsv").write_text("\n".join(rows) + "\n")
    small = ("model.width=16", "model.heads=2", "model.encoder_layers=1", "model.decoder_layers=1", "train.threads=1")
    plan = regard.plan(tmp_path / "pairs.tsv", overrides=(*small, "train.steps=4", "train.save_every=2"))

    class Both(Told, StopAt):
        def __init__(self):
            Told.__init__(self)
            StopAt.__init__(self, 1)

    told = Both()
    with pytest.raises(Stopped):
        regard.train(plan, tmp_path / "run", told)
    regard.resume(tmp_path / "run", (), Told())
    capsys.readouterr()
    assert main(["doctor", str(tmp_path / "run")]) == 0
    out = capsys.readouterr().out.splitlines()
    assert plan.findings
    for finding in plan.findings:
        assert out.count(f"note: {finding.line}") == 1
    left = [line for line in told.lines if "blank" in line and not line.startswith("note: ")]
    assert left
    assert all(f"note: {line}" in out for line in left)
    assert "nothing looks wrong" not in out
    assert main(["plot", str(tmp_path / "run")]) == 0


def test_of_few_outputs_the_share_that_is_cut_counts():
    assert said([("validation", 900, {"loss": 1.0, "cut": 4.0, "outputs": 7.0})], validate_sentences=100) == [
        "outputs cut"
    ]
    assert said([("validation", 900, {"loss": 1.0, "cut": 4.0, "outputs": 100.0})]) == []


def test_unknown_tokens_of_labelled_and_running_text_are_said(tmp_path):
    import regard

    known, strange = ("aa bb cc dd", "dd cc aa bb"), "vvv www xxx yyy"
    (tmp_path / "train.tsv").write_text("".join(f"{text}\t{label}\n" for text in known * 10 for label in "01"))
    (tmp_path / "valid.tsv").write_text("".join(f"{strange}\t{label}\n" for label in "01" * 5))
    (tmp_path / "train.txt").write_text("\n".join(known * 10))
    (tmp_path / "valid.txt").write_text("\n".join([strange] * 10))
    small = ("model.width=16", "model.heads=2", "model.layers=1", "train.steps=2", "train.threads=1")
    for kind in ("tsv", "txt"):
        told = Told()
        own = ("data.max_len=16", "model.max_len=16", "tokenizer.kind=word") if kind == "txt" else ()
        data, valid = (str(tmp_path / f"{part}.{kind}") for part in ("train", "valid"))
        plan = regard.plan(data, valid=valid, overrides=(*small, *own))
        regard.train(plan, tmp_path / kind, told)
        assert [line for line in told.lines if line.startswith("unknown tokens: ")], kind
    (tmp_path / "marked.txt").write_text("\n".join([*known, "aa <unk> bb"] * 10))
    told = Told()
    text = str(tmp_path / "marked.txt")
    regard.train(regard.plan(text, valid=text, overrides=(*small, *own[:2])), tmp_path / "marked", told)
    assert not [line for line in told.lines if line.startswith("unknown tokens: ")]


def test_what_was_said_before_a_stop_is_not_said_again(tmp_path):
    import regard

    (tmp_path / "train.tsv").write_text("".join(f"{'aa ' * n}bb\t{n % 2}\n" for n in range(20)))
    (tmp_path / "valid.tsv").write_text("vvv www\t0\nwww vvv\t1\n")
    small = ("model.width=16", "model.heads=2", "model.layers=1", "train.threads=1", "train.steps=6")
    often = ("train.validate_every=2", "train.log_every=1", "train.save_every=2")
    plan = regard.plan(tmp_path / "train.tsv", valid=tmp_path / "valid.tsv", overrides=(*small, *often))

    class Both(Told, StopAt):
        def __init__(self):
            Told.__init__(self)
            StopAt.__init__(self, 4)

    before, after = Both(), Told()
    with pytest.raises(Stopped):
        regard.train(plan, tmp_path / "run", before)
    regard.resume(tmp_path / "run", (), after)
    said_of = [sum(line.startswith("unknown tokens: ") for line in one.lines) for one in (before, after)]
    assert said_of == [1, 0]


def test_texts_that_lose_their_end_are_counted(tmp_path):
    import regard

    long = " ".join("abcdefgh" * 20)
    rows = [f"{long}\t0", f"{long} a\t1", *(f"{text}\t{label}" for text in ("a b", "b a", "c d") for label in "01")]
    (tmp_path / "texts.tsv").write_text("\n".join(rows) + "\n")
    small = ("model.width=16", "model.heads=2", "model.layers=1", "train.threads=1", "train.steps=1", "data.max_len=32")
    told = Told()
    plan = regard.plan(tmp_path / "texts.tsv", valid=tmp_path / "texts.tsv", overrides=small)
    regard.train(plan, tmp_path / "run", told)
    assert any("of 2 only the beginning is read (data.max_len=32)" in line for line in told.lines)


def test_text_that_leaves_nothing_to_validate_on_is_refused_with_what_to_do(tmp_path):
    import regard

    (tmp_path / "short.txt").write_text("one line and one more\n" * 5)
    small = ("model.width=16", "model.heads=2", "model.layers=1", "train.threads=1", "train.steps=1")
    plan = regard.plan(tmp_path / "short.txt", overrides=(*small, "data.max_len=8", "model.max_len=8"))
    with pytest.raises(
        DataError,
        match=r"no text is held out .* data.held_out=0.1 sets the end of a plain file aside, .* give",
    ):
        regard.train(plan, tmp_path / "run")


def test_of_long_texts_a_validation_shows_the_beginning():
    from regard.tasks.translation_data import SHOWN, shortened

    assert shortened("a b c") == "a b c"
    assert (len(shortened("a " * SHOWN)), shortened("a " * SHOWN)[-3:]) == (SHOWN, "...")


def test_of_weights_that_translate_nothing_yet_the_later_are_chosen():
    def chosen(*figures):
        best, step = None, 0
        for number, bleu in enumerate(figures):
            step = number if is_better("bleu", {"bleu": bleu, "loss": 1.0}, best) else step
            best = -bleu if best is None else min(best, -bleu)
        return step

    assert chosen(0.2, 1.09, 0.87, 0.95) == 3, "which frequent words are repeated is chance"
    assert chosen(0.2, 1.1, 30.0, 29.0) == 2
    assert chosen(1.1, 30.0, 1.0) == 1
