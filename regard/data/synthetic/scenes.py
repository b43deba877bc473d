"""Scenes of coloured shapes, rendered and described by the project itself: images with captions in English and French.

A scene has 2 to 5 objects of several shapes, colours, sizes and textures, among grey marks that no caption mentions.
Captions say where objects are, which is larger, or how many there are; the box of every noun is known, so that where a
model looked when it wrote one can be scored. Everything is a function of (seed, part, number).
"""

import hashlib
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np
from jaxtyping import Bool, Int, UInt8

from regard.data.images.captions import Box, Caption, CaptionSource, NounBoxes
from regard.data.images.image_files import Made

ScenePart = Literal["train", "valid", "test", "combinations"]
Language = Literal["en", "fr"]
Kind = Literal["left of", "above", "larger than", "row", "count"]
Word = TypeVar("Word", bound=str)

SIDE = 64
SHAPES = ("circle", "square", "triangle", "cross", "ring", "diamond")
COLOURS = ("red", "green", "blue", "yellow", "purple", "white")
SIZES = {"small": 5, "large": 9}
"""How far an object reaches from its middle."""
TEXTURES = ("plain", "striped", "dotted")
HELD_OUT = frozenset(zip(COLOURS, (*SHAPES[4:], *SHAPES[:4]), strict=True))
"""Colours and shapes that never meet in `train`, `valid` and `test`; in `combinations` every scene has such a pair."""

_KINDS: tuple[Kind, ...] = ("left of", "above", "larger than", "row", "count")
_PARTS: tuple[ScenePart, ...] = ("train", "valid", "test", "combinations")
_RGB = {
    "red": (214, 40, 40),
    "green": (44, 170, 66),
    "blue": (52, 92, 232),
    "yellow": (236, 208, 44),
    "purple": (160, 62, 190),
    "white": (240, 240, 240),
}
_GAP, _ASIDE, _FURTHER = 4, 8, 8
"""Pixels between objects; by how much a relation's direction leads over the other; between three in a row."""


@dataclass(frozen=True, slots=True)
class Thing:
    """One object, and its middle."""

    shape: str
    colour: str
    size: str
    texture: str
    x: int = 0
    y: int = 0

    @property
    def box(self) -> Box:
        """In pixels of an image of `SIDE`."""
        reach = SIZES[self.size]
        return self.x - reach, self.y - reach, self.x + reach + 1, self.y + reach + 1


@dataclass(frozen=True, slots=True)
class Scene:
    """Objects, how the caption speaks of them (by `groups` of like ones), and the bits of what is around them."""

    groups: tuple[tuple[Thing, ...], ...]
    kind: Kind
    bits: int

    @property
    def things(self) -> list[Thing]:
        return [thing for group in self.groups for thing in group]

    def captions(self, language: Language = "en") -> list[Caption]:
        """Every right caption, the one that says it in the usual order first."""
        phrase, words = (_english, _ENGLISH) if language == "en" else (_french, _FRENCH)
        groups, sized = self.groups, self.kind != "larger than"
        parts = [phrase(group, sized) for group in groups]
        if self.kind == "row":
            return [_joined(parts[0], ", ", parts[1], words["and"], parts[2])]
        if self.kind == "count":
            return [_joined(parts[0], words["and"], parts[1]), _joined(parts[1], words["and"], parts[0])]
        there, back = words[self.kind]
        if language == "fr" and not sized:  # plus grand, plus grande
            there, back = (
                f"{said}{'e' if _is_feminine(group[0]) else ''} qu'"
                for said, group in zip((there, back), groups, strict=True)
            )
        return [_joined(parts[0], there, parts[1]), _joined(parts[1], back, parts[0])]


_ENGLISH = {
    "and": " and ",
    "left of": (" left of ", " right of "),
    "above": (" above ", " below "),
    "larger than": (" larger than ", " smaller than "),
}
_FRENCH = {
    "and": " et ",
    "left of": (" à gauche d'", " à droite d'"),
    "above": (" au-dessus d'", " au-dessous d'"),
    "larger than": (" plus grand", " plus petit"),
}
_NUMBERS = {2: ("two", "deux"), 3: ("three", "trois"), 4: ("four", "quatre")}
# Masculine and feminine; the plural adds an s.
_FRENCH_NOUNS = {
    "circle": ("cercle", "cercles"),
    "square": ("carré", "carrés"),
    "triangle": ("triangle", "triangles"),
    "cross": ("croix", "croix"),
    "ring": ("anneau", "anneaux"),
    "diamond": ("losange", "losanges"),
}
_FRENCH_WORDS = {
    "red": ("rouge", "rouge"),
    "green": ("vert", "verte"),
    "blue": ("bleu", "bleue"),
    "yellow": ("jaune", "jaune"),
    "purple": ("violet", "violette"),
    "white": ("blanc", "blanche"),
    "striped": ("rayé", "rayée"),
    "dotted": ("tacheté", "tachetée"),
    "small": ("petit", "petite"),
    "large": ("grand", "grande"),
}

