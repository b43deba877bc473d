"""Text in, text out: a model with its vocabularies, decoding many sentences at a time."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, cast

import torch
from torch import nn

from regard.data.synthetic.world import spans
from regard.decode.beam import Candidates, beam_search
from regard.decode.config import DecodeConfig
from regard.decode.constraints import unwanted
from regard.decode.search import in_batches, search
from regard.decode.stepper import Hypothesis, Stepper
from regard.errors import DataError
from regard.look.alignment import words_of_pieces
from regard.nn.batch import Pairs, Tokens
from regard.nn.copy_mechanism import CopyProjection
from regard.tasks.run import Run
from regard.tasks.verbs.translate import Overlong, Translation
from regard.text import Tokenizer, Vocabularies
from regard.text.vocabularies import extended

Row = tuple[int, list[int], Tokenizer, int]
"""The number that decides what is sampled, the tokens of a source, what turns its translation to text, and which of the
sentences it is of."""

Gone = Callable[[int], bool]
"""Whether nobody waits any more for the sentence at this place."""

BUDGET = 4096
"""Source tokens of one batch."""


class Translator:
    """Decodes with a model that steps from a source: `Stepper` is all it knows of it."""

    def __init__(self, model: nn.Module, vocabularies: Vocabularies, config: DecodeConfig, max_len: int) -> None:
        self.model, self.vocabularies, self.config, self.max_len = model, vocabularies, config, max_len
        self._stepper = cast("Stepper[Any]", model)
        self.copies = any(isinstance(part, CopyProjection) for part in model.children())

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    def check(self, config: DecodeConfig) -> None:
        """Refuse by name a setting that cannot be searched by; here all can."""

    def translate(
        self,
        sentences: Sequence[str],
        config: DecodeConfig | None = None,
        *,
        overlong: Overlong = "split",
        before: int = 0,
        budget: int = BUDGET,
        numbers: Sequence[int] | None = None,
        gone: Gone | None = None,
    ) -> list[list[Translation]]:
        """The `top_beams` best translations (or `samples`) of each sentence, best first, in the order given.

        A blank sentence has blank translations. One longer than the model can read is refused, cut, or split where a
        sentence or a word ends; the translations of its pieces are then joined, and their scores added. `before` is
        how many sentences came before these: what is sampled, and what is said of a sentence, goes by its number.
        Sentences of several lists have `numbers` of their own. A sentence that is `gone` is dropped between two steps;
        what comes back for it means nothing.
        """
        config = config or self.config
        read = [self.reading(sentence) for sentence in sentences]
        numbers = range(before, before + len(sentences)) if numbers is None else numbers
        pieces = [
            self._fit(sentence, number + 1, overlong, one)
            for number, sentence, one in zip(numbers, sentences, read, strict=True)
        ]
        rows = [
            (_name(number, place), row, one.target, sentence)
            for sentence, (number, parts, one) in enumerate(zip(numbers, pieces, read, strict=True))
            for place, row in enumerate(parts)
        ]
        decoded = iter(self._decode(rows, config, budget, gone))
        return [_join([next(decoded) for _ in parts], config) for parts in pieces]

    @torch.inference_mode()
    def searched(self, sentence: str, config: DecodeConfig, number: int = 1) -> tuple[Hypothesis, list[Candidates]]:
        """The best translation of one sentence by beam search, with every candidate of every step of it."""
        self.model.eval()
        (row,) = self._fit(sentence, number, "refuse", self.reading(sentence)) or [[self.vocabularies.source.eos]]
        state = self._stepper.start(Pairs(Tokens.of([row]).to(self.device)))
        first, steps = torch.full((1,), self.vocabularies.target.bos, device=self.device), []
        limit = min(*config.limits([len(row)]), self.max_len)
        eos = self.vocabularies.target.eos
        found = beam_search(self._stepper, state, first, eos=eos, config=config, max_len=limit, record=steps.append)
        return found[0][0], steps

    def stream(
        self,
        sentences: Iterable[str],
        config: DecodeConfig | None = None,
        *,
        overlong: Overlong = "split",
        window: int = 256,
    ) -> Iterator[list[Translation]]:
        """The same for any number of sentences, a window at a time, so that memory stays flat."""
        lines, before = iter(sentences), 0
        while chunk := list(islice(lines, window)):
            yield from self.translate(chunk, config, overlong=overlong, before=before)
            before += len(chunk)

    def reading(self, source: str) -> Vocabularies:
        """The vocabularies with which this source is read and translated: for a model that copies, with its words."""
        return extended(self.vocabularies, source) if self.copies else self.vocabularies

    def _fit(self, sentence: str, number: int, overlong: Overlong, read: Vocabularies) -> list[list[int]]:
        """The sentence as rows that the model can read: none if it is blank, several if it had to be split."""
        tokenizer, row = read.source, read.source_row
        room = self.max_len - len(row([]))
        ids = tokenizer.encode(sentence) if sentence.strip() else []
        if not ids:
            return []
        if len(ids) <= room:
            return [row(ids)]
        if overlong == "refuse":
            raise DataError(f"sentence {number} has {len(ids)} tokens; the model reads at most {room}")
        if overlong == "truncate":
            return [row(ids[:room])]
        parts = split_text(sentence, lambda text: len(tokenizer.encode(text)), room)
        return [row(tokenizer.encode(part)[:room]) for part in parts]

    def _decode(
        self, rows: list[Row], config: DecodeConfig, budget: int, gone: Gone | None = None
    ) -> list[list[Translation]]:
        lengths = [len(row) for _, row, _, _ in rows]
        # The search holds `beam` rows per source, so a batch is that much smaller.
        width = config.samples if config.temperature is not None else config.beam
        small = budget // width + 1
        return in_batches(lambda batch: self._decode_batch(batch, config, gone), rows, lengths, budget=small)

    @torch.inference_mode()
    def _decode_batch(
        self, batch: list[Row], config: DecodeConfig, gone: Gone | None = None
    ) -> list[list[Translation]]:
        self.model.eval()
        names, rows, tokenizers, sentences = zip(*batch, strict=True)
        source = Tokens.of(rows, self.vocabularies.source.pad).to(self.device)
        state = self._stepper.start(Pairs(source))
        target = self.vocabularies.target
        first = torch.full((len(rows),), target.bos, device=self.device)
        limits = torch.tensor([min(limit, self.max_len) for limit in config.limits([len(row) for row in rows])])
        constraints = []
        if gone is not None:
            constraints.append(unwanted(target.eos, lambda row: gone(sentences[row]), len(rows)))
        found = search(
            self._stepper,
            state,
            first,
            eos=target.eos,
            config=config,
            max_len=limits,
            ids=names,
            constraints=constraints,
        )
        return [
            [self.text(one, target, limit if config.force_end else None) for one in best]
            for best, target, limit in zip(found, tokenizers, limits.tolist(), strict=True)
        ]

    def text(
        self, hypothesis: Hypothesis, target: Tokenizer | None = None, forced_at: int | None = None
    ) -> Translation:
        """What was decoded, as text; `target` is the tokenizer of a `reading`.

        An output that has made `forced_at` choices was ended there by force: it is not finished.
        """
        target = target or self.vocabularies.target
        return Translation(
            text=target.decode(hypothesis.tokens),
            score=hypothesis.score,
            log_prob=hypothesis.log_prob,
            tokens=tuple(hypothesis.tokens),
            pieces=tuple(target.pieces(hypothesis.tokens)),
            finished=hypothesis.finished and len(hypothesis.token_log_probs) != forced_at,
        )

    def cut_note(self, cut: int, total: int, config: DecodeConfig) -> str:
        """What to say of outputs that are not finished, with what to do about them; nothing where there are none."""
        if not cut:
            return ""
        said = f"{cut:,} of {total:,} outputs were cut at their greatest length"
        longest = f"model.max_len={self.max_len}"
        if config.max_len >= self.max_len and (config.max_ratio is None or config.max_extra is None):
            return f"{said}, {longest}, which is all that the model can write"
        limits = {"max_len": config.max_len, "max_ratio": config.max_ratio, "max_extra": config.max_extra}
        now = ", ".join(f"decode.{name}={'none' if value is None else value}" for name, value in limits.items())
        return f"{said} ({now}); give max_len, a number or none, to lift these limits (the model's own is {longest})"


def split_text(text: str, length: Callable[[str], int], room: int) -> list[str]:
    """The text in parts of at most `room` by `length`: whole sentences while they fit, else words, else characters."""
    parts: list[str] = []
    for sentence in re.split(r"(?<=[.!?;:])\s+|(?<=[。！？；：])", text):
        words = [sentence] if length(sentence) <= room else sentence.split()
        for unit in chain.from_iterable(_halves(word, length, room) for word in words):
            if parts and length(f"{parts[-1]} {unit}") <= room:
                parts[-1] = f"{parts[-1]} {unit}"
            elif unit:
                parts.append(unit)
    return parts or [""]


def _halves(word: str, length: Callable[[str], int], room: int) -> list[str]:
    """The word itself or, where it alone is too long, its halves, as often halved as it takes."""
    if length(word) <= room or len(word) < 2:
        return [word]
    middle = len(word) // 2
    return [*_halves(word[:middle], length, room), *_halves(word[middle:], length, room)]


def _name(sentence: int, piece: int) -> int:
    """The number that decides what is sampled for a piece: its sentence's if it is the first, else nobody's."""
    return sentence + (piece << 64)


def _join(parts: list[list[Translation]], config: DecodeConfig) -> list[Translation]:
    """The translations of a sentence from those of its pieces."""
    if not parts:
        count = config.top_beams if config.temperature is None else config.samples
        return [Translation(text="", score=0.0, log_prob=0.0, tokens=(), pieces=())] * count
    joined = parts[0]
    for part in parts[1:]:
        if config.temperature is not None:
            joined = [_both(first, then) for first, then in zip(joined, part, strict=True)]
        else:
            # Pieces are translated apart, so any of one may follow any of another; the best of all these are kept.
            pairs = [_both(first, then) for first in joined for then in part]
            joined = sorted(pairs, key=lambda one: -one.score)[: config.top_beams]
    return joined


def _both(first: Translation, then: Translation) -> Translation:
    return Translation(
        text=" ".join(text for text in (first.text, then.text) if text),
        score=first.score + then.score,
        log_prob=first.log_prob + then.log_prob,
        tokens=(*first.tokens, *then.tokens),
        pieces=(*first.pieces, *then.pieces),
        finished=first.finished and then.finished,
    )


def encode_pair(run: Run, source: str, target: str) -> tuple[list[int], list[int]]:
    """The pair as rows of ids: the source with `eos`, the target from `bos` to `eos`."""
    vocabularies = run.translator.reading(source)
    ids, other = vocabularies.source.encode(source), vocabularies.target.encode(target)
    return vocabularies.source_row(ids), vocabularies.target_row(other)


def words_of_row(tokenizer: Tokenizer, text: str, words: Sequence[str]) -> list[int | None]:
    """The word of each piece of a row, its end left out; None for what belongs to no word."""
    return [None] * len(tokenizer.opening) + words_of_pieces(tokenizer.offsets(text), spans(text, list(words)))
