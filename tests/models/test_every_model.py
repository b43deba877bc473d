"""What every model must obey, by the registry: a model that is added to `MODELS` has a case here, or this fails.

What is more, each kind has laws of its own: test_laws.py, test_language_laws.py, test_encoder_laws.py, test_readers.py,
test_vit.py and test_pointer_network.py.
"""

from dataclasses import dataclass, replace
from typing import Any, get_args

import pytest
import torch
from language_zoo import make_language, windows
from model_zoo import BERT, CONVOLUTIONAL, RECURRENT, TRANSFORMER, TRANSFORMERS, VIT, batch, rows, texts
from torch import nn
from torch.testing import assert_close

from regard.errors import ConfigError
from regard.models import MODELS
from regard.models.bert import Bert
from regard.models.captioner import CaptionConfig, CaptionModel
from regard.models.convnet import ConvNet, ConvNetConfig
from regard.models.convolutional import Convolutional
from regard.models.listener import ListenerConfig, SpeechModel
from regard.models.pointer_network import PointerConfig, PointerNetwork
from regard.models.recurrent import RecurrentModel
from regard.models.recurrent_reader import RecurrentReader, RecurrentReaderConfig
from regard.models.several_sources import SeveralSources, SourcesConfig
from regard.models.transformer import Transformer
from regard.models.tree_parser import ParserConfig, TreeParser
from regard.models.vit import ViT
from regard.models.whisper import Whisper, WhisperConfig
from regard.nn.batch import (
    CaptionedImages,
    Images,
    LabelledTexts,
    MaskedTexts,
    Parses,
    Pointings,
    Points,
    SourcedTexts,
    Texts,
    Tokens,
    TranscribedSounds,
    halves,
)
from regard.nn.blocks import Activation, NormKind
from regard.nn.losses.cross_entropy import IGNORE
from regard.nn.positions import PositionKind
from regard.runs.checkpoint import load_weights_strictly, weights_of
from regard.runs.files import read_tensors, write_tensors
from regard.tasks.config import make_config
from regard.training.loop import train_step, validate
from regard.training.objectives import (
    Captioning,
    Classification,
    ImageClassification,
    MaskedLanguageModelling,
    Objective,
    Parsing,
    Pointing,
    SequenceToSequence,
    Transcription,
    language_objective,
    predictions,
)


@dataclass
class Case:
    """A small model without dropout, what is asked of it, and a batch of four rows."""

    model: nn.Module
    task: Objective
    batch: Any


def pairs():
    return batch(*rows([(3, 4), (5, 2), (1, 6), (7, 3)], torch.Generator().manual_seed(0)))


def language(name):
    model = make_language(name)
    ids = torch.randint(4, 19, (4, 7), generator=torch.Generator().manual_seed(0))
    return Case(model, language_objective(type(model)), windows(ids.tolist()))


def masked():
    inputs = texts([[5, 6, 7, 8], [9, 10, 11], [12, 13], [14, 15, 16, 17, 18]])
    labels = torch.tensor([[5, IGNORE], [6, 7], [8, IGNORE], [9, 10]])
    return MaskedTexts(inputs, torch.tensor([[1, 2]] * 4), labels, torch.tensor([0, 1, 1, 0]), 6, 1.5)


def labelled():
    inputs = replace(texts([[5, 6, 7, 8], [9, 10, 11], [12, 13], [14, 15, 16, 17, 18]]), segments=None)
    return LabelledTexts(inputs, torch.tensor([0, 1, 1, 0]), 4)


def pictures():
    generator = torch.Generator().manual_seed(0)
    return Images(torch.rand(4, 3, 12, 12, generator=generator), torch.tensor([0, 4, 2, 2]), 4, 10)


def captioned():
    generator = torch.Generator().manual_seed(0)
    target = Tokens.of([[1, 5, 6, 7, 2], [1, 8, 2], [1, 9, 10, 2], [1, 11, 12, 13, 14, 2]])
    return CaptionedImages(torch.rand(4, 3, 12, 12, generator=generator), target, 14, 9)


def spoken():
    generator = torch.Generator().manual_seed(0)
    target = Tokens.of([[1, 5, 6, 7, 2], [1, 8, 2], [1, 9, 10, 2], [1, 11, 11, 13, 14, 2]])
    sounds = Points.of([torch.rand(size, 5, generator=generator).numpy() for size in (21, 10, 16, 23)])
    return TranscribedSounds(sounds, target, 14, 2)


def heard_whole():
    """Windows, each of them full."""
    target = Tokens.of([[1, 5, 6, 7, 2], [1, 8, 2], [1, 9, 10, 2], [1, 11, 12, 13, 2]])
    values = torch.randn(4, 12, 4, generator=torch.Generator().manual_seed(0))
    return TranscribedSounds(Points(values, torch.full((4,), 12), padded=False), target, 13, 2)


