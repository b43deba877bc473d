"""What an encoder looked at in texts or pairs, and what its head says of them."""

from collections.abc import Sequence
from typing import Any

import torch

from regard.errors import ConfigError
from regard.look.document import Document, Sentence, Side
from regard.look.watch import watch
from regard.nn.batch import Texts
from regard.tasks.encoder import fill
from regard.tasks.looking.steps import answered, decoding, edited, first_answer
from regard.tasks.looking.wanted import Wanted, maps, note, parts
from regard.tasks.run import Run
from regard.text.encoder_inputs import EncoderInput

BETWEEN = " ||| "
"""Stands between the two texts of a pair."""
CLASSES, WORDS = 3, 5


def encoder(run: Run, texts: Sequence[str], wanted: Wanted, **decode: Any) -> Document:
    """Every text, or pair written `first ||| second`, looking at itself. Nothing is decoded."""
    if wanted.edits and run.encoder.model.config.head != "classes":
        raise ConfigError(f"a run for {run.config.task} gives no class of a text that changing a head could change")
    found = [_sentence(run, texts, number, wanted) for number in range(len(texts))]
    return Document(
        title=f"Where {run.directory.name} looked",
        sentences=tuple(sentence for sentence, _ in found),
        note=next((said for _, said in found if said), ""),
    )


@torch.inference_mode()
def _sentence(run: Run, given: Sequence[str], number: int, wanted: Wanted) -> tuple[Sentence, str]:
    reader, tokenizer, text = run.encoder, run.encoder.tokenizer, given[number]
    texts = text.split(BETWEEN, 1)
    ids = [_encode(run, part) for part in texts]
    row = _row(run, text)
    size = len(row.ids)
    names = wanted.fitting(run.model, lambda name: size**2)
    kept = parts(run.model, names, size, wanted)
    with watch(run.model, names, heads=wanted.heads, parts=kept) as trace:
        hidden = run.model(reader.texts([row]))
    spans = [_spans(run, part, own) for part, own in zip(texts, ids, strict=True)]
    second = len(texts[0] + BETWEEN)  # where the second text begins in the text as it was given
    sources = [iter(spans[0]), iter([(start + second, stop + second) for start, stop in spans[-1]])]
    places = [next(sources[source]) if source >= 0 else (0, 0) for source in row.sources]
    answers, changed = (), ()
    if wanted.edits:
        model: Any = run.model
        read = reader.texts([row])
        answers, judge = answered(
            model.config.labels, lambda: model.logits(read)[0].float().log_softmax(-1).cpu(), CLASSES
        )
        changed = edited(run.model, wanted, judge, other=_alike(run, given, number), total=first_answer)
    return Sentence(
        source=Side.of(text, tokenizer.pieces(row.ids), places),
        attentions=maps(run.model, trace, wanted),
        scores=_scores(run, texts),
        decoding=decoding(hidden[0], trace, names),
        answers=answers,
        edited=changed,
    ), note(run.model, names, wanted)


def _row(run: Run, text: str) -> EncoderInput:
    row = run.encoder.framer.ids(*(_encode(run, part) for part in text.split(BETWEEN, 1)), overlong="refuse")
    assert row is not None
    return row


def _alike(run: Run, texts: Sequence[str], number: int) -> tuple[int, Texts] | None:
    """The first other text with as many tokens as this one."""
    rows = [_row(run, text) for text in texts]
    for other, row in enumerate(rows):
        if other != number and len(row.ids) == len(rows[number].ids):
            return other, run.encoder.texts([row])
    return None


def _encode(run: Run, text: str) -> list[int]:
    tokenizer = run.encoder.tokenizer
    return tokenizer.encode(text) if tokenizer.mask is None else tokenizer.encode_masked(text)


def _spans(run: Run, text: str, ids: list[int]) -> list[tuple[int, int]]:
    """The characters that each piece covers; with hidden words, found by looking for the pieces one after another."""
    tokenizer = run.encoder.tokenizer
    if tokenizer.mask not in ids:
        return tokenizer.offsets(text)
    spans, end, lower = [], 0, text.lower()
    for token, piece in zip(ids, tokenizer.pieces(ids), strict=True):
        names = ("[mask]", "<mask>") if token == tokenizer.mask else (piece.strip().removeprefix("##").lower(),)
        found = [(place, place + len(name)) for name in names if (place := lower.find(name, end)) >= 0]
        span = min(found, default=(end, end))
        spans.append(span)
        end = span[1]
    return spans


def _scores(run: Run, parts: list[str]) -> dict[str, str]:
    """What the model's head says of the text."""
    head = run.model.config.head
    if head == "classes":
        best = run.classify([parts[0] if len(parts) == 1 else tuple(parts)])[0]
        return {choice.label: f"{choice.probability:.3f}" for choice in best[:CLASSES]}
    mask = run.encoder.tokenizer.mask
    if head in ("pretraining", "words") and any(mask in _encode(run, part) for part in parts):
        found = fill(run.encoder, *parts, top=WORDS)
        return {
            f"hidden word {number}": ", ".join(f"{one.token} {one.probability:.2f}" for one in words)
            for number, words in enumerate(found, 1)
        }
    return {}
