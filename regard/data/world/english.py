"""A statement in English: its words, their dependencies, its bracketed constituents, and where each part stands.

The relations, each from a word to its head: `root`, `subject`, `object`, `predicate` (of a form of be), `complement`
(of a preposition, a reporting verb or "thanks"), `determiner`, `number`, `modifier` (adjective), `degree`, `auxiliary`,
`negation`, `adverb`, `adjunct` (preposition or date to the verb or noun it tells about), `date` (inside a date),
`marker` (because, that), `clause` (a subordinate clause's verb), `relative` (a relative clause's verb), `coordinator`
and `conjunct` (both to the first of the joined), `address` and `punctuation`.
"""

from regard.data.world.draft import Draft
from regard.data.world.morphology import article
from regard.data.world.names import DETERMINERS, NUMBERS
from regard.data.world.phrases import (
    Action,
    Adjunct,
    Circumstance,
    Clause,
    Date,
    Manner,
    Nominal,
    Pair,
    Person,
    Predicate,
    Profession,
    Relative,
    Report,
    Somewhere,
    Stand,
    State,
    Statement,
    Suffering,
    Thanks,
    Thing,
)


def write(statement: Statement) -> Draft:
    """The statement in English."""
    draft = Draft()
    draft.open("S")
    first = -1
    if statement.thanks is not None:
        first = _thanks(draft, statement.thanks)
        if statement.clauses:
            draft.add(",", ",", first, "punctuation")
    opening = _circumstance(draft, statement.opening) if statement.opening is not None else -1
    comma = draft.add(",", ",") if opening >= 0 else -1
    several = len(statement.clauses) > 1 or first >= 0
    for number, clause in enumerate(statement.clauses):
        if number:
            draft.add(",", ",", first, "punctuation")
            draft.places[id(clause), "coordinator"] = (
                draft.add(statement.coordinators[number - 1], "CC", first, "coordinator"),
            )
        if several:
            draft.open("S")
        verb = _clause(draft, clause)
        if several:
            draft.close()
        if first >= 0:
            draft.attach(verb, first, "conjunct")
        else:
            first = verb
        if not number and opening >= 0:
            draft.attach(opening, verb, "adjunct")
            draft.attach(comma, verb, "punctuation")
    if statement.period:
        draft.add(".", ".", first, "punctuation")
    draft.close()
    return draft


def _thanks(draft: Draft, thanks: Thanks) -> int:
    draft.open("NP")
    word = draft.add("thanks", "NNS")
    draft.places[id(thanks), "thanks"] = (word,)
    if thanks.cause is not None:
        draft.open("PP")
        preposition = draft.add("for", "IN", word, "adjunct")
        draft.places[id(thanks), "for"] = (preposition,)
        draft.attach(_nominal(draft, thanks.cause), preposition, "complement")
        draft.close()
    draft.close()
    if thanks.to is not None:
        draft.add(",", ",", word, "punctuation")
        draft.attach(_nominal(draft, thanks.to), word, "address")
    return word


def _clause(draft: Draft, clause: Clause) -> int:
    """Write subject and predicates; return the index of the first predicate's verb."""
    subject = _nominal(draft, clause.subject)
    several = len(clause.predicates) > 1
    first = -1
    if several:
        draft.open("VP")
    for number, predicate in enumerate(clause.predicates):
        if number:
            draft.places[id(predicate), "coordinator"] = (draft.add("and", "CC", first, "coordinator"),)
        draft.open("VP")
        verb = _predicate(draft, predicate, clause.subject)
        if number:
            draft.attach(verb, first, "conjunct")
        else:
            first = verb
        if clause.subordinate is not None and number == len(clause.predicates) - 1:
            _subordinate(draft, clause, verb)
        draft.close()
    if several:
        draft.close()
    draft.attach(subject, first, "subject")
    return first


def _subordinate(draft: Draft, clause: Clause, verb: int) -> None:
    assert clause.subordinate is not None
    draft.open("SBAR")
    marker = draft.add(clause.subordinator, "IN")
    draft.open("S")
    below = _clause(draft, clause.subordinate)
    draft.close()
    draft.close()
    draft.places[id(clause), "subordinator"] = (marker,)
    draft.attach(marker, below, "marker")
    draft.attach(below, verb, "clause")


