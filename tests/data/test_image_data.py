"""Images from folders and arrays, brought to one size and changed by chance that repeats."""

import io
import threading
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from regard.data import Loader, Position
from regard.data.images import (
    ImageArray,
    ImageConfig,
    ImageFiles,
    ImageLayout,
    ImageStore,
    image_batches,
    image_files,
    open_images,
    prepare_images,
    resized,
)
from regard.data.images.augmentation import ImageRandom, augment, beta_quantile, mix, normalise, random_affine
from regard.data.images.image_files import class_names, read_image
from regard.data.images.image_store import held_out
from regard.errors import ConfigError, DataError

Image = pytest.importorskip("PIL.Image")
PEAK = Path("/proc/self/clear_refs")


def peak_memory():
    """The most memory, in bytes, since `PEAK` was told to forget it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def same(picture):
    return picture


def random_pixels(*shape, seed=0):
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def store(count=12, size=6, channels=3):
    return ImageStore(random_pixels(count, channels, size, size), np.arange(count) % 3)


@pytest.fixture
def folder(tmp_path):
    for part, each in (("train", 3), ("val", 1), ("test", 2)):
        for name in ("cat", "dog"):
            (tmp_path / part / name).mkdir(parents=True)
            for number in range(each):
                pixels = random_pixels(7, 9, 3, seed=number)
                Image.fromarray(pixels).save(tmp_path / part / name / f"{number}.png")
    return tmp_path


def test_a_folder_of_folders_gives_images_with_their_classes(folder):
    train = open_images([folder], "train")
    assert train.labels == ("cat",) * 3 + ("dog",) * 3
    assert len(open_images([folder], "valid").labels) == 2
    assert len(open_images([folder], "test").labels) == 4
    read = list(train.read(3, same))
    assert np.array_equal(read[1], random_pixels(7, 9, 3, seed=1))
    assert [picture.shape for picture in train.read(1, same)] == [(7, 9, 1)] * 6
    alone = open_images([folder / "train"], "train")
    assert alone.paths == train.paths
    assert open_images([folder / "train"], "test") is None


def test_a_class_called_train_is_a_class(tmp_path):
    for name in ("train", "car"):
        (tmp_path / name).mkdir()
        Image.fromarray(random_pixels(4, 4, 3)).save(tmp_path / name / "a.jpg")
    assert open_images([tmp_path], "train").labels == ("car", "train")


def test_arrays_come_in_the_shapes_that_people_have(tmp_path):
    grey, labels = random_pixels(5, 4, 6), np.array([3, 1, 2, 1, 10])
    np.savez(tmp_path / "a.npz", images=grey, labels=labels)
    found = open_images([tmp_path / "a.npz"], "train")
    assert found.labels == ("3", "1", "2", "1", "10")
    assert class_names(found.labels) == ("1", "2", "3", "10")
    assert np.array_equal(next(found.read(1, same))[..., 0], grey[0])
    assert open_images([tmp_path / "a.npz"], "test") is None
    np.savez(tmp_path / "b.npz", x_train=grey, y_train=labels, x_test=grey[:2], y_test=labels[:2])
    assert len(open_images([tmp_path / "b.npz"], "train").labels) == 5
    assert len(open_images([tmp_path / "b.npz"], "test").labels) == 2
    assert open_images([tmp_path / "b.npz"], "valid") is None
    np.savez(tmp_path / "c.npz", images=grey, labels=labels % 2, classes=np.array(["even", "odd"]))
    assert open_images([tmp_path / "c.npz"]).labels == ("odd", "odd", "even", "odd", "even")
    np.save(tmp_path / "x.npy", grey.transpose(0, 2, 1)[:, None] / 255)
    np.save(tmp_path / "y.npy", np.array(["p", "q", "p", "q", "p"]))
    found = open_images([tmp_path / "x.npy", tmp_path / "y.npy"])
    assert np.array_equal(next(found.read(3, same))[..., 2], grey[0].T)
    assert open_images([tmp_path / "x.npy", tmp_path / "y.npy"], "valid") is None
    assert found.labels == ("p", "q", "p", "q", "p")
    colour = random_pixels(2, 4, 4, 3)
    (first, _) = ImageArray.of(colour).read(1, same)
    assert abs(float(first[0, 0, 0]) - float(colour[0, 0, 0] @ [0.299, 0.587, 0.114])) <= 0.5


def test_what_cannot_be_read_is_named(folder, tmp_path, monkeypatch):
    (folder / "train" / "cat" / "0.png").write_bytes(b"not a picture")
    whole = (folder / "train" / "dog" / "1.png").read_bytes()
    (folder / "train" / "dog" / "1.png").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"cat.0\.png cannot be read.*dog.1\.png cannot be read"):
        list(open_images([folder], "train").read(3, same))
    with pytest.raises(DataError, match="no such file"):
        list(ImageFiles((tmp_path / "none.png",)).read(3, same))
    monkeypatch.setattr(image_files, "LARGEST", 50)
    with pytest.raises(DataError, match="9 x 7 pixels"):
        list(open_images([folder], "test").read(3, same))


def test_an_image_that_claims_to_be_enormous_is_never_decoded(tmp_path):
    made = io.BytesIO()
    Image.new("1", (20_000, 20_000)).save(made, "PNG")  # a few thousand bytes
    (tmp_path / "bomb.png").write_bytes(made.getvalue())
    with pytest.raises(DataError, match=r"bomb\.png"):
        list(ImageFiles((tmp_path / "bomb.png",)).read(3, same))


def test_large_images_are_decoded_one_at_a_time_and_small_ones_at_once(tmp_path, monkeypatch):
    """In a thread each, five of 64 million pixels took 7.7 GB."""
    for number in range(4):
        Image.fromarray(random_pixels(7, 9, 3, seed=number)).save(tmp_path / f"{number}.png")
    files, busy, most = ImageFiles(tuple(sorted(tmp_path.iterdir()))), threading.Barrier(4), []

    def alone(image):
        most.append(threading.current_thread())
        return image

    def together(image):
        busy.wait(60)  # ends only where all four are here
        return image

    small = list(files.read(3, together))
    monkeypatch.setattr(image_files, "SEVERAL", 62)
    large = list(files.read(3, alone))
    assert set(most) == {threading.current_thread()}
    assert np.array_equal(np.stack(large), np.stack(small))


@pytest.mark.skipif(not PEAK.exists(), reason="the peak of memory is told by Linux alone")
def test_an_image_is_decoded_without_copies_of_its_size(tmp_path):
    Image.new("RGBA", (2800, 2800), (200, 30, 30, 128)).save(tmp_path / "a.png", compress_level=1)
    PEAK.write_text("5")
    before = peak_memory()
    pixels = read_image(tmp_path / "a.png")
    assert peak_memory() - before < 100e6  # of which 55 are the file's pixels and what is given back; it was 227
    assert pixels[-1, -1].tolist() == [227, 142, 142]


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "LA", "P", "1", "CMYK", "I;16"])
@pytest.mark.parametrize("channels", [1, 3])
def test_images_converted_in_strips_are_those_converted_whole(mode, channels, tmp_path, monkeypatch):
    kind = "tif" if mode in ("CMYK", "I;16") else "png"
    grey = random_pixels(9, 7)
    made = Image.fromarray(grey.astype(np.uint16) * 257) if mode == "I;16" else Image.fromarray(grey).convert(mode)
    if mode in ("RGBA", "LA"):
        made.putalpha(Image.fromarray(random_pixels(9, 7, seed=1)))
    made.save(tmp_path / f"a.{kind}", **({"transparency": 3} if mode == "P" else {}))
    whole = read_image(tmp_path / f"a.{kind}", channels)
    monkeypatch.setattr(image_files, "STRIP", 14)
    assert np.array_equal(read_image(tmp_path / f"a.{kind}", channels), whole)
    assert whole.shape == (9, 7, channels)


def header_that_claims_more(path):
    made = io.BytesIO()
    np.lib.format.write_array_header_1_0(made, {"descr": "|u1", "fortran_order": False, "shape": (1 << 50, 4, 4)})
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("images.npy", made.getvalue())
        archive.writestr("labels.npy", made.getvalue())


def rewritten(path, place, value):
    """An archive in whose table, and before its first member, one byte is another."""
    np.savez_compressed(path, labels=np.arange(2), images=random_pixels(2, 4, 4))
    raw = bytearray(path.read_bytes())
    raw[raw.index(b"PK\1\2") + place + 2] = raw[place] = value
    path.write_bytes(raw)


def packed_otherwise(path):
    rewritten(path, 8, 99)


def encrypted(path):
    rewritten(path, 6, 1)


def damaged(path):
    np.savez_compressed(path, labels=np.arange(2), images=random_pixels(2, 40, 40))
    raw = bytearray(path.read_bytes())
    start = raw.index(b"images.npy") + 60
    raw[start : start + 80] = b"\xff" * 80
    path.write_bytes(raw)


def test_arrays_that_cannot_be_are_refused(tmp_path, monkeypatch):
    np.savez(tmp_path / "a.npz", pictures=random_pixels(2, 4, 4))
    with pytest.raises(DataError, match="holds pictures; needs images and labels"):
        open_images([tmp_path / "a.npz"], "train")
    np.savez(tmp_path / "b.npz", images=random_pixels(2, 4, 4), labels=np.array([1, 2, 3]))
    with pytest.raises(DataError, match="2 images and 3 labels"):
        open_images([tmp_path / "b.npz"])
    np.savez(tmp_path / "p.npz", images=np.array([{"a": 1}], dtype=object), labels=np.array([1]))
    with pytest.raises(DataError, match=r"p\.npz cannot be read"):
        open_images([tmp_path / "p.npz"])
    (tmp_path / "z.npz").write_bytes(b"PK")
    with pytest.raises(DataError, match=r"z\.npz cannot be read"):
        open_images([tmp_path / "z.npz"])
    for change in (header_that_claims_more, packed_otherwise, encrypted, damaged):
        change(tmp_path / "l.npz")
        with pytest.raises(DataError, match=r"l\.npz cannot be read"):
            open_images([tmp_path / "l.npz"])
    for values, message in [
        (np.full((2, 4, 4), 256), "0 to 255"),
        (np.full((2, 4, 4), 1.5), "0 to 1"),
        (np.full((2, 4, 4), np.nan), "0 to 1"),
        (np.zeros((2, 4)), "shape"),
        (np.zeros((2, 4, 4, 7)), "shape"),
    ]:
        with pytest.raises(DataError, match=message):
            ImageArray.of(values)
    with pytest.raises(DataError, match="images are in one folder"):
        open_images([tmp_path / "a.npz", tmp_path / "b.npz"])
    with zipfile.ZipFile(tmp_path / "bomb.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("images.npy", b"\0" * 2_000_000)
    monkeypatch.setattr(image_files, "LARGEST_ARRAY", 1_000_000)
    with pytest.raises(DataError, match="would unpack to 2,000,000 bytes"):
        open_images([tmp_path / "bomb.npz"])


def test_transparent_sixteen_bit_and_turned_images_are_read_as_they_look(tmp_path):
    clear = np.zeros((4, 4, 4), dtype=np.uint8)
    Image.fromarray(clear, "RGBA").save(tmp_path / "clear.png")
    deep = np.full((4, 4), 0x8000, dtype=np.uint16)
    Image.fromarray(deep).save(tmp_path / "deep.png")
    turned = Image.fromarray(random_pixels(4, 6, 3))
    exif = turned.getexif()
    exif[0x0112] = 6
    turned.save(tmp_path / "turned.png", exif=exif)
    one, two, three = ImageFiles(tuple(tmp_path / f"{n}.png" for n in ("clear", "deep", "turned"))).read(3, same)
    assert (one == 255).all()
    assert (two == 128).all()
    assert three.shape == (6, 4, 3)
    assert np.array_equal(three, np.rot90(random_pixels(4, 6, 3), -1))


def test_images_are_brought_to_one_size_and_kept(folder, tmp_path):
    config, train = ImageConfig(), open_images([folder], "train")

    def prepared(config):
        return prepare_images(train, ("cat", "dog"), config, tmp_path / "cache", size=5, channels=3)

    first = prepared(config)
    first = replace(first, pixels=first.pixels.copy())  # not the file, which is about to be damaged
    assert first.pixels.shape == (6, 3, 5, 5)
    assert first.labels.tolist() == [0, 0, 0, 1, 1, 1]
    (kept,) = (tmp_path / "cache").iterdir()
    before = (kept / "pixels").stat().st_mtime_ns
    assert np.array_equal(prepared(config).pixels, first.pixels)
    assert (kept / "pixels").stat().st_mtime_ns == before
    assert not np.array_equal(prepared(replace(config, resize="stretch")).pixels, first.pixels)
    (kept / "pixels").write_bytes(b"cut")
    assert np.array_equal(prepared(config).pixels, first.pixels)
    with pytest.raises(DataError, match="class 'dog' is not one of those trained on: cat"):
        prepare_images(train, ("cat",), config, tmp_path / "cache", size=5, channels=3)


def test_resizing_is_pillows(tmp_path):
    picture = random_pixels(31, 47, 3)
    expected = np.asarray(Image.fromarray(picture).resize((16, 16), Image.Resampling.BILINEAR)).astype(int)
    assert np.abs(resized(picture, 16, "stretch").astype(int) - expected).max() <= 1
    assert np.array_equal(resized(picture[:31, :31], 31), picture[:31, :31])
    assert np.array_equal(resized(picture, 31), picture[:, 8:39])
    assert resized(random_pixels(3, 100, 1), 8).shape == (8, 8, 1)


def test_a_share_of_every_class_is_held_out_by_seed():
    labels = ["a"] * 40 + ["b"] * 10 + ["c"]
    aside = held_out(labels, 0.1, seed=1)
    assert [sum(a for a, label in zip(aside, labels, strict=True) if label == name) for name in "abc"] == [4, 1, 0]
    assert aside == held_out(labels, 0.1, seed=1) != held_out(labels, 0.1, seed=2)


def test_mean_and_spread_are_those_of_each_channel():
    mean, std = (made := store(7)).mean_and_std()
    values = made.pixels.transpose(1, 0, 2, 3).reshape(3, -1) / 255
    assert mean == pytest.approx(values.mean(1), abs=1e-6)
    assert std == pytest.approx(values.std(1), abs=1e-6)
    normal = normalise(made.pixels, ImageConfig(mean=mean, std=std))
    assert_close(normal.mean((0, 2, 3)), torch.zeros(3), atol=1e-5, rtol=0)
    assert_close(normal.std((0, 2, 3), correction=0), torch.ones(3), atol=1e-5, rtol=0)
    assert ImageStore(np.full((2, 1, 3, 3), 9, np.uint8), np.zeros(2, np.int64)).mean_and_std()[1] == (1.0,)


EVERYTHING = ImageConfig(
    flip=True, crop_padding=1, least_area=0.5, rotate=20.0, shift=0.1, zoom=0.1, brightness=0.2, contrast=0.2,
    saturation=0.2, erase=0.5, mixup=0.4, cutmix=0.7, mean=(0.5, 0.5, 0.5), std=(0.2, 0.2, 0.2),
)  # fmt: skip


def test_a_stream_taken_up_anywhere_goes_on_exactly():
    layout = ImageLayout(store(13), EVERYTHING, rows=4, seed=5, patches=10)
    with Loader(layout, seed=5) as loader:
        batches = [(loader.position, next(loader)) for _ in range(8)]
    assert {position.epoch for position, _ in batches} == {0, 1, 2}
    for position, expected in batches[3::2]:
        with Loader(layout, seed=5, position=position) as again:
            found = next(again)
        assert torch.equal(found.pixels, expected.pixels)
        assert torch.equal(found.labels, expected.labels)
        assert torch.equal(found.shares, expected.shares)
        assert expected.tokens == 40
    first = [pixels for position, pixels in batches if position == Position(0, 0)]
    later = next(batch for position, batch in batches if position == Position(1, 0))
    assert not torch.equal(first[0].pixels, later.pixels)


def test_what_is_sampled_for_an_image_does_not_depend_on_its_batch():
    config = replace(EVERYTHING, mixup=0.0, cutmix=0.0)
    layout = ImageLayout(store(9), config, rows=9, seed=5)
    (whole,) = layout.order(5, 3)
    together = layout.batch(whole)
    for index, row in enumerate(whole):
        assert_close(layout.batch(row[None]).pixels[0], together.pixels[index])


def test_luck_is_even_and_every_name_has_its_own():
    random = ImageRandom(1, 2, np.arange(20_000))
    values = random("a")
    counts = np.histogram(values, 20, (0, 1))[0]
    assert ((counts - 1000) ** 2 / 1000).sum() < 43.8  # chi-square with 19 degrees of freedom, p = 0.001
    for other in (
        random("b"),
        ImageRandom(1, 3, np.arange(20_000))("a"),
        ImageRandom(2, 2, np.arange(20_000))("a"),
        values[::-1],
    ):
        assert abs(np.corrcoef(values, other)[0, 1]) < 0.03
    assert np.array_equal(ImageRandom(1, 2, np.array([7, 3]))("a"), values[[7, 3]])


def test_without_settings_nothing_changes():
    pixels = store(4).pixels
    random = ImageRandom(0, 0, np.arange(4))
    assert torch.equal(augment(pixels, ImageConfig(), random), normalise(pixels, ImageConfig()))


def test_flips_and_padded_crops_move_whole_pixels():
    pixels = store(64, size=5).pixels
    x = torch.from_numpy(pixels).float() / 255
    flipped = random_affine(x, ImageConfig(flip=True), ImageRandom(0, 0, np.arange(64)))
    turned = [index for index in range(64) if torch.allclose(flipped[index], x[index].flip(-1), atol=1e-5)]
    kept = [index for index in range(64) if torch.allclose(flipped[index], x[index], atol=1e-5)]
    assert len(turned) + len(kept) == 64
    assert 20 < len(turned) < 44
    cropped = random_affine(x, ImageConfig(crop_padding=1), ImageRandom(0, 0, np.arange(64)))
    padded = torch.nn.functional.pad(x, (1, 1, 1, 1))
    found = set()
    for index in range(64):
        for top in range(3):
            for left in range(3):
                if torch.allclose(cropped[index], padded[index, :, top : top + 5, left : left + 5], atol=1e-4):
                    found.add((top, left))
                    break
            else:
                continue
            break
        else:
            raise AssertionError(f"picture {index} was not moved by whole pixels")
    assert len(found) == 9


def test_a_turn_by_ninety_degrees_is_one():
    x = torch.from_numpy(store(1, size=6).pixels).float()

    class Quarter(ImageRandom):
        def __call__(self, name):
            return np.array([1.0 if name == "rotate" else 0.5])

    turned = random_affine(x, ImageConfig(rotate=90.0), Quarter(0, 0, np.arange(1)))
    assert_close(turned, x.rot90(1, (2, 3)), atol=1e-3, rtol=1e-4)


def test_erasing_leaves_the_mean_in_a_rectangle():
    config = ImageConfig(erase=1.0, mean=(0.2,), std=(0.5,))
    x = augment(store(50, size=12, channels=1).pixels, config, ImageRandom(0, 0, np.arange(50)))
    shares = (x == 0).float().mean((1, 2, 3))
    assert 0.05 < float(shares.mean()) < 0.3
    assert float((shares > 0).float().mean()) > 0.9


def test_mixing_keeps_the_share_that_it_says():
    black_and_white = torch.stack([torch.zeros(1, 8, 8), torch.ones(1, 8, 8)] * 50)
    for config in (ImageConfig(mixup=0.5), ImageConfig(cutmix=1.0), ImageConfig(mixup=0.5, cutmix=1.0)):
        x, shares = mix(black_and_white, config, ImageRandom(0, 0, np.arange(100)))
        own = torch.where(black_and_white.mean((1, 2, 3)) > 0.5, x.mean((1, 2, 3)), 1 - x.mean((1, 2, 3)))
        assert_close(own, shares, atol=1e-5, rtol=0)
        assert 0 <= float(shares.min()) <= float(shares.max()) <= 1
        assert shares.unique().numel() > 20


@pytest.mark.parametrize("alpha", [0.2, 1.0, 3.0])
def test_shares_follow_the_beta_distribution(alpha):
    values = beta_quantile((np.arange(20_000) + 0.5) / 20_000, alpha)
    assert values.mean() == pytest.approx(0.5, abs=1e-3)
    assert values.var() == pytest.approx(1 / (4 * (2 * alpha + 1)), rel=5e-3)


def test_validation_sees_every_image_once_as_it_is():
    made = store(7)
    batches = list(image_batches(made, ImageConfig(), rows=3, patches=4))
    assert [batch.count for batch in batches] == [3, 3, 1]
    assert_close(torch.cat([batch.pixels for batch in batches]), torch.from_numpy(made.pixels).float() / 255)


def test_settings_that_cannot_be_are_refused():
    for settings, message in [
        ({"flip": True, "rotate": -1.0}, "rotate"),
        ({"least_area": 0.0}, "least_area"),
        ({"erase": 1.1}, "erase"),
        ({"held_out": 1.0}, "held_out"),
        ({"mean": (0.5,)}, "go together"),
        ({"mean": (0.5,), "std": (0.0,)}, "above 0"),
    ]:
        with pytest.raises(ConfigError, match=message):
            ImageConfig(**settings)
