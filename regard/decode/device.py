"""Decoding that stays on the device: greedy, beam and sampling over any `FixedStepper`, and sources that take turns.

A whole step (the model, the choice of candidates, the reordering of rows) works in memory of fixed size, and on a GPU
is captured as a CUDA graph once for each bucket of shapes. The host launches one step ahead of what it looks at, so the
device never waits for it. Sources stand in slots: as one ends, another takes its slot.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from importlib.util import find_spec
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.decode.config import DecodeConfig, divisor
from regard.decode.sample import Sampler
from regard.decode.stepper import Hypothesis
from regard.decode.topk import best_sums
from regard.errors import RegardError
from regard.nn.attention import watched
from regard.nn.batch import tensors
from regard.nn.fixed_cache import Room

F = TypeVar("F", bound="Fixed")
Same = TypeVar("Same")

DEVICES = ("cuda",)
"""Where searches stay on the device. On a CPU there is nothing to wait for, and step by step is as fast."""

REACHES = (16, 32, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
"""Lengths that steps are captured for; beyond the last, multiples of it."""

GRAPHS = 24
"""Captured steps that one set of slots keeps; the one unused for longest goes first."""

ROWS = 2560
"""RowState that step together at most: more do not go faster, and their sources would wait for one another."""

SHARE = 0.5
"""Of the memory that is free, what the slots of one search may take."""


PATIENCE = 8
"""Steps that an output waits at most for others, to be brought to the host together with them."""

SIZES = (1, 4, 16, 64, 128, 256, 512, 1024, 2048)
"""Numbers of slots: few, since steps are captured for each."""

IDLE = 8
"""Sets of slots that are kept for the next search."""

FEW, SHORT = 8, 128
"""Sources, and tokens of each, up to which reading them is captured too."""

CONSTANT = frozenset(("ends", "divisors"))
"""Tensors of a search that belong to all slots, and do not change."""

CLOSE = 16
"""Tokens by which lengths may differ and still be read together."""


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
        self._fills: dict[tuple[int, int], tuple[torch.cuda.CUDAGraph, tuple[Any, ...]]] = {}
        self._pool: Any = None
        # On the host: which source is in which slot, and how many steps were launched for it.
        self.held: list[Source | None] = [None] * B
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
        if self.device.type == "cuda" and len(sources) <= FEW and max(source.length for source in sources) <= SHORT:
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

    def _fill_captured(self, sources: Sequence[Source], slots: Sequence[int], collate: Collate) -> None:
        """Read a few short sources by a captured graph: launching so little work takes longer than the work."""
        count = 1 << (len(sources) - 1).bit_length()
        length = bucket(max(source.length for source in sources))
        more = count - len(sources)  # the last one over again, into its own slot
        items = [source.item for source in sources] + [sources[-1].item] * more
        batch = collate(items, length)
        places = torch.tensor([*slots, *[slots[-1]] * more]).to(self.device)
        if (count, length) not in self._fills:
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

    def results(self, slots: Sequence[int]) -> list[list[Hypothesis]]:
        """What came out of sources that have ended."""
        raise NotImplementedError

    def advance(self) -> None:
        """Launch one more step of all that go on."""
        busy = np.flatnonzero(~self.stopped)
        reach = bucket(int(self.made[busy].max()) + 1)
        longest = max(source.length for slot in busy if (source := self.held[slot]) is not None)
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
            self.stopped[slot] = other.stopped[before]

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

    def results(self, slots: Sequence[int]) -> list[list[Hypothesis]]:
        places = torch.tensor(list(slots), device=self.device)
        longest = int(self.made[list(slots)].max())
        found = (
            self.failed[places],
            self.state.position[places],
            self.trace_tokens[places, :longest],
            self.trace_parents[places, :longest],
            self.trace_sums[places, :longest],
            self.pool_scores[places],
            self.pool_sums[places],
            self.pool_steps[places],
            self.pool_parents[places],
            self.pool_order[places],
        )
        failed, position, *found = _to_host(found)
        if failed.any():
            raise RegardError(
                f"the model gave a log-probability that is not a number, at step {position[failed].min()}"
            )
        return _hypotheses(BeamTrace(position - 1, *found), self.config)


@dataclass(frozen=True, slots=True)
class BeamTrace:
    """What a beam search of B sources left: the step each stopped at, the rows of every step, and the finished ones."""

    last: Int[np.ndarray, " B"]
    tokens: Int[np.ndarray, "B T W"]
    parents: Int[np.ndarray, "B T W"]
    sums: Float[np.ndarray, "B T W"]
    scores: Float[np.ndarray, "B P"]
    log_probs: Float[np.ndarray, "B P"]
    steps: Int[np.ndarray, "B P"]
    places: Int[np.ndarray, "B P"]
    order: Int[np.ndarray, "B P"]


def _hypotheses(trace: BeamTrace, config: DecodeConfig) -> list[list[Hypothesis]]:
    """For each source its best outputs, best first; all of them are traced back together, a step at a time."""
    ends = list(_ends(trace, config))
    flat = [(source, *end) for source, several in enumerate(ends) for end in several]
    sources, steps, rows, finished = (np.array(part, dtype=np.int64) for part in list(zip(*flat, strict=True))[:4])
    log_probs = [end[4] for end in flat]
    T = int(steps.max(initial=-1)) + 1
    totals = np.array(log_probs, dtype=np.float64)
    tokens, sums, parents = (np.zeros((len(flat), T), dtype=kind) for kind in (np.int64, np.float64, np.int64))
    # A finished one begins with the choice of its end, whose parent is `rows`; a live one is the row itself.
    done = finished.astype(bool)
    at = rows.copy()
    for step in range(T - 1, -1, -1):
        begun = steps >= step
        ending = done & (steps == step)
        row = np.where(begun & ~ending, at, 0)
        tokens[:, step] = trace.tokens[sources, step, row]
        sums[:, step] = trace.sums[sources, step, row]
        before = trace.parents[sources, step, row]
        sums[ending, step] = totals[ending]
        parents[:, step] = np.where(ending, at, before)
        at = np.where(begun & ~ending, before, at)
    made = np.diff(np.concatenate((np.zeros((len(flat), 1)), sums), 1), axis=1)
    width, found = trace.tokens.shape[2], []
    for index, (source, step, _, over, log_prob, score) in enumerate(flat):
        length = step + 1
        found.append(
            Hypothesis(
                tokens=tokens[index, : length - over].tolist(),
                score=score,
                log_prob=log_prob,
                finished=bool(over),
                token_log_probs=made[index, :length].tolist(),
                rows=(source * width + parents[index, :length]).tolist(),
            )
        )
    whole = iter(found)
    return [[next(whole) for _ in several] for several in ends]


def _ends(trace: BeamTrace, config: DecodeConfig) -> Iterator[list[tuple[int, int, int, float, float]]]:
    """For each source the last choices of the best: step, row, whether it finished, log-probability and score."""
    count = config.top_beams
    pools = (trace.scores, trace.order, trace.steps, trace.places, trace.log_probs)
    for source, (scores, order, *rest) in enumerate(zip(*(pool.tolist() for pool in pools), strict=True)):
        best = [index for index, score in enumerate(scores) if score > -np.inf]
        best.sort(key=lambda index: (-scores[index], order[index]))
        found = [(*(part[index] for part in rest[:2]), 1, rest[2][index], scores[index]) for index in best[:count]]
        if len(found) < count:
            last = int(trace.last[source])
            found = (found + _live(trace, source, last, config))[:count]
            found = found or _live(trace, source, last - 1, config)[:count]
        yield found


def _live(trace: BeamTrace, source: int, step: int, config: DecodeConfig) -> list[tuple[int, int, int, float, float]]:
    if step < 0:
        return [(-1, 0, 0, 0.0, 0.0)]
    totals = trace.sums[source, step].tolist()
    return [(step, row, 0, total, config.score(total, step + 1)) for row, total in enumerate(totals) if total > -np.inf]


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

    def results(self, slots: Sequence[int]) -> list[list[Hypothesis]]:
        places = torch.tensor(list(slots), device=self.device)
        longest = int(self.made[list(slots)].max())
        failed, position, tokens, log_probs, lengths = _to_host(
            (
                self.failed[places],
                self.state.position[places],
                self.trace_tokens[places, :longest],
                self.trace_log_probs[places, :longest],
                self.lengths[places],
            )
        )
        if failed.any():
            raise RegardError(
                f"the model gave a log-probability that is not a number, at step {position[failed].min()}"
            )
        found = []
        for place, slot in enumerate(slots):
            several = []
            for row in range(self.room.width):
                length = int(lengths[place, row])
                made = tokens[place, :length, row].tolist()
                each = log_probs[place, :length, row].tolist()
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


def _to_host(found: Sequence[Tensor]) -> list[np.ndarray]:
    """The tensors on the host, with one wait for all."""
    if found[0].device.type == "cpu":
        return [one.numpy() for one in found]
    there = [torch.empty(one.shape, dtype=one.dtype, pin_memory=True) for one in found]
    for mine, one in zip(there, found, strict=True):
        mine.copy_(one, non_blocking=True)
    torch.cuda.current_stream(found[0].device).synchronize()
    return [one.numpy() for one in there]


Key = TypeVar("Key")

Pull = Callable[[int], "list[tuple[Key, Source]]"]
"""Up to so many sources more, each under a key of the caller's; none if there are none now."""


