import json


def test_heads_are_reported_as_a_table_json_and_a_page(cli, trained, corpus, tmp_path):
    pairs = ["--data", corpus / "train.en", "--data", corpus / "train.fr", "--device", "cpu"]
    table = cli("heads", trained, *pairs)
    assert table.code == 0
    assert "encoder.0.attention 0" in table.out
    assert "at most 5 %" in table.out
    page = tmp_path / "heads.html"
    result = cli("heads", trained, *pairs, "--json", "--out", page)
    report = json.loads(result.out)
    assert len(report["heads"]) == 6
    assert "pronoun" not in report
    assert "decoder.0.cross_attention" in page.read_text(encoding="utf-8")


def test_two_sources_of_pairs_are_refused(refused, trained):
    assert "not both" in refused("heads", trained, "--world", "--data", "x.tsv")
