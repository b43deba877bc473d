"""Decoding tokens per second beside Hugging Face's Marian: the same weights, sentences, beam and output length.

    python benchmarks/decoding.py --data test.en test.de --pairs 200

Weights are random, so sentences would end anywhere: each is made to write as many tokens as its reference has. regard
leaves out of the computation what has ended and the peer goes on until the last sentence of a batch has ended, as both
do with a trained model. Sentences go in batches sorted by length, the same for both. Only the
tokens asked for are counted.
"""

import time

import numpy as np
import torch
from peer import BOS, EOS, arguments, copy_weights, ours, store

from regard.bench.training_speed import marian
from regard.data.batches import collate
from regard.decode.beam import beam_search
from regard.decode.config import DecodeConfig
from regard.decode.greedy import greedy
from regard.nn.batch import Pairs


def main() -> None:
    parser = arguments(__doc__.split("\n")[0])
    parser.set_defaults(pairs=256)
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--batch", type=int, default=64, help="sentences decoded together")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    pairs = store(options)
    model = ours(options).eval()
    peer = marian(model.config).eval()
    copy_weights(model, peer)
    order = np.argsort(pairs.source.lengths, kind="stable")
    batches = [collate(pairs, rows) for rows in np.array_split(order, max(1, len(pairs) // options.batch))]
    lengths = [batch.target.lengths - 1 for batch in batches]  # type: ignore[union-attr]
    tokens = sum(int(length.sum()) for length in lengths)

    def decode_ours() -> list[list[int]]:
        found = []
        for batch, length in zip(batches, lengths, strict=True):
            longest = int(length.max())
            config = DecodeConfig(
                beam=options.beam, length_penalty=1.0, length_form="power", min_len=longest, max_len=longest + 1
            )
            with torch.inference_mode():
                state = model.start(Pairs(batch.source))
                first = torch.full((batch.source.ids.shape[0],), BOS)
                if options.beam == 1:
                    found += [one.tokens for one in greedy(model, state, first, eos=EOS, config=config, max_len=length)]
                else:
                    best = beam_search(model, state, first, eos=EOS, config=config, max_len=length)
                    found += [one[0].tokens for one in best]
        return found

    def decode_peer() -> list[list[int]]:
        found = []
        for batch, length in zip(batches, lengths, strict=True):
            longest = int(length.max())
            with torch.inference_mode():
                rows = peer.generate(
                    input_ids=batch.source.ids,
                    attention_mask=batch.source.mask().long(),
                    num_beams=options.beam,
                    do_sample=False,
                    length_penalty=1.0,
                    min_new_tokens=longest,
                    max_new_tokens=longest,
                )
            found += [[token for token in row[1:] if token != EOS] for row in rows.tolist()]
        return found

    seconds_of = {"regard": float("inf"), "peer": float("inf")}
    mine: list[list[int]] = []
    found: list[list[int]] = []
    for _ in range(options.rounds):
        for name, decode in (("regard", decode_ours), ("peer", decode_peer)):
            began = time.perf_counter()
            found = decode()
            seconds_of[name] = min(seconds_of[name], time.perf_counter() - began)
            if name == "regard":
                mine = found
    # Of a sentence shorter than its batch's longest the peer's best may begin differently: only the longest compare.
    whole = [one == two for one, two in zip(mine, found, strict=True) if len(one) == len(two)]
    for name, seconds in seconds_of.items():
        print(f"{name:8} {tokens / seconds:>10,.0f} tokens/s   regard is {seconds / seconds_of['regard']:.2f}x")
    print(f"the same output for {sum(whole)} of the {len(whole)} sentences that both wrote to the same length")


if __name__ == "__main__":
    main()
