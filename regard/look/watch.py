"""See every attention, and every gate and state of a recurrence, of a model as it runs; make a document of it.

An unwatched model is the same graph as if watching did not exist.
"""

import fnmatch
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.errors import ConfigError, nearest, warn
from regard.look.document import (
    MOST_NUMBERS,
    AttentionMap,
    Document,
    Neurons,
    Recurrence,
    Sentence,
    Side,
    Units,
    that_fit,
)
from regard.look.library_attentions import library_attentions, past_the_interface
from regard.look.library_recurrences import library_recurrences
from regard.nn.attention import ACROSS, Sides, Watchable
from regard.nn.double_precision import doubles
from regard.nn.recurrent.cells import Reads, Recurs

Part = Literal["weights", "q", "k", "v", "gates", "states"]
OF_RECURRENCE: tuple[Part, ...] = ("gates", "states")
Edit = Callable[[str, Tensor], Tensor]
BLOCK = 2**20
"""How many weights are worked out at a time where the model itself does not need them."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One call of one attention: the weights it used, and q, k and v where they were asked for.

    `model_call` is which call of the whole model it belongs to, from 1; 0 where only a part of the model was called.
    """

    weights: Float[Tensor, "B H T S"] | None
    q: Float[Tensor, "B H T Q"] | None = None
    k: Float[Tensor, "B H S K"] | None = None
    v: Float[Tensor, "B H S V"] | None = None
    model_call: int = 0


@dataclass(frozen=True, slots=True)
class SeenCell:
    """One call of one recurrent cell: gates and states of its positions, each B x T x D, by their letters."""

    gates: Mapping[str, Float[Tensor, "B T D"]]
    states: Mapping[str, Float[Tensor, "B T D"]]


@dataclass(slots=True)
class Trace:
    """What was seen, by the name in the model of the attention or cell; one entry per call, in order."""

    calls: dict[str, list[Seen]] = field(default_factory=dict)
    sides: dict[str, Sides] = field(default_factory=dict)
    """What each attention's queries and keys are vectors of."""
    cells: dict[str, list[SeenCell]] = field(default_factory=dict)
    """The calls of recurrent cells, where gates or states are watched."""
    reads: dict[str, Reads] = field(default_factory=dict)
    """What the positions of each cell are: those of the text read, or of what a decoder has written."""
    backward: frozenset[str] = frozenset()
    """The cells that read from the end."""
    model_calls: int = 0
    """How often the whole model was called."""

    def gates(self, name: str) -> dict[str, Float[Tensor, "B T D"]]:
        """The gates of the cell called `name` over time: an LSTM's are i, f, o and g, a GRU's r and z."""
        return self._over_time(name, "gates")

    def states(self, name: str) -> dict[str, Float[Tensor, "B T D"]]:
        """Its states over time: h, an LSTM's c."""
        return self._over_time(name, "states")

    def _over_time(self, name: str, part: Literal["gates", "states"]) -> dict[str, Float[Tensor, "B T D"]]:
        """Calls joined: a decoder that goes step by step has one for each."""
        calls = self.cells.get(name)
        if not calls:
            raise ConfigError(f"nothing was seen of a cell '{name}'{nearest(name, self.cells)}")
        found = [getattr(one, part) for one in calls]
        if not found[0]:
            raise ConfigError(f"no {part} were seen of '{name}': name them among the parts, if the cell has any")
        rows = {len(next(iter(one.values()))) for one in found}
        if len(rows) > 1:
            raise ConfigError(f"calls of '{name}' had {sorted(rows)} rows: watch the same rows to join them over time")
        return {letter: torch.cat([one[letter] for one in found], dim=1) for letter in found[0]}

    def __getitem__(self, name: str) -> Seen:
        """The last thing seen of the attention called `name`."""
        if not self.calls.get(name):
            raise ConfigError(f"nothing was seen of '{name}'{nearest(name, self.calls)}")
        return self.calls[name][-1]

    def weights(self, name: str) -> Float[Tensor, "B H T S"]:
        """The weights of the last call of the attention called `name`."""
        seen = self[name].weights
        if seen is None:
            raise ConfigError("weights were not among the parts watched")
        return seen

    def followed(self, name: str, rows: Sequence[int]) -> Float[Tensor, "H T S"]:
        """What one output of a search looked at, one row per choice; `rows` are its hypothesis's, of this search alone.

        Of a beam that is the way of the winner through the rows of the steps. Where keys are added step by step, those
        still to come weigh nothing.
        """
        calls = self.calls.get(name, [])
        seen = [one.weights for one in calls if one.weights is not None]
        if len(seen) < max(len(calls), len(rows)):
            raise ConfigError(f"'{name}' was seen in {len(seen)} steps with weights, not in all of {len(rows)}")
        # Rows of one source may stand side by side as queries.
        found = [weights.transpose(1, 2).flatten(0, 1)[row] for weights, row in zip(seen, rows, strict=False)]
        keys = max((weights.shape[-1] for weights in found), default=0)
        return torch.stack([nn.functional.pad(weights, (0, keys - weights.shape[-1])) for weights in found], 1)

    @property
    def names(self) -> list[str]:
        return list(self.calls)

    def figure(self, *, source: Sequence[str] | None = None, target: Sequence[str] | None = None, **chosen: Any) -> Any:
        """A matplotlib figure of it: `trace.figure(attention="encoder.0.attention", heads=[0], view="map")`."""
        from regard.look.figures import figure

        return figure(trace_document(self, source=source, target=target), **chosen)

    def _repr_html_(self) -> str:
        """In a notebook, the page."""
        from regard.look.page import framed

        seen = any(self.calls.values()) or any(self.cells.values())
        return framed(trace_document(self)) if seen else "<p>Nothing was seen yet.</p>"


