"""How much faster recurrent layers train by their fast ways than by the equations written out, on this CPU.

Three slow ways, each over one layer, forward and backward:
- `equations`: what a reader of the equations would write, gate by gate, each with its own products inside the step;
- `steps`: the same with the gates' matrices in one, still inside the step;
- `plain`: `RecurrentLayer(fused=False)`, which projects all inputs at once and then steps.
And a bound: `products` are the matrix products that every way must make, as few and as large as can be, and nothing
else. The plain loop over them is how many times faster than it any way could be.

    python benchmarks/cells.py --threads 1
"""

import argparse
import itertools
import statistics
import time

import torch
from torch import Tensor, nn

from regard.nn.recurrent.cells import CELLS, StateLinear
from regard.nn.recurrent.layers import RecurrentLayer


def linear(part: nn.Linear, number: int, x: Tensor, width: int) -> Tensor:
    """One gate's product, with its own bias where there is one."""
    rows = slice(number * width, (number + 1) * width)
    return nn.functional.linear(x, part.weight[rows], None if part.bias is None else part.bias[rows])


def equations(kind: str, cell: nn.Module, x: Tensor, state: tuple[Tensor, ...], D: int) -> tuple[Tensor, ...]:
    """One step, gate by gate."""
    W, U = cell.inputs, cell.hidden
    h = state[0]
    if kind == "rnn":
        return (torch.tanh(W(x) + U(h)),)
    if kind == "lstm":
        i = torch.sigmoid(linear(W, 0, x, D) + linear(U, 0, h, D))
        f = torch.sigmoid(linear(W, 1, x, D) + linear(U, 1, h, D))
        g = torch.tanh(linear(W, 2, x, D) + linear(U, 2, h, D))
        o = torch.sigmoid(linear(W, 3, x, D) + linear(U, 3, h, D))
        c = f * state[1] + i * g
        return o * torch.tanh(c), c
    if kind.startswith("mut"):
        return (mutated(kind, cell, x, h, D),)
    if kind == "gru-after":
        r = torch.sigmoid(linear(W, 0, x, D) + linear(U, 0, h, D))
        z = torch.sigmoid(linear(W, 1, x, D) + linear(U, 1, h, D))
        new = torch.tanh(linear(W, 2, x, D) + r * linear(U, 2, h, D))
    else:
        r = torch.sigmoid(linear(W, 0, x, D) + linear(cell.gates, 0, h, D))
        z = torch.sigmoid(linear(W, 1, x, D) + linear(cell.gates, 1, h, D))
        new = torch.tanh(linear(W, 2, x, D) + U(r * h))
    return ((1 - z) * new + z * h,)


def mutated(kind: str, cell: nn.Module, x: Tensor, h: Tensor, D: int) -> Tensor:
    """One step of a MUT cell whose inputs are as wide as its state."""
    W, U = cell.inputs, cell.hidden
    if kind == "mut1":
        z, r = torch.sigmoid(linear(W, 0, x, D)), torch.sigmoid(linear(W, 1, x, D) + cell.reset(h))
        new = torch.tanh(U(r * h) + torch.tanh(x))
    elif kind == "mut2":
        z, r = torch.sigmoid(linear(W, 0, x, D) + cell.gates(h)), torch.sigmoid(x + cell.reset(h))
        new = torch.tanh(U(r * h) + linear(W, 1, x, D))
    else:
        z = torch.sigmoid(linear(W, 0, x, D) + cell.gates(torch.tanh(h)))
        r = torch.sigmoid(linear(W, 1, x, D) + cell.reset(h))
        new = torch.tanh(U(r * h) + linear(W, 2, x, D))
    return new * z + h * (1 - z)


def by_equations(layer: RecurrentLayer, x: Tensor) -> Tensor:
    (cell,), state, outputs = layer.cells, layer.zeros(x), []
    for t in range(x.shape[1]):
        state = equations(layer.kind, cell, x[:, t], state, layer.width)
        outputs.append(state[0])
    return torch.stack(outputs, dim=1)