_Phrase = tuple[str, str, str, tuple[Box, ...]]
"""What stands before a noun, the noun, what stands after it, and its boxes."""


def _english(group: Sequence[Thing], sized: bool) -> _Phrase:
    one = group[0]
    number = "a" if len(group) == 1 else _NUMBERS[len(group)][0]
    noun = one.shape if len(group) == 1 else one.shape + ("es" if one.shape == "cross" else "s")
    words = [number, one.size if sized else "", one.texture if one.texture != "plain" else "", one.colour]
    return " ".join(word for word in words if word) + " ", noun, "", tuple(thing.box for thing in group)


def _french(group: Sequence[Thing], sized: bool) -> _Phrase:
    one, feminine, several = group[0], _is_feminine(group[0]), len(group) > 1

    def agreeing(word: str) -> str:
        return _FRENCH_WORDS[word][feminine] + ("s" if several else "")

    number = _NUMBERS[len(group)][1] if several else ("une" if feminine else "un")
    before = f"{number} {agreeing(one.size)} " if sized else f"{number} "
    after = [agreeing(word) for word in (one.colour, one.texture) if word != "plain"]
    noun = _FRENCH_NOUNS[one.shape][several]
    return before, noun, "".join(f" {word}" for word in after), tuple(thing.box for thing in group)


def _is_feminine(thing: Thing) -> bool:
    return thing.shape == "cross"


def _joined(*parts: "_Phrase | str") -> Caption:
    text, nouns = "", []
    for part in parts:
        if isinstance(part, str):
            text += part
            continue
        before, noun, after, boxes = part
        start = len(text) + len(before)
        nouns.append(NounBoxes(start, start + len(noun), boxes))
        text += before + noun + after
    return Caption(text, tuple(nouns))


class Bits:
    """Random numbers from raw bits, which numpy promises never to change."""

    def __init__(self, key: tuple[int, int]) -> None:
        self._source = np.random.Philox(key=np.array(key, dtype=np.uint64))
        self._left: list[int] = []

    def raw(self) -> int:
        if not self._left:
            self._left = self._source.random_raw(64).tolist()
        return self._left.pop()

    def below(self, count: int) -> int:
        return (self.raw() >> 11) * count >> 53

    def choice(self, of: Sequence[Word]) -> Word:
        return of[self.below(len(of))]


def scene(seed: int, part: ScenePart, number: int) -> Scene:
    """One scene of a part. A caption of `valid` or `test` never occurs in `train`, whatever the seed."""
    bits = Bits((len(_PARTS) * seed + _PARTS.index(part), number))
    kind = bits.choice(_KINDS)  # before anything is sampled again, so that all kinds are alike often
    while True:
        found = _sampled(kind, bits, part == "combinations")
        if found is not None and (part == "combinations" or _part_of(found) == part):
            return found


def scenes(count: int, *, seed: int = 1, part: ScenePart = "train") -> Iterator[Scene]:
    """The first `count` scenes of a part."""
    return (scene(seed, part, number) for number in range(count))


def _part_of(found: Scene) -> ScenePart:
    """One caption of twenty is for validation, one for test: told from its text."""
    share = zlib.crc32(found.captions()[0].text.encode()) % 20
    return "valid" if share == 0 else "test" if share == 1 else "train"


