"""Masking: words hidden in plain text, and next sentences, for an encoder to find: masked language modelling."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn

from regard.data import Documents, Loader, Position
from regard.data.formats import Header
from regard.data.masking import Masking
from regard.data.pairs_of_text import MaskedRows
from regard.data.sentences import SentenceStore, prepare_sentences
from regard.errors import ConfigError
from regard.nn.batch import MaskedTexts
from regard.tasks.config import RunConfig
from regard.tasks.corpora import check_running_text, check_window, documents_of, text_to_look_at, training_documents
from regard.tasks.evidence import Evidence, held_out_files
from regard.tasks.examples import random_texts
from regard.tasks.labelled import shown_labels
from regard.tasks.questions import EncoderTask, Looked, of_framed_texts
from regard.tasks.run import Run, prepared_vocabularies
from regard.tasks.spec import (
    MEASURING,
    OF_PAIRS,
    Files,
    Measuring,
    Report,
    Say,
    check_columns,
    check_length,
)
from regard.text import Tokenizer, Vocabularies, train_tokenizer
from regard.text.framing import Framing
from regard.training.loop import validate
from regard.training.objectives import MaskedLanguageModelling, Objective

KINDS = ("wordpiece", "bpe", "word", "unigram")


class MaskingRun:
    """Text to train on and, where there is any, to validate on."""

    def __init__(
        self, config: RunConfig, documents: Documents, tokenizer: Tokenizer, directory: Path, report: Report
    ) -> None:
        self.config, self.tokenizer, self.report = config, tokenizer, report
        self.cache = _cache(config, directory)
        self.objective: Objective = MaskedLanguageModelling(config.train.smoothing)
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
def word_accuracy(model: Any, batches: Iterator[MaskedTexts], device: torch.device) -> float:
    """The share of hidden words that the model thinks likeliest."""
    model.eval()
    right = count = 0
    for batch in batches:
        here = batch.to(device)
        x = model(here)
        asked = x.gather(1, here.places[..., None].expand(-1, -1, x.shape[-1]))
        right += int((model.words(asked).argmax(-1) == here.labels).sum())
        count += batch.count
    return right / max(1, count)


class HiddenWords(Evidence):
    """Texts with words hidden: how many are found."""

    def score(self, run: Run) -> float:
        return 100 * word_accuracy(run.model, iter(self.batches), next(run.model.parameters()).device)


@dataclass(frozen=True, kw_only=True, slots=True)
class MaskingData(Files):
    """Running text in any number of files and folders.

    `text` is the key of JSONL or the column of a table, by name or, of columns, by number from 1; `header` says whether
    the first row of a TSV or CSV names its columns. A row of the model has up to `max_len` tokens, of which the share
    `mask` is hidden; `whole_words` hides all pieces of a word or none.
    """

    max_len: int = 256
    text: str | int = "text"
    header: Header = "auto"
    mask: float = 0.15
    whole_words: bool = False

    def __post_init__(self) -> None:
        check_length(self.max_len)
        check_columns(text=self.text)
        if not 0.0 < self.mask < 1.0:
            raise ConfigError(f"data.mask={self.mask} must be above 0 and below 1")


class MaskingTask(EncoderTask):
    """Hidden words, and whether one text follows another: what an encoder is pre-trained on."""

    name = "masking"
    about = "hidden words of running text: masked language modelling"
    data = MaskingData
    unused: ClassVar = (*OF_PAIRS, "images", "decode", "train.compile_loss", "train.r_drop", "train.pack")

    def check(self, config: RunConfig) -> None:
        config.check_head("pretraining", "words")
        check_window(config)

    def check_files(self, config: RunConfig, say: Say) -> None:
        check_running_text(config, say)

    def prepare(self, config: RunConfig, directory: Path, report: Report, *, new: bool) -> tuple[RunConfig, MaskingRun]:
        """The text as sentences of tokens; for a new run, with a tokenizer trained on it first."""
        documents = training_documents(config.data)

        def trained() -> Vocabularies:
            if config.tokenizer.kind not in KINDS:
                kinds = ", ".join(KINDS)
                raise ConfigError(f"tokenizer.kind='{config.tokenizer.kind}' has no words to hide; use {kinds}")
            report.say("training the tokenizer")
            shared = train_tokenizer(documents.texts(), config.tokenizer, masks=True)
            return Vocabularies(shared, shared)

        config, vocabularies = prepared_vocabularies(config, directory, trained, new=new)
        return config, MaskingRun(config, documents, vocabularies.target, directory, report)

    def evaluate(self, run: Run, data: Any = None, how: Measuring = MEASURING) -> dict[str, Any]:
        """The same hidden words for every run with one tokenizer."""
        files = data or run.config.data.test or run.config.data.valid
        if not files:
            raise ConfigError("nothing to evaluate on: the run names no test or validation set; give one")
        rows = masked_rows_of(run.config, files, run.encoder.tokenizer, run.directory)
        device = next(run.model.parameters()).device
        values = validate(run.model, MaskedLanguageModelling(), rows.evaluation(), device=device)
        accuracy = word_accuracy(run.model, rows.evaluation(), device)
        hidden = sum(batch.count for batch in rows.evaluation())
        found = {"hidden_words": hidden, "word_loss": values["words"], "word_accuracy": accuracy}
        if "next" in values:
            found |= {"next_loss": values["next"], "next_accuracy": values["next_accuracy"]}
        return found

    def show(self, scores: Mapping[str, Any]) -> str:
        return shown_labels(scores)

    def questions(self, run: Run, data: Any, limit: int) -> list[Looked]:
        return of_framed_texts(run, text_to_look_at(run, data), limit)

    def evidence(self, run: Run, files: Sequence[str] | None, limit: int) -> Evidence:
        rows = masked_rows_of(run.config, held_out_files(run, files), run.encoder.tokenizer, run.directory)
        batches = [rows.batch(one) for one in rows.order(0, 0)[: math.ceil(limit / rows.rows)]]
        return HiddenWords(run, MaskedLanguageModelling(), batches, sum(len(batch.labels) for batch in batches))

    def random_batches(self, config: RunConfig, count: int) -> tuple[RunConfig, Objective, list[MaskedTexts]]:
        draw = torch.Generator().manual_seed(0)
        pretraining = config.model_config().head == "pretraining"

        def batch() -> MaskedTexts:
            texts = random_texts(config, draw)
            rows, length = texts.ids.shape
            hidden = max(1, round(config.data.mask * length))
            places = torch.stack([torch.randperm(length, generator=draw)[:hidden] for _ in range(rows)])
            follows = torch.zeros(rows, dtype=torch.long) if pretraining else None
            return MaskedTexts(texts, places, texts.ids.gather(1, places), follows, rows * hidden, float(hidden))

        return config, MaskedLanguageModelling(config.train.smoothing), [batch() for _ in range(count)]


TASK = MaskingTask()
