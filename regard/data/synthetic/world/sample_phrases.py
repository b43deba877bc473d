"""Noun phrases, predicates and adverbials sampled at random, evenly within a kind so that no word is rare."""

from collections.abc import Sequence
from random import Random
from typing import TypeVar

from regard.data.synthetic.world import function_words
from regard.data.synthetic.world.lexicon import (
    AFTER,
    BEFORE,
    INNER,
    LIVING,
    NOUNS,
    OUTER,
    PAPERS,
    PEOPLE,
    RECALLED,
    STATES,
    VERBS,
    Adjective,
    LexicalVerb,
    Noun,
)
from regard.data.synthetic.world.syntax import (
    Action,
    Adjunct,
    Adverb,
    Adverbial,
    Coordination,
    Date,
    Negation,
    Nominal,
    NounPhrase,
    PersonName,
    PlaceName,
    PredicateAdjective,
    RelativeClause,
    Tense,
)

Item = TypeVar("Item")


class StableRandom:
    """Random choices that are the same everywhere: made of `Random.random` alone, whose numbers no version of Python
    changes."""

    def __init__(self, seed: str) -> None:
        self.random = Random(seed).random

    def choice(self, items: Sequence[Item]) -> Item:
        """One of the items, all equally likely."""
        return items[int(self.random() * len(items))]

    def chance(self, share: float) -> bool:
        """True in that share of all cases."""
        return self.random() < share


_LOCAL = [verb for verb in VERBS if verb.objects == ("locality",)]
_ALONE = {kind: [verb for verb in VERBS if kind in verb.subjects and not verb.objects] for kind in LIVING}
_TOWARDS = {kind: [v for v in VERBS if kind in v.subjects and v.objects and v not in _LOCAL] for kind in LIVING}
_RECALLED = {kind: [verb for verb in RECALLED if kind in verb.objects] for kind in STATES}
# "Une vieille fille" is a spinster and "une belle-sœur" a sister-in-law.
_MISLEADING = {
    "old": ("girl", "boy", "child"),
    "beautiful": ("father", "mother", "brother", "sister", "child"),
}
BEFORE_NOUN: dict[str, tuple[Adjective, ...]] = {
    noun.english: tuple(word for word in BEFORE[kind] if noun.english not in _MISLEADING.get(word.english, ()))
    for kind in BEFORE
    for noun in NOUNS[kind]
}
# Done in one way only and for nobody, so no adverb says how and nothing for whom.
_PLAIN = ("arrive", "enter", "fall", "find", "go", "lose", "sleep", "see", "forget", "meet", "know")
_MONTHS, _WEEKDAYS, _MANNERS = (
    tuple(function_words.MONTHS),
    tuple(function_words.WEEKDAYS),
    tuple(function_words.MANNERS),
)
_DEGREES, _FREQUENCIES = tuple(function_words.DEGREES), tuple(function_words.FREQUENCIES)
_FEW = ("a", "a", "a", "this", "my", "our", "every")
_MANY = ("a", "a", "this", "my", "our", "every", "many", "several", *function_words.NUMBERS)


def definite(rng: StableRandom) -> str:
    """A determiner that points: what a negated verb, "of" or "without" can govern in any language."""
    return "the" if rng.chance(0.7) else rng.choice(("this", "my", "our"))


def adjectives(rng: StableRandom, noun: Noun) -> tuple[Adjective, ...]:
    """None, one, or one for each side of the French noun."""
    before, after = BEFORE_NOUN[noun.english], AFTER[noun.kind]
    share = rng.random()
    if share < 0.54:
        return ()
    if share < 0.72:
        return (rng.choice(before),)
    if share < 0.93:
        return (rng.choice(after),)
    return (rng.choice(before), rng.choice(after))


