"""A Transformer that writes from texts, images and sounds: attended to in turn, as one, or by a gate."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.data.audio.log_mel import MelScale
from regard.errors import ConfigError, check_at_least, check_fractions
from regard.models.captioner import CaptionConfig, ConvolutionalStem
from regard.models.listener import ListenerConfig, Subsampling, TransformerEncoder
from regard.models.protocols import Capabilities
from regard.nn.attention import ACROSS, BEFORE, Attention, softmax_visible
from regard.nn.batch import Points, SourcedTexts, Tokens
from regard.nn.blocks import Activation, BlockConfig, EncoderBlock, FeedForward, NormKind, Stack, Sublayer, make_norm
from regard.nn.embeddings import Embedding, OutputProjection
from regard.nn.initialization import initialise
from regard.nn.kv_cache import KVCache, SourceMemory
from regard.nn.masks import Visible
from regard.nn.positions import Positions

SourceKind = Literal["text", "image", "sound"]
Combining = Literal["turn", "concatenate", "gate"]


@dataclass(frozen=True, kw_only=True, slots=True)
class SourcesConfig:
    """`sources` says what each source is, in their order. Texts have one encoder if it is `shared`, or one each.

    How a decoder layer attends is `combine`: to each source in `turn`, to all `concatenate`d as one, or to each apart,
    what came of each then weighed by a learned `gate` (hierarchical attention, Libovický and Helcl 2017). In training
    each source is left out of a row with probability `source_dropout`, never all of them, so that the model can do
    without. Pixels, between 0 and 1, are read less `image_mean` and over `image_std`: a convolution learns much sooner
    from images whose own these are. Sounds are read as log-mel frames, as `ListenerConfig` says, each of at most
    `max_frames`, by a convolution that keeps one position for every `subsampling` frames and `encoder_layers` of
    self-attention.
    """

    vocab_size: int
    sources: tuple[SourceKind, ...] = ("text", "text")
    combine: Combining = "turn"
    shared: bool = True
    source_dropout: float = 0.1
    image_size: int = 32
    patch_size: int = 8
    channels: int = 3
    image_mean: float = 0.5
    image_std: float = 0.25
    rate: int = 16000
    window: int = 400
    hop: int = 160
    bands: int = 80
    mel_scale: MelScale = "slaney"
    max_frames: int = 3000
    subsampling: int = 4
    width: int = 128
    heads: int = 4
    encoder_layers: int = 2
    decoder_layers: int = 2
    feed_forward: int = 256
    activation: Activation = "relu"
    norm: NormKind = "layer"
    norm_epsilon: float = 1e-5
    dropout: float = 0.1
    max_len: int = 128

    def __post_init__(self) -> None:
        check_at_least(self, 1, "vocab_size", "encoder_layers", "decoder_layers", "max_len")
        check_fractions(self, "dropout", "source_dropout")
        if not self.image_std > 0:
            raise ConfigError(f"image_std={self.image_std} must be positive")
        if not self.sources:
            raise ConfigError("sources=[] must name at least one: text, image or sound")
        self.block()
        self.picture()
        self.hearing()

    @property
    def places(self) -> int:
        """Places of an image that the decoder attends to."""
        return (self.image_size // self.patch_size) ** 2

    def block(self) -> BlockConfig:
        """The settings that concern a block, checked; norms always come first."""
        return BlockConfig.of(self, norm_first=True)

    def picture(self) -> CaptionConfig:
        """How an image is read: by a captioner's convolution."""
        names = ("vocab_size", "image_size", "patch_size", "channels", "width", "heads", "feed_forward", "dropout")
        return CaptionConfig(**{name: getattr(self, name) for name in names}, encoder="convolution")

    def hearing(self) -> ListenerConfig:
        """How a sound is read: by the Transformer encoder of a listener."""
        names = (
            *("vocab_size", "rate", "window", "hop", "bands", "mel_scale", "max_frames", "subsampling", "width"),
            *("heads", "encoder_layers", "feed_forward", "activation", "norm", "norm_epsilon", "dropout"),
        )
        return ListenerConfig(**{name: getattr(self, name) for name in names}, ctc=0.0)


