"""The plan of the house, kept: who may know what. ARCHITECTURE.md says why."""

import ast
import re
from pathlib import Path

from regard.tasks.spec import TASKS

ROOT = Path(__file__).parents[1]
PACKAGE = sorted((ROOT / "regard").rglob("*.py"))


def trees(*, outside=()):
    for path in PACKAGE:
        if not any(part in path.relative_to(ROOT).parts for part in outside):
            yield path.relative_to(ROOT).as_posix(), ast.parse(path.read_text(encoding="utf-8"))


def words(node):
    """The texts that an expression compares with: itself, or those of a list of them."""
    several = node.elts if isinstance(node, ast.Tuple | ast.List | ast.Set) else [node]
    return {one.value for one in several if isinstance(one, ast.Constant) and isinstance(one.value, str)}


def names_a_task(node):
    named = getattr(node, "attr", getattr(node, "id", ""))
    return named.lower() in ("task", "tasks", "kind")


def forks(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            if any(names_a_task(side) for side in sides) and any(words(side) & set(TASKS) for side in sides):
                yield node
        if isinstance(node, ast.Dict) and len({*TASKS} & {word for key in node.keys if key for word in words(key)}) > 1:
            yield node


def test_nobody_outside_tasks_tells_tasks_apart_by_name():
    found = [
        f"{path}:{node.lineno}: {ast.unparse(node)[:80]}"
        for path, tree in trees(outside=("tasks",))
        for node in forks(tree)
    ]
    assert not found


def test_the_search_for_forks_finds_them():
    for text in (
        "run.config.task == 'images'",
        "task in ('language', 'masking')",
        "family.TASK != 'translation'",
        "{'language': a, 'images': b}",
    ):
        assert list(forks(ast.parse(text))), text
    assert not list(forks(ast.parse("kind == 'lines'; {'language': 1}; split == 'test'")))


def test_models_are_not_probed_for_names():
    found = []
    for path, tree in trees():
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Call)
                and getattr(node.func, "id", "") in ("hasattr", "getattr")
                and len(node.args) > 1
            ):
                asked, name = ast.unparse(node.args[0]), node.args[1]
                if isinstance(name, ast.Constant) and re.search(r"\b(model|network|architecture)\b", asked):
                    found.append(f"{path}: {ast.unparse(node)}")
    probes = [one for one in found if not one.startswith("regard/models/protocols.py") and "__name__" not in one]
    assert not probes
    assert len(found) <= 5


def test_nobody_reads_meaning_out_of_an_attentions_name():
    found = [
        f"{path}:{node.lineno}"
        for path, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare)
        and isinstance(node.ops[0], ast.In)
        and words(node.left) & {"cross", "encoder", "decoder"}
        and getattr(node.comparators[0], "id", "") == "name"
    ]
    assert not found


def test_runs_is_a_directory_on_disk_and_nothing_else():
    assert len(list((ROOT / "regard/runs").glob("*.py"))) <= 12
    for path in (ROOT / "regard/runs").glob("*.py"):
        imported = re.findall(r"^from regard\.(\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
        assert set(imported) <= {"errors", "config", "digests", "runs", "training"}, path


def test_the_architecture_is_short_and_names_what_is_there():
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 300
    rooms = {path.name for path in (ROOT / "regard").iterdir() if path.is_dir() and path.name != "__pycache__"}
    for room in rooms:
        assert re.search(rf"\b{room}/", text), f"ARCHITECTURE.md does not say what {room}/ is for"
    for named in re.findall(r"`((?:[a-z_]+/)+[a-z_]*(?:\.\w+)?)`", text):
        if named.partition("/")[0] not in {*rooms, "regard", "tests", "examples", "docs", "benchmarks"}:
            continue  # what lies in a run directory
        places = [ROOT / named, ROOT / "regard" / named]
        assert any(place.exists() for place in places), f"ARCHITECTURE.md speaks of {named}, which is not there"
    for module, name in re.findall(r"`((?:[a-z_]+/)+[a-z_]+\.py)` `(\w+)`", text):
        source = (ROOT / "regard" / module).read_text(encoding="utf-8")
        assert re.search(rf"^\s*(?:class|def) {name}\b|^{name}\b", source, re.MULTILINE), f"{module}: {name}"


def test_users_are_warned_by_a_class_of_ours_or_of_what_moved():
    found = []
    for path, tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and ast.unparse(node) == "warnings.warn":
                found.append(path)
    assert set(found) == {"regard/moved.py", "regard/runs/__init__.py"}  # FutureWarning; others by regard.errors.warn
