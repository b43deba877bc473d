"""The page in a real browser: recurrence over time, a phone, a lectern, and two models side by side."""

import dataclasses

import documents
import numpy as np
import pytest

from regard.errors import DataError
from regard.look import tracking
from regard.look.calculator import calculator
from regard.look.document import Sentence
from regard.look.page import render, side_by_side


def opened(browser, tmp_path, document, state="", **size):
    path = tmp_path / "page.html"
    path.write_text(document if isinstance(document, str) else render(document), encoding="utf-8")
    return browser.page(f"{path.as_uri()}#{state}", **size)


def finished(page):
    assert page.complaints() == []
    assert page.requests() == []
    page.close()


def test_a_model_without_attention_opens_as_states_that_flow_into_one_vector(browser, tmp_path):
    page = opened(browser, tmp_path, documents.recurrent())
    tabs = page.js("[...document.querySelectorAll('[role=tab]')].map((tab) => tab.dataset.key.slice(4))")
    assert tabs == ["flow", "units", "decoding"]
    assert "all 4 steps in 8 numbers" in page.text(".summary h4")
    later = "[...document.querySelectorAll('.moment')].map((one) => one.querySelectorAll('.later').length)"
    page.click("[data-key=moment-source-1]")
    # Two of four pieces are read: forward the first two, backward the last two; nothing is written.
    assert page.js(later) == [1, 1, 1, 1, 2, 2, 2]
    assert page.js("document.querySelector('.summary').classList.contains('later')")
    for _ in range(3):
        page.key("ArrowRight")
    assert "one vector is left" in page.text(".steps")
    page.key("ArrowRight")
    page.key("ArrowRight")
    assert page.js(later) == [0, 0, 0, 0, 0, 0, 2]
    assert page.text(".moment[aria-pressed=true] small") == "→ y"
    assert page.texts(".distribution bdi") == ["y"]
    page.click("[data-key=flow-play]")
    page.wait("document.querySelector('.moment[aria-pressed=true]')?.dataset.key === 'moment-source-0'")
    finished(page)


def test_units_are_sorted_by_what_they_track_and_read_along_the_text(browser, tmp_path):
    document = documents.recurrent()
    page = opened(browser, tmp_path, document, "view=units")
    (seen,) = document.sentences
    values = {part.name: part.array() for part in seen.recurrences[0].parts}
    assert page.js("document.querySelector('[data-key=unit-part]').value") == "c"
    page.choose("[data-key=unit-sort]", "tracks inside quotes")
    found = tracking(values["c"], seen.features[0].values)
    order = sorted(range(6), key=lambda unit: -abs(found[unit]))
    assert order[0] == 3
    chips = page.js("[...document.querySelectorAll('.chips .chip')].map((one) => one.textContent)")
    assert chips[0] == "unit 3 -1.00"
    assert [float(chip.split()[2]) for chip in chips] == pytest.approx([found[unit] for unit in order], abs=6e-3)
    marks = "[...document.querySelector('.unit-text').children].map((one) => Number(one.dataset.value))"
    assert page.js(marks) == pytest.approx(values["c"][:, 3].tolist(), abs=6e-4)
    page.choose("[data-key=unit-part]", "f")
    page.choose("[data-key=unit-sort]", "mean")
    order = np.argsort(-values["f"].mean(0))
    assert page.js("document.querySelector('.chips .chip').textContent").startswith(f"unit {order[0]} ")
    page.js("document.querySelector('[data-key=unit-search]').value = '5'")
    page.js("document.querySelector('[data-key=unit-search]').dispatchEvent(new Event('change'))")
    page.settle()
    assert page.js(marks) == pytest.approx(values["f"][:, 5].tolist(), abs=6e-4)
    page.js("document.querySelector('[data-key=unit-search]').value = '77'")
    page.js("document.querySelector('[data-key=unit-search]').dispatchEvent(new Event('change'))")
    assert "no unit 77: they run from 0 to 5" in page.text(".readout")
    finished(page)


