"""Standard input: lines as they stand in it, and a word to who types them."""

import os
import pty

import pytest

from regard.cli.options import standard_input
from regard.errors import DataError


def test_only_a_newline_ends_a_line_and_a_mark_before_the_first_is_none_of_it(stdin, capsys):
    stdin("\ufeffété\r\na\u2028b\n\nlast".encode())
    assert list(standard_input("> ")) == ["été", "a\u2028b", "", "last"]
    assert capsys.readouterr().err == ""


def test_what_is_not_utf8_is_refused_with_its_place(stdin):
    stdin(b"the cat\nd\xff\n")
    with pytest.raises(DataError, match="standard input is not UTF-8 text: byte 1 of line 2"):
        list(standard_input())


def test_a_folder_as_standard_input_is_refused(stdin, tmp_path):
    stdin(b"")
    folder = os.open(tmp_path, os.O_RDONLY)
    os.dup2(folder, 0)
    os.close(folder)
    with pytest.raises(DataError, match="cannot read standard input: Is a directory"):
        list(standard_input())


def test_who_types_is_asked_for_every_line(capsys):
    leader, follower = pty.openpty()
    kept = os.dup(0)
    os.dup2(follower, 0)
    try:
        os.write(leader, b"why?\nhow?\n\x04")
        assert list(standard_input("> ")) == ["why?", "how?"]
    finally:
        os.dup2(kept, 0)
        for descriptor in (leader, follower, kept):
            os.close(descriptor)
    assert capsys.readouterr().err == "> > > "
