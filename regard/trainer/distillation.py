"""Sequence-level knowledge distillation (Kim and Rush 2016): a student learns what its teacher writes.

The teacher translates its own training sources by beam search, and another model, as a rule one that decodes faster, is
trained on those pairs with the teacher's tokenizer. What a search finds is simpler than what people wrote: a decoder of
one layer learns it, and without a beam.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path

import torch

from regard import config as settings
from regard.config import JsonObject
from regard.data import Corpus
from regard.data.formats import objects, whole_lines
from regard.decode.config import DecodeConfig
from regard.errors import ConfigError, DataError, RunError
from regard.runs.checkpoint import weights_of
from regard.runs.files import (
    CONFIG,
    alone_in,
    check_output_directory,
    read_json,
    remove_directory,
    whole_file,
    write_errors,
    write_json,
)
from regard.tasks.config import COUNTED, RunConfig, make_config, preset_mapping
from regard.tasks.corpora import PARTS, corpus_of
from regard.tasks.run import Run, absolute, load
from regard.tasks.spec import FollowsCounts, OnlyWarnings, Report, warn
from regard.trainer.machine import check_machine
from regard.trainer.trainer import Stopped, train

FOLDER, PARTIAL, MANIFEST = "distilled", "parts", "distillation.json"
"""In the student's directory: what the teacher wrote, while it is not yet whole, and what it was made of."""

DECIDED = ("data.train", "data.world", "data.source", "data.target", "train.start_from", "tokenizer.taken_from")
"""Settings of a student that follow from its teacher."""

AT_ONCE = {"cuda": 4096, "cpu": 256}
"""How many sentences are translated before they are written to the disk."""


@dataclass(frozen=True, slots=True)
class DistilledCounts:
    """How many sources there were, and what became of them."""

    sources: int = 0
    blank_sources: int = 0
    blank: int = 0
    cut: int = 0
    references: int = 0

    @property
    def pairs(self) -> int:
        """Of the teacher's translations, those that the student learns from."""
        return self.sources - self.blank_sources - self.blank - self.cut

    def describe(self) -> str:
        left = {
            "with a blank source": self.blank_sources,
            "with a blank translation": self.blank,
            "with one cut at its greatest length": self.cut,
        }
        said = f"{self.pairs:,} of {self.sources:,} sources have a translation to learn from"
        if lost := [f"{count:,} {what}" for what, count in left.items() if count]:
            said += f"; left out: {', '.join(lost)}"
        return said + (f"; beside them {self.references:,} pairs of the teacher's own data" if self.references else "")


def distill(
    teacher: Run | str | Path,
    out: str | Path,
    preset: str | None = None,
    overrides: Sequence[str] = (),
    report: Report | None = None,
    *,
    beam: int = 5,
    keep_references: bool = False,
    from_teacher: bool = False,
    device: str = "auto",
) -> Run:
    """Train a student in `out` on what the `teacher` makes of its own training sources, and return it ready to use.

    The student has the settings of `preset`, without one the teacher's own, and `overrides` over these: a
    `model.decoder_layers=1`, say. Its tokenizer is the teacher's, and so are the pairs it is validated and tested on.
    With `keep_references` it learns from the teacher's own training pairs as well. With `from_teacher` it begins as the
    teacher, or as some of its layers where it has fewer; else at random. Stopped while translating, the same call goes
    on from there; once the student trains, `resume` does. Without a `report`, what is left out or goes badly is a
    `regard.RegardWarning`.
    """
    report = report or OnlyWarnings()
    run = _teacher(teacher, device)
    out = Path(out)
    config = student_config(run, out, preset, overrides, from_teacher=from_teacher)  # before hours of translating
    check_machine(config)
    write_distilled(run, out, report, beam=beam, keep_references=keep_references)
    if not isinstance(teacher, Run):
        del run
        torch.cuda.empty_cache()  # the student may need it
    return train(config, out, report)


