"""Prose in the words of the field: package, presets, pages and documents are searched for those it does not use."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

UNIT = (
    "line|row|column|word|text|sentence|sample|request|second|token|input|image|problem|character|byte|step|batch|update"
    "|epoch|model|head|layer|machine|frame|phoneme|source|pair|answer|position|feature|parameter|subcommand|minute"
    "|pixel|stack"
)
COUNTED = (
    "one|two|tables?|objects?|items?|scenes?|arrays?|threads?|servers?|tokens|words|texts|sentences|rows|lines|columns"
    "|frames|tiles|requests|pairs|features|numbers|core|edits|nats|bits|bytes|ms|milliseconds|metres|translations"
    "|M?FLOPs?|losses"
)
TICS = {
    "per, not a": (
        rf"\b(?:(?:{COUNTED}) an?|an? (?:line|row|column|word|text|item|cell|sentence|token|request) an?)"
        rf" (?:(?:source|reference|target|chosen|masked) )?(?:{UNIT})\b"
        r"(?! (?:has|reads|begins)\b)",  # "how many tokens a model reads" is no rate
        [
            "one a line",
            "one JSON object a text",
            "a row a sample",
            "a line a word",
            "5,765 tokens a second",
            "edits a reference word",
            "one thread a model",
            "3 ms of a core a request",
        ],
    ),
    "once per second": (r"\bonce an? (?:second|minute|step|request)\b", ["says once a second how many"]),
    "does not apply to": (r"\bsays? nothing to\b", ["a setting that says nothing to this task"]),
    "sampling or plotting": (
        r"(?<!regard[ -])\b(?:draws?|drew|drawn|drawings?)\b",  # but `regard draw` is a command
        ["text drawn from the model", "how many texts to draw", "beam search and drawing", "draw the curve"],
    ),
    "images or figures": (r"(?<![-\w./])pictures?\b", ["folders of pictures", "a picture of 8 x 8 pixels"]),
    # Documents of the viewer have keys such as "hidden word 1", which stay as they are.
    "masked words": (r"\bhidden (?:words?|tokens?)\b(?! \{\})", ["a model of hidden words", "for each hidden token"]),
    "scoring": (r"\bjudg(?:e[ds]?|ing)\b(?!=)", ["heads are judged by BLEU", "what to judge by"]),
    "fine-tuning": (r"(?<![-\w])tun(?:e[ds]?|ing)\b", ["a run tuned on labelled texts", "Tuning needs a run"]),
}
"""By what is said instead: what finds it, and what it must find."""

DRAWING = ("regard/look/viewer/",)
"""Files that do draw: on a screen."""


def _pattern(name):
    return re.compile(TICS[name][0], re.IGNORECASE)


# A comment of several lines is one text; so is a string. One without a space is a name, not prose.
PYTHON = re.compile(r'(?:^[ \t]*#.*\n)+|#.*|"""[\s\S]*?"""|"(?:\\.|[^"\\\n])*"', re.MULTILINE)
SCRIPT = re.compile(r'(?:^[ \t]*//.*\n)+|(?<!:)//.*|"(?:\\.|[^"\\\n])*"|`(?:\\.|[^`\\])*`', re.MULTILINE)


def prose(path):
    """The texts of a file that people read, each on one line, without names in backquotes and what is filled in."""
    text = path.read_text(encoding="utf-8")
    if path.name == "CHANGELOG.md":
        text = text.split("\n## [", 2)[1]  # what is released stays as it was
    if path.suffix in (".py", ".js"):
        found = (PYTHON if path.suffix == ".py" else SCRIPT).findall(text)
        found = [re.sub(r"\$?\{[^{}]*\}", "{}", one.strip('"`')) for one in found if " " in one]
    else:
        found = re.split(r"\n\s*\n|\n(?=[-|#`])", text)
    for one in found:
        plain = re.sub(r"`[^`]*`", "``", re.sub(r"^[ \t]*(?:#+|//)", "", one, flags=re.MULTILINE))
        yield " ".join(plain.split())


def files():
    yield from (ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "ARCHITECTURE.md"))
    yield from (ROOT / "docs").rglob("*.md")
    for folder in ("regard", "examples"):
        for suffix in ("py", "toml", "js", "html", "md"):
            yield from (ROOT / folder).rglob(f"*.{suffix}")


@pytest.mark.parametrize("name", TICS)
def test_each_search_finds_its_examples(name):
    for example in TICS[name][1]:
        assert _pattern(name).search(example), example


def test_prose_is_found_in_every_kind_of_file(tmp_path):
    sources = {
        "a.py": 'x = f"as {y}  is"  # why\n"""Two\n    lines."""\nname = "picture"\n# and\n# more\n',
        "a.js": 'f("one two", `${n} of\n it`); // why\n// and\n// more\n',
        "a.md": "One\ntwo `code here`.\n\n- three\n",
    }
    found = {}
    for name, text in sources.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
        found[name] = list(prose(tmp_path / name))
    assert found["a.py"] == ["as {} is", "why", "Two lines.", "and more"]
    assert found["a.js"] == ["one two", "{} of it", "why", "and more"]
    assert found["a.md"] == ["One two ``.", "- three"]


def test_prose_uses_the_words_of_the_field():
    read = [(path.relative_to(ROOT).as_posix(), text) for path in files() for text in prose(path)]
    assert len({path for path, _ in read}) > 250
    tics = []
    for name in TICS:
        pattern = _pattern(name)
        for path, text in read:
            if not (name == "sampling or plotting" and path.startswith(DRAWING)) and (found := pattern.search(text)):
                tics.append(f"{path}: {text[max(0, found.start() - 40) : found.end() + 20]!r} (say: {name})")
    assert not tics, "\n".join(tics)


def test_no_two_classes_of_the_package_have_one_name():
    places: dict[str, list[str]] = {}
    for path in sorted((ROOT / "regard").rglob("*.py")):
        for name in re.findall(r"^class (\w+)", path.read_text(encoding="utf-8"), re.MULTILINE):
            places.setdefault(name, []).append(path.relative_to(ROOT).as_posix())
    assert {name: paths for name, paths in places.items() if len(paths) > 1} == {}
