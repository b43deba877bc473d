"""The life of a captioner: train, stop and go on, caption, measure, look, serve; and bad input refused."""

import base64
import io
import json
import shutil
import struct
import threading
import zlib
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from listeners import StopAt

import regard
from regard import make_config
from regard.analysis.head_roles import head_roles
from regard.cli import main
from regard.data.images.captions import CaptionSource, open_captioned
from regard.data.images.image_store import resized, resized_box
from regard.data.synthetic.scenes import SceneImages, draw, scene
from regard.errors import ConfigError, DataError, TooLarge
from regard.look.packed_arrays import png_address, png_bytes
from regard.look.watch import attentions, recurrences
from regard.tasks.captioning import scenes_of
from regard.tasks.looking import LookOptions, document
from regard.tasks.noun_attention import NounAttention, NounHits, boxes_on_grid, pointing_scores
from regard.tasks.verbs import VERBS, RequestLimits
from regard.trainer.trainer import Stopped

pytest.importorskip("PIL.Image")

SMALL = [
    *(
        "data.scenes=40",
        "train.steps=4",
        "train.log_every=1",
        "train.warmup=2",
        "train.batch_tokens=700",
        "train.threads=1",
    ),
    *("model.width=8", "model.heads=2", "model.feed_forward=8", "train.validate_every=4", "train.save_every=2"),
    *("train.validate_sentences=4", "decode.max_len=12", "images.mean=[0.2,0.2,0.2]", "images.std=[0.2,0.2,0.2]"),
]


PRESETS = ("caption-tiny", "caption-recurrent")
ONE_LOOK = (
    *("model.attend='before'", "model.attention='additive'", "model.readout='tanh'", "model.place_penalty=0.01"),
    *("model.encoder_layers=0", "model.decoder_layers=1"),
)


