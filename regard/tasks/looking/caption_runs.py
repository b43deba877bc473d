"""What a captioner looked at in an image when it wrote each word."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from regard.config import Setting
from regard.errors import DataError
from regard.look.document import Document, PatchedImage, Sentence, Side
from regard.look.packed_arrays import png_address
from regard.look.watch import attentions, watch
from regard.nn.attention import ACROSS, WITHIN
from regard.tasks.cross_attention import piece_spans
from regard.tasks.looking.look_options import LookOptions, attention_maps, left_out_note, watched_parts
from regard.tasks.looking.steps import END, START, Judged, candidates, decoding, edited, looked, readable
from regard.tasks.run import Run
from regard.tasks.verbs.caption import WrittenCaption

WHOLE = "[CLS]"


def caption_document(run: Run, images: Sequence[Any], options: LookOptions, **decode: Setting) -> Document:
    """Each image with its caption, written or given. Attention is read by teacher forcing, which sees the same."""
    captioner = run.captioner
    read = captioner.read(captioner.reader.arguments(images) if _are_paths(images) else list(images))
    if not read:
        raise DataError("nothing to look at: no image was given")
    targets = [None] * len(read) if options.targets is None else options.targets
    if len(targets) != len(read):
        raise DataError(f"{len(targets)} targets for {len(read)} images; give one each")
    config = run.decode_config(**decode)
    written = captioner.caption([pixels for _, pixels in read], config)
    found = [
        (name, pixels, best[0] if target is None else _given(run, target))
        for (name, pixels), best, target in zip(read, written, targets, strict=True)
    ]

    def again(pixels: np.ndarray) -> str:
        return captioner.caption([pixels], config)[0][0].text

    return looked(run, [_image(run, found, number, options, again) for number in range(len(found))])


def _are_paths(images: Sequence[Any]) -> bool:
    return all(isinstance(one, str) for one in images)


def _given(run: Run, text: str) -> WrittenCaption:
    tokenizer = run.vocabularies.target
    tokens = tokenizer.encode(text)
    pieces = tokenizer.pieces(tokens)
    return WrittenCaption(text=text, score=0.0, log_prob=0.0, tokens=tuple(tokens), pieces=tuple(pieces))


@torch.inference_mode()
def _image(
    run: Run, found: Sequence[tuple[str, np.ndarray, WrittenCaption]], number: int, options: LookOptions, again: Any
) -> tuple[Sentence, str]:
    name, pixels, best = found[number]
    captioner, model, target = run.captioner, run.config.model_config(), run.vocabularies.target
    row = [target.bos, *best.tokens, *([target.eos] if best.finished else [])]
    if len(row) - 1 > captioner.max_len:
        raise DataError(f"the caption of {name} is longer than the model reads, so it cannot be shown")
    known = attentions(run.model)
    sizes = {"source": captioner.places, "target": len(row) - 1, "prefix": len(row) - 1}
    names = options.fitting(run.model, lambda one: sizes[known[one].sides.queries] * sizes[known[one].sides.keys])
    batch = captioner.batch([pixels], [row])
    kept = watched_parts(run.model, names, max(sizes.values()), options)
    with watch(run.model, names, heads=options.heads, parts=kept) as trace:
        hidden = run.model(batch)
    log_probs = run.model.head(hidden).log_softmax(-1)[0].float().cpu()
    old = torch.tensor(row[1:])[:, None]

    def judge() -> Judged:
        return run.model.logits(batch).log_softmax(-1)[0].float().cpu().gather(1, old)[:, 0], again(pixels)

    other = None
    if options.edits and len(found) > 1:  # all images are of one size
        place = 1 if number == 0 else 0
        tokens = [target.bos, *found[place][2].tokens, target.eos]
        other = place, captioner.batch([found[place][1]], [tokens])
    shown = {"log-probability": f"{float(log_probs.gather(1, old).sum()):.3f}"}
    if not best.finished:
        shown["cut"] = "at its greatest length"
    crossing = [one for one in names if known[one].sides == ACROSS]
    return Sentence(
        **_sides(run, name, best),
        attentions=attention_maps(run.model, trace, options),
        picture=PatchedImage(
            **{"image": png_address(pixels), "width": pixels.shape[1], "height": pixels.shape[0]},
            **{"rows": model.grid, "columns": model.grid, "first": model.first},
        ),
        candidates=candidates(target, log_probs.exp(), row[1:]),
        scores=shown if options.targets is not None else {"score": f"{best.score:.3f}", **shown},
        decoding=decoding(hidden[0], trace, crossing),
        edited=edited(run.model, options, judge, other=other, swaps=lambda one: known[one].sides == WITHIN)
        if options.edits
        else (),
    ), left_out_note(run.model, names, options)


def _sides(run: Run, name: str, best: WrittenCaption) -> dict[str, Any]:
    model, target, nowhere = run.config.model_config(), run.vocabularies.target, (0, 0)
    places = [f"{row},{column}" for row in range(1, model.grid + 1) for column in range(1, model.grid + 1)]
    pieces, spans = readable(target.pieces(best.tokens)), piece_spans(target, best.text, best.tokens)
    ends, steps = [END] * best.finished, len(pieces) + best.finished
    return {
        "source": Side(text=name, pieces=(*[WHOLE] * model.first, *places)),
        "target": Side.of(best.text, [*pieces, *ends], [*spans, nowhere][:steps]),
        "prefix": Side.of(best.text, [START, *pieces][:steps], [nowhere, *spans][:steps]),
    }
