"""A bidirectional language model whose layers give contextual vectors of words, in the manner of ELMo (Peters 2018)."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.errors import ConfigError, DataError, check_at_least, check_fractions
from regard.models.protocols import Capabilities
from regard.models.recurrent_language import TextState
from regard.nn.batch import LabelledTexts, Pairs, Texts, Tokens, Windows
from regard.nn.dropout import Dropout
from regard.nn.embeddings import Embedding, OutputProjection
from regard.nn.initialization import initialise
from regard.nn.recurrent.cells import CellKind
from regard.nn.recurrent.layers import Recurrent


@dataclass(frozen=True, kw_only=True, slots=True)
class ElmoConfig:
    """`width` is that of each direction; a contextual vector has twice as many. `head` is what it is trained for:
    `words`, the language model, or on top of a mixture of its layers `classes` or `tags`, whose names are `labels`.
    """

    vocab_size: int
    width: int = 256
    cell: CellKind = "lstm"
    layers: int = 2
    head: Literal["words", "classes", "tags"] = "words"
    labels: tuple[str, ...] = ()
    dropout: float = 0.1
    max_len: int = 512

    def __post_init__(self) -> None:
        check_at_least(self, 1, "vocab_size", "width", "layers", "max_len")
        check_fractions(self, "dropout")
        if self.labels and self.head == "words":
            raise ConfigError("labels are for head='classes' or 'tags', not for 'words'")

    @property
    def segments(self) -> int:
        """Texts of a pair are told apart by the separator between them alone."""
        return 0


class LayerMix(nn.Module):
    """gamma times the mean of the layers, weighed by the softmax of one learned number each."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.scores = nn.Parameter(torch.zeros(layers))
        self.gamma = nn.Parameter(torch.ones(()))

    def forward(self, layers: Float[Tensor, "L B S D"]) -> Float[Tensor, "B S D"]:
        return self.gamma * torch.einsum("l,lbsd->bsd", self.scores.softmax(0), layers)