@pytest.fixture(scope="module", autouse=True)
def few_scenes():
    """A thousand held-out scenes are more than a test needs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("regard.tasks.captioning.SCENES_HELD_OUT", 12)
        patch.setattr("regard.tasks.captioning.HEAD_SCENES", 6)
        yield


def config_of(kind, *more):
    """The settings of a kind of captioner: those of its preset, or of Show, Attend and Tell with its one look."""
    if kind in PRESETS:
        return make_config(None, kind, [*SMALL, *more])
    return make_config(None, "caption-recurrent", [*SMALL, *ONE_LOOK, *more])


@pytest.fixture(scope="module", params=[*PRESETS, "one-look"])
def run(request, tmp_path_factory):
    return regard.train(config_of(request.param), tmp_path_factory.mktemp("runs") / request.param)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files") / "scenes"
    counts = ["--train", "12", "--valid", "3", "--test", "3", "--combinations", "2"]
    assert main(["data", "scenes", str(folder), "--language", "fr", *counts]) == 0
    return folder


def image(number=0):
    return draw(scene(0, "test", number))


def test_a_run_on_scenes_is_measured_with_held_out_combinations_and_where_it_looked(run):
    result = regard.evaluate(run, limit=5)
    assert result["images"] == result["combinations"]["images"] == 5
    assert 0 <= result["exact_match"] <= 1
    pointing = result["pointing"]
    assert pointing["nouns"] >= 10
    assert 0 < pointing["chance_hits"] < 0.3
    assert 0 < pointing["chance_share"] < 0.3
    assert pointing["share"] == pytest.approx(pointing["chance_share"], abs=0.2)  # it has learnt nothing yet
    assert "pointing game" in run.task.show(result)


def test_a_resumed_run_equals_an_unbroken_one_byte_for_byte(run, tmp_path):
    config = config_of(run.directory.name, "model.dropout=0.1", "images.shift=0.05")
    whole = regard.train(config, tmp_path / "whole")
    with pytest.raises(Stopped, match="stopped at step 2"):
        regard.train(config, tmp_path / "broken", StopAt(2))
    broken = regard.resume(tmp_path / "broken")
    one, other = ((found.directory / "model.safetensors").read_bytes() for found in (whole, broken))
    assert one == other


def test_paths_arrays_and_the_command_give_the_same_captions(run, tmp_path, capsys):
    path = tmp_path / "one.png"
    path.write_bytes(png_bytes(image()))
    (text,) = run.caption([image()], beam=2)
    assert run.caption([str(path)], beam=2) == [text]
    assert run.captions([image()], beam=3, top_beams=2)[0][0].log_prob <= 0
    assert main(["caption", str(run.directory), str(tmp_path), "--beam", "2", "--device", "cpu"]) == 0
    assert capsys.readouterr().out.strip() == f"{path}\t{text}".strip()
    assert main(["caption", str(run.directory), str(path), "--beam", "2", "--json", "--device", "cpu"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["image"] == str(path)
    assert said["captions"][0]["text"] == text
    (result,) = run.ask("caption", [image()], beam=2)
    assert result.captions[0].text == text


def test_samples_go_by_number_and_seed(run):
    first = run.captions([image(), image()], temperature=1.0, samples=2, seed=3)
    assert first == run.captions([image(), image()], temperature=1.0, samples=2, seed=3)
    assert first[0] != first[1]


def test_a_server_is_sent_the_image_itself_and_bounds_it(run):
    verb, limits = VERBS["caption"], RequestLimits()
    request = verb.without_inputs(max_len=6, beam=1)
    sent = [png_address(image()), base64.b64encode(png_bytes(image())).decode()]
    checked = verb.check(run, request, sent, limits)
    assert [one.name for one in checked] == ["image 1", "image 2"]
    assert np.array_equal(checked[0].given, image())
    with pytest.raises(DataError, match="image 1 is not base64"):
        verb.check(run, request, ["/etc/passwd"], limits)
    with pytest.raises(DataError, match="image 1 cannot be read as an image"):
        verb.check(run, request, [base64.b64encode(png_bytes(image())[:200]).decode()], limits)
    wide = np.zeros((4097, 4097, 1), dtype=np.uint8)
    with pytest.raises(DataError, match="16,777,216 in all is the most"):
        verb.check(run, request, [png_address(wide)], limits)
    with pytest.raises(TooLarge, match="has 3 images"):
        verb.check(run, request, sent + sent[:1], RequestLimits(texts=2))


def test_the_page_has_the_image_and_where_each_word_looked(run):
    found = document(run, [image(), image(1)], LookOptions(targets=("a red circle", "two blue squares")), beam=1)
    sentence = found.sentences[0]
    assert sentence.picture.rows == sentence.picture.columns == 8
    assert sentence.target.pieces[:3] == ("a", "red", "circle")
    cross = [one for one in sentence.attentions if (one.rows, one.columns) == ("target", "source")]
    assert cross
    assert cross[0].array().shape[1:] == (4, 64)
    cells = [(one.name, one.steps, one.parts[0].array().shape[0]) for one in sentence.recurrences]
    assert cells == [(name, "prefix", 4) for name in recurrences(run.model)]
    assert bool(cells) == (run.config.model_config().decoder == "recurrent")
    written = document(run, [image()], beam=1).sentences[0]
    assert written.target.text == run.caption([image()], beam=1)[0]


def test_what_does_not_apply_is_refused_by_name(run):
    with pytest.raises(ConfigError, match="mbr does not apply"):
        run.caption([image()], mbr=4)
    with pytest.raises(DataError, match="give a list of images"):
        run.caption("one.png")
    with pytest.raises(ConfigError, match="max_ratio"):
        make_config(None, "caption-tiny", ["decode.max_ratio=2.0"])
    with pytest.raises(ConfigError, match="two sources of training images"):
        make_config(None, "caption-tiny", ["data.train=['x']"])
    with pytest.raises(ConfigError, match="bundled scenes are rendered with 64 pixels"):
        make_config(None, "caption-tiny", ["model.image_size=96"])


def test_a_head_that_looks_at_the_noun_scores_all_and_one_that_looks_away_nothing(run, monkeypatch):
    """The score itself, on weights that are known."""

    def measured(self):
        heads = self.heads()
        good = NounHits(np.ones(4), np.full(4, 0.9))
        bad = NounHits(np.zeros(4), np.zeros(4))
        return {head: good if head == heads[-1] else bad for head in heads}, NounHits(np.full(4, 0.1), np.full(4, 0.1))

    monkeypatch.setattr(NounAttention, "measured", measured)
    given = scenes_of(run.config, "test").captioned("en")
    scores = pointing_scores(run, given, given)
    heads = NounAttention(run, given).heads()
    assert (scores["attention"], scores["head"]) == heads[-1]
    assert scores["hits"] == 1.0


def test_boxes_cover_patches_by_their_share_and_by_their_middles():
    covered, centred = boxes_on_grid([(8, 0, 20, 8)], 8, 64)
    assert covered.reshape(8, 8)[0].tolist() == [0, 1, 0.5, 0, 0, 0, 0, 0]
    assert centred.reshape(8, 8)[0].tolist() == [False, True, False, False, False, False, False, False]
    assert not covered[8:].any()


def test_files_are_trained_on_with_all_captions_and_measured_against_all(files, tmp_path, capsys):
    small = [one for one in SMALL if not one.startswith(("data.scenes", "images."))]
    made = make_config(None, "caption-tiny", small, {"data": {"train": [str(files)]}})
    assert made.data.scenes == 0
    run = regard.train(made, tmp_path / "run")
    assert len(run.config.images.mean) == 3
    result = regard.evaluate(run)
    assert result["images"] == 3
    assert result["references"] > 3
    assert regard.evaluate(run, [str(files / "combinations.tsv")])["images"] == 2
    # The boxes are in the files: those of the same scenes that need none, test scenes being the same for every seed.
    bundled, valid = (SceneImages.of(3, seed=0, part=part).captioned("fr") for part in ("test", "valid"))
    assert result["pointing"] == pointing_scores(run, bundled, valid)
    shutil.copytree(files, tmp_path / "unboxed")
    for gold in (tmp_path / "unboxed").glob("*.jsonl"):
        gold.unlink()
    assert "pointing" not in regard.evaluate(run, [str(tmp_path / "unboxed")])


def test_boxes_are_those_of_their_own_image_in_whatever_order_images_are_read(run, tmp_path, monkeypatch):
    from PIL import Image

    from regard.data.images import image_files
    from regard.tasks.noun_attention import fitted

    for name, size in (("wide", 256), ("small", 64)):
        Image.new("RGB", (size, size)).save(tmp_path / f"{name}.png")
    (tmp_path / "captions.tsv").write_text("image\tcaption\nwide.png\ta ring\nsmall.png\ta ring\n", encoding="utf-8")
    nouns = '[{"text": "a ring", "nouns": [{"start": 2, "end": 6, "boxes": [[0, 0, 32, 32]]}]}]'
    gold = "".join(f'{{"image": "{name}.png", "captions": {nouns}}}\n' for name in ("wide", "small"))
    (tmp_path / "captions.jsonl").write_text(gold, encoding="utf-8")
    read, fit, done = image_files.made_of, run.captioner.reader.fit, threading.Event()

    def slow(path, channels, then, **how):
        if path.stem == "wide":
            done.wait(30)
        return read(path, channels, then, **how)

    def told(image):
        found = fit(image)
        done.set()
        return found

    monkeypatch.setattr(image_files, "made_of", slow)
    monkeypatch.setattr(run.captioner.reader, "fit", told)
    boxes = [known.nouns[0].boxes for _, known in fitted(run, open_captioned(tmp_path))]
    assert boxes == [((0, 0, 8, 8),), ((0, 0, 32, 32),)]


def test_boxes_beside_a_table_are_read_and_bad_ones_refused_by_their_line(files, tmp_path):
    shutil.copytree(files / "test", tmp_path / "test")
    shutil.copy(files / "test.tsv", tmp_path / "captions.tsv")
    known = (files / "test.jsonl").read_text(encoding="utf-8").splitlines()
    gold = tmp_path / "captions.jsonl"
    gold.write_text("\n".join(known[:2]), encoding="utf-8")
    found = open_captioned(tmp_path)
    assert found.gold[0] == SceneImages.of(1, seed=0, part="test").captioned("fr").gold[0]
    assert found.gold[2] is None
    assert len(found.with_gold().captions) == 2
    gold.write_text(known[0] + "\n" + known[1].replace("test/000001", "other"), encoding="utf-8")
    assert "1 lines are of no image and caption of captions.tsv" in open_captioned(tmp_path).notes[-1]
    gold.write_text(known[0] + "\n{", encoding="utf-8")
    with pytest.raises(DataError, match=r"captions.jsonl, line 2 is not JSON"):
        open_captioned(tmp_path)
    gold.write_text('{"image": "test/000000.png", "captions": [{"text": "x"}]}', encoding="utf-8")
    with pytest.raises(DataError, match=r"line 1: \"captions\" must be a list"):
        open_captioned(tmp_path)
    gold.write_text('{"image": "test/000000.png", "caption": "x"}', encoding="utf-8")
    assert "has no boxes of nouns" in open_captioned(tmp_path).notes[-1]


def test_a_box_goes_where_the_image_goes():
    assert resized_box((10, 20, 30, 40), (100, 100), 50) == (5, 10, 15, 20)
    assert resized_box((60, 0, 160, 100), (100, 200), 50) == (5, 0, 55, 50)  # the middle of a wide image is cut out
    assert resized_box((60, 0, 160, 100), (100, 200), 50, "stretch") == (15, 0, 40, 50)


def test_heads_are_given_roles_and_a_noun_is_one(run, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("regard.analysis.head_roles.SCALING", 1)
    monkeypatch.setattr("regard.tasks.captioning.SCENES_HELD_OUT", 60)
    found = head_roles(run, limit=60, judging=1)
    assert found["sentences"] == 60
    assert "noun" in found["thresholds"]
    looking = [one for one in found["heads"] if one["attention"].endswith("cross_attention")]
    assert looking
    assert {one["evidence"]["role"] for one in looking} == {"noun"}


def test_tables_and_folders_are_read_and_what_is_left_out_is_said(files, tmp_path):
    captions = open_captioned(files, "train")
    assert len(captions.captions) == 12
    assert max(map(len, captions.captions)) == 2
    assert len(open_captioned(files, "valid").captions) == 3
    folder = tmp_path / "beside"
    shutil.copytree(files / "test", folder)
    names = sorted(path.stem for path in folder.iterdir())
    (folder / f"{names[0]}.txt").write_text("a first caption\n\na second\n", encoding="utf-8")
    found = open_captioned(folder)
    assert found.captions == (("a first caption", "a second"),)
    assert "2 images without a caption are left out" in found.notes[0]
    assert open_captioned(folder, "test") is None


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ("image\tcaption\nmissing.png\ta word\n", "missing.png, which is no file"),
        ("image\tcaption\nmissing.png\t \n", "has no image with a caption"),
        ("picture\ttext\tmore\na.png\tb\tc\n", "image"),
    ],
)
def test_a_table_that_cannot_be_used_is_refused_in_a_sentence(rows, said, tmp_path):
    (tmp_path / "captions.tsv").write_text(rows, encoding="utf-8")
    with pytest.raises(DataError, match=said):
        open_captioned(tmp_path)


def test_a_broken_image_and_an_empty_folder_are_refused_in_a_sentence(tmp_path, run):
    with pytest.raises(DataError, match="has no captions"):
        open_captioned(tmp_path)
    (tmp_path / "cut.png").write_bytes(png_bytes(image())[:100])
    with pytest.raises(DataError, match="cannot be read as an image"):
        run.caption([str(tmp_path / "cut.png")])


def test_images_that_cannot_be_read_are_named_and_the_others_captioned(tmp_path, run, capsys):
    contents = {"1.png": png_bytes(image()), "2.png": png_bytes(image())[:100], "3.png": png_bytes(image())}
    for name, data in contents.items():
        (tmp_path / name).write_bytes(data)
    command = ["caption", str(run.directory), str(tmp_path), str(tmp_path / "none.png"), "--device", "cpu"]
    assert main(command) == 1
    said = capsys.readouterr()
    first, second, third, fourth = said.out.split("\n")[:-1]
    assert (second, fourth) == ("", "")
    assert first.replace("1.png", "3.png") == third
    assert "2.png cannot be read as an image" in said.err
    assert "no such file or folder" in said.err
    assert "regard: 2 of 4 images were refused; the others are answered" in said.err
    assert main([*command, "--json"]) == 1
    records = [json.loads(one) for one in capsys.readouterr().out.splitlines()]
    assert [one["image"] for one in records] == [str(tmp_path / name) for name in (*contents, "none.png")]
    assert ["error" in one for one in records] == [False, True, False, True]
    assert main(["caption", str(run.directory), str(tmp_path / "2.png"), "--device", "cpu"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
    (tmp_path / "list.txt").write_text(f"{tmp_path / '1.png'}\n\n{tmp_path / '3.png'}\n", encoding="utf-8")
    assert main(["caption", str(run.directory), "--input", str(tmp_path / "list.txt"), "--device", "cpu"]) == 0
    assert capsys.readouterr().out.splitlines() == [first, third]


def encoded(mode, size=(64, 48), kind="PNG", **how):
    from PIL import Image

    stream = io.BytesIO()
    Image.new(mode, size, **how).save(stream, kind)
    return stream.getvalue()


def claiming(side):
    """A PNG whose header tells of `side` rows and columns, and that holds one pixel."""
    made = bytearray(encoded("1", (1, 1)))
    made[16:24] = struct.pack(">II", side, side)
    made[29:33] = struct.pack(">I", zlib.crc32(made[12:29]))
    return bytes(made)


def animated():
    from PIL import Image

    stream = io.BytesIO()
    Image.new("RGB", (8, 8), "red").save(stream, "GIF", save_all=True, append_images=[Image.new("RGB", (8, 8), "blue")])
    return stream.getvalue()


CONVERTED = {
    "grey": lambda: encoded("L"),
    "grey with alpha": lambda: encoded("LA"),
    "palette": lambda: encoded("P"),
    "alpha": lambda: encoded("RGBA"),
    "CMYK": lambda: encoded("CMYK", kind="JPEG"),
    "one bit": lambda: encoded("1"),
    "sixteen bits": lambda: encoded("I;16"),
    "one pixel": lambda: encoded("RGB", (1, 1)),
    "a thread": lambda: encoded("RGB", (1, 60_000)),
    "16 bits in 32": lambda: encoded("I", kind="TIFF", color=65_535),
    "animated": lambda: animated(),
    "bitmap": lambda: encoded("RGB", kind="BMP"),
}
REFUSED = {
    "nothing": (lambda: b"", "cannot be read as an image: it is none of the known kinds"),
    "text": (lambda: b"not an image at all", "cannot be read as an image: it is none of the known kinds"),
    "claims": (lambda: claiming(60_000), "has far more than 64,000,000 pixels, which is the most"),
    "cut in its header": (lambda: encoded("RGB")[:20], "cannot be read as an image"),
    "cut in its pixels": (lambda: png_bytes(image())[:-400], "cannot be read as an image"),
    "huge": (lambda: encoded("1", (9000, 9000)), "81,000,000|9,000 x 9,000 pixels; 64,000,000 in all is the most"),
    "floats": (lambda: encoded("F", kind="TIFF"), "has floats for pixels"),
    "32 bits": (lambda: encoded("I", kind="TIFF", color=70_000), "70,000 to 70,000, more than 16 bits hold"),
    "a page": (lambda: b"%PDF-1.4 and so on", "cannot be read as an image"),
}


@pytest.mark.parametrize("kind", CONVERTED)
def test_images_of_every_kind_are_converted(run, kind, tmp_path):
    (tmp_path / "one.png").write_bytes(CONVERTED[kind]())
    ((name, pixels),) = run.captioner.read([str(tmp_path / "one.png")])
    assert name.endswith("one.png")
    assert pixels.shape == (64, 64, 3)
    if kind == "animated":
        assert pixels[0, 0].tolist() == [255, 0, 0], "the first frame"


@pytest.mark.parametrize("shape", [(1, 60_000, 3), (60_000, 1, 3)])
def test_a_long_image_is_not_scaled_before_its_ends_are_cut_off(shape, monkeypatch):
    scaled = []

    def interpolate(pixels, size, **how):
        scaled.append(max(size))
        return torch.nn.functional.interpolate(pixels, size=size, **how)

    monkeypatch.setattr("regard.data.images.image_store.F", SimpleNamespace(interpolate=interpolate))
    line = np.zeros(shape, np.uint8)
    line.reshape(-1, 3)[30_000] = 255  # the middle stays the middle
    assert resized(line, 64).reshape(64, 64, 3).max() > 200
    assert scaled == [16 * 64]


@pytest.mark.parametrize("kind", REFUSED)
def test_bad_images_are_refused_in_one_line(run, kind, tmp_path):
    make, said = REFUSED[kind]
    (tmp_path / "one.png").write_bytes(make())
    with pytest.raises(DataError, match=said) as refused:
        run.caption([str(tmp_path / "one.png")])
    assert "one.png" in str(refused.value)
    assert "object at" not in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1


def test_pillow_images_tensors_and_bytes_are_images(run):
    from PIL import Image

    plain = run.captioner.read([image()])
    clear = Image.fromarray(image()).convert("RGBA")
    tensor = torch.from_numpy(image())
    for same in (Image.fromarray(image()), clear, tensor, tensor.permute(2, 0, 1) / 255, png_bytes(image())):
        assert np.array_equal(run.captioner.read([same])[0][1], plain[0][1])
    with pytest.raises(DataError, match="image 2 cannot be read as an image"):
        run.caption([image(), Image.open(io.BytesIO(png_bytes(image())[:-400]))])


def test_arrays_of_wrong_shapes_and_unequal_counts_are_refused_in_one_line(run):
    for wrong, said in (
        (np.zeros((4, 4, 2), np.uint8), r"image 2 has shape \(4, 4, 2\); must be rows, columns and 1 or 3 channels"),
        (np.zeros((0, 4, 3), np.uint8), r"image 2 has shape \(0, 4, 3\)"),
        (np.zeros(7, np.uint8), r"image 2 has shape \(7,\)"),
        (np.zeros((4, 4, 3), np.complex64), "image 2 holds complex64, not numbers"),
        (None, "image 2 is of the type NoneType; must be a path"),
        ((image(), 64), "image 2 is of the type tuple"),
        ([[0.0, 1.0]], "image 2 is of the type list"),
    ):
        with pytest.raises(DataError, match=said) as refused:
            run.caption([image(), wrong])
        assert len(str(refused.value).splitlines()) == 1
    with pytest.raises(DataError, match="give a list of images, not one"):
        run.caption(png_bytes(image()))
    with pytest.raises(DataError, match="2 targets for 1 images"):
        document(run, [image()], LookOptions(targets=("a", "b")))
    with pytest.raises(DataError, match="1 images and captions of 2"):
        CaptionSource(SceneImages.of(1), (("a",), ("b",)))


def test_no_part_of_an_image_is_looked_at(run):
    with pytest.raises(ConfigError, match="start and end are for sounds; a run for captioning looks at whole inputs"):
        run.look(image(), end=2.0)


def test_one_array_is_one_image_and_what_may_be_either_is_refused(run):
    (wanted,) = run.caption([image()])
    for one in (image(), torch.from_numpy(image())):
        assert run.caption(one) == [wanted]
        (asked,) = run.ask("caption", one)
        assert asked.captions[0].text == wanted
        assert len(run.look(one, layers="decoder*").sentences) == 1
    assert len(run.ask("caption", image()[..., 0])) == len(run.caption(image()[..., :1])) == 1
    assert len(run.ask("caption", np.stack((image(), image())))) == len(run.caption(np.stack((image(), image())))) == 2
    assert len(run.ask("caption", png_bytes(image()))) == 1
    for either in (np.zeros((3, 64, 64), np.uint8), torch.zeros(3, 64, 64), np.zeros((5, 64, 64))):
        for ask in (run.caption, lambda one: run.ask("caption", one), run.look):
            with pytest.raises(DataError, match=r"an array of shape \(\d, 64, 64\) may be one image or several"):
                ask(either)
    assert len(run.caption([np.zeros((3, 64, 64), np.uint8)])) == 1


def test_heads_can_be_pruned_and_are_scored_by_exact_match(run):
    held = run.task.held_out_data(run, None, 6)
    assert held.count == 6
    assert 0 <= held.score(run) <= 100
    assert held.nll(run.model) > 0


def test_heads_are_removed_and_the_only_one_of_a_recurrent_decoder_is_not(run, tmp_path, capsys):
    done = main(["prune", str(run.directory), "--heads", "2", "--limit", "6", "--out", str(tmp_path / "less")])
    said = capsys.readouterr()
    if run.directory.name == "one-look":
        assert done != 0
        assert "decoder.cross_attention is the only attention of this model" in said.err
        return
    assert done == 0
    smaller = regard.load(tmp_path / "less", "cpu")
    left, before = (sum(one.heads for one in attentions(found.model).values()) for found in (smaller, run))
    assert left == before - 2
    assert len(smaller.caption([image()])) == 1
