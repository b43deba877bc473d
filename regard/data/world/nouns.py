"""The nouns of the world, each with its French gender and the kind of thing that it names."""

from dataclasses import dataclass

from regard.data.world.morphology import english_s, french_feminine, french_plural


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
