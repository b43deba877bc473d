import errno
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from cli_toys import small_settings
from rich.console import Console

import regard
from regard.cli import main
from regard.cli.progress import Counter, TrainingProgress
from regard.errors import ProcessLost
from regard.runs import files
from regard.runs.checkpoint import checkpoints

LINES = {
    "longer.en": "a\nb\nc\n",
    "shorter.fr": "A\nB\n",
    "empty.en": "",
    "onesided.tsv": "a\tA\nonly one side\n",
    "blank.tsv": " \tA\nb\t \n",
    "broken.toml": "[model]\nwidth = [1,\n",
    "noname.toml": "[model]\nwidth = 16\n",
    "unknown.toml": '[model]\nname = "transformer"\nwidht = 16\n',
    "strange.toml": '[train]\nsteps = "many"\n[model]\nname = "transformer"\n',
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bad")
    for name, text in LINES.items():
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "latin.en").write_bytes(b"caf\xe9\n")
    (folder / "directory").mkdir()
    return folder


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--data longer.en --data shorter.fr", r"longer.en has 3 lines and .*shorter.fr has 2: line 3 of .*longer.en"),
        ("--data empty.en --data shorter.fr", r"empty.en is empty"),
        ("--data latin.en --data shorter.fr", r"latin.en is not UTF-8 text: byte 3, on line 1"),
        ("--data onesided.tsv", r"onesided.tsv, line 2: 1 column where 2 columns should be"),
        ("--data blank.tsv", r"none of 2 pairs can be used: 2 have a blank side"),
        ("--data missing.tsv", r"no such file or folder: .*missing.tsv"),
        ("--data directory --data shorter.fr", r"directory holds no file to read"),
        ("--data longer.en", r"longer.en is one side of the pairs: name the other"),
        ("--data longer.en --data longer.en --data longer.en", r"longer.en is no table"),
        ("--data TRAIN --valid missing.tsv", r"no such file or folder: .*missing.tsv"),
        ("--data TRAIN --test missing.tsv", r"no such file or folder: .*missing.tsv"),
        ("--data TRAIN --valid empty.en --valid shorter.fr", r"empty.en is empty"),
        ("", r"no training data: give --data with your files or --world"),
        ("--data TRAIN --world 5", r"two sources of training pairs; give one"),
        (
            "--data TRAIN --set train.batch_tokens=8",
            r"train.batch_tokens=8 is less than the longest pair, which has",
        ),
        ("--data TRAIN --set train.device=tpu", r"unknown device 'tpu'; use auto, cpu, cuda or mps"),
        (
            "--data TRAIN --set train.device=meta",
            r"device 'meta' is not one that regard knows; use auto, cpu, cuda or mps",
        ),
        ("--data TRAIN --set model.width=17", r"width=17 must be a multiple of heads=2"),
        ("--data TRAIN --set model.widht=16", r"unknown setting 'model.widht'; did you mean 'model.width'\?"),
        ("--data TRAIN --set trian.steps=3", r"unknown setting 'trian'; did you mean 'train'\?"),
        ("--data TRAIN --set train.stpes=3", r"unknown setting 'train.stpes'; did you mean 'train.steps'\?"),
        ("--data TRAIN --set steps=3", r"'steps=3' names no section; did you mean train.steps=3\?"),
        ("--data TRAIN --set steps", r"'steps' names no section"),
        ("--data TRAIN --set nonsense", r"'nonsense' is not of the form section.name=value"),
        ("--data TRAIN --set train.steps=many", r"train.steps='many' must be a whole number"),
        ("--data TRAIN --set train.steps=0", r"train.steps=0 must be at least 1"),
        ("--data TRAIN --set model.name=transfomer", r"unknown model 'transfomer'; did you mean 'transformer'\?"),
        ("--data TRAIN --set tokenizer.kind=bep", r"tokenizer.kind='bep' must be one of .*; did you mean 'bpe'\?"),
        ("--data TRAIN --set data.max_len=500", r"data.max_len=500 must be at most model.max_len=24"),
        ("--data TRAIN --preset tinny", r"unknown preset 'tinny'; did you mean 'tiny'\?"),
        ("broken.toml", r"broken.toml: .*(line|document)"),
        ("missing.toml", r"no such file: .*missing.toml"),
        ("unknown.toml --data TRAIN", r"unknown setting 'model.widht'; did you mean 'model.width'\?"),
        ("strange.toml --data TRAIN --set train.threads=1", r"train.steps='many' must be a whole number"),
        ("noname.toml --data TRAIN", r"unknown model 'None'"),
    ],
)
def test_a_bad_input_is_one_line_and_leaves_nothing(refused, corpus, folder, tmp_path, arguments, said):
    def place(word):
        return corpus / "train.tsv" if word == "TRAIN" else folder / word if word in known else word

    known = {*LINES, "latin.en", "directory", "missing.tsv", "missing.toml"}
    words = [place(word) for word in arguments.split()]
    if ".toml" not in arguments:
        # The test's own settings come first, so that the one under test has the last word.
        words = [*small_settings(), *words] if "--preset" in words else ["--preset", "tiny", *small_settings(), *words]
    line = refused("train", *words, "--out", tmp_path / "runs" / "new")
    assert re.search(said, line), line
    assert list(tmp_path.iterdir()) == []


