"""Sentences whose pronoun could mean either of two nouns, and means the one that can be in the state it is in.

Only the living are tired and only ways are wide, so "it" is settled by sense; its French gender is that of the noun. No
third noun that it could mean stands near.
"""

from regard.data.world.adjectives import STATES, adjective
from regard.data.world.dice import Dice
from regard.data.world.draw_clauses import stand_for, tense_of
from regard.data.world.draw_phrases import BEFORE_NOUN, action, date, definite, denial, person, recalled, someone
from regard.data.world.nouns import NOUNS
from regard.data.world.phrases import (
    Action,
    Circumstance,
    Clause,
    Denial,
    Manner,
    Nominal,
    Stand,
    State,
    Tense,
    Thing,
)
from regard.data.world.verbs import FIT, LIVING, PEOPLE, VERBS, Verb

_LIFELESS = [verb for verb in VERBS if verb.objects and verb.objects[0] in STATES and verb.objects[0] not in LIVING]
_BY_ANIMALS = [verb for verb in _LIFELESS if "animal" in verb.subjects]
_BIG, _SMALL = adjective("big"), adjective("small")
# How often two candidates of one gender are let stand: they teach nothing about what a pronoun means.
_SAME_GENDER = 0.15


def meaning(dice: Dice) -> tuple[Clause, ...]:
    """One who acts, something acted on, then a pronoun that means one or the other, each as often."""
    if dice.chance(0.14):
        return (_fitting(dice),)
    of_subject = dice.chance(0.5)
    kind = "animal" if dice.chance(0.7) else dice.pick(PEOPLE)
    verb = dice.pick(_BY_ANIMALS if kind == "animal" else _LIFELESS)
    # "It" never means a person, so a person who is meant has to be several.
    plural = dice.chance(0.3) if kind == "animal" else of_subject or dice.chance(0.5)
    object_plural = plural if dice.chance(0.85) else not plural
    subject = _candidate(dice, kind, plural, verb)
    target = _candidate(dice, dice.pick(verb.objects), object_plural, verb)
    while target.feminine == subject.feminine and not dice.chance(_SAME_GENDER):
        target = _candidate(dice, target.noun.kind, object_plural, verb)
    tense, denied = tense_of(dice), denial(dice, 0.6)
    when: tuple[Circumstance, ...] = ()
    if tense == "past" and target.relative is None and denied != "never" and dice.chance(0.15):
        when = (Manner("yesterday") if dice.chance(0.5) else date(dice),)
    antecedent = subject if of_subject else target
    pronoun = Stand("they" if antecedent.plural else "it", antecedent)
    speaker: Nominal = subject
    if not of_subject and kind != "animal" and tense == "past" and dice.chance(0.3):
        speaker = Stand(dice.pick(("I", "we")))
    main = Clause(speaker, (Action(verb, target, tense, denied, "", when),))
    return _joined(dice, main, Clause(pronoun, (_reason(dice, antecedent.noun.kind, tense, denied),)))


def feeling(dice: Dice) -> tuple[Clause, ...]:
    """Someone does something because of how he or she feels."""
    tense, denied = tense_of(dice), denial(dice, 0.4)
    subject: Nominal = Stand(dice.pick(("I", "we"))) if tense == "past" and dice.chance(0.2) else someone(dice)
    if isinstance(subject, Thing) and subject.determiner == "every" and not subject.plural:
        subject = Thing(subject.noun, "the", False, subject.adjectives)
    done = action(dice, "person", tense, denied, around=False)
    while subject.person == 1 and done.verb.state:
        done = action(dice, "person", tense, denied, around=False)
    if "person" in done.verb.objects:  # someone else of the same gender would be meant as well
        done = Action(done.verb, person(dice, not subject.feminine), tense, denied)
    below = stand_for(subject) if subject.person == 3 else Stand("we" if subject.plural else "I")
    return _joined(dice, Clause(subject, (done,)), Clause(below, (_reason(dice, "person", tense, denied),)))


def _candidate(dice: Dice, kind: str, plural: bool, verb: Verb) -> Thing:
    noun = dice.pick(NOUNS[kind])
    words = (dice.pick(BEFORE_NOUN[noun.english]),) if dice.chance(0.25) else ()
    relative = recalled(dice, kind, verb) if dice.chance(0.05) else None
    return Thing(noun, definite(dice), plural, words, None, relative)


def _reason(dice: Dice, kind: str, tense: Tense, denied: Denial) -> State:
    word = dice.pick(STATES[kind])
    if denied:
        return State((word,), dice.pick(("too", "too", "too", "very", "so", "")), tense)
    if dice.chance(0.2):
        return State((word,), dice.pick(("", "very", "too")), tense, "not")
    return State((word,), dice.pick(("very", "so", "really", "")), tense)


def _joined(dice: Dice, main: Clause, reason: Clause) -> tuple[Clause, ...]:
    share = dice.random()
    if share < 0.85:
        return (Clause(main.subject, main.predicates, "because" if share < 0.7 else "when", reason),)
    return (main, reason)


def _fitting(dice: Dice) -> Clause:
    """Something doesn't fit in something: too big means the one, too small the other."""
    plural = dice.chance(0.25)
    content = Thing(dice.pick(NOUNS["thing"]), definite(dice), plural)
    container = Thing(dice.pick(NOUNS["container"]), definite(dice), plural)
    while container.feminine == content.feminine and not dice.chance(_SAME_GENDER):
        container = Thing(dice.pick(NOUNS["container"]), container.determiner, plural)
    big = dice.chance(0.5)
    pronoun = Stand("they" if plural else "it", content if big else container)
    tense = tense_of(dice)
    reason = Clause(pronoun, (State((_BIG if big else _SMALL,), "too", tense),))
    return Clause(content, (Action(FIT, container, tense, "not"),), "because", reason)
