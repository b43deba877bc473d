"""What French words do to their neighbours: elision and contraction, with the alignment kept."""

from collections.abc import Sequence

from regard.data.world.morphology import begins_with_vowel

# A French word and the indices of the English words that it translates.
Piece = tuple[str, tuple[int, ...]]

_ELIDED = {"le": "l'", "la": "l'", "je": "j'", "ne": "n'", "que": "qu'", "de": "d'"}
_CONTRACTED = {("de", "le"): "du", ("de", "les"): "des", ("à", "le"): "au", ("à", "les"): "aux"}


def join(pieces: Sequence[Piece]) -> list[Piece]:
    """The pieces as they are written: elided, then contracted, the first with a capital.

    Elision comes first, so that "de le accord" is "de l'accord" and never "du accord".
    """
    elided: list[Piece] = []
    last = len(pieces) - 1
    for place, (text, sources) in enumerate(pieces):
        if text in _ELIDED and place < last and begins_with_vowel(pieces[place + 1][0]):
            text = _ELIDED[text]
        elided.append((text, sources))
    written: list[Piece] = []
    for text, sources in elided:
        together = _CONTRACTED.get((written[-1][0], text)) if written else None
        if together is not None:
            written[-1] = (together, (*written[-1][1], *sources))
        else:
            written.append((text, sources))
    first, sources = written[0]
    written[0] = (first[0].upper() + first[1:], sources)
    return written
