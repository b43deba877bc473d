"""Files of word vectors: both ways to the last bit, every fault named; what is near, what is analogous."""

import numpy as np
import pytest

from regard.errors import ConfigError, DataError
from regard.text.word_vectors import MOST_FEATURES, WordVectors, read_vectors, write_vectors

RANDOM = np.random.default_rng(0)
SOME = WordVectors(("the", "été", "naïve-ish", "N"), RANDOM.normal(size=(4, 3)).astype(np.float32))


@pytest.mark.parametrize("binary", [True, False])
def test_what_is_written_is_read_again_to_the_last_bit(binary, tmp_path):
    write_vectors(SOME, tmp_path / "file", binary=binary)
    found = read_vectors(tmp_path / "file")
    assert found.words == SOME.words
    assert np.array_equal(found.matrix, SOME.matrix)
    assert read_vectors(tmp_path / "file", keep={"N"}.__contains__).words == ("N",)


def test_glove_has_no_counts_and_may_have_spaces_in_words(tmp_path):
    file = tmp_path / "glove.txt"
    file.write_text("the 0.5 -1e-2\n. . . 1 2\n", encoding="utf-8")
    found = read_vectors(file)
    assert found.words == ("the", ". . .")
    assert np.allclose(found.matrix, [[0.5, -0.01], [1, 2]])


def test_binary_rows_may_lack_their_line_breaks(tmp_path):
    file = tmp_path / "file.bin"
    rows = b"".join(word.encode() + b" " + row.tobytes() for word, row in zip(SOME.words, SOME.matrix, strict=True))
    file.write_bytes(b"4 3\n" + rows)
    assert np.array_equal(read_vectors(file).matrix, SOME.matrix)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "holds no vectors"),
        (b"\xff\xfe\x00", "neither two counts nor a word"),
        (b"word\n", "neither two counts nor a word"),
        (b"the 1 2\nof 1\n", "line 2: not a word and 2 numbers"),
        (b"the 1 nan\n", "'the' holds what is not a finite number"),
        (b"3 2\nthe 1 2\nof 3 4\n", "cut short: it says 3 vectors and holds 2"),
        (b"2 2\nthe \x00\x00\x80\x3f", "cut short: it says 2 vectors and holds 0"),
        (b"9 2\n" + b"x" * 5000, "more than 1024 bytes"),
        (f"1 {MOST_FEATURES + 1}\nthe".encode(), "they must have 1 to 4096"),
        (b"1 0\nthe\n", "they must have 1 to 4096"),
        (b"99999999999 2\nthe 1 2\n", "cut short"),
    ],
)
def test_every_fault_of_a_file_is_named(content, message, tmp_path):
    file = tmp_path / "file"
    file.write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_vectors(file)


def test_a_file_that_is_not_there_and_words_that_cannot_be_written_are_refused(tmp_path):
    with pytest.raises(DataError, match="cannot read"):
        read_vectors(tmp_path / "none")
    with pytest.raises(DataError, match="cannot be written"):
        write_vectors(WordVectors(("a b",), np.ones((1, 2), np.float32)), tmp_path / "file")
    write_vectors(SOME, tmp_path / "file")
    with pytest.raises(DataError, match="none of the words that are wanted, of 4"):
        read_vectors(tmp_path / "file", keep=lambda word: False)


FAMILY = WordVectors(
    ("man", "woman", "king", "queen", "Apple", "man"),
    np.array([[1, 0, 0], [1, 1, 0], [1, 0, 2], [1, 1, 2], [-3, 0.5, 0.1], [9, 9, 9]], dtype=np.float32),
)


def test_near_words_are_near_by_either_measure_and_a_word_is_not_its_own_neighbour():
    for metric, distance in (
        ("cosine", lambda a, b: a @ b / np.linalg.norm(a) / np.linalg.norm(b)),
        ("euclidean", lambda a, b: np.linalg.norm(a - b)),
    ):
        found = FAMILY.near("king", 9, metric=metric)
        wanted = {word: distance(FAMILY["king"], FAMILY[word]) for word in ("man", "woman", "queen", "Apple")}
        order = sorted(wanted, key=wanted.get, reverse=metric == "cosine")
        assert [word for word, _ in found] == order
        assert np.allclose([value for _, value in found], [wanted[word] for word in order], atol=1e-6)
    with pytest.raises(ConfigError, match="unknown metric 'cosin'; did you mean 'cosine'"):
        FAMILY.near("king", metric="cosin")
    with pytest.raises(DataError, match="no vector of 'apple'; there is one of 'Apple'"):
        FAMILY.near("apple")


def test_king_less_man_and_woman_is_queen():
    assert FAMILY.analogy("man", "king", "woman", 1)[0][0] == "queen"
    with pytest.raises(DataError, match="no vector of 'prince'"):
        FAMILY.analogy("man", "prince", "woman")


def test_the_plane_is_that_of_the_principal_components():
    vectors = WordVectors(tuple("abcdefgh"), RANDOM.normal(size=(8, 5)).astype(np.float32))
    points = vectors.plane("abcdefgh")
    centred = vectors.matrix.astype(np.float64) - vectors.matrix.mean(0)
    values = np.sort(np.linalg.eigvalsh(centred.T @ centred))[::-1]
    assert np.allclose((points**2).sum(0), values[:2])
    assert abs(points[:, 0] @ points[:, 1]) < 1e-9
    assert vectors.spread("abcdefgh") == pytest.approx(values[:2].sum() / values.sum())
    with pytest.raises(DataError, match="2 words do not span a plane"):
        vectors.plane("ab")
