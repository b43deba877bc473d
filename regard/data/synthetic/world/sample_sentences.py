"""Whole statements sampled at random, from four words to sixty, and the clauses that they are made of."""

from regard.data.synthetic.world.lexicon import (
    AFTER,
    BEFORE,
    FIT,
    LIVING,
    NOUNS,
    PASSIVE,
    PEOPLE,
    REPORTS,
    STATES,
    TRADES,
    VERBS,
    LexicalVerb,
    Noun,
    adjective,
)
from regard.data.synthetic.world.sample_phrases import (
    BEFORE_NOUN,
    StableRandom,
    action,
    coordination,
    date,
    definite,
    institution,
    locality,
    negation,
    noun_phrase,
    object_of,
    object_relative,
    person_name,
    someone,
    state,
)
from regard.data.synthetic.world.syntax import (
    Action,
    Adverb,
    Adverbial,
    Clause,
    Negation,
    Nominal,
    NounPhrase,
    Passive,
    PlaceName,
    PredicateAdjective,
    Profession,
    PronounPhrase,
    ReportedSpeech,
    Statement,
    Tense,
    Thanks,
)

_KINDS = tuple(STATES)
_ACTORS = ("person", "person", "worker", "animal")
_BEFORE_TRADE = BEFORE["worker"]
_AFTER_TRADE = tuple(word for word in AFTER["worker"] if word not in STATES["worker"])
_GOVERNED = tuple(verb for verb in PASSIVE if "accord" in verb.objects)


def past_or_present(rng: StableRandom) -> Tense:
    """The past, more often than not."""
    return "past" if rng.chance(0.66) else "present"


def pronoun_for(someone: Nominal) -> PronounPhrase:
    """The pronoun for people."""
    if someone.plural:
        return PronounPhrase("they", someone)
    return PronounPhrase("she" if someone.feminine else "he", someone)


def actor(rng: StableRandom, kind: str, tense: Tense, negated: bool, first: bool) -> Nominal:
    """Who does it. "I" and "we" come with the past alone; "he" and "she" only where nobody was named before."""
    determiner = definite(rng) if negated else ""
    if kind == "animal":
        return noun_phrase(rng, kind, determiner, deep=True)
    share = rng.random()
    if share < 0.12 and tense == "past":
        return PronounPhrase("I" if share < 0.07 else "we")
    if share < 0.18 and first:
        return PronounPhrase("he" if share < 0.15 else "she")
    return someone(rng, True, determiner)


def action_clause(rng: StableRandom, first: bool, tense: Tense) -> Clause:
    """Someone does something, or two things."""
    kind, negated = rng.choice(_ACTORS), negation(rng, 0.2)
    subject = actor(rng, kind, tense, bool(negated), first)
    if rng.chance(0.12) and subject.person == 3:
        one, other = action(rng, kind, tense, around=False), action(rng, kind, tense)
        while other.verb is one.verb:
            other = action(rng, kind, tense)
        return Clause(subject, (one, other))
    done = action(rng, kind, tense, negated, deep=True)
    while subject.person == 1 and done.verb.state:  # the imperfect is there for the third person alone
        done = action(rng, kind, tense, negated, deep=True)
    return Clause(subject, (done,))


def state_clause(rng: StableRandom, first: bool, tense: Tense) -> Clause:
    """Someone or something is in some state."""
    share = rng.random()
    if share < 0.1:
        return Clause(PronounPhrase(rng.choice(("I", "we"))), (state(rng, "person", tense),))
    if share < 0.15 and first:
        return Clause(PronounPhrase(rng.choice(("he", "she"))), (state(rng, "person", tense),))
    kind = "person" if share < 0.4 else rng.choice(_KINDS)
    said = state(rng, kind, tense)
    determiner = definite(rng) if said.negation else ""  # "every one is not" says two things
    if share < 0.4:
        return Clause(someone(rng, True, determiner), (said,))
    subject = noun_phrase(rng, kind, determiner, deep=True)
    while said.adjectives[0] in subject.adjectives:
        subject = noun_phrase(rng, kind, determiner, deep=True)
    return Clause(subject, (said,))