def noun_phrase(
    rng: StableRandom, kind: str, determiner: str = "", plural: bool | None = None, deep: bool = False
) -> NounPhrase:
    """A noun of the kind with what belongs to it; only where it is `deep` may that be a clause or a complement."""
    if plural is None:
        plural = rng.chance(0.32)
    if not determiner:
        determiner = "the" if rng.chance(0.56) else rng.choice(_MANY if plural else _FEW)
    noun = rng.choice(NOUNS[kind])
    words = adjectives(rng, noun)
    share = rng.random() if deep else 1.0
    if share < 0.13:
        return NounPhrase(noun, determiner, plural, words, relative=relative_clause(rng, kind))
    if share < 0.4 and kind in PAPERS:
        return NounPhrase(noun, determiner, plural, words, Adjunct("on", institution(rng)))
    if share < 0.2 and kind in ("building", "thing", "container"):
        return NounPhrase(noun, "the", plural, words, Adjunct("of", noun_phrase(rng, "person", definite(rng))))
    return NounPhrase(noun, determiner, plural, words)


def institution(rng: StableRandom) -> NounPhrase:
    """An institution: "the European Economic Area"."""
    share = rng.random()
    if share < 0.5:
        words: tuple[Adjective, ...] = (rng.choice(OUTER), rng.choice(INNER))
    else:
        words = (rng.choice(OUTER if share < 0.75 else INNER),)
    return NounPhrase(rng.choice(NOUNS["organisation"]), "the", False, words)


def person_name(rng: StableRandom, feminine: bool | None = None) -> PersonName:
    """Someone called by name."""
    if feminine is None:
        feminine = rng.chance(0.5)
    return PersonName(rng.choice(function_words.WOMEN if feminine else function_words.MEN), feminine)


def coordination(rng: StableRandom, feminine: bool | None = None) -> Coordination:
    """Two people, by their names or by what they are."""
    first = person_name(rng, feminine)
    if feminine is None and rng.chance(0.5):
        return Coordination(
            noun_phrase(rng, "person", "the", False), noun_phrase(rng, rng.choice(PEOPLE), "the", False)
        )
    second = person_name(rng, feminine)
    while second.name == first.name:
        second = person_name(rng, feminine)
    return Coordination(first, second)


def someone(rng: StableRandom, deep: bool = False, determiner: str = "") -> Nominal:
    """One person or several: by name, by a noun, or two joined."""
    share = rng.random()
    if share < 0.27:
        return person_name(rng)
    if share < 0.39:
        return coordination(rng)
    return noun_phrase(rng, rng.choice(PEOPLE), determiner, deep=deep)


def relative_clause(rng: StableRandom, kind: str) -> RelativeClause:
    """A clause about a noun of the kind."""
    tense: Tense = "past" if rng.chance(0.6) else "present"

    def in_state() -> RelativeClause:
        return RelativeClause(
            PredicateAdjective((rng.choice(STATES[kind]),), rng.choice(("", "", "very", "so", "too")), tense)
        )

    if kind not in LIVING and rng.chance(0.3):
        return in_state()
    if _RECALLED[kind] and (kind not in LIVING or rng.chance(0.4)):
        verb = rng.choice(_RECALLED[kind])
        who = person_name(rng) if rng.chance(0.5) else noun_phrase(rng, rng.choice(PEOPLE), "the")
        return RelativeClause(Action(verb, tense=tense if verb.state else "past"), who)
    if rng.chance(0.25):
        return in_state()
    return RelativeClause(action(rng, kind, tense, around=False))


def object_relative(rng: StableRandom, kind: str, main: LexicalVerb) -> RelativeClause | None:
    """A clause that someone with a name did something to a noun of the kind, other than what the main verb says."""
    verb = rng.choice(_RECALLED[kind]) if _RECALLED[kind] else main
    return RelativeClause(Action(verb), person_name(rng)) if verb is not main else None


def negation(rng: StableRandom, share: float) -> Negation:
    """A negation in that share of all cases, mostly the plain one."""
    if not rng.chance(share):
        return ""
    return "never" if rng.chance(0.2) else "not"


