"""An encoder of texts with its tokenizer: rows in, what the model says of each out. Five tasks work with one."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from regard.errors import ConfigError, DataError, RunError
from regard.models.bert import Pooling
from regard.models.protocols import TextEncoder
from regard.nn.batch import Texts, Tokens
from regard.tasks.run import Run
from regard.tasks.verbs.encoders import Filling
from regard.text import Tokenizer
from regard.text.encoder_inputs import EncoderInput, InputBuilder

BUDGET = 8192
"""Tokens of one batch, padding included."""

Told = Callable[[int, int], None]


class Encoder:
    """It reads at most `length` tokens of a text or a pair."""

    def __init__(self, model: Any, tokenizer: Tokenizer, length: int) -> None:
        self.model, self.tokenizer = model, tokenizer
        self.framer = InputBuilder(tokenizer, length)
        self.segmented: bool = model.config.segments > 1

    def texts(self, rows: Sequence[EncoderInput]) -> Texts:
        """The rows side by side, on the model's device."""
        tokens = Tokens.of([row.ids for row in rows], self.tokenizer.pad)
        segments = Tokens.of([row.segments for row in rows]).ids if self.segmented else None
        return Texts(tokens, segments).to(next(self.model.parameters()).device)

    def batches(self, rows: Sequence[EncoderInput]) -> Iterator[tuple[list[int], Texts]]:
        """Every row once, the like lengths together: the rows' numbers, and they themselves."""
        order = sorted(range(len(rows)), key=lambda index: len(rows[index].ids))
        start = 0
        while start < len(order):
            stop = start + 1
            while stop < len(order) and len(rows[order[stop]].ids) * (stop - start + 1) <= BUDGET:
                stop += 1
            yield order[start:stop], self.texts([rows[index] for index in order[start:stop]])
            start = stop

    @torch.inference_mode()
    def each(
        self, rows: Sequence[EncoderInput], of: Callable[[Texts], Tensor], progress: Told | None = None
    ) -> list[Tensor]:
        """What `of` says of each row, in the rows' order, on the host."""
        self.model.eval()
        found: list[Tensor] = [torch.empty(0)] * len(rows)
        done = 0
        for numbers, texts in self.batches(rows):
            for number, value in zip(numbers, of(texts).float().cpu(), strict=True):
                found[number] = value
            done += len(numbers)
            if progress is not None:
                progress(done, len(rows))
        return found


def encoder_of(run: Run) -> Encoder:
    """Texts in, vectors out: what fills, tags, classifies and embeds."""
    if not isinstance(run.model, TextEncoder):
        raise RunError(f"{run.directory} is a run for {run.config.task}, not one with an encoder of texts")
    return Encoder(run.model, run.vocabularies.target, run.config.data.max_len)


def fill_text(run: Run, text: str, second: str | None = None, *, top: int = 5) -> "list[list[Filling]]":
    """For each `[MASK]` of a text, or of two, the likeliest tokens with their probabilities."""
    return fill(run.encoder, text, second, top=top)


def embed_texts(
    run: Run, texts: Sequence[str], *, pooling: Pooling | None = None, normalise: bool = True
) -> Float[np.ndarray, "N D"]:
    """A vector for each text; their products are cosines, if `normalise`."""
    return embed(run.encoder, texts, pooling=pooling, normalise=normalise)


def fill(encoder: Encoder, text: str, second: str | None = None, *, top: int = 5) -> list[list[Filling]]:
    """For each `[MASK]` of the text (and of a second one) the likeliest tokens, best first."""
    (found,) = fill_rows(encoder, [masked_row(encoder, text, second)], top=top)
    return found


def masked_row(encoder: Encoder, text: str, second: str | None = None) -> EncoderInput:
    """The text as the model reads it, its masked words as such; refused if none is, or if it is too long."""
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


def fill_rows(encoder: Encoder, rows: Sequence[EncoderInput], *, top: int = 5) -> list[list[list[Filling]]]:
    """The same for many rows at a time."""
    if top < 1:
        raise ConfigError(f"top={top} must be at least 1")
    found = encoder.each(rows, lambda texts: encoder.model.logits(texts))
    return [_fillings(encoder, row, logits, top) for row, logits in zip(rows, found, strict=True)]


def _fillings(encoder: Encoder, row: EncoderInput, logits: Float[Tensor, "S V"], top: int) -> list[list[Filling]]:
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


@dataclass(frozen=True, slots=True)
class Near:
    """A text by its number, and the cosine between its vector and the one asked for."""

    index: int
    cosine: float


