"""`torch.nn.LSTM`, `GRU` and `RNN`, and their single cells, so that `watch` sees their gates and states as our own.

Torch's kernel makes the output as ever. Beside it the same weights are read by a layer of ours, whose cells tell their
gates and states; so a layer below the top is seen too, of which the module itself gives nothing away.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

from regard.errors import ConfigError
from regard.nn.recurrent.cells import Cell, CellKind, CellState, Reads, StateWatcher
from regard.nn.recurrent.layers import RecurrentLayer

KINDS: dict[type[nn.Module], CellKind] = {
    nn.LSTM: "lstm",
    nn.GRU: "gru-after",
    nn.RNN: "rnn",
    nn.LSTMCell: "lstm",
    nn.GRUCell: "gru-after",
    nn.RNNCell: "rnn",
}

_WATCHERS, _UNDO = "_regard_state_watchers", "_regard_undo_states"


def library_recurrences(model: nn.Module) -> Iterator[tuple[str, "TorchRecurrence"]]:
    """Every recurrence of torch's making: one for each layer and direction of a module, with torch's name for it.

    That is `l0`, `l0_reverse`, `l1`, ..., after the module's own name; a single cell has its module's name alone.
    """
    for name, module in model.named_modules():
        if isinstance(module, nn.RNNBase):
            for layer in range(module.num_layers):
                for way in ("", "_reverse")[: 1 + module.bidirectional]:
                    yield f"{name}.l{layer}{way}".lstrip("."), TorchRecurrence(module, f"_l{layer}{way}")
        elif isinstance(module, nn.RNNCellBase):
            yield name, TorchRecurrence(module, "")


class TorchRecurrence:
    """A layer of a module of torch's, in one direction, as `regard.nn.recurrent.cells.Recurs` describes one."""

    reads: Reads = "source"

    def __init__(self, module: Any, suffix: str) -> None:
        self.module, self.suffix = module, suffix
        self.backward = suffix.endswith("_reverse")

    @property
    def width(self) -> int:
        return self.module.hidden_size

    @property
    def state_watcher(self) -> StateWatcher | None:
        return self.module.__dict__.get(_WATCHERS, {}).get(self.suffix)

    @state_watcher.setter
    def state_watcher(self, watcher: StateWatcher | None) -> None:
        # In the module's dictionary, since an adapter is made anew each time a model is asked for its recurrences.
        kept = self.module.__dict__
        watchers = dict(kept.get(_WATCHERS, {}))
        if watcher is None:
            watchers.pop(self.suffix, None)
        else:
            _check(self.module)
            watchers[self.suffix] = watcher
        kept[_WATCHERS] = watchers
        if watchers and _UNDO not in kept:
            hook = _layers_hook if isinstance(self.module, nn.RNNBase) else _cell_hook
            kept[_UNDO] = self.module.register_forward_hook(hook, with_kwargs=True).remove
        elif not watchers:
            kept.pop(_WATCHERS)
            if _UNDO in kept:
                kept.pop(_UNDO)()


def _check(module: Any) -> None:
    kind = type(module).__name__
    if not any(isinstance(module, known) for known in KINDS):
        raise ConfigError(f"{kind} cannot be watched: its gates are not known")
    if getattr(module, "proj_size", 0):
        raise ConfigError(
            f"an nn.{kind} with proj_size={module.proj_size} cannot be watched: its outputs are projected"
        )
    if getattr(module, "nonlinearity", "tanh") != "tanh":
        raise ConfigError(f"an nn.{kind} with nonlinearity='{module.nonlinearity}' cannot be watched, only with tanh")


def _kind(module: nn.Module) -> CellKind:
    return next(kind for known, kind in KINDS.items() if isinstance(module, known))


@torch.no_grad()
def _layers_hook(module: Any, given: tuple[Any, ...], named: dict[str, Any], output: Any) -> None:
    """Go through the layers again with cells of ours, and let those that are watched tell what they see."""
    if module.training and module.dropout and module.num_layers > 1:
        raise ConfigError(
            f"dropout={module.dropout} between layers cannot be seen again: call eval() on the model to watch it"
        )
    call = dict(zip(("input", "hx"), given, strict=False)) | named
    x, state = call["input"], call.get("hx")
    lengths: Tensor | None = None
    states = [] if state is None else list(state) if isinstance(state, tuple) else [state]
    if isinstance(x, PackedSequence):
        # States are in the order of the rows as they were given, which unpacking restores.
        x, lengths = pad_packed_sequence(x, batch_first=True)
        lengths = lengths.to(x.device)
    elif x.dim() == 2:
        x, states = x[None], [part[:, None] for part in states]
    elif not module.batch_first:
        x = x.transpose(0, 1)
    ways, watchers = 1 + module.bidirectional, module.__dict__[_WATCHERS]
    for number in range(module.num_layers):
        suffixes = [f"_l{number}{way}" for way in ("", "_reverse")[:ways]]
        layer = _layer_of(module, suffixes, x.shape[-1])
        for cell, suffix in zip(layer.cells, suffixes, strict=True):
            cell.state_watcher = watchers.get(suffix)
        own = tuple(torch.cat(part[ways * number : ways * (number + 1)].unbind(), dim=-1) for part in states)
        x, _ = layer(x, lengths, own or None)


@torch.no_grad()
def _cell_hook(module: Any, given: tuple[Any, ...], named: dict[str, Any], output: Any) -> None:
    """One step of a single cell."""
    call = dict(zip(("input", "hx"), given, strict=False)) | named
    x, state = call["input"], call.get("hx")
    layer = _layer_of(module, [""], x.shape[-1])
    (cell,) = layer.cells
    cell.state_watcher = module.__dict__[_WATCHERS][""]
    states: CellState = () if state is None else state if isinstance(state, tuple) else (state,)
    if x.dim() == 1:
        x, states = x[None], tuple(part[None] for part in states)
    layer.step(x, states or layer.zeros(x))


def _layer_of(module: Any, suffixes: list[str], input_width: int) -> RecurrentLayer:
    """A layer of ours that has the weights of the module's layer."""
    ways = len(suffixes)
    with torch.device("meta"):  # so that the random generator stays as it was
        direction = "both" if ways == 2 else "forward"
        layer = RecurrentLayer(_kind(module), input_width, ways * module.hidden_size, direction=direction)
    for cell, suffix in zip(layer.cells, suffixes, strict=True):
        cell.load_state_dict(_weights(module, cell, suffix), assign=True)
    return layer.eval()


def _weights(module: Any, cell: Cell, suffix: str) -> dict[str, Tensor]:
    """Torch has a bias over the input and one over the state; where only their sum matters a cell of ours has one."""
    found = {
        f"{name}.weight": getattr(module, f"weight_{of}{suffix}") for name, of in (("inputs", "ih"), ("hidden", "hh"))
    }
    zeros = torch.zeros_like(found["inputs.weight"][:, 0])
    first, second = (getattr(module, f"bias_{of}{suffix}") if module.bias else zeros for of in ("ih", "hh"))
    if cell.hidden.bias is None:
        return found | {"inputs.bias": first + second}
    return found | {"inputs.bias": first, "hidden.bias": second}
