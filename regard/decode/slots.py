"""Sources that are decoded in slots of fixed size on a device: beam search, and one choice per row and step.

A whole step (the model, the choice of candidates, the reordering of rows) works in memory of fixed size, and on a GPU
is captured as a CUDA graph once for each bucket of shapes. `decode/device.py` decides which source stands where.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.decode.beam_trace import BeamTrace, hypotheses
from regard.decode.config import DecodeConfig, divisor
from regard.decode.sample import Sampler
from regard.decode.stepper import Hypothesis
from regard.decode.topk import best_sums
from regard.errors import RegardError
from regard.nn.batch import tensors
from regard.nn.fixed_cache import Room

F = TypeVar("F", bound="Fixed")
Same = TypeVar("Same")

REACHES = (16, 32, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
"""Lengths that steps are captured for; beyond the last, multiples of it."""

GRAPHS = 24
"""Captured steps that one set of slots keeps; the one unused for longest goes first."""

READ_TOGETHER = (1, 4, 16, 64, 128)
"""Numbers of sources that are read together, and that reading them is captured for."""

SHORT = 128
"""Tokens of a source up to which reading it is captured: launching so little work takes longer than the work."""

CONSTANT = frozenset(("ends", "divisors"))
"""Tensors of a search that belong to all slots, and do not change."""


class Fixed(Protocol):
    """What a model remembers between steps, in memory of fixed size: `position` counts the steps of each source."""

    position: Int[Tensor, " B"]

    @property
    def nbytes(self) -> int:
        """The memory that it takes."""
        ...

    def reorder(self, parents: Int[Tensor, "B W"]) -> None:
        """Let row w of each source go on from what row `parents[b, w]` has chosen."""
        ...

    def take(self: Same, other: Same, slots: Int[Tensor, " N"]) -> None:
        """Go on with what another state has in these slots; it stands in the first slots of this one."""
        ...


@runtime_checkable
class FixedStepper(Protocol[F]):
    """A model whose state has a fixed size and its positions on the device, so that a whole step can be captured."""

    @property
    def choices(self) -> int:
        """How many choices there are at each step."""
        ...

    def allocate(self, room: Room) -> F:
        """The state of so many slots, all of them empty."""
        ...

    def fill(self, batch: Any, state: F, slots: Int[Tensor, " N"]) -> None:
        """Read these sources into these slots, which begin anew."""
        ...

    def fixed_step(self, choices: Int[Tensor, "B W"], state: F, reach: int, source_reach: int) -> Float[Tensor, "R V"]:
        """The scores, in single precision and not yet normalised, of each next choice after `choices` were made.

        No source has made `reach` steps or is longer than `source_reach`; neither changes what comes out.
        """
        ...


Collate = Callable[[list[Any], int | None], Any]
"""Makes of several items the batch that a model reads, padded to at least a length where one is given."""


Outputs = list[list[Hypothesis]]
"""For each of several sources what came out of it, best first."""


@dataclass(slots=True)
class Source:
    """One thing to decode: `item` is what `fill` reads, `first` the token to start from, `limit` the most choices.

    `uniforms` decide what is sampled, one number for each row and step; `before` are tokens that count as its past.
    """

    item: Any
    length: int
    first: int
    limit: int
    uniforms: Float[Tensor, "W T"] | None = None
    before: Sequence[int] = ()


def bucket(length: int, lengths: Sequence[int] = REACHES) -> int:
    """The least of `lengths` that holds `length`; beyond the last, a multiple of that."""
    last = lengths[-1]
    return next((one for one in lengths if one >= length), -(-length // last) * last)


class Rules:
    """The settings of a search that forbid or force choices, over rows that each stand at a position of their own."""

    def __init__(self, config: DecodeConfig, eos: int, stops: Sequence[int], penalty: float) -> None:
        self.config, self.eos, self.ends, self.penalty = config, eos, [eos, *stops], penalty
        self.past = bool(config.no_repeat) or penalty != 1.0  # whether they look at what was chosen before
        forced = config.force_end or config.force_first is not None
        # Whether there is at most a least length, which the kernels know of.
        self.only_least = not (self.past or forced or config.forbid or stops)

    def __call__(self, log_probs: Float[Tensor, "R C"], rows: "RowState") -> Float[Tensor, "R C"]:
        """`log_probs` changed in place, in the order in which `decode/constraints.py` has them."""
        config, position = self.config, rows.position
        if config.min_len:
            for end in self.ends:
                log_probs[:, end] = log_probs[:, end].masked_fill(position < config.min_len, -torch.inf)
        if self.penalty != 1.0:
            log_probs = torch.where(rows.seen(log_probs.shape[1]), log_probs * self.penalty, log_probs)
        for token in config.forbid:
            if token < log_probs.shape[1]:  # what is not among the choices is not chosen anyway
                log_probs[:, token] = -torch.inf
        if config.no_repeat:
            rows.forbid_repeats(log_probs, config.no_repeat)
        if config.force_first is not None:
            log_probs = self._certain(log_probs, config.force_first, position == 0)
        if config.force_end:
            log_probs = self._certain(log_probs, self.eos, position + 1 == rows.limits)
        return log_probs

    def _certain(self, log_probs: Tensor, token: int, where: Bool[Tensor, " R"]) -> Tensor:
        certain = torch.full_like(log_probs[:1], -torch.inf)
        certain[:, token] = 0.0
        return torch.where(where[:, None], certain, log_probs)


@dataclass(frozen=True, slots=True)
class RowState:
    """Where each row stands: its steps, its greatest length, what it chose (`written`) and what came before that."""

    position: Int[Tensor, " R"]
    limits: Int[Tensor, " R"]
    written: Int[Tensor, "R T"] | None
    before: Bool[Tensor, "R C"] | None

    def seen(self, choices: int) -> Bool[Tensor, "R C"]:
        assert self.written is not None
        assert self.before is not None
        there = torch.arange(self.written.shape[1], device=self.position.device) < self.position[:, None]
        # What is not there yet is entered as a token beyond the last.
        tokens = torch.where(there, self.written, choices)
        wide = torch.nn.functional.pad(self.before, (0, 1))
        return wide.scatter(1, tokens, True)[:, :choices]

    def forbid_repeats(self, log_probs: Float[Tensor, "R C"], size: int) -> None:
        assert self.written is not None
        R, T = self.written.shape
        if size > T:
            return
        starts = torch.arange(T - size + 1, device=log_probs.device)
        runs = self.written.unfold(1, size, 1)
        last = (self.position[:, None] - size + 1 + torch.arange(size - 1, device=log_probs.device)).clamp(min=0)
        same = (runs[:, :, :-1] == self.written.gather(1, last)[:, None]).all(-1)
        same &= (starts + size <= self.position[:, None]) & (self.position[:, None] >= size)
        tokens = torch.where(same, runs[:, :, -1], log_probs.shape[1])
        hidden = torch.zeros(R, log_probs.shape[1] + 1, dtype=torch.bool, device=log_probs.device)
        log_probs.masked_fill_(hidden.scatter_(1, tokens, True)[:, :-1], -torch.inf)


class Lag:
    """Copies of tensors after each step, looked at one step late, so that the device has the next step to work on.

    On a CPU there is nothing to wait for, and they are looked at at once.
    """

    def __init__(self, *values: Tensor) -> None:
        self.values, self.waits = values, values[0].device.type == "cuda"
        self.pushed = 0
        if self.waits:
            self._copies = [[torch.empty_like(one, device="cpu", pin_memory=True) for one in values] for _ in range(3)]
            self._events = [torch.cuda.Event() for _ in range(3)]

    def push(self) -> None:
        """Copy what the step just launched leaves."""
        if self.waits:
            for copy, value in zip(self._copies[self.pushed % 3], self.values, strict=True):
                copy.copy_(value, non_blocking=True)
            self._events[self.pushed % 3].record()
        self.pushed += 1

    def look(self, *, behind: int = 1) -> tuple[int, list[np.ndarray]] | None:
        """The number of the step before the last one pushed, and what it left; None where there is none yet."""
        if not self.waits:
            return self.pushed - 1, [one.numpy() for one in self.values]
        number = self.pushed - 1 - behind
        if number < 0:
            return None
        self._events[number % 3].synchronize()
        return number, [copy.numpy() for copy in self._copies[number % 3]]


@dataclass(frozen=True, slots=True)
class Fetched:
    """What ended sources left, on its way to the host; their slots may be filled again at once."""

    slots: tuple[int, ...]
    values: list[Tensor]
    event: torch.cuda.Event | None

    def arrays(self) -> list[np.ndarray]:
        """The values, once they are there."""
        if self.event is not None:
            self.event.synchronize()
        return [one.numpy() for one in self.values]


class Slots(Generic[F]):
    """Sources being decoded, W rows each. `advance` makes a step of all; how rows are chosen is for those who inherit.

    The buffers here are what all searches have: the choice of each row to be read next, which sources go on, how far
    each may go, and what was chosen at every step.
    """

    def __init__(self, stepper: FixedStepper[F], room: Room, rules: Rules, device: torch.device) -> None:
        self.stepper, self.room, self.rules, self.device = stepper, room, rules, device
        B, W, T = room.sources, room.width, room.steps + 1
        self.state = stepper.allocate(room)
        self.tokens = torch.zeros(B, W, dtype=torch.long, device=device)
        self.running = torch.zeros(B, dtype=torch.bool, device=device)
        self.failed = torch.zeros(B, dtype=torch.bool, device=device)
        self.limits = torch.ones(B, dtype=torch.long, device=device)
        self.written = torch.zeros(B, W, T, dtype=torch.long, device=device) if rules.past else None
        self.before: Tensor | None = None  # the tokens that came before what is written
        if rules.penalty != 1.0:
            self.before = torch.zeros(B, stepper.choices, dtype=torch.bool, device=device)
        self._graphs: OrderedDict[tuple[int, int], torch.cuda.CUDAGraph] = OrderedDict()
        self._fills: OrderedDict[tuple[int, int], tuple[torch.cuda.CUDAGraph, tuple[Any, ...]]] = OrderedDict()
        self._pool: Any = None
        # On the host: which source is in which slot, and how many steps were launched for it.
        self.held: list[Source | None] = [None] * B
        self.lengths_read = np.zeros(B, dtype=np.int64)
        self.made = np.zeros(B, dtype=np.int64)
        self.stopped = np.ones(B, dtype=bool)
        self.key: tuple = ()  # what searches that can have these slots next have in common

    @cached_property
    def lag(self) -> Lag:
        """What the host looks at after each step: first which sources go on, and which have failed."""
        return Lag(self.running, self.failed)

    def fill(self, sources: Sequence[Source], slots: Sequence[int], collate: Collate) -> None:
        """Begin these sources in these slots; `collate` makes of their items what the model reads."""
        numbers = [slots, [source.first for source in sources], [source.limit for source in sources]]
        places, first, limits = torch.tensor(numbers).to(self.device)
        if self.device.type == "cuda" and max(source.length for source in sources) <= SHORT:
            self._fill_captured(sources, slots, collate)
        else:
            self.stepper.fill(collate([source.item for source in sources], None), self.state, places)
        self.tokens[places] = first[:, None].expand(-1, self.room.width)
        self.limits[places] = limits
        self.failed.index_fill_(0, places, False)
        if self.before is not None:
            self.before.index_fill_(0, places, False)
            for source, slot in zip(sources, slots, strict=True):
                self.before[slot, torch.tensor(list(source.before), device=self.device)] = True
        self._begin(sources, places)
        self.running.index_fill_(0, places, True)
        for source, slot in zip(sources, slots, strict=True):
            self.held[slot], self.made[slot], self.stopped[slot] = source, 0, False
            self.lengths_read[slot] = source.length

    def _fill_captured(self, sources: Sequence[Source], slots: Sequence[int], collate: Collate) -> None:
        """Read short sources by a captured graph."""
        count = bucket(len(sources), READ_TOGETHER)
        length = bucket(max(source.length for source in sources))
        more = count - len(sources)  # the last one over again, into its own slot
        items = [source.item for source in sources] + [sources[-1].item] * more
        batch = collate(items, length)
        places = torch.tensor([*slots, *[slots[-1]] * more]).to(self.device)
        if (count, length) in self._fills:
            self._fills.move_to_end((count, length))
        else:
            if len(self._fills) >= GRAPHS:
                self._fills.popitem(last=False)
            self._fills[count, length] = self._captured(
                lambda: self.stepper.fill(batch, self.state, places), batch, places
            )
        graph, (mine, its_places) = self._fills[count, length]
        for one, other in zip(tensors(mine), tensors(batch), strict=True):
            one.copy_(other, non_blocking=True)
        its_places.copy_(places, non_blocking=True)
        graph.replay()

    def _captured(self, work: Callable[[], None], *memory: Any) -> "tuple[torch.cuda.CUDAGraph, tuple[Any, ...]]":
        """`work` as a graph, with the memory that it reads."""
        side = torch.cuda.Stream(self.device)
        side.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(side):  # what a library sets up at its first call must not be captured
            work()
        torch.cuda.current_stream(self.device).wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        self._pool = self._pool or torch.cuda.graph_pool_handle()
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            work()
        return graph, memory

    def _begin(self, sources: Sequence[Source], slots: Tensor) -> None:
        """Begin what is this search's own."""
        raise NotImplementedError

    def _choose(self, logits: Float[Tensor, "R C"], reach: int) -> None:
        """Take one choice for each row, and end the sources that are done."""
        raise NotImplementedError

    def _left(self, places: Int[Tensor, " N"], longest: int) -> tuple[Tensor, ...]:
        """What this search left of its own for sources that have ended, after at most so many steps."""
        raise NotImplementedError

    def _outputs(self, fetched: Fetched, position: Int[np.ndarray, " N"], left: list[np.ndarray]) -> Outputs:
        """The outputs in what was left."""
        raise NotImplementedError

    def fetch(self, slots: Sequence[int]) -> Fetched:
        """Begin to bring to the host what came out of sources that have ended."""
        places = torch.tensor(list(slots), device=self.device)
        longest = int(self.made[list(slots)].max())
        found = [self.failed[places], self.state.position[places], *self._left(places, longest)]
        if self.device.type != "cuda":
            return Fetched(tuple(slots), found, None)
        there = [torch.empty(one.shape, dtype=one.dtype, pin_memory=True) for one in found]
        for mine, one in zip(there, found, strict=True):
            mine.copy_(one, non_blocking=True)
        event = torch.cuda.Event()
        event.record()
        return Fetched(tuple(slots), there, event)

    def outputs(self, fetched: Fetched) -> Outputs:
        """What came out of each of the sources, best first."""
        failed, position, *left = fetched.arrays()
        if failed.any():
            raise RegardError(
                f"the model gave a log-probability that is not a number, at step {position[failed].min()}"
            )
        return self._outputs(fetched, position, left)

    def advance(self) -> None:
        """Launch one more step of all that go on."""
        busy = np.flatnonzero(~self.stopped)
        reach = bucket(int(self.made[busy].max()) + 1)
        longest = int(self.lengths_read[busy].max())
        key = min(reach, self.room.steps), min(bucket(longest), self.room.source)
        if self.device.type == "cuda":
            self._graph(key).replay()
        else:
            self._step(*key)
        self.made[busy] += 1

    def _graph(self, key: tuple[int, int]) -> torch.cuda.CUDAGraph:
        if key in self._graphs:
            self._graphs.move_to_end(key)
            return self._graphs[key]
        if len(self._graphs) >= GRAPHS:
            self._graphs.popitem(last=False)
        kept = {name: value.clone() for name, value in self._changing().items()}
        graph, _ = self._captured(lambda: self._step(*key))
        for name, value in self._changing().items():
            value.copy_(kept[name])
        self._graphs[key] = graph
        return graph

    def buffers(self) -> dict[str, Tensor]:
        """All that is kept here for each slot."""
        return {name: value for name, value in vars(self).items() if isinstance(value, Tensor) and name not in CONSTANT}

    def _changing(self) -> dict[str, Tensor]:
        """All that a step changes and reads again; keys and values are written before they are read."""
        state = {f"state.{name}": value for name, value in vars(self.state).items() if isinstance(value, Tensor)}
        return self.buffers() | state

    @torch.inference_mode()
    def _step(self, reach: int, source_reach: int) -> None:
        self._choose(self.stepper.fixed_step(self.tokens, self.state, reach, source_reach), reach)

    def _log_probs(self, logits: Float[Tensor, "R C"], reach: int) -> Float[Tensor, "R C"]:
        """The log-probabilities to choose by, under the rules."""
        W = self.room.width
        rows = RowState(
            self.state.position.repeat_interleave(W),
            self.limits.repeat_interleave(W),
            None if self.written is None else self.written[:, :, :reach].flatten(0, 1),
            None if self.before is None else self.before.repeat_interleave(W, 0),
        )
        return self.rules(logits.log_softmax(-1), rows)

    def _write(self, store: Float[Tensor, "B T W"] | Int[Tensor, "B T W"], values: Tensor) -> None:
        """Keep the values of this step in each source's next place."""
        place = self.state.position[:, None, None].expand(-1, 1, self.room.width)
        store.scatter_(1, place, values[:, None])

    def _remember(self, tokens: Int[Tensor, "B W"], parents: Int[Tensor, "B W"] | None) -> None:
        if self.written is None:
            return
        if parents is not None:
            chosen = parents[:, :, None].expand_as(self.written)
            self.written.copy_(self.written.gather(1, chosen))
        place = self.state.position[:, None, None].expand(-1, self.room.width, 1)
        self.written.scatter_(2, place, tokens[:, :, None])

    def take(self, other: "Slots[F]", slots: Sequence[int]) -> None:
        """Go on here with sources that are under way in other slots; they stand in the first of these."""
        places, count = torch.tensor(list(slots), dtype=torch.long, device=self.device), len(slots)
        theirs = other.buffers()
        for name, mine in self.buffers().items():
            mine[:count] = theirs[name][places]
        self.state.take(other.state, places)
        for slot, before in enumerate(slots):
            self.held[slot], self.made[slot] = other.held[before], other.made[before]
            self.stopped[slot], self.lengths_read[slot] = other.stopped[before], other.lengths_read[before]

    @torch.inference_mode()
    def end(self, slots: Sequence[int]) -> None:
        """Go no further with these sources."""
        self.running[torch.tensor(list(slots), device=self.device)] = False
        self.stopped[list(slots)] = True


