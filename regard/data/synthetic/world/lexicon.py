"""The open word classes, in both languages: nouns with their French gender, adjectives and verbs.

Each noun is of a kind; the kinds say which adjective can be said of what, and who does what to what.
"""

from dataclasses import dataclass

from regard.data.synthetic.world.morphology import (
    begins_with_vowel,
    english_ed,
    english_s,
    french_feminine,
    french_plural,
)

PEOPLE = ("person", "worker")
LIVING = (*PEOPLE, "animal")
THINGS = ("thing", "container")
PAPERS = ("accord", "text")


@dataclass(frozen=True, slots=True)
class Noun:
    """A noun in both languages. `kind` says what can be done to it and what can be said of it."""

    english: str
    english_plural: str
    french: str
    french_plural: str
    feminine: bool
    kind: str


@dataclass(frozen=True, slots=True)
class Trade:
    """What someone does for a living: takes no article in French, and the gender of whoever does it."""

    english: str
    english_plural: str
    masculine: str
    masculine_plural: str
    feminine: str
    feminine_plural: str


# kind: "english french" where "a/b" spells out an irregular plural; genders are apart.
_MASCULINE = {
    "person": "man/men homme, boy garçon, king roi, father père, brother frère, uncle oncle, hero héros, "
    "prince prince, knight chevalier, neighbour voisin, child/children enfant, friend ami",
    "animal": "animal animal, dog chien, cat chat, horse cheval, bird oiseau, wolf/wolves loup, owl hibou/hiboux, "
    "lion lion, elephant éléphant, hedgehog hérisson, bear ours, donkey âne",
    "way": "bridge pont, path sentier, field champ, garden jardin, park parc, tunnel tunnel, canal canal, "
    "desert désert",
    "building": "market marché, hospital hôpital, museum musée, theatre théâtre, hotel hôtel, castle château, "
    "village village, restaurant restaurant, office bureau",
    "food": "cake gâteau, egg œuf, lemon citron, mushroom champignon, melon melon, cheese fromage, biscuit biscuit, "
    "meal repas, onion oignon, sandwich sandwich",
    "thing": "boat bateau, knife/knives couteau, hat chapeau, umbrella parapluie, piano piano, violin violon, "
    "jewel bijou/bijoux, coat manteau, mirror miroir, ball ballon",
    "container": "bag sac, basket panier, barrel tonneau, drawer tiroir, trunk coffre",
    "accord": "agreement accord, treaty traité, contract contrat, report rapport",
    "text": "book livre, newspaper journal, article article, poem poème, novel roman, speech discours",
    "organisation": "Council conseil, Market marché, Fund fonds, Parliament parlement, Office bureau, "
    "Institute institut",
}
_FEMININE = {
    "person": "woman/women femme, girl fille, queen reine, mother mère, sister sœur, aunt tante, princess princesse, "
    "witch sorcière, lady dame",
    "animal": "cow vache, hen poule, mouse/mice souris, goat chèvre, frog grenouille, turtle tortue, bee abeille, "
    "ant fourmi, giraffe girafe, spider araignée",
    "way": "street rue, road route, river rivière, square place, forest forêt, valley vallée, avenue avenue, "
    "beach plage",
    "building": "school école, station gare, church église, library bibliothèque, town ville, factory usine, "
    "farm ferme, tower tour",
    "food": "apple pomme, pear poire, carrot carotte, orange orange, tomato tomate, pie tarte, salad salade, "
    "soup soupe, oyster huître, strawberry fraise",
    "thing": "table table, chair chaise, bicycle bicyclette, lamp lampe, ladder échelle, clock horloge, "
    "bottle bouteille, key clé, statue statue, axe hache, machine machine",
    "container": "car voiture, box boîte, cart charrette, suitcase valise, wardrobe armoire",
    "accord": "law loi, convention convention, declaration déclaration, petition pétition",
    "text": "letter lettre, story histoire, song chanson, biography biographie, review critique",
    "organisation": "Area zone, Union union, Bank banque, Court cour, Community communauté, Agency agence, "
    "Commission commission",
}
# The French is the masculine; "a/b" spells out an irregular feminine.
_TRADES = (
    "student étudiant, doctor médecin/médecin, baker boulanger, lawyer avocat, singer chanteur/chanteuse, "
    "teacher enseignant, farmer agriculteur, actor acteur, painter peintre, journalist journaliste, "
    "musician musicien, dancer danseur, cook cuisinier, worker ouvrier"
)


