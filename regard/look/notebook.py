"""A trace as a document, so that it shows itself: in a notebook as the page, anywhere as a figure."""

from collections.abc import Sequence

from regard.errors import ConfigError
from regard.look.document import AttentionMap, Document, Sentence, Side
from regard.look.watch import Trace


def trace_document(
    trace: Trace,
    *,
    source: Sequence[str] | None = None,
    target: Sequence[str] | None = None,
    item: int = 0,
    title: str = "What was watched",
) -> Document:
    """The last call of every attention on one sequence of the batch; pieces are numbered where none are given.

    `source` are the pieces that the model read, `target` those that its decoder read. A row of a decoder is the step
    after the piece it reads.
    """
    seen = {name: trace[name] for name in trace.names if trace.calls[name] and trace[name].weights is not None}
    if not seen:
        raise ConfigError("no weights were seen: run the model inside the `with`, with 'weights' among the parts")
    maps: list[AttentionMap] = []
    sizes: dict[str, int] = {}
    for name, one in seen.items():
        weights = one.weights
        assert weights is not None
        if not 0 <= item < len(weights):
            raise ConfigError(f"no item {item} in a batch of {len(weights)}")
        rows, columns = trace.sides[name]
        for side, size in ((rows, weights.shape[2]), (columns, weights.shape[3])):
            if sizes.setdefault(side, size) != size:
                raise ConfigError(f"'{name}' saw {size} pieces of the {side}, another attention {sizes[side]}")
        kind = "cross" if (rows, columns) == ("target", "source") else "self"
        maps.append(AttentionMap(name=name, kind=kind, rows=rows, columns=columns, weights=weights[item].float().cpu()))
    given = {"source": source, "target": target, "prefix": target}
    sides: dict[str, Side] = {name: _side(name, size, given[name]) for name, size in sizes.items()}
    if "source" not in sides:  # a decoder alone was watched
        sides["source"] = Side(text="", pieces=())
    text = " ".join(sides["source"].pieces) if source is not None else ""
    sides["source"] = Side(text=text, pieces=sides["source"].pieces)
    shown = Sentence(
        source=sides["source"], target=sides.get("target"), prefix=sides.get("prefix"), attentions=tuple(maps)
    )
    return Document(title=title, sentences=(shown,))


def _side(name: str, size: int, pieces: Sequence[str] | None) -> Side:
    if pieces is not None and len(pieces) != size:
        raise ConfigError(f"{len(pieces)} pieces of the {name}, but the model saw {size}")
    shown = [str(place) for place in range(size)] if pieces is None else pieces
    return Side(text="" if pieces is None else " ".join(pieces), pieces=tuple(shown))
