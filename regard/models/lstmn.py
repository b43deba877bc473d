"""The long short-term memory-network (Cheng 2016): an LSTM that attends to all its past states, not only the last.

Where an LSTM takes the state before, h and c, this takes a mean of every state on its tape, weighed by attention:

    a_i = v' tanh(Wh h_i + Wx x_t + Wm m_{t-1}),  s = softmax(a),  m_t = sum_i s_i h_i,  n_t = sum_i s_i c_i
    i, f, o = sigmoid(W [m_t, x_t] + b),  g = tanh(the same),  c_t = f n_t + i g,  h_t = o tanh(c_t)
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.errors import DataError, check_at_least, check_fractions
from regard.models.protocols import Capabilities
from regard.models.recurrent_language import TextState
from regard.nn.attention import WITHIN, softmax_visible
from regard.nn.attention_scores import ScoredAttention
from regard.nn.batch import Pairs, StreamedWindows, Tokens, Windows
from regard.nn.blocks import Stack
from regard.nn.dropout import Dropout
from regard.nn.embeddings import Embedding, OutputProjection
from regard.nn.initialization import initialise
from regard.nn.recurrent.cells import Reads, StateLinear, StateWatcher

Tape = tuple[Tensor, Tensor, Tensor, Tensor]
"""Rows of the mean last read, m; of the states h and c so far, and of which of them the row has, the last one last."""


class LSTMNLayer(nn.Module):
    """One layer. It attends to its last `span` states; `attention` is watched as one matrix over all positions."""

    def __init__(self, input_width: int, width: int, span: int) -> None:
        super().__init__()
        self.width, self.span = width, span
        self.inputs = nn.Linear(input_width, 4 * width)
        self.hidden = StateLinear(width, 4 * width, bias=False)
        self.attention = ScoredAttention("additive", input_width + width, width, sides=WITHIN)
        self.state_watcher: StateWatcher | None = None
        self.reads: Reads = "source"
        self.backward = False

    def initialise(self) -> None:
        """As an LSTM: begin by keeping, with matrices over the state that neither fade nor burst."""
        for matrix in self.hidden.weight.data.split(self.width):
            nn.init.orthogonal_(matrix)
        self.inputs.bias.data.chunk(4)[1].fill_(1.0)

    def zeros(self, like: Float[Tensor, " B *rest"]) -> Tape:
        """The state before anything was read."""
        B, D = like.shape[0], self.width
        empty = like.new_zeros(B, 0, D)
        return like.new_zeros(B, D), empty, empty, torch.zeros(B, 0, dtype=torch.bool, device=like.device)

    def forward(
        self, x: Float[Tensor, "B T X"], tape: Tape, lengths: Int[Tensor, " B"] | None = None
    ) -> tuple[Float[Tensor, "B T D"], Tape]:
        """The output at every position, and the tape after the last of each row.

        A watcher sees all positions together; if it changes the weights, they are gone through again.
        """
        outputs, end, means, weights, queries = self._steps(x, tape, None)
        used = weights
        if self.attention.watcher is not None:
            keys = self.attention.keys(end[1])
            seen = self.attention.watched(queries, keys, end[1], weights)
            if not torch.equal(seen, weights):
                outputs, end, means, used, _ = self._steps(x, tape, seen)
        self._tell(x, outputs, end, means, used)
        return outputs, self._kept(end, means, lengths, tape[1].shape[1], x.shape[1])

    def step(self, x: Float[Tensor, "B X"], tape: Tape) -> tuple[Float[Tensor, "B D"], Tape]:
        """One more position."""
        output, (mean, h, c, there), means, weights, _ = self._steps(x[:, None], tape, None)
        self._tell(x[:, None], output, (mean, h, c, there), means, weights)
        last = slice(max(0, h.shape[1] - self.span), None)
        return output.squeeze(1), (mean, h[:, last], c[:, last], there[:, last])

    @torch.no_grad()
    def _tell(self, x: Tensor, outputs: Tensor, whole: Tape, means: Tensor, weights: Tensor) -> None:
        """The gates and states of these positions to whoever watches; m and n are what was read from the tape."""
        if self.state_watcher is None:
            return
        cells = whole[2]
        i, f, g, o = (self.inputs(x) + self.hidden(means)).chunk(4, dim=-1)
        gates = {"i": i.sigmoid(), "f": f.sigmoid(), "o": o.sigmoid(), "g": g.tanh()}
        states = {"h": outputs, "c": cells[:, cells.shape[1] - x.shape[1] :], "m": means, "n": weights @ cells}
        self.state_watcher(gates, states)

    def _steps(
        self, x: Tensor, tape: Tape, forced: Float[Tensor, "B T S"] | None
    ) -> tuple[Tensor, Tape, Tensor, Tensor, Tensor]:
        """Outputs, the whole tape, and of every position its mean, its weights over the tape, and its query."""
        mean, h, c, there = tape
        B, T, S, before = x.shape[0], x.shape[1], h.shape[1] + x.shape[1], h.shape[1]
        keys, projected = self.attention.keys(h), self.inputs(x)
        means, kept, queries = [], [], []
        there = torch.cat((there, there.new_ones(B, T)), dim=1)
        for t in range(T):
            end = before + t
            first = max(0, end - self.span)
            query = torch.cat((x[:, t], mean), dim=-1)[:, None]
            if forced is None:
                scores = self.attention.score.compare(query, keys[:, first:])
                weights = softmax_visible(scores, there[:, None, first:end])
            else:
                weights = forced[:, t : t + 1, first:end]
            mean, cell = (weights @ h[:, first:]).squeeze(1), (weights @ c[:, first:]).squeeze(1)
            i, f, g, o = (projected[:, t] + self.hidden(mean)).chunk(4, dim=-1)
            cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
            out = (o.sigmoid() * cell.tanh())[:, None]
            h, c = torch.cat((h, out), dim=1), torch.cat((c, cell[:, None]), dim=1)
            keys = torch.cat((keys, self.attention.keys(out)), dim=1)
            means.append(mean)
            kept.append(nn.functional.pad(weights, (first, S - end)))
            queries.append(query)
        whole = (mean, h, c, there)
        return h[:, before:], whole, torch.stack(means, dim=1), torch.cat(kept, dim=1), torch.cat(queries, dim=1)

    def _kept(self, whole: Tape, means: Tensor, lengths: Tensor | None, before: int, T: int) -> Tape:
        """The last `span` states of each row's own, those of shorter rows to the right."""
        mean, h, c, there = whole
        keep = min(self.span, before + T)
        if lengths is None:
            last = slice(before + T - keep, None)
            return mean, h[:, last], c[:, last], there[:, last]
        rows = torch.arange(len(lengths), device=h.device)
        places = (before + lengths)[:, None] - keep + torch.arange(keep, device=h.device)
        chosen = places.clamp(min=0)
        own = (places >= 0) & there[rows[:, None], chosen]
        return means[rows, lengths - 1], h[rows[:, None], chosen], c[rows[:, None], chosen], own