def _parts(entry: str) -> tuple[str, str, str, str]:
    """The four halves of "english/second french/second"; a half that is not written is empty."""
    english, french = entry.split()
    first, _, second = english.partition("/")
    premier, _, deuxieme = french.partition("/")
    return first, second, premier, deuxieme


def _noun(entry: str, feminine: bool, kind: str) -> Noun:
    one, many, un, plusieurs = _parts(entry)
    return Noun(one, many or english_s(one), un, plusieurs or french_plural(un), feminine, kind)


def _trade(entry: str) -> Trade:
    one, _, homme, femme = _parts(entry)
    femme = femme or french_feminine(homme)
    return Trade(one, english_s(one), homme, french_plural(homme), femme, french_plural(femme))


TRADES = tuple(_trade(entry) for entry in _TRADES.split(", "))
NOUNS: dict[str, tuple[Noun, ...]] = {
    kind: tuple(_noun(entry, False, kind) for entry in _MASCULINE[kind].split(", "))
    + tuple(_noun(entry, True, kind) for entry in _FEMININE[kind].split(", "))
    for kind in _MASCULINE
}
# Someone met by their trade alone, "the baker", is masculine: English does not say.
NOUNS["worker"] = tuple(
    Noun(trade.english, trade.english_plural, trade.masculine, trade.masculine_plural, False, "worker")
    for trade in TRADES
)


def noun(english: str) -> Noun:
    """The noun whose English singular is `english`."""
    return next(entry for entries in NOUNS.values() for entry in entries if entry.english == english)


def trade(english: str) -> Trade:
    """The trade whose English singular is `english`."""
    return next(entry for entry in TRADES if entry.english == english)


@dataclass(frozen=True, slots=True)
class Adjective:
    """An adjective in both languages; `before_vowel` is its masculine singular before a vowel sound: bel, vieil."""

    english: str
    masculine: str
    feminine: str
    before_vowel: str
    before: bool

    def form(self, feminine: bool, plural: bool, following: str = "") -> str:
        """The French form that agrees with such a noun, before the word that follows it where one does."""
        if following and not feminine and not plural and begins_with_vowel(following):
            return self.before_vowel
        word = self.feminine if feminine else self.masculine
        return french_plural(word) if plural else word


def _adjective(entry: str, before: bool) -> Adjective:
    english, french = entry.split()
    forms = french.split("/")
    masculine = forms[0]
    feminine = forms[1] if len(forms) > 1 else french_feminine(masculine)
    return Adjective(english, masculine, feminine, forms[2] if len(forms) > 2 else masculine, before)


def _adjectives(entries: str, before: bool = False) -> tuple[Adjective, ...]:
    return tuple(_adjective(entry, before) for entry in entries.split(", "))


# Said of the living alone or of the lifeless alone: this is what tells which noun a pronoun means.
_LIVING = _adjectives(
    "tired fatigué, sick malade, hungry affamé, thirsty assoiffé, lazy paresseux, nervous nerveux, sad triste, "
    "happy heureux, shy timide, cautious prudent, proud fier, brave courageux, jealous jaloux/jalouse, injured blessé, "
    "worried inquiet/inquiète, impatient impatient"
)
_WAY = _adjectives("wide large, narrow étroit, slippery glissant, muddy boueux, icy glacé")
_PLACE = _adjectives("dangerous dangereux, dark sombre, noisy bruyant, crowded bondé")
_BUILDING = _adjectives("empty vide, modern moderne, damp humide")
_FOOD = _adjectives(
    "salty salé, bitter amer/amère, sweet sucré, dry sec/sèche, hard dur, rotten pourri, ripe mûr, sour acide, "
    "spicy épicé, greasy gras/grasse"
)
_THING = _adjectives(
    "heavy lourd, fragile fragile, expensive cher, valuable précieux, dusty poussiéreux, thick épais/épaisse"
)
_DOCUMENT = _adjectives(
    "complicated compliqué, clear clair, secret secret/secrète, incomplete incomplet/incomplète, vague vague, "
    "technical technique, precise précis"
)
_LONG = _adjectives("long long/longue", before=True)

STATES: dict[str, tuple[Adjective, ...]] = {
    **dict.fromkeys(LIVING, _LIVING),
    "way": _WAY + _PLACE + _LONG,
    "building": _BUILDING + _PLACE,
    "food": _FOOD,
    **dict.fromkeys(THINGS, _THING),
    **dict.fromkeys(PAPERS, _DOCUMENT + _LONG),
}

