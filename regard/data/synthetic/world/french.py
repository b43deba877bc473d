"""A statement in French: its words, each with the English words that it translates."""

from collections.abc import Sequence

from regard.data.synthetic.world import syntax
from regard.data.synthetic.world.function_words import (
    COORDINATORS,
    DEGREES,
    DETERMINERS,
    FREQUENCIES,
    MANNERS,
    MONTHS,
    PREPOSITIONS,
    SUBORDINATORS,
    WEEKDAYS,
)
from regard.data.synthetic.world.morphology import agree, begins_with_vowel

# A French word and the indices of the English words that it translates.
AlignedWord = tuple[str, tuple[int, ...]]

_ELIDED = {"le": "l'", "la": "l'", "je": "j'", "ne": "n'", "que": "qu'", "de": "d'"}
_CONTRACTED = {("de", "le"): "du", ("de", "les"): "des", ("à", "le"): "au", ("à", "les"): "aux"}
# By person and number: I, he, we, they.
_ETRE = ("suis", "est", "sommes", "sont")
_ETAIT = ("étais", "était", "étions", "étaient")
_AVOIR = ("ai", "a", "avons", "ont")


def write(statement: syntax.Statement, words: list[str], places: syntax.Places) -> list[AlignedWord]:
    """The statement in French; `words` and `places` are its English and say what each French word translates."""
    french = FrenchText(places)
    commas = [(index,) for index, word in enumerate(words) if word == ","]
    if statement.thanks is not None:
        french.thanks(statement.thanks, commas)
        if statement.clauses:
            french.add(",", commas.pop(0))
    if statement.opening is not None:
        french.adverbial(statement.opening)
        french.add(",", commas.pop(0))
    for number, clause in enumerate(statement.clauses):
        if number:
            french.add(",", commas.pop(0))
            french.add(COORDINATORS[statement.coordinators[number - 1]], places[id(clause), "coordinator"])
        french.clause(clause)
    if statement.period:
        french.add(".", (len(words) - 1,))
    return join(french.pieces)


