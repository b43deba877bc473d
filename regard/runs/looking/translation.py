"""What a translation run looked at: its own translation of a text, or one that is given."""

from collections.abc import Sequence
from typing import Any

import torch

from regard.data.world import LECTURE, spans
from regard.errors import DataError
from regard.look.document import Document, Sentence, Side, SideName
from regard.look.watch import watch
from regard.nn.batch import Pairs, Tokens
from regard.runs.evaluation import encode_pair
from regard.runs.looking.pieces import END, START, candidates, readable
from regard.runs.looking.wanted import Wanted, maps, note, parts
from regard.runs.run import Run
from regard.runs.translator import Translation


def translation(run: Run, texts: Sequence[str], wanted: Wanted, **decode: Any) -> Document:
    """Attention is read with the translation given, which is what decoding it saw."""
    found = [best[0] for best in run.translations(texts, overlong="refuse", **decode)]
    if wanted.targets is not None:
        found = [_given(run, target) for target in _one_each(texts, wanted.targets)]
    sentences, notes = [], []
    for text, best in zip(texts, found, strict=True):
        sentence, said = _sentence(run, text, best, wanted)
        sentences.append(sentence)
        notes.append(said)
    return Document(
        title=f"Where {run.directory.name} looked",
        sentences=tuple(sentences),
        note=next((one for one in notes if one), ""),
    )


def _one_each(texts: Sequence[str], targets: Sequence[str]) -> Sequence[str]:
    if len(targets) != len(texts):
        raise DataError(f"{len(targets)} targets for {len(texts)} sentences; give one each")
    return targets


def _given(run: Run, target: str) -> Translation:
    tokens = run.vocabularies.target.encode(target)
    pieces = run.vocabularies.target.pieces(tokens)
    return Translation(text=target, score=0.0, log_prob=0.0, tokens=tuple(tokens), pieces=tuple(pieces))


def sides(name: str) -> tuple[SideName, SideName]:
    """Who looks at what: an encoder's attention within the source, a decoder's within the target or at the source."""
    if name.startswith("encoder"):
        return "source", "source"
    return "target", "source" if "cross" in name else "prefix"


@torch.inference_mode()
def _sentence(run: Run, source: str, best: Translation, wanted: Wanted) -> tuple[Sentence, str]:
    tokenizers, target = run.vocabularies, best.text
    # The very tokens that were decoded: the tokenizer might cut their text in another way.
    rows = (encode_pair(run, source, "")[0], [tokenizers.target.bos, *best.tokens, tokenizers.target.eos])
    if max(map(len, rows)) > run.translator.max_len:
        raise DataError(f"the translation of '{source[:40]}' is longer than the model reads, so it cannot be shown")
    sizes = {"source": len(rows[0]), "target": len(rows[1]) - 1, "prefix": len(rows[1]) - 1}

    def weights(name: str) -> int:
        looks, seen = sides(name)
        return sizes[looks] * sizes[seen]

    names = wanted.fitting(run.model, weights)
    device = next(run.model.parameters()).device
    batch = Pairs(Tokens.of([rows[0]]), Tokens.of([rows[1]])).to(device)
    kept = parts(run.model, names, max(sizes.values()), wanted)
    with watch(run.model, names, heads=wanted.heads, parts=kept) as trace:  # type: ignore[arg-type]
        log_probs = run.model.logits(batch).log_softmax(-1)[0].cpu()  # type: ignore[operator]
    gold = next((one for one in LECTURE if (one.english, one.french) == (source, target)), None)
    source_spans = None if gold is None else spans(source, gold.english_words)
    target_spans = None if gold is None else spans(target, gold.french_words)
    source_places, target_places = tokenizers.source.offsets(source), _places(run, best)
    read, pieces = readable(tokenizers.source.pieces(rows[0][:-1])), readable(tokenizers.target.pieces(rows[1][1:-1]))
    nowhere = (0, 0)
    total = float(log_probs.gather(1, torch.tensor(rows[1][1:])[:, None]).sum())
    shown = {"log-probability": f"{total:.3f}"}
    return Sentence(
        source=Side.of(source, [*read, END], [*source_places, nowhere], source_spans),
        target=Side.of(target, [*pieces, END], [*target_places, nowhere], target_spans),
        prefix=Side.of(target, [START, *pieces], [nowhere, *target_places], target_spans),
        attentions=maps(run.model, trace, sides, wanted),
        alignment=None if gold is None else gold.alignment,
        candidates=candidates(tokenizers.target, log_probs.exp()),
        scores=shown if wanted.targets is not None else {"score": f"{best.score:.3f}", **shown},
    ), note(run.model, names, wanted)


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
