"""The documents say what is there: links lead somewhere, commands parse, settings exist and none is left out."""

import importlib
import re
import shlex
import subprocess
import sys
import tomllib
from dataclasses import MISSING, fields
from pathlib import Path

import pytest
import typer

from regard.cli import app
from regard.data.images import ImageConfig
from regard.decode.config import DecodeConfig
from regard.models import MODELS
from regard.tasks.config import make_config
from regard.tasks.spec import TASKS
from regard.text import TokenizerConfig
from regard.training.config import TrainConfig

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
SECTIONS = {
    "data": [task.data for task in TASKS.values()],
    "images": [ImageConfig],
    "tokenizer": [TokenizerConfig],
    "model": [config for config, _ in MODELS.values()],
    "train": [TrainConfig],
    "decode": [DecodeConfig],
}
SETTINGS = {
    f"{section}.{field.name}": field for section, kinds in SECTIONS.items() for kind in kinds for field in fields(kind)
}
SUFFIXES = ("safetensors", "tsv", "jsonl", "json", "toml", "parquet", "py", "md", "en", "fr")

FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
COMMAND = typer.main.get_command(app)


def prose(page):
    """The page without its blocks of code."""
    return FENCE.sub("", page.read_text(encoding="utf-8"))


def named(page):
    """The page as tests name it: by its file, and in the companion by the folder too."""
    return f"lectures/{page.name}" if page.parent.name == "lectures" else page.name


def blocks(language):
    return [
        pytest.param(text, id=f"{named(page)}-{number}")
        for page in PAGES
        for number, (kind, text) in enumerate(FENCE.findall(page.read_text(encoding="utf-8")))
        if kind == language
    ]


def spans():
    return {(page.name, code) for page in PAGES for code in re.findall(r"`([^`\n]+)`", prose(page))}


def commands():
    """Every `regard ...` line of the shell blocks, continued lines joined and pipes cut."""
    lines = {line for block in blocks("bash") for line in block.values[0].replace("\\\n", " ").splitlines()}
    parts = {part.strip() for line in lines for part in re.split(r"\s[|>]\s", line.partition(" #")[0])}
    return sorted(part for part in parts if part.startswith("regard "))


def subcommand(words):
    """The command that the words name, its name, and the words left over."""
    command, name = COMMAND, "regard"
    while hasattr(command, "commands") and words and not words[0].startswith("-"):
        name, *words = words
        assert name in command.commands, f"no such command: {name}"
        command = command.commands[name]
    return command, name, words


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_and_image_leads_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if re.match(r"[a-z]+://|mailto:", target):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), f"{page.name}: {target}"
        if anchor:
            headings = re.findall(r"^#+ (.+)$", prose(there), re.MULTILINE)
            slugs = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
            assert anchor in slugs, f"{page.name}: {target}; headings: {sorted(slugs)}"


def test_commands_are_shown():
    assert len(commands()) > 20


@pytest.mark.parametrize("line", commands())
def test_every_command_parses(line):
    command, name, words = subcommand(shlex.split(line)[1:])
    if not {"-h", "--help", "--version"} & set(words):
        command.make_context(name, list(words))


def test_commands_in_running_text_exist():
    for page, code in sorted(spans()):
        if code.startswith("regard "):
            command, _, words = subcommand(shlex.split(code)[1:])
            known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
            for word in words:
                if word.startswith("-") and word not in ("-h", "--help"):
                    assert word.partition("=")[0] in known, f"{page}: {code}"


def test_every_setting_named_exists():
    named = {(page, code.partition("=")[0]) for page, code in spans()}
    named |= {("--set", name) for line in commands() for name in re.findall(r"--set ([\w.]+)=", line)}
    for page, name in sorted(named):
        section, dot, rest = name.partition(".")
        if section in SECTIONS and dot and re.fullmatch(r"\w+", rest) and rest not in SUFFIXES:
            assert name in SETTINGS or name == "model.name", f"{page}: {name}"


def sections():
    """(heading, name of the section, its configuration) of each table of settings; a model's has its own heading."""
    plain = [(f"## {name}", name, tuple(kinds)) for name, kinds in SECTIONS.items() if name != "model"]
    return plain + [(f"### {name}", "model", (config,)) for name, (config, _) in MODELS.items()]


