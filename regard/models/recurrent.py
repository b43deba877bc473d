"""The recurrent encoder-decoder, with attention (Bahdanau 2015, Luong 2015) and without (Sutskever 2014)."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.errors import ConfigError, check_at_least, check_fractions
from regard.models.protocols import Capabilities, check_coverage, check_shared_vocabulary
from regard.nn.attention_scores import ScoredAttention
from regard.nn.batch import Pairs, Tokens
from regard.nn.blocks import Stack
from regard.nn.copy_mechanism import CopyProjection, known_only
from regard.nn.dropout import Dropout
from regard.nn.embeddings import Embedding, OutputProjection
from regard.nn.initialization import initialise
from regard.nn.masks import Visible
from regard.nn.recurrent.cells import CellKind
from regard.nn.recurrent.layers import CellStates, Direction, Recurrent
from regard.text.config import SPECIALS

UNKNOWN = SPECIALS.index("<unk>")

ScoreKind = Literal["none", "cosine", "additive", "location", "general", "dot", "scaled-dot"]


@dataclass(frozen=True, kw_only=True, slots=True)
class RecurrentConfig:
    """How the source reaches the decoder is up to three settings.

    - `attention` is the score by which the decoder attends to the source, `none` for a decoder without attention.
    - `attend` says when: `before` its step, with the previous state, and the context goes into it (Bahdanau 2015),
      or `after` it, with the new state (Luong 2015). With `input_feeding` the vector behind each prediction goes into
      the next step.
    - `context` is for a decoder without attention: the source as one vector, seen only as the `first` state
      (Sutskever 2014) or given at `every` step too (Cho 2014).

    - `copy` lets each prediction be a mixture of generating a word and copying one that is attended to (See et al.
      2017): p_gen = sigmoid(w [context; state; word] + b). Words outside the vocabulary are then copied as they are.
    - `coverage` above 0 is the weight of their coverage loss: of attending again to what was attended to before. What
      all steps before have attended to, times a learned number, is then added to the scores of each step.

    `bridge` makes the decoder's first state of the encoder's last one: `copy` it layer by layer, or `project` the top
    layer's. `share` is as in the Transformer.
    """

    source_vocab_size: int
    target_vocab_size: int
    width: int = 512
    cell: CellKind = "lstm"
    encoder_layers: int = 1
    decoder_layers: int = 1
    direction: Direction = "both"
    attention: ScoreKind = "additive"
    attend: Literal["before", "after"] = "before"
    input_feeding: bool = False
    context: Literal["first", "every"] = "first"
    bridge: Literal["copy", "project"] = "project"
    share: Literal["all", "output", "none"] = "all"
    output_bias: bool = False
    copy: bool = False
    coverage: float = 0.0
    dropout: float = 0.1
    max_len: int = 1024

    def __post_init__(self) -> None:
        check_shared_vocabulary(self)
        check_at_least(
            self, 1, "width", "encoder_layers", "decoder_layers", "max_len", "source_vocab_size", "target_vocab_size"
        )
        check_fractions(self, "dropout")
        check_coverage(self.coverage)
        if self.coverage and self.attention == "none":
            raise ConfigError(f"coverage={self.coverage} needs an attention: it is of what was attended to")
        if self.direction == "both" and self.width % 2:
            raise ConfigError(f"width={self.width} must be even for a bidirectional encoder")
        if self.bridge == "copy" and self.encoder_layers != self.decoder_layers:
            raise ConfigError(
                f"bridge='copy' needs as many layers on both sides, not encoder_layers={self.encoder_layers} and "
                f"decoder_layers={self.decoder_layers}; use bridge='project'"
            )
        if self.attention == "none" and self.input_feeding:
            raise ConfigError("input_feeding=true needs an attention: without one the step before says it all")
        if self.copy and (self.attention == "none" or self.source_vocab_size != self.target_vocab_size):
            raise ConfigError("copy=true needs an attention, which finds the words, and one vocabulary for both sides")
        if self.attention != "none" and self.context == "every":
            raise ConfigError("context='every' is for attention='none': attention gives each step a context of its own")


@dataclass(frozen=True, slots=True)
class RecurrentSource:
    """The encoded sources of a batch: one row per source, however many rows of a search attend to it.

    `memory` are the encoder's outputs and `keys` what the attention compares them by; `context` is its last output.
    `ids` are the tokens themselves, to copy.
    """

    memory: Float[Tensor, "B S D"]
    keys: Float[Tensor, "B S D"]
    visible: Visible
    context: Float[Tensor, "B D"]
    ids: Int[Tensor, "B S"]

    def select(self, sources: Int[Tensor, " N"]) -> "RecurrentSource":
        lengths = self.visible.lengths
        visible = self.visible if lengths is None else Visible(lengths=lengths[sources])
        return RecurrentSource(
            self.memory[sources], self.keys[sources], visible, self.context[sources], self.ids[sources]
        )


@dataclass(frozen=True, slots=True)
class RecurrentState:
    """The decoder between two steps: `states` of its layers and the vector to `feed` by row, and the source.

    With coverage, `covered` is how much of each position all steps so far have attended to.
    """

    states: CellStates
    feed: Float[Tensor, "R D"]
    source: RecurrentSource
    covered: Float[Tensor, "R S"] | None = None

    def select(self, rows: Int[Tensor, " R"], sources: Int[Tensor, " N"] | None = None) -> "RecurrentState":
        states = tuple(tuple(part[rows] for part in state) for state in self.states)
        covered = None if self.covered is None else self.covered[rows]
        source = self.source if sources is None else self.source.select(sources)
        return RecurrentState(states, self.feed[rows], source, covered)


class RecurrentModel(nn.Module):
    """A recurrent encoder, a recurrent decoder that starts from its last state, and an attention between them."""

    # It packs no rows: a recurrence runs on past the end of a sequence, into the next of its row.
    capabilities: ClassVar[Capabilities] = Capabilities(tasks=("translation", "summarization"))

    def __init__(self, config: RecurrentConfig) -> None:
        super().__init__()
        self.config = config
        D = config.width
        self.source = Embedding(config.source_vocab_size, D, dropout=config.dropout)
        shared = config.share == "all"
        self.target = self.source if shared else Embedding(config.target_vocab_size, D, dropout=config.dropout)
        tied = None if config.share == "none" else self.target.tokens.weight
        head = CopyProjection if config.copy else OutputProjection
        self.head = head(D, config.target_vocab_size, bias=config.output_bias, tied=tied)
        self.gate = nn.Linear(3 * D, 1) if config.copy else None
        self.encoder = Recurrent(
            config.cell, D, D, config.encoder_layers, direction=config.direction, dropout=config.dropout
        )
        self.decoder = Recurrent(
            config.cell,
            D * (1 + self._contexts()),
            D,
            config.decoder_layers,
            dropout=config.dropout,
            reads="prefix",
        )
        parts = self.encoder.layers[0].parts
        self.bridge = (
            Stack(nn.Linear(D, D * config.decoder_layers) for _ in range(parts)) if config.bridge == "project" else None
        )
        attends = config.attention != "none"
        self.cross_attention = ScoredAttention(config.attention, D, D, config.max_len) if attends else None
        self.coverage = nn.Parameter(torch.zeros(1)) if config.coverage else None
        self.readout = nn.Linear(D * self._readout_width(), D) if self._readout_width() > 1 else None
        self.dropout = Dropout(config.dropout)
        initialise(self)

    def forward(self, batch: Pairs) -> Float[Tensor, "B T P"]:
        """For each token that the decoder reads, the vector from which `head` predicts the next one.

        Its width is D; with `copy` it also says what may be copied.
        """
        return self._decoded(batch)[0]

    def attended(self, batch: Pairs) -> tuple[Float[Tensor, "B T P"], Float[Tensor, "B T S"]]:
        """The same, and where each step attended in the source."""
        vectors, weights = self._decoded(batch)
        assert weights is not None, "a model without attention attends to nothing"
        return vectors, weights

    def _decoded(self, batch: Pairs) -> tuple[Tensor, Tensor | None]:
        source, states = self.encode(batch.source)
        vectors, weights = self.decode(batch.inputs, source, states)
        return vectors if weights is None else self._with_copies(vectors, weights, source.ids), weights

    def logits(self, batch: Pairs) -> Float[Tensor, "B T C"]:
        """The scores of every next token, given the true ones before it."""
        return self.head(self(batch))

    def encode(self, source: Tokens) -> tuple[RecurrentSource, CellStates]:
        """The encoded source, and the decoder's initial state."""
        assert isinstance(source, Tokens), "a recurrent model reads one sequence per row"
        words = self.source(self._known(source.ids))
        memory, ends = self.encoder(words, source.lengths if source.padded else None)
        memory = self.dropout(memory)
        keys = memory if self.cross_attention is None else self.cross_attention.keys(memory)
        return RecurrentSource(memory, keys, source.seen_from(source), ends[-1][0], source.ids), self._first_states(
            ends
        )

    def decode(
        self, inputs: Tokens, source: RecurrentSource, states: CellStates
    ) -> tuple[Float[Tensor, "B T Q"], Float[Tensor, "B T S"] | None]:
        """What each prediction is read out from, and the attention that it was read out with."""
        words = self.target(self._known(inputs.ids))
        if self._one_by_one():
            return self._decode_one_by_one(words, source, states)
        # No step depends on another's context, so that all can be computed at once.
        context = source.context[:, None].expand(-1, words.shape[1], -1)
        x = torch.cat((words, context), dim=-1) if self.config.context == "every" else words
        outputs, _ = self.decoder(x, None, states)
        if self.cross_attention is None:
            return self._read_out(outputs, context, words), None
        weights = self.cross_attention.weights(outputs, source.keys, source.visible)
        weights = self.cross_attention.watched(outputs, source.keys, source.memory, weights)
        return self._read_out(outputs, weights @ source.memory, words), weights

    def start(self, batch: Pairs) -> RecurrentState:
        """The source, encoded: what decoding starts from."""
        source, states = self.encode(batch.source)
        covered = None if self.coverage is None else source.memory.new_zeros(source.memory.shape[:2])
        return RecurrentState(states, torch.zeros_like(source.context), source, covered)

    def step(self, choices: Int[Tensor, " R"], state: RecurrentState) -> tuple[Float[Tensor, "R C"], RecurrentState]:
        """Log-probabilities of the tokens that may follow `choices`."""
        words = self.target(self._known(choices)[:, None]).squeeze(1)
        attention, source, kept = self.cross_attention, state.source, []
        B = source.memory.shape[0]

        def look(query: Tensor) -> Tensor:
            if attention is None:
                return source.context.repeat_interleave(query.shape[0] // B, dim=0)
            # A source's rows stand side by side as its queries.
            queries = query.unflatten(0, (B, -1))
            covered = None if state.covered is None else state.covered.unflatten(0, (B, -1))
            weights = attention.weights(queries, source.keys, source.visible, self._offset(covered))
            kept.append(attention.watched(queries, source.keys, source.memory, weights))
            return (kept[-1] @ source.memory).flatten(0, 1)

        vectors, states = self._advance(words, state.states, state.feed, look)
        covered = None if state.covered is None else state.covered + kept[-1].flatten(0, 1)
        after = RecurrentState(states, self._vector(vectors), source, covered)
        if self.gate is None:
            return self.head(vectors).log_softmax(-1), after
        return self.head(self._with_copies(vectors.unflatten(0, (B, -1)), kept[-1], source.ids)).flatten(0, 1), after

    def _advance(self, words: Tensor, states: CellStates, feed: Tensor, look) -> tuple[Tensor, CellStates]:
        """One step of all rows: the vector of its prediction, and the states after it."""
        fed = [feed] if self.config.input_feeding else []
        if self.cross_attention is not None and self.config.attend == "after":
            output, states = self.decoder.step(torch.cat((words, *fed), dim=-1), states)
            return self._read_out(output, look(output), words), states
        context = look(states[-1][0])
        given = [context] if self._gives_context() else []
        output, states = self.decoder.step(torch.cat((words, *given, *fed), dim=-1), states)
        return self._read_out(output, context, words), states

    def _offset(self, covered: Tensor | None) -> Tensor | None:
        """What is added to the scores of positions that have been attended to so much."""
        return None if covered is None or self.coverage is None else self.coverage * covered

    def _decode_one_by_one(self, words: Tensor, source: RecurrentSource, states: CellStates) -> tuple[Tensor, Tensor]:
        """All steps in turn. A watcher sees their weights as one matrix; if it changes that, they run again."""
        attention = self.cross_attention
        assert attention is not None
        vectors, queries, weights = self._steps(words, source, states)
        seen = attention.watched(queries, source.keys, source.memory, weights)
        if not (seen is weights or torch.equal(seen, weights)):
            self.decoder.seen_again(words.shape[1])
            vectors, _, weights = self._steps(words, source, states, seen)
        return vectors, weights

    def _steps(
        self, words: Tensor, source: RecurrentSource, states: CellStates, forced: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The vectors, queries and weights of every step; `forced` weights are used as they are."""
        attention = self.cross_attention
        assert attention is not None
        queries, kept, vectors, outputs, contexts = [], [], [], [], []
        feed = torch.zeros_like(source.context)
        covered = None if self.coverage is None else source.memory.new_zeros(len(feed), 1, source.memory.shape[1])
        mask = source.visible.mask(1, source.memory.shape[1], words.device)
        visible = replace(source.visible, built=mask)

        def look(query: Tensor) -> Tensor:
            nonlocal covered
            t = len(queries)
            queries.append(query)
            if forced is None:
                found = attention.weights(query[:, None], source.keys, visible, self._offset(covered))
            else:
                found = forced[:, [t]]
            kept.append(found)
            covered = None if covered is None else covered + found
            return (found @ source.memory).squeeze(1)

        if self.config.input_feeding or self.config.attend == "after":
            for word in words.unbind(1):
                found, states = self._advance(word, states, feed, look)
                vectors.append(found)
                feed = self._vector(found)
            return torch.stack(vectors, dim=1), torch.stack(queries, dim=1), torch.cat(kept, dim=1)
        join = self._join(words)
        for t in range(words.shape[1]):
            context = look(states[-1][0])
            output, states = join(t, context, states)
            outputs.append(output)
            contexts.append(context)
        # No step depends on another's prediction, so that all are computed at once.
        read = self._read_out(torch.stack(outputs, dim=1), torch.stack(contexts, dim=1), words)
        return read, torch.stack(queries, dim=1), torch.cat(kept, dim=1)

    def _join(self, words: Tensor) -> Callable[[int, Tensor, CellStates], tuple[Tensor, CellStates]]:
        """The decoder's step at a position, given its context.

        Where the first cell projects its inputs by one matrix, the words' part of the product is computed beforehand,
        for all positions at once.
        """
        cell = self.decoder.layers[0].cells[0]
        if cell.widens:
            return lambda t, context, states: self.decoder.step(torch.cat((words[:, t], context), dim=-1), states)
        weight, bias = cell.inputs.weight, cell.inputs.bias
        of_words, of_context = weight.split(words.shape[-1], dim=1)
        ahead = F.linear(words, of_words, bias).unbind(1)

        def step(t: int, context: Tensor, states: CellStates) -> tuple[Tensor, CellStates]:
            return self.decoder.step(ahead[t] + F.linear(context, of_context), states, projected=True)

        return step

    def _first_states(self, ends: CellStates) -> CellStates:
        if self.bridge is None:
            return ends
        layers = self.config.decoder_layers
        made = [layer(part).tanh().chunk(layers, dim=-1) for layer, part in zip(self.bridge, ends[-1], strict=True)]
        return tuple(zip(*made, strict=True))

    def _read_out(self, output: Tensor, context: Tensor, words: Tensor) -> Tensor:
        """The vector of a prediction, from the decoder's output, the context and the word read.

        Where words can be copied, one more number follows: the logit of generating rather than copying.
        """
        if self.readout is None:
            return self.dropout(output)
        given = (output, context, words) if self._gives_context() else (output, context)
        vector = self.dropout(torch.tanh(self.readout(torch.cat(given, dim=-1))))
        if self.gate is None:
            return vector
        return torch.cat((vector, self.gate(torch.cat((context, output, words), dim=-1))), dim=-1)

    def _vector(self, read_out: Tensor) -> Tensor:
        return read_out if self.gate is None else read_out[..., :-1]

    def _with_copies(self, read_out: Tensor, weights: Tensor, ids: Tensor) -> Tensor:
        """The head's input: with copying, also the attention weights of each prediction and the ids attended to."""
        if self.gate is None:
            return read_out
        assert isinstance(self.head, CopyProjection)
        return self.head.packed(read_out[..., :-1], read_out[..., -1:], weights, ids)

    def _known(self, ids: Tensor) -> Tensor:
        return known_only(ids, self.config.target_vocab_size, UNKNOWN) if self.config.copy else ids

    def _gives_context(self) -> bool:
        """Whether a step is given the context beside the word."""
        if self.config.attention == "none":
            return self.config.context == "every"
        return self.config.attend == "before"

    def _one_by_one(self) -> bool:
        one_by_one = self.config.attend == "before" or self.config.input_feeding or self.config.coverage > 0
        return self.config.attention != "none" and one_by_one

    def _contexts(self) -> int:
        return int(self._gives_context()) + int(self.config.input_feeding)

    def _readout_width(self) -> int:
        if self._gives_context():
            return 3
        return 1 if self.config.attention == "none" else 2


MODEL = RecurrentConfig, RecurrentModel
