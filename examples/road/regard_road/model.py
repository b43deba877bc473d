"""Agent-aware attention over agents and steps: where everyone has been, to where everyone will be."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.errors import ConfigError, DataError
from regard.models.protocols import Capabilities
from regard.nn.attention import ACROSS, WITHIN, Arithmetic, Sides, Watcher, softmax_visible
from regard.nn.blocks import BlockConfig, FeedForward, Sublayer, make_norm
from regard.nn.dropout import Dropout
from regard.nn.initialization import initialise
from regard.nn.positions import Positions
from regard_road.data import SECONDS, Scenes

METRES, SPEED = 20.0, 10.0
"""What counts as one inside the model: of distances, and of metres per second."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RoadConfig:
    """A scene has at most `agents`; `past` steps of it are seen and `future` steps forecast.

    - `agent_aware`: a token compares itself with tokens of its own agent and with those of others by different
      queries and keys; false makes it plain attention.
    - `agent_encoding` tells agents apart by a learned vector of their place in the list; `none` lets a forecast not
      depend on the order of the agents at all.
    """

    agents: int = 6
    past: int = 8
    future: int = 12
    width: int = 64
    heads: int = 4
    encoder_layers: int = 2
    decoder_layers: int = 2
    feed_forward: int = 128
    agent_aware: bool = True
    agent_encoding: Literal["learned", "none"] = "learned"
    dropout: float = 0.0

    def __post_init__(self) -> None:
        for name in ("agents", "future", "encoder_layers", "decoder_layers"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}={getattr(self, name)} must be at least 1")
        if self.past < 2:
            raise ConfigError(f"past={self.past} must be at least 2: a speed is the difference of two positions")
        if self.width % 2:
            raise ConfigError(f"width={self.width} must be even for sinusoidal positions")
        self.block()

    @property
    def max_len(self) -> int:
        """Steps of a scene."""
        return self.past + self.future

    def block(self) -> BlockConfig:
        return BlockConfig(width=self.width, heads=self.heads, feed_forward=self.feed_forward, dropout=self.dropout)


class AgentAwareAttention(nn.Module):
    """Attention whose scores are M * (q_own k_own') + (1 - M) * (q_other k_other'), M saying who is the same agent.

    The idea is AgentFormer's (Yuan et al. 2021): what a car's own past means to it and what others' means are two
    questions. Not `aware`, all tokens are compared alike. `watcher` is for `regard.look`.
    """

    def __init__(self, width: int, heads: int, *, aware: bool = True, sides: Sides = WITHIN) -> None:
        super().__init__()
        self.heads, self.head_width, self.sides, self.aware = heads, width // heads, sides, aware
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width)
        self.other_query = nn.Linear(width, width) if aware else None
        self.other_key = nn.Linear(width, width) if aware else None
        self.value, self.output = nn.Linear(width, width), nn.Linear(width, width)
        self.watcher: Watcher | None = None

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        memory: Float[Tensor, "B S D"],
        same: Bool[Tensor, "T S"],
        visible: Bool[Tensor, "B 1 1 S"],
    ) -> Float[Tensor, "B T D"]:
        q, k, v = self._split(self.query(x)), self._split(self.key(memory)), self._split(self.value(memory))
        scores = q @ k.mT
        if self.other_query is not None and self.other_key is not None:
            others = self._split(self.other_query(x)), self._split(self.other_key(memory))
            scores = torch.where(same, scores, others[0] @ others[1].mT)
            q, k = torch.cat((q, others[0]), -1), torch.cat((k, others[1]), -1)
        weights = softmax_visible(scores * self.head_width**-0.5, visible)
        if self.watcher is not None:
            weights = self.watcher(q, k, v, weights)
        return self.output((weights.to(v.dtype) @ v).transpose(1, 2).flatten(2))

    def arithmetic(
        self, q: Float[Tensor, "H T Q"], k: Float[Tensor, "H S Q"], heads: Sequence[int] | None = None
    ) -> Arithmetic | None:
        """A plain product where all are compared alike; else the vectors alone do not say which half of them counts."""
        return None if self.aware else Arithmetic(q, k, self.head_width**-0.5)

    def _split(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B H T K"]:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)


class RoadBlock(nn.Module):
    """Agent-aware attention, to the tokens themselves or to a memory, then feed-forward."""

    def __init__(self, config: RoadConfig, sides: Sides) -> None:
        super().__init__()
        block = config.block()
        self.attention = AgentAwareAttention(config.width, config.heads, aware=config.agent_aware, sides=sides)
        self.feed_forward = FeedForward(block)
        self.around_attention, self.around_feed_forward = Sublayer(block), Sublayer(block)

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        memory: Float[Tensor, "B S D"] | None,
        same: Bool[Tensor, "T S"],
        visible: Bool[Tensor, "B 1 1 S"],
    ) -> Float[Tensor, "B T D"]:
        entered = self.around_attention.enter(x)
        gathered = self.attention(entered, entered if memory is None else memory, same, visible)
        x = self.around_attention.leave(x, gathered)
        return self.around_feed_forward.leave(x, self.feed_forward(self.around_feed_forward.enter(x)))


