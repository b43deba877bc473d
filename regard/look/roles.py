"""Roles of attention heads: questions whose right answer is a place to look at, and how often each head looks there.

A role is a kind of question. "Previous" asks every word for the word before it; "pronoun" asks every pronoun for the
noun it means. A head answers with the place it weighs most. It has a role when it answers that kind of question better
than a fixed rule can, by more than heads of untrained models ever did.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.config import JsonObject
from regard.errors import DataError

MIN_QUESTIONS = 30
"""A role with fewer questions than this is not considered."""

MIN_MARGIN, MIN_SCALE = 0.2, 0.05
"""However little untrained models reach, a head this close to its baseline has no role; and the least they reach."""

POSITIONAL = ("previous", "next", "same", "first", "separator", "left", "right", "above", "below")
"""Roles that are themselves fixed rules, so that only chance is held against them."""


@dataclass(frozen=True, slots=True)
class RoleQuestion:
    """Where should `query` look? At one of `answers`, of `visible` places in all."""

    role: str
    query: int
    answers: frozenset[int]
    visible: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """How often a head looked where a role says, with a 95 % interval that allows for likeness within a sentence.

    `baseline` is what the best rule without a model gets: `rule` is chance, the same offset from every query, or the
    same place in every sentence, counted from the start or, below zero, from the end.
    """

    role: str
    questions: int
    accuracy: float
    low: float
    high: float
    baseline: float
    rule: str

    @property
    def margin(self) -> float:
        """How far above its baseline the head surely is."""
        return self.low - self.baseline

    def to_mapping(self) -> JsonObject:
        return {**asdict(self), "margin": self.margin}


def by_position(places: int, *, causal: bool = False) -> Iterator[RoleQuestion]:
    """The neighbours of each place, and itself. Those next to the last place, a special one, are not asked for it."""
    for query in range(places):
        visible = query + 1 if causal else places
        if query >= 1:
            yield RoleQuestion("previous", query, frozenset({query - 1}), visible)
        if query + 2 < places and not causal:
            yield RoleQuestion("next", query, frozenset({query + 1}), visible)
        yield RoleQuestion("same", query, frozenset({query}), visible)


def on_grid(rows: int, columns: int, first: int = 0) -> Iterator[RoleQuestion]:
    """The four neighbours of each patch of an image, and itself; patches come after `first` other places."""
    places = first + rows * columns
    sides = {"left": (0, -1), "right": (0, 1), "above": (-1, 0), "below": (1, 0), "same": (0, 0)}
    for row in range(rows):
        for column in range(columns):
            for role, (down, across) in sides.items():
                y, x = row + down, column + across
                if 0 <= y < rows and 0 <= x < columns:
                    answer = frozenset({first + y * columns + x})
                    yield RoleQuestion(role, first + row * columns + column, answer, places)


def at_landmarks(queries: int, places: int, *, apart: bool, causal: bool = False) -> Iterator[RoleQuestion]:
    """The first place and the separator, which is the last. `apart` leaves out queries beside them, or on them."""
    for query in range(queries):
        visible = query + 1 if causal else places
        if query >= 2 or not apart:
            yield RoleQuestion("first", query, frozenset({0}), visible)
        if not causal and (query + 2 < places or not apart):
            yield RoleQuestion("separator", query, frozenset({places - 1}), visible)


def at_rare(
    words: Sequence[str], counts: Mapping[str, int], queries: int, *, apart: bool, places: int
) -> Iterator[RoleQuestion]:
    """The word that is rarest by `counts`, or all of them where several are. Punctuation is no word."""
    often = {place: counts.get(word, 0) for place, word in enumerate(words) if any(letter.isalnum() for letter in word)}
    if not often:
        return
    rarest = frozenset(place for place, count in often.items() if count == min(often.values()))
    for query in range(queries):
        if not (apart and query in rarest):
            yield RoleQuestion("rare", query, rarest, places)


def at_separators(separators: Sequence[int], places: int) -> Iterator[RoleQuestion]:
    """Any of several separators, asked of places that are not beside one."""
    for query in range(places):
        if all(abs(query - place) > 1 for place in separators):
            yield RoleQuestion("separator", query, frozenset(separators), places)


def by_sentence(parts: Sequence[int], near: int = 2) -> Iterator[RoleQuestion]:
    """At the border of two sentences, a place of the query's own that is further off than its neighbours.

    `parts` says of which sentence each place is, 0 or 1, or -1 of neither. As many queries stand before the border as
    after it, so that no offset is right more than half of the time.
    """
    first = [place for place, part in enumerate(parts) if part == 0]
    second = [place for place, part in enumerate(parts) if part == 1]
    if min(len(first), len(second)) <= 2 * near:
        return
    for queries, own in ((first[-near:], first), (second[:near], second)):
        for query in queries:
            answers = frozenset(place for place in own if abs(place - query) > near)
            yield RoleQuestion("same sentence", query, answers, len(parts))


def by_repetition(tokens: Sequence[Hashable], start: int = 0) -> Iterator[RoleQuestion]:
    """Of a token that came before: where it stood ("duplicate"), and what followed it there ("induction").

    Only queries from `start` on are asked. Nobody sees what comes later.
    """
    earlier: dict[Hashable, list[int]] = {}
    for query, token in enumerate(tokens):
        before = earlier.setdefault(token, [])
        after = frozenset(place + 1 for place in before if place + 1 < query)
        if query >= start and before:
            yield RoleQuestion("duplicate", query, frozenset(before), query + 1)
            if after:
                yield RoleQuestion("induction", query, after, query + 1)
        before.append(query)


def by_relation(heads: Sequence[int], relations: Sequence[str], places: int) -> Iterator[RoleQuestion]:
    """For each dependency its head, and for each head its dependents of that kind."""
    below: dict[tuple[int, str], set[int]] = {}
    for word, (head, relation) in enumerate(zip(heads, relations, strict=True)):
        if head >= 0:
            yield RoleQuestion(f"{relation} to its head", word, frozenset({head}), places)
            below.setdefault((head, relation), set()).add(word)
    for (head, relation), words in below.items():
        yield RoleQuestion(f"head to its {relation}", head, frozenset(words), places)


def by_alignment(pairs: Iterable[tuple[int, int]], places: int) -> Iterator[RoleQuestion]:
    """For each target word the source words that it translates."""
    sources: dict[int, set[int]] = {}
    for source, target in pairs:
        sources.setdefault(target, set()).add(source)
    for target, words in sources.items():
        yield RoleQuestion("alignment", target, frozenset(words), places)


class Quiz:
    """The questions of many sentences, laid out once, with what rules that know no model get of each role right.

    `places` are how many places each sentence has to look at.
    """

    def __init__(self, sentences: Sequence[Sequence[RoleQuestion]], places: Sequence[int]) -> None:
        names = dict.fromkeys(question.role for questions in sentences for question in questions)
        self.roles = list(names)
        number = {role: index for index, role in enumerate(self.roles)}
        self.sheets = [
            _Sheet.of(sorted(questions, key=lambda one: number[one.role]), number, size)
            for questions, size in zip(sentences, places, strict=True)
        ]
        self.asked, self.squares, chance = (np.zeros(len(self.roles)) for _ in range(3))
        rules: list[Counter[str]] = [Counter() for _ in self.roles]
        for questions, size, sheet in zip(sentences, places, self.sheets, strict=True):
            self.asked[sheet.roles] += sheet.counts
            self.squares[sheet.roles] += sheet.counts**2
            for one in questions:
                chance[number[one.role]] += len(one.answers) / one.visible
                if one.role not in POSITIONAL:
                    for answer in one.answers:
                        own = (f"offset {answer - one.query:+d}", f"place {answer}", f"place {answer - size}")
                        rules[number[one.role]].update(own)
        self.chances = [float(one) for one in chance / np.maximum(self.asked, 1)]
        self.baselines = [
            max([(chance[index] / self.asked[index], "chance")] + [(n / self.asked[index], rule) for rule, n in best])
            for index, best in enumerate(counts.most_common(1) for counts in rules)
        ]


@dataclass(frozen=True, slots=True)
class _Sheet:
    """One sentence's questions in order of role: who is asked, what is right, and where each role begins."""

    queries: Int[np.ndarray, " N"]
    right: Bool[np.ndarray, "N S"]
    starts: Int[np.ndarray, " R"]
    roles: Int[np.ndarray, " R"]
    counts: Float[np.ndarray, " R"]

    @classmethod
    def of(cls, questions: Sequence[RoleQuestion], number: Mapping[str, int], places: int) -> "_Sheet":
        right = np.zeros((len(questions), places), dtype=bool)
        for row, question in enumerate(questions):
            right[row, list(question.answers)] = True
        kinds = np.array([number[question.role] for question in questions], dtype=np.int64)
        roles, starts, counts = np.unique(kinds, return_index=True, return_counts=True)
        queries = np.array([question.query for question in questions], dtype=np.int64)
        return cls(queries, right, starts, roles, counts.astype(float))


