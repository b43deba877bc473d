"""Scores of text and of predictions. Every text score carries the signature of how it was computed."""

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Float, Int
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from regard.config import JsonObject
from regard.data.inspection.texts import without_spaces
from regard.errors import ConfigError, DataError
from regard.metrics.word_errors import edit_distance
from regard.plugins import Registry

References: TypeAlias = Sequence[str] | Sequence[Sequence[str]]
"""For each hypothesis its reference, or the several references that are equally right."""

LENGTH_EDGES = (1, 6, 12, 18, 24, 30, 40, 50, 61)
SAMPLES, SEED = 1000, 12345


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """How close a corpus of hypotheses is to its references.

    BLEU and chrF run from 0 to 100, the higher the better; TER from 0 up, the lower the better; `exact_match` is
    the share, from 0 to 1, of hypotheses equal to a reference. `tokenised_bleu` takes the words as the spaces cut
    them: it equals a published tokenised score only where both texts are tokenised the way that table's were.
    `token_error_rate` is edits per reference word, words as the spaces cut them, to the nearest reference.
    """

    bleu: float
    bleu_signature: str
    bleu_interval: tuple[float, float]
    bleu_interval_signature: str
    tokenised_bleu: float
    tokenised_bleu_signature: str
    chrf: float
    chrf_signature: str
    ter: float
    ter_signature: str
    exact_match: float
    exact_match_interval: tuple[float, float]
    token_error_rate: float
    count: int

    def to_mapping(self) -> JsonObject:
        """Plain values, ready for JSON."""
        mapping = {name: getattr(self, name) for name in self.__slots__}
        return {**mapping, **{name: list(mapping[name]) for name in ("bleu_interval", "exact_match_interval")}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """The scores of the sentences whose source has from `low` up to, not including, `high` words (None: no end).

    A band without sentences has no scores: None.
    """

    low: int
    high: int | None
    count: int
    exact_match: float | None
    bleu: float | None
    bleu_signature: str | None

    def to_mapping(self) -> JsonObject:
        """Plain values, ready for JSON."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """How much more BLEU the first system has, its 95 % interval, and how often chance alone would do as much."""

    bleu: float
    interval: tuple[float, float]
    p_value: float
    signature: str


def bleu_tokenizer(references: References) -> str:
    """sacreBLEU's tokenizer for these references: `char` where they have no spaces between words, else `13a`.

    A sentence that is one word to `13a` scores 100 or next to nothing.
    """
    texts = (text for row in references for text in ([row] if isinstance(row, str) else row))
    return "char" if without_spaces(texts) else "13a"


def corpus_scores(
    hypotheses: Sequence[str], references: References, *, lowercase: bool = False, tokenize: str = "13a"
) -> Scores:
    """BLEU with its interval, tokenised BLEU, chrF, TER and exact match, each with its signature."""
    streams = _streams(hypotheses, references)
    metrics = {
        "bleu": _bleu(lowercase, tokenize),
        "tokenised_bleu": _bleu(lowercase, "none"),
        "chrf": CHRF(lowercase=lowercase),
        "ter": TER(case_sensitive=not lowercase),
    }
    found: JsonObject = {}
    for name, metric in metrics.items():
        found[name] = metric.corpus_score(hypotheses, streams).score
        found[f"{name}_signature"] = str(metric.get_signature())
    matches = exact_matches(hypotheses, references, lowercase=lowercase)
    resampled = _resampled_bleu(bleu_statistics(hypotheses, references, lowercase=lowercase, tokenize=tokenize))
    return Scores(
        **found,
        bleu_interval=percentile_interval(resampled),
        bleu_interval_signature=bootstrap_signature(),
        exact_match=float(matches.mean()),
        exact_match_interval=percentile_interval(_resampled(matches)),
        token_error_rate=word_error_rate(
            _folded(hypotheses) if lowercase else hypotheses, _folded(references) if lowercase else references
        ),
        count=len(hypotheses),
    )


SENTENCE_CHRF = CHRF()


def sentence_chrf(hypothesis: str, reference: str) -> float:
    """sacreBLEU's chrF2 of one sentence against one reference, from 0 to 100; of two empty texts 100, as of any equal
    ones."""
    if hypothesis == reference:
        return 100.0
    return SENTENCE_CHRF.sentence_score(hypothesis, [reference]).score


def corpus_bleu(
    hypotheses: Sequence[str], references: References, *, lowercase: bool = False, tokenize: str = "13a"
) -> tuple[float, str]:
    """BLEU alone, and its signature: what a validation in the middle of training needs."""
    metric = _bleu(lowercase, tokenize)
    score = metric.corpus_score(hypotheses, _streams(hypotheses, references)).score
    return score, str(metric.get_signature())


def exact_match(hypotheses: Sequence[str], references: References, *, lowercase: bool = False) -> float:
    """The share, 0 to 1, of hypotheses equal to one of their references, white space at the ends aside."""
    return float(exact_matches(hypotheses, references, lowercase=lowercase).mean())


def exact_matches(
    hypotheses: Sequence[str], references: References, *, lowercase: bool = False
) -> Float[np.ndarray, " B"]:
    """For each hypothesis 1 where it equals one of its references, else 0."""
    choices = _choices(hypotheses, references)

    def normal(text: str) -> str:
        return text.strip().lower() if lowercase else text.strip()

    hits = [normal(text) in map(normal, right) for text, right in zip(hypotheses, choices, strict=True)]
    return np.array(hits, dtype=np.float64)


def by_length(
    hypotheses: Sequence[str],
    references: References,
    sources_word_counts: Sequence[int],
    edges: Sequence[int] = LENGTH_EDGES,
    *,
    lowercase: bool = False,
    tokenize: str = "13a",
) -> list[Band]:
    """Count, exact match and BLEU for each band of source length, from each edge to the next.

    Sentences outside the edges are not dropped: they make a first or a last band of their own.
    """
    choices = _choices(hypotheses, references)
    if len(sources_word_counts) != len(hypotheses):
        raise DataError(f"{len(sources_word_counts)} source lengths for {len(hypotheses)} hypotheses: must be equal")
    if len(edges) < 2 or any(low >= high for low, high in pairwise(edges)):
        raise ConfigError(f"edges={tuple(edges)} must be two or more, each above the one before")
    bounds: list[tuple[int, int | None]] = list(pairwise(edges))
    if min(sources_word_counts) < edges[0]:
        bounds.insert(0, (0, edges[0]))
    if max(sources_word_counts) >= edges[-1]:
        bounds.append((edges[-1], None))
    bands = []
    for low, high in bounds:
        rows = [row for row, words in enumerate(sources_word_counts) if low <= words < (high or math.inf)]
        texts, right = [hypotheses[row] for row in rows], [choices[row] for row in rows]
        bleu, signature = corpus_bleu(texts, right, lowercase=lowercase, tokenize=tokenize) if rows else (None, None)
        match = exact_match(texts, right, lowercase=lowercase) if rows else None
        bands.append(Band(low=low, high=high, count=len(rows), exact_match=match, bleu=bleu, bleu_signature=signature))
    return bands


def bleu_statistics(
    hypotheses: Sequence[str], references: References, *, lowercase: bool = False, tokenize: str = "13a"
) -> Int[np.ndarray, "B 10"]:
    """Per sentence: matched 1- to 4-grams, 1- to 4-grams, length, reference length. Their sums give BLEU."""
    metric = _bleu(lowercase, tokenize)
    metric.effective_order = True  # the counts are the same; it only spares a warning about sentence scores
    rows = []
    for text, right in zip(hypotheses, _choices(hypotheses, references), strict=True):
        score = metric.sentence_score(text, right)
        rows.append([*score.counts, *score.totals, score.sys_len, score.ref_len])
    return np.array(rows, dtype=np.int64)


def paired_bootstrap(
    first: Sequence[str],
    second: Sequence[str],
    references: References,
    *,
    lowercase: bool = False,
    tokenize: str = "13a",
) -> Difference:
    """Whether `first` truly beats `second`: both are scored on the same resampled sentences, again and again."""
    one = bleu_statistics(first, references, lowercase=lowercase, tokenize=tokenize)
    two = bleu_statistics(second, references, lowercase=lowercase, tokenize=tokenize)
    gap = _bleu_of(one.sum(0)) - _bleu_of(two.sum(0))
    gaps = _resampled_bleu(one) - _resampled_bleu(two)
    # Centred on no difference, how often is the resampled gap as large as the one seen? One is added to both
    # counts so that a finite number of resamples never claims a chance of zero.
    as_large = int((np.abs(gaps - gaps.mean()) >= abs(gap) - 1e-9).sum())
    _, signature = corpus_bleu(first, references, lowercase=lowercase, tokenize=tokenize)
    return Difference(
        bleu=gap,
        interval=percentile_interval(gaps),
        p_value=(as_large + 1) / (len(gaps) + 1),
        signature=f"{signature}|{bootstrap_signature()}",
    )


def perplexity(nll_sum: float, count: int | float) -> float:
    """The perplexity of `count` predictions whose negative log-likelihoods, in nats, sum to `nll_sum`."""
    mean = _mean(nll_sum, count)
    return math.exp(mean) if mean < 700 else math.inf  # exp overflows just above 709


def bits_per_character(nll_sum: float, characters: int | float) -> float:
    """Bits per character or byte, from a sum in nats: comparable between tokenizers, as perplexity is not."""
    return _mean(nll_sum, characters) / math.log(2)


def token_error_rate(
    hypotheses: Sequence[Sequence[Hashable]], references: Sequence[Sequence[Sequence[Hashable]]]
) -> float:
    """Edits per reference token over the corpus, each hypothesis against the nearest of its references.

    With phonemes as tokens this is the phoneme error rate. Of equally near references the longest counts.
    """
    check_same_length(hypotheses, references)
    edits = tokens = 0
    for hypothesis, choices in zip(hypotheses, references, strict=True):
        if not choices:
            raise DataError("a hypothesis has no reference: each needs at least one")
        distance, negative_length = min((edit_distance(hypothesis, right), -len(right)) for right in choices)
        edits, tokens = edits + distance, tokens - negative_length
    return _mean(edits, tokens)


@dataclass(frozen=True, slots=True)
class ErrorRate:
    """Edits per reference token over a corpus, with a bootstrap interval; `edits` of `tokens`."""

    rate: float
    interval: tuple[float, float]
    edits: int
    tokens: int


def error_rate(hypotheses: Sequence[Sequence[Hashable]], references: Sequence[Sequence[Hashable]]) -> ErrorRate:
    """The token error rate against one reference each; of words it is WER, of characters CER."""
    check_same_length(hypotheses, references)
    pairs = zip(hypotheses, references, strict=True)
    counts = np.array([(edit_distance(said, right), len(right)) for said, right in pairs], dtype=np.int64)
    edits, tokens = counts.sum(0).tolist()
    sampled = [counts[rows].sum(0) for rows in bootstrap_rows(len(counts))]
    rates = np.array([edits / max(1, tokens) for edits, tokens in sampled])
    return ErrorRate(_mean(edits, tokens), percentile_interval(rates), edits, tokens)


def word_error_rate(hypotheses: Sequence[str], references: References) -> float:
    """Word edits per reference word over the corpus, words being what white space separates."""
    choices = _choices(hypotheses, references)
    return token_error_rate([text.split() for text in hypotheses], [[one.split() for one in row] for row in choices])


def _bleu(lowercase: bool, tokenize: str) -> BLEU:
    if tokenize not in BLEU.TOKENIZERS:
        raise ConfigError(f"tokenize={tokenize!r} must be one of {', '.join(sorted(BLEU.TOKENIZERS))}")
    return BLEU(lowercase=lowercase, tokenize=tokenize, force=True)


def _bleu_of(statistics: Int[np.ndarray, "10"]) -> float:
    correct, total, (length, reference_length) = np.split(statistics, [4, 8])
    # sacreBLEU smooths in place, so it is given lists of its own.
    return BLEU.compute_bleu(
        correct.tolist(), total.tolist(), int(length), int(reference_length), smooth_method="exp"
    ).score


def _resampled_bleu(statistics: Int[np.ndarray, "B 10"]) -> Float[np.ndarray, " samples"]:
    """BLEU of `SAMPLES` bootstrap samples of the corpus."""
    return np.array([_bleu_of(statistics[rows].sum(0)) for rows in bootstrap_rows(len(statistics))])


def _resampled(values: Float[np.ndarray, " B"]) -> Float[np.ndarray, " samples"]:
    """The mean of `SAMPLES` bootstrap samples of the corpus."""
    return np.array([values[rows].mean() for rows in bootstrap_rows(len(values))])


def mean_interval(values: Float[np.ndarray, " B"]) -> tuple[float, float]:
    """The 95 % interval of a mean over the corpus, by the bootstrap."""
    return percentile_interval(_resampled(values))


def bootstrap_rows(count: int) -> Iterator[Int[np.ndarray, " rows"]]:
    """The rows of each bootstrap sample, with replacement: they depend on the seed and the size alone."""
    generator = np.random.default_rng(SEED)
    return (generator.integers(count, size=count) for _ in range(SAMPLES))


def _folded(texts: References) -> Any:
    return [text.lower() if isinstance(text, str) else [one.lower() for one in text] for text in texts]


def bootstrap_signature() -> str:
    return f"interval:95%|bootstrap:percentile|samples:{SAMPLES}|seed:{SEED}"


def percentile_interval(values: Float[np.ndarray, " samples"]) -> tuple[float, float]:
    low, high = np.percentile(values, [2.5, 97.5])
    return float(low), float(high)


def _choices(hypotheses: Sequence[str], references: References) -> list[list[str]]:
    """The references of each hypothesis as a list, one or several."""
    check_same_length(hypotheses, references)
    choices = [[right] if isinstance(right, str) else list(right) for right in references]
    if not all(choices):
        raise DataError(f"hypothesis {choices.index([])} has no reference: each needs at least one")
    return choices


def _streams(hypotheses: Sequence[str], references: References) -> list[list[Any]]:
    """The references as sacreBLEU takes them: all first ones, all second ones; None where there is no more."""
    choices = _choices(hypotheses, references)
    most = max(map(len, choices))
    return [[right[index] if index < len(right) else None for right in choices] for index in range(most)]


def check_same_length(hypotheses: Sequence[Any], references: Sequence[Any]) -> None:
    if len(hypotheses) != len(references):
        raise DataError(f"{len(hypotheses)} hypotheses for {len(references)} references: must be as many")
    if not hypotheses:
        raise DataError("no hypotheses: a score needs at least one")


def _mean(total: int | float, count: int | float) -> float:
    if not count > 0:
        raise DataError(f"count={count} must be above 0")
    return total / count


METRICS: Registry[Callable[[Sequence[str], Sequence[Sequence[str]]], Any]] = Registry("regard.metrics", "metric", {})
"""Scores that other packages add by the entry points `regard.metrics`: outputs and their references in, a value that
JSON can hold out. A metric says its own setting, as `{"value": ..., "signature": ...}`."""
