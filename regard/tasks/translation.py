"""Translation: pairs of texts to a model that writes the second from the first: sequence to sequence."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from regard.config import JsonObject, Setting
from regard.data import Corpus, PairList, PairStore, evaluation_batches
from regard.data.synthetic.world.sentence import words_of
from regard.errors import ConfigError, DataError
from regard.look.document import Document
from regard.look.watch import attentions
from regard.metrics.text import METRICS, bleu_tokenizer, by_length, corpus_bleu, corpus_scores, exact_match
from regard.nn.batch import Pairs, Tokens
from regard.tasks.config import RunConfig
from regard.tasks.corpora import (
    FIRST_TOKEN,
    TranslationData,
    WorldCorpus,
    check_pair_files,
    check_pairs,
    corpus_of,
    files_corpus,
    full_pairs,
    full_rows,
    training_corpus,
    world_held_out,
)
from regard.tasks.ensemble import Ensemble
from regard.tasks.looking.look_options import LookOptions
from regard.tasks.looking.steps import END, START, readable
from regard.tasks.probes import (
    COUNTED,
    HELD_OUT_BUDGET,
    HeldOutData,
    Probe,
    are_trees,
    files_are_there,
    pair_probe,
    sentence_as_source,
    split_words,
    tree_probes,
)
from regard.tasks.run import Run, prepared_vocabularies
from regard.tasks.scorer import PairScorer
from regard.tasks.shortlisting import read_shortlist
from regard.tasks.spec import MEASURING, GradientSide, Measuring, Progress, Report, Say, Task, WordIds
from regard.tasks.translation_data import TranslationRun, objective_of, swaps_of, trained_vocabularies
from regard.tasks.translation_metrics import (
    check_tokenizer,
    corpus_perplexity,
    show_scores,
    tokenizer_for,
    unknown_words,
    word_errors,
    world_scores,
)
from regard.tasks.translator import Overlong, Translation, Translator, encode_pair
from regard.tasks.verbs.score import Scored
from regard.training.objectives import Objective, SequenceToSequence

if TYPE_CHECKING:
    from regard.tasks.planning import Choices, Machine, Recognised


def with_references(pairs: Sequence[tuple[str, str]], alternatives: bool) -> tuple[list[str], list[list[str]]]:
    """What to translate, and the references of each."""
    if not alternatives:
        return [source for source, _ in pairs], [[target] for _, target in pairs]
    answers: dict[str, list[str]] = {}
    for source, target in pairs:
        answers.setdefault(source, []).append(target)
    return list(answers), list(answers.values())


def translator_of(run: Run) -> Translator:
    """Sentences in, translations out."""
    longest = run.config.model_config().max_len
    return Translator(run.model, run.vocabularies, run.config.decode, longest, shortlist=partial(read_shortlist, run))


def translate(run: Run, sentences: Sequence[str], *, overlong: Overlong = "split", **decode: Setting) -> list[str]:
    """The best translation of each sentence; `decode` are settings of `DecodeConfig`, such as `beam=5`."""
    return [found[0].text for found in _translated(run, sentences, decode, overlong)]


def translations(
    run: Run, sentences: Sequence[str], *, overlong: Overlong = "split", alignments: bool = False, **decode: Setting
) -> list[list[Translation]]:
    """For each sentence its best translations, with scores: `translations(["..."], beam=5, top_beams=5)`.

    With `alignments` each says which words belong together.
    """
    return _translated(run, sentences, decode, overlong, alignments)


def _translated(
    run: Run, sentences: Sequence[str], decode: dict[str, Setting], overlong: Overlong, alignments: bool = False
) -> list[list[Translation]]:
    if isinstance(sentences, str):
        raise DataError("give a list of sentences, not one text: [text]")
    if not isinstance(sentences, Iterable):
        raise DataError(f"give a list of sentences, not {sentences!r:.60}")
    config = run.decode_config(**decode)
    return run.translator.translate(list(sentences), config, overlong=overlong, alignments=alignments)


def scorer_of(run: Run) -> PairScorer:
    """Pairs in, log-probabilities out."""
    return PairScorer(run.translator)


def score(run: Run, pairs: Sequence[tuple[str, str]], *, tokens: bool = False) -> list[Scored]:
    """How likely each target is given its source: `score([("I am a student.", "Je suis étudiant.")])[0].log_prob`."""
    return run.ask("score", pairs, tokens=tokens)


class HeldOutPairs(HeldOutData):
    """Held-out pairs of sentences: BLEU of greedy translations."""

    name = "bleu"

    def __init__(self, run: Run, corpus: Corpus | None = None, limit: int = 200) -> None:
        corpus = corpus or corpus_of(run.config.data, "valid") or corpus_of(run.config.data, "test")
        if corpus is None:
            raise ConfigError("nothing to score heads by: the run names no validation or test set; give one")
        longest = run.translator.max_len
        full = (pair for pair in corpus if pair[0].strip() and pair[1].strip())
        self.pairs = list(islice((one for one in full if max(map(len, encode_pair(run, *one))) <= longest), limit))
        if not self.pairs:
            raise DataError("nothing to score heads by: no pair has two sides that the model can read")
        store = PairStore.of([encode_pair(run, *pair) for pair in self.pairs], run.vocabularies.source.pad)
        batches = evaluation_batches(store, max(HELD_OUT_BUDGET, 2 * longest))
        super().__init__(run, SequenceToSequence(), list(batches), len(self.pairs))

    def score(self, run: Run) -> float:
        best = run.translator.translate([source for source, _ in self.pairs], run.decode_config(beam=1))
        found = [one[0].text for one in best]
        targets = [target for _, target in self.pairs]
        return corpus_bleu(found, targets, tokenize=bleu_tokenizer(targets))[0]


SHORT, LONG = 12, 30
"""Words of a source below which a sentence is short, and from which on it is long."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TranslationOptions:
    """How translations are measured.

    The first `limit` pairs, or the bundled corpus's held-out ones (`world`). With `alternatives` the targets of equal
    sources are equally right answers to one question. `tokenize` is sacreBLEU's tokenizer, by default `13a`, or `char`
    where references have no spaces between words. `metrics` are further scores, by the names that other packages
    give them.
    """

    limit: int | None = None
    world: bool = False
    overlong: Overlong = "split"
    lowercase: bool = False
    tokenize: str | None = None
    alternatives: bool = False
    metrics: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_tokenizer(self.tokenize)
        for name in self.metrics:
            METRICS.named(name)