def sourced():
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(4, 19, (4, 1, 5), generator=generator)
    lengths, there = torch.tensor([[5], [3], [0], [4]]), torch.tensor([[True], [False], [True], [True]])
    pixels = torch.rand(4, 1, 3, 8, 8, generator=generator)
    target = Tokens.of([[1, 5, 6, 7, 2], [1, 8, 2], [1, 9, 10, 2], [1, 11, 12, 13, 14, 2]])
    frames, heard = torch.randn(4, 1, 9, 5, generator=generator), torch.tensor([[9], [4], [7], [0]])
    return SourcedTexts(ids, lengths, pixels, there, target, 14, 4, frames, heard, 2)


def points():
    generator = torch.Generator().manual_seed(0)
    sizes = (3, 5, 1, 4)
    return Pointings.of(
        [torch.rand(size, 2, generator=generator).numpy() for size in sizes],
        [torch.randperm(size, generator=generator).numpy() for size in sizes],
    )


def parses():
    pieces = Texts(Tokens.of([[5, 6, 6, 7, 8], [9, 10], [11, 12, 13], [14]]))
    words = Tokens.of([[1, 2, 2, 3, 0], [1, 0], [0, 1, 2], [1]]).ids
    target = Tokens.of([[0, 3, 4, 2, 2, 1, 2, 1, 0], [0, 3, 2, 1, 0], [0, 3, 2, 4, 2, 1, 1, 0], [0, 4, 3, 2, 1, 1, 0]])
    return Parses(pieces, words, torch.tensor([3, 1, 2, 1]), 3, target, 25)


PARSER = ParserConfig(
    **{"vocab_size": 19, "labels": ("XX", "(S", "(NP"), "width": 6, "heads": 2, "layers": 1, "decoder_layers": 1},
    **{"feed_forward": 7, "dropout": 0.0, "attention_dropout": 0.0, "max_len": 20},
)
CONVNET = ConvNetConfig(labels=tuple("abcde"), image_size=12, width=4, layers=1)
POINTER = PointerConfig(inputs=2, width=6, heads=2, feed_forward=7, encoder_layers=2, max_len=20)
READER = RecurrentReaderConfig(vocab_size=19, width=6, layers=2, dropout=0.0, labels=("a", "b"))
CAPTION = CaptionConfig(
    **{"vocab_size": 19, "image_size": 12, "patch_size": 4, "width": 6, "heads": 2, "feed_forward": 7},
    **{"encoder": "convolution", "encoder_layers": 1, "decoder_layers": 2, "max_len": 20},
)
WHISPER = WhisperConfig(
    vocab_size=19, bands=4, frames=12, width=8, heads=2, encoder_layers=1, decoder_layers=1, feed_forward=8, max_len=9
)
LISTENER = ListenerConfig(
    **{"vocab_size": 19, "window": 40, "hop": 20, "bands": 5, "subsampling": 2, "width": 6, "heads": 2},
    **{"feed_forward": 7, "encoder_layers": 1, "decoder_layers": 2, "max_len": 20, "ctc": 0.3, "dropout": 0.0},
)
SOURCES = SourcesConfig(
    **{"vocab_size": 19, "sources": ("text", "image", "sound"), "image_size": 8, "patch_size": 4, "width": 6},
    **{"heads": 2, "bands": 5, "max_frames": 40, "subsampling": 2},
    **{"feed_forward": 7, "dropout": 0.0, "source_dropout": 0.0, "max_len": 20, "combine": "gate"},
)
CASES = {
    "transformer": lambda: Case(Transformer(TRANSFORMER), SequenceToSequence(0.1), pairs()),
    "gpt": lambda: language("gpt"),
    "bert": lambda: Case(Bert(BERT), MaskedLanguageModelling(0.1), masked()),
    "vit": lambda: Case(ViT(VIT), ImageClassification(0.1), pictures()),
    "convnet": lambda: Case(ConvNet(CONVNET), ImageClassification(0.1), pictures()),
    "recurrent": lambda: Case(RecurrentModel(RECURRENT), SequenceToSequence(0.1), pairs()),
    "convolutional": lambda: Case(Convolutional(CONVOLUTIONAL), SequenceToSequence(0.1), pairs()),
    "pointer": lambda: Case(PointerNetwork(POINTER), Pointing(), points()),
    "recurrent-language": lambda: language("lstm"),
    "recurrent-reader": lambda: Case(RecurrentReader(READER), Classification(), labelled()),
    "elmo": lambda: language("elmo"),
    "rwkv": lambda: language("rwkv"),
    "lstmn": lambda: language("lstmn"),
    "several-sources": lambda: Case(SeveralSources(SOURCES), SequenceToSequence(0.1), sourced()),
    "captioner": lambda: Case(CaptionModel(CAPTION), Captioning(0.1), captioned()),
    "listener": lambda: Case(SpeechModel(LISTENER), Transcription(0.1, 0.3), spoken()),
    "whisper": lambda: Case(Whisper(WHISPER), Transcription(0.1), heard_whole()),
    "parser": lambda: Case(TreeParser(PARSER), Parsing(0.1), parses()),
}
every_model = pytest.mark.parametrize("name", MODELS)


