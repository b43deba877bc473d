"""Run by test_compiled.py in a process of its own, since what torch compiled stays with a process."""

import torch
from torch._dynamo.utils import counters
from torch.testing import assert_close
from training_toys import tiny, work

from regard.nn.blocks import DecoderBlock, EncoderBlock
from regard.training.objectives import SequenceToSequence


def make():
    return tiny(encoder_layers=3, decoder_layers=4)


def gradients(model):
    for _ in range(2):
        model.zero_grad()
        SequenceToSequence(0.1).loss(model, work(packed=True)).total.backward()
    return {name: parameter.grad for name, parameter in model.named_parameters()}


plain, blocks = make(), make()
for part in blocks.modules():
    if isinstance(part, EncoderBlock | DecoderBlock):
        part.compile(backend="aot_eager", dynamic=False)
found = gradients(blocks)
assert counters["stats"]["unique_graphs"] == 2, counters["stats"]
for name, expected in gradients(plain).items():
    assert_close(found[name], expected)
with torch.compiler.set_stance("force_eager"):
    blocks.eval()(work())
assert counters["stats"]["unique_graphs"] == 2
print("two graphs for seven blocks, the same gradients")
