"""How words change their form: English endings, French endings, and which French words begin with a vowel sound."""

ENGLISH_VOWELS = frozenset("aeiouAEIOU")
# Written with a vowel, spoken with a consonant: "a European bank".
SPOKEN_WITH_CONSONANT = frozenset({"European", "useful", "union"})
FRENCH_VOWELS = frozenset("aeiouyàâäéèêëîïôöùûüœæAEIOUYÀÂÄÉÈÊËÎÏÔÖÙÛÜŒÆ")
# An aspirated h is silent too, but forbids elision: "le hibou", never "l'hibou".
ASPIRATED = frozenset({"hache", "hérisson", "héros", "hibou", "huit"})


def article(following: str) -> str:
    """`a` or `an`, whichever the following English word asks for."""
    return "an" if following[0] in ENGLISH_VOWELS and following not in SPOKEN_WITH_CONSONANT else "a"


def english_s(word: str) -> str:
    """`word` with the -s of a plural noun or of a verb in the third person."""
    if word.endswith(("s", "x", "z", "ch", "sh", "o")) and word != "piano":
        return word + "es"
    if word.endswith("y") and word[-2] not in ENGLISH_VOWELS:
        return word[:-1] + "ies"
    return word + "s"


def english_ed(word: str) -> str:
    """The regular past of an English verb."""
    if word.endswith("e"):
        return word + "d"
    if word.endswith("y") and word[-2] not in ENGLISH_VOWELS:
        return word[:-1] + "ied"
    return word + "ed"


def begins_with_vowel(word: str) -> bool:
    """Whether a French word makes the one before it elide: a vowel, or an h that is not aspirated."""
    if word[0] in "hH":
        lower = word.lower()
        return lower not in ASPIRATED and lower.rstrip("sx") not in ASPIRATED
    return word[0] in FRENCH_VOWELS


def french_plural(word: str) -> str:
    """The regular plural of a French noun or adjective, the -x and -aux families included."""
    if word[-1] in "sxz":
        return word
    if word.endswith(("eau", "eu")) and word != "bleu":
        return word + "x"
    if word.endswith("al"):
        return word[:-1] + "ux"
    return word + "s"


def french_feminine(word: str) -> str:
    """The regular feminine of a French adjective or of the name of a trade."""
    for ending, feminine in _FEMININE_ENDINGS:
        if word.endswith(ending):
            return word[: len(word) - len(ending)] + feminine
    return word + "e"


_FEMININE_ENDINGS = (
    ("e", "e"),
    ("eux", "euse"),
    ("er", "ère"),
    ("ien", "ienne"),
    ("éen", "éenne"),
    ("teur", "trice"),
    ("eur", "euse"),
)


def agree(participle: str, feminine: bool, plural: bool) -> str:
    """A French past participle in the gender and number asked for."""
    if feminine:
        participle += "e"
    return french_plural(participle) if plural else participle
