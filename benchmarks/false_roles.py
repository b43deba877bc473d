"""How often heads of untrained models are given a role: the share of heads over many models, with its interval.

python benchmarks/false_roles.py --models 200
"""

import argparse
import tempfile
from pathlib import Path

from regard.analysis.head_roles import JUDGING, SCALING, _items, answers, make_quizzes, untrained
from regard.look.roles import largest_margins, thresholds
from regard.metrics.classification_metrics import wilson_interval
from regard.tasks.config import make_config
from regard.tasks.corpora import world_held_out
from regard.tasks.run import Run, build_model
from regard.text import train_vocabularies


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=int, default=200, help="Untrained models that are judged.")
    parser.add_argument("--sentences", type=int, default=50)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--heads", type=int, default=2)
    parser.add_argument("--layers", type=int, default=2)
    options = parser.parse_args()
    corpus = world_held_out("test", "en", options.sentences)
    sizes = {"width": options.width, "heads": options.heads, "feed_forward": options.width, "max_len": 100}
    layers = [f"model.{stack}_layers={options.layers}" for stack in ("encoder", "decoder")]
    words = ["tokenizer.kind=word", "tokenizer.joint=false", "model.share=none", "data.world=2000", "data.max_len=100"]
    config = make_config(preset="tiny", overrides=[*(f"model.{k}={v}" for k, v in sizes.items()), *layers, *words])
    vocabularies = train_vocabularies(list(corpus), config.tokenizer)
    config = config.with_vocabularies(vocabularies)
    run = Run(Path(tempfile.mkdtemp()), config, vocabularies, build_model(config).eval())
    items = _items(run, corpus, options.sentences)
    quizzes = make_quizzes(items)

    def heads(number: int) -> list:
        return [head for own in answers(run, untrained(run, number), items, quizzes).values() for head in own]

    known = SCALING + JUDGING
    largest = [largest_margins(heads(number)) for number in range(known)]
    limits = thresholds(largest[:SCALING], largest[SCALING:])
    claimed, models = [], 0
    for number in range(known, known + options.models):
        found = [any(one.margin > limits[one.role] for one in head.all) for head in heads(number)]
        claimed += found
        models += any(found)
    low, high = wilson_interval(sum(claimed), len(claimed))
    share = sum(claimed) / len(claimed)
    print(f"{sum(claimed)} of {len(claimed)} heads claimed: {100 * share:.2f} % [{100 * low:.2f}, {100 * high:.2f}]")
    print(f"{models} of {options.models} models have any")


if __name__ == "__main__":
    main()
