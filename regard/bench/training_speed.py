"""How fast a configuration trains here, as a share of the fastest matrix product, and beside Hugging Face."""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from regard.bench.timing import Speed, Stopwatch
from regard.config import JsonObject
from regard.data import PairStore, collate, epoch_order
from regard.data.sequence_packing import PackedLayout
from regard.errors import ConfigError
from regard.nn.batch import Pairs
from regard.nn.flops import forward_flops, operations
from regard.tasks.config import RunConfig
from regard.tasks.corpora import FIRST_TOKEN
from regard.tasks.run import build_model, packs
from regard.training.config import TrainConfig
from regard.training.cuda_graphs import GraphReplay
from regard.training.loop import train_step
from regard.training.objectives import Objective, SequenceToSequence, compiled, precision_context
from regard.training.optim import make_optimizer

BOS, EOS = 1, 2


def bench_train(
    config: RunConfig,
    *,
    lengths: Sequence[tuple[int, int]] | None = None,
    batches: int = 8,
    seconds: float = 5.0,
    order: str | None = None,
    peer: bool = True,
) -> JsonObject:
    """Train on random tokens of these sentence lengths, with regard and, where it is installed, with Hugging Face.

    Both get the same sentences in the same batches; `order` is `random`, or `bucketed` to put like lengths together: by
    default as in training, random where they are packed and bucketed where they are padded. Hugging Face pads them, so
    where the order is random it is timed on bucketed batches of the same sentences as well, its own best setting; that
    is the `best_peer`. Of other kinds of run the batches are random rows as long as the settings say, or images, and
    there is no peer.
    """
    clock = Stopwatch.of(config, seconds)
    config = config.with_stand_ins()
    if not config.kind.has_lengths:
        if lengths is not None or order is not None:
            raise ConfigError(f"lengths and their order are for pairs; the rows of a run for {config.task} are full")
        config, task, work = config.kind.random_batches(config, batches)
        found, parameters = _timed_task(config, task, work, clock)
        rows = config.kind.rows(work[0])
    else:
        size = config.tokenizer.vocab_size
        packed = packs(config.architecture()[1], config.train.pack, clock.device)
        order = order or ("random" if packed else "bucketed")
        store = _sentences(lengths or caption_lengths(20_000), size)
        groups = _groups(store, config.train.batch_tokens, batches, order)
        timing = _Timing(store, groups, config, clock)
        found = [timing.ours(packed)]
        if peer and config.model["name"] == "transformer":
            found += timing.peers(order)
            if order == "random":
                groups = _groups(store, config.train.batch_tokens, batches, "bucketed")
                bucketed = _Timing(store, groups, config, clock)
                bucketed.count_flops(build_model(config))
                found += bucketed.peers("bucketed")
        parameters, rows = timing.parameters, len(groups[0])
    return {
        "device": torch.cuda.get_device_name(clock.device) if clock.device.type == "cuda" else "cpu",
        "threads": torch.get_num_threads(),
        "precision": str(clock.precision).removeprefix("torch."),
        "torch": torch.__version__,
        "order": order,
        "rows_per_batch": rows,
        "matmul_peak_tflops": clock.peak / 1e12,
        "parameters": parameters,
        "results": [{name: getattr(speed, name) for name in speed.__slots__} for speed in found],
        "alone": _why_alone(config),
        "ratios": {speed.name: found[0].tokens_per_second / speed.tokens_per_second for speed in found[1:]},
        "best_peer": max(found[1:], key=lambda speed: speed.tokens_per_second).name if found[1:] else None,
    }


def _why_alone(config: RunConfig) -> str:
    """Why there is no peer, where there is none."""
    if config.model["name"] != "transformer":
        return "that is done for model.name='transformer' alone"
    return "it needs the package transformers: pip install 'regard[hf]'"


def _timed_task(config: RunConfig, task: Objective, work: list[Any], clock: Stopwatch) -> tuple[list[Speed], int]:
    """How fast a model trains on these batches, and how many parameters it has."""
    options, model = config.train, build_model(config).to(clock.device)
    moved = [batch.to(clock.device) for batch in work]
    flops = []
    for batch in moved:
        with operations(model) as counter, torch.no_grad():
            task.loss(model, batch)
        flops.append(3.0 * counter.get_total_flops())
    name, step = _stepped(model, task, moved, options, clock, dynamic=False)
    speed = clock.speed(f"regard{name}", step, [batch.tokens for batch in work], flops)
    return [speed], sum(parameter.numel() for parameter in model.parameters())


def _stepped(
    model: nn.Module, task: Objective, batches: list[Any], options: TrainConfig, clock: Stopwatch, *, dynamic: bool
) -> tuple[str, Callable[[int], None]]:
    """One update on a batch by its number, compiled or replayed as the settings say; and what to call that."""
    optimizer = make_optimizer(model, options)
    task, trained = compiled(task, model, options, dynamic=dynamic)
    name = ", compiled" if options.compile else ", blocks compiled" if options.compile_blocks else ""
    name += " with its loss" if options.compile_loss else ""
    replayed = options.cuda_graphs and clock.device.type == "cuda"
    name += ", replayed" if replayed else ""
    replay = GraphReplay(trained, task, clock.device, clock.precision) if replayed else None

    def step(index: int) -> None:
        train_step(
            trained,
            task,
            [batches[index]],
            optimizer,
            clip=options.clip,
            device=clock.device,
            precision=clock.precision,
            replay=replay,
        )

    return name, step


