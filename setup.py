"""The long description and the addresses of the package; all else is in pyproject.toml.

An index of packages shows the README alone, where a link to a file of the repository leads nowhere. So links are made
absolute with the address under `tool.regard.home`, which is that of the repository's files; while there is none, a link
is left as its text and an image is left out.
"""

import re
import tomllib
from pathlib import Path

from setuptools import setup

LINK = re.compile(r"(?P<image>!?)\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]+)\)")
PAGES = {"Documentation": "docs/index.md", "Changelog": "CHANGELOG.md"}


def absolute(text: str, home: str) -> str:
    """The text with links that can be followed from anywhere."""

    def link(found: re.Match[str]) -> str:
        if re.match(r"\w+:", found["target"]):
            return found[0]
        if home:
            return f"{found['image']}[{found['text']}]({home}/{found['target']})"
        return "" if found["image"] else found["text"]

    return LINK.sub(link, text)


def addresses(home: str) -> dict[str, str]:
    """Where the project is found."""
    return {"Source": home} | {name: f"{home}/{page}" for name, page in PAGES.items()} if home else {}


if __name__ == "__main__":
    root = Path(__file__).parent
    home = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["regard"]["home"].rstrip("/")
    setup(
        long_description=absolute((root / "README.md").read_text(encoding="utf-8"), home),
        long_description_content_type="text/markdown",
        project_urls=addresses(home),
    )
