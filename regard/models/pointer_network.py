"""The pointer network (Vinyals et al. 2015): an encoder-decoder whose outputs are positions of its input."""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.errors import ConfigError, check_at_least
from regard.models.protocols import Capabilities
from regard.nn.attention_scores import ScoredAttention
from regard.nn.batch import END, Pointings, Points
from regard.nn.blocks import BlockConfig, EncoderBlock, Stack, make_norm
from regard.nn.dropout import Dropout
from regard.nn.initialization import initialise
from regard.nn.masks import Visible
from regard.nn.recurrent.cells import CellKind
from regard.nn.recurrent.layers import CellStates, Recurrent


@dataclass(frozen=True, kw_only=True, slots=True)
class PointerConfig:
    """`inputs` numbers make an item, and `complete` says that every item is pointed at once before the end; both follow
    from the puzzle that the data names.

    - `encoder` reads the items one after another (`recurrent`), as in 2015, or lets each attend to all
      (`attention`), which makes their order meaningless.
    - `octaves` shows the encoder each number also as sines and cosines of so many frequencies, each twice the last, so
      that numbers close together can be told apart.
    - The decoder is recurrent and points by the `score`; before that it gathers from the items `glimpses` times.
    """

    inputs: int = 2
    complete: bool = True
    width: int = 128
    encoder: Literal["recurrent", "attention"] = "attention"
    heads: int = 4
    encoder_layers: int = 3
    feed_forward: int = 512
    octaves: int = 0
    cell: CellKind = "lstm"
    decoder_layers: int = 1
    score: Literal["additive", "general", "scaled-dot"] = "additive"
    glimpses: int = 0
    dropout: float = 0.0
    max_len: int = 1024

    def __post_init__(self) -> None:
        check_at_least(self, 1, "inputs", "width", "encoder_layers", "decoder_layers", "max_len")
        check_at_least(self, 0, "octaves", "glimpses")
        if self.encoder == "recurrent" and self.width % 2:
            raise ConfigError(f"width={self.width} must be even for a bidirectional encoder")
        self.block()

    def block(self) -> BlockConfig:
        return BlockConfig.of(self, norm_first=True)


@dataclass(frozen=True, slots=True)
class EncodedProblems:
    """The encoded problems of a batch, one row each, however many rows of a search point into it.

    C choices: the end, then every position. `read` are the vectors that the decoder reads a choice as, `memory` those
    it points at, `keys` what the pointing compares them by. `real` are the choices that are not padding.
    """

    read: Float[Tensor, "B C D"]
    memory: Float[Tensor, "B C D"]
    keys: Float[Tensor, "B C D"]
    real: Bool[Tensor, "B C"]

    def select(self, sources: Int[Tensor, " N"]) -> "EncodedProblems":
        return EncodedProblems(self.read[sources], self.memory[sources], self.keys[sources], self.real[sources])


@dataclass(frozen=True, slots=True)
class PointerState:
    """The decoder between two steps: its layers' states and what each row has pointed at, and the problems."""

    states: CellStates
    chosen: Bool[Tensor, "R C"]
    source: EncodedProblems

    def select(self, rows: Int[Tensor, " R"], sources: Int[Tensor, " N"] | None = None) -> "PointerState":
        states = tuple(tuple(part[rows] for part in state) for state in self.states)
        source = self.source if sources is None else self.source.select(sources)
        return PointerState(states, self.chosen[rows], source)


