"""Masked language modelling: masked words of plain text, and next sentences, for an encoder to predict."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn

from regard.config import JsonObject
from regard.data import Documents
from regard.data.masked_language_model import MaskedLayout, Masking
from regard.data.sentence_store import SentenceStore, prepare_sentences
from regard.errors import ConfigError
from regard.nn.batch import MaskedTexts
from regard.tasks.config import RunConfig
from regard.tasks.corpora import (
    PreparedData,
    TextData,
    TextHeldOutBy,
    cache_directory,
    check_running_text,
    check_window,
    documents_of,
    random_texts,
    text_to_look_at,
    train_shared_tokenizer,
    training_documents,
)
from regard.tasks.encoder_tasks import EncoderTask, show_scores
from regard.tasks.probes import HeldOutData, Probe, are_trees, framed_text_probes, framed_tree_probes, held_out_files
from regard.tasks.run import Run, prepared_vocabularies
from regard.tasks.spec import MEASURING, OF_PAIRS, Measuring, Report, Say
from regard.text import Tokenizer, Vocabularies
from regard.text.encoder_inputs import InputTemplate
from regard.training.loop import validate
from regard.training.objectives import MaskedLanguageModelling, Objective


class MaskingRun(PreparedData):
    """Text to train on and, where there is any, to validate on."""

    def __init__(
        self, config: RunConfig, documents: Documents, tokenizer: Tokenizer, directory: Path, report: Report
    ) -> None:
        self.config, self.tokenizer, self.report = config, tokenizer, report
        self.cache = cache_directory(config, directory)
        self.objective: Objective = MaskedLanguageModelling(config.train.smoothing)
        report.say("reading and tokenising the text")
        self.train = self._store(documents)
        report.say(self.train.counts.describe())
        self.layout(config.train.batch_tokens)  # refuses what cannot be before anything else is read
        valid = documents_of(config.data, "valid")
        self.valid = None if valid is None else masked_rows(config, self._store(valid), tokenizer)

    def bounds(self) -> tuple[int, int]:
        length = self.config.data.max_len
        return length, max(length, self.train.counts.tokens)

    def trials(self, budget: int, *, pack: bool) -> list[MaskedTexts]:
        layout = self.layout(budget)
        order = layout.order(self.config.train.seed, 0)
        return [layout.batch(max(order, key=len)), layout.batch(order[0])]

    def validation(self) -> Iterator[MaskedTexts] | None:
        """The same rows with the same words masked, every time."""
        return None if self.valid is None else self.valid.evaluation()

    def scores(self, model: nn.Module) -> dict[str, float]:
        """How many masked words are predicted."""
        if self.valid is None:
            return {}
        device = next(model.parameters()).device
        return {"word_accuracy": word_accuracy(model, self.valid.evaluation(), device)}

    def layout(self, budget: int, *, pack: bool = False) -> MaskedLayout:
        config = replace(self.config, train=replace(self.config.train, batch_tokens=budget))
        return masked_rows(config, self.train, self.tokenizer)

    def _store(self, documents: Documents) -> SentenceStore:
        return prepare_sentences(
            documents,
            self.tokenizer,
            self.cache,
            lambda count: self.report.progress("tokenising", count),
            self.report.say,
        )


def masked_rows(config: RunConfig, store: SentenceStore, tokenizer: Tokenizer) -> MaskedLayout:
    """Rows with masked words, as the configuration says."""
    model, data = config.model_config(), config.data
    if tokenizer.mask is None:
        raise ConfigError("the vocabulary has no token for a masked word: [MASK] or <mask>")
    specials = tokenizer.specials()
    ordinary = np.array([index for index in range(tokenizer.vocab_size) if index not in specials])
    return MaskedLayout(
        store,
        InputTemplate.of(tokenizer),
        Masking(tokenizer.mask, ordinary, data.mask, data.whole_words),
        length=data.max_len,
        budget=config.train.batch_tokens,
        pairs=model.head == "pretraining",
        pad=tokenizer.pad,
        segmented=model.segments > 1,
    )


def masked_rows_of(config: RunConfig, files: Sequence[str], tokenizer: Tokenizer, directory: Path) -> MaskedLayout:
    """The rows of these files, by a run in `directory`."""
    documents = Documents.of(files, config.data.text, config.data.header)
    return masked_rows(config, prepare_sentences(documents, tokenizer, cache_directory(config, directory)), tokenizer)


@torch.no_grad()
def word_accuracy(model: Any, batches: Iterator[MaskedTexts], device: torch.device) -> float:
    """The share of masked words that the model predicts."""
    model.eval()
    right = count = 0
    for batch in batches:
        here = batch.to(device)
        x = model(here)
        asked = x.gather(1, here.places[..., None].expand(-1, -1, x.shape[-1]))
        right += int((model.words(asked).argmax(-1) == here.labels).sum())
        count += batch.count
    return right / max(1, count)


class HeldOutMaskedTexts(HeldOutData):
    """Held-out texts with masked words: how many are predicted."""

    def score(self, run: Run) -> float:
        return 100 * word_accuracy(run.model, iter(self.batches), run.device)


@dataclass(frozen=True, kw_only=True, slots=True)
class MaskingData(TextData):
    """Running text in any number of files and folders.

    A row of the model has up to `max_len` tokens, of which the share `mask` is masked; `whole_words` masks all pieces
    of a word or none. `held_out_by` says what of plain files is held out: the `end` of each, or each `file` as a whole.
    """

    held_out_by: TextHeldOutBy = "end"
    mask: float = 0.15
    whole_words: bool = False

    def __post_init__(self) -> None:
        TextData.__post_init__(self)
        if not 0.0 < self.mask < 1.0:
            raise ConfigError(f"data.mask={self.mask} must be above 0 and below 1")


class MaskingTask(EncoderTask):
    """Masked words, and whether one text follows another: what an encoder is pre-trained on."""

    name = "masking"
    about = "masked words of running text: masked language modelling"
    data = MaskingData
    row_columns: ClassVar = ("text",)
    unused: ClassVar = (*OF_PAIRS, "images", "decode", "train.compile_loss", "train.r_drop", "train.pack")

    def check(self, config: RunConfig) -> None:
        config.check_head("pretraining", "words")
        if config.data.whole_words and config.tokenizer.kind == "character":
            raise ConfigError("tokenizer.kind='character' has no words to mask: set data.whole_words=false")
        check_window(config)

    def check_files(self, config: RunConfig, say: Say) -> None:
        check_running_text(config, say)

    def prepare(self, config: RunConfig, directory: Path, report: Report, *, new: bool) -> tuple[RunConfig, MaskingRun]:
        """The text as sentences of tokens; for a new run, with a tokenizer trained on it first."""
        documents = training_documents(config.data)

        def trained() -> Vocabularies:
            return train_shared_tokenizer(documents.texts(), config, report, masks=True)

        config, vocabularies = prepared_vocabularies(config, directory, trained, new=new)
        return config, MaskingRun(config, documents, vocabularies.target, directory, report)

    def evaluate(self, run: Run, data: Sequence[str] | None = None, how: Measuring = MEASURING) -> JsonObject:
        """The same masked words for every run with one tokenizer."""
        files = data or run.config.data.test or run.config.data.valid
        if not files:
            raise ConfigError("nothing to evaluate on: the run names no test or validation set; give one")
        rows = masked_rows_of(run.config, files, run.encoder.tokenizer, run.directory)
        values = validate(run.model, MaskedLanguageModelling(), rows.evaluation(), device=run.device)
        accuracy = word_accuracy(run.model, rows.evaluation(), run.device)
        hidden = sum(batch.count for batch in rows.evaluation())
        found = {"hidden_words": hidden, "word_loss": values["words"], "word_accuracy": accuracy}
        if "next" in values:
            found |= {"next_loss": values["next"], "next_accuracy": values["next_accuracy"]}
        return found

    def show(self, scores: Mapping[str, Any]) -> str:
        return show_scores(scores)

    def probes(self, run: Run, data: Documents | Sequence[str | Path] | None, limit: int) -> list[Probe]:
        if isinstance(data, Sequence) and are_trees(data):
            return framed_tree_probes(run, data, limit)
        return framed_text_probes(run, text_to_look_at(run, data), limit)

    def held_out_data(self, run: Run, files: Sequence[str] | None, limit: int) -> HeldOutData:
        rows = masked_rows_of(run.config, held_out_files(run, files), run.encoder.tokenizer, run.directory)
        batches = [rows.batch(one) for one in rows.order(0, 0)[: math.ceil(limit / rows.rows)]]
        return HeldOutMaskedTexts(run, MaskedLanguageModelling(), batches, sum(len(batch.labels) for batch in batches))

    def random_batches(self, config: RunConfig, count: int) -> tuple[RunConfig, Objective, list[MaskedTexts]]:
        generator = torch.Generator().manual_seed(0)
        pretraining = config.model_config().head == "pretraining"

        def batch() -> MaskedTexts:
            texts = random_texts(config, generator)
            rows, length = texts.ids.shape
            hidden = max(1, round(config.data.mask * length))
            places = torch.stack([torch.randperm(length, generator=generator)[:hidden] for _ in range(rows)])
            follows = torch.zeros(rows, dtype=torch.long) if pretraining else None
            return MaskedTexts(texts, places, texts.ids.gather(1, places), follows, rows * hidden, float(hidden))

        return config, MaskedLanguageModelling(config.train.smoothing), [batch() for _ in range(count)]


TASK = MaskingTask()
