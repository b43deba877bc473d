"""Training tokens per second beside Hugging Face's Marian: the same sizes, sentences and work, in one run.

    python benchmarks/training.py --data train.en train.de

Two comparisons. "same batches" gives both the batches that regard makes, so only the computation differs. "own batches"
lets each batch as it comes: regard by token budget from length buckets, the peer in the order of the corpus, padded to
the longest of the batch, with as many sentences to a batch on average.
"""

import time

import numpy as np
import torch
import torch.nn.functional as F
from peer import arguments, ours, store

from regard.bench.training_speed import marian
from regard.data import collate, epoch_order
from regard.training.loop import train_step
from regard.training.objectives import SequenceToSequence


def main() -> None:
    parser = arguments(__doc__.split("\n")[0])
    parser.add_argument("--budget", type=int, default=4096, help="source and target tokens of a batch")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    pairs = store(options)
    groups = epoch_order(pairs.source.lengths, pairs.target.lengths, budget=options.budget, seed=0, epoch=0)
    plain = np.array_split(np.arange(len(pairs)), len(groups))
    bucketed, unsorted = ([collate(pairs, rows) for rows in order] for order in (groups, plain))
    tokens = sum(batch.tokens for batch in bucketed)
    assert tokens == sum(batch.tokens for batch in unsorted)
    model = ours(options).train()
    peer = marian(model.config).train()
    optimizers = [torch.optim.Adam(one.parameters(), lr=1e-4, fused=True) for one in (model, peer)]

    def train_ours(batches) -> None:
        for batch in batches:
            train_step(model, SequenceToSequence(0.1), [batch], optimizers[0], clip=1.0)

    def train_peer(batches) -> None:
        for batch in batches:
            logits = peer(
                input_ids=batch.source.ids,
                attention_mask=batch.source.mask().long() if batch.source.padded else None,
                decoder_input_ids=batch.inputs.ids,
            ).logits
            F.cross_entropy(logits.flatten(0, 1), batch.labels.flatten(), label_smoothing=0.1).backward()
            torch.nn.utils.clip_grad_norm_(peer.parameters(), 1.0)
            optimizers[1].step()
            optimizers[1].zero_grad()

    train_ours(bucketed[:2])
    train_peer(bucketed[:2])
    best = {"regard": float("inf"), "peer, same batches": float("inf"), "peer, own batches": float("inf")}
    for _ in range(options.rounds):
        for name, train, batches in (
            ("regard", train_ours, bucketed),
            ("peer, same batches", train_peer, bucketed),
            ("peer, own batches", train_peer, unsorted),
        ):
            began = time.perf_counter()
            train(batches)
            best[name] = min(best[name], time.perf_counter() - began)
    for name, seconds in best.items():
        ratio = seconds / best["regard"]
        print(f"{name:20} {tokens / seconds:>10,.0f} tokens/s   regard is {ratio:.2f}x")


if __name__ == "__main__":
    main()
