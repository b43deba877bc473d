"""The Vision Transformer: its equations, its sizes, and the laws that hold for every model of images in the zoo."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from model_zoo import PICTURE_MODELS, VIT
from model_zoo import make as make_named
from torch.testing import assert_close

from regard.errors import ConfigError, DataError, RunError
from regard.look.watch import attentions, watch
from regard.models.vit import ViT
from regard.nn.batch import Images, halves
from regard.nn.embeddings import cut_patches, resized_positions
from regard.tasks.config import make_config
from regard.training.objectives import ImageClassification

LABELS = VIT.labels


def make(variant="pictures"):
    model = make_named(variant)
    for parameter in model.parameters():  # larger than a model starts, so that no prediction is near uniform
        torch.nn.init.normal_(parameter, std=0.4)
    return model


def batch(model, B=3, mixed=False):
    generator = torch.Generator().manual_seed(1)
    size = model.config.image_size
    pixels = torch.randn(B, model.config.channels, size, size, generator=generator)
    labels = torch.arange(B) % len(LABELS)
    shares = torch.linspace(0.2, 0.9, B) if mixed else None
    return Images(pixels, labels, B, 10, labels.roll(1) if mixed else None, shares)


every_variant = pytest.mark.parametrize("variant", PICTURE_MODELS)


@every_variant
@torch.no_grad()
def test_an_image_is_classified_alike_alone_and_among_others(variant):
    model = make(variant)
    given_batch = batch(model, 4)
    together = model.logits(given_batch)
    for index in range(4):
        alone = model.logits(Images(given_batch.pixels[index : index + 1], given_batch.labels[:1], 1))
        assert_close(together[index], alone[0], atol=1e-5, rtol=1e-5)


@every_variant
def test_splitting_a_batch_changes_no_gradient(variant):
    model, task = make(variant).train(), ImageClassification(0.1)
    whole = batch(model, 5, mixed=True)
    gradients = []
    for parts in ([whole], halves(whole)):
        losses = [task.loss(model, part) for part in parts]
        assert sum(loss.count for loss in losses) == 5
        gradients.append(torch.autograd.grad(sum(loss.total for loss in losses), list(model.parameters())))
    for one, other in zip(*gradients, strict=True):
        assert_close(one, other, atol=1e-5, rtol=1e-4)


@every_variant
def test_every_parameter_and_every_patch_is_used(variant):
    model = make(variant).train()
    given_batch = batch(model, 2)
    pixels = given_batch.pixels.requires_grad_()
    loss = ImageClassification().loss(model, replace(given_batch, pixels=pixels)).total
    gradients = torch.autograd.grad(loss, [pixels, *model.parameters()])
    assert all(bool(gradient.any()) for gradient in gradients)
    assert bool((cut_patches(gradients[0], 4).abs().amax(-1) > 0).all())


@every_variant
@torch.no_grad()
def test_watching_changes_no_output_and_sees_every_patch(variant):
    model = make(variant)
    given_batch = batch(model)
    expected = model.logits(given_batch)
    with watch(model) as trace:
        assert_close(model.logits(given_batch), expected, atol=1e-5, rtol=1e-5)
    assert trace.names == [f"blocks.{layer}.attention" for layer in range(2)] == list(attentions(model))
    for name in trace.names:
        assert trace.weights(name).shape == (3, 2, 10, 10)
        assert_close(trace.weights(name).sum(-1), torch.ones(3, 2, 10))


@settings(max_examples=10)
@given(rows=st.integers(1, 4), columns=st.integers(1, 4), size=st.sampled_from([1, 2, 3, 5]))
def test_patches_through_their_matrix_are_a_convolution_whose_windows_do_not_overlap(rows, columns, size):
    pixels = torch.randn(2, 3, rows * size, columns * size)
    kernel = torch.randn(7, 3, size, size)
    expected = F.conv2d(pixels, kernel, stride=size).flatten(2).mT
    assert_close(F.linear(cut_patches(pixels, size), kernel.flatten(1)), expected, atol=1e-4, rtol=1e-4)


@torch.no_grad()
def test_positions_are_stretched_to_other_sizes_and_stay_where_the_size_stays():
    positions = torch.randn(1, 10, 6)
    assert resized_positions(positions, (3, 3), (3, 3)) is positions
    larger = resized_positions(positions, (3, 3), (6, 4))
    assert larger.shape == (1, 25, 6)
    assert_close(larger[:, :1], positions[:, :1])
    grid = positions[:, 1:].reshape(1, 3, 3, 6).permute(0, 3, 1, 2)
    expected = F.interpolate(grid, size=(6, 4), mode="bicubic").permute(0, 2, 3, 1).reshape(1, 24, 6)
    assert_close(larger[:, 1:], expected)
    model = make()
    assert model.read(torch.randn(2, 3, 24, 16)).shape == (2, 25, 12)


def test_mixed_images_are_to_be_both_by_their_shares():
    model = make()
    given_batch = batch(model, 4, mixed=True)
    loss = ImageClassification(0.1).loss(model, given_batch)
    targets = torch.zeros(4, 5)
    for row in range(4):
        targets[row, given_batch.labels[row]] += given_batch.shares[row]
        targets[row, given_batch.others[row]] += 1 - given_batch.shares[row]
    log_probs = model.logits(given_batch).log_softmax(-1)
    assert_close(loss.parts["nll"], -(targets * log_probs).sum())
    assert_close(loss.total, -((0.9 * targets + 0.1 / 5) * log_probs).sum())
    plain = batch(model, 4)
    expected = F.cross_entropy(model.logits(plain), plain.labels, reduction="sum", label_smoothing=0.1)
    assert_close(ImageClassification(0.1).loss(model, plain).total, expected)


@pytest.mark.parametrize(("preset", "parameters"), [("vit-b16", 86_567_656), ("vit-tiny", 5_717_416)])
def test_presets_have_the_papers_parameters_exactly(preset, parameters):
    config = make_config(preset=preset)
    config = replace(config, model={**config.model, "labels": [str(number) for number in range(1000)]})
    with torch.device("meta"):
        assert sum(one.numel() for one in ViT(config.model_config()).parameters()) == parameters


def test_first_predictions_are_near_uniform_and_a_few_updates_change_that():
    torch.manual_seed(0)
    model = ViT(replace(VIT, width=24, feed_forward=48))
    given_batch, task = batch(model, 5), ImageClassification()
    first = task.loss(model, given_batch)
    assert float(first.total.detach()) / 5 == pytest.approx(torch.tensor(5.0).log().item(), abs=0.1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(40):
        loss = task.loss(model, given_batch)
        optimizer.zero_grad()
        loss.total.backward()
        optimizer.step()
    assert float(task.loss(model, given_batch).parts["accuracy"]) == 5


def test_what_cannot_be_is_refused():
    for settings_, message in [
        ({"image_size": 10}, "multiple of patch_size=4"),
        ({"channels": 2}, "channels=2"),
        ({"layers": 0}, "layers=0"),
        ({"labels": ("a", "a")}, "differ"),
        ({"layer_drop": 1.0}, "layer_drop"),
        ({"image_size": 4096, "patch_size": 4}, "patches"),
    ]:
        with pytest.raises(ConfigError, match=message):
            replace(VIT, **settings_)
    model = make()
    with pytest.raises(DataError, match="1 channels; the model reads 3"):
        model.read(torch.zeros(1, 1, 12, 12))
    with pytest.raises(DataError, match="13 x 12 pixels"):
        model.read(torch.zeros(1, 3, 13, 12))
    with pytest.raises(RunError, match="no head"):
        ViT(replace(VIT, labels=())).logits(batch(model))
