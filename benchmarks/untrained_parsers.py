"""How many outputs of untrained parsers are trees over exactly their words: `python benchmarks/untrained_parsers.py`.

Every model has fresh weights, made larger so that it is sure of what it does not know; it parses sentences of random
words greedily, by beam and by sampling. An output that is no tree ends it with an error.
"""

import argparse
import random

import torch

from regard.data.trees import symbols_of, tree_of
from regard.decode.config import DecodeConfig
from regard.tasks.config import RunConfig
from regard.tasks.parsing import TreeReader
from regard.tasks.run import build_model
from regard.text import TokenizerConfig, train_tokenizer

WAYS = (
    DecodeConfig(beam=1),
    DecodeConfig(beam=4, length_penalty=0.0),
    DecodeConfig(beam=1, temperature=1.0),
    DecodeConfig(beam=1, temperature=3.0),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--outputs", type=int, default=10_000)
    parser.add_argument("--models", type=int, default=10)
    parser.add_argument("--words", type=int, default=40, help="Most words of a sentence.")
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args()
    symbols = symbols_of([tree_of("(S (NP (DT a) (NN b)) (VP (VBZ c) (ADJP (JJ d))))")], "tags")
    tokenizer = train_tokenizer(["ab cd ef gh"], TokenizerConfig(kind="character", vocab_size=40), masks=True)
    good, count = 0, given.outputs // given.models // len(WAYS)
    for number in range(given.models):
        rng = random.Random(number)
        model = {"name": "parser", "vocab_size": tokenizer.vocab_size, "labels": list(symbols)}
        model |= {"width": 32, "heads": 2, "layers": 1, "decoder_layers": 1, "feed_forward": 32}
        model |= {"max_depth": rng.choice((2, 6, 30)), "max_open": rng.choice((1, 3, 8))}
        model |= {"encoder": rng.choice(("attention", "recurrent"))}
        config = RunConfig.of({"task": "parsing", "model": model, "train": {"seed": number}})
        fresh = build_model(config)
        with torch.no_grad():
            for weight in fresh.parameters():
                weight.mul_(rng.choice((1.0, 5.0, 20.0)))
        reader = TreeReader(fresh.to(given.device), tokenizer, config)
        words = ["ab", "cd", "ef", "gh", "xyz", "(", "'"]
        texts = [[rng.choice(words) for _ in range(rng.randint(1, given.words))] for _ in range(count)]
        sentences = reader.sentences(texts)
        for way in WAYS:
            # Writing a tree down refuses what is none, and words that are not the sentence's.
            for best, one in zip(reader.parse(sentences, way), sentences, strict=True):
                good += tree_of(best[0].tree).words == one
    print(f"{good:,} of {count * given.models * len(WAYS):,} outputs are trees over their words")


if __name__ == "__main__":
    main()