class BeamSlots(Slots[F]):
    """Beam search, as `decode/beam.py` has it, without the host: see `beam_search` there for its rules."""

    def __init__(
        self, stepper: FixedStepper[F], room: Room, rules: Rules, device: torch.device, config: DecodeConfig
    ) -> None:
        super().__init__(stepper, room, rules, device)
        self.config = config
        B, W, T = room.sources, room.width, room.steps + 1
        # Where all that could come is bounded, only what is returned has to be safe from it.
        self.needed = config.top_beams if config.exact else config.beam
        steps = np.arange(1, T + 1)
        divisors = divisor(steps, config.length_penalty, config.length_form)
        self.divisors = torch.from_numpy(np.broadcast_to(divisors, T).astype(np.float64).copy()).to(device)
        self.sums = torch.zeros(B, W, device=device)
        self.trace_tokens = torch.zeros(B, T, W, dtype=torch.int32, device=device)
        self.trace_parents = torch.zeros(B, T, W, dtype=torch.int32, device=device)
        self.trace_sums = torch.zeros(B, T, W, device=device)
        P = self.needed
        self.pool_scores = torch.zeros(B, P, dtype=torch.double, device=device)
        self.pool_sums = torch.zeros(B, P, device=device)
        self.pool_steps = torch.zeros(B, P, dtype=torch.long, device=device)
        self.pool_parents = torch.zeros(B, P, dtype=torch.long, device=device)
        self.pool_order = torch.zeros(B, P, dtype=torch.int32, device=device)  # in which they were found
        self.ends = torch.tensor(rules.ends, device=device)
        self.kernels = None
        if device.type == "cuda" and find_spec("triton") and rules.only_least:
            from regard.nn import decoding_kernels

            self.kernels = decoding_kernels

    def _begin(self, sources: Sequence[Source], slots: Tensor) -> None:
        self.sums.index_fill_(0, slots, -torch.inf)
        self.sums[:, 0].index_fill_(0, slots, 0.0)
        self.pool_scores.index_fill_(0, slots, -torch.inf)
        self.pool_sums.index_fill_(0, slots, -torch.inf)
        self.pool_order.index_fill_(0, slots, -1)

    def _candidates(self, logits: Float[Tensor, "R C"], reach: int) -> tuple[Tensor, Tensor]:
        """The best continuations of each source, best first, and where they lie among W * C."""
        count = (1 + len(self.rules.ends)) * self.room.width
        values, places = best_sums(self.sums, self._log_probs(logits, reach), count)
        missing = (0, count - values.shape[1])
        values = torch.nn.functional.pad(values, missing, value=-torch.inf)
        return values, torch.nn.functional.pad(places, missing, value=self.rules.eos)

    def _choose(self, logits: Float[Tensor, "R C"], reach: int) -> None:
        if self.kernels is not None and self.kernels.serves_beam(self.room.width, logits.shape[1], 2 * self.room.width):
            parents = self.kernels.beam_step(logits, self, least=self.config.min_len, eos=self.rules.eos)
            self.state.reorder(parents)
            return
        W, ends, running = self.room.width, len(self.rules.ends), self.running
        position = self.state.position
        values, places = self._candidates(logits, reach)
        C, count = logits.shape[1], values.shape[1]
        parents, tokens = places // C, places % C
        ended = (tokens[..., None] == self.ends).any(-1)
        order = torch.arange(count, device=self.device)
        if ends > 1:
            # Of the ways to end one hypothesis only the likeliest counts, since they are one output; others go last.
            same = (parents[:, :, None] == parents[:, None]) & ended[:, :, None] & ended[:, None]
            again = same.tril(-1).any(-1)
            first = (again * count + order).argsort(-1)[:, : 2 * W]
            values = values.masked_fill(again, -torch.inf)
            tokens = tokens.masked_fill(ended, self.rules.eos)
            tokens, parents, values, ended = (each.gather(1, first) for each in (tokens, parents, values, ended))
            order = order[: 2 * W]
        self.failed |= running & values.isnan().any(-1)
        finished = (ended & (values > -torch.inf) & running[:, None])[:, :W]
        live = (ended * len(order) + order).argsort(-1)[:, :W]
        tokens, sums, from_rows = (each.gather(1, live) for each in (tokens, values, parents))
        sums = sums.masked_fill(tokens == self.rules.eos, -torch.inf)
        self._finish(finished, values[:, :W], parents[:, :W])
        for store, found in (
            (self.trace_tokens, tokens.int()),
            (self.trace_parents, from_rows.int()),
            (self.trace_sums, sums),
        ):
            self._write(store, found)
        horizon = self.limits - 1 if self.config.exact else position
        bound = sums[:, 0].double() / self.divisors[horizon]
        stopped = (bound <= self.pool_scores.amin(1)) | (position + 1 >= self.limits) | self.failed
        self.tokens.copy_(tokens)
        self.sums.copy_(sums)
        self.state.reorder(from_rows)
        self._remember(tokens, from_rows)
        position += running
        running &= ~stopped

    def _finish(self, finished: Bool[Tensor, "B W"], sums: Float[Tensor, "B W"], parents: Int[Tensor, "B W"]) -> None:
        """Enter the hypotheses that ended at this step; of equal ones those found first stay before others."""
        position = self.state.position
        scores = (sums.double() / self.divisors[position][:, None]).masked_fill(~finished, -torch.inf)
        all_scores = torch.cat((self.pool_scores, scores), 1)
        best = all_scores.sort(dim=1, descending=True, stable=True).indices[:, : self.needed]
        steps = position[:, None].expand_as(parents)
        found_at = (steps * self.room.width + torch.arange(self.room.width, device=self.device)).int()
        self.pool_scores.copy_(all_scores.gather(1, best))
        for pool, found in (
            (self.pool_sums, sums),
            (self.pool_steps, steps),
            (self.pool_parents, parents),
            (self.pool_order, found_at),
        ):
            pool.copy_(torch.cat((pool, found), 1).gather(1, best))

    def _left(self, places: Int[Tensor, " N"], longest: int) -> tuple[Tensor, ...]:
        return (
            self.trace_tokens[places, :longest],
            self.trace_parents[places, :longest],
            self.trace_sums[places, :longest],
            self.pool_scores[places],
            self.pool_sums[places],
            self.pool_steps[places],
            self.pool_parents[places],
            self.pool_order[places],
        )

    def _outputs(self, fetched: Fetched, position: Int[np.ndarray, " N"], left: list[np.ndarray]) -> Outputs:
        return hypotheses(BeamTrace(position - 1, *left), self.config)