class RoadModel(nn.Module):
    """An encoder over the positions of all agents, and a decoder with one query for each agent and step to come.

    Each position is a token with an encoding of its step and one of its agent. What comes out is added to where the
    agent would be at constant velocity, and is nothing before training. Scenes are moved and turned to where their
    agents are and go, so that a scene elsewhere has the same forecast there.
    """

    capabilities: ClassVar[Capabilities] = Capabilities(tasks=("forecasting",), tunes=("dropout",))

    def __init__(self, config: RoadConfig) -> None:
        super().__init__()
        self.config = config
        D = config.width
        self.state = nn.Linear(4, D)
        self.encoder = nn.ModuleList(RoadBlock(config, WITHIN) for _ in range(config.encoder_layers))
        self.memory_norm = make_norm("layer", D)
        self.start = nn.Linear(D, D)
        self.decoder = nn.ModuleList(RoadBlock(config, ACROSS) for _ in range(config.decoder_layers))
        self.norm = make_norm("layer", D)
        self.displacement = nn.Linear(D, 2)
        self.dropout = Dropout(config.dropout)
        initialise(self)
        nn.init.zeros_(self.displacement.weight)
        self.steps = Positions("sinusoidal", D, config.max_len)
        learned = config.agent_encoding == "learned"
        self.agents = Positions("learned", D, config.agents) if learned else None

    def forward(self, batch: Scenes) -> Float[Tensor, "B A F 2"]:
        """Where every agent will be at every step to come, in metres."""
        past, present = batch.past, batch.present
        _, A, P, _ = past.shape
        self._check(A, P)
        ahead = self.config.future
        frame = Frame.of(past, present)
        seen, coming = _places(A, 0, P, past.device), _places(A, P, ahead, past.device)
        visible = present.repeat_interleave(P, 1)[:, None, None]
        x = self._encoded(self.state(_states(frame.enter(past))).flatten(1, 2), seen)
        for block in self.encoder:
            x = block(x, None, _same(seen, seen), visible)
        memory = self.memory_norm(x)
        last = self.start(memory.unflatten(1, (A, P))[:, :, -1])
        y = self._encoded(last.repeat_interleave(ahead, 1), coming)
        for block in self.decoder:
            y = block(y, memory, _same(coming, seen), visible)
        moved = self.displacement(self.norm(y)).float().unflatten(1, (A, ahead)) * METRES
        return constant_velocity(past, ahead) + frame.leave(moved)

    def logits(self, batch: Scenes) -> Float[Tensor, "B A F 2"]:
        """What there is to read off this model: positions."""
        return self(batch)

    def _encoded(self, x: Float[Tensor, "B T D"], places: Int[Tensor, "2 T"]) -> Float[Tensor, "B T D"]:
        agents, steps = (row.expand(x.shape[0], -1) for row in places)
        x = self.steps(x, places=steps)
        return self.dropout(x if self.agents is None else self.agents(x, places=agents))

    def _check(self, agents: int, past: int) -> None:
        if agents > self.config.agents:
            raise DataError(f"a scene has {agents} agents; model.agents={self.config.agents} is the most")
        if past != self.config.past:
            raise DataError(f"{past} steps are given to see; model.past={self.config.past} are needed")


@dataclass(frozen=True, slots=True)
class Frame:
    """Where the agents of a scene are on average, and the way that they go together."""

    origin: Float[Tensor, "B 1 1 2"]
    cos: Float[Tensor, "B 1 1"]
    sin: Float[Tensor, "B 1 1"]

    @classmethod
    def of(cls, past: Float[Tensor, "B A P 2"], present: Bool[Tensor, "B A"]) -> "Frame":
        there = present[..., None].to(past.dtype)
        origin = (past[:, :, -1] * there).sum(1) / there.sum(1)
        way = ((past[:, :, -1] - past[:, :, 0]) * there).sum(1)
        # Where nobody moves one way is as good as another.
        way = torch.where((way.norm(dim=-1, keepdim=True) > 1e-3), way, way.new_tensor([1.0, 0.0]))
        cos, sin = F.normalize(way, dim=-1)[:, :, None, None].unbind(1)
        return cls(origin[:, None, None], cos, sin)

    def enter(self, positions: Float[Tensor, "B A P 2"]) -> Float[Tensor, "B A P 2"]:
        """Positions as seen from there."""
        x, y = (positions - self.origin).unbind(-1)
        return torch.stack((x * self.cos + y * self.sin, y * self.cos - x * self.sin), -1)

    def leave(self, displacements: Float[Tensor, "B A P 2"]) -> Float[Tensor, "B A P 2"]:
        """Displacements as they are outside."""
        x, y = displacements.unbind(-1)
        return torch.stack((x * self.cos - y * self.sin, x * self.sin + y * self.cos), -1)


def constant_velocity(past: Float[Tensor, "B A P 2"], steps: int) -> Float[Tensor, "B A F 2"]:
    """Where everyone would be who went on as between the last two positions: what a forecast is measured against."""
    last, before = past[:, :, -1:], past[:, :, -2:-1]
    return last + (last - before) * torch.arange(1, steps + 1, device=past.device)[:, None]


def _states(positions: Float[Tensor, "B A P 2"]) -> Float[Tensor, "B A P 4"]:
    """Position and speed of each agent at each step; of the first step, the speed towards the second."""
    speeds = positions.diff(dim=2) / SECONDS
    return torch.cat((positions / METRES, torch.cat((speeds[:, :, :1], speeds), 2) / SPEED), -1)


def _places(agents: int, first: int, steps: int, device: torch.device) -> Int[Tensor, "2 T"]:
    """The agent and the step of each token: all steps of one agent, then those of the next."""
    agent = torch.arange(agents, device=device).repeat_interleave(steps)
    return torch.stack((agent, torch.arange(first, first + steps, device=device).repeat(agents)))


def _same(queries: Int[Tensor, "2 T"], keys: Int[Tensor, "2 S"]) -> Bool[Tensor, "T S"]:
    return queries[0][:, None] == keys[0]


MODEL = RoadConfig, RoadModel
