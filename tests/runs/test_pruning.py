import json

import pytest
import torch
from torch.testing import assert_close

import regard
from regard.analysis.model_summary import describe
from regard.analysis.pruning import curve, every_head, importance, prune, save
from regard.cli.prune import counted
from regard.errors import ConfigError, RunError
from regard.look import attentions, masked
from regard.models.transformer import TransformerConfig
from regard.tasks.config import make_config
from regard.tasks.corpora import world_held_out
from regard.tasks.run import load_config
from regard.tasks.translation import HeldOutPairs
from regard.tasks.translation_metrics import head_alignment
from regard.trainer.trainer import resume, train

SETTINGS = [
    "model.width=16",
    "model.heads=4",
    "model.encoder_layers=2",
    "model.decoder_layers=2",
    "model.feed_forward=16",
    "model.max_len=40",
    "data.max_len=40",
    "tokenizer.kind=word",
    "train.batch_tokens=300",
    "train.steps=4",
    "train.validate_sentences=2",
    "train.warmup=2",
    "train.threads=1",
    "train.ema=0.5",
    "decode.beam=2",
    "decode.max_len=8",
]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pruning")
    pairs = [f"the cat {'sees ' * (n % 4)}a dog\tle chat {'voit ' * (n % 4)}un chien\n" for n in range(30)]
    (folder / "pairs.tsv").write_text("".join(pairs), encoding="utf-8")
    files = {"train": [str(folder / "pairs.tsv")], "valid": [str(folder / "pairs.tsv")]}
    run = train(make_config(preset="tiny", overrides=SETTINGS, extra={"data": files}), folder / "whole")
    for module in attentions(run.model).values():
        torch.nn.init.normal_(module.output.bias)
    return run


@pytest.fixture(scope="module")
def pairing(trained):
    return HeldOutPairs(trained, limit=12)


# Some heads of one layer, and all heads of each kind of attention.
REMOVED = {
    "encoder.0.attention": [0, 2],
    "encoder.1.attention": [0, 1, 2, 3],
    "decoder.0.attention": [0, 1, 2, 3],
    "decoder.1.attention": [3],
    "decoder.1.cross_attention": [0, 1, 2, 3],
}


@torch.inference_mode()
def test_a_pruned_model_is_the_masked_one_but_smaller(trained, pairing, tmp_path):
    heads = [(name, head) for name, own in REMOVED.items() for head in own]
    smaller = prune(trained, heads)
    texts = [source for source, _ in pairing.pairs]
    with masked(trained.model, REMOVED):
        expected = [trained.model.logits(batch) for batch in pairing.batches]
        translated = [[one.score for one in best] for best in trained.translations(texts, beam=3, top_beams=3)]
    for batch, logits in zip(pairing.batches, expected, strict=True):
        assert_close(smaller.model.logits(batch), logits, atol=1e-5, rtol=1e-5)
    found = [[one.score for one in best] for best in smaller.translations(texts, beam=3, top_beams=3)]
    for here, there in zip(found, translated, strict=True):
        assert here == pytest.approx(there, abs=1e-4)
    count = lambda model: sum(one.numel() for one in model.parameters())  # noqa: E731
    # A head is 4 wide: 3 * (16 + 1) * 4 in, 4 * 16 out. A layer without heads is its bias alone.
    assert count(trained.model) - count(smaller.model) == 15 * (3 * 17 * 4 + 4 * 16)
    assert describe(smaller, 10)["flops"]["forward"] < describe(trained, 10)["flops"]["forward"]
    assert smaller.config.model["encoder_heads"] == [2, 0]
    # Pruned again, and saved, it loads and is used like any other.
    again = prune(smaller, [("encoder.0.attention", 1)], tmp_path / "smaller")
    save(again, trained.directory, tmp_path / "smaller")
    loaded = regard.load(tmp_path / "smaller", "cpu")
    assert loaded.translate(texts[:2]) == again.translate(texts[:2])
    assert load_config(tmp_path / "smaller").to_mapping() == again.config.to_mapping()
    assert loaded.config.model_config().heads_of("encoder") == (1, 0)
    assert sorted(attentions(loaded.model)) == [
        "decoder.0.cross_attention",
        "decoder.1.attention",
        "encoder.0.attention",
    ]
    with pytest.raises(RunError, match="already holds a run"):
        save(again, trained.directory, tmp_path / "smaller")


