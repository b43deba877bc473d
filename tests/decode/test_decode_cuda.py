import pytest
import torch
from decode_toys import EOS, Historical

from regard.decode.config import DecodeConfig
from regard.decode.search import search

BATCH = [3, 14, 15, 92, 65, 35, 89, 79, 32, 38, 46, 26]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("choices", [7, 5000])
@pytest.mark.parametrize(
    "config",
    [
        DecodeConfig(beam=1, max_len=20),
        DecodeConfig(beam=4, top_beams=3, max_len=20, min_len=2),
        DecodeConfig(beam=4, top_beams=3, max_len=20, exact=True),
        DecodeConfig(temperature=0.8, top_k=5, top_p=0.9, samples=3, max_len=20),
        DecodeConfig(temperature=1.2, top_p=0.9, max_len=20),
    ],
)
def test_a_device_finds_what_the_cpu_finds(choices, config):
    toy = Historical(choices=choices)
    found = {}
    for device in ("cpu", "cuda"):
        first = torch.zeros(len(BATCH), dtype=torch.long, device=device)
        state = toy.start(torch.tensor(BATCH, device=device))
        found[device] = search(
            toy, state, first, eos=EOS, config=config, max_len=torch.full((len(BATCH),), 19, device=device)
        )
    assert found["cpu"] == found["cuda"]
