"""Head pruning: which heads matter, a smaller run without the others, and gates that learn which to remove."""

import copy
import shutil
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn

from regard.analysis.model_summary import describe
from regard.config import JsonObject
from regard.data import Position
from regard.errors import ConfigError, RunError, nearest
from regard.interop.huggingface.tokenizer_files import KEPT
from regard.look.edits import masked
from regard.look.watch import attentions, matching, watch
from regard.models import MODELS
from regard.models.protocols import capabilities
from regard.nn.attention import Attention, NoHeads, Watchable
from regard.nn.dropout import HardConcrete
from regard.runs.checkpoint import Progress, load_weights_strictly, save_checkpoint, weights_of
from regard.runs.files import CHECKPOINTS, CONFIG, TOKENIZER, identity_of, whole_or_nothing, write_config, write_model
from regard.tasks.config import RunConfig
from regard.tasks.probes import HeldOutData
from regard.tasks.run import Run, build_model, choose_precision, packs
from regard.tasks.spec import Silence
from regard.training.loop import clip_gradients, precision_context, seed_step, train_step
from regard.training.objectives import Batch
from regard.training.optim import ExponentialAverage, make_optimizer

By = Literal["masking", "gradient", "gates"]
Head: TypeAlias = tuple[str, int]
"""A head: the name of its attention in the model, and its number there."""


def every_head(model: nn.Module, among: str = "*") -> list[Head]:
    """The heads of all attentions whose names fit the pattern, in the order of the model.

    Heads that share keys and values go together: their group is one here, by its own number.
    """
    known = attentions(model)
    return [
        (name, head)
        for name in matching(known, [among])
        if isinstance(known[name], Attention)  # one that a recurrent decoder lives by has no heads to lose
        for head in range(groups(known[name]))
    ]


def groups(attention: Watchable) -> int:
    """How many heads, or groups of heads, can be removed one by one."""
    return attention.kv_heads if isinstance(attention, Attention) else attention.heads


def importance(run: Run, evidence: HeldOutData, by: By = "masking", among: str = "*") -> dict[Head, float]:
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


def _loss(model: nn.Module, evidence: HeldOutData, batch: Batch, heads: Sequence[Head], gates: Tensor) -> Tensor:
    """The loss per prediction with each head's weights multiplied by its gate."""
    own = gates_of(model, heads, gates)

    def scale(name: str, weights: Tensor) -> Tensor:
        return weights * own[name].to(weights.dtype)[:, None, None]

    with watch(model, list(own), parts=(), edit=scale):
        loss = evidence.objective.loss(model, batch)
    return loss.total / loss.count


def _slopes(model: nn.Module, evidence: HeldOutData, heads: Sequence[Head]) -> Tensor:
    device = next(model.parameters()).device
    gates = torch.ones(len(heads), device=device, requires_grad=True)
    losses = (_loss(model, evidence, batch, heads, gates) for batch in evidence.batches)
    slopes = [torch.autograd.grad(loss, gates)[0].abs() for loss in losses]
    return torch.stack(slopes).mean(0)


