"""One sequence classifier over recurrent, convolutional or attention layers, to compare the three.

A recurrence needs as many steps as there are positions; a convolution sees only its neighbours, a few more with each
layer; attention sees everything at once, at a cost quadratic in the length.
"""

from typing import Literal, get_args

from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.errors import ConfigError, nearest
from regard.nn.blocks import BlockConfig, EncoderBlock, GatedConvolution, Stack
from regard.nn.embeddings import Embedding
from regard.nn.initialization import initialise
from regard.nn.masks import CAUSAL
from regard.nn.positions import Positions
from regard.nn.recurrent.cells import CellKind
from regard.nn.recurrent.layers import Recurrent

LayerKind = Literal["rnn", "gru", "lstm", "convolution", "attention"]

HALF = 0.5**0.5  # a sum of two vectors of variance one, times this, has variance one
_CELLS: dict[str, CellKind] = {"rnn": "rnn", "gru": "gru-after", "lstm": "lstm"}


class SequenceClassifier(nn.Module):
    """Tokens in, the scores of a label out, from the vector of the last position."""

    def __init__(
        self,
        way: LayerKind,
        vocab_size: int,
        answers: int,
        *,
        width: int = 64,
        layers: int = 2,
        kernel: int = 3,
        heads: int = 4,
    ) -> None:
        super().__init__()
        if way not in get_args(LayerKind):
            raise ConfigError(f"unknown way '{way}'{nearest(way, get_args(LayerKind))}")
        self.way, self.width, self.kernel = way, width, kernel
        positions = Positions("sinusoidal", width, 8192) if way == "attention" else None
        self.embedding = Embedding(vocab_size, width, positions=positions)
        self.layers: Stack[EncoderBlock] | Stack[GatedConvolution] | Recurrent
        if way == "attention":
            block = BlockConfig(width=width, heads=heads, feed_forward=2 * width, dropout=0.0)
            self.layers = Stack(EncoderBlock(block) for _ in range(layers))
        elif way == "convolution":
            self.layers = Stack(GatedConvolution(width, kernel, causal=True) for _ in range(layers))
        else:
            self.layers = Recurrent(_CELLS[way], width, width, layers)
        self.norm = nn.LayerNorm(width)
        self.answer = nn.Linear(width, answers)
        initialise(self)

    @property
    def receptive_field(self) -> int | None:
        """How many positions the last one sees; None where it is all of them."""
        if self.way != "convolution" or isinstance(self.layers, Recurrent):
            return None
        return 1 + len(self.layers) * (self.kernel - 1)

    def forward(self, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B answers"]:
        return self.answer(self.norm(self.read(self.embedding(ids))[:, -1]))

    def read(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        """The vectors of all positions after all layers."""
        if isinstance(self.layers, Recurrent):
            return self.layers(x)[0]
        for layer in self.layers:
            x = layer(x, CAUSAL) if self.way == "attention" else (x + layer(x)) * HALF
        return x
