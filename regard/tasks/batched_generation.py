"""Generations written together: a token of each at a time, and each as if it were alone."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

import torch

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
from regard.decode.greedy import Column, Pick, decode, likeliest
from regard.decode.sample import Sampler
from regard.nn.batch import Tokens
from regard.tasks.generator import Generation

ROWS = 32
"""Rows of unequal length that step together: up to so many, one that has ended is left out at the next step, before it
could grow longer than the model reads."""


class Writing:
    """Generations of one model under way. Others may join at any time.

    Alike ones share the model's steps, in rounds: from one reading of what they have so far until the model can read no
    more of one, which then starts afresh in a round of its own. If a round fails, each of its generations goes on in
    its own, and only one that fails again there has failed.
    """

    def __init__(self) -> None:
        self._rounds: list[Round] = []

    @property
    def rows(self) -> int:
        """Texts under way."""
        return sum(len(one.rows) for one in self._rounds)

    def add(self, generations: Sequence[Generation]) -> None:
        """Begin these too."""
        alike: dict[object, list[Generation]] = defaultdict(list)
        for generation in generations:
            generation.generator.model.eval()
            alike[generation.kind].append(generation)
        for several in alike.values():
            while several:
                part = [several.pop(0)]
                while several and sum(len(one.live()) for one in (*part, several[0])) <= ROWS:
                    part.append(several.pop(0))
                self._rounds.append(Round(part))

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
                self._rounds.append(Round([generation]))
            if one.over:
                self._rounds.remove(one)

    def _apart(self, failed: "Round", error: Exception) -> None:
        if len(failed.generations) == 1:
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
        """How many tokens can be made before the model can read no more."""
        return min(generation.room, generation.config.max_len - generation.made)

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
        return Sampler(uniforms.to(device), temperature=config.temperature, **kept)
