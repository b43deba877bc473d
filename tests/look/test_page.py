import dataclasses
import json
import re
import shutil
import subprocess
from decimal import ROUND_HALF_UP, Decimal
from html.parser import HTMLParser
from importlib import resources

import numpy as np
import pytest
import torch

from regard.errors import ConfigError, DataError
from regard.look.alignment import AlignmentCounts, merge
from regard.look.document import AttentionMap, Candidate, Document, Sentence, Side, to_mapping
from regard.look.packed_arrays import COMPRESSED_FROM
from regard.look.page import SCRIPTS, embed, render

VIEWER = resources.files("regard.look").joinpath("viewer")
NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="node runs the page's scripts; it is not installed")

SOUND = {
    **{"audio": "data:audio/wav;base64,AA==", "spectrogram": "data:image/png;base64,AA=="},
    **{"seconds": 1.0, "step": 0.2, "wave": [0.5]},
}
PICTURE = {"image": "data:image/png;base64,AAAA", "width": 4, "height": 4, "rows": 2, "columns": 2}
HOSTILE = "</script><script>alert(1)</script><!-- \u2028\u2029 & \"'"


def document(text: str = "I am a student", heads: int = 3) -> Document:
    generator = torch.Generator().manual_seed(0)
    source = Side.of(text, ["I", "am", "a", "stud", "ent", "</s>"], [(0, 1), (2, 4), (5, 6), (7, 11), (11, 14), (0, 0)])
    target = Side.of(
        "je suis étudiant", ["je", "suis", "étudi", "ant", "</s>"], [(0, 2), (3, 7), (8, 13), (13, 16), (0, 0)]
    )
    weights = torch.randn(heads, 5, 6, generator=generator).mul(2).softmax(-1)
    itself = torch.randn(heads, 6, 6, generator=generator).softmax(-1)
    sentence = Sentence(
        source=source,
        target=target,
        attentions=(
            AttentionMap(name="encoder.0", kind="self", rows="source", columns="source", weights=itself),
            AttentionMap(name="decoder.0", kind="cross", rows="target", columns="source", weights=weights),
        ),
        alignment=((0, 0), (1, 1), (3, 2)),
        candidates=tuple((Candidate(piece=piece, probability=0.9),) for piece in target.pieces),
        scores={"BLEU": "100.0"},
    )
    return Document(title=f"Where {text} looks", sentences=(sentence,))


def vectors(heads: int = 3, rows: int = 5, columns: int = 6, width: int = 4) -> dict:
    generator = torch.Generator().manual_seed(1)
    shapes = {"q": rows, "k": columns, "v": columns}
    return {name: torch.randn(heads, size, width, generator=generator).tolist() for name, size in shapes.items()}


