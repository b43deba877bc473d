"""Texts as vectors, and the texts nearest to one."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from regard.errors import ConfigError, DataError
from regard.models.bert import Pooling
from regard.tasks.encoder import Encoder, Told


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
        return np.zeros((0, encoder.model.config.width), dtype=np.float32)  # type: ignore[union-attr, arg-type]
    vectors = torch.stack(encoder.each(rows, lambda given: encoder.model.text_vectors(given, pooling), progress))  # type: ignore[operator]
    return (torch.nn.functional.normalize(vectors, dim=-1) if normalise else vectors).numpy()


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
