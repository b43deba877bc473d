"""What a plan says of data that has something wrong with it."""

import random

import numpy as np
import pytest
from listeners import Told
from PIL import Image
from planning_toys import CPU, image_folders, planned, write_every_kind

import regard
from regard.errors import DataError

KANJI, KANA = [chr(0x4E00 + number) for number in range(300)], [chr(0x3042 + number) for number in range(60)]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A file of each kind."""
    return write_every_kind(tmp_path_factory.mktemp("data"))


@pytest.mark.parametrize(
    ("kind", "sizes", "classes"),
    [
        ("rare classes", [(8, 8)] * 120, [0] * 90 + [1] * 28 + [2] * 2),
        ("one class of most images", [(8, 8)] * 100, [0] * 95 + [1] * 5),
        ("images of many sizes", [(8, 8), (80, 80)] * 60, [0, 1] * 60),
        ("one image in two classes", [(8, 8)] * 120, [0, 1] * 60),
        ("repeated images", [(8, 8)] * 120, [0, 1] * 60),
        ("few images", [(8, 8)] * 20, [0, 1] * 10),
    ],
)
def test_wrong_images_get_their_line(tmp_path, kind, sizes, classes):
    random_ = np.random.default_rng(1)
    for number, (size, one) in enumerate(zip(sizes, classes, strict=True)):
        pixels = random_.integers(0, 255, size, dtype=np.uint8)
        if kind == "one image in two classes" and number < 2:
            pixels = np.zeros(size, dtype=np.uint8)
        if kind == "repeated images" and number in (0, 2, 4):
            pixels = np.zeros(size, dtype=np.uint8)
        (tmp_path / str(one)).mkdir(exist_ok=True)
        Image.fromarray(pixels).save(tmp_path / str(one) / f"{number}.png")
    assert [finding.kind for finding in regard.plan(tmp_path, machine=CPU).findings] == [kind]


def test_validation_images_that_are_trained_on_get_their_line(tmp_path):
    image_folders(tmp_path / "train", {(str(number % 2), number): number for number in range(120)})
    image_folders(tmp_path / "valid", {(str(number % 2), number): number for number in range(115, 135)})
    found = regard.plan(tmp_path / "train", valid=tmp_path / "valid", machine=CPU).findings
    assert [one.kind for one in found] == ["validation images in training"]
    assert found[0].line.startswith("5 of 20 validation images (25 %)")


def test_copies_among_all_images_are_found_in_folders_and_in_arrays(tmp_path):
    pixels = np.random.default_rng(1).integers(0, 255, (600, 8, 8), dtype=np.uint8)
    labels = np.arange(600) % 3
    pixels[1:31:3], pixels[2] = pixels[0], pixels[0]  # of another class, as is the third; none is in the sample but one
    np.savez(tmp_path / "images.npz", images=pixels, labels=labels)
    for number, (one, label) in enumerate(zip(pixels, labels, strict=True)):
        (tmp_path / "folder" / str(label)).mkdir(parents=True, exist_ok=True)
        Image.fromarray(one).save(tmp_path / "folder" / str(label) / f"{number}.png")
    for name in ("images.npz", "folder"):
        found = {one.kind: one.line for one in regard.plan(tmp_path / name, machine=CPU).findings}
        assert found["repeated images"].startswith("11 of 600 images are copies")
        assert "the same image is in two classes" in found["one image in two classes"]


def test_copies_of_images_to_train_on_are_not_validated_on(tmp_path):
    image_folders(tmp_path / "images", {(str(number % 2), number): number % 80 for number in range(120)})
    small = ("train.steps=1", "model.width=16", "model.heads=2", "model.feed_forward=32", "model.layers=1")
    told = Told()
    plan = regard.plan(tmp_path / "images", machine=CPU, overrides=(*small, "images.held_out=0.3"))
    regard.train(plan, tmp_path / "run", told)
    line = next(line for line in told.lines if "not validated on: copies of them are trained on" in line)
    left = int(line.split()[2]) - int(line.split()[0])
    assert 0 < left < 36
    assert any(f"{left} to validate on" in line for line in told.lines)
    pixels = np.random.default_rng(1).integers(0, 255, (50, 8, 8), np.uint8)
    np.savez(tmp_path / "copies.npz", images=np.concatenate([pixels, pixels[:45]]), labels=np.arange(95) % 2)
    told = Told()
    plan = regard.plan(tmp_path / "copies.npz", machine=CPU, overrides=(*small, "images.held_out=0.3"))
    regard.train(plan, tmp_path / "arrays", told)
    assert any("not validated on: copies of them are trained on" in line for line in told.lines)


def test_a_limit_below_the_longest_text_is_said(files):
    plan = planned(files, "pairs.tsv", overrides=["data.max_len=5"])
    (said,) = [one.line for one in plan.findings if one.kind == "texts left out"]
    assert said == "data.max_len=5, as asked, may leave out many texts: the longest text has 9 words"
    assert not any(one.kind == "texts left out" for one in planned(files, "pairs.tsv").findings)


def test_kanji_and_kana_are_one_script(tmp_path):
    random_ = random.Random(1)
    texts = ["".join(random_.choices(KANJI, k=4)) + "".join(random_.choices(KANA, k=6)) for _ in range(300)]
    texts += [text[::-1] for text in texts]
    (tmp_path / "text.txt").write_text("\n".join(texts), encoding="utf-8")
    assert not any(one.kind == "mixed scripts" for one in planned(tmp_path, "text.txt").findings)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("pairs.tsv", "a b c d\te f g h i\n", "all pairs have one source"),
        ("films.tsv", "".join(f"a film number {n}\tgood\n" for n in range(60)), "every label is 'good'"),
        ("plain.txt", "one short line\n", "the text is one line of 15 characters, of which no end is held out"),
    ],
)
def test_data_that_no_run_can_be_made_on_is_refused_by_its_plan(tmp_path, name, text, said):
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=said):
        planned(
            tmp_path, name, overrides=["task=classification", "data.text=1", "data.label=2"] * (name == "films.tsv")
        )


@pytest.mark.parametrize(("name", "text"), [("pairs.tsv", "a b c d\te f g h i\n"), ("plain.txt", "one short line\n")])
def test_data_of_which_nothing_can_be_held_out_is_planned_where_nothing_is_to_be(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    assert planned(tmp_path, name, overrides=["data.held_out=0"]).config.data.held_out == 0
    assert planned(tmp_path, name, valid=tmp_path / name).config.data.held_out == 0
