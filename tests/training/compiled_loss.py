"""Compiles model and loss as one graph and compares with neither compiled; run by test_compiled.py.

On its own, since the checks that tests put around every function cannot be traced.
"""

import torch
from torch.testing import assert_close
from training_toys import tiny, work

from regard.training.loop import train_step
from regard.training.objectives import CompiledObjective, SequenceToSequence


def make(**settings):
    return tiny(encoder_layers=1, qk_norm=True, **settings)


def check(batch, r_drop):
    task, found = SequenceToSequence(0.1, r_drop), []
    for one in (task, CompiledObjective(task, backend="aot_eager", fullgraph=True)):
        model = make()
        step = train_step(model, one, [batch], torch.optim.SGD(model.parameters(), lr=1.0))
        found.append((step.loss, torch.cat([value.detach().flatten() for value in model.parameters()])))
    assert_close(found[0][0], found[1][0])
    assert_close(found[0][1], found[1][1], rtol=1e-4, atol=1e-5)


if __name__ == "__main__":
    torch.set_num_threads(1)
    padded, packed = work(), work(packed=True)
    check(padded, 0.0)
    check(packed, 0.0)
    check(packed, 1.0)
    thinned = torch.compile(make(layer_drop=0.5), backend="eager", fullgraph=True)
    assert len({float(thinned(padded).sum().detach()) for _ in range(12)}) > 2
    print("one graph, the same gradients")
