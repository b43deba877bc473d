"""What the documents name, made once for all their tests, and little of what is made up on the way."""

import pytest
from materials import Materials

HELD_OUT = {
    **{"several_sources.HELD_OUT": 8, "parsing.TREES_HELD_OUT": 6, "summarization.TELEGRAMS_HELD_OUT": 6},
    **{"transcribing.SPEECH_HELD_OUT": 6, "transcribing.HEAD_SOUNDS": 3, "corpora.WORLD_HELD_OUT": 40},
    **{"captioning.SCENES_HELD_OUT": 12, "captioning.HEAD_SCENES": 6},
}


@pytest.fixture(scope="session")
def materials(tmp_path_factory):
    return Materials(tmp_path_factory.mktemp("materials"))


@pytest.fixture
def few_held_out(monkeypatch):
    """Hundreds of held-out examples are more than it takes to see that a command runs."""
    for name, count in HELD_OUT.items():
        monkeypatch.setattr(f"regard.tasks.{name}", count)
