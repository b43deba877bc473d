"""What each head of a run is for, with the evidence, over sentences that it was not trained on."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias, get_args

import torch
from torch import Tensor, nn

from regard.analysis.head_neurons import role_neurons
from regard.analysis.head_questions import (
    Kind,
    Labelled,
    Looked,
    by_pronoun,
    of_framed_texts,
    of_labelled_texts,
    of_running_text,
)
from regard.data import Corpus, Documents
from regard.data.world import Sentence
from regard.errors import ConfigError, DataError
from regard.look.align import merge
from regard.look.measures import Measures, value_norms
from regard.look.roles import (
    HeadRoles,
    Quiz,
    RoleCounts,
    at_landmarks,
    at_rare,
    by_alignment,
    by_position,
    by_relation,
    by_repetition,
    largest_margins,
    roles_of_heads,
    thresholds,
)
from regard.look.watch import attentions, watch
from regard.nn.attention import ACROSS, BEFORE, WITHIN, Attention, Sides, Watchable
from regard.nn.batch import Pairs, Texts, Tokens, Windows
from regard.tasks.corpora import WorldCorpus, corpus_of, documents_of
from regard.tasks.evaluation import encode_pair, words_of_row
from regard.tasks.labelled import READERS, items_of
from regard.tasks.run import Run, build_model

SCALING, JUDGING = 10, 19
"""Untrained models that say how high chance reaches at each role, and that set the threshold: 1 in 20 exceeds 19."""


def head_roles(
    run: Run,
    corpus: Corpus | Documents | Sequence[Labelled] | None = None,
    *,
    limit: int = 400,
    judging: int = JUDGING,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """The role of every head with its evidence, as one JSON-ready object.

    `corpus` has pairs for a run that translates, running text, or the labelled texts of `items_of` for a run tuned on
    such; by default it is the run's own test or validation set.
    Roles are chosen on every second of `limit` pairs and reported on the others. A role is claimed where its margin is
    larger than untrained models of the same shape reach on the same sentences (see `regard.look.roles.thresholds`), so
    that an untrained model is given any role at all with a chance of at most 1 in `judging` + 1.
    """
    if judging < 1:
        raise ConfigError(f"judging={judging} must be at least 1")
    items = _items(run, corpus, limit)
    quizzes = make_quizzes(items)
    seen = answers(run, run.model, items, quizzes)
    largest = []
    for number in range(SCALING + judging):
        found = answers(run, untrained(run, number), items, quizzes)
        largest.append(largest_margins(head for own in found.values() for head in own))
        if progress is not None:
            progress(number + 1, SCALING + judging)
    limits = thresholds(largest[:SCALING], largest[SCALING:])
    measures = _measures(run, items)
    heads = [
        _described(name, head, found, limits, {key: value[head] for key, value in measures[name].items()})
        for name, own in seen.items()
        for head, found in enumerate(own)
    ]
    _add_neurons(run, items, heads)
    return {
        "sentences": len(items),
        "untrained_models": SCALING + judging,
        "false_positive_rate": 1 / (judging + 1),
        "thresholds": limits,
        "heads": heads,
    }


def _add_neurons(run: Run, items: Sequence[Looked], heads: list[dict[str, Any]]) -> None:
    """To each head with a role, the few neurons that carry it."""
    claims: dict[str, dict[int, str]] = {}
    for head in heads:
        if head["role"]:
            claims.setdefault(head["attention"], {})[head["head"]] = head["role"]
    kinds: dict[str, Kind] = {name: kind(attentions(run.model)[name]) for name in claims}
    found = role_neurons(run.model, items, lambda part: _batch(run, part), kinds, claims)
    for head in heads:
        head["neurons"] = found.get((head["attention"], head["head"]))


def _described(
    name: str, head: int, found: HeadRoles, limits: dict[str, float], measures: dict[str, float]
) -> dict[str, Any]:
    claimed = [one for one in found.all if one.margin > limits[one.role]]
    first = claimed[0] if claimed else found.best
    return {
        "attention": name,
        "head": head,
        "role": first.role if claimed else None,
        "evidence": first.to_mapping(),
        "also": [one.to_mapping() for one in claimed[1:]],
        "measures": measures,
    }


def untrained(run: Run, number: int) -> nn.Module:
    """A model like the run's with fresh weights, another for each number."""
    model = build_model(replace(run.config, train=replace(run.config.train, seed=10_000 + number)))
    return model.to(next(run.model.parameters()).device).eval()