@pytest.mark.parametrize(
    "make",
    [
        *(documents.small, documents.recurrent, documents.many_heads, documents.picture, documents.caption),
        *(documents.sound, documents.parse, calculator),
    ],
)
def test_a_phone_scrolls_no_view_sideways_and_is_told_to_tap(browser, tmp_path, make):
    page = opened(browser, tmp_path, make())
    page.phone()
    for tab in page.js("[...document.querySelectorAll('[role=tab]')].map((tab) => tab.dataset.key)"):
        page.js(f"document.querySelector('[data-key={tab}]').click()")
        page.settle()
        assert page.js("document.scrollingElement.scrollWidth") <= 390, tab
        assert page.js("document.querySelectorAll('kbd').length") == 0
        words = page.text(".help") + page.text("#view")
        assert not [word for word in ("Click", "click", "Point at", "Rest on", "arrow keys") if word in words], tab
        # "Tap it again" only where a token, a cell or a node can be kept.
        assert ("let go" in page.text(".help")) == (" keep " in page.text(".help").split("let go")[0])
        # A chart made smaller than it was drawn has text that nobody can read.
        scale = "one.getBoundingClientRect().width / one.viewBox.baseVal.width"
        charts = f"[...document.querySelectorAll('svg.chart')].map((one) => {scale})"
        assert all(scale > 0.95 for scale in page.js(charts)), tab
        # Nor may the name of a line end beyond its chart.
        beyond = "one.getBoundingClientRect().right - one.closest('svg').getBoundingClientRect().right"
        assert all(by <= 0 for by in page.js(f"[...document.querySelectorAll('.chart .name')].map((one) => {beyond})"))
    finished(page)


def test_cards_of_neurons_on_a_phone_are_named_by_what_they_show(browser, tmp_path):
    page = opened(browser, tmp_path, documents.small(), "view=neurons")
    named = "[...document.querySelectorAll('.neurons thead tr:first-child th')].map((one) => one.textContent)"
    columns = ["token", "key k", "q × k", "score", "scaled", "softmax", "weight × v"]
    assert page.js(named) == columns
    assert page.js("document.querySelector('.neurons tbody tr').children.length") == len(columns)
    page.phone()
    labels = "[...document.querySelectorAll('.neurons SELECTOR td[data-label]')].map((one) => one.dataset.label)"
    assert page.js(labels.replace("SELECTOR", "thead")) == ["q"]
    first = page.js(labels.replace("SELECTOR", "tbody tr:first-child"))
    assert first == ["k", "q × k", "score", "scaled", "softmax", "weight × v"]
    finished(page)
    page = opened(browser, tmp_path, calculator())  # raw scores have no query to show
    page.phone()
    assert page.js("getComputedStyle(document.querySelector('.neurons thead .query')).display") == "none"
    assert page.texts(".text dt") == ["Example"]
    assert page.js("document.querySelectorAll('[data-key=attention], [data-key=words]').length") == 0
    finished(page)


def test_whole_words_are_offered_where_a_view_joins_them(browser, tmp_path):
    page = opened(browser, tmp_path, documents.small())
    for tab in page.js("[...document.querySelectorAll('[role=tab]')].map((tab) => tab.dataset.key)"):
        page.click(f"[data-key={tab}]")
        joins = tab in ("tab-heads", "tab-map", "tab-grid", "tab-text")
        assert page.js("document.querySelectorAll('[data-key=words]').length") == joins, tab
        assert ("words" in page.texts(".keys-help")[0]) == joins, tab
    finished(page)


def test_the_arrow_of_a_selector_has_room_of_its_own(browser, tmp_path):
    page = opened(browser, tmp_path, documents.small())
    style = "getComputedStyle(document.querySelector('select[data-key=sentence]'))"
    assert page.js(f"{style}.appearance") == "none"
    # The arrow is ten pixels wide and ends seven from the edge.
    assert page.js(f"parseFloat({style}.paddingRight)") >= 7 + 10
    assert page.js(f"{style}.textOverflow") == "ellipsis"
    finished(page)


