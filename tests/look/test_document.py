"""How an output came about: what is not of its steps is refused."""

import math

import pytest
import torch

from regard.errors import DataError
from regard.look.document import AttentionMap, Branch, Candidate, Decoding, Edited, Mixture, Sentence, Side, to_mapping

WRITES = Mixture(writing=0.25, written=0.5, copied=0.25)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"hidden": torch.zeros(3, 7)}, r"hidden vectors of shape \(3, 7\) for 2 steps"),
        ({"context": torch.zeros(2)}, r"context vectors of shape \(2,\) for 2 steps"),
        ({"mixture": (WRITES,)}, "1 mixtures for 2 steps"),
        ({"mixture": (WRITES, Mixture(writing=1.25))}, "has a share outside 0 to 1"),
        ({"mixture": (WRITES, Mixture(writing=0.5, written=math.nan, copied=0.5))}, "has a share outside 0 to 1"),
        (
            {"beam": ((Branch(piece="a", parent=1, log_prob=-1.0, fate="kept"),),)},
            "a branch of step 1 comes from branch 1 of",
        ),
    ],
)
def test_what_is_not_of_the_steps_is_refused(given, said):
    with pytest.raises(DataError, match=said):
        Decoding(**given).check(2)


def test_what_is_of_them_is_kept():
    whole = Decoding(hidden=torch.zeros(2, 7), mixture=(WRITES, Mixture(writing=1.0)))
    whole.check(2)
    kept = to_mapping(whole)["mixture"]
    assert [one["writing"] for one in kept] == [0.25, 1.0]
    assert "mixture" not in to_mapping(Decoding())


def test_a_changed_head_says_how_likely_each_answer_is_or_each_piece():
    side, answers = Side(text="a b c", pieces=("a", "b", "c")), (Candidate(piece="cat", probability=0.75),)
    seen = AttentionMap(name="x", kind="self", rows="source", columns="source", weights=torch.full((1, 3, 3), 1 / 3))
    changed = [
        Edited(attention="x", head=0, text="dog", log_prob=-1.0, probabilities=(0.5,) * count) for count in (1, 3)
    ]
    assert Sentence(source=side, attentions=(seen,), answers=answers, edited=(changed[0],)).edited
    assert Sentence(source=side, attentions=(seen,), edited=(changed[1],)).edited
    for said, one in ((answers, changed[1]), ((), changed[0])):
        with pytest.raises(DataError, match="probabilities of x 0; must be"):
            Sentence(source=side, attentions=(seen,), answers=said, edited=(one,))
