"""What can be asked of a run that forecasts. Nothing here imports torch, so that its help is instant."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from regard.tasks.verbs import Asked, Cost, Verb, option

if TYPE_CHECKING:
    from regard.tasks.run import Run


@dataclass(frozen=True, kw_only=True, slots=True)
class ForecastRequest:
    """Scenes, each a list of agents, each a list of positions [x, y] in metres; or `{"agents": [...]}`."""

    scenes: tuple[Any, ...]
    steps: int | None = option(None, "How many steps to forecast; by default all that the model was trained on.")


@dataclass(frozen=True, kw_only=True, slots=True)
class Forecasted:
    """Where each agent will be, step by step; `seconds` lie between two steps."""

    agents: list[list[list[float]]]
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Forecast(Verb):
    """A forecast, told to a person by where everyone will be at its end."""

    def checked(self, run: "Run", item: Any) -> Any:
        (scene,) = run.task.requested(run, [item])
        return scene

    def cost(self, run: "Run", asked: Asked) -> Cost:
        return Cost(run.task.size(asked.item))

    def show(self, result: Forecasted, display: Any = None) -> str:
        ahead = len(result.agents[0]) * result.seconds
        ends = (f"agent {number} ({at[-1][0]:.1f}, {at[-1][1]:.1f})" for number, at in enumerate(result.agents, 1))
        return f"in {ahead:.1f} s: {', '.join(ends)}"


FORECAST = Forecast(
    name="forecast",
    help=(
        "Say where the agents of a scene will be.\n\n"
        "A scene is JSON, one per line: a list of agents, each a list of positions [x, y] in metres, one for every "
        "0.4 seconds. The forecast goes on from the last of them.\n\n"
        "\b\n"
        "Examples:\n"
        "  regard forecast runs/road --input scenes.jsonl\n"
        "  regard forecast runs/road --input scenes.jsonl --steps 3 --json\n"
    ),
    request=ForecastRequest,
    items="scenes",
    result=Forecasted,
    unit="scenes",
)