def write_distilled(
    teacher: Run | str | Path,
    out: str | Path,
    report: Report | None = None,
    *,
    beam: int = 5,
    keep_references: bool = False,
    device: str = "auto",
) -> Path:
    """The first half of `distill`: write the student's training pairs into `out`, and return their file.

    What was translated by a call that was stopped is kept, if it was of the same teacher and the same search.
    """
    out, report = Path(out), report or OnlyWarnings()
    run = _teacher(teacher, device)
    _check_free(out)
    config = run.decode_config(beam=beam, top_beams=1)
    run.translator.check(config)
    run.task.check_files(run.config, partial(warn, report))
    if (corpus := corpus_of(run.config.data, "train")) is None:
        raise DataError(f"{run.directory} names no training data to translate, as where it was imported")
    folder = out / FOLDER
    made = _manifest(run, corpus, config, keep_references)
    with write_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with alone_in(out):
        _check_free(out)  # another process may have been faster
        _check_same(folder / MANIFEST, made)
        pairs = folder / "train.jsonl"
        if pairs.exists() and not (folder / PARTIAL).exists():  # which goes last
            report.say(f"{pairs} is there already")
            return pairs
        write_json(folder / MANIFEST, made)
        for part, held_out in _without_files(run.config).items():
            _write_pairs(folder / f"{part}.jsonl", held_out, _sides(run.config))
        _translate(run, corpus, config, folder / PARTIAL, report)
        counts = _gather(folder / PARTIAL, pairs, corpus if keep_references else (), _sides(run.config))
        write_json(folder / MANIFEST, {**made, "counts": settings.to_mapping(counts)})
        if counts.pairs < counts.sources:
            warn(report, counts.describe())
        else:
            report.say(counts.describe())
        remove_directory(folder / PARTIAL)
    return pairs


def student_config(
    teacher: Run, out: Path, preset: str | None = None, overrides: Sequence[str] = (), *, from_teacher: bool = False
) -> RunConfig:
    """The settings of a student in `out`: those of the preset or the teacher's own, on the pairs that it distils."""
    for name in DECIDED:
        if found := [one for one in overrides if one.partition("=")[0].strip() == name]:
            raise ConfigError(f"'{found[0]}' cannot be set: it follows from the teacher, {teacher.directory}")
    theirs, folder = absolute(teacher.config), (out / FOLDER).resolve()
    if preset is not None and (task := preset_mapping(preset).get("task", theirs.task)) != theirs.task:
        raise ConfigError(f"preset '{preset}' is for {task}, and {teacher.directory} is a run for {theirs.task}")
    source, target = _sides(theirs)
    named = {name: getattr(theirs.data, name) for name in ("cache", "max_len", "overlong", "header", "valid", "test")}
    written = {part: [str(folder / f"{part}.jsonl")] for part in _without_files(theirs)}
    data = {**named, **written, "train": [str(folder / "train.jsonl")], "source": source, "target": target}
    extra: JsonObject = {"task": theirs.task, "data": data, "tokenizer": {"taken_from": str(teacher.directory)}}
    if preset is None:
        extra = settings.merge(_recipe(theirs), extra)
    if from_teacher:
        if not (teacher.directory / CONFIG).exists():
            raise ConfigError(f"a student cannot start from several teachers at once ({teacher.directory})")
        shape = preset_mapping(preset).get("model", {}) if preset is not None else {}
        extra = settings.merge(extra, {"model": shape, "train": {"start_from": str(teacher.directory)}})
        del extra["tokenizer"]
    return make_config(None, preset, overrides, extra)


def _recipe(theirs: RunConfig) -> JsonObject:
    """How the teacher was made, but for its data, its tokenizer and the weights that it began with."""
    whole = theirs.to_mapping()
    sizes = {name for name in whole["model"] if name.endswith("vocab_size")}
    model = {name: value for name, value in whole["model"].items() if name not in sizes}
    recipe = {name: value for name, value in whole["train"].items() if name != "start_from"}
    for plain, other in COUNTED.items():  # a run has both, and goes by the second where it is above 0
        recipe.pop(plain if recipe.get(other) else other, None)
    return {"model": model, "train": recipe, "decode": whole["decode"]}


def _teacher(teacher: Run | str | Path, device: str) -> Run:
    run = teacher if isinstance(teacher, Run) else load(teacher, device)
    if "translate" not in run.task.methods:
        raise RunError(f"{run.directory} is a run for {run.task.name}: only one that translates can be distilled")
    return run


def _check_free(out: Path) -> None:
    """Refuse a directory that is not the student's alone."""
    if (out / CONFIG).exists():
        raise RunError(f"{out} already holds a run: choose another directory, or go on with regard train --resume")
    check_output_directory(out)
    if out.is_dir() and (strange := sorted(path.name for path in out.iterdir() if path.name != FOLDER)):
        raise RunError(f"{out} is not empty, it holds {strange[0]}: choose another directory")


def _sides(config: RunConfig) -> tuple[str, str]:
    """The names of both sides in the files that are written; columns by their number have no names."""
    source, target = config.data.source, config.data.target
    return (source, target) if isinstance(source, str) and isinstance(target, str) else ("source", "target")


