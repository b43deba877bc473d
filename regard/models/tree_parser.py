"""A parser: an encoder of sentences, BERT's or a recurrent one, and a decoder that writes trees in brackets."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.errors import ConfigError, check_at_least, check_fractions
from regard.models.bert import BertConfig, TextEmbedding
from regard.models.protocols import Capabilities
from regard.nn.attention import ACROSS, BEFORE, WITHIN
from regard.nn.batch import CLOSE, END, FIRST_LABEL, Parses
from regard.nn.blocks import Activation, BlockConfig, DecoderBlock, EncoderBlock, Stack, check_layer_heads, make_norm
from regard.nn.dropout import Dropout
from regard.nn.initialization import initialise_small
from regard.nn.kv_cache import DecoderState, KVCache, SourceMemory
from regard.nn.losses.cross_entropy import widened
from regard.nn.masks import CAUSAL, Visible
from regard.nn.recurrent.cells import CellKind
from regard.nn.recurrent.layers import Recurrent, RecurrentLayer

EDGES = 2
"""Vectors that stand before the words in what the decoder reads: of what is before the first, and after the last."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ParserConfig:
    """`labels` are the symbols of trees beside the closing bracket: `XX` or tags, one for each word, and brackets with
    their labels, as `(NP`. They follow from the data.

    - The encoder is BERT's (`attention`), so that its weights can be those of a trained one, or `recurrent`, layers of
      `cell` that read both ways. A word is the mean of its pieces.
    - The decoder reads, before each symbol, the last symbol, the bracket that is open and three words: the next, the
      one before it, and the first of what is open. It attends to all words.
    - Brackets stand at most `max_depth` deep, and at most `max_open` open between two words, so that chains of
      constituents of one child are bounded too.
    - `token_dropout` is the share of pieces that training hides.
    - `layer_heads`, `decoder_heads` and `cross_heads` give layers fewer heads, of the same width; 0 is none at all.
    """

    vocab_size: int
    labels: tuple[str, ...] = ()
    width: int = 256
    heads: int = 4
    layer_heads: tuple[int, ...] | None = None
    encoder: Literal["attention", "recurrent"] = "attention"
    cell: CellKind = "lstm"
    layers: int = 4
    decoder_heads: tuple[int, ...] | None = None
    cross_heads: tuple[int, ...] | None = None
    decoder_layers: int = 2
    feed_forward: int = 1024
    activation: Activation = "gelu"
    norm_epsilon: float = 1e-12
    segments: int = 0
    position_offset: int = 0
    max_depth: int = 60
    max_open: int = 12
    dropout: float = 0.1
    attention_dropout: float = 0.1
    activation_dropout: float = 0.0
    token_dropout: float = 0.0
    max_len: int = 512

    def __post_init__(self) -> None:
        check_at_least(self, 1, "vocab_size", "layers", "decoder_layers", "max_depth", "max_open", "max_len")
        check_fractions(self, "token_dropout")
        if len(set(self.labels)) < len(self.labels):
            raise ConfigError(f"labels={list(self.labels)} must differ from each other")
        if self.encoder == "recurrent" and (self.width % 2 or self.layer_heads is not None):
            raise ConfigError(
                f"encoder='recurrent' reads both ways, so width={self.width} must be even, and it has no layer_heads"
            )
        check_layer_heads("layer_heads", self.layer_heads, self.layers, self.block())
        for name in ("decoder_heads", "cross_heads"):
            check_layer_heads(name, getattr(self, name), self.decoder_layers, self.block())

    def block(self, norm_first: bool = False) -> BlockConfig:
        """The settings that concern a block, checked: norms come after in the encoder, as in BERT."""
        return BlockConfig.of(self, norm_first=norm_first)

    def bert(self) -> BertConfig:
        """The encoder as a BERT without a head."""
        names = BertConfig.__dataclass_fields__.keys() & self.__dataclass_fields__.keys() - {"labels"}
        return BertConfig(**{name: getattr(self, name) for name in names}, head="none", pooler="none")


