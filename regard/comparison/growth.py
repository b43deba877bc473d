"""Time and memory as a sequence grows: recurrence, convolution and attention at the same width and depth."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from regard.data.long_range import VOCAB
from regard.look.watch import attentions
from regard.models.sequence_classifier import SequenceClassifier

LENGTHS = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
WAYS = ("rnn", "gru", "lstm", "convolution", "attention")
WEIGHTS = "attention, weights formed"


def growth(
    lengths: Sequence[int] = LENGTHS,
    *,
    width: int = 128,
    layers: int = 2,
    kernel: int = 3,
    repeats: int = 3,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """For each way and length: seconds to read one sequence forward and back, and bytes kept for the way back.

    Only the last output is asked, so a recurrence's gradient fades over thousands of steps to numbers so small that
    some processors are slow with them; they count as zeros here, or time would grow with the square of the length.

    The bytes are those that autograd holds between the two passes. Seconds are the least of `repeats`. Attention comes
    twice: as it trains, by the fused kernel, and with its weights formed, which is what the n x n of a lecture costs.
    """
    ways: list[dict[str, Any]] = []
    done, total = 0, (len(WAYS) + 1) * len(lengths)
    for name in (*WAYS, WEIGHTS):
        torch.manual_seed(1)
        way = "attention" if name == WEIGHTS else name
        reader = SequenceClassifier(way, VOCAB, 2, width=width, layers=layers, kernel=kernel)
        if name == WEIGHTS:
            for attention in attentions(reader).values():
                attention.watcher = lambda q, k, v, weights: weights
        points = []
        for length in lengths:
            ids = torch.randint(VOCAB, (1, length), generator=torch.Generator().manual_seed(length))
            points.append({"length": length, **_cost(reader, ids, repeats)})
            done += 1
            if progress is not None:
                progress(done, total)
        ways.append(
            {
                "name": name,
                "parameters": sum(parameter.numel() for parameter in reader.parameters()),
                "receptive_field": reader.receptive_field,
                "steps_in_a_row": "length" if way in ("rnn", "gru", "lstm") else layers,
                "points": points,
            }
        )
    return {
        "width": width,
        "layers": layers,
        "kernel": kernel,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "ways": ways,
    }


def _cost(reader: SequenceClassifier, ids: Tensor, repeats: int) -> dict[str, float]:
    seconds = []
    torch.set_flush_denormal(True)
    try:
        for _ in range(repeats):
            began = time.perf_counter()
            reader(ids).sum().backward()
            seconds.append(time.perf_counter() - began)
            reader.zero_grad()
    finally:
        torch.set_flush_denormal(False)
    return {"seconds": min(seconds), "bytes": kept_bytes(lambda: reader(ids).sum(), reader)}


def kept_bytes(compute: Callable[[], Tensor], module: torch.nn.Module) -> int:
    """Bytes of the tensors that a computation keeps for its way back, each memory counted once, weights left out."""
    weights = {parameter.untyped_storage().data_ptr() for parameter in module.parameters()}
    kept: dict[int, int] = {}
    alive = []  # what is freed could be given out again under the same address

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
            alive.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        compute()
    return sum(kept.values())