def attentions(model: nn.Module) -> dict[str, Watchable]:
    """Every attention of a model that can be watched, by name, in the order of the model's definition.

    Beside our own these are `torch.nn.MultiheadAttention` and Hugging Face transformers' of any architecture.
    """
    others: Mapping[str, Any] = dict(library_attentions(model))
    return {
        name: module if isinstance(module, Watchable) else others[name]
        for name, module in model.named_modules()
        if name in others or isinstance(module, Watchable)
    }


def recurrences(model: nn.Module) -> dict[str, Recurs]:
    """Every recurrent cell of a model that can be watched, by name, in the order of the model's definition.

    A layer that reads both ways has a cell for each. RWKV's are those parts of its blocks that mix over time. Those of
    `torch.nn.LSTM`, `GRU` and `RNN` follow, called after their module, layer and direction: `rnn.l0`, `rnn.l0_reverse`.
    """
    others: Mapping[str, Any] = dict(library_recurrences(model))
    return {name: module for name, module in model.named_modules() if isinstance(module, Recurs)} | dict(others)


@contextmanager
def watch(
    model: nn.Module,
    names: str | Sequence[str] = "*",
    *,
    layers: int | Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
    parts: Part | Sequence[Part] = ("weights",),
    edit: Edit | None = None,
) -> Iterator[Trace]:
    """A trace that fills while the model runs: `with watch(model, "decoder.*.cross_attention") as trace: ...`.

    `names` are names or patterns of attentions, `layers` which layers of those, `heads` which heads to keep,
    `parts` what of them: the weights, q, k or v; and of recurrent cells, whose names the patterns then are as well,
    their gates and states: `trace.gates("layers.layers.0.cells.0")["f"]`. The fused kernels go on making the
    output; what was asked for, and no more, is worked out beside them, a block of queries at a time. `edit(name,
    weights)` may return other weights, of the same shape, which the model then uses; it needs all heads at once.
    Inside another `watch` the outer one's edits come first, and it sees nothing of what the inner one sees.
    """
    if not isinstance(model, nn.Module):
        raise ConfigError(f"only a torch module can be watched, such as run.model, not {model!r:.60}")
    wanted: list[Part] = [parts] if isinstance(parts, str) else list(parts)
    for part in wanted:
        if part not in get_args(Part):
            raise ConfigError(f"unknown part '{part}'{nearest(part, get_args(Part))}")
    of_cells: list[Part] = [part for part in OF_RECURRENCE if part in wanted]
    known = attentions(model) if not of_cells or len(of_cells) < len(wanted) else {}
    cells = recurrences(model) if of_cells else {}
    if not known and not cells:
        raise ConfigError(f"this model has no {'recurrence' if of_cells else 'attention'} to watch{_instead(model)}")
    if edit is not None and not known:
        raise ConfigError("edit= changes attention weights: name them among the parts")
    patterns = [names] if isinstance(names, str) else names
    if not isinstance(patterns, Sequence) or not all(isinstance(one, str) for one in patterns):
        raise ConfigError(f"names={names!r:.60} must be a name or pattern of attentions, or several")
    chosen = _of_layers(matching({**known, **cells}, patterns, "attention or cell" if cells else "attention"), layers)
    check_heads(known, {name: heads or () for name in chosen if name in known})
    if known and "*" in patterns and (missed := past_the_interface(model)):
        warn(f"not seen: {' and '.join(missed)}, past transformers' attention interface")
    watched, stepped = [name for name in chosen if name in known], [name for name in chosen if name in cells]
    trace = Trace(
        {name: [] for name in watched},
        {name: known[name].sides for name in watched},
        {name: [] for name in stepped},
        {name: cells[name].reads for name in stepped},
        frozenset(name for name in stepped if cells[name].backward),
    )

    def count(*_: object) -> None:
        trace.model_calls += 1

    # Layers that share one attention call it several times in one call of the model.
    counting = model.register_forward_pre_hook(count)
    before = {name: known[name].watcher for name in watched}
    cells_before = {name: cells[name].state_watcher for name in stepped}
    try:
        for name in watched:
            watching = before[name]
            outer = watching.edit if isinstance(watching, _Watcher) else None
            known[name].watcher = _Watcher(trace, name, heads, wanted, _both(outer, edit))
        for name in stepped:
            cells[name].state_watcher = _CellWatcher(trace.cells[name], of_cells)
        yield trace
    finally:
        counting.remove()
        for name in reversed(watched):
            known[name].watcher = before[name]
        for name in reversed(stepped):
            cells[name].state_watcher = cells_before[name]


