"""The companion does what it says: every block of every chapter is run in order, and prints what is shown."""

import re
from pathlib import Path

import pytest
from chapters import difference, namespace, parts, run

from regard.analysis.exercises import EXERCISES

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs/lectures"
CHAPTERS = sorted(FOLDER.glob("*.md"))


def follow(page, *, long):
    names, count = namespace(), 0
    for part in parts(page):
        if part.long and not long:
            continue
        printed = run(part, names)
        assert not difference(part.shown or "", printed), (
            f"{page.name}:{part.line}\n{difference(part.shown or '', printed)}"
        )
        count += 1
    return count


@pytest.mark.parametrize("page", CHAPTERS, ids=lambda page: page.stem)
def test_a_chapter_prints_what_it_shows(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    follow(page, long=False)


@pytest.mark.long
@pytest.mark.parametrize("page", [page for page in CHAPTERS if any(part.long for part in parts(page))])
def test_the_long_parts_of_a_chapter_print_what_they_show(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert follow(page, long=True)


def test_there_is_a_chapter_for_each_lecture_and_an_exercise_in_each():
    chapters = [page for page in CHAPTERS if re.match(r"\d", page.name)]
    assert len(chapters) == 5
    for page in chapters:
        assert sum(1 for _ in parts(page)) >= 6, page.name
        assert re.search(r"^regard check [\w-]+", page.read_text(encoding="utf-8"), re.MULTILINE), page.name


def test_every_exercise_is_set_in_its_chapter_and_every_chapter_names_known_ones():
    asked = {
        page.name: set(re.findall(r"regard check ([\w-]+)", page.read_text(encoding="utf-8"))) for page in CHAPTERS
    }
    for name, exercise in EXERCISES.items():
        assert name in asked[exercise.chapter], f"{name} in {exercise.chapter}"
    assert {one for names in asked.values() for one in names} <= EXERCISES.keys()


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("0.88 0.12", "0.90 0.12"),
        ("12", "13"),
        ("1e-3", "3e-3"),
        ("loss 0.1", "cost 0.1"),
        ("0.1", "0.1 0.2"),
        ("", "0.1"),
        ("-0.5", "0.5"),
    ],
)
def test_a_difference_is_seen(shown, printed):
    assert difference(shown, printed)


@pytest.mark.parametrize(
    ("shown", "printed"), [("0.88", "0.8808"), ("a   1", "a 1"), ("-0.000", "0.000"), ("1,024", "1024"), ("", "")]
)
def test_what_agrees_in_the_digits_shown_is_no_difference(shown, printed):
    assert not difference(shown, printed)


def test_the_timeline_names_presets_that_exist_and_figures_that_are_recorded():
    text = (FOLDER / "timeline.md").read_text(encoding="utf-8")
    recorded = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs/results").glob("*.md"))
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if re.match(r"\| \d{4} ", line)]
    assert len(rows) > 15
    assert [row[0] for row in rows] == sorted(row[0] for row in rows)
    known = {path.stem for path in (ROOT / "regard/presets").glob("*.toml")}
    for year, idea, preset, figure in rows:
        named = [name for name in re.findall(r"`([^`]+)`", preset) if not re.match(r"regard |model\.", name)]
        assert set(named) <= known, f"{year} {idea}: {preset}"
        for number in re.findall(r"\d[\d,]*\.\d+|\d[\d,]{3,}", re.sub(r"\]\([^)]*\)", "", figure)):
            assert number in recorded, f"{year} {idea}: {number} is not in docs/results/"
