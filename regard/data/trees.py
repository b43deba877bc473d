"""Constituency trees: bracketed files to trees, and trees to the symbols that a parser writes and back."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from jaxtyping import Int

from regard.data.batches import epoch_order, evaluation_order, padded
from regard.data.formats import check_file, whole_lines
from regard.data.pair_store import Rows
from regard.data.synthetic.world.corpus import Split, sentences
from regard.errors import DataError
from regard.nn.batch import CLOSE, FIRST_LABEL, Parses, Texts
from regard.text.encoder_inputs import InputBuilder

Terminals = Literal["tags", "XX"]
ROOTS = frozenset(("", "TOP", "ROOT", "S1"))
"""Labels of what stands above a sentence: one with a single constituent below is left out."""
TOP = "TOP"
EMPTY = "-NONE-"
"""The tag of a trace: a place in the sentence where no word stands."""
XX = "XX"
SUFFIXES = frozenset((".mrg", ".trees"))
"""Names of bracketed files end so; those of plain text may not."""
DEEPEST = 250
"""Constituents inside one another that a file may have."""

_MARKS = re.compile(r"[()]|[^\s()]+")
_FUNCTION = re.compile(r"(?<!^)[-=].*")


@dataclass(frozen=True, slots=True)
class Tree:
    """A constituent: its label, and what it is made of; a part of speech has one word instead."""

    label: str
    children: tuple["Tree", ...] = ()
    word: str | None = None

    def __str__(self) -> str:
        if self.word is not None:
            return f"({self.label} {self.word})"
        return f"({self.label} {' '.join(map(str, self.children))})"

    def leaves(self) -> "Iterator[Tree]":
        """The parts of speech, each with its word."""
        if self.word is not None:
            yield self
        for child in self.children:
            yield from child.leaves()

    @property
    def words(self) -> tuple[str, ...]:
        return tuple(leaf.word or "" for leaf in self.leaves())

    @property
    def tags(self) -> tuple[str, ...]:
        return tuple(leaf.label for leaf in self.leaves())


def read_trees(path: Path) -> Iterator[Tree]:
    """The trees of a bracketed file as they stand there, however they lie over its lines."""
    for _, tree in numbered_trees(path):
        yield tree


def numbered_trees(path: Path) -> Iterator[tuple[int, Tree]]:
    """The same, each with the line that it begins at."""
    check_file(path)
    found = False
    for start, tree in _trees(path, whole_lines(path)):
        found = True
        yield start, tree
    if not found:
        raise DataError(f"{path} has no tree: it must hold trees in brackets, as (S (NP (DT the) (NN dog)) ...)")


def tree_of(text: str) -> Tree:
    """The one tree that a text holds."""
    trees = [tree for _, tree in islice(_trees("the text", enumerate(text.splitlines(), 1)), 2)]
    if len(trees) != 1:
        raise DataError(f"the text must hold one tree in brackets: {text[:60]}")
    return trees[0]


@dataclass(slots=True)
class _Open:
    """A bracket that is not closed yet."""

    line: int
    label: str | None
    parts: list[Tree]
    word: str | None = None


def _trees(path: Path | str, lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, Tree]]:
    stack: list[_Open] = []
    suspect = 0
    for number, line in lines:
        if stack and not suspect and line.startswith("("):
            suspect = number  # a tree that is not closed swallows the next, which often begins a line
        for mark in _MARKS.findall(line):
            where = f"{path}, line {number}"
            if mark == "(":
                if stack and stack[-1].word is not None:
                    raise DataError(f"{where}: a bracket opens after the word '{stack[-1].word}', which stands alone")
                if len(stack) >= DEEPEST:
                    raise DataError(f"{where}: more than {DEEPEST} brackets stand inside one another")
                if stack and stack[-1].label is None:
                    stack[-1].label = ""
                stack.append(_Open(number, None, []))
            elif mark == ")":
                if not stack:
                    raise DataError(f"{where}: a bracket closes that was never opened")
                done = stack.pop()
                if done.label is None or not (done.parts or done.word is not None):
                    raise DataError(f"{where}: a bracket with nothing in it: ({done.label or ''})")
                tree = Tree(done.label, tuple(done.parts), done.word)
                if stack:
                    stack[-1].parts.append(tree)
                else:
                    yield done.line, tree
                    suspect = 0
            elif not stack:
                raise DataError(f"{where}: '{mark[:40]}' stands outside of any tree")
            elif stack[-1].label is None:
                stack[-1].label = mark
            elif stack[-1].word is None and not stack[-1].parts:
                stack[-1].word = mark
            else:
                raise DataError(f"{where}: '{mark[:40]}' must stand in brackets of its own, with its part of speech")
    if stack:
        hint = f"; another seems to begin at line {suspect}" if suspect else ""
        raise DataError(f"{path}, line {stack[0].line}: the tree that begins here is not closed by the end{hint}")


def bare_label(label: str) -> str:
    """The label without function tags and indices: NP-SBJ-1 and NP=2 are NP; -LRB- stays as it is."""
    return label if label.startswith("-") else _FUNCTION.sub("", label)


def cleaned(tree: Tree) -> Tree | None:
    """The tree as it is parsed: without traces, function tags and what stands above the sentence.

    None where no word is left. A root of several constituents, or of one word, is called TOP.
    """
    bare = _without_traces(tree)
    if bare is None:
        return None
    while bare.label in ROOTS and len(bare.children) == 1 and bare.children[0].word is None:
        bare = bare.children[0]
    if bare.word is not None:
        return Tree(TOP, (bare,))
    return Tree(TOP, bare.children) if bare.label in ROOTS else bare


def _without_traces(tree: Tree) -> Tree | None:
    if tree.word is not None:
        return None if tree.label == EMPTY else Tree(bare_label(tree.label), (), tree.word)
    children = tuple(child for child in map(_without_traces, tree.children) if child is not None)
    return Tree(bare_label(tree.label), children) if children else None


def read_cleaned(paths: Iterable[str | Path]) -> list[Tree]:
    """The trees of these files as they are parsed; those without a word are left out."""
    found = [tree for path in paths for tree in map(cleaned, read_trees(Path(path))) if tree is not None]
    if not found:
        raise DataError("no tree of these files has a word")
    return found


def grammar_trees(count: int, *, seed: int, split: Split) -> Iterator[Tree]:
    """Trees of the bundled grammar's English sentences, the same for the same seed and split."""
    return (tree_of(sentence.tree) for sentence in sentences(count, seed=seed, split=split))


