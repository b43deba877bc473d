"""Recurrence, convolution and attention as a sequence grows: time and memory, and what each learns over a distance."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.config import JsonObject
from regard.data.synthetic.long_range import ANSWERS, VOCAB, LongRangeQuestion, long_range
from regard.errors import ConfigError
from regard.look.watch import attentions
from regard.models.sequence_classifier import LayerKind, SequenceClassifier, Start
from regard.nn.flops import operations

LENGTHS = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
WAYS = ("rnn", "gru", "lstm", "convolution", "attention")
WEIGHTS = "attention, weights formed"
WORK_LENGTHS = (128, 1024)
"""Lengths at which the work of one layer is counted: below the width that is usual here, and far above it."""


def growth(
    lengths: Sequence[int] = LENGTHS,
    *,
    width: int = 128,
    layers: int = 2,
    kernel: int = 3,
    repeats: int = 3,
    work_lengths: Sequence[int] = WORK_LENGTHS,
    device: str = "cpu",
    progress: Callable[[int, int], None] | None = None,
) -> JsonObject:
    """For each way and length: seconds of a forward and backward pass over one sequence, and bytes kept for the latter.

    Only the last output is asked, so a recurrence's gradient fades over thousands of steps to numbers so small that
    some processors are slow with them; they count as zeros here, or time would grow with the square of the length.

    The bytes are those that autograd holds between the two passes. Seconds are the least of `repeats`. Attention comes
    twice: as it trains, by the fused kernel, and with its weights formed, which is what the n x n of a lecture costs.
    Beside them stands what `layer_cost` says of one layer at the `work_lengths`.
    """
    ways: list[JsonObject] = []
    done, total = 0, (len(WAYS) + 1) * len(lengths)
    for name in (*WAYS, WEIGHTS):
        torch.manual_seed(1)
        way = "attention" if name == WEIGHTS else name
        reader = SequenceClassifier(way, VOCAB, 2, width=width, layers=layers, kernel=kernel).to(device)
        if name == WEIGHTS:
            for attention in attentions(reader).values():
                attention.watcher = lambda q, k, v, weights: weights
        points = []
        for length in lengths:
            ids = torch.randint(VOCAB, (1, length), generator=torch.Generator().manual_seed(length))
            points.append({"length": length, **_cost(reader, ids.to(device), repeats)})
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
                "layer": [layer_cost(way, length, width=width, kernel=kernel) for length in work_lengths],
            }
        )
    return {
        "device": device,
        "width": width,
        "layers": layers,
        "kernel": kernel,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "ways": ways,
    }


def layer_cost(way: LayerKind, length: int, *, width: int = 128, kernel: int = 3) -> JsonObject:
    """Of one layer over a sequence: its work, its sequential steps, and the longest path between two positions.

    Work is counted as the layer runs, forward: the operations of its products, projections and all. Steps are those
    that cannot be done before the one before them is done. The path is how many steps or layers a signal goes through
    between the first position and the last; a convolution needs as many layers for it.
    """
    reader = SequenceClassifier(way, VOCAB, 2, width=width, layers=1, kernel=kernel)
    with torch.no_grad(), operations(reader) as counter:
        reader.read(torch.zeros(1, length, width))
    recurrent = way in ("rnn", "gru", "lstm")
    path = length - 1 if recurrent else 1 if way == "attention" else math.ceil((length - 1) / (kernel - 1))
    return {
        "length": length,
        "flops": counter.get_total_flops(),
        "sequential_steps": length if recurrent else 1,
        "longest_path": path,
    }


def _cost(reader: SequenceClassifier, ids: Tensor, repeats: int) -> dict[str, float]:
    seconds = []
    torch.set_flush_denormal(True)
    try:
        for _ in range(repeats):
            began = time.perf_counter()
            reader(ids).sum().backward()
            if ids.is_cuda:
                torch.cuda.synchronize()
            seconds.append(time.perf_counter() - began)
            reader.zero_grad()
    finally:
        torch.set_flush_denormal(False)
    return {"seconds": min(seconds), "bytes": kept_bytes(lambda: reader(ids).sum(), reader)}


def kept_bytes(compute: Callable[[], Tensor], module: torch.nn.Module) -> int:
    """Bytes of the tensors that a computation keeps for its backward pass, each storage once, weights left out."""
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


SHORTEST = 16
TOKENS = 8192
"""Of one update: a few long sequences or many short ones."""
ROWS = 64
"""Sequences that each length is tested on."""
UNSEEN = 500_000_000
"""Added to a seed for sequences on which neither training nor the last test looks."""
TRIED_EVERY = 250
"""Updates after which it is tried whether a reader has learned its question."""


def long_range_accuracy(
    longest: int = 2048,
    updates: int = 300,
    *,
    ways: Sequence[LayerKind] = get_args(LayerKind),
    questions: Sequence[LongRangeQuestion] = get_args(LongRangeQuestion),
    width: int = 64,
    deep: bool = False,
    dilation: int = 1,
    start: Start = "orthogonal",
    until: float | None = None,
    rate: float = 3e-3,
    tokens: int | None = None,
    rows: int = ROWS,
    device: str = "cpu",
    seed: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> JsonObject:
    """For each question and way, the share of right answers by length, after as many updates for each.

    All have two layers, a convolution over three positions; `deep` gives it as many, over nine, as see the longest: the
    fewer, the further `dilation` spreads a layer's positions apart. `start` is a vanilla RNN's. With `until` one is
    done as soon as that share of the answers is right at every length, on sequences that serve for nothing else;
    `updates` is then the most that it gets, each result says how many it had, and its curve has the loss of training
    since the trial before. `rate` is the highest learning rate, `tokens` the size of an update, `rows` how many
    sequences of each length the last test has.

    An update sees sequences of one length, sampled evenly on a logarithmic scale up to `longest`: who learns at all
    learns on the short ones first. Chance is one in eight.
    """
    if longest < SHORTEST:
        raise ConfigError(f"the longest sequence of {longest} tokens must have at least {SHORTEST}")
    done, total = 0, updates * len(ways) * len(questions)
    results = []
    for question in questions:
        for way in ways:
            torch.manual_seed(seed)
            shape: dict[str, int] = {}
            if deep and way == "convolution":
                shape = {"kernel": 9, "dilation": dilation, "layers": _layers_that_see(longest, 9, dilation)}
            begins: Start = start if way == "rnn" else "orthogonal"
            reader = SequenceClassifier(way, VOCAB, ANSWERS, width=width, start=begins, **shape).to(device)
            began = time.perf_counter()
            step, curve, losses = 0, [], []
            for loss in _train_reader(reader, question, longest, updates, seed, rate, tokens or TOKENS):
                step += 1
                if until is not None:
                    losses.append(loss)
                if progress is not None and step % 10 == 0:
                    progress(done + step, total)
                if until is not None and step % TRIED_EVERY == 0:
                    tried = [_accuracy(reader, question, length, seed + UNSEEN) for length in _test_lengths(longest)]
                    lately = float(torch.stack(losses).mean())
                    curve.append({"updates": step, "share": sum(tried) / len(tried), "loss": lately})
                    losses.clear()
                    if min(tried) >= until:
                        break
            done += updates
            results.append(
                {
                    "question": question,
                    "way": way,
                    "parameters": sum(parameter.numel() for parameter in reader.parameters()),
                    "receptive_field": reader.receptive_field,
                    "layers": shape.get("layers", 2),
                    "updates": step,
                    "seconds": time.perf_counter() - began,
                    "curve": curve,
                    "accuracy": [
                        {"length": length, "share": _accuracy(reader, question, length, seed, rows)}
                        for length in _test_lengths(longest)
                    ],
                }
            )
    return {
        "longest": longest,
        "updates": updates,
        "width": width,
        "rate": rate,
        "tokens": tokens or TOKENS,
        "until": until,
        "chance": 1 / ANSWERS,
        "rows": rows,
        "results": results,
    }


def _layers_that_see(longest: int, kernel: int, dilation: int) -> int:
    """As many convolutions as the last position needs to see the first of so many."""
    layers, sees = 0, 1
    while sees < longest:
        sees += (kernel - 1) * dilation**layers
        layers += 1
    return layers


def _train_reader(
    reader: SequenceClassifier,
    question: LongRangeQuestion,
    longest: int,
    updates: int,
    seed: int,
    rate: float,
    size: int,
) -> Iterator[Tensor]:
    """Train it, one update at a time; what it yields is the loss of each."""
    optimizer = torch.optim.AdamW(reader.parameters(), lr=rate, betas=(0.9, 0.98), weight_decay=0.0)
    luck = torch.Generator().manual_seed(seed)
    for step in range(updates):
        share = float(torch.rand((), generator=luck))
        length = round(SHORTEST * (longest / SHORTEST) ** share)
        # Up over the first twentieth, then down along a cosine.
        warm = min(1.0, (step + 1) / max(1, updates // 20))
        for group in optimizer.param_groups:
            group["lr"] = rate * warm * 0.5 * (1 + math.cos(math.pi * step / updates))
        tokens, answers = long_range(question, max(4, size // length), length, seed=1_000_003 * seed + step)
        at = reader.answer.weight.device
        loss = F.cross_entropy(reader(tokens.to(at)), answers.to(at))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(reader.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        yield loss.detach()


def _test_lengths(longest: int) -> list[int]:
    lengths = [SHORTEST]
    while lengths[-1] * 2 < longest:
        lengths.append(lengths[-1] * 2)
    return [*lengths, longest] if longest > SHORTEST else lengths


@torch.inference_mode()
def _accuracy(
    reader: SequenceClassifier, question: LongRangeQuestion, length: int, seed: int, rows: int = ROWS
) -> float:
    """On sequences that training never sees: their seeds are negative."""
    reader.eval()
    right = 0
    for part in range(0, rows, 16):
        tokens, answers = long_range(question, min(16, rows - part), length, seed=-1 - seed - part - 1000 * length)
        found = reader(tokens.to(reader.answer.weight.device)).argmax(-1).cpu()
        right += int((found == answers).sum())
    reader.train()
    return right / rows
