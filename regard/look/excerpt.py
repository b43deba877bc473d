"""One picture's worth of a document: some heads of one attention on one sentence, by pieces or by words."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from jaxtyping import Float

from regard.errors import ConfigError, nearest
from regard.look.align import merge
from regard.look.document import AttentionMap, Document, Sentence, Side

View = Literal["map", "lines", "heads", "text"]


def check_view(view: str, *, as_svg: bool = True) -> None:
    """Refuse a view that cannot be drawn; text is drawn as SVG only."""
    known = [one for one in get_args(View) if as_svg or one != "text"]
    if view not in known:
        raise ConfigError(f"view='{view}' must be one of {', '.join(known)}{nearest(view, known)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Excerpt:
    """What to draw: labels of rows and columns, the weights of each chosen head, and the gold cells where known."""

    title: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    heads: tuple[int, ...]
    values: Float[np.ndarray, "H T S"]
    gold: frozenset[tuple[int, int]]

    @property
    def mean(self) -> Float[np.ndarray, "T S"]:
        return self.values.mean(0)


def excerpt(
    document: Document,
    *,
    sentence: int = 0,
    attention: str | None = None,
    heads: Sequence[int] | None = None,
    words: bool = False,
) -> Excerpt:
    """The heads asked for, by their numbers in the model; all unless given.

    Without a name, the attention is the last that looks at the source, or else the last.
    """
    if not 0 <= sentence < len(document.sentences):
        raise ConfigError(f"no sentence {sentence}: there are {len(document.sentences)}, counted from 0")
    found = document.sentences[sentence]
    chosen = _attention(found, attention)
    numbers = chosen.heads or tuple(range(len(chosen.array())))
    wanted = numbers if heads is None else tuple(heads)
    for head in wanted:
        if head not in numbers:
            raise ConfigError(f"no head {head} of '{chosen.name}' is here: there are {list(numbers)}")
    if not wanted:
        raise ConfigError("no heads to draw: name at least one")
    weights = chosen.array()[[numbers.index(head) for head in wanted]].astype(np.float64)
    rows, columns = found.side(chosen.rows), found.side(chosen.columns)
    if words and (rows.words is None or columns.words is None):
        raise ConfigError(f"the words of '{chosen.name}' are not known, only its pieces")
    many = "all heads" if len(wanted) == len(numbers) > 1 else "heads" if len(wanted) > 1 else "head"
    listed = "" if many == "all heads" else " " + ", ".join(map(str, wanted))
    return Excerpt(
        title=writable(f"{chosen.name}, {many}{listed}"),
        rows=_labels(rows, words),
        columns=_labels(columns, words),
        heads=wanted,
        values=_by_words(weights, rows, columns) if words else weights,
        gold=_gold(found, chosen, words),
    )


def shown_piece(piece: str) -> str:
    """A piece as it can be seen: white space has marks."""
    return writable(piece.replace(" ", "·").replace("\n", "↵").replace("\t", "⇥")) or "∅"


def writable(text: str) -> str:
    """What XML and fonts can hold: no control characters, no half of a pair."""
    return re.sub("[\0-\x1f\ud800-\udfff\ufffe\uffff]", "�", text)


def _attention(sentence: Sentence, name: str | None) -> AttentionMap:
    if name is None:
        crossing = [one for one in sentence.attentions if one.kind == "cross"]
        return (crossing or sentence.attentions)[-1]
    known = {one.name: one for one in sentence.attentions}
    if name not in known:
        raise ConfigError(f"no attention is called '{name}'{nearest(name, known)}")
    return known[name]


def _labels(side: Side, words: bool) -> tuple[str, ...]:
    if words:
        return tuple(map(writable, side.words or ()))
    return tuple(map(writable if side.names else shown_piece, side.pieces))


def _by_words(weights: np.ndarray, rows: Side, columns: Side) -> np.ndarray:
    assert rows.words is not None
    assert columns.words is not None
    sizes = {"sources": len(columns.words), "targets": len(rows.words)}
    return merge(torch.from_numpy(weights), columns.word_of or (), rows.word_of or (), **sizes).numpy()


def _gold(sentence: Sentence, attention: AttentionMap, words: bool) -> frozenset[tuple[int, int]]:
    if sentence.alignment is None or (attention.rows, attention.columns) != ("target", "source"):
        return frozenset()
    if words:
        return frozenset((to, of) for of, to in sentence.alignment)
    pairs, sources = set(sentence.alignment), sentence.source.word_of or ()
    targets = sentence.side("target").word_of or ()
    return frozenset(
        (row, column) for row, to in enumerate(targets) for column, of in enumerate(sources) if (of, to) in pairs
    )