def symbols_of(trees: Iterable[Tree], terminals: Terminals) -> tuple[str, ...]:
    """The symbols of these trees beside END and CLOSE: what stands for a word, then brackets with their labels."""
    words, brackets = set(), set()

    def visit(tree: Tree) -> None:
        if tree.word is not None:
            words.add(tree.label)
            return
        brackets.add("(" + tree.label)
        for child in tree.children:
            visit(child)

    for tree in trees:
        visit(tree)
    return (*((XX,) if terminals == "XX" else sorted(words)), *sorted(brackets))


def linearised(tree: Tree, symbols: Mapping[str, int]) -> list[int] | str:
    """The tree as symbols: a bracket with its label, what stands for each word, and brackets that close.

    Where the tree has something that `symbols` has not, its name instead.
    """
    if tree.word is not None:
        found = symbols.get(tree.label, symbols.get(XX))
        return tree.label if found is None else [found]
    opened = symbols.get("(" + tree.label)
    if opened is None:
        return tree.label
    row = [opened]
    for child in tree.children:
        below = linearised(child, symbols)
        if isinstance(below, str):
            return below
        row += below
    return [*row, CLOSE]


def tree_from(choices: Sequence[int], labels: Sequence[str], words: Sequence[str]) -> Tree:
    """The tree that these symbols write over the words."""
    stack: list[tuple[str, list[Tree]]] = [("", [])]
    rest = iter(words)
    for choice in choices:
        if choice == CLOSE:
            label, children = stack.pop()
            stack[-1][1].append(Tree(label, tuple(children)))
        elif (name := labels[choice - FIRST_LABEL]).startswith("("):
            stack.append((name[1:], []))
        else:
            stack[-1][1].append(Tree(name, (), next(rest)))
    assert len(stack) == 1, "every bracket is closed"
    assert len(stack[0][1]) == 1, "one tree over all words"
    assert next(rest, None) is None, "over exactly these words"
    return stack[0][1][0]


