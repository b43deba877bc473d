"""A statement in French: its words, each with the English words that it translates."""

from regard.data.world.draft import Places
from regard.data.world.morphology import agree, begins_with_vowel
from regard.data.world.names import (
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
from regard.data.world.sandhi import Piece, join

# By person and number: I, he, we, they.
_ETRE = ("suis", "est", "sommes", "sont")
_ETAIT = ("étais", "était", "étions", "étaient")
_AVOIR = ("ai", "a", "avons", "ont")


def write(statement: Statement, words: list[str], places: Places) -> list[Piece]:
    """The statement in French; `words` and `places` are its English and say what each French word translates."""
    french = _French(places)
    commas = [(index,) for index, word in enumerate(words) if word == ","]
    if statement.thanks is not None:
        french.thanks(statement.thanks, commas)
        if statement.clauses:
            french.add(",", commas.pop(0))
    if statement.opening is not None:
        french.circumstance(statement.opening)
        french.add(",", commas.pop(0))
    for number, clause in enumerate(statement.clauses):
        if number:
            french.add(",", commas.pop(0))
            french.add(COORDINATORS[statement.coordinators[number - 1]], places[id(clause), "coordinator"])
        french.clause(clause)
    if statement.period:
        french.add(".", (len(words) - 1,))
    return join(french.pieces)


class _French:
    """The French side as it is being written; elision and contraction come after."""

    def __init__(self, places: Places) -> None:
        self.places = places
        self.pieces: list[Piece] = []

    def add(self, text: str, sources: tuple[int, ...]) -> None:
        self.pieces.append((text, sources))

    def thanks(self, thanks: Thanks, commas: list[tuple[int]]) -> None:
        self.add("merci", self.places[id(thanks), "thanks"])
        if thanks.cause is not None:
            self.add("pour", self.places[id(thanks), "for"])
            self.nominal(thanks.cause)
        if thanks.to is not None:
            self.add(",", commas.pop(0))
            self.nominal(thanks.to)

    def clause(self, clause: Clause) -> None:
        self.nominal(clause.subject)
        for number, predicate in enumerate(clause.predicates):
            if number:
                self.add("et", self.places[id(predicate), "coordinator"])
            self.predicate(predicate, clause.subject, None)
        if clause.subordinate is not None:
            for text in SUBORDINATORS[clause.subordinator].split():
                self.add(text, self.places[id(clause), "subordinator"])
            self.clause(clause.subordinate)

    def predicate(self, predicate: Predicate, subject: Nominal, preceding: Nominal | None) -> None:
        """Write a predicate; `preceding` is the object where it stands before the verb, as in an object relative."""
        if isinstance(predicate, Action):
            self.action(predicate, subject, preceding)
        elif isinstance(predicate, State):
            self.state(predicate, subject)
        elif isinstance(predicate, Profession):
            self.profession(predicate, subject)
        elif isinstance(predicate, Suffering):
            self.suffering(predicate, subject)
        else:
            self.report(predicate, subject)

    def finite(self, text: str, predicate: Predicate, verb: tuple[int, ...], denial: tuple[int, ...]) -> None:
        """Write the verb that carries person and tense, between the two halves of its negation."""
        if predicate.denial:
            self.add("ne", denial)
            self.add(text, verb)
            self.add("pas" if predicate.denial == "not" else "jamais", denial)
        else:
            self.add(text, verb)

    def lexical(self, predicate: Action | Report, subject: Nominal, preceding: Nominal | None) -> None:
        verb, key, places = predicate.verb, id(predicate), self.places
        main = places[key, "verb"]
        denial = places.get((key, "auxiliary")) or places.get((key, "never"), ())
        event = predicate.tense == "past" and not verb.state
        if not event:
            assert subject.person == 3
            if predicate.tense == "past":
                text = verb.imperfect + ("aient" if subject.plural else "ait")
            else:
                text = verb.french_plural if subject.plural else verb.french_singular
            self.finite(text, predicate, main, denial)
            return
        # In "didn't cross" the tense is in the auxiliary on both sides.
        tense = places.get((key, "auxiliary"), main)
        self.finite((_ETRE if verb.with_etre else _AVOIR)[_form(subject)], predicate, tense, denial)
        agreeing = subject if verb.with_etre else preceding
        text = verb.french_participle
        self.add(text if agreeing is None else agree(text, agreeing.feminine, agreeing.plural), main)

    def action(self, action: Action, subject: Nominal, preceding: Nominal | None) -> None:
        verb, key, places = action.verb, id(action), self.places
        self.lexical(action, subject, preceding)
        if action.frequency:
            self.add(FREQUENCIES[action.frequency], places[key, "frequency"])
        preposition = places.get((key, "preposition"), ())
        if preposition and not verb.french_preposition:  # "look at" is one word in French
            self.cover(places[key, "verb"][0], preposition)
        if action.object is not None:
            if verb.french_preposition:
                text = verb.french_preposition
                if isinstance(action.object, Somewhere):
                    text = action.object.locality.preposition
                self.add(text, preposition or places[key, "verb"])
            self.nominal(action.object)
        for circumstance in action.circumstances:
            self.circumstance(circumstance)

    def cover(self, verb: int, more: tuple[int, ...]) -> None:
        """Let the last word that translates `verb` translate `more` as well."""
        for place in range(len(self.pieces) - 1, -1, -1):
            text, sources = self.pieces[place]
            if verb in sources:
                self.pieces[place] = (text, (*sources, *more))
                return

    def report(self, report: Report, subject: Nominal) -> None:
        self.lexical(report, subject, None)
        self.add("que", self.places[id(report), "that"])
        self.clause(report.clause)

    def be(self, predicate: State | Profession, subject: Nominal) -> None:
        places, key = self.places, id(predicate)
        word = places[key, "be"]
        denial = places.get((key, "never"), word)
        self.finite((_ETAIT if predicate.tense == "past" else _ETRE)[_form(subject)], predicate, word, denial)

    def state(self, state: State, subject: Nominal) -> None:
        places, key = self.places, id(state)
        self.be(state, subject)
        if state.frequency:
            self.add(FREQUENCIES[state.frequency], places[key, "frequency"])
        for number, adjective in enumerate(state.adjectives):
            if number:
                self.add("et", places[key, "and"])
            elif state.degree:
                self.add(DEGREES[state.degree], places[key, "degree"])
            self.add(adjective.form(subject.feminine, subject.plural), places[key, f"adjective {number}"])

    def profession(self, profession: Profession, subject: Nominal) -> None:
        places, key, trade = self.places, id(profession), profession.trade
        self.be(profession, subject)
        feminine, plural = subject.feminine, subject.plural
        if feminine:
            noun = trade.feminine_plural if plural else trade.feminine
        else:
            noun = trade.masculine_plural if plural else trade.masculine
        written = places.get((key, "article"), ())
        if profession.adjective is None:
            self.add(noun, (*written, *places[key, "noun"]))
            return
        at = places[key, "adjective"]
        before = profession.adjective.before
        text = profession.adjective.form(feminine, plural)
        if before and not feminine and not plural and begins_with_vowel(noun):
            text = profession.adjective.before_vowel
        kind = "de" if plural and before else DETERMINERS["a"].french(feminine, plural, False)
        self.add(kind, written or (at if before else places[key, "noun"]))
        if before:
            self.add(text, at)
        self.add(noun, places[key, "noun"])
        if not before:
            self.add(text, at)

    def suffering(self, suffering: Suffering, subject: Nominal) -> None:
        places, key = self.places, id(suffering)
        tense = places[key, "be"]
        denial = places.get((key, "never"), tense)
        if suffering.verb is None:
            self.finite(_ETRE[_form(subject)], suffering, tense, denial)
            participle = "né"
        else:
            self.finite(_AVOIR[_form(subject)], suffering, tense, denial)
            self.add("été", tense)
            participle = suffering.verb.french_participle
        self.add(agree(participle, subject.feminine, subject.plural), places[key, "verb"])
        if suffering.agent is not None:
            self.add("par", places[key, "by"])
            self.nominal(suffering.agent)
        for circumstance in suffering.circumstances:
            self.circumstance(circumstance)

    def circumstance(self, circumstance: Circumstance) -> None:
        if isinstance(circumstance, Date):
            self.date(circumstance)
        elif isinstance(circumstance, Manner):
            self.add(MANNERS[circumstance.word], self.places[id(circumstance), "manner"])
        else:
            self.adjunct(circumstance)

    def adjunct(self, adjunct: Adjunct) -> None:
        at = self.places[id(adjunct), "preposition"]
        if isinstance(adjunct.object, Somewhere):
            self.add(adjunct.object.locality.preposition, at)
        else:
            for text in PREPOSITIONS[adjunct.preposition].split():
                self.add(text, at)
        self.nominal(adjunct.object)

    def date(self, date: Date) -> None:
        places, key = self.places, id(date)
        at = places[key, "preposition"]
        if date.weekday:
            self.add(WEEKDAYS[date.weekday], (*at, *places[key, "weekday"]))
            return
        self.add("le" if date.day else "en", at)
        if date.day:
            self.add("1er" if date.day == "1" else date.day, places[key, "day"])
        if date.month:
            self.add(MONTHS[date.month], places[key, "month"])
        if date.year:
            self.add(date.year, places[key, "year"])

    def nominal(self, nominal: Nominal) -> None:
        at = self.places[id(nominal), "noun"]
        if isinstance(nominal, Thing):
            self.thing(nominal, at)
        elif isinstance(nominal, Pair):
            self.nominal(nominal.first)
            self.add("et", self.places[id(nominal), "and"])
            self.nominal(nominal.second)
        elif isinstance(nominal, Person):
            self.add(nominal.name, at)
        elif isinstance(nominal, Somewhere):
            self.add(nominal.locality.french, at)
        else:
            self.add(_pronoun(nominal), at)

    def thing(self, thing: Thing, at: tuple[int, ...]) -> None:
        noun, plural, places, key = thing.noun, thing.plural, self.places, id(thing)
        feminine = noun.feminine
        following = noun.french_plural if plural else noun.french
        phrase: list[Piece] = [(following, at)]
        # From the noun outwards: what English puts nearest to the noun stands nearest in French too, on either side.
        for number in range(len(thing.adjectives) - 1, -1, -1):
            adjective = thing.adjectives[number]
            text = adjective.form(feminine, plural)
            place = places[key, f"adjective {number}"]
            if adjective.before:
                if not feminine and not plural and begins_with_vowel(following):
                    text = adjective.before_vowel
                phrase.insert(0, (text, place))
                following = text
            else:
                phrase.append((text, place))
        at = places[key, "determiner"]
        determiner = DETERMINERS[thing.determiner].french(feminine, plural, begins_with_vowel(following))
        if determiner == "des" and _opens_with_adjective(thing):
            determiner = "de"
        parts = determiner.split()
        for number, text in enumerate(parts):
            self.add(text, (at[number],) if len(at) == len(parts) else at)
        self.pieces += phrase
        if thing.adjunct is not None:
            self.adjunct(thing.adjunct)
        if thing.relative is not None:
            self.relative(thing.relative, thing)

    def relative(self, relative: Relative, thing: Thing) -> None:
        at = self.places[id(relative), "marker"]
        if relative.subject is None:
            self.add("qui", at)
            self.predicate(relative.predicate, thing, None)
        else:
            self.add("que", at)
            self.nominal(relative.subject)
            self.predicate(relative.predicate, relative.subject, thing)


def _form(subject: Nominal) -> int:
    """Which of the four forms of être or avoir the subject asks for."""
    return (0 if subject.person == 1 else 1) + (2 if subject.plural else 0)


def _opens_with_adjective(thing: Thing) -> bool:
    return any(adjective.before for adjective in thing.adjectives)


def _pronoun(stand: Stand) -> str:
    if stand.person == 1:
        return "nous" if stand.plural else "je"
    return ("elle" if stand.feminine else "il") + ("s" if stand.plural else "")