@dataclass(frozen=True, slots=True)
class Brackets:
    """How far trees are written, at each of T steps: what follows from the symbols so far, and nothing else.

    `last` is the last symbol, `shifted` how many words are written, `depth` how many brackets are open, `opened` how
    many of these opened since the last word, `label` the symbol of the innermost and `start` its first word.
    """

    last: Int[Tensor, "B T"]
    shifted: Int[Tensor, "B T"]
    depth: Int[Tensor, "B T"]
    opened: Int[Tensor, "B T"]
    label: Int[Tensor, "B T"]
    start: Int[Tensor, "B T"]


@dataclass(frozen=True, slots=True)
class OpenBrackets:
    """The brackets that are open in R rows: `labels` and `starts` of each, the outermost first, beside a place 0 that
    stands for none."""

    shifted: Int[Tensor, " R"]
    depth: Int[Tensor, " R"]
    opened: Int[Tensor, " R"]
    labels: Int[Tensor, "R M"]
    starts: Int[Tensor, "R M"]

    def select(self, rows: Int[Tensor, " N"]) -> "OpenBrackets":
        return OpenBrackets(
            self.shifted[rows], self.depth[rows], self.opened[rows], self.labels[rows], self.starts[rows]
        )


class TreeSymbols(nn.Module):
    """Which symbols open a bracket and which stand for a word, and what may follow what."""

    opens: Tensor
    shifts: Tensor

    def __init__(self, config: ParserConfig) -> None:
        super().__init__()
        self.max_depth, self.max_open = config.max_depth, config.max_open
        opening = [label.startswith("(") for label in config.labels]
        if not any(opening) or all(opening):
            raise ConfigError(
                "model.labels must have brackets, as '(NP', and what stands for a word: they follow from data.train"
            )
        self.register_buffer("opens", torch.tensor([False, False, *opening]), persistent=False)
        self.register_buffer("shifts", torch.tensor([False, False, *(not one for one in opening)]), persistent=False)

    def follow(self, inputs: Int[Tensor, "B T"]) -> Brackets:
        """How far trees are written after each of these symbols."""
        opens, shifts = self.opens[inputs], self.shifts[inputs]
        count = opens.long().cumsum(1)
        depth = count - (inputs == CLOSE).long().cumsum(1)
        shifted = shifts.long().cumsum(1)
        before_word = torch.where(shifts, count, 0).cummax(1).values
        # The innermost open bracket is the last one that came to stand as deep as brackets stand now.
        steps = torch.arange(inputs.shape[1], device=inputs.device)
        same = opens[:, None, :] & (depth[:, None, :] == depth[:, :, None]) & (steps <= steps[:, None])
        place = torch.where(same, steps, -1).amax(-1)
        none, place = place < 0, place.clamp_min(0)
        return Brackets(
            inputs,
            shifted,
            depth,
            count - before_word,
            inputs.gather(1, place).masked_fill(none, END),
            shifted.gather(1, place).masked_fill(none, 0),
        )

    def begin(self, rows: int, device: torch.device) -> OpenBrackets:
        """Rows of which nothing is written."""
        zeros = torch.zeros(rows, dtype=torch.long, device=device)
        stack = zeros[:, None].repeat(1, self.max_depth + 1)
        return OpenBrackets(zeros, zeros.clone(), zeros.clone(), stack, stack.clone())

    def advance(self, choices: Int[Tensor, " R"], now: OpenBrackets) -> tuple[Brackets, OpenBrackets]:
        """The same as `follow`, for one more symbol of each row."""
        opens, shifts = self.opens[choices], self.shifts[choices]
        depth = now.depth + opens.long() - (choices == CLOSE).long()
        shifted = now.shifted + shifts.long()
        opened = (now.opened + opens.long()).masked_fill(shifts, 0)
        here = depth[:, None].clamp(0, self.max_depth)
        new = opens[:, None] & (torch.arange(now.labels.shape[1], device=choices.device) == here)
        labels = torch.where(new, choices[:, None], now.labels)
        starts = torch.where(new, shifted[:, None], now.starts)
        after = OpenBrackets(shifted, depth, opened, labels, starts)
        label, start = labels.gather(1, here), starts.gather(1, here)
        return Brackets(choices[:, None], shifted[:, None], depth[:, None], opened[:, None], label, start), after

    def possible(self, now: Brackets, lengths: Int[Tensor, "B 1"]) -> Bool[Tensor, "B T V"]:
        """The symbols that may come next, such that the end is a tree over all words of the row, and over no more.

        There is one always: a word while any is left and a bracket is open, else a closing bracket, else the end.
        """
        left, inside = now.shifted < lengths, now.depth > 0
        may_open = left & (now.depth < self.max_depth) & (now.opened < self.max_open)
        # A bracket closes when something stands in it, and the outermost one after the last word.
        may_close = inside & ~self.opens[now.last] & ~(left & (now.depth == 1))
        found = (may_open[..., None] & self.opens) | ((left & inside)[..., None] & self.shifts)
        found[..., CLOSE] = may_close
        found[..., END] = ~found.any(-1)
        return found


