"""Noun phrases, predicates and circumstances drawn at random, evenly within a kind so that no word is rare."""

from regard.data.world import names
from regard.data.world.adjectives import AFTER, BEFORE, INNER, OUTER, STATES, Adjective
from regard.data.world.dice import Dice
from regard.data.world.nouns import NOUNS, Noun
from regard.data.world.phrases import (
    Action,
    Adjunct,
    Circumstance,
    Date,
    Denial,
    Manner,
    Nominal,
    Pair,
    Person,
    Relative,
    Somewhere,
    State,
    Tense,
    Thing,
)
from regard.data.world.verbs import LIVING, PEOPLE, RECALLED, VERBS, Verb

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
_MONTHS, _WEEKDAYS, _MANNERS = tuple(names.MONTHS), tuple(names.WEEKDAYS), tuple(names.MANNERS)
_DEGREES, _FREQUENCIES = tuple(names.DEGREES), tuple(names.FREQUENCIES)
_FEW = ("a", "a", "a", "this", "my", "our", "every")
_MANY = ("a", "a", "this", "my", "our", "every", "many", "several", *names.NUMBERS)


def definite(dice: Dice) -> str:
    """A determiner that points: what a negated verb, "of" or "without" can govern in any language."""
    return "the" if dice.chance(0.7) else dice.pick(("this", "my", "our"))


def adjectives(dice: Dice, noun: Noun) -> tuple[Adjective, ...]:
    """None, one, or one for each side of the French noun."""
    before, after = BEFORE_NOUN[noun.english], AFTER[noun.kind]
    share = dice.random()
    if share < 0.54:
        return ()
    if share < 0.72:
        return (dice.pick(before),)
    if share < 0.93:
        return (dice.pick(after),)
    return (dice.pick(before), dice.pick(after))


def thing(dice: Dice, kind: str, determiner: str = "", plural: bool | None = None, deep: bool = False) -> Thing:
    """A noun of the kind with what belongs to it; only where it is `deep` may that be a clause or a complement."""
    if plural is None:
        plural = dice.chance(0.32)
    if not determiner:
        determiner = "the" if dice.chance(0.56) else dice.pick(_MANY if plural else _FEW)
    noun = dice.pick(NOUNS[kind])
    words = adjectives(dice, noun)
    share = dice.random() if deep else 1.0
    if share < 0.13:
        return Thing(noun, determiner, plural, words, relative=relative(dice, kind))
    if share < 0.4 and kind in ("accord", "text"):
        return Thing(noun, determiner, plural, words, Adjunct("on", organisation(dice)))
    if share < 0.2 and kind in ("building", "thing", "container"):
        return Thing(noun, "the", plural, words, Adjunct("of", thing(dice, "person", definite(dice))))
    return Thing(noun, determiner, plural, words)


def organisation(dice: Dice) -> Thing:
    """An institution: "the European Economic Area"."""
    share = dice.random()
    if share < 0.5:
        words: tuple[Adjective, ...] = (dice.pick(OUTER), dice.pick(INNER))
    else:
        words = (dice.pick(OUTER if share < 0.75 else INNER),)
    return Thing(dice.pick(NOUNS["organisation"]), "the", False, words)


def person(dice: Dice, feminine: bool | None = None) -> Person:
    """Someone called by name."""
    if feminine is None:
        feminine = dice.chance(0.5)
    return Person(dice.pick(names.WOMEN if feminine else names.MEN), feminine)


def pair(dice: Dice, feminine: bool | None = None) -> Pair:
    """Two people, by their names or by what they are."""
    first = person(dice, feminine)
    if feminine is None and dice.chance(0.5):
        return Pair(thing(dice, "person", "the", False), thing(dice, dice.pick(PEOPLE), "the", False))
    second = person(dice, feminine)
    while second.name == first.name:
        second = person(dice, feminine)
    return Pair(first, second)


def someone(dice: Dice, deep: bool = False, determiner: str = "") -> Nominal:
    """One person or several: by name, by a noun, or two joined."""
    share = dice.random()
    if share < 0.27:
        return person(dice)
    if share < 0.39:
        return pair(dice)
    return thing(dice, dice.pick(PEOPLE), determiner, deep=deep)


def relative(dice: Dice, kind: str) -> Relative:
    """A clause about a noun of the kind."""
    tense: Tense = "past" if dice.chance(0.6) else "present"
    if kind not in LIVING and dice.chance(0.3):
        return Relative(State((dice.pick(STATES[kind]),), dice.pick(("", "", "very", "so", "too")), tense))
    if _RECALLED[kind] and (kind not in LIVING or dice.chance(0.4)):
        verb = dice.pick(_RECALLED[kind])
        who = person(dice) if dice.chance(0.5) else thing(dice, dice.pick(PEOPLE), "the")
        return Relative(Action(verb, tense=tense if verb.state else "past"), who)
    if dice.chance(0.25):
        return Relative(State((dice.pick(STATES[kind]),), dice.pick(("", "", "very", "so", "too")), tense))
    return Relative(action(dice, kind, tense, around=False))


