"""Recurrent readers and the bidirectional language model: what padding, direction and mixing do, and whole runs."""

import json
import math

import pytest
import torch
from listeners import StopAt
from torch.testing import assert_close

import regard
from regard import make_config
from regard.data import Documents, TextStore
from regard.errors import ConfigError
from regard.models.elmo import Elmo, ElmoConfig, LayerMix
from regard.models.recurrent_reader import RecurrentReader, RecurrentReaderConfig
from regard.nn.batch import Texts, Tokens, Windows
from regard.nn.losses.cross_entropy import IGNORE
from regard.nn.recurrent.cells import CELLS
from regard.tasks.language import text_perplexity
from regard.trainer.trainer import Stopped
from regard.training.objectives import BidirectionalLanguageModelling, language_objective

SIZES = {"vocab_size": 19, "width": 6, "layers": 2, "dropout": 0.0, "labels": ("a", "b", "c")}
READERS = {
    **{cell: lambda cell=cell, **more: reader(cell=cell, **more) for cell in CELLS},
    "forward": lambda **more: reader(direction="forward", **more),
    "backward": lambda **more: reader(direction="backward", **more),
    "lstmn": lambda **more: reader(cell="lstmn", direction="forward", span=3, **more),
    "elmo": lambda **more: Elmo(ElmoConfig(**{"head": "classes", **SIZES, **more})),
}


def reader(**changes):
    return RecurrentReader(RecurrentReaderConfig(**{"head": "classes", **SIZES, **changes}))


def make(name, **more):
    torch.manual_seed(0)
    return READERS[name](**more).eval()


def texts(*rows):
    return Texts(Tokens.of([list(row) for row in rows]))


ROWS = [[1, 5, 6, 7, 2], [1, 8, 2], [1, 9, 10, 11, 12, 13, 2]]


@pytest.mark.parametrize("head", ["classes", "tags"])
@pytest.mark.parametrize("name", READERS)
def test_padding_changes_nothing_and_every_token_and_parameter_counts(name, head):
    model = make(name, head=head)
    together = model.logits(texts(*ROWS))
    vectors = model.text_vectors(texts(*ROWS))
    for row, ids in enumerate(ROWS):
        alone = model.logits(texts(ids))[0]
        found = together[row] if head == "classes" else together[row, : len(ids)]
        assert_close(found, alone, atol=1e-5, rtol=1e-5)
        assert_close(vectors[row], model.text_vectors(texts(ids))[0], atol=1e-5, rtol=1e-5)
    assert together.shape == ((3, 3) if head == "classes" else (3, 7, 3))
    for place in range(1, 4):
        changed = [*ROWS[0]]
        changed[place] = 14
        assert not torch.equal(model.logits(texts(changed)), model.logits(texts(ROWS[0])))
    gradients = torch.autograd.grad(together.square().sum(), list(model.parameters()), allow_unused=True)
    assert [name for (name, _), one in zip(model.named_parameters(), gradients, strict=True) if one is None] == []


def test_the_first_place_holds_what_the_whole_was_read_to():
    model = make("lstm", head="none", labels=(), layers=1)
    x = model(texts(ROWS[2]))
    outputs, _ = model.layers(model.embedding(torch.tensor([ROWS[2]])))
    assert_close(x[0, 0], torch.cat((outputs[0, -1, :3], outputs[0, 0, 3:])))
    assert_close(x[0, 1:], outputs[0, 1:])
    assert_close(model.text_vectors(texts(ROWS[2]), "mean")[0], outputs[0, 1:].mean(0))


def test_impossible_settings_are_refused():
    for message, changes in (
        ("must be even", {"width": 5}),
        ("reads forward", {"cell": "lstmn"}),
        ("labels are for", {"head": "none"}),
        ("needs labels", {"labels": ()}),
    ):
        with pytest.raises(ConfigError, match=message):
            reader(**changes)
    with pytest.raises(ConfigError, match="labels are for"):
        ElmoConfig(vocab_size=9, labels=("a",))


def elmo():
    torch.manual_seed(0)
    return Elmo(ElmoConfig(vocab_size=19, width=6, dropout=0.0)).eval()


def test_each_token_is_predicted_from_those_before_it_and_from_those_after_it_alone():
    model = elmo()
    ids = torch.randint(4, 19, (2, 8), generator=torch.Generator().manual_seed(0))
    labels = ids[:, 1:].clone()
    labels[0, :3] = IGNORE  # context that nobody asks for
    batch = Windows(Tokens.of(ids[:, :-1].tolist()), labels, int((labels != IGNORE).sum()))
    loss = BidirectionalLanguageModelling().loss(model, batch)
    total, table, bias = 0.0, model.embedding.tokens.weight, model.head.bias
    for row in range(2):
        for place in range(7):
            if labels[row, place] == IGNORE:
                continue
            before, _ = model.onward(model.embedding(ids[row : row + 1, : place + 1]))
            after, _ = model.back(model.embedding(ids[row : row + 1, place + 1 :]))
            total -= (before[0, -1] @ table.T + bias).log_softmax(-1)[ids[row, place + 1]]
            total -= (after[0, 0] @ table.T + bias).log_softmax(-1)[ids[row, place]]
    assert_close(loss.total, total, atol=1e-4, rtol=1e-5)
    assert loss.count == 2 * batch.count
    assert isinstance(language_objective(Elmo), BidirectionalLanguageModelling)


def test_a_words_vector_depends_on_its_context_above_the_first_layer():
    model = elmo()
    layers = model.contexts(Tokens.of([[1, 5, 6, 2], [1, 7, 6, 2]]))
    assert layers.shape == (3, 2, 4, 12)
    assert_close(layers[0, 0, 2], layers[0, 1, 2])
    assert not torch.allclose(layers[2, 0, 2], layers[2, 1, 2])


