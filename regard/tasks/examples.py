"""Batches of no or random content, as large as a configuration makes them: for counting operations and timing."""

from dataclasses import replace

import torch

from regard.nn.batch import Texts, Tokens
from regard.tasks.config import RunConfig

FIRST = 4
"""The first token that is no special one."""

CLASSES = 10
"""How many classes or tags there are, where a configuration does not name them yet."""


def with_labels(config: RunConfig) -> RunConfig:
    """The configuration with labels, where it names none yet."""
    if config.model.get("labels"):
        return config
    return replace(config, model={**config.model, "labels": [str(number) for number in range(CLASSES)]})


def random_ids(config: RunConfig, draw: torch.Generator, more: int = 0) -> torch.Tensor:
    """As many rows of as many tokens as a batch has."""
    length, size = config.data.max_len, config.model_config().vocab_size
    return torch.randint(FIRST, size, (max(1, config.train.batch_tokens // length), length + more), generator=draw)


def full_rows(ids: torch.Tensor) -> Tokens:
    return Tokens(ids.contiguous(), torch.full((len(ids),), ids.shape[1]), padded=False)


def random_texts(config: RunConfig, draw: torch.Generator) -> Texts:
    ids = random_ids(config, draw)
    second = (torch.arange(ids.shape[1]) >= ids.shape[1] // 2).long().expand_as(ids).contiguous()
    return Texts(full_rows(ids), second if config.model_config().segments > 1 else None)
