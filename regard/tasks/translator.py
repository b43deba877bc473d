"""Text in, text out: a model with its vocabularies, decoding many sentences at a time."""

import re
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import chain, islice
from typing import Any, TypeVar, cast

import torch
from torch import nn

from regard.data.synthetic.world import spans
from regard.decode.bayes_risk import least_risk
from regard.decode.beam import Candidates, beam_search
from regard.decode.config import DecodeConfig
from regard.decode.constraints import WordLimits, unwanted, words_within
from regard.decode.device import DeviceDecoder, FixedStepper, Source, bucket, serves
from regard.decode.memory import Configured, batch_bytes, source_bytes, width_of
from regard.decode.sample import uniform_numbers
from regard.decode.search import in_batches, search
from regard.decode.shortlist import Projecting, Shortlist, ShortlistStepper, needed_words
from regard.decode.stepper import Hypothesis, Stepper
from regard.decode.threads import limited_threads, threads_for
from regard.errors import ConfigError, DataError
from regard.look.alignment import words_of_pieces
from regard.metrics.text import sentence_chrf
from regard.nn.batch import Pairs, Tokens
from regard.nn.copy_mechanism import CopyProjection
from regard.nn.quantized import Int8Linear
from regard.tasks.cross_attention import AttendingStepper, aligning_attention, word_alignments
from regard.tasks.run import Run
from regard.tasks.verbs.translate import Overlong, Translation
from regard.text import Tokenizer, Vocabularies
from regard.text.vocabularies import extended

Row = tuple[int, list[int], Tokenizer, int]
"""The number that decides what is sampled, the tokens of a source, what turns its translation to text, and which of the
sentences it is of."""

Gone = Callable[[int], bool]
"""Whether nobody waits any more for the sentence at this place."""

Key = TypeVar("Key", bound=Hashable)

ROOMS = (128, 256, 512, 1024)
"""Greatest lengths of sentences that are decoded together on a device."""

ANY_LENGTH = WordLimits()

BUDGET = 4096
"""Source tokens of one batch, where batches are not sized by memory."""


Elsewhere = Callable[[Iterable[str], DecodeConfig, Overlong, WordLimits], "Iterator[list[Translation]]"]
"""Who translates many sentences in the place of this process."""


