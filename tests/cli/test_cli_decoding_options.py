"""What can be asked of a translation beside beam and temperature: phrases, coverage, groups, Bayes risk, alignments."""

import json
import re

import pytest

import regard
from regard.errors import DataError

SENTENCES = ["the cat sees", "a small dog hears a red house", "big house"]


@pytest.fixture(scope="module")
def loaded(trained):
    return regard.load(trained, "cpu")


def asked(cli, trained, *options):
    result = cli("translate", trained, *SENTENCES, "--json", "--device", "cpu", *options)
    assert result.code == 0, result.err
    return [json.loads(line) for line in result.out.splitlines()]


def test_phrases_bind_from_the_command_and_from_python(cli, trained, loaded):
    options = ["--require", "HOUSE SEES", "--require", "BIG", "--forbid", "THE", "--forbid", "CAT CAT", "--beam", 6]
    found = asked(cli, trained, *options)
    for one in found:
        (best,) = one["translations"]
        assert best["finished"]
        assert "HOUSE SEES" in best["text"]
        assert "BIG" in best["text"].split()
        assert "THE" not in best["text"].split()
        assert "CAT CAT" not in best["text"]
    python = loaded.translate(SENTENCES, require=["HOUSE SEES", "BIG"], forbid=["THE", "CAT CAT"], beam=6)
    assert python == [one["translations"][0]["text"] for one in found]
    for how in ([], ["--beam", 1], ["--temperature", 1]):
        for one in asked(cli, trained, "--prefix", "DOG RUNS", "--forbid", "CAT", *how):
            assert one["translations"][0]["text"].startswith("DOG RUNS")
            assert "CAT" not in one["translations"][0]["text"]
    for one in asked(cli, trained, "--no-repeat", 1, "--min-len", 5):
        pieces = one["translations"][0]["pieces"]
        assert len(set(pieces)) == len(pieces) >= 5
    tokens = loaded.vocabularies.target.encode("THE CAT")
    assert loaded.translate(SENTENCES, forbid=tokens) == loaded.translate(SENTENCES, forbid=["THE", "CAT"])


def test_coverage_groups_and_bayes_risk_are_options(cli, trained, loaded):
    covered = [one["translations"][0] for one in asked(cli, trained, "--max-len", 2, "--coverage-penalty", 0.5)]
    for one in covered:
        assert one["score"] < loaded.decode_config().score(one["log_prob"], len(one["pieces"]) + one["finished"])
    grouped = asked(cli, trained, "--beam", 4, "--top-beams", 4, "--beam-groups", 2, "--diversity-penalty", 2)
    assert any(
        [one["text"] for one in found["translations"]] != [one["text"] for one in usual["translations"]]
        for found, usual in zip(grouped, asked(cli, trained, "--beam", 4, "--top-beams", 4), strict=True)
    )
    risk = asked(cli, trained, "--mbr", 8, "--top-beams", 4, "--seed", 3, "--temperature", 1)
    samples = loaded.translations(SENTENCES, temperature=1.0, samples=8, seed=3)
    assert cli("translate", trained, "", "--mbr", 3, "--scores").out == "0.0000\t\n"
    for found, drawn in zip(risk, samples, strict=True):
        assert {one["text"] for one in found["translations"]} <= {one.text for one in drawn}
        assert [one["score"] for one in found["translations"]] == sorted(
            (one["score"] for one in found["translations"]), reverse=True
        )
    assert any(found["translations"][0]["text"] != drawn[0].text for found, drawn in zip(risk, samples, strict=True))


def test_alignments_are_pairs_of_words_in_pharaoh_format(cli, trained, loaded):
    result = cli("translate", trained, *SENTENCES, "", "--alignments", "--top-beams", 2, "--device", "cpu")
    lines = result.out.splitlines()
    assert len(lines) == 8
    assert lines[-1] == " ||| "
    found = asked(cli, trained, "--alignments", "--top-beams", 2)
    said = [(one["source"], best) for one in found for best in one["translations"]]
    for line, (source, best) in zip(lines, said, strict=False):
        text, _, pairs = line.rpartition(" ||| ")
        assert text == best["text"]
        assert re.fullmatch(r"(\d+-\d+( \d+-\d+)*)?", pairs)
        links = [tuple(map(int, pair.split("-"))) for pair in pairs.split()]
        assert links == [tuple(pair) for pair in best["alignment"]] == sorted(set(links))
        assert {target for _, target in links} == set(range(len(text.split())))
        assert all(word < len(source.split()) for word, _ in links)
    assert "alignment" not in asked(cli, trained)[0]["translations"][0]
    python = loaded.translations(SENTENCES, alignments=True)
    assert [one[0].alignment for one in python] == [
        tuple(map(tuple, one["translations"][0]["alignment"])) for one in found
    ]


def test_an_alignment_is_where_the_attention_lies(loaded, monkeypatch):
    import torch

    from regard.look.watch import watch
    from regard.nn.batch import Pairs, Tokens
    from regard.tasks.cross_attention import aligning_attention

    ((best,),) = loaded.translations(SENTENCES[1:2], alignments=True)
    source, target = loaded.vocabularies.source, loaded.vocabularies.target
    row = [*source.encode(SENTENCES[1]), source.eos]
    name = aligning_attention(loaded.model, "this")
    with watch(loaded.model, name) as trace, torch.inference_mode():
        loaded.model(Pairs(Tokens.of([row]), Tokens.of([[target.bos, *best.tokens, target.eos]])))
    weights = trace.weights(name)[0].mean(0)[: len(best.tokens), : len(row) - 1]
    assert {(int(weights[word].argmax()), word) for word in range(len(best.tokens))} == set(best.alignment)


def test_what_cannot_be_asked_is_one_line(refused, trained, loaded):
    def said(*options):
        return refused("translate", trained, "the cat", *options)

    assert said("--require", "zebra") == (
        "require='zebra' has a word that is not in the vocabulary, so the model cannot write it"
    )
    assert said("--forbid", " ") == "forbid=' ' has no tokens"
    assert "require=... needs beam search" in said("--require", "CAT", "--beam", 1)
    assert "coverage_penalty=0.1 needs beam search" in said("--coverage-penalty", 0.1, "--beam", 1)
    assert "--mbr" in said("--mbr", 1) or "mbr=1 must be 0" in said("--mbr", 1)
    assert said("--mbr", 4, "--beam", 2) == "mbr=4 is for sampling, beam=2 is for a search: give one"
    assert "top_beams=5 must be from 1 to mbr=4" in said("--mbr", 4, "--top-beams", 5, "--temperature", 1)
    assert "need each other" in said("--beam-groups", 3)
    long = " ".join(["cat"] * 60)
    for option in (["--prefix", "CAT"], ["--require", "CAT"], ["--alignments"]):
        line = refused("translate", trained, long, *option)
        assert f"with {option[0][2:]} a sentence cannot be split" in line
    assert loaded.translations([long], alignments=True, overlong="truncate")[0][0].alignment
    with pytest.raises(DataError, match="cannot be split"):
        loaded.translations([long], prefix="CAT")
