"""The one thing decoding knows of a model: what to start from, and what may come next."""

from typing import Any, Protocol, TypeVar, runtime_checkable

from jaxtyping import Float, Int
from torch import Tensor

Same = TypeVar("Same")


@runtime_checkable
class State(Protocol):
    """What a model remembers between steps, for R rows that belong to B sources, R / B rows each, in source order."""

    def select(self: Same, rows: Int[Tensor, " R"], sources: Int[Tensor, " B"] | None = None) -> Same:
        """The state with these rows, which may repeat, reorder or drop the old ones.

        Memory of a source is kept once however many rows read it. `sources` names the sources that stay, in order;
        None keeps them all. Either way the rows must again be grouped evenly by source.
        """
        ...


S = TypeVar("S", bound=State)


@runtime_checkable
class Stepper(Protocol[S]):
    """A model seen from the decoder: C choices at each step, be they words, copied words or source positions."""

    def start(self, batch: Any) -> S:
        """The state before the first choice, one row a source."""
        ...

    def step(self, choices: Int[Tensor, " R"], state: S) -> tuple[Float[Tensor, "R C"], S]:
        """Log-probabilities of each next choice after `choices` were made, and the state that remembers them.

        C may differ from step to step, but always holds the choice that ends an output. The log-probabilities now
        belong to the caller, who may write over them.
        """
        ...
