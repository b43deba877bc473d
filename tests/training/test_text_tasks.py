"""What is asked of an encoder, held to its formulas: classes, tags, answers, hidden words and next texts."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim import SGD
from torch.testing import assert_close

from regard.nn.batch import LabelledTexts, MaskedTexts, Texts, Tokens
from regard.nn.losses.cross_entropy import IGNORE
from regard.training.loop import train_step
from regard.training.objectives import Answering, Classification, MaskedLanguageModelling, Tagging, labelled_loss

WIDTH = 6


class Reader(nn.Module):
    """An encoder in name: a vector for each token, and every head that a task may ask for."""

    def __init__(self, classes=3, dropout=0.0):
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Embedding(20, WIDTH)
        self.classifier = nn.Linear(WIDTH, classes)
        self.dropout = nn.Dropout(dropout)
        self.next = nn.Linear(WIDTH, 2)
        self.words = Words()

    def forward(self, batch):
        return self.dropout(self.table(batch.inputs.ids))

    def classes(self, x, batch):
        return self.classifier(x[:, 0])

    def next_logits(self, x):
        return self.next(x[:, 0])


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(20, WIDTH))

    @property
    def output(self):
        return self

    def vectors(self, x):
        return x

    def loss(self, x, labels, smoothing):
        logits, labels = (x @ self.weight.T).flatten(0, 1), labels.flatten()
        total = F.cross_entropy(logits, labels, ignore_index=IGNORE, label_smoothing=smoothing, reduction="sum")
        return total, F.cross_entropy(logits, labels, ignore_index=IGNORE, reduction="sum").detach()


def labelled(labels, rows=((3, 4, 5), (6, 7))):
    labels = torch.tensor(labels)
    return LabelledTexts(Texts(Tokens.of(rows)), labels, int((labels != IGNORE).sum()))


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_a_loss_is_cross_entropy_with_what_is_plain_and_right_beside_it(smoothing):
    torch.manual_seed(1)
    logits, labels = torch.randn(5, 4), torch.tensor([0, IGNORE, 2, 3, 1])
    logits[0, 0] = logits[2, 2] = 9.0
    logits[3, 3] = logits[4, 1] = -9.0
    found = labelled_loss(logits, labels, 4, smoothing)
    real = labels != IGNORE
    expected = F.cross_entropy(logits[real], labels[real], label_smoothing=smoothing, reduction="sum")
    assert_close(found.total, expected)
    assert_close(found.parts["nll"], F.cross_entropy(logits[real], labels[real], reduction="sum"))
    assert (float(found.parts["accuracy"]), found.count) == (2.0, 4)


def test_two_passes_are_held_to_the_labels_and_to_each_other():
    torch.manual_seed(1)
    one, other = torch.randn(2, 3, 4).unbind()
    labels = torch.tensor([1, IGNORE, 2])
    found = labelled_loss(torch.cat((one, other)), labels.repeat(2), 2, 0.1, r_drop=0.7)
    both = [labelled_loss(logits, labels, 2, 0.1) for logits in (one, other)]
    p, q = one[[0, 2]].softmax(-1), other[[0, 2]].softmax(-1)
    divergence = 0.5 * ((p * (p / q).log()).sum() + (q * (q / p).log()).sum())
    assert_close(found.parts["divergence"], divergence)
    assert_close(found.total, both[0].total + both[1].total + 0.7 * divergence)
    for name in ("nll", "accuracy"):
        assert_close(found.parts[name], (both[0].parts[name] + both[1].parts[name]) / 2)


def test_a_batch_is_read_twice_only_to_train_and_only_where_asked():
    model, batch = Reader(dropout=0.5), labelled([1, 2])
    plain, twice = Classification(0.1), Classification(0.1, r_drop=1.0)
    assert "divergence" in twice.loss(model.train(), batch).parts
    assert "divergence" not in plain.loss(model, batch).parts
    assert_close(twice.loss(model.eval(), batch).total, plain.loss(model, batch).total)
    assert twice.loss(model.train(), batch).count == 2


def test_tags_are_asked_of_every_token_with_a_label():
    model, batch = Reader().eval(), labelled([[1, IGNORE, 2], [0, IGNORE, IGNORE]])
    logits = model.classifier(model(batch))
    expected = -sum(logits[b, t].log_softmax(-1)[label] for b, t, label in ((0, 0, 1), (0, 2, 2), (1, 0, 0)))
    assert_close(Tagging().loss(model, batch).total, expected)


def test_an_answer_is_looked_for_among_real_tokens_and_never_smoothed():
    model, batch = Reader(classes=2).eval(), labelled([[0, 2], [1, 1]])
    with torch.no_grad():
        model.table.weight[0] = 50.0  # what padding is read as must not matter
    logits = model.classifier(model(batch))
    first, second = logits[0].log_softmax(0), logits[1, :2].log_softmax(0)
    expected = -(first[0, 0] + first[2, 1] + second[1, 0] + second[1, 1])
    assert_close(Answering(0.3).loss(model, batch).total, expected)


def test_hidden_words_and_next_texts_add_up():
    model = Reader().eval()
    ids = Tokens.of([[3, 4, 5, 6], [7, 8, 9, 3]])
    places, labels = torch.tensor([[1, 3], [2, 0]]), torch.tensor([[4, 6], [9, IGNORE]])
    elsewhere = torch.tensor([0, 1])
    batch = MaskedTexts(Texts(ids), places, labels, elsewhere, 3, 1.5)
    alone = MaskedLanguageModelling(0.1).loss(model, MaskedTexts(Texts(ids), places, labels, None, 3, 1.5))
    x = model(batch)
    asked = torch.stack([x[0, 1], x[0, 3], x[1, 2]]) @ model.words.weight.T
    wanted = torch.tensor([4, 6, 9])
    assert_close(alone.total, F.cross_entropy(asked, wanted, label_smoothing=0.1, reduction="sum"))
    words = F.cross_entropy(asked, wanted, reduction="sum").detach()
    assert_close(dict(alone.parts), {"nll": words, "words": words})
    logits = model.next_logits(x)
    following = 1.5 * F.cross_entropy(logits, elsewhere, reduction="sum")
    found = MaskedLanguageModelling(0.1).loss(model, batch)
    assert_close(found.total, alone.total + following)
    assert_close(found.parts["next"], following)
    assert_close(found.parts["nll"], words + following.detach())
    assert_close(float(found.parts["next_accuracy"]), 1.5 * int((logits.argmax(-1) == elsewhere).sum()))


@pytest.mark.parametrize("pairs", [True, False])
def test_hidden_words_in_parts_of_unlike_numbers_train_as_one_batch(pairs):
    """Four words hidden in two rows, and one in three: an accumulated update is that of one batch of five rows."""
    rows = [[3, 4, 5, 6], [7, 8, 9, 3], [4, 5], [6, 7], [8, 9]]
    places = torch.tensor([[1, 2, 3], [1, 0, 0], [1, 0, 0], [0, 0, 0], [0, 0, 0]])
    labels = torch.tensor([[11, 12, 13], [14, *[IGNORE] * 2], [15, *[IGNORE] * 2], [IGNORE] * 3, [IGNORE] * 3])
    elsewhere = torch.tensor([0, 1, 1, 0, 1])

    def batch(chosen):
        count = int((labels[chosen] != IGNORE).sum())
        asked = elsewhere[chosen] if pairs else None
        texts = Texts(Tokens.of(rows[chosen]))
        return MaskedTexts(texts, places[chosen], labels[chosen], asked, count, count / len(rows[chosen]))

    found = []
    for parts in ([slice(0, 5)], [slice(0, 2), slice(2, 5)], [slice(0, 1), slice(1, 5)]):
        model = Reader()
        step = train_step(
            model, MaskedLanguageModelling(0.1), [batch(part) for part in parts], SGD(model.parameters(), 1.0)
        )
        weights = torch.cat([value.detach().flatten() for value in model.parameters()])
        found.append((step.loss, step.grad_norm, weights, *(step.parts[name] for name in sorted(step.parts))))
    assert_close(found[0], found[1])
    assert_close(found[0], found[2])
