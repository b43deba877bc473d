"""The same Transformer in regard and in Hugging Face's Marian, and the sentences to run both on."""

import argparse
import random
from pathlib import Path

import torch

from regard.data import PairStore
from regard.models.transformer import Transformer, TransformerConfig

EOS, BOS, PAD = 2, 1, 0


def arguments(about: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--data", nargs=2, metavar=("SOURCE", "TARGET"), help="line-aligned text to take lengths from")
    parser.add_argument("--pairs", type=int, default=2000, help="how many pairs")
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--vocabulary", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3, help="each side is timed so often, in turn; the best counts")
    parser.add_argument("--threads", type=int, default=2)
    return parser


def store(options: argparse.Namespace) -> PairStore:
    """Pairs of random tokens with real sentence lengths, or with lengths sampled to resemble image captions."""
    draw = random.Random(0)
    if options.data:
        sides = [Path(path).read_text(encoding="utf-8").split("\n") for path in options.data]
        lengths = [(len(a.split()), len(b.split())) for a, b in zip(*sides, strict=True) if a and b][: options.pairs]
    else:
        lengths = []
        for _ in range(options.pairs):
            source = max(4, round(draw.lognormvariate(2.5, 0.32)))
            lengths.append((source, max(3, round(source * draw.gauss(0.97, 0.15)))))

    def words(count: int) -> list[int]:
        return [draw.randrange(4, options.vocabulary) for _ in range(count)]

    return PairStore.of([([*words(s), EOS], [BOS, *words(t), EOS]) for s, t in lengths], PAD)


def ours(options: argparse.Namespace, dropout: float = 0.1) -> Transformer:
    torch.manual_seed(0)
    return Transformer(
        TransformerConfig(
            source_vocab_size=options.vocabulary,
            target_vocab_size=options.vocabulary,
            width=options.width,
            heads=options.heads,
            encoder_layers=options.layers,
            decoder_layers=options.layers,
            feed_forward=4 * options.width,
            position_layout="halves",
            dropout=dropout,
            max_len=512,
        )
    )


def copy_weights(model: Transformer, peer) -> None:
    """Give Marian our weights, so that both decode the same sentences."""
    peer.model.shared.weight.data.copy_(model.source.tokens.weight)
    names = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "out_proj"}
    for side in ("encoder", "decoder"):
        for mine, other in zip(getattr(model, side), getattr(peer.model, side).layers, strict=True):
            pairs = [(mine.around_attention.norm, other.self_attn_layer_norm), (mine.feed_forward.inner, other.fc1)]
            pairs += [(mine.feed_forward.outer, other.fc2), (mine.around_feed_forward.norm, other.final_layer_norm)]
            attentions = [(mine.attention, other.self_attn)]
            if side == "decoder":
                attentions.append((mine.cross_attention, other.encoder_attn))
                pairs.append((mine.around_cross_attention.norm, other.encoder_attn_layer_norm))
            for part, twin in attentions:
                pairs += [(getattr(part, name), getattr(twin, theirs)) for name, theirs in names.items()]
            for part, twin in pairs:
                twin.load_state_dict(part.state_dict())
