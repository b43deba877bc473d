"""The closed lists of words: determiners, prepositions, connectives, adverbs, dates, and names of people and places."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Determiner:
    """What opens a noun phrase. Where a form depends on the next sound, `before_vowel` is the singular then."""

    singular: str
    plural: str
    masculine: str
    feminine: str
    french_plural: str
    feminine_plural: str
    before_vowel: tuple[str, str]

    def french(self, feminine: bool, plural: bool, vowel: bool) -> str:
        """The French form; `vowel` says whether the next word begins with a vowel sound."""
        if plural:
            return self.feminine_plural if feminine else self.french_plural
        if vowel:
            return self.before_vowel[feminine]
        return self.feminine if feminine else self.masculine


def _determiner(english: str, french: str, before_vowel: tuple[str, str] | None = None) -> Determiner:
    """From "singular/plural" and "masculine/feminine/plural[/feminine plural]"."""
    singular, plural = english.split("/")
    masculine, feminine, *plurals = french.split("/")
    return Determiner(
        singular, plural, masculine, feminine, plurals[0], plurals[-1], before_vowel or (masculine, feminine)
    )


def _translations(english: str, french: str) -> dict[str, str]:
    return dict(zip(english.split(), french.split(), strict=True))


DETERMINERS: dict[str, Determiner] = {
    "the": _determiner("the/the", "le/la/les"),
    "a": _determiner("a/some", "un/une/des"),
    "any": _determiner("a/any", "de/de/de"),  # after a negated verb: "pas de pomme"
    "this": _determiner("this/these", "ce/cette/ces", ("cet", "cette")),
    "my": _determiner("my/my", "mon/ma/mes", ("mon", "mon")),
    "our": _determiner("our/our", "notre/notre/nos"),
    "every": _determiner("every/all the", "chaque/chaque/tous les/toutes les"),
    "many": _determiner("many/many", "beaucoup de/beaucoup de/beaucoup de"),
    "several": _determiner("several/several", "plusieurs/plusieurs/plusieurs"),
}
_NUMBERS = _translations(
    "two three four five six seven eight nine ten", "deux trois quatre cinq six sept huit neuf dix"
)
NUMBERS = tuple(_NUMBERS)
DETERMINERS |= {
    english: _determiner(f"{english}/{english}", f"{french}/{french}/{french}") for english, french in _NUMBERS.items()
}

MEN = ("Paul", "Pierre", "Luc", "Thomas", "Antoine", "Louis", "Victor", "Olivier")
WOMEN = ("Marie", "Sophie", "Anne", "Claire", "Julie", "Alice", "Isabelle", "Nicole")


@dataclass(frozen=True, slots=True)
class Locality:
    """A town or a country; French says with one preposition both that one is there and that one goes there."""

    english: str
    french: str
    preposition: str


LOCALITIES = tuple(
    Locality(*name.split("/"), preposition=preposition)
    for preposition, names in {
        "à": "Paris/Paris London/Londres Rome/Rome Lyon/Lyon Brussels/Bruxelles Madrid/Madrid Vienna/Vienne "
        "Geneva/Genève Athens/Athènes",
        "en": "France/France Italy/Italie Spain/Espagne Belgium/Belgique",
        "au": "Portugal/Portugal Japan/Japon Canada/Canada Brazil/Brésil",
    }.items()
    for name in names.split()
)

MONTHS = _translations(
    "January February March April May June July August September October November December",
    "janvier février mars avril mai juin juillet août septembre octobre novembre décembre",
)
WEEKDAYS = _translations(
    "Monday Tuesday Wednesday Thursday Friday Saturday Sunday", "lundi mardi mercredi jeudi vendredi samedi dimanche"
)
YEARS = tuple(str(year) for year in range(1980, 2010))
DAYS = tuple(str(day) for day in range(1, 29))

DEGREES = {"too": "trop", "very": "très", "so": "si", "really": "vraiment"}
FREQUENCIES = {"often": "souvent", "always": "toujours", "sometimes": "parfois"}
MANNERS = _translations(
    "yesterday slowly quickly quietly carefully", "hier lentement rapidement tranquillement prudemment"
)
PREPOSITIONS = {
    "in": "dans",
    "near": "près de",
    "behind": "derrière",
    "in front of": "devant",
    "with": "avec",
    "without": "sans",
    "for": "pour",
    "by": "par",
    "of": "de",
    "on": "sur",
}
SUBORDINATORS = {"because": "parce que", "when": "quand", "while": "pendant que"}
COORDINATORS = {"and": "et", "but": "mais"}
