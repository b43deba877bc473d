"""Pairs of texts: what they are recognised by, and how a run that writes the second from the first is planned."""

import math
from collections.abc import Sequence
from pathlib import Path

from regard.config import JsonObject
from regard.data.formats import lines
from regard.data.inspection import PairStatistics, SideStatistics, inspect_pairs
from regard.data.lexical_swaps import describe_swaps
from regard.errors import DataError
from regard.tasks.corpora import TranslationData, files_corpus
from regard.tasks.planning import Choices, Decision, Machine, Recipe, Recognised, between
from regard.tasks.plans.columns import columns, label_column, plain, tabular
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

MOST_TOKENS = 1024
"""Of a text, by plan: attention to longer ones would take most of the time; `data.max_len` asks for them."""
SWAPS, MOST_SWAPPED = 16, 500_000
"""In how many ways words that can take each other's place are exchanged, at most: about as often as little data is
read; and how many pairs that may come to, each of which is written and tokenised before training."""

OFTEN, READ_PER_MINUTE, TOKENS_PER_WORD = 8.0, 600_000, 1.5
"""How often a CPU may read pairs before more is dropped of them, by a tenth for each doubling; what it reads in a
minute with the recipes' models, in tokens of both sides, and how many of these there are of a word or a symbol, about.
"""

WHY = {
    "tokenizer.vocab_size": "from how much text there is",
    "model.width": "from how many words there are to learn from, and what the machine can train in the time",
    "model.norm_first": "norms after sublayers generalise better where data is little; before them train more surely",
    "model.qk_norm": "keeps attention scores from growing, which helped on little data",
    "model.positions": "places matter more than words here, and distances more than places",
    "model.dropout": "the less data, the more is dropped",
    "train.optimizer": "which reached more in as many updates there",
    "train.warmup_share": "the share of updates over which the rate rises",
    "train.r_drop": "two passes that must agree: where a model can learn all its data by heart",
    "train.batch_tokens": "small where updates are what is lacking, large where data is",
}


def recognise_pairs(files: Sequence[Path]) -> Recognised | None:
    """Two line-aligned files, or tables of two texts."""
    if len(files) == 2 and all(map(plain, files)):
        (first, first_filled), (second, second_filled) = counts = [_line_counts(file) for file in files]
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
    found, _ = columns(files[0])
    shards = "" if len(files) == 1 else f" in {len(files)} files"
    texts = [column for column in found if column.textual]
    named = {column.name.casefold(): column for column in texts}
    for source, target in (("source", "target"), ("src", "tgt"), ("src", "trg"), ("input", "output"), ("en", "fr")):
        if source in named and target in named:
            keys = {"source": named[source].key, "target": named[target].key}
            return Recognised(certainty=0.95, why=f"columns {source} and {target}{shards}", data=keys)
    if len(found) == 2 and len(texts) == 2 and label_column(found) is None:
        keys = {"source": texts[0].key, "target": texts[1].key}
        return Recognised(
            certainty=0.8, why=f"two columns of texts{shards}, the second written from the first", data=keys
        )
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
    return inspect_pairs(files_corpus(data.train, data), valid)


def held_out_share(rows: int) -> float:
    """The share to validate on: a tenth of little, of much what makes 2,000."""
    return round(min(0.1, max(0.002, 2000 / max(1, rows), 0.1 / math.sqrt(max(1.0, rows / 1000)))), 4)


def side_kind(side: SideStatistics) -> tuple[Kind, str]:
    """How the texts of a side are cut, and why."""
    if side.closed:
        return "spaced", f"a closed vocabulary: {side.distinct_words:,} words between spaces, and no new ones"
    if side.single > 0.9 and side.mean_characters < 40:
        return "character", f"single words, {side.distinct_characters} characters: they are spelt"
    return "bpe", f"open text: {100 * side.new_words:.1f} % of words are new in another half of it"