# Said of many kinds; used beside the noun, never to decide what a pronoun means.
_BEFORE = {
    "big grand": ("animal", "way", "building", *THINGS, "food"),
    "small petit": ("animal", "way", "building", *THINGS, "food"),
    "old vieux/vieille/vieil": (*LIVING, "way", "building", *THINGS, *PAPERS),
    "beautiful beau/belle/bel": ("person", "animal", "way", "building", "thing", "text"),
    "new nouveau/nouvelle/nouvel": ("way", "building", *THINGS, *PAPERS),
    "young jeune": LIVING,
    "good bon/bonne": ("worker", "food", "text", "accord"),
    "bad mauvais": ("worker", "food", "text", "accord"),
    "pretty joli": ("building", "way", *THINGS),
}
_AFTER = {
    **dict.fromkeys(("red rouge", "white blanc/blanche", "black noir", "grey gris"), ("animal", "building", *THINGS)),
    **dict.fromkeys(("green vert", "yellow jaune"), (*THINGS, "building")),
    "wild sauvage": ("animal",),
    **dict.fromkeys(
        ("French français", "English anglais", "Italian italien", "Spanish espagnol", "German allemand"),
        (*PEOPLE, "building", "food", *PAPERS),
    ),
    "famous célèbre": (*PEOPLE, "building", *PAPERS),
    "strange étrange": (*LIVING, "way", "building", "food", *THINGS, "text"),
    "rich riche": PEOPLE,
    "intelligent intelligent": LIVING,
}


def _by_kind(table: dict[str, tuple[str, ...]], before: bool) -> dict[str, tuple[Adjective, ...]]:
    entries = [(_adjective(entry, before), kinds) for entry, kinds in table.items()]
    return {kind: tuple(word for word, kinds in entries if kind in kinds) for kind in STATES}


BEFORE = _by_kind(_BEFORE, True)
AFTER = {
    kind: words + tuple(w for w in STATES[kind] if not w.before) for kind, words in _by_kind(_AFTER, False).items()
}
# In the name of an institution the two stand in this order in English and in the reverse in French.
OUTER = _adjectives(
    "European européen, National national, African africain, International international, Asian asiatique"
)
INNER = _adjectives(
    "Economic économique, Monetary monétaire, Agricultural agricole, Social social, Political politique, "
    "Medical médical, Scientific scientifique"
)


def adjective(english: str) -> Adjective:
    """The adjective whose English is `english`."""
    tables = (*STATES.values(), *BEFORE.values(), *AFTER.values(), OUTER, INNER)
    return next(entry for entries in tables for entry in entries if entry.english == english)


@dataclass(frozen=True, slots=True)
class LexicalVerb:
    """A verb in both languages. A state keeps the imperfect in the French past; an event takes the compound past."""

    base: str
    third: str
    past: str
    participle: str
    preposition: str
    french_singular: str
    french_plural: str
    french_participle: str
    imperfect: str
    french_preposition: str
    with_etre: bool
    state: bool
    subjects: tuple[str, ...]
    objects: tuple[str, ...]


