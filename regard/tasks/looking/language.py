"""What a language model looked at while it read a text, and what it expected after each piece."""

from collections.abc import Sequence
from typing import Any

import torch

from regard.errors import DataError
from regard.look.document import Document, Sentence, Side
from regard.look.watch import watch
from regard.nn.batch import Pairs, Tokens
from regard.tasks.looking.pieces import candidates, named
from regard.tasks.looking.steps import Judged, decoding, edited
from regard.tasks.looking.wanted import Wanted, maps, note, parts
from regard.tasks.run import Run


def language(run: Run, texts: Sequence[str], wanted: Wanted, **decode: Any) -> Document:
    """Each text as the model reads it. Nothing is decoded, so settings of decoding change nothing."""
    found = [_sentence(run, texts, number, wanted) for number in range(len(texts))]
    return Document(
        title=f"Where {run.directory.name} looked",
        sentences=tuple(sentence for sentence, _ in found),
        note=next((said for _, said in found if said), ""),
    )


def _alike(run: Run, texts: Sequence[str], number: int) -> tuple[int, Pairs] | None:
    """The first other text with as many tokens as this one."""
    rows = [run.generator.prompt_ids(text) for text in texts]
    for other, row in enumerate(rows):
        if other != number and len(row) == len(rows[number]):
            # What is read is all but the last token of a target.
            batch = Pairs(Tokens.of([row]), Tokens.of([[*row, row[-1]]]))
            return other, batch.to(next(run.model.parameters()).device)
    return None


@torch.inference_mode()
def _sentence(run: Run, texts: Sequence[str], number: int, wanted: Wanted) -> tuple[Sentence, str]:
    text, tokenizer = texts[number], run.generator.tokenizer
    ids = run.generator.prompt_ids(text)
    if len(ids) > run.generator.length:
        raise DataError(f"text {number + 1} has {len(ids)} tokens; the model reads at most {run.generator.length}")
    names = wanted.fitting(run.model, lambda name: len(ids) ** 2)
    device = next(run.model.parameters()).device
    kept = parts(run.model, names, len(ids), wanted)
    with watch(run.model, names, heads=wanted.heads, parts=kept) as trace:
        vectors = run.model.read(Tokens.of([ids]).to(device))
    log_probs = run.model.head(vectors).log_softmax(-1)[0].float().cpu()
    opening = len(ids) - len(tokenizer.offsets(text))
    places = [(0, 0)] * opening + list(tokenizer.offsets(text))
    following = torch.tensor(ids[1:], dtype=torch.long)[:, None]

    def judge() -> Judged:
        vectors = run.model.read(Tokens.of([ids]).to(device))
        found = run.model.head(vectors).log_softmax(-1)[0].float().cpu()
        # Nothing follows the last piece: its own place is certain.
        return torch.cat((found[:-1].gather(1, following)[:, 0], torch.zeros(1))), None

    loss = -log_probs[:-1].gather(1, following).mean() if len(ids) > 1 else torch.tensor(0.0)
    return Sentence(
        source=Side.of(text, named(tokenizer, ids), places),
        attentions=maps(run.model, trace, wanted),
        candidates=candidates(tokenizer, log_probs.exp(), [*ids[1:], None]),
        scores={"perplexity": f"{float(loss.exp()):.2f}"},
        decoding=decoding(vectors[0], trace, names, head=run.model.head, pieces=[*ids[1:], None]),
        edited=edited(run.model, wanted, judge, other=_alike(run, texts, number)) if wanted.edits else (),
    ), note(run.model, names, wanted)
