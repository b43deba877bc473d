"""Bundled rows of several sources with one right answer: two smudged paraphrases, a sentence with a scene, and a
smudged sentence with the word that is spoken.

Everything is a function of (kind, seed, part, number). What is held out is told from the answer, so that no answer of
`valid` or `test` occurs in `train`.
"""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Bool, UInt8

from regard.data.synthetic.scenes import COLOURS as SCENE_COLOURS
from regard.data.synthetic.scenes import SIDE, Bits, Scene, Thing, draw
from regard.data.synthetic.speech import DIGITS, LEAST_NOISE, LOUDEST_NOISE, VOICES_OF, Utterance

SourcesKind = Literal["paraphrases", "ambiguous", "spoken"]
SourcesPart = Literal["train", "valid", "test"]
PARTS: tuple[SourcesPart, ...] = ("train", "valid", "test")
FIRST_KEYS: dict[SourcesKind, tuple[int, int]] = {"paraphrases": (0, 6), "ambiguous": (3, 6), "spoken": (1 << 32, 3)}
"""Of the random bits of each kind: that of seed 0, and how far apart those of two seeds are."""
SOURCES: dict[SourcesKind, tuple[str, str]] = {
    "paraphrases": ("first", "second"),
    "ambiguous": ("sentence", "image:scene"),
    "spoken": ("sentence", "sound:word"),
}
SMUDGE = "▒"

ADJECTIVES = ("old", "young", "quiet", "clever", "hungry", "proud", "tired", "happy", "small", "brave")
PEOPLE = ("teacher", "farmer", "doctor", "sailor", "singer", "baker", "painter", "judge", "nurse", "pilot")
VERBS = ("saw", "heard", "followed", "helped", "found", "called", "thanked", "met", "praised", "warned")
PLACES = ("in the garden", "at the station", "on the bridge", "near the church", "by the river", "behind the school")
TIMES = ("yesterday", "today", "last night", "on Monday", "in spring", "at noon")
SLOTS = (ADJECTIVES, PEOPLE, VERBS, ADJECTIVES, PEOPLE, PLACES, TIMES)

SENSES: dict[str, tuple[tuple[str, str], tuple[str, str]]] = {
    "bat": (("wings", "une chauve-souris"), ("club", "une batte")),
    "bank": (("waves", "une rive"), ("house", "une banque")),
    "seal": (("animal", "un phoque"), ("stamp", "un sceau")),
    "spring": (("drops", "une source"), ("coil", "un ressort")),
    "nail": (("finger", "un ongle"), ("spike", "un clou")),
}
"""Ambiguous words; of each sense how it is rendered, and what it is in French."""
BESIDE = {
    "near the tree": "près de l'arbre",
    "behind the door": "derrière la porte",
    "in front of the wall": "devant le mur",
    "under the table": "sous la table",
    "on the left": "à gauche",
    "on the right": "à droite",
    "in my garden": "dans mon jardin",
    "in this image": "dans cette image",
}
SHAPES = {"circle": "cercle", "square": "carré", "triangle": "triangle", "ring": "anneau", "diamond": "losange"}
SPOKEN = (
    DIGITS,
    ("red", "green", "blue", "yellow", "black", "white"),
    ("house", "tree", "dog", "cat", "bird", "fish", "book", "table", "chair", "door"),
    ("garden", "river", "mountain", "window", "water", "fire", "moon", "star"),
)
"""What a statement of which one word is spoken has in its four places."""
COLOURS = {"red": "rouge", "green": "vert", "blue": "bleu", "yellow": "jaune", "purple": "violet", "white": "blanc"}


@dataclass(frozen=True, slots=True)
class SourcedRow:
    """The sources of a row, in their order, and the text to write.

    A source is a text, an image, a sound, or None where it is missing.
    """

    sources: tuple["str | UInt8[np.ndarray, 'Y X C'] | Path | Utterance | None", ...]
    output: str


