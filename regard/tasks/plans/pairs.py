"""Pairs of texts: what they are recognised by, and how a run that writes the second from the first is planned."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import get_args

from regard.config import JsonObject
from regard.data.formats import LANGUAGES, lines
from regard.data.inspection import PairStatistics, SideStatistics, inspect_pairs
from regard.data.inspection.findings import counted
from regard.data.lexical_swaps import describe_swaps
from regard.errors import DataError
from regard.tasks.corpora import TranslationData, files_corpus
from regard.tasks.planning import Choices, Decisions, Machine, Recipe, Recognised, between, r_drop_why, room_for
from regard.tasks.plans.columns import DataColumn, all_columns, columns, label_column, plain, regression, tabular
from regard.tasks.plans.labelled import recognise_tags
from regard.text.config import SPECIALS, Kind

CAPTIONS = Recipe(
    "Multi30k",
    670_000,
    {
        "tokenizer.vocab_size": 10_000,
        "model.width": 256,
        "model.encoder_layers": 4,
        "model.decoder_layers": 4,
        "model.feed_forward": 512,
        "model.norm_first": False,
        "model.qk_norm": True,
        "model.dropout": 0.3,
        "train.optimizer": "muon",
        "train.schedule": "inverse-sqrt",
        "train.learning_rate": 3e-3,
        "train.warmup_share": 0.25,
        "train.batch_tokens": 8192,
        "train.r_drop": 5.0,
        "train.weight_decay": 0.0,
    },
)
FEW_CAPTIONS = Recipe("10,000 pairs of Multi30k", 230_000, CAPTIONS.settings)
SENTENCES = Recipe(
    "Tatoeba",
    2_200_000,
    {
        "tokenizer.vocab_size": 16_000,
        "model.width": 512,
        "model.encoder_layers": 6,
        "model.decoder_layers": 3,
        "model.feed_forward": 2048,
        "model.norm_first": True,
        "model.qk_norm": True,
        "model.dropout": 0.2,
        "train.optimizer": "muon",
        "train.schedule": "cosine",
        "train.learning_rate": 2e-3,
        "train.warmup_share": 0.1,
        "train.batch_tokens": 16_384,
        "train.r_drop": 2.0,
        "train.weight_decay": 0.01,
    },
)
MESSAGES = Recipe(
    "Debian's messages",
    9_000_000,
    {
        "tokenizer.vocab_size": 32_000,
        "model.width": 512,
        "model.encoder_layers": 6,
        "model.decoder_layers": 3,
        "model.feed_forward": 2048,
        "model.norm_first": True,
        "model.qk_norm": True,
        "model.dropout": 0.1,
        "train.optimizer": "muon",
        "train.schedule": "cosine",
        "train.learning_rate": 2e-3,
        "train.warmup_share": 0.1,
        "train.batch_tokens": 32_768,
        "train.r_drop": 0.0,
        "train.weight_decay": 0.01,
    },
)
SENTENCES_ON_CPU = Recipe(
    "Tatoeba",
    2_200_000,
    {
        "tokenizer.vocab_size": 6000,
        "model.width": 128,
        "model.encoder_layers": 3,
        "model.decoder_layers": 3,
        "model.feed_forward": 512,
        "model.norm_first": True,
        "model.qk_norm": True,
        "model.dropout": 0.0,
        "train.optimizer": "muon",
        "train.schedule": "cosine",
        "train.learning_rate": 6e-3,
        "train.warmup_share": 0.1,
        "train.batch_tokens": 2048,
        "train.r_drop": 0.0,
        "train.weight_decay": 0.01,
    },
)
MESSAGES_ON_CPU = Recipe("Debian's messages", 9_000_000, SENTENCES_ON_CPU.settings)
CAPTIONS_ON_CPU = Recipe(
    "Multi30k", 670_000, {**SENTENCES_ON_CPU.settings, "model.dropout": 0.1, "train.learning_rate": 3e-3}
)
FEW_CAPTIONS_ON_CPU = Recipe("10,000 pairs of Multi30k", 230_000, {**CAPTIONS_ON_CPU.settings, "model.dropout": 0.2})
SYMBOLS = Recipe(
    "CMUdict",
    1_600_000,
    {
        "tokenizer.vocab_size": 4000,
        "model.width": 256,
        "model.encoder_layers": 4,
        "model.decoder_layers": 4,
        "model.feed_forward": 1024,
        "model.norm_first": True,
        "model.positions": "rotary",
        "model.dropout": 0.2,
        "train.optimizer": "muon",
        "train.schedule": "cosine",
        "train.learning_rate": 2e-3,
        "train.warmup_share": 0.1,
        "train.batch_tokens": 8192,
        "train.r_drop": 2.0,
        "train.weight_decay": 0.3,
    },
)
SYMBOLS_ON_CPU = Recipe(
    "CMUdict",
    1_600_000,
    {
        "tokenizer.vocab_size": 4000,
        "model.width": 128,
        "model.encoder_layers": 3,
        "model.decoder_layers": 3,
        "model.feed_forward": 512,
        "model.norm_first": True,
        "model.positions": "rotary",
        "model.dropout": 0.0,
        "train.optimizer": "muon",
        "train.schedule": "cosine",
        "train.learning_rate": 4e-3,
        "train.warmup_share": 0.1,
        "train.batch_tokens": 2048,
        "train.r_drop": 0.0,
        "train.weight_decay": 0.05,
    },
)
FEW_SYMBOLS_ON_CPU = Recipe(
    "a tenth of CMUdict",
    160_000,
    {**SYMBOLS_ON_CPU.settings, "model.dropout": 0.2, "train.learning_rate": 2e-3},
    measured=False,
)
RULES = Recipe(
    "16,000 commands",
    500_000,
    {
        "tokenizer.vocab_size": 4000,
        "model.width": 96,
        "model.encoder_layers": 5,
        "model.decoder_layers": 5,
        "model.feed_forward": 192,
        "model.norm_first": True,
        "model.qk_norm": True,
        "model.positions": "rotary",
        "model.dropout": 0.0,
        "train.optimizer": "muon",
        "train.schedule": "cosine",
        "train.learning_rate": 2e-3,
        "train.warmup_share": 0.05,
        "train.batch_tokens": 2048,
        "train.r_drop": 0.0,
        "train.weight_decay": 0.5,
    },
)
MANY_RULES = Recipe("160,000 commands", 5_000_000, {**RULES.settings, "train.learning_rate": 4e-3})
FEW_RULES = Recipe(
    "a tenth of the commands",
    50_000,
    {**RULES.settings, "model.dropout": 0.1},
    measured=False,
)

SWAPS, MOST_SWAPPED = 16, 500_000
"""In how many ways words that can take each other's place are exchanged, at most: about as often as little data is
read; and how many pairs that may come to, each of which is written and tokenised before training."""

OFTEN, READ_PER_MINUTE, TOKENS_PER_WORD = 8.0, 600_000, 1.5
"""How often a CPU may read pairs before more is dropped of them, by a tenth for each doubling; what it reads in a
minute with the recipes' models, in tokens of both sides, and how many of these there are of a word or a symbol, about.
"""

WHY = {
    "tokenizer.vocab_size": "by the amount of text",
    "model.width": "by the number of words to learn from, and by what the machine can train in the time",
    "model.qk_norm": "normalised queries and keys keep attention scores from growing, which helped on little data",
    "model.positions": "relative distances matter more here than words or absolute positions",
    "model.dropout": "less data needs more dropout",
    "train.optimizer": "it learnt more there in the same number of updates",
    "train.warmup_share": "the share of updates over which the learning rate rises",
    "train.batch_tokens": "small where the number of updates is the limit, large where the data is",
}

TRANSLATIONS = ("translation", "translations")
"""What objects are called that hold a text in each of several languages."""

NO_DROPOUT = "a model that cannot memorise the data in so few updates needs none"


def _why(name: str, value: object, usual: str) -> str:
    """Why a recipe has this value of a setting."""
    if name == "train.r_drop":
        return r_drop_why(value)
    if name == "model.norm_first":
        stably, better = "before sublayers train more stably", "after sublayers generalise better from little data"
        return f"norms {stably if value else better}"
    return WHY.get(name, usual) if value or "dropout" not in name else NO_DROPOUT


def recognise_pairs(files: Sequence[Path]) -> Recognised | None:
    """Two line-aligned files, or tables of two texts."""
    if len(files) == 2 and all(map(plain, files)):
        (first, first_filled), (second, second_filled) = counts = [_line_counts(file) for file in files]
        if first != second and recognise_tags(files) is not None:
            return None
        if first != second:
            blank = ""
            if first_filled == second_filled:
                longer = files[counts.index(max(counts))]
                blank = f"remove the blank lines at the end of {longer}, which are all that it has more; "
            raise DataError(
                f"{files[0]} has {first:,} lines and {files[1]} has {second:,}: pairs are line by line; {blank}to read "
                f"them as running text give --set task=language"
            )
        return Recognised(certainty=0.9, why=f"two files of {first:,} lines each, read line by line as pairs")
    if not all(map(tabular, files)):
        return None
    shards = "" if len(files) == 1 else f" in {len(files)} files"
    if inside := _inside_objects(files[0]):
        source, target = inside
        why = (
            f"objects '{source.parent}'{shards} with {source.name} and {target.name}, in this order; --set "
            f"data.source={target.key} --set data.target={source.key} turns it round"
        )
        return Recognised(certainty=0.95, why=why, data={"source": source.key, "target": target.key})
    found, _ = columns(files[0])
    texts = [column for column in found if column.textual]
    named = {column.name.casefold(): column for column in texts}
    languages = [name for name in named if name in LANGUAGES]
    names = [("source", "target"), ("src", "tgt"), ("src", "trg")]
    if "instruction" not in named:  # beside which an input is mostly empty
        names.append(("input", "output"))
    if len(languages) == 2:  # in the order of their columns; of more, two have to be named
        names.append((languages[0], languages[1]))
    for source, target in names:
        if source in named and target in named:
            keys = {"source": named[source].key, "target": named[target].key}
            return Recognised(certainty=0.95, why=f"columns {source} and {target}{shards}", data=keys)
    if len(found) == 2 and len(texts) == 2 and label_column(found) is None and not regression(found):
        keys = {"source": texts[0].key, "target": texts[1].key}
        empty = [column.title for column in all_columns(files[0])[0] if column.blank]
        more = f"; not read, as it seems to be empty: {', '.join(empty)}" if empty else ""
        why = f"two columns of texts{shards}, the second written from the first{more}"
        return Recognised(certainty=0.8, why=why, data=keys)
    return None


def _inside_objects(path: Path) -> tuple[DataColumn, DataColumn] | None:
    """The two languages, or source and target, that the objects of records hold, in the order of their keys; of more,
    two have to be named."""
    inside = [column for column in all_columns(path)[0] if column.parent and column.textual]
    for parent in dict.fromkeys(column.parent for column in inside):
        held = [column for column in inside if column.parent == parent]
        names = {column.name.casefold() for column in held}
        if len(held) == 2 and (parent in TRANSLATIONS or names <= LANGUAGES or names == {"source", "target"}):
            return held[0], held[1]
    return None


def _line_counts(path: Path) -> tuple[int, int]:
    """How many lines a file has, and how many up to the last that is not blank."""
    count = filled = 0
    for count, line in enumerate(lines(path), 1):
        if line and not line.isspace():
            filled = count
    return count, filled


def pair_statistics(data: TranslationData) -> PairStatistics:
    valid = files_corpus(data.valid, data) if data.valid else None
    found = inspect_pairs(files_corpus(data.train, data), valid)
    if not found.pairs:
        raise DataError(f"{', '.join(map(str, data.train))}: no row has both a source and a target")
    return found


def held_out_share(rows: int) -> float:
    """The share to validate on: a tenth of little, of much what makes 2,000."""
    return round(min(0.1, max(0.002, 2000 / max(1, rows), 0.1 / math.sqrt(max(1.0, rows / 1000)))), 4)


def side_kind(side: SideStatistics) -> tuple[Kind, str]:
    """How the texts of a side are cut, and why."""
    if side.closed:
        return "spaced", f"a closed vocabulary: {side.distinct_words:,} words between spaces, and no new ones"
    if side.single > 0.9 and side.mean_characters < 40 and side.unspaced < 0.5:
        return "character", f"single words, {side.distinct_characters} characters: they are spelt"
    return "bpe", f"open text: {100 * side.new_words:.1f} % of words are new in another half of it"


def plan_pairs(found: PairStatistics, machine: Machine, base: JsonObject | None) -> Choices:
    source, target = found.source, found.target
    kinds = (source_kind, _), (target_kind, _) = side_kind(source), side_kind(target)
    symbols = "bpe" not in (source_kind, target_kind)
    size = found.words if not symbols else _tokens(source, source_kind, found) + _tokens(target, target_kind, found)
    chosen, origin = between(_recipes(found, machine, symbols), size, "tokens" if symbols else "words")
    longest = _longest(found, 0, source_kind), _longest(found, 1, target_kind)
    reach = room_for(longest)
    decide, facts = Decisions(), [_described(found)]
    if not found.valid_rows:
        share = held_out_share(found.rows)
        why = f"no validation pairs were given: some {share * found.sources:,.0f} sources, with all their targets"
        decide("data.held_out", share, why)
    if found.swaps:
        why = (
            f"{describe_swaps(found.swaps)} can take each other's place: each pair is also read with others of them, "
            f"which may produce a pair that is held out"
        )
        decide("data.swaps", max(2, min(SWAPS, MOST_SWAPPED // found.rows)), why)
    if base is None:
        words = f"{max(found.most_words):,} words"
        decide(
            "data.max_len",
            reach,
            f"room for the longest text, which has {words}"
            if max(longest) <= reach
            else f"the longest text has {words}: those of more than {reach:,} tokens are left out, and counted; "
            f"data.max_len asks for longer ones",
        )
        _vocabularies(decide, found, kinds, chosen)
        more = {} if machine.gpu or found.rule else _dropped(chosen, size, machine.minutes)
        _model(decide, chosen, more, origin, reach, rule=found.rule)
    elif (reads := int(base.get("data", {}).get("max_len", reach))) < max(longest):
        facts.append(f"pairs of more than the {reads:,} tokens that the run to start from reads are left out")
    _training(decide, chosen, origin, sum(min(length, reach) for length in longest) + 8, fresh=base is None)
    _usual(decide, machine, exact=target.closed, rule=found.rule)
    cut = {kind: (_longest(found, 0, kind), _longest(found, 1, kind)) for kind in get_args(Kind)}
    none = "all pairs have one source, so none is left to train on once it is held out to validate on"
    return Choices(
        decisions=tuple(decide.made),
        facts=tuple(facts),
        most_epochs=_epochs(size),
        none_held_out=none * (found.sources < 2 and not found.valid_rows),
        longest=cut,
    )


def _described(found: PairStatistics) -> str:
    """What the pairs are like, in a line."""
    rule = "; one target for each source, both in closed notations: a rule" * found.rule
    return (
        f"{counted(found.rows, 'pair')}, {found.source.mean_words:.1f} words in and {found.target.mean_words:.1f} out; "
        f"at most {found.most_words[0]:,} and {found.most_words[1]:,}{rule}"
    )


def _recipes(found: PairStatistics, machine: Machine, symbols: bool) -> list[Recipe]:
    """Those for data of this kind on such a machine."""
    if found.rule:
        return [FEW_RULES, RULES, MANY_RULES]
    if symbols:
        return [SYMBOLS] if machine.gpu else [FEW_SYMBOLS_ON_CPU, SYMBOLS_ON_CPU]
    if machine.gpu:
        return [FEW_CAPTIONS, CAPTIONS, SENTENCES, MESSAGES]
    return [FEW_CAPTIONS_ON_CPU, CAPTIONS_ON_CPU, SENTENCES_ON_CPU, MESSAGES_ON_CPU]


def _model(
    decide: Decisions,
    chosen: JsonObject,
    more: Mapping[str, tuple[float, str]],
    origin: str,
    reach: int,
    *,
    rule: bool,
) -> None:
    """A model from nothing."""
    decide("model.name", "transformer", "an encoder-decoder, which reads and writes texts of any kind")
    for name, value in chosen.items():
        if name in more:
            decide(name, *more[name])
        elif name.startswith("model."):
            decide(name, value, f"{_why(name, value, 'goes with the width')}; {origin}")
    width = chosen["model.width"]
    heads = max(2, width // (64 if width >= 256 else 32))
    decide("model.heads", heads, f"each {width // heads} wide")
    joint = next(one.value for one in decide.made if one.name == "tokenizer.joint")
    decide(
        "model.share",
        "all" if joint else "output",
        "one embedding table, as there is one vocabulary"
        if joint
        else "one table for the target's embeddings and the output layer",
    )
    if rule:
        why = "a base this small tells distances apart in texts as long as these"
        decide("model.rotary_base", 100.0 * reach / 64, why)
    decide("model.max_len", max(reach, 128), "room for texts of data.max_len")


def _training(decide: Decisions, chosen: JsonObject, origin: str, room: int, *, fresh: bool) -> None:
    """How a model is trained, from nothing or from another run, in batches with room for one pair at the least."""
    train = {name: value for name, value in chosen.items() if name.startswith("train.")}
    why = {name: f"{_why(name, value, 'goes with the optimiser')}; {origin}" for name, value in train.items()}
    if not fresh:
        kept = "so that the run to start from keeps what it learnt"
        started = {"train.optimizer": "adamw", "train.learning_rate": 3e-4, "train.schedule": "linear"}
        train |= {**started, "train.warmup_share": 0.05}
        why |= {**dict.fromkeys((*started, "train.warmup_share"), f"small steps, {kept}")}
    if train["train.batch_tokens"] < room:
        train["train.batch_tokens"], why["train.batch_tokens"] = room, "room for the longest pair"
    for name, value in train.items():
        decide(name, value, why[name])


def _dropped(chosen: JsonObject, size: int, minutes: float) -> dict[str, tuple[float, str]]:
    """More dropout, and why, where minutes on a CPU read pairs more often than the recipes did."""
    times = READ_PER_MINUTE * minutes / (TOKENS_PER_WORD * max(1, size))
    dropout = min(0.4, 0.05 * round(2 * math.log2(max(1.0, times / OFTEN))))
    if dropout <= chosen["model.dropout"]:
        return {}
    why = (
        f"some {times:.0f} epochs fit into {minutes:g} minutes: 0.1 more for each doubling beyond {OFTEN:g}, as "
        f"measured on Multi30k and CMUdict"
    )
    return {"model.dropout": (round(dropout, 2), why)}


def _epochs(size: int) -> float:
    """How often data may be read: little of it often, since it is dropped and averaged, much of it less often."""
    return 400.0 if size < 2_000_000 else 100.0


def _tokens(side: SideStatistics, kind: Kind, found: PairStatistics) -> int:
    counted = side.characters if kind == "character" else side.words
    return round(counted / max(1, side.texts) * found.rows)


def _longest(found: PairStatistics, side: int, kind: Kind) -> int:
    """Tokens of the longest text at the most, about; the pairs themselves will tell."""
    if kind == "character":
        return found.most_characters[side] + 2
    words, statistics = found.most_words[side], (found.source, found.target)[side]
    if kind == "spaced":
        return words + 2
    # Pieces are of bytes, of which a Latin letter has one, most others two, and those of unspaced scripts three.
    per_character = 0.5 if statistics.script == "Latin" else 1.5 if statistics.unspaced > 0.5 else 1.0
    return max(2 * words, math.ceil(per_character * found.most_characters[side])) + 4


def _entries(side: SideStatistics, kind: Kind) -> int:
    """What a vocabulary of all words, or of all characters, has at the most: a sample may lack rare characters."""
    letters = math.ceil(1.25 * side.distinct_characters)
    return len(SPECIALS) + (letters if kind == "character" else side.distinct_words)


def _vocabularies(
    decide: Decisions, found: PairStatistics, kinds: tuple[tuple[Kind, str], tuple[Kind, str]], chosen: JsonObject
) -> None:
    """One vocabulary where both sides are cut alike and share their letters or words, else one for each."""
    (source, source_why), (target, target_why) = kinds
    size, why = _vocabulary_size(found, source, target, chosen["tokenizer.vocab_size"])
    if source != target:
        decide("tokenizer.source_kind", source, source_why)
        decide("tokenizer.target_kind", target, target_why)
        decide("tokenizer.vocab_size", size, why)
        decide("tokenizer.joint", False, "the sides are cut differently")
        return
    shared = len(found.source.vocabulary.keys() & found.target.vocabulary.keys())
    if source == "bpe":
        joint = found.source.script == found.target.script
        joint_why = "both sides are in one script" if joint else "the sides are in different scripts"
    else:
        joint = shared > 0.5 * max(1, min(found.source.distinct_words, found.target.distinct_words))
        joint_why = f"{shared:,} words are on both sides"
    decide("tokenizer.kind", source, f"sources: {source_why}; targets: {target_why}")
    decide("tokenizer.vocab_size", size, why)
    decide("tokenizer.joint", joint, joint_why)


def _vocabulary_size(found: PairStatistics, source: Kind, target: Kind, usual: int) -> tuple[int, str]:
    """The limit of a vocabulary, which must not leave out words or characters of a side that is not cut into pieces."""
    size, why = usual, WHY["tokenizer.vocab_size"]
    if "bpe" in (source, target):
        text = found.source if source == "bpe" else found.target
        most = max(500, 500 * round(text.words / max(1, text.texts) * found.rows / 20 / 500))
        if size > most:
            size, why = most, "so little text has no more useful pieces"
    whole: dict[str, int] = {}
    if source != "bpe":
        whole["source"] = _entries(found.source, source)
    if target != "bpe":
        whole["target"] = _entries(found.target, target)
    if "bpe" in (source, target) and whole:
        (name, needed), *_ = whole.items()
        return max(size, needed), f"{why}; the limit of each side: the {name}s have {needed:,} entries at the most"
    if (needed := sum(whole.values())) > size:
        return needed, f"all {'characters' if source == target == 'character' else 'entries'} of both sides"
    return size, f"room for all {needed:,} entries of both sides" if needed else why


def _usual(decide: Decisions, machine: Machine, *, exact: bool, rule: bool) -> None:
    """What does not hang on the data's size."""
    gpu = machine.gpu is not None
    decide.usual(betas=[0.9, 0.98], epsilon=1e-8)
    if rule:
        decide("train.smoothing", 0.0, "targets follow from sources by a rule, so a model can be certain")
    else:
        decide("train.smoothing", 0.1, "a model that is never fully certain generalises better")
    decide(
        "train.ema",
        0.99 if rule else 0.999 if gpu else 0.998,
        "a moving average of the weights is better than the last weights"
        + "; for a rule over fewer updates, as the model still learns when the learning rate falls" * rule,
    )
    decide.keep_best()
    decide("train.select_by", "exact_match" if exact else "bleu", "the score that matters, rather than the loss")
    decide(
        "train.validate_sentences",
        (1000 if exact else 300) if gpu else 200 if rule else 500 if exact else 100,
        "enough to compare checkpoints (exact match needs more), few enough to be quick",
    )
    decide(
        "decode.beam",
        1 if exact else 5,
        "an exact answer needs no search" if exact else "beam search finds better outputs",
    )
    if not exact:
        decide("decode.length_form", "power", "as in the recipes")
        decide("decode.length_penalty", 1.0, "as in the recipes")
    decide.compile(machine, narrow=not rule)
