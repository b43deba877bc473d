"""Model initialization: fresh weights, those of another run, or word vectors from a file; and training such vectors."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from torch import nn

from regard.data import Documents, TextStore
from regard.errors import ConfigError, DataError
from regard.nn.embeddings import Embedding, OutputProjection
from regard.runs.checkpoint import checkpoints
from regard.runs.files import CHECKPOINTS, CONFIG, TOKENIZER, whole_file
from regard.tasks.config import RunConfig
from regard.tasks.fine_tuning import load_base_weights
from regard.tasks.run import build_model, load_config, load_vocabularies
from regard.tasks.spec import Report
from regard.text import Tokenizer, TokenizerConfig, Vocabularies, train_tokenizer
from regard.text.tokenizer import JOINER
from regard.text.word_vectors import WordVectors, read_vectors, write_vectors
from regard.training.skipgram import SkipGramConfig, train_skip_gram


@runtime_checkable
class StartsModel(Protocol):
    """Prepared data that a model with fresh weights can start from."""

    def start(self, model: nn.Module) -> str:
        """Give the model what the data tells; returns what to say of it."""
        ...


def initialize_model(config: RunConfig, directory: Path, report: Report, prepared: object = None) -> nn.Module:
    """The model with fresh weights, or with what another run, a file of word vectors or its data gives it to start
    from."""
    model, options = build_model(config), config.train
    if not checkpoints(directory / CHECKPOINTS):
        if options.start_from:
            base = Path(options.start_from)
            pieces = (_pieces_of(base), _pieces_of(directory)) if config.tokenizer.retrain else None
            report.say(load_base_weights(model, config.model, base, pieces))
        if options.vectors is not None:
            vocabularies = load_vocabularies(directory, config.tokenizer)
            for started in initialize_from_vectors(model, vocabularies, options.vectors):
                report.say(started.describe())
        if isinstance(prepared, StartsModel) and (said := prepared.start(model)):
            report.say(said)
    if options.freeze_vectors:
        freeze_embeddings(model)
    return model


def _pieces_of(directory: Path) -> dict[str, list[str]]:
    """What each entry of a run's vocabularies is."""
    found = load_vocabularies(directory, load_config(directory).tokenizer) if (directory / CONFIG).exists() else None
    found = found or Vocabularies.load(directory / TOKENIZER)
    sides = {"source": found.source, "target": found.target}
    return {name: [side.inner.id_to_token(row) or "" for row in range(side.vocab_size)] for name, side in sides.items()}


WORD_KINDS = ("word", "spaced")


def train_vectors(
    documents: Documents,
    config: SkipGramConfig | None = None,
    tokenizer: TokenizerConfig | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> WordVectors:
    """Vectors of the words of a text, the most frequent first; unknown words and line breaks have none."""
    settings = tokenizer or TokenizerConfig(kind="word", vocab_size=100_000, lowercase=True, min_count=5)
    if settings.kind not in WORD_KINDS:
        raise ConfigError(f"kind='{settings.kind}' does not make words; use {' or '.join(WORD_KINDS)}")
    words = train_tokenizer(documents.texts(), settings)
    ids = TextStore.of(iter(documents), words).ids.astype(np.int64)
    specials = {words.pad, words.bos, words.eos, words.unk}
    names = words.pieces(range(words.vocab_size))
    wanted = [i for i, name in enumerate(names) if i not in specials and not name.isspace() and name != "↵"]
    if not wanted:
        raise DataError(f"no word occurs {settings.min_count} times; lower the least count")
    matrix = train_skip_gram(ids[np.isin(ids, wanted)], words.vocab_size, config or SkipGramConfig(), progress)
    plain: dict[str, int] = {}
    for i in wanted:  # a word with a mark of joining and one without are one word; the more frequent one stays
        plain.setdefault(names[i].replace(JOINER, "") or names[i], i)
    plain = {name: i for name, i in plain.items() if not any(character.isspace() for character in name)}
    return WordVectors(tuple(plain), matrix[list(plain.values())])


def save_vectors(vectors: WordVectors, path: str | Path) -> None:
    """Write a file, whole or not at all: word2vec's binary form where its name ends in `.bin`, else the text one."""
    path = Path(path)
    with whole_file(path) as aside:
        write_vectors(vectors, aside, binary=path.suffix == ".bin")


@dataclass(frozen=True, slots=True)
class VectorCoverage:
    """How many entries of a vocabulary began as a file's vectors, and which words had none."""

    found: int
    missing: tuple[str, ...]

    def describe(self) -> str:
        total = self.found + len(self.missing)
        shown = ", ".join(self.missing[:8]) + (", ..." if len(self.missing) > 8 else "")
        rest = f"; missing: {shown}" if self.missing else ""
        return f"{self.found:,} of {total:,} words start from the file's vectors{rest}"


def initialize_from_vectors(model: nn.Module, vocabularies: Vocabularies, path: str | Path) -> list[VectorCoverage]:
    """Put a file's vectors in the model's tables of words, source and target; words without one keep their start.

    The vectors are scaled as a whole to the size that a fresh table has.
    """
    tables = _tables(model)
    if not tables:
        raise ConfigError("the model has no table of words to start from vectors")
    sides = {name: vocabularies.source if name.startswith("source") else vocabularies.target for name in tables}
    forms = {id(side): _forms(side) for side in sides.values()}
    wanted = {form for own in forms.values() for found in own for form in found}
    vectors = read_vectors(path, keep=wanted.__contains__)
    reports = []
    for name, table in tables.items():
        if vectors.width != table.embedding_dim:
            raise ConfigError(
                f"{path} has vectors of {vectors.width} numbers, and the model's words {table.embedding_dim}; "
                f"set model.width={vectors.width}"
            )
        reports.append(_filled(table, vectors, forms[id(sides[name])]))
    return reports


def freeze_embeddings(model: nn.Module) -> None:
    """Keep the tables of words as they are in training."""
    tables = _tables(model)
    tied = {id(part.weight) for part in model.modules() if isinstance(part, OutputProjection)}
    if any(id(table.weight) in tied for table in tables.values()):
        raise ConfigError("train.freeze_vectors=true would freeze the head too, which shares its matrix; untie them")
    for table in tables.values():
        table.weight.requires_grad_(False)


def _tables(model: nn.Module) -> dict[str, nn.Embedding]:
    return {name: part.tokens for name, part in model.named_modules() if isinstance(part, Embedding)}


def _forms(tokenizer: Tokenizer) -> list[tuple[str, ...]]:
    """For each entry, under which names a file may have it: as it is, without marks of joining, in lower case."""
    specials = {tokenizer.pad, tokenizer.bos, tokenizer.eos, tokenizer.unk}
    found: list[tuple[str, ...]] = []
    for i, name in enumerate(tokenizer.pieces(range(tokenizer.vocab_size))):
        plain = name.replace(JOINER, "") or name
        found.append(() if i in specials else tuple(dict.fromkeys((name, plain, plain.lower()))))
    return found


@torch.no_grad()
def _filled(table: nn.Embedding, vectors: WordVectors, forms: Iterable[tuple[str, ...]]) -> VectorCoverage:
    factor = table.embedding_dim**-0.5 / max(float(vectors.matrix.std()), 1e-12)
    found, missing = 0, []
    for row, names in enumerate(forms):
        if not names:
            continue
        name = next((name for name in names if name in vectors), None)
        if name is None:
            missing.append(names[0])
            continue
        table.weight[row] = torch.from_numpy(vectors[name] * factor).to(table.weight)
        found += 1
    return VectorCoverage(found, tuple(missing))
