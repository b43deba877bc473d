"""Bundled scenes: many captions, held-out combinations, right words in both languages, and boxes where things are."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from regard.data.synthetic.scenes import (
    _RGB,
    HELD_OUT,
    SHAPES,
    SIDE,
    Scene,
    SceneImages,
    Thing,
    draw,
    scene,
    scenes,
)


@pytest.fixture(scope="module")
def trained():
    return list(scenes(3000))


def pairs(found):
    return {(thing.colour, thing.shape) for thing in found.things}


def test_there_are_more_than_twenty_thousand_captions(trained):
    """Of N captions, n samples have at least about n^2 / 2N that occurred before, whatever their chances."""
    texts = [one.captions()[0].text for one in trained]
    repeated = len(texts) - len(set(texts))
    assert len(texts) ** 2 / (2 * repeated) > 1.5 * 20_000


def test_no_caption_of_a_held_out_part_occurs_in_training(trained):
    texts = {one.text for found in trained for one in found.captions()[:1]}
    for part in ("valid", "test"):
        assert not texts & {one.captions()[0].text for one in scenes(50, seed=0, part=part)}
    # Which part a caption belongs to is told from its text, so that it is in one alone.
    assert {scene(seed, "test", number).captions()[0].text for seed in range(3) for number in range(10)}.isdisjoint(
        texts
    )


def test_colours_and_shapes_that_are_held_out_meet_in_their_own_part_alone(trained):
    seen = set().union(*(pairs(one) for one in trained))
    assert len(HELD_OUT) == len(SHAPES)
    assert not seen & HELD_OUT
    assert len(seen) == 36 - len(HELD_OUT)
    assert all(pairs(one) & HELD_OUT for one in scenes(100, part="combinations"))


def test_a_scene_is_a_function_of_its_seed_part_and_number(trained):
    assert scene(1, "train", 7) == trained[7]
    assert scene(2, "train", 7) != trained[7]
    assert np.array_equal(draw(trained[7]), draw(scene(1, "train", 7)))


def test_scenes_have_two_to_five_objects_that_do_not_touch(trained):
    assert {len(one.things) for one in trained} == {2, 3, 4, 5}
    assert {one.kind for one in trained} == {"left of", "above", "larger than", "row", "count"}
    for one in trained[:300]:
        taken = np.zeros((SIDE, SIDE), dtype=int)
        for left, top, right, bottom in (thing.box for thing in one.things):
            assert min(left, top) >= 0
            assert max(right, bottom) <= SIDE
            taken[top:bottom, left:right] += 1
        assert taken.max() == 1


def test_kinds_are_alike_often_and_what_is_said_is_clear_from_the_image(trained):
    counts = Counter(one.kind for one in trained)
    assert all(0.17 < count / len(trained) < 0.23 for count in counts.values())
    for one in trained:
        middles = [(group[0].x, group[0].y) for group in one.groups]
        across, down = middles[1][0] - middles[0][0], middles[1][1] - middles[0][1]
        if one.kind == "left of":
            assert across >= abs(down) + 8
        elif one.kind == "above":
            assert down >= abs(across) + 8
        elif one.kind == "row":
            assert all(then[0] - here[0] >= 8 for here, then in pairwise(middles))
        elif one.kind == "larger than":
            (large,), (small,) = one.groups
            assert (large.size, small.size) == ("large", "small")
            assert large.shape == small.shape
        if one.kind != "larger than" and len(one.things) == 2:  # else the caption would be another
            here, there = one.things
            assert here.shape != there.shape or here.size == there.size


def test_what_a_noun_names_is_drawn_in_its_boxes_and_nowhere_else(trained):
    for one in trained[:100]:
        plain = [thing for thing in one.things if thing.texture == "plain" and thing.colour in ("red", "green", "blue")]
        for thing in plain:
            near = np.abs(draw(one).astype(int) - np.array(_RGB[thing.colour])).max(-1) <= 16
            alike = [other.box for other in one.things if other.colour == thing.colour]
            assert near[thing.y, thing.x] or thing.shape == "ring"
            for left, top, right, bottom in alike:
                near[top:bottom, left:right] = False
            assert not near.any()


def test_captions_agree_in_french_and_name_every_noun():
    cross, circle = (
        Thing("cross", "white", "large", "striped", 12, 12),
        Thing("circle", "red", "small", "plain", 40, 12),
    )
    said = Scene(((cross,), (circle,)), "left of", 0)
    assert [one.text for one in said.captions()] == [
        "a large striped white cross left of a small red circle",
        "a small red circle right of a large striped white cross",
    ]
    french = said.captions("fr")
    assert french[0].text == "une grande croix blanche rayée à gauche d'un petit cercle rouge"
    assert [french[0].text[noun.start : noun.end] for noun in french[0].nouns] == ["croix", "cercle"]
    assert french[0].nouns[1].boxes == (circle.box,)
    larger = Scene(((cross,), (circle,)), "larger than", 0).captions("fr")
    assert larger[0].text == "une croix blanche rayée plus grande qu'un cercle rouge"
    assert larger[1].text == "un cercle rouge plus petit qu'une croix blanche rayée"
    counted = Scene(((cross, cross), (circle,)), "count", 0)
    assert counted.captions()[0].text == "two large striped white crosses and a small red circle"
    assert counted.captions("fr")[0].text == "deux grandes croix blanches rayées et un petit cercle rouge"
    assert len(counted.captions()[0].nouns[0].boxes) == 2


def test_a_larger_image_shows_the_same_scene(trained):
    found, thing = next(
        (one, thing) for one in trained for thing in one.things if thing.texture == "plain" and thing.shape != "ring"
    )
    small, large = draw(found), draw(found, 128)
    assert large.shape == (128, 128, 3)
    colour = small[thing.y, thing.x].astype(int)
    assert abs(large[2 * thing.y, 2 * thing.x].astype(int) - colour).max() <= 40


def test_scenes_are_a_source_of_images():
    images = SceneImages.of(5, part="valid", size=64)
    chosen = images.select([3, 1])
    assert chosen.names == ["valid-3", "valid-1"]
    whole, part = list(images.read(3, np.copy)), list(chosen.read(3, np.copy))
    assert np.array_equal(whole[3], part[0])
    assert next(chosen.read(1, np.copy)).shape == (64, 64, 1)
    assert images.digest() != chosen.digest()
