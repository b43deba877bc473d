"""POST /v1/translate: the same as the command line prints, whoever else asks at the same time."""

import json
import random

import pytest
from serve_toys import SENTENCES, WORDS, in_one_queue, near, serving

from regard.cli import main
from regard.tasks.verbs.spec import plain


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"beam": 4, "top_beams": 3},
        {"beam": 1},
        {"temperature": 0.9, "samples": 2, "seed": 7, "min_p": 0.1},
        {"require": "CAT DOG", "forbid": "SEES", "no_repeat": 1},
        {"prefix": "CAT", "coverage_penalty": 0.4},
        {"beam": 4, "top_beams": 3, "beam_groups": 2, "diversity_penalty": 0.5},
        {"mbr": 4},
    ],
    ids=["default", "beam", "greedy", "drawn", "phrases", "coverage", "groups", "mbr"],
)
def test_an_answer_is_what_the_command_line_prints(client, translator, options, capsys):
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    assert main(["translate", str(translator.directory), *SENTENCES, "--json", "--device", "cpu", *flags]) == 0
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    answer = client.post("/v1/translate", {"text": SENTENCES, **options})
    assert answer.status == 200
    assert answer.json["model"] == "toy"
    assert near(answer.json["results"], printed)


@pytest.mark.parametrize("drawn", [False, True], ids=["searched", "drawn"])
def test_32_requests_at_once_are_answered_as_if_each_were_alone(translator, drawn):
    dice = random.Random(1)
    bodies = []
    for number in range(32):
        texts = [" ".join(dice.choices(WORDS, k=dice.randint(1, 9))) for _ in range(dice.randint(1, 3))]
        how = {"temperature": 1.0, "samples": 2, "seed": number % 4} if drawn else {"beam": 1 + number % 3}
        bodies.append({"text": texts, **how})
    with serving(translator) as client:
        together = in_one_queue(client, "toy", 32, lambda number: client.post("/v1/translate", bodies[number]).json)
        sizes = client.get("/metrics").text
    for body, answer in zip(bodies, together, strict=True):
        texts = body.pop("text")
        alone = translator.ask("translate", texts, **body)
        assert near(answer["results"], [plain(one) for one in alone])
    count = next(line for line in sizes.splitlines() if line.startswith("regard_batch_requests_count"))
    alike = 4 if drawn else 3
    assert int(count.split()[-1]) == 1 + alike, "what is alike went together, after the one that held them up"


def test_a_translation_that_is_cut_says_so_and_its_limits_can_be_lifted(client, translator):
    def asked(**options):
        answer = client.post("/v1/translate", {"text": SENTENCES[0], "min_len": 8, **options})
        assert answer.status == 200, answer.json
        (result,) = answer.json["results"]
        (one,) = result["translations"]
        return len(one["pieces"]), one["finished"]

    assert asked(max_ratio=0.0, max_extra=5, max_len=10) == (5, False)
    assert asked(max_extra="none", max_len=10) in ((8, True), (9, True), (10, False))
    longest = translator.translator.max_len
    assert asked(max_len="none", min_len=longest - 1)[0] >= longest - 1
    assert asked(max_len=9) in ((8, True), (9, False))
    refused = client.post("/v1/translate", {"text": "x", "max_ratio": "few"})
    assert refused.status == 400
    assert "max_ratio='few'" in refused.json["error"]["message"]


def test_alignments_and_lists_of_phrases_are_served_and_bounded(client):
    answer = client.post("/v1/translate", {"text": SENTENCES[0], "alignments": True, "require": ["CAT", "DOG"]})
    assert answer.status == 200, answer.text
    (one,) = answer.json["results"][0]["translations"]
    assert {"CAT", "DOG"} <= set(one["text"].split())
    assert {target for _, target in one["alignment"]} == set(range(len(one["text"].split())))
    for body, said in (
        ({"require": ["CAT"] * 33}, "require has 33 phrases; this server takes 32"),
        ({"forbid": "x" * 1001}, "forbid has a phrase of more than 1000 characters"),
        ({"mbr": 17}, "mbr=17 is more than this server allows: 16"),
        ({"require": "zebra"}, "require='zebra' has a word that is not in the vocabulary"),
    ):
        refused = client.post("/v1/translate", {"text": "the cat", **body})
        assert refused.status in (400, 413)
        assert said in refused.json["error"]["message"]


def test_one_text_is_as_good_as_a_list_of_one(client):
    one, several = (client.post("/v1/translate", {"text": text}).json for text in (SENTENCES[0], SENTENCES[:1]))
    assert near(one, several)
    assert [result["line"] for result in one["results"]] == [1]


def test_a_blank_text_and_odd_characters_are_translated_too(client):
    odd = ["", "   ", "\u202e\u0000\ufeff", "👩‍👩‍👧‍👦 e\u0301 \U0010ffff", "a\nb\r\nc\u2028d", "the\tcat"]
    answer = client.post("/v1/translate", {"text": odd})
    assert answer.status == 200, answer.text
    assert [result["source"] for result in answer.json["results"]] == odd
    assert answer.json["results"][0]["translations"][0]["text"] == ""
