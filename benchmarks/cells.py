"""How much faster recurrent layers train by their fast ways than by the equations written out, on this CPU.

Three slow ways, each over one layer, forward and backward:
- `equations`: what a reader of the equations would write, gate by gate, each with its own products inside the step;
- `steps`: the same with the gates' matrices in one, still inside the step;
- `plain`: `RecurrentLayer(fused=False)`, which projects all inputs at once and then steps.

    python benchmarks/cells.py --threads 1
"""

import argparse
import itertools
import statistics
import time

import torch
from torch import Tensor, nn

from regard.nn.cells import CELLS, RecurrentLayer


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
    if kind == "gru-after":
        r = torch.sigmoid(linear(W, 0, x, D) + linear(U, 0, h, D))
        z = torch.sigmoid(linear(W, 1, x, D) + linear(U, 1, h, D))
        new = torch.tanh(linear(W, 2, x, D) + r * linear(U, 2, h, D))
    else:
        r = torch.sigmoid(linear(W, 0, x, D) + linear(cell.gates, 0, h, D))
        z = torch.sigmoid(linear(W, 1, x, D) + linear(cell.gates, 1, h, D))
        new = torch.tanh(linear(W, 2, x, D) + U(r * h))
    return ((1 - z) * new + z * h,)


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


def seconds(run, rounds: int) -> float:
    """The shortest of several passes, forward and backward, in time of this process, whatever else runs here."""
    best = float("inf")
    for _ in range(rounds):
        began = time.process_time()
        run().sum().backward()
        best = min(best, time.process_time() - began)
    return best


def measured(kind: str, D: int, B: int, T: int, rounds: int) -> list[float]:
    """Seconds of the fast way, of the three slow ones, and of fast and plain over rows of unequal length."""
    torch.manual_seed(0)
    fast, plain = RecurrentLayer(kind, D, D), RecurrentLayer(kind, D, D, fused=False)
    plain.load_state_dict(fast.state_dict())
    x, lengths = torch.randn(B, T, D, requires_grad=True), torch.randint(T // 2, T + 1, (B,))
    torch.testing.assert_close(by_equations(fast, x), fast(x)[0], atol=1e-4, rtol=1e-4)
    ways = [lambda: fast(x)[0], lambda: by_equations(fast, x), lambda: by_steps(fast, x), lambda: plain(x)[0]]
    ways += [lambda: fast(x, lengths)[0], lambda: plain(x, lengths)[0]]
    return [seconds(way, rounds) for way in ways]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
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
    print("cell        width batch length     fast  equations  steps  plain | rows of half to full length: fast  plain")
    for kind in [kind for kind in CELLS if not kind.startswith("mut")]:
        ratios = []
        for D, B, T in itertools.product(options.widths, options.batches, options.lengths):
            base, *slower, ragged, slow = measured(kind, D, B, T, options.rounds)
            ratios.append([way / base for way in slower])
            shown = "  ".join(f"{value:5.2f}" for value in ratios[-1])
            print(f"{kind:11} {D:5} {B:5} {T:6} {1e3 * base:8.1f}      {shown} | ", end="")
            print(f"{1e3 * ragged:8.1f}  {slow / ragged:5.2f}", flush=True)
        middle = [statistics.median(column) for column in zip(*ratios, strict=True)]
        print(f"{kind:11} median" + " " * 21 + "  ".join(f"{value:5.2f}" for value in middle))


if __name__ == "__main__":
    main()