def _without_files(config: RunConfig) -> dict[str, Corpus]:
    """Validation and test pairs that a student cannot read where they are, by their part.

    Bundled ones are in no file. Columns by their number are not where the student's training file has its sides.
    """
    data = config.data
    if not data.world and _sides(config) == (data.source, data.target):
        return {}
    found = {part: corpus_of(data, part) for part in PARTS if part != "train"}
    return {part: corpus for part, corpus in found.items() if corpus is not None}


def _manifest(run: Run, corpus: Corpus, config: DecodeConfig, keep_references: bool) -> JsonObject:
    """Everything that decides which pairs come out."""
    weights = hashlib.sha256(run.vocabularies.digest().encode())
    for name, weight in sorted(weights_of(run.model).items()):
        weights.update(name.encode())
        weights.update(weight.detach().float().cpu().contiguous().numpy().tobytes())
    return {
        "teacher": str(run.directory.resolve()),
        "weights": weights.hexdigest(),
        "data": corpus.digest(),
        "decode": settings.to_mapping(config, nulls=True),
        "keep_references": keep_references,
    }


def _check_same(path: Path, made: JsonObject) -> None:
    """Refuse to go on with what was made of something else."""
    if not path.exists():
        return
    before = read_json(path)
    plain = json.loads(json.dumps(made))
    if other := [name for name, value in plain.items() if before.get(name) != value]:
        raise RunError(
            f"{path.parent} was begun with another {other[0].replace('_', ' ')}: choose another directory, or delete it"
        )


def _translate(run: Run, corpus: Corpus, config: DecodeConfig, folder: Path, report: Report) -> None:
    """Write the translations of all sources into `folder`, some at a time, from where an earlier call had come to."""
    with write_errors(folder):
        folder.mkdir(exist_ok=True)
    done, total = sum(1 for _ in _written(folder)), sum(1 for _ in corpus)
    if done:
        report.say(f"{done:,} of {total:,} sources are translated already")
    elif not total:
        raise DataError("there is nothing to distil: the teacher's training data is empty")
    else:
        report.say(f"translating {total:,} training sources, beam {config.beam}")
    sources = islice((source for source, _ in corpus), done, None)
    try:
        _tell(report, done, total)
        while some := list(islice(sources, AT_ONCE["cuda" if run.device.type == "cuda" else "cpu"])):
            found = zip(some, run.translator.translate(some, config), strict=True)
            rows = [{"source": one, "text": best[0].text, "finished": best[0].finished} for one, best in found]
            _write_rows(folder / f"{done:012}.jsonl", rows)
            done += len(some)
            _tell(report, done, total)
    except KeyboardInterrupt:
        raise Stopped(f"stopped after {done:,} of {total:,} sources; the same command goes on from there") from None


def _tell(report: Report, done: int, total: int) -> None:
    if isinstance(report, FollowsCounts):
        report.counted("translating", done, total)
    else:
        report.progress("translating", done)


def _written(folder: Path) -> Iterator[JsonObject]:
    """What was translated so far, in order."""
    count = 0
    for path in sorted(folder.glob("*.jsonl")):
        if path.stem != f"{count:012}":
            raise RunError(f"{folder} is missing the part from source {count:,} on: delete it, and begin again")
        for _, row in objects(path, whole_lines(path)):
            yield row
            count += 1


def _gather(folder: Path, out: Path, references: Iterable[tuple[str, str]], sides: tuple[str, str]) -> DistilledCounts:
    """Write the pairs to train on from the parts, then the `references`, and count what was left out."""
    counts: Counter[str] = Counter()

    def distilled() -> Iterator[tuple[str, str]]:
        for row in _written(folder):
            counts["sources"] += 1
            if not row["source"].strip():
                counts["blank_sources"] += 1
            elif not row["finished"]:
                counts["cut"] += 1
            elif not row["text"].strip():
                counts["blank"] += 1
            else:
                yield row["source"], row["text"]
        if not (found := DistilledCounts(**counts)).pairs:
            raise DataError(f"there is nothing to train on: {found.describe()}")

    def kept() -> Iterator[tuple[str, str]]:
        for source, target in references:
            if source.strip() and target.strip():
                counts["references"] += 1
                yield source, target

    _write_pairs(out, chain(distilled(), kept()), sides)
    return DistilledCounts(**counts)


def _write_pairs(path: Path, pairs: Iterable[tuple[str, str]], sides: tuple[str, str]) -> None:
    _write_rows(path, (dict(zip(sides, pair, strict=True)) for pair in pairs))


def _write_rows(path: Path, rows: Iterable[JsonObject]) -> None:
    with whole_file(path) as aside, aside.open("w", encoding="utf-8", newline="\n") as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
