"""Forecasting: where several agents have been, to where each of them will be."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.data import Loader, Position
from regard.errors import ConfigError, DataError
from regard.look.document import Document, Sentence, Side
from regard.look.watch import watch
from regard.tasks.config import RunConfig
from regard.tasks.looking.look_options import LookOptions, attention_maps, left_out_note, watched_parts
from regard.tasks.run import Run, absolute
from regard.tasks.spec import MEASURING, Files, Measuring, Progress, Report, Task
from regard.training.objectives import Loss, Objective
from regard_road.data import (
    SECONDS,
    Part,
    Scene,
    SceneList,
    Scenes,
    generated,
    read_scenes,
    scene_batches,
    scene_of,
)
from regard_road.model import constant_velocity
from regard_road.verbs import Forecasted

HELD_OUT = {"valid": 500, "test": 1000}
"""How many scenes are generated to validate on, and how many to test on: the same for every run."""
MISS = 2.0
"""Metres from where it ended that an agent's forecast counts as missed."""
BUDGET = 4800
"""Positions of one batch where nothing is trained."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ForecastingData(Files):
    """Scenes in `.jsonl` files or, without any to train on, `scenes` generated ones, a function of the `seed`.

    Generated scenes have from the first to the second number of `agents`.
    """

    scenes: int = 8000
    seed: int = 1
    agents: tuple[int, ...] = (2, 6)

    def __post_init__(self) -> None:
        if self.scenes < 1 or self.seed < 0:
            raise ConfigError(f"data.scenes={self.scenes} must be at least 1 and data.seed={self.seed} not negative")
        if len(self.agents) != 2 or not 2 <= self.agents[0] <= self.agents[1]:
            raise ConfigError(f"data.agents={list(self.agents)} must be the fewest, at least 2, and the most agents")


@dataclass(frozen=True, kw_only=True, slots=True)
class ForecastingOptions:
    """The first `limit` scenes."""

    limit: int | None = None


@dataclass(frozen=True, slots=True)
class Forecasting:
    """Forecast every position of every agent: Huber's loss of both coordinates, in metres."""

    def loss(self, model: nn.Module, batch: Scenes) -> Loss:
        assert batch.future is not None
        found, future = model(batch)[batch.present], batch.future[batch.present]
        total = F.huber_loss(found, future, reduction="sum")
        return Loss(total, batch.count, {"displacement": (found - future).norm(dim=-1).sum()})


class ForecastingRun:
    """Scenes to train on, and others to validate on."""

    def __init__(self, config: RunConfig, report: Report) -> None:
        self.config = config
        self.objective: Objective = Forecasting()
        scenes = scenes_of(config, "train")
        assert scenes is not None
        report.say(f"{len(scenes):,} scenes" + ("" if config.data.train else " generated"))
        past, budget = config.model_config().past, config.train.batch_tokens
        self._layout = SceneList(scenes, past, budget)
        self._valid = scenes_of(config, "valid")

    def stream(self, position: Position, *, pin: bool, pack: bool) -> Loader:
        """Scenes of a batch have equally many agents or nearly, so there is little to pack."""
        return Loader(self._layout, seed=self.config.train.seed, position=position, pin=pin)

    def validation(self) -> Iterator[Scenes] | None:
        if self._valid is None:
            return None
        past, budget = self._layout.past, self._layout.budget
        return (batch for _, batch in scene_batches(self._valid, past, budget))

    def scores(self, model: nn.Module) -> dict[str, float]:
        return {}


def scenes_of(config: RunConfig, part: Part) -> list[Scene] | None:
    """The scenes of this part, from its files or generated; None where only those to train on come from files."""
    data, model = config.data, config.model_config()
    if files := getattr(data, part):
        found = [one for file in files for one in read_scenes(Path(file), fewest=model.max_len, steps=model.max_len)]
        return _fitting(found, model.agents)
    if part == "train":
        return generated(data.scenes, seed=data.seed, part=part, agents=data.agents, steps=model.max_len)
    if data.train:
        return None
    return generated(HELD_OUT[part], seed=0, part=part, agents=data.agents, steps=model.max_len)


def _fitting(scenes: list[Scene], most: int) -> list[Scene]:
    if (agents := max(map(len, scenes))) > most:
        raise DataError(f"a scene has {agents} agents; model.agents={most} is the most")
    return scenes


