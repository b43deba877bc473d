"""Attention that somebody already has, from any library, as a document: `show(outputs, tokens)`."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from regard.errors import ConfigError, DataError
from regard.look.document import AttentionMap, Document, Sentence, Side, that_fit
from regard.look.watch import Trace, attention_map, joined_steps, numbered_side, trace_document
from regard.nn.attention import ACROSS, BEFORE, WITHIN, Sides

TITLE = "Where the model looked"


def show(
    attentions: Any,
    tokens: Sequence[str] | None = None,
    target: Sequence[str] | None = None,
    *,
    decoder: Any = None,
    cross: Any = None,
    item: int = 0,
    title: str = TITLE,
) -> Document:
    """Weights of any model as a document: in a notebook it is the page, and `.save("attention.html")` writes it.

    `attentions` are what you have: the output of a Hugging Face model that was called with `output_attentions=True`, or
    its tuple of layers; what `generate` returns; arrays or tensors, one per layer, whose heads may differ in number;
    one array for all; a mapping of names to arrays; or a trace of `watch`. An array is (rows, columns), with heads
    before them, with a batch before those, with layers before all. `item` is which sequence of a batch.

    `tokens` are the pieces that were read, `target` those that a decoder read; numbers where none are given. `decoder`
    and `cross` are a decoder's layers and those from it to what was read, where `attentions` are the encoder's alone.
    """
    check_given(attentions, {"tokens": tokens, "target": target}, item)
    if isinstance(attentions, Trace):
        if decoder is not None or cross is not None:
            raise ConfigError("a trace has all its attentions in it: decoder= and cross= go with arrays")
        return trace_document(attentions, source=tokens, target=target, item=item, title=title)
    maps, sizes = given_maps(attentions, decoder=decoder, cross=cross, item=item)
    if not maps:
        raise DataError(
            "there are no attentions in it: call the model with output_attentions=True and, for transformers' fused "
            "kernels, load it with attn_implementation='eager'; or run it inside regard.watch(model)"
        )
    pieces = {"source": tokens, "target": target, "prefix": target}
    shown = {side: numbered_side(side, size, pieces[side]) for side, size in sizes.items()}
    fitting, note = that_fit(maps)
    return Document(
        title=title,
        note=note,
        sentences=(
            Sentence(
                source=shown.get("source", Side(text="", pieces=())),
                target=shown.get("target"),
                prefix=shown.get("prefix"),
                attentions=fitting,
            ),
        ),
    )


def check_given(attentions: Any, texts: Mapping[str, Any], item: Any) -> None:
    """Refuse what `show` is easily given by mistake, with what to give instead."""
    for name, pieces in texts.items():
        if isinstance(pieces, str):
            raise ConfigError(f"{name}={pieces!r} must be a list of pieces, one for each place, not a text")
        if pieces is not None and not all(isinstance(piece, str) for piece in pieces):
            raise ConfigError(
                f"{name}={pieces!r:.60} must be texts, one for each place; of ids, tokenizer.convert_ids_to_tokens(ids)"
            )
    if not isinstance(item, int):
        raise ConfigError(f"item={item!r} must be a whole number: which sequence of the batch, from 0")
    if isinstance(attentions, torch.nn.Module):
        raise ConfigError(
            "a model has no weights until it runs: call it inside regard.watch(model), and show the trace"
        )


def given_maps(
    attentions: Any, *, decoder: Any = None, cross: Any = None, item: int = 0
) -> tuple[list[AttentionMap], dict[str, int]]:
    """Every layer of what `show` takes, but a trace, and how many pieces each side has."""
    within, own_decoder, own_cross = _parts(attentions)
    decoder, cross = own_decoder if decoder is None else decoder, own_cross if cross is None else cross
    maps = []
    sizes: dict[str, int] = {}
    for kind, given, sides in (("encoder", within, WITHIN), ("decoder", decoder, BEFORE), ("cross", cross, ACROSS)):
        alone = kind == "encoder" and decoder is None and cross is None
        for name, weights in _layers(given, "" if alone else f"{kind}.", item):
            _fits(name, weights, sides, sizes)
            maps.append(attention_map(name, sides, weights))
    return maps, sizes


def _parts(given: Any) -> tuple[Any, Any, Any]:
    """The encoder's or only layers, the decoder's, and those across, of an output with such fields or of layers."""
    fields = ("encoder_attentions", "attentions", "decoder_attentions", "cross_attentions")
    if not any(hasattr(given, name) for name in fields):
        return given, None, None
    encoder, only, decoder, cross = (getattr(given, name, None) for name in fields)
    return (only if encoder is None else encoder), decoder, cross


def _layers(given: Any, prefix: str, item: int) -> list[tuple[str, Tensor]]:
    """Every layer's weights of one sequence, heads first, by name."""
    if given is None:
        return []
    if isinstance(given, Mapping):
        named = {str(name): value for name, value in given.items()}
    else:
        named = {f"{prefix}{number}": value for number, value in enumerate(_each(given))}
    return [(name, _heads(name, value, item)) for name, value in named.items()]


def _each(given: Any) -> Sequence[Any]:
    if isinstance(given, list | tuple) and given and all(isinstance(one, list | tuple) for one in given):
        if all(isinstance(one, Tensor) for step in given for one in step):
            return _generated(given)
        return [_tensor("attentions", given)]  # lists of numbers
    if isinstance(given, list | tuple):
        return given
    whole = _tensor("attentions", given)
    return list(whole) if whole.dim() == 5 else [whole]


def _generated(steps: Sequence[Sequence[Tensor]]) -> list[Tensor]:
    """The layers of a generation, whose weights come step by step."""
    if len({len(step) for step in steps}) > 1:
        raise DataError(f"steps of {sorted({len(step) for step in steps})} layers: a generation has as many in each")
    return [joined_steps([step[layer] for step in steps]) for layer in range(len(steps[0]))]


def _tensor(name: str, given: Any) -> Tensor:
    try:
        found = torch.as_tensor(given)
    except (TypeError, ValueError, RuntimeError):
        found = None
    if found is None or found.is_complex():
        kind = type(given).__name__
        raise DataError(f"'{name}' is no table of weights but {kind}: give arrays or tensors, or a trace of watch")
    return found


def _heads(name: str, given: Any, item: int) -> Tensor:
    if given is None:
        raise DataError(f"the weights of '{name}' are None: load the model with attn_implementation='eager'")
    weights = _tensor(name, given).detach().float().cpu()
    if weights.dim() == 4:
        if not 0 <= item < len(weights):
            raise ConfigError(f"no item {item} in a batch of {len(weights)}")
        return weights[item]
    if weights.dim() == 3:
        return weights
    if weights.dim() == 2:
        return weights[None]
    raise DataError(
        f"the weights of '{name}' have shape {tuple(weights.shape)}; must be [batch, [heads,]] rows, columns"
    )


def _fits(name: str, weights: Tensor, sides: Sides, sizes: dict[str, int]) -> None:
    for side, size in zip(sides, weights.shape[1:], strict=True):
        if sizes.setdefault(side, size) != size:
            more = "; weights of a decoder on what was read go in cross=" if sides == WITHIN else ""
            raise DataError(f"'{name}' weighs {size} pieces of the {side}, another layer {sizes[side]}{more}")
