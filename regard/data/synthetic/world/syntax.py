"""The abstract syntax of a sentence: what it says, before either language has put it into words.

Plain frozen records, one for each construction. `english.py` and `french.py` each turn them into words; nothing
here knows an order of words. The same record must not stand twice in one sentence: its place is found by identity.
"""

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from regard.data.synthetic.world.function_words import Locality
from regard.data.synthetic.world.lexicon import Adjective, LexicalVerb, Noun, Trade

# Where each part of a record stands among the English words, by the record's identity and the part's name.
Places = dict[tuple[int, str], tuple[int, ...]]

Tense = Literal["past", "present"]
Negation = Literal["", "not", "never"]


@dataclass(frozen=True, slots=True, eq=False)
class NounPhrase:
    """A noun with what belongs to it: "the small dog of the king that sleeps"."""

    noun: Noun
    determiner: str = "the"
    plural: bool = False
    adjectives: tuple[Adjective, ...] = ()
    adjunct: "Adjunct | None" = None
    relative: "RelativeClause | None" = None
    person: int = 3

    @property
    def feminine(self) -> bool:
        return self.noun.feminine


@dataclass(frozen=True, slots=True, eq=False)
class PersonName:
    """Someone called by name."""

    name: str
    feminine: bool
    plural: bool = False
    person: int = 3


@dataclass(frozen=True, slots=True, eq=False)
class PlaceName:
    """A town or a country as what a verb is about: "went to Paris"."""

    locality: Locality
    feminine: bool = False
    plural: bool = False
    person: int = 3


@dataclass(frozen=True, slots=True, eq=False)
class Coordination:
    """Two joined by "and": plural, and masculine unless both are feminine."""

    first: "Nominal"
    second: "Nominal"
    plural: bool = True
    person: int = 3

    @property
    def feminine(self) -> bool:
        return self.first.feminine and self.second.feminine


@dataclass(frozen=True, slots=True, eq=False)
class PronounPhrase:
    """A pronoun: one who speaks (`I`, `we`), or one who stands for `antecedent`."""

    word: Literal["I", "we", "he", "she", "it", "they"]
    antecedent: "Nominal | None" = None

    @property
    def person(self) -> int:
        return 1 if self.word in ("I", "we") else 3

    @property
    def plural(self) -> bool:
        return self.word in ("we", "they")

    @property
    def feminine(self) -> bool:
        return self.word == "she" or (self.antecedent is not None and self.antecedent.feminine)


Nominal: TypeAlias = NounPhrase | PersonName | PlaceName | Coordination | PronounPhrase


@dataclass(frozen=True, slots=True, eq=False)
class Date:
    """A date of which any part may be missing: "in August 1992", "on 3 May", "on Monday"."""

    year: str = ""
    month: str = ""
    day: str = ""
    weekday: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Adverb:
    """One adverb at the end of the clause."""

    word: str


@dataclass(frozen=True, slots=True, eq=False)
class Adjunct:
    """A preposition and what it governs."""

    preposition: str
    object: Nominal


Adverbial: TypeAlias = Date | Adverb | Adjunct


@dataclass(frozen=True, slots=True, eq=False)
class Action:
    """Someone does something."""

    verb: LexicalVerb
    object: Nominal | None = None
    tense: Tense = "past"
    negation: Negation = ""
    frequency: str = ""
    adverbials: tuple[Adverbial, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class PredicateAdjective:
    """Someone or something is in a state: "was too tired"."""

    adjectives: tuple[Adjective, ...]
    degree: str = ""
    tense: Tense = "past"
    negation: Negation = ""
    frequency: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Profession:
    """Someone has a trade: "am a student"; French says the article only beside an adjective."""

    trade: Trade
    adjective: Adjective | None = None
    tense: Tense = "present"
    negation: Negation = ""


@dataclass(frozen=True, slots=True, eq=False)
class Passive:
    """The passive, always of a past event: "was signed by the king". Birth is said the same way in English."""

    verb: LexicalVerb | None  # None: "was born"
    agent: Nominal | None = None
    negation: Negation = ""
    adverbials: tuple[Adverbial, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class ReportedSpeech:
    """Someone says or thinks that something is so."""

    verb: LexicalVerb
    clause: "Clause"
    tense: Tense = "present"
    negation: Negation = ""


Predicate: TypeAlias = Action | PredicateAdjective | Profession | Passive | ReportedSpeech


@dataclass(frozen=True, slots=True, eq=False)
class RelativeClause:
    """A clause about a noun. With no subject of its own, the noun is its subject; otherwise it is its object."""

    predicate: Predicate
    subject: Nominal | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Clause:
    """A subject with what is said of it, and at most one subordinate clause at its end."""

    subject: Nominal
    predicates: tuple[Predicate, ...]
    subordinator: str = ""
    subordinate: "Clause | None" = None


@dataclass(frozen=True, slots=True, eq=False)
class Thanks:
    """ "Thanks", alone, or to someone, or for something."""

    to: Nominal | None = None
    cause: Nominal | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Statement:
    """A whole sentence: clauses joined by `coordinators`, perhaps a circumstance in front, perhaps a final period."""

    clauses: tuple[Clause, ...]
    coordinators: tuple[str, ...] = ()
    opening: Date | Adjunct | None = None
    thanks: Thanks | None = None
    period: bool = field(default=True, kw_only=True)