def _predicate(draft: Draft, predicate: Predicate, subject: Nominal) -> int:
    """Write a predicate inside an open VP; return the index of its verb."""
    if isinstance(predicate, Action):
        return _action(draft, predicate, subject)
    if isinstance(predicate, State):
        return _state(draft, predicate, subject)
    if isinstance(predicate, Profession):
        return _profession(draft, predicate, subject)
    if isinstance(predicate, Suffering):
        return _suffering(draft, predicate, subject)
    return _report(draft, predicate, subject)


def _lexical(draft: Draft, predicate: Action | Report, subject: Nominal) -> tuple[int, bool]:
    """Write auxiliary, adverb and verb; return the verb's index and whether a VP was opened around it."""
    verb, key = predicate.verb, id(predicate)
    third = subject.person == 3 and not subject.plural
    if predicate.denial == "not":
        text, tag = (
            ("didn't", "VBD") if predicate.tense == "past" else ("doesn't", "VBZ") if third else ("don't", "VBP")
        )
        auxiliary = draft.add(text, tag)
        draft.open("VP")
        word = draft.add(verb.base, "VB")
        draft.attach(auxiliary, word, "auxiliary")
        draft.places[key, "auxiliary"] = (auxiliary,)
    else:
        adverb = -1
        if predicate.denial == "never":
            adverb = draft.add("never", "RB")
            draft.places[key, "never"] = (adverb,)
        elif isinstance(predicate, Action) and predicate.frequency:
            adverb = draft.add(predicate.frequency, "RB")
            draft.places[key, "frequency"] = (adverb,)
        if predicate.tense == "past":
            word = draft.add(verb.past, "VBD")
        else:
            word = draft.add(verb.third, "VBZ") if third else draft.add(verb.base, "VBP")
        if adverb >= 0:
            draft.attach(adverb, word, "negation" if predicate.denial else "adverb")
    draft.places[key, "verb"] = (word,)
    return word, predicate.denial == "not"


def _action(draft: Draft, action: Action, subject: Nominal) -> int:
    word, nested = _lexical(draft, action, subject)
    verb = action.verb
    if action.object is not None and verb.preposition:
        draft.open("PP")
        preposition = draft.add(verb.preposition, "IN", word, "adjunct")
        draft.places[id(action), "preposition"] = (preposition,)
        draft.attach(_nominal(draft, action.object), preposition, "complement")
        draft.close()
    elif action.object is not None:
        draft.attach(_nominal(draft, action.object), word, "object")
    elif verb.preposition and verb.objects:  # an object relative leaves the preposition behind
        draft.places[id(action), "preposition"] = (draft.add(verb.preposition, "IN", word, "adjunct"),)
    for circumstance in action.circumstances:
        draft.attach(_circumstance(draft, circumstance), word, _link(circumstance))
    if nested:
        draft.close()
    return word


def _report(draft: Draft, report: Report, subject: Nominal) -> int:
    word, nested = _lexical(draft, report, subject)
    draft.open("SBAR")
    marker = draft.add("that", "IN")
    draft.open("S")
    below = _clause(draft, report.clause)
    draft.close()
    draft.close()
    draft.places[id(report), "that"] = (marker,)
    draft.attach(marker, below, "marker")
    draft.attach(below, word, "complement")
    if nested:
        draft.close()
    return word


def _be(draft: Draft, predicate: State | Profession | Suffering, subject: Nominal, past: bool) -> int:
    """Write the form of be that agrees with the subject, with its negation."""
    negated = predicate.denial == "not"
    if past:
        text = "were" if subject.plural else "was"
        tag = "VBD"
    else:
        first = subject.person == 1
        text = "are" if subject.plural else "am" if first else "is"
        tag = "VBZ" if text == "is" else "VBP"
    if negated and text == "am":  # has no contraction
        word = draft.add(text, tag)
        draft.places[id(predicate), "never"] = (draft.add("not", "RB", word, "negation"),)
    else:
        word = draft.add(text + "n't" if negated else text, tag)
    if predicate.denial == "never":
        draft.places[id(predicate), "never"] = (draft.add("never", "RB", word, "negation"),)
    draft.places[id(predicate), "be"] = (word,)
    return word


