"""Heads that a run can do without: which they are, and a smaller run without them."""

import fnmatch
import shutil
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import cycle, islice
from pathlib import Path
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn

from regard.analysis.describe import describe
from regard.errors import ConfigError, RunError, nearest
from regard.interop.huggingface.vocabulary import KEPT
from regard.look.edits import masked
from regard.look.watch import attentions, watch
from regard.models import MODELS
from regard.models.protocols import capabilities
from regard.nn.attention import Attention, NoHeads, Watchable
from regard.nn.dropout import HardConcrete
from regard.runs.checkpoint import Progress, load_weights_strictly, save_checkpoint, weights_of
from regard.runs.files import CHECKPOINTS, CONFIG, MODEL, TOKENIZER, whole_or_nothing, write_json, write_tensors
from regard.tasks.config import RunConfig
from regard.tasks.evidence import Evidence
from regard.tasks.run import Run, build_model
from regard.training.optim import ExponentialAverage, make_optimizer

By = Literal["masking", "gradient", "gates"]
Head: TypeAlias = tuple[str, int]
"""A head: the name of its attention in the model, and its number there."""


def every_head(model: nn.Module, among: str = "*") -> list[Head]:
    """The heads of all attentions whose names fit the pattern, in the order of the model.

    Heads that share keys and values go together: their group is one here, by its own number.
    """
    known = attentions(model)
    names = [name for name in known if fnmatch.fnmatchcase(name, among)]
    if not names:
        raise ConfigError(f"no attention is called '{among}'{nearest(among, known)}")
    return [(name, head) for name in names for head in range(groups(known[name]))]


def groups(attention: Watchable) -> int:
    """How many heads, or groups of heads, can be removed one by one."""
    return attention.kv_heads if isinstance(attention, Attention) else attention.heads


def importance(run: Run, evidence: Evidence, by: By = "masking", among: str = "*") -> dict[Head, float]:
    """How much each head matters, more being more.

    `masking`: how much the loss rises without it. `gradient`: how much the loss would change with a little less of it,
    the mean over batches of the size of that slope (Michel, Levy and Neubig 2019). `gates`: the chance that a gate on
    it stays open when open gates cost something (Voita et al. 2019), the model's weights staying as they are.
    """
    run.model.eval()
    heads = every_head(run.model, among)
    if by == "masking":
        known, whole = attentions(run.model), evidence.nll(run.model)
        found = {}
        for name, head in heads:
            with masked(run.model, {name: _members(known[name], [head])}):
                found[name, head] = evidence.nll(run.model) - whole
        return found
    if by == "gradient" and evidence.unsloped is not None:
        raise ConfigError(f"{evidence.unsloped}, so no slope ranks heads: use masking or gates")
    values = _slopes(run.model, evidence, heads) if by == "gradient" else _gates(run.model, evidence, heads)
    return dict(zip(heads, values.tolist(), strict=True))


def _members(attention: Watchable, chosen: Iterable[int]) -> list[int]:
    """The heads of these groups."""
    size = attention.heads // groups(attention)
    return [group * size + one for group in chosen for one in range(size)]


