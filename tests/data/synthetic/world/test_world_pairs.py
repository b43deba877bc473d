"""Sentence pairs checked by hand, one for each thing that the grammar has to get right."""

import pytest

from regard.data.synthetic.world import LECTURE
from regard.data.synthetic.world.function_words import LOCALITIES
from regard.data.synthetic.world.lexicon import adjective, noun, trade, verb
from regard.data.synthetic.world.sentence import realise
from regard.data.synthetic.world.syntax import (
    Action,
    Adjunct,
    Adverb,
    Clause,
    Coordination,
    Date,
    NounPhrase,
    Passive,
    PersonName,
    PlaceName,
    PredicateAdjective,
    Profession,
    PronounPhrase,
    RelativeClause,
    ReportedSpeech,
    Statement,
    Thanks,
)

MARIE, ANNE, PAUL = (
    (lambda: PersonName("Marie", True)),
    (lambda: PersonName("Anne", True)),
    (lambda: PersonName("Paul", False)),
)


def a(english, determiner="the", *words, plural=False, **more):
    return NounPhrase(noun(english), determiner, plural, tuple(adjective(word) for word in words), **more)


def some(english, determiner="the", *words, **more):
    return a(english, determiner, *words, plural=True, **more)


def does(subject, base, target=None, **more):
    return Clause(subject, (Action(verb(base), target, **more),))


def now(subject, base, target=None, **more):
    return does(subject, base, target, tense="present", **more)


def is_(subject, word, degree="", tense="present", **more):
    return Clause(subject, (PredicateAdjective((adjective(word),), degree, tense, **more),))


def place(english):
    return PlaceName(next(locality for locality in LOCALITIES if locality.english == english))


def because(main, word, *, of, degree="too", tense="past", subordinator="because"):
    pronoun = PronounPhrase("they" if of.plural else "it", of)
    return Clause(main.subject, main.predicates, subordinator, is_(pronoun, word, degree, tense))


def not_fitting(word):
    piano, box = a("piano"), a("box")
    main = does(piano, "fit", box, negation="not")
    return because(main, word, of=piano if word == "big" else box)


def both(word, of):
    cow, bridge = a("cow"), a("bridge")
    return because(does(cow, "cross", bridge, negation="not"), word, of=cow if of == "cow" else bridge)


def plural_both(word, of):
    dogs, apples = some("dog"), some("apple")
    return because(does(dogs, "eat", apples, negation="never"), word, of=dogs if of == "dogs" else apples)


def born(subject, *when):
    return Clause(subject, (Passive(None, adverbials=when),))


def passive(subject, base, **more):
    return Clause(subject, (Passive(verb(base), **more),))


def works(subject, word, **more):
    return Clause(subject, (Profession(trade(word), **more),))


def recall(base, who, **more):
    return RelativeClause(Action(verb(base), **more), who)


