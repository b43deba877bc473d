"""What encoders looked at in texts, pairs and images, and what their heads say about them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from regard.config import Setting
from regard.errors import ConfigError, DataError
from regard.look.document import AttentionMap, Document, PatchedImage, Sentence, Side
from regard.look.measures import rollout
from regard.look.packed_arrays import png_address
from regard.look.recurrence import text_features
from regard.look.watch import attentions, seen_recurrences, watch
from regard.nn.batch import Texts
from regard.tasks.classification import ranked
from regard.tasks.encoder import fill
from regard.tasks.images import ImageClassifier
from regard.tasks.looking.look_options import LookOptions, attention_maps, left_out_note, looking, watched_parts
from regard.tasks.looking.steps import decoding, edited_classes, looked, same_length, spans_in_order
from regard.tasks.run import Run
from regard.text.encoder_inputs import EncoderInput

BETWEEN = " ||| "
"""Stands between the two texts of a pair."""
CLASSES, WORDS = 3, 5
WHOLE = "[CLS]"
IMAGE_CLASSES = 5


def encoder_document(run: Run, texts: Sequence[str], options: LookOptions, **decode: Setting) -> Document:
    """Every text, or pair written `first ||| second`, looking at itself. Nothing is decoded."""
    if options.edits and run.encoder.model.config.head != "classes":
        raise ConfigError(f"a run for {run.config.task} gives no class of a text that changing a head could change")
    return looked(run, [_text(run, texts, number, options) for number in range(len(texts))])


@torch.inference_mode()
def _text(run: Run, given: Sequence[str], number: int, options: LookOptions) -> tuple[Sentence, str]:
    reader, tokenizer, text = run.encoder, run.encoder.tokenizer, given[number]
    texts = text.split(BETWEEN, 1)
    ids = [_encode(run, part) for part in texts]
    row = _row(run, text)
    size = len(row.ids)
    names = options.fitting(run.model, lambda name: size**2)
    with looking(run.model, names, size, options) as trace:
        hidden = run.model(reader.texts([row]))
    spans = [_spans(run, part, own) for part, own in zip(texts, ids, strict=True)]
    second = len(texts[0] + BETWEEN)  # where the second text begins in the text as it was given
    sources = [iter(spans[0]), iter([(start + second, stop + second) for start, stop in spans[-1]])]
    places = [next(sources[source]) if source >= 0 else (0, 0) for source in row.sources]
    answers, changed = (), ()
    if options.edits:
        other = _alike(run, given, number)
        answers, changed = edited_classes(
            run.model, reader.model.config.labels, reader.texts([row]), CLASSES, options, other
        )
    return Sentence(
        source=Side.of(text, tokenizer.pieces(row.ids), places, specials=True),
        attentions=attention_maps(run.model, trace, options),
        scores=_text_scores(run, texts),
        decoding=decoding(hidden[0], trace, names),
        recurrences=seen_recurrences(trace),
        features=text_features(text, places, "source", options.features) if trace.cells else (),
        answers=answers,
        edited=changed,
    ), left_out_note(run.model, names, options, size)


def _row(run: Run, text: str) -> EncoderInput:
    row = run.encoder.framer.ids(*(_encode(run, part) for part in text.split(BETWEEN, 1)), overlong="refuse")
    assert row is not None
    return row


def _alike(run: Run, texts: Sequence[str], number: int) -> tuple[int, Texts] | None:
    """The first other text with as many tokens as this one."""
    rows = [_row(run, text) for text in texts]
    other = same_length([row.ids for row in rows], number)
    return None if other is None else (other, run.encoder.texts([rows[other]]))


def _encode(run: Run, text: str) -> list[int]:
    tokenizer = run.encoder.tokenizer
    return tokenizer.encode(text) if tokenizer.mask is None else tokenizer.encode_masked(text)


def _spans(run: Run, text: str, ids: list[int]) -> list[tuple[int, int]]:
    """The characters that each piece covers; with masked words, found by looking for the pieces one after another."""
    tokenizer = run.encoder.tokenizer
    if tokenizer.mask not in ids:
        return tokenizer.offsets(text)
    names = [
        ("[mask]", "<mask>") if token == tokenizer.mask else (piece.strip().removeprefix("##").lower(),)
        for token, piece in zip(ids, tokenizer.pieces(ids), strict=True)
    ]
    return spans_in_order(text.lower(), names)


def _text_scores(run: Run, parts: list[str]) -> dict[str, str]:
    """What the model's head says about the text."""
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


