"""What a bridge accepts gives the outputs of `transformers`, whatever a checkpoint says; the rest is refused."""

import collections
import shutil

import pytest

transformers = pytest.importorskip("transformers")

from bridges_at_random import FAMILIES, compare  # noqa: E402

FEW, MANY = range(10), range(10, 210)


@pytest.fixture(autouse=True)
def quiet():
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()


def tried(family, seeds, folder):
    """How often each thing became of a checkpoint, after none was found that is accepted and differs."""
    counts, different = collections.Counter(), {}
    for seed in seeds:
        (folder / "one").mkdir()
        what, why = compare(family, seed, folder / "one")
        shutil.rmtree(folder / "one")
        counts[what] += 1
        if what == "different":
            different[seed] = why
    print(f"{family}: {dict(counts)}")
    assert not different
    return counts


@pytest.mark.parametrize("family", FAMILIES)
def test_a_few_checkpoints_are_equal_or_refused(family, tmp_path):
    assert tried(family, FEW, tmp_path)["equal"]


@pytest.mark.long
@pytest.mark.parametrize("family", FAMILIES)
def test_many_checkpoints_are_equal_or_refused(family, tmp_path):
    counts = tried(family, MANY, tmp_path)
    assert counts["equal"] >= 20
    assert counts["refused"] >= 20
