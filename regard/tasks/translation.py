"""Translation: pairs of texts to a model that writes the second from the first: sequence to sequence."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from torch import nn

from regard import config as settings
from regard.data import Corpus, Loader, PairFiles, PairStore, Position, evaluation_batches, prepare
from regard.data.batches import Layout, PaddedLayout
from regard.data.formats import Header
from regard.data.prepared_cache import cached
from regard.data.sequence_packing import PackedLayout, VariantLayout
from regard.data.synthetic.world import Grammar
from regard.decode.config import DecodeConfig
from regard.errors import ConfigError, DataError
from regard.look.watch import attentions
from regard.metrics.text import METRICS, by_length, corpus_bleu, corpus_scores, exact_match, perplexity
from regard.nn.batch import PackedPairs, Pairs, Tokens
from regard.runs.files import TOKENIZER
from regard.tasks.config import RunConfig
from regard.tasks.corpora import (
    PARTS,
    WorldCorpus,
    check_pairs,
    corpus_of,
    files_corpus,
    training_corpus,
    world_held_out,
)
from regard.tasks.evidence import BUDGET, Evidence
from regard.tasks.examples import FIRST, full_rows
from regard.tasks.gold import word_errors, world_scores
from regard.tasks.looking.pieces import END, START, readable
from regard.tasks.pointing import share
from regard.tasks.questions import Looked, pair_questions
from regard.tasks.run import Run, load_config, prepared_vocabularies
from regard.tasks.spec import (
    MEASURING,
    Files,
    GradientSide,
    Measuring,
    Progress,
    Report,
    Say,
    Task,
    check_columns,
    check_length,
)
from regard.tasks.translator import Overlong, Translation, Translator, encode_pair
from regard.text import Vocabularies, train_vocabularies
from regard.text.bpe_dropout import MergeDropout
from regard.training.loop import validate
from regard.training.objectives import Objective, SequenceToSequence


def _trained_vocabularies(config: RunConfig, corpus: Corpus, report: Report) -> Vocabularies:
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
    )


def _found_vocabularies(path: Path) -> Vocabularies:
    if not path.is_file():
        raise DataError(f"{path} is not there")
    return Vocabularies.load(path)


class TranslationRun:
    """Pairs to train on and, where there are any, to validate on, some of which are translated to see how it goes."""

    def __init__(
        self, config: RunConfig, corpus: Corpus, vocabularies: Vocabularies, directory: Path, report: Report
    ) -> None:
        self.config, self.vocabularies, self.report = config, vocabularies, report
        self.cache = Path(config.data.cache) if config.data.cache else directory / "cache"
        self.objective: Objective = SequenceToSequence(config.train.smoothing, config.train.r_drop)
        report.say("reading and tokenising the training pairs")
        self.stores = self._variants(corpus)
        self.train = self.stores[0]
        report.say(self.train.counts.describe())
        self._check_budget()
        valid = corpus_of(config.data, "valid")
        self.valid = None if valid is None else self._store(valid, "reading and tokenising the validation pairs")
        self.shown = [pair for pair, _ in zip(valid or (), range(config.train.validate_sentences), strict=False)]

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
                self.report.say(
                    f"decode.{name}={value} cuts outputs as long as the longest training targets, which need {needed}"
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

    def stream(self, position: Position, *, pin: bool, pack: bool) -> Loader:
        options = self.config.train
        layout = self._layout(options.batch_tokens, pack)
        return Loader(layout, budget=options.batch_tokens, seed=options.seed, position=position, pin=pin)

    def bounds(self) -> tuple[int, int]:
        tokens = int(self.train.source.lengths.sum() + self.train.target.lengths.sum())
        return max(map(longest_pair, self.stores)), tokens

    def trials(self, budget: int, *, pack: bool) -> list[Pairs | PackedPairs]:
        if pack:  # all batches have one shape
            layout = self._layout(budget, pack)
            return [layout.batch(layout.order(self.config.train.seed, 0)[0])]
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
        translator = Translator(model, self.vocabularies, config.decode, config.model_config().max_len)
        sources = [source for source, _ in self.shown]
        found = [best[0] for best in translator.translate(sources, config.decode.greedy())]
        cut = sum(not one.finished for one in found)
        if note := translator.cut_note(cut, len(found), config.decode):
            self.report.say(f"validation: {note}")
        scores = corpus_scores([one.text for one in found], [target for _, target in self.shown])
        return {"bleu": scores.bleu, "exact_match": scores.exact_match, "cut": float(cut)}

    def _layout(self, budget: int, pack: bool) -> Layout:
        if len(self.stores) > 1:
            return VariantLayout(self.stores, budget, pack=pack)
        return PackedLayout(self.train, budget) if pack else PaddedLayout(self.train, budget)

    def _variants(self, corpus: Corpus) -> list[PairStore]:
        """The training pairs as tokens, in as many ways as the tokenizer's settings ask for."""
        options, what = self.config.tokenizer, "reading and tokenising"
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


