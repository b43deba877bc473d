"""Statements drawn at random: which nouns, who does what, and how it goes on.

The choices are even within a kind, so that no word is rare, and mind what makes the French a function of the English:
what a pronoun means is decided by the state it is said to be in, and nothing is said whose French would be a matter of
taste.
"""

from collections.abc import Sequence
from random import Random
from typing import Literal, TypeVar

from regard.data.world import names
from regard.data.world.adjectives import AFTER, BEFORE, INNER, OUTER, STATES, Adjective, adjective
from regard.data.world.nouns import NOUNS, TRADES
from regard.data.world.phrases import (
    Action,
    Adjunct,
    Circumstance,
    Clause,
    Date,
    Denial,
    Manner,
    Nominal,
    Pair,
    Person,
    Profession,
    Relative,
    Report,
    Somewhere,
    Stand,
    State,
    Statement,
    Suffering,
    Tense,
    Thanks,
    Thing,
)
from regard.data.world.verbs import FIT, PASSIVE, PEOPLE, RECALLED, REPORTS, VERBS, Verb

Item = TypeVar("Item")

_ENTITIES = [verb for verb in VERBS if verb.objects and verb.objects != ("locality",)]
_ALONE = [verb for verb in VERBS if not verb.objects]
_LOCAL = [verb for verb in VERBS if verb.objects == ("locality",)]
_WITH_ETRE = [verb for verb in VERBS if verb.with_etre]
# What an animal can do to something lifeless: the ground on which "it" can mean either.
_OPEN = [
    verb
    for verb in _ENTITIES
    if "animal" in verb.subjects
    and verb.objects[0] in STATES
    and verb.objects[0] not in ("person", "worker")
    and not verb.with_etre
]
_OPEN_TO_PEOPLE = [
    verb
    for verb in _ENTITIES
    if "person" in verb.subjects and "person" not in verb.objects and not verb.with_etre and not verb.french_preposition
]
_OF_THE_KIND = {kind: [verb for verb in _ENTITIES if kind in verb.subjects] for kind in ("person", "worker", "animal")}
_ALONE_OF_THE_KIND = {
    kind: [verb for verb in _ALONE if kind in verb.subjects] for kind in ("person", "worker", "animal")
}
_BIG, _SMALL = adjective("big"), adjective("small")
_LIVING_KINDS = ("person", "person", "worker", "animal")


