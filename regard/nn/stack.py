"""Modules one after another, in a list that says of what kind they are.

torch's own list says only that they are modules, so that of `block.step` nothing is known but that it may be a tensor.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Generic, TypeVar

from torch import nn

M = TypeVar("M", bound=nn.Module)


class Stack(nn.ModuleList, Generic[M]):
    """A list of modules of one kind."""

    if TYPE_CHECKING:  # as torch has them, so that its compiler knows them too

        def __init__(self, modules: Iterable[M]) -> None: ...

        def __iter__(self) -> Iterator[M]: ...

        def __getitem__(self, idx: int) -> M: ...  # pyright: ignore[reportIncompatibleMethodOverride]