class Elmo(nn.Module):
    """Two language models over one embedding: one reads forward, one backward."""

    capabilities: ClassVar[Capabilities] = Capabilities(
        tasks=("language", "classification", "tagging", "embedding"), both_ways=True, tunes=("head", "labels")
    )

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__()
        self.config = config
        D, dropout = config.width, config.dropout
        self.embedding = Embedding(config.vocab_size, D, dropout=config.dropout)
        self.onward = Recurrent(config.cell, D, D, config.layers, dropout=dropout)
        self.back = Recurrent(config.cell, D, D, config.layers, direction="backward", dropout=dropout)
        self.head = self.mix = self.classifier = None
        if config.head == "words":
            self.head = OutputProjection(D, config.vocab_size, bias=True, tied=self.embedding.tokens.weight)
        else:
            if not config.labels:
                raise ConfigError(f"head='{config.head}' needs labels: the names of its classes or tags")
            self.mix = LayerMix(config.layers + 1)
            self.classifier = nn.Linear(2 * D, len(config.labels))
        self.dropout = Dropout(config.dropout)
        initialise(self)

    def forward(self, batch: Windows | Pairs | Texts | LabelledTexts) -> Float[Tensor, "B S D"]:
        """Of running text, the vectors that predict what follows; of a text to be labelled, the mixture of its layers.

        There the first position, a special token before the text, holds the maximum of each feature over the text.
        """
        if isinstance(batch, (Texts, LabelledTexts)):
            texts = batch if isinstance(batch, Texts) else batch.inputs
            x = self._mixed(self.contexts(texts.tokens))
            largest = x.masked_fill(~texts.tokens.mask()[..., None], -torch.inf).amax(1, keepdim=True)
            return torch.cat((largest, x[:, 1:]), dim=1)
        assert isinstance(batch.inputs, Tokens), "a recurrent model reads one sequence per row"
        return self.dropout(self.onward(self.embedding(batch.inputs.ids))[0])

    def before_and_after(self, batch: Windows) -> tuple[Float[Tensor, "B T D"], Float[Tensor, "B T D"], Tensor]:
        """The vectors that predict the token after each, those that predict each from all after it, and the tokens."""
        ids = batch.inputs.ids
        # Where a label is not asked for, the token itself stands one further on.
        following = torch.cat((ids[:, 1:], batch.labels[:, -1:]), dim=1)
        return self(batch), self.after(following), ids

    def read(self, inputs: Tokens) -> Float[Tensor, "B T D"]:
        """The vectors that predict the token after each. The text is read backward too, for whoever watches."""
        return self.contexts(inputs)[-1, ..., : self.config.width]

    def after(self, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B T D"]:
        """The vectors that predict the token before each, from it and all after it."""
        return self.dropout(self.back(self.embedding(ids))[0])

    def logits(self, batch: Windows | Pairs | Texts | LabelledTexts) -> Float[Tensor, " B *more"]:
        """The scores of every next token; of a text to be labelled, of its class or of every token's tag."""
        x = self(batch)
        if self.head is not None:
            return x if isinstance(batch, (Texts, LabelledTexts)) else self.head(x)
        assert self.classifier is not None
        return self.classes(x, batch) if self.config.head == "classes" else self.classifier(self.dropout(x))

    def contexts(self, tokens: Tokens) -> Float[Tensor, "L B S W"]:
        """Every layer's vectors of every token, both directions concatenated; the first are the words', twice."""
        lengths = tokens.lengths if tokens.padded else None
        words = self.embedding(tokens.ids)
        found = [torch.cat((words, words), dim=-1)]
        x, y = words, words
        for number, (onward, back) in enumerate(zip(self.onward.layers, self.back.layers, strict=True)):
            x, _ = onward(self.dropout(x) if number else x, lengths)
            y, _ = back(self.dropout(y) if number else y, lengths)
            found.append(torch.cat((x, y), dim=-1))
        return torch.stack(found)

    def classes(
        self, x: Float[Tensor, "B S W"], batch: Windows | Pairs | Texts | LabelledTexts
    ) -> Float[Tensor, "B C"]:
        """The scores of the classes of each text, from the maximum of each feature over it."""
        assert self.classifier is not None
        return self.classifier(self.dropout(x[:, 0]))

    def text_vectors(self, texts: Texts, pooling: str | None = None) -> Float[Tensor, "B W"]:
        """One vector per text: the mean of its tokens', special tokens left out; or the first token's."""
        x, real = self(texts), texts.tokens.mask().to(self.embedding.tokens.weight.dtype)
        if pooling == "first":
            return x[:, min(1, x.shape[1] - 1)]
        real[:, 0] = 0.0
        real = real.scatter(1, (texts.tokens.lengths - 1)[:, None], 0.0)[..., None]
        return (x * real).sum(1) / real.sum(1).clamp(min=1.0)

    def start(self, batch: Tokens) -> TextState:
        """Prompts, all but the last token of each read by the forward model: `step` continues from here."""
        if int(batch.lengths.min()) < 1:
            raise DataError("a prompt without a token cannot be continued")
        words = self.embedding(batch.ids)
        if batch.ids.shape[1] == 1:
            return TextState(tuple(layer.zeros(words) for layer in self.onward.layers))
        read = batch.lengths - 1
        _, states = self.onward(words[:, :-1], read.clamp(min=1) if batch.padded else None)
        begun = (read > 0)[:, None]
        return TextState(tuple(tuple(torch.where(begun, part, 0.0) for part in state) for state in states))

    def step(self, choices: Int[Tensor, " R"], state: TextState) -> tuple[Float[Tensor, "R V"], TextState]:
        """Log-probabilities of the tokens that may follow `choices`."""
        assert self.head is not None
        output, states = self.onward.step(self.embedding(choices[:, None]).squeeze(1), state.states)
        return self.head(self.dropout(output)).log_softmax(-1), TextState(states)

    def _mixed(self, layers: Float[Tensor, "L B S W"]) -> Float[Tensor, "B S W"]:
        """The layers as learned weights mix them; their mean where none have been learned."""
        return layers.mean(0) if self.mix is None else self.mix(layers)


MODEL = ElmoConfig, Elmo
