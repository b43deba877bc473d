"""A statement in English: its words, their dependencies, its bracketed constituents, and where each part stands.

The relations, each from a word to its head: `root`, `subject`, `object`, `predicate` (of a form of be), `complement`
(of a preposition, a reporting verb or "thanks"), `determiner`, `number`, `modifier` (adjective), `degree`, `auxiliary`,
`negation`, `adverb`, `adjunct` (preposition or date to the verb or noun it tells about), `date` (inside a date),
`marker` (because, that), `clause` (a subordinate clause's verb), `relative` (a relative clause's verb), `coordinator`
and `conjunct` (both to the first of the joined), `address` and `punctuation`.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from regard.data.synthetic.world import syntax
from regard.data.synthetic.world.function_words import DETERMINERS, NUMBERS
from regard.data.synthetic.world.morphology import article


def write(statement: syntax.Statement) -> "EnglishText":
    """The statement in English."""
    text = EnglishText()
    with text.constituent("S"):
        text.statement(statement)
    return text


class EnglishText:
    """The English side as it is being written, word by word. A method that writes a part returns its head's index."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self.heads: list[int] = []
        self.relations: list[str] = []
        self.brackets: list[str] = []
        self.places: syntax.Places = {}
        self.pronouns: list[syntax.PronounPhrase] = []

    @property
    def tree(self) -> str:
        return " ".join(self.brackets).replace(" )", ")")

    def add(self, text: str, tag: str, head: int = -1, relation: str = "root") -> int:
        """Write a word and return its index."""
        index = len(self.words)
        if not index:
            text = text[0].upper() + text[1:]
        self.words.append(text)
        self.heads.append(head)
        self.relations.append(relation)
        self.brackets.append(f"({tag} {text})")
        return index

    def attach(self, word: int, head: int, relation: str) -> None:
        """Set the head of a word that was written before it."""
        self.heads[word] = head
        self.relations[word] = relation

    def place(self, record: object, part: str, *words: int) -> None:
        """Remember where a part of a record stands."""
        self.places[id(record), part] = words

    @contextmanager
    def constituent(self, *labels: str) -> Iterator[None]:
        """What is written inside is a constituent of this label; of several labels, the first is the outermost."""
        self.brackets += ["(" + label for label in labels]
        yield
        self.brackets += [")"] * len(labels)

    def statement(self, statement: syntax.Statement) -> None:
        first = -1
        if statement.thanks is not None:
            first = self.thanks(statement.thanks)
            if statement.clauses:
                self.add(",", ",", first, "punctuation")
        opening = self.adverbial(statement.opening) if statement.opening is not None else -1
        comma = self.add(",", ",") if opening >= 0 else -1
        labels = ("S",) if len(statement.clauses) > 1 or first >= 0 else ()
        for number, clause in enumerate(statement.clauses):
            if number:
                self.add(",", ",", first, "punctuation")
                self.place(
                    clause,
                    "coordinator",
                    self.add(statement.coordinators[number - 1], "CC", first, "coordinator"),
                )
            with self.constituent(*labels):
                verb = self.clause(clause)
            if first >= 0:
                self.attach(verb, first, "conjunct")
            else:
                first = verb
            if not number and opening >= 0:
                self.attach(opening, verb, "adjunct")
                self.attach(comma, verb, "punctuation")
        if statement.period:
            self.add(".", ".", first, "punctuation")

    def thanks(self, thanks: syntax.Thanks) -> int:
        with self.constituent("NP"):
            word = self.add("thanks", "NNS")
            self.place(thanks, "thanks", word)
            if thanks.cause is not None:
                self.place(thanks, "for", self.prepositional("for", thanks.cause, word))
        if thanks.to is not None:
            self.add(",", ",", word, "punctuation")
            self.attach(self.nominal(thanks.to), word, "address")
        return word

    def prepositional(self, preposition: str, governed: syntax.Nominal, head: int) -> int:
        """Write a preposition of one word and what it governs."""
        with self.constituent("PP"):
            word = self.add(preposition, "IN", head, "adjunct")
            self.attach(self.nominal(governed), word, "complement")
        return word

    def clause(self, clause: syntax.Clause) -> int:
        """Write subject and predicates; return the index of the first predicate's verb."""
        subject = self.nominal(clause.subject)
        first = -1
        with self.constituent(*("VP",) if len(clause.predicates) > 1 else ()):
            for number, predicate in enumerate(clause.predicates):
                if number:
                    self.place(predicate, "coordinator", self.add("and", "CC", first, "coordinator"))
                with self.constituent("VP"):
                    verb = self.predicate(predicate, clause.subject)
                    if number:
                        self.attach(verb, first, "conjunct")
                    else:
                        first = verb
                    if clause.subordinate is not None and number == len(clause.predicates) - 1:
                        marker = self.embedded(clause.subordinator, clause.subordinate, verb, "clause")
                        self.place(clause, "subordinator", marker)
        self.attach(subject, first, "subject")
        return first

    def embedded(self, marker: str, clause: syntax.Clause, verb: int, relation: str) -> int:
        """Write a clause below `verb`; return the index of the word that opens it."""
        with self.constituent("SBAR"):
            word = self.add(marker, "IN")
            with self.constituent("S"):
                below = self.clause(clause)
        self.attach(word, below, "marker")
        self.attach(below, verb, relation)
        return word

    def predicate(self, predicate: syntax.Predicate, subject: syntax.Nominal) -> int:
        """Write a predicate inside an open VP."""
        if isinstance(predicate, syntax.Action):
            return self.action(predicate, subject)
        if isinstance(predicate, syntax.PredicateAdjective):
            return self.state(predicate, subject)
        if isinstance(predicate, syntax.Profession):
            return self.profession(predicate, subject)
        if isinstance(predicate, syntax.Passive):
            return self.passive(predicate, subject)
        return self.report(predicate, subject)

    @contextmanager
    def lexical(self, predicate: syntax.Action | syntax.ReportedSpeech, subject: syntax.Nominal) -> Iterator[int]:
        """Write auxiliary, adverb and verb, whose index it gives; what follows the verb is written inside."""
        verb = predicate.verb
        third = subject.person == 3 and not subject.plural
        if predicate.negation == "not":
            text, tag = (
                ("didn't", "VBD") if predicate.tense == "past" else ("doesn't", "VBZ") if third else ("don't", "VBP")
            )
            auxiliary = self.add(text, tag)
            with self.constituent("VP"):
                word = self.add(verb.base, "VB")
                self.attach(auxiliary, word, "auxiliary")
                self.place(predicate, "auxiliary", auxiliary)
                self.place(predicate, "verb", word)
                yield word
            return
        adverb = -1
        if predicate.negation == "never":
            adverb = self.add("never", "RB")
            self.place(predicate, "never", adverb)
        elif isinstance(predicate, syntax.Action) and predicate.frequency:
            adverb = self.add(predicate.frequency, "RB")
            self.place(predicate, "frequency", adverb)
        if predicate.tense == "past":
            word = self.add(verb.past, "VBD")
        else:
            word = self.add(verb.third, "VBZ") if third else self.add(verb.base, "VBP")
        if adverb >= 0:
            self.attach(adverb, word, "negation" if predicate.negation else "adverb")
        self.place(predicate, "verb", word)
        yield word

    def action(self, action: syntax.Action, subject: syntax.Nominal) -> int:
        preposition = action.verb.preposition
        with self.lexical(action, subject) as word:
            if action.object is not None and preposition:
                self.place(action, "preposition", self.prepositional(preposition, action.object, word))
            elif action.object is not None:
                self.attach(self.nominal(action.object), word, "object")
            elif preposition and action.verb.objects:  # an object relative leaves the preposition behind
                self.place(action, "preposition", self.add(preposition, "IN", word, "adjunct"))
            self.adverbials(action.adverbials, word)
        return word

    def report(self, report: syntax.ReportedSpeech, subject: syntax.Nominal) -> int:
        with self.lexical(report, subject) as word:
            self.place(report, "that", self.embedded("that", report.clause, word, "complement"))
        return word

    def be(
        self,
        predicate: syntax.PredicateAdjective | syntax.Profession | syntax.Passive,
        subject: syntax.Nominal,
        past: bool,
    ) -> int:
        """Write the form of be that agrees with the subject, with its negation."""
        negated = predicate.negation == "not"
        if past:
            text, tag = "were" if subject.plural else "was", "VBD"
        else:
            text = "are" if subject.plural else "am" if subject.person == 1 else "is"
            tag = "VBZ" if text == "is" else "VBP"
        contracted = negated and text != "am"  # which has no contraction
        word = self.add(text + "n't" if contracted else text, tag)
        if predicate.negation and not contracted:
            self.place(predicate, "never", self.add(predicate.negation, "RB", word, "negation"))
        self.place(predicate, "be", word)
        return word

    def state(self, state: syntax.PredicateAdjective, subject: syntax.Nominal) -> int:
        word = self.be(state, subject, state.tense == "past")
        if state.frequency:
            self.place(state, "frequency", self.add(state.frequency, "RB", word, "adverb"))
        first = -1
        with self.constituent("ADJP"):
            degree = self.add(state.degree, "RB") if state.degree else -1
            for number, adjective in enumerate(state.adjectives):
                if number:
                    self.place(state, "and", self.add("and", "CC", first, "coordinator"))
                index = self.add(adjective.english, "JJ")
                self.place(state, f"adjective {number}", index)
                self.attach(index, *((first, "conjunct") if number else (word, "predicate")))
                first = index if not number else first
        if degree >= 0:
            self.attach(degree, first, "degree")
            self.place(state, "degree", degree)
        return word

    def profession(self, profession: syntax.Profession, subject: syntax.Nominal) -> int:
        word = self.be(profession, subject, profession.tense == "past")
        trade, adjective = profession.trade, profession.adjective
        with self.constituent("NP"):
            before: list[tuple[int, str]] = []
            if not subject.plural:
                index = self.add(article(trade.english if adjective is None else adjective.english), "DT")
                self.place(profession, "article", index)
                before.append((index, "determiner"))
            if adjective is not None:
                index = self.add(adjective.english, "JJ")
                self.place(profession, "adjective", index)
                before.append((index, "modifier"))
            text, tag = (trade.english_plural, "NNS") if subject.plural else (trade.english, "NN")
            noun = self.add(text, tag, word, "predicate")
            self.place(profession, "noun", noun)
        for index, relation in before:
            self.attach(index, noun, relation)
        return word

    def passive(self, passive: syntax.Passive, subject: syntax.Nominal) -> int:
        auxiliary = self.be(passive, subject, True)
        never = self.places.get((id(passive), "never"))
        with self.constituent("VP"):
            verb = self.add("born" if passive.verb is None else passive.verb.participle, "VBN")
            self.attach(auxiliary, verb, "auxiliary")
            if never is not None:
                self.attach(never[0], verb, "negation")
            self.place(passive, "verb", verb)
            if passive.agent is not None:
                self.place(passive, "by", self.prepositional("by", passive.agent, verb))
            self.adverbials(passive.adverbials, verb)
        return verb

    def adverbials(self, adverbials: tuple[syntax.Adverbial, ...], verb: int) -> None:
        for adverbial in adverbials:
            relation = "adverb" if isinstance(adverbial, syntax.Adverb) else "adjunct"
            self.attach(self.adverbial(adverbial), verb, relation)

    def adverbial(self, adverbial: syntax.Adverbial) -> int:
        if isinstance(adverbial, syntax.Date):
            return self.date(adverbial)
        if isinstance(adverbial, syntax.Adjunct):
            return self.adjunct(adverbial)
        with self.constituent("ADVP"):
            word = self.add(adverbial.word, "RB")
            self.place(adverbial, "adverb", word)
        return word

    def adjunct(self, adjunct: syntax.Adjunct) -> int:
        with self.constituent("PP"):
            first, *rest = adjunct.preposition.split()
            word = last = self.add(first, "IN")
            for text in rest:
                last = self.add(text, "IN" if text == "of" else "NN", last, "complement" if text != "of" else "adjunct")
            self.place(adjunct, "preposition", *range(word, last + 1))
            self.attach(self.nominal(adjunct.object), last, "complement")
        return word

    def date(self, date: syntax.Date) -> int:
        with self.constituent("PP"):
            word = self.add("on" if date.day or date.weekday else "in", "IN")
            self.place(date, "preposition", word)
            indices, main = [], -1
            with self.constituent("NP"):
                for name, tag in (("weekday", "NNP"), ("day", "CD"), ("month", "NNP"), ("year", "CD")):
                    if text := getattr(date, name):
                        index = self.add(text, tag)
                        self.place(date, name, index)
                        indices.append(index)
                        main = index if name != "year" or main < 0 else main  # the month, where there is one
                for index in indices:
                    self.attach(index, *((word, "complement") if index == main else (main, "date")))
        return word

    def nominal(self, nominal: syntax.Nominal) -> int:
        if isinstance(nominal, syntax.NounPhrase):
            word = self.noun_phrase(nominal)
        else:
            with self.constituent("NP"):
                if isinstance(nominal, syntax.Coordination):
                    word = self.nominal(nominal.first)
                    self.place(nominal, "and", self.add("and", "CC", word, "coordinator"))
                    self.attach(self.nominal(nominal.second), word, "conjunct")
                elif isinstance(nominal, syntax.PronounPhrase):
                    word = self.add(nominal.word, "PRP")
                    self.pronouns.append(nominal)
                elif isinstance(nominal, syntax.PersonName):
                    word = self.add(nominal.name, "NNP")
                else:
                    word = self.add(nominal.locality.english, "NNP")
        self.place(nominal, "noun", word)
        return word

    def noun_phrase(self, phrase: syntax.NounPhrase) -> int:
        noun, plural = phrase.noun, phrase.plural
        nested = phrase.adjunct is not None or phrase.relative is not None
        with self.constituent("NP"):
            with self.constituent(*("NP",) if nested else ()):
                determiner = DETERMINERS[phrase.determiner]
                text = determiner.plural if plural else determiner.singular
                if text == "a":
                    text = article(phrase.adjectives[0].english if phrase.adjectives else noun.english)
                tag, relation = ("CD", "number") if text in NUMBERS else ("DT", "determiner")
                before = [(self.add(part, tag), relation) for part in text.split()]
                self.place(phrase, "determiner", *(index for index, _ in before))
                proper = noun.kind == "organisation"
                for number, adjective in enumerate(phrase.adjectives):
                    index = self.add(adjective.english, "NNP" if proper else "JJ")
                    self.place(phrase, f"adjective {number}", index)
                    before.append((index, "modifier"))
                tag = "NNP" if proper else "NNS" if plural else "NN"
                word = self.add(noun.english_plural if plural else noun.english, tag)
                for index, relation in before:
                    self.attach(index, word, relation)
            if phrase.adjunct is not None:
                self.attach(self.adjunct(phrase.adjunct), word, "adjunct")
            if phrase.relative is not None:
                self.attach(self.relative_clause(phrase.relative, phrase), word, "relative")
        return word

    def relative_clause(self, relative: syntax.RelativeClause, phrase: syntax.NounPhrase) -> int:
        with self.constituent("SBAR"):
            who = relative.subject is None and phrase.noun.kind in ("person", "worker")
            with self.constituent("WHNP"):
                marker = self.add("who" if who else "that", "WP" if who else "WDT")
            self.place(relative, "marker", marker)
            with self.constituent("S"):
                subject = self.nominal(relative.subject) if relative.subject is not None else marker
                with self.constituent("VP"):
                    verb = self.predicate(relative.predicate, relative.subject or phrase)
        self.attach(subject, verb, "subject")
        if relative.subject is not None:
            self.attach(marker, verb, "object")
        return verb
