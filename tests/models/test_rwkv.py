"""RWKV's weighted mean: all positions at once equal the sum written out, at any size of keys; gradients too."""

import pytest
import torch
from torch.testing import assert_close

from regard.models.rwkv import RWKVBlock, no_sums, wkv, wkv_step

B, T, D = 2, 11, 3


def draw(scale=1.0):
    torch.manual_seed(0)
    k, v = (torch.randn(B, T, D, dtype=torch.float64) for _ in range(2))
    return k * scale, v, torch.rand(D, dtype=torch.float64) + 0.1, torch.randn(D, dtype=torch.float64)


def written_out(k, v, w, u):
    means = []
    for t in range(k.shape[1]):
        exponents = [k[:, i] - (t - 1 - i) * w for i in range(t)] + [u + k[:, t]]
        weights = torch.stack(exponents).softmax(0)
        means.append((weights * v[:, : t + 1].transpose(0, 1)).sum(0))
    return torch.stack(means, dim=1)


@pytest.mark.parametrize("scale", [1.0, 300.0])
def test_all_positions_at_once_and_step_by_step_are_the_sum_written_out(scale):
    k, v, w, u = draw(scale)
    wanted = written_out(k, v, w, u)
    means, after = wkv(k, v, w, u, no_sums(k[:, 0]))
    assert_close(means, wanted, atol=1e-9, rtol=1e-9)
    sums = no_sums(k[:, 0])
    for t in range(T):
        mean, sums = wkv_step(k[:, t], v[:, t], w, u, sums)
        assert_close(mean, wanted[:, t], atol=1e-9, rtol=1e-9)
        for one, other in zip(sums, after, strict=True):
            assert_close(one, other[:, t], atol=1e-9, rtol=1e-9)


def test_a_sequence_may_be_cut_anywhere():
    k, v, w, u = draw()
    whole, _ = wkv(k, v, w, u, no_sums(k[:, 0]))
    for cut in (1, 4, 8):
        first, after = wkv(k[:, :cut], v[:, :cut], w, u, no_sums(k[:, 0]))
        second, _ = wkv(k[:, cut:], v[:, cut:], w, u, tuple(part[:, -1] for part in after))
        assert_close(torch.cat((first, second), dim=1), whole, atol=1e-9, rtol=1e-9)


def test_gradients_are_those_of_finite_differences_and_of_the_sum_written_out():
    given = [part.requires_grad_() for part in draw()]
    assert torch.autograd.gradcheck(lambda k, v, w, u: wkv(k, v, w, u, no_sums(k[:, 0]))[0], given)
    found, wanted = (
        torch.autograd.grad((means**3).sum(), given)
        for means in (wkv(*given, no_sums(given[0][:, 0].detach()))[0], written_out(*given))
    )
    assert_close(found, wanted, atol=1e-9, rtol=1e-9)


def test_a_block_is_its_equations():
    torch.manual_seed(0)
    block = RWKVBlock(D, 7, 0, 2, torch.nn.Identity()).double()
    for part in block.parameters():
        torch.nn.init.normal_(part, std=0.5)
    x = torch.randn(B, T, D, dtype=torch.float64)
    found, _ = block(x, block.zeros(x, D))
    n = block.time_norm(x)
    before = torch.cat((torch.zeros_like(n[:, :1]), n[:, :-1]), dim=1)
    time = block.time

    def mixed(part, share):
        return (n * share + before * (1 - share)) @ part.weight.T

    k, v = mixed(time.key, time.mix_key), mixed(time.value, time.mix_value)
    r = torch.sigmoid(mixed(time.gate, time.mix_gate))
    y = x + (r * written_out(k, v, time.decay.exp(), time.bonus)) @ time.output.weight.T
    n = block.channel_norm(y)
    before = torch.cat((torch.zeros_like(n[:, :1]), n[:, :-1]), dim=1)
    channel = block.channel
    k = torch.relu(mixed(channel.key, channel.mix_key)) ** 2
    wanted = y + torch.sigmoid(mixed(channel.gate, channel.mix_gate)) * (k @ channel.value.weight.T)
    assert_close(found, wanted, atol=1e-9, rtol=1e-9)
