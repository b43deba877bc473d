"""What a training takes of each GPU, from its configuration and stated hardware rates: memory, and time per update.

The update is traced with tensors that have shapes and no values, so that neither a GPU nor the memory is needed: what
autograd keeps for the backward pass is what activations take, and products are counted as they come. From there on it
is arithmetic with the rates of a GPU: an estimate, which says what it leaves out.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor

from regard.config import JsonObject
from regard.data.sharing import Idle, share
from regard.errors import ConfigError, check_at_least, nearest
from regard.nn.attention import Attention
from regard.nn.batch import map_tensors
from regard.nn.blocks import DecoderBlock, EncoderBlock
from regard.nn.flops import operations
from regard.nn.losses.cross_entropy import LOGITS_SHARE
from regard.tasks.config import RunConfig
from regard.tasks.run import build_model
from regard.training.objectives import Objective
from regard.training.optim import hidden_matrices
from regard.training.processes import BUCKET

CONTEXT = 600_000_000
"""Bytes that CUDA, cuBLAS and NCCL take beside torch's tensors, roughly."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GPU:
    """What the maker states of a GPU: bytes of memory, matrix operations per second without sparsity, bytes per second
    from memory, and bytes per second to the other GPUs of its machine, in one direction."""

    memory: float | int
    flops: float | int
    bandwidth: float | int
    interconnect: float | int
    bfloat16: bool = True
    source: str = ""


_NVIDIA = "https://www.nvidia.com/en-us/data-center"
GPUS = {
    "p100": GPU(
        memory=16e9,
        flops=10.6e12,
        bandwidth=732e9,
        interconnect=80e9,
        bfloat16=False,
        source="Tesla P100 SXM2 data sheet; single precision; NVLink 160 GB/s in both directions",
    ),
    "a100-40gb": GPU(
        memory=40e9,
        flops=312e12,
        bandwidth=1555e9,
        interconnect=300e9,
        source=f"{_NVIDIA}/a100; NVLink 600 GB/s in both directions",
    ),
    "a100-80gb": GPU(
        memory=80e9,
        flops=312e12,
        bandwidth=2039e9,
        interconnect=300e9,
        source=f"{_NVIDIA}/a100; NVLink 600 GB/s in both directions",
    ),
    "h100": GPU(
        memory=80e9,
        flops=989e12,
        bandwidth=3350e9,
        interconnect=450e9,
        source=f"{_NVIDIA}/h100, SXM; NVLink 900 GB/s in both directions",
    ),
    "h200": GPU(
        memory=141e9,
        flops=989e12,
        bandwidth=4800e9,
        interconnect=450e9,
        source=f"{_NVIDIA}/h200, SXM; NVLink 900 GB/s in both directions",
    ),
    "l4": GPU(
        memory=24e9,
        flops=121e12,
        bandwidth=300e9,
        interconnect=32e9,
        source=f"{_NVIDIA}/l4; half of what is stated with sparsity; PCIe 4.0 x16",
    ),
    "l40s": GPU(
        memory=48e9,
        flops=362e12,
        bandwidth=864e9,
        interconnect=32e9,
        source=f"{_NVIDIA}/l40s; half of what is stated with sparsity; PCIe 4.0 x16",
    ),
}
"""GPUs by name, as their data sheets have them."""

FUSED_BYTES, PLAIN_BYTES = 2.0, 18.0
"""For each logit of a chunk: itself, in bfloat16; or with its logarithm, probability, target and gradient, in float32
each, which without a fused kernel are there at a time."""

