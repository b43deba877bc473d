"""A small world with known answers: English and French sentence pairs from a synchronous grammar.

Every English sentence has exactly one French one, decided by rules and by what the sentence itself says. With each pair
come the gold word alignment, what each pronoun means, and the English parse.
"""

from regard.data.synthetic.world.corpus import LECTURE, Grammar, Split, sentences, split_of, telegrams
from regard.data.synthetic.world.sentence import ParallelSentence, Pronoun, pronoun_accuracy, spans, words_of

__all__ = [
    "LECTURE",
    "Grammar",
    "ParallelSentence",
    "Pronoun",
    "Split",
    "pronoun_accuracy",
    "sentences",
    "spans",
    "split_of",
    "telegrams",
    "words_of",
]
