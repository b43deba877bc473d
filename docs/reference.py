"""The reference pages, `cli.md` and `settings.md`: their tables are made from the code.

python docs/reference.py            writes them anew; `--check` says whether they are as the code is

Which options and settings there are, their names, defaults and choices come from the commands and from the dataclasses.
What a row says beside that stays as it was written. A new option gets a row with its help; the row of a new setting
must be written with its meaning, and tests/docs asks for it. A row of what is gone goes.
"""

import argparse
import re
import sys
from collections.abc import Iterator
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

DOCS = Path(__file__).parent
OPTION = re.compile(r"`(--?[\w-]+|[A-Z][A-Z_]*)`")
ROW = re.compile(r"^\| (?P<names>`.+?) \| (?:(?P<default>[^|]*) \| )?(?P<meaning>(?:[^|\\]|\\.)*) \|$")


def commands() -> dict[str, Any]:
    """Every command by its whole name, as click has it."""
    import typer

    from regard.cli import app

    found: dict[str, Any] = {}
    for name, command in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]
        inner = getattr(command, "commands", None)
        found |= {f"{name} {one}": leaf for one, leaf in inner.items()} if inner else {name: command}
    return found


def cli_page(text: str) -> str:
    """`cli.md` with the table of each command as its code has it."""
    for name, command in commands().items():
        heading = f"## regard {name}\n"
        before, found, rest = text.partition(f"\n{heading}")
        if not found:
            text = text.rstrip("\n") + f"\n\n{heading}\n{_first(command.help)}\n\n{_table([], command)}\n"
            continue
        section, end, after = rest.partition("\n## ")
        text = before + found + _with_table(section, command) + end + after
    return text


def _with_table(section: str, command: Any) -> str:
    lines = section.split("\n")
    at = next((place for place, line in enumerate(lines) if line.startswith("| option |")), None)
    if at is None:
        made = _table([], command)
        return section if not made else section.rstrip("\n") + f"\n\n{made}\n"
    end = at
    while end < len(lines) and lines[end].startswith("|"):
        end += 1
    return "\n".join([*lines[:at], _table(lines[at + 2 : end], command), *lines[end:]])


def _table(rows: list[str], command: Any) -> str:
    """The rows that were written, without options that are gone, and one for each option that had none."""
    parameters = {_longest(one): one for one in command.params if _longest(one) != "--help"}
    known = {name for one in parameters.values() for name in (*one.opts, *one.secondary_opts)}
    known |= {str(one.metavar or one.name).upper().strip("[]. ") for one in parameters.values()}
    kept: list[tuple[list[str], str, str]] = []
    for row in rows:
        match = ROW.match(row)
        assert match is not None, f"not a row of a table: {row}"
        names = OPTION.findall(match["names"])
        if all(not name.startswith("-") or name in known for name in names):
            kept.append((names, match["names"], match["meaning"]))
    said = {name for names, _, _ in kept for name in names}
    for name, parameter in parameters.items():
        if name.startswith("--") and name not in said:
            short = "".join(f", `{one}`" for one in parameter.opts if one != name and not one.startswith("--"))
            kept.append(([name], f"`{name}`{short}", _sentence(parameter.help or "") + _default(parameter)))
    if not kept:
        return ""
    body = [f"| {shown} | {meaning} |" for _, shown, meaning in kept]
    return "\n".join(["| option | meaning |", "| --- | --- |", *body])


def _longest(parameter: Any) -> str:
    return max(parameter.opts, key=len)


def _default(parameter: Any) -> str:
    """What an option is unless it is given, where that says something."""
    value = getattr(parameter.default, "value", parameter.default)
    plain = isinstance(value, str | int | float) and not isinstance(value, bool)
    return f"; `{value}` unless given" if plain and value != "" else ""


def _sentence(text: str) -> str:
    plain = text.strip().rstrip(".")
    return (plain[:1].lower() + plain[1:] if plain[1:2].islower() else plain).replace("|", "\\|")


