"""What a stranger installs: the wheel alone, with everything in it, and metadata that says what it is."""

import re
import subprocess
import sys
import tomllib
import zipfile
from email import message_from_string
from pathlib import Path

import pytest

import regard

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """The wheel of this checkout, built as pip builds it."""
    out = tmp_path_factory.mktemp("wheel")
    copy = out / "source"
    kept = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", "regard", "*.toml", "*.md", "LICENSE"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.split("\n")  # fmt: skip
    for name in filter(None, kept):
        if (ROOT / name).exists():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            (copy / name).write_bytes((ROOT / name).read_bytes())
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir"]
    subprocess.run([*command, str(out), str(copy)], check=True, timeout=120)
    return next(out.glob("*.whl"))


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
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = message_from_string(archive.read(name).decode())
    assert metadata["Version"] == regard.__version__
    assert metadata["Author"] == "The regard developers"
    assert metadata["License-Expression"] == "Apache-2.0"
    assert "attention" in metadata["Keywords"]
    assert "Typing :: Typed" in metadata.get_all("Classifier", [])
    assert metadata["Description-Content-Type"] == "text/markdown"


def test_versions_agree():
    cited = re.search(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE)
    assert cited is not None
    assert cited[1] == regard.__version__


def test_reading_sentencepiece_needs_no_transformers():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert not [one for one in extras["sentencepiece"] if one.startswith("transformers")]


def test_every_public_name_is_listed():
    assert set(regard.__all__) <= set(dir(regard))
