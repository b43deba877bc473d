"""Language modelling: running text to a model that continues it."""

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import nn

from regard.config import JsonObject, Setting
from regard.data import (
    Documents,
    StreamLayout,
    TextStore,
    WindowLayout,
    backward_windows,
    prepare_text,
    streamed_windows,
    strided_windows,
)
from regard.decode.config import BOUNDS, DecodeConfig
from regard.errors import ConfigError
from regard.look.document import Document
from regard.look.watch import attentions
from regard.metrics.text import bits_per_character, perplexity
from regard.models.protocols import Carries, capabilities
from regard.nn.batch import StreamedWindows, Tokens, Windows
from regard.tasks.config import RunConfig
from regard.tasks.corpora import (
    FIRST_TOKEN,
    PreparedData,
    TextData,
    TextHeldOutBy,
    cache_directory,
    check_documents,
    check_running_text,
    check_window,
    documents_of,
    full_rows,
    random_ids,
    text_to_look_at,
    train_shared_tokenizer,
    training_documents,
    unknown_tokens,
)
from regard.tasks.encoder import embed_texts, encoder_of
from regard.tasks.ensemble import Ensemble
from regard.tasks.generator import Generated, Generation, Generator, Prompt
from regard.tasks.looking.look_options import LookOptions
from regard.tasks.looking.steps import START, readable
from regard.tasks.probes import (
    HELD_OUT_BUDGET,
    HeldOutData,
    Probe,
    are_trees,
    held_out_files,
    running_text_probes,
)
from regard.tasks.run import NOT_DRAWN, Run, prepared_vocabularies
from regard.tasks.scorer import TextScorer
from regard.tasks.spec import (
    MEASURING,
    OF_PAIRS,
    GradientSide,
    Measuring,
    Report,
    Say,
    Task,
    WordIds,
    check_mixed,
    mix_of,
)
from regard.tasks.verbs.score import Scored
from regard.text import Tokenizer
from regard.training.loop import validate
from regard.training.objectives import (
    BackwardLanguageModelling,
    LanguageModelling,
    Objective,
    StreamedLanguageModelling,
    language_objective,
)

if TYPE_CHECKING:
    from regard.tasks.planning import Choices, Machine, Recognised

VALIDATION_STREAMS = 8
"""Where states are carried, into how many streams validation text is cut while training, to take less time."""


class LanguageRun(PreparedData):
    """Text to train on and, where there is any, to validate on."""

    def __init__(
        self, config: RunConfig, documents: Documents, tokenizer: Tokenizer, directory: Path, report: Report
    ) -> None:
        self.config, self.tokenizer, self.report = config, tokenizer, report
        self.cache = cache_directory(config, directory)
        carry = config.data.carry
        smoothing, kind = config.train.smoothing, config.architecture()[1]
        self.objective: Objective = (
            StreamedLanguageModelling(smoothing) if carry else language_objective(kind, smoothing)
        )
        report.say("reading and tokenising the text")
        self.train = self._store(documents)
        report.say(self.train.counts.describe())
        self.mix = mix_of(config.data)
        layout = self.layout(config.train.batch_tokens)  # refuses a text that is too short before anything else is read
        if self.mix is not None and isinstance(layout, WindowLayout) and layout.mixture is not None:
            report.say(self.mix.describe(layout.mixture, "windows"))
        valid = documents_of(config.data, "valid")
        self.valid = None if valid is None else self._store(valid)
        self.unknown = {} if self.valid is None else unknown_tokens(self.valid.ids, self.tokenizer)
        if self.unknown and valid is not None and "<unk>" in next(iter(valid)).text:
            self.unknown = {}  # the text itself has that for rare words: no fault of the tokenizer's

    def scores(self, model: nn.Module) -> dict[str, float]:
        """How many of the validation tokens are unknown, where any are."""
        return self.unknown

    def bounds(self) -> tuple[int, int]:
        length = self.config.data.max_len
        return length, max(length, len(self.train.ids) - 1)

    def validation(self) -> Iterator[Windows] | Iterator[StreamedWindows] | None:
        """Windows side by side: every token predicted once, those at the start of one from little.

        Where states are carried, only the few at the start of a stream are.
        """
        if self.valid is None:
            return None
        data, budget = self.config.data, self.config.train.batch_tokens
        if data.carry:
            return streamed_windows(self.valid, data.max_len, streams=VALIDATION_STREAMS)
        return strided_windows(self.valid, data.max_len, stride=data.max_len, budget=budget, isolate=data.isolate)

    def layout(self, budget: int, *, pack: bool = False) -> StreamLayout | WindowLayout:
        """Windows are full, so there is nothing to pack."""
        data = self.config.data
        if data.carry:
            return StreamLayout(self.train, data.max_len, budget=budget)
        return WindowLayout(self.train, data.max_len, budget=budget, isolate=data.isolate, mix=self.mix)

    def _store(self, documents: Documents) -> TextStore:
        workers = self.config.data.workers
        return prepare_text(documents, self.tokenizer, self.cache, say=self.report.say, workers=workers)