def _sampled(kind: Kind, bits: Bits, held_out: bool) -> Scene | None:
    """A scene of a kind; None where what was sampled makes none."""
    counts = (1, 1)
    if kind == "row":
        counts = (1, 1, 1)
    elif kind == "count":
        counts = ((2, 1), (3, 1), (4, 1), (3, 2))[bits.below(4)]
    looks = [_look(bits) for _ in counts]
    if kind == "larger than":
        looks = [replace(looks[0], size="large"), replace(looks[1], shape=looks[0].shape, size="small")]
    elif kind in ("left of", "above"):
        # Like shapes of two sizes are told apart by size.
        if looks[0].shape == looks[1].shape and (looks[0].size != looks[1].size or looks[0] == looks[1]):
            return None
    elif len({(look.colour, look.shape) for look in looks}) < len(looks):
        return None
    if any((look.colour, look.shape) in HELD_OUT for look in looks) != held_out:
        return None
    groups = _placed(looks, counts, bits)
    if groups is None or not _holds(kind, groups):
        return None
    if kind in ("row", "left of"):
        groups = tuple(sorted(groups, key=lambda group: group[0].x))
    elif kind == "above":
        groups = tuple(sorted(groups, key=lambda group: group[0].y))
    return Scene(groups, kind, bits.raw())


def _holds(kind: Kind, groups: Sequence[tuple[Thing, ...]]) -> bool:
    """Whether the places of objects leave no doubt about what is said of them."""
    if kind == "row":
        middles = sorted(group[0].x for group in groups)
        return all(then - one >= _FURTHER for one, then in pairwise(middles))
    if kind in ("left of", "above"):
        (one,), (other,) = groups
        across, down = abs(other.x - one.x), abs(other.y - one.y)
        return (across - down if kind == "left of" else down - across) >= _ASIDE
    return True


def _look(bits: Bits) -> Thing:
    texture = TEXTURES[(0, 0, 1, 2)[bits.below(4)]]
    return Thing(bits.choice(SHAPES), bits.choice(COLOURS), bits.choice(tuple(SIZES)), texture)


def _placed(looks: Sequence[Thing], counts: Sequence[int], bits: Bits) -> tuple[tuple[Thing, ...], ...] | None:
    """As many of each as asked for, in places where none touches another; None where no room was found."""
    groups: list[tuple[Thing, ...]] = []
    taken: list[Thing] = []
    for look, count in zip(looks, counts, strict=True):
        reach, group = SIZES[look.size], []
        for _ in range(count):
            for _ in range(20):
                span = SIDE - 2 * reach - 2
                x, y = reach + 1 + bits.below(span), reach + 1 + bits.below(span)
                if all(_apart(x, y, reach, other) for other in taken):
                    break
            else:
                return None
            group.append(Thing(look.shape, look.colour, look.size, look.texture, x, y))
            taken.append(group[-1])
        groups.append(tuple(group))
    return tuple(groups)


def _apart(x: int, y: int, reach: int, other: Thing) -> bool:
    return max(abs(x - other.x), abs(y - other.y)) >= reach + SIZES[other.size] + _GAP