PAIRS = [
    # elision, and the aspirated h that forbids it
    (now(a("owl"), "see", a("hedgehog")), "The owl sees the hedgehog.", "Le hibou voit le hérisson."),
    (now(a("man"), "eat", a("oyster")), "The man eats the oyster.", "L'homme mange l'huître."),
    (is_(a("hero"), "proud", negation="not"), "The hero isn't proud.", "Le héros n'est pas fier."),
    (now(a("donkey"), "avoid", a("church"), negation="not"), "The donkey doesn't avoid the church.",
     "L'âne n'évite pas l'église."),
    (does(PronounPhrase("I"), "avoid", a("avenue")), "I avoided the avenue.", "J'ai évité l'avenue."),
    (is_(PronounPhrase("I"), "tired", tense="past", negation="not"), "I wasn't tired.", "Je n'étais pas fatigué."),
    (is_(PronounPhrase("I"), "tired", negation="not"), "I am not tired.", "Je ne suis pas fatigué."),
    # contraction
    (now(a("girl"), "talk", a("king")), "The girl talks to the king.", "La fille parle au roi."),
    (now(a("king"), "talk", some("girl")), "The king talks to the girls.", "Le roi parle aux filles."),
    (now(a("boy"), "talk", a("uncle")), "The boy talks to the uncle.", "Le garçon parle à l'oncle."),
    (does(PronounPhrase("we"), "discuss", a("treaty")), "We discussed the treaty.", "Nous avons discuté du traité."),
    (does(PronounPhrase("we"), "discuss", some("law")), "We discussed the laws.", "Nous avons discuté des lois."),
    (is_(a("castle", adjunct=Adjunct("of", a("prince"))), "empty"), "The castle of the prince is empty.",
     "Le château du prince est vide."),
    (does(PAUL(), "sleep", adverbials=(Adjunct("near", a("office")),)), "Paul slept near the office.",
     "Paul a dormi près du bureau."),
    (does(PAUL(), "work", adverbials=(Adjunct("in front of", a("hospital")),)),
     "Paul worked in front of the hospital.", "Paul a travaillé devant l'hôpital."),
    # places by name
    (does(MARIE(), "go", place("Portugal")), "Marie went to Portugal.", "Marie est allée au Portugal."),
    (does(MARIE(), "go", place("Italy"), negation="not"), "Marie didn't go to Italy.",
     "Marie n'est pas allée en Italie."),
    (does(Coordination(MARIE(), PAUL()), "live", place("Vienna")), "Marie and Paul lived in Vienna.",
     "Marie et Paul habitaient à Vienne."),
    # gender and number: adjectives on either side, their special forms
    (now(a("bird", "the", "beautiful", "white"), "sleep"), "The beautiful white bird sleeps.",
     "Le bel oiseau blanc dort."),
    (now(a("cow", "this", "old", "white"), "sleep"), "This old white cow sleeps.", "Cette vieille vache blanche dort."),
    (now(a("man", "a", "old", "jealous"), "work"), "An old jealous man works.", "Un vieil homme jaloux travaille."),
    (is_(a("hotel", "our", "new"), "damp"), "Our new hotel is damp.", "Notre nouvel hôtel est humide."),
    (is_(some("woman", "this"), "happy", "so"), "These women are so happy.", "Ces femmes sont si heureuses."),
    (now(a("animal", "this"), "run"), "This animal runs.", "Cet animal court."),
    (now(a("friend", "my"), "run"), "My friend runs.", "Mon ami court."),
    (does(a("spider", "my"), "cross", a("road", "a", "long")), "My spider crossed a long road.",
     "Mon araignée a traversé une longue route."),
    (is_(some("horse", "five"), "brave"), "Five horses are brave.", "Cinq chevaux sont courageux."),
    (now(some("child", "many"), "sing"), "Many children sing.", "Beaucoup d'enfants chantent."),
    (now(some("girl", "every", "young"), "dance"), "All the young girls dance.", "Toutes les jeunes filles dansent."),
    (now(a("bee", "every"), "fall"), "Every bee falls.", "Chaque abeille tombe."),
    (now(PAUL(), "buy", some("jewel", "a", "old")), "Paul buys some old jewels.", "Paul achète de vieux bijoux."),
    (now(PAUL(), "buy", some("hat", "a", "green")), "Paul buys some green hats.", "Paul achète des chapeaux verts."),
    # negation
    (does(PAUL(), "eat", a("apple", "any"), negation="not"), "Paul didn't eat an apple.",
     "Paul n'a pas mangé de pomme."),
    (does(PAUL(), "eat", some("orange", "any"), negation="never"), "Paul never ate any oranges.",
     "Paul n'a jamais mangé d'oranges."),
    (now(some("wolf"), "follow", a("mouse"), negation="not"), "The wolves don't follow the mouse.",
     "Les loups ne suivent pas la souris."),
    # the compound past, with être and with avoir
    (does(some("sister", "my"), "fall"), "My sisters fell.", "Mes sœurs sont tombées."),
    (does(Coordination(a("king"), a("queen")), "enter", a("theatre")), "The king and the queen entered the theatre.",
     "Le roi et la reine sont entrés dans le théâtre."),
    (does(Coordination(MARIE(), ANNE()), "fall", adverbials=(Adverb("yesterday"),)), "Marie and Anne fell yesterday.",
     "Marie et Anne sont tombées hier."),
    (does(a("girl"), "wait", a("witch")), "The girl waited for the witch.", "La fille a attendu la sorcière."),
    (does(some("princess"), "love", a("knight")), "The princesses loved the knight.",
     "Les princesses aimaient le chevalier."),
    (now(a("cook"), "lift", a("box"), frequency="often"), "The cook often lifts the box.",
     "Le cuisinier soulève souvent la boîte."),
    # passive and dates
    (passive(some("letter"), "write", agent=PAUL()), "The letters were written by Paul.",
     "Les lettres ont été écrites par Paul."),
    (passive(a("law", "this"), "reject", negation="not", adverbials=(Date("1987", "May", "1"),)),
     "This law wasn't rejected on 1 May 1987.", "Cette loi n'a pas été rejetée le 1er mai 1987."),
    (passive(some("newspaper"), "publish", adverbials=(Date("", "April", "3"),)),
     "The newspapers were published on 3 April.", "Les journaux ont été publiés le 3 avril."),
    (passive(a("contract"), "accept", adverbials=(Date(weekday="Monday"),)), "The contract was accepted on Monday.",
     "Le contrat a été accepté lundi."),
    (born(a("queen"), Date("1980")), "The queen was born in 1980.", "La reine est née en 1980."),
    # relatives
    (is_(a("letter", relative=recall("write", a("doctor"))), "long"), "The letter that the doctor wrote is long.",
     "La lettre que le médecin a écrite est longue."),
    (is_(some("table", relative=recall("sell", PersonName("Alice", True))), "heavy"),
     "The tables that Alice sold are heavy.", "Les tables qu'Alice a vendues sont lourdes."),
    (now(a("boy", relative=RelativeClause(Action(verb("fear"), a("lion"), "present"))), "run"),
     "The boy who fears the lion runs.", "Le garçon qui craint le lion court."),
    (now(some("dog", relative=RelativeClause(PredicateAdjective((adjective("tired"),), "very", "present"))), "sleep"),
     "The dogs that are very tired sleep.", "Les chiens qui sont très fatigués dorment."),
    # trades
    (works(PronounPhrase("she"), "student"), "She is a student.", "Elle est étudiante."),
    (works(PronounPhrase("he"), "actor", tense="past", negation="not"), "He wasn't an actor.",
     "Il n'était pas acteur."),
    (works(PronounPhrase("we"), "baker"), "We are bakers.", "Nous sommes boulangers."),
    (works(PronounPhrase("I"), "lawyer", adjective=adjective("old")), "I am an old lawyer.",
     "Je suis un vieil avocat."),
    (works(PronounPhrase("we"), "actor", adjective=adjective("bad")), "We are bad actors.",
     "Nous sommes de mauvais acteurs."),
    (works(MARIE(), "musician", adjective=adjective("Italian")), "Marie is an Italian musician.",
     "Marie est une musicienne italienne."),
    (works(Coordination(MARIE(), ANNE()), "singer"), "Marie and Anne are singers.", "Marie et Anne sont chanteuses."),
    # institutions: the order is reversed
    (does(a("Bank", "the", "European", "Agricultural"), "sign",
          a("report", adjunct=Adjunct("on", a("Fund", "the", "Social")))),
     "The European Agricultural Bank signed the report on the Social Fund.",
     "La banque agricole européenne a signé le rapport sur le fonds social."),
    # what a pronoun means
    (both("thirsty", "cow"), "The cow didn't cross the bridge because it was too thirsty.",
     "La vache n'a pas traversé le pont parce qu'elle était trop assoiffée."),
    (both("slippery", "bridge"), "The cow didn't cross the bridge because it was too slippery.",
     "La vache n'a pas traversé le pont parce qu'il était trop glissant."),
    (plural_both("shy", "dogs"), "The dogs never ate the apples because they were too shy.",
     "Les chiens n'ont jamais mangé les pommes parce qu'ils étaient trop timides."),
    (plural_both("dry", "apples"), "The dogs never ate the apples because they were too dry.",
     "Les chiens n'ont jamais mangé les pommes parce qu'elles étaient trop sèches."),
    (not_fitting("big"), "The piano didn't fit in the box because it was too big.",
     "Le piano ne tenait pas dans la boîte parce qu'il était trop grand."),
    (not_fitting("small"), "The piano didn't fit in the box because it was too small.",
     "Le piano ne tenait pas dans la boîte parce qu'elle était trop petite."),
    # clauses within and beside clauses
    (Clause(PAUL(), (ReportedSpeech(verb("say"), is_(PersonName("Isabelle", True), "sick")),)),
     "Paul says that Isabelle is sick.",
     "Paul dit qu'Isabelle est malade."),
    (Clause(a("cat"), (Action(verb("see"), a("hen")), Action(verb("hide"), a("key")))),
     "The cat saw the hen and hid the key.", "Le chat a vu la poule et a caché la clé."),
    (Clause(PAUL(), (Action(verb("run"), tense="present"),), "while", is_(ANNE(), "worried")),
     "Paul runs while Anne is worried.", "Paul court pendant qu'Anne est inquiète."),
]  # fmt: skip


