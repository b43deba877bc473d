"""Whole statements drawn at random, from four words to sixty."""

from regard.data.world.dice import Dice
from regard.data.world.draw_clauses import (
    being,
    doing,
    following,
    governing,
    reporting,
    suffering,
    tense_of,
    working,
)
from regard.data.world.draw_phrases import BEFORE_NOUN, date, locality, person, state, thing
from regard.data.world.draw_pronouns import feeling, meaning
from regard.data.world.nouns import NOUNS
from regard.data.world.phrases import Action, Clause, Somewhere, Stand, Statement, Thanks, Thing


def statement(dice: Dice) -> Statement:
    """A whole sentence: mostly one thought, in one case of six several, joined by "and" and "but"."""
    period = not dice.chance(0.12)
    if dice.chance(0.025):
        return _thanking(dice, period)
    clauses = _thought(dice, True)
    if dice.chance(0.18):
        for _ in range(1 + int(dice.random() ** 3 * 6)):
            clauses += _thought(dice, False)
    coordinators = tuple("and" if dice.chance(0.7) else "but" for _ in clauses[1:])
    first = clauses[0].predicates[0]
    opening = None
    if dice.chance(0.08) and isinstance(first, Action) and first.tense == "past" and not first.circumstances:
        placed = isinstance(first.object, Somewhere) or clauses[0].subordinate is not None
        opening = date(dice) if placed or dice.chance(0.5) else locality(dice)
    return Statement(clauses, coordinators, opening, period=period)


def _thought(dice: Dice, first: bool) -> tuple[Clause, ...]:
    """One clause, or two that belong together."""
    share = dice.random()
    if share < 0.125:
        return meaning(dice)
    if share < 0.18:
        return feeling(dice)
    if share < 0.24:
        return (reporting(dice),)
    if share < 0.35:
        return (working(dice, first),)
    if share < 0.5:
        return (suffering(dice),)
    if share < 0.54:
        return (governing(dice),)
    tense = tense_of(dice)
    if share < 0.66:
        return (being(dice, first, tense),)
    clause = doing(dice, first, tense)
    return (following(dice, clause, tense) if len(clause.predicates) == 1 and dice.chance(0.2) else clause,)


def _thanking(dice: Dice, period: bool) -> Statement:
    """Thanks for something, or to someone, or before saying something of oneself."""
    share = dice.random()
    if share < 0.45:
        cause = thing(dice, dice.pick(("food", "text", "thing")), dice.pick(("the", "this")))
        return Statement((), thanks=Thanks(cause=cause), period=period)
    if share < 0.7:
        noun = dice.pick(NOUNS["person"])
        friend = Thing(noun, "my", False, (dice.pick(BEFORE_NOUN[noun.english]),))
        return Statement((), thanks=Thanks(friend), period=period)
    clause = Clause(Stand("I"), (state(dice, "person", "present"),)) if share < 0.85 else working(dice, False)
    return Statement((clause,), thanks=Thanks(person(dice) if dice.chance(0.5) else None), period=period)
