"""Held-out data to judge heads by: as batches for the loss, and as the score that counts for each kind of run."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.data import Corpus, Documents, PairStore, TextStore, evaluation_batches, strided_windows
from regard.data.images.store import class_numbers
from regard.errors import ConfigError, DataError
from regard.metrics.text import corpus_bleu
from regard.nn.batch import Texts
from regard.tasks.corpora import corpus_of, files_corpus
from regard.tasks.evaluation import encode_pair
from regard.tasks.image_classifier import ImageClassifier
from regard.tasks.labelled import TASKS, items_of, labelled_rows
from regard.tasks.masking import masked_rows_of, word_accuracy
from regard.tasks.pictures import evaluation_pictures, open_evaluation
from regard.tasks.run import Run
from regard.training.images import ImageClassification
from regard.training.loop import validate
from regard.training.objectives import Loss, Objective, Translation, language_objective
from regard.training.text_tasks import MaskedWords

BUDGET = 2048
"""Tokens of one batch, if one sequence has no more."""


class Evidence:
    """What heads are judged by. `name` is the score's; `sign` is -1 where less of it is better."""

    name, sign = "accuracy", 1

    def __init__(self, run: Run, objective: Objective, batches: Sequence[Any], count: int) -> None:
        if not count:
            raise DataError("nothing to judge heads by: nothing of it can be read by the model")
        device = next(run.model.parameters()).device
        self.objective, self.count = objective, count
        self.batches = [batch.to(device) for batch in batches]

    def values(self, model: nn.Module) -> dict[str, float]:
        """The loss and its parts, means."""
        return validate(model, self.objective, iter(self.batches), device=next(model.parameters()).device)

    def nll(self, model: nn.Module) -> float:
        """The mean negative log-likelihood of what is to be predicted."""
        return self.values(model)["nll"]

    def score(self, run: Run) -> float:
        """Per cent of the predictions that are right."""
        return 100 * self.values(run.model)["accuracy"]


class Pairing(Evidence):
    """Pairs of sentences: BLEU of greedy translations."""

    name = "bleu"

    def __init__(self, run: Run, corpus: Corpus | None = None, limit: int = 200) -> None:
        corpus = corpus or corpus_of(run.config.data, "valid") or corpus_of(run.config.data, "test")
        if corpus is None:
            raise ConfigError("nothing to judge heads by: the run names no validation or test set; give one")
        longest = run.translator.max_len
        full = (pair for pair in corpus if pair[0].strip() and pair[1].strip())
        fits = (pair for pair in full if max(map(len, encode_pair(run, *pair))) <= longest)
        self.pairs = list(islice(fits, limit))
        if not self.pairs:
            raise DataError("nothing to judge heads by: no pair has two sides that the model can read")
        store = PairStore.of([encode_pair(run, *pair) for pair in self.pairs], run.vocabularies.source.pad)
        batches = evaluation_batches(store, max(BUDGET, 2 * longest))
        super().__init__(run, Translation(), list(batches), len(self.pairs))

    def score(self, run: Run) -> float:
        found = run.translate([source for source, _ in self.pairs], beam=1)
        return corpus_bleu(found, [target for _, target in self.pairs])[0]


class RunningText(Evidence):
    """Windows of text, side by side: perplexity."""

    name, sign = "perplexity", -1

    def score(self, run: Run) -> float:
        return math.exp(min(self.nll(run.model), 100.0))


class HiddenWords(Evidence):
    """Texts with words hidden: how many are found."""

    def score(self, run: Run) -> float:
        return 100 * word_accuracy(run.model, iter(self.batches), next(run.model.parameters()).device)


class SameVectors(Evidence):
    """Texts alone: how near their vectors stay to those of the whole model, as a cosine in hundredths."""

    name = "cosine"

    def score(self, run: Run) -> float:
        return 100 * (1 - self.nll(run.model))