def case(name):
    assert name in CASES, f"the model '{name}' is in MODELS and has no case here"
    torch.manual_seed(0)
    found = CASES[name]()
    assert type(found.model) is MODELS[name][1]
    assert type(found.model.config) is MODELS[name][0]
    return found


def quarters(given):
    return [part for half in halves(given) for part in halves(half)]


def test_no_case_is_of_a_model_that_is_no_more():
    assert CASES.keys() == MODELS.keys()


@every_model
@torch.no_grad()
def test_a_loss_is_the_sum_of_the_losses_of_its_rows_and_so_is_its_count(name):
    given = case(name)
    given.model.eval()
    whole = given.task.loss(given.model, given.batch)
    parts = [given.task.loss(given.model, part) for part in quarters(given.batch)]
    assert len(parts) == 4
    assert whole.count == sum(part.count for part in parts) == predictions(given.task, given.batch)
    assert_close(whole.total, sum(part.total for part in parts), atol=1e-4, rtol=1e-5)
    for part in whole.parts:
        assert_close(whole.parts[part], sum(one.parts[part] for one in parts), atol=1e-4, rtol=1e-5)


@every_model
def test_an_update_from_parts_is_that_of_the_whole_and_its_loss_is_a_mean(name):
    found = []
    for split in (lambda whole: [whole], quarters):
        given = case(name)
        mean = validate(given.model, given.task, [given.batch])["loss"]
        step = train_step(
            given.model.train(), given.task, split(given.batch), torch.optim.SGD(given.model.parameters(), 1.0)
        )
        assert float(step.loss) == pytest.approx(mean, rel=1e-4)
        weights = torch.cat([value.detach().flatten() for value in given.model.parameters()])
        found.append((step.loss, step.grad_norm, weights))
    assert_close(found[0], found[1], atol=1e-5, rtol=1e-4)


@every_model
def test_an_update_goes_down_the_mean_loss(name):
    """The gradient is that of the loss per prediction, not of a multiple of it."""
    given = case(name)
    model, task, whole = given.model.train(), given.task, given.batch
    loss = task.loss(model, whole)
    gradients = torch.autograd.grad(loss.total / loss.count, list(model.parameters()))  # and every parameter is used
    before = [value.detach().clone() for value in model.parameters()]
    train_step(model, task, [whole], torch.optim.SGD(model.parameters(), 1.0))
    for value, start, gradient in zip(model.parameters(), before, gradients, strict=True):
        assert_close(value.detach(), start - gradient, atol=1e-5, rtol=1e-4)


@every_model
@torch.no_grad()
def test_weights_written_and_read_again_are_the_model(name, tmp_path):
    given = case(name)
    given.model.eval()
    before = given.task.loss(given.model, given.batch).total
    write_tensors(tmp_path / "model.safetensors", weights_of(given.model))
    for value in given.model.parameters():
        value.add_(torch.randn_like(value))
    assert not torch.allclose(given.task.loss(given.model, given.batch).total, before)
    load_weights_strictly(given.model, read_tensors(tmp_path / "model.safetensors"), tmp_path)
    assert torch.equal(given.task.loss(given.model, given.batch).total, before)


@pytest.mark.parametrize(
    ("setting", "kinds"), [("positions", PositionKind), ("norm", NormKind), ("activation", Activation)]
)
def test_no_kind_of_position_norm_or_activation_is_left_out_of_the_laws(setting, kinds):
    tried = {variant.get(setting, getattr(TRANSFORMER, setting)) for variant in TRANSFORMERS.values()}
    assert tried == set(get_args(kinds))


NORMED_AWAY = {("bert", "linear"), ("bert", "linear-unscaled")}
FAMILIES = ("demo", "gpt-tiny", "bert-tiny", "vit-digits", "lstm-tiny", "gehring-2017", "speech-tiny")


@pytest.mark.parametrize("preset", FAMILIES)
@pytest.mark.parametrize("kind", get_args(PositionKind))
def test_a_family_takes_every_kind_of_positions_or_says_why_not(preset, kind):
    family = make_config(None, preset).model["name"]
    if family in ("transformer", "gpt", "bert") and (family, kind) not in NORMED_AWAY:
        assert make_config(None, preset, [f"model.positions={kind}"]).model["positions"] == kind
        return
    reason = (
        f"positions='{kind}' adds the same number" if family == "bert" else "model.positions does not apply to model"
    )
    with pytest.raises(ConfigError, match=reason):
        make_config(None, preset, [f"model.positions={kind}"])
