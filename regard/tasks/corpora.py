"""A run's data: the corpora that its configuration names, and random rows in their place for timing."""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import resources
from itertools import islice
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import torch
from torch import nn

from regard.data import Loader, Position
from regard.data.batches import epoch_groups
from regard.data.file_names import check_there, matching_all, passed_over
from regard.data.formats import Header
from regard.data.loader import Layout
from regard.data.readers import SUFFIXES, Corpus, Documents, PairFiles, SplitPairs, TextFiles, content_digest
from regard.data.shards import TABLES, Corpora, PairShards, check_shards, pair_corpus
from regard.data.sharing import Share
from regard.data.synthetic.world.corpus import Grammar, sentences
from regard.data.synthetic.world.sentence import ParallelSentence
from regard.errors import ConfigError, DataError, check_at_least
from regard.nn.batch import Texts, Tokens
from regard.tasks.config import RunConfig
from regard.tasks.run import Run
from regard.tasks.spec import (
    Files,
    MixedFiles,
    Report,
    Say,
    check_columns,
    check_held_out,
    check_length,
    check_mixed,
    corpus_files,
)
from regard.text import Tokenizer, Vocabularies, train_tokenizer

Part = Literal["train", "valid", "test"]
Overlong = Literal["skip", "truncate", "refuse"]
Words = tuple[str, ...]
Alignment = tuple[tuple[int, int], ...]
PARTS: tuple[Part, ...] = ("train", "valid", "test")

WORLD_HELD_OUT = 2000
"""How many held-out sentences of the bundled corpus serve for validation, and how many for test."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TextData(Files):
    """Texts in any number of files, and how many tokens of one are read.

    `text` is the key of JSONL or the column of a table, by name or, of columns, by number from 1; `header` says whether
    the first row of a TSV or CSV names its columns; `auto` takes it for that where it holds their names, and says so.
    `held_out` is the share that is validated on where no validation texts are given: texts, each with its copies, or
    the end of a plain file.
    """

    max_len: int = 256
    text: str | int = "text"
    header: Header = "auto"
    held_out: float = 0.0

    def __post_init__(self) -> None:
        check_length(self.max_len)
        check_columns(text=self.text)
        check_held_out(self.held_out)


@dataclass(frozen=True, kw_only=True, slots=True)
class TranslationData(MixedFiles):
    """Pairs of texts: in two line-aligned files, in `.tsv`, `.csv`, `.jsonl` or `.parquet` tables, or bundled.

    All but `.parquet` may be compressed too: `.gz`, `.bz2`, `.xz`, `.zst`. `source` and `target` name the sides: keys
    of JSONL, the columns of a table, by name or by number from 1, the languages `en` and `fr` of the bundled corpus, in
    either direction. `header` says whether the first row of a TSV or CSV names its columns; `auto` takes it for that
    where it holds their names, and says so.

    `world` is how many bundled pairs to train on; its own held-out sentences then serve for validation and test.
    `world_grammar` is the whole grammar or the plain part of it. `overlong` says what becomes of pairs longer than
    `max_len` tokens. `held_out` is the share of sources, each with all its targets, that is validated on where no
    validation pairs are given.

    `swaps` is for pairs that follow a rule: in how many ways words that can take each other's place, in source and
    target alike, are exchanged in the training pairs. The first way leaves them as they are, and 0 knows no other.
    """

    world: int = 0
    world_seed: int = 1
    world_grammar: Grammar = "whole"
    source: str | int = "en"
    target: str | int = "fr"
    max_len: int = 256
    overlong: Overlong = "skip"
    header: Header = "auto"
    held_out: float = 0.0
    swaps: int = 0

    def __post_init__(self) -> None:
        check_held_out(self.held_out)
        check_mixed(self)
        check_at_least(self, 0, "swaps")
        if self.swaps and self.corpora:
            raise ConfigError(f"data.swaps={self.swaps} is for one corpus, not for those of data.corpora")
        if self.world and (self.train or self.corpora):
            which = "train" if self.train else "corpora"
            raise ConfigError(f"data.{which} and data.world are two sources of training pairs; give one")
        if self.world and {self.source, self.target} != {"en", "fr"}:
            raise ConfigError(f"the bundled corpus has en and fr, not {self.source} and {self.target}")
        check_length(self.max_len)
        check_columns(source=self.source, target=self.target)

    def bundled(self, part: Part) -> "WorldCorpus | None":
        """The pairs of a part that come with regard, where these are asked for."""
        if not self.world:
            return None
        if part == "train":
            return WorldCorpus(self.world, self.world_seed, "train", str(self.source), self.world_grammar)
        return world_held_out(part, str(self.source), grammar=self.world_grammar)


@runtime_checkable
class PairData(Protocol):
    """A `[data]` section of pairs of texts: in files, or bundled."""

    @property
    def source(self) -> str | int: ...

    @property
    def target(self) -> str | int: ...

    @property
    def header(self) -> Header: ...

    @property
    def train(self) -> tuple[str, ...]: ...

    @property
    def corpora(self) -> Mapping[str, Any]: ...

    @property
    def valid(self) -> tuple[str, ...]: ...

    @property
    def held_out(self) -> float: ...

    def bundled(self, part: Part) -> Corpus | None: ...


FIRST_TOKEN = 4
"""The first token that is no special one."""


@dataclass(frozen=True)
class WorldCorpus:
    """Pairs of the bundled corpus, in either direction."""

    count: int
    seed: int
    part: Part
    source: str = "en"
    grammar: Grammar = "whole"

    @property
    def sentences(self) -> list[ParallelSentence]:
        return list(self.sampled())

    def __iter__(self) -> Iterator[tuple[str, str]]:
        for sentence in self.sampled():
            english, french = sentence.english, sentence.french
            yield (english, french) if self.source == "en" else (french, english)

    def sampled(self) -> Iterator[ParallelSentence]:
        """The sentences, sampled when they are first asked for, and kept."""
        kept, rest = self._kept_and_rest
        for index in range(self.count):
            if index == len(kept):
                kept.append(next(rest))
            yield kept[index]

    @cached_property
    def _kept_and_rest(self) -> tuple[list[ParallelSentence], Iterator[ParallelSentence]]:
        return [], sentences(self.count, seed=self.seed, split=self.part, grammar=self.grammar)

    def digest(self) -> str:
        return grammar_digest(self.count, self.seed, self.part, self.source, self.grammar)


def grammar_digest(*key: Any) -> str:
    """From the grammar's own text, so that a grammar that changed is a corpus that changed."""
    digest = hashlib.sha256(repr(key).encode())
    for entry in sorted(resources.files("regard.data.synthetic.world").iterdir(), key=lambda entry: entry.name):
        if entry.name.endswith(".py"):
            digest.update(entry.read_bytes().replace(b"\r\n", b"\n"))  # as git may write them on Windows
    return digest.hexdigest()