def _questions(pairs: Sequence[tuple[str, str]], alternatives: bool) -> tuple[list[str], list[list[str]]]:
    """What to translate, and the right answers to each."""
    if not alternatives:
        return [source for source, _ in pairs], [[target] for _, target in pairs]
    answers: dict[str, list[str]] = {}
    for source, target in pairs:
        answers.setdefault(source, []).append(target)
    return list(answers), list(answers.values())


def check_tokenizer(tokenize: str) -> None:
    """Refuse a tokenizer of sacreBLEU's that is unknown or not installed before anything is translated."""
    try:
        corpus_bleu(["a"], ["a"], tokenize=tokenize)
    except (ImportError, RuntimeError, OSError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ConfigError(f"sacreBLEU cannot tokenize with {tokenize!r}: {reason}") from None


def corpus_perplexity(run: Run, pairs: Sequence[tuple[str, str]]) -> tuple[float, int]:
    """exp of the mean negative log-likelihood of a target token, given the source and the tokens before it.

    And over how many pairs: those that the model can read whole.
    """
    longest = run.translator.max_len
    rows = [pair for pair in (encode_pair(run, *pair) for pair in pairs) if max(map(len, pair)) <= longest]
    if not rows:
        raise DataError(f"every pair is longer than the model's max_len={longest}")
    store = PairStore.of(rows, run.vocabularies.source.pad)
    device = next(run.model.parameters()).device
    values = validate(run.model, SequenceToSequence(), evaluation_batches(store, max(8192, 2 * longest)), device=device)
    return perplexity(values["nll"], 1), len(rows)


def unknown_words(run: Run, hypotheses: Sequence[str], references: Sequence[str]) -> dict[str, Any]:
    """How often the words of a reference that a word vocabulary does not know come out right, all and in order.

    Nothing where every word is known. `right` is over the sentences that have such words.
    """
    tokenizer = run.vocabularies.target
    if set(run.config.tokenizer.kinds) != {"word"}:
        return {}

    def unknown(text: str) -> list[str]:
        pairs = zip(tokenizer.split(text), tokenizer.encode(text), strict=True)
        return [word for word, index in pairs if index == tokenizer.unk]

    judged = [(unknown(one), unknown(other)) for one, other in zip(hypotheses, references, strict=True)]
    judged = [(found, wanted) for found, wanted in judged if wanted]
    if not judged:
        return {}
    shares = share("right", [found == wanted for found, wanted in judged])
    return {"unknown_words": {"sentences": len(judged), "words": sum(len(words) for _, words in judged), **shares}}


def translator_of(run: Run) -> Translator:
    """Sentences in, translations out."""
    return Translator(run.model, run.vocabularies, run.config.decode, run.config.model_config().max_len)


def translate(run: Run, sentences: Sequence[str], *, overlong: Overlong = "split", **decode: Any) -> list[str]:
    """The best translation of each sentence; `decode` are settings of `DecodeConfig`, such as `beam=5`."""
    return [found[0].text for found in translations(run, sentences, overlong=overlong, **decode)]


def translations(
    run: Run, sentences: Sequence[str], *, overlong: Overlong = "split", **decode: Any
) -> list[list[Translation]]:
    """For each sentence its best translations, with scores: `translations(["..."], beam=5, top_beams=5)`."""
    if isinstance(sentences, str):
        raise DataError("give a list of sentences, not one text: [text]")
    return run.translator.translate(list(sentences), run.decode_config(**decode), overlong=overlong)


class Pairing(Evidence):
    """Pairs of sentences: BLEU of greedy translations."""

    name = "bleu"

    def __init__(self, run: Run, corpus: Corpus | None = None, limit: int = 200) -> None:
        corpus = corpus or corpus_of(run.config.data, "valid") or corpus_of(run.config.data, "test")
        if corpus is None:
            raise ConfigError("nothing to judge heads by: the run names no validation or test set; give one")
        longest = run.translator.max_len
        full = (pair for pair in corpus if pair[0].strip() and pair[1].strip())
        fits = (pair for pair in full if max(map(len, encode_pair(run, *pair))) <= longest)
        self.pairs = list(islice(fits, limit))
        if not self.pairs:
            raise DataError("nothing to judge heads by: no pair has two sides that the model can read")
        store = PairStore.of([encode_pair(run, *pair) for pair in self.pairs], run.vocabularies.source.pad)
        batches = evaluation_batches(store, max(BUDGET, 2 * longest))
        super().__init__(run, SequenceToSequence(), list(batches), len(self.pairs))

    def score(self, run: Run) -> float:
        found = run.translate([source for source, _ in self.pairs], beam=1)
        return corpus_bleu(found, [target for _, target in self.pairs])[0]


SHORT, LONG = 12, 30
"""Words of a source below which a sentence is short, and from which on it is long."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TranslationData(Files):
    """Pairs of texts: in two line-aligned files, in one `.tsv`, `.csv`, `.jsonl` or `.parquet`, or bundled.

    All but `.parquet` may be compressed too: `.gz`, `.bz2`, `.xz`. `source` and `target` name the two sides: the keys
    of JSONL, the columns of a table, by name or by number from 1, the languages `en` and `fr` of the bundled corpus, in
    either direction. `header` says whether the first row of a TSV or CSV names its columns; `auto` takes it for that
    where it holds their names, and says so.

    `world` is how many bundled pairs to train on; its own held-out sentences then serve for validation and test.
    `world_grammar` is the whole grammar or the plain part of it. `overlong` says what becomes of pairs longer than
    `max_len` tokens.
    """

    world: int = 0
    world_seed: int = 1
    world_grammar: Grammar = "whole"
    source: str | int = "en"
    target: str | int = "fr"
    max_len: int = 256
    overlong: Literal["skip", "truncate", "refuse"] = "skip"
    header: Header = "auto"

    def __post_init__(self) -> None:
        if self.world and self.train:
            raise ConfigError("data.train and data.world are two sources of training pairs; give one")
        if self.world and {self.source, self.target} != {"en", "fr"}:
            raise ConfigError(f"the bundled corpus has en and fr, not {self.source} and {self.target}")
        check_length(self.max_len)
        check_columns(source=self.source, target=self.target)
        for name in ("train", "valid", "test"):
            if len(getattr(self, name)) > 2:
                raise ConfigError(f"data.{name} takes one file of pairs or two line-aligned files")


@dataclass(frozen=True, kw_only=True, slots=True)
class TranslationOptions:
    """How translations are measured.

    The first `limit` pairs, or the bundled corpus's held-out ones (`world`). With `alternatives` the targets of equal
    sources are equally right answers to one question. `metrics` are further scores, by the names that other packages
    give them.
    """

    limit: int | None = None
    world: bool = False
    overlong: Overlong = "split"
    lowercase: bool = False
    tokenize: str = "13a"
    alternatives: bool = False
    metrics: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_tokenizer(self.tokenize)
        for name in self.metrics:
            METRICS.named(name)


def _files(data: Any) -> tuple[str, ...]:
    """The names, where `data` are names of files."""
    named = isinstance(data, Sequence) and all(isinstance(one, str | Path) for one in data)
    return tuple(map(str, data)) if named else ()


class TranslationTask(Task):
    """Pairs of texts to a model that writes the second from the first: sequence to sequence."""

    name = "translation"
    about = "pairs of texts, the second written from the first: sequence to sequence"
    data = TranslationData
    sources = ("train", "world")
    evaluation = TranslationOptions
    unused: ClassVar = ("images",)
    parts: ClassVar = {"translator": translator_of}
    methods: ClassVar = {"translate": translate, "translations": translations}
    has_lengths = True
    searches = True
    keeps_decoding = True
    lifts_limits = True
    sides = 2
    unit = "sentences"

    def check(self, config: RunConfig) -> None:
        if config.model.get("copy"):
            if not config.tokenizer.joint or set(config.tokenizer.kinds) != {"word"}:
                kind = "tokenizer.kind='word' and tokenizer.joint=true"
                raise ConfigError(f"model.copy=true copies words: it needs {kind}")
            if config.train.r_drop:
                raise ConfigError(f"train.r_drop={config.train.r_drop} is not for models that copy")

    def check_files(self, config: RunConfig, say: Say) -> None:
        for part in PARTS:
            for file in getattr(config.data, part):
                if not Path(file).exists():
                    raise DataError(f"no such file: {file}")
            if isinstance(pairs := corpus_of(config.data, part), PairFiles):
                check_pairs(pairs, say)

    def prepare(
        self, config: RunConfig, directory: Path, report: Report, *, new: bool
    ) -> tuple[RunConfig, TranslationRun]:
        """The pairs tokenised; for a new run, with a tokenizer trained on them, or that of the run it starts from."""
        corpus = training_corpus(config.data)
        config, vocabularies = prepared_vocabularies(
            config, directory, lambda: _trained_vocabularies(config, corpus, report), new=new
        )
        prepared = TranslationRun(config, corpus, vocabularies, directory, report)
        if new:
            config = prepared.config = prepared.with_limits()
        return config, prepared

    def evaluate(self, run: Run, data: Any = None, how: Measuring = MEASURING) -> dict[str, Any]:
        """Text scores with their signatures and, where gold is known, what lies behind them."""
        options = how.chosen(TranslationOptions)
        corpus = self._corpus(run, data, options, how.say)
        alternatives, lowercase, tokenize = options.alternatives, options.lowercase, options.tokenize
        pairs = list(islice((pair for pair in corpus if pair[0].strip() and pair[1].strip()), options.limit))
        if not pairs:
            raise DataError("nothing to evaluate on: no pair has both sides")
        sources, references = _questions(pairs, alternatives)
        config = run.decode_config(**how.decode)
        hypotheses, cut = [], 0
        for found in run.translator.stream(sources, config, overlong=options.overlong, window=512):
            hypotheses.append(found[0].text)
            cut += not found[0].finished
            if how.out is not None:
                how.out(found[0].text)
            if how.progress is not None:
                how.progress(len(hypotheses), len(sources))
        likelihood, counted = corpus_perplexity(run, pairs)
        if how.say is not None and (note := run.translator.cut_note(cut, len(sources), config)):
            how.say(note)
        words = [len(source.split()) for source in sources]
        bands = by_length(hypotheses, references, words, lowercase=lowercase, tokenize=tokenize)
        result: dict[str, Any] = {
            "sentences": len(sources),
            "pairs": len(pairs),
            "cut": cut,
            **corpus_scores(hypotheses, references, lowercase=lowercase, tokenize=tokenize).to_mapping(),
            "perplexity": likelihood,
            "perplexity_sentences": counted,
            "by_length": [band.to_mapping() for band in bands],
            "decode": {"beam": config.beam, "length_penalty": config.length_penalty, "length_form": config.length_form},
        }
        if options.metrics:
            result["metrics"] = {name: METRICS[name](hypotheses, references) for name in options.metrics}
        if not alternatives:
            result |= unknown_words(run, hypotheses, [answers[0] for answers in references])
        if isinstance(corpus, WorldCorpus) and not alternatives:
            result |= world_scores(run, corpus, hypotheses)
        return result

    def _corpus(self, run: Run, data: Any, options: TranslationOptions, say: Say | None) -> Corpus:
        config = run.config.data
        if options.world:
            return world_held_out("test", str(config.source), grammar=config.world_grammar)
        if files := _files(data):
            given = files_corpus(files, config)
            if say is not None:
                check_pairs(given, say)
            return given
        corpus: Corpus | None = data or corpus_of(config, "test") or corpus_of(config, "valid")
        if corpus is None:
            raise ConfigError("nothing to evaluate on: the run names no test or validation set; give one")
        return corpus

    def show(self, scores: Mapping[str, Any]) -> str:
        return shown(scores)

    def compared(self, run: Run, limit: int | None, progress: Progress | None) -> dict[str, Any]:
        """Greedy translations, and of these the short and the long, and words repeated, left out and said too often."""
        corpus = self._corpus(run, None, TranslationOptions(), None)
        hypotheses: list[str] = []
        options = TranslationOptions(limit=limit)
        how = Measuring(options=options, decode={"beam": 1}, out=hypotheses.append, progress=progress)
        result = self.evaluate(run, corpus, how)
        pairs = list(islice((pair for pair in corpus if pair[0].strip() and pair[1].strip()), limit))
        lengths = [len(source.split()) for source, _ in pairs]
        for name, rows in (
            ("short", [row for row, words in enumerate(lengths) if words < SHORT]),
            ("long", [row for row, words in enumerate(lengths) if words >= LONG]),
        ):
            share = exact_match([hypotheses[row] for row in rows], [pairs[row][1] for row in rows]) if rows else None
            result[name] = {"sentences": len(rows), "exact_match": share}
        if isinstance(corpus, WorldCorpus):
            result["words"] = word_errors(corpus, hypotheses).to_mapping()
        first = pairs[:200]
        result["mean_tokens"] = sum(sum(map(len, encode_pair(run, *pair))) for pair in first) / len(first)
        return result

    def look(self, run: Run, inputs: Sequence[Any], wanted: Any, **decode: Any) -> Any:
        from regard.tasks.looking.translation import translation

        return translation(run, inputs, wanted, **decode)

    def looks(self, run: Run) -> bool:
        return bool(attentions(run.model))

    def reads_english(self, run: Run) -> bool:
        return run.config.data.source == "en"

    def has_gold(self, run: Run, data: Any) -> bool:
        used = data or corpus_of(run.config.data, "test")
        return isinstance(used, WorldCorpus) and used.grammar == "whole"  # the plain part has no pronouns

    def questions(self, run: Run, data: Any, limit: int) -> list[Looked]:
        if data is not None and isinstance(data, Sequence):
            data = files_corpus(tuple(map(str, data)), run.config.data)
        corpus = data or corpus_of(run.config.data, "test") or corpus_of(run.config.data, "valid")
        if corpus is None:
            raise ConfigError("no sentences to look at: the run names no test or validation set; give some")
        if isinstance(corpus, WorldCorpus):
            drawn: Sequence[Any] = list(islice(corpus.drawn(), limit))
            texts = [sentence.english if corpus.source == "en" else sentence.french for sentence in drawn]
        else:
            drawn = list(islice((pair for pair in corpus if pair[0].strip() and pair[1].strip()), limit))
            texts = [pair[0] for pair in drawn]
        counts = Counter(word.lower() for text in texts for word in text.split())
        items = [pair_questions(run, one, counts) for one in drawn]
        return [item for item in items if max(map(len, item.rows)) <= run.translator.max_len]

    def batch_of(self, run: Run, items: Sequence[Looked]) -> Pairs:
        pad = run.vocabularies.source.pad
        source, target = (Tokens.of([item.rows[side] for item in items], pad) for side in (0, 1))
        return Pairs(source, target).to(run.device)

    def evidence(self, run: Run, files: Sequence[str] | None, limit: int) -> Evidence:
        return Pairing(run, files_corpus(tuple(files), run.config.data) if files else None, limit)

    def example(self, config: RunConfig, length: int, rows: int = 1) -> Pairs:
        source, target = Tokens.of([[FIRST] * length] * rows), Tokens.of([[FIRST] * (length + 1)] * rows)
        return Pairs(source, target, rows * length)

    def random_batches(self, config: RunConfig, count: int) -> tuple[RunConfig, Objective, list[Pairs]]:
        draw = torch.Generator().manual_seed(0)
        objective = SequenceToSequence(config.train.smoothing, config.train.r_drop)
        length = max(2, min(config.data.max_len, 32) - 2)
        rows = max(1, config.train.batch_tokens // (2 * length + 1))
        sizes = config.with_stand_ins().model_config()

        def side(size: int, length: int) -> Tokens:
            return full_rows(torch.randint(FIRST, size, (rows, length), generator=draw))

        def batch() -> Pairs:
            source, target = side(sizes.source_vocab_size, length), side(sizes.target_vocab_size, length + 1)
            return Pairs(source, target, rows * length)

        return config, objective, [batch() for _ in range(count)]

    def gradient_sides(self, run: Run, text: str, target: str | None) -> list[GradientSide]:
        tokenizers = run.vocabularies
        source = tokenizers.source.encode(text)
        opened = tokenizers.source_row(source)[:-1]
        if target is None:
            other = list(run.translations([text], overlong="refuse", beam=1)[0][0].tokens)
        else:
            other = tokenizers.target.encode(target)
        ids = [tokenizers.target.bos, *other, tokenizers.target.eos]
        return [
            ("source", tokenizers.source_row(source), [*readable(tokenizers.source.pieces(opened)), END]),
            ("target", ids, [START, *readable(tokenizers.target.pieces(other))]),
        ]

    def gradient_words(self, words: Sequence[str], target: Sequence[str] | None, ids: Any) -> list[GradientSide]:
        others = words if target is None else target
        return [("source", [*ids(words), 2], [*words, END]), ("target", [1, *ids(others), 2], [START, *others])]


def shown(result: Mapping[str, Any]) -> str:
    """The scores for a person, every one with its setting."""
    low, high = result["bleu_interval"]
    exact_low, exact_high = result["exact_match_interval"]
    too_long = result["pairs"] - result["perplexity_sentences"]
    left_out = f"; {too_long:,} pairs too long for the model left out" if too_long else ""
    lines = [
        f"sentences          {result['sentences']:,}  (beam {result['decode']['beam']})",
        f"BLEU               {result['bleu']:.2f}  [{low:.2f}, {high:.2f}]  {result['bleu_signature']}",
        f"BLEU, tokenised    {result['tokenised_bleu']:.2f}  {result['tokenised_bleu_signature']}",
        f"chrF               {result['chrf']:.2f}  {result['chrf_signature']}",
        f"TER                {result['ter']:.2f}  {result['ter_signature']}",
        f"exact match        {100 * result['exact_match']:.2f} %  [{100 * exact_low:.2f}, {100 * exact_high:.2f}]",
        f"token error rate   {100 * result['token_error_rate']:.2f} %  (edits per reference word)",
        f"perplexity         {result['perplexity']:.3f}  (per target token of the run's own vocabulary{left_out})",
    ]
    if result.get("pronoun_accuracy") is not None:
        lines.append(f"pronoun accuracy   {100 * result['pronoun_accuracy']:.2f} %  of {result['pronouns']}")
    if "alignment_error_rate" in result:
        head = result["alignment_head"]
        lines.append(
            f"alignment error    {result['alignment_error_rate']:.3f}  ({head['attention']}, head {head['head']}, "
            f"chosen on validation sentences, at the step that predicts the word)"
        )
    if words := result.get("unknown_words"):
        low, high = words["right_interval"]
        lines.append(
            f"unknown words      {100 * words['right']:.2f} %  [{100 * low:.2f}, {100 * high:.2f}]  right in "
            f"{words['sentences']:,} sentences that have any"
        )
    lines.append("by source length   words   sentences   exact match   BLEU")
    for band in result["by_length"]:
        if band["count"]:
            words = f"{band['low']}-{band['high'] - 1}" if band["high"] else f"{band['low']}+"
            exact, bleu = 100 * band["exact_match"], band["bleu"]
            lines.append(f"{'':18} {words:>6}   {band['count']:>9,}   {exact:>9.1f} %   {bleu:>5.1f}")
    return "\n".join(lines)


TASK = TranslationTask()