class Page(HTMLParser):
    """The tags of a page, and the text inside its script and style tags."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.inside: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        if self.tags and self.tags[-1][0] in ("script", "style", "title"):
            self.inside.append(data)

    def data(self):
        return json.loads(next(text for text in self.inside if text.startswith("{")))


def half_up(weight: float) -> str:
    return str(Decimal(weight).quantize(Decimal("0.001"), ROUND_HALF_UP))


def test_the_page_carries_the_document_it_was_given():
    given = document()
    found = Page(render(given)).data()
    assert found == given.to_mapping()
    sentence = found["sentences"][0]
    assert sentence["source"]["word_of"] == [0, 1, 2, 3, 3, None]
    assert sentence["alignment"] == [[0, 0], [1, 1], [3, 2]]
    assert sentence["candidates"][2] == [{"piece": "étudi", "probability": 0.9}]
    assert [one["rows"] for one in sentence["attentions"]] == ["source", "target"]


def test_a_document_comes_back_from_json_unchanged():
    mapping = json.loads(json.dumps(document().to_mapping()))
    again = Document.from_mapping(mapping)
    assert again.to_mapping() == mapping
    assert render(mapping) == render(document())


def test_plain_lists_of_weights_do_as_well_as_tensors():
    given = document()
    mapping = given.to_mapping()
    for packed, attention in zip(mapping["sentences"][0]["attentions"], given.sentences[0].attentions, strict=True):
        packed["weights"] = attention.weights.tolist()
    assert render(mapping) == render(given)


@pytest.mark.parametrize("scale", [1, 1e-4])
@pytest.mark.parametrize("size", [(300, 50), (300, 150)])
def test_packing_keeps_three_decimals_and_the_ends(scale, size):
    weights = np.random.default_rng(0).random((2, *size)) * scale
    weights[0, 0, :4] = [0, 1, 0.5, 0.0625]
    attention = AttentionMap(name="a", kind="self", rows="source", columns="source", weights=weights)
    packed = dataclasses.replace(attention, weights=to_mapping(attention)["weights"])
    assert packed.weights["squeezed"] == (size[0] * size[1] >= COMPRESSED_FROM)
    found = packed.array()
    assert np.abs(found - weights).max() <= 1 / 50_000
    assert found[0, 0, 0] == 0
    assert found[0, 0, 1] == 1
    assert [half_up(one) for one in found.flat] == [half_up(one) for one in weights.flat]
    assert to_mapping(packed) == to_mapping(attention)


def test_text_cannot_become_markup():
    given = document()
    hostile = dataclasses.replace(
        given,
        title=HOSTILE,
        note=HOSTILE,
        sentences=(dataclasses.replace(given.sentences[0], scores={HOSTILE: HOSTILE}),),
    )
    page = render(hostile)
    plain, found = Page(render(given)), Page(page)
    assert [tag for tag, _ in found.tags] == [tag for tag, _ in plain.tags]
    assert found.data()["title"] == HOSTILE
    assert found.data()["sentences"][0]["scores"] == {HOSTILE: HOSTILE}
    assert "alert(1)</script>" not in page
    assert "\u2028" not in page[page.index("<body>") :]


def test_embedded_json_holds_no_character_that_could_end_it():
    value = {"text": HOSTILE + "\ud800 é 漢"}
    text = embed(value)
    assert not re.search("[<>&\u2028\u2029]", text)
    assert "é 漢" in text
    assert json.loads(text) == value
    text.encode("utf-8")


def test_a_title_with_half_a_character_still_makes_a_file():
    render(dataclasses.replace(document(), title="\ud800")).encode("utf-8")


def test_nothing_is_fetched():
    page = render(document())
    found = Page(page)
    attributes = {name for _, attrs in found.tags for name in attrs}
    assert not attributes & {"src", "href", "srcset", "action", "style", "onclick", "onload"}
    assert not re.search(r"https?://|\burl\(|@import|\bfetch\(|XMLHttpRequest|\bimport\b|WebSocket", page)
    (policy,) = [attrs["content"] for tag, attrs in found.tags if tag == "meta" and "http-equiv" in attrs]
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy


def test_scripts_make_text_and_never_markup():
    written = "".join(VIEWER.joinpath(name).read_text(encoding="utf-8") for name in SCRIPTS)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", written)
    on_disk = {path.name for path in VIEWER.iterdir() if path.name.endswith(".js")}
    assert on_disk == set(SCRIPTS)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sentences": []}, "no sentences"),
        ({"sentences.0.attentions": []}, "no attentions"),
        ({"sentences.0.attentions.1.rows": "source"}, r"weighs \(5, 6\) pieces; the sentence has \(6, 6\)"),
        ({"sentences.0.attentions.1.rows": "prefix"}, "has no prefix"),
        ({"sentences.0.attentions.1.weights": [[[1.0, 0.0]]]}, r"weighs \(1, 2\) pieces"),
        ({"sentences.0.attentions.1.weights": [[[2.0]]]}, "must be 0 to 1"),
        ({"sentences.0.attentions.1.weights": [[[float("nan")]]]}, "must be 0 to 1"),
        ({"sentences.0.attentions.1.weights": [[1.0]]}, "must be heads, rows, columns"),
        ({"sentences.0.attentions.1.weights": "!"}, "cannot be read"),
        ({"sentences.0.attentions.1.weights.data": ["!"] * 3}, "cannot be read"),
        ({"sentences.0.attentions.1.heads": [4]}, "3 heads and numbers for 1"),
        ({"sentences.0.attentions.1.neurons": {"q": [], "k": [], "v": []}}, "must be heads, places, features"),
        ({"sentences.0.attentions.1.neurons": vectors(rows=4)}, "not those of 3 heads, 5 rows and 6 columns"),
        ({"sentences.0.attentions.1.neurons": {**vectors(), "combine": "additive"}}, "has a vector"),
        ({"sentences.0.attentions.1.neurons": {**vectors(), "offsets": [[1.0]]}}, r"must be \(3, 10\)"),
        ({"sentences.0.picture": {**PICTURE, "image": "http://x"}}, "must be a PNG"),
        ({"sentences.0.picture": {**PICTURE, "image": 'data:image/png;base64,AA"onload'}}, "must be a PNG"),
        ({"sentences.0.picture": {**PICTURE, "width": 0}}, "at least 1"),
        ({"sentences.0.picture": PICTURE}, "1 pieces and 2 x 2 patches; the source has 6"),
        ({"sentences.0.sound": {**SOUND, "audio": "http://x"}}, "audio must be data:audio/wav"),
        ({"sentences.0.sound": {**SOUND, "spectrogram": 'data:image/png;base64,AA"onload'}}, "must be data:image/png"),
        ({"sentences.0.sound": {**SOUND, "seconds": 0.0}}, "both must be above 0"),
        ({"sentences.0.sound": {**SOUND, "words": [[0.0, 1.0]]}}, "times of 1 words; the target has"),
        ({"sentences.0.sound": {**SOUND, "aligned": [[0.0, 1.0]]}}, "times of 1 pieces; the target has"),
        ({"sentences.0.alignment": [[0, 3]]}, r"gold pair \(0, 3\)"),
        ({"sentences.0.candidates": [[]]}, "candidates for 1 steps"),
        ({"sentences.0.source.word_of": [0]}, "1 entries for 6 pieces"),
        ({"sentences.0.source.word_of": [9] * 6}, "must point into 4 words"),
        ({"sentences.0.source.words": None}, "go together"),
    ],
)
def test_a_document_at_odds_with_itself_is_refused(change, message):
    mapping = document().to_mapping()
    ((path, value),) = change.items()
    *parents, last = path.split(".")
    place = mapping
    for key in parents:
        place = place[int(key)] if isinstance(place, list) else place[key]
    place[last] = value
    with pytest.raises(DataError, match=message):
        render(mapping)


def test_an_unknown_field_is_refused_by_name():
    with pytest.raises(ConfigError, match="did you mean 'title'"):
        render({**document().to_mapping(), "titel": "x"})


@needs_node
def test_every_script_parses():
    program = "for (const text of JSON.parse(require('fs').readFileSync(0, 'utf8'))) new (require('vm').Script)(text);"
    scripts = [VIEWER.joinpath(name).read_text(encoding="utf-8") for name in SCRIPTS]
    checked = subprocess.run([NODE, "-e", program], input=json.dumps(scripts), capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr


@needs_node
def test_the_page_computes_what_the_library_computes():
    """Numbers of the page's own scripts, run outside a browser, against `merge` and `AlignmentCounts`."""
    given = document()
    scripts = "".join(
        VIEWER.joinpath(name).read_text(encoding="utf-8") for name in ("core.js", "packing.js", "matrix.js")
    )
    program = f"""
        globalThis.document = {{ getElementById: () => ({{ namespaceURI: "" }}) }};
        {scripts}
        const sentence = JSON.parse(require("fs").readFileSync(0, "utf8")).sentences[0];
        const attention = sentence.attentions[1];
        const pieces = matrixOf(sentence, attention, [0, 1, 2], false);
        const words = matrixOf(sentence, attention, [0, 2], true);
        console.log(JSON.stringify({{
            numbers: pieces.values.flatMap((one) => [...one]).map((weight) => weight.toFixed(3)),
            gold: [...pieces.gold],
            rows: words.rows,
            mean: [...words.mean],
            rates: [0, 1, 2].map((head) => errorRate(sentence, attention, [head])),
            none: errorRate(sentence, sentence.attentions[0], [0]),
        }}));
    """
    assert NODE is not None
    ran = subprocess.run(
        [NODE, "-e", program], input=json.dumps(given.to_mapping()), capture_output=True, text=True, check=True
    )
    found = json.loads(ran.stdout)
    sentence = given.sentences[0]
    weights = sentence.attentions[1].weights
    words = merge(weights, sentence.source.word_of, sentence.target.word_of, sources=4, targets=3)
    counts = AlignmentCounts()
    counts.add(words, sentence.alignment)

    assert found["numbers"] == [half_up(weight) for weight in weights.flatten().tolist()]
    assert found["rows"] == ["je", "suis", "étudiant"]
    # je-I, suis-am, and both pieces of étudiant with both of student
    assert found["gold"] == [0, 7, 15, 16, 21, 22]
    assert found["mean"] == pytest.approx(words[[0, 2]].mean(0).flatten().tolist(), abs=1e-4)
    assert found["rates"] == pytest.approx(counts.scores().error_rate.tolist())
    assert found["none"] is None