EFFICIENCY = 0.3
"""The share of a GPU's operations per second that training reaches: on one H200 alone, `transformer-big` 0.40 and
`transformer-base` 0.19 to 0.21 of what is stated, compiled; beside other work 0.12 to 0.31 (docs/results.md)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryPlan:
    """Bytes on each GPU, and how many there are at once at the most.

    While the loss is found, activations and logits are there; as the backward pass goes on, gradients take their place.
    Where an update has several batches for a GPU, or is captured as a CUDA graph, gradients are there all along.
    """

    weights: float
    gradients: float
    optimizer: float
    average: float
    activations: float
    logits: float
    working: float
    """Temporary tensors of the backward pass; buckets of gradients on their way, or weights gathered from others."""
    cuda_graphs: float
    peak: float


@dataclass(frozen=True, kw_only=True, slots=True)
class TimePlan:
    """Seconds of an update: computing, adding up gradients or gathering weights, and the optimiser's own."""

    compute: float
    communicate: float
    optimizer: float
    update: float


@dataclass(frozen=True, kw_only=True, slots=True)
class CapacityPlan:
    """What a training takes, with a copy of the model on each GPU (DDP) and with a shard (FSDP2)."""

    gpu: str
    gpus: int
    precision: str
    efficiency: float | int
    rates: GPU
    parameters: int
    tokens: int
    """Of an update, on all GPUs."""
    flops: float | int
    """Of an update, on one GPU."""
    copies: tuple[MemoryPlan, TimePlan]
    shards: tuple[MemoryPlan, TimePlan]
    notes: tuple[str, ...] = ()

    def to_mapping(self) -> JsonObject:
        found = {name: getattr(self, name) for name in ("gpu", "gpus", "precision", "efficiency", "parameters")}
        found |= {"tokens": self.tokens, "flops_per_gpu": self.flops, "rates": asdict(self.rates)}
        for name, (memory, seconds) in (("ddp", self.copies), ("fsdp2", self.shards)):
            fits = memory.peak + CONTEXT <= self.rates.memory
            found[name] = {"bytes": asdict(memory), "seconds": asdict(seconds), "fits": fits}
        return found | {"notes": list(self.notes)}


@dataclass(frozen=True, kw_only=True, slots=True)
class _Traced:
    """What one batch of one GPU takes: bytes kept for the backward pass, the largest of them, and operations."""

    activations: float
    largest: float
    flops: float | int
    parameters: int
    matrices: int
    """Parameters that Muon updates."""
    outside: int
    """Parameters that are in no block."""
    block: int
    """Parameters of the largest block."""
    vocabulary: int
    predictions: int


def plan_capacity(
    config: RunConfig,
    gpu: str = "h100",
    gpus: int = 1,
    efficiency: float | int = EFFICIENCY,
    **rates: float | int | None,
) -> CapacityPlan:
    """What training as `config` says takes of each of so many GPUs of a kind, in memory and time.

    `rates` change what is known of the GPU, in bytes, operations and bytes per second: `memory`, `flops`,
    `bandwidth`, `interconnect`. `efficiency` is the share of `flops` that is reached.
    """
    if gpu not in GPUS:
        raise ConfigError(f"gpu={gpu} is not among those whose rates are known{nearest(gpu, GPUS)}")
    if gpus < 1 or not 0 < efficiency <= 1:
        raise ConfigError(f"gpus={gpus} must be at least 1, and efficiency={efficiency} above 0 and at most 1")
    kind = replace(GPUS[gpu], **{name: value for name, value in rates.items() if value is not None})
    check_at_least(kind, 0, "memory", "flops", "bandwidth", "interconnect")
    precision = config.train.precision if config.train.precision != "auto" else "bfloat16"
    precision = precision if kind.bfloat16 else "float32"
    config, objective, batches = config.with_stand_ins().kind.random_batches(config.with_stand_ins(), 1)
    config = config.with_stand_ins()
    own = [part for part in share(batches * config.train.accumulate, 0, gpus) if not isinstance(part, Idle)]
    if not own:
        raise ConfigError(f"train.batch_tokens={config.train.batch_tokens} has too few rows for {gpus} GPUs")
    traced = _trace(config, objective, max(own, key=lambda part: part.tokens), precision)
    tokens = sum(part.tokens for part in batches) * config.train.accumulate
    notes = []
    if config.train.compile or config.train.compile_blocks:
        notes.append("compiling keeps less for the backward pass than is counted here")
    if config.train.r_drop:
        notes.append("R-Drop reads every batch twice in one pass, which is counted")
    if config.train.shard and gpus == 1:
        notes.append("with one GPU there are no shards")
    return CapacityPlan(
        gpu=gpu,
        gpus=gpus,
        precision=precision,
        efficiency=efficiency,
        rates=kind,
        parameters=traced.parameters,
        tokens=tokens,
        flops=traced.flops * len(own),
        copies=_planned(config, traced, kind, gpus, len(own), efficiency, shards=False),
        shards=_planned(config, traced, kind, gpus, len(own), efficiency, shards=True),
        notes=tuple(notes),
    )


