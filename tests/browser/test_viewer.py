"""The page in a real browser, by pointing, clicking and typing; numbers on screen against the document's own."""

import math
import re
from decimal import ROUND_HALF_UP, Decimal

import documents
import numpy as np
import pytest
from documents import MARKUP

from regard.look.alignment import merge
from regard.look.charts import words_on_a_plane
from regard.look.document import AttentionMap, Candidate, Document, Edited, Sentence, Side
from regard.look.page import framed, render

VIEWS = ["heads", "map", "grid", "text", "neurons", "decoding", "edits", "positions", "history"]
PLAIN = [view for view in VIEWS if view not in ("decoding", "edits")]


def shown(number, places=3):
    return str(Decimal(float(number)).quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP))


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "page.html"
    path.write_text(render(documents.small()), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def given():
    return documents.small().sentences[0]


@pytest.fixture
def page(browser, file):
    page = browser.page(f"{file.as_uri()}#words=0")  # piece by piece
    yield page
    assert page.complaints() == []
    assert page.requests() == []
    page.close()


@pytest.fixture(scope="module")
def long_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("long") / "page.html"
    path.write_text(render(documents.long()), encoding="utf-8")
    return path


def test_every_view_opens_by_its_tab_and_by_its_key(page):
    tabs = page.js("[...document.querySelectorAll('[role=tab]')].map((tab) => tab.dataset.key.slice(4))")
    assert tabs == VIEWS
    for number, view in enumerate(VIEWS, 1):
        page.click(f"[data-key=tab-{view}]")
        assert page.js("document.querySelector('[aria-selected=true]').dataset.key") == f"tab-{view}"
        assert page.js("document.querySelector('#view').childElementCount") > 0
        page.key(str(number % len(VIEWS) + 1))
        following = VIEWS[number % len(VIEWS)]
        assert page.js("document.querySelector('[aria-selected=true]').dataset.key") == f"tab-{following}"


def test_lines_show_the_weights_of_the_token_pointed_at(page, given):
    weights = given.attentions[2].array()
    page.point("[data-key=rows-3]")
    assert page.texts(".tokens.to .number") == [shown(one) for one in weights.mean(0)[3]]
    page.click("[data-key=head-1]")
    page.point("[data-key=rows-3]")
    assert page.texts(".tokens.to .number") == [shown(one) for one in weights[1, 3]]
    page.click("[data-key=head-2]")
    page.point("[data-key=columns-0]")
    assert page.texts(".tokens.from .number") == [shown(one) for one in weights[1:, :, 0].mean(0)]
    assert page.texts(".figures .number")[0] == shown(weights[1:, :, 0].mean(0).max())


def test_layers_heads_and_words_are_chosen_by_key(page, given):
    page.key("ArrowUp")
    assert page.js("document.querySelector('select[data-key=attention]').value") == "1"
    page.key("ArrowRight")
    assert page.js("document.querySelector('[data-key=head-0]').ariaPressed") == "true"
    assert page.js("document.querySelector('[data-key=head-1]').ariaPressed") == "false"
    page.key("ArrowDown")
    page.key("w")
    assert page.texts(".tokens.from bdi") == ["L'", "animal", "dormait"]
    sides = (given.source, given.target)
    weights = merge(given.attentions[2].weights, *(side.word_of for side in sides), sources=3, targets=3)
    page.point("[data-key=rows-2]")
    assert [float(one) for one in page.texts(".tokens.to .number")] == pytest.approx(weights[0, 2].tolist(), abs=6e-4)


@pytest.fixture
def crowded(browser, tmp_path):
    path = tmp_path / "page.html"
    path.write_text(render(documents.many_heads()), encoding="utf-8")
    page = browser.page(path)
    yield page
    assert page.complaints() == []
    page.close()


def pressed(page):
    return page.js("[...document.querySelectorAll('.chip[aria-pressed=true]')].map((one) => one.dataset.key.slice(5))")


def test_twelve_heads_open_as_the_lines_of_one_and_the_page_says_so(crowded):
    assert pressed(crowded) == ["0"]
    assert "Opened with head 0 of 12: click others to add them, or all." in crowded.text("nav")
    assert crowded.texts(".head-key li")[:2] == ["head 0", "weight 0.1"]
    crowded.click("[data-key=tab-map]")  # one map of all of them can be read
    assert pressed(crowded) == ["all", *map(str, range(12))]
    crowded.click("[data-key=tab-heads]")
    crowded.click("[data-key=head-7]")
    assert pressed(crowded) == ["0", "7"]
    assert "Opened with" not in crowded.text("nav")
    crowded.click("[data-key=tab-map]")  # what was chosen stays chosen
    assert pressed(crowded) == ["0", "7"]
    crowded.click("[data-key=tab-heads]")
    crowded.click("[data-key=head-all]")
    assert len(crowded.texts(".head-key li")) == 12 + 4
    assert "heads=all" in crowded.js("location.hash")


def test_lines_of_all_heads_look_unlike_and_each_head_looks_as_it_does_elsewhere(crowded):
    looks = """[...document.querySelectorAll('%s')].map((one) => {
        const style = getComputedStyle(one);
        return [style.stroke, style.strokeDasharray].join(' ');
    })"""
    crowded.click("[data-key=head-all]")
    keys = crowded.js(looks % ".head-key .swatch line")[:12]
    assert len(set(keys)) == 12
    assert set(crowded.js(looks % ".lines path")) == set(keys)
    assert crowded.js(looks % ".head-chip .swatch line") == keys
    crowded.choose("select[data-key=attention]", 1)  # heads 1, 4, 7 and 10
    assert crowded.js(looks % ".head-key .swatch line")[:4] == keys[1::3]
    assert crowded.texts(".head-key li")[:4] == ["head 1", "head 4", "head 7", "head 10"]


def test_the_saved_lines_say_which_head_is_which(crowded):
    crowded.js("URL.createObjectURL = (blob) => (blob.text().then((text) => (window.saved = text)), 'data:,')")
    crowded.click("[data-key=head-9]")
    crowded.click("[data-key=save-svg]")
    saved = crowded.wait("window.saved")
    assert ">head 0<" in saved
    assert ">head 9<" in saved
    assert ">weight 0.5<" in saved


def test_names_of_items_and_classes_are_written_as_they_are(browser, tmp_path):
    items, chosen = ("⟨end⟩", "item 0: 31", "item 1: 4"), ("item 1: 4", "item 0: 31", "⟨end⟩")
    weights = np.full((1, 3, 3), 1 / 3)
    candidates = tuple(tuple(Candidate(piece=one, probability=0.3) for one in items) for _ in chosen)
    pointed = Sentence(
        source=Side(text="31; 4", pieces=items, names=True),
        target=Side(text="4; 31", pieces=chosen, names=True),
        attentions=(AttentionMap(name="pointing", kind="cross", rows="target", columns="source", weights=weights),),
        candidates=candidates,
    )
    classed = Sentence(
        source=Side(text="a b", pieces=("a", " b", "c")),
        attentions=(AttentionMap(name="self", kind="self", rows="source", columns="source", weights=weights),),
        answers=(Candidate(piece="not entailment", probability=0.9), Candidate(piece="entailment", probability=0.1)),
        edited=(Edited(attention="self", head=0, log_prob=-1.0, probabilities=(0.5, 0.5), text="entailment"),),
    )
    (tmp_path / "page.html").write_text(render(Document(title="t", sentences=(pointed, classed))), encoding="utf-8")
    page = browser.page(tmp_path / "page.html")
    assert page.texts(".tokens.from bdi") == list(chosen)
    assert page.texts(".tokens.to bdi") == list(items)
    page.point("[data-key=rows-0]")
    assert set(page.texts(".figures bdi")) == set(items)
    page.click("[data-key=tab-decoding]")
    assert "item 1: 4" in page.texts(".distribution bdi")
    assert "·" not in page.text("#view")
    page.choose("select[data-key=sentence]", 1)
    page.click("[data-key=tab-heads]")
    assert page.texts(".tokens.to bdi") == ["a", "·b", "c"]  # white space in a piece of text is still marked
    page.click("[data-key=tab-edits]")
    page.click(".square")
    assert "not entailment" in page.texts(".edited bdi")
    assert page.complaints() == []
    page.close()


def test_words_drawn_on_a_plane_do_not_lie_over_each_other(browser, tmp_path):
    generator = np.random.default_rng(0)
    odd = ("WWWW", "mammoth", "Tuesday", "東京", "Москва", "@@@@", "iiii", "internationalisation", "___", "ÄÖÜ")
    words = [*odd, *"abcdefgh"]
    points = generator.normal(size=(len(words), 2)) * [1, 0.05]
    (tmp_path / "words.svg").write_text(words_on_a_plane(words, points, "note"), encoding="utf-8")
    page = browser.page(tmp_path / "words.svg")
    boxes = page.js(
        "[...document.querySelectorAll('text, circle')].map((one) => one.getBBox())"
        ".map((box) => [box.x, box.y, box.x + box.width, box.y + box.height])"
    )
    page.close()
    assert len(boxes) == 2 * len(words) + 1
    texts, dots = [*boxes[1:-1:2], boxes[-1]], boxes[:-1:2]
    for place, (left, top, right, bottom) in enumerate(texts):
        for other in (*texts[:place], *dots):
            across = min(right, other[2]) - max(left, other[0])
            down = min(bottom, other[3]) - max(top, other[1])
            assert across <= 0.5 or down <= 0.5


def test_the_map_reads_out_cells_and_outlines_the_gold(page, given):
    weights = given.attentions[2].array()
    page.click("[data-key=tab-map]")
    assert page.texts("svg.map text.figure") == [shown(one) for one in weights.mean(0).flat if one >= 0.0005]
    gold = sum(
        (given.source.word_of[column], given.target.word_of[row]) in given.alignment
        for row in range(6)
        for column in range(5)
    )
    assert page.js("document.querySelectorAll('svg.map .gold').length") == gold
    page.js("document.querySelector('svg.map').focus()")
    page.key("ArrowDown", shift=True)
    page.key("ArrowRight", shift=True)
    assert page.text(".readout") == f"“ani” looks at “ani”: {shown(weights.mean(0)[1, 1])}, aligned in the gold"


def test_a_thumbnail_opens_its_head_in_the_map(page, given):
    page.click("[data-key=tab-grid]")
    assert page.js("document.querySelectorAll('.thumbnail').length") == 9
    page.click("[data-key=thumbnail-0-2]")
    assert page.js("document.querySelector('select[data-key=attention]').value") == "0"
    assert page.text(".readout").startswith("encoder.0.attention, head 2")
    assert page.texts("svg.map text.figure")[0] == shown(given.attentions[0].array()[2, 0, 0])


def test_the_text_is_shaded_by_the_weights_of_the_chosen_word(page, given):
    weights = given.attentions[2].array()
    page.click("[data-key=tab-text]")
    page.click("[data-key=word-1]")
    page.away()
    marks = "[...document.querySelectorAll('.shade')].map((one) => one.dataset.weight)"
    assert page.js(marks) == [shown(one) for one in weights.mean(0)[1]]
    page.click("[data-key=text-heads]")
    page.away()
    assert page.js(marks) == [shown(one) for one in weights[:, 1].flat]
    page.click("[data-key=text-rows]")
    page.away()
    assert page.js(marks) == [shown(one) for one in weights.mean(0).flat]
    deep = page.js("[...document.querySelectorAll('.shade')].map((one) => getComputedStyle(one).backgroundColor)")
    darkness = [-sum(map(int, re.findall(r"\d+", one))) for one in deep]
    assert np.argmax(darkness) == np.argmax(weights.mean(0))


def test_neurons_give_the_softmax_in_six_steps(page, given):
    attention = given.attentions[2]
    vectors = attention.neurons.arrays()
    page.click("[data-key=head-1]")
    page.click("[data-key=tab-neurons]")
    page.choose("[data-key=neuron-token]", 4)
    dots = vectors["k"][1] @ vectors["q"][1, 4]
    assert [float(one) for one in page.texts("td.score")] == pytest.approx(dots.tolist(), abs=6e-3)
    scaled = dots * attention.neurons.scale
    assert [float(one) for one in page.texts("td.scaled")] == pytest.approx(scaled.tolist(), abs=6e-4)
    assert page.texts("td.weight") == [shown(one) for one in attention.array()[1, 4]]
    assert page.texts("td.weight") == [shown(one) for one in np.exp(scaled) / np.exp(scaled).sum()]
    hidden = "[...new Set([...document.querySelectorAll('.unseen')].map((one) => one.dataset.step))].sort().join('')"
    for step in range(1, 7):
        page.click(f"[data-key=step-{step}]")
        assert page.js(hidden) == "23456"[step - 1 :]
    page.click("[data-key=play]")
    assert page.js(hidden) == "23456"
    page.wait(f"({hidden}) === '3456'")


def test_a_weight_written_by_hand_changes_the_output(page, given):
    attention = given.attentions[2]
    page.click("[data-key=head-1]")
    page.click("[data-key=tab-neurons]")
    page.choose("[data-key=neuron-token]", 4)
    own = attention.array()[1, 4].astype(float)
    page.click("[data-key=weight-2]")
    for key in ("0", ".", "7", "Enter"):  # what was there is selected, so that typing replaces it
        page.key(key)
    written = own / (1 - own[2]) * 0.3
    written[2] = 0.7
    assert [float(one) for one in page.texts("td.weight")] == pytest.approx(written.tolist(), abs=6e-4)
    values = attention.neurons.arrays()["v"][1].astype(float)
    one, other = own @ values, written @ values
    likeness = one @ other / np.sqrt((one @ one) * (other @ other))
    assert float(re.search(r"own is (-?[\d.]+)\.", page.text(".hand")).group(1)) == pytest.approx(likeness, abs=6e-4)
    page.click("[data-key=hand-back]")
    assert page.texts("td.weight") == [shown(one) for one in own]


def test_a_causal_mask_is_said_in_the_neurons(page):
    page.choose("select[data-key=attention]", 1)
    page.click("[data-key=tab-neurons]")
    page.choose("[data-key=neuron-token]", 1)
    assert page.texts("td.weight")[3:] == ["hidden"] * 3


def test_a_token_kept_in_one_view_is_kept_in_all(page):
    page.click("[data-key=rows-4]")
    page.click("[data-key=tab-text]")
    page.away()
    assert page.text(".word[aria-pressed=true]") == "mait"
    page.click("[data-key=tab-neurons]")
    assert page.js("document.querySelector('[data-key=neuron-token]').value") == "4"
    # What the decoder reads lies one piece behind.
    page.choose("select[data-key=attention]", 1)
    page.click("[data-key=tab-heads]")
    page.away()
    assert page.text(".token[aria-pressed=true] bdi") == "mait"
    page.click("[data-key=tab-map]")
    assert page.texts(".label.pinned") == ["mait"]


def test_decoding_shows_each_step_as_the_document_has_it(page, given):
    page.click("[data-key=tab-decoding]")
    page.click("[data-key=grown-3]")
    page.away()
    assert page.js("document.querySelectorAll('.word.later').length") == 2
    weights = given.attentions[2].array().mean(0)
    marks = "[...document.querySelectorAll('.shade')].map((one) => one.dataset.weight)"
    assert page.js(marks) == [shown(one) for one in weights[3]]
    model, target = (page.texts(f".distribution .share.{kind} .number") for kind in ("model", "target"))
    assert (model, target) == (["0.600", "0.300", "0.100"], ["1.000", "0.000", "0.000"])
    assert "Loss of this step: 0.511 nats" in page.text(".distribution p")
    assert page.js("document.querySelectorAll('.vectors tbody tr').length") == 4
    assert page.js("document.querySelectorAll('.vectors tbody canvas').length") == 8
    branches = page.js("[...document.querySelectorAll('.twig')].map((one) => one.getAttribute('class').slice(5))")
    fates = [["best" if one.best else one.fate for one in step] for step in given.decoding.beam[:4]]
    assert branches == [fate for step in fates for fate in step]
    title = page.text(".twig[data-step='2'][data-branch='3'] title")
    assert title == f"{MARKUP.replace(' ', '·')}: -3.300, pruned"
    page.click(".twig.best[data-step='1']")
    page.click("[data-key=tab-text]")
    page.away()
    assert page.text(".word[aria-pressed=true]") == "ani"


def test_a_model_that_copies_shows_at_each_step_how_much_it_writes_and_which_pieces_it_copied(page, given):
    page.click("[data-key=tab-decoding]")
    page.click("[data-key=grown-3]")
    page.away()
    assert page.texts(".mixture .share .number") == ["0.250", "0.750"]
    assert f"Of the probability of {given.target.pieces[3]}, 0.150 was written and 0.450 copied" in page.text(
        ".mixture p"
    )
    assert page.js("[...document.querySelectorAll('.word.copied')].map((one) => one.dataset.key)") == ["grown-3"]
    page.click("[data-key=grown-0]")
    page.away()
    assert page.texts(".mixture .share .number") == ["0.900", "0.100"]


def test_decoding_can_be_played(page):
    page.click("[data-key=tab-decoding]")
    page.click("[data-key=decoding-play]")
    page.wait("document.querySelector('.word[aria-pressed=true]').dataset.key === 'grown-1'")
    page.click("[data-key=tab-heads]")


def test_when_a_head_is_changed_the_output_changes_on_the_page(page, given):
    page.click("[data-key=tab-edits]")
    whole = 6 * np.log(0.6)
    for kind in ("even", "swapped", "masked"):
        page.click(f"[data-key=kind-{kind}]")
        costs = [shown(one.log_prob - whole, 2) for one in given.edited if one.edit == kind]
        assert page.texts(".square small") == costs
        page.click("[data-key=edit-1]")
        assert page.texts(".said-changed mark") == ["Le", "chat", kind]
    assert page.text("[data-key=kind-swapped]") == "As on sentence 2"
    assert page.texts(".edited .share.target .number") == ["0.500"] * 6
    page.click("[data-key=edit-0]")
    assert "still says the same" in page.text(".edited")


def test_positions_turn_and_are_alike(page):
    page.click("[data-key=tab-positions]")
    assert float(page.text(".turn-error").split()[-1]) < 1e-6
    assert page.js("document.querySelectorAll('.circle').length") == 4
    page.choose("[data-key=place-offset]", 7)
    assert page.text(".circles figcaption") == f"pair 0: {shown(np.degrees(7), 1)}°"
    page.choose("[data-key=place-table]", 1)
    assert "promise no turn" in page.text("#view")
    page.choose("[data-key=place-table]", 2)
    assert page.texts(".chart .name") == ["head 1", "head 0"]


def test_training_shows_measures_at_each_checkpoint(page):
    page.click("[data-key=tab-history]")
    assert page.texts(".history tbody td")[:6] == ["1.500", "1.000", "0.000", "1.500", "1.000", "0.250"]
    page.choose("[data-key=measure]", "weight on the aligned")
    assert page.texts(".history tbody td")[:3] == ["0.100", "0.200", "0.300"]


def test_a_picture_is_lit_where_a_patch_looks(browser, tmp_path):
    document = documents.picture()
    path = tmp_path / "picture.html"
    path.write_text(render(document), encoding="utf-8")
    page = browser.page(f"{path.as_uri()}#view=patches&attention=1")
    (seen,) = document.sentences
    lit = "document.querySelector('.lit').dataset.weights.split(' ')"
    assert page.js(lit) == [shown(one) for one in seen.attentions[1].array().mean(0)[0, 1:]]
    x, y = page.middle(".lit")
    page.mouse("mouseMoved", x + 40, y)  # row 2, column 3: piece 7
    assert page.js(lit) == [shown(one) for one in seen.attentions[1].array().mean(0)[7, 1:]]
    page.js("document.querySelector('[data-key=picture]').focus()")
    for key in ("ArrowRight", "ArrowRight", "ArrowDown"):  # onto the first patch, to its right, below: piece 6
        page.key(key, shift=True)
    page.away()
    assert page.js(lit) == [shown(one) for one in seen.attentions[1].array().mean(0)[6, 1:]]
    page.click("[data-key=special-0]")
    page.click("[data-key=rollout]")
    page.away()
    assert page.js(lit) == [shown(one) for one in seen.rollout.array()[1, 0, 1:]]
    assert page.js("document.querySelector('.lit img').naturalWidth") == 16
    assert page.complaints() == []
    assert [one for one in page.requests() if not one.startswith("data:")] == []
    page.close()


def test_a_picture_is_lit_where_each_word_of_its_caption_looked(browser, tmp_path):
    document = documents.caption()
    path = tmp_path / "caption.html"
    path.write_text(render(document), encoding="utf-8")
    (seen,) = document.sentences
    lit = "document.querySelector('.lit').dataset.weights.split(' ')"
    # An attention within the caption lights nothing: the one to the image does in its place.
    for number in (2, 1):
        page = browser.page(f"{path.as_uri()}#view=patches&attention={number}")
        for word in (1, 0):
            page.click(f"[data-key=special-{word}]")
            page.away()
            assert page.js(lit) == [shown(one) for one in seen.attentions[2].array().mean(0)[word]]
        assert "a” looks most at" in page.text(".readout")
        assert page.complaints() == []
        page.close()


@pytest.mark.parametrize(("made", "view"), [(documents.sound, "Sound"), (documents.caption, "Image")])
def test_a_page_of_a_sound_or_an_image_opens_with_it(made, view, browser, tmp_path):
    (tmp_path / "page.html").write_text(render(made()), encoding="utf-8")
    page = browser.page((tmp_path / "page.html").as_uri())
    assert page.texts("[role=tab][aria-selected=true]") == [view]
    page.close()


def test_a_sound_is_lit_where_each_piece_listened_and_a_word_plays_its_stretch(browser, tmp_path):
    document = documents.sound()
    path = tmp_path / "sound.html"
    path.write_text(render(document), encoding="utf-8")
    (seen,) = document.sentences
    lit = "document.querySelector('.track').dataset.weights.split(' ')"
    # An attention within the text lights nothing: the one to the sound does in its place.
    page = browser.page(f"{path.as_uri()}#view=sound&attention=0")
    # What is played is heard of here, since a browser of tests may have no sound of its own.
    page.js(
        "window.played = []; HTMLMediaElement.prototype.play = function () {"
        " window.played.push(this.currentTime); return Promise.reject(new Error()); }; 0"
    )
    for piece in (1, 0):
        page.click(f"[data-key=piece-{piece}]")
        page.away()
        assert page.js(lit) == [shown(one) for one in seen.attentions[1].array().mean(0)[piece]]
    assert page.js("window.played.map((one) => one.toFixed(1))") == ["0.4", "0.2"]
    assert "one” listens most from" in page.text(".readout")
    assert page.texts("[aria-label='words by time'] span") == ["one", "two"]
    assert page.texts("[aria-label='pieces by CTC'] span") == ["one", "two"]
    # Beside CTC's alignment stands that of the attention: where each step listened most.
    assert page.texts("[aria-label='pieces by attention'] span") == list(seen.target.pieces)
    shares = page.js(
        "[...document.querySelectorAll(`[aria-label='pieces by attention'] span`)].map((one) => one.style.left)"
    )
    assert shares == [f"{20 * most}%" for most in seen.attentions[1].array().mean(0).argmax(1)]
    assert page.js("document.querySelectorAll('.small-tracks .track').length") == 2
    assert page.js("document.querySelector('.track img').naturalWidth") == 16
    assert page.complaints() == []
    assert [one for one in page.requests() if not one.startswith("data:")] == []
    page.close()


def test_a_tree_is_drawn_and_its_words_are_shaded_where_a_bracket_looked(browser, tmp_path):
    document = documents.parse()
    path = tmp_path / "parse.html"
    path.write_text(render(document), encoding="utf-8")
    (seen,) = document.sentences
    labels = "[...document.querySelectorAll('.parse .node')].map((node) => node.textContent)"
    shades = "[...document.querySelectorAll('.parse .shade')].map((shade) => shade.style.opacity)"
    # An attention within the sentence shades nothing: the one from the tree to the words does in its place.
    for number in (1, 0):
        page = browser.page(f"{path.as_uri()}#view=trees&attention={number}")
        assert page.js(labels) == ["S", "NP", "DT", "NN", "VBZ"]
        for node in (3, 1):
            page.click(f".parse [data-node='{node}']")
            page.away()
            row = seen.attentions[1].array().mean(0)[seen.tree[node].step]
            assert [float(one) for one in page.js(shades)] == pytest.approx([*row[2:]], abs=6e-4)
        assert "Writing NP, the model looked most at" in page.text(".readout")
        assert page.complaints() == []
        page.close()


def test_markup_in_a_token_is_shown_and_never_run(page):
    assert MARKUP in page.text("h1")
    page.choose("select[data-key=sentence]", 1)
    assert page.text(".text dd") == MARKUP
    for view in PLAIN:
        page.click(f"[data-key=tab-{view}]")
        assert page.js("document.querySelectorAll('#page img, #page script').length") == 0
        if view in ("heads", "map", "text", "neurons"):
            # Spaces have marks; the rest of a piece is as it came.
            assert MARKUP.replace(" ", "·") in page.text("#view")
    assert MARKUP in page.js("document.title")


def test_the_address_brings_a_view_back(browser, file):
    page = browser.page(f"{file.as_uri()}#view=text&sentence=0&attention=0&heads=2&words=1&pin=source.3")
    assert page.text(".word[aria-pressed=true]") == "slept"
    assert page.text(".line-name") == "head 2"
    page.close()
    page = browser.page(f"{file.as_uri()}#view=none&sentence=9&attention=x&heads=99&pin=source.99")
    assert page.js("document.querySelector('[aria-selected=true]').dataset.key") == "tab-heads"
    assert page.complaints() == []
    page.close()


def test_every_view_saves_itself_as_a_drawing_with_its_text(page):
    page.js("URL.createObjectURL = (blob) => ((globalThis.saved = blob), 'blob:none')")
    page.js("HTMLAnchorElement.prototype.click = function () { globalThis.savedAs = this.download; }")
    for view in VIEWS:
        page.click(f"[data-key=tab-{view}]")
        page.js("globalThis.saved = null")
        page.click("[data-key=save-svg]")
        text = page.js("globalThis.saved.text()")
        assert page.js("globalThis.savedAs").startswith(view)
        broken = f"new DOMParser().parseFromString({text!r}, 'image/svg+xml').querySelector('parsererror')"
        assert page.js(f"{broken} === null")
        assert ("slept" in text) == (view in ("heads", "map", "text", "neurons", "decoding"))
        assert "class=" not in text


def test_every_view_saves_itself_as_pixels(page):
    page.js("URL.createObjectURL = (blob) => ((globalThis.saved = blob), 'blob:none')")
    page.js("HTMLAnchorElement.prototype.click = function () { globalThis.savedAs = this.download; }")
    decode = """(async () => {
      const picture = await createImageBitmap(globalThis.saved);
      const canvas = new OffscreenCanvas(picture.width, picture.height);
      const context = canvas.getContext("2d");
      context.drawImage(picture, 0, 0);
      const { data } = context.getImageData(0, 0, picture.width, picture.height);
      return [picture.width, picture.height, new Set(new Uint32Array(data.buffer)).size];
    })()"""
    for view in VIEWS:
        page.click(f"[data-key=tab-{view}]")
        page.js("globalThis.saved = null")
        page.click("[data-key=save-png]")
        page.wait("globalThis.saved !== null")
        assert page.js("globalThis.savedAs").startswith(view)
        assert page.js("globalThis.savedAs").endswith(".png")
        assert page.js("globalThis.saved.type") == "image/png"
        width, height, colours = page.js(decode)
        view = "document.getElementById('view')"
        box = page.js(f"[{view}.getBoundingClientRect().width, {view}.scrollHeight]")
        assert (width, height) == (2 * math.ceil(box[0]), 2 * math.ceil(box[1]))
        assert colours > 10  # something is drawn, smoothly
    assert page.complaints() == []


def test_a_frame_in_a_notebook_shows_the_same_page(browser, tmp_path):
    path = tmp_path / "notebook.html"
    path.write_text(f"<!doctype html><title>n</title><body>{framed(documents.small())}</body>", encoding="utf-8")
    page = browser.page(path)
    assert page.js("document.querySelector('iframe').sandbox.value") == "allow-scripts allow-downloads"
    assert page.complaints() == []
    assert page.js("document.title") == "n"
    targets = browser.call("Target.getTargets")["targetInfos"]
    (frame,) = [one for one in targets if one["type"] == "iframe" and one.get("parentId") == page.target]
    session = browser.call("Target.attachToTarget", targetId=frame["targetId"], flatten=True)["sessionId"]
    count = {"expression": "document.querySelectorAll('.token').length", "returnByValue": True}
    assert browser.call("Runtime.evaluate", session, **count)["result"]["value"] == 6  # words of both sides
    page.close()


def test_a_thousand_tokens_are_drawn_in_tiles_and_read_head_by_head(browser, long_file):
    page = browser.page(f"{long_file.as_uri()}#view=map&attention=1&heads=2", width=1000, height=800)
    weights = documents.long().sentences[0].attentions[1].array()
    data = "document.querySelector('canvas.tiled').dataset"
    page.wait(f"{data}.frames > 0")
    made = int(page.js(f"{data}.made"))
    assert made <= 16
    page.js("document.querySelector('canvas.tiled').focus()")
    for _ in range(9):
        page.key("+")
    frames = int(page.wait(f"{data}.frames"))
    x, y = page.middle("canvas.tiled")
    page.mouse("mousePressed", x, y, button="left", clickCount=1)
    for step in range(1, 11):
        page.mouse("mouseMoved", x - 12 * step, y - 9 * step, button="left", buttons=1)
    page.wait(f"{data}.frames > {frames}")
    # Work a frame: the few tiles in sight, and no new ones but for those that came into it.
    assert int(page.js(f"{data}.tiles")) <= 4
    assert int(page.js(f"{data}.made")) <= made + 16
    page.mouse("mouseReleased", x - 120, y - 90, button="left", clickCount=1)
    page.mouse("mouseMoved", x, y)
    row, column, number = re.fullmatch(r"“w(\d+)” looks at “w(\d+)”: (.+)", page.text(".readout")).groups()
    assert number == shown(weights[2, int(row), int(column)])
    # A click keeps a row, and the part of the map that is seen.
    page.click("canvas.tiled")
    assert "pin=source." in page.js("location.hash")
    assert int(page.js(f"{data}.tiles")) <= 4
    assert page.complaints() == []
    page.close()


def test_a_thousand_tokens_as_lines_are_only_drawn_where_they_are_seen(browser, long_file):
    page = browser.page(f"{long_file.as_uri()}#view=heads&attention=1&heads=2", width=1000, height=800)
    weights = documents.long().sentences[0].attentions[1].array()
    assert page.js("document.querySelectorAll('.token').length") < 120
    page.js("document.querySelector('.window').scrollTop = 13000")
    page.wait("document.querySelector('.token[data-index=\"505\"]') !== null")
    page.point(".from .token[data-index='505']")
    shown_there = page.js(
        "[...document.querySelectorAll('.to .token')].map((one) => [one.dataset.index, one.textContent])"
    )
    for index, text in shown_there:
        assert text == f"w{index}{shown(weights[2, 505, int(index)])}"
    page.click("[data-key=tab-text]")
    page.click("[data-key=text-rows]")
    assert page.js("document.querySelectorAll('.shaded-line').length") == 24
    page.click("[data-key=tab-grid]")
    page.wait("[...document.querySelectorAll('.thumbnail canvas')].every((one) => one.width > 0 && one.width < 300)")
    assert page.complaints() == []
    page.close()


def test_dark_follows_the_system(browser, file):
    pages = [browser.page(file, dark=dark) for dark in (False, True)]
    colours = [page.js("getComputedStyle(document.body).backgroundColor") for page in pages]
    assert colours == ["rgb(255, 255, 255)", "rgb(18, 22, 29)"]
    for page in pages:
        page.close()