def corpus_of(config: PairData, part: Part) -> Corpus | None:
    """The pairs to train on, to validate on or to test on; None where the configuration names none."""
    files = getattr(config, part)
    named = bool(config.train or corpus_files(config))
    splits = bool(config.held_out and named and not config.valid)
    if part == "train" and named:
        found = _training_files(config)
        return SplitPairs(found, config.held_out, False) if splits else found
    if files:
        return files_corpus(files, config, f"data.{part}")
    if splits and part == "valid":
        return SplitPairs(_training_files(config), config.held_out, True)
    return config.bundled(part)


def _training_files(config: PairData) -> Corpus:
    """The pairs of the files to train on: of one corpus, or of several one after the other."""
    if config.train:
        return files_corpus(config.train, config)
    found = {name: files_corpus(files, config, f"data.corpora.{name}") for name, files in corpus_files(config).items()}
    return Corpora(found) if len(found) > 1 else next(iter(found.values()))


def documents_of(config: TextData, part: Part) -> Documents | None:
    """The running text to train on, to validate on or to test on; None where the configuration names none."""
    named = corpus_files(config)
    splits = bool(config.held_out and (config.train or named) and not config.valid) and part != "test"
    if splits:
        found = _training_texts(config, named)
        return found.split(config.held_out, part == "valid", whole_files=_by_file(config))
    if part == "train" and named:
        return _training_texts(config, named)
    names = getattr(config, part)
    return Documents.of(names, config.text, config.header) if names else None


