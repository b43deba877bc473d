"""The loops of the MUT cells, as in `nn/sweep_loops.py`: one for all three, which differ in little."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.nn.plans import Plan
from regard.nn.sweep_loops import Gradients, Loops, backwards, cut, sigmoid_backward, tanh_backward


@dataclass(frozen=True, slots=True)
class _Mut:
    """Which parts x has, in order; which weights there are over the state; whether z sees that squashed."""

    parts: str
    weights: tuple[str, ...]
    squash: bool = False

    def forward(self, sizes: Sequence[int], x: Tensor, states: list[Tensor], weights: list[Tensor]) -> list[Tensor]:
        (h,), given = states, dict(zip(self.weights, weights, strict=True))
        z_r_n = self._of(x)
        matrices = {name: given[name].t().contiguous() for name in "zrn" if name in given}
        for name in "rn":
            if name + " bias" in given:
                z_r_n[name] += given[name + " bias"]
        kept = torch.empty_like(h[sizes[0] :])  # r * h
        steps = zip(*(part.split(sizes) for part in (*z_r_n.values(), kept)), *cut(h, sizes), strict=True)
        for z, r, n, held, before, after in steps:
            if "z" in matrices:
                z.addmm_(before.tanh() if self.squash else before, matrices["z"])
            z.sigmoid_(), r.addmm_(before, matrices["r"]).sigmoid_()
            n.addmm_(torch.mul(r, before, out=held), matrices["n"]).tanh_()
            torch.lerp(before, n, z, out=after)
        return [x, kept]

    def backward(
        self, plan: Plan, d_states: list[Tensor], states: list[Tensor], weights: list[Tensor], saved: list[Tensor]
    ) -> Gradients:
        (h,), (d_h,), (x, kept), sizes = states, d_states, saved, plan.sizes
        given, d_x = dict(zip(self.weights, weights, strict=True)), torch.empty_like(x)
        d_parts, room = self._of(d_x), torch.empty_like(kept)
        parts = (*self._of(x).values(), *d_parts.values(), room)
        steps = backwards(*(part.split(sizes) for part in parts), cut(h, sizes)[0], *cut(d_h, sizes))
        for z, r, n, d_z, d_r, d_n, d_kept, before, d_before, d_after in steps:
            sigmoid_backward(torch.sub(n, before, out=d_z).mul_(d_after), z, grad_input=d_z)
            tanh_backward(torch.mul(d_after, z, out=d_n), n, grad_input=d_n)
            torch.mul(torch.mm(d_n, given["n"], out=d_kept), before, out=d_r)
            sigmoid_backward(d_r, r, grad_input=d_r)
            d_before.add_(d_after).addcmul_(d_after, z, value=-1).addcmul_(d_kept, r).addmm_(d_r, given["r"])
            if self.squash:
                d_before.add_(torch.ops.aten.tanh_backward(d_z @ given["z"], before.tanh()))
            elif "z" in given:
                d_before.addmm_(d_z, given["z"])
        earlier = plan.earlier(h)
        seen = {"z": earlier.tanh() if self.squash else earlier, "r": earlier, "n": kept}
        return d_x, [
            d_parts[name[0]].sum(0) if name.endswith(" bias") else d_parts[name].t() @ seen[name]
            for name in self.weights
        ]

    def _of(self, x: Tensor) -> dict[str, Tensor]:
        """z, r and n, wherever they are in `x`."""
        found = dict(zip(self.parts, x.chunk(3, dim=1), strict=True))
        return {name: found[name] for name in "zrn"}


_KINDS = {
    "mut1": _Mut("zrn", ("r", "n", "n bias")),
    "mut2": _Mut("znr", ("z", "r", "r bias", "n")),
    "mut3": _Mut("zrn", ("z", "r", "n"), squash=True),
}
MUT_LOOPS = {name: Loops(kind.forward, kind.backward) for name, kind in _KINDS.items()}
