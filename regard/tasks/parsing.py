"""Constituency parsing: sentences to their trees, written in brackets by a model that cannot write anything else."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor, nn

from regard.config import JsonObject, Setting
from regard.data.mixing import even_sample
from regard.data.trees import (
    Terminals,
    Tree,
    TreeLayout,
    TreeRows,
    as_read,
    escaped,
    grammar_trees,
    linearised,
    most_brackets,
    read_cleaned,
    source_row,
    symbols_of,
    tree_from,
)
from regard.decode.config import DecodeConfig
from regard.decode.search import batches
from regard.decode.stepper import Hypothesis
from regard.errors import ConfigError, DataError
from regard.look.document import Document
from regard.metrics.bracket_scores import bracket_scores
from regard.nn.batch import CLOSE, END, FIRST_LABEL, Parses, Texts, Tokens
from regard.tasks.config import RunConfig
from regard.tasks.corpora import FIRST_TOKEN, Overlong, PreparedData, train_shared_tokenizer
from regard.tasks.looking.look_options import LookOptions
from regard.tasks.probes import HELD_OUT_BUDGET, HeldOutData
from regard.tasks.run import Run, prepared_vocabularies
from regard.tasks.spec import (
    MEASURING,
    OF_PAIRS,
    Files,
    Measuring,
    Progress,
    Report,
    Say,
    check_length,
    warn,
)
from regard.tasks.tagging import split_words
from regard.tasks.verbs.parse import ParseTree
from regard.tasks.writing import Writer, WritingTask, check_budget, check_bundled, search_settings
from regard.text import Tokenizer, Vocabularies
from regard.text.encoder_inputs import InputBuilder
from regard.training.objectives import Objective, Parsing

BUDGET = 4096
"""Pieces of one batch while sentences are parsed greedily; fewer by the width of a beam."""
TREES_HELD_OUT = 1000
"""How many held-out trees of the bundled grammar serve for validation, and how many for test."""
WINDOW = 256
STAND_INS = ("XX", "(S", "(NP", "(VP")
"""Symbols of a model that is only counted or timed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ParsingData(Files):
    """Trees in bracketed files, or bundled.

    Files hold any number of trees, each over one line or several, as treebanks have them. Traces, function tags and
    what stands above a sentence are left out. `trees` is how many trees of the bundled grammar to train on; its own
    held-out ones then serve for validation and test. `terminals` says what stands for a word in what the model writes:
    `tags` are parts of speech, which it then predicts too, and `XX` is one symbol for all. `overlong` says what becomes
    of trees with more than `max_len` pieces of words.
    """

    trees: int = 0
    trees_seed: int = 1
    terminals: Terminals = "tags"
    max_len: int = 256
    overlong: Overlong = "skip"

    def __post_init__(self) -> None:
        check_bundled(self, "trees", "trees")
        if self.overlong == "truncate":
            raise ConfigError("data.overlong='truncate' is not possible: a tree cannot be cut; use skip or refuse")
        check_length(self.max_len)


def trees_of(config: ParsingData, part: str) -> list[Tree] | None:
    """The trees to train on, to validate on or to test on; None where the configuration names none."""
    if files := getattr(config, part):
        return read_cleaned(files)
    if not config.trees:
        return None
    if part == "train":
        return list(grammar_trees(config.trees, seed=config.trees_seed, split="train"))
    return list(grammar_trees(TREES_HELD_OUT, seed=0, split="valid" if part == "valid" else "test"))


