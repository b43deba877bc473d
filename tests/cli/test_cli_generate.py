"""`regard train`, `generate` and `evaluate` on plain text, as a person runs them."""

import json

import pytest

from regard.cli import main

SMALL = ["model.width=16", "model.heads=2", "model.layers=1", "model.feed_forward=24", "model.max_len=16"]
SMALL += ["data.max_len=16", "train.batch_tokens=64", "train.steps=4", "train.threads=1", "decode.max_len=20"]


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    folder = tmp_path_factory.mktemp("words")
    (folder / "text.txt").write_text("sun moon star sky\n" * 30, encoding="utf-8")
    arguments = ["train", "--preset", "gpt-tiny", "--data", str(folder / "text.txt"), "--out", str(folder / "run")]
    assert main([*arguments, *(f"--set={setting}" for setting in SMALL)]) == 0
    return folder


def test_a_text_follows_its_prompt(cli, words):
    result = cli("generate", words / "run", "sun ", "--max-tokens", 12, "--seed", 3)
    assert result.code == 0
    assert result.out.startswith("sun ")
    as_json = json.loads(cli("generate", words / "run", "sun ", "--max-tokens", 12, "--seed", 3, "--json").out)
    assert result.out == "sun " + as_json["text"] + "\n"
    assert as_json["prompt"] == "sun "


def test_characters_that_a_run_does_not_know_are_named(cli, words, tmp_path):
    known, asked = cli("generate", words / "run", "sun ", "--max-tokens", 3), ("--max-tokens", 3, "--seed", 3)
    assert known.err == ""
    found = cli("generate", words / "run", "S\u2603n", *asked)
    assert found.err.endswith("unknown to this run, and all read as one character: S, \u2603\n")
    assert json.loads(cli("generate", words / "run", "S\u2603n", *asked, "--json").out)["unknown"] == ["S", "\u2603"]
    assert "unknown" not in json.loads(cli("generate", words / "run", "sun", *asked, "--json").out)
    beam = json.loads(cli("generate", words / "run", "S\u2603n", "--max-tokens", 3, "--beam", 2, "--json").out)
    assert beam["unknown"] == ["S", "\u2603"]
    (tmp_path / "prompts.txt").write_text("sun\nS\u2603n\n", encoding="utf-8")
    files = ("--input", tmp_path / "prompts.txt", "--output", tmp_path / "texts.txt")
    assert "read as one character: S, \u2603" in cli("generate", words / "run", *files, *asked).err


def test_samples_come_one_after_another(cli, words):
    several = ["generate", words / "run", "sun ", "--samples", 3, "--stop", "s", "--temperature", 1.0]
    texts = [json.loads(line)["text"] for line in cli(*several, "--json").out.splitlines()]
    assert len(texts) == 3
    assert cli(*several).out == "\n---\n".join("sun " + text for text in texts) + "\n"


def test_phrases_bind_what_is_written_by_sampling_and_by_a_beam(cli, refused, words):
    written = json.loads(cli("generate", words / "run", "sun", "--seed", 2, "--json").out)["text"]
    again = cli("generate", words / "run", "sun", "--seed", 2, "--json", "--forbid", written[3:5], "--max-tokens", 40)
    assert again.code == 0, again.err
    assert written[3:5] not in json.loads(again.out)["text"]  # over more text than the model reads at once, too
    found = cli("generate", words / "run", "sun", "--beam", 4, "--require", "moon", "--forbid", "y", "--json")
    text = json.loads(found.out)["text"]
    assert "moon" in text
    assert "y" not in text
    greedy = ["generate", words / "run", "sun", "--temperature", 0, "--no-repeat", 1, "--json"]
    letters = json.loads(cli(*greedy).out)["text"]
    assert len(set(letters)) == len(letters)
    likely = cli("generate", words / "run", "sun", "--seed", 5, "--min-p", 1, "--json", "--temperature", 1)
    assert json.loads(likely.out)["text"] == json.loads(cli(*greedy[:5], "--json").out)["text"]
    several = ["generate", words / "run", "s", "--beam", 4, "--top-beams", 4, "--max-tokens", 6, "--json"]
    groups = cli(*several, "--beam-groups", 4, "--diversity-penalty", 9).out.splitlines()
    assert len({json.loads(line)["text"][:1] for line in groups}) > 1
    assert "is for beam search" in refused("generate", words / "run", "sun", "--require", "moon")


def test_greedy_needs_only_a_temperature_of_nothing(cli, words):
    once = cli("generate", words / "run", "moon", "--temperature", 0, "--repetition-penalty", 1.5)
    assert once.code == 0
    assert once.out == cli("generate", words / "run", "moon", "--temperature", 0, "--repetition-penalty", 1.5).out


def test_perplexity_says_its_window_and_stride(cli, words):
    result = cli("evaluate", words / "run", "--data", words / "text.txt", "--stride", 4)
    assert "window 16, stride 4" in result.out
    assert "bits per byte" in result.out
    found = json.loads(cli("evaluate", words / "run", "--data", words / "text.txt", "--stride", 4, "--json").out)
    assert found["characters"] == 18 * 30


def test_mistakes_are_one_line(refused, words, trained):
    assert "is a run for translation" in refused("generate", trained, "sun")
    assert "is a run for language" in refused("translate", words / "run", "sun")
    assert "names no test" in refused("evaluate", words / "run")
    assert "stride=17" in refused("evaluate", words / "run", "--data", words / "text.txt", "--stride", 17)
    said = refused("evaluate", words / "run", "--beam", 3)
    assert said == "beam does not apply to a run for language; its options: stride"
    assert "stride does not apply to a run for translation; its options: " in refused(
        "evaluate", trained, "--stride", 3
    )
    for temperature in (-1.0, 1e-300):
        said = refused("generate", words / "run", "sun", "--temperature", temperature)
        assert (
            said
            == f"temperature={temperature} must be above 0 (at least 1e-06), or 0 to take the likeliest token each time"
        )
    assert "give beam too" in refused("generate", words / "run", "sun", "--top-beams", 2)
    assert "give beam too" in refused("generate", words / "run", "sun", "--length-penalty", 2)