def test_what_was_there_before_stays(refused, corpus, folder, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    arguments = ["--preset", "tiny", "--data", corpus / "train.tsv", "--out", tmp_path, *small_settings()]
    refused("train", *arguments, "--set", "train.batch_tokens=8")
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_out_must_be_given_free_and_writable(refused, corpus, trained, tmp_path):
    arguments = ["--preset", "tiny", "--data", corpus / "train.tsv", *small_settings()]
    before = (trained / "model.safetensors").read_bytes()
    assert "already holds a run" in refused("train", *arguments, "--out", trained)
    assert (trained / "model.safetensors").read_bytes() == before
    (tmp_path / "file").touch()
    assert "cannot write" in refused("train", *arguments, "--out", tmp_path / "file")
    assert "cannot write" in refused("train", *arguments, "--out", tmp_path / "file" / "run")
    assert "--out is missing" in refused("train", *arguments)


def test_data_given_on_the_command_line_takes_the_place_of_the_presets(cli, corpus, tmp_path):
    arguments = ["--data", corpus / "train.tsv", "--out", tmp_path / "run", *small_settings("train.steps=1")]
    assert cli("train", "--preset", "demo", *arguments).code == 0
    config = regard.load(tmp_path / "run").config
    assert config.data.world == 0
    assert config.data.train == (str(corpus / "train.tsv"),)


def test_each_layer_of_settings_may_say_anew_what_to_train_on(tmp_path):
    (tmp_path / "mine.toml").write_text("[data]\ntrain = ['a.tsv']\n")
    config = regard.make_config(tmp_path / "mine.toml", "demo")
    assert (config.data.world, config.data.train) == (0, ("a.tsv",))
    config = regard.make_config(tmp_path / "mine.toml", "demo", (), {"data": {"world": 5}})
    assert (config.data.world, config.data.train) == (5, ())
    config = regard.make_config(tmp_path / "mine.toml", "tiny", (), {"data": {"valid": ["b.tsv"]}})
    assert (config.data.train, config.data.valid) == (("a.tsv",), ("b.tsv",))


@pytest.mark.parametrize(
    "extra", [["my.toml"], ["--out", "x"], ["--preset", "tiny"], ["--data", "x"], ["--world", "5"]], ids=" ".join
)
def test_resume_takes_nothing_that_would_change_the_run(refused, trained, extra):
    assert "--resume goes on in the run's own directory" in refused("train", "--resume", trained, *extra)


def test_resume_says_what_is_wrong(refused, trained, tmp_path):
    assert refused("train", "--resume", tmp_path / "none") == f"no such run: {tmp_path / 'none'}"
    assert refused("train", "--resume", tmp_path) == f"{tmp_path} is missing its config.json"
    assert "cannot change in a run that has begun" in refused("train", "--resume", trained, "--set", "model.width=3")
    before = (trained / "config.json").read_bytes()
    assert "train.batch_tokens=3 is less" in refused("train", "--resume", trained, "--set", "train.batch_tokens=3")
    assert (trained / "config.json").read_bytes() == before


@pytest.mark.parametrize("part", ["config.json", "tokenizer.json", "model.safetensors"])
@pytest.mark.parametrize("how", ["missing", "cut short", "empty", "another's"])
def test_a_damaged_run_is_one_line(refused, trained, tmp_path, part, how):
    broken = shutil.copytree(trained, tmp_path / "broken")
    whole = (broken / part).read_bytes()
    changed = {"cut short": whole[: len(whole) // 2], "empty": b"", "another's": b'["not", "ours"]'}
    (broken / part).unlink()
    if how != "missing":
        (broken / part).write_bytes(changed[how])
    assert part in refused("translate", broken, "the cat")


@pytest.mark.parametrize("part", ["model.safetensors", "optimizer.safetensors", "progress.json"])
@pytest.mark.parametrize("how", ["missing", "cut short"])
def test_a_damaged_checkpoint_is_one_line(refused, trained, tmp_path, part, how):
    broken = shutil.copytree(trained, tmp_path / "broken")
    for checkpoint in checkpoints(broken / "checkpoints"):
        path = checkpoint / part
        path.write_bytes(path.read_bytes()[:-9])
        if how == "missing":
            path.unlink()
    assert part in refused("train", "--resume", broken, "--set", "train.steps=8")


def full(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_while_preparing_leaves_nothing(refused, corpus, tmp_path, monkeypatch):
    monkeypatch.setattr("regard.data.prepared_cache._settle", full)
    arguments = ["--preset", "tiny", "--data", corpus / "train.tsv", *small_settings()]
    assert "No space left on device" in refused("train", *arguments, "--out", tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_while_saving_keeps_the_checkpoint_before(refused, cli, corpus, trained, tmp_path, monkeypatch):
    run = tmp_path / "run"
    sync = files.sync

    def fails_later(path):
        full() if "step-6" in str(path) else sync(path)

    monkeypatch.setattr(files, "sync", fails_later)
    arguments = ["--preset", "tiny", "--data", corpus / "train.en", "--data", corpus / "train.fr"]
    arguments += ["--valid", corpus / "valid.tsv", *small_settings()]
    line = refused("train", *arguments, "--out", run)
    assert line.startswith("the disk is full: ")
    assert [path.name for path in (run / "checkpoints").iterdir()] == ["step-3"]
    monkeypatch.undo()
    assert cli("train", "--resume", run).code == 0
    assert (run / "model.safetensors").read_bytes() == (trained / "model.safetensors").read_bytes()


@pytest.fixture
def heard_hang_ups():
    """Whoever runs the tests may have made them deaf to SIGHUP, as nohup does."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


# A terminal that is closed sends SIGHUP, and its shell another.
@pytest.mark.parametrize("numbers", [[signal.SIGINT], [signal.SIGTERM], [signal.SIGHUP, signal.SIGHUP]])
def test_a_signal_saves_and_says_how_to_go_on(cli, corpus, tmp_path, monkeypatch, numbers, trained, heard_hang_ups):
    run = tmp_path / "a run"
    plain = TrainingProgress.step

    def step(self, values, total):
        plain(self, values, total)
        if values["step"] == 2:
            for number in numbers:
                os.kill(os.getpid(), number)

    monkeypatch.setattr(TrainingProgress, "step", step)
    arguments = ["--preset", "tiny", "--data", corpus / "train.en", "--data", corpus / "train.fr"]
    arguments += ["--valid", corpus / "valid.tsv", *small_settings()]
    result = cli("train", *arguments, "--out", run)
    assert result.code == 130
    last = result.err.splitlines()[-1]
    assert last == f"regard: stopped at step 2 and saved; continue with: regard train --resume '{run}'"
    monkeypatch.undo()
    result = cli("train", "--resume", run)
    assert result.code == 0
    assert "continuing from step 2" in result.err
    assert result.out == f"{run}\n"
    assert (run / "model.safetensors").read_bytes() == (trained / "model.safetensors").read_bytes()


class Deaf(io.StringIO):
    """Standard error on a full disk, or of a terminal that was closed."""

    def __init__(self, number):
        super().__init__()
        self.number = number

    def write(self, text):
        raise OSError(self.number, os.strerror(self.number))

    def flush(self):
        raise OSError(self.number, os.strerror(self.number))


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EPIPE])
def test_what_standard_error_does_not_take_ends_no_training(corpus, tmp_path, monkeypatch, number, trained):
    run = tmp_path / "run"
    arguments = ["--preset", "tiny", "--data", corpus / "train.en", "--data", corpus / "train.fr"]
    arguments += ["--valid", corpus / "valid.tsv", *small_settings(), "--out", run]
    with monkeypatch.context() as patch:
        patch.setattr("sys.stderr", Deaf(number))
        assert main(["train", *map(str, arguments)]) == 0
        assert main(["train", *map(str, arguments)]) == 2, "nor is an error lost with it"
    assert (run / "model.safetensors").read_bytes() == (trained / "model.safetensors").read_bytes()


@pytest.mark.skipif(os.name == "nt", reason="where one process opens files of another's numbers")
def test_a_standard_stream_that_is_closed_gives_its_number_to_no_file(tmp_path):
    """As by `2>&-`: what a library says there would go into the next file that is opened."""
    code = "import os, regard.cli; regard.cli._open_standard_streams(); f = open('x', 'w'); os.write(2, b'no'); "
    code += "import sys; print(f.fileno() > 2, file=sys.stdout); print('lost', file=sys.stderr)"
    made = subprocess.run(
        ["sh", "-c", 'exec "$@" 2>&- <&-', "sh", sys.executable, "-c", code], cwd=tmp_path, capture_output=True
    )
    assert (made.returncode, made.stdout) == (0, b"True\n")
    assert (tmp_path / "x").read_bytes() == b""


def test_ctrl_c_before_training_leaves_nothing(cli, corpus, tmp_path, monkeypatch):
    def interrupted(*arguments, **settings):
        raise KeyboardInterrupt

    monkeypatch.setattr("regard.tasks.translation.TranslationTask.prepare", interrupted)
    arguments = ["--preset", "tiny", "--data", corpus / "train.tsv", *small_settings()]
    result = cli("train", *arguments, "--out", tmp_path / "run")
    assert result.code == 130
    assert "Traceback" not in result.err
    assert list(tmp_path.iterdir()) == []


def test_of_processes_that_died_it_is_said_how_to_go_on_with_what_there_is(cli, tmp_path, monkeypatch):
    def died(*arguments):
        raise ProcessLost("process 0 of 2 was ended by SIGKILL; all have ended")

    monkeypatch.setattr("regard.trainer.launch.launch", died)
    arguments = ["--preset", "tiny", "--data", "pairs.tsv", "--out", tmp_path, "--processes", "2"]
    result = cli("train", *arguments)
    assert result.code == 75
    assert result.err.endswith("SIGKILL; all have ended; no run had begun: give the same command again\n")
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    assert cli("train", *arguments).err.endswith(f"ended; continue with: regard train --resume {tmp_path}\n")


def test_in_a_pipe_progress_is_lines(cli, corpus, tmp_path, monkeypatch):
    monkeypatch.setattr("regard.cli.progress.SECONDS", -1.0)
    (tmp_path / "many.tsv").write_text((corpus / "train.tsv").read_text() * 20)
    arguments = ["--data", tmp_path / "many.tsv", "--valid", corpus / "valid.tsv", *small_settings()]
    lines = cli("train", "--preset", "tiny", *arguments, "--out", tmp_path / "run").err.splitlines()
    assert "training the tokenizer: 1,000 pairs" in lines
    assert "reading and tokenising: 1,200 pairs" in lines
    steps = [line.split()[1] for line in lines if "tokens/s" in line]
    assert steps == ["2/6", "4/6", "6/6"]
    assert any("validation loss" in line and "BLEU" in line for line in lines)
    assert not any("\x1b" in line for line in lines)


def test_in_a_pipe_who_waits_is_told_of_steps_that_are_not_logged_and_how_long_it_takes(
    cli, corpus, tmp_path, monkeypatch
):
    monkeypatch.setattr("regard.trainer.training_run.SECONDS", -1.0)
    arguments = ["--preset", "tiny", "--data", corpus / "train.tsv", *small_settings()]
    lines = cli("train", *arguments, "--out", tmp_path / "run").err.splitlines()
    assert "training for 6 steps" in lines
    told = [line for line in lines if "tokens/s" in line]
    assert [line.split()[1] for line in told] == [f"{number}/6" for number in range(1, 7)]
    assert all(re.search(r"loss \d.* tokens/s  \d+ s  ETA \d+:\d\d:\d\d$", line) for line in told[:-1])
    assert told[-1].endswith(" s")
    records = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert [record["step"] for record in records if record["kind"] == "train"] == [2, 4, 6]
    lines = cli("train", "--resume", tmp_path / "run", "--set", "train.steps=8").err.splitlines()
    assert "continuing from step 6 of 8" in lines
    assert [line.split()[1] for line in lines if "tokens/s" in line] == ["7/8", "8/8"]


def shown_on_a_terminal():
    progress = TrainingProgress()
    progress._console = Console(file=io.StringIO(), force_terminal=True, width=140)
    progress._counter = Counter(progress._console, "pairs")
    return progress


def test_a_bar_for_what_was_read_ends_when_training_begins_and_training_has_one_at_once():
    with shown_on_a_terminal() as progress:
        progress.progress("reading and tokenising the validation pairs", 7)
        assert progress._counter._bar is not None
        progress.updated(0, 100)
        assert progress._counter._bar is None
        [task] = progress._bar.tasks
        assert (task.description, task.completed, task.total) == ("training", 0, 100)


def test_the_bar_of_a_resumed_run_moves_with_every_update_at_the_speed_of_this_process():
    clock = [0.0]
    with shown_on_a_terminal() as progress:
        progress.updated(9000, 10_000)
        progress._bar.get_time = lambda: clock[0]
        [task] = progress._bar.tasks
        task._get_time = progress._bar.get_time
        for number in range(9001, 9011):
            clock[0] += 2.0
            progress.updated(number, 10_000)
            assert task.completed == number
        assert task.speed == pytest.approx(0.5)


def test_time_left_counts_from_where_this_process_began(capsys, monkeypatch):
    clock = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    values = {"loss": 1.0, "grad_norm": 1.0, "learning_rate": 1e-3, "tokens_per_second": 9.0, "seconds": 5.0}
    progress = TrainingProgress()
    progress.updated(900, 1000)
    clock[0] += 40.0
    progress.step({"step": 910, **values}, 1000)
    assert capsys.readouterr().err.endswith("ETA 0:06:00\n")
    progress.updated(0, 10_000)  # the next run of a comparison
    clock[0] += 10.0
    progress.step({"step": 10, **values}, 10_000)
    assert capsys.readouterr().err.endswith("ETA 2:46:30\n")


def test_on_a_terminal_progress_is_a_bar(python, trained, corpus, tmp_path):
    import pty

    leader, follower = pty.openpty()
    command = [python, "-m", "regard", "train", "--preset", "tiny", "--data", str(corpus / "train.tsv")]
    command += ["--out", str(tmp_path / "run"), *small_settings()]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "140"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=follower, env=environment) as process:
        os.close(follower)
        shown = b""
        while True:
            try:
                shown += os.read(leader, 4096)
            except OSError:  # the other end has closed
                break
        assert process.wait() == 0
    os.close(leader)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode())
    assert "training ━" in text
    assert "6/6" in text
    assert "loss" in text.splitlines()[-1]


def test_the_log_is_json_lines(trained):
    records = [json.loads(line) for line in Path(trained / "log.jsonl").read_text().splitlines()]
    assert [record["step"] for record in records if record["kind"] == "train"] == [2, 4, 6]


def test_limits_of_an_output_are_what_the_training_targets_need(cli, tmp_path):
    from regard.tasks.run import load_config

    rows = [("the cat", "the cat " * 3), ("a dog " * 20, "A"), ("x", "long " * 70)]
    (tmp_path / "train.tsv").write_text("".join(f"{one.strip()}\t{other.strip()}\n" for one, other in rows))
    (tmp_path / "valid.tsv").write_text("x\tlong long\n")
    files = ["--data", tmp_path / "train.tsv", "--valid", tmp_path / "valid.tsv"]
    lengths = ["model.max_len=300", "data.max_len=300", "train.steps=1", "train.batch_tokens=600"]

    def trained(name, *more):
        settings = small_settings(*lengths, *more)
        result = cli("train", "--preset", "tiny", *files, "--out", tmp_path / name, *settings)
        assert result.code == 0, result.err
        return load_config(tmp_path / name).decode, result.err

    decode, said = trained("own", "decode.max_len=256")
    assert (decode.max_len, decode.max_ratio, decode.max_extra) == (256, 1.0, 69)  # 71 choices for a source of 2
    assert "the longest training targets need decode.max_extra=69, which is now the run's setting" in said
    decode, said = trained("asked", "decode.max_len=70", "decode.max_ratio=none")
    assert (decode.max_len, decode.max_ratio, decode.max_extra) == (70, None, 50)
    assert "decode.max_len=70 cuts outputs as long as the longest training targets, which need 71" in said
    assert "validation: 1 of 1 outputs were cut at their greatest length" in said
    # What a run is begun from has its limits raised too, unless others are asked for.
    asked = ["train", "--from", tmp_path / "asked", *files, "--set=train.steps=1", "--out"]
    result = cli(*asked, tmp_path / "from")
    assert result.code == 0, result.err
    assert load_config(tmp_path / "from").decode.max_len == 71