def caption_lengths(count: int) -> list[tuple[int, int]]:
    """Sentence lengths sampled to resemble short written sentences in word pieces: about 15 tokens, seldom over 40."""
    rng = random.Random(0)
    found = []
    for _ in range(count):
        source = max(4, round(rng.lognormvariate(2.6, 0.4)))
        found.append((source, max(3, round(source * rng.gauss(1.05, 0.18)))))
    return found


def file_lengths(source: Path, target: Path) -> list[tuple[int, int]]:
    """The lengths of line-aligned files in words."""
    sides = [path.read_text(encoding="utf-8").split("\n") for path in (source, target)]
    found = [(len(a.split()), len(b.split())) for a, b in zip(*sides, strict=False) if a.strip() and b.strip()]
    if not found:
        raise ConfigError(f"no pair of lines in {source} and {target}")
    return found


def _sentences(lengths: Sequence[tuple[int, int]], vocabulary: int) -> PairStore:
    """Pairs of random tokens of these lengths."""
    rng = random.Random(1)
    pairs = [
        (
            [*(rng.randrange(FIRST_TOKEN, vocabulary) for _ in range(source)), EOS],
            [BOS, *(rng.randrange(FIRST_TOKEN, vocabulary) for _ in range(target)), EOS],
        )
        for source, target in lengths
    ]
    return PairStore.of(pairs, 0)


def _groups(store: PairStore, budget: int, batches: int, order: str) -> list[np.ndarray]:
    """The rows of each batch: sentences of like length up to `budget` tokens, or as many at random as have so many."""
    if order == "bucketed":
        return epoch_order(store.source.lengths, store.target.lengths, budget=budget, seed=0, epoch=0)[:batches]
    sentences = max(1, int(budget / (store.source.lengths + store.target.lengths - 1).mean()))
    rows = np.random.Generator(np.random.Philox(key=[0, 0])).permutation(len(store))
    groups = [rows[start : start + sentences] for start in range(0, len(rows) - sentences, sentences)]
    if not groups:
        raise ConfigError(f"{len(store)} pairs do not fill one batch of {budget} tokens")
    return groups[:batches]


class _Timing:
    """The same work, done in several ways."""

    def __init__(self, store: PairStore, groups: list[np.ndarray], config: RunConfig, clock: Stopwatch) -> None:
        self.store, self.groups, self.config, self.clock = store, groups, config, clock
        self.padded = [collate(store, rows) for rows in groups]
        self.tokens = [batch.tokens for batch in self.padded]
        self.parameters = 0
        self.flops = [0.0] * len(groups)

    def ours(self, packed: bool) -> Speed:
        options = self.config.train
        model = build_model(self.config).to(self.clock.device)
        self.parameters = sum(parameter.numel() for parameter in model.parameters())
        self.count_flops(model)
        name, batches = "regard", self.padded
        if packed:
            packing = PackedLayout(self.store, options.batch_tokens)
            placed = [packing.fit(rows) for rows in self.groups]
            packing.rows = max(int(group[:, 1].max()) + 1 for group in placed)
            name, batches = "regard, packed", [packing.batch(group) for group in placed]
        moved = [batch.to(self.clock.device) for batch in batches]
        task = SequenceToSequence(options.smoothing, options.r_drop)
        more, step = _stepped(model, task, moved, options, self.clock, dynamic=not packed)
        room = sum(batch.source.ids.numel() + batch.inputs.ids.numel() for batch in batches)
        return self.clock.speed(name + more, step, self.tokens, self.flops, 1 - sum(self.tokens) / room)

    def peers(self, order: str) -> list[Speed]:
        """Hugging Face's Marian, and compiled too where ours is; none where it is not installed."""
        if not find_spec("transformers"):
            return []
        options = self.config.train
        compiled = options.compile or options.compile_blocks
        return [self._peer(order, compiled) for compiled in sorted({False, compiled})]

    def _peer(self, order: str, compiled: bool) -> Speed:
        model = marian(self.config.model_config()).to(self.clock.device).train()
        options = self.config.train
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98), fused=True)
        # Batches of random order are nearly of one shape, so one is compiled; those of like lengths have many.
        one_shape = compiled and order == "random"
        batches = self._rectangular() if one_shape else self.padded
        moved = [batch.to(self.clock.device) for batch in batches]
        trained: Any = torch.compile(model, dynamic=not one_shape) if compiled else model

        def step(index: int) -> None:
            batch = moved[index]
            with precision_context(self.clock.device, self.clock.precision):
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
        name = f"Hugging Face Marian, {order}" + (", compiled" if compiled else "")
        return self.clock.speed(name, step, self.tokens, self.flops, 1 - sum(self.tokens) / room)

    def _rectangular(self) -> list[Pairs]:
        """The padded batches, all of one shape, so that a compiled model is compiled once."""
        shape = [
            max(side.ids.shape[1] for side in sides)
            for sides in zip(*((b.source, b.target) for b in self.padded), strict=True)
        ]

        def widen(side: Any, width: int) -> Any:
            ids = nn.functional.pad(side.ids, (0, width - side.ids.shape[1]))
            return replace(side, ids=ids, padded=True)

        return [
            replace(batch, source=widen(batch.source, shape[0]), target=widen(batch.target, shape[1]))
            for batch in self.padded
        ]

    def count_flops(self, model: nn.Module) -> None:
        """A training step is three forward passes; forward is counted at the mean length, attention included."""
        sources, targets = self.store.source.lengths, self.store.target.lengths - 1
        for index, rows in enumerate(self.groups):
            length = round(float(sources[rows].mean() + targets[rows].mean()) / 2)
            per_token = forward_flops(model, self.config.kind.example(self.config, length)) / (2 * length)
            self.flops[index] = 3 * per_token * self.tokens[index]


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
