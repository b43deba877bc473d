"""The corpora a run's configuration names."""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from regard.data.documents import Documents
from regard.data.formats import format_of, notes_on
from regard.data.labelled import Keys, examples, questions, tagged
from regard.data.readers import Corpus, PairFiles, content_digest
from regard.data.world import Grammar, Sentence, sentences
from regard.errors import ConfigError, DataError
from regard.runs.config import DataConfig, RunConfig
from regard.runs.pictures import check_pictures

Part = Literal["train", "valid", "test"]

READERS: dict[str, Callable[[Path, Keys], Iterator[Any]]] = {
    "classification": examples,
    "tagging": tagged,
    "answering": questions,
}
"""What reads the labelled texts of a task."""

WORLD_HELD_OUT = 2000
"""How many held-out sentences of the bundled corpus serve for validation, and how many for test."""


@dataclass(frozen=True)
class WorldCorpus:
    """Pairs of the bundled corpus, in either direction."""

    count: int
    seed: int
    part: Part
    source: str = "en"
    grammar: Grammar = "whole"

    @property
    def sentences(self) -> list[Sentence]:
        return list(self.drawn())

    def __iter__(self) -> Iterator[tuple[str, str]]:
        for sentence in self.drawn():
            english, french = sentence.english, sentence.french
            yield (english, french) if self.source == "en" else (french, english)

    def drawn(self) -> Iterator[Sentence]:
        """The sentences, drawn when they are first asked for, and kept."""
        kept, rest = self._kept_and_rest
        for index in range(self.count):
            if index == len(kept):
                kept.append(next(rest))
            yield kept[index]

    @cached_property
    def _kept_and_rest(self) -> tuple[list[Sentence], Iterator[Sentence]]:
        return [], sentences(self.count, seed=self.seed, split=self.part, grammar=self.grammar)

    def digest(self) -> str:
        """From the grammar's own text, so that a grammar that changed is a corpus that changed."""
        digest = hashlib.sha256(repr((self.count, self.seed, self.part, self.source, self.grammar)).encode())
        for entry in sorted(resources.files("regard.data.world").iterdir(), key=lambda entry: entry.name):
            if entry.name.endswith(".py"):
                digest.update(entry.read_bytes())
        return digest.hexdigest()


def corpus_of(config: DataConfig, part: Part) -> Corpus | None:
    """The pairs to train on, to validate on or to test on; None where the configuration names none."""
    files = getattr(config, part)
    if files:
        return files_corpus(files, config)
    if not config.world:
        return None
    if part == "train":
        return WorldCorpus(config.world, config.world_seed, "train", str(config.source), config.world_grammar)
    return world_held_out(part, str(config.source), grammar=config.world_grammar)


def documents_of(config: DataConfig, part: Part) -> Documents | None:
    """The running text to train on, to validate on or to test on; None where the configuration names none."""
    names = getattr(config, part)
    return Documents.of(names, config.text, config.header) if names else None


def check_files(config: RunConfig, say: Callable[[str], None]) -> None:
    """Refuse, before any work is done, files that cannot be read, hold nothing or lack what is asked for; `say` hears
    what of them is taken for a header, and what is not used."""
    if config.task == "images":
        return check_pictures(config)
    running = config.task in ("language", "masking")
    for part in ("train", "valid", "test"):
        for file in getattr(config.data, part):
            if not Path(file).exists():
                raise DataError(f"no such file{' or folder' if running else ''}: {file}")
        if running:
            if documents := documents_of(config.data, part):
                check_documents(documents, say)
        elif config.task == "translation":
            if isinstance(pairs := corpus_of(config.data, part), PairFiles):
                check_pairs(pairs, say)
        elif config.task in READERS:
            check_labelled(config, getattr(config.data, part), say)
    return None


def check_pairs(pairs: PairFiles, say: Callable[[str], None]) -> None:
    """Read the first pair."""
    next(iter(pairs))
    _say_each(pairs.notes(), say)


def check_documents(documents: Documents, say: Callable[[str], None]) -> None:
    """Read the beginning of each file."""
    for path in documents.paths:
        next(iter(replace(documents, paths=(path,))), None)
    _say_each(documents.notes(), say)


def check_labelled(config: RunConfig, files: Iterable[str | Path], say: Callable[[str], None]) -> None:
    """Read the first item of each file."""
    keys = keys_of(config)
    wanted = (keys.asked if config.task == "answering" else keys).labelled
    for path in map(Path, files):
        if next(READERS[config.task](path, keys), None) is None:
            raise DataError(f"{path} is empty")
        if config.task != "tagging" or format_of(path) in ("jsonl", "parquet"):
            # A plain file of labelled texts is read as a TSV.
            format = format_of(path)
            _say_each(notes_on(path, "tsv" if format == "lines" else format, wanted), say)


def keys_of(config: RunConfig) -> Keys:
    """What the parts of a labelled row are called."""
    data = config.data
    return Keys(data.text, data.pair, data.label, data.header)


def _say_each(notes: Iterable[str], say: Callable[[str], None]) -> None:
    for note in notes:
        say(note)


def data_digest(config: DataConfig) -> str:
    """Tells whether the files to train on are the same as before: of folders by names and sizes alone."""
    files = [path for path in map(Path, config.train) if not path.is_dir()]
    inside = [
        [str(path.relative_to(folder)), path.stat().st_size]
        for folder in map(Path, config.train)
        if folder.is_dir()
        for path in sorted(folder.rglob("*"))
    ]
    return content_digest(files, [json.dumps(inside)])


def files_corpus(files: tuple[str, ...], config: DataConfig) -> PairFiles:
    first, *others = map(Path, files)
    if len(others) > 1:
        raise ConfigError(f"pairs are in one file or in two line-aligned files, not in {len(files)}")
    target = others[0] if others else None
    return PairFiles(first, target, keys=(config.source, config.target), header=config.header)


def world_held_out(part: Part, source: str = "en", count: int | None = None, grammar: Grammar = "whole") -> WorldCorpus:
    """The held-out sentences that every run on the bundled corpus, or on that part of it, is measured on."""
    if source not in ("en", "fr"):
        raise ConfigError(f"the bundled corpus has en and fr, not {source}")
    return WorldCorpus(WORLD_HELD_OUT if count is None else count, 0, part, source, grammar)


def training_corpus(config: DataConfig) -> Corpus:
    corpus = corpus_of(config, "train")
    if corpus is None:
        raise ConfigError(
            "no training data: give --data with your files or --world with a number of bundled pairs "
            "(data.train or data.world in a configuration)"
        )
    return corpus


def training_documents(config: DataConfig) -> Documents:
    documents = documents_of(config, "train")
    if documents is None:
        raise ConfigError("no training data: give --data with your files or folders (data.train in a configuration)")
    return documents
