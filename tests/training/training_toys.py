"""A model and batches small enough to train in a test."""

import numpy as np
import torch

from regard.data import PairStore, collate
from regard.data.sequence_packing import PackedLayout
from regard.models.transformer import Transformer, TransformerConfig


def tiny(dropout=0.0, seed=0, **settings):
    torch.manual_seed(seed)
    sizes = {"width": 8, "heads": 2, "encoder_layers": 2, "decoder_layers": 1, "feed_forward": 12, **settings}
    return Transformer(TransformerConfig(source_vocab_size=17, target_vocab_size=17, dropout=dropout, **sizes))


def work(packed=False):
    """Twenty pairs side by side, or forty in a few rows."""
    generator = torch.Generator().manual_seed(1)

    def ids(length):
        return torch.randint(4, 17, (length,), generator=generator).tolist()

    store = PairStore.of([([*ids(1 + i % 5), 2], [1, *ids(1 + i % 7), 2]) for i in range(40)])
    if not packed:
        return collate(store, np.arange(20))
    packing = PackedLayout(store, 1500)
    return packing.batch(packing.order(0, 0)[0])
