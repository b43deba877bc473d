"""How a translation model follows a pronoun to its noun: which head does, and what is lost without it.

In the encoder the pronoun itself may look at its noun. Or the decoder does, at the step that writes the pronoun: back
at the noun in its own translation, which shows the gender, or over at the noun in the source. All heads are asked.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations, islice
from math import comb

import torch

from regard.analysis.head_roles import Quizzes, ask, attention_kind, quiz
from regard.config import JsonObject
from regard.data.synthetic.world.sentence import ParallelSentence, pronoun_accuracy
from regard.look.edits import masked
from regard.look.roles import RoleCounts
from regard.look.watch import attentions
from regard.metrics.classification_metrics import wilson_interval
from regard.tasks.corpora import Part, world_held_out
from regard.tasks.probes import Kind, Probe, by_pronoun, pair_probe
from regard.tasks.run import Run
from regard.tasks.translator import encode_pair

FROM_TO: dict[Kind, str] = {
    "encoder": "the pronoun looks at its noun",
    "decoder": "the step that writes the pronoun looks back at the noun's translation",
    "cross": "the step that writes the pronoun looks at the noun",
}
TOGETHER = 4
"""Of so many heads, those whose masking costs most, every two are masked together."""


@torch.inference_mode()
def pronoun_report(
    run: Run,
    *,
    word: str | None = "it",
    limit: int = 300,
    progress: Callable[[int, int], None] | None = None,
) -> JsonObject | None:
    """Which head best follows a pronoun to its noun, and what masking each head, and every two that matter, costs.

    The head is chosen on validation sentences; accuracies are of test sentences, `limit` of each with such a pronoun.
    `by_kind` has the best head of the encoder, of the decoder and of cross-attention alike. `needed` are the heads
    without which fewer pronouns are translated right than the whole model's 95 % interval allows for, `together` what
    masking two of the most needed costs. None where the run does not read English.
    """
    if not run.task.reads_english(run) or not attentions(run.model):
        return None
    parts = {part: _with_pronoun(run, part, word, limit) for part in ("valid", "test")}
    found: dict[str, dict[str, RoleCounts]] = {}
    for part, sentences in parts.items():
        items = [asked_of_pronouns(pair_probe(run, sentence, {})) for sentence in sentences]
        quizzes: Quizzes = {own: (quiz(items, own),) for own in FROM_TO}
        found[part] = {name: counts[0] for name, counts in ask(run, run.model, items, quizzes).items()}
        if part == "test":  # also by what is taken from each place
            found["value"] = {n: c[0] for n, c in ask(run, run.model, items, quizzes, by_value=True).items()}
    known = attentions(run.model)
    best: dict[Kind, tuple[float, JsonObject]] = {}
    for own in FROM_TO:
        if one := _best(found, [name for name in found["valid"] if attention_kind(known[name]) == own]):
            best[own] = one
    if not best:
        return None
    _, first = max(best.values(), key=lambda one: one[0])
    return {
        "pronoun": word,
        "sentences": len(parts["test"]),
        **first,
        "by_kind": {own: {"asks": FROM_TO[own], **one} for own, (_, one) in best.items()},
        "by_head": {
            name: [one.accuracy for one in counts.evidence("pronoun")]
            for name, counts in found["test"].items()
            if "pronoun" in counts.quiz.roles
        },
        **_without(run, parts["test"], progress),
    }


def _best(found: dict[str, dict[str, RoleCounts]], names: Sequence[str]) -> tuple[float, JsonObject] | None:
    """Of these attentions the head that is right most often on validation sentences: how often, and on others."""
    scored = [
        (evidence.accuracy, name, head)
        for name in names
        if "pronoun" in found["valid"][name].quiz.roles and "pronoun" in found["test"][name].quiz.roles
        for head, evidence in enumerate(found["valid"][name].evidence("pronoun"))
    ]
    if not scored:
        return None
    accuracy, name, head = max(scored, key=lambda one: one[0])
    return accuracy, {
        "attention": name,
        "head": head,
        "evidence": found["test"][name].evidence("pronoun")[head].to_mapping(),
        "by_value": found["value"][name].evidence("pronoun")[head].to_mapping(),
        "chance": found["test"][name].quiz.chances[found["test"][name].quiz.roles.index("pronoun")],
    }


def _without(
    run: Run, sentences: Sequence[ParallelSentence], progress: Callable[[int, int], None] | None = None
) -> JsonObject:
    """How many pronouns are translated right by the whole model, and without each head, and without two."""
    texts = [sentence.english for sentence in sentences]
    every = [(name, head) for name, one in attentions(run.model).items() for head in range(one.heads)]
    total = 1 + len(every) + comb(min(TOGETHER, len(every)), 2)
    done = 0

    def right(*heads: tuple[str, int]) -> tuple[int, int]:
        nonlocal done
        chosen: dict[str, list[int]] = {}
        for name, head in heads:
            chosen.setdefault(name, []).append(head)
        with masked(run.model, chosen):
            counted = pronoun_accuracy(sentences, run.translate(texts, beam=1))
        done += 1
        if progress is not None:
            progress(done, total)
        return counted

    whole, asked = right()
    low, high = wilson_interval(whole, asked)
    alone = {head: right(head)[0] / asked for head in every}
    order = sorted(every, key=lambda head: alone[head])
    share = whole / asked
    by_name: dict[str, list[float]] = {}
    for name, head in every:
        by_name.setdefault(name, []).append(alone[name, head])
    return {
        "translated": share,
        "translated_interval": (low, high),
        "translated_when_masked": by_name,
        "needed": [
            {"attention": name, "head": head, "lost": share - alone[name, head]}
            for name, head in order
            if alone[name, head] < low
        ],
        "together": [
            {
                "heads": [{"attention": name, "head": head} for name, head in two],
                "translated": (left := right(*two)[0] / asked),
                "lost": share - left,
                "lost_apart": sum(share - alone[one] for one in two),
            }
            for two in combinations(order[:TOGETHER], 2)
        ],
    }


def _with_pronoun(run: Run, part: Part, word: str | None, limit: int) -> list[ParallelSentence]:
    def wanted(sentence: ParallelSentence) -> bool:
        words = {sentence.english_words[one.english].lower() for one in sentence.pronouns}
        fits = max(map(len, encode_pair(run, sentence.english, sentence.french))) <= run.translator.max_len
        return fits and (bool(words) if word is None else words == {word})

    found = world_held_out(part, "en", 50 * limit).sampled()
    return list(islice((sentence for sentence in found if wanted(sentence)), limit))


def asked_of_pronouns(item: Probe) -> Probe:
    """The item with questions about its pronouns alone; the decoder's rows are the steps that write each word."""
    gold = item.gold
    assert gold is not None
    questions = by_pronoun(gold, item.places["encoder"][3])
    writes, (_, reads, _, places) = item.places["cross"][0], item.places["decoder"]
    return replace(item, questions=questions, places={**item.places, "decoder": (writes, reads, places, places)})
