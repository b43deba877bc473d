"""Labelled texts: what classes, tags and answers are recognised by, and how runs on them are planned."""

import math
from collections.abc import Iterable, Sequence
from itertools import islice, takewhile
from pathlib import Path
from typing import Any

from regard.config import JsonObject
from regard.data.formats import format_of, lines
from regard.data.inspection import LabelledStatistics, inspect_labelled
from regard.data.inspection.findings import counted
from regard.data.inspection.first_rows import PEEKED
from regard.data.labelled_texts import (
    TAGS,
    WORDS,
    Example,
    Question,
    Tagged,
    class_folders,
    class_part,
    names_words,
    word_cells,
)
from regard.errors import DataError
from regard.metrics.classification_metrics import marks_entities
from regard.tasks.corpora import PARTS
from regard.tasks.planning import Choices, Decisions, Machine, Recipe, Recognised, between, r_drop_why
from regard.tasks.plans.columns import (
    DataColumn,
    all_columns,
    columns,
    label_column,
    plain,
    regression,
    second_text,
    tabular,
)
from regard.text.config import SPECIALS

FEW_TUNED = 20_000
"""Rows below which a trained encoder may read them more than three times: 300 texts of SST-2 gave 65 % in 3 epochs and
77 % in 20, 2,000 gave 82 % in 3 and 83 % in 9."""

FEWEST_TEXTS, SHORT_TEXT = 5, 10_000
"""Files of a class, and their bytes in the mean, by which folders of texts are told from those of chapters."""

SHARED = 30
"""Texts, at the least, by which rows that share them can be split."""

FILMS = Recipe(
    "SST-2",
    640_000,
    {
        "tokenizer.vocab_size": 8000,
        "model.width": 256,
        "model.layers": 4,
        "model.feed_forward": 1024,
        "model.dropout": 0.3,
        "train.learning_rate": 5e-4,
        "train.batch_tokens": 4096,
        "train.r_drop": 1.0,
    },
)
FILMS_ON_CPU = Recipe(
    "SST-2",
    640_000,
    {
        "tokenizer.vocab_size": 8000,
        "model.width": 128,
        "model.layers": 2,
        "model.feed_forward": 256,
        "model.dropout": 0.3,
        "train.learning_rate": 1e-3,
        "train.batch_tokens": 1024,
        "train.r_drop": 0.0,
    },
)


def recognise_classes(files: Sequence[Path]) -> Recognised | None:
    """A table or records with a column of labels beside one or two of texts, or a folder of texts for each class."""
    if len(files) == 1 and files[0].is_dir():
        return _recognise_class_folders(files[0])
    if not all(map(tabular, files)):
        return None
    found, _ = columns(files[0])
    label = label_column(found)
    if label is None or label.lists or regression(found):
        return None
    beside = [column for column in found if column is not label and column.textual and not _small(column)]
    texts = [column for column in beside if not column.label_like and not column.codes] or beside
    if not 1 <= len(texts) <= 2:
        return None
    first, second = (texts[0], texts[1] if len(texts) == 2 else None)
    if second is not None and second_text(first):
        first, second = second, first
    labels = len({str(value) for value in label.values})
    data: JsonObject = {"text": first.key, "label": label.key} | ({"pair": second.key} if second else {})
    what = "pairs of texts" if second else "texts"
    # Rows may be sorted by their label: the first of them have one.
    each = f"one of {labels} labels" if labels > 1 else "a label"
    read = {label.key, *(column.key for column in texts)}
    left = [column for column in all_columns(files[0])[0] if column.key not in {*read, ""}]
    return Recognised(certainty=0.85, why=f"{what} with {each} each{_left_out(left)}", data=data)


def _recognise_class_folders(folder: Path) -> Recognised | None:
    """Folders of short texts; of long ones they may as well be those of chapters."""
    parts = {part: class_part(folder, part) for part in PARTS}
    found = class_folders(parts["train"] or folder)
    files = [file for inside in found.values() for file in inside]
    if sum(len(inside) >= FEWEST_TEXTS for inside in found.values()) < 2:
        return None
    if sum(file.stat().st_size for file in files) > SHORT_TEXT * len(files):
        return None
    said = f"a folder of {len(found)} folders of texts, one for each class ({_some([*found])}), a text in each file"
    named = []
    for part, one in parts.items():
        if one is not None and part != "train":
            lacks = sorted({*found} - {*class_folders(one)})
            without = f", which has no {_some(lacks)} (if that is no class, move its folder elsewhere)"
            named.append(f"{one.name} for {part}" + without * bool(lacks))
    return Recognised(
        certainty=0.85,
        why=f"{said}{'; ' * bool(named)}{', '.join(named)}; --set task=language reads them as running text",
    )


