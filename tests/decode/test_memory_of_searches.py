"""What a search takes of the memory, and how much of that is free."""

import torch

from regard.decode.memory import ENOUGH, batch_bytes, free_memory, source_bytes
from regard.models.transformer import Transformer, TransformerConfig
from regard.nn.batch import Pairs, Tokens
from regard.nn.lean_decoder import LeanState


def test_free_memory_is_the_machines_or_what_the_group_has_left(tmp_path):
    proc = tmp_path / "meminfo"
    proc.write_text("MemTotal: 9000 kB\nMemFree: 10 kB\nMemAvailable:   4000 kB\n", encoding="ascii")
    assert free_memory(proc, tmp_path) == 4000 << 10
    (tmp_path / "memory.max").write_text("max\n", encoding="ascii")
    (tmp_path / "memory.current").write_text("1000\n", encoding="ascii")
    assert free_memory(proc, tmp_path) == 4000 << 10
    (tmp_path / "memory.max").write_text("51000\n", encoding="ascii")
    assert free_memory(proc, tmp_path) == 50_000
    assert free_memory(tmp_path / "none", tmp_path / "none") > 1 << 20


def test_a_batch_takes_an_eighth_of_the_free_memory_and_no_more_than_is_of_use(monkeypatch):
    monkeypatch.setattr("regard.decode.memory.free_memory", lambda: 800)
    assert batch_bytes() == 100
    monkeypatch.setattr("regard.decode.memory.free_memory", lambda: 1 << 40)
    assert batch_bytes() == ENOUGH


@torch.inference_mode()
def test_a_cache_takes_no_more_than_was_counted():
    config = TransformerConfig(
        source_vocab_size=50, target_vocab_size=50, width=32, heads=4, encoder_layers=1, decoder_layers=3, max_len=64
    )
    model = Transformer(config).eval()
    state = model.start(Pairs(Tokens.of([[4, 5, 6]])))
    assert isinstance(state, LeanState)
    tokens = torch.tensor([1])
    for step in range(48):
        _, state = model.step(tokens, state)
        if step == 0:
            state, tokens = state.select(torch.tensor([0] * 5)), torch.arange(4, 9)
    state = state.select(torch.tensor([4, 3, 2, 1, 0]))
    held = sum(one.nbytes for one in state._memory)
    counted = source_bytes(config, length=3, steps=48, rows=5, choices=50)
    assert held <= counted < 2 * held