class RoleCounts:
    """The answers of all heads of one attention to a quiz, added up sentence by sentence."""

    def __init__(self, quiz: Quiz) -> None:
        self.quiz = quiz
        self._sums: np.ndarray | None = None

    def add(self, sentence: int, weights: Float[Tensor, "H T S"]) -> None:
        """Read a sentence's answers off its weights: the place that each query weighs most, the first of equals."""
        sheet = self.quiz.sheets[sentence]
        if self._sums is None:
            # For each role and head: answers that were right, their squares, and right answers times questions.
            self._sums = np.zeros((3, len(self.quiz.roles), weights.shape[0]))
        if not len(sheet.queries):
            return
        answered = weights.numpy().argmax(-1)[:, sheet.queries]
        right = sheet.right[np.arange(len(sheet.queries)), answered]
        hits = np.add.reduceat(right.astype(float), sheet.starts, axis=1).T
        self._sums[:, sheet.roles] += np.stack([hits, hits**2, hits * sheet.counts[:, None]])

    @property
    def roles(self) -> list[str]:
        """The roles with enough questions to be considered."""
        return [role for role, asked in zip(self.quiz.roles, self.quiz.asked, strict=True) if asked >= MIN_QUESTIONS]

    def evidence(self, role: str) -> list[Evidence]:
        """How well each head does at a role."""
        if role not in self.quiz.roles or self._sums is None:
            raise DataError(f"nothing was asked about '{role}'")
        index = self.quiz.roles.index(role)
        asked, squares = self.quiz.asked[index], self.quiz.squares[index]
        baseline, rule = self.quiz.baselines[index]
        found = []
        for hits, hits_squared, hits_asked in self._sums[:, index].T:
            share = hits / asked
            spread = (hits_squared - 2 * share * hits_asked + share**2 * squares) / asked**2
            low, high = interval(share, asked, spread)
            found.append(
                Evidence(
                    role=role,
                    questions=int(asked),
                    accuracy=float(share),
                    low=low,
                    high=high,
                    baseline=float(baseline),
                    rule=rule,
                )
            )
        return found