def test_pieces_are_joined_to_words_at_first_where_words_were_cut(browser, tmp_path):
    page = opened(browser, tmp_path, documents.small())
    assert page.texts(".tokens.from bdi") == ["L'", "animal", "dormait"]
    label = "document.querySelector('[data-key=words]').parentElement.textContent"
    assert page.js(label) == "Whole words without ⟨end⟩"
    page.key("w")
    assert page.js(label) == "Whole words"
    assert page.texts(".tokens.from bdi")[:3] == ["L'", "ani", "mal"]
    page.close()
    whole = documents.small().sentences[0]
    side = dataclasses.replace(whole.source, words=tuple("abcd"), word_of=(0, 1, 2, 3, None))
    plain = Sentence(source=side, attentions=whole.attentions[:1])
    page = opened(browser, tmp_path, dataclasses.replace(documents.small(), sentences=(plain,), history=None))
    assert len(page.texts(".tokens.from bdi")) == 5  # nothing to join, and the end is not left out
    finished(page)


def test_a_presenter_steps_through_one_view_at_a_time(browser, tmp_path):
    page = opened(browser, tmp_path, documents.small(), "words=0")
    page.key("p")
    assert page.js("document.documentElement.classList.contains('presenting')")
    assert page.text(".lectern h1") == "Lines"
    assert page.js("document.querySelectorAll('.text, [role=tab], kbd').length") == 0
    size = "document.querySelector('.token bdi').getBoundingClientRect().height"
    large = page.js(size)
    page.key("ArrowRight")
    page.key("ArrowRight")
    assert page.text(".token.isolated bdi") == "ani"
    page.key("ArrowLeft")
    assert page.text(".token.isolated bdi") == "L'"
    for view in ("Map", "All heads", "Text", "Neurons"):
        page.key("ArrowDown")
        assert page.text(".lectern h1") == view
    hidden = "[...new Set([...document.querySelectorAll('.unseen')].map((one) => one.dataset.step))].sort().join('')"
    page.key("ArrowRight")
    assert page.js(hidden) == "23456"
    page.key("ArrowRight")
    assert page.js(hidden) == "3456"
    assert "present=1" in page.js("location.hash")
    page.key("Escape")
    page.click("[data-key=tab-heads]")
    assert page.js(size) < large
    finished(page)


def test_a_presenters_view_is_as_large_as_the_screen_has_room_for(browser, tmp_path):
    page = opened(browser, tmp_path, documents.small(), "words=0&present=1", width=1280, height=720)
    zoom = "Number(getComputedStyle(document.querySelector('#view')).zoom)"
    fits = "document.documentElement.scrollHeight <= innerHeight"
    for view in ("Lines", "Map", "All heads", "Text"):
        assert page.text(".lectern h1") == view
        size = page.js(zoom)
        assert size >= 1.35
        assert page.js(fits) or size == 1.35, view
        page.key("ArrowRight")
        assert page.js(zoom) == size, "what stands still must not move"
        if view == "Map":  # under the pointer lies the cell that is read out
            some = ".map rect:not(.cursor):nth-of-type(14)"
            page.point(some)
            place = "document.querySelector('SELECTOR').getBoundingClientRect().toJSON()"
            cell, under = (page.js(place.replace("SELECTOR", one)) for one in (".map .cursor", some))
            assert cell["x"] == pytest.approx(under["x"], abs=3)
            assert cell["y"] == pytest.approx(under["y"], abs=3)
        page.key("ArrowDown")
    page.phone()  # in the hand nothing need be larger, and nothing is cut
    page.js("document.querySelector('[data-key=present-view]').click()")
    page.settle()
    assert page.js(zoom) == 1
    finished(page)


