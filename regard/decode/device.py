"""Decoding that stays on the device: greedy, beam and sampling over any `FixedStepper`, and sources that take turns.

Sources stand in slots (`decode/slots.py`): as one ends, another takes its slot. The host launches one step ahead of
what it looks at, and traces what has ended while the next steps run, so the device does not wait for it.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import nn

from regard.decode.config import DecodeConfig
from regard.decode.slots import (
    READ_TOGETHER,
    BeamSlots,
    Collate,
    F,
    Fetched,
    FixedStepper,
    PickSlots,
    Rules,
    Slots,
    Source,
    bucket,
)
from regard.decode.stepper import Hypothesis
from regard.errors import RegardError, warn
from regard.nn.attention import watched
from regard.nn.fixed_cache import Room

DEVICES = ("cuda",)
"""Where searches stay on the device. On a CPU there is nothing to wait for, and step by step is as fast."""

ROWS = 2560
"""Rows that step together at most: more do not go faster, and their sources would wait for one another."""

SHARE = 0.5
"""Of the memory that is free, what the slots of one search may take."""

TURN = 1 / 4
"""Of all slots, how many are given to other sources at once: reading those takes the host's time."""

PATIENCE = 8
"""Steps that an output waits at most for others, to be brought to the host together with them."""

SIZES = (1, 4, 16, 64, 128, 256, 512, 1024, 2048)
"""Numbers of slots: few, since steps are captured for each."""

IDLE = 8
"""Sets of slots that are kept for the next search."""

CLOSE = 16
"""Tokens by which lengths may differ and still be read together."""

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
        """Slots for such a search, new or used before, until they are given `back`; fewer where memory is short."""
        weights = _weights(self.stepper)
        if weights != self._weights:  # what was captured, and what was joined of the weights, are of others
            self._idle.clear()
            self._weights = weights
        key = _key(config), room, eos, tuple(stops), penalty
        if found := self._idle.get(key):
            return found.pop()
        rules = Rules(config, eos, stops, penalty)
        kind = PickSlots if config.temperature is not None or config.beam == 1 else BeamSlots
        asked = room.sources
        while True:
            try:
                made = kind(self.stepper, room, rules, self.device, config)
                break
            except torch.OutOfMemoryError:
                if room.sources == 1:
                    raise
                self._idle.clear()
                torch.cuda.empty_cache()
                room = replace(room, sources=room.sources // 2)
        if room.sources < asked:  # others have taken memory since it was looked at
            self._most[replace(room, sources=1)] = room.sources
            warn(f"too little memory is free to decode {asked} sources together; going on with {room.sources}")
        made.key = _key(config), room, eos, tuple(stops), penalty
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
        rules: Any = {"eos": eos, "stops": stops, "penalty": penalty}
        search: _Search[Key, F] | None = None
        waiting: list[tuple[Key, Source]] = []
        try:
            while True:
                most = self.room(config, sources=1 << 30, longest=longest, steps=steps)
                busy = 0 if search is None else len(search.keys)
                threshold = 1 if search is None or search.room.sources < most.sources else int(TURN * most.sources)
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
                    continue
                if search.fetched:
                    yield search.arrived()
                if not (waiting := pull(most.sources)):
                    return
        finally:
            if search is not None:
                self.back(search.slots)

    def moved(self, search: "_Search[Key, F] | None", slots: Slots[F]) -> "_Search[Key, F]":
        """What is under way in other slots, in these, if they hold it."""
        if search is not None and slots.room.sources < len(search.keys):
            self._most[replace(search.room, sources=1)] = search.room.sources
            return search
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
        self.fetched: list[tuple[list[Key], Slots[F], Fetched]] = []  # what has left its slots and is to be traced

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
        self.waited, self.fetched = other.waited, other.fetched
        self.born[:] = self.slots.lag.pushed

    def fill(self, new: "Sequence[tuple[Key, Source]]", collate: Collate) -> None:
        """Read sources into free slots, those of like length together."""
        free = [slot for slot in range(self.room.sources) if slot not in self.keys]
        order = sorted(range(len(new)), key=lambda index: new[index][1].length)
        start = 0
        while start < len(order):
            end = start + 1
            # A batch goes on while padding makes up less than half of it.
            longest = 2 * new[order[start]][1].length + CLOSE
            while end - start < READ_TOGETHER[-1] and end < len(order) and new[order[end]][1].length <= longest:
                end += 1
            part = order[start:end]
            self.slots.fill([new[index][1] for index in part], [free[index] for index in part], collate)
            start = end
        for slot, (key, _) in zip(free, new, strict=False):
            self.keys[slot], self.born[slot] = key, self.slots.lag.pushed

    def step(self, gone: Callable[[Key], bool] | None) -> "list[tuple[Key, list[Hypothesis]]]":
        """Launch a step, look at the one before it, and begin to fetch what has ended; what was fetched comes out."""
        slots = self.slots
        going = not slots.stopped.all()
        if going:
            self._launch()
        seen = slots.lag.look(behind=1 if going else 0)
        dropped: list[tuple[Key, list[Hypothesis]]] = []
        for slot in [] if gone is None else [slot for slot, key in self.keys.items() if gone(key)]:
            if slot not in self.ended:
                slots.end([slot])
                slots.held[slot] = None
                dropped.append((self.keys.pop(slot), []))
        if seen is not None:
            number, (running, *_) = seen
            over = ~running & (self.born <= number) & ~slots.stopped
            slots.stopped |= over
            self.ended += np.flatnonzero(over).tolist()
        before, self.fetched = self.fetched, []
        self.waited = self.waited + 1 if self.ended else 0
        several = len(self.ended) >= max(1, int(TURN * self.room.sources))
        if self.ended and (several or self.waited >= PATIENCE or slots.stopped.all()):
            self.fetched.append(([self.keys.pop(slot) for slot in self.ended], slots, slots.fetch(self.ended)))
            for slot in self.ended:
                slots.held[slot] = None
            self.ended, self.waited = [], 0
        if before and slots.lag.waits and not slots.stopped.all():
            self._launch()  # tracing may take longer than what is left of the step under way
        return dropped + _traced(before)

    def _launch(self) -> None:
        self.slots.advance()
        self.slots.lag.push()

    def arrived(self) -> "list[tuple[Key, list[Hypothesis]]]":
        """All that was fetched and has not come out yet."""
        before, self.fetched = self.fetched, []
        return _traced(before)


def _traced(fetched: "Sequence[tuple[list[Key], Slots[F], Fetched]]") -> "list[tuple[Key, list[Hypothesis]]]":
    return [pair for keys, slots, one in fetched for pair in zip(keys, slots.outputs(one), strict=True)]


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
        self._sizes = {"longest": longest, "steps": steps}
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
        most = self.decoder.room(self.config, sources=1 << 30, **self._sizes)
        wanted = min(bucket(busy + len(self._waiting), SIZES), most.sources)
        if search is None or wanted > search.room.sources:
            if search is not None and search.slots.lag.waits:
                told = self._told(behind=0)
            slots = self.decoder.slots(self.config, replace(most, sources=wanted), **self._rules)
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
