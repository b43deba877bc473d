"""The algorithms are linked to the code that runs them, and every link is followed."""

import importlib
import inspect
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "algorithms.md").read_text(encoding="utf-8")
LINKS = sorted(set(re.findall(r"\[`(regard\.[\w.]+)`\]\(\.\./([\w/.]+)\)", PAGE)))
SECTIONS = re.split(r"^### (?=\d)", PAGE, flags=re.MULTILINE)[1:]


@pytest.mark.parametrize(("name", "path"), LINKS)
def test_a_name_is_where_its_link_leads(name, path):
    module = path.removesuffix(".py").replace("/", ".")
    assert name.startswith(f"{module}."), f"{name} is not said to be in {path}"
    found = importlib.import_module(module)
    for part in name.removeprefix(f"{module}.").split("."):
        found = getattr(found, part)
    assert callable(found)
    assert Path(inspect.getsourcefile(inspect.unwrap(found))) == ROOT / path, f"{name} is made elsewhere"


def test_algorithms_are_numbered_in_order_and_each_has_code():
    assert [int(section.split()[0]) for section in SECTIONS] == list(range(1, len(SECTIONS) + 1))
    for section in SECTIONS:
        assert "```text" in section, section.splitlines()[0]
        assert re.search(r"\[`regard\.", section), section.splitlines()[0]
    assert len(LINKS) > 30