def evidence(run: Run, files: Sequence[str] | None = None, limit: int = 200) -> Evidence:
    """The first `limit` pairs, windows, texts or pictures of `files`, by default of the run's own held-out ones."""
    task = run.config.task
    if task == "translation":
        return Pairing(run, files_corpus(tuple(files), run.config.data) if files else None, limit)
    if task == "images":
        return _pictures(run, files, limit)
    makers: dict[str, Callable[[Run, Sequence[str], int], Evidence]] = {
        "language": _windows,
        "masking": _hidden_words,
        "embedding": _vectors,
        **dict.fromkeys(TASKS, _labelled),
    }
    if task not in makers:
        raise ConfigError(f"heads of a run for {task} cannot be judged")
    files = files or run.config.data.valid or run.config.data.test
    if not files:
        raise ConfigError("nothing to judge heads by: the run names no validation or test set; give --data")
    return makers[task](run, files, limit)


def _windows(run: Run, files: Sequence[str], limit: int) -> Evidence:
    data = run.config.data
    if data.carry:
        raise ConfigError("heads of a model that carries its state cannot be judged")
    store = TextStore.of(iter(Documents.of(files, data.text)), run.vocabularies.target)
    length = min(data.max_len, len(store.ids) - 1)
    rows = max(1, min(limit, BUDGET // length))
    windows = strided_windows(store, length, stride=length, budget=rows * length, isolate=data.isolate)
    batches = list(islice(windows, max(1, limit // rows)))
    return RunningText(run, language_objective(type(run.model)), batches, sum(len(batch.labels) for batch in batches))


def _hidden_words(run: Run, files: Sequence[str], limit: int) -> Evidence:
    rows = masked_rows_of(run.config, files, run.encoder.tokenizer, run.directory)
    batches = [rows.batch(one) for one in rows.order(0, 0)[: math.ceil(limit / rows.rows)]]
    return HiddenWords(run, MaskedWords(), batches, sum(len(batch.labels) for batch in batches))


def _labelled(run: Run, files: Sequence[str], limit: int) -> Evidence:
    items = items_of(run.config, [Path(name) for name in files])[:limit]
    rows = labelled_rows(run.config, items, run.encoder.tokenizer, overlong="truncate")
    budget = max(BUDGET, run.config.data.max_len)
    return Evidence(run, TASKS[run.config.task](), list(rows.evaluation(budget)), len(items))


def _pictures(run: Run, files: Sequence[str] | None, limit: int) -> Evidence:
    pictures = open_evaluation(files) if files else evaluation_pictures(run.config)
    labels = torch.from_numpy(class_numbers(pictures, run.config.model_config().labels))
    # Pictures often come sorted by class: some from everywhere.
    chosen = torch.linspace(0, len(labels) - 1, min(limit, len(labels))).round().long()
    batches, start = [], 0
    for images in ImageClassifier(run.model, run.config).batches(pictures.select(chosen.tolist())):
        batches.append(replace(images, labels=labels[chosen[start : start + images.count]]))
        start += images.count
    return Evidence(run, ImageClassification(), batches, start)


@torch.no_grad()
def _vectors(run: Run, files: Sequence[str], limit: int) -> Evidence:
    documents = Documents.of(files, run.config.data.text)
    lines = (line for text in documents.texts() for line in text.splitlines() if line.strip())
    encoder = run.encoder
    rows = [row for line in islice(lines, limit) if (row := encoder.framer.texts(line, overlong="truncate"))]
    run.model.eval()
    batches = [Wanted(texts, run.model.text_vectors(texts)) for _, texts in encoder.batches(rows)]  # type: ignore[operator]
    return SameVectors(run, StayingNear(), batches, len(rows))


@dataclass(frozen=True, slots=True)
class Wanted:
    """Texts, and the vectors that they should have."""

    inputs: Texts
    vectors: Float[Tensor, "B D"]

    @property
    def count(self) -> int:
        return self.vectors.shape[0]

    def to(self, device: torch.device | str) -> "Wanted":
        return Wanted(self.inputs.to(device), self.vectors.to(device))


@dataclass(frozen=True, slots=True)
class StayingNear:
    """Give each text the vector it had: the loss is one less the cosine."""

    def loss(self, model: nn.Module, batch: Wanted) -> Loss:
        near = F.cosine_similarity(model.text_vectors(batch.inputs), batch.vectors)  # type: ignore[operator]
        total = (1 - near).sum()
        return Loss(total, batch.count, {"nll": total.detach()})
