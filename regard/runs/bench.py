"""How fast a configuration trains here, as a share of what the machine can multiply, and beside a peer."""

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from regard.data import PairStore, collate, epoch_order
from regard.data.packing import Packing
from regard.errors import ConfigError
from regard.nn.batch import Pairs
from regard.runs.config import RunConfig
from regard.runs.describe import forward_flops
from regard.runs.run import build_model, choose_device, choose_precision
from regard.training.loop import train_step
from regard.training.optim import make_optimizer
from regard.training.replay import Replay
from regard.training.tasks import Translation, compiled, precision_context

BOS, EOS, FIRST = 1, 2, 4


@dataclass(frozen=True, kw_only=True, slots=True)
class Speed:
    """One way of training, timed. Tokens are real ones, source and target, padding not counted."""

    name: str
    tokens_per_second: float
    tflops: float
    peak_share: float
    memory_bytes: int
    first_step_seconds: float
    padding: float
    step_seconds: float
    launch_seconds: float
    """How long the host is busy with a step; near `step_seconds` it is what limits the speed."""


def bench_train(
    config: RunConfig,
    *,
    lengths: Sequence[tuple[int, int]] | None = None,
    batches: int = 8,
    seconds: float = 5.0,
    order: str = "random",
    peer: bool = True,
    report: Callable[[Speed], None] | None = None,
) -> dict[str, Any]:
    """Train on random tokens of these sentence lengths, with regard and, where it is installed, with Hugging Face.

    Both get the same sentences in the same batches; `order` is `random`, or `bucketed` to put like lengths together.
    Hugging Face pads them; regard packs them where the device has a kernel for it.
    """
    device = choose_device(config.train.device)
    precision = choose_precision(config.train.precision, device)
    size = config.tokenizer.vocab_size
    config = replace(config, model={**config.model, "source_vocab_size": size, "target_vocab_size": size})
    store, groups = _work(lengths or caption_lengths(20_000), size, config.train.batch_tokens, batches, order)
    peak = matmul_peak(device, precision)
    timing = _Timing(store, groups, config, device, precision, peak, seconds)
    found = [timing.ours()]
    if report:
        report(found[-1])
    if peer and config.model["name"] == "transformer":
        found += timing.peers(report)
    return {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "threads": torch.get_num_threads(),
        "precision": str(precision).removeprefix("torch."),
        "torch": torch.__version__,
        "order": order,
        "sentences_per_batch": len(groups[0]),
        "matmul_peak_tflops": peak / 1e12,
        "parameters": timing.parameters,
        "results": [{name: getattr(speed, name) for name in speed.__slots__} for speed in found],
        "ratios": {speed.name: found[0].tokens_per_second / speed.tokens_per_second for speed in found[1:]},
    }


def caption_lengths(count: int) -> list[tuple[int, int]]:
    """Sentence lengths drawn to resemble short written sentences in word pieces: about 15 tokens, seldom over 40."""
    draw = random.Random(0)
    found = []
    for _ in range(count):
        source = max(4, round(draw.lognormvariate(2.6, 0.4)))
        found.append((source, max(3, round(source * draw.gauss(1.05, 0.18)))))
    return found


def file_lengths(source: Path, target: Path) -> list[tuple[int, int]]:
    """The lengths of line-aligned files in words."""
    sides = [path.read_text(encoding="utf-8").split("\n") for path in (source, target)]
    found = [(len(a.split()), len(b.split())) for a, b in zip(*sides, strict=False) if a.strip() and b.strip()]
    if not found:
        raise ConfigError(f"no pair of lines in {source} and {target}")
    return found


def matmul_peak(device: torch.device, precision: torch.dtype) -> float:
    """Multiplications and additions a second in one large product: what no training can exceed."""
    size = 8192 if device.type == "cuda" else 1536
    a, b = (torch.randn(size, size, device=device, dtype=precision) for _ in range(2))
    best = float("inf")
    for _ in range(8):
        seconds = _timed(lambda: a @ b, device)
        best = min(best, seconds)
    return 2 * size**3 / best


