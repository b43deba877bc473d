"""Decoding tokens a second beside Hugging Face's Marian: the same weights, sentences, beam and output length.

    python benchmarks/decoding.py --data test.en test.de --pairs 200

Weights are random, so sentences would end anywhere: both are made to write exactly as many tokens as the reference has.
Sentences go in batches sorted by length, the same for both.
"""

import time

import numpy as np
import torch
from peer import BOS, EOS, arguments, copy_weights, marian, ours, store

from regard.data.loader import collate
from regard.decode.beam import beam_search
from regard.decode.config import DecodeConfig
from regard.decode.greedy import greedy
from regard.nn.batch import Pairs


def main() -> None:
    parser = arguments(__doc__.split("\n")[0])
    parser.set_defaults(pairs=256)
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--batch", type=int, default=32, help="sentences decoded together")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    pairs = store(options)
    model, peer = ours(options).eval(), marian(options).eval()
    copy_weights(model, peer)
    order = np.argsort(pairs.source.lengths, kind="stable")
    batches = [collate(pairs, rows) for rows in np.array_split(order, max(1, len(pairs) // options.batch))]
    lengths = [int(batch.target.lengths.max()) for batch in batches]  # type: ignore[union-attr]
    tokens = sum(length * batch.source.ids.shape[0] for length, batch in zip(lengths, batches, strict=True))

    def decode_ours() -> list[list[int]]:
        found = []
        for batch, length in zip(batches, lengths, strict=True):
            config = DecodeConfig(
                beam=options.beam, length_penalty=1.0, length_form="power", min_len=length - 1, max_len=length
            )
            with torch.inference_mode():
                state = model.start(Pairs(batch.source))
                first = torch.full((batch.source.ids.shape[0],), BOS)
                if options.beam == 1:
                    found += [one.tokens for one in greedy(model, state, first, eos=EOS, config=config)]
                else:
                    found += [one[0].tokens for one in beam_search(model, state, first, eos=EOS, config=config)]
        return found

    def decode_peer() -> list[list[int]]:
        found = []
        for batch, length in zip(batches, lengths, strict=True):
            with torch.inference_mode():
                rows = peer.generate(
                    input_ids=batch.source.ids,
                    attention_mask=batch.source.mask().long(),
                    num_beams=options.beam,
                    do_sample=False,
                    length_penalty=1.0,
                    min_new_tokens=length - 1,
                    max_new_tokens=length,
                )
            found += [[token for token in row[1:] if token != EOS] for row in rows.tolist()]
        return found

    best = {"regard": float("inf"), "peer": float("inf")}
    for _ in range(options.rounds):
        for name, decode in (("regard", decode_ours), ("peer", decode_peer)):
            began = time.perf_counter()
            found = decode()
            best[name] = min(best[name], time.perf_counter() - began)
            if name == "regard":
                mine = found
    same = sum(one[: len(two)] == two[: len(one)] for one, two in zip(mine, found, strict=True))
    for name, seconds in best.items():
        print(f"{name:8} {tokens / seconds:>10,.0f} tokens/s   regard is {seconds / best['regard']:.2f}x")
    print(f"the same output for {same} of {len(mine)} sentences")


if __name__ == "__main__":
    main()
