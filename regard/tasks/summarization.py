"""Summarization: documents with summaries, to a model that writes the second from the first."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from regard.config import JsonObject, Setting
from regard.data import Corpus
from regard.data.formats import Header
from regard.data.synthetic.world.corpus import telegrams
from regard.decode.constraints import WordLimits
from regard.errors import ConfigError, DataError
from regard.metrics.rouge import NAMES, corpus_rouge, repeated_trigrams, rouge_f1, rouge_signature
from regard.metrics.text import METRICS, exact_matches, mean_interval
from regard.tasks.corpora import (
    Overlong,
    Part,
    check_pairs,
    corpus_of,
    files_corpus,
    full_pairs,
    grammar_digest,
)
from regard.tasks.run import Run
from regard.tasks.spec import (
    MEASURING,
    Measuring,
    MixedFiles,
    Progress,
    Say,
    check_columns,
    check_held_out,
    check_length,
    check_mixed,
)
from regard.tasks.translation import (
    TranslationTask,
    files_named,
    score,
    scorer_of,
    translator_of,
    with_pairs,
    with_references,
)
from regard.tasks.translation_data import TranslationRun
from regard.tasks.translation_metrics import corpus_perplexity, unknown_words
from regard.tasks.translator import Translation

TELEGRAMS_HELD_OUT = 1000
"""How many held-out telegrams serve for validation, and how many for test."""

TITLES = {"rouge1": "ROUGE-1", "rouge2": "ROUGE-2", "rougeL": "ROUGE-L", "rougeLsum": "ROUGE-Lsum"}


@dataclass(frozen=True, kw_only=True, slots=True)
class SummarizationData(MixedFiles):
    """Documents and summaries: in two line-aligned files, in `.tsv`, `.csv`, `.jsonl` or `.parquet`, or bundled.

    `document` and `summary` name the two: keys of JSONL, or columns of a table, by name or by number from 1.
    `telegrams` is how many bundled sentences with their telegrams to train on; held-out ones then serve for validation
    and test.
    `overlong` says what becomes of documents of more than `max_len` tokens.
    """

    telegrams: int = 0
    telegrams_seed: int = 1
    document: str | int = "document"
    summary: str | int = "summary"
    max_len: int = 256
    overlong: Overlong = "skip"
    header: Header = "auto"
    held_out: float = 0.0

    def __post_init__(self) -> None:
        check_held_out(self.held_out)
        check_mixed(self)
        if self.telegrams and (self.train or self.corpora):
            raise ConfigError("data.train and data.telegrams are two sources of training pairs; give one")
        if self.telegrams < 0 or self.telegrams_seed < 0:
            raise ConfigError(
                f"data.telegrams={self.telegrams} and data.telegrams_seed={self.telegrams_seed} must not be negative"
            )
        check_length(self.max_len)
        check_columns(document=self.document, summary=self.summary)

    @property
    def source(self) -> str | int:
        return self.document

    @property
    def target(self) -> str | int:
        return self.summary

    def bundled(self, part: Part) -> "Telegrams | None":
        if not self.telegrams:
            return None
        if part == "train":
            return Telegrams(self.telegrams, self.telegrams_seed, part)
        return Telegrams(TELEGRAMS_HELD_OUT, 0, part)


@dataclass(frozen=True)
class Telegrams:
    """Sentences of the bundled grammar with their telegrams."""

    count: int
    seed: int
    part: Part

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return telegrams(self.count, seed=self.seed, split=self.part)

    def digest(self) -> str:
        return grammar_digest("telegrams", self.count, self.seed, self.part)


class SummarizationRun(TranslationRun):
    """Documents with summaries; a validation scores ROUGE-L of some."""

    overlong = "truncate"
    scores_bleu = False

    def text_scores(self, texts: list[str], references: list[str]) -> dict[str, float]:
        found = {name: 100 * float(values.mean()) for name, values in rouge_f1(texts, references).items()}
        exact = float(exact_matches(texts, references).mean())
        return {"rouge2": found["rouge2"], "rougeL": found["rougeL"], "exact_match": exact}


@dataclass(frozen=True, kw_only=True, slots=True)
class SummarizationOptions:
    """How summaries are measured.

    The first `limit` documents. With `alternatives` the summaries of equal documents are equally right. Summaries have
    `min_words` to `max_words`; the first `lead_words` words of a document, and its first `lead_sentences` sentences,
    are scored beside them. `metrics` are further scores, by the names that other packages give them.
    """

    limit: int | None = None
    alternatives: bool = False
    min_words: int | None = None
    max_words: int | None = None
    lead_words: int = 12
    lead_sentences: int = 1
    metrics: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        WordLimits(self.min_words, self.max_words)
        if self.lead_words < 1 or self.lead_sentences < 1:
            raise ConfigError(
                f"lead_words={self.lead_words} and lead_sentences={self.lead_sentences} must be at least 1"
            )
        for name in self.metrics:
            METRICS.named(name)


def lead_words(document: str, count: int) -> str:
    """The first words of a document, words being what spaces separate."""
    return " ".join(document.split()[:count])


def lead_sentences(document: str, count: int) -> str:
    """Its first sentences, which end with a full stop, a question mark or an exclamation mark before a space."""
    return " ".join(re.split(r"(?<=[.!?])\s+", document.strip())[:count])


def summarize(
    run: Run,
    documents: Sequence[str],
    *,
    min_words: int | None = None,
    max_words: int | None = None,
    overlong: str = "truncate",
    **decode: Setting,
) -> list[str]:
    """The best summary of each document; `decode` are settings of `DecodeConfig`, such as `beam=5`."""
    found = summaries(run, documents, min_words=min_words, max_words=max_words, overlong=overlong, **decode)
    return [best[0].text for best in found]


def summaries(
    run: Run,
    documents: Sequence[str],
    *,
    min_words: int | None = None,
    max_words: int | None = None,
    overlong: str = "truncate",
    **decode: Setting,
) -> list[list[Translation]]:
    """For each document its best summaries, with scores: `summaries(["..."], beam=5, top_beams=5)`.

    Of a document longer than the model reads the beginning is read; `overlong="refuse"` refuses it.
    """
    if isinstance(documents, str):
        raise DataError("give a list of documents, not one text: [text]")
    found = run.ask("summarize", list(documents), min_words=min_words, max_words=max_words, overlong=overlong, **decode)
    return [list(one.summaries) for one in found]


class SummarizationTask(TranslationTask):
    """Documents to a model that writes their summaries: the same as translation, but for how it is measured."""

    name = "summarization"
    about = "documents with summaries, written from them: sequence to sequence, with copying and coverage"
    data = SummarizationData
    row_columns: ClassVar = ("document", "summary")
    sources = ("train", "telegrams", "corpora")
    evaluation = SummarizationOptions
    prepared = SummarizationRun
    otherwise = "--set data.telegrams=N, a number of bundled sentences with their telegrams"
    parts: ClassVar = {"translator": translator_of, "scorer": scorer_of}
    methods: ClassVar = {"summarize": summarize, "summaries": summaries, "score": score}
    unit = "documents"

    def evaluate(self, run: Run, data: object = None, how: Measuring = MEASURING) -> JsonObject:
        """ROUGE of the summaries, and of the beginnings of the documents beside them."""
        options = how.chosen(SummarizationOptions)
        pairs = self._pairs(run, data, options, how.say)
        documents, references = with_references(pairs, options.alternatives)
        config, words = run.decode_config(**how.decode), WordLimits(options.min_words, options.max_words)
        translator, found, cut = run.translator, [], 0
        long = sum(translator.too_long(document) for document in documents)
        for best in translator.stream(documents, config, overlong="truncate", window=512, words=words):
            found.append(best[0].text)
            cut += not best[0].finished
            if how.out is not None:
                how.out(best[0].text)
            if how.progress is not None:
                how.progress(len(found), len(documents))
        notes = translator.cut_note(cut, len(found), config), translator.truncated_note(long, len(documents))
        for note in notes:
            if note and how.say is not None:
                how.say(note)
        asked = {"min_words": options.min_words, "max_words": options.max_words, **how.decode}
        likelihood, counted = corpus_perplexity(run, pairs)
        exact = exact_matches(found, references)
        result: JsonObject = {
            "documents": len(documents),
            "pairs": len(pairs),
            "cut": cut,
            "truncated": long,
            **corpus_rouge(found, references),
            "rouge_signature": rouge_signature(),
            "exact_match": float(exact.mean()),
            "exact_match_interval": list(mean_interval(exact)),
            "repeated_trigrams": repeated_trigrams(found),
            "repeated_trigrams_of_references": repeated_trigrams([one for several in references for one in several]),
            "words": float(np.mean([len(text.split()) for text in found])),
            "words_of_references": float(np.mean([len(one.split()) for several in references for one in several])),
            "lead": _leads(found, documents, references, options),
            "perplexity": likelihood,
            "perplexity_pairs": counted,
            "decode": {
                **{"beam": config.beam, "length_penalty": config.length_penalty, "length_form": config.length_form},
                **{name: value for name, value in asked.items() if value not in (None, "none")},
            },
        }
        if options.metrics:
            result["metrics"] = {name: METRICS[name](found, references) for name in options.metrics}
        if not options.alternatives:
            result |= unknown_words(run, found, [several[0] for several in references])
        return result

    def _pairs(self, run: Run, data: Any, options: SummarizationOptions, say: Say | None) -> list[tuple[str, str]]:
        config = run.config.data
        if files := files_named(data):
            corpus: Corpus | None = files_corpus(files, config)
            if say is not None:
                check_pairs(corpus, say)
        else:
            given: Any = with_pairs(data)
            corpus = given or corpus_of(config, "test") or corpus_of(config, "valid")
        if corpus is None:
            raise ConfigError("nothing to evaluate on: the run names no test or validation set; give one")
        every = list(corpus)
        pairs = full_pairs(every, options.limit)
        if not pairs:
            raise DataError("nothing to evaluate on: no pair has a document and a summary")
        blank = sum(not (document.strip() and summary.strip()) for document, summary in every)
        if blank and say is not None:
            say(f"{blank:,} of {len(every):,} pairs have an empty document or summary, and are left out")
        return pairs

    def show(self, scores: Mapping[str, Any]) -> str:
        decode, beam = scores["decode"], scores["decode"]["beam"]
        more = [f"{name} {value}" for name, value in decode.items() if name in ("min_words", "max_words", "no_repeat")]
        lines = [f"documents          {scores['documents']:,}  ({', '.join([f'beam {beam}', *more])})"]
        lines += [_shown(TITLES[name], scores[name]) for name in NAMES]
        lines.append(f"{'':18} {scores['rouge_signature']}")
        low, high = scores["exact_match_interval"]
        share, usual = scores["repeated_trigrams"], scores["repeated_trigrams_of_references"]
        lines += [
            f"exact match        {100 * scores['exact_match']:.2f} %  [{100 * low:.2f}, {100 * high:.2f}]",
            f"repeated trigrams  {100 * share:.2f} %  (references {100 * usual:.2f} %)",
            f"words              {scores['words']:.1f}  (references {scores['words_of_references']:.1f})",
        ]
        left = scores["pairs"] - scores["perplexity_pairs"]
        left_out = f"; {left:,} pairs too long for the model left out" if left else ""
        lines.append(
            f"perplexity         {scores['perplexity']:.3f}  (per target token of the run's own vocabulary{left_out})"
        )
        if words := scores.get("unknown_words"):
            low, high = words["right_interval"]
            lines.append(
                f"unknown words      {100 * words['right']:.2f} %  [{100 * low:.2f}, {100 * high:.2f}]  right in "
                f"{words['sentences']:,} summaries that have any"
            )
        for lead in scores["lead"]:
            low, high = lead["ahead_interval"]
            lines += [
                f"beside them, the first {lead['count']} {lead['unit']} of each document:",
                *(f"  {_shown(TITLES[name], lead[name], 16)}" for name in NAMES),
                f"  summaries ahead  {lead['ahead']:+.2f}  [{low:+.2f}, {high:+.2f}]  of ROUGE-L",
            ]
        return "\n".join(lines)

    def compared(self, run: Run, limit: int | None, progress: Progress | None) -> JsonObject:
        how = Measuring(options=SummarizationOptions(limit=limit), decode={"beam": 1}, progress=progress)
        return self.evaluate(run, how=how)

    def headline(self, scores: Mapping[str, Any]) -> dict[str, str]:
        return {
            **{TITLES[name]: f"{scores[name]['f1']:.2f}" for name in ("rouge1", "rouge2", "rougeL")},
            "repeated trigrams": f"{100 * scores['repeated_trigrams']:.2f} %",
        }

    def reads_english(self, run: Run) -> bool:
        return False

    def has_gold(self, run: Run, data: object) -> bool:
        return False


def _leads(
    found: Sequence[str], documents: Sequence[str], references: Sequence[Sequence[str]], options: SummarizationOptions
) -> list[JsonObject]:
    """The first words, and the first sentences, of each document scored as its summary; and how far ahead ours are."""
    ours, rows = rouge_f1(found, references)["rougeL"], []
    for unit, count, make in (
        ("words", options.lead_words, lead_words),
        ("sentences", options.lead_sentences, lead_sentences),
    ):
        texts = [make(document, count) for document in documents]
        gap = ours - rouge_f1(texts, references)["rougeL"]
        rows.append(
            {
                **{"unit": unit, "count": count, **corpus_rouge(texts, references)},
                "ahead": 100 * float(gap.mean()),
                "ahead_interval": [100 * end for end in mean_interval(gap)],
            }
        )
    return rows


def _shown(title: str, score: Mapping[str, Any], width: int = 18) -> str:
    low, high = score["interval"]
    return f"{title:{width}} {score['f1']:.2f}  [{low:.2f}, {high:.2f}]"


TASK = SummarizationTask()