class Draw:
    """A source of statements; the same seed gives the same ones in the same order."""

    def __init__(self, seed: str) -> None:
        self.random = Random(seed).random

    def pick(self, items: Sequence[Item]) -> Item:
        """One of the items, all equally likely."""
        return items[int(self.random() * len(items))]

    def chance(self, share: float) -> bool:
        return self.random() < share

    # Noun phrases

    def determiner(self, plural: bool) -> str:
        if self.chance(0.56):
            return "the"
        if plural:
            return self.pick(("a", "a", "this", "my", "our", "every", "many", "several", *self._number))
        return self.pick(("a", "a", "a", "this", "my", "our", "every"))

    _number = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")

    def definite(self) -> str:
        return "the" if self.chance(0.7) else self.pick(("this", "my", "our"))

    def adjectives(self, kind: str) -> tuple[Adjective, ...]:
        share = self.random()
        if share < 0.52:
            return ()
        if share < 0.72:
            return (self.pick(BEFORE[kind]),)
        if share < 0.92:
            return (self.pick(AFTER[kind]),)
        return (self.pick(BEFORE[kind]), self.pick(AFTER[kind]))

    def thing(self, kind: str, determiner: str = "", plural: bool | None = None, depth: int = 1) -> Thing:
        """A noun of the kind with what belongs to it; only at depth 0 may it have a clause or a complement."""
        if plural is None:
            plural = self.chance(0.28)
        adjunct, relative = None, None
        if depth == 0:
            share = self.random()
            if share < 0.13:
                relative = self.relative(kind)
            elif share < 0.2 and kind in ("building", "thing", "container"):
                adjunct = Adjunct("of", self.thing("person", self.definite()))
            elif share < 0.4 and kind in ("accord", "text"):
                adjunct = Adjunct("on", self.organisation())
        return Thing(
            self.pick(NOUNS[kind]),
            determiner or self.determiner(plural),
            plural,
            self.adjectives(kind),
            adjunct,
            relative,
        )

    def organisation(self) -> Thing:
        share = self.random()
        if share < 0.5:
            words = (self.pick(OUTER), self.pick(INNER))
        else:
            words = (self.pick(OUTER if share < 0.75 else INNER),)
        return Thing(self.pick(NOUNS["organisation"]), "the", False, words)

    def person(self) -> Person:
        feminine = self.chance(0.5)
        return Person(self.pick(names.WOMEN if feminine else names.MEN), feminine)

    def someone(self, depth: int = 1, negated: bool = False) -> Nominal:
        """A person: by name, by a noun, or two of them."""
        share = self.random()
        if share < 0.3:
            return self.person()
        if share < 0.4:
            return self.pair()
        return self.thing(self.pick(PEOPLE), self.definite() if negated else "", depth=depth)

    def pair(self) -> Pair:
        if self.chance(0.5):
            first, second = self.person(), self.person()
            while second.name == first.name:
                second = self.person()
            return Pair(first, second)
        return Pair(self.thing("person", "the", False), self.thing(self.pick(PEOPLE), "the", False))

    def subject(self, kind: str, tense: Tense, denied: bool) -> Nominal:
        """Who does it. The first person comes with the past alone."""
        if kind == "animal":
            return self.thing(kind, self.definite() if denied else "", depth=0)
        share = self.random()
        if share < 0.14 and tense == "past":
            return Stand("I" if share < 0.08 else "we")
        if share < 0.2:
            return Stand("he" if share < 0.17 else "she")
        return self.someone(0, denied)

    def relative(self, kind: str) -> Relative:
        """A clause about a noun of the kind."""
        tense: Tense = "past" if self.chance(0.6) else "present"
        recalled = [verb for verb in RECALLED if kind in verb.objects]
        if recalled and (kind not in _OF_THE_KIND or self.chance(0.4)):
            verb = self.pick(recalled)
            if not verb.state:
                tense = "past"
            who = self.person() if self.chance(0.5) else self.thing(self.pick(PEOPLE), "the")
            return Relative(Action(verb, tense=tense), who)
        if kind in _OF_THE_KIND and self.chance(0.75):
            return Relative(self.action(kind, tense, "", depth=1, circumstances=False))
        return Relative(State((self.pick(STATES[kind]),), self.degree(0.5, ("very", "so", "too")), tense))

    # What is said

    def denial(self, share: float = 0.2) -> Denial:
        return ("never" if self.chance(0.2) else "not") if self.chance(share) else ""

    def degree(self, share: float, words: Sequence[str]) -> str:
        return self.pick(words) if self.chance(share) else ""

    def date(self) -> Date:
        share = self.random()
        year = self.pick(names.YEARS)
        month = self.pick(tuple(names.MONTHS))
        if share < 0.45:
            return Date(year, month)
        if share < 0.65:
            return Date(year)
        if share < 0.85:
            return Date(year, month, self.pick(names.DAYS))
        if share < 0.92:
            return Date("", month, self.pick(names.DAYS))
        return Date(weekday=self.pick(tuple(names.WEEKDAYS)))

    def circumstance(self, tense: Tense) -> Circumstance:
        share = self.random()
        if share < 0.3 and tense == "past":
            return self.date()
        if share < 0.5:
            word = self.pick(tuple(names.MANNERS))
            return Manner(word if tense == "past" or word != "yesterday" else "slowly")
        if share < 0.65:
            return Adjunct("in", Somewhere(self.pick(names.LOCALITIES)))
        if share < 0.8:
            return Adjunct(self.pick(("with", "without", "for")), self.someone())
        return self.place()

    def place(self) -> Adjunct:
        preposition = self.pick(("in", "near", "behind", "in front of"))
        kind = "building" if preposition != "in" or self.chance(0.6) else "way"
        return Adjunct(preposition, self.thing(kind, self.definite()))

    def circumstances(self, tense: Tense, share: float) -> tuple[Circumstance, ...]:
        return (self.circumstance(tense),) if self.chance(share) else ()

    def object(self, verb: Verb, denial: Denial, depth: int) -> Nominal:
        kind = self.pick(verb.objects)
        if kind == "locality":
            return Somewhere(self.pick(names.LOCALITIES))
        if kind == "person" and self.chance(0.3):
            return self.person()
        if verb.french_preposition:
            return self.thing(kind, self.definite(), depth=depth)
        if denial:
            return self.thing(kind, "any" if self.chance(0.15) and not verb.state else self.definite(), depth=depth)
        return self.thing(kind, depth=depth)

    def action(self, kind: str, tense: Tense, denial: Denial, depth: int = 0, circumstances: bool = True) -> Action:
        """Something that one of the kind does."""
        share = self.random()
        if share < 0.14:
            verb = self.pick(_ALONE_OF_THE_KIND[kind])
        elif share < 0.22 and kind != "animal":
            verb = self.pick(_LOCAL)
        else:
            verb = self.pick(_OF_THE_KIND[kind])
        target = self.object(verb, denial, depth) if verb.objects else None
        around: tuple[Circumstance, ...] = ()
        if circumstances and not verb.state and (verb.objects != ("locality",)):
            around = self.circumstances(tense, 0.35 if verb.objects else 0.7)
        frequency = (
            self.pick(tuple(names.FREQUENCIES)) if tense == "present" and not denial and self.chance(0.2) else ""
        )
        return Action(verb, target, tense, denial, frequency, around)

    def state(self, kind: str, tense: Tense) -> State:
        denial = self.denial(0.15)
        words = self.pick(STATES[kind])
        degree = self.degree(0.5, tuple(names.DEGREES) if not denial else ("too", "very", "so"))
        if self.chance(0.15) and not denial:
            second = self.pick(STATES[kind])
            if second is not words:
                return State((words, second), "", tense)
        frequency = (
            self.pick(tuple(names.FREQUENCIES)) if tense == "present" and not denial and self.chance(0.1) else ""
        )
        return State((words,), degree, tense, denial, frequency)

    # Clauses

    def tense(self) -> Tense:
        return "past" if self.chance(0.7) else "present"

    def doing(self) -> Clause:
        """Someone does something, or two things."""
        kind, tense = self.pick(_LIVING_KINDS), self.tense()
        denial = self.denial()
        subject = self.subject(kind, tense, bool(denial))
        if subject.person == 1:
            action = self.action(kind, tense, denial)
            while action.verb.state:
                action = self.action(kind, tense, denial)
            return Clause(subject, (action,))
        if self.chance(0.12):
            actions = (self.action(kind, tense, "", 1, False), self.action(kind, tense, "", 1))
            return Clause(subject, actions)
        return Clause(subject, (self.action(kind, tense, denial),))

    def being(self) -> Clause:
        """Someone or something is in some state."""
        tense = self.tense()
        share = self.random()
        if share < 0.4:
            subject: Nominal = Stand(self.pick(("I", "we", "he", "she"))) if share < 0.15 else self.someone(0)
            return Clause(subject, (self.state("person", tense),))
        kind = self.pick(tuple(STATES))
        return Clause(self.thing(kind, depth=0), (self.state(kind, tense),))

    def working(self) -> Clause:
        """Someone has a trade."""
        share = self.random()
        if share < 0.35:
            subject: Nominal = Stand("I")
        elif share < 0.6:
            subject = Stand(self.pick(("we", "he", "she")))
        elif share < 0.8:
            subject = self.person()
        elif share < 0.87:
            subject = self.pair()
        else:
            subject = self.thing("person", self.definite())
        tense: Tense = "present" if self.chance(0.7) else "past"
        word = None
        # "Il est un bon médecin" is not French: there it would be "c'est".
        if not (isinstance(subject, Stand) and subject.person == 3) and self.chance(0.3):
            word = self.pick(BEFORE["worker"] if self.chance(0.6) else AFTER["worker"][:7])
        return Clause(subject, (Profession(self.pick(TRADES), word, tense, "" if word else self.denial(0.15)),))

    def suffering(self) -> Clause:
        """Something is done to something, or someone is born."""
        if self.chance(0.1):
            around: Circumstance = (
                self.date() if self.chance(0.7) else Adjunct("in", Somewhere(self.pick(names.LOCALITIES)))
            )
            return Clause(self.someone(0), (Suffering(None, circumstances=(around,)),))
        verb = self.pick(PASSIVE)
        denial: Denial = "not" if self.chance(0.15) else ""
        kind = self.pick(verb.objects)
        subject = self.thing(kind, self.definite() if denial else "", depth=0)
        agent = None
        if self.chance(0.35):
            agent = self.organisation() if kind == "accord" and self.chance(0.4) else self.someone()
        around_all: tuple[Circumstance, ...] = (self.date(),) if self.chance(0.65 if agent is None else 0.3) else ()
        return Clause(subject, (Suffering(verb, agent, denial, around_all),))

    def governing(self) -> Clause:
        """An institution deals with a paper."""
        verb = self.pick([verb for verb in PASSIVE if "accord" in verb.objects])
        denial = self.denial(0.15)
        return Clause(
            self.organisation(), (Action(verb, self.object(verb, denial, 0), "past", denial, "", (self.date(),)),)
        )

    def reporting(self) -> Clause:
        """Someone says something."""
        who = self.thing(self.pick(PEOPLE), "the") if self.chance(0.5) else self.person()
        verb = self.pick(REPORTS)
        if self.chance(0.4):
            tense = self.tense() if verb.base == "say" else "present"
            stand = self.stand(who)
            return Clause(who, (Report(verb, Clause(stand, (self.state("person", tense),)), tense),))
        below = self.pick((self.doing, self.being, self.suffering, self.working))()
        return Clause(who, (Report(verb, below, "present", self.denial(0.1)),))

    def stand(self, nominal: Nominal) -> Stand:
        """The pronoun for someone."""
        if nominal.plural:
            return Stand("they", nominal)
        return Stand("she" if nominal.feminine else "he", nominal)

    # Pronouns whose gender depends on what they mean

    def meaning(self) -> tuple[Clause, ...]:
        """Two nouns, then a pronoun that can only mean one of them, because of the state it is in."""
        if self.chance(0.14):
            return (self.fitting(),)
        of_subject = self.chance(0.5)
        animal = self.chance(0.7 if of_subject else 0.6)
        plural = self.chance(0.3) if animal else (of_subject or self.chance(0.5))
        verb = self.pick(_OPEN if animal else _OPEN_TO_PEOPLE)
        denial = self.denial(0.6)
        object_plural = plural if self.chance(0.85) else not plural
        kind = "animal" if animal else self.pick(PEOPLE)
        subject = self.candidate(kind, plural)
        target = self.candidate(self.pick(verb.objects), object_plural)
        while target.feminine == subject.feminine and self.chance(0.85):
            target = self.candidate(target.noun.kind, object_plural)
        tense = self.tense()
        around: tuple[Circumstance, ...] = ()
        if tense == "past" and self.chance(0.15):
            around = (Manner("yesterday") if self.chance(0.5) else self.date(),)
        antecedent = subject if of_subject else target
        pronoun = Stand("they" if antecedent.plural else "it", antecedent)
        action = Action(verb, target, tense, denial, "", around)
        return self.because(
            Clause(subject, (action,)), Clause(pronoun, (self.reason(antecedent, tense, bool(denial)),))
        )

    def candidate(self, kind: str, plural: bool) -> Thing:
        relative = None
        if self.chance(0.05):
            recalled = [verb for verb in RECALLED if kind in verb.objects]
            if recalled:
                relative = Relative(Action(self.pick(recalled)), self.person())
        words = ()
        if self.chance(0.25):
            words = (self.pick(BEFORE[kind]),)
        return Thing(self.pick(NOUNS[kind]), self.definite(), plural, words, None, relative)

    def reason(self, antecedent: Thing, tense: Tense, denied: bool) -> State:
        adjective = self.pick(STATES[antecedent.noun.kind])
        if denied:
            return State((adjective,), self.degree(0.85, ("too", "too", "too", "very", "so")), tense)
        denial: Denial = "not" if self.chance(0.2) else ""
        return State(
            (adjective,), self.degree(0.6, ("very", "so", "really") if not denial else ("very", "too")), tense, denial
        )

    def because(self, main: Clause, reason: Clause) -> tuple[Clause, ...]:
        share = self.random()
        if share < 0.65:
            return (Clause(main.subject, main.predicates, "because", reason),)
        if share < 0.8:
            return (Clause(main.subject, main.predicates, "when", reason),)
        return (main, reason)

    def fitting(self) -> Clause:
        """Something doesn't fit in something: too big means the one, too small the other."""
        plural = self.chance(0.2)
        content = Thing(self.pick(NOUNS["thing"]), self.definite(), plural)
        container = Thing(self.pick(NOUNS["container"]), self.definite(), plural)
        while container.feminine == content.feminine and self.chance(0.85):
            container = Thing(self.pick(NOUNS["container"]), container.determiner, plural)
        big = self.chance(0.5)
        pronoun = Stand("they" if plural else "it", content if big else container)
        tense = self.tense()
        reason = Clause(pronoun, (State((_BIG if big else _SMALL,), "too", tense),))
        return Clause(content, (Action(FIT, container, tense, "not"),), "because", reason)

    def feeling(self) -> tuple[Clause, ...]:
        """Someone did something because he or she felt so."""
        subject = self.someone()
        kind, tense = "person", self.tense()
        denial = self.denial(0.4)
        action = self.action(kind, tense, denial, 1, False)
        while action.object is not None and not isinstance(action.object, (Thing, Somewhere)):
            action = self.action(kind, tense, denial, 1, False)
        if isinstance(action.object, Thing) and action.object.noun.kind in ("person", "worker", "animal"):
            action = Action(action.verb, self.person(), tense, denial)
        reason = State(
            (self.pick(STATES["person"]),), self.degree(0.7, ("too", "so", "very") if denial else ("so", "very")), tense
        )
        if isinstance(subject, Thing) and not subject.plural and subject.determiner == "every":
            subject = Thing(subject.noun, "the", False, subject.adjectives)
        return self.because(Clause(subject, (action,)), Clause(self.stand(subject), (reason,)))

    # Sentences

    def unit(self) -> tuple[Clause, ...]:
        """One clause, or two that belong together."""
        share = self.random()
        if share < 0.19:
            return self.meaning()
        if share < 0.23:
            return self.feeling()
        if share < 0.29:
            return (self.reporting(),)
        if share < 0.38:
            return (self.working(),)
        if share < 0.52:
            return (self.suffering(),)
        if share < 0.55:
            return (self.governing(),)
        if share < 0.67:
            return (self.being(),)
        clause = self.doing()
        if clause.subject.person == 3 and self.chance(0.2) and len(clause.predicates) == 1:
            below = self.doing() if self.chance(0.5) else self.being()
            return (Clause(clause.subject, clause.predicates, self.pick(tuple(names.SUBORDINATORS)), below),)
        return (clause,)

    def statement(self) -> Statement:
        """A whole sentence."""
        period = not self.chance(0.12)
        share = self.random()
        if share < 0.02:
            return self.thanking(period)
        clauses = self.unit()
        if share > 0.8:
            more = 1 + int(self.random() ** 2 * 5)
            for _ in range(more):
                clauses += self.unit()
        coordinators = tuple("and" if self.chance(0.6) else "but" for _ in clauses[1:])
        opening = None
        if (
            self.chance(0.05)
            and isinstance(clauses[0].predicates[0], Action)
            and clauses[0].predicates[0].tense == "past"
        ):
            opening = self.date() if self.chance(0.6) else Adjunct("in", Somewhere(self.pick(names.LOCALITIES)))
        return Statement(clauses, coordinators, opening, period=period)

    def thanking(self, period: bool) -> Statement:
        share = self.random()
        if share < 0.5:
            kind: Literal["food", "text", "thing"] = self.pick(("food", "text", "thing"))
            return Statement((), thanks=Thanks(cause=self.thing(kind, self.pick(("the", "this", "a")))), period=period)
        if share < 0.75:
            friend = Thing(self.pick(NOUNS["person"]), "my", False, (self.pick(BEFORE["person"]),))
            return Statement((), thanks=Thanks(friend), period=period)
        clause: Clause = Clause(Stand("I"), (self.state("person", "present"),)) if share < 0.9 else self.working()
        return Statement((clause,), thanks=Thanks(self.person() if self.chance(0.5) else None), period=period)
