"""What decoders looked at: translations, given or their own; texts that a language model reads; and pointing."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.config import Setting
from regard.data.synthetic.puzzles import Problem, in_unit_square
from regard.data.synthetic.world.corpus import LECTURE
from regard.data.synthetic.world.sentence import spans
from regard.decode.config import DecodeConfig
from regard.errors import ConfigError, DataError
from regard.look.document import AttentionMap, Branch, Candidate, Document, Sentence, Side
from regard.look.recurrence import text_features
from regard.look.watch import Trace, attention_map, attentions, seen_recurrences, watch
from regard.models.protocols import ReadsText, capabilities
from regard.models.recurrent import RecurrentModel
from regard.nn.attention import ACROSS, WITHIN
from regard.nn.batch import Pairs, Pointings, Tokens
from regard.tasks.cross_attention import piece_spans
from regard.tasks.looking.look_options import LookOptions, attention_maps, left_out_note, looking
from regard.tasks.looking.steps import (
    END,
    START,
    Judged,
    beam_tree,
    candidates,
    decoding,
    edited,
    looked,
    piece_names,
    readable,
    same_length,
)
from regard.tasks.run import Run
from regard.tasks.translator import Translation, encode_pair
from regard.tasks.verbs.point import Pointed

POINTS = 5
"""Candidates of a pointing step that are shown."""
Tree = tuple[tuple[Branch, ...], ...]


def translation_document(run: Run, texts: Sequence[str], options: LookOptions, **decode: Setting) -> Document:
    """Each text with its translation. Attention is read by teacher forcing, which sees what decoding saw."""
    config = _searching(run.decode_config(**decode))
    targets = [None] * len(texts) if options.targets is None else options.targets
    if len(targets) != len(texts):
        raise DataError(f"{len(targets)} targets for {len(texts)} sentences; give one each")
    found: list[tuple[str, Translation, Tree]] = []
    for number, (text, target) in enumerate(zip(texts, targets, strict=True), 1):
        if target is not None:
            found.append((text, _given(run, text, target), ()))
            continue
        best, steps = run.translator.searched(text, config, number)
        read = run.translator.reading(text).target
        found.append((text, run.translator.text(best, read), beam_tree(steps, best, read)))
    return looked(
        run,
        [
            _translation(run, text, best, beam, options, config, _alike(run, found, number) if options.edits else None)
            for number, (text, best, beam) in enumerate(found)
        ],
    )


def _alike(run: Run, found: Sequence[tuple[str, Translation, Tree]], number: int) -> tuple[int, Pairs] | None:
    """The first other sentence with as many source tokens as this one: heads of the encoder can be swapped with it."""
    sources = [encode_pair(run, text, "")[0] for text, _, _ in found]
    other = same_length(sources, number)
    if other is None:
        return None
    tokenizer = run.vocabularies.target
    target = [tokenizer.bos, *found[other][1].tokens, tokenizer.eos]
    return other, Pairs(Tokens.of([sources[other]]), Tokens.of([target])).to(run.translator.device)


def _searching(config: DecodeConfig) -> DecodeConfig:
    """The same, but by beam search where it would sample: samples have no tree."""
    risk = {"mbr": 0, "top_beams": 1} if config.mbr else {}
    return replace(config, temperature=None, top_k=None, top_p=None, min_p=None, samples=1, **risk)


def _given(run: Run, source: str, target: str) -> Translation:
    tokenizer = run.translator.reading(source).target
    tokens = tokenizer.encode(target)
    pieces = tokenizer.pieces(tokens)
    return Translation(text=target, score=0.0, log_prob=0.0, tokens=tuple(tokens), pieces=tuple(pieces))


@torch.inference_mode()
def _translation(
    run: Run,
    source: str,
    best: Translation,
    beam: Tree,
    options: LookOptions,
    config: DecodeConfig,
    other: tuple[int, Pairs] | None = None,
) -> tuple[Sentence, str]:
    tokenizers, target = run.translator.reading(source), best.text
    # The very tokens that were decoded: the tokenizer might cut their text in another way.
    rows = (encode_pair(run, source, "")[0], [tokenizers.target.bos, *best.tokens, tokenizers.target.eos])
    if max(map(len, rows)) > run.translator.max_len:
        raise DataError(f"the translation of '{source[:40]}' is longer than the model reads, so it cannot be shown")
    sizes = {"source": len(rows[0]), "target": len(rows[1]) - 1, "prefix": len(rows[1]) - 1}

    known = attentions(run.model)

    def weights(name: str) -> int:
        return sizes[known[name].sides.queries] * sizes[known[name].sides.keys]

    names = options.fitting(run.model, weights)
    batch = Pairs(Tokens.of([rows[0]]), Tokens.of([rows[1]])).to(run.translator.device)
    with looking(run.model, names, max(sizes.values()), options) as trace:
        hidden = run.model(batch)
    log_probs = _log_probs(run, hidden)
    old = torch.tensor(rows[1][1:])[:, None]

    def judge() -> Judged:
        again, _ = run.translator.searched(source, config)
        text = run.translator.text(again, tokenizers.target).text
        return _log_probs(run, run.model(batch)).gather(1, old)[:, 0], text

    def whole(name: str) -> bool:
        """Whether a whole source passes this attention at once: while decoding, a decoder's see a step at a time."""
        return known[name].sides == WITHIN

    total = float(log_probs.gather(1, old).sum())
    shown = {"log-probability": f"{total:.3f}"}
    if not best.finished:
        shown["cut"] = "at its greatest length"
    crossing = [name for name in names if known[name].sides == ACROSS]
    return Sentence(
        **_sides(run, source, best, rows),
        attentions=attention_maps(run.model, trace, options),
        alignment=None if (gold := _gold(source, target)) is None else gold.alignment,
        candidates=candidates(tokenizers.target, log_probs.exp(), rows[1][1:]),
        scores=shown if options.targets is not None else {"score": f"{best.score:.3f}", **shown},
        decoding=replace(
            decoding(hidden[0], trace, crossing, beam, head=run.model.head, pieces=rows[1][1:]),
            summary=_summary(run.model, batch.source) if not known else None,
        ),
        **_cells(run, source, best, trace, options),
        edited=edited(run.model, options, judge, other=other, swaps=whole) if options.edits else (),
    ), left_out_note(run.model, names, options, max(sizes.values()))