def most_brackets(row: Sequence[int], labels: Sequence[str]) -> tuple[int, int]:
    """How deep brackets stand inside one another, and the most that open between two words."""
    depth = deepest = opened = most = 0
    for choice in row:
        if choice == CLOSE:
            depth -= 1
        elif labels[choice - FIRST_LABEL].startswith("("):
            depth, opened = depth + 1, opened + 1
            deepest, most = max(deepest, depth), max(most, opened)
        else:
            opened = 0
    return deepest, most


_WRITTEN = {"(": "-LRB-", ")": "-RRB-", "[": "-LSB-", "]": "-RSB-", "{": "-LCB-", "}": "-RCB-"}
_READ = {written: word for word, written in _WRITTEN.items()} | {"``": '"', "''": '"', "`": "'", "\\/": "/"}


def escaped(word: str) -> str:
    """The word as it can stand in brackets: ( is -LRB-, as in treebanks."""
    return _WRITTEN.get(word, word.replace("(", "-LRB-").replace(")", "-RRB-"))


def as_read(word: str) -> str:
    """The word as a model reads it: treebanks' -LRB- as (, and their quotation marks as everyone's."""
    return _READ.get(word, word.replace("\\/", "/"))


@dataclass(frozen=True, slots=True)
class SourceRow:
    """A sentence as an encoder reads it: its pieces, their segments, and the word of each; -1 for special tokens."""

    ids: list[int]
    segments: list[int]
    words: list[int]


def source_row(builder: InputBuilder, words: Sequence[str]) -> SourceRow:
    """The words of a sentence in one row, however long that is."""
    words = [as_read(word) for word in words]
    text = " ".join(words)
    ids, spans = builder.tokenizer.encode(text), builder.tokenizer.offsets(text)
    word_of = [place for place, word in enumerate(words) for _ in range(len(word) + 1)]
    of = iter([word_of[max(start, stop - 1)] for start, stop in spans])
    row = builder.template.build(ids)
    return SourceRow(row.ids, row.segments, [next(of) if source == 0 else -1 for source in row.sources])


@dataclass(frozen=True)
class TreeRows:
    """Sentences as rows of pieces and, where they are known, their trees as rows of symbols from END to END."""

    pieces: Rows
    words: Rows
    """The word of each piece, counted from 1; 0 for special tokens."""
    counts: Int[np.ndarray, " N"]
    targets: Rows | None

    @classmethod
    def of(
        cls, rows: Sequence[SourceRow], counts: Sequence[int], targets: Sequence[Sequence[int]] | None, pad: int
    ) -> "TreeRows":
        return cls(
            Rows.of([row.ids for row in rows], pad),
            Rows.of([[word + 1 for word in row.words] for row in rows]),
            np.array(counts, dtype=np.int64),
            None if targets is None else Rows.of(targets),
        )

    def __len__(self) -> int:
        return len(self.counts)

    @property
    def target_lengths(self) -> Int[np.ndarray, " N"]:
        return np.zeros_like(self.pieces.lengths) if self.targets is None else self.targets.lengths

    def batch(self, chosen: np.ndarray) -> Parses:
        target = None if self.targets is None else padded(self.targets, chosen)
        count = 0 if target is None else int(target.lengths.sum()) - len(chosen)
        lengths = self.counts[chosen]
        words = padded(self.words, chosen).ids
        source = Texts(padded(self.pieces, chosen))
        return Parses(source, words, torch.from_numpy(lengths), int(lengths.max()), target, count)

    def evaluation(self, budget: int) -> Iterator[Parses]:
        """Every row once, shortest first."""
        longest = int((self.pieces.lengths + self.target_lengths).max())
        for chosen in evaluation_order(self.pieces.lengths, self.target_lengths, budget=max(budget, longest)):
            yield self.batch(chosen)


class TreeLayout:
    """Batches of at most `budget` pieces and symbols, padding included."""

    def __init__(self, rows: TreeRows, budget: int) -> None:
        self.rows, self.budget = rows, budget

    def order(self, seed: int, epoch: int) -> list[np.ndarray]:
        lengths = self.rows.pieces.lengths, self.rows.target_lengths
        return epoch_order(*lengths, budget=self.budget, seed=seed, epoch=epoch)

    def batch(self, rows: np.ndarray) -> Parses:
        return self.rows.batch(rows)