def recalled(dice: Dice, kind: str, main: Verb) -> Relative | None:
    """A clause that someone with a name did something to a noun of the kind, other than what the main verb says."""
    verb = dice.pick(_RECALLED[kind]) if _RECALLED[kind] else main
    return Relative(Action(verb), person(dice)) if verb is not main else None


def denial(dice: Dice, share: float) -> Denial:
    """A denial in that share of all cases, mostly the plain one."""
    if not dice.chance(share):
        return ""
    return "never" if dice.chance(0.2) else "not"


def date(dice: Dice) -> Date:
    """A date of one of five shapes."""
    share = dice.random()
    if share < 0.45:
        return Date(dice.pick(names.YEARS), dice.pick(_MONTHS))
    if share < 0.65:
        return Date(dice.pick(names.YEARS))
    if share < 0.85:
        return Date(dice.pick(names.YEARS), dice.pick(_MONTHS), dice.pick(names.DAYS))
    if share < 0.92:
        return Date("", dice.pick(_MONTHS), dice.pick(names.DAYS))
    return Date(weekday=dice.pick(_WEEKDAYS))


def locality(dice: Dice) -> Adjunct:
    """In some town or country."""
    return Adjunct("in", Somewhere(dice.pick(names.LOCALITIES)))


def circumstance(dice: Dice, verb: Verb, tense: Tense, denied: Denial) -> Circumstance:
    """When, how, where or with whom."""
    share = dice.random()
    if share < 0.3 and tense == "past" and denied != "never":
        return date(dice)
    if share < 0.5 and denied != "never" and verb.base not in _PLAIN:
        # What happened yesterday is past; every other adverb goes with every tense.
        return Manner(dice.pick(_MANNERS if tense == "past" else _MANNERS[1:]))
    if share < 0.62:
        return locality(dice)
    if share < 0.78:
        company = ("with", "without") if verb.base in _PLAIN else ("with", "without", "for")
        return Adjunct(dice.pick(company), someone(dice, determiner=definite(dice)))
    preposition = dice.pick(("in", "near", "behind", "in front of"))
    kind = "way" if preposition != "in" and dice.chance(0.4) else "building"  # one is not in a bridge
    return Adjunct(preposition, thing(dice, kind, definite(dice)))


def target(dice: Dice, verb: Verb, denied: Denial, deep: bool) -> Nominal:
    """What the verb is about."""
    kind = dice.pick(verb.objects)
    if kind == "locality":
        return Somewhere(dice.pick(names.LOCALITIES))
    if kind == "person" and dice.chance(0.3):
        return person(dice)
    if verb.french_preposition:  # "de" swallows "des", so only what points may follow
        return thing(dice, kind, definite(dice), deep=deep)
    if denied:
        absent = dice.chance(0.15) and not verb.state
        return thing(dice, kind, "any" if absent else definite(dice), deep=deep and not absent)
    return thing(dice, kind, deep=deep)


def action(dice: Dice, kind: str, tense: Tense, denied: Denial = "", deep: bool = False, around: bool = True) -> Action:
    """Something that one of the kind does."""
    share = dice.random()
    if share < 0.2:
        verb = dice.pick(_ALONE[kind])
    elif share < 0.27 and kind != "animal":
        verb = dice.pick(_LOCAL)
    else:
        verb = dice.pick(_TOWARDS[kind])
    whom = target(dice, verb, denied, deep) if verb.objects else None
    when: tuple[Circumstance, ...] = ()
    plain = not isinstance(whom, Thing) or (whom.relative is None and whom.adjunct is None)
    if around and plain and not verb.state and dice.chance(0.35 if verb.objects else 0.7):
        somewhere = isinstance(whom, Somewhere) and tense == "past" and not denied
        when = (date(dice) if somewhere else circumstance(dice, verb, tense, denied),)
    frequency = dice.pick(_FREQUENCIES) if tense == "present" and not denied and dice.chance(0.2) else ""
    return Action(verb, whom, tense, denied, frequency, when)


def state(dice: Dice, kind: str, tense: Tense) -> State:
    """A state that one of the kind can be in."""
    denied = denial(dice, 0.15)
    word = dice.pick(STATES[kind])
    if denied:
        return State((word,), dice.pick(("", "", "too", "very", "so")), tense, denied)
    if dice.chance(0.15):
        second = dice.pick(STATES[kind])
        if second is not word:
            return State((word, second), "", tense)
    frequency = dice.pick(_FREQUENCIES) if tense == "present" and dice.chance(0.15) else ""
    return State((word,), dice.pick(_DEGREES) if dice.chance(0.5) else "", tense, "", frequency)
