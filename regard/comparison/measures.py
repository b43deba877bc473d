"""Everything a comparison says about one run: what it scores, what it cost, how it got there."""

import hashlib
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from regard.comparison.budget import count_parameters
from regard.data.world import words_of
from regard.errors import RunError
from regard.metrics.text import exact_match
from regard.metrics.word_errors import WordErrors
from regard.nn.batch import Pairs, Tokens, Windows
from regard.nn.operations import operations
from regard.runs.files import MODEL, read_json, write_json
from regard.runs.log import read_log
from regard.tasks.config import RunConfig
from regard.tasks.corpora import WorldCorpus, corpus_of
from regard.tasks.evaluation import encode_pair, evaluate
from regard.tasks.run import Run, build_model, load, load_config
from regard.training.objectives import LanguageModelling, Translation

MEASURES = "measures.json"
SHORT, LONG = 12, 30
"""Sentences of fewer words than the first are short, of at least as many as the second long."""


def measure(
    directory: Path, *, limit: int | None = None, progress: Callable[[int, int], None] | None = None
) -> dict[str, Any]:
    """What is known of the run in `directory`, ready for JSON, and kept there until its weights change."""
    kept = directory / MEASURES
    found = read_json(kept) if kept.exists() else {}
    if "diverged" in found:
        return {**_about(directory), **found}
    key = {"weights": _digest(directory / MODEL), "limit": limit, "form": 1}
    if found.get("key") == key:
        return found
    run = load(directory, "cpu")
    result = {
        "key": key,
        **_about(directory),
        "test": _test(run, limit, progress),
    }
    write_json(kept, result)
    return result


def _about(directory: Path) -> dict[str, Any]:
    """What the run is and what its training was, without its weights."""
    config = load_config(directory)
    updates, seconds, tokens, curve, validations = history(directory)
    flops = flops_a_token(config)
    return {
        "name": directory.name,
        "task": config.task,
        "model": dict(config.model),
        "parameters": count_parameters(config),
        "updates": updates,
        "seconds": seconds,
        "tokens": tokens,
        "flops_a_token": flops,
        "flops": flops * tokens,
        "curve": _with_flops(curve, flops),
        "validations": _with_flops(validations, flops),
    }


def history(directory: Path) -> tuple[int, float, float, list[dict[str, Any]], list[dict[str, Any]]]:
    """Updates, seconds and tokens of training, then its logged losses and validations, each with all three."""
    if not (directory / "log.jsonl").exists():
        raise RunError(f"{directory} is missing its log.jsonl")
    step = seconds = tokens = 0
    before = last = 0.0
    curve: list[dict[str, Any]] = []
    validations: list[dict[str, Any]] = []
    for record in read_log(directory / "log.jsonl"):
        if record.get("kind") == "train":
            # A run that was stopped counts its seconds from nothing again.
            lap = record["seconds"] - last if record["seconds"] >= last else record["seconds"]
            last = record["seconds"]
            step, seconds = record["step"], seconds + lap
            tokens += record["tokens_per_second"] * lap
            curve.append(
                {"step": step, "seconds": seconds, "tokens": tokens, "loss": record.get("nll", record["loss"])}
            )
            before = seconds
        elif record.get("kind") == "validation":
            scores = {name: record[name] for name in ("nll", "bleu", "exact_match") if name in record}
            validations.append({"step": record["step"], "seconds": before, "tokens": tokens, **scores})
    return step, seconds, tokens, curve, validations


def flops_a_token(config: RunConfig, length: int = 32) -> float:
    """Operations of training on one token, forward and back, counted on a batch of equal rows; products alone."""
    length = min(length, config.data.max_len - 2, config.model_config().max_len - 2)
    model = build_model(config)
    rows = Tokens.of([[4] * length] * 4)
    if config.task == "language":
        batch: Any = Windows(rows, torch.full((4, length), 4), 4 * length)
        task: Any = LanguageModelling()
    else:
        batch, task = Pairs(rows, Tokens.of([[4] * (length + 1)] * 4), 4 * length), Translation()
    with torch.enable_grad(), operations(model) as counter:
        task.loss(model, batch).total.backward()
    return counter.get_total_flops() / batch.tokens


def _test(run: Run, limit: int | None, progress: Callable[[int, int], None] | None) -> dict[str, Any]:
    if run.config.task != "translation":
        return evaluate(run, limit=limit, progress=progress)
    corpus = corpus_of(run.config.data, "test") or corpus_of(run.config.data, "valid")
    hypotheses: list[str] = []
    result = evaluate(run, corpus, limit=limit, progress=progress, out=hypotheses.append, beam=1)
    assert corpus is not None
    pairs = list(islice((pair for pair in corpus if pair[0].strip() and pair[1].strip()), limit))
    lengths = [len(source.split()) for source, _ in pairs]
    for name, rows in (
        ("short", [row for row, words in enumerate(lengths) if words < SHORT]),
        ("long", [row for row, words in enumerate(lengths) if words >= LONG]),
    ):
        share = exact_match([hypotheses[row] for row in rows], [pairs[row][1] for row in rows]) if rows else None
        result[name] = {"sentences": len(rows), "exact_match": share}
    if isinstance(corpus, WorldCorpus):
        result["words"] = _word_errors(corpus, hypotheses).to_mapping()
    result["mean_tokens"] = sum(sum(map(len, encode_pair(run, *pair))) for pair in pairs[:200]) / len(pairs[:200])
    return result


def _word_errors(corpus: WorldCorpus, hypotheses: list[str]) -> WordErrors:
    """Repeated, omitted and over-translated words, by the gold alignments."""
    counts = WordErrors()
    forward = corpus.source == "en"
    for sentence, hypothesis in zip(islice(corpus.drawn(), len(hypotheses)), hypotheses, strict=True):
        sides = (sentence.english_words, sentence.french_words)
        source, target = sides if forward else sides[::-1]
        alignment = sentence.alignment if forward else tuple((there, here) for here, there in sentence.alignment)
        counts.add(words_of(hypothesis, "fr" if forward else "en"), target, alignment, len(source))
    return counts


def _with_flops(points: list[dict[str, Any]], flops: float) -> list[dict[str, Any]]:
    return [{**point, "flops": flops * point["tokens"]} for point in points]


def _digest(path: Path) -> str:
    if not path.exists():
        raise RunError(f"{path.parent} is missing its {path.name}")
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