def profession_clause(rng: StableRandom, first: bool) -> Clause:
    """Someone has a trade."""
    share = rng.random()
    if share < 0.3:
        subject: Nominal = PronounPhrase("I")
    elif share < 0.4:
        subject = PronounPhrase("we")
    elif share < 0.58 and first:
        subject = PronounPhrase(rng.choice(("he", "she")))
    elif share < 0.78:
        subject = person_name(rng)
    elif share < 0.86:
        subject = coordination(rng, feminine=True if rng.chance(0.75) else None)
    else:
        subject = noun_phrase(rng, "person", definite(rng))
    tense: Tense = "present" if rng.chance(0.7) else "past"
    trade = rng.choice(TRADES)
    # Beside an adjective a French trade takes its article, and then "il est" would have to be "c'est".
    if (isinstance(subject, PronounPhrase) and subject.person == 3) or rng.chance(0.7):
        return Clause(subject, (Profession(trade, None, tense, "not" if rng.chance(0.15) else ""),))
    word = rng.choice(_BEFORE_TRADE if rng.chance(0.5) else _AFTER_TRADE)
    return Clause(subject, (Profession(trade, word, tense),))


def passive_clause(rng: StableRandom) -> Clause:
    """Something is done to something, or someone is born."""
    if rng.chance(0.1):
        born = Passive(None, adverbials=(date(rng) if rng.chance(0.7) else locality(rng),))
        return Clause(someone(rng, True), (born,))
    verb = rng.choice(PASSIVE)
    kind = rng.choice(verb.objects)
    negated = negation(rng, 0.15)
    subject = noun_phrase(rng, kind, definite(rng) if negated else "", deep=True)
    while subject.relative is not None and getattr(subject.relative.predicate, "verb", None) is verb:
        subject = noun_phrase(rng, kind, subject.determiner, deep=True)
    agent = None
    if rng.chance(0.35):
        agent = institution(rng) if kind == "accord" and rng.chance(0.4) else someone(rng)
    when: tuple[Adverbial, ...] = ()
    if negated != "never" and rng.chance(0.65 if agent is None else 0.3):
        when = (date(rng),)
    return Clause(subject, (Passive(verb, agent, negated, when),))


def institution_clause(rng: StableRandom) -> Clause:
    """An institution deals with a paper."""
    verb, negated = rng.choice(_GOVERNED), negation(rng, 0.15)
    paper = object_of(rng, verb, negated, deep=True)
    when = (date(rng),) if isinstance(paper, NounPhrase) and paper.relative is None and negated != "never" else ()
    return Clause(institution(rng), (Action(verb, paper, "past", negated, "", when),))


def report_clause(rng: StableRandom) -> Clause:
    """Someone says something. Never negated: the French would need another mood."""
    who: Nominal = noun_phrase(rng, rng.choice(PEOPLE), "the") if rng.chance(0.5) else person_name(rng)
    verb = rng.choice(REPORTS)
    if rng.chance(0.4):
        # Only what is said in the past of a state needs no further past in French.
        tense = past_or_present(rng) if verb.base == "say" else "present"
        said = PredicateAdjective(
            (rng.choice(STATES["person"]),), rng.choice(("", "too", "very", "so", "really")), tense
        )
        return Clause(who, (ReportedSpeech(verb, Clause(pronoun_for(who), (said,)), tense),))
    share = rng.random()
    if share < 0.4:
        below = action_clause(rng, False, past_or_present(rng))
    elif share < 0.6:
        below = state_clause(rng, False, past_or_present(rng))
    else:
        below = passive_clause(rng) if share < 0.8 else profession_clause(rng, False)
    return Clause(who, (ReportedSpeech(verb, below, "present"),))