class FrenchText:
    """The French side as it is being written; elision and contraction come after."""

    def __init__(self, places: syntax.Places) -> None:
        self.places = places
        self.pieces: list[AlignedWord] = []

    def add(self, text: str, sources: tuple[int, ...]) -> None:
        self.pieces.append((text, sources))

    def at(self, record: object, part: str, otherwise: tuple[int, ...] = ()) -> tuple[int, ...]:
        """The English words that say this part of a record."""
        return self.places.get((id(record), part), otherwise)

    def thanks(self, thanks: syntax.Thanks, commas: list[tuple[int]]) -> None:
        self.add("merci", self.at(thanks, "thanks"))
        if thanks.cause is not None:
            self.add("pour", self.at(thanks, "for"))
            self.nominal(thanks.cause)
        if thanks.to is not None:
            self.add(",", commas.pop(0))
            self.nominal(thanks.to)

    def clause(self, clause: syntax.Clause) -> None:
        self.nominal(clause.subject)
        for number, predicate in enumerate(clause.predicates):
            if number:
                self.add("et", self.at(predicate, "coordinator"))
            self.predicate(predicate, clause.subject, None)
        if clause.subordinate is not None:
            for text in SUBORDINATORS[clause.subordinator].split():
                self.add(text, self.at(clause, "subordinator"))
            self.clause(clause.subordinate)

    def predicate(self, predicate: syntax.Predicate, subject: syntax.Nominal, preceding: syntax.Nominal | None) -> None:
        """Write a predicate; `preceding` is the object where it stands before the verb, as in an object relative."""
        if isinstance(predicate, syntax.Action):
            self.action(predicate, subject, preceding)
        elif isinstance(predicate, syntax.PredicateAdjective):
            self.state(predicate, subject)
        elif isinstance(predicate, syntax.Profession):
            self.profession(predicate, subject)
        elif isinstance(predicate, syntax.Passive):
            self.passive(predicate, subject)
        else:
            self.report(predicate, subject)

    def finite(self, text: str, predicate: syntax.Predicate, verb: tuple[int, ...], negation: tuple[int, ...]) -> None:
        """Write the verb that carries person and tense, between the two halves of its negation."""
        if predicate.negation:
            self.add("ne", negation)
            self.add(text, verb)
            self.add("pas" if predicate.negation == "not" else "jamais", negation)
        else:
            self.add(text, verb)

    def lexical(
        self,
        predicate: syntax.Action | syntax.ReportedSpeech,
        subject: syntax.Nominal,
        preceding: syntax.Nominal | None,
    ) -> None:
        verb = predicate.verb
        main = self.at(predicate, "verb")
        negation = self.at(predicate, "auxiliary") or self.at(predicate, "never")
        event = predicate.tense == "past" and not verb.state
        if not event:
            assert subject.person == 3
            if predicate.tense == "past":
                text = verb.imperfect + ("aient" if subject.plural else "ait")
            else:
                text = verb.french_plural if subject.plural else verb.french_singular
            self.finite(text, predicate, main, negation)
            return
        # In "didn't cross" the tense is in the auxiliary on both sides.
        tense = self.at(predicate, "auxiliary", main)
        self.finite((_ETRE if verb.with_etre else _AVOIR)[_form(subject)], predicate, tense, negation)
        agreeing = subject if verb.with_etre else preceding
        text = verb.french_participle
        self.add(text if agreeing is None else agree(text, agreeing.feminine, agreeing.plural), main)

    def action(self, action: syntax.Action, subject: syntax.Nominal, preceding: syntax.Nominal | None) -> None:
        verb = action.verb
        self.lexical(action, subject, preceding)
        if action.frequency:
            self.add(FREQUENCIES[action.frequency], self.at(action, "frequency"))
        preposition = self.at(action, "preposition")
        if preposition and not verb.french_preposition:  # "look at" is one word in French
            self.cover(self.at(action, "verb")[0], preposition)
        if action.object is not None:
            if verb.french_preposition:
                text = verb.french_preposition
                if isinstance(action.object, syntax.PlaceName):
                    text = action.object.locality.preposition
                self.add(text, preposition or self.at(action, "verb"))
            self.nominal(action.object)
        for adverbial in action.adverbials:
            self.adverbial(adverbial)

    def cover(self, verb: int, more: tuple[int, ...]) -> None:
        """Let the last word that translates `verb` translate `more` as well."""
        for place in range(len(self.pieces) - 1, -1, -1):
            text, sources = self.pieces[place]
            if verb in sources:
                self.pieces[place] = (text, (*sources, *more))
                return

    def report(self, report: syntax.ReportedSpeech, subject: syntax.Nominal) -> None:
        self.lexical(report, subject, None)
        self.add("que", self.at(report, "that"))
        self.clause(report.clause)

    def be(self, predicate: syntax.PredicateAdjective | syntax.Profession, subject: syntax.Nominal) -> None:
        word = self.at(predicate, "be")
        negation = self.at(predicate, "never", word)
        self.finite((_ETAIT if predicate.tense == "past" else _ETRE)[_form(subject)], predicate, word, negation)

    def state(self, state: syntax.PredicateAdjective, subject: syntax.Nominal) -> None:
        self.be(state, subject)
        if state.frequency:
            self.add(FREQUENCIES[state.frequency], self.at(state, "frequency"))
        for number, adjective in enumerate(state.adjectives):
            if number:
                self.add("et", self.at(state, "and"))
            elif state.degree:
                self.add(DEGREES[state.degree], self.at(state, "degree"))
            self.add(adjective.form(subject.feminine, subject.plural), self.at(state, f"adjective {number}"))

    def profession(self, profession: syntax.Profession, subject: syntax.Nominal) -> None:
        trade = profession.trade
        self.be(profession, subject)
        feminine, plural = subject.feminine, subject.plural
        if feminine:
            noun = trade.feminine_plural if plural else trade.feminine
        else:
            noun = trade.masculine_plural if plural else trade.masculine
        written = self.at(profession, "article")
        if profession.adjective is None:
            self.add(noun, (*written, *self.at(profession, "noun")))
            return
        at = self.at(profession, "adjective")
        before = profession.adjective.before
        text = profession.adjective.form(feminine, plural, noun if before else "")
        kind = "de" if plural and before else DETERMINERS["a"].french(feminine, plural, False)
        self.add(kind, written or (at if before else self.at(profession, "noun")))
        if before:
            self.add(text, at)
        self.add(noun, self.at(profession, "noun"))
        if not before:
            self.add(text, at)

    def passive(self, passive: syntax.Passive, subject: syntax.Nominal) -> None:
        tense = self.at(passive, "be")
        negation = self.at(passive, "never", tense)
        if passive.verb is None:
            self.finite(_ETRE[_form(subject)], passive, tense, negation)
            participle = "né"
        else:
            self.finite(_AVOIR[_form(subject)], passive, tense, negation)
            self.add("été", tense)
            participle = passive.verb.french_participle
        self.add(agree(participle, subject.feminine, subject.plural), self.at(passive, "verb"))
        if passive.agent is not None:
            self.add("par", self.at(passive, "by"))
            self.nominal(passive.agent)
        for adverbial in passive.adverbials:
            self.adverbial(adverbial)

    def adverbial(self, adverbial: syntax.Adverbial) -> None:
        if isinstance(adverbial, syntax.Date):
            self.date(adverbial)
        elif isinstance(adverbial, syntax.Adverb):
            self.add(MANNERS[adverbial.word], self.at(adverbial, "adverb"))
        else:
            self.adjunct(adverbial)

    def adjunct(self, adjunct: syntax.Adjunct) -> None:
        at = self.at(adjunct, "preposition")
        if isinstance(adjunct.object, syntax.PlaceName):
            self.add(adjunct.object.locality.preposition, at)
        else:
            for text in PREPOSITIONS[adjunct.preposition].split():
                self.add(text, at)
        self.nominal(adjunct.object)

    def date(self, date: syntax.Date) -> None:
        at = self.at(date, "preposition")
        if date.weekday:
            self.add(WEEKDAYS[date.weekday], (*at, *self.at(date, "weekday")))
            return
        self.add("le" if date.day else "en", at)
        if date.day:
            self.add("1er" if date.day == "1" else date.day, self.at(date, "day"))
        if date.month:
            self.add(MONTHS[date.month], self.at(date, "month"))
        if date.year:
            self.add(date.year, self.at(date, "year"))

    def nominal(self, nominal: syntax.Nominal) -> None:
        at = self.at(nominal, "noun")
        if isinstance(nominal, syntax.NounPhrase):
            self.noun_phrase(nominal, at)
        elif isinstance(nominal, syntax.Coordination):
            self.nominal(nominal.first)
            self.add("et", self.at(nominal, "and"))
            self.nominal(nominal.second)
        elif isinstance(nominal, syntax.PersonName):
            self.add(nominal.name, at)
        elif isinstance(nominal, syntax.PlaceName):
            self.add(nominal.locality.french, at)
        else:
            self.add(_pronoun(nominal), at)

    def noun_phrase(self, phrase: syntax.NounPhrase, at: tuple[int, ...]) -> None:
        noun, plural = phrase.noun, phrase.plural
        feminine = noun.feminine
        following = noun.french_plural if plural else noun.french
        pieces: list[AlignedWord] = [(following, at)]
        # From the noun outwards: what English puts nearest to the noun stands nearest in French too, on either side.
        for number in range(len(phrase.adjectives) - 1, -1, -1):
            adjective = phrase.adjectives[number]
            place = self.at(phrase, f"adjective {number}")
            if adjective.before:
                following = adjective.form(feminine, plural, following)
                pieces.insert(0, (following, place))
            else:
                pieces.append((adjective.form(feminine, plural), place))
        at = self.at(phrase, "determiner")
        determiner = DETERMINERS[phrase.determiner].french(feminine, plural, begins_with_vowel(following))
        if determiner == "des" and any(adjective.before for adjective in phrase.adjectives):
            determiner = "de"
        parts = determiner.split()
        for number, text in enumerate(parts):
            self.add(text, (at[number],) if len(at) == len(parts) else at)
        self.pieces += pieces
        if phrase.adjunct is not None:
            self.adjunct(phrase.adjunct)
        if phrase.relative is not None:
            self.relative_clause(phrase.relative, phrase)

    def relative_clause(self, relative: syntax.RelativeClause, phrase: syntax.NounPhrase) -> None:
        at = self.at(relative, "marker")
        if relative.subject is None:
            self.add("qui", at)
            self.predicate(relative.predicate, phrase, None)
        else:
            self.add("que", at)
            self.nominal(relative.subject)
            self.predicate(relative.predicate, relative.subject, phrase)


def _form(subject: syntax.Nominal) -> int:
    """Which of the four forms of être or avoir the subject asks for."""
    return (0 if subject.person == 1 else 1) + (2 if subject.plural else 0)


def _pronoun(pronoun: syntax.PronounPhrase) -> str:
    if pronoun.person == 1:
        return "nous" if pronoun.plural else "je"
    return ("elle" if pronoun.feminine else "il") + ("s" if pronoun.plural else "")


def join(pieces: Sequence[AlignedWord]) -> list[AlignedWord]:
    """The pieces as they are written: elided, then contracted, the first with a capital.

    Elision comes first, so that "de le accord" is "de l'accord" and never "du accord".
    """
    written: list[AlignedWord] = []
    for place, (text, sources) in enumerate(pieces):
        if text in _ELIDED and place + 1 < len(pieces) and begins_with_vowel(pieces[place + 1][0]):
            text = _ELIDED[text]
        together = _CONTRACTED.get((written[-1][0], text)) if written else None
        if together is not None:
            written[-1] = (together, (*written[-1][1], *sources))
        else:
            written.append((text, sources))
    first, sources = written[0]
    written[0] = (first[0].upper() + first[1:], sources)
    return written
