"""What a model can offer beside turning a batch into vectors: its declared capabilities, and protocols.

Every model class declares its `capabilities`, and what can be done with it beside training is a protocol here, so that
no code has to probe a model for names. A stepper, with which a model decodes, is in `regard.decode.stepper`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor, nn

from regard.errors import ConfigError
from regard.nn.attention import Sides
from regard.nn.batch import Texts, Tokens


@dataclass(frozen=True, kw_only=True, slots=True)
class Capabilities:
    """What a class of models offers.

    `tasks` are those it can be trained for. A model that `packs` tells several sequences of one row apart; one that
    reads `both_ways` predicts each token from those before it and from those after it. A run that starts from another
    may change the settings that the model `tunes` and, where they are asked for, those that it `resizes`; it may have
    fewer layers, of those that `stacks` names: the setting that counts them, and the part that holds them. It may also
    start from a model named in `encoders`: the two have the encoder's settings and weights under the same names.
    The weights of one that `halves` may be bfloat16 when it is used, its log-probabilities staying float32.
    `layer_heads` says which setting has the number of heads of each layer, by what an attention's queries and keys are:
    heads of such a model can be removed.
    """

    tasks: tuple[str, ...]
    packs: bool = False
    both_ways: bool = False
    halves: bool = False
    tunes: tuple[str, ...] = ()
    resizes: tuple[str, ...] = ()
    stacks: Mapping[str, str] = field(default_factory=dict)
    encoders: tuple[str, ...] = ()
    layer_heads: Mapping[Sides, str] = field(default_factory=dict)


@runtime_checkable
class Model(Protocol):
    """What every model has: its settings, what it offers, and logits of a batch."""

    config: Any
    capabilities: Capabilities

    def logits(self, batch: Any) -> Tensor: ...


def capabilities(kind: type[nn.Module]) -> Capabilities:
    """What a class of models offers; one that does not say is refused."""
    found = getattr(kind, "capabilities", None)
    if not isinstance(found, Capabilities):
        raise ConfigError(f"the model class {kind.__name__} does not say what it offers: give it `capabilities`")
    return found


@runtime_checkable
class TwoVocabularies(Protocol):
    """Settings of an encoder-decoder: the sizes of its vocabularies, and which tables they `share`."""

    @property
    def source_vocab_size(self) -> int: ...

    @property
    def target_vocab_size(self) -> int: ...

    @property
    def share(self) -> str: ...


def check_shared_vocabulary(config: TwoVocabularies) -> None:
    """Refuse settings of an encoder-decoder that `share` a table of tokens between vocabularies of different sizes."""
    source, target = config.source_vocab_size, config.target_vocab_size
    if config.share in ("all", "input") and source != target:
        raise ConfigError(
            f"share='{config.share}' needs one vocabulary, not {source} source and {target} target entries; "
            "use share='output' or a joint tokenizer"
        )


def check_coverage(weight: float) -> None:
    """Refuse a weight of the coverage loss that is no weight."""
    if not 0 <= weight < float("inf"):
        raise ConfigError(f"coverage={weight} must be 0 or more")


@runtime_checkable
class Attends(Protocol):
    """A model that says, beside its vectors, where each step attended in the source: what the coverage loss is of."""

    def attended(self, batch: Any) -> tuple[Float[Tensor, "B T P"], Float[Tensor, "B T S"]]: ...


@runtime_checkable
class Carries(Protocol):
    """A language model whose state at the end of a window can be its state at the start of the next."""

    def carry(self, inputs: Tokens, states: Any = None) -> tuple[Float[Tensor, "B T D"], Any]: ...


@runtime_checkable
class ReadsText(Protocol):
    """A language model that gives for each token the vector that it predicts the next from."""

    def read(self, inputs: Tokens) -> Float[Tensor, "B T P"]: ...


@runtime_checkable
class TextEncoder(Protocol):
    """A model that makes a vector of a text."""

    config: Any

    def logits(self, batch: Any) -> Tensor: ...

    def text_vectors(self, texts: Texts, pooling: Any = None) -> Float[Tensor, "B D"]: ...


@runtime_checkable
class HasClassifier(Protocol):
    """A model of which the scores of classes come from a layer of its own; None where it has another head."""

    classifier: nn.Linear | None


@runtime_checkable
class Refits(Protocol):
    """A model that takes weights of another size, such as positions of a larger image."""

    def refitted(self, name: str, weight: Tensor) -> Tensor: ...
