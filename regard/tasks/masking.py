"""Masked words and next sentences: plain text to an encoder that has read much."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import nn

from regard.data import Documents, Loader, Position
from regard.data.masking import Masking
from regard.data.pairs_of_text import MaskedRows
from regard.data.sentences import SentenceStore, prepare_sentences
from regard.errors import ConfigError
from regard.nn.batch import MaskedTexts
from regard.runs.files import TOKENIZER
from regard.tasks.config import RunConfig
from regard.tasks.corpora import documents_of, training_documents
from regard.tasks.report import Report
from regard.tasks.run import absolute, load_vocabularies
from regard.tasks.starting import copy_tokenizer
from regard.text import Tokenizer, Vocabularies, train_tokenizer
from regard.text.framing import Framing
from regard.training.objectives import Objective
from regard.training.text_tasks import MaskedWords

KINDS = ("wordpiece", "bpe", "word", "unigram")


def prepare_job(config: RunConfig, directory: Path, report: Report, new: bool) -> tuple[RunConfig, "MaskingJob"]:
    """The text as sentences of tokens; for a new run, with a tokenizer trained on it first."""
    documents = training_documents(config.data)
    if new and config.train.start_from:
        copy_tokenizer(Path(config.train.start_from), directory / TOKENIZER)
        config = absolute(config)
    elif new:
        if config.tokenizer.kind not in KINDS:
            raise ConfigError(f"tokenizer.kind='{config.tokenizer.kind}' has no words to hide; use {', '.join(KINDS)}")
        report.say("training the tokenizer")
        shared = train_tokenizer(documents.texts(), config.tokenizer, masks=True)
        vocabularies = Vocabularies(shared, shared)
        config = absolute(config.with_vocabularies(vocabularies))
        vocabularies.save(directory / TOKENIZER)
    tokenizer = load_vocabularies(directory, config.tokenizer).target
    return config, MaskingJob(config, documents, tokenizer, directory, report)


class MaskingJob:
    """Text to train on and, where there is any, to validate on."""

    def __init__(
        self, config: RunConfig, documents: Documents, tokenizer: Tokenizer, directory: Path, report: Report
    ) -> None:
        self.config, self.tokenizer, self.report = config, tokenizer, report
        self.cache = _cache(config, directory)
        self.objective: Objective = MaskedWords(config.train.smoothing)
        report.say("reading and tokenising the text")
        self.train = self._store(documents)
        report.say(self.train.counts.describe())
        self._layout(config.train.batch_tokens)  # refuses what cannot be before anything else is read
        valid = documents_of(config.data, "valid")
        self.valid = None if valid is None else masked_rows(config, self._store(valid), tokenizer)

    def stream(self, position: Position, *, pin: bool, pack: bool) -> Loader:
        options = self.config.train
        return Loader(self._layout(options.batch_tokens), seed=options.seed, position=position, pin=pin)

    def bounds(self) -> tuple[int, int]:
        length = self.config.data.max_len
        return length, max(length, self.train.counts.tokens)

    def trials(self, budget: int, *, pack: bool) -> list[MaskedTexts]:
        layout = self._layout(budget)
        order = layout.order(self.config.train.seed, 0)
        return [layout.batch(max(order, key=len)), layout.batch(order[0])]

    def validation(self) -> Iterator[MaskedTexts] | None:
        """The same rows with the same words hidden, every time."""
        return None if self.valid is None else self.valid.evaluation()

    def scores(self, model: nn.Module) -> dict[str, float]:
        """How many hidden words are the likeliest ones."""
        if self.valid is None:
            return {}
        device = next(model.parameters()).device
        return {"word_accuracy": word_accuracy(model, self.validation() or iter(()), device)}

    def _layout(self, budget: int) -> MaskedRows:
        config = replace(self.config, train=replace(self.config.train, batch_tokens=budget))
        return masked_rows(config, self.train, self.tokenizer)

    def _store(self, documents: Documents) -> SentenceStore:
        return prepare_sentences(
            documents, self.tokenizer, self.cache, lambda count: self.report.progress("tokenising", count)
        )


def masked_rows(config: RunConfig, store: SentenceStore, tokenizer: Tokenizer) -> MaskedRows:
    """Rows with hidden words, as the configuration says."""
    model, data = config.model_config(), config.data
    if tokenizer.mask is None:
        raise ConfigError("the vocabulary has no token for a hidden word: [MASK] or <mask>")
    specials = tokenizer.specials()
    ordinary = np.array([index for index in range(tokenizer.vocab_size) if index not in specials])
    return MaskedRows(
        store,
        Framing.of(tokenizer),
        Masking(tokenizer.mask, ordinary, data.mask, data.whole_words),
        length=data.max_len,
        budget=config.train.batch_tokens,
        pairs=model.head == "pretraining",
        pad=tokenizer.pad,
        segmented=model.segments > 1,
    )


def masked_rows_of(config: RunConfig, files: Sequence[str], tokenizer: Tokenizer, directory: Path) -> MaskedRows:
    """The rows of these files, by a run in `directory`."""
    documents = Documents.of(files, config.data.text, config.data.header)
    return masked_rows(config, prepare_sentences(documents, tokenizer, _cache(config, directory)), tokenizer)


def _cache(config: RunConfig, directory: Path) -> Path:
    return Path(config.data.cache) if config.data.cache else directory / "cache"


@torch.no_grad()
def word_accuracy(model: nn.Module, batches: Iterator[MaskedTexts], device: torch.device) -> float:
    """The share of hidden words that the model thinks likeliest."""
    model.eval()
    right = count = 0
    for batch in batches:
        here = batch.to(device)
        x = model(here)
        asked = x.gather(1, here.places[..., None].expand(-1, -1, x.shape[-1]))
        right += int((model.words(asked).argmax(-1) == here.labels).sum())  # type: ignore[operator]
        count += batch.count
    return right / max(1, count)