def _instead(model: nn.Module) -> str:
    """What can be watched where what was asked for is not there."""
    if attentions(model):
        return ": it has attention, so watch its weights, q, k or v"
    if missed := past_the_interface(model):
        return (
            f": {' and '.join(missed)} in it, past transformers' attention interface. Call it with "
            f"output_attentions=True, loaded with attn_implementation='eager', and show(outputs, tokens)"
        )
    return ": it is recurrent, so watch parts=('gates', 'states')" if recurrences(model) else ""


class _CellWatcher:
    """What stands in a recurrent cell while it is watched."""

    def __init__(self, calls: list[SeenCell], parts: Sequence[Part]) -> None:
        self.calls, self.parts = calls, parts

    def __call__(self, gates: Mapping[str, Tensor], states: Mapping[str, Tensor]) -> None:
        kept = ({name: part.detach() for name, part in found.items()} for found in (gates, states))
        gates, states = (found if part in self.parts else {} for part, found in zip(OF_RECURRENCE, kept, strict=True))
        self.calls.append(SeenCell(gates, states))

    def forget(self, calls: int) -> None:
        del self.calls[len(self.calls) - calls :]


def _both(outer: Edit | None, inner: Edit | None) -> Edit | None:
    if outer is None or inner is None:
        return outer or inner
    return lambda name, weights: inner(name, outer(name, weights))


def matching(known: Iterable[str], patterns: Iterable[str], kind: str = "attention") -> list[str]:
    """The names that fit any of the patterns, in their order; each pattern must fit one."""
    names = list(known)
    for pattern in patterns:
        if not fnmatch.filter(names, pattern):
            raise ConfigError(f"no {kind} is called '{pattern}'{nearest(pattern, names)}")
    return [name for name in names if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)]


def check_heads(known: Mapping[str, Watchable], heads: Mapping[str, Sequence[int]]) -> None:
    """Refuse attentions and heads that are not among those `known`."""
    for name, chosen in heads.items():
        if name not in known:
            raise ConfigError(f"no attention is called '{name}'{nearest(name, known)}")
        for head in chosen:
            if not 0 <= head < known[name].heads:
                raise ConfigError(f"no head {head} in '{name}': it has {known[name].heads}, counted from 0")