def with_subordinate(rng: StableRandom, clause: Clause, tense: Tense) -> Clause:
    """The clause with another below it, in the same tense."""
    share = rng.random()
    if share < 0.25:  # "pendant que" goes with what lasts
        return Clause(clause.subject, clause.predicates, "while", state_clause(rng, False, tense))
    below = action_clause(rng, False, tense) if share < 0.7 else state_clause(rng, False, tense)
    return Clause(clause.subject, clause.predicates, "because" if rng.chance(0.5) else "when", below)


_LIFELESS = [verb for verb in VERBS if verb.objects and verb.objects[0] in STATES and verb.objects[0] not in LIVING]
_BY_ANIMALS = [verb for verb in _LIFELESS if "animal" in verb.subjects]
_BIG, _SMALL = adjective("big"), adjective("small")
# How often two candidates of one gender are let stand: they teach nothing about what a pronoun means.
_SAME_GENDER = 0.15


def ambiguous_pronoun(rng: StableRandom) -> tuple[Clause, ...]:
    """One who acts, something acted on, then a pronoun that means one or the other, each as often.

    The pronoun means the one that can be in the state it is in: only the living are tired and only ways are wide, so
    "it" is settled by sense; its French gender is that of the noun. No third noun that it could mean stands near.
    """
    if rng.chance(0.14):
        return (_fitting(rng),)
    of_subject = rng.chance(0.5)
    kind = "animal" if rng.chance(0.7) else rng.choice(PEOPLE)
    verb = rng.choice(_BY_ANIMALS if kind == "animal" else _LIFELESS)
    # "It" never means a person, so a person who is meant has to be several.
    plural = rng.chance(0.3) if kind == "animal" else of_subject or rng.chance(0.5)
    object_plural = plural if rng.chance(0.85) else not plural
    subject = _candidate(rng, kind, plural, verb)
    target = _candidate(rng, rng.choice(verb.objects), object_plural, verb)
    while target.feminine == subject.feminine and not rng.chance(_SAME_GENDER):
        target = _candidate(rng, target.noun.kind, object_plural, verb)
    tense, negated = past_or_present(rng), negation(rng, 0.6)
    when: tuple[Adverbial, ...] = ()
    if tense == "past" and target.relative is None and negated != "never" and rng.chance(0.15):
        when = (Adverb("yesterday") if rng.chance(0.5) else date(rng),)
    antecedent = subject if of_subject else target
    pronoun = PronounPhrase("they" if antecedent.plural else "it", antecedent)
    speaker: Nominal = subject
    if not of_subject and kind != "animal" and tense == "past" and rng.chance(0.3):
        speaker = PronounPhrase(rng.choice(("I", "we")))
    main = Clause(speaker, (Action(verb, target, tense, negated, "", when),))
    return _joined(rng, main, Clause(pronoun, (_reason(rng, antecedent.noun.kind, tense, negated),)))


def feeling_pronoun(rng: StableRandom) -> tuple[Clause, ...]:
    """Someone does something because of how he or she feels."""
    tense, negated = past_or_present(rng), negation(rng, 0.4)
    subject: Nominal = PronounPhrase(rng.choice(("I", "we"))) if tense == "past" and rng.chance(0.2) else someone(rng)
    if isinstance(subject, NounPhrase) and subject.determiner == "every" and not subject.plural:
        subject = NounPhrase(subject.noun, "the", False, subject.adjectives)
    done = action(rng, "person", tense, negated, around=False)
    while subject.person == 1 and done.verb.state:
        done = action(rng, "person", tense, negated, around=False)
    if "person" in done.verb.objects:  # someone else of the same gender would be meant as well
        done = Action(done.verb, person_name(rng, not subject.feminine), tense, negated)
    below = pronoun_for(subject) if subject.person == 3 else PronounPhrase("we" if subject.plural else "I")
    return _joined(rng, Clause(subject, (done,)), Clause(below, (_reason(rng, "person", tense, negated),)))