def _planned(
    config: RunConfig, traced: _Traced, gpu: GPU, gpus: int, parts: int, efficiency: float | int, *, shards: bool
) -> tuple[MemoryPlan, TimePlan]:
    options, P = config.train, traced.parameters
    keepers = gpus if shards else 1
    states = 8 * P - (4 * traced.matrices if options.optimizer == "muon" else 0)
    weights, gradients, optimizer = 4 * P / keepers, 4 * P / keepers, states / keepers
    average = 4 * P / keepers if options.ema else 0.0
    logits = _logits(config, traced, gpu)
    working = 2 * traced.largest
    if gpus > 1 and not shards:
        working += 3 * BUCKET
    if gpus > 1 and shards:  # what is in no block stays from the first pass to the last; of blocks there are two
        working += 4 * traced.outside + 2 * 4 * traced.block
    graphs = gradients if options.cuda_graphs and not shards else 0.0
    forward = traced.activations + logits + working + (gradients if parts > 1 or graphs else 0.0)
    peak = weights + optimizer + average + max(forward, gradients + working)
    memory = MemoryPlan(
        weights=weights,
        gradients=gradients,
        optimizer=optimizer,
        average=average,
        activations=traced.activations,
        logits=logits,
        working=working,
        cuda_graphs=graphs,
        peak=peak,
    )
    compute = traced.flops * parts / (gpu.flops * efficiency)
    # A ring: gradients go round twice; of shards, weights are gathered for both passes of a batch, gradients go once.
    times = 0 if gpus == 1 else (3 * parts if shards else 2)
    communicate = times * (gpus - 1) / gpus * 4 * P / gpu.interconnect
    moved = (2 * (4 * P + states) + 4 * P + (12 * P if options.ema else 0)) / keepers
    own = moved / gpu.bandwidth
    update = (max(compute, communicate) if shards else compute + communicate) + own
    return memory, TimePlan(compute=compute, communicate=communicate, optimizer=own, update=update)


def _logits(config: RunConfig, traced: _Traced, gpu: GPU) -> float:
    """Bytes of the logits of a chunk of predictions, and of what their loss takes beside them."""
    options = config.train
    chunk = gpu.memory * LOGITS_SHARE / 4
    fused = options.compile_blocks or options.cuda_graphs or (options.compile and not options.compile_loss)
    if fused:  # one kernel, which puts the gradient in the place of the logits, reads twice as many at a time
        return FUSED_BYTES * min(traced.vocabulary * traced.predictions, 2 * chunk)
    return PLAIN_BYTES * min(traced.vocabulary * traced.predictions, chunk)