class Translator:
    """Decodes with a model that steps from a source: `Stepper` is all it knows of it.

    On a GPU whole steps are captured, which takes seconds; one that is asked just once `captures` none.
    """

    def __init__(
        self,
        model: nn.Module,
        vocabularies: Vocabularies,
        config: DecodeConfig,
        max_len: int,
        *,
        captures: bool = True,
        shortlist: Callable[[], Shortlist] | None = None,
    ) -> None:
        self.model, self.vocabularies, self.config, self.max_len = model, vocabularies, config, max_len
        self.captures, self._read_shortlist = captures, shortlist
        self._shortlist: Shortlist | None = None
        self.elsewhere: Elsewhere | None = None  # other processes, where many sentences are streamed
        self.threads: int | None = None  # of a CPU; None chooses by how much there is to multiply
        self._stepper = cast("Stepper[Any]", model)
        self._decoder: DeviceDecoder[Any] | None = None
        self.copies = any(isinstance(part, CopyProjection) for part in model.modules())

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    def translate(
        self,
        sentences: Sequence[str],
        config: DecodeConfig | None = None,
        *,
        overlong: Overlong = "split",
        before: int = 0,
        budget: int | None = None,
        numbers: Sequence[int] | None = None,
        gone: Gone | None = None,
        alignments: bool = False,
        words: WordLimits = ANY_LENGTH,
    ) -> list[list[Translation]]:
        """The `top_beams` best translations (or `samples`) of each sentence, best first, in the order given.

        A blank sentence has blank translations. One longer than the model can read is refused, cut, or split where a
        sentence or a word ends; the translations of its pieces are then joined, and their scores added. `before` is
        how many sentences came before these: what is sampled, and what is said of a sentence, goes by its number.
        Sentences of several lists have `numbers` of their own. A sentence that is `gone` is dropped between two steps;
        what comes back for it means nothing. With `alignments` every translation says which of its words belongs to
        which of the source's. `words` limits how many words a translation has. `budget` is how many source tokens go
        together, times the beam; on a CPU by default as many sentences as an eighth of the free memory has room for, at
        most 512 MiB.
        """
        config = config or self.config
        self.check(config, alignments)
        if words and config.shortlist:
            raise ConfigError("shortlist=true does not apply with min_words or max_words: give one of them")
        how = config
        if config.mbr:
            how = replace(config, mbr=0, top_beams=1, samples=config.mbr, temperature=config.temperature or 1.0)
        whole = [name for name in ("prefix", "require") if getattr(config, name)] + ["alignments"] * alignments
        read = [self.reading(sentence) for sentence in sentences]
        numbers = range(before, before + len(sentences)) if numbers is None else numbers
        pieces = [
            self._fit(sentence, number + 1, overlong, one, whole, ids)
            for number, sentence, one, ids in zip(numbers, sentences, read, self._encoded(sentences), strict=True)
        ]
        rows = [
            (_name(number, place), row, one.target, sentence)
            for sentence, (number, parts, one) in enumerate(zip(numbers, pieces, read, strict=True))
            for place, row in enumerate(parts)
        ]
        decoded = iter(self._decode(rows, how, budget, gone, words))
        found = [_join([next(decoded) for _ in parts], how) for parts in pieces]
        if config.mbr:
            count = config.top_beams
            found = [
                _least_risk(samples, count) if parts else samples[:count]
                for samples, parts in zip(found, pieces, strict=True)
            ]
        return self._aligned(sentences, read, pieces, found, budget or BUDGET) if alignments else found

    def _aligned(
        self,
        sentences: Sequence[str],
        read: Sequence[Vocabularies],
        pieces: Sequence[list[list[int]]],
        found: list[list[Translation]],
        budget: int,
    ) -> list[list[Translation]]:
        """The translations with their word alignments; a blank one has an empty one."""
        places = [(row, rank) for row, best in enumerate(found) for rank, one in enumerate(best) if one.tokens]
        items = [
            (sentences[row], read[row], pieces[row][0], found[row][rank].text, found[row][rank].tokens)
            for row, rank in places
        ]
        pad = self.vocabularies.source.pad
        lengths = [max(len(row), len(tokens) + 1) for _, _, row, _, tokens in items]
        self.model.eval()
        linked = in_batches(lambda batch: word_alignments(self.model, batch, pad), items, lengths, budget=budget)
        pairs = dict(zip(places, linked, strict=True))
        return [
            [replace(one, alignment=tuple(pairs.get((row, rank), ()))) for rank, one in enumerate(best)]
            for row, best in enumerate(found)
        ]

    def check(self, config: DecodeConfig, alignments: bool = False) -> None:
        """Refuse by name what cannot be searched by: here what needs an attention to the source where there is none."""
        for what, asked in (
            (f"coverage_penalty={config.coverage_penalty}", config.coverage_penalty),
            ("alignments", alignments),
        ):
            if asked:
                aligning_attention(self.model, what)
        if config.shortlist:
            self._check_shortlist(config)

    def _check_shortlist(self, config: DecodeConfig) -> None:
        """Refuse a shortlist where it cannot be honoured; else it is read by now."""
        reason = None
        if self.copies:
            reason = "to a model that copies words of its source"
        elif not isinstance(self.model, Projecting):
            reason = f"to a {type(self.model).__name__}, only to a Transformer"
        elif self.device.type != "cpu":
            reason = f"on {self.device}, where all words are multiplied as fast: give device=cpu, or leave it out"
        elif config.coverage_penalty:
            reason = f"with coverage_penalty={config.coverage_penalty}: give one of them"
        elif self._read_shortlist is None:
            reason = "here: only to a run"
        if reason is not None:
            raise ConfigError(f"shortlist=true does not apply {reason}")
        if self._shortlist is None:
            assert self._read_shortlist is not None
            self._shortlist = self._read_shortlist()

    @torch.inference_mode()
    def searched(self, sentence: str, config: DecodeConfig, number: int = 1) -> tuple[Hypothesis, list[Candidates]]:
        """The best translation of one sentence by beam search, with every candidate of every step of it."""
        if config.shortlist:
            raise ConfigError("shortlist=true does not apply where every candidate is looked at: give shortlist=false")
        self.model.eval()
        (row,) = self._fit(sentence, number, "refuse", self.reading(sentence)) or [[self.vocabularies.source.eos]]
        stepper = self._stepper
        if config.coverage_penalty:
            stepper = AttendingStepper(self.model, f"coverage_penalty={config.coverage_penalty}")
        state = stepper.start(Pairs(Tokens.of([row]).to(self.device)))
        first, steps = torch.full((1,), self.vocabularies.target.bos, device=self.device), []
        limit = min(*config.limits([len(row)]), self.max_len)
        eos = self.vocabularies.target.eos
        found = beam_search(stepper, state, first, eos=eos, config=config, max_len=limit, record=steps.append)
        return found[0][0], steps

    def stream(
        self,
        sentences: Iterable[str],
        config: DecodeConfig | None = None,
        *,
        overlong: Overlong = "split",
        window: int = 256,
        words: WordLimits = ANY_LENGTH,
    ) -> Iterator[list[Translation]]:
        """The same for any number of sentences, a window at a time, so that memory stays flat."""
        if self.elsewhere is not None:
            yield from self.elsewhere(sentences, config or self.config, overlong, words)
            return
        lines, before = iter(sentences), 0
        while chunk := list(islice(lines, window)):
            yield from self.translate(chunk, config, overlong=overlong, before=before, words=words)
            before += len(chunk)

    def resident(self, config: DecodeConfig) -> bool:
        """Whether such a search stays on the device: on a GPU, with a model and settings that allow it."""
        return self.captures and not self.copies and serves(self.model, config, self.device)

    def answering(
        self,
        pull: "Callable[[], Sequence[tuple[Key, str, int]]]",
        config: DecodeConfig,
        *,
        overlong: Overlong = "split",
        gone: "Callable[[Key], bool] | None" = None,
    ) -> "Iterator[list[tuple[Key, list[Translation]]]]":
        """Translations of all that is pulled, after each step those that are done, often none.

        `pull` gives what is there by now: keys, sentences and their numbers, which say what is sampled. As sentences
        end, others take their places on the device. One that is `gone` comes out without a translation.
        """
        self.check(config)
        parts: dict[Key, list[list[Translation] | None]] = {}
        blank: list[tuple[Key, list[Translation]]] = []
        rows: deque[tuple[tuple[Key, int], Source]] = deque()

        def take(count: int) -> list[tuple[tuple[Key, int], Source]]:
            while len(rows) < count and (fresh := pull()):
                new = []
                for (key, sentence, number), ids in zip(
                    fresh, self._encoded([one for _, one, _ in fresh]), strict=True
                ):
                    found = self._fit(sentence, number + 1, overlong, self.vocabularies, ids=ids)
                    parts[key] = [None] * len(found)
                    if not found:
                        blank.append((key, _join([], config)))
                    new += [
                        ((key, place), self._waiting_source(row, number, place, config))
                        for place, row in enumerate(found)
                    ]
                rows.extend(sorted(new, key=lambda one: -one[1].length))  # those of like length are read together
            return [rows.popleft() for _ in range(min(count, len(rows)))]

        asks = None if gone is None else lambda row: gone(row[0])
        for came in self._decoded(take, config, longest=self.max_len, steps=self.max_len, gone=asks):
            done, blank[:] = list(blank), []
            for (key, place), found in came:
                parts[key][place] = found
                if None not in parts[key]:
                    pieces = [piece or [] for piece in parts.pop(key)]
                    done.append((key, _join(pieces, config) if all(pieces) else []))
            yield done
        if blank:
            yield blank

    def _decoded(
        self,
        pull: "Callable[[int], list[tuple[Key, Source]]]",
        config: DecodeConfig,
        *,
        longest: int,
        steps: int,
        gone: "Callable[[Key], bool] | None" = None,
    ) -> "Iterator[list[tuple[Key, list[Translation]]]]":
        """Rows decoded on the device, as text."""
        self.model.eval()
        target = self.vocabularies.target
        if self._decoder is None or self._decoder.device != self.device:
            pad = self.vocabularies.source.pad
            self._decoder = DeviceDecoder(
                cast("FixedStepper[Any]", self.model),
                self.device,
                lambda rows, length: Pairs(Tokens.of(rows, pad, length).to(self.device)),
            )
        steps = min(steps, config.max_len)
        limits: dict[Key, int] = {}

        def noted(count: int) -> list[tuple[Key, Source]]:
            new = pull(count)
            if config.force_end:
                limits.update((key, source.limit) for key, source in new)
            return new

        for came in self._decoder.run(noted, config, eos=target.eos, longest=longest, steps=steps, gone=gone):
            texts = iter(target.decode_batch([one.tokens for _, found in came for one in found]) if came else ())
            yield [
                (key, [self.text(one, target, limit, next(texts)) for one in found])
                for key, found in came
                for limit in (limits.pop(key, None),)
            ]

    def _waiting_source(self, row: list[int], number: int, place: int, config: DecodeConfig) -> Source:
        (limit,) = config.limits([len(row)])
        limit, uniforms = min(limit, self.max_len), None
        if config.temperature is not None:
            uniforms = uniform_numbers(config.seed, [_name(number, place)], samples=config.samples, steps=limit)
        return Source(row, len(row), self.vocabularies.target.bos, limit, uniforms)

    def reading(self, source: str) -> Vocabularies:
        """The vocabularies with which this source is read and translated: for a model that copies, with its words."""
        return extended(self.vocabularies, source) if self.copies else self.vocabularies

    def _encoded(self, sentences: Sequence[str]) -> Sequence[list[int] | None]:
        """The tokens of each sentence, where all are read by one vocabulary."""
        return [None] * len(sentences) if self.copies else self.vocabularies.source.encode_batch(sentences)

    def _fit(
        self,
        sentence: str,
        number: int,
        overlong: Overlong,
        read: Vocabularies,
        whole: Sequence[str] = (),
        ids: list[int] | None = None,
    ) -> list[list[int]]:
        """The sentence as rows that the model can read: none if it is blank, several if it had to be split.

        Options in `whole` are for one piece, and forbid it. `ids` are its tokens where they are known.
        """
        if not isinstance(sentence, str):
            raise DataError(f"sentence {number} is no text: {sentence!r:.60}")
        tokenizer, row = read.source, read.source_row
        room = self.max_len - len(row([]))
        ids = (tokenizer.encode(sentence) if ids is None else ids) if sentence.strip() else []
        if not ids:
            return []
        if len(ids) <= room:
            return [row(ids)]
        if overlong == "refuse":
            raise DataError(f"sentence {number} has {len(ids)} tokens; the model reads at most {room}")
        if overlong == "truncate":
            return [row(ids[:room])]
        if whole:
            raise DataError(
                f"sentence {number} has {len(ids)} tokens; the model reads at most {room}, and with {whole[0]} a "
                "sentence cannot be split: shorten it, or let it be truncated (overlong)"
            )
        parts = split_text(sentence, lambda text: len(tokenizer.encode(text)), room)
        return [row(tokenizer.encode(part)[:room]) for part in parts]

    def _decode(
        self,
        rows: list[Row],
        config: DecodeConfig,
        budget: int | None,
        gone: Gone | None = None,
        words: WordLimits = ANY_LENGTH,
    ) -> list[list[Translation]]:
        if self.resident(config) and not words:
            return self._decode_resident(rows, config, gone)
        lengths = [len(row) for _, row, _, _ in rows]

        def decode(batch: list[Row]) -> list[list[Translation]]:
            with limited_threads(self._threads(len(batch) * config.rows)):
                return self._decode_batch(batch, config=config, gone=gone, words=words)

        if budget is not None or self.device.type != "cpu":
            # The search holds `beam` rows per source, so a batch is that much smaller.
            return in_batches(decode, rows, lengths, budget=(budget or BUDGET) // config.rows + 1)
        return in_batches(decode, rows, lengths, budget=max(1, batch_bytes()), cost=self._source_bytes(config))

    def _threads(self, rows: int) -> int | None:
        """The most threads that such a batch is decoded with; None leaves torch's choice."""
        if self.threads is not None or self.device.type != "cpu":
            return self.threads
        width = width_of(self.model.config if isinstance(self.model, Configured) else None)
        int8 = any(isinstance(part, Int8Linear) for part in self.model.modules())
        return threads_for(rows, width, int8=int8)

    def _source_bytes(self, config: DecodeConfig) -> Callable[[int], int]:
        """What a search for a source of some length takes of the memory."""
        members = self.model._modules.get("members")  # an ensemble has those of all its members
        models = [self.model] if members is None else [*members.children()]

        def cost(length: int) -> int:
            (limit,) = config.limits([length])
            asked = {"length": length, "steps": min(limit, self.max_len), "rows": config.rows}
            choices = self.vocabularies.target.vocab_size
            return sum(
                source_bytes(one.config if isinstance(one, Configured) else None, **asked, choices=choices)
                for one in models
            )

        return cost

    def _decode_resident(self, rows: list[Row], config: DecodeConfig, gone: Gone | None) -> list[list[Translation]]:
        """The same on the device. Those that need much more room than others go apart, so that others have more."""
        found: list[list[Translation]] = [[] for _ in rows]
        lengths = [len(row) for _, row, _, _ in rows]
        limits = [min(limit, self.max_len) for limit in config.limits(lengths)]
        sizes: dict[int, list[int]] = defaultdict(list)
        for index, (limit, length) in enumerate(zip(limits, lengths, strict=True)):
            sizes[bucket(max(limit, length), ROOMS)].append(index)
        asks = None if gone is None else lambda index: gone(rows[index][3])
        for several in sizes.values():
            order = sorted(several, key=lambda index: -lengths[index])
            waiting = ((index, self._waiting_source(rows[index][1], rows[index][0], 0, config)) for index in order)
            for came in self._decoded(
                lambda count, waiting=waiting: list(islice(waiting, count)),
                config,
                longest=lengths[order[0]],
                steps=max(limits[index] for index in several),
                gone=asks,
            ):
                for index, texts in came:
                    found[index] = texts
        count = config.top_beams if config.temperature is None else config.samples
        nothing = Translation(text="", score=0.0, log_prob=0.0, tokens=(), pieces=())
        return [texts or [nothing] * count for texts in found]  # of one that is gone nothing is known

    @torch.inference_mode()
    def _decode_batch(
        self, batch: list[Row], config: DecodeConfig, gone: Gone | None = None, words: WordLimits = ANY_LENGTH
    ) -> list[list[Translation]]:
        self.model.eval()
        names, rows, tokenizers, sentences = zip(*batch, strict=True)
        source = Tokens.of(rows, self.vocabularies.source.pad).to(self.device)
        stepper = self._stepper
        if config.coverage_penalty:
            stepper = AttendingStepper(self.model, f"coverage_penalty={config.coverage_penalty}")
        target = self.vocabularies.target
        bos, eos, forced, short = target.bos, target.eos, config.force_end, None
        if config.shortlist:
            assert self._shortlist is not None
            always = {bos, eos, *needed_words(config)}
            short = ShortlistStepper(self.model, [self._shortlist.words(row, always) for row in rows])
            stepper, config, bos, eos = short, short.config(config), short.place(bos), short.place(eos)
        state = stepper.start(Pairs(source))
        first = torch.full((len(rows),), bos, device=self.device)
        limits = torch.tensor([min(limit, self.max_len) for limit in config.limits([len(row) for row in rows])])
        constraints = []
        if gone is not None:
            constraints.append(unwanted(eos, lambda row: gone(sentences[row]), len(rows)))
        if words:
            constraints.append(
                words_within(words, lambda row, ids: tokenizers[row].decode(ids), word_beginnings(target), eos)
            )
        found = search(
            stepper,
            state,
            first,
            eos=eos,
            config=config,
            max_len=limits,
            ids=names,
            constraints=constraints,
        )
        if short is not None:
            found = [[short.named(one) for one in best] for best in found]
        return [
            [self.text(one, target, limit if forced else None) for one in best]
            for best, target, limit in zip(found, tokenizers, limits.tolist(), strict=True)
        ]

    def text(
        self,
        hypothesis: Hypothesis,
        target: Tokenizer | None = None,
        forced_at: int | None = None,
        text: str | None = None,
    ) -> Translation:
        """What was decoded, as `text` where that is known; `target` is the tokenizer of a `reading`.

        An output that has made `forced_at` choices was ended there by force: it is not finished.
        """
        return Translation.of(hypothesis, target or self.vocabularies.target, forced_at, text)

    def too_long(self, text: str, number: int = 1, refuse: bool = False) -> bool:
        """Whether the model cannot read all of a text; then the `number`-th is refused if that was asked for."""
        source, room = self.vocabularies.source, self.max_len - len(self.vocabularies.source_row([]))
        length = len(source.encode(text))
        if length > room and refuse:
            raise DataError(f"text {number} has {length:,} tokens; the model reads at most {room}")
        return length > room

    def truncated_note(self, truncated: int, total: int) -> str:
        """What to say of texts of which only the beginning was read; nothing where there are none."""
        if not truncated:
            return ""
        room = self.max_len - len(self.vocabularies.source_row([]))
        long = f"{truncated:,} of {total:,} texts are longer than the model reads"
        return f"{long}: of these the first {room} tokens were read"

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


@lru_cache(maxsize=8)
def word_beginnings(tokenizer: Tokenizer) -> torch.Tensor:
    """Which tokens, put between two others, make one word more: those that begin a word, or end one as a space does."""
    texts = list(tokenizer.pieces(range(tokenizer.vocab_size)))
    plain = next((index for index, piece in enumerate(texts) if piece.strip().isalpha()), tokenizer.unk)
    around = len(tokenizer.decode([plain, plain]).split())
    found = tokenizer.decode_batch([[plain, index, plain] for index in range(tokenizer.vocab_size)])
    return torch.tensor([len(text.split()) > around for text in found])


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


def _least_risk(samples: list[Translation], count: int) -> list[Translation]:
    """The samples of least Bayes risk, each with its mean chrF against all samples as its score."""
    ranked = least_risk([one.text for one in samples], sentence_chrf)
    return [replace(samples[place], score=expected) for place, expected in ranked[:count]]


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
