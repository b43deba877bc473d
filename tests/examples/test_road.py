"""The example package, installed as anyone would install it, and found by its entry points alone."""

import http.client
import json
import os
import shutil
import subprocess
import sys
from contextlib import closing
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch
from jaxtyping import install_import_hook

from regard.training.loop import train_step, validate

ROOT = Path(__file__).parents[2]
ROAD = ROOT / "examples" / "road"

sys.path.append(str(ROAD))
with install_import_hook("regard_road", "beartype.beartype"):
    data, model, task = (import_module(f"regard_road.{name}") for name in ("data", "model", "task"))
sys.path.remove(str(ROAD))

SMALL = [
    *("data.scenes=64", "model.width=16", "model.heads=2", "model.feed_forward=16", "train.batch_tokens=480"),
    *("model.encoder_layers=1", "model.decoder_layers=1", "train.warmup=2", "train.threads=1"),
    *("train.steps=12", "train.save_every=5", "train.validate_every=6", "train.log_every=4", "train.keep=9"),
]
SETTINGS = [part for setting in SMALL for part in ("--set", setting)]


# The package from outside


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A folder that the package is installed in."""
    folder = tmp_path_factory.mktemp("road")
    shutil.copytree(ROAD, folder / "source", ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"))
    flags = ("--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check", "-q")
    install = [sys.executable, "-m", "pip", "install", *flags, "--target", folder / "site", folder / "source"]
    subprocess.run(install, check=True, capture_output=True, text=True)
    return folder / "site"


COMMANDS = """
import contextlib, io, json, sys
from regard.cli import main
said = []
for arguments in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        code = main(arguments)
    said.append([code, out.getvalue()])