@dataclass(frozen=True, slots=True)
class EncodedSource:
    """A source's vectors, and which of its places are there; those of a missing one mean nothing."""

    vectors: Float[Tensor, "B S D"]
    real: Bool[Tensor, "B S"]


@dataclass(frozen=True, slots=True)
class SourcesState:
    """The decoder between two steps: `caches` by row; by layer the `memories` of what is attended to; who is there."""

    caches: tuple[KVCache, ...]
    memories: tuple[tuple[SourceMemory, ...], ...]
    present: Bool[Tensor, "B N"]

    def select(self, rows: Int[Tensor, " R"], sources: Int[Tensor, " M"] | None = None) -> "SourcesState":
        caches = tuple(cache.select(rows) for cache in self.caches)
        if sources is None:
            return SourcesState(caches, self.memories, self.present)
        memories = tuple(tuple(_selected(one, sources) for one in layer) for layer in self.memories)
        return SourcesState(caches, memories, self.present[sources])


def _selected(memory: SourceMemory, sources: Tensor) -> SourceMemory:
    mask = memory.visible.built
    assert mask is not None
    return SourceMemory(memory.keys[sources], memory.values[sources], Visible(built=mask[sources]))


class SourcesBlock(nn.Module):
    """Causal self-attention, attention to the sources, then feed-forward.

    While `shares` is a list, each pass adds how much each source had to say: (B, T, N), the shares of a gate, of the
    attention to all sources as one, or of the lengths of what was added in turn.
    """

    def __init__(self, block: BlockConfig, count: int, combine: Combining) -> None:
        super().__init__()
        self.combine = combine
        attentions = 1 if combine == "concatenate" else count
        self.attention = Attention(block.width, block.heads, sides=BEFORE)
        self.cross_attentions = Stack(Attention(block.width, block.heads, sides=ACROSS) for _ in range(attentions))
        self.around_attention = Sublayer(block)
        self.around_cross_attentions = Stack(Sublayer(block) for _ in range(count if combine == "turn" else 1))
        self.gate = nn.Linear(block.width, count) if combine == "gate" else None
        self.feed_forward = FeedForward(block)
        self.around_feed_forward = Sublayer(block)
        self.shares: list[Tensor] | None = None

    def memories(self, sources: Sequence[EncodedSource], present: Bool[Tensor, "B N"]) -> tuple[SourceMemory, ...]:
        """The keys and values of what is attended to. A missing source shows one place, and what it says is dropped."""
        if self.combine == "concatenate":
            vectors = torch.cat([one.vectors for one in sources], dim=1)
            parts = [one.real & present[:, [k]] for k, one in enumerate(sources)]
            return (self._memory(self.cross_attentions[0], vectors, torch.cat(parts, dim=1)),)
        return tuple(
            self._memory(attention, one.vectors, one.real & present[:, [k]])
            for k, (attention, one) in enumerate(zip(self.cross_attentions, sources, strict=True))
        )

    def _memory(self, attention: Attention, vectors: Tensor, real: Tensor) -> SourceMemory:
        none = ~real.any(1, keepdim=True)
        first = torch.arange(real.shape[1], device=real.device) == 0
        return SourceMemory(*attention.keys_values(vectors), Visible(built=(real | (none & first))[:, None, None]))

    def forward(
        self,
        x: Float[Tensor, "R T D"],
        memories: Sequence[SourceMemory],
        present: Bool[Tensor, "B N"],
        sizes: Sequence[int],
        cache: KVCache | None = None,
    ) -> Float[Tensor, "R T D"]:
        """All positions at once or, with a `cache`, one new one of R rows, which share the memory of their sources."""
        around, attention = self.around_attention, self.attention
        entered = around.enter(x)
        if cache is None:
            change = attention(entered, None, Visible(causal=True))
        else:
            past = cache.length
            q, k, v = attention.queries_keys_values(entered, past, joined=cache.joined)
            change = attention.gather(q, *cache.append(k, v), Visible(causal=True, past=past))
        x = around.leave(x, change)
        whole = x.view(present.shape[0], -1, x.shape[-1])  # a source's rows stand side by side as its queries
        x = self._crossed(whole, memories, present, sizes).view(x.shape)
        return self.around_feed_forward.leave(x, self.feed_forward(self.around_feed_forward.enter(x)))

    def _crossed(
        self, x: Tensor, memories: Sequence[SourceMemory], present: Tensor, sizes: Sequence[int]
    ) -> Float[Tensor, "B W D"]:
        there = present[:, None, :, None].to(x.dtype)  # (B, 1, N, 1)
        if self.combine == "turn":
            added = []
            for k, (attention, memory) in enumerate(zip(self.cross_attentions, memories, strict=True)):
                around = self.around_cross_attentions[k]
                change = _gathered(attention, around.enter(x), memory) * there[:, :, k]
                added.append(change)
                x = around.leave(x, change)
            if self.shares is not None:
                lengths = torch.stack([one.norm(dim=-1) for one in added], dim=-1)
                self.shares.append(lengths / lengths.sum(-1, keepdim=True).clamp_min(1e-9))
            return x
        around = self.around_cross_attentions[0]
        entered = around.enter(x)
        if self.gate is None:
            attention, memory = self.cross_attentions[0], memories[0]
            change = _gathered(attention, entered, memory) * there.amax(2)
            if self.shares is not None:
                q = attention.queries(entered)
                heads, rows = range(attention.heads), slice(0, entered.shape[1])
                weights = attention._weights(q, memory.keys, memory.visible, heads, rows).mean(1)
                parts = [one.sum(-1) for one in weights.split(list(sizes), dim=-1)]
                self.shares.append(torch.stack(parts, dim=-1) * there[..., 0])
            return around.leave(x, change)
        each = [_gathered(one, entered, memory) for one, memory in zip(self.cross_attentions, memories, strict=True)]
        weights = softmax_visible(self.gate(entered), present[:, None].expand(-1, entered.shape[1], -1))
        if self.shares is not None:
            self.shares.append(weights)
        return around.leave(x, (torch.stack(each, dim=2) * weights[..., None]).sum(2))


