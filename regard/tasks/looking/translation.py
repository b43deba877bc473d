"""What a translation run looked at: its own translation of a text, or one that is given."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from regard.data.synthetic.world import LECTURE, spans
from regard.decode.config import DecodeConfig
from regard.errors import DataError
from regard.look.decoding import Branch
from regard.look.document import Document, Sentence, Side
from regard.look.watch import attentions, watch
from regard.nn.attention import ACROSS, WITHIN
from regard.nn.batch import Pairs, Tokens
from regard.tasks.looking.beams import tree
from regard.tasks.looking.pieces import END, START, candidates, readable
from regard.tasks.looking.steps import Judged, decoding, edited
from regard.tasks.looking.wanted import Wanted, maps, note, parts
from regard.tasks.run import Run
from regard.tasks.translator import Translation, encode_pair

Tree = tuple[tuple[Branch, ...], ...]


def translation(run: Run, texts: Sequence[str], wanted: Wanted, **decode: Any) -> Document:
    """Attention is read with the translation given, which is what decoding it saw."""
    config = _searching(run.decode_config(**decode))
    targets = [None] * len(texts) if wanted.targets is None else _one_each(texts, wanted.targets)
    found: list[tuple[str, Translation, Tree]] = []
    for number, (text, target) in enumerate(zip(texts, targets, strict=True), 1):
        if target is not None:
            found.append((text, _given(run, text, target), ()))
            continue
        best, steps = run.translator.searched(text, config, number)
        read = run.translator.reading(text).target
        found.append((text, run.translator.text(best, read), tree(steps, best, read)))
    shown = [
        _sentence(run, text, best, beam, wanted, config, _alike(run, found, number) if wanted.edits else None)
        for number, (text, best, beam) in enumerate(found)
    ]
    return Document(
        title=f"Where {run.directory.name} looked",
        sentences=tuple(sentence for sentence, _ in shown),
        note=next((said for _, said in shown if said), ""),
    )


def _alike(run: Run, found: Sequence[tuple[str, Translation, Tree]], number: int) -> tuple[int, Pairs] | None:
    """The first other sentence with as many source tokens as this one: heads of the encoder can be swapped with it."""
    sources = [encode_pair(run, text, "")[0] for text, _, _ in found]
    for other, (_, best, _) in enumerate(found):
        if other != number and len(sources[other]) == len(sources[number]):
            tokenizer = run.vocabularies.target
            target = [tokenizer.bos, *best.tokens, tokenizer.eos]
            return other, Pairs(Tokens.of([sources[other]]), Tokens.of([target])).to(run.translator.device)
    return None


def _searching(config: DecodeConfig) -> DecodeConfig:
    """The same, but by beam search where it would draw: what is drawn has no tree."""
    return replace(config, temperature=None, top_k=None, top_p=None, samples=1)


def _one_each(texts: Sequence[str], targets: Sequence[str]) -> Sequence[str]:
    if len(targets) != len(texts):
        raise DataError(f"{len(targets)} targets for {len(texts)} sentences; give one each")
    return targets


def _given(run: Run, source: str, target: str) -> Translation:
    tokenizer = run.translator.reading(source).target
    tokens = tokenizer.encode(target)
    pieces = tokenizer.pieces(tokens)
    return Translation(text=target, score=0.0, log_prob=0.0, tokens=tuple(tokens), pieces=tuple(pieces))


@torch.inference_mode()
def _sentence(
    run: Run,
    source: str,
    best: Translation,
    beam: Tree,
    wanted: Wanted,
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

    names = wanted.fitting(run.model, weights)
    batch = Pairs(Tokens.of([rows[0]]), Tokens.of([rows[1]])).to(run.translator.device)
    kept = parts(run.model, names, max(sizes.values()), wanted)
    with watch(run.model, names, heads=wanted.heads, parts=kept) as trace:
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
        attentions=maps(run.model, trace, wanted),
        alignment=None if (gold := _gold(source, target)) is None else gold.alignment,
        candidates=candidates(tokenizers.target, log_probs.exp(), rows[1][1:]),
        scores=shown if wanted.targets is not None else {"score": f"{best.score:.3f}", **shown},
        decoding=decoding(hidden[0], trace, crossing, beam, head=run.model.head, pieces=rows[1][1:]),
        edited=edited(run.model, wanted, judge, other=other, swaps=whole) if wanted.edits else (),
    ), note(run.model, names, wanted)


def _log_probs(run: Run, hidden: Tensor) -> Tensor:
    return run.model.head(hidden).log_softmax(-1)[0].float().cpu()


def _gold(source: str, target: str):
    """What is known of a sentence of the lectures."""
    return next((one for one in LECTURE if (one.english, one.french) == (source, target)), None)


def _sides(run: Run, source: str, best: Translation, rows: tuple[list[int], list[int]]) -> dict[str, Any]:
    tokenizers, gold = run.translator.reading(source), _gold(source, best.text)
    source_spans = None if gold is None else spans(source, gold.english_words)
    target_spans = None if gold is None else spans(best.text, gold.french_words)
    source_places = [(0, 0)] * len(tokenizers.source.opening) + tokenizers.source.offsets(source)
    target_places = _places(run, best)
    read, pieces = readable(tokenizers.source.pieces(rows[0][:-1])), readable(tokenizers.target.pieces(rows[1][1:-1]))
    nowhere = (0, 0)
    return {
        "source": Side.of(source, [*read, END], [*source_places, nowhere], source_spans),
        "target": Side.of(best.text, [*pieces, END], [*target_places, nowhere], target_spans),
        "prefix": Side.of(best.text, [START, *pieces], [nowhere, *target_places], target_spans),
    }


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