def _items(run: Run, corpus: Corpus | Documents | Sequence[Labelled] | None, limit: int) -> list[Looked]:
    if run.config.task != "translation":
        return _text_items(run, corpus, limit)
    assert not isinstance(corpus, Documents | Sequence)
    corpus = corpus or corpus_of(run.config.data, "test") or corpus_of(run.config.data, "valid")
    if corpus is None:
        raise ConfigError("no sentences to look at: the run names no test or validation set; give some")
    if isinstance(corpus, WorldCorpus):
        drawn: Sequence[Any] = list(islice(corpus.drawn(), limit))
        texts = [sentence.english if corpus.source == "en" else sentence.french for sentence in drawn]
    else:
        drawn = list(islice((pair for pair in corpus if pair[0].strip() and pair[1].strip()), limit))
        texts = [pair[0] for pair in drawn]
    counts = Counter(word.lower() for text in texts for word in text.split())
    items = [looked(run, one, counts) for one in drawn]
    items = [item for item in items if max(map(len, item.rows)) <= run.translator.max_len]
    if len(items) < 2:
        raise DataError("at least two pairs that the model can read are needed")
    return items


def _text_items(run: Run, corpus: Any, limit: int) -> list[Looked]:
    """Running text, or texts framed in pairs."""
    if run.config.task == "images" or not attentions(run.model):
        raise ConfigError(
            f"heads are given roles where a run reads text with attention, not in one for {run.config.task}"
        )
    data = run.config.data
    if corpus is None and run.config.task in ("language", "masking"):
        corpus = documents_of(data, "test") or documents_of(data, "valid")
    if corpus is None and run.config.task in READERS and (files := data.test or data.valid):
        corpus = items_of(run.config, map(Path, files))
    if corpus is None:
        raise ConfigError("no text to look at: the run names no test or validation text; give some")
    if not isinstance(corpus, Documents):
        items = of_labelled_texts(run, corpus, limit)
    else:
        items = (of_running_text if run.config.task == "language" else of_framed_texts)(run, corpus, limit)
    if len(items) < 2:
        raise DataError("at least two sentences that the model can read are needed")
    return items


def looked(run: Run, given: Any, counts: dict[str, int]) -> Looked:
    """A sentence of the bundled corpus, or a pair of texts, with everything that can be asked of it."""
    gold: Sentence | None = given if isinstance(given, Sentence) else None
    english = run.config.data.source == "en"
    texts: Any = given
    words: tuple[Sequence[str], Sequence[str]] = ((), ())
    if gold is not None:
        texts = (gold.english, gold.french) if english else (gold.french, gold.english)
        words = (gold.english_words, gold.french_words) if english else (gold.french_words, gold.english_words)
    else:
        words = (texts[0].split(), texts[1].split())
    rows = encode_pair(run, *texts)
    vocabularies = run.vocabularies
    pieces = [
        words_of_row(tokenizer, text, side)
        for tokenizer, text, side in zip((vocabularies.source, vocabularies.target), texts, words, strict=True)
    ]
    sources, targets = len(words[0]), len(words[1])
    # Special tokens are places of their own: the source ends with one, the decoder's input begins with one.
    source = [*pieces[0], sources]
    reads = [0, *(None if word is None else word + 1 for word in pieces[1])]
    predicts = [*pieces[1], targets]
    places: dict[Kind, Any] = {
        "encoder": (source, source, sources + 1, sources + 1),
        "decoder": (reads, reads, targets + 1, targets + 1),
        "cross": (predicts, source, targets + 1, sources + 1),
    }
    lowered = [word.lower() for word in words[0]]
    S = sources + 1
    encoder = [*by_position(S), *at_landmarks(sources, S, apart=True)]
    encoder += at_rare(lowered, counts, sources, apart=True, places=S)
    decoder = [*by_position(targets + 1, causal=True), *at_landmarks(targets + 1, targets + 1, apart=True, causal=True)]
    decoder += by_repetition([None, *(word.lower() for word in words[1])])
    cross = [*at_landmarks(targets, S, apart=False), *at_rare(lowered, counts, targets, apart=False, places=S)]
    if gold is not None:
        pairs = gold.alignment if english else [(there, here) for here, there in gold.alignment]
        cross += by_alignment(pairs, S)
        if english:
            encoder += by_relation(gold.heads, gold.relations, S)
            about = by_pronoun(gold, S)
            encoder, decoder, cross = encoder + about["encoder"], decoder + about["decoder"], cross + about["cross"]
    return Looked(rows, places, {"encoder": encoder, "decoder": decoder, "cross": cross}, gold)


