"""Measure an encoder's run on labelled or plain text: accuracy, correlation, F1, exact match, masked words."""

import re
import string
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from regard.data.labelled import Example, Question, Tagged
from regard.errors import ConfigError, DataError
from regard.metrics.text import matthews_correlation
from regard.tasks.accuracy import wilson_interval
from regard.tasks.encoder import Told
from regard.tasks.labelled import items_of
from regard.tasks.masking import masked_rows_of, word_accuracy
from regard.tasks.run import Run
from regard.tasks.tagging import tag
from regard.training.loop import validate
from regard.training.text_tasks import MaskedWords


def judge(run: Run, files: Sequence[str] | None = None, progress: Told | None = None) -> dict[str, Any]:
    """Scores of the run on files like those it was trained on, by default its own test or validation files."""
    files = files or run.config.data.test or run.config.data.valid
    if not files:
        raise ConfigError("nothing to evaluate on: the run names no test or validation set; give one")
    if run.config.task == "masking":
        return _words(run, files)
    if run.config.task not in ("classification", "tagging", "answering"):
        raise ConfigError(f"a run for {run.config.task} has nothing to be scored on")
    items = items_of(run.config, [Path(name) for name in files])
    judges: dict[str, Callable[..., dict[str, Any]]] = {
        "classification": _classes,
        "tagging": _tags,
        "answering": _answers,
    }
    return judges[run.config.task](run, items, progress)


def _classes(run: Run, items: Sequence[Example], progress: Told | None) -> dict[str, Any]:
    texts = [item.texts[0] if len(item.texts) == 1 else item.texts for item in items]
    found = [choices[0].label for choices in run.classifier().classify(texts, progress)]
    gold = [item.label for item in items]
    return {"texts": len(items), **unknown_labels(run, gold, "texts"), **class_scores(found, gold)}


def unknown_labels(run: Run, gold: Sequence[str], what: str) -> dict[str, Any]:
    """How often each label occurs that the run does not know, and so gets wrong; nothing where it knows them all."""
    known = run.model.config.labels  # type: ignore[union-attr]
    strange = Counter(label for label in gold if label not in known)  # type: ignore[operator]
    if sum(strange.values()) == len(gold):
        listed = ", ".join(sorted(strange)[:5])
        raise DataError(
            f"the run knows none of the labels of these {what} ({listed}): its labels are {', '.join(known)}; "  # type: ignore[arg-type]
            f"data.label chooses the column"
        )
    return {"unknown_labels": dict(strange.most_common())} if strange else {}


def class_scores(found: Sequence[str], gold: Sequence[str]) -> dict[str, Any]:
    """Accuracy and Matthews correlation with their 95 % intervals, the mean F1 of the classes, and the precision,
    recall and F1 of each."""
    correlation = matthews_correlation(found, gold)
    right = sum(one == other for one, other in zip(found, gold, strict=True))
    classes = {}
    for label in sorted(set(gold) | set(found)):
        both = sum(one == other == label for one, other in zip(found, gold, strict=True))
        classes[label] = _prf(both, sum(one == label for one in found), sum(one == label for one in gold))
    return {
        "accuracy": right / len(gold),
        "accuracy_interval": wilson_interval(right, len(gold)),
        "matthews_correlation": correlation.value,
        "matthews_correlation_interval": correlation.interval,
        "matthews_correlation_signature": correlation.signature,
        "macro_f1": sum(scores["f1"] for scores in classes.values()) / len(classes),
        "classes": classes,
    }


def _tags(run: Run, items: Sequence[Tagged], progress: Told | None) -> dict[str, Any]:
    found = [[one.tag for one in tags] for tags in tag(run.encoder, [item.words for item in items], progress)]
    pairs = [
        (one, other)
        for tags, item in zip(found, items, strict=True)
        for one, other in zip(tags, item.tags, strict=True)
    ]
    ours, right = [one for one, _ in pairs], [other for _, other in pairs]
    counts = {"sentences": len(items), "words": len(pairs)}
    scores = {**counts, **unknown_labels(run, right, "words"), **class_scores(ours, right)}
    if all(re.fullmatch(r"O|[BI]-.+", gold) for _, gold in pairs):
        marked = [stretch for number, tags in enumerate(found) for stretch in stretches(tags, number)]
        gold = [stretch for number, item in enumerate(items) for stretch in stretches(item.tags, number)]
        scores["entities"] = _prf(len(set(marked) & set(gold)), len(marked), len(gold))
    return scores


def stretches(tags: Sequence[str], number: int = 0) -> list[tuple[int, int, int, str]]:
    """What B- and I- tags mark: the sentence's number, first word, word after the last, and kind."""
    found, start = [], None
    for place, mark in enumerate([*tags, "O"]):
        kind = mark[2:] if mark != "O" else None
        if start is not None and (mark.startswith(("O", "B-")) or kind != tags[start][2:]):
            found.append((number, start, place, tags[start][2:]))
            start = None
        if start is None and kind is not None:
            start = place
    return found


def _answers(run: Run, items: Sequence[Question], progress: Told | None) -> dict[str, Any]:
    found = []
    for item in items:
        found.append(run.answer(item.question, item.context)[0].text)
        if progress is not None:
            progress(len(found), len(items))
    return {"questions": len(items), **answer_scores(found, items)}


def answer_scores(found: Sequence[str], items: Sequence[Question]) -> dict[str, float]:
    """How many answers are right word for word, and how far they share words with a right one: of several, the best."""
    exact = overlap = 0.0
    for text, item in zip(found, items, strict=True):
        words, right = _plain(text), [_plain(gold) for gold in (item.answer, *item.others)]
        exact += words in right
        overlap += max(token_f1(words, gold) for gold in right)
    return {"exact_match": exact / len(items), "f1": overlap / len(items)}


def token_f1(found: list[str], gold: list[str]) -> float:
    """How far two answers share words."""
    if not found or not gold:
        return float(found == gold)
    shared = sum((Counter(found) & Counter(gold)).values())
    return 2 * shared / (len(found) + len(gold))


def _plain(text: str) -> list[str]:
    """Words without articles, marks and capitals, as SQuAD compares them."""
    bare = "".join(character for character in text.lower() if character not in string.punctuation)
    return [word for word in bare.split() if word not in ("a", "an", "the")]


def _prf(both: int, found: int, gold: int) -> dict[str, float]:
    precision, recall = both / max(1, found), both / max(1, gold)
    return {"precision": precision, "recall": recall, "f1": 2 * both / max(1, found + gold), "count": gold}


def _words(run: Run, files: Sequence[str]) -> dict[str, Any]:
    """The same hidden words for every run with one tokenizer."""
    rows = masked_rows_of(run.config, files, run.encoder.tokenizer, run.directory)
    device = next(run.model.parameters()).device
    values = validate(run.model, MaskedWords(), rows.evaluation(), device=device)
    accuracy = word_accuracy(run.model, rows.evaluation(), device)
    hidden = sum(batch.count for batch in rows.evaluation())
    found = {"hidden_words": hidden, "word_loss": values["words"], "word_accuracy": accuracy}
    if "next" in values:
        found |= {"next_loss": values["next"], "next_accuracy": values["next_accuracy"]}
    return found
