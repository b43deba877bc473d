"""What attention heads are tested by: probes, inputs with the right places to look, and held-out data with a score."""

import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
from torch import nn

from regard.data import Documents
from regard.data.dependencies import DependencyParse, dependencies
from regard.data.file_names import is_there
from regard.data.labelled_texts import Example, Question, Tagged
from regard.data.sentence_store import split_sentences
from regard.data.synthetic.world.sentence import ParallelSentence, spans
from regard.data.trees import SUFFIXES, read_trees
from regard.errors import ConfigError, DataError
from regard.look.alignment import words_of_pieces
from regard.look.roles import (
    RoleQuestion,
    at_landmarks,
    at_rare,
    at_separators,
    by_alignment,
    by_position,
    by_relation,
    by_repetition,
    by_sentence,
)
from regard.nn.batch import Texts, Tokens
from regard.tasks.corpora import TextData, sides_of
from regard.tasks.run import Run
from regard.tasks.translation_metrics import words_by_piece
from regard.tasks.translator import encode_pair, words_of_row
from regard.text.encoder_inputs import EncoderInput
from regard.training.loop import validate
from regard.training.objectives import Objective

Kind = Literal["encoder", "decoder", "cross"]
Labelled = Example | Tagged | Question
"""A text of a file that an encoder is fine-tuned on."""
WINDOW = 64
"""Tokens of running text that are looked at together."""


COUNTED = 20_000
"""Sentences of the training text by which words are rare or not."""


def split_words(text: str) -> list[str]:
    """The words of a text in any language that puts space between them, each punctuation mark by itself."""
    return re.findall(r"\w+(?:[-'’]\w+)*|[^\w\s]", text)


def files_are_there(files: Sequence[str]) -> bool:
    """Whether a run's training files still are where it read them; none at all are always there."""
    return all(is_there(name) for name in files)


@dataclass(frozen=True, slots=True)
class Probe:
    """One input, ready to be asked about: token rows, the place of every row and column, and the questions.

    `rows` are source and target of a pair; of a language model the text alone; of an encoder the text and its segments.
    Of an image or a sound, of which a text is written, the source is `given`: its pixels, or its frames.
    """

    rows: tuple[list[int], list[int]]
    places: dict[Kind, tuple[list[int], list[int], int, int]]
    questions: dict[Kind, list[RoleQuestion]]
    gold: ParallelSentence | None = None
    given: np.ndarray | None = None


def written_probe(
    given: np.ndarray,
    row: list[int],
    places: int,
    encoder: Iterable[RoleQuestion],
    cross: Iterable[RoleQuestion] | None = None,
) -> Probe:
    """An input that is no text, of which a model reads so many `places`, with the row of tokens that is written of it.

    Its decoder is asked for neighbours and for tokens that came before; its cross-attention where answers are known.
    """
    steps, seen = list(range(len(row) - 1)), list(range(places))
    T = len(steps)
    decoder = [*by_position(T, causal=True), *at_landmarks(T, T, apart=True, causal=True), *by_repetition(row[:-1])]
    questions: dict[Kind, list[RoleQuestion]] = {"encoder": list(encoder), "decoder": decoder}
    if cross is not None:
        questions["cross"] = list(cross)
    sides: dict[Kind, tuple[list[int], list[int], int, int]] = {
        "encoder": (seen, seen, places, places),
        "decoder": (steps, steps, T, T),
        "cross": (steps, seen, T, places),
    }
    return Probe(([], row), sides, questions, given=given)


def by_pronoun(gold: ParallelSentence, places: int) -> dict[Kind, list[RoleQuestion]]:
    """Of each pronoun its noun: asked of itself, and of the step that writes it, for the noun and its translation."""
    found: dict[Kind, list[RoleQuestion]] = {"encoder": [], "decoder": [], "cross": []}
    for one in gold.pronouns:
        noun = frozenset({one.antecedent})
        # The decoder's first place is what it begins with, so a word that it has read stands one further on.
        written = frozenset(there + 1 for here, there in gold.alignment if here in noun and there < one.french)
        found["encoder"].append(RoleQuestion("pronoun", one.english, noun, places))
        found["cross"].append(RoleQuestion("pronoun", one.french, noun, places))
        if written:
            found["decoder"].append(RoleQuestion("pronoun", one.french, written, one.french + 1))
    return found


