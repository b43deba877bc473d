"""How much of a model to look at: the page of a long text has room for some of it only."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from torch import nn

from regard.errors import ConfigError
from regard.look.document import MOST_NUMBERS, MOST_WEIGHTS, AttentionMap
from regard.look.watch import (
    OF_RECURRENCE,
    Part,
    Trace,
    attention_map,
    attentions,
    matching,
    neurons_of,
    recurrences,
    watch,
)

MOST_STATES = 12_000_000
"""Numbers of gates and states of one page: three LSTMs of 512 units, with i, f, o, g, h and c, over 1,000 steps."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LookOptions:
    """What to keep: attentions by name or pattern, heads by number, and perhaps targets to read instead of decoding.

    `vectors` are queries, keys and values: kept where there is room unless said. With `edits`, every head is masked in
    turn to see what becomes of the output; with `history`, every head is measured at every checkpoint. `told` is called
    with their progress: how many are done, and of how many. `features` are names and regular expressions: units of a
    recurrence are compared with what matches, beside what they are compared with anyway. Of sounds, the part from
    `start` to `end` is looked at, in seconds.
    """

    names: tuple[str, ...] = ("*",)
    heads: tuple[int, ...] | None = None
    vectors: bool | None = None
    targets: tuple[str, ...] | None = None
    edits: bool = False
    history: bool = False
    told: Callable[[int, int], None] | None = None
    features: Mapping[str, str] = field(default_factory=dict)
    start: int | float | None = None
    end: int | float | None = None

    def __post_init__(self) -> None:
        if self.start is not None and not 0 <= self.start < float("inf"):
            raise ConfigError(f"start={self.start} must not be negative: it is in seconds")
        if self.end is not None and not (self.start or 0.0) < self.end < float("inf"):
            raise ConfigError(f"end={self.end} must be after start={self.start or 0.0}: both are in seconds")

    def chosen(self, model: nn.Module) -> list[str]:
        """The attentions asked for, in the model's order; of a recurrent model there may be none."""
        return [name for name in self._matching(model) if name not in recurrences(model)]

    def _matching(self, model: nn.Module) -> list[str]:
        known, cells = attentions(model), recurrences(model)
        if not known and not cells:
            raise ConfigError("this model has neither attention nor recurrence to look at")
        if not known and (self.edits or self.history or self.heads is not None):
            raise ConfigError("this model has no attention: there are no heads to choose, to change or to measure")
        return matching({**known, **cells}, self.names, "attention or cell" if cells else "attention")

    def cells(self, model: nn.Module, steps: int) -> list[str]:
        """Of the recurrent cells asked for the last whose gates and states of so many steps fit a page."""
        known = recurrences(model)
        names = [name for name in self._matching(model) if name in known]
        room = MOST_STATES // max(1, steps)
        for place in range(len(names) - 1, -1, -1):
            room -= 6 * known[names[place]].width
            if room < 0:
                return names[place + 1 :]
        return names

    def fitting(self, model: nn.Module, weights: Callable[[str], int]) -> list[str]:
        """Of those asked for the last that fit a page, when `weights` says how many weights a head of one has."""
        known, names = attentions(model), self.chosen(model)
        room = MOST_WEIGHTS
        for place in range(len(names) - 1, -1, -1):
            heads = len(self.heads) if self.heads is not None else known[names[place]].heads
            room -= heads * weights(names[place])
            if room < 0:
                if place == len(names) - 1:
                    raise ConfigError(
                        f"the {heads} heads of '{names[place]}' alone have {heads * weights(names[place]):,} weights "
                        f"here; a page holds {MOST_WEIGHTS:,}: name fewer heads, or give less text"
                    )
                return names[place + 1 :]
        return names


@contextmanager
def looking(model: nn.Module, names: Sequence[str], tokens: int, options: LookOptions) -> Iterator[Trace]:
    """A trace of these attentions and of the recurrent cells that were asked for, on one sequence of so many tokens."""
    cells = options.cells(model, tokens)
    if not names and not cells:
        raise ConfigError(f"the gates and states of {tokens} steps do not fit a page: give less text")
    parts = watched_parts(model, names, tokens, options) if names else ()
    wanted = (*parts, *OF_RECURRENCE) if cells else parts
    with watch(model, [*names, *cells], heads=options.heads, parts=wanted) as trace:
        yield trace


def attention_maps(model: nn.Module, trace: Trace, options: LookOptions) -> tuple[AttentionMap, ...]:
    """Every attention of a trace of one sequence, with its vectors where they were kept."""
    found = []
    for name, attention in attentions(model).items():
        if name in trace.names:
            neurons = neurons_of(attention, trace[name], heads=options.heads)
            weights = trace.weights(name)[0].cpu()
            found.append(attention_map(name, attention.sides, weights, neurons, options.heads))
    return tuple(found)


def watched_parts(model: nn.Module, names: Sequence[str], tokens: int, options: LookOptions) -> tuple[Part, ...]:
    """What to watch of these attentions on so many tokens: queries, keys and values only where there is room."""
    known = attentions(model)
    width = sum(known[name].heads * known[name].head_width for name in names)
    vectors = 3 * width * tokens <= MOST_NUMBERS if options.vectors is None else options.vectors
    return ("weights", "q", "k", "v") if vectors else ("weights",)


def left_out_note(model: nn.Module, names: Sequence[str], options: LookOptions, steps: int = 0) -> str:
    """What a page that has not all that was asked for says about that."""
    left = len(options.chosen(model)) - len(names)
    notes = [f"The page holds the last {len(names)} attentions; {left} more did not fit." if left else ""]
    wanted, cells = [len(options.cells(model, count)) for count in (1, steps)]
    if steps and cells < wanted:
        notes.append(f"It holds the gates and states of the last {cells} cells; {wanted - cells} more did not fit.")
    said = " ".join(note for note in notes if note)
    return f"{said} Name them to see them." if said else ""
