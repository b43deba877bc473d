"""CPU threads by size."""

import pytest
import torch

from regard.decode.threads import FEW_ROWS, WIDEST, limited_threads, threads_for


@pytest.mark.parametrize(
    ("rows", "width", "int8", "count"),
    [
        (5, WIDEST, True, 1),
        (FEW_ROWS, 64, True, 1),
        (FEW_ROWS + 1, 64, True, None),
        (1, WIDEST + 1, True, None),
        (1, 64, False, None),
    ],
)
def test_few_rows_of_small_int8_matrices_have_one_thread(rows, width, int8, count):
    assert threads_for(rows, width, int8=int8) == count


def test_threads_are_limited_inside_alone_and_never_raised():
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        for count, inside in ((1, 1), (None, 2), (3, 2)):
            with limited_threads(count):
                assert torch.get_num_threads() == inside
            assert torch.get_num_threads() == 2
        with pytest.raises(RuntimeError), limited_threads(1):
            raise RuntimeError
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