def _candidate(rng: StableRandom, kind: str, plural: bool, verb: LexicalVerb) -> NounPhrase:
    noun = rng.choice(NOUNS[kind])
    words = (rng.choice(BEFORE_NOUN[noun.english]),) if rng.chance(0.25) else ()
    relative = object_relative(rng, kind, verb) if rng.chance(0.05) else None
    return NounPhrase(noun, definite(rng), plural, words, None, relative)


def _reason(rng: StableRandom, kind: str, tense: Tense, negated: Negation) -> PredicateAdjective:
    word = rng.choice(STATES[kind])
    if negated:
        return PredicateAdjective((word,), rng.choice(("too", "too", "too", "very", "so", "")), tense)
    if rng.chance(0.2):
        return PredicateAdjective((word,), rng.choice(("", "very", "too")), tense, "not")
    return PredicateAdjective((word,), rng.choice(("very", "so", "really", "")), tense)


def _joined(rng: StableRandom, main: Clause, reason: Clause) -> tuple[Clause, ...]:
    share = rng.random()
    if share < 0.85:
        return (Clause(main.subject, main.predicates, "because" if share < 0.7 else "when", reason),)
    return (main, reason)


def _fitting(rng: StableRandom) -> Clause:
    """Something doesn't fit in something: too big means the one, too small the other."""
    plural = rng.chance(0.25)
    content = NounPhrase(rng.choice(NOUNS["thing"]), definite(rng), plural)
    container = NounPhrase(rng.choice(NOUNS["container"]), definite(rng), plural)
    while container.feminine == content.feminine and not rng.chance(_SAME_GENDER):
        container = NounPhrase(rng.choice(NOUNS["container"]), container.determiner, plural)
    big = rng.chance(0.5)
    pronoun = PronounPhrase("they" if plural else "it", content if big else container)
    tense = past_or_present(rng)
    reason = Clause(pronoun, (PredicateAdjective((_BIG if big else _SMALL,), "too", tense),))
    return Clause(content, (Action(FIT, container, tense, "not"),), "because", reason)


def statement(rng: StableRandom) -> Statement:
    """A whole sentence: mostly one thought, in one case of six several, joined by "and" and "but"."""
    period = not rng.chance(0.12)
    if rng.chance(0.025):
        return _thanking(rng, period)
    clauses = _thought(rng, True)
    if rng.chance(0.18):
        for _ in range(1 + int(rng.random() ** 3 * 6)):
            clauses += _thought(rng, False)
    coordinators = tuple("and" if rng.chance(0.7) else "but" for _ in clauses[1:])
    first = clauses[0].predicates[0]
    opening = None
    if rng.chance(0.08) and isinstance(first, Action) and first.tense == "past" and not first.adverbials:
        placed = isinstance(first.object, PlaceName) or clauses[0].subordinate is not None
        opening = date(rng) if placed or rng.chance(0.5) else locality(rng)
    return Statement(clauses, coordinators, opening, period=period)


def _thought(rng: StableRandom, first: bool) -> tuple[Clause, ...]:
    """One clause, or two that belong together."""
    share = rng.random()
    if share < 0.125:
        return ambiguous_pronoun(rng)
    if share < 0.18:
        return feeling_pronoun(rng)
    if share < 0.24:
        return (report_clause(rng),)
    if share < 0.35:
        return (profession_clause(rng, first),)
    if share < 0.5:
        return (passive_clause(rng),)
    if share < 0.54:
        return (institution_clause(rng),)
    tense = past_or_present(rng)
    if share < 0.66:
        return (state_clause(rng, first, tense),)
    clause = action_clause(rng, first, tense)
    return (with_subordinate(rng, clause, tense) if len(clause.predicates) == 1 and rng.chance(0.2) else clause,)


