import os

import pytest
from chromium import PATH, Chromium


@pytest.fixture(scope="session")
def browser():
    if PATH is None:
        assert not os.environ.get("REGARD_NEEDS_BROWSER"), "REGARD_NEEDS_BROWSER is set and there is no Chromium"
        pytest.skip("no Chromium here: apt-get install chromium")
    browser = Chromium()
    yield browser
    browser.close()
