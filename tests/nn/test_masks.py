"""Who may see whom, cell by cell, against the words that describe it."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.nn.masks import CAUSAL, EVERYTHING, SequenceIds, Visible

CPU = torch.device("cpu")


def sees(visible, row, query, key):
    here = query + visible.past
    if visible.packed is not None and visible.packed.queries[row, query] == 0:
        return True  # padding: nobody reads what it gathers
    return (
        (not visible.causal or key <= here)
        and (visible.window is None or abs(here - key) < visible.window)
        and (visible.lengths is None or key < visible.lengths[row])
        and (visible.packed is None or visible.packed.queries[row, query] == visible.packed.keys[row, key])
    )


@given(
    T=st.integers(1, 4),
    S=st.integers(1, 5),
    past=st.integers(0, 4),
    causal=st.booleans(),
    window=st.sampled_from([None, 1, 2, 4]),
    padded=st.booleans(),
    packed=st.booleans(),
)
def test_a_mask_is_what_its_description_says(T, S, past, causal, window, padded, packed):
    B = 2
    generator = torch.Generator().manual_seed(T * 100 + S * 10 + past)
    lengths = torch.randint(1, S + 1, (B,), generator=generator) if padded else None
    numbers = [torch.randint(0, 3, (B, size), generator=generator) for size in (T, S)]
    places = torch.zeros(B, T, dtype=torch.long)
    visible = Visible(causal, window, lengths, SequenceIds(*numbers, places) if packed else None, past)
    expected = torch.tensor([[[sees(visible, b, i, j) for j in range(S)] for i in range(T)] for b in range(B)])
    mask = visible.mask(T, S, CPU)
    found = torch.ones(B, 1, T, S, dtype=torch.bool) if mask is None else mask.expand(B, 1, T, S)
    assert torch.equal(found[:, 0], expected)
    built = visible.build(T, S, CPU)
    assert (built.mask(T, S, CPU) is built.built) if packed else (built is visible)


def test_where_all_is_visible_there_is_no_mask():
    assert EVERYTHING.mask(3, 4, CPU) is None
    # One query with everything before it, as when decoding: the kernel needs no mask for it.
    assert Visible(causal=True, past=3).mask(1, 4, CPU) is None
    assert Visible(causal=True, past=2).mask(1, 4, CPU) is not None


def test_a_causal_kernel_alone_does_only_for_whole_unpacked_sequences():
    numbers = torch.ones(1, 3, dtype=torch.long)
    assert CAUSAL.only_causal(3, 3)
    assert Visible(causal=True, lengths=torch.tensor([2])).only_causal(3, 3)
    assert not EVERYTHING.only_causal(3, 3)
    assert not CAUSAL.only_causal(3, 4)
    for other in ({"window": 3}, {"past": 1}, {"packed": SequenceIds(numbers, numbers, numbers)}):
        assert not Visible(causal=True, **other).only_causal(3, 3)