print(json.dumps(said))
"""


def environment(site):
    return {**os.environ, "PYTHONPATH": os.pathsep.join((str(site), str(ROOT))), "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def regard(site):
    """Runs commands one after the other, in one process that is not this one; what each printed."""

    def run(*commands):
        given = json.dumps([[str(part) for part in command] for command in commands])
        asked = [sys.executable, "-c", COMMANDS, given]
        done = subprocess.run(asked, env=environment(site), capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        codes, said = zip(*json.loads(done.stdout), strict=True)
        assert not any(codes), done.stderr
        return said

    return run


@pytest.fixture(scope="module")
def trained(regard, tmp_path_factory):
    run = tmp_path_factory.mktemp("runs") / "road"
    regard(["train", ROAD / "road.toml", "--out", run, *SETTINGS])
    return run


def test_a_run_is_evaluated_described_timed_and_looked_into(regard, trained, tmp_path):
    scenes, page, found = tmp_path / "scenes.jsonl", tmp_path / "page.html", tmp_path / "found.json"
    data.write_scenes(scenes, data.generated(2, seed=0, part="test", steps=8))
    test = tmp_path / "test.jsonl"
    data.write_scenes(test, data.generated(20, seed=0, part="test"))
    said = regard(
        ["evaluate", trained, "--limit", "20", "--json"],
        ["evaluate", trained, "--data", test, "--json"],
        ["evaluate", trained, "--limit", "20"],
        ["describe", trained, "--json"],
        ["bench", "train", ROAD / "road.toml", *SETTINGS, "--seconds", "0.05", "--batches", "1", "--json"],
        ["look", trained, "--input", scenes, "--out", page, "--json", found, "--training"],
        ["train", ROAD / "road.toml", "--data", test, "--valid", test, *SETTINGS, "--out", tmp_path / "files"],
        ["evaluate", tmp_path / "files", "--json"],
        ["forecast", trained, "--input", scenes, "--json"],
        ["forecast", trained, json.dumps(data.generated(1, seed=0, part="test", steps=8)[0].tolist()), "--steps", "3"],
    )
    scores, filed, shown, facts, bench, _, _, own, forecasts, told = said
    scores, filed, facts, bench = (json.loads(one) for one in (scores, filed, facts, bench))
    assert scores["scenes"] == 20
    assert scores["constant_velocity"]["average_displacement"] > 1
    low, high = scores["average_displacement_interval"]
    assert low < scores["average_displacement"] < high
    # A file keeps positions to the centimetre.
    assert filed["average_displacement"] == pytest.approx(scores["average_displacement"], abs=0.05)
    assert json.loads(own)["constant_velocity"] == filed["constant_velocity"]
    assert "constant velocity" in shown
    assert facts["model"] == "road"
    assert sum(facts["parameters_by_part"].values()) == facts["parameters"]
    assert facts["flops"]["forward"] > 0
    assert bench["results"][0]["tokens_per_second"] > 0
    document = json.loads(found.read_text())
    first = document["sentences"][0]
    assert first["source"]["pieces"][:2] == ["agent 1 t-7", "agent 1 t-6"]
    assert first["target"]["pieces"][-1] == f"agent {len(first['target']['words'])} t+12"
    assert {one["name"] for one in first["attentions"]} == {"encoder.0.attention", "decoder.0.attention"}
    weights = np.array(first["attentions"][1]["weights"])
    np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-5)
    assert document["history"]["steps"] == [5, 10, 12]
    assert "agent 1 t-7" in page.read_text()
    rows = [json.loads(line) for line in forecasts.splitlines()]
    assert np.array(rows[0]["agents"]).shape[1:] == (12, 2)
    assert told.startswith("in 1.2 s: agent 1 (")


def test_a_stopped_run_goes_on_as_if_it_had_not(regard, trained, tmp_path):
    stopped = tmp_path / "stopped"
    shutil.copytree(trained, stopped)
    for step in ("step-10", "step-12"):
        shutil.rmtree(stopped / "checkpoints" / step)
    (stopped / "model.safetensors").unlink()
    regard(["train", "--resume", stopped])
    for name in ("model.safetensors", "checkpoints/step-12/model.safetensors"):
        assert (stopped / name).read_bytes() == (trained / name).read_bytes()


def test_runs_are_compared_by_what_their_task_says(regard, tmp_path):
    asked = ["road.toml", "alike=road.toml:model.agent_aware=false"]
    asked = [one.replace("road.toml", str(ROAD / "road.toml")) for one in asked]
    (said,) = regard(
        ["compare", *asked, "--updates", "4", "--no-growth", "--limit", "8", *SETTINGS, "--out", tmp_path / "both"]
    )
    report = json.loads((tmp_path / "both" / "report.json").read_text())
    assert [run["name"] for run in report["runs"]] == ["road", "alike"]
    assert report["runs"][0]["parameters"] > report["runs"][1]["parameters"]
    assert "average displacement" in said
    page = (tmp_path / "both" / "report.html").read_text()
    assert "constant velocity" in page
    assert "perplexity" not in page
    assert "nats" not in page


def test_scenes_are_forecast_over_http(site, trained):
    command = [sys.executable, "-m", "regard", "serve", trained, "--port", "0"]
    scene = data.generated(1, seed=0, part="test", steps=8)[0].tolist()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment(site)) as server:
        try:
            port = int(server.stdout.readline().rsplit(":", 1)[1].strip().strip("/"))

            def ask(method, path, body=None):
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
                connection.request(method, path, json.dumps(body), {"Content-Type": "application/json"})
                with closing(connection), connection.getresponse() as answer:
                    return answer.status, json.loads(answer.read())

            status, found = ask("POST", "/v1/forecast", {"scenes": [scene, {"agents": scene}], "steps": 3})
            assert status == 200, found
            assert np.array([one["agents"] for one in found["results"]]).shape == (2, len(scene), 3, 2)
            status, refused = ask("POST", "/v1/forecast", {"scenes": [[[[0, 0], [1, 0]]]]})
            assert status == 422
            assert "2 steps; the model reads 8" in refused["error"]["message"]
            status, looked = ask("POST", "/v1/look", {"text": scene})
            assert status == 200, looked
            assert "/v1/forecast" in ask("GET", "/openapi.json")[1]["paths"]
        finally:
            server.terminate()


def test_help_waits_for_no_tensors_though_the_package_is_installed(site):
    code = """
import contextlib, io, sys
from regard.cli import main
with contextlib.redirect_stdout(io.StringIO()) as out:
    codes = main(["--help"]), main(["forecast", "--help"]), main(["translate", "--help"])
