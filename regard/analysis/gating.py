"""Let a model learn to do without heads: gates that cost something while open, and weights that follow them."""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial

import torch
from torch import Tensor, nn

from regard.analysis.pruning import Head, every_head, gates_of, prune
from regard.data import Position
from regard.errors import ConfigError
from regard.look.watch import attentions
from regard.nn.dropout import HardConcrete
from regard.tasks.run import Run, choose_precision, packs
from regard.tasks.spec import Silence
from regard.training.loop import clip_gradients, precision_context, seed_step, train_step

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

    First gates on the heads are learnt together with the weights (Voita et al. 2019). Each gate is drawn at random, and
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

    def learn(self, heads: Sequence[Head], share: float, steps: int) -> dict[Head, float]:
        """Train weights and gates together until `share` of the gates are open; the chance of each to be open."""
        gates = HardConcrete(len(heads)).to(self.device).train()
        price = nn.Parameter(torch.zeros(2, device=self.device))
        weights = self._optimizer(self.model)
        others = torch.optim.Adam(gates.parameters(), lr=0.1)
        raising = torch.optim.Adam([price], lr=0.1, maximize=True)
        self.model.train()
        for number in range(1, steps + 1):
            batch = self._next(weights)
            wanted = 1 - (1 - share) * min(1.0, number / (RAMP * steps))
            with precision_context(self.device, self.precision), scaled(self.model, heads, gates()):
                loss = self.prepared.objective.loss(self.model, batch)
            over = gates.chance_open().mean() - wanted
            (loss.total / loss.count + price[0] * over + price[1] * over**2).backward()
            clip_gradients([one for group in weights.param_groups for one in group["params"]], self.options.clip)
            for optimizer in (weights, others, raising):
                optimizer.step()
                optimizer.zero_grad()
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