TextHeldOutBy = Literal["end", "file"]


def _by_file(config: TextData) -> bool:
    """Whether plain files are held out as a whole, where the task's data knows of that."""
    return getattr(config, "held_out_by", "end") == "file"


def _training_texts(config: TextData, named: Mapping[str, Sequence[str]]) -> Documents:
    """The running text of the files to train on: of one corpus, or of several one after the other."""
    if config.train:
        return Documents.of(config.train, config.text, config.header)
    found = [Documents.of(files, config.text, config.header) for files in named.values()]
    return Documents.together(found) if len(found) > 1 else found[0]


def check_running_text(config: RunConfig, say: Say) -> None:
    """Read the beginning of every file of running text that a configuration names."""
    for part in PARTS:
        check_there(getattr(config.data, part))
        if documents := documents_of(config.data, part):
            check_documents(documents, say)
        _say_each(passed_over(getattr(config.data, part), SUFFIXES), say)
    for files in corpus_files(config.data).values():
        _say_each(passed_over(files, SUFFIXES), say)


def check_window(config: RunConfig) -> None:
    """Refuse a batch that does not hold one window."""
    budget, length = config.train.batch_tokens, config.data.max_len
    if budget < length:
        raise ConfigError(
            f"train.batch_tokens={budget} must be at least data.max_len={length}, the length of one window"
        )


def text_to_look_at(run: Run, data: Documents | Sequence[str | Path] | None) -> Documents:
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


def check_pairs(pairs: PairFiles | PairShards, say: Callable[[str], None]) -> None:
    """Read the first pair of every shard."""
    check_shards(pairs)
    _say_each(pairs.notes(), say)


def check_pair_files(config: PairData, say: Callable[[str], None]) -> None:
    """Read the first pair of every file that a configuration names."""
    named = {f"data.{part}": getattr(config, part) for part in PARTS}
    named |= {f"data.corpora.{name}": files for name, files in corpus_files(config).items()}
    for setting, files in named.items():
        if files:
            pairs = files_corpus(files, config, setting)
            check_pairs(pairs, say)
            first = pairs.shards[0] if isinstance(pairs, PairShards) else pairs
            if first.target is None:  # of the folders of two sides all is read
                _say_each(passed_over(files, TABLES), say)


def check_documents(documents: Documents, say: Callable[[str], None]) -> None:
    """Read the beginning of each file."""
    for path in documents.paths:
        next(iter(replace(documents, paths=(path,), corpora=(), share=0.0)), None)
    _say_each(documents.notes(), say)


def _say_each(notes: Iterable[str], say: Callable[[str], None]) -> None:
    for note in notes:
        say(note)


def data_digest(config: Files) -> str:
    """Tells whether the files to train on are the same as before: of folders by names and sizes alone."""
    names = [*config.train, *(name for files in corpus_files(config).values() for name in files)]
    found = matching_all(names)
    files = [path for path in found if not path.is_dir()]
    inside = [
        [str(path.relative_to(folder)), path.stat().st_size]
        for folder in found
        if folder.is_dir()
        for path in sorted(folder.rglob("*"))
    ]
    return content_digest(files, [json.dumps(inside)])


def files_corpus(files: Sequence[str], config: PairData, setting: str = "data.train") -> PairFiles | PairShards:
    """The pairs in these files, folders and patterns; `setting` is what names them."""
    return pair_corpus(files, (config.source, config.target), config.header, setting)


def world_held_out(part: Part, source: str = "en", count: int | None = None, grammar: Grammar = "whole") -> WorldCorpus:
    """The held-out sentences that every run on the bundled corpus, or on that part of it, is measured on."""
    if source not in ("en", "fr"):
        raise ConfigError(f"the bundled corpus has en and fr, not {source}")
    return WorldCorpus(WORLD_HELD_OUT if count is None else count, 0, part, source, grammar)


def full_pairs(
    corpus: Iterable[tuple[str, str]], limit: int | None = None, say: Say | None = None
) -> list[tuple[str, str]]:
    """The first `limit` pairs that have both sides; `say` is told of others, if any pair is left."""
    blank = 0

    def full() -> Iterator[tuple[str, str]]:
        nonlocal blank
        for source, target in corpus:
            if source.strip() and target.strip():
                yield source, target
            else:
                blank += 1

    pairs = list(islice(full(), limit))
    if blank and pairs and say is not None:
        say(f"{blank:,} of {blank + len(pairs):,} pairs have a blank side and are left out")
    return pairs