Quizzes: TypeAlias = dict[Kind, tuple[Quiz, ...]]
"""The questions about each kind of attention: to choose roles by, and to report them by."""


def make_quizzes(items: Sequence[Looked]) -> Quizzes:
    """Every second item for choosing, the others for reporting."""
    kinds: list[Kind] = [own for own in get_args(Kind) if own in items[0].questions]
    return {own: (quiz(items[::2], own), quiz(items[1::2], own)) for own in kinds}


def quiz(items: Sequence[Looked], own: Kind) -> Quiz:
    """The questions of these items about one kind of attention."""
    return Quiz([item.questions[own] for item in items], [item.places[own][3] for item in items])


def answers(run: Run, model: nn.Module, items: Sequence[Looked], quizzes: Quizzes) -> dict[str, list[HeadRoles]]:
    """What every head of every attention did at each role."""
    return {name: roles_of_heads(*counts) for name, counts in ask(run, model, items, quizzes).items()}


@torch.inference_mode()
def ask(
    run: Run, model: nn.Module, items: Sequence[Looked], quizzes: Quizzes, *, by_value: bool = False
) -> dict[str, tuple[RoleCounts, ...]]:
    """The answers of every attention that there is a quiz about; items are dealt to its quizzes in turn.

    `by_value` reads off what each place adds to the output, not its weight alone (see `value_norms`).
    """
    known = attentions(model)
    kinds: dict[str, Kind] = {name: kind(one) for name, one in known.items()}
    found = {name: tuple(map(RoleCounts, quizzes[own])) for name, own in kinds.items() if own in quizzes}
    for start in range(0, len(items), 64):
        part = items[start : start + 64]
        with watch(model, list(found), parts=("weights", "v") if by_value else ("weights",)) as trace:
            model(_batch(run, part))
        for name, counts in found.items():
            weights = trace.weights(name).cpu()
            attention = known[name]
            if by_value and (v := trace[name].v) is not None and isinstance(attention, Attention):
                weights = value_norms(weights, v.cpu(), attention.output.weight.cpu())
            for index, item in enumerate(part, start):
                own = _between_places(weights[index - start], item, kinds[name])
                counts[index % len(counts)].add(index // len(counts), own)
    return found


def _between_places(weights: Tensor, item: Looked, kind: Kind) -> Tensor:
    rows, columns, height, breadth = item.places[kind]
    weights = weights[:, : len(rows), : len(columns)]
    if rows == list(range(height)) and columns == list(range(breadth)):
        return weights.float()
    return merge(weights, columns, rows, sources=breadth, targets=height)


@torch.inference_mode()
def _measures(run: Run, items: Sequence[Looked]) -> dict[str, dict[str, list[float]]]:
    found = {name: Measures() for name in attentions(run.model)}
    for start in range(0, len(items), 64):
        with watch(run.model) as trace:
            run.model(_batch(run, items[start : start + 64]))
        lengths = _lengths(run, items[start : start + 64])
        for name, measures in found.items():
            queries, keys = lengths[KINDS[trace.sides[name]]]
            measures.add(trace.weights(name), queries=queries, keys=keys)
    names = ("entropy", "maximum", "distance", "first", "last")
    return {name: {one: getattr(own.means(), one).tolist() for one in names} for name, own in found.items()}


def _lengths(run: Run, items: Sequence[Looked]) -> dict[Kind, tuple[Tensor, Tensor]]:
    """How many queries and keys of each row are real, for each kind of attention."""
    device = next(run.model.parameters()).device
    return {
        own: tuple(torch.tensor([len(item.places[own][side]) for item in items], device=device) for side in (0, 1))  # type: ignore[misc]
        for own in items[0].places
    }


def _batch(run: Run, items: Sequence[Looked]) -> Pairs | Windows | Texts:
    pad, device = run.vocabularies.source.pad, next(run.model.parameters()).device
    first = Tokens.of([item.rows[0] for item in items], pad)
    if run.config.task == "translation":
        return Pairs(first, Tokens.of([item.rows[1] for item in items], pad)).to(device)
    if run.config.task == "language":
        return Windows(first, first.ids, 0).to(device)
    return Texts(first, Tokens.of([item.rows[1] for item in items]).ids if run.encoder.segmented else None).to(device)


def kind(attention: Watchable) -> Kind:
    """What an attention looks from and at."""
    return KINDS[attention.sides]


KINDS: dict[Sides, Kind] = {WITHIN: "encoder", BEFORE: "decoder", ACROSS: "cross"}