def _state(draft: Draft, state: State, subject: Nominal) -> int:
    word = _be(draft, state, subject, state.tense == "past")
    if state.frequency:
        draft.places[id(state), "frequency"] = (draft.add(state.frequency, "RB", word, "adverb"),)
    draft.open("ADJP")
    first = -1
    degree = draft.add(state.degree, "RB") if state.degree else -1
    for number, adjective in enumerate(state.adjectives):
        if number:
            draft.places[id(state), "and"] = (draft.add("and", "CC", first, "coordinator"),)
        index = draft.add(adjective.english, "JJ")
        draft.places[id(state), f"adjective {number}"] = (index,)
        draft.attach(index, *((first, "conjunct") if number else (word, "predicate")))
        first = index if not number else first
    draft.close()
    if degree >= 0:
        draft.attach(degree, first, "degree")
        draft.places[id(state), "degree"] = (degree,)
    return word


def _profession(draft: Draft, profession: Profession, subject: Nominal) -> int:
    word = _be(draft, profession, subject, profession.tense == "past")
    trade, adjective, key = profession.trade, profession.adjective, id(profession)
    draft.open("NP")
    before: list[tuple[int, str]] = []
    if not subject.plural:
        following = trade.english if adjective is None else adjective.english
        index = draft.add(article(following), "DT")
        draft.places[key, "article"] = (index,)
        before.append((index, "determiner"))
    if adjective is not None:
        index = draft.add(adjective.english, "JJ")
        draft.places[key, "adjective"] = (index,)
        before.append((index, "modifier"))
    text, tag = (trade.english_plural, "NNS") if subject.plural else (trade.english, "NN")
    noun = draft.add(text, tag, word, "predicate")
    draft.places[key, "noun"] = (noun,)
    draft.close()
    for index, relation in before:
        draft.attach(index, noun, relation)
    return word


def _suffering(draft: Draft, suffering: Suffering, subject: Nominal) -> int:
    auxiliary = _be(draft, suffering, subject, True)
    never = draft.places.get((id(suffering), "never"))
    draft.open("VP")
    verb = draft.add("born" if suffering.verb is None else suffering.verb.participle, "VBN")
    draft.attach(auxiliary, verb, "auxiliary")
    if never is not None:
        draft.attach(never[0], verb, "negation")
    draft.places[id(suffering), "verb"] = (verb,)
    if suffering.agent is not None:
        draft.open("PP")
        by = draft.add("by", "IN", verb, "adjunct")
        draft.attach(_nominal(draft, suffering.agent), by, "complement")
        draft.close()
        draft.places[id(suffering), "by"] = (by,)
    for circumstance in suffering.circumstances:
        draft.attach(_circumstance(draft, circumstance), verb, _link(circumstance))
    draft.close()
    return verb


def _link(circumstance: Circumstance) -> str:
    return "adverb" if isinstance(circumstance, Manner) else "adjunct"


def _circumstance(draft: Draft, circumstance: Circumstance) -> int:
    """Write a circumstance; return the word that hangs on the verb."""
    if isinstance(circumstance, Date):
        return _date(draft, circumstance)
    if isinstance(circumstance, Manner):
        draft.open("ADVP")
        word = draft.add(circumstance.word, "RB")
        draft.places[id(circumstance), "manner"] = (word,)
        draft.close()
        return word
    return _adjunct(draft, circumstance)


def _adjunct(draft: Draft, adjunct: Adjunct) -> int:
    draft.open("PP")
    first, *rest = adjunct.preposition.split()
    word = last = draft.add(first, "IN")
    for text in rest:
        last = draft.add(text, "IN" if text == "of" else "NN", last, "complement" if text != "of" else "adjunct")
    draft.places[id(adjunct), "preposition"] = tuple(range(word, last + 1))
    draft.attach(_nominal(draft, adjunct.object), last, "complement")
    draft.close()
    return word