@pytest.mark.parametrize(("heading", "section", "kinds"), sections(), ids=lambda part: str(part)[:40])
def test_every_setting_is_documented_with_its_default(heading, section, kinds):
    text = (ROOT / "docs/settings.md").read_text(encoding="utf-8")
    table = re.split(r"^#+ ", text.partition(f"\n{heading}\n")[2], flags=re.MULTILINE)[0]
    rows = dict(re.findall(r"^\| `(\w+\.\w+)` \| (.+?) \| .+ \|$", table, re.MULTILINE))
    settings = {f"{section}.{field.name}": field for kind in kinds for field in fields(kind)}
    assert rows.keys() == settings.keys()
    for name, field in settings.items():
        shown = rows[name].strip("`")
        if field.default_factory is not MISSING:
            assert tomllib.loads(f"value = {shown}")["value"] == field.default_factory(), name
        elif field.default is MISSING:
            assert shown == "from the tokenizer", name
        elif field.default is None:
            assert shown == "none", name
        else:
            default = list(field.default) if isinstance(field.default, tuple) else field.default
            assert tomllib.loads(f"value = {shown}")["value"] == default, name


def test_every_option_is_documented():
    text = (ROOT / "docs/cli.md").read_text(encoding="utf-8")
    for name, command in COMMAND.commands.items():
        for inner, leaf in getattr(command, "commands", {"": command}).items():
            section = text.partition(f"## regard {name} {inner}".rstrip() + "\n")[2].partition("\n## ")[0]
            assert section, f"docs/cli.md has no section on `regard {name} {inner}`"
            for parameter in leaf.params:
                longest = max(parameter.opts, key=len)
                if longest.startswith("--") and longest != "--help":
                    assert f"`{longest}" in section, f"docs/cli.md: {name} {inner} {longest}"


@pytest.mark.parametrize("text", blocks("toml"))
def test_configurations_are_accepted(text, tmp_path):
    path = tmp_path / "config.toml"
    path.write_text(text, encoding="utf-8")
    make_config(path)


@pytest.mark.parametrize("text", blocks("python"))
def test_python_compiles_and_its_imports_are_there(text):
    compile(text, "docs", "exec")
    for module, names in re.findall(r"^from (regard[\w.]*) import ([\w, ]+)$", text, re.MULTILINE):
        for name in names.split(", "):
            assert hasattr(importlib.import_module(module), name), f"{module}.{name}"
    for name in re.findall(r"\bregard\.([a-z]\w*)\(", text):
        assert hasattr(importlib.import_module("regard"), name), f"regard.{name}"


def test_every_name_in_a_python_block_is_defined_in_it(tmp_path):
    """A block is copied and run alone, so what an earlier one defined is not there."""
    for number, block in enumerate(blocks("python")):
        # The first's blocks are signatures, those of the companion build on one another and are run in order.
        if not block.id.startswith(("ARCHITECTURE.md", "lectures/")):
            (tmp_path / f"{block.id.replace('.', '_')}_{number}.py").write_text(block.values[0], encoding="utf-8")
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F821,F823,F401", str(tmp_path)]
    done = subprocess.run([*command, "--output-format", "concise"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_names_said_to_be_in_a_file_are_in_it():
    """`Report` in [regard/tasks/spec.py](../regard/tasks/spec.py)."""
    found = 0
    for page in PAGES:
        for name, target in re.findall(r"`(\w+)`\s+in\s+\[[^]]+\]\(([^)#]+\.py)\)", page.read_text(encoding="utf-8")):
            source = (page.parent / target).read_text(encoding="utf-8")
            assert re.search(rf"^(class|def) {name}\b|^{name}\b", source, re.MULTILINE), f"{page.name}: {name}"
            found += 1
    assert found


@pytest.mark.parametrize("page", ["docs/attention.md", "docs/settings.md"])
def test_every_kind_of_positions_is_documented(page):
    from typing import get_args

    from regard.nn.positions import PositionKind

    text = (ROOT / page).read_text(encoding="utf-8")
    if page.endswith("attention.md"):
        text = re.split(r"^## ", text.partition("\n## Positions\n")[2], flags=re.MULTILINE)[0]
        assert set(re.findall(r"^\| `([\w-]+)`", text, re.MULTILINE)) == set(get_args(PositionKind))
    assert all(f"`{kind}`" in text for kind in get_args(PositionKind))


def test_every_fault_and_its_end_has_a_test():
    text = (ROOT / "docs/reliability.md").read_text(encoding="utf-8")
    tests = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    rows = [line for line in text.partition("## Faults")[2].splitlines() if line.startswith("| ")][2:]
    assert len(rows) > 15
    for row in rows:
        names = re.findall(r"`(test_\w+)`", row)
        assert names, row
        for name in names:
            assert f"def {name}(" in tests, name
