"""What a model of pictures looked at: patches looking at patches, and at [CLS]."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from regard.errors import ConfigError, DataError
from regard.look.document import AttentionMap, Document, PatchedImage, Sentence, Side
from regard.look.measures import rollout
from regard.look.packed_arrays import png_address
from regard.look.watch import attentions, watch
from regard.tasks.classification import ranked
from regard.tasks.images import ImageClassifier
from regard.tasks.looking.steps import answered, edited, first_answer
from regard.tasks.looking.wanted import Wanted, maps, note, parts
from regard.tasks.run import Run

WHOLE = "[CLS]"
BEST = 5


def pictures(run: Run, texts: Sequence[str], wanted: Wanted, **decode: Any) -> Document:
    """Each picture with the classes the model takes it for. `texts` are paths of pictures, folders or arrays."""
    if wanted.targets:
        raise ConfigError("targets are of texts; a picture has none")
    classifier = ImageClassifier(run.model, run.config)
    given = classifier.arguments(texts)
    if not given:
        raise DataError("nothing to look at: no picture was given")
    room = classifier.patches**2 * len(given)  # of one head, in all pictures
    names = wanted.fitting(run.model, lambda name: room)
    if wanted.edits and not classifier.labels:
        raise ConfigError("this model has no classes, so there is no answer that a head could change")
    shown = [_sentence(run, classifier, given, number, names, wanted) for number in range(len(given))]
    return Document(
        title=f"Where {run.directory.name} looked", sentences=tuple(shown), note=note(run.model, names, wanted)
    )


@torch.inference_mode()
def _sentence(
    run: Run, classifier: ImageClassifier, given: Sequence[Any], number: int, names: list[str], wanted: Wanted
) -> Sentence:
    item, device = given[number], next(run.model.parameters()).device
    seen = classifier.pixels([item])[0]
    images = classifier.images([seen]).to(device)
    kept = parts(run.model, names, images.patches, wanted)
    with watch(run.model, names, heads=wanted.heads, parts=kept) as trace:
        scores = _scores(classifier, run.model(images), item.name)
    with watch(run.model) as every_head:  # a rollout needs them all, whatever is shown
        run.model(images)
    layers = [every_head.weights(name) for name in attentions(run.model)]
    rolled = torch.cat([rollout(layers[: count + 1]) for count in range(len(layers))])
    side = seen.shape[0] // run.config.model_config().patch_size
    places = [f"{row},{column}" for row in range(1, side + 1) for column in range(1, side + 1)]
    answers, changed = (), ()
    if wanted.edits:
        model: Any = run.model
        answers, judge = answered(
            classifier.labels, lambda: model.logits(images)[0].float().log_softmax(-1).cpu(), BEST
        )
        other = 1 if number == 0 else 0  # all pictures are of one size
        swap = (other, classifier.images(classifier.pixels([given[other]])).to(device)) if len(given) > 1 else None
        changed = edited(run.model, wanted, judge, other=swap, total=first_answer)
    return Sentence(
        source=Side(text=item.name, pieces=(WHOLE, *places)),
        attentions=maps(run.model, trace, wanted),
        rollout=AttentionMap(name="rollout", kind="self", rows="source", columns="source", weights=rolled.cpu()),
        picture=PatchedImage(
            image=png_address(seen), width=seen.shape[1], height=seen.shape[0], rows=side, columns=side
        ),
        scores=scores,
        answers=answers,
        edited=changed,
    )


def _scores(classifier: ImageClassifier, vectors: torch.Tensor, name: str) -> dict[str, str]:
    """The likeliest classes and, where the picture's folder is called as one, the right one."""
    head: Any = classifier.model.head
    if head is None:
        return {}
    best = ranked(classifier.labels, head(vectors)[0].float().softmax(-1).tolist())[:BEST]
    truth = Path(name).parent.name
    known = {"truth": truth} if truth in classifier.labels else {}
    # The page would put names that are numbers in the order of the numbers.
    names = [f"class {choice.label}" if choice.label.isdigit() else choice.label for choice in best]
    shares = (f"{100 * choice.probability:.1f} %" for choice in best)
    return {**dict(zip(names, shares, strict=True)), **known}
