"""Files that are either whole or not there."""

import pytest

from regard.errors import RunError
from regard.runs.files import whole_directory, whole_file, write_text


def test_what_fails_leaves_the_old_file_and_nothing_beside_it(tmp_path):
    path = tmp_path / "a.txt"
    write_text(path, "old")
    with pytest.raises(KeyError), whole_file(path) as aside:  # noqa: PT012
        aside.write_text("new")
        raise KeyError
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


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