# Who, to what, then "english:french": the English is "base[+preposition]" or "base/past/participle[+preposition]", the
# French an infinitive in -er or "singular/plural/participle[/stem of the imperfect]", then [+preposition].
_EVENTS = (
    (LIVING, ("way",), "cross:traverser, avoid:éviter, explore:explorer, reach:atteint/atteignent/atteint"),
    (LIVING, ("building",), "avoid:éviter, leave/left/left:quitter, find/found/found:trouver, look+for:chercher"),
    (PEOPLE, ("building",), "clean:nettoie/nettoient/nettoyé, paint:peint/peignent/peint"),
    (LIVING, ("food",), "eat/ate/eaten:manger, swallow:avaler, refuse:refuser, steal/stole/stolen:voler"),
    (PEOPLE, ("food",), "finish:finit/finissent/fini, choose/chose/chosen:choisit/choisissent/choisi"),
    (LIVING, THINGS, "pull:tirer, push:pousser, carry:porter, lift:soulève/soulèvent/soulevé, hide/hid/hidden:cacher"),
    (
        PEOPLE,
        THINGS,
        "buy/bought/bought:achète/achètent/acheté, sell/sold/sold:vend/vendent/vendu, repair:réparer, "
        "lose/lost/lost:perd/perdent/perdu",
    ),
    (PEOPLE, ("accord",), "sign:signer, reject:rejette/rejettent/rejeté, accept:accepter, discuss:discuter+de"),
    (
        PEOPLE,
        PAPERS,
        "write/wrote/written:écrit/écrivent/écrit, publish:publier, translate:traduit/traduisent/traduit, "
        "forget/forgot/forgotten:oublier",
    ),
    (
        LIVING,
        LIVING,
        "see/saw/seen:voit/voient/vu, follow:suit/suivent/suivi, look+at:regarder, listen+to:écouter, "
        "wait+for:attend/attendent/attendu, play+with:jouer+avec",
    ),
    (PEOPLE, PEOPLE, "help:aider, meet/met/met:rencontrer, talk+to:parler+à, answer:répond/répondent/répondu+à"),
    (LIVING, (), "sleep/slept/slept:dort/dorment/dormi, run/ran/run:court/courent/couru"),
    (PEOPLE, (), "work:travailler, sing/sang/sung:chanter, dance:danser"),
)
_EVENTS_WITH_ETRE = (
    (LIVING, ("building",), "go/went/gone+to:va/vont/allé+à, arrive+at:arriver+à, enter:entrer+dans"),
    (PEOPLE, ("locality",), "go/went/gone+to:va/vont/allé+à"),
    (LIVING, (), "arrive:arriver, fall/fell/fallen:tomber"),
)
_STATES = (
    (
        PEOPLE,
        (*LIVING, "way", "building"),
        "love:aimer, hate:détester, know/knew/known:connaît/connaissent/connu, admire:admirer",
    ),
    (PEOPLE, ("locality",), "live+in:habiter+à"),
    (LIVING, LIVING, "fear:craint/craignent/craint"),
)
# What someone says or thinks: followed by "that" and a clause.
_REPORTS = (
    (
        PEOPLE,
        (),
        "say/said/said:dit/disent/dit, know/knew/known:sait/savent/su, think/thought/thought:penser, "
        "believe:croit/croient/cru",
    ),
)
# Only ever denied, so that its one English form never has to tell the past from the present.
_FITS = (((), (), "fit/fit/fit+in:tient/tiennent/tenu/ten+dans"),)

Table = tuple[tuple[tuple[str, ...], tuple[str, ...], str], ...]


def _verb(entry: str, subjects: tuple[str, ...], objects: tuple[str, ...], with_etre: bool, state: bool) -> LexicalVerb:
    english, _, french = entry.partition(":")
    english, _, preposition = english.partition("+")
    french, _, french_preposition = french.partition("+")
    base, *irregular = english.split("/")
    past, participle = irregular or (english_ed(base), english_ed(base))
    stem = french.removesuffix("er")
    forms = french.split("/") if "/" in french else (stem + "e", stem + "ent", stem + "é")
    return LexicalVerb(
        base=base,
        third=english_s(base),
        past=past,
        participle=participle,
        preposition=preposition,
        french_singular=forms[0],
        french_plural=forms[1],
        french_participle=forms[2],
        imperfect=forms[3] if len(forms) > 3 else forms[1].removesuffix("ent"),
        french_preposition=french_preposition,
        with_etre=with_etre,
        state=state,
        subjects=subjects,
        objects=objects,
    )


def _verbs(table: Table, with_etre: bool = False, state: bool = False) -> tuple[LexicalVerb, ...]:
    return tuple(
        _verb(entry, subjects, objects, with_etre, state)
        for subjects, objects, entries in table
        for entry in entries.split(", ")
    )


VERBS = _verbs(_EVENTS) + _verbs(_EVENTS_WITH_ETRE, with_etre=True) + _verbs(_STATES, state=True)
REPORTS = _verbs(_REPORTS)
FIT = _verbs(_FITS, state=True)[0]
# What a paper, a house or a thing can suffer in the passive.
PASSIVE = tuple(
    verb
    for verb in VERBS
    if verb.base
    in ("sign", "reject", "accept", "write", "publish", "translate", "paint", "clean", "buy", "sell", "repair", "steal")
)
# What a relative clause can say that someone did to the noun before it.
RECALLED = PASSIVE + tuple(v for v in VERBS if v.objects and (v.base == "see" or (v.state and not v.preposition)))


def verb(base: str, french: str = "") -> LexicalVerb:
    """The verb whose English is `base`; where several are, the one whose French participle is `french`."""
    return next(v for v in (*VERBS, *REPORTS, FIT) if v.base == base and french in ("", v.french_participle))
