"""Pairs of texts made ready for training: a tokenizer, token ids in a cache, batches, and limits of outputs."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from torch import nn

from regard import config as settings
from regard.data import Corpus, PairStore, evaluation_batches, prepare
from regard.data.batches import PaddedLayout
from regard.data.lexical_swaps import SwappedCorpus, describe_swaps, find_swaps
from regard.data.loader import Layout
from regard.data.mixing import even_places, even_sample
from regard.data.prepared_cache import cached, opened, write_meta
from regard.data.sequence_packing import PackedLayout, VariantLayout
from regard.decode.config import DecodeConfig
from regard.errors import ConfigError, DataError
from regard.metrics.text import bleu_tokenizer, corpus_scores
from regard.nn.batch import PackedPairs, Pairs
from regard.runs.files import TOKENIZER
from regard.tasks.config import RunConfig
from regard.tasks.corpora import PreparedData, TranslationData, cache_directory, corpus_of
from regard.tasks.run import load_config
from regard.tasks.spec import Report, mix_of, warn
from regard.tasks.translation_metrics import per_character
from regard.tasks.translator import Overlong, Translator
from regard.text import Vocabularies, train_vocabularies
from regard.text.bpe_dropout import MergeDropout
from regard.training.objectives import Objective, SequenceToSequence


def swaps_of(config: RunConfig) -> int:
    """In how many ways words are exchanged in the training pairs, where the task's data knows of that."""
    return config.data.swaps if isinstance(config.data, TranslationData) else 0


def objective_of(config: RunConfig) -> Objective[Any]:
    """What a run on pairs is trained for."""
    return SequenceToSequence(config.train.smoothing, config.train.r_drop, float(config.model.get("coverage", 0.0)))


def trained_vocabularies(config: RunConfig, corpus: Corpus, report: Report) -> Vocabularies:
    """A tokenizer for the corpus; from `data.cache`, where runs share one, if it is there already."""

    def trained() -> Vocabularies:
        report.say("training the tokenizer")
        return train_vocabularies(_Counted(corpus, "training the tokenizer", report), config.tokenizer)

    if not config.data.cache:
        return trained()
    key = ["tokenizer", corpus.digest(), settings.to_mapping(config.tokenizer, nulls=True)]
    return cached(
        Path(config.data.cache),
        key,
        lambda folder: _found_vocabularies(folder / TOKENIZER),
        lambda folder: trained().save(folder / TOKENIZER),
        report.say,
    )


def _found_vocabularies(path: Path) -> Vocabularies:
    if not path.is_file():
        raise DataError(f"{path} is not there")
    return Vocabularies.load(path)


SHOWN = 300
"""Characters of a text that a validation shows."""


