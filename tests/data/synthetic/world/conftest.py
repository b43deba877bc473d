"""Many sentences at once, for the laws that only many can show."""

import json
import subprocess
import sys

import pytest

from regard.data.synthetic.world import ParallelSentence, Pronoun

# A fresh interpreter is fast, having no run-time type checks, and shows that nothing depends on the process.
_SCRIPT = """
import json, sys
from dataclasses import astuple
from regard.data.synthetic.world import sentences

json.dump(
    {
        "drawn": [astuple(s) for s in sentences(6000, seed=5)],
        "short": [[astuple(s) for s in sentences(2500, seed=seed, lengths=(4, 7))] for seed in (6, 7)],
        "valid": [astuple(s) for s in sentences(100, seed=6, split="valid", lengths=(4, 7))],
        "test": [astuple(s) for s in sentences(100, seed=6, split="test", lengths=(4, 7))],
    },
    sys.stdout,
)
"""


def _sentence(fields: list) -> ParallelSentence:
    english, french, english_words, french_words, alignment, pronouns, heads, relations, tree = fields
    return ParallelSentence(
        english=english,
        french=french,
        english_words=tuple(english_words),
        french_words=tuple(french_words),
        alignment=tuple((source, target) for source, target in alignment),
        pronouns=tuple(Pronoun(*pronoun) for pronoun in pronouns),
        heads=tuple(heads),
        relations=tuple(relations),
        tree=tree,
    )


@pytest.fixture(scope="session")
def corpus():
    """Four named collections of sentences, `short` being two."""
    out = subprocess.run([sys.executable, "-c", _SCRIPT], capture_output=True, text=True, check=True).stdout
    read = json.loads(out)
    short = [[_sentence(fields) for fields in part] for part in read["short"]]
    return {name: [_sentence(f) for f in read[name]] for name in ("drawn", "valid", "test")} | {"short": short}


@pytest.fixture(scope="session")
def drawn(corpus):
    """Six thousand training sentences of seed 5."""
    return corpus["drawn"]
