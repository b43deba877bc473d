"""What a captioner looked at in an image when it wrote each word."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from regard.config import Setting
from regard.look.document import Document, PatchedImage, Sentence, Side
from regard.look.packed_arrays import png_address
from regard.tasks.looking.look_options import LookOptions
from regard.tasks.looking.steps import looked
from regard.tasks.looking.written_runs import given_targets, written_sentence
from regard.tasks.run import Run
from regard.tasks.verbs.caption import WrittenCaption

WHOLE = "[CLS]"


def caption_document(run: Run, images: Sequence[Any], options: LookOptions, **decode: Setting) -> Document:
    """Each image with its caption, written or given. Attention is read by teacher forcing, which sees the same."""
    captioner = run.captioner
    read = captioner.read(captioner.reader.arguments(images) if _are_paths(images) else list(images))
    targets = given_targets(options, len(read), "image")
    config = run.decode_config(**decode)
    written = captioner.caption([pixels for _, pixels in read], config)
    found = [
        (name, pixels, best[0] if target is None else captioner.given(target))
        for (name, pixels), best, target in zip(read, written, targets, strict=True)
    ]

    def again(pixels: np.ndarray) -> str:
        return captioner.caption([pixels], config)[0][0].text

    return looked(run, [_image(run, found, number, options, again) for number in range(len(found))])


def _are_paths(images: Sequence[Any]) -> bool:
    return all(isinstance(one, str) for one in images)


def _image(
    run: Run, found: Sequence[tuple[str, np.ndarray, WrittenCaption]], number: int, options: LookOptions, again: Any
) -> tuple[Sentence, str]:
    name, pixels, best = found[number]
    captioner, model = run.captioner, run.config.model_config()
    other = None
    if options.edits and len(found) > 1:  # all images are of one size
        place = 1 if number == 0 else 0
        first, last = captioner.ends
        other = place, captioner.batch([found[place][1]], [[first, *found[place][2].tokens, last]])
    places = [f"{row},{column}" for row in range(1, model.grid + 1) for column in range(1, model.grid + 1)]
    source, what = Side(text=name, pieces=(*[WHOLE] * model.first, *places)), f"the caption of {name}"
    sentence, left_out = written_sentence(
        run, captioner, pixels, best, source, options, lambda: again(pixels), what=what, other=other
    )
    picture = PatchedImage(
        **{"image": png_address(pixels), "width": pixels.shape[1], "height": pixels.shape[0]},
        **{"rows": model.grid, "columns": model.grid, "first": model.first},
    )
    return replace(sentence, picture=picture), left_out