def _left_out(columns: Sequence[DataColumn]) -> str:
    """Which columns are not read, first those that could be the label too."""
    labels = [column.title for column in columns if column.label_like]
    others = [column.title for column in columns if not column.label_like]
    said = f"; could be the label too: {_some(labels)} (data.label chooses)" if labels else ""
    return said + (f"; not read: {_some(others)}" if others else "")


def _some(names: Sequence[str]) -> str:
    return ", ".join([*names[:6], f"{len(names) - 6} more"] if len(names) > 7 else names)


def _small(column: DataColumn) -> bool:
    """Whether a column holds numbers, as an index does."""
    return all(text.strip().isdigit() for text in column.texts)


def recognise_tags(files: Sequence[Path]) -> Recognised | None:
    """Lists of words and of tags, or a word and its tag on each line and a blank line between sentences."""
    if not all(map(plain, files)) and not all(map(tabular, files)):
        return None
    if format_of(files[0]) in ("jsonl", "parquet"):
        found, _ = columns(files[0])
        named = {column.name: column for column in found if column.lists}
        words, tags = (next((name for name in names if name in named), None) for names in (WORDS, TAGS))
        if words and tags:
            return Recognised(certainty=0.95, why="lists of words and of tags", data={"text": words, "label": tags})
        return None
    format = format_of(files[0])
    rows = list(islice(lines(files[0]), PEEKED))
    cells = [word_cells(row, format) for row in rows if row.strip()]
    blank = len(rows) - len(cells)
    if not blank or len(cells) < 8 or {len(row) for row in cells} - {len(cells[0])} or len(cells[0]) < 2:
        return None
    # A table may have a blank line by mistake, mostly at its end; sentences seldom have more than a hundred words.
    inside = blank - sum(1 for _ in takewhile(lambda row: not row.strip(), reversed(rows)))
    one_word = all(len(row[0].split()) == 1 for row in cells)
    if format != "lines" and (not one_word or inside < max(1, len(cells) / 100)):
        return None
    named = names_words(cells[0])
    tags = {row[-1] for row in cells[named:]}
    if not 1 < len(tags) <= max(3, len(cells) / 5):
        return None
    why = "a word and its tag on each line, and a blank line after each sentence"
    if (width := len(cells[0])) > 2:
        why += f"; of {width} columns the first and the last are read"
    return Recognised(certainty=0.9, why=why + "; the first line names the columns" * named)


def recognise_answers(files: Sequence[Path]) -> Recognised | None:
    """Contexts with questions and answers."""
    if not all(map(tabular, files)):
        return None
    found, _ = columns(files[0])
    named = {column.name.casefold(): column.key for column in found}
    answer = next((named[name] for name in ("answer", "answers") if name in named), None)
    if "context" not in named or "question" not in named or answer is None:
        return None
    keys = {"text": named["context"], "pair": named["question"], "label": answer}
    return Recognised(certainty=0.97, why="contexts with questions and answers", data=keys)


def labelled_statistics(
    train: Iterable[Any], valid: Iterable[Any] | None, test: Iterable[Any] | None, *, classes: bool
) -> LabelledStatistics:
    """One look at items of any labelled task: of tags the words, of questions the contexts."""
    checked, tested = (None if part is None else map(_flat, part) for part in (valid, test))
    return inspect_labelled(map(_flat, train), checked, tested, classes=classes)


def _flat(item: Any) -> tuple[tuple[str, ...], str]:
    if isinstance(item, Example):
        return item.texts, item.label
    if isinstance(item, Tagged):
        return (" ".join(item.words),), "entities" if marks_entities(item.tags) else "tags"
    assert isinstance(item, Question)
    return (item.context, item.question), "answered" if item.start >= 0 else "unanswered"


def plan_labelled(found: LabelledStatistics, machine: Machine, base: JsonObject | None, *, head: str) -> Choices:
    """From a pre-trained encoder what `bert-tune` does, from nothing a small one with much dropout."""
    if head == "classes" and len(found.labels) == 1:
        raise DataError(
            f"every label is '{next(iter(found.labels))}': there is nothing to tell apart; give texts with other "
            f"labels too, or name the column of labels, as --set data.label=3"
        )
    gpu = machine.gpu is not None
    decide = Decisions()
    if not found.valid_rows:
        _held_out(decide, found)
    _lengths(decide, found, head, 256 if gpu else 128, 512 if base is None else int(base["model"].get("max_len", 512)))
    if base is None:
        most = _from_nothing(decide, found, head, FILMS if gpu else FILMS_ON_CPU)
    else:
        most = _from_encoder(decide, found, head, gpu=gpu)
    decide.usual(optimizer="adamw", schedule="linear", betas=[0.9, 0.999], epsilon=1e-6, weight_decay=0.01)
    decide.usual(smoothing=0.0)
    marked = head == "spans" or (head == "tags" and "tags" not in found.labels)
    decide("train.select_by", "f1" if marked else "accuracy", "the score that matters, rather than the loss")
    decide.keep_best()
    first = ", ".join(f"{name} {count:,}" for name, count in [*found.labels.items()][:6])
    classes = f": {first}" if head == "classes" else ""
    facts = (f"{counted(found.rows, 'row')} of {found.text.mean_words:.1f} words{classes}",)
    unused = ("test",) if found.test_withheld else ()
    return Choices(decisions=tuple(decide.made), facts=facts, most_epochs=most, more_epochs=True, unused_parts=unused)


