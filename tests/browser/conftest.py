import pytest
from chromium import PATH, Chromium


@pytest.fixture(scope="session")
def browser():
    if PATH is None:
        pytest.skip("no Chromium here: apt-get install chromium")
    browser = Chromium()
    yield browser
    browser.close()