def _gathered(attention: Attention, x: Float[Tensor, "B W D"], memory: SourceMemory) -> Float[Tensor, "B W D"]:
    return attention.gather(attention.queries(x), memory.keys, memory.values, memory.visible)


class SoundEncoder(nn.Module):
    """Log-mel frames to vectors, fewer by `subsampling`: what a listener is before its decoder."""

    def __init__(self, config: ListenerConfig) -> None:
        super().__init__()
        self.encoder = TransformerEncoder(config)
        initialise(self.encoder)
        self.subsampling = Subsampling(config)

    def forward(self, frames: Float[Tensor, "B F M"], lengths: Int[Tensor, " B"]) -> EncodedSource:
        """A sound that is missing, of length 0, is read as one frame, so that no attention is without a key."""
        found = self.encoder(self.subsampling(Points(frames, lengths.clamp_min(1), padded=True)))
        there = torch.arange(found.values.shape[1], device=frames.device) < found.lengths[:, None]
        return EncodedSource(found.values, there & (lengths > 0)[:, None])


class SeveralSources(nn.Module):
    """Encoders of texts, images and sounds, a decoder that attends to all of them, and a head over the vocabulary."""

    capabilities: ClassVar[Capabilities] = Capabilities(tasks=("sources",))

    def __init__(self, config: SourcesConfig) -> None:
        super().__init__()
        self.config = config
        block, texts = config.block(), config.sources.count("text")
        positions = Positions("sinusoidal", config.width, config.max_len)
        self.words = Embedding(config.vocab_size, config.width, positions=positions, dropout=config.dropout)
        self.text_encoders = Stack(
            Stack(EncoderBlock(block) for _ in range(config.encoder_layers))
            for _ in range(min(1, texts) if config.shared else texts)
        )
        self.norm = make_norm(config.norm, config.width, config.norm_epsilon)
        self.marks = nn.Parameter(torch.zeros(len(config.sources), config.width))  # which source a vector is of
        self.decoder = Stack(
            SourcesBlock(block, len(config.sources), config.combine) for _ in range(config.decoder_layers)
        )
        self.decoder_norm = make_norm(config.norm, config.width, config.norm_epsilon)
        self.head = OutputProjection(config.width, config.vocab_size, tied=self.words.tokens.weight)
        initialise(self)
        nn.init.normal_(self.marks, std=config.width**-0.5)
        images = config.sources.count("image")
        self.image_encoders = Stack(ConvolutionalStem(config.picture()) for _ in range(images))
        self.sound_encoders = Stack(SoundEncoder(config.hearing()) for _ in range(config.sources.count("sound")))

    def forward(self, batch: SourcedTexts) -> Float[Tensor, "B T D"]:
        """For each token that the decoder reads, the vector from which `head` predicts the next one."""
        sources, present = self.encode(batch)
        if self.training and self.config.source_dropout:
            present = self._some(present)
        x, sizes = self.words(batch.inputs.ids), [one.vectors.shape[1] for one in sources]
        for block in self.decoder:
            x = block(x, block.memories(sources, present), present, sizes)
        return self.decoder_norm(x)

    def logits(self, batch: SourcedTexts) -> Float[Tensor, "B T V"]:
        """The scores of every next token, given the true ones before it."""
        return self.head(self(batch))

    def encode(self, batch: SourcedTexts) -> tuple[list[EncodedSource], Bool[Tensor, "B N"]]:
        """The vectors of every source, in their order, and which of them each row has."""
        found, present, text, image, sound = [], [], 0, 0, 0
        for number, kind in enumerate(self.config.sources):
            if kind == "text":
                lengths = batch.lengths[:, text]
                vectors = self._text(batch.ids[:, text], lengths, 0 if self.config.shared else text)
                real = torch.arange(vectors.shape[1], device=vectors.device) < lengths[:, None]
                present.append(lengths > 0)
                text += 1
            elif kind == "sound":
                assert batch.frames is not None, "a model with a sound among its sources reads its frames"
                assert batch.frame_lengths is not None
                lengths = batch.frame_lengths[:, sound]
                heard = self.sound_encoders[sound](batch.frames[:, sound], lengths)
                vectors, real = heard.vectors, heard.real
                present.append(lengths > 0)
                sound += 1
            else:
                vectors = self.image_encoders[image](batch.pixels[:, image])
                real = torch.ones(vectors.shape[:2], dtype=torch.bool, device=vectors.device)
                present.append(batch.pictured[:, image])
                image += 1
            found.append(EncodedSource(vectors + self.marks[number], real))
        return found, torch.stack(present, dim=1)

    def _text(self, ids: Int[Tensor, "B S"], lengths: Int[Tensor, " B"], encoder: int) -> Float[Tensor, "B S D"]:
        x = self.words(ids)
        visible = Tokens(ids, lengths.clamp_min(1), padded=True).visible()
        for block in self.text_encoders[encoder]:
            x = block(x, visible)
        return self.norm(x)

    def _some(self, present: Bool[Tensor, "B N"]) -> Bool[Tensor, "B N"]:
        """Those that stay in training: each with its probability, all where none would."""
        kept = present & (torch.rand(present.shape, device=present.device) >= self.config.source_dropout)
        return torch.where(kept.any(1, keepdim=True), kept, present)

    @torch.no_grad()
    def shares(self, batch: SourcedTexts) -> Float[Tensor, "B T N"]:
        """How much each source had to say in each step: the mean over layers of their shares."""
        for block in self.decoder:
            block.shares = []
        try:
            self(batch)
            return torch.stack([one for block in self.decoder for one in block.shares or ()]).float().mean(0)
        finally:
            for block in self.decoder:
                block.shares = None

    def start(self, batch: SourcedTexts) -> SourcesState:
        """The sources, encoded: what decoding starts from."""
        sources, present = self.encode(batch)
        return SourcesState(
            caches=tuple(KVCache(None, block.attention.joined()) for block in self.decoder),
            memories=tuple(block.memories(sources, present) for block in self.decoder),
            present=present,
        )

    def step(self, choices: Int[Tensor, " R"], state: SourcesState) -> tuple[Float[Tensor, "R V"], SourcesState]:
        """Log-probabilities of the tokens that may follow `choices`."""
        x = self.words(choices[:, None], past=state.caches[0].length)
        for block, cache, memories in zip(self.decoder, state.caches, state.memories, strict=True):
            x = block(x, memories, state.present, (), cache)
        return self.head.log_probs(self.decoder_norm(x).squeeze(1)), state


MODEL = SourcesConfig, SeveralSources