class DeviceDecoder(Generic[F]):
    """Decodes with one model. Slots, and the steps captured in them, are kept from one search to the next.

    `collate` makes of several sources' `item`s the batch that the model reads.
    """

    def __init__(
        self,
        stepper: FixedStepper[F],
        device: torch.device,
        collate: Collate,
    ) -> None:
        self.stepper, self.device, self.collate = stepper, device, collate
        self._most: dict[Room, int] = {}
        self._weights: tuple = ()
        self._idle: OrderedDict[tuple, list[Slots[F]]] = OrderedDict()

    def slots(
        self,
        config: DecodeConfig,
        room: Room,
        *,
        eos: int,
        stops: Sequence[int] = (),
        penalty: float = 1.0,
    ) -> Slots[F]:
        """Slots for such a search, new or used before, until they are given `back`."""
        weights = _weights(self.stepper)
        if weights != self._weights:  # what was captured, and what was joined of the weights, are of others
            self._idle.clear()
            self._weights = weights
        key = _key(config), room, eos, tuple(stops), penalty
        if found := self._idle.get(key):
            return found.pop()
        rules = Rules(config, eos, stops, penalty)
        kind = PickSlots if config.temperature is not None or config.beam == 1 else BeamSlots
        made = kind(self.stepper, room, rules, self.device, config)
        made.key = key
        return made

    def back(self, slots: Slots[F]) -> None:
        """Keep these for the next search that is alike; those unused for longest go."""
        slots.end(range(slots.room.sources))
        slots.held = [None] * slots.room.sources
        if _weights(self.stepper) != self._weights:
            return
        self._idle.setdefault(slots.key, []).append(slots)
        self._idle.move_to_end(slots.key)
        while sum(map(len, self._idle.values())) > IDLE:
            oldest = next(iter(self._idle))
            self._idle[oldest].pop()
            if not self._idle[oldest]:
                del self._idle[oldest]

    def room(self, config: DecodeConfig, *, sources: int, longest: int, steps: int) -> Room:
        """Slots for so many sources, fewer where memory is short; sizes are rounded up, so that few are captured."""
        width = config.samples if config.temperature is not None else config.beam
        room = Room(1, width, bucket(steps), bucket(longest))
        if room not in self._most:
            self._most[room] = self._fitting(room)
        return replace(room, sources=min(bucket(sources, SIZES), self._most[room]))

    def _fitting(self, room: Room) -> int:
        """How many such sources fit into memory, and go together without waiting long for one another."""
        most = max(1, ROWS // room.width)
        if self.device.type != "cuda":
            return most
        one = self.stepper.allocate(room)
        free, _ = torch.cuda.mem_get_info(self.device)
        free += torch.cuda.memory_reserved(self.device) - torch.cuda.memory_allocated(self.device)
        # Log-probabilities are there a few times over while one of them is chosen.
        each = one.nbytes + 16 * room.width * self.stepper.choices
        return min(most, max(1, int(SHARE * free / each)))

    @torch.inference_mode()
    def run(
        self,
        pull: "Pull[Key]",
        config: DecodeConfig,
        *,
        eos: int,
        longest: int,
        steps: int,
        stops: Sequence[int] = (),
        penalty: float = 1.0,
        gone: Callable[[Key], bool] | None = None,
    ) -> "Iterator[list[tuple[Key, list[Hypothesis]]]]":
        """Decode all that is pulled. After each step it gives those outputs that have come out, often none.

        As sources end, others are pulled into their slots, and there are as many slots as are needed. No source is
        longer than `longest` or writes more than `steps` tokens. One that is `gone` is dropped: it has no outputs.
        """
        rules = {"eos": eos, "stops": stops, "penalty": penalty}
        most = self.room(config, sources=1 << 30, longest=longest, steps=steps)
        search: _Search[Key, F] | None = None
        waiting: list[tuple[Key, Source]] = []
        try:
            while True:
                busy = 0 if search is None else len(search.keys)
                threshold = 1 if search is None or search.room.sources < most.sources else most.sources // 8
                if not waiting and most.sources - busy >= max(1, threshold):
                    waiting = pull(most.sources - busy)
                if search is None or (waiting and len(waiting) > search.free) or search.sparse(waiting):
                    if not waiting and not busy:
                        return
                    size = replace(most, sources=min(bucket(busy + len(waiting), SIZES), most.sources))
                    if search is None or search.room != size:
                        search = self.moved(search, self.slots(config, size, **rules))
                now, waiting = waiting[: search.free], waiting[search.free :]
                if now:
                    search.fill(now, self.collate)
                if search.keys:
                    yield search.step(gone)
                elif not (waiting := pull(most.sources)):
                    return
        finally:
            if search is not None:
                self.back(search.slots)

    def moved(self, search: "_Search[Key, F] | None", slots: Slots[F]) -> "_Search[Key, F]":
        """What is under way in other slots, in these."""
        moved: _Search[Key, F] = _Search(slots)
        if search is not None:
            moved.take(search)
            self.back(search.slots)
        return moved


class _Search(Generic[Key, F]):
    """The sources in one set of slots, on the host: whose they are, and which of them have ended."""

    def __init__(self, slots: Slots[F]) -> None:
        self.slots, self.room = slots, slots.room
        self.keys: dict[int, Key] = {}
        self.born = np.zeros(self.room.sources, dtype=np.int64)  # the first step in which a slot's source takes part
        self.ended: list[int] = []
        self.waited = 0

    @property
    def free(self) -> int:
        return self.room.sources - len(self.keys)

    def sparse(self, waiting: Sequence[Any]) -> bool:
        """Whether most slots are empty and nothing waits for them: fewer are faster."""
        return not waiting and bool(self.keys) and bucket(len(self.keys), SIZES) < self.room.sources // 2

    def take(self, other: "_Search[Key, F]") -> None:
        slots = sorted(other.keys)
        self.slots.take(other.slots, slots)
        self.keys = {place: other.keys[slot] for place, slot in enumerate(slots)}
        self.ended = [slots.index(slot) for slot in other.ended]
        self.waited = other.waited
        self.born[:] = self.slots.lag.pushed

    def fill(self, new: "Sequence[tuple[Key, Source]]", collate: Collate) -> None:
        """Read sources into free slots, those of like length together."""
        free = [slot for slot in range(self.room.sources) if slot not in self.keys]
        order = sorted(range(len(new)), key=lambda index: new[index][1].length)
        start = 0
        while start < len(order):
            end = start + 1
            # A batch goes on while padding makes up less than half of it.
            while end < len(order) and new[order[end]][1].length <= 2 * new[order[start]][1].length + CLOSE:
                end += 1
            part = order[start:end]
            self.slots.fill([new[index][1] for index in part], [free[index] for index in part], collate)
            start = end
        for slot, (key, _) in zip(free, new, strict=False):
            self.keys[slot], self.born[slot] = key, self.slots.lag.pushed

    def step(self, gone: Callable[[Key], bool] | None) -> "list[tuple[Key, list[Hypothesis]]]":
        """Launch a step, look at the one before it, and bring to the host what has come out."""
        slots = self.slots
        going = not slots.stopped.all()
        if going:
            slots.advance()
            slots.lag.push()
        seen = slots.lag.look(behind=1 if going else 0)
        out: list[tuple[Key, list[Hypothesis]]] = []
        for slot in [] if gone is None else [slot for slot, key in self.keys.items() if gone(key)]:
            if slot not in self.ended:
                slots.end([slot])
                slots.held[slot] = None
                out.append((self.keys.pop(slot), []))
        if seen is not None:
            number, (running, *_) = seen
            over = ~running & (self.born <= number) & ~slots.stopped
            slots.stopped |= over
            self.ended += np.flatnonzero(over).tolist()
        self.waited = self.waited + 1 if self.ended else 0
        several = len(self.ended) >= max(1, self.room.sources // 8)
        if self.ended and (several or self.waited >= PATIENCE or slots.stopped.all()):
            for slot, found in zip(self.ended, slots.results(self.ended), strict=True):
                slots.held[slot] = None
                out.append((self.keys.pop(slot), found))
            self.ended, self.waited = [], 0
        return out


class TokenStream(Generic[Key, F]):
    """Sources whose choices are read as they are made, a step of each at a time; others may join at any time."""

    def __init__(
        self,
        decoder: DeviceDecoder[F],
        config: DecodeConfig,
        *,
        eos: int,
        longest: int,
        steps: int,
        stops: Sequence[int] = (),
        penalty: float = 1.0,
    ) -> None:
        self.decoder, self.config = decoder, config
        self._rules: Any = {"eos": eos, "stops": stops, "penalty": penalty}
        self._most = decoder.room(config, sources=1 << 30, longest=longest, steps=steps)
        self._search: _Search[Key, F] | None = None
        self._waiting: list[tuple[Key, Source]] = []

    def add(self, sources: "Sequence[tuple[Key, Source]]") -> None:
        """Begin these too, as soon as there is room."""
        self._waiting += sources

    def drop(self, key: Key) -> None:
        """Go no further with this one."""
        self._waiting = [one for one in self._waiting if one[0] != key]
        search = self._search
        for slot in [] if search is None else [slot for slot, one in search.keys.items() if one == key]:
            self._free(slot)

    def close(self) -> None:
        """Give the slots back."""
        if self._search is not None:
            self.decoder.back(self._search.slots)
            self._search = None

    @torch.inference_mode()
    def step(self) -> "list[tuple[Key, Int[np.ndarray, ' W'], Bool[np.ndarray, ' W']]]":
        """Launch a step of all; of the step before, the choice of each row, and which rows still made one."""
        told = self._make_room() if self._waiting else []
        search = self._search
        if search is None or not search.keys:
            return told
        search.slots.advance()
        search.slots.lag.push()
        return told + self._told(behind=1)

    def _make_room(self) -> "list[tuple[Key, Any, Any]]":
        """Begin what waits, in more slots where these are too few: what those still have to tell is told first."""
        search, told = self._search, []
        busy = 0 if search is None else len(search.keys)
        wanted = min(bucket(busy + len(self._waiting), SIZES), self._most.sources)
        if search is None or wanted > search.room.sources:
            if search is not None and search.slots.lag.waits:
                told = self._told(behind=0)
            slots = self.decoder.slots(self.config, replace(self._most, sources=wanted), **self._rules)
            search = self._search = self.decoder.moved(search, slots)
        now, self._waiting = self._waiting[: search.free], self._waiting[search.free :]
        if now:
            search.fill(now, self.decoder.collate)
        return told

    def _told(self, *, behind: int) -> "list[tuple[Key, Any, Any]]":
        search, told = self._search, []
        assert search is not None
        if (seen := search.slots.lag.look(behind=behind)) is None:
            return told
        number, (running, failed, last) = seen
        for slot, key in list(search.keys.items()):
            if search.born[slot] > number:
                continue
            if failed[slot]:
                raise RegardError("the model gave a log-probability that is not a number")
            told.append((key, last[slot, :, 0].astype(np.int64), last[slot, :, 2] > 0))
            if not running[slot]:
                self._free(slot)
        return told

    def _free(self, slot: int) -> None:
        search = self._search
        assert search is not None
        search.slots.end([slot])
        search.slots.held[slot] = None
        del search.keys[slot]


def _weights(stepper: object) -> tuple:
    """Which weights these are: other ones after training, pruning or a move to another device."""
    parameters = stepper.parameters() if isinstance(stepper, nn.Module) else ()
    return tuple((one.data_ptr(), 0 if one.is_inference() else one._version) for one in parameters)


def _key(config: DecodeConfig) -> tuple:
    """The settings that decide how a step is made; lengths and seeds come with each source."""
    sampled = config.temperature, config.top_k, config.top_p, config.min_p, config.samples
    rules = config.min_len, config.forbid, config.force_first, config.force_end, config.no_repeat
    return config.beam, config.top_beams, config.length_penalty, config.length_form, config.exact, sampled, rules


SERVED = frozenset(
    ("beam", "top_beams", "length_penalty", "length_form", "exact", "min_len", "max_len", "max_ratio", "max_extra",
     "forbid", "force_first", "force_end", "no_repeat", "temperature", "top_k", "top_p", "min_p", "samples", "seed")
)  # fmt: skip
"""The settings of a search that are known here. One in which another differs from its default is made step by step."""


def serves(stepper: object, config: DecodeConfig, device: torch.device) -> bool:
    """Whether this search with this model is to stay on the device."""
    if device.type not in DEVICES:
        return False
    defaults = DecodeConfig()
    known = all(
        field.name in SERVED or getattr(config, field.name) == getattr(defaults, field.name) for field in fields(config)
    )
    return known and isinstance(stepper, FixedStepper) and not watched(stepper)
