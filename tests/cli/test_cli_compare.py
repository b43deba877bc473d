import json


def test_runs_are_compared_from_the_command_line(cli, trained, tmp_path):
    out = tmp_path / "out"
    result = cli("compare", "--runs", trained, "--out", out, "--no-growth", "--limit", 3)
    assert result.code == 0, result.err
    first, last = result.out.splitlines()
    assert first.startswith(f"{trained.name}: ")
    assert "6 updates" in first
    assert last == str(out / "report.html")
    told = cli("compare", "--runs", trained, "--out", out, "--no-growth", "--limit", 3, "--json")
    assert json.loads(told.out)["runs"][0]["updates"] == 6


def test_mistakes_are_one_line(refused, tmp_path):
    out = tmp_path / "out"
    assert "'demi' is neither a preset" in refused("compare", "demi", "--out", out)
    assert "one budget, not 2" in refused("compare", "demo", "--updates", 3, "--minutes", 2, "--out", out)
    assert "depths='2,x' must be whole numbers" in refused("compare", "demo", "--depths", "2,x", "--out", out)
    assert "no such run" in refused("compare", "--runs", tmp_path / "none", "--out", out)
    assert not out.exists()
