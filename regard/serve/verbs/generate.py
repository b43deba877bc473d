"""POST /v1/generate: what `regard generate --json` prints, whole or as it is drawn, for many requests at a time."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any

from regard.decode.config import DecodeConfig
from regard.errors import ConfigError
from regard.serve.bodies import (
    Beam,
    Between,
    LengthPenalty,
    Seed,
    TemperatureOrZero,
    Tokens,
    TopK,
    TopP,
    check_budget,
    check_characters,
    given,
)
from regard.serve.jobs import Done
from regard.serve.limits import Limits
from regard.serve.refusals import Refused
from regard.serve.verbs.verb import Verb
from regard.tasks.generator import Generated, Generation, Prompt
from regard.tasks.records import generated
from regard.tasks.run import Run
from regard.text.chat import Conversation

STOPS, STOP_LENGTH = 16, 200
"""The most strings that may end a text, and the characters of one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Body:
    """The prompt, and the options of `regard generate`; with `stream`, texts come as they are drawn."""

    prompt: str = ""
    model: str | None = None
    chat: str | None = None
    system: str | None = None
    max_tokens: Tokens = None
    temperature: TemperatureOrZero = None
    top_k: TopK = None
    top_p: TopP = None
    repetition_penalty: Annotated[float, Between(0.01, 100.0)] = 1.0
    stop: str | tuple[str, ...] = ()
    samples: Beam = None
    beam: Beam = None
    top_beams: Beam = None
    length_penalty: LengthPenalty = None
    seed: Seed = None
    stream: bool = False


class Drawn:
    """Texts that are drawn, or chosen, token by token: steps are shared with other requests' by the worker."""

    alone = False

    def __init__(self, run: Run, prompt: Prompt, how: dict[str, Any]) -> None:
        self.run, self.prompt, self.how = run, prompt, how

    @property
    def key(self) -> Hashable:
        # Which of them can share steps is seen when they begin.
        return "generate"

    @cached_property
    def generation(self) -> Generation:
        return self.run.generation(self.prompt, **self.how)

    def cost(self) -> int:
        return len(self.generation.ids)

    def done(self) -> Done:
        return _done(self.prompt, self.generation.outputs)

    def together(self, works: list[Any], gone: Callable[[int], bool]) -> list[Done]:
        raise AssertionError("texts are drawn step by step")


@dataclass(frozen=True, slots=True)
class Searched:
    """The best texts by beam search, for prompts of several requests at a time."""

    run: Run
    prompt: Prompt
    config: DecodeConfig
    stop: tuple[str, ...]
    penalty: float
    alone: bool = False

    @property
    def key(self) -> Hashable:
        form = self.prompt.form if isinstance(self.prompt, Conversation) else None
        return "beams", self.config, self.penalty, form

    def cost(self) -> int:
        return len(self.run.generator.prompt_ids(self.prompt)) * self.config.beam

    def together(self, works: "list[Searched]", gone: Callable[[int], bool]) -> list[Done]:
        found = self.run.generator.all_beams(
            [work.prompt for work in works],
            self.config,
            stops=[work.stop for work in works],
            repetition_penalty=self.penalty,
            gone=gone,
        )
        return [_done(work.prompt, outputs) for work, outputs in zip(works, found, strict=True)]


def _done(prompt: Prompt, outputs: list[Generated]) -> Done:
    return Done({"results": [generated(prompt, one) for one in outputs]}, sum(len(one.tokens) for one in outputs))


def writing(run: Run, prompt: Prompt, body: Any, limits: Limits) -> Drawn | Searched:
    """The work of writing on from a prompt; `body` has the settings of a `Body`."""
    stop = stops(body.stop)
    names = ("temperature", "top_k", "top_p", "samples", "beam", "top_beams", "length_penalty", "seed")
    how = {name: value for name, value in given(body).items() if name in names}
    how["max_len"] = body.max_tokens or min(run.config.decode.max_len, limits.tokens)
    rows = max(body.beam or 1, body.samples or 1)
    check_budget(limits, rows, how["max_len"], f"{rows} texts x {how['max_len']} tokens")
    how |= {"stop": stop, "repetition_penalty": body.repetition_penalty}
    if how.get("beam", 1) == 1:
        drawn = Drawn(run, prompt, how)
        _ = drawn.generation  # what cannot be is refused before it waits
        return drawn
    if body.stream:
        raise ConfigError("stream=true shows a text as it is drawn; a beam has none before its end")
    config = run.beam_config(**{name: value for name, value in how.items() if name in (*names, "max_len")})
    return Searched(run, prompt, config, stop, body.repetition_penalty)


def stops(value: str | tuple[str, ...] | None) -> tuple[str, ...]:
    found = (value,) if isinstance(value, str) else tuple(value or ())
    if len(found) > STOPS or any(not 0 < len(one) <= STOP_LENGTH for one in found):
        raise ConfigError(f"stop must be at most {STOPS} texts of 1 to {STOP_LENGTH} characters")
    return found


def _work(run: Run, body: Body, limits: Limits) -> Drawn | Searched:
    check_characters([body.prompt, body.system or ""], "prompt", limits)
    if body.chat is None:
        if body.system is not None:
            raise Refused("bad_request", "system is what a chat model is told: give chat with its form")
        return writing(run, body.prompt, body, limits)
    talk = Conversation(form=body.chat)
    talk = talk if body.system is None else talk.say("system", body.system)
    return writing(run, talk.say("user", body.prompt), body, limits)


GENERATE = Verb("generate", "Write on from a prompt.", Body, lambda run: "generate" in run.task.methods, _work)