def _thanking(rng: StableRandom, period: bool) -> Statement:
    """Thanks for something, or to someone, or before saying something of oneself."""
    share = rng.random()
    if share < 0.45:
        cause = noun_phrase(rng, rng.choice(("food", "text", "thing")), rng.choice(("the", "this")))
        return Statement((), thanks=Thanks(cause=cause), period=period)
    if share < 0.7:
        noun = rng.choice(NOUNS["person"])
        friend = NounPhrase(noun, "my", False, (rng.choice(BEFORE_NOUN[noun.english]),))
        return Statement((), thanks=Thanks(friend), period=period)
    clause = (
        Clause(PronounPhrase("I"), (state(rng, "person", "present"),))
        if share < 0.85
        else profession_clause(rng, False)
    )
    return Statement((clause,), thanks=Thanks(person_name(rng) if rng.chance(0.5) else None), period=period)


PLAIN_CLAUSES = 6
_PLAIN_ACTORS = ("person", "animal")
_PLAIN_KINDS = (*_PLAIN_ACTORS, "way", "building", "food", "thing")
_PLAIN_WORDS = 4


def _first_of_each_gender(nouns: tuple[Noun, ...]) -> tuple[Noun, ...]:
    """The first few of each gender."""
    return tuple(
        noun for feminine in (False, True) for noun in [n for n in nouns if n.feminine is feminine][:_PLAIN_WORDS]
    )


_PLAIN_NOUNS = {kind: _first_of_each_gender(NOUNS[kind]) for kind in _PLAIN_KINDS}
_PLAIN_VERBS = {
    kind: tuple(
        verb
        for verb in VERBS
        if kind in verb.subjects
        and set(verb.objects) & set(_PLAIN_KINDS)
        and not (verb.state or verb.with_etre or verb.french_preposition)
    )
    for kind in _PLAIN_ACTORS
}


def plain_statement(rng: StableRandom) -> Statement:
    """A statement of a plain part of the grammar: few words, and one to six clauses of one kind, joined in a row.

    Whoever does something, and whatever it is done to, is a noun with at most one adjective. Nothing is a pronoun, so
    each clause can be translated by itself; what is left to learn is agreement, elision, the adjective's place,
    negation, and keeping one's place in a long sentence. Each number of clauses is equally likely, so that long
    sentences are as common as short ones.
    """
    clauses = tuple(_plain_clause(rng) for _ in range(1 + int(rng.random() * PLAIN_CLAUSES)))
    coordinators = tuple("and" if rng.chance(0.5) else "but" for _ in clauses[1:])
    return Statement(clauses, coordinators)


def _plain_clause(rng: StableRandom) -> Clause:
    kind = rng.choice(_PLAIN_ACTORS)
    subject = _plain_noun_phrase(rng, kind, rng.choice(("the", "a", "this")))
    tense: Tense = "past" if rng.chance(0.5) else "present"
    if rng.chance(0.15):
        return Clause(subject, (PredicateAdjective((rng.choice(STATES[kind][:_PLAIN_WORDS]),), tense=tense),))
    verb = rng.choice(_PLAIN_VERBS[kind])
    negated = rng.chance(0.15)
    target = rng.choice([other for other in verb.objects if other in _PLAIN_KINDS])
    # What is denied of "a dog" is denied of any: only what points follows a negation.
    whom = _plain_noun_phrase(rng, target, rng.choice(("the", "this") if negated else ("the", "a", "this")))
    return Clause(subject, (Action(verb, whom, tense, "not" if negated else ""),))


def _plain_noun_phrase(rng: StableRandom, kind: str, determiner: str) -> NounPhrase:
    noun = rng.choice(_PLAIN_NOUNS[kind])
    words = ()
    if rng.chance(0.35):
        words = (rng.choice((BEFORE_NOUN[noun.english] if rng.chance(0.5) else AFTER[kind])[:_PLAIN_WORDS]),)
    return NounPhrase(noun, determiner, rng.chance(0.3), words)
