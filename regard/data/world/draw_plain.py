"""A plain part of the grammar: few words and one kind of clause, as many as are asked for, joined in a row.

Whoever does something, and whatever it is done to, is a noun with at most one adjective. Nothing is a pronoun, so each
clause can be translated by itself; what is left to learn is agreement, elision, the adjective's place, negation, and
keeping one's place in a long sentence. One to six clauses are equally likely, so that long sentences are as common as
short ones.
"""

from regard.data.world.adjectives import AFTER, STATES
from regard.data.world.dice import Dice
from regard.data.world.draw_phrases import BEFORE_NOUN
from regard.data.world.nouns import NOUNS, Noun
from regard.data.world.phrases import Action, Clause, State, Statement, Tense, Thing
from regard.data.world.verbs import VERBS

CLAUSES = 6
_DOERS = ("person", "animal")
_KINDS = (*_DOERS, "way", "building", "food", "thing")
_FEW = 4


def _first(nouns: tuple[Noun, ...]) -> tuple[Noun, ...]:
    """The first few of each gender."""
    return tuple(noun for feminine in (False, True) for noun in [n for n in nouns if n.feminine is feminine][:_FEW])


_NOUNS = {kind: _first(NOUNS[kind]) for kind in _KINDS}
_VERBS = {
    kind: tuple(
        verb
        for verb in VERBS
        if kind in verb.subjects
        and set(verb.objects) & set(_KINDS)
        and not (verb.state or verb.with_etre or verb.french_preposition)
    )
    for kind in _DOERS
}


def plain_statement(dice: Dice) -> Statement:
    """A sentence of one to six clauses."""
    clauses = tuple(_clause(dice) for _ in range(1 + int(dice.random() * CLAUSES)))
    coordinators = tuple("and" if dice.chance(0.5) else "but" for _ in clauses[1:])
    return Statement(clauses, coordinators)


def _clause(dice: Dice) -> Clause:
    kind = dice.pick(_DOERS)
    subject = _thing(dice, kind, dice.pick(("the", "a", "this")))
    tense: Tense = "past" if dice.chance(0.5) else "present"
    if dice.chance(0.15):
        return Clause(subject, (State((dice.pick(STATES[kind][:_FEW]),), tense=tense),))
    verb = dice.pick(_VERBS[kind])
    denied = dice.chance(0.15)
    target = dice.pick([other for other in verb.objects if other in _KINDS])
    # What is denied of "a dog" is denied of any: only what points follows a negation.
    whom = _thing(dice, target, dice.pick(("the", "this") if denied else ("the", "a", "this")))
    return Clause(subject, (Action(verb, whom, tense, "not" if denied else ""),))


def _thing(dice: Dice, kind: str, determiner: str) -> Thing:
    noun = dice.pick(_NOUNS[kind])
    words = ()
    if dice.chance(0.35):
        words = (dice.pick((BEFORE_NOUN[noun.english] if dice.chance(0.5) else AFTER[kind])[:_FEW]),)
    return Thing(noun, determiner, dice.chance(0.3), words)