def running_text_probes(run: Run, documents: Documents, limit: int) -> list[Probe]:
    """Windows of the text, and beside them random tokens said twice, which ask what only their order can answer.

    In running text a word that comes again is often one that comes often. So where a token stood before, and what came
    after it there, is asked of random tokens in a stretch that comes twice, of another length every time.
    """
    tokenizer = run.vocabularies.target
    length = min(WINDOW, run.config.data.max_len)
    ids = (token for text in documents.texts() for token in tokenizer.encode(text))
    windows = islice(iter(lambda: list(islice(ids, length)), []), limit)
    items = [_plain(row) for row in windows if len(row) > 3]
    rng = random.Random(0)
    ordinary = [token for token in range(tokenizer.vocab_size) if token not in tokenizer.specials()]
    for _ in range(len(items) // 2):
        half = rng.randrange(max(2, length // 4), max(3, length // 2 + 1))
        once = [rng.choice(ordinary) for _ in range(half)]
        items.append(_one("encoder", once + once, [], list(by_repetition(once + once, start=half))))
    # Dealt evenly to the two halves that choose and report, whatever their order.
    rng.shuffle(items)
    return items


def _plain(row: list[int]) -> Probe:
    places = len(row)
    questions = [*by_position(places, causal=True), *at_landmarks(places, places, apart=True, causal=True)]
    return _one("encoder", row, [], questions)


def labelled_text_probes(run: Run, items: Sequence[Labelled], limit: int) -> list[Probe]:
    """Labelled texts as the run reads them: a text or two per row, a sentence's words, a question with its text."""
    framer = run.encoder.framer

    def rows(item: Labelled) -> list[EncoderInput | None]:
        if isinstance(item, Example):
            return [framer.texts(item.texts[0], item.texts[1] if len(item.texts) > 1 else None)]
        if isinstance(item, Tagged):
            return [row for row, _ in framer.words(item.words)]
        return [stretch.row for stretch in framer.question(item.question, item.context)]

    framed = [row for item in islice(items, COUNTED) for row in rows(item) if row is not None]
    return _all_framed(run, framed[:limit], framed)


def framed_text_probes(run: Run, documents: Documents, limit: int) -> list[Probe]:
    """Two neighbouring sentences per row, framed as the model reads pairs."""
    framer = run.encoder.framer

    def framed(text: Documents, most: int) -> Iterator[EncoderInput]:
        return (row for pair in islice(_neighbours(text), most) if (row := framer.texts(*pair)) is not None)

    data = run.config.data
    trained = isinstance(data, TextData) and data.train and files_are_there(data.train)
    read = Documents.of(data.train, data.text, data.header) if trained else documents
    return _all_framed(run, list(framed(documents, limit)), framed(read, COUNTED // 2))


def _all_framed(run: Run, rows: Sequence[EncoderInput], counted: Iterable[EncoderInput]) -> list[Probe]:
    """The rows as probes; a token is rare by how often it stands in `counted`, the training text where it is there."""
    counts = Counter(
        token for row in counted for token, source in zip(row.ids, row.sources, strict=True) if source >= 0
    )
    return [_framed(run, row, counts) for row in rows]


def _neighbours(documents: Documents) -> Iterator[tuple[str, str]]:
    for text in documents.texts():
        sentences = [sentence for line in text.splitlines() for sentence in split_sentences(line)]
        yield from islice(pairwise(sentences), 0, None, 2)


def _framed(run: Run, row: EncoderInput, counts: Counter[int]) -> Probe:
    places = len(row.ids)
    special = [place for place, source in enumerate(row.sources) if source < 0]
    questions = [one for one in at_landmarks(places, places, apart=True) if one.role == "first"]
    questions += [*by_position(places), *at_separators(special[1:], places), *by_sentence(row.sources)]
    # A special token is no word, whatever letters its name has.
    pieces = ["" if place in special else piece for place, piece in enumerate(run.encoder.tokenizer.pieces(row.ids))]
    often = {piece: counts[token] for piece, token in zip(pieces, row.ids, strict=True)}
    questions += at_rare(pieces, often, places, apart=True, places=places)
    return _one("encoder", list(row.ids), list(row.segments), questions)


def _one(kind: Kind, row: list[int], beside: list[int], questions: list[RoleQuestion]) -> Probe:
    """An input whose places are its tokens."""
    own = list(range(len(row)))
    return Probe((row, beside), {kind: (own, own, len(row), len(row))}, {kind: questions})


def framed_probe_batch(run: Run, items: Sequence[Probe]) -> Texts:
    """Framed texts as a batch, on the model's device."""
    tokens = Tokens.of([item.rows[0] for item in items], run.vocabularies.source.pad)
    segments = Tokens.of([item.rows[1] for item in items]).ids if run.encoder.segmented else None
    return Texts(tokens, segments).to(run.device)


def pair_probe(run: Run, given: ParallelSentence | tuple[str, str], counts: dict[str, int]) -> Probe:
    """A sentence of the bundled corpus, or a pair of texts, with everything that can be asked of it."""
    gold, english = given if isinstance(given, ParallelSentence) else None, run.config.data.source == "en"
    if isinstance(given, ParallelSentence):
        texts, words, alignment = sides_of(given, "en" if english else "fr")
    else:
        texts, words, alignment = given, (split_words(given[0]), split_words(given[1])), ()
    rows = encode_pair(run, *texts)
    pieces = words_by_piece(run, texts, words)
    sources, targets = len(words[0]), len(words[1])
    # Special tokens are places of their own: the source ends with one, the decoder's input begins with one.
    source = [*pieces[0], sources]
    reads = [0, *(None if word is None else word + 1 for word in pieces[1])]
    predicts = [*pieces[1], targets]
    places: dict[Kind, Any] = {
        "encoder": (source, source, sources + 1, sources + 1),
        "decoder": (reads, reads, targets + 1, targets + 1),
        "cross": (predicts, source, targets + 1, sources + 1),
    }
    lowered = [word.lower() for word in words[0]]
    S = sources + 1
    encoder = [*by_position(S), *at_landmarks(sources, S, apart=True)]
    encoder += at_rare(lowered, counts, sources, apart=True, places=S)
    decoder = [*by_position(targets + 1, causal=True), *at_landmarks(targets + 1, targets + 1, apart=True, causal=True)]
    decoder += by_repetition([None, *(word.lower() for word in words[1])])
    cross = [*at_landmarks(targets, S, apart=False), *at_rare(lowered, counts, targets, apart=False, places=S)]
    if gold is not None:
        cross += by_alignment(alignment, S)
        if english:
            encoder += by_relation(gold.heads, gold.relations, S)
            about = by_pronoun(gold, S)
            encoder, decoder, cross = encoder + about["encoder"], decoder + about["decoder"], cross + about["cross"]
    return Probe(rows, places, {"encoder": encoder, "decoder": decoder, "cross": cross}, gold)


def are_trees(data: object) -> bool:
    """Whether what is to be looked at are bracketed files, by their names. Trees and other data do not mix."""
    if not isinstance(data, Sequence) or not data or not all(isinstance(name, str | Path) for name in data):
        return False
    trees = [Path(name).suffix in SUFFIXES for name in data]
    if any(trees) and not all(trees):
        raise ConfigError(f"trees ({', '.join(sorted(SUFFIXES))}) and other files cannot be looked at together")
    return all(trees)


@dataclass(frozen=True, slots=True)
class SentenceRow:
    """A parsed sentence as a run reads it: its rows, the place of each piece, and how many places stand before it.

    Its places are its words, with one for what stands before them, where something does, and one for the end.
    """

    rows: tuple[list[int], list[int]]
    pieces: list[int | None]
    before: int


def sentence_as_source(run: Run, sentence: DependencyParse) -> SentenceRow | None:
    """The sentence as the source of a translation of nothing; None where it is too long."""
    rows = encode_pair(run, sentence.text, "")
    pieces = words_of_row(run.vocabularies.source, sentence.text, sentence.words)
    fits = len(rows[0]) <= run.translator.max_len
    return SentenceRow(rows, [*pieces, len(sentence.words)], 0) if fits else None


def framed_sentence(run: Run, sentence: DependencyParse) -> SentenceRow | None:
    """The sentence alone in a row of an encoder; None where it is too long."""
    row = run.encoder.framer.texts(sentence.text, overlong="skip")
    if row is None:
        return None
    offsets = run.encoder.tokenizer.offsets(sentence.text)
    words = iter(words_of_pieces(offsets, spans(sentence.text, list(sentence.words))))
    own = [next(words) if source == 0 else None for source in row.sources]
    pieces = [None if word is None else word + 1 for word in own]
    pieces[0], pieces[-1] = 0, len(sentence.words) + 1
    return SentenceRow((row.ids, row.segments), pieces, 1)


def tree_probes(
    run: Run,
    files: Sequence[str | Path],
    limit: int,
    read: Callable[[Run, DependencyParse], SentenceRow | None],
    texts: Iterable[str] | None,
) -> list[Probe]:
    """The sentences of bracketed files, read by the run's encoder and asked about their dependencies too.

    `texts` is the training text, by which words are rare; where it is None, all sentences of the files count. Sentences
    longer than the model reads are left out. A decoder is not asked: nothing says what it should write.
    """
    every = [found for name in files for tree in read_trees(Path(name)) if (found := dependencies(tree)) is not None]
    if texts is None:
        counts = Counter(word.lower() for sentence in every for word in sentence.words)
    else:
        counts = Counter(word.lower() for text in islice(texts, COUNTED) for word in split_words(text))
    rows = ((sentence, row) for sentence in every if (row := read(run, sentence)) is not None)
    probes = (_parsed(sentence, row, counts) for sentence, row in rows)
    return list(islice((one for one in probes if one is not None), limit))


def framed_tree_probes(run: Run, files: Sequence[str | Path], limit: int) -> list[Probe]:
    """The same for a run that reads texts with an encoder alone."""
    data = run.config.data
    trained = isinstance(data, TextData) and data.train and files_are_there(data.train)
    read = Documents.of(data.train, data.text, data.header).texts() if trained else None
    return tree_probes(run, files, limit, framed_sentence, read)


def _parsed(sentence: DependencyParse, row: SentenceRow, counts: Counter[str]) -> Probe | None:
    before, before_end = row.before, row.before + len(sentence.words)
    places = before_end + 1
    if len({piece for piece in row.pieces if piece is not None}) < places:
        return None  # a word without a piece of its own
    lowered = [*[""] * before, *(word.lower() for word in sentence.words)]
    questions = [*by_position(places), *at_landmarks(before_end, places, apart=True)]
    questions += at_rare(lowered, counts, before_end, apart=True, places=places)
    heads = [*[-1] * before, *(head + before if head >= 0 else -1 for head in sentence.heads)]
    questions += by_relation(heads, [*["root"] * before, *sentence.relations], places)
    sides: dict[Kind, Any] = {
        "encoder": (row.pieces, row.pieces, places, places),
        "decoder": ([0], [0], 1, 1),
        "cross": ([0], row.pieces, 1, places),
    }
    return Probe(row.rows, sides, {"encoder": questions})


HELD_OUT_BUDGET = 2048
"""Tokens of one batch, if one sequence has no more."""


class HeldOutData:
    """Held-out data as batches for the loss, and the score that counts for a task.

    `name` is the score's; `sign` is -1 where less of it is better.
    """

    name, sign = "accuracy", 1
    unsloped: str | None = None
    """Why the loss has no slope by which to rank heads, where it has none."""

    def __init__(self, run: Run, objective: Objective, batches: Sequence[Any], count: int) -> None:
        if not count:
            raise DataError("nothing to score heads by: nothing of it can be read by the model")
        self.objective, self.count = objective, count
        self.batches = [batch.to(run.device) for batch in batches]

    def values(self, model: nn.Module) -> dict[str, float]:
        """The loss and its parts, means."""
        return validate(model, self.objective, iter(self.batches), device=next(model.parameters()).device)

    def nll(self, model: nn.Module) -> float:
        """The mean negative log-likelihood of what is to be predicted."""
        return self.values(model)["nll"]

    def inputs(self, batch: Any) -> object:
        """What of a batch the model is given."""
        return batch

    def score(self, run: Run) -> float:
        """Per cent of the predictions that are right."""
        return 100 * self.values(run.model)["accuracy"]


def held_out_files(run: Run, files: Sequence[str] | None) -> Sequence[str]:
    """The files to score by: those given, or the run's own validation or test files."""
    found = files or run.config.data.valid or run.config.data.test
    if not found:
        raise ConfigError("nothing to score heads by: the run names no validation or test set; give --data")
    return found


def held_out_data(run: Run, files: Sequence[str] | None = None, limit: int = 200) -> HeldOutData:
    """The first `limit` pairs, windows, texts or images of `files`, by default of the run's own held-out ones."""
    return run.task.held_out_data(run, files, limit)
