"""A prompt in, text out as it is sampled: a decoder-only model with its tokenizer."""

from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import cached_property
from itertools import islice
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.decode.beam import beam_search
from regard.decode.config import DecodeConfig
from regard.decode.constraints import repetition, unwanted
from regard.decode.device import DeviceDecoder, FixedStepper, Source, bucket, serves
from regard.decode.sample import uniform_numbers
from regard.decode.stepper import Hypothesis, Stepper
from regard.errors import ConfigError
from regard.nn.batch import Tokens
from regard.tasks.verbs.generate import Ended, Generated
from regard.text import Tokenizer
from regard.text.chat import Conversation
from regard.text.streaming import TextStream

Prompt = str | Conversation
"""What is continued: a text, or a conversation whose answer is written."""


class Generator:
    """Continues prompts with a model that steps: `Stepper` is all it knows of it.

    The model reads at most `length` tokens. When prompt and text have filled those, it starts afresh from the last
    half of them and goes on from there; a longer prompt begins with its last `length` tokens.
    """

    def __init__(self, model: nn.Module, tokenizer: Tokenizer, config: DecodeConfig, length: int) -> None:
        self.model, self.tokenizer, self.config, self.length = model, tokenizer, config, length
        self.stepper = cast("Stepper[Any]", model)

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    @cached_property
    def device_decoder(self) -> DeviceDecoder[Any]:
        """Writes on a device without waiting for it, with models that `decode/device.py` serves."""
        return DeviceDecoder(
            cast("FixedStepper[Any]", self.model),
            self.device,
            lambda rows, length: Tokens.of(rows, length=length).to(self.device),
        )

    def generation(
        self,
        prompt: Prompt,
        config: DecodeConfig | None = None,
        *,
        stop: Sequence[str] = (),
        repetition_penalty: float = 1.0,
    ) -> "Generation":
        """`config.samples` texts that follow the prompt, to be sampled while they are read."""
        self._check(stop, repetition_penalty)
        return Generation(self, prompt, config or self.config, tuple(stop), repetition_penalty)

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
        (found,) = self.all_beams([prompt], config, stops=[stop], repetition_penalty=repetition_penalty)
        return found

    @torch.inference_mode()
    def all_beams(
        self,
        prompts: Sequence[Prompt],
        config: DecodeConfig | None = None,
        *,
        stops: Sequence[Sequence[str]],
        repetition_penalty: float = 1.0,
        gone: Callable[[int], bool] | None = None,
    ) -> list[list[Generated]]:
        """The same for several prompts at a time, all of them texts or all conversations of one form.

        A prompt that is `gone` is dropped between two steps; what comes back for it means nothing.
        """
        config = config or self.config
        for stop in stops:
            self._check(stop, repetition_penalty)
        self.model.eval()
        device = next(self.model.parameters()).device
        most = max(self.length // 2, self.length - config.max_len + 1, 1)
        rows = [self.prompt_ids(prompt)[-most:] for prompt in prompts]
        end, *others = self.ends(prompts[0])
        limits = [min(config.max_len, self.length - len(row) + 1) for row in rows]
        if serves(self.model, config, device):
            found = self._resident_beams(rows, limits, config, (end, *others), repetition_penalty, gone)
            return [
                [self._whole(row, one, tuple(stop)) for one in best]
                for row, best, stop in zip(rows, found, stops, strict=True)
            ]
        constraints = [] if repetition_penalty == 1.0 else [repetition(repetition_penalty, rows, device)]
        if gone is not None:
            constraints.append(unwanted(end, gone, len(rows)))
        found = beam_search(
            self.stepper,
            self.stepper.start(Tokens.of(rows).to(device)),
            torch.tensor([row[-1] for row in rows], device=device),
            eos=end,
            config=config,
            max_len=torch.tensor(limits),
            constraints=constraints,
            stops=others,
        )
        return [
            [self._whole(row, one, tuple(stop)) for one in best]
            for row, best, stop in zip(rows, found, stops, strict=True)
        ]

    def _resident_beams(
        self,
        rows: list[list[int]],
        limits: list[int],
        config: DecodeConfig,
        ends: tuple[int, ...],
        penalty: float,
        gone: Callable[[int], bool] | None,
    ) -> list[list[Hypothesis]]:
        """The same by a search that stays on the device."""
        waiting = iter(
            (index, Source(row, len(row), row[-1], limit, before=row))
            for index, (row, limit) in enumerate(zip(rows, limits, strict=True))
        )
        found: dict[int, list[Hypothesis]] = {}
        for came in self.device_decoder.run(
            lambda count: list(islice(waiting, count)),
            config,
            eos=ends[0],
            stops=ends[1:],
            penalty=penalty,
            longest=bucket(max(map(len, rows))),
            steps=max(limits),
            gone=gone,
        ):
            found.update(came)
        return [found[index] for index in range(len(rows))]

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

    def ends(self, prompt: Prompt) -> tuple[int, ...]:
        """The tokens that end what follows the prompt: of an answer in a chat, its own end first, then `eos`."""
        own = (prompt.end(self.tokenizer),) if isinstance(prompt, Conversation) else ()
        return tuple(dict.fromkeys((*own, self.tokenizer.eos)))

    def prompt_ids(self, prompt: Prompt) -> list[int]:
        """The prompt as the model reads it; without any text, the `eos` after which a document begins."""
        if isinstance(prompt, Conversation):
            return prompt.ids(self.tokenizer)
        ids = [*self.tokenizer.opening, *self.tokenizer.encode(prompt)]
        return ids or [self.tokenizer.eos]


class Generation:
    """Texts being sampled. Iterating gives (sample, new text) as it comes; afterwards `outputs` has them whole.

    Several are written together by `Writing`, which `hear`s their tokens; each comes out as if it were alone.
    """

    def __init__(
        self, generator: Generator, prompt: Prompt, config: DecodeConfig, stop: tuple[str, ...], penalty: float
    ) -> None:
        self.generator, self.prompt, self.config, self.penalty = generator, prompt, config, penalty
        self.ids, self.ends = generator.prompt_ids(prompt), generator.ends(prompt)
        self.made = 0
        self.failure: Exception | None = None
        self._rows: list[list[int]] = [[] for _ in range(config.samples)]
        self._texts = [TextStream(generator.tokenizer, self.ids, stop) for _ in range(config.samples)]
        self._ended: list[Ended | None] = [None] * config.samples
        self._fresh: list[tuple[int, str]] = []
        self._from = max(0, len(self.ids) - generator.length)

    @property
    def outputs(self) -> list[Generated]:
        """The texts, as far as they have come."""
        return [
            Generated(stream.text, tuple(row), ended or "length")
            for stream, row, ended in zip(self._texts, self._rows, self._ended, strict=True)
        ]

    @property
    def kind(self) -> Hashable:
        """Equal for generations that can share the model's steps."""
        config = self.config
        least = (config.min_len, id(self)) if config.min_len else 0
        forced = config.force_first, config.prefix
        rules = config.forbid, config.forbid_phrases, config.no_repeat, forced, self.penalty, self.ends, least
        return config.temperature, config.top_k, config.top_p, config.min_p, rules

    @property
    def done(self) -> bool:
        """Whether nothing more comes."""
        return self.failure is not None or all(end is not None for end in self._ended)

    def ended(self, sample: int) -> bool:
        """Whether nothing more comes of this sample."""
        return self._ended[sample] is not None

    def cancel(self) -> None:
        """Write no more."""
        self._ended = [end or "length" for end in self._ended]

    def fresh(self) -> list[tuple[int, str]]:
        """(sample, new text) since this was last asked."""
        found, self._fresh = self._fresh, []
        return found

    def __iter__(self) -> Iterator[tuple[int, str]]:
        from regard.tasks.batched_generation import Writing

        writing = Writing()
        writing.add([self])
        while not self.done:
            writing.step()
            yield from self.fresh()
        if self.failure is not None:
            raise self.failure

    @cached_property
    def uniforms(self) -> Float[Tensor, "R T"]:
        """The numbers that decide what is sampled, one row per sample."""
        return uniform_numbers(self.config.seed, [0], samples=self.config.samples, steps=self.config.max_len)

    def live(self) -> list[int]:
        """The samples that go on."""
        return [sample for sample, end in enumerate(self._ended) if end is None]

    def written(self, sample: int) -> list[int]:
        """The sample's own tokens."""
        return self._rows[sample]

    def past(self, sample: int) -> list[int]:
        """The prompt and the sample's own tokens."""
        return [*self.ids, *self._rows[sample]]

    def read(self, sample: int) -> list[int]:
        """What of that the model reads now."""
        return self.past(sample)[self._from :]

    @property
    def room(self) -> int:
        """How many tokens can be made before the model can read no more."""
        return self.generator.length - (len(self.ids) + self.made - self._from) + 1

    def hear(self, sample: int, token: int, dead: bool) -> None:
        """The next token of a sample; `dead` says that there was none to choose."""
        if self._ended[sample] is not None:
            return
        stream = self._texts[sample]
        if dead or token in self.ends:
            self._ended[sample], text = "eos", stream.close()
        else:
            self._rows[sample].append(token)
            text = stream.push(token)
        if stream.stopped:
            self._ended[sample] = "stop"
        if text:
            self._fresh.append((sample, text))

    def start_afresh(self) -> None:
        """Go on from the last half of what the model can read."""
        self._from = max(0, len(self.ids) + self.made - max(1, self.generator.length // 2))

    def finish(self) -> None:
        """The greatest length is reached."""
        for sample in self.live():
            self._ended[sample] = "length"
            if rest := self._texts[sample].close():
                self._fresh.append((sample, rest))
