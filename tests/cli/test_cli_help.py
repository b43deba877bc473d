import json
import os
import re
import signal
import subprocess
import sys
from itertools import pairwise
from types import SimpleNamespace

import pytest
import typer

import regard
from regard.cli import app, main
from regard.tasks.verbs import VERBS
from regard.tasks.verbs.spec import described

COMMANDS = [
    [],
    ["train"],
    ["translate"],
    ["evaluate"],
    ["look"],
    ["describe"],
    ["presets"],
    ["data"],
    ["data", "world"],
    ["bench"],
    ["bench", "train"],
]


def test_the_version_is_the_packages(cli):
    assert cli("--version").out == f"regard {regard.__version__}\n"


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_each_command_explains_itself(cli, command):
    result = cli(*command, "--help")
    assert result.code == 0
    assert "Usage: regard" in result.out
    assert cli(*command, "-h").out == result.out


def every_command(group=None, path=()):
    group = typer.main.get_command(app) if group is None else group
    yield path
    for name, inner in getattr(group, "commands", {}).items():
        yield from every_command(inner, (*path, name))


@pytest.mark.parametrize("path", list(every_command()), ids=" ".join)
def test_no_help_is_cut_or_shows_braces(cli, path):
    usage, *lines = cli(*path, "--help").out.splitlines()
    assert "{" not in usage
    assert "......" not in usage
    assert [line for line in lines if line.endswith("...")] == []


def test_every_option_is_explained():
    def commands(group):
        yield group
        for inner in getattr(group, "commands", {}).values():
            yield from commands(inner)

    unexplained = [
        (command.name, one.name)
        for command in commands(typer.main.get_command(app))
        for one in command.params
        if one.param_type_name == "option" and not one.help
    ]
    assert unexplained == []


def test_every_command_that_reads_a_run_can_leave_its_digests_alone():
    commands = [(path, subcommand(path)) for path in every_command() if path]
    reads = {path for path, one in commands if {"run", "resume"} & {param.name for param in one.params}}
    leaves = {path for path, one in commands if "no_verify" in {param.name for param in one.params}}
    assert reads == leaves
    assert len(reads) > 15


def subcommand(path):
    group = typer.main.get_command(app)
    for name in path:
        group = group.commands[name]
    return group


def test_sampling_is_explained_alike_wherever_it_is_offered():
    generating, translating = (described(VERBS[name].request) for name in ("generate", "translate"))
    for name in ("top_k", "top_p", "samples", "seed"):
        assert generating[name] == translating[name] != ""


def test_examples_keep_their_lines(cli):
    long = "  regard train my.toml --valid valid.tsv --out runs/mine --set train.steps=20000\n"
    assert long in cli("train", "-h").out
    assert '  regard translate runs/demo "I am a student."\n' in cli("translate", "-h").out
    assert "  cat test.en | regard translate runs/demo --scores\n" in cli("translate", "-h").out


STYLE = re.compile(r"\x1b\[[0-9;]*m")
COLOUR = re.compile(r"\x1b\[(?:\d+;)*[349]\d(?:;\d+)*m")
TERMINAL = """
import os, pty, sys
kept = []
def read(handle):
    kept.append(os.read(handle, 65536))
    return kept[-1]
sys.exit(os.waitstatus_to_exitcode(pty.spawn([sys.executable, "-m", "regard", *sys.argv[1:]], read)))
"""


def on_a_terminal(*arguments, **settings):
    """What a command prints to a terminal, and how it ends."""
    pytest.importorskip("pty", reason="no terminals to be had here")
    quiet = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "FORCE_COLOR", "COLORTERM")}
    done = subprocess.run(
        [sys.executable, "-c", TERMINAL, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env=quiet | {"TERM": "xterm-256color"} | settings,
    )
    return SimpleNamespace(code=done.returncode, out=done.stdout.decode().replace("\r\n", "\n"))


@pytest.mark.parametrize(("command", "columns"), [("train", "80"), ("compare", "200"), ("", "80"), ("data", "80")])
def test_a_terminal_is_shown_the_same_help_in_colour(cli, command, columns):
    plain = cli(*command.split(), "--help").out
    shown = on_a_terminal(*command.split(), "--help", COLUMNS=columns)
    assert shown.code == 0
    assert STYLE.sub("", shown.out) == plain
    assert "\x1b[1mOptions:\x1b[0m" in shown.out
    assert "\x1b[1;36m--help\x1b[0m" in shown.out


def test_help_without_a_terminal_has_no_styles(cli):
    for path in every_command():
        assert "\x1b" not in cli(*path, "--help").out


def test_help_has_no_colour_for_who_wants_none(cli):
    shown = on_a_terminal("train", "--help", NO_COLOR="1").out
    assert "\x1b[1mOptions:\x1b[0m" in shown
    assert COLOUR.search(shown) is None
    assert COLOUR.search(on_a_terminal("train", "--help").out)
    assert on_a_terminal("train", "--help", TERM="dumb").out == cli("train", "--help").out


def test_a_command_alone_shows_its_help_in_colour_too(cli):
    shown = on_a_terminal("data")
    assert shown.code == 2
    assert STYLE.sub("", shown.out) == cli("data").out
    assert "\x1b[1mCommands:\x1b[0m" in shown.out


def test_a_command_alone_shows_its_help(cli):
    for command in ([], ["data"]):
        result = cli(*command)
        assert result.code == 2
        assert "Commands:" in result.out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--bogus"], "No such option: --bogus"),
        (["train", "--worl", "3"], "--world"),
        (["trian"], "No such command 'trian'"),
        (["data", "wrld"], "No such command 'wrld'"),
        (["translate"], "Missing argument 'run'"),
        (["train", "--world", "many", "--out", "x"], "Invalid value for '--world'"),
        (["train", "--world", "0", "--out", "x"], "Invalid value for '--world'"),
        (["train", "--out"], "'--out' requires an argument"),
    ],
)
def test_misuse_is_one_line(refused, arguments, said):
    assert said.lower() in refused(*arguments).lower()


