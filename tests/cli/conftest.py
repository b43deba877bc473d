import random
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from cli_toys import WORDS, small_settings

from regard.cli import main


@pytest.fixture
def cli(capfd):
    """Runs a command in this process: its exit code, and what it wrote."""

    def run(*arguments):
        capfd.readouterr()
        code = main([str(argument) for argument in arguments])
        written = capfd.readouterr()
        return SimpleNamespace(code=code, out=written.out, err=written.err)

    return run


@pytest.fixture
def refused(cli):
    """Runs a command that must fail: the one line that says why, which comes last and alone."""

    def run(*arguments):
        result = cli(*arguments)
        said = [line for line in result.err.splitlines() if line.startswith("regard: ")]
        assert result.code == 2, result
        assert len(said) == 1, result.err
        assert result.err.splitlines()[-1] == said[0]
        assert result.out == ""
        return said[0].removeprefix("regard: ")

    return run


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    generator = random.Random(0)
    for name, count in (("train", 60), ("valid", 6)):
        rows = [[generator.choice(WORDS) for _ in range(generator.randint(2, 8))] for _ in range(count)]
        english = [" ".join(row) for row in rows]
        french = [" ".join(word.upper() for word in reversed(row)) for row in rows]
        (folder / f"{name}.en").write_text("\n".join(english) + "\n", encoding="utf-8")
        (folder / f"{name}.fr").write_text("\n".join(french) + "\n", encoding="utf-8")
        pairs = [f"{source}\t{target}\n" for source, target in zip(english, french, strict=True)]
        (folder / f"{name}.tsv").write_text("".join(pairs), encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def trained(corpus, tmp_path_factory) -> Path:
    """A run on the files, made by the command itself."""
    out = tmp_path_factory.mktemp("runs") / "files"
    files = ["--data", corpus / "train.en", "--data", corpus / "train.fr", "--valid", corpus / "valid.tsv"]
    code = main(["train", "--preset", "tiny", *map(str, files), "--out", str(out), *small_settings()])
    assert code == 0
    return out


@pytest.fixture
def python():
    return sys.executable