Tapes = tuple[Tape, ...]  # one per layer


@dataclass(frozen=True, kw_only=True, slots=True)
class LSTMNConfig:
    """`span` is how many of its last states a layer attends to; they are all that it remembers."""

    vocab_size: int
    width: int = 128
    layers: int = 1
    span: int = 128
    tied: bool = True
    output_bias: bool = True
    dropout: float = 0.1
    max_len: int = 1024

    def __post_init__(self) -> None:
        check_at_least(self, 1, "vocab_size", "width", "layers", "span", "max_len")
        check_fractions(self, "dropout")


class LSTMN(nn.Module):
    """An embedding, layers that attend to their own past states, and a head over the vocabulary."""

    # It packs no rows: a recurrence runs on past the end of a document, into the next of its row.
    capabilities: ClassVar[Capabilities] = Capabilities(tasks=("language",))

    def __init__(self, config: LSTMNConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = Embedding(config.vocab_size, config.width, dropout=config.dropout)
        self.layers = Stack(LSTMNLayer(config.width, config.width, config.span) for _ in range(config.layers))
        tied = self.embedding.tokens.weight if config.tied else None
        self.head = OutputProjection(config.width, config.vocab_size, bias=config.output_bias, tied=tied)
        self.dropout = Dropout(config.dropout)
        initialise(self)
        for layer in self.layers:
            layer.initialise()

    def forward(self, batch: Windows | StreamedWindows | Pairs) -> Float[Tensor, "B T D"]:
        """For each token read, the vector from which `head` predicts the next one."""
        assert isinstance(batch.inputs, Tokens), "a recurrent model reads one sequence per row"
        return self.carry(batch.inputs)[0]

    def read(self, inputs: Tokens) -> Float[Tensor, "B T D"]:
        """The same of tokens alone."""
        return self.carry(inputs)[0]

    def logits(self, batch: Windows | StreamedWindows | Pairs) -> Float[Tensor, "B T V"]:
        """The scores of every next token, given the true ones before it."""
        return self.head(self(batch))

    def carry(self, inputs: Tokens, states: Tapes | None = None) -> tuple[Float[Tensor, "B T D"], Tapes]:
        """The same from `states` on, and the states after it."""
        x, ends = self._read(self.embedding(inputs.ids), None, states)
        return self.dropout(x), ends

    def start(self, batch: Tokens) -> TextState:
        """Prompts, all but the last token of each read: `step` with those last tokens continues from here."""
        if int(batch.lengths.min()) < 1:
            raise DataError("a prompt without a token cannot be continued")
        words = self.embedding(batch.ids)
        if batch.ids.shape[1] == 1:
            return TextState(self._nothing(words))
        read = batch.lengths - 1
        _, states = self._read(words[:, :-1], read.clamp(min=1) if batch.padded else None, None)
        begun = (read > 0)[:, None]  # a prompt of one token has read nothing yet
        return TextState(tuple((torch.where(begun, mean, 0.0), h, c, there & begun) for mean, h, c, there in states))

    def step(self, choices: Int[Tensor, " R"], state: TextState) -> tuple[Float[Tensor, "R V"], TextState]:
        """Log-probabilities of the tokens that may follow `choices`."""
        x, ends = self.embedding(choices[:, None]).squeeze(1), []
        for number, (layer, own) in enumerate(zip(self.layers, state.states, strict=True)):
            mean, h, c, there = own
            x, end = layer.step(self.dropout(x) if number else x, (mean, h, c, there))
            ends.append(end)
        return self.head(self.dropout(x)).log_softmax(-1), TextState(tuple(ends))

    def _read(self, x: Tensor, lengths: Tensor | None, states: Tapes | None) -> tuple[Tensor, Tapes]:
        ends = []
        for number, (layer, own) in enumerate(zip(self.layers, states or self._nothing(x), strict=True)):
            x, end = layer(self.dropout(x) if number else x, own, lengths)
            ends.append(end)
        return x, tuple(ends)

    def _nothing(self, like: Tensor) -> Tapes:
        return tuple(layer.zeros(like) for layer in self.layers)


MODEL = LSTMNConfig, LSTMN