def plan_pairs(found: PairStatistics, machine: Machine, base: JsonObject | None) -> Choices:
    source, target = found.source, found.target
    (source_kind, source_why), (target_kind, target_why) = side_kind(source), side_kind(target)
    symbols = "bpe" not in (source_kind, target_kind)
    size = found.words if not symbols else _tokens(source, source_kind, found) + _tokens(target, target_kind, found)
    gpu = machine.gpu is not None
    if found.rule:
        recipes = [FEW_RULES, RULES, MANY_RULES]
    elif symbols:
        recipes = [SYMBOLS] if gpu else [FEW_SYMBOLS_ON_CPU, SYMBOLS_ON_CPU]
    else:
        recipes = (
            [FEW_CAPTIONS, CAPTIONS, SENTENCES, MESSAGES]
            if gpu
            else [FEW_CAPTIONS_ON_CPU, CAPTIONS_ON_CPU, SENTENCES_ON_CPU, MESSAGES_ON_CPU]
        )
    chosen, origin = between(recipes, size, "tokens" if symbols else "words")
    often = {} if gpu or found.rule else _dropped(chosen, size, machine.minutes)
    decisions: list[Decision] = []
    decide = lambda name, value, why: decisions.append(Decision(name, value, why))  # noqa: E731
    longest = _longest(found, 0, source_kind), _longest(found, 1, target_kind)
    if not found.valid_rows:
        share = held_out_share(found.rows)
        why = f"no validation pairs were given: some {share * found.sources:,.0f} sources, with all their targets"
        decide("data.held_out", share, why)
    if found.swaps:
        why = f"{describe_swaps(found.swaps)} can take each other's place: each pair is read with others of them too"
        decide("data.swaps", max(2, min(SWAPS, MOST_SWAPPED // found.rows)), why)
    reach = min(MOST_TOKENS, max(64, 2 ** math.ceil(math.log2(max(longest) + 2))))
    if base is None:
        decide(
            "data.max_len",
            reach,
            f"room for the longest text, which has {max(found.most_words):,} words: none is left out"
            if max(longest) <= reach
            else f"the longest text has {max(found.most_words):,} words: those of more than {reach:,} tokens are left "
            f"out, and counted; data.max_len asks for longer ones",
        )
        decisions += _tokenizer(found, source_kind, source_why, target_kind, target_why, chosen)
        joint = next(one.value for one in decisions if one.name == "tokenizer.joint")
        decide("model.name", "transformer", "reads and writes texts of any kind")
        for name, value in chosen.items():
            if name in often:
                decide(name, *often[name])
            elif name.startswith("model."):
                decide(name, value, f"{WHY.get(name, 'goes with the width')}; {origin}")
        width = chosen["model.width"]
        heads = max(2, width // (64 if width >= 256 else 32))
        decide("model.heads", heads, f"each {width // heads} wide")
        decide(
            "model.share",
            "all" if joint else "output",
            "one table, as there is one vocabulary"
            if joint
            else "one table for what is read of the target and what is written of it",
        )
        if found.rule:
            why = "rotary positions that turn this fast tell apart distances in texts as long as these"
            decide("model.rotary_base", 100.0 * reach / 64, why)
        decide("model.max_len", max(reach, 128), "room for the longest text")
    train = {name: value for name, value in chosen.items() if name.startswith("train.")}
    if base is not None:
        train["train.learning_rate"] = 3e-4
        train |= {"train.optimizer": "adamw", "train.schedule": "linear", "train.warmup_share": 0.05}
        origin = "a tenth of the rate to start from another run with, so that what it learnt stays"
    room = sum(min(length, reach) for length in longest) + 8
    if train["train.batch_tokens"] < room:
        train["train.batch_tokens"] = room
    for name, value in train.items():
        decide(name, value, f"{WHY.get(name, 'goes with the optimiser')}; {origin}")
    decisions += _usual(machine, exact=target.closed, rule=found.rule)
    words = f"{found.rows:,} pairs, {source.mean_words:.1f} words in and {target.mean_words:.1f} out"
    most = f"at most {found.most_words[0]:,} and {found.most_words[1]:,}"
    most += "; one target for each source, both in closed notations: a rule" * found.rule
    return Choices(decisions=tuple(decisions), facts=(words, most), most_epochs=_epochs(size))


def _dropped(chosen: JsonObject, size: int, minutes: float) -> dict[str, tuple[float, str]]:
    """More dropout, and why, where minutes on a CPU read pairs more often than the recipes did."""
    times = READ_PER_MINUTE * minutes / (TOKENS_PER_WORD * max(1, size))
    dropout = min(0.4, 0.05 * round(2 * math.log2(max(1.0, times / OFTEN))))
    if dropout <= chosen["model.dropout"]:
        return {}
    why = f"{minutes:g} minutes read pairs of this size some {times:.0f} times: a tenth for each doubling beyond"
    return {"model.dropout": (round(dropout, 2), f"{why} {OFTEN:g} times, as measured on Multi30k and CMUdict")}


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
    words = found.most_words[side]
    return words + 2 if kind == "spaced" else max(2 * words, found.most_characters[side] // 2) + 4


def _entries(side: SideStatistics, kind: Kind) -> int:
    """What a vocabulary of all words, or of all characters, has at the most: a sample may lack rare characters."""
    letters = math.ceil(1.25 * side.distinct_characters)
    return len(SPECIALS) + (letters if kind == "character" else side.distinct_words)


def _tokenizer(
    found: PairStatistics, source: Kind, source_why: str, target: Kind, target_why: str, chosen: JsonObject
) -> list[Decision]:
    """One vocabulary where both sides are cut alike and share their letters or words, else one for each."""
    size = Decision("tokenizer.vocab_size", chosen["tokenizer.vocab_size"], WHY["tokenizer.vocab_size"])
    if "bpe" in (source, target):
        text = found.source if source == "bpe" else found.target
        most = max(500, 500 * round(text.words / max(1, text.texts) * found.rows / 20 / 500))
        if size.value > most:
            size = Decision("tokenizer.vocab_size", most, "so little text has no more pieces worth having")
    if source != target:
        why = "the sides are cut differently"
        if "bpe" in (source, target):  # one limit for both, which must not leave out words or characters of the other
            whole, kind, name = (
                (found.target, target, "target") if source == "bpe" else (found.source, source, "source")
            )
            needed = _entries(whole, kind)
            size = Decision(
                size.name,
                max(size.value, needed),
                f"{size.why}; the limit of each side: the {name}s have {needed:,} entries at the most",
            )
        return [
            Decision("tokenizer.source_kind", source, source_why),
            Decision("tokenizer.target_kind", target, target_why),
            size,
            Decision("tokenizer.joint", False, why),
        ]
    shared = len(found.source.vocabulary.keys() & found.target.vocabulary.keys())
    if source == "bpe":
        joint = found.source.script == found.target.script
        why = "both sides are in one script" if joint else "the sides are in different scripts"
    else:
        joint = shared > 0.5 * max(1, min(found.source.distinct_words, found.target.distinct_words))
        why = f"{shared:,} words are on both sides"
    return [
        Decision("tokenizer.kind", source, f"{source_why}; {target_why}"),
        size,
        Decision("tokenizer.joint", joint, why),
    ]


def _usual(machine: Machine, *, exact: bool, rule: bool) -> list[Decision]:
    """What does not hang on the data's size."""
    gpu = machine.gpu is not None
    found = [
        Decision("train.betas", [0.9, 0.98], "as in the recipes"),
        Decision("train.epsilon", 1e-8, "as in the recipes"),
        Decision("train.smoothing", 0.0, "targets follow from sources by a rule, of which a model can be sure")
        if rule
        else Decision("train.smoothing", 0.1, "a model that is never quite sure generalises better"),
        Decision(
            "train.ema",
            0.99 if rule else 0.999 if gpu else 0.998,
            "an average of the weights of the last updates is better than the last; of a rule of fewer, as it is still "
            "being learnt when the rate falls",
        ),
        Decision("train.choose", "best", "the weights of the best validation are kept, not the last"),
        Decision("train.select_by", "exact_match" if exact else "bleu", "what the model is for, not its loss"),
        Decision(
            "train.validate_sentences",
            (1000 if exact else 300) if gpu else 200 if rule else 500 if exact else 100,
            "enough to tell, where outputs are right or wrong the more; few enough not to take the time",
        ),
        Decision("train.keep", 1, "one checkpoint to resume from, beside the best"),
        Decision(
            "decode.beam", 1 if exact else 5, "an exact answer needs no search" if exact else "finds better outputs"
        ),
    ]
    if not exact:
        found += [
            Decision("decode.length_form", "power", "as in the recipes"),
            Decision("decode.length_penalty", 1.0, "as in the recipes"),
        ]
    return found + compiling(machine, narrow=not rule)


def compiling(machine: Machine, *, graphs: bool = True, blocks: bool = True, narrow: bool = True) -> list[Decision]:
    """How a GPU is kept busy, with `narrow` numbers where it has them."""
    if machine.gpu is None:
        return []
    precision = ("auto", "bfloat16 where the GPU has it") if narrow else ("float32", "as the recipe was measured")
    found = [Decision("train.precision", *precision)]
    if graphs:
        found.append(Decision("train.cuda_graphs", True, "launching small kernels would take most of the time"))
    if blocks and machine.compiles:
        found.append(Decision("train.compile_blocks", True, "starts in seconds, and is faster after"))
    return found
