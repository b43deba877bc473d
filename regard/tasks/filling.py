"""Hidden words: what the model would put in their place."""

from collections.abc import Sequence
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from regard.errors import ConfigError, DataError
from regard.tasks.encoder import Encoder
from regard.text.framing import Framed


@dataclass(frozen=True, slots=True)
class Filling:
    """A token for a hidden word, how likely the model thinks it, and the whole text with it in its place.

    Where several words are hidden, the text has the likeliest in the other places.
    """

    token: str
    probability: float
    text: str


def fill(encoder: Encoder, text: str, second: str | None = None, *, top: int = 5) -> list[list[Filling]]:
    """For each `[MASK]` of the text (and of a second one) the likeliest tokens, best first."""
    (found,) = fill_rows(encoder, [masked_row(encoder, text, second)], top=top)
    return found


def masked_row(encoder: Encoder, text: str, second: str | None = None) -> Framed:
    """The text as the model reads it, its hidden words as such; refused if none is, or if it is too long."""
    if encoder.model.words is None:
        raise ConfigError("this run has no head for words: start from one that was pre-trained, or import one with it")
    tokenizer = encoder.tokenizer
    row = encoder.framer.ids(
        tokenizer.encode_masked(text), None if second is None else tokenizer.encode_masked(second), "refuse"
    )
    assert row is not None
    if tokenizer.mask not in row.ids:
        raise DataError(f"'{text[:40]}' has no [MASK] to fill")
    return row


def fill_rows(encoder: Encoder, rows: Sequence[Framed], *, top: int = 5) -> list[list[list[Filling]]]:
    """The same for many rows at a time."""
    if top < 1:
        raise ConfigError(f"top={top} must be at least 1")
    found = encoder.each(rows, lambda texts: encoder.model.logits(texts))  # type: ignore[operator]
    return [_fillings(encoder, row, logits, top) for row, logits in zip(rows, found, strict=True)]


def _fillings(encoder: Encoder, row: Framed, logits: Float[Tensor, "S V"], top: int) -> list[list[Filling]]:
    tokenizer = encoder.tokenizer
    places = [place for place, token in enumerate(row.ids) if token == tokenizer.mask]
    values, tokens = logits[places].softmax(-1).topk(min(top, logits.shape[-1]))
    best = dict(zip(places, tokens[:, 0].tolist(), strict=True))
    return [
        [
            Filling(tokenizer.pieces([token])[0].strip(), chance, _text(encoder, row.ids, {**best, place: token}))
            for token, chance in zip(chosen, chances, strict=True)
        ]
        for place, chosen, chances in zip(places, tokens.tolist(), values.tolist(), strict=True)
    ]


def _text(encoder: Encoder, ids: Sequence[int], filled: dict[int, int]) -> str:
    return encoder.tokenizer.decode([filled.get(place, token) for place, token in enumerate(ids)]).strip()