def date(rng: StableRandom) -> Date:
    """A date of one of five shapes."""
    share = rng.random()
    if share < 0.45:
        return Date(rng.choice(function_words.YEARS), rng.choice(_MONTHS))
    if share < 0.65:
        return Date(rng.choice(function_words.YEARS))
    if share < 0.85:
        return Date(rng.choice(function_words.YEARS), rng.choice(_MONTHS), rng.choice(function_words.DAYS))
    if share < 0.92:
        return Date("", rng.choice(_MONTHS), rng.choice(function_words.DAYS))
    return Date(weekday=rng.choice(_WEEKDAYS))


def locality(rng: StableRandom) -> Adjunct:
    """In some town or country."""
    return Adjunct("in", PlaceName(rng.choice(function_words.LOCALITIES)))


def adverbial(rng: StableRandom, verb: LexicalVerb, tense: Tense, negated: Negation) -> Adverbial:
    """When, how, where or with whom."""
    share = rng.random()
    if share < 0.3 and tense == "past" and negated != "never":
        return date(rng)
    if share < 0.5 and negated != "never" and verb.base not in _PLAIN:
        # What happened yesterday is past; every other adverb goes with every tense.
        return Adverb(rng.choice(_MANNERS if tense == "past" else _MANNERS[1:]))
    if share < 0.62:
        return locality(rng)
    if share < 0.78:
        company = ("with", "without") if verb.base in _PLAIN else ("with", "without", "for")
        return Adjunct(rng.choice(company), someone(rng, determiner=definite(rng)))
    preposition = rng.choice(("in", "near", "behind", "in front of"))
    kind = "way" if preposition != "in" and rng.chance(0.4) else "building"  # one is not in a bridge
    return Adjunct(preposition, noun_phrase(rng, kind, definite(rng)))


def object_of(rng: StableRandom, verb: LexicalVerb, negated: Negation, deep: bool) -> Nominal:
    """What the verb is about."""
    kind = rng.choice(verb.objects)
    if kind == "locality":
        return PlaceName(rng.choice(function_words.LOCALITIES))
    if kind == "person" and rng.chance(0.3):
        return person_name(rng)
    if verb.french_preposition:  # "de" swallows "des", so only what points may follow
        return noun_phrase(rng, kind, definite(rng), deep=deep)
    if negated:
        absent = rng.chance(0.15) and not verb.state
        return noun_phrase(rng, kind, "any" if absent else definite(rng), deep=deep and not absent)
    return noun_phrase(rng, kind, deep=deep)


def action(
    rng: StableRandom, kind: str, tense: Tense, negated: Negation = "", deep: bool = False, around: bool = True
) -> Action:
    """Something that one of the kind does."""
    share = rng.random()
    if share < 0.2:
        verb = rng.choice(_ALONE[kind])
    elif share < 0.27 and kind != "animal":
        verb = rng.choice(_LOCAL)
    else:
        verb = rng.choice(_TOWARDS[kind])
    whom = object_of(rng, verb, negated, deep) if verb.objects else None
    when: tuple[Adverbial, ...] = ()
    plain = not isinstance(whom, NounPhrase) or (whom.relative is None and whom.adjunct is None)
    if around and plain and not verb.state and rng.chance(0.35 if verb.objects else 0.7):
        somewhere = isinstance(whom, PlaceName) and tense == "past" and not negated
        when = (date(rng) if somewhere else adverbial(rng, verb, tense, negated),)
    frequency = rng.choice(_FREQUENCIES) if tense == "present" and not negated and rng.chance(0.2) else ""
    return Action(verb, whom, tense, negated, frequency, when)


def state(rng: StableRandom, kind: str, tense: Tense) -> PredicateAdjective:
    """A state that one of the kind can be in."""
    negated = negation(rng, 0.15)
    word = rng.choice(STATES[kind])
    if negated:
        return PredicateAdjective((word,), rng.choice(("", "", "too", "very", "so")), tense, negated)
    if rng.chance(0.15):
        second = rng.choice(STATES[kind])
        if second is not word:
            return PredicateAdjective((word, second), "", tense)
    frequency = rng.choice(_FREQUENCIES) if tense == "present" and rng.chance(0.15) else ""
    return PredicateAdjective((word,), rng.choice(_DEGREES) if rng.chance(0.5) else "", tense, "", frequency)