def sides_of(sentence: ParallelSentence, source: str) -> tuple[tuple[str, str], tuple[Words, Words], Alignment]:
    """Texts, words and alignment of a sentence of the bundled corpus, the side that is translated first."""
    english, french = (sentence.english, sentence.english_words), (sentence.french, sentence.french_words)
    first, second = (english, french) if source == "en" else (french, english)
    alignment = sentence.alignment if source == "en" else tuple((there, here) for here, there in sentence.alignment)
    return (first[0], second[0]), (first[1], second[1]), alignment


def cache_directory(config: RunConfig, directory: Path) -> Path:
    """Where the run in `directory` keeps its prepared data."""
    return Path(config.data.cache) if config.data.cache else directory / "cache"


def training_corpus(config: PairData, otherwise: str) -> Corpus:
    """The pairs to train on; where none are named, `otherwise` is what to give instead of files."""
    corpus = corpus_of(config, "train")
    if corpus is None:
        raise ConfigError(f"no training data: give --data with your files or {otherwise}")
    return corpus


def training_documents(config: TextData) -> Documents:
    documents = documents_of(config, "train")
    if documents is None:
        raise ConfigError("no training data: give --data with your files or folders (data.train in a configuration)")
    return documents


def train_shared_tokenizer(
    texts: Iterable[str], config: RunConfig, report: Report, *, masks: bool = False
) -> Vocabularies:
    """One tokenizer for both sides, trained on these texts."""
    report.say("training the tokenizer")
    shared = train_tokenizer(texts, config.tokenizer, masks=masks)
    return Vocabularies(shared, shared)


def unknown_tokens(ids: np.ndarray, tokenizer: Tokenizer) -> dict[str, float]:
    """What a validation says of the share of these tokens that are unknown; nothing where none is, or none can be."""
    if tokenizer.unk in (tokenizer.pad, tokenizer.bos, tokenizer.eos):
        return {}
    found = int((ids == tokenizer.unk).sum())
    return {"unknown": round(found / len(ids), 5)} if found else {}


class PreparedData:
    """What the prepared data of most tasks does alike: it is trained on as `layout` lays it out."""

    config: RunConfig

    def layout(self, budget: int, *, pack: bool = False) -> Layout:
        """The training data in batches of so many tokens."""
        raise NotImplementedError

    def stream(self, position: Position, *, pin: bool, pack: bool, share: Share | None = None) -> Loader:
        """Training batches without end, from `position` on; or of several processes the `share` of one of them."""
        options = self.config.train
        layout = self.layout(options.batch_tokens, pack=pack)
        return Loader(layout, seed=options.seed, position=position, pin=pin, share=share)

    def trials(self, budget: int, *, pack: bool) -> list[Any]:
        """The batches of this budget that ask most of the memory; by default all ask the same."""
        layout = self.layout(budget, pack=pack)
        return [layout.batch(next(epoch_groups(layout, self.config.train.seed, 0)))]

    def scores(self, model: nn.Module) -> dict[str, float]:
        """What a validation shows beside the loss."""
        return {}


def random_ids(config: RunConfig, generator: torch.Generator, more: int = 0) -> torch.Tensor:
    """As many rows of as many tokens as a batch has."""
    length, size = config.data.max_len, config.model_config().vocab_size
    rows = max(1, config.train.batch_tokens // length)
    return torch.randint(FIRST_TOKEN, size, (rows, length + more), generator=generator)


def random_texts(config: RunConfig, generator: torch.Generator) -> Texts:
    ids = random_ids(config, generator)
    second = (torch.arange(ids.shape[1]) >= ids.shape[1] // 2).long().expand_as(ids).contiguous()
    return Texts(full_rows(ids), second if config.model_config().segments > 1 else None)


def full_rows(ids: torch.Tensor) -> Tokens:
    return Tokens(ids.contiguous(), torch.full((len(ids),), ids.shape[1]), padded=False)
