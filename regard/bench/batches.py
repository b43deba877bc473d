"""Random batches to time training on, as large as a configuration makes them: text, labelled text, pictures."""

from dataclasses import replace
from typing import Any

import torch

from regard.errors import ConfigError
from regard.nn.batch import Images, LabelledTexts, MaskedTexts, Texts, Tokens, Windows
from regard.tasks.config import RunConfig
from regard.tasks.labelled import TASKS
from regard.training.images import ImageClassification
from regard.training.objectives import Objective, language_objective
from regard.training.text_tasks import MaskedWords

FIRST = 4
"""The first token that is no special one."""

CLASSES = 10
"""How many classes or tags there are, where a configuration does not name them yet."""


def random_work(config: RunConfig, count: int) -> tuple[RunConfig, Objective, list[Any]]:
    """The configuration with what only data could tell, its task, and `count` random batches: rows are full."""
    draw = torch.Generator().manual_seed(0)
    if config.task == "language":
        task = language_objective(config.architecture()[1], config.train.smoothing)
        return config, task, [_windows(config, draw) for _ in range(count)]
    if config.task == "masking":
        return config, MaskedWords(config.train.smoothing), [_masked(config, draw) for _ in range(count)]
    if config.task not in (*TASKS, "images"):
        raise ConfigError(f"training is timed on text and on pictures, not on what a run for {config.task} reads")
    if config.task != "answering" and not config.model.get("labels"):
        config = replace(config, model={**config.model, "labels": [str(number) for number in range(CLASSES)]})
    if config.task == "images":
        return config, ImageClassification(config.train.smoothing), [_pictures(config, draw) for _ in range(count)]
    return config, TASKS[config.task](config.train.smoothing), [_labelled(config, draw) for _ in range(count)]


def _ids(config: RunConfig, draw: torch.Generator, more: int = 0) -> torch.Tensor:
    """As many rows of as many tokens as a batch has."""
    length, size = config.data.max_len, config.model_config().vocab_size
    return torch.randint(FIRST, size, (max(1, config.train.batch_tokens // length), length + more), generator=draw)


def _tokens(ids: torch.Tensor) -> Tokens:
    return Tokens(ids.contiguous(), torch.full((len(ids),), ids.shape[1]), padded=False)


def _windows(config: RunConfig, draw: torch.Generator) -> Windows:
    ids = _ids(config, draw, 1)
    return Windows(_tokens(ids[:, :-1]), ids[:, 1:].contiguous(), ids[:, 1:].numel())


def _texts(config: RunConfig, draw: torch.Generator) -> Texts:
    ids = _ids(config, draw)
    second = (torch.arange(ids.shape[1]) >= ids.shape[1] // 2).long().expand_as(ids).contiguous()
    return Texts(_tokens(ids), second if config.model_config().segments > 1 else None)


def _masked(config: RunConfig, draw: torch.Generator) -> MaskedTexts:
    texts = _texts(config, draw)
    rows, length = texts.ids.shape
    hidden = max(1, round(config.data.mask * length))
    places = torch.stack([torch.randperm(length, generator=draw)[:hidden] for _ in range(rows)])
    follows = torch.zeros(rows, dtype=torch.long) if config.model_config().head == "pretraining" else None
    return MaskedTexts(texts, places, texts.ids.gather(1, places), follows, rows * hidden, float(hidden))


def _labelled(config: RunConfig, draw: torch.Generator) -> LabelledTexts:
    texts = _texts(config, draw)
    rows, length = texts.ids.shape
    shape = {"classification": (rows,), "tagging": (rows, length), "answering": (rows, 2)}[config.task]
    labels = torch.randint(2, shape, generator=draw)
    return LabelledTexts(texts, labels, labels.numel())


def _pictures(config: RunConfig, draw: torch.Generator) -> Images:
    shape: Any = config.model_config()
    rows = max(1, config.train.batch_tokens // shape.max_len)
    pixels = torch.randn(rows, shape.channels, shape.image_size, shape.image_size, generator=draw)
    return Images(pixels, torch.randint(len(shape.labels), (rows,), generator=draw), rows, shape.max_len)