def gates_of(model: nn.Module, heads: Sequence[Head], gates: Tensor) -> dict[str, Tensor]:
    """By attention, the gate on each of its heads; heads of one group have one gate."""
    places: dict[str, list[int]] = {}
    for index, (name, _) in enumerate(heads):
        places.setdefault(name, []).append(index)
    known = attentions(model)
    return {
        name: gates[own].repeat_interleave(known[name].heads // groups(known[name])) for name, own in places.items()
    }


def _loss(model: nn.Module, evidence: Evidence, batch: Any, heads: Sequence[Head], gates: Tensor) -> Tensor:
    """The loss a prediction with each head's weights multiplied by its gate."""
    own = gates_of(model, heads, gates)

    def scale(name: str, weights: Tensor) -> Tensor:
        return weights * own[name].to(weights.dtype)[:, None, None]

    with watch(model, list(own), parts=(), edit=scale):
        loss = evidence.objective.loss(model, batch)
    return loss.total / loss.count


def _slopes(model: nn.Module, evidence: Evidence, heads: Sequence[Head]) -> Tensor:
    device = next(model.parameters()).device
    gates = torch.ones(len(heads), device=device, requires_grad=True)
    losses = (_loss(model, evidence, batch, heads, gates) for batch in evidence.batches)
    slopes = [torch.autograd.grad(loss, gates)[0].abs() for loss in losses]
    return torch.stack(slopes).mean(0)


def _gates(
    model: nn.Module, evidence: Evidence, heads: Sequence[Head], *, steps: int = 150, penalty: float = 1.0
) -> Tensor:
    device = next(model.parameters()).device
    gates = HardConcrete(len(heads)).to(device).train()
    optimizer = torch.optim.Adam(gates.parameters(), lr=0.1)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for batch in islice(cycle(evidence.batches), steps):
            loss = _loss(model, evidence, batch, heads, gates()) + penalty * gates.chance_open().mean()
            (gates.log_alpha.grad,) = torch.autograd.grad(loss, [gates.log_alpha])
            optimizer.step()
    return gates.chance_open().detach()


def prune(run: Run, remove: Sequence[Head], directory: Path | None = None) -> Run:
    """The run without these heads: smaller matrices, and otherwise the same to rounding. Nothing is written."""
    check_kind(run)
    known, every = attentions(run.model), set(every_head(run.model))
    gone: dict[str, set[int]] = {}
    for name, head in remove:
        if (name, head) not in every:
            raise ConfigError(f"no head {head} in '{name}'{'' if name in known else nearest(name, known)}")
        gone.setdefault(name, set()).add(head)
    keep = {name: [head for head in range(groups(known[name])) if head not in own] for name, own in gone.items()}
    config = _smaller(run.config, run.model, keep)
    model = build_model(config)
    load_weights_strictly(model, _weights(run.model, keep), run.directory)
    model.to(next(run.model.parameters()).device).eval()
    return Run(directory or run.directory, config, run._vocabularies, model)


def check_kind(run: Run) -> None:
    """Refuse models whose attentions cannot lose heads one by one."""
    if not capabilities(type(run.model)).layer_heads:
        able = [name for name, (_, kind) in MODELS.items() if capabilities(kind).layer_heads]
        name = run.config.model["name"]
        raise ConfigError(f"heads can be removed from a {', '.join(able)} model, not from a {name}")
    if run.config.model.get("positions") in ("alibi", "relative"):
        raise ConfigError(
            f"heads cannot be removed from a model with {run.config.model['positions']} positions: each has a bias "
            f"by its number"
        )


def _smaller(config: RunConfig, model: nn.Module, keep: dict[str, list[int]]) -> RunConfig:
    kinds = capabilities(type(model)).layer_heads
    counts: dict[str, list[int]] = {setting: [] for setting in kinds.values()}
    for name, module in model.named_modules():
        if isinstance(module, Attention | NoHeads):
            left = module.heads
            if isinstance(module, Attention) and name in keep:
                left = len(_members(module, keep[name]))
            counts[kinds[module.sides]].append(left)
    return replace(config, model={**config.model, **counts})


def _weights(model: nn.Module, keep: dict[str, list[int]]) -> dict[str, Tensor]:
    weights, known = dict(weights_of(model)), attentions(model)
    for name, kept in keep.items():
        attention: Any = known[name]
        own = [key for key in weights if key.startswith(f"{name}.")]
        if not kept:
            bias = weights.get(f"{name}.output.bias")
            for key in own:
                del weights[key]
            weights |= {} if bias is None else {f"{name}.bias": bias}
            continue
        shared, alone = _rows(attention, kept), _rows(attention, _members(attention, kept))
        for key in own:
            part, _, what = key.removeprefix(f"{name}.").partition(".")
            if part in ("key", "value"):
                weights[key] = weights[key][shared]
            elif part == "query":
                weights[key] = weights[key][alone]
            elif part == "output" and what == "weight":
                weights[key] = weights[key][:, alone]
    return weights


def _rows(attention: Any, heads: Sequence[int]) -> Tensor:
    """The rows of these heads in a matrix that has all below one another."""
    width, device = attention.head_width, attention.query.weight.device
    return torch.tensor([head * width + one for head in heads for one in range(width)], device=device)


def save(run: Run, source: Path, out: Path) -> None:
    """Write a pruned run to `out`, with a checkpoint at step 0, so that training goes on from its weights."""
    if (out / CONFIG).exists():
        raise RunError(f"{out} already holds a run: choose another directory")
    with whole_or_nothing(out):
        if (source / TOKENIZER).exists():  # a model of pictures has none
            shutil.copyfile(source / TOKENIZER, out / TOKENIZER)
        if (source / KEPT).is_dir():  # what an imported run's tokenizer was made of
            shutil.copytree(source / KEPT, out / KEPT)
        write_tensors(out / MODEL, weights_of(run.model))
        options = run.config.train
        average = ExponentialAverage(run.model, options.ema) if options.ema else None
        (out / CHECKPOINTS).mkdir()
        save_checkpoint(out / CHECKPOINTS, Progress(step=0), run.model, make_optimizer(run.model, options), average)
        write_json(out / CONFIG, run.config.to_mapping())


def curve(
    run: Run,
    evidence: Evidence,
    order: Sequence[Head],
    counts: Sequence[int] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Iterator[dict[str, Any]]:
    """Score, size and speed with more and more heads removed, in `order`, the least important first."""
    counts = sorted({*range(0, len(order) + 1, max(1, len(order) // 12)), len(order)} if counts is None else counts)
    for number, count in enumerate(counts, 1):
        yield point(prune(run, order[:count]), evidence, count, len(order) - count)
        if progress is not None:
            progress(number, len(counts))


def point(run: Run, evidence: Evidence, removed: int, kept: int) -> dict[str, Any]:
    """One point of the curve: a run with its score, size and speed."""
    return {
        "removed": removed,
        "kept": kept,
        evidence.name: evidence.score(run),
        "nll": evidence.nll(run.model),
        "parameters": sum(parameter.numel() for parameter in run.model.parameters()),
        "flops": describe(run)["flops"]["forward"],
        "milliseconds": _milliseconds(run.model, evidence.inputs(evidence.batches[0])),
    }


@torch.inference_mode()
def _milliseconds(model: nn.Module, batch: Any, times: int = 7) -> float:
    """The median time of a forward pass over one batch."""
    taken = []
    for _ in range(times + 1):
        began = time.perf_counter()
        float(model(batch).sum())  # reading a number waits for the device
        taken.append(time.perf_counter() - began)
    return 1000 * statistics.median(taken[1:])
