"""Scenes of a road: generated from a seed, or in files, and as the batches that a model is given.

A scene is an array of positions in metres: agents, steps of 0.4 seconds, x and y.
"""

import argparse
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.data.batches import epoch_order, evaluation_order
from regard.data.formats import numbered
from regard.errors import DataError, nearest
from regard.nn.batch import moved

Scene = Float[np.ndarray, "_A _T 2"]
Part = Literal["train", "valid", "test"]

SECONDS = 0.4
"""Between two steps of a scene, as in the pedestrian data sets of ETH and UCY: 8 steps are seen and 12 forecast."""
FURTHEST = 1e6
"""Metres from the origin that a position may be: single precision still tells a tenth of a metre apart there."""
MOST = 1000
"""Agents, or steps, that a scene in a file may have."""


@dataclass(frozen=True, slots=True)
class Scenes:
    """Scenes side by side: what was seen and, where it is known, what came after. Row b has `agents[b]` agents.

    Agents beyond those are zeros. `count` is how many positions there are to forecast, `tokens` how many positions
    there are in all.
    """

    past: Float[Tensor, "B A P 2"]
    agents: Int[Tensor, " B"]
    future: Float[Tensor, "B A F 2"] | None = None
    count: int = 0
    tokens: int = 0

    @classmethod
    def of(cls, scenes: Sequence[Scene], past: int) -> "Scenes":
        """Scenes of equally many steps, of which the first `past` are seen."""
        agents = [len(scene) for scene in scenes]
        steps = scenes[0].shape[1]
        positions = np.zeros((len(scenes), max(agents), steps, 2), dtype=np.float32)
        for row, scene in zip(positions, scenes, strict=True):
            row[: len(scene)] = scene
        seen, rest = torch.from_numpy(positions).split((past, steps - past), dim=2)
        future, total = (rest.contiguous() if steps > past else None), sum(agents)
        return cls(seen.contiguous(), torch.tensor(agents), future, total * (steps - past), total * steps)

    @property
    def present(self) -> Bool[Tensor, "B A"]:
        """Which places hold an agent."""
        return torch.arange(self.past.shape[1], device=self.past.device) < self.agents[:, None]

    def to(self, device: torch.device | str) -> "Scenes":
        return moved(self, device)


class SceneList:
    """A layout for `regard.data.Loader`: the scenes in an order of their own every epoch, like sizes together."""

    def __init__(self, scenes: Sequence[Scene], past: int, budget: int) -> None:
        self.scenes, self.past, self.budget = scenes, past, budget
        self.lengths = _lengths(scenes, past)

    def order(self, seed: int, epoch: int) -> list[Int[np.ndarray, " _"]]:
        return epoch_order(*self.lengths, budget=self.budget, seed=seed, epoch=epoch)

    def batch(self, rows: Int[np.ndarray, " _"]) -> Scenes:
        return Scenes.of([self.scenes[row] for row in rows], self.past)


def scene_batches(scenes: Sequence[Scene], past: int, budget: int) -> Iterator[tuple[Int[np.ndarray, " _"], Scenes]]:
    """Every scene once, those of fewer agents first: the numbers of a batch's scenes, and the batch."""
    before, after = _lengths(scenes, past)
    for rows in evaluation_order(before, after, budget=max(budget, int((before + after).max()))):
        yield rows, Scenes.of([scenes[row] for row in rows], past)


def _lengths(scenes: Sequence[Scene], past: int) -> tuple[Int[np.ndarray, " N"], Int[np.ndarray, " N"]]:
    agents, steps = np.array([scene.shape[:2] for scene in scenes], dtype=np.int64).T
    return agents * past, agents * (steps - past)


# Files


def read_scenes(path: Path, *, fewest: int, steps: int | None = None) -> list[Scene]:
    """The scenes of a `.jsonl` file, one per line: `{"agents": [[[x, y], [x, y], ...], ...]}`, positions in metres.

    A scene has at least `fewest` steps or, where `steps` are given, exactly so many.
    """
    if not path.is_file():
        raise DataError(f"no such file: {path}" if not path.exists() else f"{path} is not a file")
    if path.suffix.lower() != ".jsonl":
        raise DataError(f"{path}: scenes are in a .jsonl file")
    found = []
    for number, line in numbered(path):
        if line.strip():
            where = f"{path}, line {number}"
            found.append(scene_of(_parsed(line, where), where, fewest=fewest, steps=steps))
    if not found:
        raise DataError(f"{path} is empty")
    return found


def _parsed(line: str, where: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where} is not JSON: {error}") from None