def test_two_models_side_by_side_show_the_same_view(browser, tmp_path):
    first = documents.small()
    second = dataclasses.replace(documents.small(), title="The other")
    page = opened(browser, tmp_path, side_by_side(first, second), width=1400)
    assert page.js("document.scrollingElement.scrollWidth") == 1400
    # A frame that reaches nothing around it has a process of its own.
    found = [one for one in browser.call("Target.getTargets")["targetInfos"] if one["type"] == "iframe"]
    sessions = [
        browser.call("Target.attachToTarget", targetId=one["targetId"], flatten=True)["sessionId"] for one in found
    ]

    def inside(session, expression):
        answer = browser.call("Runtime.evaluate", session, expression=expression, returnByValue=True, awaitPromise=True)
        return answer["result"].get("value")

    def once(session, condition):
        """Whether something comes true in a frame."""
        return inside(
            session,
            f"new Promise((done) => {{ const look = () => ({condition}) ? done(true) : setTimeout(look, 20);"
            " setTimeout(() => done(false), 8000); look(); })",
        )

    tab = "document.querySelector('[aria-selected=true]')?.dataset.key"
    titles = {}
    for session in sessions:
        assert once(session, f"{tab} === 'tab-heads'")
        titles[inside(session, "document.querySelector('h1').textContent")] = session
    other = titles.pop("The other")
    (one,) = titles.values()
    inside(one, "document.querySelector('[data-key=tab-map]').click()")
    assert once(other, f"{tab} === 'tab-map'")
    inside(other, "document.querySelector('[data-key=tab-text]').click()")
    assert once(one, f"{tab} === 'tab-text'")
    assert page.complaints() == []
    page.close()
    with pytest.raises(DataError, match="2 sentences beside 1"):
        side_by_side(first, documents.many_heads())


def written(page, key, text):
    page.js(f"document.querySelector('[data-key=typed-{key}]').value = {text!r}")


def test_the_calculator_steps_through_the_lectures_numbers_and_those_typed(browser, tmp_path):
    page = opened(browser, tmp_path, calculator())
    assert page.js("document.querySelector('[aria-selected=true]').dataset.key") == "tab-neurons"
    assert page.texts("td.score") == ["112.00", "96.00"]
    assert page.texts("td.scaled") == ["14.000", "12.000"]
    assert page.texts("td.weight") == ["0.881", "0.119"]
    assert page.texts("tfoot .numbers span") == ["0.881", "0.119"]
    assert page.texts(".keys-help") == ["1…5 view p present"]  # one head of one layer is not stepped through
    # Values that nobody typed follow the number of keys.
    written(page, "scores", "112 96 16 8")
    page.click("[data-key=typed-go]")
    assert page.texts("td.weight") == ["0.881", "0.119", "0.000", "0.000"]
    page.choose("select[data-key=sentence]", 4)  # the look-ahead mask
    page.choose("[data-key=neuron-token]", 2)
    assert page.texts("td.weight") == ["0.095", "0.128", "0.777", "hidden", "hidden", "hidden"]
    page.choose("select[data-key=sentence]", 3)
    page.choose("[data-key=neuron-token]", 0)
    assert page.texts("td.weight") == ["0.804", "0.196"]
    assert page.texts("tfoot .numbers span") == ["0.609", "0.196"]  # what the head hands on, to be read
    # Type one's own, first wrongly.
    written(page, "k", "1 1; 0")
    page.click("[data-key=typed-go]")
    assert "rows of 2 and 1 numbers" in page.text("#typed-readout")
    written(page, "k", "2 1; 0 3; 1 1")
    page.click("[data-key=typed-go]")
    assert "3 keys and 2 values" in page.text("#typed-readout")
    written(page, "v", "1;2;3")
    page.click("[data-key=typed-go]")
    page.choose("[data-key=neuron-token]", 1)
    scores = np.array([3.0, 3.0, 2.0])
    weights = np.exp(scores / 2**0.5) / np.exp(scores / 2**0.5).sum()
    assert page.texts("td.score") == ["3.00", "3.00", "2.00"]
    assert [float(one) for one in page.texts("td.weight")] == pytest.approx(weights, abs=6e-4)
    page.click("[data-key=typed-other]")  # the same as scores
    assert page.js("document.querySelector('[data-key=typed-scores]').value") == "1 3 1\n3 3 2"
    written(page, "width", "16")
    page.js("document.querySelector('[data-key=typed-causal]').checked = true")
    page.click("[data-key=typed-go]")
    page.choose("[data-key=neuron-token]", 1)
    assert page.texts("td.weight") == ["0.500", "0.500", "hidden"]
    finished(page)
