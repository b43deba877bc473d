"""Generations written together: a token of each at a time, and each as if it were alone."""

from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from regard.decode.config import DecodeConfig
from regard.decode.constraints import (
    Constraint,
    at_first,
    begins_with,
    never,
    no_repeats,
    repetition,
    unwanted,
    without_phrases,
)
from regard.decode.device import Source, TokenStream, bucket, serves
from regard.decode.greedy import Column, Pick, decode, likeliest
from regard.decode.sample import Sampler
from regard.nn.batch import Tokens
from regard.nn.double_precision import doubles_on
from regard.tasks.generator import Generation

UNDER_WAY = 128
"""Texts under way at the most; more requests wait."""

JOINED_ROWS = 256
"""Rows that are written together on a device that decodes without waiting."""

ROOMS = (64, 256, 1024)
"""Lengths of prompts, and of texts, for which memory is kept there."""

ROWS = 32
"""Rows of unequal length that step together: up to so many, one that has ended is left out at the next step, before it
could grow longer than the model reads."""


class Writing:
    """Generations of one model under way. Others may join at any time.

    Alike ones share the model's steps, in rounds: from one reading of what they have so far until the model can read no
    more of one, which then starts afresh in a round of its own. If a round fails, each of its generations goes on in
    its own, and only one that fails again there has failed. On a device that decodes without waiting, alike ones join a
    round that is under way.
    """

    def __init__(self) -> None:
        self._rounds: list[Round | JoinedRound] = []

    @property
    def full(self) -> bool:
        """Whether others had better wait."""
        joined = any(isinstance(one, JoinedRound) for one in self._rounds)
        return sum(len(one.rows) for one in self._rounds) >= (JOINED_ROWS if joined else UNDER_WAY)

    def add(self, generations: Sequence[Generation]) -> None:
        """Begin these too."""
        alike: dict[object, list[Generation]] = defaultdict(list)
        for generation in generations:
            generation.generator.model.eval()
            if JoinedRound.takes(generation):
                self._join(generation)
            else:
                alike[generation.kind].append(generation)
        for several in alike.values():
            while several:
                part = [several.pop(0)]
                while several and sum(len(one.live()) for one in (*part, several[0])) <= ROWS:
                    part.append(several.pop(0))
                self._rounds.append(Round(part))

    def _join(self, generation: Generation) -> None:
        key = JoinedRound.key_of(generation)
        for one in self._rounds:
            if isinstance(one, JoinedRound) and one.key == key:
                one.add(generation)
                return
        self._rounds.append(JoinedRound(generation))

    def step(self) -> None:
        """One more token of everything."""
        for one in list(self._rounds):
            try:
                full = one.step()
            except Exception as error:
                self._rounds.remove(one)
                self._apart(one, error)
                continue
            for generation in full:
                generation.start_afresh()
                if JoinedRound.takes(generation):
                    self._join(generation)
                else:
                    self._rounds.append(Round([generation]))
            if one.over:
                one.close()
                self._rounds.remove(one)

    def _apart(self, failed: "Round | JoinedRound", error: Exception) -> None:
        failed.close()
        if len(failed.generations) == 1 and isinstance(failed, Round):
            failed.generations[0].failure = error
            return
        self._rounds += [Round([one]) for one in failed.generations if one in failed.present and not one.done]


class Round:
    """Generations that step together. Nothing is computed before the first step."""

    def __init__(self, generations: list[Generation]) -> None:
        self.generations = generations
        self.rows = [(generation, sample) for generation in generations for sample in generation.live()]
        self.present = list(generations)
        self._columns: Iterator[Column] | None = None
        self._steps = 0
        self._limits = [self._limit(generation) for generation, _ in self.rows]

    @property
    def over(self) -> bool:
        return not self.present

    def close(self) -> None:
        """Nothing is kept for another round."""

    def step(self) -> list[Generation]:
        """One more token of each; those that the model can read no more of, which leave."""
        if self._columns is None:
            self._columns = self._begun()
        column = next(self._columns, None) if any(not one.done for one in self.present) else None
        if column is None:
            self.present = []
            return []
        self._hear(column)
        self._steps += 1
        full = []
        for generation in list(self.present):
            generation.made += 1
            if generation.made == generation.config.max_len:
                generation.finish()
            if generation.done:
                self.present.remove(generation)
            elif self._steps == self._limit_of(generation):
                self.present.remove(generation)
                full.append(generation)
        return full

    def _hear(self, column: Column) -> None:
        found = zip(self.rows, column.tokens.tolist(), column.rows.tolist(), self._limits, strict=True)
        for (generation, sample), token, place, limit in found:
            if self._steps < limit:
                generation.hear(sample, token, place < 0)

    def _limit(self, generation: Generation) -> int:
        return _limit(generation)

    def _limit_of(self, generation: Generation) -> int:
        return next(limit for (one, _), limit in zip(self.rows, self._limits, strict=True) if one is generation)

    def _begun(self) -> Iterator[Column]:
        first = self.generations[0]
        generator, config = first.generator, first.config
        device = next(generator.model.parameters()).device
        reads = [generation.read(sample) for generation, sample in self.rows]
        # One prompt, however many are sampled from it.
        names = [(id(one), 0 if one.made == 0 else sample) for one, sample in self.rows]
        places = {name: place for place, name in enumerate(dict.fromkeys(names))}
        once = dict(zip(names, reads, strict=True))
        with torch.inference_mode():
            state = generator.stepper.start(Tokens.of(list(once.values())).to(device))
            if len(once) < len(names):
                state = state.select(torch.tensor([places[name] for name in names], device=device))
        return decode(
            generator.stepper,
            state,
            torch.tensor([read[-1] for read in reads], device=device),
            eos=first.ends[0],
            stops=first.ends[1:],
            max_len=torch.tensor(self._limits),
            min_len=max(0, config.min_len - first.made),
            pick=self._pick(device),
            constraints=self._constraints(device),
        )

    def _constraints(self, device: torch.device) -> list[Constraint]:
        """The rules that the settings ask for, over what was written before this round as well."""
        first, asked = self.generations[0], []
        if first.penalty != 1.0:
            pasts = [generation.past(sample) for generation, sample in self.rows]
            asked.append(repetition(first.penalty, pasts, device))
        if first.config.forbid:
            asked.append(never(first.config.forbid))
        # Generations begin together or alone, so all rows are of one length.
        written = torch.tensor([one.written(sample) for one, sample in self.rows], dtype=torch.long, device=device)
        if first.config.no_repeat:
            asked.append(no_repeats(first.config.no_repeat, written))
        if first.config.forbid_phrases:
            asked.append(without_phrases(first.config.forbid_phrases, written))
        if first.config.force_first is not None and not written.numel():
            asked.append(at_first(first.config.force_first))
        if first.config.prefix:
            forced = first.config.force_first is not None
            asked.append(begins_with(first.config.prefix, forced - written.shape[1]))
        return [*asked, unwanted(first.ends[0], lambda row: self.rows[row][0].ended(self.rows[row][1]), len(self.rows))]

    def _pick(self, device: torch.device) -> Pick:
        config = self.generations[0].config
        if config.temperature is None:
            return likeliest
        uniforms = torch.zeros(len(self.rows), max(self._limits), dtype=torch.double)
        for row, ((generation, sample), limit) in enumerate(zip(self.rows, self._limits, strict=True)):
            uniforms[row, :limit] = generation.uniforms[sample, generation.made : generation.made + limit]
        kept = {"top_k": config.top_k, "top_p": config.top_p, "min_p": config.min_p}
        return Sampler(doubles_on(device, uniforms), temperature=config.temperature, **kept)