def test_a_mixture_learns_which_layer_to_listen_to():
    torch.manual_seed(0)
    mix, layers = LayerMix(3), torch.randn(3, 2, 4, 5)
    assert_close(mix(layers), layers.mean(0))
    optimizer = torch.optim.Adam(mix.parameters(), lr=0.1)
    for _ in range(300):
        optimizer.zero_grad()
        (mix(layers) - 2 * layers[1]).square().mean().backward()
        optimizer.step()
    assert mix.scores.softmax(0)[1] > 0.95
    assert float(mix.gamma.detach()) == pytest.approx(2, rel=0.1)


SMALL = ["train.threads=1", "train.warmup=2", "train.log_every=1", "train.batch_tokens=128", "tokenizer.vocab_size=60"]


@pytest.fixture(scope="module")
def labelled(tmp_path_factory):
    """Sentences whose class is whether `not` is among their words, and whose tags are what kinds of words they are."""
    folder = tmp_path_factory.mktemp("labelled")
    dice, classes, tags = torch.Generator().manual_seed(0), [], []
    for _ in range(200):
        words = [["cat", "dog", "sees", "not"][int(i)] for i in torch.randint(4, (6,), generator=dice)]
        kinds = {"cat": "noun", "dog": "noun", "sees": "verb", "not": "other"}
        classes.append(f"{' '.join(words)}\t{'no' if 'not' in words else 'yes'}")
        tags.append(json.dumps({"words": words, "tags": [kinds[word] for word in words]}))
    (folder / "classes.tsv").write_text("\n".join(classes) + "\n", encoding="utf-8")
    (folder / "tags.jsonl").write_text("\n".join(tags) + "\n", encoding="utf-8")
    (folder / "text.txt").write_text("\n".join(line.split("\t")[0] for line in classes), encoding="utf-8")
    return folder


def trained(preset, file, out, *settings, report=None):
    data = {"data": {"train": [str(file)], "valid": [str(file)]}}
    return regard.train(make_config(None, preset, [*SMALL, "model.width=16", *settings], data), out, report)


def test_a_reader_learns_to_classify_and_resumes_exactly(labelled, tmp_path):
    steps = ["train.steps=60", "train.learning_rate=2e-2", "model.dropout=0.0"]
    run = trained("lstm-classify", labelled / "classes.tsv", tmp_path / "run", *steps)
    found = run.classify(["cat dog sees", "cat not dog"])
    assert [best[0].label for best in found] == ["yes", "no"]
    with pytest.raises(Stopped):
        trained("lstm-classify", labelled / "classes.tsv", tmp_path / "broken", *steps, report=StopAt(30))
    broken = regard.resume(tmp_path / "broken")
    one, other = ((each.directory / "model.safetensors").read_bytes() for each in (run, broken))
    assert one == other
    assert run.embed(["cat dog"]).shape == (1, 16)


def test_a_reader_learns_to_tag(labelled, tmp_path):
    steps = ["train.steps=40", "train.learning_rate=3e-2", "model.dropout=0.0", "model.cell=gru-before"]
    run = trained("lstm-tag", labelled / "tags.jsonl", tmp_path / "run", *steps)
    assert [tag.tag for tag in run.tag([["cat", "sees", "not", "dog"]])[0]] == ["noun", "verb", "other", "noun"]


@torch.no_grad()
def assert_strides_give_context(run, path):
    """At stride 1 each token is predicted, both ways, from as much as a window holds beside it; token by token here."""
    documents = Documents.of([path])
    found = text_perplexity(run, documents, stride=1)
    ids = torch.from_numpy(TextStore.of(iter(documents), run.vocabularies.target).ids.astype("int64"))
    model, length, total = run.model.eval(), run.config.data.max_len, 0.0
    assert len(ids) > 2 * length
    for place in range(len(ids) - 1):
        # A window that ends here has the full length, unless the text begins within it.
        before = ids[max(0, place + 1 - length) : place + 1][None]
        after = ids[place + 1 : place + 1 + length][None]
        total -= model.head(model(Windows(Tokens.of(before.tolist()), before, 1)))[0, -1].log_softmax(-1)[
            ids[place + 1]
        ]
        total -= model.head(model.after(after))[0, 0].log_softmax(-1)[ids[place]]
    assert found["nll"] == pytest.approx(float(total) / (2 * (len(ids) - 1)), rel=1e-4)


def test_a_bidirectional_language_model_is_measured_writes_embeds_and_is_tuned_to_tag(labelled, tmp_path):
    base = trained("elmo-tiny", labelled / "text.txt", tmp_path / "elmo", "train.steps=20", "data.max_len=16")
    scores = regard.evaluate(base)
    assert_strides_give_context(base, labelled / "text.txt")
    assert scores["perplexity"] == pytest.approx(math.exp(scores["nll"]))
    assert base.generate("cat", max_len=4, temperature=0)
    assert base.embed(["cat sees", "dog"]).shape == (2, 32)
    data = {"data": {"train": [str(labelled / "tags.jsonl")]}, "train": {"start_from": str(base.directory)}}
    settings = [*SMALL[:-1], "model.name=elmo", "train.steps=40", "train.learning_rate=3e-2", "train.schedule=linear"]
    run = regard.train(make_config(None, "lstm-tag", settings, data), tmp_path / "tags")
    assert [tag.tag for tag in run.tag([["cat", "sees", "not", "dog"]])[0]] == ["noun", "verb", "other", "noun"]
    assert run.model.mix.scores.detach().abs().max() > 0