def _date(draft: Draft, date: Date) -> int:
    draft.open("PP")
    word = draft.add("on" if date.day or date.weekday else "in", "IN")
    draft.places[id(date), "preposition"] = (word,)
    draft.open("NP")
    parts = (
        ("weekday", date.weekday, "NNP"),
        ("day", date.day, "CD"),
        ("month", date.month, "NNP"),
        ("year", date.year, "CD"),
    )
    indices = []
    main = -1
    for name, text, tag in parts:
        if text:
            index = draft.add(text, tag)
            draft.places[id(date), name] = (index,)
            indices.append(index)
            main = index if name != "year" or main < 0 else main  # the month, where there is one
    for index in indices:
        draft.attach(index, *((word, "complement") if index == main else (main, "date")))
    draft.close()
    draft.close()
    return word


def _nominal(draft: Draft, nominal: Nominal) -> int:
    """Write a noun phrase; return the index of its head."""
    if isinstance(nominal, Thing):
        word = _thing(draft, nominal)
    elif isinstance(nominal, Pair):
        draft.open("NP")
        word = _nominal(draft, nominal.first)
        draft.places[id(nominal), "and"] = (draft.add("and", "CC", word, "coordinator"),)
        draft.attach(_nominal(draft, nominal.second), word, "conjunct")
        draft.close()
    else:
        draft.open("NP")
        if isinstance(nominal, Stand):
            word = draft.add(nominal.word, "PRP")
            draft.pronouns.append(nominal)
        elif isinstance(nominal, Person):
            word = draft.add(nominal.name, "NNP")
        else:
            assert isinstance(nominal, Somewhere)
            word = draft.add(nominal.locality.english, "NNP")
        draft.close()
    draft.places[id(nominal), "noun"] = (word,)
    return word


def _thing(draft: Draft, thing: Thing) -> int:
    noun, key = thing.noun, id(thing)
    nested = thing.adjunct is not None or thing.relative is not None
    draft.open("NP")
    if nested:
        draft.open("NP")
    determiner = DETERMINERS[thing.determiner]
    text = determiner.plural if thing.plural else determiner.singular
    if text == "a":
        text = article(thing.adjectives[0].english if thing.adjectives else noun.english)
    tag, relation = ("CD", "number") if text in NUMBERS else ("DT", "determiner")
    before = [(draft.add(part, tag), relation) for part in text.split()]
    draft.places[key, "determiner"] = tuple(index for index, _ in before)
    proper = noun.kind == "organisation"
    for number, adjective in enumerate(thing.adjectives):
        index = draft.add(adjective.english, "NNP" if proper else "JJ")
        draft.places[key, f"adjective {number}"] = (index,)
        before.append((index, "modifier"))
    word = draft.add(
        noun.english_plural if thing.plural else noun.english, "NNP" if proper else "NNS" if thing.plural else "NN"
    )
    for index, relation in before:
        draft.attach(index, word, relation)
    if nested:
        draft.close()
    if thing.adjunct is not None:
        draft.attach(_adjunct(draft, thing.adjunct), word, "adjunct")
    if thing.relative is not None:
        draft.attach(_relative(draft, thing.relative, thing), word, "relative")
    draft.close()
    return word


def _relative(draft: Draft, relative: Relative, thing: Thing) -> int:
    draft.open("SBAR")
    draft.open("WHNP")
    who = relative.subject is None and thing.noun.kind in ("person", "worker")
    marker = draft.add("who" if who else "that", "WP" if who else "WDT")
    draft.places[id(relative), "marker"] = (marker,)
    draft.close()
    draft.open("S")
    subject = _nominal(draft, relative.subject) if relative.subject is not None else marker
    draft.open("VP")
    verb = _predicate(draft, relative.predicate, thing if relative.subject is None else relative.subject)
    draft.close()
    draft.close()
    draft.close()
    draft.attach(subject, verb, "subject")
    if relative.subject is not None:
        draft.attach(marker, verb, "object")
    return verb