def forecast(run: Run, scenes: Sequence[Any], steps: int | None = None) -> list[Forecasted]:
    """Where the agents of each scene will be: `forecast([[[[0, 0], [4, 0], ...], ...]])`, agents, steps, x and y.

    A scene goes on from its last step, and the model reads as many before it as it was trained on.
    """
    most = run.config.model_config().future
    if steps is not None and not 1 <= steps <= most:
        raise ConfigError(f"steps={steps} must be from 1 to model.future={most}")
    checked = TASK.requested(run, scenes)
    made = positions(run, checked) if checked else []
    return [Forecasted(agents=one[:, :steps].tolist(), seconds=SECONDS) for one in made]


@torch.inference_mode()
def positions(run: Run, scenes: Sequence[Scene], progress: Progress | None = None) -> list[Float[np.ndarray, "_A F 2"]]:
    """The forecasts of scenes of which the model sees the first steps, in their order."""
    past = run.config.model_config().past
    found: dict[int, np.ndarray] = {}
    for rows, batch in scene_batches(scenes, past, BUDGET):
        made = run.model(batch.to(run.device)).double().cpu().numpy()
        found |= {int(row): one[: len(scenes[row])] for row, one in zip(rows, made, strict=True)}
        if progress is not None:
            progress(len(found), len(scenes))
    return [found[number] for number in range(len(scenes))]


def displacement_scores(run: Run, scenes: Sequence[Scene], progress: Progress | None = None) -> dict[str, Any]:
    """How far forecasts are from what came, in metres, and how far constant velocity is.

    `average_displacement` is the mean over all agents and steps, `final_displacement` that over agents at the last
    step, `miss_rate` the share of agents that are then more than two metres away. `better_by` is how much of its
    average displacement the model takes from constant velocity. Intervals are at 95 %, from how scenes differ: agents
    of one scene are not independent of each other.
    """
    model = run.config.model_config()
    found = positions(run, scenes, progress)
    past = [torch.from_numpy(scene[None, :, : model.past]) for scene in scenes]
    straight = [constant_velocity(one, model.future)[0].numpy() for one in past]
    ours, theirs = (_errors(each, scenes, model.past) for each in (found, straight))
    return {
        "scenes": len(scenes),
        "agents": sum(map(len, scenes)),
        "steps": model.future,
        "seconds": round(model.future * SECONDS, 3),
        "miss_metres": MISS,
        **_figures(ours),
        "constant_velocity": _figures(theirs),
        **_mean("better_by", [b.mean(1) - a.mean(1) for a, b in zip(ours, theirs, strict=True)]),
    }


def _errors(
    found: Sequence[Float[np.ndarray, "_A F 2"]], scenes: Sequence[Scene], past: int
) -> list[Float[np.ndarray, "_A F"]]:
    pairs = zip(found, scenes, strict=True)
    return [np.linalg.norm(one - scene[:, past:], axis=-1) for one, scene in pairs]


def _figures(errors: Sequence[Float[np.ndarray, "_A F"]]) -> dict[str, Any]:
    return {
        **_mean("average_displacement", [one.mean(1) for one in errors]),
        **_mean("final_displacement", [one[:, -1] for one in errors]),
        **_mean("miss_rate", [(one[:, -1] > MISS).astype(float) for one in errors]),
    }


def _mean(name: str, values: Sequence[Float[np.ndarray, " _A"]]) -> dict[str, Any]:
    """The mean over all agents, and its interval from how the sums of scenes differ."""
    sums, sizes = np.array([one.sum() for one in values]), np.array([len(one) for one in values])
    mean, scenes = sums.sum() / sizes.sum(), len(values)
    apart = sums - mean * sizes
    error = 1.96 * math.sqrt((apart**2).sum() * scenes / max(1, scenes - 1)) / sizes.sum()
    return {name: float(mean), f"{name}_interval": [float(mean - error), float(mean + error)]}


