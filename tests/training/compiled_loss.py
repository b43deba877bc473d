"""Compiles model and loss as one graph and compares with neither compiled; run by test_compiled.py.

On its own, since the checks that tests put around every function cannot be traced.
"""

from dataclasses import replace

import numpy as np
import torch
from torch.testing import assert_close

from regard.data import PairStore, collate
from regard.data.packing import Packing
from regard.models.transformer import Transformer, TransformerConfig
from regard.training.loop import train_step
from regard.training.tasks import CompiledTask, Translation

CONFIG = TransformerConfig(
    source_vocab_size=17,
    target_vocab_size=17,
    width=8,
    heads=2,
    encoder_layers=1,
    decoder_layers=1,
    feed_forward=12,
    dropout=0.0,
    qk_norm=True,
)


def batches():
    generator = torch.Generator().manual_seed(1)

    def ids(length):
        return torch.randint(4, 17, (length,), generator=generator).tolist()

    store = PairStore.of([([*ids(1 + i % 5), 2], [1, *ids(1 + i % 7), 2]) for i in range(40)])
    packing = Packing(store, 1500)
    return collate(store, np.arange(20)), packing.batch(packing.order(0, 0)[0])


def make(**settings):
    torch.manual_seed(0)
    return Transformer(replace(CONFIG, **settings))


def check(batch, r_drop):
    task, found = Translation(0.1, r_drop), []
    for one in (task, CompiledTask(task, backend="aot_eager", fullgraph=True)):
        model = make()
        step = train_step(model, one, [batch], torch.optim.SGD(model.parameters(), lr=1.0))
        found.append((step.loss, torch.cat([value.detach().flatten() for value in model.parameters()])))
    assert_close(found[0][0], found[1][0])
    assert_close(found[0][1], found[1][1], rtol=1e-4, atol=1e-5)


if __name__ == "__main__":
    torch.set_num_threads(1)
    padded, packed = batches()
    check(padded, 0.0)
    check(packed, 0.0)
    check(packed, 1.0)
    thinned = torch.compile(make(layer_drop=0.5), backend="eager", fullgraph=True)
    assert len({float(thinned(padded).sum().detach()) for _ in range(12)}) > 2
    print("one graph, the same gradients")
