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
    words = [word for value in values for word in re.split(r"[\s,;()\[\]]+", value) if word]
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


def _ways_to_score(*, by: Number = 2**0.5, norms: Number = 5**0.5 * 5) -> list[float]:
    """Dot, scaled dot and cosine of (1, 2) and (3, 4), whose product is 11."""
    return [11.0, 11 / by, 11 / norms]


def _mixed(weights: Values) -> list[float]:
    """The average of (1, 0), (0, 1) and (1, 1) by these weights."""
    return [float(weights[0] + weights[2]), float(weights[1] + weights[2])]


TRUE_WORDS = (0.93, 0.80, 0.99, 0.94, 0.98)


def _feed_forward(
    *, bent: bool = True, first: Values = (0.0, 1.0), last: float = -3.0, again: bool = False
) -> list[float]:
    hidden = [1 * 1 + -1 * 3 + first[0], 1 * 2 + -1 * -1 + first[1]]
    hidden = [max(0.0, one) for one in hidden] if bent else hidden
    output = 5 * hidden[0] + 0.5 * hidden[1] + last
    return [max(0.0, output) if again else output]


def _turn(angle: Number) -> list[float]:
    return [math.cos(angle), math.sin(angle), -math.sin(angle), math.cos(angle)]


def _looked_up(sharpness: Number) -> list[float]:
    return [sum(w * v for w, v in zip(softmax((0.0, 0.0, sharpness)), (10, 20, 30), strict=True))]


