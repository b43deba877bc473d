import torch
from torch.testing import assert_close

from regard.nn.dropout import HardConcrete


def test_the_chance_of_being_open_is_how_often_a_draw_is_not_zero():
    torch.manual_seed(0)
    gates = HardConcrete(3)
    with torch.no_grad():
        gates.log_alpha.copy_(torch.tensor([-2.0, 0.0, 2.0]))
        drawn = torch.stack([gates() for _ in range(4000)])
    assert_close((drawn > 0).float().mean(0), gates.chance_open().detach(), atol=0.03, rtol=0)
    assert drawn.min() == 0
    assert drawn.max() == 1


def test_without_noise_gates_are_fixed_and_a_penalty_shuts_them():
    gates = HardConcrete(4).eval()
    assert_close(gates(), gates())
    gates.train()
    optimizer = torch.optim.SGD(gates.parameters(), lr=5.0)
    for _ in range(100):
        optimizer.zero_grad()
        gates.chance_open().sum().backward()
        optimizer.step()
    assert gates.eval()().detach().max() == 0
