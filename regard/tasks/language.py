"""Language modelling: running text to a model that writes on."""

from collections.abc import Iterator
from pathlib import Path

from torch import nn

from regard.data import (
    Documents,
    Loader,
    Position,
    StreamLayout,
    TextStore,
    WindowLayout,
    prepare_text,
    streamed_windows,
    strided_windows,
)
from regard.nn.batch import Stretch, Windows
from regard.runs.files import TOKENIZER
from regard.tasks.config import RunConfig
from regard.tasks.corpora import documents_of, training_documents
from regard.tasks.report import Report
from regard.tasks.run import absolute, load_vocabularies
from regard.tasks.starting import copy_tokenizer
from regard.text import Tokenizer, Vocabularies, train_tokenizer
from regard.training.streams import StreamedLanguageModelling
from regard.training.objectives import Objective, language_objective

VALIDATION_STREAMS = 8
"""Where states are carried, into how many streams validation text is cut while training, to take less time."""


def prepare_job(config: RunConfig, directory: Path, report: Report, new: bool) -> tuple[RunConfig, "LanguageJob"]:
    """The text tokenised; for a new run, with a tokenizer trained on it first, or the one of the run it starts from."""
    documents = training_documents(config.data)
    if new and config.train.start_from:
        copy_tokenizer(Path(config.train.start_from), directory / TOKENIZER)
        config = absolute(config)
        vocabularies = load_vocabularies(directory, config.tokenizer)
    elif new:
        report.say("training the tokenizer")
        shared = train_tokenizer(documents.texts(), config.tokenizer)
        vocabularies = Vocabularies(shared, shared)
        config = absolute(config.with_vocabularies(vocabularies))
        vocabularies.save(directory / TOKENIZER)
    else:
        vocabularies = load_vocabularies(directory, config.tokenizer)
    return config, LanguageJob(config, documents, vocabularies.target, directory, report)


class LanguageJob:
    """Text to train on and, where there is any, to validate on."""

    def __init__(
        self, config: RunConfig, documents: Documents, tokenizer: Tokenizer, directory: Path, report: Report
    ) -> None:
        self.config, self.tokenizer = config, tokenizer
        self.cache = Path(config.data.cache) if config.data.cache else directory / "cache"
        carry = config.data.carry
        smoothing, kind = config.train.smoothing, config.architecture()[1]
        self.objective: Objective = StreamedLanguageModelling(smoothing) if carry else language_objective(kind, smoothing)
        report.say("reading and tokenising the text")
        self.train = self._store(documents)
        report.say(self.train.counts.describe())
        self._layout(config.train.batch_tokens)  # refuses a text that is too short before anything else is read
        valid = documents_of(config.data, "valid")
        self.valid = None if valid is None else self._store(valid)

    def stream(self, position: Position, *, pin: bool, pack: bool) -> Loader:
        """Windows are full, so there is nothing to pack."""
        options = self.config.train
        return Loader(self._layout(options.batch_tokens), seed=options.seed, position=position, pin=pin)

    def bounds(self) -> tuple[int, int]:
        length = self.config.data.max_len
        return length, max(length, len(self.train.ids) - 1)

    def trials(self, budget: int, *, pack: bool) -> list[Windows | Stretch]:
        layout = self._layout(budget)
        return [layout.batch(layout.order(self.config.train.seed, 0)[0])]

    def validation(self) -> Iterator[Windows] | Iterator[Stretch] | None:
        """Windows side by side: every token predicted once, those at the start of one from little.

        Where states are carried, only the few at the start of a stream are.
        """
        if self.valid is None:
            return None
        data, budget = self.config.data, self.config.train.batch_tokens
        if data.carry:
            return streamed_windows(self.valid, data.max_len, streams=VALIDATION_STREAMS)
        return strided_windows(self.valid, data.max_len, stride=data.max_len, budget=budget, isolate=data.isolate)

    def scores(self, model: nn.Module) -> dict[str, float]:
        return {}

    def _layout(self, budget: int) -> StreamLayout | WindowLayout:
        data = self.config.data
        if data.carry:
            return StreamLayout(self.train, data.max_len, budget=budget)
        return WindowLayout(self.train, data.max_len, budget=budget, isolate=data.isolate)

    def _store(self, documents: Documents) -> TextStore:
        return prepare_text(documents, self.tokenizer, self.cache)