def _summary(model: Any, source: Tokens) -> Tensor | None:
    """The one vector of the source that a recurrent decoder without attention gets."""
    return model.encode(source)[0].context[0].float().cpu() if isinstance(model, RecurrentModel) else None


def _cells(run: Run, source: str, best: Translation, trace: Trace, options: LookOptions) -> dict[str, Any]:
    """Gates and states of the encoder over the source and of the decoder over what it reads, and features of both."""
    if not any(trace.cells.values()):
        return {}
    places = _places(run, source, best)
    return {
        "recurrences": seen_recurrences(trace),
        "features": (
            *text_features(source, [*places["source"], (len(source), len(source))], "source", options.features),
            *text_features(best.text, [(0, 0), *places["target"]], "prefix", options.features),
        ),
    }


def _places(run: Run, source: str, best: Translation) -> dict[str, list[tuple[int, int]]]:
    """The characters that each piece covers, those that a source opens with and both ends left out."""
    tokenizers = run.translator.reading(source)
    opening = [(0, 0)] * len(tokenizers.source.opening)
    return {
        "source": [*opening, *tokenizers.source.offsets(source)],
        "target": list(piece_spans(tokenizers.target, best.text, best.tokens)),
    }


def _log_probs(run: Run, hidden: Tensor) -> Tensor:
    return run.model.head(hidden).log_softmax(-1)[0].float().cpu()


def _gold(source: str, target: str):
    """What is known of a sentence of the lectures."""
    return next((one for one in LECTURE if (one.english, one.french) == (source, target)), None)


def _sides(run: Run, source: str, best: Translation, rows: tuple[list[int], list[int]]) -> dict[str, Any]:
    tokenizers, gold = run.translator.reading(source), _gold(source, best.text)
    source_spans = None if gold is None else spans(source, gold.english_words)
    target_spans = None if gold is None else spans(best.text, gold.french_words)
    places = _places(run, source, best)
    source_places, target_places = places["source"], places["target"]
    read, pieces = readable(tokenizers.source.pieces(rows[0][:-1])), readable(tokenizers.target.pieces(rows[1][1:-1]))
    nowhere = (0, 0)
    return {
        "source": Side.of(source, [*read, END], [*source_places, nowhere], source_spans),
        "target": Side.of(best.text, [*pieces, END], [*target_places, nowhere], target_spans),
        "prefix": Side.of(best.text, [START, *pieces], [nowhere, *target_places], target_spans),
    }


def language_document(run: Run, texts: Sequence[str], options: LookOptions, **decode: Setting) -> Document:
    """Each text as the model reads it. Nothing is decoded, so decoding settings do not apply."""
    if not isinstance(run.model, ReadsText):
        raise ConfigError(f"{type(run.model).__name__} does not say what it predicts the next token from")
    return looked(run, [_text(run, texts, number, options) for number in range(len(texts))])


def _alike_text(run: Run, texts: Sequence[str], number: int) -> tuple[int, Pairs] | None:
    """The first other text with as many tokens as this one."""
    rows = [run.generator.prompt_ids(text) for text in texts]
    other = same_length(rows, number)
    if other is None:
        return None
    row = rows[other]  # what is read is all but the last token of a target
    return other, Pairs(Tokens.of([row]), Tokens.of([[*row, row[-1]]])).to(next(run.model.parameters()).device)


