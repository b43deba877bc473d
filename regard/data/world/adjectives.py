"""The adjectives of the world: their French forms, their place beside the noun, and what they can be said of."""

from dataclasses import dataclass

from regard.data.world.morphology import french_feminine, french_plural


@dataclass(frozen=True, slots=True)
class Adjective:
    """An adjective in both languages; `before_vowel` is its masculine singular before a vowel sound: bel, vieil."""

    english: str
    masculine: str
    feminine: str
    before_vowel: str
    before: bool

    def form(self, feminine: bool, plural: bool) -> str:
        """The French form that agrees with such a noun."""
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

_PEOPLE = ("person", "worker")
STATES: dict[str, tuple[Adjective, ...]] = {
    "person": _LIVING,
    "worker": _LIVING,
    "animal": _LIVING,
    "way": _WAY + _PLACE + _LONG,
    "building": _BUILDING + _PLACE,
    "food": _FOOD,
    "thing": _THING,
    "container": _THING,
    "accord": _DOCUMENT + _LONG,
    "text": _DOCUMENT + _LONG,
}

# Said of many kinds; used beside the noun, never to decide what a pronoun means.
_BEFORE = {
    "big grand": ("animal", "way", "building", "thing", "container", "food"),
    "small petit": ("animal", "way", "building", "thing", "container", "food"),
    "old vieux/vieille/vieil": (*_PEOPLE, "animal", "way", "building", "thing", "container", "accord", "text"),
    "beautiful beau/belle/bel": ("person", "animal", "way", "building", "thing", "text"),
    "new nouveau/nouvelle/nouvel": ("way", "building", "thing", "container", "accord", "text"),
    "young jeune": (*_PEOPLE, "animal"),
    "good bon/bonne": ("worker", "food", "text", "accord"),
    "bad mauvais": ("worker", "food", "text", "accord"),
    "pretty joli": ("building", "way", "thing", "container"),
}
_AFTER = {
    **dict.fromkeys(
        ("red rouge", "white blanc/blanche", "black noir", "grey gris"), ("animal", "building", "thing", "container")
    ),
    **dict.fromkeys(("green vert", "yellow jaune"), ("thing", "container", "building")),
    "wild sauvage": ("animal",),
    **dict.fromkeys(
        ("French français", "English anglais", "Italian italien", "Spanish espagnol", "German allemand"),
        (*_PEOPLE, "building", "food", "accord", "text"),
    ),
    "famous célèbre": (*_PEOPLE, "building", "accord", "text"),
    "strange étrange": (*_PEOPLE, "animal", "way", "building", "food", "thing", "container", "text"),
    "rich riche": _PEOPLE,
    "intelligent intelligent": (*_PEOPLE, "animal"),
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
