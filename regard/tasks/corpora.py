"""The corpora a run's configuration names."""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from regard.data.readers import Corpus, Documents, PairFiles, TextFiles, content_digest
from regard.data.synthetic.world import Grammar, Sentence, sentences
from regard.errors import ConfigError, DataError
from regard.tasks.config import RunConfig
from regard.tasks.run import Run
from regard.tasks.spec import Say

Part = Literal["train", "valid", "test"]
PARTS: tuple[Part, ...] = ("train", "valid", "test")

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
        for entry in sorted(resources.files("regard.data.synthetic.world").iterdir(), key=lambda entry: entry.name):
            if entry.name.endswith(".py"):
                digest.update(entry.read_bytes())
        return digest.hexdigest()


def corpus_of(config: Any, part: Part) -> Corpus | None:
    """The pairs to train on, to validate on or to test on; None where the configuration names none."""
    files = getattr(config, part)
    if files:
        return files_corpus(files, config)
    if not config.world:
        return None
    if part == "train":
        return WorldCorpus(config.world, config.world_seed, "train", str(config.source), config.world_grammar)
    return world_held_out(part, str(config.source), grammar=config.world_grammar)


def documents_of(config: Any, part: Part) -> Documents | None:
    """The running text to train on, to validate on or to test on; None where the configuration names none."""
    names = getattr(config, part)
    return Documents.of(names, config.text, config.header) if names else None


def check_running_text(config: RunConfig, say: Say) -> None:
    """Read the beginning of every file of running text that a configuration names."""
    for part in PARTS:
        for file in getattr(config.data, part):
            if not Path(file).exists():
                raise DataError(f"no such file or folder: {file}")
        if documents := documents_of(config.data, part):
            check_documents(documents, say)


def check_window(config: RunConfig) -> None:
    """Refuse a batch that does not hold one window."""
    budget, length = config.train.batch_tokens, config.data.max_len
    if budget < length:
        raise ConfigError(
            f"train.batch_tokens={budget} must be at least data.max_len={length}, the length of one window"
        )


def text_to_look_at(run: Run, data: Any) -> Documents:
    """Running text to ask heads about: what is given, or the run's own test or validation text."""
    if isinstance(data, Documents):
        return data
    config = run.config.data
    found = Documents.of(data, config.text, config.header) if data else documents_of(config, "test")
    found = found or documents_of(config, "valid")
    if found is None:
        raise ConfigError("no text to look at: the run names no test or validation text; give some")
    return found


def lines_of(words: Sequence[str], file: Path | None) -> list[str]:
    """The texts on a command line, or the lines of a file; blank ones left out."""
    if bool(words) == (file is not None):
        raise ConfigError("give sentences, or --input with a file of them")
    given = words if file is None else list(TextFiles((file,), format="lines"))
    texts = [one for one in given if one.strip()]
    if not texts:
        raise DataError("nothing to look at: every sentence is blank")
    return texts


def check_pairs(pairs: PairFiles, say: Callable[[str], None]) -> None:
    """Read the first pair."""
    next(iter(pairs))
    _say_each(pairs.notes(), say)


def check_documents(documents: Documents, say: Callable[[str], None]) -> None:
    """Read the beginning of each file."""
    for path in documents.paths:
        next(iter(replace(documents, paths=(path,))), None)
    _say_each(documents.notes(), say)


def _say_each(notes: Iterable[str], say: Callable[[str], None]) -> None:
    for note in notes:
        say(note)


def data_digest(config: Any) -> str:
    """Tells whether the files to train on are the same as before: of folders by names and sizes alone."""
    files = [path for path in map(Path, config.train) if not path.is_dir()]
    inside = [
        [str(path.relative_to(folder)), path.stat().st_size]
        for folder in map(Path, config.train)
        if folder.is_dir()
        for path in sorted(folder.rglob("*"))
    ]
    return content_digest(files, [json.dumps(inside)])


def files_corpus(files: tuple[str, ...], config: Any) -> PairFiles:
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


def training_corpus(config: Any) -> Corpus:
    corpus = corpus_of(config, "train")
    if corpus is None:
        raise ConfigError(
            "no training data: give --data with your files or --world with a number of bundled pairs "
            "(data.train or data.world in a configuration)"
        )
    return corpus


def training_documents(config: Any) -> Documents:
    documents = documents_of(config, "train")
    if documents is None:
        raise ConfigError("no training data: give --data with your files or folders (data.train in a configuration)")
    return documents