class PointerNetwork(nn.Module):
    """An encoder over items, a recurrent decoder that reads what it pointed at last, and an attention that points.

    The weights of `pointing` are the prediction itself. A position that was pointed at is not pointed at again. Where
    `complete`, the end can be chosen when nothing else is left, and only then.
    """

    # It packs no rows: one problem per row.
    capabilities: ClassVar[Capabilities] = Capabilities(tasks=("pointing",))

    def __init__(self, config: PointerConfig) -> None:
        super().__init__()
        self.config = config
        D = config.width
        self.items = nn.Linear(config.inputs * (1 + 2 * config.octaves), D)
        self.start_vector, self.end_vector = nn.Parameter(torch.randn(D)), nn.Parameter(torch.randn(D))
        attends = config.encoder == "attention"
        self.blocks = Stack(EncoderBlock(config.block()) for _ in range(config.encoder_layers * attends))
        self.norm = make_norm("layer", D) if attends else None
        layers = config.encoder_layers
        self.encoder = (
            None if attends else Recurrent(config.cell, D, D, layers, direction="both", dropout=config.dropout)
        )
        self.decoder = Recurrent(config.cell, D, D, config.decoder_layers, dropout=config.dropout, reads="prefix")
        parts = self.decoder.layers[0].parts
        self.bridge = Stack(nn.Linear(D, D * config.decoder_layers) for _ in range(parts))
        self.glimpses = Stack(ScoredAttention(config.score, D, D) for _ in range(config.glimpses))
        self.pointing = ScoredAttention(config.score, D, D)
        self.dropout = Dropout(config.dropout)
        initialise(self)

    def forward(self, batch: Pointings) -> Float[Tensor, "B T C"]:
        """The log-probability of every choice at every step, given the right choices before it."""
        source, states = self.encode(batch.source)
        outputs, _ = self.decoder(self._read(source, batch.inputs), None, states)
        return self._point(outputs, source, self._open(_before(batch.inputs, source.real.shape[1]), source))

    def logits(self, batch: Pointings) -> Float[Tensor, "B T C"]:
        return self(batch)

    def encode(self, points: Points) -> tuple[EncodedProblems, CellStates]:
        """The encoded items, and the decoder's initial state."""
        B, S, _ = points.values.shape
        x = self.items(features(points.values, self.config.octaves))
        real = torch.arange(S, device=x.device) < points.lengths[:, None]
        if self.encoder is not None:
            x, ends = self.encoder(x, points.lengths if points.padded else None)
            whole = ends[-1][0]
        else:
            visible = Visible(lengths=points.lengths if points.padded else None)
            for block in self.blocks:
                x = block(x, visible)
            assert self.norm is not None
            x = self.norm(x)
            whole = (x * real[..., None]).sum(1) / points.lengths[:, None]
        first, end = (vector.expand(B, 1, -1) for vector in (self.start_vector, self.end_vector))
        memory = torch.cat((end, x), dim=1)
        real = torch.cat((real.new_ones(B, 1), real), dim=1)
        source = EncodedProblems(torch.cat((first, x), dim=1), memory, self.pointing.keys(memory), real)
        layers = self.config.decoder_layers
        made = [layer(whole).tanh().chunk(layers, dim=-1) for layer in self.bridge]
        return source, tuple(zip(*made, strict=True))

    def start(self, batch: Pointings) -> PointerState:
        """The problems, encoded: what decoding starts from."""
        source, states = self.encode(batch.source)
        return PointerState(states, torch.zeros_like(source.real), source)

    def step(self, choices: Int[Tensor, " R"], state: PointerState) -> tuple[Float[Tensor, "R C"], PointerState]:
        """Log-probabilities of the choices that may follow `choices`; END as the first one stands for the start."""
        source, B = state.source, state.source.real.shape[0]
        chosen = state.chosen | (_one_hot(choices, state.chosen.shape[1]) & (choices != END)[:, None])
        # The rows of one problem stand side by side as its queries.
        read = self._read(source, choices.view(B, -1)).flatten(0, 1)
        output, states = self.decoder.step(read, state.states)
        visible = self._open(chosen.unflatten(0, (B, -1)), source)
        log_probs = self._point(output.unflatten(0, (B, -1)), source, visible)
        return log_probs.flatten(0, 1), PointerState(states, chosen, source)

    def _read(self, source: EncodedProblems, choices: Int[Tensor, "B T"]) -> Float[Tensor, "B T D"]:
        return self.dropout(source.read.take_along_dim(choices[..., None], dim=1))

    def _open(self, chosen: Bool[Tensor, "B T C"], source: EncodedProblems) -> Bool[Tensor, "B T C"]:
        """Which choices are open to each step."""
        left = source.real[:, None] & ~chosen
        if self.config.complete:
            left = torch.cat((~left[..., 1:].any(-1, keepdim=True), left[..., 1:]), dim=-1)
        return left

    def _point(
        self, query: Float[Tensor, "B T D"], source: EncodedProblems, open_choices: Bool[Tensor, "B T C"]
    ) -> Float[Tensor, "B T C"]:
        visible = Visible(built=open_choices[:, None])
        for glimpse in self.glimpses:
            keys = glimpse.keys(source.memory)
            query = query + glimpse(query, keys, source.memory, visible)
        if self.pointing.watcher is None:
            scores = self.pointing.score.compare(query, source.keys)
            return scores.masked_fill(~open_choices, -torch.inf).log_softmax(-1)
        weights = self.pointing.weights(query, source.keys, visible)
        return self.pointing.watched(query, source.keys, source.memory, weights).log()


def features(values: Float[Tensor, "B S X"], octaves: int) -> Float[Tensor, "B S F"]:
    """Each number x as it is, and sin and cos of 2^k pi x for every k below `octaves`."""
    if not octaves:
        return values
    angles = (values[..., None] * (math.pi * 2.0 ** torch.arange(octaves, device=values.device))).flatten(2)
    return torch.cat((values, angles.sin(), angles.cos()), dim=-1)


def _one_hot(choices: Int[Tensor, "*rows"], count: int) -> Bool[Tensor, "*rows C"]:
    return choices[..., None] == torch.arange(count, device=choices.device)


def _before(inputs: Int[Tensor, "B T"], count: int) -> Bool[Tensor, "B T C"]:
    """The positions that were pointed at before each step."""
    made = _one_hot(inputs, count) & (inputs != END)[..., None]
    return made.cumsum(1) > 0


MODEL = PointerConfig, PointerNetwork