def draw(found: Scene, size: int = SIDE) -> UInt8[np.ndarray, "Y X 3"]:
    """The scene as an image of `size` x `size` pixels."""
    random = np.random.Philox(key=np.array([found.bits, 1], dtype=np.uint64))
    raw = random.random_raw(size * size // 8 + 64).view(np.uint8)
    image = np.empty((size, size, 3), dtype=np.int16)
    image[:] = (20 + raw[:3] % 40)[None, None]
    image += (raw[512 : 512 + size * size].reshape(size, size, 1) % 16).astype(np.int16)
    rows, columns = (np.arange(size) + 0.5) * (SIDE / size) - 0.5, (np.arange(size) + 0.5) * (SIDE / size) - 0.5
    y, x = rows[:, None], columns[None, :]
    for mark in range(int(raw[4]) % 4):  # grey: no caption mentions them
        left, top, upright = (int(value) for value in raw[8 + 3 * mark : 11 + 3 * mark])
        wide, tall = (1, 5) if upright % 2 else (5, 1)
        inside = (abs(x - left % SIDE) <= wide / 2) & (abs(y - top % SIDE) <= tall / 2)
        image[inside] = 110 + left % 40
    for number, thing in enumerate(found.things):
        shift = raw[32 + 3 * number : 35 + 3 * number].astype(np.int16) % 31 - 15
        colour = np.array(_RGB[thing.colour], dtype=np.int16) + shift
        reach = SIZES[thing.size]
        beside, above = _near(columns, thing.x, reach), _near(rows, thing.y, reach)
        across, down, part = x[:, beside] - thing.x, y[above] - thing.y, image[above, beside]
        inside = _inside(thing.shape, across, down, reach)
        part[inside] = colour
        part[inside & _dark(thing.texture, across, down)] = colour * 2 // 5
    return image.clip(0, 255).astype(np.uint8)


def _near(places: np.ndarray, middle: int, reach: int) -> slice:
    """The places within reach of a middle, and a little more."""
    first, last = np.searchsorted(places, (middle - reach - 1, middle + reach + 1))
    return slice(int(first), int(last))


def _inside(shape: str, x: np.ndarray, y: np.ndarray, reach: int) -> Bool[np.ndarray, "Y X"]:
    if shape == "square":
        return np.maximum(abs(x), abs(y)) <= 0.85 * reach
    if shape == "triangle":
        return (abs(y) <= reach) & (2 * abs(x) <= y + reach)
    if shape == "cross":
        arm = reach / 3
        return (np.maximum(abs(x), abs(y)) <= reach) & (np.minimum(abs(x), abs(y)) <= arm)
    if shape == "diamond":
        return abs(x) + abs(y) <= reach
    distance = x**2 + y**2
    return (distance <= (reach + 0.3) ** 2) & (shape != "ring" or distance >= (0.4 * reach) ** 2)


def _dark(texture: str, x: np.ndarray, y: np.ndarray) -> Bool[np.ndarray, "Y X"]:
    """Where a texture is dark: every other two pixels of rows, or of rows and columns."""
    rows = np.floor(y / 2 + 0.25) % 2 == 1
    if texture == "striped":
        return rows & (abs(x) >= 0)
    return rows & (np.floor(x / 2 + 0.25) % 2 == 1) if texture == "dotted" else np.zeros(np.broadcast(x, y).shape, bool)


@dataclass(frozen=True)
class SceneImages:
    """Scenes as a source of images, as `regard.data.images` takes them, with captions and their gold."""

    rows: tuple[int, ...]
    seed: int
    part: ScenePart
    size: int = SIDE
    labels: None = None

    @classmethod
    def of(cls, count: int, *, seed: int = 1, part: ScenePart = "train", size: int = SIDE) -> "SceneImages":
        return cls(tuple(range(count)), seed, part, size)

    @cached_property
    def scenes(self) -> list[Scene]:
        return [scene(self.seed, self.part, row) for row in self.rows]

    @property
    def names(self) -> list[str]:
        return [f"{self.part}-{row}" for row in self.rows]

    def read(self, channels: int, then: Callable[[np.ndarray], Made]) -> Iterator[Made]:
        return (then(self.drawn(place, channels)) for place in range(len(self.rows)))

    def drawn(self, place: int, channels: int) -> UInt8[np.ndarray, "Y X C"]:
        image = draw(self.scenes[place], self.size)
        return image if channels == 3 else image.mean(-1, keepdims=True).round().astype(np.uint8)

    def captioned(self, language: Language) -> CaptionSource:
        """The same with every right caption of each scene, and of the first its boxes."""
        captions = [scene.captions(language) for scene in self.scenes]
        gold = tuple(several[0].scaled(self.size // SIDE) for several in captions)
        return CaptionSource(self, tuple(tuple(one.text for one in several) for several in captions), gold=gold)

    def select(self, rows: Sequence[int]) -> "SceneImages":
        return replace(self, rows=tuple(self.rows[row] for row in rows))

    def digest(self) -> str:
        """From this file's own text too, so that scenes that changed are other images."""
        digest = hashlib.sha256(repr(("scenes", self.rows, self.seed, self.part, self.size)).encode())
        digest.update(Path(__file__).read_bytes().replace(b"\r\n", b"\n"))
        return digest.hexdigest()


@dataclass(frozen=True)
class DrawnScenes:
    """The pixels of scenes, rendered when they are asked for, in the place of a store on disk: `drawn[rows]`.

    A store of as many scenes as training reads would take a gigabyte, and rendering costs a tenth of training on them.
    """

    images: SceneImages
    channels: int = 3

    def __len__(self) -> int:
        return len(self.images.rows)

    def mean_and_std(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Of each channel, over the first scenes, of values between 0 and 1."""
        values = self[:1024] / 255
        mean, std = values.mean((0, 2, 3)), values.std((0, 2, 3))
        return tuple(round(float(one), 6) for one in mean), tuple(round(float(one), 6) for one in std)

    def __getitem__(self, rows: Int[np.ndarray, " N"] | slice) -> UInt8[np.ndarray, "N C Y X"]:
        places = np.arange(len(self))[rows].tolist()
        return np.stack([self.images.drawn(place, self.channels).transpose(2, 0, 1) for place in places])
