"""Running text: what it is recognised by, and how a run that continues it is planned."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from regard.config import JsonObject
from regard.data.file_names import inner_suffix
from regard.data.images.image_files import SUFFIXES as IMAGES
from regard.data.inspection import TextStatistics, inspect_text
from regard.data.readers import SUFFIXES, UNBROKEN, Documents
from regard.errors import DataError
from regard.tasks.corpora import TextData
from regard.tasks.planning import Choices, Decisions, Machine, Recipe, Recognised, between
from regard.tasks.plans.columns import all_columns, columns, plain, tabular
from regard.text.config import SPECIALS

SPELT = 3_000_000
"""Characters below which text is read letter by letter: there is too little to learn many pieces from."""

PLAYS = Recipe(
    "tiny Shakespeare",
    1_000_000,
    {
        "model.width": 384,
        "model.layers": 6,
        "model.feed_forward": 1536,
        "model.dropout": 0.25,
        "model.attention_dropout": 0.2,
        "data.max_len": 256,
        "train.optimizer": "adamw",
        "train.learning_rate": 1e-3,
        "train.batch_tokens": 16_384,
        "train.weight_decay": 0.1,
    },
)
PLAYS_ON_CPU = Recipe(
    "tiny Shakespeare",
    1_000_000,
    {
        "model.width": 128,
        "model.layers": 4,
        "model.feed_forward": 512,
        "model.dropout": 0.0,
        "model.attention_dropout": 0.0,
        "data.max_len": 128,
        "train.optimizer": "adamw",
        "train.learning_rate": 2e-3,
        "train.batch_tokens": 2048,
        "train.weight_decay": 0.1,
    },
)
ARTICLES = Recipe(
    "WikiText-2",
    10_900_000,
    {
        "model.width": 512,
        "model.layers": 8,
        "model.feed_forward": 2048,
        "model.dropout": 0.3,
        "model.attention_dropout": 0.1,
        "data.max_len": 256,
        "train.learning_rate": 8e-4,
        "train.optimizer": "adamw",
        "train.batch_tokens": 32_768,
        "train.weight_decay": 0.1,
    },
)
ARTICLES_ON_CPU = Recipe(
    "WikiText-2",
    10_900_000,
    {**PLAYS_ON_CPU.settings, "train.optimizer": "muon", "train.learning_rate": 6e-3},
)

FILES = 5
"""Whole files that are held out, at the least, where each has lines enough for its end to be held out instead."""

FEW_LINES = 10
"""Lines of a file, in the mean, below which its end is none."""

WHY = {
    "model.width": "by the amount of text, and by what the machine can train in the time",
    "model.dropout": "less text needs more dropout",
    "data.max_len": "the context window",
}

NO_DROPOUT = "so few updates memorise little"


def recognise_text(files: Sequence[Path]) -> Recognised | None:
    """Plain files, folders of them, or records with nothing but a text."""
    if all(map(plain, files)):
        many = f"{len(files)} plain files" if len(files) > 1 else "a plain file"
        return Recognised(certainty=0.6, why=f"{many}: running text, to be continued")
    if all(file.is_dir() for file in files):
        inside = [inner_suffix(path) for file in files for path in file.rglob("*") if path.is_file()]
        texts = sum(suffix in SUFFIXES for suffix in inside)
        if texts and texts > sum(suffix in IMAGES for suffix in inside):
            others = f"; other files, which are passed over: {len(inside) - texts:,}" * (len(inside) > texts)
            return Recognised(
                certainty=0.6, why=f"a folder of {texts:,} text{'s' * (texts != 1)}, to be continued{others}"
            )
        return None
    if all(map(tabular, files)):
        found, seen = columns(files[0])
        ragged = len({len(row) for row in seen.rows if any(row)}) > 1
        if len(found) == 1 and found[0].textual and not ragged:
            inside = [column for column in all_columns(files[0])[0] if column.parent]
            left = [column.title for column in inside if column.key != found[0].key]
            more = f"; not read: {', '.join(left)} (data.label would choose one as a label)" if left else ""
            return Recognised(
                certainty=0.7, why=f"records of one text each, to be continued{more}", data={"text": found[0].key}
            )
    return None


def text_statistics(data: TextData) -> TextStatistics:
    read = lambda names: Documents.of(names, data.text, data.header)  # noqa: E731
    documents = read(data.train)
    found = inspect_text(documents, read(data.valid) if data.valid else None)
    if not found.line.texts:
        raise DataError(f"{', '.join(map(str, data.train))}: there is no text, only blank lines or none")
    return replace(found, files=sum(not documents.tabular(path) for path in documents.paths))


def _held_out(decide: Decisions, found: TextStatistics) -> None:
    """What to validate on of text for which nothing is given."""
    share = 0.1 if found.characters < SPELT else 0.02
    none = "no validation text was given"
    many = share * found.files >= FILES and found.longest <= 0.1 * found.characters
    short = found.files > 1 and found.lines < FEW_LINES * found.documents and found.longest <= 0.5 * found.characters
    if many or short:
        decide("data.held_out", share, f"{none}: some of the {found.files:,} files are held out whole")
        why = "files are many" if many else "files have few lines, too few to hold out the end of each"
        decide("data.held_out_by", "file", why)
        return
    documents = f"some of its {found.documents:,} documents are held out, by their text"
    decide("data.held_out", share, f"{none}: {'the end of the text is held out' if found.files else documents}")


def plan_text(found: TextStatistics, machine: Machine, base: JsonObject | None) -> Choices:
    gpu = machine.gpu is not None
    recipes = [PLAYS, ARTICLES] if gpu else [PLAYS_ON_CPU, ARTICLES_ON_CPU]
    chosen, origin = between(recipes, found.characters, "characters")
    decide = Decisions()
    if not found.valid_lines:
        _held_out(decide, found)
    facts = [f"{found.documents:,} document{'s' * (found.documents != 1)}, {found.characters:,} characters"]
    if base is None:
        _tokenizer(decide, found)
        decide("model.name", "gpt", "predicts each token from those before it")
        for name, value in chosen.items():
            if name.startswith(("model.", "data.")):
                why = WHY.get(name, "goes with the width") if value or "dropout" not in name else NO_DROPOUT
                decide(name, value, f"{why}; {origin}")
        width = chosen["model.width"]
        heads = max(2, width // (64 if width >= 256 else 32))
        decide("model.heads", heads, f"each {width // heads} wide")
        decide("model.positions", "rotary", "relative rather than absolute positions")
        decide("model.bias", False, "biases are not needed")
        decide("model.max_len", chosen["data.max_len"], "the context window")
    train = {name: value for name, value in chosen.items() if name.startswith("train.")}
    why = {name: f"{WHY.get(name, 'goes with the model')}; {origin}" for name in train}
    if base is not None:
        started = {"train.optimizer": "adamw", "train.learning_rate": 2e-4}
        train |= started
        why |= dict.fromkeys(started, "small steps, so that the run to start from keeps what it learnt")
    for name, value in train.items():
        decide(name, value, why[name])
    decide("train.schedule", "cosine", "the learning rate falls until the end of the budget")
    decide.usual(warmup_share=0.05, floor=0.1 if gpu else 0.05, betas=[0.9, 0.99], epsilon=1e-8)
    decide("train.smoothing", 0.0, "the score is the likelihood itself, which smoothing would worsen")
    if gpu:
        decide("train.ema", 0.998, "a moving average of the weights is better than the last weights")
    decide.keep_best()
    decide("decode.temperature", 0.8, "varied text that still makes sense")
    decide("decode.top_k", 40, "no very unlikely tokens")
    decide.compile(machine, blocks=False)
    most = 36.0 if found.characters < 5_000_000 else 24.0
    unbroken = found.lines < 2 and found.documents == found.files == 1 and found.characters <= UNBROKEN
    none = f"the text is one line of {found.characters:,} characters, of which no end is held out to validate on"
    return Choices(
        decisions=tuple(decide.made),
        facts=tuple(facts),
        most_epochs=most,
        none_held_out=none * (unbroken and not found.valid_lines),
    )


def _tokenizer(decide: Decisions, found: TextStatistics) -> None:
    """How the text is cut, by how much there is of it."""
    if found.line.unknown:
        decide("tokenizer.kind", "spaced", "the text has <unk> for rare words, so it is cut into words already")
        decide("tokenizer.vocab_size", 50_000, "every word that it has")
    elif found.characters < SPELT:
        letters = len(SPECIALS) + math.ceil(1.25 * found.line.distinct_characters)  # a sample may lack rare ones
        decide("tokenizer.kind", "character", f"{found.characters:,} characters are too few to learn pieces from")
        decide("tokenizer.vocab_size", max(4000, letters), "a limit that holds every character")
    else:
        size = min(32_000, max(2000, 1000 * round(found.characters / 1000 / 1000)))
        decide("tokenizer.kind", "bpe", "enough text for each piece of a word to occur often")
        decide("tokenizer.vocab_size", size, "one piece for each thousand characters, about")