def _first(text: str | None) -> str:
    return (text or "").strip().split("\n\n")[0].replace("\n", " ")


def tables() -> Iterator[tuple[str, str, list[type]]]:
    """(heading, section, dataclasses) of each table of `settings.md`."""
    from regard.data.images import ImageConfig
    from regard.decode.config import DecodeConfig
    from regard.models import MODELS
    from regard.tasks.spec import TASKS
    from regard.text import TokenizerConfig
    from regard.training.config import TrainConfig

    yield "## data", "data", list(dict.fromkeys(task.data for task in TASKS.values()))
    yield "## images", "images", [ImageConfig]
    yield "## tokenizer", "tokenizer", [TokenizerConfig]
    for name, (config, _) in MODELS.items():
        yield f"### {name}", "model", [config]
    yield "## train", "train", [TrainConfig]
    yield "## decode", "decode", [DecodeConfig]


def settings_page(text: str) -> str:
    """`settings.md` with the default and the choices of each setting as the code has them; what is gone goes."""
    for heading, section, kinds in tables():
        before, found, rest = text.partition(f"\n{heading}\n")
        assert found, f"docs/settings.md has no heading {heading}"
        lines = rest.split("\n")
        at = next(place for place, line in enumerate(lines) if line.startswith("| setting |"))
        end = at
        while end < len(lines) and lines[end].startswith("|"):
            end += 1
        known: dict[str, list[tuple[type, Field[Any]]]] = {}
        for kind in kinds:
            for one in fields(kind):
                known.setdefault(f"{section}.{one.name}", []).append((kind, one))
        body = []
        for row in lines[at + 2 : end]:
            match = ROW.match(row)
            assert match is not None, f"not a row of a table: {row}"
            name, meaning = match["names"].strip("`"), match["meaning"]
            if name in known:
                # Tasks that differ in a default have a row each.
                values = [_value(one) for _, one in known[name]]
                default = match["default"] if match["default"] in values else values[0]
                of = known[name][values.index(default)]
                body.append(f"| `{name}` | {default} | {meaning}{_choices(meaning, *of)} |")
        made = ["| setting | default | meaning |", "| --- | --- | --- |", *body]
        text = before + found + "\n".join([*lines[:at], *made, *lines[end:]])
    return text


def _choices(meaning: str, kind: type, field: Field[Any]) -> str:
    """The choices of a setting that its meaning does not name."""
    hint = get_type_hints(kind)[field.name]
    options = [one for part in (hint, *get_args(hint)) if get_origin(part) is Literal for one in get_args(part)]
    missing = [one for one in dict.fromkeys(options) if isinstance(one, str) and one not in meaning]
    return f" One of {', '.join(f'`{one}`' for one in dict.fromkeys(options))}." if missing else ""


def _value(field: Field[Any]) -> str:
    if field.default_factory is not MISSING:
        return f"`{_toml(field.default_factory())}`"
    if field.default is MISSING:
        return "from the tokenizer"
    if field.default is None:
        return "`none`"
    return f"`{_toml(field.default)}`"


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, tuple | list):
        return f"[{', '.join(_toml(one) for one in value)}]"
    return re.sub(r"e-0(\d)", r"e-\1", str(value))


PAGES = {"cli.md": cli_page, "settings.md": settings_page}


def stale(page: str) -> bool:
    """Whether a page is not as the code is."""
    text = (DOCS / page).read_text(encoding="utf-8")
    return PAGES[page](text) != text


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    asked = parser.parse_args()
    old = [page for page in PAGES if stale(page)]
    for page in old:
        if not asked.check:
            path = DOCS / page
            path.write_text(PAGES[page](path.read_text(encoding="utf-8")), encoding="utf-8")
        print(page, "is not as the code is" if asked.check else "is written anew")
    sys.exit(bool(old and asked.check))
