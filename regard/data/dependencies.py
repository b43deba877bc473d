"""Constituency trees to dependencies by head rules: the head of every word, and what it is to that head.

A constituent's head is that of one of its parts, found by a list of kinds for each label; the heads of the others
depend on it. The rules follow Collins (1999) with two exceptions, so that the dependencies of a treebank are like those
of the bundled grammar: the verb is the head of its auxiliaries, and of the words that mark its clause.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from regard.data.trees import EMPTY, Tree, as_read, bare_label

NOUNS = frozenset(["NN", "NNS", "NNP", "NNPS", "NX", "FW"])
VERBS = frozenset(["VB", "VBD", "VBG", "VBN", "VBP", "VBZ"])
DETERMINERS = frozenset(["DT", "PDT", "PRP$", "WDT", "WP$"])
CLAUSES = frozenset(["S", "SBAR", "SBARQ", "SINV", "SQ"])
NOUN_PHRASES = frozenset(["NP", "NX", "NAC", "WHNP"])
ADVERBIAL = frozenset(["ADV", "BNF", "DIR", "EXT", "LOC", "MNR", "PRP", "TMP", "TPC", "VOC", "CLR"])
"""Function tags of what tells when, where or how, rather than who or what."""
BE = frozenset(["be", "is", "are", "was", "were", "am", "been", "being", "'s", "'re", "'m"])

From = Literal["left", "right"]
_RULES: dict[str, tuple[tuple[From, str], ...]] = {
    "S": (("left", "VP"), ("left", "S SINV SQ SBAR"), ("left", "ADJP UCP NP")),
    "SINV": (("left", "VP"), ("left", "VBZ VBD VBP VB MD S SINV ADJP NP")),
    "SQ": (("left", "VP"), ("left", "VBZ VBD VBP VB MD SQ")),
    "SBAR": (("left", "S SQ SINV SBAR FRAG VP"), ("left", "WHNP WHPP WHADVP WHADJP IN DT")),
    "SBARQ": (("left", "SQ S SINV SBARQ FRAG"),),
    "VP": (("left", "VP"), ("left", "VBD VBN VBZ VB VBG VBP"), ("left", "MD TO ADJP NN NNS NP")),
    "PP": (("left", "IN TO VBG VBN RP FW"), ("left", "PP")),
    "WHPP": (("left", "IN TO FW"),),
    "ADJP": (("right", "JJ JJR JJS VBN VBG"), ("left", "ADJP"), ("right", "NN NNS RB QP $ CD")),
    "WHADJP": (("right", "JJ ADJP WRB"),),
    "ADVP": (("right", "RB RBR RBS"), ("left", "ADVP"), ("right", "IN NN JJ")),
    "WHADVP": (("right", "WRB"),),
    "QP": (("right", "CD"), ("right", "$ NN NNS JJ RB DT")),
    "PRT": (("right", "RP"),),
    "RRC": (("left", "VP"), ("left", "NP ADVP ADJP PP")),
    "PRN": (("left", "S SINV VP NP"),),
}
_NOUN_PHRASE: tuple[tuple[From, str], ...] = (
    ("right", "NN NNS NNP NNPS NX"),
    ("left", "NP"),
    ("right", "JJR $ ADJP PRN"),
    ("right", "CD QP"),
    ("right", "JJ JJS VBG VBN FW PRP WP WDT EX"),
    ("right", "DT RB"),
)


@dataclass(frozen=True, slots=True)
class DependencyParse:
    """A sentence with its dependencies: the index of each word's head, -1 at the root, and their relations.

    The relations of treebanks are named as those of the bundled grammar are (see its `english.py`), with `compound`
    (a noun before a noun), `possessor`, `possessive`, `apposition`, `particle`, `relativizer`, and `other`.
    """

    words: tuple[str, ...]
    heads: tuple[int, ...]
    relations: tuple[str, ...]

    @property
    def text(self) -> str:
        """The sentence as it is usually written: without a space before a comma or in "don't"."""
        parts: list[str] = []
        glued, quoted = True, False
        for word in self.words:
            closing = word == '"' and quoted
            if not (glued or closing or word in CLOSING or word.startswith("'") or word == "n't"):
                parts.append(" ")
            parts.append(word)
            glued = word in OPENING or (word == '"' and not quoted)
            quoted ^= word == '"'
        return "".join(parts)


CLOSING = frozenset([",", ".", ";", ":", "?", "!", "%", ")", "]", "}", "...", "…"])
OPENING = frozenset(["(", "[", "{", "$", "#"])


@dataclass(frozen=True, slots=True)
class _Part:
    """A constituent, its bare label, its function tags, and the word that is its head."""

    label: str
    functions: frozenset[str]
    word: int

    @property
    def punctuation(self) -> bool:
        return self.label in ("-LRB-", "-RRB-", "HYPH", "NFP") or not any(
            one.isalpha() or one == "$" for one in self.label
        )


def dependencies(tree: Tree) -> DependencyParse | None:
    """The words of a tree with their dependencies; None where no word is left without its traces."""
    reader = _Reader()
    top = reader.read(tree)
    if top is None:
        return None
    reader.attach(top.word, -1, "root")
    return DependencyParse(tuple(reader.words), tuple(reader.heads), tuple(reader.relations))


class _Reader:
    """Words in their order, and for each its head and relation as soon as they are known."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self.heads: list[int] = []
        self.relations: list[str] = []

    def attach(self, word: int, head: int, relation: str) -> None:
        self.heads[word], self.relations[word] = head, relation

    def read(self, tree: Tree) -> _Part | None:
        functions = (
            frozenset() if tree.label.startswith("-") else frozenset(tree.label.replace("=", "-").split("-")[1:])
        )
        label = bare_label(tree.label)
        if tree.word is not None:
            if tree.label == EMPTY:
                return None
            self.words.append(as_read(tree.word))
            self.heads.append(-1)
            self.relations.append("root")
            return _Part(label, functions, len(self.words) - 1)
        parts = [part for part in map(self.read, tree.children) if part is not None]
        if not parts:
            return None
        chosen = head_part(label, [part.label for part in parts])
        if parts[chosen].punctuation:
            chosen = next((at for at, part in enumerate(parts) if not part.punctuation), chosen)
        head = parts[chosen]
        for at, part in enumerate(parts):
            if at != chosen:
                self.attach(part.word, head.word, self.relation(label, parts, chosen, at))
        return _Part(label, functions, head.word)

    def relation(self, label: str, parts: Sequence[_Part], chosen: int, at: int) -> str:
        """What the part at `at` is to the chosen one, in a constituent of this label."""
        part, head = parts[at], parts[chosen]
        if part.punctuation:
            return "punctuation"
        if part.label in ("CC", "CONJP"):
            return "coordinator"
        if at > chosen and any(one.label in ("CC", "CONJP") for one in parts[:at]) and _alike(part.label, head.label):
            return "conjunct"
        if label in ("S", "SINV", "SQ", "SBARQ", "TOP", ""):
            found = self._in_clause(parts, chosen, at)
        elif label == "VP":
            found = self._in_verb_phrase(part, head, at > chosen)
        elif label in NOUN_PHRASES:
            found = _in_noun_phrase(part, at > chosen)
        elif label in ("PP", "WHPP"):
            found = "complement" if at > chosen else "adverb"
        elif label == "SBAR":
            found = "relativizer" if part.label.startswith("WH") else "marker" if part.label in ("IN", "DT") else None
        elif label in ("ADJP", "ADVP", "QP", "WHADJP", "WHADVP") and at < chosen:
            found = "degree" if part.label in ("RB", "RBR", "RBS", "ADVP", "WRB") else None
        else:
            found = None
        return found or _elsewhere(part)

    def _in_clause(self, parts: Sequence[_Part], chosen: int, at: int) -> str | None:
        part, head = parts[at], parts[chosen]
        if "SBJ" in part.functions:
            return "subject"
        if part.label == "NP" and not part.functions & ADVERBIAL:
            if "PRD" in part.functions:
                return "predicate"
            told = any("SBJ" in one.functions for one in parts)
            nearest = not any(one.label == "NP" for one in parts[at + 1 : chosen])
            if not told and at < chosen and nearest and head.label in ("VP", *VERBS):
                return "subject"
        return "auxiliary" if part.label in (*VERBS, "MD", "TO") and head.label == "VP" else None

    def _in_verb_phrase(self, part: _Part, head: _Part, after: bool) -> str | None:
        if part.label in (*VERBS, "MD", "TO"):
            return "auxiliary"
        if self.words[part.word].lower() in ("not", "n't", "never") and part.label in ("RB", "ADVP"):
            return "negation"
        if part.label == "NP" and after:
            if part.functions & ADVERBIAL:
                return "adjunct"
            copula = head.label in VERBS and self.words[head.word].lower().removesuffix("n't") in BE
            return "predicate" if "PRD" in part.functions or copula else "object"
        if part.label == "ADJP" and after:
            return "predicate"
        return None