def _trace(config: RunConfig, objective: Objective, batch: Any, precision: str) -> _Traced:
    from torch._subclasses.fake_tensor import DynamicOutputShapeException, FakeTensorMode

    found: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        found[storage._cdata] = storage.nbytes()
        return tensor

    try:
        with FakeTensorMode() as mode:
            model = build_model(config).train()
            inputs = map_tensors(batch, mode.from_tensor)
            for part in model.modules():
                if isinstance(part, Attention):  # a GPU's fused kernel keeps no mask of it, and a CPU's has none
                    part.dropout = 0.0
            own = {_storage(one) for one in (*model.parameters(), *model.buffers())}
            # A GPU's precision; shapes and sizes are those of a GPU too.
            cast = torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16")
            with operations(model) as counter:
                with cast, torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
                    loss = objective.loss(model, inputs)
                loss.total.backward()
    except DynamicOutputShapeException:
        raise ConfigError(
            f"model.name={config.model.get('name')!r} cannot be planned: what it computes depends on the values that "
            "it reads; time it with `regard bench train`"
        ) from None
    kept = [size for storage, size in found.items() if storage not in own]
    blocks = [part for part in model.modules() if isinstance(part, EncoderBlock | DecoderBlock)]
    inside = {id(one): one.numel() for part in blocks for one in part.parameters()}
    total = sum(one.numel() for one in model.parameters())
    return _Traced(
        activations=float(sum(kept)),
        largest=float(max(kept, default=0)),
        flops=float(counter.get_total_flops()),
        parameters=total,
        matrices=sum(one.numel() for one in hidden_matrices(model)),
        outside=total - sum(inside.values()),
        block=max((sum(one.numel() for one in part.parameters()) for part in blocks), default=total),
        vocabulary=_vocabulary(config.model),
        predictions=_predictions(objective, batch),
    )


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _vocabulary(model: Mapping[str, Any]) -> int:
    return max((size for name, size in model.items() if name.endswith("vocab_size")), default=0)


def _predictions(objective: Any, batch: Any) -> int:
    own = getattr(objective, "predictions", None)
    return batch.count if own is None else own(batch)


def show_plan(plan: CapacityPlan) -> str:
    """The plan for a person."""
    rates = plan.rates
    lines = [
        f"{plan.gpus} x {plan.gpu}: {rates.memory / 1e9:.0f} GB, {rates.flops / 1e12:.0f} TFLOP/s of which "
        f"{100 * plan.efficiency:.0f} % are taken as reached, {rates.bandwidth / 1e9:,.0f} GB/s from memory, "
        f"{rates.interconnect / 1e9:.0f} GB/s between GPUs",
        f"{plan.parameters / 1e6:,.1f} M parameters, {plan.precision}; {plan.tokens:,} tokens per update, "
        f"{plan.flops / 1e12:,.1f} TFLOP on each GPU",
        "",
        f"{'GB on each GPU':28}{'DDP':>12}{'FSDP2':>12}",
    ]
    (copies, own), (shards, others) = plan.copies, plan.shards
    for name in MemoryPlan.__dataclass_fields__:
        one, other = getattr(copies, name), getattr(shards, name)
        if one or other:
            lines.append(f"{_WORDS.get(name, name):28}{one / 1e9:>12.2f}{other / 1e9:>12.2f}")
    lines.append(
        f"{'with CUDA and its libraries':28}{(copies.peak + CONTEXT) / 1e9:>12.2f}"
        f"{(shards.peak + CONTEXT) / 1e9:>12.2f}"
    )
    lines.append(f"{'fits':28}" + "".join(f"{_fits(one.peak, rates.memory):>12}" for one in (copies, shards)))
    lines += ["", f"{'ms per update':28}{'DDP':>12}{'FSDP2':>12}"]
    for name in TimePlan.__dataclass_fields__:
        one, other = 1000 * getattr(own, name), 1000 * getattr(others, name)
        lines.append(f"{_WORDS.get(name, name):28}{one:>12.1f}{other:>12.1f}")
    lines.append(f"{'tokens per second':28}{plan.tokens / own.update:>12,.0f}{plan.tokens / others.update:>12,.0f}")
    return "\n".join([*lines, *(f"note: {note}" for note in plan.notes)])


_WORDS: Mapping[str, str] = {
    "optimizer": "optimiser",
    "average": "average of the weights",
    "working": "temporary",
    "cuda_graphs": "CUDA graphs keep",
    "peak": "at once, at the most",
    "compute": "computing",
    "communicate": "between GPUs",
    "update": "in all",
}


def _fits(peak: float, memory: float) -> str:
    return "yes" if peak + CONTEXT <= memory else "no"