def by_steps(layer: RecurrentLayer, x: Tensor) -> Tensor:
    state, outputs = layer.zeros(x), []
    for t in range(x.shape[1]):
        state = layer.step(x[:, t], state)
        outputs.append(state[0])
    return torch.stack(outputs, dim=1)


def products(layer: RecurrentLayer, x: Tensor):
    """A function that makes only the products: all inputs at once, the state's position by position, there and back."""
    (cell,), (B, T, D) = layer.cells, x.shape
    G, own = cell.inputs.out_features, sum(p.out_features for p in cell.children() if isinstance(p, StateLinear))
    inputs, states = torch.randn(T * B, D), torch.randn(T * B, D)
    W, U, of_inputs, of_states = torch.randn(G, D), torch.randn(own, D), torch.randn(T * B, G), torch.randn(T * B, own)
    forward, h, d_h = U.t().contiguous(), torch.randn(B, D), torch.zeros(B, D)

    def run() -> None:
        torch.mm(inputs, W.t(), out=of_inputs)
        for here in of_states.split(B):
            torch.mm(h, forward, out=here)
        for here in of_states.split(B):
            torch.mm(here, U, out=d_h)
        of_states.t() @ states, of_inputs.t() @ inputs, of_inputs @ W

    return run


def seconds(runs, rounds: int) -> list[float]:
    """The shortest of several passes of each, in turn, in time of this process, whatever else runs here."""
    best = [float("inf")] * len(runs)
    for _ in range(rounds):
        for number, run in enumerate(runs):
            began = time.process_time()
            run()
            best[number] = min(best[number], time.process_time() - began)
    return best


def measured(kind: str, D: int, B: int, T: int, rounds: int) -> list[float]:
    """Seconds of the fast way, of the three slow ones, of products alone, and of fast and plain over unequal rows."""
    torch.manual_seed(0)
    fast, plain = RecurrentLayer(kind, D, D), RecurrentLayer(kind, D, D, fused=False)
    plain.load_state_dict(fast.state_dict())
    x, lengths = torch.randn(B, T, D, requires_grad=True), torch.randint(T // 2, T + 1, (B,))
    torch.testing.assert_close(by_equations(fast, x), fast(x)[0], atol=1e-4, rtol=1e-4)
    outputs = [lambda: fast(x)[0], lambda: by_equations(fast, x), lambda: by_steps(fast, x), lambda: plain(x)[0]]
    outputs += [lambda: fast(x, lengths)[0], lambda: plain(x, lengths)[0]]
    passes = [lambda way=way: way().sum().backward() for way in outputs]
    *whole, ragged, slow, least = seconds([*passes, products(fast, x)], rounds)
    return [*whole, least, ragged, slow]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", nargs="+", default=list(CELLS), choices=list(CELLS))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--widths", type=int, nargs="+", default=[128, 256, 512])
    parser.add_argument("--batches", type=int, nargs="+", default=[16, 32, 64])
    parser.add_argument("--lengths", type=int, nargs="+", default=[32, 128])
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.threads > 1:
        time.process_time = time.perf_counter
    clock = "wall clock" if options.threads > 1 else "process time"
    print(f"{options.threads} threads, best of {options.rounds}, {clock}; fast in ms, then how many times slower")
    print("cell        width batch length     fast  equations  steps  plain  bound | half to full rows: fast  plain")
    for kind in options.cells:
        ratios = []
        for D, B, T in itertools.product(options.widths, options.batches, options.lengths):
            base, *slower, least, ragged, slow = measured(kind, D, B, T, options.rounds)
            ratios.append([*(way / base for way in slower), slower[-1] / least])
            shown = "  ".join(f"{value:5.2f}" for value in ratios[-1])
            print(f"{kind:11} {D:5} {B:5} {T:6} {1e3 * base:8.1f}      {shown} | ", end="")
            print(f"{1e3 * ragged:8.1f}  {slow / ragged:5.2f}", flush=True)
        middle = [statistics.median(column) for column in zip(*ratios, strict=True)]
        print(f"{kind:11} median" + " " * 21 + "  ".join(f"{value:5.2f}" for value in middle))


if __name__ == "__main__":
    main()