BUDGET = 8192
"""Tokens of one batch."""

STRETCH = 1024
"""Tokens of a stream that are read at once, where the state is carried; of no effect on the result."""


def text_perplexity(
    run: Run,
    documents: Documents | None = None,
    *,
    stride: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> JsonObject:
    """Scores of the run on `documents`, by default its test or validation text, as one JSON-ready object.

    Windows of the length it was trained on begin `stride` tokens apart, by default half a window, and only the last
    `stride` tokens of each count, so that each is predicted from at least the rest of a window. The `eos` after each
    document is predicted too. Bits per character and per byte spread the same sum over the text itself, so they can be
    compared between tokenizers.

    Of a model that also reads backward, that way is measured likewise: each token from at least the rest of a window
    after it. The scores are the means of both ways. A model that was trained with `data.carry` reads the whole text as
    one stream, so that each token is predicted from all before it; `window` and `stride` are then None.
    """
    data = run.config.data
    documents = documents or documents_of(data, "test") or documents_of(data, "valid")
    if documents is None:
        raise ConfigError("nothing to evaluate on: the run names no test or validation text; give one")
    if data.carry and stride is not None:
        raise ConfigError("a stride is for windows; this run carries its state over the whole text")
    length = data.max_len
    stride = max(1, length // 2) if stride is None else stride
    store = TextStore.of(iter(documents), run.vocabularies.target)
    total = len(store.ids) - 1

    def nll(objective: Objective, windows: Iterator[Windows] | Iterator[StreamedWindows]) -> float:
        return validate(run.model, objective, _told(windows, total, progress), device=run.device)["nll"]

    budget = max(BUDGET, length)
    if data.carry:
        found = nll(StreamedLanguageModelling(), streamed_windows(store, STRETCH))
    else:
        found = nll(
            LanguageModelling(), strided_windows(store, length, stride=stride, budget=budget, isolate=data.isolate)
        )
        if capabilities(type(run.model)).both_ways:
            back = nll(BackwardLanguageModelling(), backward_windows(store, length, stride=stride, budget=budget))
            found = (found + back) / 2
    nats = found * total
    return {
        "documents": store.counts.documents,
        "tokens": total,
        "characters": store.counts.characters,
        "bytes": store.counts.bytes,
        "nll": found,
        "perplexity": perplexity(nats, total),
        "bits_per_character": bits_per_character(nats, store.counts.characters),
        "bits_per_byte": bits_per_character(nats, store.counts.bytes),
        "carried": data.carry,
        "window": None if data.carry else min(length, total),
        "stride": None if data.carry else stride,
    }


def _told(
    windows: Iterator[Windows] | Iterator[StreamedWindows], total: int, progress: Callable[[int, int], None] | None
) -> Iterator[Windows | StreamedWindows]:
    done = 0
    for batch in windows:
        yield batch
        done += batch.count
        if progress is not None:
            progress(done, total)


OF_A_BEAM = ("top_beams", "length_penalty", "length_form", "exact", "require", "beam_groups", "diversity_penalty")
"""What only applies to beam search."""


def generator_of(run: Run) -> Generator:
    """A prompt in, text out."""
    data = run.config.data
    # Where the state is carried, no length of text is too long to go on from.
    length = sys.maxsize if data.carry else data.max_len
    return Generator(run.model, run.vocabularies.target, run.config.decode, length)


def generate(
    run: Run, prompt: Prompt = "", *, stop: Sequence[str] = (), repetition_penalty: float = 1.0, **decode: Setting
) -> list[str]:
    """Texts that follow the prompt, as many as `samples`: `generate("To be", temperature=0.8, max_len=100)`.

    `temperature=0` takes the likeliest token each time; `beam=4` finds the `top_beams` best texts by beam search.
    A prompt may be a `Conversation`: the texts are then its answers.
    """
    if isinstance(beam := decode.get("beam"), int) and beam > 1:
        found = beams(run, prompt, stop=stop, repetition_penalty=repetition_penalty, **decode)
        return [output.text for output in found]
    written = generation(run, prompt, stop=stop, repetition_penalty=repetition_penalty, **decode)
    for _ in written:
        pass
    return [output.text for output in written.outputs]


def beams(
    run: Run, prompt: Prompt = "", *, stop: Sequence[str] = (), repetition_penalty: float = 1.0, **decode: Setting
) -> list[Generated]:
    """The best texts that follow the prompt by beam search, best first: `beams("To be", beam=4, top_beams=2)`."""
    config = beam_config(run, **decode)
    return run.generator.beams(prompt, config, stop=stop, repetition_penalty=repetition_penalty)


def beam_config(run: Run, **decode: Setting) -> DecodeConfig:
    """The run's own way of decoding with these settings changed, by beam search where it would sample."""
    if decode.get("temperature"):
        raise ConfigError(f"temperature={decode['temperature']} is for sampling, beam for beam search: give one")
    return run.decode_config(**{**NOT_DRAWN, **decode, "temperature": None})


def generation(
    run: Run, prompt: Prompt = "", *, stop: Sequence[str] = (), repetition_penalty: float = 1.0, **decode: Setting
) -> Generation:
    """The same while it is sampled: iterate for (sample, new text)."""
    temperature, least = decode.get("temperature"), BOUNDS["temperature"][0]
    if isinstance(temperature, int | float) and temperature != 0 and not temperature >= least:
        raise ConfigError(
            f"temperature={temperature} must be above 0 (at least {least:g}), or 0 to take the likeliest token "
            f"each time"
        )
    if temperature == 0:
        # What only applies to sampling goes with it, where the run's own settings brought it along.
        decode = {**NOT_DRAWN, **decode, "temperature": None}
    if beside := [f"{name}={decode[name]}" for name in OF_A_BEAM if name in decode]:
        raise ConfigError(f"{beside[0]} is for beam search: give beam too, as beam=4")
    config = run.decode_config(**decode)
    return run.generator.generation(prompt, config, stop=stop, repetition_penalty=repetition_penalty)


def scorer_of(run: Run) -> TextScorer:
    """Texts in, log-probabilities out."""
    return TextScorer(run.generator)


def score(run: Run, texts: Sequence[str], *, tokens: bool = False) -> list[Scored]:
    """How likely the model finds each text: `score(["To be"])[0].log_prob`."""
    return run.ask("score", texts, tokens=tokens)


class HeldOutText(HeldOutData):
    """Windows of text, side by side: perplexity."""

    name, sign = "perplexity", -1

    def score(self, run: Run) -> float:
        return math.exp(min(self.nll(run.model), 100.0))


@dataclass(frozen=True, kw_only=True, slots=True)
class LanguageData(TextData):
    """Running text in any number of files and folders.

    `max_len` is the length of a window. `isolate` hides the documents of one window from each other. `carry` reads text
    in streams, in which a model's state at the end of a window is its state at the start of the next. `corpora`, `mix`,
    `temperature` and `workers` are as for pairs: several corpora mixed, and how many processes tokenise.
    `held_out_by` says what of plain files is held out: the `end` of each, or each `file` as a whole, by its text.
    """

    held_out_by: TextHeldOutBy = "end"
    isolate: bool = False
    carry: bool = False
    corpora: Mapping[str, Any] = field(default_factory=dict)
    mix: Mapping[str, Any] = field(default_factory=dict)
    temperature: float = 1.0
    workers: int = 0

    def __post_init__(self) -> None:
        TextData.__post_init__(self)
        check_mixed(self)
        if self.carry and len(self.corpora) > 1:
            raise ConfigError("data.carry=true reads one text in streams: it does not go with several data.corpora")


@dataclass(frozen=True, kw_only=True, slots=True)
class LanguageOptions:
    """`stride` is the number of tokens from one window to the next, by default half a window."""

    stride: int | None = None


class LanguageTask(Task):
    """Running text to a model that continues it."""

    name = "language"
    about = "running text, to be continued: language modelling"
    data = LanguageData
    row_columns: ClassVar = ("text",)
    sources = ("train", "corpora")
    evaluation = LanguageOptions
    unused: ClassVar = (
        *(*OF_PAIRS, "images", "train.compile_loss", "train.r_drop", "train.pack"),
        *("decode.coverage_penalty", "decode.mbr", "decode.shortlist"),  # there is no source to cover
    )
    parts: ClassVar = {"generator": generator_of, "encoder": encoder_of, "scorer": scorer_of}
    methods: ClassVar = {
        "generate": generate,
        "generation": generation,
        "beams": beams,
        "beam_config": beam_config,
        "embed": embed_texts,
        "score": score,
    }
    one_shape = True

    def unknown_words(self, run: Run, text: str) -> tuple[str, ...]:
        return run.vocabularies.target.unknown_words(text)

    keeps_decoding = True
    unit = "tokens"

    def recognise(self, files: Sequence[Path]) -> "Recognised | None":
        from regard.tasks.plans.text import recognise_text

        return recognise_text(files)

    def statistics(self, data: LanguageData) -> Any:
        from regard.tasks.plans.text import text_statistics

        return text_statistics(data)

    def plan(self, statistics: Any, machine: "Machine", base: JsonObject | None) -> "Choices":
        from regard.tasks.plans.text import plan_text

        return plan_text(statistics, machine, base)

    def check(self, config: RunConfig) -> None:
        check_window(config)
        model, kind = config.model["name"], config.architecture()[1]
        if config.data.carry and not issubclass(kind, Carries):
            raise ConfigError(f"data.carry=true is not possible: a {model} model has no state between windows")
        if config.train.cuda_graphs and config.data.carry:
            raise ConfigError(
                f"train.cuda_graphs=true is not possible: this {model} model carries a state from batch to batch"
            )
        if config.train.validate_share < 1 and config.data.carry:
            raise ConfigError(
                f"train.validate_share={config.train.validate_share} is not possible: with data.carry=true a state "
                f"goes from each validation batch to the next"
            )
        if config.data.isolate and not config.capabilities().packs:
            raise ConfigError(f"data.isolate=true is not possible: a {model} model cannot keep documents apart")

    def check_files(self, config: RunConfig, say: Say) -> None:
        check_running_text(config, say)

    def prepare(
        self, config: RunConfig, directory: Path, report: Report, *, new: bool
    ) -> tuple[RunConfig, LanguageRun]:
        """The text tokenised; for a new run, with a tokenizer trained on it, or that of the run it starts from."""
        documents = training_documents(config.data)
        config, vocabularies = prepared_vocabularies(
            config, directory, lambda: train_shared_tokenizer(documents.texts(), config, report), new=new
        )
        return config, LanguageRun(config, documents, vocabularies.target, directory, report)

    def evaluate(
        self, run: Run, data: Documents | Sequence[str | Path] | None = None, how: Measuring = MEASURING
    ) -> JsonObject:
        config = run.config.data
        if data is not None and not isinstance(data, Documents):
            data = Documents.of(data, config.text, config.header)
            if how.say is not None:
                check_documents(data, how.say)
        return text_perplexity(run, data, stride=how.chosen(LanguageOptions).stride, progress=how.progress)

    def show(self, scores: Mapping[str, Any]) -> str:
        """A language model's scores for a person."""
        carried = "the state carried over the whole text"
        how = carried if scores["carried"] else f"window {scores['window']}, stride {scores['stride']}"
        return "\n".join(
            [
                f"documents          {scores['documents']:,}  ({scores['characters']:,} characters, "
                f"{scores['bytes']:,} bytes)",
                f"perplexity         {scores['perplexity']:.3f}  (per token of the run's own vocabulary, "
                f"{scores['tokens']:,} tokens; {how})",
                f"loss               {scores['nll']:.4f}  nats per token",
                f"bits per character {scores['bits_per_character']:.4f}",
                f"bits per byte      {scores['bits_per_byte']:.4f}",
            ]
        )

    def look(self, run: Run, inputs: Sequence[Any], wanted: LookOptions, **decode: Setting) -> Document:
        from regard.tasks.looking.decoder_runs import language_document

        return language_document(run, inputs, wanted, **decode)

    def looks(self, run: Run) -> bool:
        return bool(attentions(run.model)) and not isinstance(run.model, Ensemble)

    def probes(self, run: Run, data: Documents | Sequence[str | Path] | None, limit: int) -> list[Probe]:
        if are_trees(data):
            raise ConfigError("heads are asked about trees where an encoder reads whole sentences: give running text")
        return running_text_probes(run, text_to_look_at(run, data), limit)

    def probe_batch(self, run: Run, items: Sequence[Probe]) -> Windows:
        tokens = Tokens.of([item.rows[0] for item in items], run.vocabularies.source.pad)
        return Windows(tokens, tokens.ids, 0).to(run.device)

    def held_out_data(self, run: Run, files: Sequence[str] | None, limit: int) -> HeldOutData:
        data = run.config.data
        if data.carry:
            raise ConfigError("heads of a model that carries its state cannot be scored")
        documents = Documents.of(held_out_files(run, files), data.text, data.header)
        store = TextStore.of(iter(documents), run.vocabularies.target)
        length = min(data.max_len, len(store.ids) - 1)
        rows = max(1, min(limit, HELD_OUT_BUDGET // length))
        windows = strided_windows(store, length, stride=length, budget=rows * length, isolate=data.isolate)
        batches = list(islice(windows, max(1, limit // rows)))
        count = sum(len(batch.labels) for batch in batches)
        return HeldOutText(run, language_objective(type(run.model)), batches, count)

    def example(self, config: RunConfig, length: int, rows: int = 1) -> Windows:
        ids = torch.full((rows, length), FIRST_TOKEN)
        return Windows(full_rows(ids), ids, rows * length)

    def random_batches(self, config: RunConfig, count: int) -> tuple[RunConfig, Objective, list[Windows]]:
        generator = torch.Generator().manual_seed(0)
        objective = language_objective(config.architecture()[1], config.train.smoothing)

        def batch() -> Windows:
            ids = random_ids(config, generator, 1)
            return Windows(full_rows(ids[:, :-1]), ids[:, 1:].contiguous(), ids[:, 1:].numel())

        return config, objective, [batch() for _ in range(count)]

    def gradient_sides(self, run: Run, text: str, target: str | None) -> list[GradientSide]:
        tokenizer = run.vocabularies.target
        ids = [tokenizer.bos, *tokenizer.encode(text)]
        return [("text", ids, [START, *readable(tokenizer.pieces(ids[1:-1]))])]

    def gradient_words(self, words: Sequence[str], target: Sequence[str] | None, ids: WordIds) -> list[GradientSide]:
        return [("text", [1, *ids(words)], [START, *words[:-1]])]


TASK = LanguageTask()