@pytest.mark.parametrize(("clause", "english", "french"), PAIRS, ids=[english for _, english, _ in PAIRS])
def test_a_clause_reads_as_a_careful_writer_would_put_it(clause, english, french):
    sentence = realise(Statement((clause,)))
    assert (sentence.english, sentence.french) == (english, french)


def test_clauses_join_and_circumstances_open():
    statement = Statement(
        (now(a("dog"), "sleep"), is_(a("frog"), "happy")), ("but",), Adjunct("in", place("Athens")), period=False
    )
    sentence = realise(statement)
    assert sentence.english == "In Athens, the dog sleeps, but the frog is happy"
    assert sentence.french == "À Athènes, le chien dort, mais la grenouille est heureuse"


def test_thanks_may_be_for_something_or_to_someone():
    assert realise(Statement((), thanks=Thanks(cause=a("egg", "this")))).french == "Merci pour cet œuf."
    spoken = realise(Statement((works(PronounPhrase("I"), "cook"),), thanks=Thanks(PAUL())))
    assert (spoken.english, spoken.french) == ("Thanks, Paul, I am a cook.", "Merci, Paul, je suis cuisinier.")


def test_the_lectures_sentences_come_from_the_grammar():
    assert [(sentence.english, sentence.french) for sentence in LECTURE] == [
        (
            "The animal didn't cross the street because it was too tired.",
            "L'animal n'a pas traversé la rue parce qu'il était trop fatigué.",
        ),
        (
            "The animal didn't cross the street because it was too wide.",
            "L'animal n'a pas traversé la rue parce qu'elle était trop large.",
        ),
        (
            "The agreement on the European Economic Area was signed in August 1992.",
            "L'accord sur la zone économique européenne a été signé en août 1992.",
        ),
        ("I am a student.", "Je suis étudiant."),
        ("Thanks.", "Merci."),
    ]


def test_the_street_and_the_animal_are_what_it_means():
    tired, wide, agreement, *_ = LECTURE
    assert [tired.english_words[p.antecedent] for p in tired.pronouns] == ["animal"]
    assert [wide.english_words[p.antecedent] for p in wide.pronouns] == ["street"]
    assert wide.french_words[wide.pronouns[0].french] == "elle"
    # European Economic Area is read backwards in French.
    assert {(4, 6), (5, 5), (6, 4)} <= set(agreement.alignment)
    assert agreement.tree.startswith("(S (NP (NP (DT The) (NN agreement)) (PP (IN on) (NP (DT the) (NNP European)")