def shortened(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."


SAMPLE = 1
"""The version of what is kept of a validation set to be decoded; another way of sampling is another."""


def _sampled(folder: Path) -> list[tuple[str, str]]:
    """The pairs that were kept in `folder`."""
    with opened(folder, "sample", SAMPLE) as meta:
        return [(source, target) for source, target in meta["pairs"]]


class TranslationRun(PreparedData):
    """Pairs to train on and, where there are any, to validate on, some of which are translated to see how it goes."""

    overlong: ClassVar[Overlong] = "split"
    scores_bleu: ClassVar[bool] = True

    def __init__(
        self, config: RunConfig, corpus: Corpus, vocabularies: Vocabularies, directory: Path, report: Report
    ) -> None:
        self.config, self.vocabularies, self.report = config, vocabularies, report
        self.cache = cache_directory(config, directory)
        self.objective: Objective = objective_of(config)
        report.say("reading and tokenising the training pairs")
        self.stores = self._variants(corpus)
        self.train = self.stores[0]
        if self.train.counts.whole:
            report.say(self.train.counts.describe())
        else:
            warn(report, self.train.counts.describe())
        self.mix = mix_of(config.data)
        if self.mix is not None:
            report.say(self.mix.describe(self.mix.of(self.train.parts), "pairs"))
        self._check_budget()
        valid = corpus_of(config.data, "valid")
        self.valid = None if valid is None else self._store(valid, "reading and tokenising the validation pairs")
        if self.valid is not None and not self.valid.counts.whole:
            warn(report, f"validation: {self.valid.counts.describe()}")
        self.shown = [] if valid is None else self._shown(valid, config.train.validate_sentences)
        self.tokenize = bleu_tokenizer([target for _, target in self.shown])
        if self.tokenize != "13a" and self.scores_bleu:
            report.say(f"validation: {per_character(self.tokenize)}")

    def _shown(self, valid: Corpus, count: int) -> list[tuple[str, str]]:
        """So many validation pairs, from all over them, to translate."""
        assert self.valid is not None
        read, wanted = self.valid.counts.read - self.valid.counts.blank, count
        if not wanted:
            return []
        if wanted < read:
            self.report.say(f"of {read:,} validation pairs {wanted:,}, taken evenly, are also decoded")
        places = {*even_places(read, wanted)}

        def sample(folder: Path) -> None:
            full = ((source, target) for source, target in valid if source.strip() and target.strip())
            pairs = [pair for place, pair in zip(range(max(places) + 1), full, strict=False) if place in places]
            write_meta(folder, SAMPLE, pairs=pairs)

        # Where they are kept, no later start reads all of a corpus for a few.
        return cached(self.cache, ["shown", SAMPLE, valid.digest(), wanted], _sampled, sample, self.report.say)

    def with_limits(self) -> RunConfig:
        """The configuration with an output's greatest length raised to what the training targets need.

        Only where it is as by default or as in the run that this one starts from: other limits were meant, and it is
        said where they are less.
        """
        decode, begun = self.config.decode, self.config.train.start_from
        known = [DecodeConfig(), *([load_config(Path(begun)).decode] if begun else [])]
        raised: dict[str, int] = {}
        for name, needed in self._needed().items():
            value = getattr(decode, name)
            if value is None or value >= needed:
                continue
            if value in [getattr(one, name) for one in known]:
                raised[name] = needed
            else:
                warn(
                    self.report,
                    f"decode.{name}={value} cuts outputs as long as the longest training targets, which need {needed}",
                )
        if raised:
            which = ", ".join(f"decode.{name}={value}" for name, value in raised.items())
            self.report.say(f"the longest training targets need {which}, which is now the run's setting")
        return replace(self.config, decode=replace(decode, **raised))

    def _needed(self) -> dict[str, int]:
        """The least limits under which no training target would be cut; `eos` is a choice, `bos` is none."""
        ratio = self.config.decode.max_ratio
        needed: dict[str, int] = {}
        for store in self.stores:
            choices, sources = store.target.lengths - 1, store.source.lengths
            found = {"max_len": int(choices.max())}
            if ratio is not None:
                found["max_extra"] = int((choices - (ratio * sources).astype(choices.dtype)).max())
            needed = {name: max(value, needed.get(name, value)) for name, value in found.items()}
        return needed

    def bounds(self) -> tuple[int, int]:
        tokens = int(self.train.source.lengths.sum() + self.train.target.lengths.sum())
        return max(map(longest_pair, self.stores)), tokens

    def trials(self, budget: int, *, pack: bool) -> list[Pairs | PackedPairs]:
        if pack:  # all batches have one shape
            return super().trials(budget, pack=pack)
        store = max(self.stores, key=longest_pair)
        padding = PaddedLayout(store, budget)
        order = padding.order(self.config.train.seed, 0)
        longest = max(order, key=lambda rows: int(store.source.lengths[rows].max()))
        return [padding.batch(rows) for rows in (longest, max(order, key=len), order[0])]

    def validation(self) -> Iterator[Pairs] | None:
        if self.valid is None:
            return None
        # A validation pair may be longer than any training pair.
        return evaluation_batches(self.valid, max(self.config.train.batch_tokens, longest_pair(self.valid)))

    def scores(self, model: nn.Module) -> dict[str, float]:
        if not self.shown:
            return {}
        config = self.config
        longest = config.model_config().max_len
        translator = Translator(model, self.vocabularies, config.decode, longest, captures=False)
        sources = [source for source, _ in self.shown]
        greedy = replace(config.decode.greedy(), shortlist=False)
        found = [best[0] for best in translator.translate(sources, greedy, overlong=self.overlong)]
        cut = sum(not one.finished for one in found)
        if cut:  # what to do about it is for the guard rails to say, late in training
            self.report.say(f"validation: {cut:,} of {len(found):,} outputs were cut at their greatest length")
        for (source, target), one in even_sample([*zip(self.shown, found, strict=True)], config.train.show_outputs):
            said, written, right = map(shortened, (source, one.text, target))
            self.report.say(f"  {said}\n    written    {written}\n    reference  {right}")
        values = {
            **self.text_scores([one.text for one in found], [target for _, target in self.shown]),
            "cut": float(cut),
            "outputs": float(len(found)),
        }
        return values | ({"unknown": self.unknown} if self.unknown else {})

    def text_scores(self, texts: list[str], references: list[str]) -> dict[str, float]:
        """How close the texts that a validation wrote are to those that are right."""
        scores = corpus_scores(texts, references, tokenize=self.tokenize)
        return {"bleu": scores.bleu, "exact_match": scores.exact_match}

    @cached_property
    def unknown(self) -> float:
        """The share of the validation tokens that are unknown."""
        assert self.valid is not None
        sides = (self.valid.source, self.vocabularies.source.unk), (self.valid.target, self.vocabularies.target.unk)
        counts = [(int((rows.tokens == unknown).sum()), len(rows.tokens)) for rows, unknown in sides]
        return round(sum(found for found, _ in counts) / max(1, sum(total for _, total in counts)), 5)

    def layout(self, budget: int, *, pack: bool = False) -> Layout:
        mixtures = [None if self.mix is None else self.mix.of(store.parts) for store in self.stores]
        if len(self.stores) > 1:
            return VariantLayout(self.stores, budget, pack=pack, mixtures=mixtures)
        kind = PackedLayout if pack else PaddedLayout
        return kind(self.train, budget, mixtures[0])

    def _variants(self, corpus: Corpus) -> list[PairStore]:
        """The training pairs as tokens, in as many ways as the tokenizer's settings ask for."""
        options, what = self.config.tokenizer, "reading and tokenising"
        if swaps := swaps_of(self.config):
            if groups := tuple(find_swaps(corpus)):
                self.report.say(f"words that are exchanged in {swaps} ways: {describe_swaps(groups)}")
                ways = [SwappedCorpus(corpus, groups, way) for way in range(swaps)]
                return [self._store(way, f"{what}, way {way.variant + 1}") for way in ways]
            warn(self.report, f"data.swaps={swaps}: no words were found that can be exchanged, and none are")
        if not options.dropout:
            return [self._store(corpus, what)]
        drops = [MergeDropout(options.dropout, variant) for variant in range(options.variants)]
        return [self._store(corpus, f"{what}, variant {drop.variant + 1}", drop) for drop in drops]

    def _store(self, corpus: Corpus, what: str, drop: MergeDropout | None = None) -> PairStore:
        data = self.config.data
        return prepare(
            corpus,
            self.vocabularies,
            self.cache,
            max_len=data.max_len,
            overlong=data.overlong,
            progress=lambda pairs: self.report.progress(what, pairs),
            drop=drop,
            copying=bool(self.config.model.get("copy")),
            workers=data.workers,
            say=self.report.say,
        )

    def _check_budget(self) -> None:
        budget, longest = self.config.train.batch_tokens, max(map(longest_pair, self.stores))
        if budget < longest:
            raise ConfigError(
                f"train.batch_tokens={budget} is less than the longest pair, which has {longest} tokens; "
                f"raise it, or lower data.max_len={self.config.data.max_len}"
            )


def longest_pair(store: PairStore) -> int:
    """Source and target tokens of the longest pair: the least a batch must hold."""
    return int((store.source.lengths + store.target.lengths).max())


class _Counted:
    """The pairs, as often as they are read, and how many have been read told now and then."""

    def __init__(self, pairs: Iterable[tuple[str, str]], what: str, report: Report) -> None:
        self.pairs, self.what, self.report = pairs, what, report

    def __iter__(self) -> Iterator[tuple[str, str]]:
        for number, pair in enumerate(self.pairs, 1):
            yield pair
            if number % 1000 == 0:
                self.report.progress(self.what, number)
