"""What an encoder looked at in texts or pairs, and what its head says of them."""

from collections.abc import Sequence
from typing import Any

import torch

from regard.look.document import Document, Sentence, Side, SideName
from regard.look.watch import watch
from regard.runs.filling import fill
from regard.runs.looking.steps import decoding
from regard.runs.looking.wanted import Wanted, maps, note, parts
from regard.runs.run import Run

BETWEEN = " ||| "
"""Stands between the two texts of a pair."""
CLASSES, WORDS = 3, 5


def encoder(run: Run, texts: Sequence[str], wanted: Wanted, **decode: Any) -> Document:
    """Every text, or pair written `first ||| second`, looking at itself. Nothing is decoded."""
    found = [_sentence(run, text, wanted) for text in texts]
    return Document(
        title=f"Where {run.directory.name} looked",
        sentences=tuple(sentence for sentence, _ in found),
        note=next((said for _, said in found if said), ""),
    )


def _within(name: str) -> tuple[SideName, SideName]:
    return "source", "source"


@torch.inference_mode()
def _sentence(run: Run, text: str, wanted: Wanted) -> tuple[Sentence, str]:
    reader, tokenizer = run.encoder, run.encoder.tokenizer
    texts = text.split(BETWEEN, 1)
    ids = [_encode(run, part) for part in texts]
    row = reader.framer.ids(*ids, overlong="refuse")
    assert row is not None
    size = len(row.ids)
    names = wanted.fitting(run.model, lambda name: size**2)
    kept = parts(run.model, names, size, wanted)
    with watch(run.model, names, heads=wanted.heads, parts=kept) as trace:  # type: ignore[arg-type]
        hidden = run.model(reader.texts([row]))
    spans = [_spans(run, part, own) for part, own in zip(texts, ids, strict=True)]
    second = len(texts[0] + BETWEEN)  # where the second text begins in the text as it was given
    sources = [iter(spans[0]), iter([(start + second, stop + second) for start, stop in spans[-1]])]
    places = [next(sources[source]) if source >= 0 else (0, 0) for source in row.sources]
    return Sentence(
        source=Side.of(text, tokenizer.pieces(row.ids), places),
        attentions=maps(run.model, trace, _within, wanted),
        scores=_scores(run, texts),
        decoding=decoding(hidden[0], trace, names),
    ), note(run.model, names, wanted)


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
    head = run.model.config.head  # type: ignore[union-attr]
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
