"""How much of a model to look at: the page of a long text has room for some of it only."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import nn

from regard.errors import ConfigError
from regard.look.document import AttentionMap
from regard.look.watch import Part, Trace, attention_map, attentions, matching, neurons_of

MOST_WEIGHTS = 50_000_000
"""Weights of one page: 50 heads on 1,000 tokens."""

MOST_NUMBERS = 6_000_000
"""Numbers of queries, keys and values of one page."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LookOptions:
    """What to keep: attentions by name or pattern, heads by number, and perhaps targets to read instead of decoding.

    `vectors` are queries, keys and values: kept where there is room unless said. With `edits`, every head is masked in
    turn to see what becomes of the output; with `history`, every head is measured at every checkpoint. `told` is called
    with their progress: how many are done, and of how many.
    """

    names: tuple[str, ...] = ("*",)
    heads: tuple[int, ...] | None = None
    vectors: bool | None = None
    targets: tuple[str, ...] | None = None
    edits: bool = False
    history: bool = False
    told: Callable[[int, int], None] | None = None

    def chosen(self, model: nn.Module) -> list[str]:
        """The attentions asked for, in the model's order."""
        known = attentions(model)
        if not known:
            raise ConfigError("this model has no attention to look at")
        return matching(known, self.names)

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


def left_out_note(model: nn.Module, names: Sequence[str], options: LookOptions) -> str:
    """What a page that has not all that was asked for says about that."""
    left = len(options.chosen(model)) - len(names)
    said = f"The page holds the last {len(names)} attentions; {left} more did not fit. Name them to see them."
    return said if left else ""
