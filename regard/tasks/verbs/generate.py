"""`generate`: a prompt in, text out as it is written."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from regard.errors import ConfigError
from regard.tasks.verbs.spec import (
    Asked,
    Beam,
    Between,
    Cost,
    DiversityPenalty,
    LengthPenalty,
    MinP,
    NoRepeat,
    Pull,
    RequestLimits,
    Samples,
    Seed,
    TemperatureOrZero,
    Tokens,
    Told,
    TopK,
    TopP,
    Verb,
    check_budget,
    check_characters,
    check_phrases,
    given,
    lines_of,
    option,
    said_if_given,
    unsaid,
)

if TYPE_CHECKING:
    from pathlib import Path

    from regard.decode.config import DecodeConfig
    from regard.tasks.generator import Generation, Prompt
    from regard.tasks.run import Run

Ended = Literal["eos", "stop", "length"]

STOPS, STOP_LENGTH = 16, 200
"""The most strings that may end a text, and the characters of one, in a request to a server."""


@dataclass(frozen=True, slots=True)
class Generated:
    """One text that follows the prompt, its tokens, and what ended it: `eos`, a stop string, or its greatest length."""

    text: str
    tokens: tuple[int, ...] = unsaid()
    ended: Ended = "length"


@dataclass(frozen=True, kw_only=True, slots=True)
class GenerateRequest:
    """A prompt, and how to go on from it."""

    prompt: str = option("", "The text to go on from.")
    chat: str | None = option(
        None,
        "Answer the prompt as a chat model, in this form: chatml. Without PROMPT, lines of standard input are one "
        "conversation.",
        "FORM",
    )
    system: str | None = option(None, "Of a chat: what the model is told before.", "TEXT")
    max_tokens: Tokens = option(None, "Most tokens to write.")
    temperature: TemperatureOrZero = None
    top_k: TopK = None
    top_p: TopP = None
    min_p: MinP = None
    repetition_penalty: Annotated[float, Between(0.01, 100.0)] = option(
        1.0, "Above 1, tokens that have occurred become less likely."
    )
    no_repeat: NoRepeat = option(None, "No run of so many tokens occurs twice in a text; 0 lets any.")
    require: str | tuple[str, ...] = option((), "Of a beam: a phrase that texts must have; may be repeated.", "TEXT")
    forbid: str | tuple[str, ...] = option((), "A phrase that no text has; may be repeated.", "TEXT")
    stop: str | tuple[str, ...] = option((), "End the text before this; may be repeated.", "TEXT")
    samples: Samples = None
    beam: Beam = option(None, "Search for the likeliest text, keeping this many beginnings, instead of sampling.")
    top_beams: Beam = option(None, "How many texts of a beam to print, best first.")
    length_penalty: LengthPenalty = option(None, "Of a beam: higher favours longer texts; 0 for none.")
    beam_groups: Beam = option(None, "Diverse beam search: groups of hypotheses, kept apart by --diversity-penalty.")
    diversity_penalty: DiversityPenalty = option(
        None, "What a choice loses for each time that an earlier group makes it in the same step."
    )
    seed: Seed = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Written:
    """One text that follows a prompt (of a conversation, the last question), and what ended it."""

    prompt: str
    text: str
    ended: Ended
    tokens: int = unsaid(0)
    unknown: tuple[str, ...] | None = said_if_given()


@dataclass(frozen=True, slots=True)
class Piece:
    """New text of a sample."""

    sample: int
    text: str


@dataclass(frozen=True, slots=True)
class BeamSearch:
    """A prompt whose best continuations are searched for."""

    prompt: "Prompt"
    ids: Sequence[int]
    config: "DecodeConfig"
    stop: tuple[str, ...]
    penalty: float


class Generate(Verb[GenerateRequest, list[Written]]):
    """Texts of many requests are written together, a token of each at a time; others join while they are."""

    def check(
        self, run: "Run", request: GenerateRequest, items: Sequence[Any], limits: RequestLimits | None = None
    ) -> "list[Generation | BeamSearch]":
        check_characters([*items, request.system or ""], "prompt", limits)
        return [self.prepared(run, prompt_of(replace(request, prompt=one)), request, limits) for one in items]

    def prepared(
        self, run: "Run", prompt: "Prompt", request: GenerateRequest, limits: RequestLimits | None
    ) -> "Generation | BeamSearch":
        """What follows the prompt, not yet begun; what cannot be is refused."""
        stop = _stops(request.stop, limits)
        for name in ("require", "forbid"):
            check_phrases(name, getattr(request, name), limits)
        how = given(request, "prompt", "chat", "system", "max_tokens", "stop", "repetition_penalty")
        how = {name: value for name, value in how.items() if value != ()}
        if request.max_tokens is not None or limits is not None:
            most = run.config.decode.max_len if limits is None else min(run.config.decode.max_len, limits.tokens)
            how["max_len"] = request.max_tokens or most
            rows = max(request.beam or 1, request.samples or 1)
            check_budget(limits, rows, how["max_len"], f"{rows} texts x {how['max_len']} tokens")
        if (request.beam or 1) == 1:
            return run.generation(prompt, stop=stop, repetition_penalty=request.repetition_penalty, **how)
        config = run.beam_config(**how)
        return BeamSearch(prompt, run.generator.prompt_ids(prompt), config, stop, request.repetition_penalty)

    def key(self, run: "Run", request: GenerateRequest) -> Hashable:
        if (request.beam or 1) == 1:
            return "samples"  # which of them can share the model's steps is seen when they begin
        # Beams of unequal ends are not searched together.
        return tuple(sorted(given(request, "prompt", "system", "stop").items()))

    def cost(self, run: "Run", asked: Asked) -> Cost:
        return Cost(len(asked.item.ids) * (asked.request.beam or 1))

    def answer(self, run: "Run", pull: Pull, *, gone: Callable[[Asked], bool]) -> Iterator[Told]:
        asked = list(pull())
        if asked and not isinstance(asked[0].item, BeamSearch):
            yield from self._sampled(run, asked, pull, gone)
        while asked and isinstance(asked[0].item, BeamSearch):
            yield list(zip(asked, self.together(run, asked, gone), strict=True))
            asked = list(pull())

    def together(self, run: "Run", asked: Sequence[Asked], gone: Callable[[Asked], bool]) -> list[list[Written]]:
        found = run.generator.all_beams(
            [one.item.prompt for one in asked],
            asked[0].item.config,
            stops=[one.item.stop for one in asked],
            repetition_penalty=asked[0].item.penalty,
            gone=lambda place: gone(asked[place]),
        )
        return [_results(run, one.item.prompt, outputs) for one, outputs in zip(asked, found, strict=True)]

    def _sampled(self, run: "Run", first: list[Asked], pull: Pull, gone: Callable[[Asked], bool]) -> Iterator[Told]:
        from regard.tasks.batched_generation import Writing

        writing, under_way = Writing(), list[Asked]()
        while True:
            fresh = first or (list(pull()) if not writing.full else [])
            first = []
            under_way += fresh
            writing.add([one.item for one in fresh])
            if not under_way:
                return
            for one in under_way:
                if gone(one):
                    one.item.cancel()
            writing.step()
            yield [news for one in under_way for news in _news(run, one)]
            under_way = [one for one in under_way if not one.item.done]

    def check_stream(self, request: GenerateRequest) -> None:
        if (request.beam or 1) > 1:
            raise ConfigError("stream=true shows a text as it is written; a beam has none before its end")

    def inputs(self, run: "Run", words: Iterable[str], file: "Path | None") -> Iterator[str]:
        return iter(lines_of(words, file))

    def written(self, result: list[Written]) -> int:
        return sum(one.tokens for one in result)

    def unknown(self, result: list[Written]) -> Sequence[str]:
        return result[0].unknown or () if result else ()

    def show(self, result: list[Written], display: object = None) -> str:
        return "\n---\n".join(one.text for one in result)

    def line(self, result: list[Written], display: object = None) -> str:
        return "\n".join(" ".join((one.prompt + one.text).splitlines()) for one in result)


def prompt_of(request: GenerateRequest) -> "Prompt":
    """The text to go on from, or the conversation to answer."""
    if request.chat is None:
        if request.system is not None:
            raise ConfigError("system is what a chat model is told: give chat with its form")
        return request.prompt
    from regard.text.chat import Conversation

    talk = Conversation(form=request.chat)
    talk = talk if request.system is None else talk.say("system", request.system)
    return talk.say("user", request.prompt)


def _news(run: "Run", asked: Asked) -> Iterator[tuple[Asked, Any]]:
    generation = asked.item
    for sample, text in generation.fresh():
        yield asked, Piece(sample, text)
    if generation.failure is not None:
        yield asked, generation.failure
    elif generation.done:
        yield asked, _results(run, generation.prompt, generation.outputs)


def _results(run: "Run", prompt: "Prompt", outputs: Sequence[Generated]) -> list[Written]:
    asked = prompt if isinstance(prompt, str) else prompt.messages[-1].text
    unknown = run.task.unknown_words(run, asked) or None
    return [
        Written(prompt=asked, text=one.text, ended=one.ended, tokens=len(one.tokens), unknown=unknown)
        for one in outputs
    ]


def _stops(value: str | tuple[str, ...] | None, limits: RequestLimits | None) -> tuple[str, ...]:
    found = (value,) if isinstance(value, str) else tuple(value or ())
    if limits is not None and (len(found) > STOPS or any(not 0 < len(one) <= STOP_LENGTH for one in found)):
        raise ConfigError(f"stop must be at most {STOPS} texts of 1 to {STOP_LENGTH} characters")
    return found


GENERATE = Generate(
    name="generate",
    help="""Continue a prompt with a language model, showing the text as it is written.

    With --input and --output every line of a file is a prompt, and has each of its texts on one line.

    \b
    Examples:
      regard generate runs/mine "Once upon a time"
      regard generate runs/mine "To be" --temperature 0.8 --top-p 0.9 --samples 3 --seed 1
      regard generate runs/mine "The end" --beam 4 --max-tokens 20
      regard generate runs/mine "Q: Why?" --temperature 0 --stop "Q:" --max-tokens 100 --json
      regard generate runs/smollm2 "Why is the sky blue?" --chat chatml --temperature 0
      regard generate runs/mine --input prompts.txt --output texts.txt --processes 4
    """,
    request=GenerateRequest,
    items="prompt",
    result=Written,
    piece=Piece,
    unit="prompts",
)
