"""Something in, text out: what tasks have in common whose model reads anything and writes a text of it.

A task file then says what is special about it: how its rows are read, how they become a batch, how texts are scored.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor, nn

from regard.config import JsonObject
from regard.data.audio.transcripts import SpecAugment
from regard.data.batches import random_of, shuffled
from regard.data.pair_store import Rows
from regard.decode.config import DecodeConfig
from regard.decode.constraints import unwanted
from regard.decode.search import search
from regard.decode.stepper import Hypothesis, Stepper
from regard.errors import ConfigError, DataError
from regard.nn.batch import Tokens, map_tensors
from regard.tasks.config import RunConfig
from regard.tasks.corpora import FIRST_TOKEN, PARTS, Part, PreparedData, cache_directory, train_shared_tokenizer
from regard.tasks.probes import HELD_OUT_BUDGET, HeldOutData
from regard.tasks.run import Run, prepared_vocabularies
from regard.tasks.spec import OF_PAIRS, Files, Measuring, Progress, Report, Say, Task
from regard.tasks.verbs.spec import WrittenText
from regard.text import Vocabularies
from regard.training.objectives import Objective

Written = TypeVar("Written")
"""An output: a `WrittenText`, or what is made of one."""

UNUSED = (
    *(*OF_PAIRS, "train.vectors", "train.compile_loss", "train.r_drop", "train.pack"),
    *("decode.max_ratio", "decode.max_extra"),  # no length of a source that a text's could go by
    *("decode.coverage_penalty", "decode.mbr"),
)
"""Settings that apply to no task of this kind."""


class Writer(Generic[Written]):
    """Inputs in, texts out: `Stepper` is all it knows of its model when it searches."""

    rows: ClassVar[int] = 128
    """Inputs of one batch while texts are written greedily; fewer by the width of a beam."""
    outputs: ClassVar[str] = "texts"
    """What its outputs are called."""
    written: ClassVar[type[WrittenText]] = WrittenText

    def __init__(self, model: Any, vocabularies: Vocabularies, config: RunConfig) -> None:
        self.model, self.vocabularies, self.config = model, vocabularies, config.decode
        self.shape: Any = config.model_config()
        self.max_len: int = self.shape.max_len
        self._stepper: Stepper[Any] = model

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    def batch(self, items: Sequence[Any], texts: Sequence[Sequence[int]] | None = None) -> Any:
        """Inputs, with rows of tokens where these are known, as the model reads them; on its device."""
        raise NotImplementedError

    def target(self, rows: Sequence[Sequence[int]] | None) -> tuple[Tokens | None, int]:
        """What a batch has of rows of tokens that are known: themselves, and how many predictions they ask for."""
        if rows is None:
            return None, 0
        return Tokens.of(rows, self.vocabularies.target.pad), sum(len(row) - 1 for row in rows)

    def target_rows(self, texts: Iterable[str]) -> list[list[int]]:
        """Texts as rows of tokens, from the first to the last."""
        return [list(self.vocabularies.target_row(self.vocabularies.target.encode(text))) for text in texts]

    def write(
        self,
        items: Sequence[Any],
        config: DecodeConfig | None = None,
        *,
        numbers: Sequence[int] | None = None,
        gone: Callable[[int], bool] | None = None,
        progress: Progress | None = None,
    ) -> list[list[Written]]:
        """The `top_beams` best texts (or `samples`) of each input, best first.

        What is sampled goes by an input's number: its place here, or that in `numbers`. An input that is `gone` is
        dropped between two steps; what comes back for it means nothing.
        """
        config = config or self.config
        found: list[list[Written]] = [[] for _ in items]
        done = 0
        for places in self.groups(items, config):
            part = [items[place] for place in places]
            names = [place if numbers is None else numbers[place] for place in places]
            left = None if gone is None else lambda row, places=places: gone(places[row])
            for place, best in zip(places, self._search(part, names, config, left), strict=True):
                found[place] = best
            done += len(places)
            if progress is not None:
                progress(done, len(items))
        return found

    def groups(self, items: Sequence[Any], config: DecodeConfig) -> Iterator[Sequence[int]]:
        """The places of inputs that are searched for together."""
        size = max(1, self.rows // config.rows)
        return (range(start, min(len(items), start + size)) for start in range(0, len(items), size))

    @property
    def ends(self) -> tuple[int, int]:
        """The token that an output begins after, and that which ends it."""
        return self.vocabularies.target.bos, self.vocabularies.target.eos

    def limit(self, batch: Any, config: DecodeConfig) -> "int | Int[Tensor, ' B']":
        """The most tokens of an output."""
        return min(config.max_len, self.max_len)

    @torch.inference_mode()
    def _search(
        self, items: Sequence[Any], names: Sequence[int], config: DecodeConfig, gone: Callable[[int], bool] | None
    ) -> list[list[Any]]:
        self.model.eval()
        first, last = self.ends
        batch = self.batch(items)
        limit = self.limit(batch, config)
        found = search(
            self._stepper,
            self._stepper.start(batch),
            torch.full((len(items),), first, device=self.device),
            eos=last,
            config=config,
            max_len=limit,
            ids=names,
            constraints=[] if gone is None else [unwanted(last, gone, len(items))],
        )
        forced_at = limit if config.force_end and isinstance(limit, int) else None
        dropped = [gone is not None and gone(row) for row in range(len(items))]
        return [
            [self.text(one, forced_at, item=item, dropped=left) for one in best]
            for best, item, left in zip(found, items, dropped, strict=True)
        ]

    def text(
        self, hypothesis: Hypothesis, forced_at: int | None = None, *, item: Any = None, dropped: bool = False
    ) -> Any:
        """What was decoded, as text. An output that has made `forced_at` choices was ended by force: not finished."""
        return self.written.of(hypothesis, self.vocabularies.target, forced_at)

    def given(self, text: str) -> Any:
        """A text as if it had been written."""
        tokens = self.vocabularies.target.encode(text)
        pieces = tuple(self.vocabularies.target.pieces(tokens))
        return self.written(text=text, score=0.0, log_prob=0.0, tokens=tuple(tokens), pieces=pieces)

    def cut_note(self, cut: int, total: int, config: DecodeConfig) -> str:
        """What to say of outputs that are not finished; nothing where there are none."""
        if not cut:
            return ""
        limit = min(config.max_len, self.max_len)
        own = f"max_len; the model's own is {self.max_len}"
        return f"{cut:,} of {total:,} {self.outputs} were cut at {limit} tokens ({own})"


def search_settings(config: DecodeConfig) -> JsonObject:
    """How outputs were searched for, as scores have it beside them."""
    return {"beam": config.beam, "length_penalty": config.length_penalty, "length_form": config.length_form}


def text_rows(
    texts: Iterable[tuple[int, str]], vocabularies: Vocabularies, data: Any, say: Say, what: str
) -> tuple[Rows, Int[np.ndarray, " N"]]:
    """Texts as rows of tokens, and what number each is given with.

    Those of more than `data.max_len` tokens are left out, cut or refused, as `data.overlong` says; `what` they are.
    """
    target = vocabularies.target
    kept, of, long = [], [], 0
    for number, text in texts:
        row = vocabularies.target_row(target.encode(text))
        if len(row) > data.max_len:
            long += 1
            if data.overlong == "refuse":
                raise DataError(f"a {what} has {len(row)} tokens, more than data.max_len={data.max_len}: {text[:60]}")
            if data.overlong == "skip":
                continue
            row = [*row[: data.max_len - 1], target.eos]
        kept.append(row)
        of.append(number)
    if long:
        done = "left out" if data.overlong == "skip" else "cut"
        say(f"{long:,} {what}s of more than data.max_len={data.max_len} tokens are {done}")
    if not kept:
        raise DataError(f"no {what} is as short as data.max_len={data.max_len} tokens")
    return Rows.of(kept, target.pad), np.array(of, dtype=np.int64)


def check_bundled(data: Files, name: str, what: str, seed: str | None = None) -> None:
    """Refuse files and a number of bundled rows at once, and numbers below 0."""
    seed = seed or f"{name}_seed"
    if getattr(data, name) and data.train:
        raise ConfigError(f"data.train and data.{name} are two sources of training {what}; give one")
    if getattr(data, name) < 0 or getattr(data, seed) < 0:
        said = f"data.{name}={getattr(data, name)} and data.{seed}={getattr(data, seed)}"
        raise ConfigError(f"{said} must not be negative")


def check_single(data: Files, what: str = "one table or one folder") -> None:
    """Refuse several files of a part."""
    for name in PARTS:
        if len(getattr(data, name)) > 1:
            raise ConfigError(f"data.{name} takes {what}")


def check_budget(config: RunConfig, longest: int, what: str) -> None:
    """Refuse batches that cannot hold the longest row; `what` that is."""
    if config.train.batch_tokens < longest:
        raise ConfigError(f"train.batch_tokens={config.train.batch_tokens} must hold {what}: {longest} tokens at least")


@dataclass(frozen=True, kw_only=True, slots=True)
class AugmentedSounds(Files):
    """What `[data]` has for a task that hears: how sounds are changed in training.

    `band_masks` stretches of up to `band_width` bands and `time_masks` of up to `time_share` of the frames are blotted
    out (SpecAugment); `warp` moves all bands up or down by up to this share, `stretch` makes a sound longer or shorter.
    """

    band_masks: int = 0
    band_width: int = 8
    time_masks: int = 0
    time_share: float = 0.1
    warp: float = 0.0
    stretch: float = 0.0

    def augment(self) -> SpecAugment:
        return SpecAugment(
            band_masks=self.band_masks,
            band_width=self.band_width,
            time_masks=self.time_masks,
            time_share=self.time_share,
            warp=self.warp,
            stretch=self.stretch,
        )


class HeldOutTexts(HeldOutData):
    """Held-out inputs, each with a text; `places` is how many tokens a model reads of one."""

    def __init__(
        self, run: Run, writer: Writer, objective: Objective, items: Sequence[Any], texts: Sequence[str]
    ) -> None:
        self.items = items
        rows = writer.target_rows(texts)
        size = max(1, HELD_OUT_BUDGET // self.places(writer, run.config))
        batches = [writer.batch(items[at : at + size], rows[at : at + size]) for at in range(0, len(rows), size)]
        super().__init__(run, objective, batches, len(rows))

    def places(self, writer: Any, config: RunConfig) -> int:
        """How many tokens a model reads of an input, at the most."""
        raise NotImplementedError

    def best(self, writer: Writer, config: RunConfig) -> list[str]:
        """The texts that are written greedily."""
        return [one[0].text for one in writer.write(self.items, config.decode.greedy())]


class WritingRun(PreparedData):
    """Inputs with texts to train on and, where there are any, to validate on."""

    def __init__(self, config: RunConfig, vocabularies: Vocabularies, directory: Path, report: Report) -> None:
        self.config, self.vocabularies, self.report = config, vocabularies, report
        self.cache = cache_directory(config, directory)
        task = config.kind
        assert isinstance(task, WritingTask)
        self.objective: Objective = task.objective(config)

    def writer(self, model: nn.Module) -> Any:
        """What writes by this model."""
        raise NotImplementedError

    def shown(self, count: int) -> tuple[Sequence[Any], Sequence[Any]]:
        """So many inputs to validate on, from all over them, and what is right of each."""
        raise NotImplementedError

    def scored(self, texts: list[str], references: Sequence[Any]) -> dict[str, float]:
        """What a validation says of texts that were written greedily."""
        raise NotImplementedError

    def scores(self, model: nn.Module) -> dict[str, float]:
        items, references = self.shown(self.config.train.validate_sentences)
        if not len(items):
            return {}
        found = [best[0] for best in self.writer(model).write(items, self.config.decode.greedy())]
        cut = sum(not one.finished for one in found)
        return {**self.scored([one.text for one in found], references), "cut": float(cut), "outputs": float(len(found))}


class WritingTask(Task):
    """A model that writes a text of what it reads."""

    searches = True
    lifts_limits = True
    keeps_decoding = True
    sides = 2

    def objective(self, config: RunConfig) -> Objective:
        """What turns a batch into a loss."""
        raise NotImplementedError

    def best_outputs(
        self,
        writer: Any,
        read: Iterable[Any],
        count: int,
        config: DecodeConfig,
        how: Measuring,
        write: Callable[..., Sequence[Sequence[Any]]] | None = None,
    ) -> list[Any]:
        """The best output of each of `count` inputs, which are read some at a time; told as `how` says."""
        found, read = [], iter(read)
        writing: Callable[..., Sequence[Sequence[Any]]] = write or writer.write
        while part := list(islice(read, 4 * writer.rows)):
            numbers = range(len(found), len(found) + len(part))
            found += [best[0] for best in writing(part, config, numbers=numbers)]
            if how.progress is not None:
                how.progress(len(found), count)
        if (out := how.out) is not None:
            for one in found:
                out(one.text)
        cut = sum(not one.finished for one in found)
        if how.say is not None and (note := writer.cut_note(cut, count, config)):
            how.say(note)
        return found

    def compared(self, run: Run, limit: int | None, progress: Progress | None) -> JsonObject:
        how = Measuring(options=self.evaluation(limit=limit), decode={"beam": 1}, progress=progress)
        return self.evaluate(run, how=how)

    def looks(self, run: Run) -> bool:
        return True

    def random_batches(self, config: RunConfig, count: int) -> tuple[RunConfig, Objective, list[Any]]:
        generator, config = torch.Generator().manual_seed(0), config.with_stand_ins()
        model = config.model_config()
        length = min(config.data.max_len, model.max_len) - 1
        rows = max(1, config.train.batch_tokens // (self.example(config, length).tokens + 1))

        def changed(values: Tensor) -> Tensor:
            if values.is_floating_point():
                return torch.randn(values.shape, generator=generator)
            if values.shape == (rows, length + 1):
                return torch.randint(FIRST_TOKEN, model.vocab_size, values.shape, generator=generator)
            return values

        batches = [map_tensors(self.example(config, length, rows), changed) for _ in range(count)]
        return config, self.objective(config), batches


class TableTask(WritingTask):
    """One whose inputs and texts are in a table or a folder, or bundled."""

    inputs_named: ClassVar[str]
    """What its inputs are called, such as `images`."""
    rows_named: ClassVar[str]
    """What its rows are called, such as `images with captions`."""
    otherwise: ClassVar[str]
    """What to set instead of files."""
    prepared: ClassVar[Callable[..., WritingRun]]
    """What makes a run of rows to train and to validate on."""

    def opened(self, name: str | Path, data: Any, part: Part | None = None) -> Any | None:
        """The rows of a table or a folder; None where it has no such part."""
        raise NotImplementedError

    def bundled(self, config: RunConfig, part: Part) -> Any | None:
        """Rows that come with regard, where they are asked for."""
        raise NotImplementedError

    def held_out(self, config: RunConfig) -> tuple[float, int]:
        """The share of training rows that is set aside where none to validate on are named, and by which seed."""
        raise NotImplementedError

    def count(self, given: Any) -> int:
        """How many inputs there are."""
        raise NotImplementedError

    def texts(self, given: Any) -> Iterable[str]:
        """All texts that a tokenizer is trained on."""
        raise NotImplementedError

    def prepare(self, config: RunConfig, directory: Path, report: Report, *, new: bool) -> tuple[RunConfig, Any]:
        """The rows read and the texts as tokens; for a new run, with a tokenizer trained on them."""
        train, valid = self.training(config)

        def trained() -> Vocabularies:
            return train_shared_tokenizer(self.texts(train), config, report)

        config, vocabularies = prepared_vocabularies(config, directory, trained, new=new)
        found = self.prepared(config, train, valid, vocabularies, directory, report)
        return found.config, found

    def part_of(self, config: RunConfig, part: Part) -> Any | None:
        """The rows to train on, to validate on or to test on, as they are named; None where none are."""
        data = config.data
        if names := getattr(data, part):
            return self.opened(names[0], data, part) or self.opened(names[0], data)
        found = self.bundled(config, part)
        return self.opened(data.train[0], data, part) if found is None and data.train else found

    def training(self, config: RunConfig) -> tuple[Any, Any | None]:
        """What to train on and to validate on: if no validation rows are named, a share of the former is set aside."""
        train = self.part_of(config, "train")
        if train is None:
            raise ConfigError(
                "no training data: give --data with a table or a folder (data.train in a configuration), "
                f"or set {self.otherwise}"
            )
        valid, (share, seed) = self.part_of(config, "valid"), self.held_out(config)
        if valid is not None or not share:
            return train, valid
        order = shuffled(self.count(train), random_of(seed, 0))
        aside = min(len(order) - 1, max(1, round(share * len(order))))
        if aside < 1:
            return train, None
        return train.select(sorted(order[aside:].tolist())), train.select(sorted(order[:aside].tolist()))

    def measured_on(self, run: Run, data: Any, say: Say | None) -> Any:
        """The rows that a run is measured on: those of a table or a folder, or its own."""
        if data and not isinstance(data, Sequence):
            return data
        if data:
            if len(data) > 1:
                raise ConfigError(f"{self.rows_named} are in one table or one folder")
            given = self.opened(data[0], run.config.data, "test") or self.opened(data[0], run.config.data)
            assert given is not None
            for note in given.notes if say is not None else ():
                say(note)  # type: ignore[misc]
            return given
        given = self.part_of(run.config, "test") or self.training(run.config)[1]
        if given is None:
            raise ConfigError(
                f"nothing to evaluate on: the run names no test or validation {self.inputs_named}; give some"
            )
        return given

    def check_files(self, config: RunConfig, say: Say) -> None:
        for part in PARTS:
            if getattr(config.data, part) and (found := self.part_of(config, part)) is not None:
                for note in found.notes:
                    say(note)

    def held_out_rows(self, run: Run, files: Sequence[str] | None) -> Any:
        """Rows to score heads by."""
        given = self.opened(files[0], run.config.data) if files else self.part_of(run.config, "valid")
        given = given or self.training(run.config)[1] or self.part_of(run.config, "test")
        if given is None:
            raise ConfigError(
                f"nothing to score heads by: the run names no validation or test {self.inputs_named}; give some"
            )
        return given
