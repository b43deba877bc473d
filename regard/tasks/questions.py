"""What can be asked of a head in running text and in framed texts, where nothing but the text itself is known."""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Any, ClassVar, Literal

from regard.data import Documents
from regard.data.labelled_texts import Example, Tagged
from regard.data.labelled_texts import Question as Asked
from regard.data.sentence_store import split_sentences
from regard.data.synthetic.world import Sentence
from regard.look.roles import (
    Question,
    at_landmarks,
    at_rare,
    at_separators,
    by_alignment,
    by_position,
    by_relation,
    by_repetition,
    by_sentence,
)
from regard.look.watch import attentions
from regard.nn.batch import Texts, Tokens
from regard.tasks.config import RunConfig
from regard.tasks.encoder import embed_texts, encoder_of, fill_text
from regard.tasks.examples import FIRST
from regard.tasks.run import Run
from regard.tasks.spec import Task
from regard.tasks.translator import encode_pair, words_of_row
from regard.text.encoder_inputs import EncoderInput

Kind = Literal["encoder", "decoder", "cross"]
Labelled = Example | Tagged | Asked
"""A text of a file that an encoder is tuned on."""
WINDOW = 64
"""Tokens of running text that are looked at together."""


@dataclass(frozen=True, slots=True)
class Looked:
    """One input, ready to be asked about: token rows, the place of every row and column, and the questions.

    `rows` are source and target of a pair; of a language model the text alone; of an encoder the text and its segments.
    """

    rows: tuple[list[int], list[int]]
    places: dict[Kind, tuple[list[int], list[int], int, int]]
    questions: dict[Kind, list[Question]]
    gold: Sentence | None = None


def by_pronoun(gold: Sentence, places: int) -> dict[Kind, list[Question]]:
    """Of each pronoun its noun: asked of itself, and of the step that writes it, for the noun and its translation."""
    found: dict[Kind, list[Question]] = {"encoder": [], "decoder": [], "cross": []}
    for one in gold.pronouns:
        noun = frozenset({one.antecedent})
        # The decoder's first place is what it begins with, so a word that it has read stands one further on.
        written = frozenset(there + 1 for here, there in gold.alignment if here in noun and there < one.french)
        found["encoder"].append(Question("pronoun", one.english, noun, places))
        found["cross"].append(Question("pronoun", one.french, noun, places))
        if written:
            found["decoder"].append(Question("pronoun", one.french, written, one.french + 1))
    return found


