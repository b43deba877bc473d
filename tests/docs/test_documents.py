"""The documents are of a size to read, speak to their readers first, use the field's terms, and follow the code."""

import re
import runpy
import tomllib
from pathlib import Path

import pytest

from regard.cli import main

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
GENERATED = ("docs/cli.md", "docs/settings.md")
"""References, whose tables are made from the code."""

LONGEST = 2500


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT / "docs").as_posix())
def test_a_page_is_not_a_wall(page):
    if page.relative_to(ROOT).as_posix() not in GENERATED:
        words = len(page.read_text(encoding="utf-8").split())
        assert words <= LONGEST, f"{words} words: split it, or move figures to docs/results/"


LOOKING = ("looking", "views", "heads", "pruning", "alignments", "units", "watching", "any-model")


@pytest.mark.parametrize("page", LOOKING)
def test_each_page_about_looking_answers_one_question_briefly_with_a_picture(page):
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    assert len(text.split()) < 1000
    pictures = re.findall(r"^!\[[^\]]+\]\((images/[^)]+)\)$", text, flags=re.MULTILINE)
    assert pictures
    assert all((ROOT / "docs" / one).is_file() for one in pictures)


def test_the_readme_shows_a_command_and_an_image_first_and_is_short():
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) < 120
    screen = "\n".join(lines[:20])
    assert "regard train" in screen
    assert re.search(r"!\[.+\]\(docs/images/", screen)
    for door in ("data", "model", "study"):
        assert f"](docs/doors/{door}.md)" in "\n".join(lines), door


@pytest.mark.parametrize("door", ["data", "model", "study"])
def test_a_door_is_one_screen_with_something_to_do_and_where_to_go_next(door):
    text = (ROOT / "docs/doors" / f"{door}.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 45
    code = [line for block in re.findall(r"^```\w+\n(.*?)^```", text, re.M | re.S) for line in block.splitlines()]
    assert max(map(len, code)) <= 80  # what the column of the site shows without scrolling
    # As the site lays it out in a window of 1280 by 800 pixels, which a browser was asked.
    rest = re.sub(r"^```.*?^```", "", re.sub(r"\]\([^)]*\)", "]", text), flags=re.M | re.S)
    prose = [
        " ".join(part.split()) for part in rest.split("\n\n")[1:] if part.strip() and not part.strip().startswith("-")
    ]
    items = [line for line in rest.splitlines() if line.startswith("- ")]
    lines = sum(-(-len(part) // 85) for part in prose)
    height = 155 + 26 * lines + 18 * len(prose) + 19 * len(code) + 41 * text.count("```") // 2
    assert height + sum(26 * -(-len(item) // 85) + 8 for item in items) < 800
    assert "```python" in text
    assert "```bash" in text
    assert text.count("](../") >= 6


@pytest.mark.parametrize(
    "term",
    [
        *("fine-tuning", "sampling", "mixed precision", "seq2seq", "masked language model", "perplexity"),
        *("distillation", "KV cache", "teacher forcing", "pre-training", "early stopping", "data parallel"),
    ],
)
def test_the_fields_own_terms_are_there_to_be_searched_for(term):
    found = [page.name for page in PAGES if re.search(term, page.read_text(encoding="utf-8"), re.IGNORECASE)]
    assert found, f"no page says '{term}'"


@pytest.mark.parametrize("page", ["cli.md", "settings.md"])
def test_the_references_are_as_the_code_is(page):
    assert not runpy.run_path(str(ROOT / "docs/reference.py"))["stale"](page), "run: make reference"


def test_the_lectures_claims_are_drawn_and_tabled_from_their_record():
    assert not runpy.run_path(str(ROOT / "docs/images/claims.py"))["stale"](), "run: python docs/images/claims.py"


PLOTTED = {
    "masks": ("masks", "--length", "8", "--window", "3", "--padding", "2"),
    "sinusoids": ("positions", "--width", "16", "--length", "20"),
    "softmax": ("softmax",),
}


@pytest.mark.parametrize("name", PLOTTED)
def test_pictures_of_the_companion_are_what_its_commands_plot(name, tmp_path):
    assert main(["draw", *PLOTTED[name], "--out", str(tmp_path / "plot.svg")]) == 0
    assert (tmp_path / "plot.svg").read_bytes() == (ROOT / "docs" / "images" / f"{name}.svg").read_bytes()


def test_a_reference_follows_the_code():
    made = runpy.run_path(str(ROOT / "docs/reference.py"))
    text = (ROOT / "docs/cli.md").read_text(encoding="utf-8")
    row = next(line for line in text.splitlines() if line.startswith("| `--minutes`"))
    without = made["cli_page"](text.replace(row + "\n", "", 1))
    assert "`--minutes`" in without.partition("## regard train\n")[2].partition("\n## ")[0]
    assert "`--gone`" not in made["cli_page"](text.replace(row, f"| `--gone` | not any more |\n{row}", 1))
    settings = (ROOT / "docs/settings.md").read_text(encoding="utf-8")
    assert made["settings_page"](settings.replace("| `train.seed` | `1` |", "| `train.seed` | `7` |")) == settings


def test_every_page_is_in_the_sites_navigation():
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for page in PAGES:
        name = page.relative_to(ROOT / "docs").as_posix()
        assert re.search(rf"^ +- (?:[\w ]+: )?{re.escape(name)}$", text, re.MULTILINE), f"{name} is not in mkdocs.yml"


def test_extras_are_pinned_where_they_are_for_development():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    pinned = (ROOT / "constraints.txt").read_text(encoding="utf-8").lower()
    for one in (*extras["docs"], *extras["notebook"], *extras["wandb"]):
        name = re.split(r"[\[>]", one)[0]
        assert f"\n{name}==" in pinned, name