def _held_out(decide: Decisions, found: LabelledStatistics) -> None:
    share = round(min(0.1, max(0.01, 1000 / max(1, found.rows))), 4)
    why = f"no validation texts were given: some {share * found.rows:,.0f}, each with its copies"
    decide("data.held_out", share, why)
    if SHARED <= found.first_texts < 0.99 * found.rows:
        why = f"{found.rows:,} rows have {found.first_texts:,} first texts: all rows of one text are on one side"
        decide("data.held_out_by", "text", why)


def _lengths(decide: Decisions, found: LabelledStatistics, head: str, most: int, reads: int) -> None:
    """How much of a text is read, of `most` tokens that pay and those that the model `reads`."""
    if head == "spans":
        decide("data.max_len", min(256, reads), "a longer context is read in stretches")
        return
    longest = 2 ** math.ceil(math.log2(max(16.0, 1.6 * found.text.most_words + 4)))
    length = min(most, int(longest), reads)
    why = f"the longest text has {found.text.most_words:,} words"
    if head == "classes" and found.text.most_words > length:
        why += f": of those of more than {length} tokens only the beginning is read, and they are counted"
    decide("data.max_len", length, why)
    if head == "classes":
        decide("data.overlong", "truncate", "the beginning of a long text tells its class too")


def _from_nothing(decide: Decisions, found: LabelledStatistics, head: str, recipe: Recipe) -> float:
    """A small encoder, and how often the data may be read."""
    chosen, origin = between([recipe], found.words, "words")
    if head != "classes":
        origin = f"as for classes ({origin}); not measured for {'tags' if head == 'tags' else 'answers'}"
    size = min(chosen["tokenizer.vocab_size"], max(500, 500 * round(found.words / 20 / 500)))
    # A piece that begins a word and one inside a word are two entries, of which a sample may lack rare ones.
    letters = len(SPECIALS) + 1 + math.ceil(2.5 * found.text.distinct_characters)
    decide("tokenizer.kind", "wordpiece", "open text, cut into pieces of words")
    decide(
        "tokenizer.vocab_size",
        max(size, letters),
        "by the amount of text" if size >= letters else "every character, at the beginning of a word and inside",
    )
    cased = found.text.upper > 0.02 and head == "tags"
    why = "there are hardly any capital letters" if head == "tags" else "fewer pieces, each of which occurs more often"
    decide("tokenizer.lowercase", not cased, "capital letters mark names" if cased else why)
    decide("model.name", "bert", "an encoder, which reads a text in both directions")
    decide("model.head", head, "what the labels belong to")
    for name, value in chosen.items():
        if name.startswith("model."):
            decide(name, value, f"by the amount of text; {origin}")
    heads = max(2, chosen["model.width"] // 64)
    decide("model.heads", heads, f"each {chosen['model.width'] // heads} wide")
    decide("model.max_len", 256 if head != "spans" else 512, "room for texts of data.max_len, or longer")
    for name, value in chosen.items():
        if name.startswith("train."):
            why = r_drop_why(value) if name == "train.r_drop" else "goes with the width"
            decide(name, value, f"{why}; {origin}")
    decide.usual(warmup_share=0.1)
    decide("train.ema", 0.998, "a moving average of the weights is better than the last weights")
    return round(min(30.0, max(3.0, 3 * math.sqrt(recipe.size / max(1, found.words)))), 1)


def _from_encoder(decide: Decisions, found: LabelledStatistics, head: str, *, gpu: bool) -> float:
    """Fine-tuning of a trained encoder, and how often the data may be read."""
    tuned = "as measured on SST-2 from MiniLM (preset bert-tune)"
    decide("model.name", "bert", "that of the run it starts from")
    decide("model.head", head, "what the labels belong to")
    decide("train.learning_rate", 1.5e-4, tuned)
    decide("train.layer_decay", 0.7, f"lower layers learn more slowly and keep what they know; {tuned}")
    decide("train.warmup_share", 0.02, tuned)
    decide("train.batch_tokens", 512, tuned)
    weight = 2.0 if gpu and head == "classes" else 0.0
    decide("train.r_drop", weight, r_drop_why(weight) + f"; {tuned}" * (weight > 0))
    return round(min(20.0, max(3.0, 3 * math.sqrt(FEW_TUNED / max(1, found.rows)))), 1)