class PickSlots(Slots[F]):
    """One choice per row and step, the likeliest or a sampled one."""

    def __init__(
        self, stepper: FixedStepper[F], room: Room, rules: Rules, device: torch.device, config: DecodeConfig
    ) -> None:
        super().__init__(stepper, room, rules, device)
        self.config = config
        B, W, T = room.sources, room.width, room.steps + 1
        self.over = torch.zeros(B, W, dtype=torch.bool, device=device)
        self.trace_tokens = torch.zeros(B, T, W, dtype=torch.long, device=device)
        self.trace_log_probs = torch.zeros(B, T, W, device=device)
        self.lengths = torch.zeros(B, W, dtype=torch.long, device=device)
        self.last = torch.zeros(B, W, 3, dtype=torch.double, device=device)
        self.ends = torch.tensor(rules.ends, device=device)
        self.sampler = None
        if config.temperature is not None:
            self.uniforms = torch.zeros(B, T, W, dtype=torch.double, device=device)
            kept = {"top_k": config.top_k, "top_p": config.top_p, "min_p": config.min_p}
            self.sampler = Sampler(None, temperature=config.temperature, **kept)

    @cached_property
    def lag(self) -> Lag:
        return Lag(self.running, self.failed, self.last)

    def _begin(self, sources: Sequence[Source], slots: Tensor) -> None:
        self.over.index_fill_(0, slots, False)
        self.lengths.index_fill_(0, slots, 0)
        if self.sampler is not None:
            for source, slot in zip(sources, slots.tolist(), strict=True):
                assert source.uniforms is not None
                uniforms = source.uniforms[:, : self.room.steps]
                self.uniforms[slot, : uniforms.shape[1]] = uniforms.mT.to(self.device, non_blocking=True)

    def _choose(self, logits: Float[Tensor, "R C"], reach: int) -> None:
        log_probs = self._log_probs(logits, reach)
        B, W, position = self.room.sources, self.room.width, self.state.position
        if self.sampler is None:
            chosen, tokens = log_probs.max(-1)
        else:
            place = position[:, None, None].expand(-1, 1, W)
            tokens = self.sampler.choose(log_probs, self.uniforms.gather(1, place).flatten())
            chosen = log_probs.gather(1, tokens[:, None])[:, 0]
        tokens, chosen = tokens.view(B, W), chosen.view(B, W)
        self.failed |= self.running & (chosen.isnan() & ~self.over).any(-1)
        ended = (tokens[..., None] == self.ends).any(-1)
        tokens = tokens.masked_fill(ended, self.rules.eos)
        dead = chosen == -torch.inf  # nothing was left to choose
        going = self.running[:, None] & ~self.over & ~dead
        self.lengths += going
        tokens = torch.where(going, tokens, self.rules.eos)
        chosen = torch.where(going, chosen, 0.0)
        self._write(self.trace_tokens, tokens)
        self._write(self.trace_log_probs, chosen)
        self.last.copy_(torch.stack((tokens.double(), chosen.double(), going.double()), -1))
        self.over |= ended | dead
        self._remember(tokens, None)
        self.tokens.copy_(tokens)
        stopped = self.over.all(-1) | (position + 1 >= self.limits) | self.failed
        position += self.running
        self.running &= ~stopped

    def _left(self, places: Int[Tensor, " N"], longest: int) -> tuple[Tensor, ...]:
        return self.trace_tokens[places, :longest], self.trace_log_probs[places, :longest], self.lengths[places]

    def _outputs(self, fetched: Fetched, position: Int[np.ndarray, " N"], left: list[np.ndarray]) -> Outputs:
        tokens, log_probs = (one.swapaxes(1, 2).tolist() for one in left[:2])
        lengths = left[2].tolist()
        found = []
        for place, slot in enumerate(fetched.slots):
            several = []
            for row, length in enumerate(lengths[place]):
                made, each = tokens[place][row][:length], log_probs[place][row][:length]
                finished = length > 0 and made[-1] == self.rules.eos
                total = sum(each, 0.0)
                several.append(
                    Hypothesis(
                        tokens=made[: length - finished],
                        score=self.config.score(total, max(length, 1)),
                        log_prob=total,
                        finished=finished,
                        token_log_probs=each,
                        rows=[slot * self.room.width + row] * length,
                    )
                )
            found.append(several)
        return found