@dataclass(frozen=True, slots=True)
class ParserState:
    """A parser between two steps: the decoder's caches, the brackets that are open, and the words of the sentences."""

    decoder: DecoderState
    brackets: OpenBrackets
    words: Float[Tensor, "N W D"]
    lengths: Int[Tensor, " N"]

    def select(self, rows: Int[Tensor, " R"], sources: Int[Tensor, " N"] | None = None) -> "ParserState":
        words, lengths = (self.words, self.lengths) if sources is None else (self.words[sources], self.lengths[sources])
        return ParserState(self.decoder.select(rows, sources), self.brackets.select(rows), words, lengths)


class TreeDecoder(nn.Module):
    """Writes trees symbol by symbol: causal self-attention over the symbols, attention to the words."""

    def __init__(self, config: ParserConfig) -> None:
        super().__init__()
        D, V = config.width, FIRST_LABEL + len(config.labels)
        self.symbols = TreeSymbols(config)
        self.last, self.open = nn.Embedding(V, D), nn.Embedding(V, D)
        self.edges = nn.Parameter(torch.empty(EDGES, D))
        nn.init.normal_(self.edges, std=0.02)
        self.around = nn.Linear(3 * D, D)
        self.enter = make_norm("layer", D)
        usual = (None,) * config.decoder_layers
        heads = zip(config.decoder_heads or usual, config.cross_heads or usual, strict=True)
        self.blocks = Stack(DecoderBlock(config.block(norm_first=True), None, None, *own) for own in heads)
        self.norm = make_norm("layer", D)
        self.dropout = Dropout(config.dropout)
        self.output = nn.Linear(D, V)

    def memory(self, words: Float[Tensor, "B W D"]) -> Float[Tensor, "B S D"]:
        """What the decoder reads: the edges, then the words."""
        return torch.cat((self.edges.to(words.dtype).expand(words.shape[0], -1, -1), words), dim=1)

    def read(
        self, now: Brackets, memory: Float[Tensor, "B S D"], lengths: Int[Tensor, "B 1"]
    ) -> Float[Tensor, "B T D"]:
        """The vector of each step, from how far the tree is written."""
        following = torch.where(now.shifted < lengths, now.shifted + EDGES, 1)
        before = torch.where(now.shifted > 0, now.shifted + EDGES - 1, 0)
        first = torch.where(now.depth > 0, now.start + EDGES, 0)
        # A beam goes on with rows of no probability where it has too few others: what they read means nothing.
        end = memory.shape[1] - 1
        seen = [memory.take_along_dim(at.clamp_max(end)[..., None], dim=1) for at in (following, before, first)]
        x = self.last(now.last) + self.open(now.label) + self.around(torch.cat(seen, dim=-1))
        return self.dropout(self.enter(x))

    def choose(self, x: Float[Tensor, "B T D"], now: Brackets, lengths: Int[Tensor, "B 1"]) -> Float[Tensor, "B T V"]:
        """Log-probabilities of the symbols that may come next; the others have none."""
        logits = widened(self.output(self.dropout(self.norm(x))))
        return logits.masked_fill(~self.symbols.possible(now, lengths), -torch.inf).log_softmax(-1)

    def forward(
        self, inputs: Int[Tensor, "B T"], words: Float[Tensor, "B W D"], lengths: Int[Tensor, " B"]
    ) -> Float[Tensor, "B T V"]:
        memory, counts = self.memory(words), lengths[:, None]
        now = self.symbols.follow(inputs)
        x, visible = self.read(now, memory, counts), Visible(lengths=lengths + EDGES)
        for block in self.blocks:
            x = block(x, memory, CAUSAL, visible)
        return self.choose(x, now, counts)

    def start(self, words: Float[Tensor, "B W D"], lengths: Int[Tensor, " B"]) -> ParserState:
        memory, visible = self.memory(words), Visible(lengths=lengths + EDGES)
        state = DecoderState(
            caches=tuple(KVCache(None, block.attention.joined()) for block in self.blocks),
            memories=tuple(SourceMemory(*block.cross_attention.keys_values(memory), visible) for block in self.blocks),
        )
        return ParserState(state, self.symbols.begin(words.shape[0], words.device), memory, lengths)

    def step(self, choices: Int[Tensor, " R"], state: ParserState) -> tuple[Float[Tensor, "R V"], ParserState]:
        now, after = self.symbols.advance(choices, state.brackets)
        R, N = choices.shape[0], state.words.shape[0]
        lengths = state.lengths.repeat_interleave(R // N)[:, None]
        # The rows of one sentence stand side by side, as steps of it.
        sides = Brackets(*(getattr(now, name).view(N, -1) for name in Brackets.__dataclass_fields__))
        x = self.read(sides, state.words, state.lengths[:, None]).reshape(R, 1, -1)
        for block, cache, memory in zip(self.blocks, state.decoder.caches, state.decoder.memories, strict=True):
            x = block.step(x, cache, memory)
        found = self.choose(x, now, lengths).squeeze(1)
        return found, ParserState(state.decoder, after, state.words, state.lengths)


class TreeParser(nn.Module):
    """An encoder of sentences, and `head`, the decoder that writes their trees."""

    capabilities: ClassVar[Capabilities] = Capabilities(
        tasks=("parsing",),
        encoders=("bert",),
        tunes=("labels", "decoder_layers", "max_depth", "max_open", "token_dropout"),
        layer_heads={WITHIN: "layer_heads", BEFORE: "decoder_heads", ACROSS: "cross_heads"},
    )

    def __init__(self, config: ParserConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = TextEmbedding(config.bert())
        heads = config.layer_heads or (None,) * config.layers
        attends = config.encoder == "attention"
        self.encoder = Stack(EncoderBlock(config.block(), heads=own) for own in heads if attends)
        D = config.width
        self.recurrent = (
            None if attends else Recurrent(config.cell, D, D, config.layers, direction="both", dropout=config.dropout)
        )
        self.dropout = Dropout(config.dropout)
        self.head = TreeDecoder(config)
        initialise_small(self)
        for part in self.modules():
            if isinstance(part, RecurrentLayer):
                part.initialise()

    def forward(self, batch: Parses) -> Float[Tensor, "B T V"]:
        """The log-probability of every symbol at every step, given the right ones before it."""
        return self.head(batch.inputs.ids, self.encode(batch), batch.lengths)

    def logits(self, batch: Parses) -> Float[Tensor, "B T V"]:
        return self(batch)

    def encode(self, batch: Parses) -> Float[Tensor, "B W D"]:
        """A vector for every word, the mean of those of its pieces; one without pieces has zeros."""
        source, tokens = batch.source, batch.source.tokens
        if self.training and self.config.token_dropout:
            hidden = torch.rand(tokens.ids.shape, device=tokens.ids.device) < self.config.token_dropout
            x = self.embedding(source) * ~(hidden & (batch.word_of > 0))[..., None]
        else:
            x = self.embedding(source)
        visible = tokens.visible()
        for block in self.encoder:
            x = block(x, visible)
        if self.recurrent is not None:
            x = self.dropout(self.recurrent(x, tokens.lengths if tokens.padded else None)[0])
        numbers = torch.arange(1, batch.longest + 1, device=x.device)
        of = (batch.word_of[:, None, :] == numbers[:, None]).to(x.dtype)
        return (of @ x) / of.sum(-1, keepdim=True).clamp_min(1.0)

    def start(self, batch: Parses) -> ParserState:
        """The sentences, encoded: what decoding starts from."""
        return self.head.start(self.encode(batch), batch.lengths)

    def step(self, choices: Int[Tensor, " R"], state: ParserState) -> tuple[Float[Tensor, "R V"], ParserState]:
        """Log-probabilities of the symbols that may follow `choices`; END as the first one stands for the start."""
        return self.head.step(choices, state)


MODEL = ParserConfig, TreeParser