def sourced_row(kind: SourcesKind, seed: int, part: SourcesPart, number: int) -> SourcedRow:
    """One row of a part."""
    first, apart = FIRST_KEYS[kind]
    bits = Bits((first + apart * seed + PARTS.index(part), number))
    while True:
        if kind == "paraphrases":
            found = _paraphrases(bits)
        elif kind == "ambiguous":
            found = _ambiguous(bits, described=part == "train")
        else:
            found = _spoken(bits, part)
        if kind == "ambiguous" or _part_of(found.output) == part:  # of the second it is the image that is new
            return found


def sourced_rows(kind: SourcesKind, count: int, *, seed: int = 1, part: SourcesPart = "train") -> Iterator[SourcedRow]:
    """The first `count` rows of a part."""
    return (sourced_row(kind, seed, part, number) for number in range(count))


def _part_of(text: str) -> SourcesPart:
    share = zlib.crc32(text.encode()) % 20
    return "valid" if share == 0 else "test" if share == 1 else "train"


def _paraphrases(bits: Bits) -> SourcedRow:
    """Each of seven words is smudged in one of two paraphrases, in the other, or in none; at least one in each."""
    said = [bits.choice(slot) for slot in SLOTS]
    hidden = [bits.below(3) for _ in said]
    while not {0, 1} <= set(hidden):
        hidden = [bits.below(3) for _ in said]
    one, other = (
        [SMUDGE if place == which else word for word, place in zip(said, hidden, strict=True)] for which in (0, 1)
    )
    adjective, person, verb, whose, whom, where, when = one
    first = f"{when} the {adjective} {person} {verb} the {whose} {whom} {where} ."
    adjective, person, verb, whose, whom, where, when = other
    second = f"it was the {whose} {whom} that the {adjective} {person} {verb} {where} {when} ."
    adjective, person, verb, whose, whom, where, when = said
    return SourcedRow((first, second), f"the {adjective} {person} {verb} the {whose} {whom} {where} {when}")


def _spoken(bits: Bits, part: SourcesPart) -> SourcedRow:
    """A statement with one of its four words smudged, and that word alone, spoken in noise by a voice of the part."""
    said = [bits.choice(words) for words in SPOKEN]
    hidden = bits.below(len(SPOKEN))
    seen = [SMUDGE if place == hidden else word for place, word in enumerate(said)]
    noise = LOUDEST_NOISE + (LEAST_NOISE - LOUDEST_NOISE) * bits.below(1000) / 1000
    word = Utterance(
        (said[hidden],), VOICES_OF[part][bits.below(len(VOICES_OF[part]))], noise, (bits.raw(), bits.raw())
    )
    text = "number {} : a {} {} near the {}"
    return SourcedRow((text.format(*seen), word), text.format(*said))


def _ambiguous(bits: Bits, *, described: bool) -> SourcedRow:
    """A word of two senses, of which one is shown; or an *it* that is one of two shapes: that with the colour.

    An *it* gives one bit, and only to who knows colours, shapes and which belong together: it is not learnt from such
    rows alone. With `described`, as in training, a third of the rows teach what it takes: a scene without a sentence,
    and what it shows.
    """
    which = bits.below(3)
    if which == 0:
        return _pronoun(bits)
    if described and which == 1:
        return _described(bits)
    word = bits.choice(tuple(SENSES))
    icon, french = SENSES[word][bits.below(2)]
    where = bits.choice(tuple(BESIDE))
    return SourcedRow((f"there is a {word} {where}", _icon(icon, bits)), f"il y a {french} {BESIDE[where]}")


def _pronoun(bits: Bits) -> SourcedRow:
    (one, other), meant, image = _two_shapes(bits)
    said = f"there is a {one.shape} and a {other.shape} . it is {meant.colour}"
    return SourcedRow((said, image), f"le {SHAPES[meant.shape]} est {COLOURS[meant.colour]}")


def _described(bits: Bits) -> SourcedRow:
    """What a scene shows, from left to right."""
    things, _, image = _two_shapes(bits)
    said = [f"un {SHAPES[one.shape]} {COLOURS[one.colour]}" for one in sorted(things, key=lambda thing: thing.x)]
    return SourcedRow((None, image), " et ".join(said))