def _of_layers(names: list[str], layers: int | Sequence[int] | None) -> list[str]:
    if layers is None:
        return names
    wanted = [layers] if isinstance(layers, int) else list(layers)
    layer_of = {name: [int(part) for part in name.split(".") if part.isdigit()] for name in names}
    for layer in wanted:
        if not any(layer in found for found in layer_of.values()):
            known = sorted({number for found in layer_of.values() for number in found})
            raise ConfigError(f"no layer {layer} among those named; there are {known}")
    return [name for name in names if set(layer_of[name]) & set(wanted)]


class _Watcher:
    """What stands in an attention while it is watched."""

    def __init__(
        self, trace: Trace, name: str, heads: Sequence[int] | None, parts: Sequence[Part], edit: Edit | None
    ) -> None:
        self.trace, self.name, self.parts, self.edit = trace, name, parts, edit
        self.heads = None if heads is None else list(heads)

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, weights: Tensor) -> Tensor:
        if self.edit is not None:
            edited = self.edit(self.name, weights)
            if not isinstance(edited, Tensor) or edited.shape != weights.shape:
                found = tuple(edited.shape) if isinstance(edited, Tensor) else type(edited).__name__
                raise ConfigError(
                    f"edit of '{self.name}' must return weights of shape {tuple(weights.shape)}, not {found}"
                )
            weights = edited
        self._add(self._kept("weights", weights), self._kept("q", q), self._kept("k", k), self._kept("v", v))
        return weights

    def _add(self, *parts: Tensor | None) -> None:
        self.trace.calls[self.name].append(Seen(*parts, model_call=self.trace.model_calls))

    def looks_across(self) -> None:
        """Told by an attention that alone does not know it: its keys are of something else than its queries."""
        self.trace.sides[self.name] = ACROSS

    @torch.no_grad()
    def look(
        self, q: Tensor, k: Tensor, v: Tensor, weigh: Callable[[Sequence[int], slice], Tensor], groups: int = 1
    ) -> None:
        """Keep what is wanted, where the model makes its output without the weights."""
        weights = self._weigh(q, k, weigh) if "weights" in self.parts else None
        self._add(weights, self._kept("q", q), self._kept("k", k, groups), self._kept("v", v, groups))

    def _weigh(self, q: Tensor, k: Tensor, weigh: Callable[[Sequence[int], slice], Tensor]) -> Tensor:
        B, H, T, _ = q.shape
        heads = list(range(H)) if self.heads is None else self.heads
        rows = max(1, BLOCK // max(1, B * len(heads) * k.shape[2]))
        if rows >= T:
            return weigh(heads, slice(0, T))
        # Written into place: joining blocks at the end would hold everything twice.
        kept = q.new_empty((B, len(heads), T, k.shape[2]), dtype=torch.promote_types(q.dtype, torch.float32))
        for start in range(0, T, rows):
            kept[:, :, start : start + rows] = weigh(heads, slice(start, min(T, start + rows)))
        return kept

    def _kept(self, part: Part, tensor: Tensor, groups: int = 1) -> Tensor | None:
        if part not in self.parts:
            return None
        tensor = tensor.detach() if groups == 1 else tensor.detach().repeat_interleave(groups, 1)
        return tensor if self.heads is None else tensor[:, self.heads]


def trace_document(
    trace: Trace,
    *,
    source: Sequence[str] | None = None,
    target: Sequence[str] | None = None,
    item: int = 0,
    title: str = "What was watched",
) -> Document:
    """The last call of the model and all of every cell, on one sequence; pieces are numbered where not given.

    `source` are the pieces that the model read, `target` those that its decoder read. A row of a decoder is the step
    after the piece it reads. Calls of a generation, each of which goes on where the last one ended, are joined. An
    attention that several layers share is shown once for each of them.
    """
    seen, earlier = last_calls(trace)
    cells = seen_recurrences(trace, item)
    if not seen and not cells:
        raise ConfigError(
            "no weights were seen, and no gates or states: run the model inside the `with`, with them among the parts"
        )
    maps: list[AttentionMap] = []
    sizes: dict[str, int] = {}
    vectors = sum(part.numel() // len(part) for _, _, one in seen for part in (one.q, one.k, one.v) if part is not None)
    for name, shown_as, one in seen:
        weights = _weights(one)
        if not 0 <= item < len(weights):
            raise ConfigError(f"no item {item} in a batch of {len(weights)}")
        rows, columns = trace.sides[name]
        for side, size in ((rows, weights.shape[2]), (columns, weights.shape[3])):
            if sizes.setdefault(side, size) != size:
                pieces = f"{size} pieces of the {side}, another attention {sizes[side]}"
                raise ConfigError(f"'{name}' saw {pieces}: watch them apart, by name")
        neurons = product_neurons(one, item) if vectors <= MOST_NUMBERS else None
        maps.append(attention_map(shown_as, trace.sides[name], weights[item].float().cpu(), neurons))
    for cell in cells:
        size = len(cell.parts[0].array())
        if sizes.setdefault(cell.steps, size) != size:
            steps = f"{size} steps of the {cell.steps}, others {sizes[cell.steps]}"
            raise ConfigError(f"'{cell.name}' has {steps}: watch them apart, by name")
    given = {"source": source, "target": target, "prefix": target}
    sides: dict[str, Side] = {name: numbered_side(name, size, given[name]) for name, size in sizes.items()}
    if "source" not in sides:  # a decoder alone was watched
        sides["source"] = Side(text="", pieces=())
    text = " ".join(sides["source"].pieces) if source is not None else ""
    sides["source"] = Side(text=text, pieces=sides["source"].pieces)
    fitting, left_out = that_fit(maps)
    many = (
        f"{vectors:,} numbers of q, k and v are more than a page holds: watch fewer." if vectors > MOST_NUMBERS else ""
    )
    note = " ".join(filter(None, (earlier, left_out, many)))
    shown = Sentence(
        source=sides["source"],
        target=sides.get("target"),
        prefix=sides.get("prefix"),
        attentions=fitting,
        recurrences=cells,
    )
    return Document(title=title, note=note, sentences=(shown,))


def last_calls(trace: Trace) -> tuple[list[tuple[str, str, Seen]], str]:
    """What to show of each attention: its name, the name to show it by and what was seen; and what is not shown."""
    seen = {name: [one for one in calls if one.weights is not None] for name, calls in trace.calls.items()}
    stepwise = any(_goes_on(calls) for calls in seen.values())
    shown, most, beside = [], 1, 1
    for name, calls in seen.items():
        if not calls:
            continue
        if stepwise and len(calls) > 1 and len({_weights(one).shape[:2] for one in calls}) == 1:
            shown.append((name, name, _joined(calls)))
            beside = max(beside, len(_weights(calls[0])))
            continue
        last = calls[-1].model_call
        own = [one for one in calls if one.model_call == last] if last else calls[-1:]
        # Layers that share their weights are one module.
        many = len(own) > 1
        shown += [(name, f"{name}, use {use} of {len(own)}" if many else name, one) for use, one in enumerate(own, 1)]
        most = max(most, len({one.model_call for one in calls}) if last else len(calls))
    notes = [f"The last of {most} calls: `trace.calls` has all of them."] if most > 1 else []
    if beside > 1:
        notes.append("Steps are joined by their row in the batch; rows of a beam change places.")
    return shown, " ".join(notes)


def _weights(seen: Seen) -> Tensor:
    assert seen.weights is not None
    return seen.weights


def _joined(calls: Sequence[Seen]) -> Seen:
    """The calls of a generation as one; the last of them has the keys and values of all."""
    queries = [one.q for one in calls if one.q is not None]
    q = torch.cat(queries, 2) if len(queries) == len(calls) else None
    return Seen(joined_steps([_weights(one) for one in calls]), q, calls[-1].k, calls[-1].v)


def _goes_on(calls: Sequence[Seen]) -> bool:
    """Whether each call's queries follow on those before it, as in a generation with a cache."""
    sizes = [tuple(_weights(one).shape[2:]) for one in calls]
    ends = [sum(rows for rows, _ in sizes[: count + 1]) for count in range(len(sizes))]
    return len(sizes) > 1 and ends == [keys for _, keys in sizes]


def joined_steps(weights: Sequence[Tensor]) -> Float[Tensor, "B H T S"]:
    """The calls of a generation as one: rows after one another, where keys still to come weigh nothing."""
    keys = max(one.shape[-1] for one in weights)
    return torch.cat([nn.functional.pad(one, (0, keys - one.shape[-1])) for one in weights], 2)


def seen_recurrences(trace: Trace, item: int = 0) -> tuple[Recurrence, ...]:
    """The gates and states of every cell that was watched, on one sequence of the batch, over all its calls."""
    found = []
    for name, calls in trace.cells.items():
        parts = []
        for part in OF_RECURRENCE:
            if calls and (calls[0].gates if part == "gates" else calls[0].states):
                letters = trace.gates(name) if part == "gates" else trace.states(name)
                for letter, values in letters.items():
                    if not 0 <= item < len(values):
                        raise ConfigError(f"no item {item} in a batch of {len(values)}")
                    own = values[item].float().cpu()
                    # An LSTM's g is counted among its gates, but lies between -1 and 1.
                    parts.append(Units(name=letter, values=own, gate=part == "gates" and float(own.min()) >= 0))
        if parts:
            read = {"steps": trace.reads[name], "backward": name in trace.backward}
            found.append(Recurrence(name=name, parts=tuple(parts), **read))
    return tuple(found)


def numbered_side(name: str, size: int, pieces: Sequence[str] | None) -> Side:
    """So many pieces of a side, or numbers where none are given."""
    if pieces is not None and len(pieces) != size:
        raise ConfigError(f"{len(pieces)} pieces of the {name}, but the model saw {size}")
    shown = [str(place) for place in range(size)] if pieces is None else pieces
    return Side(text="" if pieces is None else " ".join(pieces), pieces=tuple(shown))


def attention_map(
    name: str, sides: Sides, weights: Tensor, neurons: Neurons | None = None, heads: Sequence[int] | None = None
) -> AttentionMap:
    """The weights of one sequence for a document. A decoder's of what it has written is self-attention."""
    return AttentionMap(
        name=name,
        kind="self" if sides.queries == sides.keys or set(sides) == {"target", "prefix"} else "cross",
        rows=sides.queries,
        columns=sides.keys,
        weights=weights,
        neurons=neurons,
        heads=None if heads is None else tuple(heads),
    )


def product_neurons(seen: Seen, item: int = 0) -> Neurons | None:
    """The vectors behind weights that are a softmax of scaled products; None where something else is in the scores.

    How a module of any library scales its products is found from its weights, which must then follow to 1e-5.
    """
    if seen.weights is None or seen.q is None or seen.k is None or seen.v is None:
        return None
    q, k, v, weights = (part[item].float().cpu() for part in (seen.q, seen.k, seen.v, seen.weights))
    if q.shape[-1] != k.shape[-1] or not len(q) == len(k) == len(v) == len(weights):
        return None
    products, wide = doubles(q) @ doubles(k).mT, doubles(weights)
    best, usual = wide.argmax(-1, keepdim=True), q.shape[-1] ** -0.5
    known = wide > 1e-6  # smaller ones have no digits to go by
    above = torch.where(known, products - products.gather(-1, best), 0.0)
    ratios = torch.where(known, (wide.clamp(min=1e-6) / wide.gather(-1, best).clamp(min=1e-6)).log(), 0.0)
    spread = float((above * above).sum())
    scale = float((above * ratios).sum()) / spread if spread > 1e-12 else usual
    scale = usual if abs(scale - usual) < 1e-3 * usual else scale
    found = (products * scale).masked_fill(wide == 0, -torch.inf).softmax(-1).nan_to_num()
    return Neurons(q=q, k=k, v=v, scale=scale) if float((found - wide).abs().max()) < 1e-5 else None


def neurons_of(attention: Watchable, seen: Seen, item: int = 0, heads: Sequence[int] | None = None) -> Neurons | None:
    """The queries, keys and values of one sequence of a batch; None where an attention does not say how they score.

    `heads` are those that were kept, where not all were.
    """
    if seen.q is None or seen.k is None or seen.v is None:
        return None
    q, k, v = (part[item].float().cpu() for part in (seen.q, seen.k, seen.v))
    how = attention.arithmetic(q, k, heads)
    if how is None:
        return None
    combine = "product" if how.vector is None else "additive"
    return Neurons(q=how.q, k=how.k, v=v, scale=how.scale, combine=combine, vector=how.vector, offsets=how.offsets)