def of_running_text(run: Run, documents: Documents, limit: int) -> list[Looked]:
    """Windows of the text, and beside them random tokens said twice, which ask what only their order can answer.

    In running text a word that comes again is often one that comes often. So where a token stood before, and what came
    after it there, is asked of random tokens in a stretch that comes twice, of another length every time.
    """
    tokenizer = run.vocabularies.target
    length = min(WINDOW, run.config.data.max_len)
    ids = (token for text in documents.texts() for token in tokenizer.encode(text))
    windows = islice(iter(lambda: list(islice(ids, length)), []), limit)
    items = [_plain(row) for row in windows if len(row) > 3]
    draw = random.Random(0)
    ordinary = [token for token in range(tokenizer.vocab_size) if token not in tokenizer.specials()]
    for _ in range(len(items) // 2):
        half = draw.randrange(max(2, length // 4), max(3, length // 2 + 1))
        once = [draw.choice(ordinary) for _ in range(half)]
        items.append(_one("encoder", once + once, [], list(by_repetition(once + once, start=half))))
    # Dealt evenly to the two halves that choose and report, whatever their order.
    draw.shuffle(items)
    return items


def _plain(row: list[int]) -> Looked:
    places = len(row)
    questions = [*by_position(places, causal=True), *at_landmarks(places, places, apart=True, causal=True)]
    return _one("encoder", row, [], questions)


def of_labelled_texts(run: Run, items: Sequence[Labelled], limit: int) -> list[Looked]:
    """Labelled texts as the run reads them: a text or two a row, a sentence's words, a question with its text."""
    framer = run.encoder.framer

    def rows(item: Labelled) -> list[EncoderInput | None]:
        if isinstance(item, Example):
            return [framer.texts(item.texts[0], item.texts[1] if len(item.texts) > 1 else None)]
        if isinstance(item, Tagged):
            return [row for row, _ in framer.words(item.words)]
        return [stretch.row for stretch in framer.question(item.question, item.context)]

    framed = [row for item in items for row in rows(item) if row is not None]
    return _all_framed(framed[:limit])


def of_framed_texts(run: Run, documents: Documents, limit: int) -> list[Looked]:
    """Two neighbouring sentences per row, framed as the model reads pairs."""
    framer = run.encoder.framer
    rows = [row for pair in islice(_neighbours(documents), limit) if (row := framer.texts(*pair)) is not None]
    return _all_framed(rows)


def _all_framed(rows: Sequence[EncoderInput]) -> list[Looked]:
    counts = Counter(token for row in rows for token, source in zip(row.ids, row.sources, strict=True) if source >= 0)
    return [_framed(row, counts) for row in rows]


def _neighbours(documents: Documents) -> Iterator[tuple[str, str]]:
    for text in documents.texts():
        sentences = [sentence for line in text.splitlines() for sentence in split_sentences(line)]
        yield from islice(pairwise(sentences), 0, None, 2)


def _framed(row: EncoderInput, counts: Counter[int]) -> Looked:
    places = len(row.ids)
    special = [place for place, source in enumerate(row.sources) if source < 0]
    questions = [one for one in at_landmarks(places, places, apart=True) if one.role == "first"]
    questions += [*by_position(places), *at_separators(special[1:], places), *by_sentence(row.sources)]
    often = {str(token): counts[token] for token in row.ids} | {str(row.ids[place]): 1 << 30 for place in special}
    questions += at_rare(list(map(str, row.ids)), often, places, apart=True, places=places)
    return _one("encoder", list(row.ids), list(row.segments), questions)


def _one(kind: Kind, row: list[int], beside: list[int], questions: list[Question]) -> Looked:
    """An input whose places are its tokens."""
    own = list(range(len(row)))
    return Looked((row, beside), {kind: (own, own, len(row), len(row))}, {kind: questions})


def framed_batch(run: Run, items: Sequence[Looked]) -> Texts:
    """EncoderInput texts as a batch, on the model's device."""
    tokens = Tokens.of([item.rows[0] for item in items], run.vocabularies.source.pad)
    segments = Tokens.of([item.rows[1] for item in items]).ids if run.encoder.segmented else None
    return Texts(tokens, segments).to(run.device)


def pair_questions(run: Run, given: Any, counts: dict[str, int]) -> Looked:
    """A sentence of the bundled corpus, or a pair of texts, with everything that can be asked of it."""
    gold: Sentence | None = given if isinstance(given, Sentence) else None
    english = run.config.data.source == "en"
    texts: Any = given
    words: tuple[Sequence[str], Sequence[str]] = ((), ())
    if gold is not None:
        texts = (gold.english, gold.french) if english else (gold.french, gold.english)
        words = (gold.english_words, gold.french_words) if english else (gold.french_words, gold.english_words)
    else:
        words = (texts[0].split(), texts[1].split())
    rows = encode_pair(run, *texts)
    vocabularies = run.vocabularies
    pieces = [
        words_of_row(tokenizer, text, side)
        for tokenizer, text, side in zip((vocabularies.source, vocabularies.target), texts, words, strict=True)
    ]
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
        pairs = gold.alignment if english else [(there, here) for here, there in gold.alignment]
        cross += by_alignment(pairs, S)
        if english:
            encoder += by_relation(gold.heads, gold.relations, S)
            about = by_pronoun(gold, S)
            encoder, decoder, cross = encoder + about["encoder"], decoder + about["decoder"], cross + about["cross"]
    return Looked(rows, places, {"encoder": encoder, "decoder": decoder, "cross": cross}, gold)


class EncoderTask(Task):
    """What the tasks have in common whose model is an encoder of texts."""

    parts: ClassVar = {"encoder": encoder_of}
    methods: ClassVar = {"embed": embed_texts, "fill": fill_text}

    def look(self, run: Run, inputs: Sequence[Any], wanted: Any, **decode: Any) -> Any:
        from regard.tasks.looking.encoder import encoder

        return encoder(run, inputs, wanted, **decode)

    def looks(self, run: Run) -> bool:
        return bool(attentions(run.model))

    def batch_of(self, run: Run, items: Sequence[Looked]) -> Texts:
        return framed_batch(run, items)

    def example(self, config: RunConfig, length: int, rows: int = 1) -> Any:
        return Texts(Tokens.of([[FIRST] * length] * rows))