INPUTS, LABELS = (0, 1, 2, 3, 4), (1, 2, 3, 4, 5)


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
    "alignment-scores": Exercise(
        question="A decoder's state is (1, 2), an encoder's (3, 4). What are their dot, scaled dot and cosine scores?",
        names=("dot", "scaled", "cosine"),
        answer=_ways_to_score,
        slips={
            "divided by the width 2, not by its square root": lambda: _ways_to_score(by=2),
            "the cosine divides by both lengths: one is missing": lambda: _ways_to_score(norms=5),
            "the cosine divides by both lengths: that of (3, 4) is missing": lambda: _ways_to_score(norms=5**0.5),
        },
        chapter="1-neural-attention.md",
    ),
    "context": Exercise(
        question="Three encoder states (1, 0), (0, 1) and (1, 1) have the weights 0.7, 0.2 and 0.1. What is the "
        "context?",
        names=("first", "second"),
        answer=lambda: _mixed((0.7, 0.2, 0.1)),
        slips={
            "the state of the largest weight alone: that is pointing, not an average": lambda: [1, 0],
            "a plain mean: the weights were left out": lambda: _mixed((1 / 3, 1 / 3, 1 / 3)),
            "a plain sum: the weights were left out": lambda: _mixed((1, 1, 1)),
        },
        chapter="1-neural-attention.md",
    ),
    "softmax": Exercise(
        question="The last layer gives a vocabulary of three words the logits 2, 1 and 0.1. What are the "
        "probabilities?",
        names=("first", "second", "third"),
        answer=lambda: softmax((2, 1, 0.1)),
        slips={
            "the logits divided by their sum: no exponential was taken": lambda: [2 / 3.1, 1 / 3.1, 0.1 / 3.1],
            "a sigmoid of each: the probabilities of a vocabulary sum to 1": lambda: [
                1 / (1 + math.exp(-one)) for one in (2, 1, 0.1)
            ],
            "powers of 2: the softmax takes those of e": lambda: [
                2**one / sum(2**each for each in (2, 1, 0.1)) for one in (2, 1, 0.1)
            ],
            "the exponentials alone: they are divided by their sum": lambda: [math.exp(one) for one in (2, 1, 0.1)],
        },
        chapter="1-neural-attention.md",
    ),
    "mean-loss": Exercise(
        question="A model gave the five true words of a sentence 0.93, 0.80, 0.99, 0.94 and 0.98. What is its mean "
        "cross-entropy, in nats?",
        names=("loss",),
        answer=lambda: [-sum(map(math.log, TRUE_WORDS)) / 5],
        decimals=4,
        slips={
            "the logarithm of the mean: the mean is over logarithms": lambda: [-math.log(sum(TRUE_WORDS) / 5)],
            "the sum over the words: asked for is the mean": lambda: [-sum(map(math.log, TRUE_WORDS))],
            "the logarithm was taken to base 2: that is bits": lambda: [-sum(map(math.log2, TRUE_WORDS)) / 5],
            "1 - p: that is the gradient at the logit": lambda: [1 - sum(TRUE_WORDS) / 5],
        },
        chapter="1-neural-attention.md",
    ),
    "pointer": Exercise(
        question="A pointer network sorts 31, 4, 15, 9, smallest first. At which places, counted from 0, does it "
        "point?",
        names=("first", "second", "third", "fourth"),
        answer=lambda: [1, 3, 2, 0],
        decimals=0,
        slips={
            "those are the numbers: a pointer network gives places of its input": lambda: [4, 9, 15, 31],
            "counted from 1: the first place is 0": lambda: [2, 4, 3, 1],
            "those are ranks, where each number goes: asked for is where each one comes from": lambda: [3, 0, 2, 1],
            "largest first": lambda: [0, 2, 3, 1],
        },
        chapter="1-neural-attention.md",
    ),
    "feed-forward": Exercise(
        question="A feed-forward layer: x = (1, -1), W1 has the rows (1, 2) and (3, -1), b1 = (0, 1), W2 = (5, 0.5), "
        "b2 = -3, with a ReLU in between. What comes out?",
        names=("output",),
        answer=_feed_forward,
        slips={
            "the ReLU is missing: without it two layers are one": lambda: _feed_forward(bent=False),
            "a ReLU at the end too: it stands only between the two": lambda: _feed_forward(again=True),
            "b1 is missing": lambda: _feed_forward(first=(0.0, 0.0)),
            "b2 is missing": lambda: _feed_forward(last=0.0),
        },
        chapter="2-transformers-worked.md",
    ),
    "residual": Exercise(
        question="Three layers whose own derivative is 0.1 each. What is the gradient through all of them without "
        "residual sums, and with them?",
        names=("without", "with"),
        answer=lambda: [0.001, 1.331],
        slips={
            "one sum around all three: there is one around each layer, 1.1 three times": lambda: [0.001, 1.001],
            "added along the way: derivatives of layers are multiplied": lambda: [0.3, 1.3],
            "the sum hands the gradient on beside the layer's own: 1 + 0.1, not 1": lambda: [0.001, 1.0],
        },
        chapter="2-transformers-worked.md",
    ),
    "gradient": Exercise(
        question="A vanilla RNN of one unit: its weight from step to step is 1.2, tanh' is 0.5 at every step. By "
        "what is "
        "the gradient multiplied over four steps back?",
        names=("factor",),
        answer=lambda: [0.6**4],
        slips={
            "the weight alone: tanh' is a factor of every step too": lambda: [1.2**4],
            "tanh' alone: the weight is a factor of every step too": lambda: [0.5**4],
            "four times the factor of a step: steps are multiplied": lambda: [4 * 0.6],
            "three steps: asked for are four": lambda: [0.6**3],
        },
        chapter="3-attention-for-sequences.md",
    ),
    "equivariance": Exercise(
        question="Self-attention without positions gives 10, 20 and 30 for the tokens a, b and c. What does it give "
        "for "
        "c, a, b?",
        names=("first", "second", "third"),
        answer=lambda: [30, 10, 20],
        decimals=0,
        slips={
            "as if it were invariant: permuted inputs give permuted outputs": lambda: [10, 20, 30],
            "permuted the other way round: the first token is now c": lambda: [20, 30, 10],
        },
        chapter="3-attention-for-sequences.md",
    ),
    "convolutions": Exercise(
        question="Causal convolutions over 9 positions, stacked, not dilated. How many layers until the last of 128 "
        "tokens sees the first?",
        names=("layers",),
        answer=lambda: [math.ceil(127 / 8)],
        decimals=0,
        slips={
            "128 / 9: a layer of 9 positions reaches back 8": lambda: [math.ceil(128 / 9)],
            "dilated: their reach is multiplied by each layer, here it is added": lambda: [math.ceil(math.log(128, 9))],
            "as if centred: a causal one looks back with all of its window": lambda: [math.ceil(127 / 4)],
            "one layer: that is attention": lambda: [1],
        },
        chapter="3-attention-for-sequences.md",
    ),
    "cosine": Exercise(
        question="Two word vectors (3, 4) and (4, 3). What is their cosine similarity?",
        names=("cosine",),
        answer=lambda: [0.96],
        slips={
            "the dot product: it is divided by both lengths": lambda: [24],
            "divided by one length: both are 5": lambda: [4.8],
            "the Euclidean distance": lambda: [2**0.5],
            "one minus it: that is the cosine distance": lambda: [0.04],
        },
        chapter="4-attention-and-transformer-basics.md",
    ),
    "kv-cache": Exercise(
        question="A text of 20 tokens. How many calls of the model does training on it take, how many writing it "
        "token by "
        "token; and how many keys does a layer compute in writing, with a KV cache and without?",
        names=("training", "writing", "with a cache", "without"),
        answer=lambda: [1, 20, 20, 210],
        decimals=0,
        slips={
            "writing is not parallel: each token waits for the one before": lambda: [1, 1, 20, 20],
            "training reads all true tokens at once": lambda: [20, 20, 20, 210],
            "without a cache call n computes the keys of n tokens: 1 + 2 + ... + 20": lambda: [1, 20, 20, 400],
            "a cache saves the keys of all calls before: each adds one": lambda: [1, 20, 1, 210],
        },
        chapter="4-attention-and-transformer-basics.md",
    ),
    "look-up": Exercise(
        question="Keys (1,0,0), (0,1,0) and (0,0,1) with the values 10, 20 and 30; the query is (0,0,1), d_k is 3. "
        "What "
        "does scaled dot-product attention return?",
        names=("value",),
        answer=lambda: _looked_up(3**-0.5),
        decimals=2,
        slips={
            "the score was not divided by sqrt(3)": lambda: _looked_up(1.0),
            "that is a database: attention averages all values": lambda: [30],
            "a plain mean: the weights were left out": lambda: [20],
        },
        chapter="5-transformers-by-hand.md",
    ),
    "rotation": Exercise(
        question="A pair of a sinusoidal position is (sin i, cos i). Which matrix takes it to that of place i + 2? Its "
        "entries, row by row.",
        names=("first", "second", "third", "fourth"),
        answer=lambda: _turn(2),
        slips={
            "the other way round: that takes it two places back": lambda: _turn(-2),
            "the angle was taken in degrees: it is in radians": lambda: _turn(math.radians(2)),
            "one place: the offset is 2": lambda: _turn(1),
        },
        chapter="5-transformers-by-hand.md",
    ),
    "teacher-forcing": Exercise(
        question="The target is <start> not on your life <end>, as tokens 0 to 5. Which five does the decoder read in "
        "training, and which five is it to predict?",
        names=(*(f"input {n}" for n in range(1, 6)), *(f"label {n}" for n in range(1, 6))),
        answer=lambda: [*INPUTS, *LABELS],
        decimals=0,
        slips={
            "<end> is never read: the inputs are the target without its last token": lambda: [*LABELS, *LABELS],
            "not shifted: it would predict what it has just read": lambda: [*INPUTS, *INPUTS],
            "inputs and labels are swapped": lambda: [*LABELS, *INPUTS],
        },
        chapter="5-transformers-by-hand.md",
    ),
    "cost": Exercise(
        question="An encoder of 6 layers with 8 heads reads TOKENS tokens. How many attention weights are there?",
        names=("weights",),
        inputs=("TOKENS",),
        answer=lambda tokens: [48 * tokens**2],
        decimals=0,
        slips={
            "one head of one layer": lambda tokens: [tokens**2],
            "one layer": lambda tokens: [8 * tokens**2],
            "one head per layer: every head has weights of its own": lambda tokens: [6 * tokens**2],
            "a causal half: an encoder sees both sides": lambda tokens: [24 * tokens * (tokens + 1)],
            "linear: every token has a weight for every token": lambda tokens: [48 * tokens],
        },
        chapter="5-transformers-by-hand.md",
    ),
}
"""By name."""