def test_layers_with_different_heads_are_scored_on_the_bundled_corpus(trained):
    smaller = prune(trained, [("decoder.0.cross_attention", 1), ("decoder.0.cross_attention", 2)])
    scores = head_alignment(smaller, world_held_out("test", "en", 4).sentences)
    assert scores.error_rate.shape == (2, 4)
    assert scores.error_rate[0, 2:].tolist() == [1.0, 1.0]
    assert (scores.error_rate[:, :2] < 1).any()


def test_training_goes_on_from_the_pruned_weights(trained, tmp_path):
    smaller = prune(trained, [("encoder.0.attention", 0), *every_head(trained.model, "decoder.0.attention")])
    save(smaller, trained.directory, tmp_path / "new")
    before = regard.load(tmp_path / "new", "cpu").model.state_dict()
    after = resume(tmp_path / "new", ("train.steps=1", "train.learning_rate=1e-6", "train.schedule=constant"))
    for name, value in after.model.state_dict().items():
        assert_close(value, before[name], atol=1e-4, rtol=0)
    scores = regard.evaluate(after, limit=4)
    assert scores["sentences"] == 4


@pytest.mark.parametrize("by", ["masking", "gradient", "gates"])
def test_a_head_that_does_nothing_matters_least(trained, pairing, by):
    output = trained.model.encoder[0].attention.output.weight
    kept = output.detach().clone()
    with torch.no_grad():
        output[:, 4:8] = 0
        trained.model.encoder[0].attention.output.weight[:, :4] *= 30
    ranked = importance(trained, pairing, by, "encoder.0.attention")
    with torch.no_grad():
        output.copy_(kept)
    assert len(ranked) == 4
    values = [ranked["encoder.0.attention", head] for head in range(4)]
    if by != "gates":  # gates are learnt by drawing, so a useless one is shut, but not always the furthest
        assert abs(values[1]) < 1e-6
    assert abs(values[0]) > abs(values[1])
    assert all(parameter.grad is None for parameter in trained.model.parameters())


def test_the_curve_falls_in_size_from_the_whole_model(trained, pairing):
    order = every_head(trained.model, "encoder.*")
    points = list(curve(trained, pairing, order, [0, 3, 8]))
    assert [point["kept"] for point in points] == [8, 5, 0]
    assert points[0]["nll"] == pytest.approx(pairing.nll(trained.model), abs=1e-5)
    for name in ("parameters", "flops"):
        assert points[0][name] > points[1][name] > points[2][name]
    assert all(point["milliseconds"] > 0 for point in points)
    json.dumps(points)


def test_what_cannot_be_removed_is_refused(trained):
    with pytest.raises(ConfigError, match=r"no head 4 in 'encoder.0.attention'"):
        prune(trained, [("encoder.0.attention", 4)])
    with pytest.raises(ConfigError, match="no attention is called 'encodr"):
        every_head(trained.model, "encodr.0.attention")
    assert counted("40%", 10) == 4
    assert counted("3", 10) == 3
    for wrong in ("11", "101%", "x", "2.5", "-1"):
        with pytest.raises(ConfigError, match="must be a number up to 10"):
            counted(wrong, 10)


def test_heads_by_layer_are_checked():
    sizes = {"source_vocab_size": 9, "target_vocab_size": 9, "width": 8, "heads": 2, "encoder_layers": 2}
    with pytest.raises(ConfigError, match=r"encoder_heads=\[1\] must be 2 numbers"):
        TransformerConfig(**sizes, encoder_heads=(1,))
    with pytest.raises(ConfigError, match="from 0 to heads=2"):
        TransformerConfig(**sizes, encoder_heads=(1, 3))
    with pytest.raises(ConfigError, match="must be multiples of 2: so many heads share"):
        TransformerConfig(**sizes, encoder_heads=(1, 2), kv_heads=1)
    with pytest.raises(ConfigError, match="cannot differ between layers with alibi positions"):
        TransformerConfig(**sizes, encoder_heads=(1, 2), positions="alibi")
