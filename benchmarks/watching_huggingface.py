"""What watching costs a Hugging Face model when nothing is asked for: processor time of forward passes, in turns.

python benchmarks/watching_huggingface.py --rounds 40 --tokens 64
"""

import argparse
import statistics
import time

import torch
import transformers

import regard


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--layers", type=int, default=6)
    options = parser.parse_args()
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=1000,
        hidden_size=options.width,
        num_hidden_layers=options.layers,
        num_attention_heads=12,
        intermediate_size=4 * options.width,
    )
    model = transformers.BertModel(config).eval()
    ids = torch.randint(0, 1000, (4, options.tokens))

    def seconds() -> float:
        start = time.process_time()
        model(input_ids=ids)
        return time.process_time() - start

    plain, watched, weighed = [], [], []
    with torch.inference_mode():
        for _ in range(3):
            seconds()
        for _ in range(options.rounds):  # in turns, so that what else the machine does falls on all alike
            plain.append(seconds())
            with regard.watch(model, parts=()):
                watched.append(seconds())
            with regard.watch(model):
                weighed.append(seconds())
    base = statistics.median(plain)
    print(f"unwatched {1000 * base:.2f} ms")
    for name, found in (("watched, nothing asked for", watched), ("watched, all weights", weighed)):
        ratio = statistics.median(one / own for one, own in zip(found, plain, strict=True))
        print(f"{name} {1000 * statistics.median(found):.2f} ms, {100 * (ratio - 1):+.2f} % (median of pairs)")


if __name__ == "__main__":
    main()