def _gates(
    model: nn.Module, evidence: HeldOutData, heads: Sequence[Head], *, steps: int = 150, penalty: float = 1.0
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
    if run.config.model.get("copy") or run.config.model.get("coverage"):
        raise ConfigError("heads cannot be removed from a model that copies or counts coverage: one head is for that")
    if not every_head(run.model):
        only = ", ".join(attentions(run.model))
        raise ConfigError(f"{only} is the only attention of this model, with a single head that it cannot do without")
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
    return replace(config, model={**config.model, **{setting: own for setting, own in counts.items() if own}})


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
        if (source / TOKENIZER).exists():  # a model of images has none
            shutil.copyfile(source / TOKENIZER, out / TOKENIZER)
        if (source / KEPT).is_dir():  # what an imported run's tokenizer was made of
            shutil.copytree(source / KEPT, out / KEPT)
        write_model(out, weights_of(run.model))
        options = run.config.train
        average = ExponentialAverage(run.model, options.ema) if options.ema else None
        (out / CHECKPOINTS).mkdir()
        written = run.config.to_mapping()
        progress = Progress(step=0, run=identity_of(written, None))
        save_checkpoint(out / CHECKPOINTS, progress, run.model, make_optimizer(run.model, options), average)
        write_config(out, written, progress.run)


def curve(
    run: Run,
    evidence: HeldOutData,
    order: Sequence[Head],
    counts: Sequence[int] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Iterator[JsonObject]:
    """Score, size and speed with more and more heads removed, in `order`, the least important first."""
    counts = sorted({*range(0, len(order) + 1, max(1, len(order) // 12)), len(order)} if counts is None else counts)
    for number, count in enumerate(counts, 1):
        yield point(prune(run, order[:count]), evidence, count, len(order) - count)
        if progress is not None:
            progress(number, len(counts))


def point(run: Run, evidence: HeldOutData, removed: int, kept: int) -> JsonObject:
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
def _milliseconds(model: nn.Module, batch: object, times: int = 7) -> float:
    """The median time of a forward pass over one batch."""
    taken = []
    for _ in range(times + 1):
        began = time.perf_counter()
        float(model(batch).sum())  # reading a number waits for the device
        taken.append(time.perf_counter() - began)
    return 1000 * statistics.median(taken[1:])


LEARNING, RAMP = 0.6, 0.7
"""The share of the updates in which gates are learnt, and of those the share in which fewer and fewer may be open."""


def learn_to_prune(
    run: Run,
    remove: int,
    *,
    steps: int,
    among: str = "*",
    learning_rate: float = 3e-4,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Run, dict[Head, float]]:
    """The run without `remove` heads, trained for `steps` updates on its own training data; and each head's chance.

    First gates on the heads are learnt together with the weights (Voita et al. 2019). Each gate is sampled, and
    how many are open on average is held to what is wanted by a multiplier that grows while there are too many (Wang,
    Wohlwend and Lei 2020), fewer and fewer at first. Then the heads whose gates are most likely shut are removed for
    good, and what is left trains on. The run given stays as it was.
    """
    heads = every_head(run.model, among)
    if not 0 <= remove <= len(heads):
        raise ConfigError(f"remove={remove} must be between 0 and the {len(heads)} heads of '{among}'")
    if steps < 2:
        raise ConfigError(f"steps={steps} must be at least 2")
    learner = _Learner(run, steps, learning_rate, progress)
    with closing(learner.stream):
        chances = learner.learn(heads, 1 - remove / len(heads), max(1, round(LEARNING * steps)))
        order = sorted(chances, key=lambda head: chances[head])
        smaller = prune(Run(run.directory, run.config, run._vocabularies, learner.model), order[:remove])
        learner.train_on(smaller.model)
    return smaller, chances


def gates_shut(
    run: Run,
    *,
    steps: int,
    among: str = "*",
    learning_rate: float = 3e-4,
    progress: Callable[[int, int], None] | None = None,
) -> dict[Head, int]:
    """The update after which each head's gate stayed shut, as fewer and fewer may be open: the order of removal.

    Gates and weights are learnt together, as in `learn_to_prune`, while the share of gates that may be open falls
    evenly from all to none. A gate is shut while its chance to be open is below one half; one that is still open at the
    end has `steps`. The run stays as it was.
    """
    heads = every_head(run.model, among)
    if steps < 2:
        raise ConfigError(f"steps={steps} must be at least 2")
    learner = _Learner(run, steps, learning_rate, progress)
    last = torch.zeros(len(heads), dtype=torch.long, device=learner.device)

    def note(number: int, chances: Tensor) -> None:
        last.masked_fill_(chances >= 0.5, number)

    with closing(learner.stream):
        learner.learn(heads, 0.0, steps, ramp=1.0, note=note)
    return dict(zip(heads, last.tolist(), strict=True))


class _Learner:
    """A copy of a run's model, its training data, and how far it has come."""

    def __init__(self, run: Run, steps: int, learning_rate: float, progress: Callable[[int, int], None] | None) -> None:
        self.options, self.steps, self.peak, self.progress = run.config.train, steps, learning_rate, progress
        self.device = next(run.model.parameters()).device
        self.precision = choose_precision(self.options.precision, self.device)
        self.model = copy.deepcopy(run.model)
        _, self.prepared = run.task.prepare(run.config, run.directory, Silence(), new=False)
        pack = packs(type(run.model), self.options.pack, self.device)
        self.stream = self.prepared.stream(Position(0, 0), pin=self.device.type == "cuda", pack=pack)
        self.step = 0

    def learn(
        self,
        heads: Sequence[Head],
        share: float,
        steps: int,
        *,
        ramp: float = RAMP,
        note: Callable[[int, Tensor], None] | None = None,
    ) -> dict[Head, float]:
        """Train weights and gates together until `share` of the gates are open; the chance of each to be open.

        Fewer and fewer may be open in the first `ramp` of the steps. `note` is told every step's chances.
        """
        gates = HardConcrete(len(heads)).to(self.device).train()
        price = nn.Parameter(torch.zeros(2, device=self.device))
        weights = self._optimizer(self.model)
        others = torch.optim.Adam(gates.parameters(), lr=0.1)
        raising = torch.optim.Adam([price], lr=0.1, maximize=True)
        self.model.train()
        for number in range(1, steps + 1):
            batch = self._next(weights)
            wanted = 1 - (1 - share) * min(1.0, number / (ramp * steps))
            with precision_context(self.device, self.precision), scaled(self.model, heads, gates()):
                loss = self.prepared.objective.loss(self.model, batch)
            over = gates.chance_open().mean() - wanted
            (loss.total / loss.count + price[0] * over + price[1] * over**2).backward()
            clip_gradients([one for group in weights.param_groups for one in group["params"]], self.options.clip)
            for optimizer in (weights, others, raising):
                optimizer.step()
                optimizer.zero_grad()
            if note is not None:
                note(number, gates.chance_open().detach())
        self.model.eval()
        return dict(zip(heads, gates.chance_open().tolist(), strict=True))

    def train_on(self, model: nn.Module) -> None:
        """The updates that are left, without gates."""
        optimizer = self._optimizer(model)
        model.train()
        while self.step < self.steps:
            batch = self._next(optimizer)
            train_step(
                model,
                self.prepared.objective,
                [batch],
                optimizer,
                clip=self.options.clip,
                device=self.device,
                precision=self.precision,
            )
        model.eval()

    def _optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        options = self.options
        return torch.optim.Adam(
            model.parameters(),
            lr=self.peak,
            betas=(options.betas[0], options.betas[1]),
            eps=options.epsilon,
            fused=True,
        )

    def _next(self, optimizer: torch.optim.Optimizer):
        """The next batch; the learning rate falls evenly to nothing."""
        self.step += 1
        seed_step(self.options.seed, self.step)
        for group in optimizer.param_groups:
            group["lr"] = self.peak * (1 - (self.step - 1) / self.steps)
        if self.progress is not None:
            self.progress(self.step, self.steps)
        return next(self.stream).to(self.device)


@contextmanager
def scaled(model: nn.Module, heads: Sequence[Head], gates: Tensor) -> Iterator[None]:
    """The model with what each head gives multiplied by its gate; the fused kernels go on."""
    known = attentions(model)

    def multiply(own: Tensor, width: int, module: nn.Module, given: tuple[Tensor]) -> tuple[Tensor]:
        return (given[0] * own.repeat_interleave(width).to(given[0].dtype),)

    with ExitStack() as stack:
        for name, own in gates_of(model, heads, gates).items():
            attention = known[name]
            hook = attention.output.register_forward_pre_hook(partial(multiply, own, attention.head_width))  # type: ignore[operator, union-attr]
            stack.callback(hook.remove)
        yield
