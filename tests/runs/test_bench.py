import json

import pytest

from regard import make_config
from regard.bench.training_speed import bench_train, caption_lengths, file_lengths
from regard.cli import main
from regard.errors import ConfigError

TINY = [
    "model.width=16",
    "model.heads=2",
    "model.encoder_layers=1",
    "model.decoder_layers=1",
    "model.feed_forward=24",
    "tokenizer.vocab_size=300",
    "train.batch_tokens=300",
    "train.device=cpu",
]


@pytest.mark.parametrize("order", ["random", "bucketed"])
def test_it_times_regard_and_the_peer_on_the_same_sentences(order):
    pytest.importorskip("transformers")
    found = bench_train(
        make_config(None, "tiny", TINY), lengths=caption_lengths(200), batches=2, seconds=0.01, order=order
    )
    ours, peer, *bucketed = found["results"]
    assert ours["name"] == "regard"
    assert peer["name"] == f"Hugging Face Marian, {order}"
    assert ours["padding"] == pytest.approx(peer["padding"])
    assert (ours["padding"] < 0.2) == (order == "bucketed")
    # A peer that pads is timed at its own best as well: on sentences of like length.
    assert [one["name"] for one in bucketed] == ["Hugging Face Marian, bucketed"] * (order == "random")
    assert all(one["padding"] < 0.2 for one in bucketed)
    peers = [peer, *bucketed]
    assert found["ratios"] == {one["name"]: ours["tokens_per_second"] / one["tokens_per_second"] for one in peers}
    assert found["best_peer"] == max(peers, key=lambda one: one["tokens_per_second"])["name"]
    for one in (ours, *peers):
        assert one["tokens_per_second"] > 0
        assert one["peak_share"] == pytest.approx(one["tflops"] / found["matmul_peak_tflops"])


def test_without_being_told_it_takes_the_order_that_training_would():
    config = make_config(None, "tiny", [*TINY, "train.pack=never"])
    found = bench_train(config, lengths=caption_lengths(200), batches=2, seconds=0.01, peer=False)
    assert found["order"] == "bucketed"
    (one,) = found["results"]
    assert one["padding"] < 0.2
    assert one["memory_bytes"] is None or one["memory_bytes"] > 10**8
    packed = make_config(None, "tiny", [*TINY, "train.pack=always"])
    found = bench_train(packed, lengths=caption_lengths(200), batches=2, seconds=0.01, peer=False)
    assert (found["order"], found["results"][0]["name"]) == ("random", "regard, packed")


def test_flops_follow_the_model():
    def work(*settings):
        config = make_config(None, "tiny", [*TINY, *settings])
        found = bench_train(config, lengths=[(7, 7)] * 100, batches=1, seconds=0.01, peer=False)
        (one,) = found["results"]
        return one["tflops"] / one["tokens_per_second"]

    assert work("model.feed_forward=48") > 1.05 * work()
    assert work("model.encoder_layers=2") > 1.05 * work()


def test_lengths_come_from_files_and_bad_ones_are_refused(tmp_path, capsys):
    (tmp_path / "a").write_text("one two\n\nthree\n")
    (tmp_path / "b").write_text("x\ny\nz z z\n")
    assert file_lengths(tmp_path / "a", tmp_path / "b") == [(2, 1), (1, 3)]
    with pytest.raises(ConfigError, match="2 pairs do not fill one batch"):
        bench_train(make_config(None, "tiny", TINY), lengths=[(2, 1), (1, 3)], order="random", peer=False)
    assert main(["bench", "train", "--preset", "tiny", "--order", "sideways"]) == 2
    assert "must be random or bucketed" in capsys.readouterr().err


def test_the_command_prints_json(capsys):
    settings = [f"--set={setting}" for setting in TINY]
    assert main(["bench", "train", "--preset", "tiny", *settings, "--seconds", "0.01", "--no-peer", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["results"][0]["name"] == "regard"


SMALL = ["model.width=16", "model.heads=2", "model.layers=1", "model.feed_forward=24", "train.device=cpu"]
TEXT = [*SMALL, "tokenizer.vocab_size=60", "data.max_len=12", "train.batch_tokens=48"]


@pytest.mark.parametrize(
    "preset", ["gpt-tiny", "bert-tiny", "bert-classify", "bert-tag", "bert-answer", "vit-digits", "lstm-tiny"]
)
def test_every_kind_of_run_that_reads_text_or_images_is_timed(preset):
    settings = [*SMALL, "train.batch_tokens=70"] if preset == "vit-digits" else TEXT
    if preset == "lstm-tiny":
        settings = [one for one in TEXT if "heads" not in one and "feed" not in one]
    found = bench_train(make_config(None, preset, settings), batches=2, seconds=0.01)
    (one,) = found["results"]
    assert one["name"] == "regard"
    assert one["tokens_per_second"] > 0
    assert one["peak_share"] == pytest.approx(one["tflops"] / found["matmul_peak_tflops"])
    assert one["padding"] == 0
    assert found["rows_per_batch"] == 4
    with pytest.raises(ConfigError, match="are for pairs"):
        bench_train(make_config(None, preset, settings), batches=1, order="bucketed")


def test_what_is_not_timed_is_said(capsys):
    assert main(["bench", "train", "--preset", "pointer-sort"]) == 2
    assert "training is timed on text and on images, not on what a run for pointing" in capsys.readouterr().err