def _work(
    lengths: Sequence[tuple[int, int]], vocabulary: int, budget: int, batches: int, order: str
) -> tuple[PairStore, list[np.ndarray]]:
    draw = random.Random(1)
    pairs = [
        (
            [*(draw.randrange(FIRST, vocabulary) for _ in range(source)), EOS],
            [BOS, *(draw.randrange(FIRST, vocabulary) for _ in range(target)), EOS],
        )
        for source, target in lengths
    ]
    store = PairStore.of(pairs, 0)
    mean = (store.source.lengths + store.target.lengths - 1).mean()
    sentences = max(1, int(budget / mean))
    if order == "bucketed":
        rows = np.concatenate(epoch_order(store.source.lengths, store.target.lengths, budget=budget, seed=0, epoch=0))
    else:
        rows = np.random.Generator(np.random.Philox(key=[0, 0])).permutation(len(store))
    groups = [rows[start : start + sentences] for start in range(0, len(rows) - sentences, sentences)]
    if not groups:
        raise ConfigError(f"{len(store)} pairs do not fill one batch of {budget} tokens")
    return store, groups[:batches]


class _Timing:
    """The same work, done in several ways."""

    def __init__(
        self,
        store: PairStore,
        groups: list[np.ndarray],
        config: RunConfig,
        device: torch.device,
        precision: torch.dtype,
        peak: float,
        seconds: float,
    ) -> None:
        self.store, self.groups, self.config = store, groups, config
        self.device, self.precision, self.peak, self.seconds = device, precision, peak, seconds
        self.padded = [collate(store, rows) for rows in groups]
        self.tokens = [batch.tokens for batch in self.padded]
        self.parameters = 0
        self.flops = [0.0] * len(groups)

    def ours(self) -> Speed:
        options = self.config.train
        model = build_model(self.config).to(self.device)
        self.parameters = sum(parameter.numel() for parameter in model.parameters())
        self._count_flops(model)
        optimizer = make_optimizer(model, options)
        name, batches = "regard", self.padded
        if self.device.type == "cuda" and getattr(model, "packs", True):
            packing = Packing(self.store, options.batch_tokens)
            placed = [packing.fit(rows) for rows in self.groups]
            packing.rows = max(int(group[:, 1].max()) + 1 for group in placed)
            name, batches = "regard, packed", [packing.batch(group) for group in placed]
        packed = name != "regard"
        task, trained = compiled(Translation(options.smoothing, options.r_drop), model, options, dynamic=not packed)
        name += ", compiled" if options.compile else ", blocks compiled" if options.compile_blocks else ""
        name += " with its loss" if options.compile_loss else ""
        name += ", replayed" if options.cuda_graphs and self.device.type == "cuda" else ""
        moved = [batch.to(self.device) for batch in batches]
        replayed = options.cuda_graphs and self.device.type == "cuda"
        replay = Replay(trained, task, self.device, self.precision) if replayed else None

        def step(index: int) -> None:
            train_step(
                trained,
                task,
                [moved[index]],
                optimizer,
                clip=options.clip,
                device=self.device,
                precision=self.precision,
                replay=replay,
            )

        room = sum(batch.source.ids.numel() + batch.inputs.ids.numel() for batch in batches)
        return self._speed(name, step, 1 - sum(self.tokens) / room)

    def peers(self, report: Callable[[Speed], None] | None) -> list[Speed]:
        try:
            import transformers  # noqa: F401
        except ImportError:
            return []
        found = [
            self._peer(compiled)
            for compiled in (
                (False, True) if self.config.train.compile or self.config.train.compile_blocks else (False,)
            )
        ]
        for speed in found:
            if report:
                report(speed)
        return found

    def _peer(self, compiled: bool) -> Speed:
        model = marian(self.config.model_config()).to(self.device).train()
        options = self.config.train
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98), fused=True)
        batches = self._rectangular() if compiled else self.padded
        moved = [batch.to(self.device) for batch in batches]
        trained: Any = torch.compile(model) if compiled else model

        def step(index: int) -> None:
            batch = moved[index]
            with precision_context(self.device, self.precision):
                logits = trained(
                    input_ids=batch.source.ids,
                    attention_mask=batch.source.mask().long(),
                    decoder_input_ids=batch.inputs.ids,
                ).logits
                loss = nn.functional.cross_entropy(
                    logits.flatten(0, 1), batch.labels.flatten(), label_smoothing=options.smoothing
                )
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), options.clip or torch.inf)
            optimizer.step()
            optimizer.zero_grad()

        room = sum(batch.source.ids.numel() + batch.inputs.ids.numel() for batch in batches)
        name = "Hugging Face Marian" + (", compiled" if compiled else "")
        return self._speed(name, step, 1 - sum(self.tokens) / room)

    def _rectangular(self) -> list[Pairs]:
        """The padded batches, all of one shape, so that a compiled model is compiled once."""
        shape = [
            max(side.ids.shape[1] for side in sides)
            for sides in zip(*((b.source, b.target) for b in self.padded), strict=True)
        ]  # type: ignore[union-attr]

        def widen(side: Any, width: int) -> Any:
            ids = nn.functional.pad(side.ids, (0, width - side.ids.shape[1]))
            return replace(side, ids=ids, padded=True)

        return [
            replace(batch, source=widen(batch.source, shape[0]), target=widen(batch.target, shape[1]))
            for batch in self.padded
        ]

    def _count_flops(self, model: nn.Module) -> None:
        """A training step is three forward passes; forward is counted at the mean length, attention included."""
        sources, targets = self.store.source.lengths, self.store.target.lengths - 1
        for index, rows in enumerate(self.groups):
            length = round(float(sources[rows].mean() + targets[rows].mean()) / 2)
            per_token = forward_flops(model, length) / (2 * length)
            self.flops[index] = 3 * per_token * self.tokens[index]

    def _speed(self, name: str, step: Callable[[int], None], padding: float) -> Speed:
        began = time.perf_counter()
        _timed(lambda: step(0), self.device)
        first = time.perf_counter() - began
        for index in range(len(self.groups)):
            step(index)
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
        rounds, spent, launched = 0, 0.0, 0.0

        def once() -> None:
            nonlocal launched
            began = time.perf_counter()
            for index in range(len(self.groups)):
                step(index)
            launched += time.perf_counter() - began

        while spent < self.seconds:
            spent += _timed(once, self.device)
            rounds += 1
        memory = torch.cuda.max_memory_allocated(self.device) if self.device.type == "cuda" else 0
        flops = rounds * sum(self.flops) / spent
        return Speed(
            name=name,
            tokens_per_second=rounds * sum(self.tokens) / spent,
            tflops=flops / 1e12,
            peak_share=flops / self.peak,
            memory_bytes=memory,
            first_step_seconds=first,
            padding=padding,
            step_seconds=spent / (rounds * len(self.groups)),
            launch_seconds=launched / (rounds * len(self.groups)),
        )


def marian(sizes: Any) -> Any:
    """Hugging Face's Marian of the same sizes as a Transformer's configuration says."""
    from transformers import MarianConfig, MarianMTModel
    from transformers.utils import logging

    logging.set_verbosity_error()
    return MarianMTModel(
        MarianConfig(
            vocab_size=sizes.target_vocab_size,
            d_model=sizes.width,
            encoder_layers=sizes.encoder_layers,
            decoder_layers=sizes.decoder_layers,
            encoder_attention_heads=sizes.heads,
            decoder_attention_heads=sizes.heads,
            encoder_ffn_dim=sizes.feed_forward,
            decoder_ffn_dim=sizes.feed_forward,
            dropout=sizes.dropout,
            attention_dropout=sizes.attention_dropout,
            activation_dropout=sizes.activation_dropout,
            activation_function="relu",
            pad_token_id=0,
            bos_token_id=BOS,
            eos_token_id=EOS,
            decoder_start_token_id=BOS,
            forced_eos_token_id=None,
            max_position_embeddings=sizes.max_len,
            scale_embedding=True,
        )
    )


def _timed(work: Callable[[], Any], device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    began = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - began