def _two_shapes(bits: Bits) -> tuple[list[Thing], Thing, UInt8[np.ndarray, "Y X 3"]]:
    """Two different shapes of different colours, one of them, and how they are rendered."""
    names = tuple(SHAPES)
    one = bits.choice(names)
    other = bits.choice(tuple(name for name in names if name != one))
    colour = bits.choice(SCENE_COLOURS)
    rest = bits.choice(tuple(name for name in SCENE_COLOURS if name != colour))
    meant = bits.below(2)
    things = [
        Thing(shape, colour if number == meant else rest, "large", "plain", 14 + 36 * number, 16 + bits.below(32))
        for number, shape in enumerate((one, other))
    ]
    if bits.below(2):  # which stands on the left says nothing
        things = [Thing(t.shape, t.colour, t.size, t.texture, SIDE - t.x, t.y) for t in things]
    return things, things[meant], draw(Scene(tuple((thing,) for thing in things), "row", bits.raw()), SIDE)


def _icon(name: str, bits: Bits) -> UInt8[np.ndarray, "Y X 3"]:
    """One sense, in any colour and place, on a dark ground with noise."""
    noise = np.random.Philox(key=np.array([bits.raw(), 2], dtype=np.uint64)).random_raw(SIDE * SIDE // 8).view(np.uint8)
    image = (20 + bits.below(40) + noise.reshape(SIDE, SIDE, 1) % 16).astype(np.int16).repeat(3, axis=2)
    reach = 14 + bits.below(7)
    span = SIDE - 2 * reach
    x0, y0 = reach + bits.below(span), reach + bits.below(span)
    y, x = np.mgrid[0:SIDE, 0:SIDE].astype(np.float64)
    inside = _rendered(name, (x - x0) / reach, (y - y0) / reach)
    image[inside] = np.array([120 + bits.below(130) for _ in range(3)], dtype=np.int16)
    return image.clip(0, 255).astype(np.uint8)


def _rendered(name: str, x: np.ndarray, y: np.ndarray) -> Bool[np.ndarray, "Y X"]:
    """The places of an icon, from -1 to 1 across and down."""
    icons = {
        "wings": lambda: (abs(y) <= abs(x) * 0.7) & (abs(x) >= 0.15) | (x**2 + y**2 <= 0.06),
        "club": lambda: (abs(x - y) <= 0.12 + 0.16 * (x + 1)) & (x + y <= 1.6),
        "waves": lambda: abs((y * 2.5 - 0.4 * np.sin(6 * x)) % 1 - 0.5) <= 0.18,
        "house": lambda: ((abs(x) <= 0.8) & (y >= 0)) | ((y < 0) & (abs(x) <= y + 1)),
        "animal": lambda: ((x / 1.0) ** 2 + (y / 0.4) ** 2 <= 1) | ((x - 0.7) ** 2 + (y + 0.35) ** 2 <= 0.09),
        "stamp": lambda: ((abs(x) <= 0.25) & (y <= 0.2)) | ((abs(x) <= 0.8) & (y >= 0.4)),
        "drops": lambda: (
            sum(((x - a) ** 2 + (y - b) ** 2 <= 0.05) for a, b in ((0, -0.6), (-0.5, 0.1), (0.5, 0.1), (0, 0.7))) > 0
        ),
        "coil": lambda: abs(x - 0.7 * np.sign(np.sin(9 * y)) * abs((y * 2.9) % 2 - 1)) <= 0.22,
        "finger": lambda: (abs(x) <= 0.3) & (y >= -0.5) | (x**2 + (y + 0.5) ** 2 <= 0.09),
        "spike": lambda: ((abs(y + 0.8) <= 0.2) & (abs(x) <= 0.7)) | ((abs(x) <= 0.12) & (y >= -0.6)),
    }
    return (abs(x) <= 1) & (abs(y) <= 1) & icons[name]()
