"""The settings of a training run's `[train]` section."""

from dataclasses import dataclass
from typing import Literal

from regard.errors import ConfigError, check_at_least, check_fractions
from regard.training.schedule import ScheduleKind


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainConfig:
    """How to train. Counts of steps are counts of updates."""

    steps: int = 10_000
    epochs: float = 0.0
    """Epochs to train for: above 0 the steps follow from it. 0 makes `steps` updates."""
    batch_tokens: int = 4096
    """Source and target tokens of one batch, padding included."""
    accumulate: int = 1
    """Batches per update (gradient accumulation)."""
    seed: int = 1
    start_from: str | None = None
    """A run whose model and tokenizer this one starts from; by default it starts from random weights."""

    optimizer: Literal["adam", "adamw", "muon"] = "adam"
    learning_rate: float = 1.0
    schedule: ScheduleKind = "paper"
    warmup: int = 4000
    warmup_share: float = 0.0
    """The share of all updates that are warm-up, where above 0, instead of `warmup`."""
    floor: float = 0.0
    decay: float = 0.2
    """The share of all updates over which `trapezoid` decays."""
    betas: tuple[float, ...] = (0.9, 0.98)
    epsilon: float = 1e-9
    momentum: float = 0.95
    """Muon's, for the matrices inside the model."""
    layer_decay: float = 1.0
    """The share of the learning rate that each layer has of the one above it; 1 gives all the same."""
    weight_decay: float = 0.0
    clip: float = 1.0
    """Largest gradient norm; 0 does not clip."""
    smoothing: float = 0.1
    r_drop: float = 0.0
    """R-Drop: weight of the divergence between two passes with different dropout; 0 makes one pass."""
    dropout_until: int = 0
    """The last update with dropout; 0 keeps it on throughout."""

    vectors: str | None = None
    """A file of word vectors that the embedding starts from: word2vec text or binary, or GloVe text."""
    freeze_vectors: bool = False
    """Do not train the embedding."""

    validate_every: int = 1000
    validate_share: float = 1.0
    """The share of the validation batches that the loss is of, evenly spread; 1 for all."""
    validate_sentences: int = 200
    """How many validation sentences, taken evenly, are translated at a validation; 0 for the loss alone."""
    show_outputs: int = 2
    """How many of these are shown beside their references."""
    save_every: int = 1000
    keep: int = 3
    """How many checkpoints stay on disk."""
    patience: int = 0
    """Stop after this many validations that were not better; 0 never stops early."""
    average_last: int = 0
    """The final model is the mean of this many last checkpoints; 0 or 1 takes the last alone."""
    ema: float = 0.0
    """Decay of an exponential average of the weights, which is then validated and kept; 0 for none."""
    choose: Literal["last", "best"] = "last"
    """Which weights a finished run keeps as its model, where they are not an average of checkpoints."""
    select_by: str = "loss"
    """What the best validation is told by, for `choose` and `patience`: the loss, or a score of it, as `bleu`.
    Of a loss or a rate of errors the lowest is the best, of any other score the highest. Of exact matches of
    some written texts that differ by less than their standard error the later are the best, as of equal scores."""

    device: str = "auto"
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """`auto` is bfloat16 on a GPU that has it and float32 elsewhere."""
    muon_precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """In what Muon orthogonalises: `auto` is bfloat16 on a GPU and float32 elsewhere. A CPU with instructions for
    bfloat16 takes a fifth of the time with it; several processes then agree with one to three digits, not to six."""
    compile: bool = False
    """Compile the model: slow to start, then faster. Needs a C++ compiler on a CPU."""
    compile_blocks: bool = False
    """On a GPU, compile one block of each kind, which all of its kind share: starts in seconds."""
    compile_loss: bool = False
    """With `compile`, the loss as part of the same graph: fewer kernels to launch."""
    cuda_graphs: bool = False
    """On a GPU, capture each pass as a CUDA graph and replay it: for models so small that launching takes the time."""
    deterministic: bool = False
    """On a GPU, only deterministic kernels: the same run gives the same bytes, somewhat slower."""
    pack: Literal["auto", "always", "never"] = "auto"
    """Pack several sequences into a row instead of padding each to the longest; `auto` does on a GPU."""
    threads: int = 0
    """CPU threads; 0 leaves torch's choice."""
    shard: bool = False
    """Of several processes each keeps a shard of weights, gradients and optimiser state (FSDP2), for a model that does
    not fit one GPU; else each keeps all (data parallel)."""
    process_timeout: int = 600
    """Seconds that one of several processes waits for another, as while it saves, before the run is ended."""
    log_every: int = 50
    tensorboard: bool = False

    def __post_init__(self) -> None:
        above_zero = (
            "steps",
            "batch_tokens",
            "accumulate",
            "validate_every",
            "save_every",
            "keep",
            "log_every",
            "process_timeout",
        )
        check_at_least(self, 1, *above_zero, where="train.")
        counts = (
            "warmup",
            "patience",
            "average_last",
            "threads",
            "validate_sentences",
            "show_outputs",
            "dropout_until",
        )
        check_at_least(self, 0, *counts, "clip", "weight_decay", "r_drop", "epochs", where="train.")
        check_fractions(self, "smoothing", "ema", "floor", "momentum", "warmup_share", where="train.")
        for name in ("decay", "layer_decay", "validate_share"):
            if not 0.0 < getattr(self, name) <= 1.0:
                raise ConfigError(f"train.{name}={getattr(self, name)} must be above 0 and at most 1")
        if self.layer_decay < 1.0 and self.optimizer == "muon":
            raise ConfigError("train.layer_decay is for optimizer='adam' or 'adamw'")
        if self.compile and self.compile_blocks:
            raise ConfigError(
                "train.compile=true compiles the whole model, train.compile_blocks=true its blocks; give one"
            )
        if self.compile_loss and not self.compile:
            raise ConfigError("train.compile_loss=true needs train.compile=true")
        if self.cuda_graphs and self.pack == "never":
            raise ConfigError(
                "train.cuda_graphs=true needs packed batches, which have one shape, not train.pack='never'"
            )
        for name in ("compile", "cuda_graphs"):
            if self.shard and getattr(self, name):
                raise ConfigError(
                    f"train.{name}=true does not go with train.shard=true, whose weights come and go in the midst of a "
                    f"pass; train.compile_blocks=true does"
                )
        if self.freeze_vectors and self.vectors is None:
            raise ConfigError("train.freeze_vectors=true needs train.vectors")
        if self.learning_rate <= 0:
            raise ConfigError(f"train.learning_rate={self.learning_rate} must be above 0")
        if len(self.betas) != 2 or not all(0.0 <= beta < 1.0 for beta in self.betas):
            raise ConfigError(f"train.betas={list(self.betas)} must be two numbers, each at least 0 and below 1")
        if self.average_last > self.keep:
            raise ConfigError(f"train.average_last={self.average_last} needs train.keep of at least as many")

    @property
    def warmup_steps(self) -> int:
        """The updates of the warm-up."""
        return round(self.warmup_share * self.steps) if self.warmup_share else self.warmup