def test_presets_are_listed_and_shown_as_they_are_written(cli, refused, tmp_path):
    assert {"demo", "tiny", "small"} <= {line.split()[0] for line in cli("presets").out.splitlines()}
    (tmp_path / "my.toml").write_text(cli("presets", "tiny").out)
    (tmp_path / "all.toml").write_text(cli("presets", "tiny", "--all").out)
    plain, full = (regard.make_config(tmp_path / name) for name in ("my.toml", "all.toml"))
    assert plain.train == full.train
    assert plain.decode == full.decode
    assert plain.every_setting() == full.every_setting()
    assert refused("presets", "tinny") == "unknown preset 'tinny'; did you mean 'tiny'?"
    assert "needs the name" in refused("presets", "--all")


def test_the_bundled_corpus_is_written_whole(cli, refused, tmp_path):
    result = cli("data", "world", tmp_path / "world", "--train", 20, "--valid", 3, "--test", 2)
    assert result.code == 0
    assert result.out.splitlines() == [str(tmp_path / "world" / f"{part}.tsv") for part in ("train", "valid", "test")]
    counts = {path.name: len(path.read_text().splitlines()) for path in (tmp_path / "world").iterdir()}
    wanted = {"train": 20, "valid": 3, "test": 2}
    assert counts == {f"{part}.{kind}": count for part, count in wanted.items() for kind in ("tsv", "jsonl")}
    (tmp_path / "file").touch()
    assert "cannot write" in refused("data", "world", tmp_path / "file" / "world")
    assert "Invalid value" in refused("data", "world", tmp_path / "none", "--train", 0)


def test_main_leaves_the_terms_of_ending_as_they_were(trained):
    before = signal.getsignal(signal.SIGTERM)
    assert main(["describe", str(trained)]) == 0
    assert signal.getsignal(signal.SIGTERM) is before


def test_describe_counts_what_the_model_has(cli, refused, trained):
    facts = json.loads(cli("describe", trained, "--json").out)
    model = regard.load(trained).model
    assert facts["parameters"] == sum(parameter.numel() for parameter in model.parameters())
    assert f"{facts['parameters']:,} parameters" in cli("describe", trained).out
    assert "longer than the model's max_len=24" in refused("describe", trained, "--length", 25)


def test_help_does_not_wait_for_torch():
    asked = "import sys, regard.cli; print(sorted({'torch', 'numpy', 'transformers', 'rich'} & sys.modules.keys()))"
    found = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


@pytest.mark.parametrize(
    "arguments",
    [
        ["look", "run", "a text", "--json", "--svg", "map.svg"],
        ["look", "run", "a text", "-o", "--json", "x.json"],
        ["train", "--preset", "tiny", "--out", "--help"],
        ["bench", "train", "--seconds", "--batches", "3"],
        ["vectors", "near", "file", "--count", "-h"],
    ],
)
def test_an_option_is_never_the_value_of_another(refused, arguments, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name, value = next(pair for pair in pairwise(arguments) if all(one.startswith("-") for one in pair))
    assert refused(*arguments).startswith(f"{name} needs a value, but '{value}' is an option")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("given", "spins"),
    [({}, "1000"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "active"}, None)],
    ids=["nothing set", "its own count", "its own policy"],
)
def test_threads_wait_briefly_for_one_another_unless_the_user_says_how(given, spins):
    told = """
import os, sys
import regard.cli

def main():
    assert "torch" not in sys.modules, "torch has read it already"
    print(os.environ.get("GOMP_SPINCOUNT"))

regard.cli.main = main
regard.cli.script()
"""
    rest = {name: value for name, value in os.environ.items() if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
    found = subprocess.run([sys.executable, "-c", told], env=rest | given, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == str(spins)


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("regard transl", {"translate"}),
        ("regard train --min", {"--minutes"}),
        ("regard train --preset bahd", {"bahdanau-2015"}),
        ("regard presets gpt2", {"gpt2-small"}),
        ("regard check posi", {"positions"}),
    ],
)
def test_a_shell_completes_commands_options_presets_and_exercises(typed, offered):
    words = typed.split()
    asked = {"_REGARD_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(len(words) - 1)}
    command = [sys.executable, "-c", "import sys; sys.argv = ['regard']; from regard.cli import script; script()"]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **asked}, check=False)
    assert offered <= set(done.stdout.split()), done.stderr
    assert all(one.startswith(words[-1]) for one in done.stdout.split())
