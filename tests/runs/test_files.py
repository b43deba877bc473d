"""Files that are either whole or not there."""

import os
from pathlib import Path

import pytest

from regard.errors import ConfigError, NotWritten, RunError
from regard.runs.files import check_output, check_output_directory, whole_directory, whole_file, write_text


def test_what_fails_leaves_the_old_file_and_nothing_beside_it(tmp_path):
    path = tmp_path / "a.txt"
    write_text(path, "old")
    with pytest.raises(KeyError), whole_file(path) as aside:  # noqa: PT012
        aside.write_text("new")
        raise KeyError
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_an_error_of_another_file_is_not_said_to_be_of_the_one_that_is_written(tmp_path):
    path = tmp_path / "a.txt"
    with pytest.raises(FileNotFoundError) as raised, whole_file(path):
        (tmp_path / "read.txt").open()
    assert raised.value.filename == str(tmp_path / "read.txt")
    with pytest.raises(NotWritten, match=r"cannot write .*a\.txt"), whole_file(path) as aside:  # noqa: PT012
        aside.unlink()
        aside.open()
    with pytest.raises(NotWritten, match=r"cannot write .*steps"), whole_directory(tmp_path / "steps") as aside:
        (aside / "one").open()


def test_a_link_is_followed_but_not_one_in_the_place_of_what_is_being_written(tmp_path):
    folder, other = tmp_path / "folder", tmp_path / "other.txt"
    folder.mkdir()
    other.write_text("theirs")
    (folder / ".a.txt.partial").symlink_to(other)
    write_text(folder / "a.txt", "mine")
    assert other.read_text() == "theirs"
    assert (folder / "a.txt").read_text() == "mine"
    assert not (folder / "a.txt").is_symlink()
    (folder / "b.txt").symlink_to(other)
    write_text(folder / "b.txt", "new")
    assert other.read_text() == "new"
    assert (folder / "b.txt").is_symlink()


def test_a_folder_is_whole_or_as_it_was(tmp_path):
    path = tmp_path / "step"
    with whole_directory(path) as aside:
        (aside / "one").write_text("1")
    with pytest.raises(KeyError), whole_directory(path) as aside:  # noqa: PT012
        (aside / "two").write_text("2")
        raise KeyError
    assert [file.name for file in path.iterdir()] == ["one"]
    with whole_directory(path) as aside:
        (aside / "two").write_text("2")
    assert [file.name for file in path.iterdir()] == ["two"]
    assert list(tmp_path.iterdir()) == [path]


def test_a_place_that_is_not_there_is_said(tmp_path):
    with pytest.raises(RunError, match=r"cannot write .*a\.txt: No such file"):
        write_text(tmp_path / "no" / "a.txt", "x")


@pytest.fixture
def run_directory(tmp_path):
    run = tmp_path / "run"
    (run / "checkpoints" / "step-3").mkdir(parents=True)
    for name in ("config.json", "model.safetensors"):
        (run / name).write_text("{}")
    return run


@pytest.mark.parametrize(
    "name",
    ["model.safetensors", "config.json", "tokenizer.json", "log.jsonl", "checkpoints/step-3/x.html", "cache/x.html"],
)
def test_what_a_run_is_made_of_is_no_place_for_an_output(run_directory, tmp_path, name):
    with pytest.raises(RunError, match=r"is part of the run in .*/run: choose another file"):
        check_output(run_directory / name)
    (tmp_path / "link").symlink_to(run_directory / name)
    with pytest.raises(RunError, match="is part of the run"):
        check_output(tmp_path / "link")
    with pytest.raises(RunError, match="is part of the run"):
        check_output(tmp_path / "new" / name, makes=tmp_path / "new")


def test_an_output_that_cannot_be_written_is_refused_and_others_are_not(run_directory, tmp_path):
    for fine in (run_directory / "attention.html", tmp_path / "config.json", tmp_path / "x", Path("/dev/null")):
        check_output(fine)
    check_output(tmp_path / "new" / "curve.json", makes=tmp_path / "new")
    for fine in (tmp_path / "map.svg", tmp_path / "MAP.SVG", tmp_path / "map", tmp_path / "map.v2", Path("/dev/null")):
        check_output(fine, kind=".svg")
    with pytest.raises(ConfigError, match=r"map\.png would hold SVG: call it map\.svg"):
        check_output(tmp_path / "map.png", kind=".svg")
    with pytest.raises(RunError, match=r"cannot write .*: Is a directory"):
        check_output(run_directory)
    for missing in (tmp_path / "none" / "x", run_directory / "none" / "x"):
        with pytest.raises(RunError, match=r"cannot write .*: No such file or directory"):
            check_output(missing)
    with pytest.raises(ConfigError, match="'--svg' is an option where a file's name should be"):
        check_output(Path("--svg"))
    check_output_directory(tmp_path / "one" / "two")
    with pytest.raises(RunError, match=r"cannot write .*: Not a directory"):
        check_output_directory(run_directory / "config.json" / "x")


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is closed to root")
def test_an_output_where_nothing_may_be_written_is_refused(tmp_path):
    (tmp_path / "closed").mkdir(mode=0o555)
    with pytest.raises(RunError, match="no permission to write"):
        check_output(tmp_path / "closed" / "x")
    with pytest.raises(RunError, match="no permission to write"):
        check_output_directory(tmp_path / "closed" / "x")