def embed(
    encoder: Encoder,
    texts: Sequence[str],
    *,
    pooling: Pooling | None = None,
    normalise: bool = True,
    progress: Told | None = None,
) -> Float[np.ndarray, "N D"]:
    """A vector for each text: the mean of its tokens' vectors or the first token's, of length one if `normalise`.

    Without `pooling` it is made as `model.pooling` says. Of a longer text, as much is read as the model reads.
    """
    if isinstance(texts, str):
        raise DataError("give a list of texts, not one: [text]")
    rows: list[Any] = [encoder.framer.texts(text) for text in texts]
    if not rows:
        return np.zeros((0, encoder.model.config.width), dtype=np.float32)
    vectors = torch.stack(encoder.each(rows, lambda given: encoder.model.text_vectors(given, pooling), progress))
    return (torch.nn.functional.normalize(vectors, dim=-1) if normalise else vectors).numpy()


def follows(encoder: Encoder, pairs: Sequence[tuple[str, str]]) -> list[float]:
    """How likely it is that the second text of each pair follows the first, for a model that was pre-trained to tell.

    A pair longer than the model reads is cut at its end, as in pre-training.
    """
    rows: list[Any] = [encoder.framer.texts(first, second) for first, second in pairs]
    model = encoder.model
    found = encoder.each(rows, lambda texts: model.next_logits(model(texts)).float().softmax(-1)[:, 0])
    return [float(one) for one in found]


@dataclass(frozen=True, slots=True)
class TokenVectors:
    """The tokens of a text that are part of it, the characters that each covers, and a vector for each."""

    tokens: tuple[str, ...]
    spans: tuple[tuple[int, int], ...]
    vectors: Float[np.ndarray, "T D"]

    def of_word(self, start: int, end: int) -> Float[np.ndarray, " D"]:
        """The mean of the vectors of the tokens that lie in these characters."""
        inside = [place for place, (first, last) in enumerate(self.spans) if first >= start and last <= end]
        if not inside:
            raise DataError(f"no token lies in the characters {start} to {end}")
        return self.vectors[inside].mean(0)


def token_vectors(encoder: Encoder, texts: Sequence[str]) -> list[TokenVectors]:
    """For each text a vector per token, which has seen all the others; special tokens are left out."""
    tokenizer = encoder.tokenizer
    rows: list[Any] = [encoder.framer.texts(text) for text in texts]
    found = []
    for text, row, vectors in zip(texts, rows, encoder.each(rows, encoder.model), strict=True):
        places = [place for place, source in enumerate(row.sources) if source >= 0]
        spans = tuple(tokenizer.offsets(text)[: len(places)])
        tokens = tuple(piece.strip() for piece in tokenizer.pieces([row.ids[place] for place in places]))
        found.append(TokenVectors(tokens, spans, vectors[places].numpy()))
    return found


def word_in_contexts(
    encoder: Encoder, word: str, texts: Sequence[str]
) -> tuple[list[str], Float[np.ndarray, "W D"], Float[np.ndarray, " D"]]:
    """A word in each text where it stands: names, and vectors in their contexts; and its static vector.

    The static one is the mean of what the model's table has for its tokens: the same wherever it stands. All have the
    length one.
    """
    names, vectors = [], []
    for text, found in zip(texts, token_vectors(encoder, texts), strict=True):
        for match in re.finditer(rf"\b{re.escape(word)}\b", text, re.IGNORECASE):
            # Three words on either side, whole ones.
            around = [*text[: match.start()].split()[-3:], match.group(), *text[match.end() :].split()[:3]]
            names.append(f"{len(names) + 1}: {' '.join(around)}")
            vectors.append(found.of_word(*match.span()))
    if not vectors:
        raise DataError(f"none of the {len(texts)} texts has the word '{word}'")
    table = encoder.model.embedding.tokens.weight.detach().float().cpu()
    static = table[encoder.tokenizer.encode(word)].mean(0).numpy()
    return names, _unit(np.stack(vectors)), _unit(static[None])[0]


def nearest_texts(
    queries: Float[np.ndarray, "Q D"], vectors: Float[np.ndarray, "N D"], top: int = 5
) -> list[list[Near]]:
    """For each query the nearest vectors by cosine, nearest first; of equals the earlier."""
    if top < 1:
        raise ConfigError(f"top={top} must be at least 1")
    cosines = _unit(queries) @ _unit(vectors).T
    order = np.argsort(-cosines, axis=1, kind="stable")[:, :top]
    return [[Near(int(index), float(row[index])) for index in best] for row, best in zip(cosines, order, strict=True)]


def _unit(vectors: Float[np.ndarray, "N D"]) -> Float[np.ndarray, "N D"]:
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
