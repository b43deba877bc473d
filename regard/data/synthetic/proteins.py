"""Toy proteins with planted contacts: what a masked language model of symbols can find, and where it should look."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from regard.data.formats import check_file, numbered, objects
from regard.data.synthetic.world.corpus import Split
from regard.data.synthetic.world.sample_phrases import StableRandom
from regard.errors import DataError

AMINO_ACIDS = "ACDEFGHIKLMNPQRSTVWY"
PARTNERS = dict(zip(AMINO_ACIDS, reversed(AMINO_ACIDS), strict=True))
"""What stands at the other end of a contact."""
APART = 6
"""Contacts are between places so far apart, or farther, as is usual where contacts are scored."""
CONSERVED, PAIRED = 0.9, 0.95
"""How often a place without a contact has its family's symbol, and a contact its right partner."""


@dataclass(frozen=True, slots=True)
class SymbolSequence:
    """Symbols, and pairs of their places that are in contact, counted from 0."""

    text: str
    contacts: tuple[tuple[int, int], ...]

    @property
    def symbols(self) -> list[str]:
        """What spaces separate, or else every character."""
        return self.text.split() if " " in self.text.strip() else list(self.text.strip())


@dataclass(frozen=True, slots=True)
class ProteinFamily:
    """Proteins of one fold: the symbols usual at its places, and its contacts."""

    usual: str
    contacts: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, number: int) -> "ProteinFamily":
        rng = StableRandom(f"protein family {number}")
        length = 40 + rng.choice(range(25))
        usual = "".join(rng.choice(AMINO_ACIDS) for _ in range(length))
        free, contacts = list(range(length)), []
        for _ in range(length // 3):
            one = rng.choice(free)
            others = [place for place in free if abs(place - one) >= APART]
            if not others:
                continue
            other = rng.choice(others)
            free = [place for place in free if place not in (one, other)]
            contacts.append((min(one, other), max(one, other)))
        return cls(usual, tuple(sorted(contacts)))

    def sampled(self, rng: StableRandom) -> SymbolSequence:
        symbols = [one if rng.chance(CONSERVED) else rng.choice(AMINO_ACIDS) for one in self.usual]
        for one, other in self.contacts:
            symbols[one] = rng.choice(AMINO_ACIDS)
            symbols[other] = PARTNERS[symbols[one]] if rng.chance(PAIRED) else rng.choice(AMINO_ACIDS)
        return SymbolSequence("".join(symbols), self.contacts)


def proteins(count: int, *, families: int = 8, seed: int = 0, split: Split = "train") -> Iterator[SymbolSequence]:
    """`count` proteins of so many families, always the same for the same seed and split.

    A protein's places without a contact are mostly its family's own, by which a model can tell the family; the two ends
    of a contact vary together, so that a hidden one can be told from the other alone.
    """
    rng, known = StableRandom(f"proteins {seed} {split}"), [ProteinFamily.of(number) for number in range(families)]
    for _ in range(count):
        yield rng.choice(known).sampled(rng)


def read_sequences(path: Path) -> list[SymbolSequence]:
    """The sequences of a JSONL file with their contacts: {"text": "MKV...", "contacts": [[0, 9], ...]}."""
    check_file(path)
    found = []
    for number, record in objects(path, numbered(path)):
        text, contacts = record.get("text"), record.get("contacts")
        if not isinstance(text, str) or not isinstance(contacts, list):
            raise DataError(f"{path}, row {number} must have a 'text' and a list of 'contacts'")
        one = SymbolSequence(text, ())
        length = len(one.symbols)
        for pair in contacts:
            good = isinstance(pair, list) and len(pair) == 2 and all(type(place) is int for place in pair)
            if not good or not 0 <= pair[0] < pair[1] < length:
                raise DataError(
                    f"{path}, row {number}: the contact {json.dumps(pair)[:40]} must be two places below {length}, "
                    "the smaller first"
                )
        found.append(SymbolSequence(text, tuple((pair[0], pair[1]) for pair in contacts)))
    if not found:
        raise DataError(f"{path} is empty")
    return found