def _in_noun_phrase(part: _Part, after: bool) -> str | None:
    if part.label == "POS":
        return "possessive"
    if part.label in DETERMINERS:
        return "determiner"
    if after:
        clausal = part.label in CLAUSES or part.label in ("VP", "RRC")
        return "relative" if clausal else "apposition" if part.label in NOUN_PHRASES else None
    if part.label in ("CD", "QP", "$"):
        return "number"
    if part.label in ("JJ", "JJR", "JJS", "ADJP", "VBN", "VBG"):
        return "modifier"
    if part.label in NOUNS:
        return "compound"
    return "possessor" if part.label == "NP" else None


def _elsewhere(part: _Part) -> str:
    if part.label in ("PP", "WHPP") or part.functions & ADVERBIAL:
        return "adjunct"
    if part.label in ("RB", "RBR", "RBS", "ADVP", "WHADVP"):
        return "adverb"
    if part.label in CLAUSES:
        return "clause"
    return "particle" if part.label in ("PRT", "RP") else "other"


def _alike(one: str, other: str) -> bool:
    """Whether two labels are of one kind, so that what bears them can be joined by "and"."""
    kinds = (NOUNS | NOUN_PHRASES, VERBS | {"VP"}, frozenset(("JJ", "JJR", "JJS", "ADJP")), CLAUSES)
    return one == other or any(one in kind and other in kind for kind in kinds)


def head_part(label: str, parts: Sequence[str]) -> int:
    """Which of a constituent's parts, given by their bare labels, has its head."""
    for side, kinds in _NOUN_PHRASE if label in NOUN_PHRASES else _RULES.get(label, ()):
        order = range(len(parts)) if side == "left" else range(len(parts) - 1, -1, -1)
        wanted = kinds.split()
        # Of words joined by "and" the first is the head.
        if side == "right" and "CC" in parts:
            first = parts.index("CC")
            order = (*range(first - 1, -1, -1), *order)
        for at in order:
            if parts[at] in wanted:
                return at
    return 0
