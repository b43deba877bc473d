"""Clauses drawn at random: someone does something, is something, says something; something is done to something."""

from regard.data.world.adjectives import AFTER, BEFORE, STATES
from regard.data.world.dice import Dice
from regard.data.world.draw_phrases import (
    action,
    date,
    definite,
    denial,
    locality,
    organisation,
    pair,
    person,
    someone,
    state,
    target,
    thing,
)
from regard.data.world.nouns import TRADES
from regard.data.world.phrases import (
    Action,
    Circumstance,
    Clause,
    Nominal,
    Profession,
    Report,
    Stand,
    State,
    Suffering,
    Tense,
    Thing,
)
from regard.data.world.verbs import PASSIVE, PEOPLE, REPORTS

_KINDS = tuple(STATES)
_DOERS = ("person", "person", "worker", "animal")
_BEFORE_TRADE = BEFORE["worker"]
_AFTER_TRADE = tuple(word for word in AFTER["worker"] if word not in STATES["worker"])
_GOVERNED = tuple(verb for verb in PASSIVE if "accord" in verb.objects)


def tense_of(dice: Dice) -> Tense:
    """The past, more often than not."""
    return "past" if dice.chance(0.66) else "present"


def stand_for(someone: Nominal) -> Stand:
    """The pronoun for people."""
    if someone.plural:
        return Stand("they", someone)
    return Stand("she" if someone.feminine else "he", someone)


def doer(dice: Dice, kind: str, tense: Tense, denied: bool, first: bool) -> Nominal:
    """Who does it. "I" and "we" come with the past alone; "he" and "she" only where nobody was named before."""
    determiner = definite(dice) if denied else ""
    if kind == "animal":
        return thing(dice, kind, determiner, deep=True)
    share = dice.random()
    if share < 0.12 and tense == "past":
        return Stand("I" if share < 0.07 else "we")
    if share < 0.18 and first:
        return Stand("he" if share < 0.15 else "she")
    return someone(dice, True, determiner)


def doing(dice: Dice, first: bool, tense: Tense) -> Clause:
    """Someone does something, or two things."""
    kind, denied = dice.pick(_DOERS), denial(dice, 0.2)
    subject = doer(dice, kind, tense, bool(denied), first)
    if dice.chance(0.12) and subject.person == 3:
        one, other = action(dice, kind, tense, around=False), action(dice, kind, tense)
        while other.verb is one.verb:
            other = action(dice, kind, tense)
        return Clause(subject, (one, other))
    done = action(dice, kind, tense, denied, deep=True)
    while subject.person == 1 and done.verb.state:  # the imperfect is there for the third person alone
        done = action(dice, kind, tense, denied, deep=True)
    return Clause(subject, (done,))


def being(dice: Dice, first: bool, tense: Tense) -> Clause:
    """Someone or something is in some state."""
    share = dice.random()
    if share < 0.1:
        return Clause(Stand(dice.pick(("I", "we"))), (state(dice, "person", tense),))
    if share < 0.15 and first:
        return Clause(Stand(dice.pick(("he", "she"))), (state(dice, "person", tense),))
    kind = "person" if share < 0.4 else dice.pick(_KINDS)
    said = state(dice, kind, tense)
    determiner = definite(dice) if said.denial else ""  # "every one is not" says two things
    if share < 0.4:
        return Clause(someone(dice, True, determiner), (said,))
    subject = thing(dice, kind, determiner, deep=True)
    while said.adjectives[0] in subject.adjectives:
        subject = thing(dice, kind, determiner, deep=True)
    return Clause(subject, (said,))


def working(dice: Dice, first: bool) -> Clause:
    """Someone has a trade."""
    share = dice.random()
    if share < 0.3:
        subject: Nominal = Stand("I")
    elif share < 0.4:
        subject = Stand("we")
    elif share < 0.58 and first:
        subject = Stand(dice.pick(("he", "she")))
    elif share < 0.78:
        subject = person(dice)
    elif share < 0.86:
        subject = pair(dice, feminine=True if dice.chance(0.75) else None)
    else:
        subject = thing(dice, "person", definite(dice))
    tense: Tense = "present" if dice.chance(0.7) else "past"
    trade = dice.pick(TRADES)
    # Beside an adjective a French trade takes its article, and then "il est" would have to be "c'est".
    if (isinstance(subject, Stand) and subject.person == 3) or dice.chance(0.7):
        return Clause(subject, (Profession(trade, None, tense, "not" if dice.chance(0.15) else ""),))
    word = dice.pick(_BEFORE_TRADE if dice.chance(0.5) else _AFTER_TRADE)
    return Clause(subject, (Profession(trade, word, tense),))


def suffering(dice: Dice) -> Clause:
    """Something is done to something, or someone is born."""
    if dice.chance(0.1):
        born = Suffering(None, circumstances=(date(dice) if dice.chance(0.7) else locality(dice),))
        return Clause(someone(dice, True), (born,))
    verb = dice.pick(PASSIVE)
    kind = dice.pick(verb.objects)
    denied = denial(dice, 0.15)
    subject = thing(dice, kind, definite(dice) if denied else "", deep=True)
    while subject.relative is not None and getattr(subject.relative.predicate, "verb", None) is verb:
        subject = thing(dice, kind, subject.determiner, deep=True)
    agent = None
    if dice.chance(0.35):
        agent = organisation(dice) if kind == "accord" and dice.chance(0.4) else someone(dice)
    when: tuple[Circumstance, ...] = ()
    if denied != "never" and dice.chance(0.65 if agent is None else 0.3):
        when = (date(dice),)
    return Clause(subject, (Suffering(verb, agent, denied, when),))


def governing(dice: Dice) -> Clause:
    """An institution deals with a paper."""
    verb, denied = dice.pick(_GOVERNED), denial(dice, 0.15)
    paper = target(dice, verb, denied, deep=True)
    when = (date(dice),) if isinstance(paper, Thing) and paper.relative is None and denied != "never" else ()
    return Clause(organisation(dice), (Action(verb, paper, "past", denied, "", when),))


def reporting(dice: Dice) -> Clause:
    """Someone says something. Never denied: the French would need another mood."""
    who: Nominal = thing(dice, dice.pick(PEOPLE), "the") if dice.chance(0.5) else person(dice)
    verb = dice.pick(REPORTS)
    if dice.chance(0.4):
        # Only what is said in the past of a state needs no further past in French.
        tense = tense_of(dice) if verb.base == "say" else "present"
        said = State((dice.pick(STATES["person"]),), dice.pick(("", "too", "very", "so", "really")), tense)
        return Clause(who, (Report(verb, Clause(stand_for(who), (said,)), tense),))
    share = dice.random()
    if share < 0.4:
        below = doing(dice, False, tense_of(dice))
    elif share < 0.6:
        below = being(dice, False, tense_of(dice))
    else:
        below = suffering(dice) if share < 0.8 else working(dice, False)
    return Clause(who, (Report(verb, below, "present"),))


def following(dice: Dice, clause: Clause, tense: Tense) -> Clause:
    """The clause with another below it, in the same tense."""
    share = dice.random()
    if share < 0.25:  # "pendant que" goes with what lasts
        return Clause(clause.subject, clause.predicates, "while", being(dice, False, tense))
    below = doing(dice, False, tense) if share < 0.7 else being(dice, False, tense)
    return Clause(clause.subject, clause.predicates, "because" if dice.chance(0.5) else "when", below)
