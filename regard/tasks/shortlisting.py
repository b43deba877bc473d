"""The shortlist of output words that lies beside a run: learned from its training pairs, and read when decoding."""

import random
from collections.abc import Iterable
from pathlib import Path

import torch

from regard.data import Corpus
from regard.decode.shortlist import Shortlist, learn_shortlist
from regard.errors import ConfigError, DataError, RunError
from regard.runs.files import read_tensors, write_errors, write_tensors
from regard.tasks.corpora import corpus_of
from regard.tasks.run import Run

SHORTLIST = "shortlist.safetensors"

PAIRS = 30_000
"""Pairs that a shortlist is learned from by default; all links of their words are held in memory."""


def write_shortlist(
    run: Run, *, frequent: int = 500, each: int = 100, pairs: int = PAIRS, corpus: Corpus | None = None
) -> tuple[Path, int]:
    """Learn a shortlist from the run's training pairs, or from a `corpus`; its file, and from how many pairs it is.

    Every source may be translated by the `frequent` most frequent target tokens, and by those `each` that are the
    likeliest for each of its own. Of a larger corpus `pairs` are sampled.
    """
    for name, value in (("frequent", frequent), ("each", each), ("pairs", pairs)):
        if value < 1:
            raise ConfigError(f"{name}={value} must be at least 1")
    if "translator" not in run.task.parts:
        raise ConfigError(f"a shortlist does not apply to a run for {run.task.name}, only to one that translates")
    if run.translator.copies:
        raise ConfigError("a shortlist does not apply to a model that copies words of its source")
    corpus = corpus or corpus_of(run.config.data, "train")
    if corpus is None:
        raise DataError(f"{run.directory} names no training data, as where it was imported: give pairs to learn from")
    chosen = _sampled(corpus, pairs)
    read = run.vocabularies
    sources = read.source.encode_batch([source for source, _ in chosen])
    targets = read.target.encode_batch([target for _, target in chosen])
    found = learn_shortlist(
        zip(map(read.source_row, sources), targets, strict=True),
        source_size=read.source.vocab_size,
        target_size=read.target.vocab_size,
        frequent=frequent,
        each=each,
    )
    path = run.directory / SHORTLIST
    with write_errors(path):
        tensors = {"frequent": torch.from_numpy(found.frequent), "likely": torch.from_numpy(found.likely)}
        write_tensors(path, tensors, sealed=True)
    run.__dict__.pop("translator", None)  # it may have read another
    return path, len(chosen)


def _sampled(corpus: Iterable[tuple[str, str]], count: int) -> list[tuple[str, str]]:
    """So many pairs with both sides, each as likely as any other; always the same ones."""
    draw, kept, seen = random.Random(0), [], 0
    for source, target in corpus:
        if not source.strip() or not target.strip():
            continue
        seen += 1
        if len(kept) < count:
            kept.append((source, target))
        elif (place := draw.randrange(seen)) < count:
            kept[place] = (source, target)
    return kept


def read_shortlist(run: Run) -> Shortlist:
    """The shortlist beside the run, as it was written."""
    path = run.directory / SHORTLIST
    if not path.exists():
        raise ConfigError(
            f"shortlist=true: {run.directory} has none yet: make one with `regard shortlist {run.directory}`"
        )
    tensors = read_tensors(path)
    frequent, likely = (tensors.get(name) for name in ("frequent", "likely"))
    size = run.vocabularies.target.vocab_size
    for tensor, axes in ((frequent, 1), (likely, 2)):
        if tensor is None or tensor.dtype != torch.int32 or tensor.dim() != axes:
            raise RunError(f"{path} is not a shortlist; make it anew with `regard shortlist {run.directory}`")
        if tensor.numel() and not -1 <= int(tensor.min()) <= int(tensor.max()) < size:
            raise RunError(f"{path} names tokens beyond the {size} of the run; make it anew with `regard shortlist`")
    assert frequent is not None
    assert likely is not None
    return Shortlist(frequent.numpy(), likely.numpy())