def scene_of(given: Any, where: str, *, fewest: int, steps: int | None = None) -> Scene:
    """A scene from `{"agents": ...}` or from the lists themselves, everything in it checked."""
    if isinstance(given, dict):
        if "agents" not in given:
            raise DataError(f"{where} has no key 'agents'{nearest('agents', given)}")
        given = given["agents"]
    if not isinstance(given, (list, tuple, np.ndarray)) or not 1 <= len(given) <= MOST:
        raise DataError(f"{where}: a scene is a list of 1 to {MOST:,} agents, each a list of positions [x, y]")
    lengths = {len(one) if isinstance(one, (list, tuple, np.ndarray)) else 0 for one in given}
    if len(lengths) > 1 or not 1 <= max(lengths) <= MOST:
        raise DataError(f"{where}: every agent has equally many positions, 1 to {MOST:,}, not {sorted(lengths)}")
    try:
        scene = np.array([[[_number(x) for x in at] for at in one] for one in given], dtype=np.float64)
    except (TypeError, ValueError):
        raise DataError(f"{where}: a position is two numbers, [x, y]") from None
    if scene.ndim != 3 or scene.shape[2] != 2:
        raise DataError(f"{where}: a position is two numbers, [x, y]")
    if not np.abs(scene).max() <= FURTHEST:  # nor what is not a number
        raise DataError(f"{where}: positions are metres, at most {FURTHEST:,.0f} from the origin")
    if steps is not None and scene.shape[1] != steps:
        raise DataError(f"{where}: {scene.shape[1]} steps; {steps} are needed, those seen and those forecast")
    if scene.shape[1] < fewest:
        raise DataError(f"{where}: {scene.shape[1]} steps; the model reads {fewest}")
    return scene


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise TypeError
    return float(value)


def write_scenes(path: Path, scenes: Iterable[Scene]) -> None:
    """One scene per line, as `read_scenes` reads, to the centimetre."""
    with path.open("w", encoding="utf-8") as file:
        for scene in scenes:
            file.write(json.dumps({"agents": scene.round(2).tolist()}) + "\n")


# A road

LANES = np.array([-1.75, 1.75])
"""Where the middles of the lanes are, in metres to the left of the middle of the road."""
KERB = 4.5
"""How far from the middle a pedestrian waits."""
WALK = 1.4
"""Metres per second of a pedestrian."""
CAR = 4.5
"""Metres of a car's length."""
TICK = 0.1
"""Seconds of the simulation's own steps."""
CHANGE = 3.0
"""Seconds that a change of lane takes."""


class _Draws:
    """Numbers between 0 and 1, a function of the key alone."""

    def __init__(self, *key: int) -> None:
        self.random = np.random.Philox(key=np.array(key, dtype=np.uint64))

    def __call__(self, *shape: int, low: float | int = 0.0, high: float | int = 1.0) -> Float[np.ndarray, "..."]:
        # Raw bits, which numpy promises never to change.
        raw = self.random.random_raw(math.prod(shape)) >> np.uint64(11)
        return (low + (high - low) * (raw * 2.0**-53)).reshape(shape)


def generated(count: int, *, seed: int, part: Part, agents: tuple[int, int] = (2, 6), steps: int = 20) -> list[Scene]:
    """`count` scenes with the fewest to the most `agents`: a function of these alone, other ones for every part.

    A curved road has two lanes of one direction. Cars keep the speed they like, brake behind a slower one, and one of
    them may change lanes where there is room. At the kerb a pedestrian may wait until no car is near, and then cross;
    cars brake for whom they see on the road. Held-out scenes (`valid`, `test`) are usually taken with seed 0.
    """
    draw = _Draws(seed, get_args(Part).index(part))
    sizes = np.floor(draw(count, low=agents[0], high=agents[1] + 1)).astype(int)
    tracks = _simulated(draw, sizes, agents[1], steps)
    # The pedestrian is not always the last, nor the first car always the first.
    order = np.argsort(np.where(np.arange(agents[1]) < sizes[:, None], draw(count, agents[1]), 2.0), axis=1)
    return [track[places[:size]] for track, places, size in zip(tracks, order, sizes, strict=True)]