class ParsingRun(PreparedData):
    """Trees to train on and, where there are any, to validate on."""

    def __init__(
        self, config: RunConfig, trees: list[Tree], valid: list[Tree] | None, tokenizer: Tokenizer, report: Report
    ) -> None:
        self.config, self.tokenizer, self.valid_trees = config, tokenizer, valid
        self.objective = TASK.objective(config)
        self.train = self._rows(trees, partial(warn, report), "training")
        self.valid = None if valid is None else self._rows(valid, partial(warn, report), "validation")
        pieces, longest = self.train.pieces.lengths, int((self.train.pieces.lengths + self.train.target_lengths).max())
        report.say(
            f"{len(self.train):,} trees of {int(self.train.counts.sum()):,} words in {int(pieces.sum()):,} pieces, "
            f"{len(config.model['labels'])} symbols"
        )
        check_budget(config, longest, "the longest sentence and its tree")

    def validation(self) -> Iterator[Parses] | None:
        return None if self.valid is None else self.valid.evaluation(self.config.train.batch_tokens)

    def scores(self, model: nn.Module) -> dict[str, float]:
        trees = even_sample(self.valid_trees or [], self.config.train.validate_sentences)
        parser = TreeReader(model, self.tokenizer, self.config)
        trees = [tree for tree in trees if parser.fits(tree.words)]
        if not trees:
            return {}
        found = parser.trees([tree.words for tree in trees], self.config.decode.greedy())
        scores = bracket_scores(found, trees)
        return {"f1": scores["f1"], "exact_match": scores["exact_match"]}

    def layout(self, budget: int, *, pack: bool = False) -> TreeLayout:
        return TreeLayout(self.train, budget)

    def _rows(self, trees: Sequence[Tree], say: Say, what: str) -> TreeRows:
        return tree_rows(self.config, trees, self.tokenizer, say, what, self.config.data.overlong)


def tree_rows(
    config: RunConfig, trees: Sequence[Tree], tokenizer: Tokenizer, say: Say, what: str, overlong: Overlong = "skip"
) -> TreeRows:
    """The trees as rows; those that the model cannot read or write are left out, and that is said."""
    data, model = config.data, config.model_config()
    builder = InputBuilder(tokenizer, data.max_len)
    symbols = symbol_numbers(model.labels)
    rows, counts, targets = [], [], []
    long, deep, unknown = 0, 0, dict[str, int]()
    for tree in trees:
        row, target = source_row(builder, tree.words), linearised(tree, symbols)
        if isinstance(target, str):
            unknown[target] = unknown.get(target, 0) + 1
            continue
        depth, opened = most_brackets(target, model.labels)
        if depth > model.max_depth or opened > model.max_open:
            deep += 1
            continue
        if len(row.ids) > data.max_len:
            long += 1
            if overlong == "refuse":
                raise DataError(
                    f"a sentence of {len(tree.words):,} words has {len(row.ids):,} tokens, more than "
                    f"data.max_len={data.max_len}: {' '.join(tree.words[:8])}"
                )
            continue
        rows.append(row)
        counts.append(len(tree.words))
        targets.append([END, *target, END])
    if long:
        say(f"{long:,} {what} trees of more than data.max_len={data.max_len} tokens are left out")
    if deep:
        say(
            f"{deep:,} {what} trees are left out: brackets deeper than model.max_depth={model.max_depth}, or more than "
            f"model.max_open={model.max_open} between two words"
        )
    if unknown:
        count, name = sum(unknown.values()), max(unknown, key=lambda one: unknown[one])
        say(f"{count:,} {what} trees are left out: labels that training has not, such as '{name}'")
    if not rows:
        raise DataError(f"not one of the {what} trees can be read by the model")
    return TreeRows.of(rows, counts, targets, tokenizer.pad)


def symbol_numbers(labels: Sequence[str]) -> dict[str, int]:
    return {label: number for number, label in enumerate(labels, FIRST_LABEL)}