def _limit(generation: Generation) -> int:
    """How many tokens can be made before the model can read no more."""
    return min(generation.room, generation.config.max_len - generation.made)


class JoinedRound:
    """Generations that step together on a device that never waits, each at a position of its own."""

    def __init__(self, generation: Generation) -> None:
        self.key, generator = self.key_of(generation), generation.generator
        _, _, self._longest, self._steps = self.key
        self.generations: list[Generation] = []
        self.present: list[Generation] = []
        self._left: dict[Generation, int] = {}
        self._samples: dict[Generation, list[int]] = {}
        self._stream: TokenStream[Generation, Any] = TokenStream(
            generator.device_decoder,
            _settings(generation),
            eos=generation.ends[0],
            stops=generation.ends[1:],
            longest=self._longest,
            steps=self._steps,
            penalty=generation.penalty,
        )
        self.add(generation)

    @staticmethod
    def takes(generation: Generation) -> bool:
        """Whether this one can be written so: from its prompt on, or what is left of it as a single text."""
        generator, config = generation.generator, generation.config
        fresh = generation.made == 0 or (len(generation.live()) == 1 and not config.no_repeat)
        return fresh and serves(generator.model, _settings(generation), generator.device)

    @staticmethod
    def key_of(generation: Generation) -> tuple[Hashable, Hashable, int, int]:
        """Equal for generations that can join: alike in settings, texts and room."""
        config, longest = _settings(generation), len(generation.read(generation.live()[0]))
        least = config.min_len, config.force_first
        rooms = bucket(longest, ROOMS), bucket(_limit(generation), ROOMS)
        return generation.kind, (*least, config.samples), *rooms

    @property
    def rows(self) -> list[Generation]:
        return [generation for generation in self.present for _ in generation.live()]

    @property
    def over(self) -> bool:
        return not self.present

    def close(self) -> None:
        """Keep what was captured for another round."""
        self._stream.close()

    def add(self, generation: Generation) -> None:
        samples, limit = generation.live(), _limit(generation)
        read = generation.read(samples[0])
        uniforms = None
        if generation.config.temperature is not None:
            uniforms = generation.uniforms[samples, generation.made : generation.made + limit]
        before = generation.past(samples[0]) if generation.penalty != 1.0 else ()
        self._left[generation], self._samples[generation] = limit, samples
        self.generations.append(generation)
        self.present.append(generation)
        self._stream.add([(generation, Source(read, len(read), read[-1], limit, uniforms, before))])

    def step(self) -> list[Generation]:
        """One more token of each; those that the model can read no more of, which leave."""
        full = []
        for generation in [one for one in self.present if one.done]:  # nobody waits for it any more
            self._leave(generation)
        for generation, tokens, made in self._stream.step():
            if generation not in self._left:
                continue
            for sample, token, alive in zip(self._samples[generation], tokens.tolist(), made.tolist(), strict=True):
                generation.hear(sample, token, not alive)
            generation.made += 1
            self._left[generation] -= 1
            if generation.made == generation.config.max_len:
                generation.finish()
            if not generation.done and not self._left[generation]:
                full.append(generation)
            if generation.done or generation in full:
                self._leave(generation)
        return full

    def _leave(self, generation: Generation) -> None:
        self._stream.drop(generation)
        self.present.remove(generation)
        del self._left[generation], self._samples[generation]


def _settings(generation: Generation) -> DecodeConfig:
    """The settings of what is left to write."""
    config = replace(generation.config, beam=1, top_beams=1)
    if generation.made == 0:
        return config
    least = max(0, config.min_len - generation.made)
    return replace(config, samples=1, min_len=least, force_first=None)
