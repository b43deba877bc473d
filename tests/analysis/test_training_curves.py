"""`regard plot`: what was logged is what is drawn, of one training and of several."""

import json
import xml.etree.ElementTree as ElementTree

import pytest

from regard.analysis.training_curves import curves, in_the_terminal
from regard.cli import main
from regard.errors import RunError
from regard.look.charts import plot


def logged(folder, *records):
    folder.mkdir()
    lines = [json.dumps({"kind": kind, "step": step, **values}) for kind, step, values in records]
    (folder / "log.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


@pytest.fixture
def run(tmp_path):
    return logged(
        tmp_path / "one",
        ("train", 10, {"loss": 4.0, "learning_rate": 0.1, "tokens_per_second": 100.0}),
        ("validation", 10, {"loss": 3.5, "nll": 3.5, "cut": 0.0, "bleu": 12.0, "seconds": 1.0}),
        ("train", 20, {"loss": 2.0, "learning_rate": 0.2, "tokens_per_second": 110.0}),
        ("validation", 20, {"loss": 2.5, "nll": 2.5, "cut": 0.0, "bleu": 20.0, "seconds": 1.0}),
    )


def test_loss_score_rate_and_throughput(run):
    charts = {chart.title: chart for chart in curves([run])}
    assert list(charts) == ["Loss", "BLEU", "Learning rate", "Throughput"]
    assert {one.name: list(one.points) for one in charts["Loss"].series} == {
        "one, train": [(10, 4.0), (20, 2.0)],
        "one, validation": [(10, 3.5), (20, 2.5)],
    }
    assert [list(one.points) for one in charts["BLEU"].series] == [[(10, 12.0), (20, 20.0)]]


def test_several_runs_side_by_side(run, tmp_path):
    (tmp_path / "other").mkdir()
    same = logged(tmp_path / "other" / "one", ("train", 5, {"loss": 1.0}))
    (chart,) = curves([run, same], ["loss"])
    assert [one.name for one in chart.series] == [f"{run}, train", f"{run}, validation", f"{same}, train"]
    assert plot(chart).count("<path") >= 2


def test_in_the_terminal_the_highest_is_at_the_top(run):
    (chart,) = curves([run], ["bleu"])
    lines = in_the_terminal(chart, wide=20, tall=5).split("\n")
    assert lines[0] == "BLEU"
    assert lines[1].startswith("20 |")
    assert lines[1].endswith("*")
    assert lines[5] == "12 |*"
    assert "one: 20 at the end" in lines[-1]


def test_what_is_not_finite_is_counted(tmp_path):
    run = logged(tmp_path / "bad", ("train", 1, {"loss": 2.0}), ("train", 2, {"loss": float("nan")}))
    (chart,) = curves([run])
    assert "1 values are not finite" in in_the_terminal(chart)


def test_what_cannot_be_drawn_is_said(run, tmp_path):
    with pytest.raises(RunError, match="no log has the value 'rouge'; there are bleu, cut, "):
        curves([run], ["rouge"])
    with pytest.raises(RunError, match="does not exist: plot takes run directories"):
        curves([tmp_path / "none"])
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "log.jsonl").write_text("")
    with pytest.raises(RunError, match="has no records yet"):
        curves([empty])


def test_an_svg_file_is_svg_with_all_charts_below_each_other_and_a_page_a_page(run, tmp_path, capsys):
    assert main(["plot", str(run), "--out", str(tmp_path / "curves.svg")]) == 0
    root = ElementTree.parse(tmp_path / "curves.svg").getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    charts = root.findall("{http://www.w3.org/2000/svg}svg")
    assert [chart[0].text for chart in charts] == ["Loss", "BLEU", "Learning rate", "Throughput"]
    tops = [float(chart.get("y")) for chart in charts]
    heights = [float(chart.get("height")) for chart in charts]
    assert tops == [sum(heights[:place]) for place in range(4)]
    assert float(root.get("height")) == sum(heights)
    assert main(["plot", str(run), "--out", str(tmp_path / "curves.html")]) == 0
    assert (tmp_path / "curves.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert main(["plot", str(run), "--out", str(tmp_path / "curves.png")]) == 2
    assert "curves.png must end in .svg, or in .html for a page" in capsys.readouterr().err
