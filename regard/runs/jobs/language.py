"""Language modelling: running text to a model that writes on."""

from collections.abc import Iterator
from pathlib import Path

from torch import nn

from regard.data import Documents, Loader, Position, TextStore, WindowLayout, prepare_text, strided_windows
from regard.nn.batch import Windows
from regard.runs.config import RunConfig
from regard.runs.corpora import documents_of, training_documents
from regard.runs.report import Report
from regard.runs.run import TOKENIZER, absolute, load_vocabularies
from regard.text import Tokenizer, Vocabularies, train_tokenizer
from regard.training.tasks import LanguageModelling, Task


def prepare_job(config: RunConfig, directory: Path, report: Report, new: bool) -> tuple[RunConfig, "LanguageJob"]:
    """The text tokenised; for a new run, with a tokenizer trained on it first."""
    documents = training_documents(config.data)
    if new:
        report.say("training the tokenizer")
        shared = train_tokenizer(documents.texts(), config.tokenizer)
        vocabularies = Vocabularies(shared, shared)
        config = absolute(config.with_vocabularies(vocabularies))
        vocabularies.save(directory / TOKENIZER)
    else:
        vocabularies = load_vocabularies(directory)
    return config, LanguageJob(config, documents, vocabularies.target, directory, report)


class LanguageJob:
    """Text to train on and, where there is any, to validate on."""

    def __init__(
        self, config: RunConfig, documents: Documents, tokenizer: Tokenizer, directory: Path, report: Report
    ) -> None:
        self.config, self.tokenizer = config, tokenizer
        self.cache = Path(config.data.cache) if config.data.cache else directory / "cache"
        self.task: Task = LanguageModelling(config.train.smoothing)
        report.say("reading and tokenising the text")
        self.train = self._store(documents)
        report.say(self.train.counts.describe())
        data = config.data
        self.layout = WindowLayout(self.train, data.max_len, budget=config.train.batch_tokens, isolate=data.isolate)
        valid = documents_of(data, "valid")
        self.valid = None if valid is None else self._store(valid)

    def stream(self, position: Position, *, pin: bool, pack: bool) -> Loader:
        """Windows are full, so there is nothing to pack."""
        return Loader(self.layout, seed=self.config.train.seed, position=position, pin=pin)

    def validation(self) -> Iterator[Windows] | None:
        """Windows side by side: every token predicted once, those at the start of one from little."""
        if self.valid is None:
            return None
        data, budget = self.config.data, self.config.train.batch_tokens
        return strided_windows(self.valid, data.max_len, stride=data.max_len, budget=budget, isolate=data.isolate)

    def scores(self, model: nn.Module) -> dict[str, float]:
        return {}

    def _store(self, documents: Documents) -> TextStore:
        return prepare_text(documents, self.tokenizer, self.cache)