def interval(share: float, count: float, variance: float) -> tuple[float, float]:
    """Wilson's 95 % interval of a share of `count`, as if there were fewer where `variance` says they go together."""
    alone = share * (1 - share) / count
    if alone > 0:
        count = count / max(1.0, variance / alone)
    z = 1.96
    middle = (share + z**2 / (2 * count)) / (1 + z**2 / count)
    reach = z / (1 + z**2 / count) * (share * (1 - share) / count + z**2 / (4 * count**2)) ** 0.5
    return float(max(0.0, middle - reach)), float(min(1.0, middle + reach))


@dataclass(frozen=True, slots=True)
class HeadRoles:
    """The role that a head did best at on some sentences, with its evidence on others; and that of every other role."""

    best: Evidence
    others: tuple[Evidence, ...]

    @property
    def all(self) -> tuple[Evidence, ...]:
        return (self.best, *self.others)


def roles_of_heads(choosing: RoleCounts, reporting: RoleCounts) -> list[HeadRoles]:
    """For each head its roles: chosen by their margins on one half of the sentences, reported on the other."""
    known = set(reporting.roles)
    roles = [role for role in choosing.roles if role in known]
    if not roles:
        raise DataError(f"no role has {MIN_QUESTIONS} questions: more sentences are needed")
    margins = np.array([[one.margin for one in choosing.evidence(role)] for role in roles])
    reported = [reporting.evidence(role) for role in roles]
    found = []
    for head, best in enumerate(margins.argmax(0)):
        others = [one[head] for index, one in enumerate(reported) if index != best]
        others.sort(key=lambda one: -one.margin)
        found.append(HeadRoles(reported[best][head], tuple(others)))
    return found


def largest_margins(heads: Iterable[HeadRoles]) -> dict[str, float]:
    """For each role the best that any head does at it."""
    largest: dict[str, float] = {}
    for head in heads:
        for one in head.all:
            largest[one.role] = max(one.margin, largest.get(one.role, one.margin))
    return largest


def thresholds(scaling: Sequence[Mapping[str, float]], judging: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """For each role the margin that a head must exceed, from the largest margins of untrained models.

    `scaling` says how high untrained models reach at each role: far at looking to the first place, hardly at all at
    following a pronoun. `judging` says by how many times that much the best head at any role goes beyond. A further
    untrained model goes beyond all of N in `judging`, at whatever role, with a chance of at most 1 in N + 1.
    """
    roles = dict.fromkeys(role for model in (*scaling, *judging) for role in model)
    scale = {role: max([MIN_SCALE, *(model.get(role, 0.0) for model in scaling)]) for role in roles}
    times = max((margin / scale[role] for model in judging for role, margin in model.items()), default=0.0)
    return {role: max(MIN_MARGIN, times * scale[role]) for role in roles}
