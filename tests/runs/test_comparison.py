import json
import random
import re
import shutil
from pathlib import Path

import pytest
import torch
from listeners import StopAt

import regard
from regard import make_config
from regard.comparison.budget import Budget, count_parameters, flops_per_update, with_parameters, with_steps
from regard.comparison.experiment import ablation, entries, entry
from regard.comparison.report import comparison_charts
from regard.comparison.run_results import measure, training_curves
from regard.comparison.sequence_length import growth, kept_bytes, layer_cost, long_range_accuracy
from regard.errors import ConfigError, Diverged
from regard.models.sequence_classifier import SequenceClassifier
from regard.runs.files import run_names
from regard.tasks.spec import Silence
from regard.trainer.trainer import Stopped

WORDS = ["the", "a", "cat", "dog", "sees", "hears", "big", "small", "red", "house", "runs", "sleeps", "and"]
SMALL = [
    "model.width=16",
    "model.max_len=24",
    "data.max_len=24",
    "tokenizer.vocab_size=200",
    "train.batch_tokens=120",
    "train.log_every=2",
    "train.validate_sentences=2",
    "train.validate_every=3",
    "train.save_every=3",
    "train.warmup=3",
    "train.threads=1",
    "decode.max_len=8",
]
PAIR = ["none=sutskever-2014", "additive=bahdanau-2015:model.width=12"]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Settings of a small corpus in files."""
    folder, generator = tmp_path_factory.mktemp("corpus"), random.Random(0)
    for name, count in (("train", 60), ("valid", 6)):
        rows = [[generator.choice(WORDS) for _ in range(generator.randint(2, 8))] for _ in range(count)]
        lines = [f"{' '.join(row)}\t{' '.join(reversed(row))}\n" for row in rows]
        (folder / f"{name}.tsv").write_text("".join(lines), encoding="utf-8")
    return [*SMALL, "data.world=0", f'data.train=["{folder}/train.tsv"]', f'data.valid=["{folder}/valid.tsv"]']


@pytest.fixture(scope="module")
def compared(data, tmp_path_factory):
    out = tmp_path_factory.mktemp("compared") / "out"
    report = regard.compare(PAIR, out, updates=6, overrides=data, grow=False)
    return out, report


def test_a_comparison_trains_each_under_one_budget_and_says_what_came_of_it(compared):
    out, report = compared
    assert report["budget"] == "6 updates each"
    assert [run["name"] for run in report["runs"]] == ["none", "additive"]
    for run in report["runs"]:
        assert run["updates"] == 6
        assert run["flops"] > 0
        assert run["tokens"] > 0
        assert [one["step"] for one in run["validations"]]
        assert run["test"]["sentences"] == 6
    assert json.loads((out / "report.json").read_text(encoding="utf-8")) == json.loads(json.dumps(report))


def test_the_page_stands_alone_and_names_every_run(compared):
    out, _ = compared
    page = (out / "report.html").read_text(encoding="utf-8")
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", page)
    assert "<script" not in page
    assert "additive" in page
    assert "prefers-color-scheme: dark" in page
    names = {path.stem for path in (out / "charts").iterdir()}
    assert {"by-length", "nll-by-step", "nll-by-seconds", "nll-by-flops", "exact-match-by-step"} <= names


def test_a_comparison_that_was_interrupted_goes_on_and_ends_with_the_same_bytes(compared, data, tmp_path):
    whole, _ = compared
    out = tmp_path / "out"
    stop = StopAt(4)
    with pytest.raises(Stopped, match="stopped while training none, and saved; the same command goes on"):
        regard.compare(PAIR, out, updates=6, overrides=data, grow=False, report=stop)
    assert not (out / "report.html").exists()
    regard.compare(PAIR, out, updates=6, overrides=data, grow=False)
    for name in ("none", "additive"):
        weights = [(folder / name / "model.safetensors").read_bytes() for folder in (whole, out)]
        assert weights[0] == weights[1]


def test_what_is_done_is_not_done_again(compared, data, monkeypatch):
    out, report = compared
    for name in ("train", "resume"):
        monkeypatch.setattr(f"regard.comparison.experiment.{name}", None)
    monkeypatch.setattr("regard.comparison.run_results.load", None)
    assert regard.compare(PAIR, out, updates=6, overrides=data, grow=False)["runs"] == report["runs"]


def test_a_directory_holds_one_comparison(compared, data, tmp_path):
    out, _ = compared
    with pytest.raises(ConfigError, match="holds another comparison"):
        regard.compare(PAIR, out, updates=7, overrides=data, grow=False)
    with pytest.raises(ConfigError, match="holds another comparison"):
        regard.compare([out / "none"], out, runs=True, grow=False)
    (tmp_path / "something").touch()
    with pytest.raises(ConfigError, match="is not empty and holds no comparison"):
        regard.compare(PAIR, tmp_path, updates=6, overrides=data, grow=False)


def test_runs_that_are_trained_are_compared_as_they_are(compared, tmp_path):
    out, report = compared
    again = regard.compare([out / "additive", out / "none"], tmp_path / "other", runs=True, grow=False)
    assert [run["name"] for run in again["runs"]] == ["additive", "none"]
    assert again["runs"][0]["test"] == report["runs"][1]["test"]
    with pytest.raises(ConfigError, match="runs are compared as they are"):
        regard.compare([out / "none"], tmp_path / "third", runs=True, updates=3)


def test_runs_whose_directories_are_called_the_same_keep_names_of_their_own(compared, tmp_path):
    out, _ = compared
    for day, name in (("monday", "none"), ("friday", "additive")):
        shutil.copytree(out / name, tmp_path / day / "demo")
    given = [tmp_path / "monday" / "demo", tmp_path / "friday" / "demo", out / "none"]
    report = regard.compare(given, tmp_path / "report", runs=True, grow=False)
    assert [run["name"] for run in report["runs"]] == ["monday/demo", "friday/demo", "none"]
    svg = (tmp_path / "report" / "charts" / "nll-by-step.svg").read_text(encoding="utf-8")
    assert re.findall(r">([^<]*demo)</text>", svg) == ["monday/demo", "friday/demo"]
    again = tmp_path / "friday" / ".." / "monday" / "demo"
    with pytest.raises(ConfigError, match=r"monday/demo' and '.*\.\./monday/demo' are the same run"):
        regard.compare([given[0], again], tmp_path / "twice", runs=True, grow=False)


def test_names_of_runs_go_up_to_the_first_folder_that_differs(tmp_path):
    folders = [tmp_path / one for one in ("a/x/run", "b/x/run", "b/y/run", "other")]
    assert run_names(folders) == ["a/x/run", "b/x/run", "y/run", "other"]
    assert run_names([Path("/run"), Path("/x/run")]) == ["/run", "x/run"]


def test_a_run_that_diverges_is_told_of_and_the_others_go_on(data, tmp_path, monkeypatch):
    def train(config, directory, report, **more):
        run = regard.train(config, directory, report, **more)
        if directory.name == "wild":
            raise Diverged("training diverged at step 2: loss nan")
        return run

    monkeypatch.setattr("regard.comparison.experiment.train", train)
    report = regard.compare(["wild=sutskever-2014", PAIR[1]], tmp_path / "out", updates=2, overrides=data, grow=False)
    first, second = report["runs"]
    assert "training diverged" in first["diverged"]
    assert "test" not in first
    assert second["test"]["sentences"] == 6
    assert "training diverged" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")


def test_an_ablation_goes_without_each_trick_at_each_depth(data, tmp_path):
    found = ablation("demo", ["residual", "norm", "scale"], [1, 3])
    assert [one.name for one in found[:4]] == [
        "1 layers",
        "1 layers without residual",
        "1 layers without norm",
        "1 layers without scale",
    ]
    models = [one.config.model for one in found[4:]]
    assert {(model["encoder_layers"], model["decoder_layers"]) for model in models} == {(3, 3)}
    assert [model.get("residual", True) for model in models] == [True, False, True, True]
    assert [model.get("norm", "layer") for model in models] == ["layer", "layer", "none", "layer"]
    assert [model.get("scaled", True) for model in models] == [True, True, True, False]
    report = regard.compare(
        ["demo:model.feed_forward=16"],
        tmp_path / "out",
        updates=2,
        overrides=data,
        grow=False,
        ablate=["norm"],
        depths=[1],
    )
    charts = comparison_charts(report)
    assert [line.name for line in charts["ablation"].series] == ["whole", "without norm"]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: ablation("bahdanau-2015", ["norm"], [2]), "--ablate is for model 'transformer'"),
        (lambda: ablation("demo", ["residuals"], [2]), "cannot go without 'residuals'; did you mean 'residual'"),
        (lambda: ablation("demo", ["norm"], [0]), "depths of at least 1"),
        (lambda: entries(["demo", "demo"]), "two configurations are called 'demo'"),
        (lambda: entry("dem"), "'dem' is neither a preset nor a .toml or .json file; did you mean 'demo'"),
        (lambda: Budget(updates=1, minutes=2), "one budget, not 2"),
        (lambda: Budget(minutes=0), "a budget of 0 minutes must be above 0"),
        (lambda: regard.compare([], "nowhere"), "nothing to compare"),
    ],
)
def test_what_cannot_be_compared_is_refused(call, said):
    with pytest.raises(ConfigError, match=re.escape(said)):
        call()


def test_a_configuration_may_bring_a_name_and_settings_of_its_own():
    one = entry("wide=bahdanau-2015:model.width=64,train.betas=[0.5, 0.6],model.attention=dot", ["model.width=32"])
    assert one.name == "wide"
    assert (one.config.model["width"], one.config.model["attention"]) == (64, "dot")
    assert one.config.train.betas == (0.5, 0.6)
    assert entry("bahdanau-2015:model.width=64").name == "bahdanau-2015 width=64"


@pytest.mark.parametrize("preset", ["sutskever-2014", "bahdanau-2015", "demo", "gehring-2017"])
def test_the_width_is_chosen_for_the_parameters(preset):
    config = make_config(None, preset).with_stand_ins()
    wanted = 2_000_000
    found = count_parameters(with_parameters(config, wanted))
    assert found == pytest.approx(wanted, rel=0.03)


def test_what_is_counted_in_updates_is_scaled_with_them():
    config = make_config(None, "demo", ["train.steps=1000", "train.warmup=100", "train.validate_every=250"])
    scaled = with_steps(config, 200).train
    assert (scaled.steps, scaled.warmup, scaled.validate_every) == (200, 20, 50)


def test_a_budget_of_operations_buys_as_many_updates_as_they_take(data, tmp_path):
    config = make_config(None, "bahdanau-2015", data)
    config, job = config.kind.prepare(config, tmp_path, Silence(), new=True)
    cost = flops_per_update(config, job)
    assert Budget(flops=10.5 * cost).steps(config, job) == 10
    wide = make_config(None, "bahdanau-2015", [*data, "model.width=32"])
    wide, _ = wide.kind.prepare(wide, tmp_path, Silence(), new=True)
    assert flops_per_update(wide, job) > 2 * cost
    assert Budget(minutes=1).steps(config, job) > 10


def test_seconds_and_tokens_add_up_over_a_run_that_was_stopped(tmp_path):
    records = [
        {"kind": "train", "step": 2, "loss": 2.0, "seconds": 3.0, "tokens_per_second": 10.0},
        {"kind": "validation", "step": 2, "nll": 1.5},
        {"kind": "train", "step": 4, "loss": 1.0, "seconds": 2.0, "tokens_per_second": 20.0},
    ]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records), encoding="utf-8")
    step, seconds, tokens, curve, validations = training_curves(tmp_path)
    assert (step, seconds, tokens) == (4, 5.0, 70.0)
    assert [one["seconds"] for one in curve] == [3.0, 5.0]
    assert validations == [{"step": 2, "seconds": 3.0, "tokens": 30.0, "nll": 1.5}]


def test_on_the_bundled_corpus_words_and_alignments_are_counted(tmp_path, monkeypatch):
    monkeypatch.setattr("regard.tasks.translation_metrics.ALIGNED", 6)
    monkeypatch.setattr("regard.tasks.corpora.WORLD_HELD_OUT", 12)
    small = [one for one in SMALL if "max_len" not in one]
    settings = [*small, "data.world=30", "data.world_grammar=plain", "train.batch_tokens=300", "decode.max_len=8"]
    out = tmp_path / "out"
    report = regard.compare(["bahdanau-2015"], out, updates=2, overrides=settings, limit=12, grow=False)
    test = report["runs"][0]["test"]
    assert test["short"]["sentences"] + test["long"]["sentences"] <= 12
    assert set(test["words"]) == {"repeated", "omitted", "over_translated", "counts"}
    assert test["words"]["counts"]["sentences"] == 12
    assert 0 <= test["alignment_error_rate"] <= 1
    assert measure(out / "bahdanau-2015", limit=12)["test"] == json.loads(json.dumps(test))


def test_attention_keeps_n_squared_with_its_weights_formed_and_n_without():
    found = {way["name"]: way for way in growth((64, 256), width=16, repeats=1, work_lengths=(16,))["ways"]}

    def ratio(name):
        short, long = (point["bytes"] for point in found[name]["points"])
        return long / short

    assert ratio("attention, weights formed") > 8
    for name in ("rnn", "gru", "lstm", "convolution", "attention"):
        assert 2.5 < ratio(name) < 4.5
    assert found["convolution"]["receptive_field"] == 5


def test_work_steps_and_path_of_one_layer_are_those_of_the_lectures_table():
    width = 32

    def growing(way):
        short, long = (layer_cost(way, length, width=width) for length in (64, 128))
        return long["flops"] / short["flops"], long["sequential_steps"], long["longest_path"]

    for way in ("rnn", "gru", "lstm"):
        assert growing(way) == (2, 128, 127)
    assert growing("convolution") == (2, 1, 64)
    work, steps, path = growing("attention")
    assert (steps, path) == (1, 1)
    assert 2 < work < 4  # projections and feed-forward grow as n, scores and weighted sums as n squared
    # Two products of n x n by the width for each of scores and sums.
    squares = [layer_cost("attention", n, width=width)["flops"] for n in (64, 128)]
    assert squares[1] - 2 * squares[0] == 2 * 2 * width * (128**2 - 2 * 64**2)


@pytest.mark.parametrize("layers", [1, 7, 8])
def test_a_convolution_sees_the_first_position_after_as_many_layers_as_the_longest_path(layers):
    torch.manual_seed(0)
    reader = SequenceClassifier("convolution", 8, 2, width=4, layers=layers)
    x = torch.randn(1, 17, 4, requires_grad=True)
    reader.read(x)[:, -1].sum().backward()
    sees = bool((x.grad[0, 0] != 0).any())
    assert sees == (layers >= layer_cost("convolution", 17, width=4)["longest_path"])


def test_bytes_kept_are_those_of_the_tensors_that_backward_needs():
    layer, x = torch.nn.Linear(8, 8), torch.randn(32, 8)
    assert kept_bytes(lambda: layer(x).sum(), layer) == 32 * 8 * 4
    assert kept_bytes(lambda: layer(x).tanh().sum(), layer) == 2 * 32 * 8 * 4


def test_attention_recalls_what_a_convolution_cannot_see(monkeypatch):
    monkeypatch.setattr("regard.comparison.sequence_length.TOKENS", 1024)
    found = long_range_accuracy(32, 100, ways=("attention", "convolution"), questions=("recall",), width=32)
    attention, convolution = ([point["share"] for point in one["accuracy"]] for one in found["results"])
    assert attention[-1] > 0.8
    assert convolution[-1] < 0.35


def test_a_reader_that_has_learned_stops_and_says_after_how_many_updates(monkeypatch):
    monkeypatch.setattr("regard.comparison.sequence_length.TOKENS", 512)
    monkeypatch.setattr("regard.comparison.sequence_length.TRIED_EVERY", 10)
    how = {"ways": ("attention",), "questions": ("recall",), "width": 32, "rows": 24}
    easy, hard = (long_range_accuracy(16, 40, until=until, **how)["results"][0] for until in (0.0, 1.01))
    assert (easy["updates"], len(easy["curve"])) == (10, 1)
    assert (hard["updates"], len(hard["curve"])) == (40, 4)
    assert hard["accuracy"][0]["share"] * 24 % 1 == 0
    assert all(0 < point["loss"] < 10 for point in hard["curve"])


@pytest.mark.parametrize(("dilation", "layers", "field"), [(1, 16, 129), (2, 5, 249), (4, 3, 169)])
def test_deep_convolutions_are_as_many_as_see_the_longest(dilation, layers, field):
    how = {"ways": ("convolution",), "questions": ("count",), "width": 4, "rows": 1, "tokens": 64}
    found = long_range_accuracy(128, 1, deep=True, dilation=dilation, **how)
    assert found["tokens"] == 64
    assert (found["results"][0]["layers"], found["results"][0]["receptive_field"]) == (layers, field)
