"""A run's attention on given sentences, as the viewer's document."""

from collections.abc import Sequence
from typing import Any

import torch

from regard.data.world import LECTURE, spans
from regard.errors import DataError
from regard.look.page import AttentionMap, Candidate, Document, Sentence, Side, render
from regard.look.watch import Trace, watch
from regard.nn.batch import Pairs, Tokens
from regard.runs.evaluation import encode_pair
from regard.runs.run import Run
from regard.runs.translator import Translation
from regard.text.pipelines import JOINER

END = "⟨end⟩"
START = "⟨start⟩"
CANDIDATES = 5


def page(run: Run, texts: Sequence[str], **decode: Any) -> str:
    """A self-contained page with the translation of each text and every attention on the way."""
    return render(document(run, texts, **decode))


def document(run: Run, texts: Sequence[str], **decode: Any) -> Document:
    """What the page shows. Attention is read with the translation given, which is what decoding it saw."""
    found = [best[0] for best in run.translations(texts, overlong="refuse", **decode)]
    return Document(
        title=f"Where {run.directory.name} looked",
        sentences=tuple(_sentence(run, text, best) for text, best in zip(texts, found, strict=True)),
    )


@torch.inference_mode()
def _sentence(run: Run, source: str, best: Translation) -> Sentence:
    tokenizers, target = run.vocabularies, best.text
    # The very tokens that were decoded: the tokenizer might cut their text in another way.
    rows = (encode_pair(run, source, "")[0], [tokenizers.target.bos, *best.tokens, tokenizers.target.eos])
    if max(map(len, rows)) > run.translator.max_len:
        raise DataError(f"the translation of '{source[:40]}' is longer than the model reads, so it cannot be shown")
    device = next(run.model.parameters()).device
    batch = Pairs(Tokens.of([rows[0]]), Tokens.of([rows[1]])).to(device)
    with watch(run.model) as trace:
        probabilities = run.model.logits(batch).softmax(-1)[0].cpu()  # type: ignore[operator]
    gold = next((one for one in LECTURE if (one.english, one.french) == (source, target)), None)
    source_spans = None if gold is None else spans(source, gold.english_words)
    target_spans = None if gold is None else spans(target, gold.french_words)
    source_places, target_places = tokenizers.source.offsets(source), _places(run, best)
    read, pieces = readable(tokenizers.source.pieces(rows[0][:-1])), readable(tokenizers.target.pieces(rows[1][1:-1]))
    nowhere = (0, 0)
    return Sentence(
        source=Side.of(source, [*read, END], [*source_places, nowhere], source_spans),
        target=Side.of(target, [*pieces, END], [*target_places, nowhere], target_spans),
        prefix=Side.of(target, [START, *pieces], [nowhere, *target_places], target_spans),
        attentions=tuple(_maps(trace)),
        alignment=None if gold is None else gold.alignment,
        candidates=_candidates(run, probabilities),
        scores={"score": f"{best.score:.3f}"},
    )


def _places(run: Run, best: Translation) -> list[tuple[int, int]]:
    """The characters of the translation that each of its pieces covers."""
    tokenizer = run.vocabularies.target
    if tokenizer.encode(best.text) == list(best.tokens):
        return tokenizer.offsets(best.text)
    places, end = [], 0
    for piece in readable(list(best.pieces)):
        start = best.text.find(piece.strip(), end)
        start, end = (end, end) if start < 0 else (start, start + len(piece.strip()))
        places.append((start, end))
    return places


def _maps(trace: Trace):
    for name in trace.names:
        cross, encoder = "cross" in name, name.startswith("encoder")
        columns = "source" if cross or encoder else "prefix"
        rows = "source" if encoder else "target"
        yield AttentionMap(
            name=name,
            kind="cross" if cross else "self",
            rows=rows,
            columns=columns,
            weights=trace.weights(name)[0].cpu(),
        )


def _candidates(run: Run, probabilities: torch.Tensor) -> tuple[tuple[Candidate, ...], ...]:
    target = run.vocabularies.target
    values, ids = probabilities.topk(min(CANDIDATES, probabilities.shape[-1]))
    shown = []
    for row, chances in zip(ids.tolist(), values.tolist(), strict=True):
        names = [END if token == target.eos else readable(target.pieces([token]))[0] for token in row]
        shown.append(tuple(Candidate(piece=name, probability=p) for name, p in zip(names, chances, strict=True)))
    return tuple(shown)


def readable(pieces: list[str]) -> list[str]:
    """The pieces as a reader wants them: the word tokenizer's marks say only where no space goes."""
    return [piece.replace(JOINER, "") for piece in pieces]