@torch.inference_mode()
def _text(run: Run, texts: Sequence[str], number: int, options: LookOptions) -> tuple[Sentence, str]:
    text, tokenizer = texts[number], run.generator.tokenizer
    ids = run.generator.prompt_ids(text)
    if len(ids) > run.generator.length:
        raise DataError(f"text {number + 1} has {len(ids)} tokens; the model reads at most {run.generator.length}")
    names = options.fitting(run.model, lambda name: len(ids) ** 2)
    device = next(run.model.parameters()).device
    with looking(run.model, names, len(ids), options) as trace:
        vectors = run.model.read(Tokens.of([ids]).to(device))
    log_probs = _log_probs(run, vectors)
    opening = len(ids) - len(tokenizer.offsets(text))
    places = [(0, 0)] * opening + list(tokenizer.offsets(text))
    following = torch.tensor(ids[1:], dtype=torch.long)[:, None]

    def judge() -> Judged:
        vectors = run.model.read(Tokens.of([ids]).to(device))
        found = run.model.head(vectors).log_softmax(-1)[0].float().cpu()
        # Nothing follows the last piece: its own place is certain.
        return torch.cat((found[:-1].gather(1, following)[:, 0], torch.zeros(1))), None

    scores = {"perplexity": _perplexity(log_probs[:-1], ids[1:])}
    if capabilities(type(run.model)).both_ways:
        found = _log_probs(run, run.model.after(torch.tensor([ids], device=device)))
        scores |= {"perplexity, read backward": _perplexity(found[1:], ids[:-1])}
    return Sentence(
        source=Side.of(text, piece_names(tokenizer, ids), places, specials=True),
        attentions=attention_maps(run.model, trace, options),
        candidates=candidates(tokenizer, log_probs.exp(), [*ids[1:], None]),
        scores=scores,
        decoding=decoding(vectors[0], trace, names, head=run.model.head, pieces=[*ids[1:], None]),
        recurrences=seen_recurrences(trace),
        features=text_features(text, places, "source", options.features) if trace.cells else (),
        edited=edited(run.model, options, judge, other=_alike_text(run, texts, number)) if options.edits else (),
    ), left_out_note(run.model, names, options, len(ids))


def _perplexity(log_probs: Tensor, tokens: Sequence[int]) -> str:
    """The perplexity of these tokens by the rows that predict them; of none, 1."""
    if not tokens:
        return "1.00"
    return f"{float((-log_probs.gather(1, torch.tensor(tokens)[:, None]).mean()).exp()):.2f}"


def pointing_document(run: Run, problems: Sequence[Problem | Any], options: LookOptions, **decode: Setting) -> Document:
    """What the page shows: the items, the answer, and the weight of every choice at every step."""
    if options.targets or options.edits or options.vectors:
        raise ConfigError("of a pointing run only weights can be shown: no targets, edits or vectors")
    made = run.pointer.checked(problems)
    found = [best[0] for best in run.pointer.answers(made, run.decode_config(**decode))]
    return Document(
        title=f"Where {run.directory.name} pointed",
        note="Each row is a step; its weights are the prediction itself. An item is named by its position, from 0.",
        sentences=tuple(_problem(run, problem, best, options) for problem, best in zip(made, found, strict=True)),
    )


@torch.inference_mode()
def _problem(run: Run, problem: Problem, best: Pointed, options: LookOptions) -> Sentence:
    device = next(run.model.parameters()).device
    batch = Pointings.of([in_unit_square(problem.items)], [np.array(best.order, dtype=np.int64)]).to(device)
    names = options.fitting(run.model, lambda name: (len(problem.items) + 1) ** 2)
    with watch(run.model, names, heads=options.heads) as trace:
        probabilities = run.model(batch)[0].exp().cpu()
    items = [f"item {place}: {_shown(item)}" for place, item in enumerate(problem.items)]
    choices, rows = [END, *items], [*(items[place] for place in best.order), END]
    return Sentence(
        source=_named_side(choices, items),
        target=_named_side(rows, rows[:-1]),
        attentions=tuple(_pointing_maps(trace, len(items), options)),
        candidates=tuple(_choices(step, choices) for step in probabilities),
        scores={"score": f"{best.score:.3f}", "order": " ".join(map(str, best.order))},
    )


def _pointing_maps(trace: Trace, items: int, options: LookOptions) -> Iterator[AttentionMap]:
    for name in trace.names:
        weights, sides = trace.weights(name)[0].cpu(), ACROSS
        if weights.shape[-1] == items:  # items looking at items: the end, which comes first, looks at nothing
            weights, sides = torch.nn.functional.pad(weights, (1, 0, 1, 0)), WITHIN
        yield attention_map(name, sides, weights, heads=options.heads)


def _choices(step: torch.Tensor, choices: list[str]) -> tuple[Candidate, ...]:
    values, places = step.topk(min(POINTS, len(choices)))
    pairs = zip(values.tolist(), places.tolist(), strict=True)
    return tuple(Candidate(piece=choices[place], probability=value) for value, place in pairs)


def _named_side(pieces: list[str], items: list[str]) -> Side:
    return Side(text="; ".join(items), pieces=tuple(pieces), names=True)


def _shown(item: np.ndarray) -> str:
    numbers = ", ".join(f"{value:.4g}" for value in item)
    return numbers if len(item) == 1 else f"({numbers})"
