"""Exercises in the arithmetic of attention: the right values, worked out, and the slips that people make on the way.

Each is small enough for paper. `check` compares an answer with the right values and, where it is wrong, with what each
known slip would have given, so that it can say which one it was.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from regard.errors import ConfigError, DataError, nearest

Number = float | int
Values = Sequence[Number]
Work = Callable[..., Values]
"""From the inputs of an exercise to its answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exercise:
    """A question with its answer, worked out from the `inputs`, and with what each known slip gives instead.

    The answer is a number for each of `names`, to so many `decimals`. Where slips give the same values, the first is
    named.
    """

    question: str
    names: tuple[str, ...]
    answer: Work
    slips: Mapping[str, Work]
    inputs: tuple[str, ...] = ()
    decimals: int = 3
    chapter: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What there is to say of an answer: whether it is right, in words, and which slip it was, if a known one."""

    right: bool
    text: str
    slip: str | None = None
    expected: tuple[float, ...] = field(default=())


def check(name: str, values: Sequence[str]) -> Verdict:
    """Compare an answer, which follows the inputs of the exercise if it has any, with what is right."""
    exercise = find(name)
    words = [word for value in values for word in re.split(r"[\s,;]+", value) if word]
    inputs, given = words[: len(exercise.inputs)], words[len(exercise.inputs) :]
    if len(given) != len(exercise.names):
        wanted = " ".join((*exercise.inputs, *exercise.names))
        raise DataError(
            f"{name} takes {len(exercise.inputs) + len(exercise.names)} numbers, not {len(words)}: {wanted}"
        )
    numbers = [_whole(name, what, word) for what, word in zip(exercise.inputs, inputs, strict=True)]
    answer = [_number(word) for word in given]
    right = tuple(float(value) for value in exercise.answer(*numbers))
    margin = 0.51 * 10.0**-exercise.decimals
    if _agree(answer, right, [margin] * len(right)):
        return Verdict(True, "right", expected=right)
    slips = {slip: [float(value) for value in work(*numbers)] for slip, work in exercise.slips.items()}
    for slip, made in slips.items():
        if _agree(answer, made, [margin] * len(right)):
            return Verdict(False, f"not yet: {slip}", slip, right)
    # As precise as it was given, and no more than was asked for.
    rounded = [0.51 * 10.0 ** -min(_decimals(word), exercise.decimals) for word in given]
    if _agree(answer, right, rounded):
        return Verdict(False, f"right as far as it goes: give {exercise.decimals} decimals", expected=right)
    for slip, made in slips.items():
        if _agree(answer, made, rounded):
            return Verdict(False, f"not yet: {slip}", slip, right)
    wrong = [
        what for what, a, b, near in zip(exercise.names, answer, right, rounded, strict=True) if not abs(a - b) <= near
    ]
    return Verdict(False, f"not yet, and no slip that is known here; wrong: {', '.join(wrong)}", expected=right)


def find(name: str) -> Exercise:
    """The exercise of that name."""
    if name not in EXERCISES:
        raise ConfigError(f"there is no exercise '{name}'{nearest(name, EXERCISES)}")
    return EXERCISES[name]


def _agree(answer: Values, right: Values, near: Values) -> bool:
    return all(abs(a - b) <= margin for a, b, margin in zip(answer, right, near, strict=True))


def _number(word: str) -> float:
    try:
        value = float(word)
    except ValueError:
        raise DataError(f"'{word}' is not a number") from None
    if not math.isfinite(value):
        raise DataError(f"'{word}' is not a finite number")
    return value


def _whole(name: str, what: str, word: str) -> int:
    value = _number(word)
    if value != int(value) or not 0 <= value <= 100_000:
        raise DataError(f"{name}: {what} is '{word}', but must be a whole number from 0 to 100000")
    return int(value)


def _decimals(word: str) -> int:
    digits, _, exponent = word.lower().partition("e")
    return max(0, len(digits.partition(".")[2]) - int(exponent or 0))


def softmax(scores: Values) -> list[float]:
    top = max(scores)
    powers = [math.exp(score - top) for score in scores]
    return [power / sum(powers) for power in powers]


MONEY = (0.41, 0.08, 0.51, 0.87)


def _sinusoids(
    place: Number, *, first: int = 0, swapped: bool = False, halves: bool = False, degrees: bool = False
) -> list[float]:
    angles = [place / 10000 ** (2 * j / 4) for j in (first, first + 1)]
    angles = [math.radians(angle) if degrees else angle for angle in angles]
    sines, cosines = [math.sin(angle) for angle in angles], [math.cos(angle) for angle in angles]
    if swapped:
        sines, cosines = cosines, sines
    return [*sines, *cosines] if halves else [sines[0], cosines[0], sines[1], cosines[1]]


def _at(encoding: Values) -> list[float]:
    return [a + b for a, b in zip(MONEY, encoding, strict=True)]


def _divided(scores: Values, by: Number) -> list[float]:
    return softmax([score / by for score in scores])


FOUR = (112.0, 96.0, 16.0, 8.0)
LOOK_AHEAD = (1.9, 4.3, 18.7, 6.5, 7.2, 3.3)


def _visible(count: int, by: float = 8.0) -> list[float]:
    return _divided(LOOK_AHEAD[:count], by) + [0.0] * (len(LOOK_AHEAD) - count)


def _head(scale: float) -> list[float]:
    first, second = softmax([1 * scale, -1 * scale])
    return [first * 1 + second * -1, first * 0 + second * 1]


HYPOTHESIS, REFERENCE = "the the cat sat on the mat", "the cat sat on the mat today again"


def bleu(
    hypothesis: str,
    reference: str,
    *,
    clipped: bool = True,
    brief: bool = True,
    arithmetic: bool = False,
    orders: int = 4,
) -> float:
    """BLEU of one sentence, from 0 to 100, or what one of its parts left out would make of it."""
    said, wanted = hypothesis.split(), reference.split()
    precisions = []
    for order in range(1, orders + 1):
        counts, known = (
            Counter(tuple(words[i : i + order]) for i in range(len(words) - order + 1)) for words in (said, wanted)
        )
        found = sum(min(count, known[gram]) if clipped else count * (gram in known) for gram, count in counts.items())
        precisions.append(found / max(1, sum(counts.values())))
    if arithmetic:
        mean = sum(precisions) / orders
    else:
        mean = 0.0 if 0.0 in precisions else math.exp(sum(map(math.log, precisions)) / orders)
    short = len(said) < len(wanted)
    return 100 * mean * (math.exp(1 - len(wanted) / len(said)) if brief and short else 1.0)


BEAM = {"I": (0.6, {"am": 0.5, "have": 0.3, "was": 0.2}), "We": (0.4, {"are": 0.9, "have": 0.1})}


def _beam(score: Callable[[float, float], float]) -> list[float]:
    found = [score(first, then) for first, follow in BEAM.values() for then in follow.values()]
    return sorted(found, reverse=True)[:2]


def _normalised(values: Values, *, centred: bool = True, divisor: Number | None = None) -> list[float]:
    mean = sum(values) / len(values)
    total = sum((value - mean) ** 2 for value in values)
    deviation = math.sqrt(total / (len(values) if divisor is None else divisor))
    return [(value - (mean if centred else 0.0)) / deviation for value in values]


PROBABILITIES = (0.5, 0.25, 0.125)
ROW, TRUE = (0.01, 0.80, 0.10, 0.05, 0.01, 0.03), 1
FOUR_WEIGHTS = ("first", "second", "third", "fourth")

EXERCISES: dict[str, Exercise] = {
    "scores": Exercise(
        question="A query has the scores 6 and 4 with two keys, d_k is 16. What are the two attention weights?",
        names=("first", "second"),
        answer=lambda: _divided((6, 4), 4),
        slips={
            "the scores were not divided by sqrt(d_k) = 4": lambda: softmax((6, 4)),
            "divided by d_k = 16, not by its square root": lambda: _divided((6, 4), 16),
            "a sigmoid of each score: weights over keys are a softmax and sum to 1": lambda: [
                1 / (1 + math.exp(-score / 4)) for score in (6, 4)
            ],
            "the scores divided by their sum: no exponential was taken": lambda: [0.6, 0.4],
        },
        chapter="5-transformers-by-hand.md",
    ),
    "scaling": Exercise(
        question="Four scores 112, 96, 16 and 8, d_k is 64. What are the four attention weights?",
        names=FOUR_WEIGHTS,
        answer=lambda: _divided(FOUR, 8),
        slips={
            "the scores were not divided by sqrt(d_k) = 8: undivided, the first takes all": lambda: softmax(FOUR),
            "divided by d_k = 64, not by its square root": lambda: _divided(FOUR, 64),
            "rounded by eye: e^-12 is 6e-6, so nothing is left for the third": lambda: [0.87, 0.12, 0.01, 0.0],
            "the scores divided by their sum: no exponential was taken": lambda: [one / sum(FOUR) for one in FOUR],
        },
        chapter="4-attention-and-transformer-basics.md",
    ),
    "variance": Exercise(
        question="q and k have 64 independent entries of mean 0 and variance 1. What is the variance of q.k, and what "
        "after the division by sqrt(d_k)?",
        names=("before", "after"),
        answer=lambda: [64, 1],
        slips={
            "8 is the standard deviation; the variance is its square": lambda: [8, 1],
            "dividing by c divides the variance by c squared": lambda: [64, 8],
            "divided by d_k, not by its square root": lambda: [64, 1 / 64],
        },
        chapter="2-transformers-worked.md",
    ),
    "head": Exercise(
        question="Two words (0,1,1,1,1,0) and (1,1,0,-1,-1,1); one head takes features 1-2 as query, 3-4 as key, "
        "5-6 as value. What does it give for the first word?",
        names=("first", "second"),
        answer=lambda: _head(2**-0.5),
        slips={
            "the scores 1 and -1 were not divided by sqrt(2)": lambda: _head(1.0),
            "divided by d_k = 2, not by its square root": lambda: _head(0.5),
            "those are the weights: the values are still to be averaged by them": lambda: softmax(
                (2**-0.5, -(2**-0.5))
            ),
            "a mean of the two values: the weights were left out": lambda: [0.0, 0.5],
        },
        chapter="2-transformers-worked.md",
    ),
    "positions": Exercise(
        question="The word vector (0.41, 0.08, 0.51, 0.87) stands at PLACE, counted from 0. What is it after its "
        "sinusoidal position (d = 4, base 10000) was added?",
        names=("sin 0", "cos 0", "sin 1", "cos 1"),
        inputs=("PLACE",),
        answer=lambda place: _at(_sinusoids(place)),
        slips={
            "sine and cosine are swapped: the sine comes first": lambda place: _at(_sinusoids(place, swapped=True)),
            "the angle was taken in degrees: it is in radians": lambda place: _at(_sinusoids(place, degrees=True)),
            "off by one: that is the place after; places are counted from 0": lambda place: _at(_sinusoids(place + 1)),
            "off by one: that is the place before": lambda place: _at(_sinusoids(place - 1)),
            "the exponents were counted from 1: pair j has 10000^(2j/d), j from 0": lambda place: _at(
                _sinusoids(place, first=1)
            ),
            "all sines come before all cosines: asked for is sine, cosine, sine, cosine": lambda place: _at(
                _sinusoids(place, halves=True)
            ),
            "that is the position alone: it is added to the word": _sinusoids,
            "that is the word alone: its position is added to it": lambda place: MONEY,
        },
        chapter="5-transformers-by-hand.md",
    ),
    "frequencies": Exercise(
        question="At d = 4, how fast do the two pairs of a sinusoidal position turn, in radians per place?",
        names=("pair 0", "pair 1"),
        answer=lambda: [1, 0.01],
        decimals=4,
        slips={
            "the exponents were counted from 1: pair j has 10000^(-2j/d), j from 0": lambda: [0.01, 0.0001],
            "10000^(-j/d): the exponent is 2j/d": lambda: [1, 0.1],
            "those are the divisors: the frequency is one over them": lambda: [1, 100],
        },
        chapter="2-transformers-worked.md",
    ),
    "mask": Exercise(
        question="Causal attention, d_k 64; the third of six tokens has the scores 1.9 4.3 18.7 6.5 7.2 3.3. What "
        "are its six weights?",
        names=("first", "second", "third", "fourth", "fifth", "sixth"),
        answer=lambda: _visible(3),
        slips={
            "no mask: a token may not see those after it": lambda: _visible(6),
            "it does not see itself: the mask hides what comes after, not the token": lambda: _visible(2),
            "the scores were not divided by sqrt(d_k) = 8": lambda: _visible(3, 1.0),
            "0 instead of minus infinity before the softmax: exp(0) is 1": lambda: _divided(
                (*LOOK_AHEAD[:3], 0, 0, 0), 8
            ),
            "masked after the softmax: what is left must sum to 1": lambda: _divided(LOOK_AHEAD, 8)[:3] + [0.0] * 3,
            "0.06 0.16 0.78 is a table that no d_k gives": lambda: [0.06, 0.16, 0.78, 0, 0, 0],
        },
        chapter="5-transformers-by-hand.md",
    ),
    "cross-entropy": Exercise(
        question="A model gives six words 0.01 0.80 0.10 0.05 0.01 0.03; the second is the true one. What is the "
        "loss, in nats?",
        names=("loss",),
        answer=lambda: [-math.log(ROW[TRUE])],
        slips={
            "the logarithm was taken to base 2: that is bits": lambda: [-math.log2(ROW[TRUE])],
            "the logarithm was taken to base 10": lambda: [-math.log10(ROW[TRUE])],
            "1 - p, one distribution subtracted from the other: that is the gradient at the logit": lambda: [
                1 - ROW[TRUE]
            ],
            "the sign: a loss is minus the log-probability": lambda: [math.log(ROW[TRUE])],
            "that is the probability: the loss is minus its logarithm": lambda: [ROW[TRUE]],
            "divided by six: only the true word counts": lambda: [-math.log(ROW[TRUE]) / 6],
        },
        chapter="1-neural-attention.md",
    ),
    "perplexity": Exercise(
        question="A language model gave the three tokens of a text the probabilities 0.5, 0.25 and 0.125. What is its "
        "perplexity?",
        names=("perplexity",),
        answer=lambda: [math.exp(-sum(map(math.log, PROBABILITIES)) / 3)],
        slips={
            "log base: the mean was in bits, the power of e": lambda: [math.exp(2.0)],
            "log base: the mean was in nats, the power of 2": lambda: [2 ** math.log(4)],
            "the sum, not the mean, of the log-probabilities": lambda: [64],
            "the mean of 1/p: the mean is over logarithms": lambda: [sum(1 / p for p in PROBABILITIES) / 3],
            "one over the mean probability: the mean is over logarithms": lambda: [3 / sum(PROBABILITIES)],
            "that is the mean loss: the perplexity is its exponential": lambda: [math.log(4)],
        },
        chapter="4-attention-and-transformer-basics.md",
    ),
    "bleu": Exercise(
        question=f"Hypothesis '{HYPOTHESIS}', reference '{REFERENCE}'. What is BLEU, from 0 to 100?",
        names=("BLEU",),
        answer=lambda: [bleu(HYPOTHESIS, REFERENCE)],
        decimals=1,
        slips={
            "no brevity penalty: 7 words for 8": lambda: [bleu(HYPOTHESIS, REFERENCE, brief=False)],
            "no clipping: a word counts as often as the reference has it": lambda: [
                bleu(HYPOTHESIS, REFERENCE, clipped=False)
            ],
            "the arithmetic mean of the precisions: BLEU takes the geometric": lambda: [
                bleu(HYPOTHESIS, REFERENCE, arithmetic=True)
            ],
            "words alone: BLEU takes n-grams up to four": lambda: [bleu(HYPOTHESIS, REFERENCE, orders=1)],
            "neither clipped nor penalised": lambda: [bleu(HYPOTHESIS, REFERENCE, clipped=False, brief=False)],
            "from 0 to 1: asked for is 0 to 100": lambda: [bleu(HYPOTHESIS, REFERENCE) / 100],
        },
        chapter="1-neural-attention.md",
    ),
    "beam": Exercise(
        question="Beam 2. After 'I' (0.6): am 0.5, have 0.3, was 0.2. After 'We' (0.4): are 0.9, have 0.1. What are "
        "the log-probabilities of the two that are kept, best first?",
        names=("best", "second"),
        answer=lambda: _beam(lambda first, then: math.log(first) + math.log(then)),
        slips={
            "greedy: both continue 'I'; the beam keeps the best over all prefixes": lambda: [
                math.log(0.6 * 0.5),
                math.log(0.6 * 0.3),
            ],
            "the last token alone: the log-probability of the prefix is added": lambda: _beam(
                lambda first, then: math.log(then)
            ),
            "those are probabilities: asked for are their logarithms": lambda: _beam(lambda first, then: first * then),
            "the logarithm was taken to base 10": lambda: _beam(lambda first, then: math.log10(first * then)),
            "the logarithm was taken to base 2": lambda: _beam(lambda first, then: math.log2(first * then)),
            "best first: the higher log-probability is the one nearer to 0": lambda: [math.log(0.30), math.log(0.36)],
        },
        chapter="1-neural-attention.md",
    ),
    "parameters": Exercise(
        question="Multi-head attention, WIDTH wide with HEADS heads that share the width, no biases. How many "
        "parameters?",
        names=("parameters",),
        inputs=("WIDTH", "HEADS"),
        answer=lambda width, heads: [4 * width * width],
        decimals=0,
        slips={
            "the output matrix is left out: it is WIDTH x WIDTH too": lambda width, heads: [3 * width * width],
            "with biases: asked for is without": lambda width, heads: [4 * width * width + 4 * width],
            "every head as wide as the model: a head is WIDTH / HEADS wide": lambda width, heads: [
                (3 * heads + 1) * width * width
            ],
            "one head alone": lambda width, heads: [3 * width * width / max(1, heads) + width * width],
        },
        chapter="2-transformers-worked.md",
    ),
    "layer-norm": Exercise(
        question="LayerNorm of (1, 2, 3, 4), scale 1, shift 0, epsilon negligible. What comes out?",
        names=FOUR_WEIGHTS,
        answer=lambda: _normalised((1, 2, 3, 4)),
        slips={
            "the variance was divided by D - 1: LayerNorm divides by D": lambda: _normalised((1, 2, 3, 4), divisor=3),
            "the variance is a mean, not a sum: the 1/D is missing": lambda: _normalised((1, 2, 3, 4), divisor=1),
            "the mean was not subtracted": lambda: _normalised((1, 2, 3, 4), centred=False),
            "divided by the variance, not by the standard deviation": lambda: [-1.2, -0.4, 0.4, 1.2],
        },
        chapter="3-attention-for-sequences.md",
    ),
    "lstm": Exercise(
        question="One LSTM cell: f = 0.9, i = 0.5, o = 0.5, g = -0.4, and c was 2. What are the new c and h?",
        names=("c", "h"),
        answer=lambda: [1.6, 0.5 * math.tanh(1.6)],
        slips={
            "forget and input gate are swapped: f is for the old cell": lambda: [0.64, 0.5 * math.tanh(0.64)],
            "h is o times the tanh of c: the tanh is missing": lambda: [1.6, 0.8],
            "h from the old cell: the new one is shown": lambda: [1.6, 0.5 * math.tanh(2)],
            "1 - f: the forget gate is what is kept": lambda: [0.0, 0.0],
        },
        chapter="3-attention-for-sequences.md",
    ),
    "gru": Exercise(
        question="One GRU cell, as torch has it: z = 0.8, h was 0.5, the candidate is -1. What is the new h?",
        names=("h",),
        answer=lambda: [0.8 * 0.5 + 0.2 * -1],
        slips={
            "z writes the new state in MUT1-3; in a GRU it keeps the old one": lambda: [0.2 * 0.5 + 0.8 * -1],
            "z and 1 - z belong together: one of them is missing": lambda: [0.8 * 0.5 - 1],
        },
        chapter="3-attention-for-sequences.md",
    ),
    "masked-tokens": Exercise(
        question="BERT's masked language model, 1000 tokens. How many become [MASK], how many a random token, how many "
        "are chosen and stay, and on how many is the loss?",
        names=("masked", "random", "kept", "loss"),
        answer=lambda: [120, 15, 15, 150],
        decimals=0,
        slips={
            "not all that are chosen become [MASK]: 80 % of the 15 % do": lambda: [150, 0, 0, 150],
            "80, 10 and 10 % are of the 15 %, not of all": lambda: [800, 100, 100, 1000],
            "the loss is on all that are chosen, also on those left as they are": lambda: [120, 15, 15, 120],
            "the loss is on those that were left as they are, too": lambda: [120, 15, 15, 135],
        },
        chapter="4-attention-and-transformer-basics.md",
    ),
    "patches": Exercise(
        question="A Vision Transformer cuts 224 x 224 pixels into patches of 16 x 16. How many vectors does its first "
        "block read, and how many numbers has a patch in colour?",
        names=("vectors", "numbers"),
        answer=lambda: [197, 768],
        decimals=0,
        slips={
            "the class token is missing: it is read beside the patches": lambda: [196, 768],
            "14 is one side: patches tile both": lambda: [14, 768],
            "three channels: the patch is 16 x 16 x 3": lambda: [197, 256],
        },
        chapter="3-attention-for-sequences.md",
    ),
}
"""By name, in the order of the companion's ideas."""