def image_document(run: Run, texts: Sequence[str], options: LookOptions, **decode: Setting) -> Document:
    """Each image with the classes the model takes it for. `texts` are paths of images, folders or arrays."""
    if options.targets:
        raise ConfigError("targets are for texts; an image has none")
    if not attentions(run.model):
        raise ConfigError(
            f"a {run.config.model['name']} model has no attention to look at; `regard classify` names the classes"
        )
    classifier = ImageClassifier(run.model, run.config)
    given = classifier.arguments(texts)
    if not given:
        raise DataError("nothing to look at: no image was given")
    room = classifier.patches**2 * len(given)  # of one head, in all images
    names = options.fitting(run.model, lambda name: room)
    if options.edits and not classifier.labels:
        raise ConfigError("this model has no classes, so there is no answer that a head could change")
    shown = [_image(run, classifier, given, number, names, options) for number in range(len(given))]
    return Document(
        title=f"Where {run.directory.name} looked",
        sentences=tuple(shown),
        note=left_out_note(run.model, names, options),
    )


@torch.inference_mode()
def _image(
    run: Run, classifier: ImageClassifier, given: Sequence[Any], number: int, names: list[str], options: LookOptions
) -> Sentence:
    item, device = given[number], next(run.model.parameters()).device
    seen = classifier.pixels([item])[0]
    images = classifier.images([seen]).to(device)
    kept = watched_parts(run.model, names, images.patches, options)
    with watch(run.model, names, heads=options.heads, parts=kept) as trace:
        scores = _image_scores(classifier, run.model(images), item.name)
    with watch(run.model) as every_head:  # a rollout needs them all, whatever is shown
        run.model(images)
    layers = [every_head.weights(name) for name in attentions(run.model)]
    rolled = torch.cat([rollout(layers[: count + 1]) for count in range(len(layers))])
    side = seen.shape[0] // run.config.model_config().patch_size
    places = [f"{row},{column}" for row in range(1, side + 1) for column in range(1, side + 1)]
    answers, changed = (), ()
    if options.edits:
        other = 1 if number == 0 else 0  # all images are of one size
        swap = (other, classifier.images(classifier.pixels([given[other]])).to(device)) if len(given) > 1 else None
        answers, changed = edited_classes(run.model, classifier.labels, images, IMAGE_CLASSES, options, swap)
    return Sentence(
        source=Side(text=item.name, pieces=(WHOLE, *places)),
        attentions=attention_maps(run.model, trace, options),
        rollout=AttentionMap(name="rollout", kind="self", rows="source", columns="source", weights=rolled.cpu()),
        picture=PatchedImage(
            image=png_address(seen), width=seen.shape[1], height=seen.shape[0], rows=side, columns=side
        ),
        scores=scores,
        answers=answers,
        edited=changed,
    )


def _image_scores(classifier: ImageClassifier, vectors: torch.Tensor, name: str) -> dict[str, str]:
    """The likeliest classes and, where the image's folder is called as one, the right one."""
    head: Any = classifier.model.head
    if head is None:
        return {}
    best = ranked(classifier.labels, head(vectors)[0].float().softmax(-1).tolist())[:IMAGE_CLASSES]
    truth = Path(name).parent.name
    known = {"truth": truth} if truth in classifier.labels else {}
    # The page would put names that are numbers in the order of the numbers.
    names = [f"class {choice.label}" if choice.label.isdigit() else choice.label for choice in best]
    shares = (f"{100 * choice.probability:.1f} %" for choice in best)
    return {**dict(zip(names, shares, strict=True)), **known}
