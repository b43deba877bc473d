"""Several runs as one: at every step the mean of their probabilities."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.decode.ensemble import EnsembleState, EnsembleStepper
from regard.decode.stepper import Stepper
from regard.errors import RunError
from regard.tasks.config import RunConfig
from regard.tasks.run import NotOffered, Run, load


class Ensemble(nn.Module):
    """Models that step side by side. It decodes and scores; what looks into a model has no one model to look into."""

    def __init__(self, members: Sequence[nn.Module]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)
        self._stepper = EnsembleStepper([cast("Stepper[Any]", member) for member in members])

    def forward(self, *batch: Any) -> Any:
        raise NotOffered("an ensemble decodes and scores; load one of its runs for anything else")

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            raise NotOffered(f"an ensemble decodes and scores, and has no '{name}': load one of its runs") from None

    def start(self, batch: Any) -> EnsembleState:
        return self._stepper.start(batch)

    def step(self, choices: Int[Tensor, " R"], state: EnsembleState) -> tuple[Float[Tensor, "R C"], EnsembleState]:
        return self._stepper.step(choices, state)


def ensemble(runs: Sequence[Run | str | Path], device: str = "auto") -> Run:
    """One run of several that share their vocabularies: `ensemble(["runs/a", "runs/b"]).translate(["..."])`.

    It translates or generates, scores and is evaluated by the mean of their probabilities; its settings of decoding are
    the first one's.
    """
    loaded = [run if isinstance(run, Run) else load(run, device) for run in runs]
    if not loaded:
        raise RunError("an ensemble needs at least one run")
    return joined(loaded[0], loaded[1:])


def joined(first: Run, others: Sequence[Run]) -> Run:
    """The first run with the others beside it; what does not fit is refused by name."""
    if not others:
        return first
    for run in (first, *others):
        if not isinstance(run.model, Stepper) or not run.task.has_tokenizer:
            raise RunError(f"{run.directory} is a run for {run.task.name}, which cannot be part of an ensemble")
    for run in others:
        if run.task.name != first.task.name:
            raise RunError(
                f"{run.directory} is a run for {run.task.name}, {first.directory} one for {first.task.name}: "
                "an ensemble does one task"
            )
        for side in ("source", "target"):
            mine, theirs = (getattr(one.vocabularies, side).digest() for one in (first, run))
            if mine != theirs:
                raise RunError(
                    f"{run.directory} has another {side} vocabulary than {first.directory}; an ensemble needs runs "
                    "that share theirs, such as ones trained with other seeds on the same data"
                )
    every = (first, *others)
    model = Ensemble([run.model.to(first.device) for run in every])
    return Run(first.directory, _common(every), first.vocabularies, model.eval())


def _common(runs: Sequence[Run]) -> RunConfig:
    """The first run's configuration, reading no more than the member that reads least."""
    config = runs[0].config
    model = {**config.model, "max_len": min(run.config.model_config().max_len for run in runs)}
    data = replace(config.data, max_len=min(run.config.data.max_len for run in runs))
    if hasattr(data, "carry"):
        data = replace(data, carry=all(run.config.data.carry for run in runs))
    return replace(config, model=model, data=data)
