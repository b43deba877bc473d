import os

import pytest
import torch
from hypothesis import settings

# The first torch call is slow, and a failure must repeat.
settings.register_profile("regard", deadline=None, derandomize=True, max_examples=30)
settings.load_profile("regard")
# Two test processes share the machine's cores; small tensors gain nothing from threads.
torch.set_num_threads(1)


@pytest.fixture
def stdin():
    """Puts bytes in the place of standard input."""
    kept = []

    def put(content):
        read, write = os.pipe()
        with os.fdopen(write, "wb") as end:
            end.write(content)
        kept.append(os.dup(0))
        os.dup2(read, 0)
        os.close(read)

    yield put
    for descriptor in kept:
        os.dup2(descriptor, 0)
        os.close(descriptor)
