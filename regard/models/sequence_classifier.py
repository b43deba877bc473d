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
from regard.nn.recurrent.cells import CellKind, VanillaCell, start_by_keeping
from regard.nn.recurrent.layers import Recurrent

LayerKind = Literal["rnn", "gru", "lstm", "convolution", "attention"]
Start = Literal["orthogonal", "identity"]

HALF = 0.5**0.5  # a sum of two vectors of variance one, times this, has variance one
_CELLS: dict[str, CellKind] = {"rnn": "rnn", "gru": "gru-after", "lstm": "lstm"}


class SequenceClassifier(nn.Module):
    """Tokens in, the scores of a label out, from the vector of the last position.

    With `dilation` a convolution's positions lie so many times further apart in each layer than in the one before it.
    A vanilla RNN's matrices over the state `start` orthogonal, or as the identity with small inputs, and so by keeping.
    """

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
        dilation: int = 1,
        start: Start = "orthogonal",
    ) -> None:
        super().__init__()
        if way not in get_args(LayerKind):
            raise ConfigError(f"unknown way '{way}'{nearest(way, get_args(LayerKind))}")
        if start not in get_args(Start):
            raise ConfigError(f"unknown start '{start}'{nearest(start, get_args(Start))}")
        if start == "identity" and way != "rnn":
            raise ConfigError(f"start='identity' is a vanilla RNN's (way 'rnn'), not one of '{way}'")
        self.way, self.width, self.kernel, self.dilation = way, width, kernel, dilation
        positions = Positions("sinusoidal", width, 8192) if way == "attention" else None
        self.embedding = Embedding(vocab_size, width, positions=positions)
        self.layers: Stack[EncoderBlock] | Stack[GatedConvolution] | Recurrent
        if way == "attention":
            block = BlockConfig(width=width, heads=heads, feed_forward=2 * width, dropout=0.0)
            self.layers = Stack(EncoderBlock(block) for _ in range(layers))
        elif way == "convolution":
            self.layers = Stack(
                GatedConvolution(width, kernel, causal=True, dilation=dilation**number) for number in range(layers)
            )
        else:
            self.layers = Recurrent(_CELLS[way], width, width, layers)
        self.norm = nn.LayerNorm(width)
        self.answer = nn.Linear(width, answers)
        initialise(self)
        if start == "identity":
            for part in self.modules():
                if isinstance(part, VanillaCell):
                    start_by_keeping(part)

    @property
    def receptive_field(self) -> int | None:
        """How many positions the last one sees; None where it is all of them."""
        if self.way != "convolution" or isinstance(self.layers, Recurrent):
            return None
        return 1 + (self.kernel - 1) * sum(self.dilation**number for number in range(len(self.layers)))

    def forward(self, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B answers"]:
        return self.answer(self.norm(self.read(self.embedding(ids))[:, -1]))

    def read(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        """The vectors of all positions after all layers."""
        if isinstance(self.layers, Recurrent):
            return self.layers(x)[0]
        for layer in self.layers:
            x = layer(x, CAUSAL) if self.way == "attention" else (x + layer(x)) * HALF
        return x
