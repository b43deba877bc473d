"""What a stranger installs: the wheel alone, with everything in it, and metadata that says what it is."""

import re
import runpy
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email import message_from_string
from pathlib import Path

import pytest
import typer

import regard.cli

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    """A copy of what is in this checkout and not ignored."""
    copy = tmp_path_factory.mktemp("source") / "regard"
    kept = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.split("\n")  # fmt: skip
    for name in filter(None, kept):
        if (ROOT / name).exists():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            (copy / name).write_bytes((ROOT / name).read_bytes())
    return copy


@pytest.fixture(scope="module")
def wheel(source, tmp_path_factory) -> Path:
    """The wheel of this checkout, built as pip builds it."""
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir"]
    subprocess.run([*command, str(out), str(source)], check=True, timeout=120)
    return next(out.glob("*.whl"))


def of_wheel(wheel):
    """Its metadata: fields, and the long description."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return message_from_string(archive.read(name).decode())


def test_the_wheel_holds_all_that_a_run_needs(wheel):
    held = set(zipfile.ZipFile(wheel).namelist())
    missing = [
        name
        for path in (ROOT / "regard").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
        for name in [path.relative_to(ROOT).as_posix()]
        if name not in held
    ]
    assert missing == []
    assert not [name for name in held if name.startswith(("tests/", "benchmarks/", "scratch/"))]


def test_the_wheel_says_what_it_is(wheel):
    metadata = of_wheel(wheel)
    assert metadata["Version"] == regard.__version__
    assert metadata["Author"] == "The regard developers"
    assert metadata["License-Expression"] == "Apache-2.0"
    assert "attention" in metadata["Keywords"]
    assert "Typing :: Typed" in metadata.get_all("Classifier", [])
    assert metadata["Description-Content-Type"] == "text/markdown"


def links(text):
    return re.findall(r"\]\(([^)\s]+)\)", text)


def test_every_link_of_the_long_description_can_be_followed_from_anywhere(wheel):
    text = of_wheel(wheel).get_payload()
    assert "regard train --preset demo" in text
    assert [link for link in links(text) if not link.startswith("https://")] == []


def test_links_are_made_absolute_with_the_address_of_the_project():
    made, home = runpy.run_path(str(ROOT / "setup.py")), "https://example.org/regard"
    text = "![a head](docs/images/a.svg) [data](docs/doors/data.md#x), [one](https://example.org)"
    assert links(made["absolute"](text, home)) == [
        f"{home}/docs/images/a.svg",
        f"{home}/docs/doors/data.md#x",
        "https://example.org",
    ]
    assert made["absolute"](text, "") == " data, [one](https://example.org)"
    assert made["addresses"](home)["Changelog"] == f"{home}/CHANGELOG.md"
    assert all((ROOT / page).is_file() for page in made["PAGES"].values())


def test_the_source_distribution_holds_what_builds_and_tests_it_and_nothing_else(source, tmp_path):
    made = "from setuptools.build_meta import build_sdist; import sys; print(build_sdist(sys.argv[1]))"
    subprocess.run(
        [sys.executable, "-c", made, str(tmp_path)], cwd=source, check=True, capture_output=True, timeout=120
    )
    with tarfile.open(next(tmp_path.glob("*.tar.gz"))) as archive:
        held = {name.partition("/")[2] for one in archive if one.isfile() for name in [one.name]}
    tracked = {path.relative_to(source).as_posix() for path in source.rglob("*") if path.is_file()}
    tracked = {name for name in tracked if not name.startswith(("build/", "regard.egg-info/"))}
    hosted = {name for name in tracked if name.startswith(".git") or name == ".pre-commit-config.yaml"}
    assert sorted(tracked - hosted - held) == []
    written = {"PKG-INFO", "setup.cfg", *(name for name in held if name.startswith("regard.egg-info/"))}
    assert sorted(held - tracked - written) == []


def test_what_is_deployed_asks_for_options_that_there_are_at_the_port_that_is_said():
    command = typer.main.get_command(regard.cli.app).commands["serve"]
    known = {name: option for option in command.params for name in option.opts}
    port = known["--port"].default
    container, unit = (
        (ROOT / "deploy" / name).read_text(encoding="utf-8") for name in ("Dockerfile", "regard.service")
    )
    for text in (container, unit):
        asked = [option for line in re.findall(r"regard serve .*", text) for option in re.findall(r"--[\w-]+", line)]
        assert asked
        assert set(asked) <= known.keys()
    assert f"-p 127.0.0.1:{port}:{port}" in container
    assert re.findall(r"EXPOSE (\d+)", container) == [str(port)] * 2
    assert f"--port {port}" in unit
    copied = " ".join(re.findall(r"^COPY (.*) \S+$", container, re.MULTILINE)).split()
    assert {"setup.py", "pyproject.toml", "constraints.txt", "README.md", "LICENSE", "regard"} == set(copied)


def test_versions_agree():
    cited = re.search(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE)
    assert cited is not None
    assert cited[1] == regard.__version__


def test_reading_sentencepiece_needs_no_transformers():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert not [one for one in extras["sentencepiece"] if one.startswith("transformers")]


def test_every_public_name_is_listed():
    assert set(regard.__all__) <= set(dir(regard))