class ForecastingTask(Task):
    """Positions of several agents over some steps, to a model that says where each will be in the next ones."""

    name = "forecasting"
    about = "where several agents will be"
    data = ForecastingData
    evaluation = ForecastingOptions
    unused: ClassVar = (
        *("tokenizer", "images", "decode", "train.vectors", "train.smoothing", "train.r_drop", "train.pack"),
        *("train.compile", "train.compile_loss", "train.compile_blocks", "train.cuda_graphs"),
        "train.validate_sentences",
    )
    methods: ClassVar = {"forecast": forecast}
    has_tokenizer = False
    unit = "scenes"
    loss_unit = ""

    def check(self, config: RunConfig) -> None:
        data, model = config.data, config.model_config()
        if not data.train and data.agents[1] > model.agents:
            raise ConfigError(f"data.agents={list(data.agents)} must be at most model.agents={model.agents}")
        if config.train.batch_tokens < (most := model.agents * model.max_len):
            raise ConfigError(
                f"train.batch_tokens={config.train.batch_tokens} must hold one scene of {model.agents} agents and "
                f"{model.max_len} steps: at least {most}"
            )

    def prepare(
        self, config: RunConfig, directory: Path, report: Report, *, new: bool
    ) -> tuple[RunConfig, ForecastingRun]:
        config = absolute(config) if new else config
        return config, ForecastingRun(config, report)

    def evaluate(self, run: Run, data: Any = None, how: Measuring = MEASURING) -> dict[str, Any]:
        model = run.config.model_config()
        if data is None:
            data = scenes_of(run.config, "test") or scenes_of(run.config, "valid")
            if data is None:
                raise ConfigError("nothing to measure on: the run names no test or validation set; give --data")
        elif all(isinstance(one, (str, Path)) for one in data):
            needed = {"fewest": model.max_len, "steps": model.max_len}
            data = [one for file in data for one in read_scenes(Path(file), **needed)]
        limit = how.chosen(ForecastingOptions).limit
        return displacement_scores(run, _fitting(list(data)[:limit], model.agents), how.progress)

    def show(self, scores: Mapping[str, Any]) -> str:
        straight = scores["constant_velocity"]

        def line(label: str, name: str, scale: float, unit: str) -> str:
            def shown(one: Mapping[str, Any]) -> str:
                low, high = one[f"{name}_interval"]
                return f"{scale * one[name]:6.2f} {unit} [{scale * low:.2f}, {scale * high:.2f}]"

            return f"{label:21} {shown(scores):30} {shown(straight)}"

        low, high = scores["better_by_interval"]
        return "\n".join(
            (
                f"{scores['scenes']:,} scenes, {scores['agents']:,} agents; {scores['steps']} steps, "
                f"{scores['seconds']:g} s ahead; 95 % intervals over scenes",
                f"{'':21} {'this run':30} constant velocity",
                line("average displacement", "average_displacement", 1, "m"),
                line("final displacement", "final_displacement", 1, "m"),
                line(f"missed by {scores['miss_metres']:g} m", "miss_rate", 100, "%"),
                f"{'better by':21} {scores['better_by']:6.2f} m [{low:.2f}, {high:.2f}]  on average",
            )
        )

    def compared(self, run: Run, limit: int | None, progress: Progress | None) -> dict[str, Any]:
        return self.evaluate(run, how=Measuring(options=ForecastingOptions(limit=limit), progress=progress))

    def headline(self, scores: Mapping[str, Any]) -> dict[str, str]:
        return {
            "average displacement": f"{scores['average_displacement']:.2f} m",
            "final displacement": f"{scores['final_displacement']:.2f} m",
            "missed": f"{100 * scores['miss_rate']:.1f} %",
            "constant velocity": f"{scores['constant_velocity']['average_displacement']:.2f} m",
        }

    def looks(self, run: Run) -> bool:
        return True

    def inputs(self, run: Run, words: Sequence[str], file: Path | None) -> list[Any]:
        """Scenes on the command line, as JSON, or in a file."""
        if bool(words) == bool(file):
            raise ConfigError("give scenes as JSON lists, or --input with a file of them")
        if file:
            return self.requested(run, read_scenes(file, fewest=run.config.model_config().past))
        given = []
        for number, text in enumerate(words, 1):
            try:
                given.append(json.loads(text))
            except (ValueError, RecursionError) as error:
                raise DataError(f"scene {number} is not JSON: {error}") from None
        return self.requested(run, given)

    def requested(self, run: Run, given: Sequence[Any]) -> list[Any]:
        """Scenes as the model sees them, which is their last steps."""
        past = run.config.model_config().past
        names = [f"scene {number}" for number in range(1, len(given) + 1)] if len(given) > 1 else ["the scene"]
        scenes = [scene_of(one, name, fewest=past) for one, name in zip(given, names, strict=False)]
        return _fitting([scene[:, -past:] for scene in scenes], run.config.model_config().agents) if scenes else []

    def size(self, item: Any) -> int:
        return int(np.prod(np.shape(item)[:2]))

    def look(self, run: Run, inputs: Sequence[Any], wanted: LookOptions, **decode: Any) -> Document:
        """Who looks at whom: every position seen and every position to come is a piece, an agent's are a word."""
        if wanted.edits:
            raise ConfigError("a forecast has no probabilities that a changed head could change: leave out --edits")
        scenes = self.requested(run, inputs)
        model = run.config.model_config()
        most = max(map(len, scenes))
        names = wanted.fitting(run.model, lambda name: most * most * max(model.past, model.future) * model.past)
        return Document(
            title=f"Who looks at whom in {run.directory.name}",
            note=" ".join(
                filter(
                    None,
                    (
                        f"A piece is where an agent was or will be at a step of {SECONDS} s, a word all of an agent.",
                        left_out_note(run.model, names, wanted),
                    ),
                )
            ),
            sentences=tuple(_looked(run, scene, names, wanted) for scene in scenes),
        )

    def length(self, config: RunConfig, length: int | None) -> int:
        model = config.model_config()
        return model.agents * model.max_len

    def example(self, config: RunConfig, length: int, rows: int = 1) -> Scenes:
        model = config.model_config()
        return Scenes.of([np.zeros((model.agents, model.max_len, 2))] * rows, model.past)

    def rows(self, batch: Scenes) -> int:
        return len(batch.agents)

    def random_batches(self, config: RunConfig, count: int) -> tuple[RunConfig, Objective, list[Scenes]]:
        model = config.model_config()
        rows = max(1, config.train.batch_tokens // self.length(config, None))
        draw = np.random.Generator(np.random.Philox(0))
        walks = [draw.normal(size=(rows, model.agents, model.max_len, 2)).cumsum(2) for _ in range(count)]
        return config, Forecasting(), [Scenes.of(list(walk), model.past) for walk in walks]


@torch.inference_mode()
def _looked(run: Run, scene: Scene, names: list[str], wanted: LookOptions) -> Sentence:
    model, agents = run.config.model_config(), len(scene)
    batch = Scenes.of([scene], model.past).to(run.device)
    tokens = agents * model.max_len
    with watch(run.model, names, heads=wanted.heads, parts=watched_parts(run.model, names, tokens, wanted)) as trace:
        found = run.model(batch)[0].cpu()
    return Sentence(
        source=_side(scene, [step - model.past + 1 for step in range(model.past)]),
        target=_side(found.numpy(), range(1, model.future + 1)),
        attentions=attention_maps(run.model, trace, wanted),
        scores=_gaze(trace.weights(names[-1])[0].cpu(), agents, names[-1]),
    )


def _side(scene: Float[np.ndarray, "A T 2"], steps: Sequence[int]) -> Side:
    agents = [f"agent {number}" for number in range(1, len(scene) + 1)]
    pieces = [f"{agent} t{step:+d}" if step else f"{agent} t" for agent in agents for step in steps]
    ends = (f"{agent} ({x:.1f}, {y:.1f})" for agent, (x, y) in zip(agents, scene[:, -1], strict=True))
    return Side(
        text="; ".join(ends),
        pieces=tuple(pieces),
        words=tuple(agents),
        word_of=tuple(number for number in range(len(agents)) for _ in steps),
        names=True,
    )


def _gaze(weights: Float[Tensor, "H T S"], agents: int, name: str) -> dict[str, str]:
    """Of the weight that each agent gives in one attention, the mean of its heads and steps: to whom it goes."""
    shares = weights.mean(0).unflatten(1, (agents, -1)).sum(-1).unflatten(0, (agents, -1)).mean(1)
    return {
        f"agent {number} looks at": ", ".join(f"agent {to} {100 * share:.0f} %" for to, share in enumerate(row, 1))
        for number, row in enumerate(shares.tolist(), 1)
    } | {"in": name}


TASK = ForecastingTask()
