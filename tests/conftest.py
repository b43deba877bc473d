import os
import sys
import warnings
from pathlib import Path

import pytest
import torch
from hypothesis import settings

# The first torch call is slow, and a failure must repeat.
settings.register_profile("regard", deadline=None, derandomize=True, max_examples=30)
settings.load_profile("regard")
# Two test processes share the machine's cores; small tensors gain nothing from threads. Whoever asks for more has them.
torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))

NUMBERS = (
    "nn",
    "decode",
    "models/test_laws.py",
    "models/test_language_laws.py",
    "models/test_encoder_laws.py",
    "parity",
    "runs/test_gradients.py",
    "look/test_measures.py",
    "training/test_loop.py",
    "training/test_recipes.py",
    "runs/test_translator.py",
    "serve/test_load.py",
)
"""Tests whose outcome hangs on how the processor computes: `make test-long` runs them as other processors would."""

KERNELS = (
    "nn",
    "decode",
    "models/test_laws.py",
    "models/test_language_laws.py",
    "models/test_encoder_laws.py",
    "training/test_loop.py",
)
"""Of these the ones that compare two ways of computing one thing, without another library between: `make test-numbers`
runs them so. What differs by rounding shows here first."""


def pytest_collection_modifyitems(items):
    """Mark what is in NUMBERS, and what of it is in KERNELS."""
    here = Path(__file__).parent
    for item in items:
        name = item.path.relative_to(here).as_posix() if item.path.is_relative_to(here) else ""
        if name.startswith(NUMBERS):
            item.add_marker(pytest.mark.numbers)
        if name.startswith(KERNELS):
            item.add_marker(pytest.mark.kernels)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol():
    """What trainings of toys are warned of, such as a loss that does not fall, is no fault of a test: those that are
    about it ask with `pytest.warns`. Other warnings are errors."""
    from regard.errors import RegardWarning

    warnings.filterwarnings("ignore", category=RegardWarning)
    return (yield)


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


@pytest.fixture(scope="session")
def browser():
    """A real one, where there is one."""
    sys.path.append(str(Path(__file__).parent / "browser"))
    from chromium import PATH, Chromium

    if PATH is None:
        assert not os.environ.get("REGARD_NEEDS_BROWSER"), "REGARD_NEEDS_BROWSER is set and there is no Chromium"
        pytest.skip("no Chromium here: apt-get install chromium")
    browser = Chromium()
    yield browser
    browser.close()