print(codes, "Say where the agents" in out.getvalue(), sorted({"torch", "numpy"} & sys.modules.keys()))
"""
    done = subprocess.run([sys.executable, "-c", code], env=environment(site), capture_output=True, text=True)
    assert done.stdout == "(0, 0, 0) True []\n", done.stderr


def test_nothing_in_regard_knows_of_the_package():
    """It needs not one line there: only the documentation of entry points names it, as an example."""
    files = [path for path in (ROOT / "regard").rglob("*.py") if "regard_road" in path.read_text(encoding="utf-8")]
    assert [path.name for path in files] in ([], ["plugins.py"])


# The model


def small(**settings):
    torch.manual_seed(0)
    made = model.RoadModel(model.RoadConfig(width=16, heads=2, feed_forward=16, **settings)).eval()
    with torch.no_grad():  # as if it had been trained a little: before, it adds nothing
        made.displacement.weight.normal_(std=0.1)
    return made


def batch(count=6, **drawn):
    return data.Scenes.of(data.generated(count, seed=3, part="train", **drawn), 8)


def test_before_training_a_forecast_is_constant_velocity():
    made, scenes = model.RoadModel(model.RoadConfig(width=16, heads=2)), batch()
    torch.testing.assert_close(made(scenes), model.constant_velocity(scenes.past, 12), rtol=0, atol=0)


@torch.no_grad()
def test_a_scene_moved_and_turned_has_the_forecast_moved_and_turned():
    made, scenes, angle = small(), batch(), 0.7
    cos, sin = np.cos(angle), np.sin(angle)
    turn, move = torch.tensor([[cos, sin], [-sin, cos]], dtype=torch.float32), torch.tensor([30.0, -20.0])
    elsewhere = data.Scenes(scenes.past @ turn + move, scenes.agents)
    there = made(elsewhere)[scenes.present]
    torch.testing.assert_close(there, (made(scenes) @ turn + move)[scenes.present], rtol=0, atol=2e-3)


@torch.no_grad()
def test_an_agent_that_is_not_there_changes_nothing():
    made, scenes = small(), data.generated(4, seed=3, part="train", agents=(3, 3))
    beside = [*scenes, *data.generated(1, seed=4, part="train", agents=(6, 6))]
    alone, padded = made(data.Scenes.of(scenes, 8)), made(data.Scenes.of(beside, 8))
    torch.testing.assert_close(padded[:4, :3], alone, rtol=0, atol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize(("encoding", "same"), [("none", True), ("learned", False)])
def test_without_agent_encodings_the_order_of_agents_does_not_matter(encoding, same):
    made, scenes = small(agent_encoding=encoding), batch(agents=(4, 4))
    if made.agents is not None:
        made.agents.table.data.normal_()
    order = torch.tensor([2, 0, 3, 1])
    found = made(data.Scenes(scenes.past[:, order], scenes.agents))
    assert torch.allclose(found, made(scenes)[:, order], rtol=0, atol=1e-3) == same


@torch.no_grad()
def test_scores_are_mixed_by_who_is_the_same_agent():
    torch.manual_seed(0)
    attention = model.AgentAwareAttention(8, 2)
    x, same = torch.randn(1, 4, 8), torch.tensor([[1, 1, 0, 0]] * 2 + [[0, 0, 1, 1]] * 2, dtype=torch.bool)
    visible = torch.tensor([[[[True, True, True, False]]]])
    seen = []
    attention.watcher = lambda q, k, v, weights: seen.append(weights) or weights
    found = attention(x, x, same, visible)
    mixed = []
    for head in (slice(0, 4), slice(4, 8)):
        own = attention.query(x)[0][:, head] @ attention.key(x)[0][:, head].T
        other = attention.other_query(x)[0][:, head] @ attention.other_key(x)[0][:, head].T
        M = same.float()
        scores = (M * own + (1 - M) * other) / 2
        weights = scores[:, :3].softmax(-1)
        torch.testing.assert_close(seen[0][0, len(mixed)], torch.nn.functional.pad(weights, (0, 1)))
        mixed.append(weights @ attention.value(x)[0, :3, head])
    torch.testing.assert_close(found[0], attention.output(torch.cat(mixed, -1)))


def test_the_past_of_others_changes_a_forecast():
    made, scenes = small(), batch(2, agents=(3, 3))
    scenes.past.requires_grad_()
    made(scenes)[0, 0, -1, 0].backward()
    assert scenes.past.grad[0, 1:].abs().sum() > 0
    assert scenes.past.grad[1].abs().sum() == 0


# Scenes


def test_scenes_are_a_function_of_their_key():
    drawn = data.generated(5, seed=1, part="train")
    for one, again in zip(drawn, data.generated(5, seed=1, part="train"), strict=True):
        np.testing.assert_array_equal(one, again)
    for other in (data.generated(5, seed=2, part="train"), data.generated(5, seed=1, part="test")):
        assert not any(one.shape == two.shape and np.allclose(one, two) for one in drawn for two in other)


def test_fewer_steps_are_the_beginnings_of_the_same_scenes():
    pairs = zip(data.generated(9, seed=0, part="test"), data.generated(9, seed=0, part="test", steps=8), strict=True)
    assert all(np.array_equal(whole[:, :8], seen) for whole, seen in pairs)


def test_nobody_drives_through_anyone():
    scenes = data.generated(300, seed=5, part="train")
    assert {len(scene) for scene in scenes} == {2, 3, 4, 5, 6}
    pairs = [(scene[i], scene[j]) for scene in scenes for i in range(len(scene)) for j in range(i)]
    assert min(np.linalg.norm(one - other, axis=-1).min() for one, other in pairs) > 2
    speeds = np.concatenate([np.linalg.norm(np.diff(scene, axis=1), axis=-1).ravel() for scene in scenes]) / 0.4
    assert speeds.max() < 16
    assert (speeds < 0.01).any()  # someone waits


def test_scenes_are_read_as_they_were_written(tmp_path):
    scenes, path = data.generated(3, seed=0, part="valid"), tmp_path / "scenes.jsonl"
    data.write_scenes(path, scenes)
    for one, again in zip(scenes, data.read_scenes(path, fewest=8, steps=20), strict=True):
        np.testing.assert_allclose(one, again, atol=0.0051)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("[", "is not JSON"),
        ('{"agent": []}', "no key 'agents'"),
        ("3", "a list of 1 to"),
        ("[[[0, 0], [1, 1]], [[0, 0]]]", "equally many positions"),
        ("[[[0, 0, 1], [1, 1, 1]]]", "two numbers"),
        ('[[[0, 0], [1, "x"]]]', "two numbers"),
        ("[[[0, 0], [1, 1e7]]]", "at most 1,000,000"),
        ("[[[0, 0], [1, 1]]]", "2 steps; the model reads 8"),
    ],
)
def test_what_is_no_scene_is_refused(line, message, tmp_path):
    path = tmp_path / "scenes.jsonl"
    path.write_text(line + "\n", encoding="utf-8")
    with pytest.raises(data.DataError, match=message):
        data.read_scenes(path, fewest=8)


def test_an_interval_counts_scenes_and_not_agents():
    """Ten agents of one scene that all err alike say no more than one."""
    few = task._mean("error", [np.array([1.0]), np.array([2.0]), np.array([3.0])])
    many = task._mean("error", [np.full(10, 1.0), np.full(10, 2.0), np.full(10, 3.0)])
    assert few["error_interval"] == pytest.approx(many["error_interval"])
    half = 1.96 * np.std([1, 2, 3], ddof=1) / np.sqrt(3)
    assert few["error_interval"] == pytest.approx([2 - half, 2 + half])


def test_some_seconds_of_training_beat_constant_velocity():
    torch.manual_seed(0)
    made = model.RoadModel(model.RoadConfig(width=32, heads=2, feed_forward=32, encoder_layers=1, decoder_layers=1))
    scenes = data.SceneList(data.generated(600, seed=1, part="train"), 8, 1200)
    optimizer = torch.optim.AdamW(made.parameters(), lr=3e-3)
    objective = task.Forecasting()
    for epoch in range(3):
        for rows in scenes.order(1, epoch):
            train_step(made, objective, [scenes.batch(rows)], optimizer, clip=1.0)
    held_out = [one for _, one in data.scene_batches(data.generated(100, seed=0, part="test"), 8, 4800)]
    found = validate(made, objective, held_out)["displacement"]
    straight = sum(
        (model.constant_velocity(one.past, 12) - one.future)[one.present].norm(dim=-1).sum() for one in held_out
    )
    assert found < 0.85 * float(straight) / sum(one.count for one in held_out)