def _simulated(draw: _Draws, sizes: Int[np.ndarray, " N"], most: int, steps: int) -> Float[np.ndarray, "N A T 2"]:
    """Positions of all scenes at once; the last agent of a scene may be a pedestrian, the others are cars."""
    N, numbers = len(sizes), np.arange(most)
    walks = draw(N) < 0.6
    cars = numbers < (sizes - walks)[:, None]
    walker = (numbers == sizes[:, None] - 1) & walks[:, None]
    # Along the road and across it; cars one behind the other, the first far ahead.
    ahead = -np.cumsum(draw(N, most, low=9.0, high=26.0), axis=1)
    lane = (draw(N, most) < 0.5).astype(int)
    liked = draw(N, most, low=7.0, high=15.0)
    speed = liked * draw(N, most, low=0.7, high=1.0)
    across = LANES[lane]
    # One car changes lanes, as soon as there is room after the time that it has in mind.
    changer = (numbers == np.floor(draw(N) * np.maximum(1, cars.sum(1)))[:, None]) & cars & (draw(N) < 0.7)[:, None]
    planned, began = draw(N, 1, low=0.0, high=5.0), np.full((N, most), np.inf)
    # The pedestrian stands where the cars come by, on one side or the other.
    place, side = draw(N, low=-30.0, high=25.0), np.where(draw(N) < 0.5, -1.0, 1.0)
    walked, walking = np.zeros(N), np.zeros(N, dtype=bool)
    patience = draw(N, low=2.5, high=4.5)
    positions = np.zeros((N, most, steps, 2))
    road = _Road(draw, N)
    ticks = round(SECONDS / TICK)
    for tick in range((steps - 1) * ticks + 1):
        now = tick * TICK
        eased = np.clip((now - began) / CHANGE, 0.0, 1.0)
        eased = eased * eased * (3.0 - 2.0 * eased)
        offset = across + eased * (LANES[lane] - across)
        if tick % ticks == 0:
            along = np.where(walker, place[:, None], ahead)
            offset_now = np.where(walker, (side * (walked - KERB))[:, None], offset)
            positions[:, :, tick // ticks] = road.points(along, offset_now)
        # Who drives before whom: gaps between bumpers, where nobody does a very long one.
        apart = ahead[:, None, :] - ahead[:, :, None]
        before = (apart > 0) & (lane[:, None, :] == lane[:, :, None]) & cars[:, None, :]
        gaps = np.where(before, apart - CAR, 1e3)
        leader = gaps.argmin(-1)
        gap = np.maximum(np.take_along_axis(gaps, leader[..., None], -1)[..., 0], 0.5)
        closing = np.where(gap < 1e3, speed - np.take_along_axis(speed, leader, 1), 0.0)
        # A pedestrian on the road is like a car that stands there.
        crossing = walks & walking & (walked < 2 * KERB)
        until = place[:, None] - ahead - CAR / 2 - 1.0
        stands = crossing[:, None] & (until > 0) & (until < gap)
        gap, closing = np.where(stands, np.maximum(until, 0.5), gap), np.where(stands, speed, closing)
        # The intelligent driver model (Treiber, Hennecke and Helbing 2000).
        wished = 2.0 + np.maximum(0.0, 1.2 * speed + speed * closing / (2 * math.sqrt(1.5 * 3.0)))
        pull = np.clip(1.5 * (1 - (speed / liked) ** 4 - (wished / gap) ** 2), -7.0, 1.5)
        slower = np.maximum(0.0, speed + TICK * pull)
        ahead = ahead + TICK * (speed + slower) / 2
        speed = slower
        # Room in the other lane, before and behind.
        beside = (lane[:, None, :] != lane[:, :, None]) & cars[:, None, :]
        room = np.where(beside, np.abs(apart), 1e3).min(-1) > 9.0
        starts = changer & (now >= planned) & np.isinf(began) & room
        began, lane = np.where(starts, now, began), np.where(starts, 1 - lane, lane)
        arrives = np.where(cars & (until > -CAR), np.maximum(until, 0.0) / np.maximum(speed, 0.3), np.inf).min(1)
        walking |= arrives > patience
        walked = np.minimum(walked + TICK * WALK * (walking & walks), 2 * KERB)
    return positions


class _Road:
    """Arcs of a circle, each somewhere and in some direction."""

    def __init__(self, draw: _Draws, count: int) -> None:
        self.bend = np.where(draw(count, 1) < 0.5, -1.0, 1.0) * draw(count, 1, low=0.0005, high=0.012)
        self.heading = draw(count, 1, high=2 * math.pi)
        self.origin = draw(count, 1, 2, low=-50.0, high=50.0)

    def points(self, along: Float[np.ndarray, "N A"], left: Float[np.ndarray, "N A"]) -> Float[np.ndarray, "N A 2"]:
        """Where one is who has gone so far along the middle and stands so far to its left."""
        turn = along * self.bend
        x = np.sin(turn) / self.bend - left * np.sin(turn)
        y = (1 - np.cos(turn)) / self.bend + left * np.cos(turn)
        cos, sin = np.cos(self.heading), np.sin(self.heading)
        return np.stack((x * cos - y * sin, x * sin + y * cos), axis=-1) + self.origin


def main(arguments: Sequence[str] | None = None) -> None:
    """Write generated scenes: `python -m regard_road.data scenes.jsonl --scenes 100 --part test`."""
    parser = argparse.ArgumentParser(prog="python -m regard_road.data", description="Write generated scenes.")
    parser.add_argument("out", type=Path, help="the .jsonl file to write")
    parser.add_argument("--scenes", type=int, default=100)
    parser.add_argument("--part", choices=get_args(Part), default="train")
    parser.add_argument(
        "--seed", type=int, default=0, help="0 with --part test gives the scenes that runs are tested on"
    )
    parser.add_argument("--steps", type=int, default=20, help="8 gives what a model sees, without what comes after")
    given = parser.parse_args(arguments)
    # What comes later changes nothing of what came before, so that fewer steps are the beginnings of the same scenes.
    write_scenes(given.out, generated(given.scenes, seed=given.seed, part=given.part, steps=given.steps))


if __name__ == "__main__":
    main()