def files_named(data: object) -> tuple[str, ...]:
    """The names, where `data` are names of files."""
    if isinstance(data, Sequence) and all(isinstance(one, str | Path) for one in data):
        return tuple(map(str, data))
    return ()


def with_pairs(data: object) -> object:
    """A list of pairs as a corpus; all else as it was given."""
    if not isinstance(data, Sequence) or not data:
        return data
    for number, pair in enumerate(data, 1):
        if not isinstance(pair, Sequence) or len(pair) != 2 or not all(isinstance(side, str) for side in pair):
            raise DataError(f"item {number} to evaluate on is no pair of a source and a target: {pair!r:.60}")
    return PairList([(source, target) for source, target in data])


class TranslationTask(Task):
    """Pairs of texts to a model that writes the second from the first: sequence to sequence."""

    name = "translation"
    about = "pairs of texts, the second written from the first: sequence to sequence"
    data = TranslationData
    row_columns: ClassVar = ("source", "target")
    sources = ("train", "world", "corpora")
    evaluation = TranslationOptions
    unused: ClassVar = ("images",)
    prepared: ClassVar[type[TranslationRun]] = TranslationRun
    otherwise: ClassVar[str] = "--world with a number of bundled pairs (data.train or data.world in a configuration)"
    """What to give where no files to train on are named."""
    parts: ClassVar = {"translator": translator_of, "scorer": scorer_of}
    methods: ClassVar = {"translate": translate, "translations": translations, "score": score}
    has_lengths = True
    searches = True
    keeps_decoding = True
    lifts_limits = True
    sides = 2
    unit = "sentences"

    def recognise(self, files: Sequence[Path]) -> "Recognised | None":
        from regard.tasks.plans.pairs import recognise_pairs

        return recognise_pairs(files)

    def statistics(self, data: TranslationData) -> Any:
        from regard.tasks.plans.pairs import pair_statistics

        return pair_statistics(data)

    def plan(self, statistics: Any, machine: "Machine", base: JsonObject | None) -> "Choices":
        from regard.tasks.plans.pairs import plan_pairs

        return plan_pairs(statistics, machine, base)

    def check(self, config: RunConfig) -> None:
        if (swaps := swaps_of(config)) and config.tokenizer.dropout:
            raise ConfigError(
                f"data.swaps={swaps} and tokenizer.dropout={config.tokenizer.dropout} both make variants "
                f"of the training pairs; give one"
            )
        if config.model.get("copy"):
            if config.data.workers:
                raise ConfigError(
                    f"data.workers={config.data.workers} is not for models that copy: each pair extends the vocabulary"
                )
            if not config.tokenizer.joint or set(config.tokenizer.kinds) != {"word"}:
                kind = "tokenizer.kind='word' and tokenizer.joint=true"
                raise ConfigError(f"model.copy=true copies words: it needs {kind}")
            if config.train.r_drop:
                raise ConfigError(f"train.r_drop={config.train.r_drop} is not for models that copy")
        if config.model.get("coverage") and config.train.r_drop:
            raise ConfigError(f"train.r_drop={config.train.r_drop} is not for model.coverage: it reads a batch once")

    def check_files(self, config: RunConfig, say: Say) -> None:
        check_pair_files(config.data, say)

    def prepare(
        self, config: RunConfig, directory: Path, report: Report, *, new: bool
    ) -> tuple[RunConfig, TranslationRun]:
        """The pairs tokenised; for a new run, with a tokenizer trained on them, or that of the run it starts from."""
        corpus = training_corpus(config.data, self.otherwise)
        config, vocabularies = prepared_vocabularies(
            config, directory, lambda: trained_vocabularies(config, corpus, report), new=new
        )
        prepared = self.prepared(config, corpus, vocabularies, directory, report)
        if new:
            config = prepared.config = prepared.with_limits()
        return config, prepared

    def evaluate(self, run: Run, data: object = None, how: Measuring = MEASURING) -> JsonObject:
        """Text scores with their signatures and, where gold is known, what lies behind them."""
        options = how.chosen(TranslationOptions)
        corpus = self._corpus(run, data, options, how.say)
        alternatives, lowercase = options.alternatives, options.lowercase
        pairs = full_pairs(corpus, options.limit, how.say)
        if not pairs:
            raise DataError("nothing to evaluate on: no pair has both sides")
        sources, references = with_references(pairs, alternatives)
        tokenize = tokenizer_for(options.tokenize, references, how.say)
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
        result: JsonObject = {
            "sentences": len(sources),
            "pairs": len(pairs),
            "cut": cut,
            **corpus_scores(hypotheses, references, lowercase=lowercase, tokenize=tokenize).to_mapping(),
            "perplexity": likelihood,
            "perplexity_sentences": counted,
            "by_length": [band.to_mapping() for band in bands],
            "decode": {
                **{"beam": config.beam, "length_penalty": config.length_penalty, "length_form": config.length_form},
                **{name: value for name, value in how.decode.items() if value not in (None, "none")},
            },
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
        if files := files_named(data):
            given = files_corpus(files, config)
            if say is not None:
                check_pairs(given, say)
            return given
        corpus: Any = with_pairs(data) or corpus_of(config, "test") or corpus_of(config, "valid")
        if corpus is None:
            raise ConfigError("nothing to evaluate on: the run names no test or validation set; give one")
        return corpus

    def show(self, scores: Mapping[str, Any]) -> str:
        return show_scores(scores)

    def compared(self, run: Run, limit: int | None, progress: Progress | None) -> JsonObject:
        """Greedy translations, and of these the short and the long, and words repeated, left out and said too often."""
        corpus = self._corpus(run, None, TranslationOptions(), None)
        hypotheses: list[str] = []
        options = TranslationOptions(limit=limit)
        how = Measuring(options=options, decode={"beam": 1}, out=hypotheses.append, progress=progress)
        result = self.evaluate(run, corpus, how)
        pairs = full_pairs(corpus, limit)
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

    def look(self, run: Run, inputs: Sequence[Any], wanted: LookOptions, **decode: Setting) -> Document:
        from regard.tasks.looking.decoder_runs import translation_document

        return translation_document(run, inputs, wanted, **decode)

    def looks(self, run: Run) -> bool:
        return bool(attentions(run.model)) and not isinstance(run.model, Ensemble)

    def unknown_words(self, run: Run, text: str) -> tuple[str, ...]:
        if run.config.model.get("copy"):  # a model that copies can write what it does not know
            return ()
        return run.vocabularies.source.unknown_words(text)

    def unknown_note(self, run: Run, words: Sequence[str]) -> str:
        said = super().unknown_note(run, words)
        if run.config.data.world:
            size = run.vocabularies.source.vocab_size
            world = f"Its world is small: the bundled corpus, of {size:,} words"
            return f"{said}. {world}; `regard data world DIRECTORY` writes some of it"
        return f"{said}; a run with tokenizer.kind=bpe knows every text"

    def reads_english(self, run: Run) -> bool:
        return run.config.data.source == "en"

    def has_gold(self, run: Run, data: object) -> bool:
        used = data or corpus_of(run.config.data, "test")
        return isinstance(used, WorldCorpus) and used.grammar == "whole"  # the plain part has no pronouns

    def probes(self, run: Run, data: Corpus | Sequence[str | Path] | None, limit: int) -> list[Probe]:
        trained = files_are_there(run.config.data.train)
        if isinstance(data, Sequence) and are_trees(data):
            texts = corpus_of(run.config.data, "train") if trained else None
            read = None if texts is None else (text for text, _ in texts)
            return tree_probes(run, data, limit, sentence_as_source, read)
        if data is not None and isinstance(data, Sequence):
            data = files_corpus(tuple(map(str, data)), run.config.data)
        corpus = data or corpus_of(run.config.data, "test") or corpus_of(run.config.data, "valid")
        if corpus is None:
            raise ConfigError("no sentences to look at: the run names no test or validation set; give some")
        if isinstance(corpus, WorldCorpus):
            chosen = list(islice(corpus.sampled(), limit))
            cut = partial(words_of, language="en" if corpus.source == "en" else "fr")
        else:
            chosen, cut = full_pairs(corpus, limit), split_words
        # By the training text, cut as what is looked at is cut; by all of what was given where there is none.
        read = corpus_of(run.config.data, "train") if trained else None
        counts = Counter(word.lower() for text, _ in islice(read or corpus, COUNTED) for word in cut(text))
        items = [pair_probe(run, one, counts) for one in chosen]
        return [item for item in items if max(map(len, item.rows)) <= run.translator.max_len]

    def probe_batch(self, run: Run, items: Sequence[Probe]) -> Pairs:
        pad = run.vocabularies.source.pad
        source, target = (Tokens.of([item.rows[side] for item in items], pad) for side in (0, 1))
        return Pairs(source, target).to(run.device)

    def held_out_data(self, run: Run, files: Sequence[str] | None, limit: int) -> HeldOutData:
        return HeldOutPairs(run, files_corpus(tuple(files), run.config.data) if files else None, limit)

    def example(self, config: RunConfig, length: int, rows: int = 1) -> Pairs:
        source, target = Tokens.of([[FIRST_TOKEN] * length] * rows), Tokens.of([[FIRST_TOKEN] * (length + 1)] * rows)
        return Pairs(source, target, rows * length)

    def random_batches(self, config: RunConfig, count: int) -> tuple[RunConfig, Objective, list[Pairs]]:
        generator = torch.Generator().manual_seed(0)
        objective = objective_of(config)
        length = max(2, min(config.data.max_len, 32) - 2)
        rows = max(1, config.train.batch_tokens // (2 * length + 1))
        sizes = config.with_stand_ins().model_config()

        def side(size: int, length: int) -> Tokens:
            return full_rows(torch.randint(FIRST_TOKEN, size, (rows, length), generator=generator))

        def batch() -> Pairs:
            source, target = side(sizes.source_vocab_size, length), side(sizes.target_vocab_size, length + 1)
            return Pairs(source, target, rows * length)

        return config, objective, [batch() for _ in range(count)]

    def gradient_sides(self, run: Run, text: str, target: str | None) -> list[GradientSide]:
        tokenizers = run.vocabularies
        source = tokenizers.source.encode(text)
        opened = tokenizers.source_row(source)[:-1]
        if target is None:
            (best,) = run.translator.translate([text], run.decode_config(beam=1), overlong="refuse")
            other = list(best[0].tokens)
        else:
            other = tokenizers.target.encode(target)
        ids = [tokenizers.target.bos, *other, tokenizers.target.eos]
        return [
            ("source", tokenizers.source_row(source), [*readable(tokenizers.source.pieces(opened)), END]),
            ("target", ids, [START, *readable(tokenizers.target.pieces(other))]),
        ]

    def gradient_words(self, words: Sequence[str], target: Sequence[str] | None, ids: WordIds) -> list[GradientSide]:
        others = words if target is None else target
        return [("source", [*ids(words), 2], [*words, END]), ("target", [1, *ids(others), 2], [START, *others])]


TASK = TranslationTask()