class TreeReader(Writer[ParseTree]):
    """Words in, trees out."""

    def __init__(self, model: Any, tokenizer: Tokenizer, config: RunConfig) -> None:
        super().__init__(model, Vocabularies(tokenizer, tokenizer), config)
        self.tokenizer, self.labels = tokenizer, tuple(self.shape.labels)
        self.symbols_per_word: int = 2 * self.shape.max_open + 1
        """The most symbols of a tree for each of its words: brackets that open and close, and the word itself."""
        self.builder = InputBuilder(tokenizer, self.max_len)

    @cached_property
    def tagged(self) -> bool:
        """Whether trees have parts of speech."""
        return sum(not label.startswith("(") for label in self.labels) > 1

    def sentences(self, items: Sequence[str | Sequence[str]], *, spaced: bool = False) -> list[tuple[str, ...]]:
        """The words of each sentence, none of them blank and none longer than the model reads."""
        found = []
        for number, item in enumerate(items, 1):
            text = isinstance(item, str)
            if not text and not all(isinstance(word, str) and word.split() == [word] for word in item):
                raise DataError(f"sentence {number} must be a text, or a list of words without spaces")
            words = tuple((item.split() if spaced else split_words(item)) if text else item)  # type: ignore[union-attr]
            words = tuple(map(escaped, words))
            if not words:
                raise DataError(f"sentence {number} has no words")
            self._check(words, number)
            found.append(words)
        return found

    def _check(self, words: Sequence[str], number: int) -> None:
        # A word is a piece at least, nearly always: what is far too long is not tokenised to find out.
        count = len(words) if len(words) > 8 * self.max_len else len(source_row(self.builder, words).ids)
        if count > self.max_len:
            raise DataError(
                f"sentence {number} has {len(words):,} words, {count:,} tokens or more; the model reads "
                f"{self.max_len}: split it into sentences"
            )

    def fits(self, words: Sequence[str]) -> bool:
        return len(source_row(self.builder, words).ids) <= self.max_len

    def batch(self, items: Sequence[Sequence[str]], texts: Sequence[Sequence[int]] | None = None) -> Parses:
        """Sentences as the model reads them, with rows of symbols from END to END where these are known."""
        rows = [source_row(self.builder, words) for words in items]
        found = TreeRows.of(rows, [len(words) for words in items], texts, self.tokenizer.pad)
        return found.batch(np.arange(len(rows))).to(self.device)

    @property
    def ends(self) -> tuple[int, int]:
        return END, END

    def groups(self, items: Sequence[Sequence[str]], config: DecodeConfig) -> Iterator[Sequence[int]]:
        """Sentences of like length go together."""
        return iter(batches([len(words) for words in items], max(1, BUDGET // config.rows)))

    def limit(self, batch: Parses, config: DecodeConfig) -> Int[Tensor, " B"]:
        return batch.lengths.cpu() * self.symbols_per_word + 1

    def text(
        self, hypothesis: Hypothesis, forced_at: int | None = None, *, item: Any = None, dropped: bool = False
    ) -> ParseTree:
        choices = tuple(hypothesis.tokens)
        tree = "" if dropped else str(self.tree(choices, item))
        return ParseTree(tree, hypothesis.score, hypothesis.log_prob, self.names(choices), choices)

    parse = Writer.write

    def trees(
        self, sentences: Sequence[Sequence[str]], config: DecodeConfig | None = None, progress: Progress | None = None
    ) -> list[Tree]:
        """The best tree of each sentence."""
        found = self.parse(sentences, config, progress=progress)
        return [self.tree(best[0].choices, words) for best, words in zip(found, sentences, strict=True)]

    def tree(self, choices: Sequence[int], words: Sequence[str]) -> Tree:
        return tree_from(choices, self.labels, words)

    def names(self, choices: Iterable[int]) -> tuple[str, ...]:
        """Symbols as text."""
        return tuple(")" if choice == CLOSE else self.labels[choice - FIRST_LABEL] for choice in choices)


def parser_of(run: Run) -> TreeReader:
    """Words in, trees out."""
    return TreeReader(run.model, run.vocabularies.target, run.config)


def parse(run: Run, sentences: Sequence[str | Sequence[str]], **decode: Setting) -> list[str]:
    """The best tree of each sentence in brackets; a sentence is a text or a list of words.

    `decode` are settings of `DecodeConfig`, such as `beam=5`.
    """
    return [best[0].tree for best in parses(run, sentences, **decode)]


def parses(run: Run, sentences: Sequence[str | Sequence[str]], **decode: Setting) -> list[list[ParseTree]]:
    """For each sentence its best trees, with scores: `parses(["A dog sleeps."], beam=5, top_beams=5)`."""
    if isinstance(sentences, str):
        raise DataError("give a list of sentences, not one: [sentence]")
    return run.parser.parse(run.parser.sentences(sentences), run.decode_config(**decode))


class HeldOutTrees(HeldOutData):
    """Held-out trees: labelled F1 of greedy parses."""

    name = "F1"

    def __init__(self, run: Run, trees: Sequence[Tree], limit: int) -> None:
        self.trees = [tree for tree in trees if run.parser.fits(tree.words)][:limit]
        rows = tree_rows(run.config, self.trees, run.vocabularies.target, lambda text: None, "held-out")
        super().__init__(run, Parsing(), list(rows.evaluation(HELD_OUT_BUDGET)), len(self.trees))

    def score(self, run: Run) -> float:
        found = run.parser.trees([tree.words for tree in self.trees], run.config.decode.greedy())
        return float(bracket_scores(found, self.trees)["f1"])


@dataclass(frozen=True, kw_only=True, slots=True)
class ParsingOptions:
    """The first `limit` trees."""

    limit: int | None = None


class ParsingTask(WritingTask):
    """Sentences to their trees."""

    name = "parsing"
    about = "the tree of each sentence"
    data = ParsingData
    sources = ("train", "trees")
    evaluation = ParsingOptions
    unused: ClassVar = (
        *(*OF_PAIRS, "images"),
        *("train.vectors", "train.freeze_vectors", "train.r_drop", "train.pack"),
        *("train.compile", "train.compile_loss", "train.compile_blocks", "train.cuda_graphs"),
        # A tree is as long as its words and their brackets, and what may stand in it the words say.
        *("decode.max_len", "decode.min_len", "decode.max_ratio", "decode.max_extra", "decode.force_end"),
        *("decode.forbid", "decode.force_first", "decode.no_repeat", "decode.prefix", "decode.forbid_phrases"),
        *("decode.require", "decode.coverage_penalty", "decode.mbr"),
    )
    parts: ClassVar = {"parser": parser_of}
    methods: ClassVar = {"parse": parse, "parses": parses}
    lifts_limits = False
    unit = "sentences"

    def objective(self, config: RunConfig) -> Objective:
        return Parsing(config.train.smoothing)

    def check_files(self, config: RunConfig, say: Say) -> None:
        super().check_files(config, say)
        for part in ("train", "valid", "test"):
            for file in getattr(config.data, part):
                read_cleaned([file])

    def prepare(self, config: RunConfig, directory: Path, report: Report, *, new: bool) -> tuple[RunConfig, ParsingRun]:
        """The trees read and linearised; for a new run, their symbols found, and a tokenizer made or taken over."""
        trees = trees_of(config.data, "train")
        if trees is None:
            raise ConfigError(
                "no training data: give --data with bracketed files (data.train in a configuration), "
                "or set data.trees to a number of bundled trees"
            )
        texts = (" ".join(map(as_read, tree.words)) for tree in trees)
        config, vocabularies = prepared_vocabularies(
            config, directory, lambda: train_shared_tokenizer(texts, config, report, masks=True), new=new
        )
        if new:
            labels = symbols_of(trees, config.data.terminals)
            config = replace(config, model={**config.model, "labels": list(labels)})
        return config, ParsingRun(config, trees, trees_of(config.data, "valid"), vocabularies.target, report)

    def evaluate(self, run: Run, data: Any = None, how: Measuring = MEASURING) -> JsonObject:
        """Labelled brackets against those of the trees given, as evalb counts them: names of files, or trees.

        Trees that are longer than the model reads are parsed as one flat constituent, so that they count.
        """
        trees = self._given(run, data)[: how.chosen(ParsingOptions).limit]
        parser, config = run.parser, run.decode_config(**how.decode)
        found: list[Tree] = []
        flat = 0
        for start in range(0, len(trees), WINDOW):
            part = trees[start : start + WINDOW]
            fitting = [tree.words for tree in part if parser.fits(tree.words)]
            parsed = iter(parser.trees(fitting, config))
            for tree in part:
                if parser.fits(tree.words):
                    found.append(next(parsed))
                else:
                    flat += 1
                    found.append(Tree("S", tuple(Tree("XX", (), word) for word in tree.words)))
            if how.progress is not None:
                how.progress(len(found), len(trees))
        if how.out is not None:
            for tree in found:
                how.out(str(tree))
        if flat and how.say is not None:
            how.say(f"{flat:,} sentences are longer than the model reads: each counts as one flat constituent")
        return {
            **bracket_scores(found, trees, tagged=parser.tagged),
            "too_long": flat,
            "decode": search_settings(config),
        }

    def _given(self, run: Run, data: Any) -> Sequence[Tree]:
        if data and all(isinstance(one, Tree) for one in data):
            return data
        if data:
            return read_cleaned(data)
        found = trees_of(run.config.data, "test") or trees_of(run.config.data, "valid")
        if found is None:
            raise ConfigError("nothing to evaluate on: the run names no test or validation trees; give some")
        return found

    def show(self, scores: Mapping[str, Any]) -> str:
        low, high = scores["f1_interval"]
        least, most = scores["exact_match_interval"]
        lines = [
            f"sentences        {scores['sentences']:,}  with {scores['brackets']:,} brackets, "
            f"beam {scores['decode']['beam']}",
            f"F1               {scores['f1']:.2f}  [{low:.2f}, {high:.2f}]  {scores['f1_signature']}",
            f"precision        {scores['precision']:.2f}",
            f"recall           {scores['recall']:.2f}",
            f"exact match      {100 * scores['exact_match']:.2f} %  [{100 * least:.2f}, {100 * most:.2f}]",
        ]
        if "tag_accuracy" in scores:
            lines.append(f"tags             {100 * scores['tag_accuracy']:.2f} %")
        return "\n".join(lines)

    def headline(self, scores: Mapping[str, Any]) -> dict[str, str]:
        low, high = scores["f1_interval"]
        return {
            "F1": f"{scores['f1']:.2f} [{low:.2f}, {high:.2f}]",
            "exact match": f"{100 * scores['exact_match']:.2f} %",
        }

    def look(self, run: Run, inputs: Sequence[Any], wanted: LookOptions, **decode: Setting) -> Document:
        from regard.tasks.looking.parse_runs import parse_document

        return parse_document(run, inputs, wanted, **decode)

    def held_out_data(self, run: Run, files: Sequence[str] | None, limit: int) -> HeldOutData:
        found = read_cleaned(files) if files else None
        found = found or trees_of(run.config.data, "valid") or trees_of(run.config.data, "test")
        if found is None:
            raise ConfigError("nothing to score heads by: the run names no validation or test trees; give some")
        return HeldOutTrees(run, found, limit)

    def example(self, config: RunConfig, length: int, rows: int = 1) -> Parses:
        """Flat trees: one bracket around all words."""
        labels = config.model_config().labels
        names = [label.startswith("(") for label in labels]
        opening, word = FIRST_LABEL + names.index(True), FIRST_LABEL + names.index(False)
        numbers = torch.arange(1, length + 1).expand(rows, -1).contiguous()
        target = [END, opening, *[word] * length, CLOSE, END]
        pieces = Texts(Tokens.of([[FIRST_TOKEN] * length] * rows))
        lengths = torch.full((rows,), length)
        return Parses(pieces, numbers, lengths, length, Tokens.of([target] * rows), rows * (length + 3))

    def random_batches(self, config: RunConfig, count: int) -> tuple[RunConfig, Objective, list[Parses]]:
        config = config.with_stand_ins()
        if not config.model.get("labels"):
            config = replace(config, model={**config.model, "labels": list(STAND_INS)})
        length = config.data.max_len
        rows = max(1, config.train.batch_tokens // (2 * length + 4))
        return config, self.objective(config), [self.example(config, length, rows) for _ in range(count)]


TASK = ParsingTask()
