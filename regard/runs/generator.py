"""A prompt in, text out as it is drawn: a decoder-only model with its tokenizer."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from regard.decode.beam import beam_search
from regard.decode.config import DecodeConfig
from regard.decode.constraints import Constraint, at_first, never, no_repeats, repetition
from regard.decode.greedy import Column, Pick, decode, likeliest
from regard.decode.hypothesis import Hypothesis
from regard.decode.sample import Sampler, draws
from regard.decode.stepper import Stepper
from regard.errors import ConfigError
from regard.nn.batch import Tokens
from regard.text import Tokenizer
from regard.text.chat import Conversation
from regard.text.streaming import TextStream

Ended = Literal["eos", "stop", "length"]
Prompt = str | Conversation
"""What is gone on from: a text, or a conversation whose answer is written."""


@dataclass(frozen=True, slots=True)
class Generated:
    """One text that follows the prompt, its tokens, and what ended it: `eos`, a stop string, or its greatest length."""

    text: str
    tokens: tuple[int, ...]
    ended: Ended


class Generator:
    """Writes on from prompts with a model that steps: `Stepper` is all it knows of it.

    The model reads at most `length` tokens. When prompt and text have filled those, it starts afresh from the last
    half of them and goes on from there; a longer prompt begins with its last `length` tokens.
    """

    def __init__(self, model: nn.Module, tokenizer: Tokenizer, config: DecodeConfig, length: int) -> None:
        self.model, self.tokenizer, self.config, self.length = model, tokenizer, config, length
        self.stepper = cast("Stepper[Any]", model)

    def generation(
        self,
        prompt: Prompt,
        config: DecodeConfig | None = None,
        *,
        stop: Sequence[str] = (),
        repetition_penalty: float = 1.0,
    ) -> "Generation":
        """`config.samples` texts that follow the prompt, to be drawn while they are read."""
        self._check(stop, repetition_penalty)
        return Generation(self, prompt, config or self.config, tuple(stop), repetition_penalty)

    @torch.inference_mode()
    def beams(
        self,
        prompt: Prompt,
        config: DecodeConfig | None = None,
        *,
        stop: Sequence[str] = (),
        repetition_penalty: float = 1.0,
    ) -> list[Generated]:
        """The `config.top_beams` best texts that follow the prompt, found by beam search, best first.

        A beam does not start afresh when the model can read no more: its texts end there. Of a long prompt as much is
        read as leaves room for `config.max_len` tokens, but at least half of what the model reads.
        """
        config = config or self.config
        self._check(stop, repetition_penalty)
        self.model.eval()
        device = next(self.model.parameters()).device
        ids = self.prompt_ids(prompt)[-max(self.length // 2, self.length - config.max_len + 1, 1) :]
        (found,) = beam_search(
            self.stepper,
            self.stepper.start(Tokens.of([ids]).to(device)),
            torch.tensor(ids[-1:], device=device),
            eos=self.end(prompt),
            config=config,
            max_len=min(config.max_len, self.length - len(ids) + 1),
            constraints=[] if repetition_penalty == 1.0 else [repetition(repetition_penalty, [ids], device)],
        )
        return [self._whole(ids, one, tuple(stop)) for one in found]

    def _whole(self, prompt: list[int], found: Hypothesis, stop: tuple[str, ...]) -> Generated:
        """The text of an output, cut before the first stop string."""
        stream, tokens = TextStream(self.tokenizer, prompt, stop), []
        for token in found.tokens:
            if stream.stopped:
                break
            tokens.append(token)
            stream.push(token)
        stream.close()
        ended: Ended = "stop" if stream.stopped else "eos" if found.finished else "length"
        return Generated(stream.text, tuple(tokens), ended)

    def _check(self, stop: Sequence[str], repetition_penalty: float) -> None:
        if isinstance(stop, str) or not all(stop):
            raise ConfigError(f"stop={stop!r} must be a list of texts, none of them empty")
        if not 0 < repetition_penalty < float("inf"):
            raise ConfigError(f"repetition_penalty={repetition_penalty} must be above 0")

    def end(self, prompt: Prompt) -> int:
        """The token that ends what follows the prompt."""
        return prompt.end(self.tokenizer) if isinstance(prompt, Conversation) else self.tokenizer.eos

    def prompt_ids(self, prompt: Prompt) -> list[int]:
        """The prompt as the model reads it; without any text, the `eos` after which a document begins."""
        if isinstance(prompt, Conversation):
            return prompt.ids(self.tokenizer)
        ids = [*self.tokenizer.opening, *self.tokenizer.encode(prompt)]
        return ids or [self.tokenizer.eos]


class Generation:
    """Texts being drawn. Iterating gives (sample, new text) as it comes; afterwards `outputs` has them whole."""

    def __init__(
        self, generator: Generator, prompt: Prompt, config: DecodeConfig, stop: tuple[str, ...], penalty: float
    ) -> None:
        self.generator, self.prompt, self.config, self.penalty = generator, prompt, config, penalty
        self.ids, self.end = generator.prompt_ids(prompt), generator.end(prompt)
        self._rows: list[list[int]] = [[] for _ in range(config.samples)]
        self._texts = [TextStream(generator.tokenizer, self.ids, stop) for _ in range(config.samples)]
        self._ended: list[Ended | None] = [None] * config.samples

    @property
    def outputs(self) -> list[Generated]:
        """The texts, as far as they have come."""
        return [
            Generated(stream.text, tuple(row), ended or "length")
            for stream, row, ended in zip(self._texts, self._rows, self._ended, strict=True)
        ]

    def ended(self, sample: int) -> bool:
        """Whether nothing more comes of this sample."""
        return self._ended[sample] is not None

    def __iter__(self) -> Iterator[tuple[int, str]]:
        self.generator.model.eval()
        made, context = 0, self.generator.length
        pick = self._pick()
        while made < self.config.max_len and (live := [row for row, end in enumerate(self._ended) if end is None]):
            before = made
            for column in self._columns(live, context, made, pick):
                made += 1
                yield from self._heard(live, column)
                if all(self._ended[row] is not None for row in live):
                    break
            assert made > before
            context = max(1, self.generator.length // 2)
        for row, end in enumerate(self._ended):
            if end is None:
                self._ended[row] = "length"
                if rest := self._texts[row].close():
                    yield row, rest

    def _heard(self, live: list[int], column: Column) -> Iterator[tuple[int, str]]:
        for row, token, place in zip(live, column.tokens.tolist(), column.rows.tolist(), strict=True):
            if self._ended[row] is not None:
                continue
            text, stream = "", self._texts[row]
            if place < 0 or token in (self.end, self.generator.tokenizer.eos):
                self._ended[row], text = "eos", stream.close()
            else:
                self._rows[row].append(token)
                text = stream.push(token)
            if stream.stopped:
                self._ended[row] = "stop"
            if text:
                yield row, text

    def _columns(self, live: list[int], context: int, made: int, pick: Pick) -> Iterator[Column]:
        """Steps from the last `context` tokens of each row until the model can read no more."""
        generator, device = self.generator, next(self.generator.model.parameters()).device
        pasts = [[*self.ids, *self._rows[row]] for row in live]
        read = [past[-context:] for past in pasts]
        with torch.inference_mode():
            if made == 0:  # one prompt, however many are drawn from it
                state = generator.stepper.start(Tokens.of(read[:1]).to(device))
                state = state.select(torch.zeros(len(live), dtype=torch.long, device=device))
            else:
                state = generator.stepper.start(Tokens.of(read).to(device))
        names = torch.tensor(live, device=device)

        def picked(log_probs: Tensor, rows: Tensor, step: int) -> Tensor:
            return pick(log_probs, names[rows], made + step)

        return decode(
            generator.stepper,
            state,
            torch.tensor([past[-1] for past in read], device=device),
            eos=self.end,
            max_len=min(generator.length - len(read[0]) + 1, self.config.max_len - made),
            min_len=max(0, self.config.min_len - made),
            pick=picked,
            constraints=self._constraints(live, pasts, device),
        )

    def _constraints(self, live: list[int], pasts: list[list[int]], device: torch.device) -> list[Constraint]:
        """The rules that the settings ask for, over what was written before this start as well."""
        config, asked = self.config, []
        if self.penalty != 1.0:
            asked.append(repetition(self.penalty, pasts, device))
        if config.forbid:
            asked.append(never(config.forbid))
        written = torch.tensor([self._rows[row] for row in live], dtype=torch.long, device=device)
        if config.no_repeat:
            asked.append(no_repeats(config.no_repeat, written))
        if config.force_first is not None and not written.numel():
            asked.append(at_first(config.force_first))
        return asked

    def _pick(self) -> Pick:
        config = self.config
        if config.temperature is None:
            return likeliest
        device = next(self.generator.model.parameters()).device
        uniforms = draws(config.seed, [0], samples=config.samples, steps=config.max_len)
        return Sampler(uniforms.to(device), temperature=config.temperature, top_k=config.top_k, top_p=config.top_p)
