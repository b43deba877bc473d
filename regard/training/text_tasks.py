"""What is asked of an encoder: hidden words and next sentences, classes, tags, and where answers stand."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.nn.batch import LabelledTexts, MaskedTexts
from regard.nn.loss import IGNORE
from regard.nn.rows import doubled
from regard.training.objectives import Loss


@dataclass(frozen=True, slots=True)
class MaskedWords:
    """Say which words are hidden and, of pairs, whether the second text goes on from the first.

    Both are means that add up: all words of an update weigh as much as all its pairs.
    """

    smoothing: float = 0.0

    def weighed(self, parts: Sequence[MaskedTexts]) -> list[MaskedTexts]:
        """The parts of one update, a pair in each weighing as much as in all of them together."""
        share = sum(part.count for part in parts) / sum(part.labels.shape[0] for part in parts)
        return [replace(part, share=share) for part in parts]

    def loss(self, model: nn.Module, batch: MaskedTexts) -> Loss:
        words: Any = model.words
        x = model(batch)
        asked = words.vectors(x.gather(1, batch.places[..., None].expand(-1, -1, x.shape[-1])))
        total, plain = words.output.loss(asked, batch.labels, self.smoothing)
        if batch.elsewhere is None:
            return Loss(total, batch.count, {"nll": plain, "words": plain})
        logits = model.next_logits(x).float()  # type: ignore[operator]
        following = F.cross_entropy(logits, batch.elsewhere, reduction="sum") * batch.share
        right = (logits.argmax(-1) == batch.elsewhere).sum() * batch.share
        parts = {"nll": plain + following.detach(), "words": plain, "next": following, "next_accuracy": right}
        return Loss(total + following, batch.count, parts)


@dataclass(frozen=True, slots=True)
class Labelled:
    """Say what each text, or each of its tokens, is labelled with.

    With `r_drop` a training batch is read twice, under different dropout: the loss is both cross-entropies plus
    `r_drop` times the mean divergence of the two predictions from each other.
    """

    smoothing: float = 0.0
    r_drop: float = 0.0
    smooths: ClassVar[bool] = True

    def loss(self, model: nn.Module, batch: LabelledTexts) -> Loss:
        twice = bool(self.r_drop) and model.training
        read = doubled(batch) if twice else batch
        logits, smoothing = self.logits(model, read), self.smoothing if self.smooths else 0.0
        return labelled_loss(logits, read.labels.flatten(), batch.count, smoothing, self.r_drop if twice else 0.0)

    def logits(self, model: Any, batch: LabelledTexts) -> Float[Tensor, "N C"]:
        """A score a class for each label of the batch."""
        raise NotImplementedError


class Classification(Labelled):
    """Say of each text which class it is of."""

    def logits(self, model: Any, batch: LabelledTexts) -> Float[Tensor, "N C"]:
        return model.classes(model(batch), batch)


class Tagging(Labelled):
    """Say of each word which tag it has; a word of several tokens is asked of at its first."""

    def logits(self, model: Any, batch: LabelledTexts) -> Float[Tensor, "N C"]:
        return model.classifier(model.dropout(model(batch))).flatten(0, 1)


class Answering(Labelled):
    """Say at which token the answer begins, and at which it ends."""

    smooths = False  # over what? padding is no answer

    def logits(self, model: Any, batch: LabelledTexts) -> Float[Tensor, "N C"]:
        logits = model.classifier(model.dropout(model(batch)))
        hidden = ~batch.inputs.tokens.mask()[..., None]
        return logits.masked_fill(hidden, -1e30).transpose(1, 2).flatten(0, 1)


def labelled_loss(
    logits: Float[Tensor, "N C"], labels: Int[Tensor, " N"], count: int, smoothing: float = 0.0, r_drop: float = 0.0
) -> Loss:
    """Cross-entropy, and how many are right; with `r_drop` of two passes, whose rows come one after the other."""
    logits = logits.float()
    total = F.cross_entropy(logits, labels, ignore_index=IGNORE, label_smoothing=smoothing, reduction="sum")
    plain = total if not smoothing else F.cross_entropy(logits, labels, ignore_index=IGNORE, reduction="sum")
    right = (logits.argmax(-1) == labels).sum()
    parts = {"nll": plain.detach(), "accuracy": right.to(total.dtype)}
    if not r_drop:
        return Loss(total, count, parts)
    one, other = logits.log_softmax(-1).chunk(2)
    # KL(p|q) + KL(q|p) is the sum of (p - q) (log p - log q).
    apart = ((one.exp() - other.exp()) * (one - other)).sum(-1)
    divergence = 0.5 * (apart * (labels.chunk(2)[0] != IGNORE)).sum()
    means = {name: value / 2 for name, value in parts.items()}
    return Loss(total + r_drop * divergence, count, {**means, "divergence": divergence.detach()})
