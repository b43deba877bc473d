"""A recurrent encoder of texts: many to one (a class per text) or many to many (a tag per word)."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.errors import ConfigError, check_at_least, check_fractions
from regard.models.lstmn import LSTMNLayer
from regard.models.protocols import Capabilities
from regard.nn.batch import LabelledTexts, Texts
from regard.nn.blocks import Stack
from regard.nn.dropout import Dropout
from regard.nn.embeddings import Embedding
from regard.nn.initialization import initialise
from regard.nn.recurrent.cells import CellKind
from regard.nn.recurrent.layers import Direction, Recurrent


@dataclass(frozen=True, kw_only=True, slots=True)
class RecurrentReaderConfig:
    """`head` is what is predicted: `classes` of a text, `tags` of each token, or `none`, for vectors alone.

    `labels` are the names of classes or tags. `cell` may also be `lstmn`, which only reads forward and attends to
    `span` of its past states.
    """

    vocab_size: int
    width: int = 256
    cell: CellKind | Literal["lstmn"] = "lstm"
    layers: int = 1
    direction: Direction = "both"
    span: int = 128
    head: Literal["none", "classes", "tags"] = "classes"
    labels: tuple[str, ...] = ()
    dropout: float = 0.3
    max_len: int = 512

    def __post_init__(self) -> None:
        check_at_least(self, 1, "vocab_size", "width", "layers", "span", "max_len")
        check_fractions(self, "dropout")
        if self.direction == "both" and self.width % 2:
            raise ConfigError(f"width={self.width} must be even for a bidirectional layer")
        if self.cell == "lstmn" and self.direction != "forward":
            raise ConfigError(f"cell='lstmn' reads forward, not direction='{self.direction}'")
        if self.labels and self.head == "none":
            raise ConfigError("labels are for head='classes' or 'tags', not for 'none'")

    @property
    def segments(self) -> int:
        """Texts of a pair are told apart by the separator between them alone."""
        return 0


class RecurrentReader(nn.Module):
    """An embedding, recurrent layers that read each way as asked, and a head over classes or tags.

    The first token of a row is a special token before the text. Its position holds the final state: that after the last
    token for a layer that reads forward, that after the first for one that reads backward.
    """

    # It packs no rows: a row is one text or pair, and its first position represents it.
    capabilities: ClassVar[Capabilities] = Capabilities(
        tasks=("classification", "tagging", "embedding"), tunes=("head", "labels")
    )

    def __init__(self, config: RecurrentReaderConfig) -> None:
        super().__init__()
        self.config = config
        D = config.width
        self.embedding = Embedding(config.vocab_size, D, dropout=config.dropout)
        self.layers: Stack[LSTMNLayer] | Recurrent
        if config.cell == "lstmn":
            self.layers = Stack(LSTMNLayer(D, D, config.span) for _ in range(config.layers))
        else:
            self.layers = Recurrent(
                config.cell, D, D, config.layers, direction=config.direction, dropout=config.dropout
            )
        self.classifier = None
        if config.head != "none":
            if not config.labels:
                raise ConfigError(f"head='{config.head}' needs labels: the names of its classes or tags")
            self.classifier = nn.Linear(D, len(config.labels))
        self.dropout = Dropout(config.dropout)
        initialise(self)
        for part in self.modules():
            if isinstance(part, LSTMNLayer):
                part.initialise()

    def forward(self, batch: Texts | LabelledTexts) -> Float[Tensor, "B S D"]:
        """A vector for each token; the first position holds the final state."""
        texts = batch if isinstance(batch, Texts) else batch.inputs
        lengths = texts.tokens.lengths if texts.tokens.padded else None
        x = self.embedding(texts.ids)
        if isinstance(self.layers, Recurrent):
            x, states = self.layers(x, lengths)
            return torch.cat((states[-1][0][:, None], x[:, 1:]), dim=1)
        last = x
        for number, layer in enumerate(self.layers):
            x = self.dropout(x) if number else x
            x, (_, last, _, _) = layer(x, layer.zeros(x), lengths)
        return torch.cat((last[:, -1:], x[:, 1:]), dim=1)

    def logits(self, batch: Texts | LabelledTexts) -> Float[Tensor, " B *more"]:
        """The head's scores: for every token its tag, for the whole text its class; without a head, the vectors."""
        x = self(batch)
        if self.classifier is None:
            return x
        return self.classes(x, batch) if self.config.head == "classes" else self.classifier(self.dropout(x))

    def classes(self, x: Float[Tensor, "B S D"], batch: Texts | LabelledTexts) -> Float[Tensor, "B C"]:
        """The scores of the classes of each text, from its final state."""
        assert self.classifier is not None
        return self.classifier(self.dropout(x[:, 0]))

    def text_vectors(self, texts: Texts, pooling: str | None = None) -> Float[Tensor, "B D"]:
        """One vector per text: its final state, or with `mean` the mean of its tokens' vectors."""
        x = self(texts)
        if pooling != "mean":
            return x[:, 0]
        real = texts.tokens.mask()[..., None].to(x.dtype)
        real[:, 0] = 0.0
        return (x * real).sum(1) / real.sum(1).clamp(min=1.0)


MODEL = RecurrentReaderConfig, RecurrentReader
