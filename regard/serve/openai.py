"""POST /v1/completions, chat/completions and embeddings: the same verbs in shapes that many clients speak.

What these clients send and a model here cannot do is refused by name; what does not apply to it is taken and left.
"""

import base64
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np

from regard.config import JsonObject
from regard.errors import DataError
from regard.serve.jobs import Done
from regard.serve.limits import Limits
from regard.serve.refusals import Refused
from regard.serve.routes import Endpoint, Exchange, Shaped
from regard.tasks.generator import Prompt
from regard.tasks.run import Run
from regard.tasks.verbs.encoders import EMBED, EmbedRequest
from regard.tasks.verbs.generate import GENERATE, GenerateRequest
from regard.tasks.verbs.spec import Beam, Between, Seed, TemperatureOrZero, Tokens, TopP, check_characters
from regard.text.chat import FORMS, Conversation

ONLY_ZERO = Between(0.0, 0.0, instead="is not served: leave it out")

UNSERVED = frozenset(
    [
        "audio",
        "best_of",
        "echo",
        "function_call",
        "functions",
        "logit_bias",
        "logprobs",
        "metadata",
        "modalities",
        "parallel_tool_calls",
        "prediction",
        "reasoning_effort",
        "response_format",
        "service_tier",
        "store",
        "suffix",
        "tool_choice",
        "tools",
        "top_logprobs",
        "verbosity",
        "web_search_options",
    ]
)
"""Fields that clients of other servers may send, and that mean nothing here: no misspellings of others."""

WHY = {"eos": "stop", "stop": "stop", "length": "length"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Common:
    """What both ways to write have."""

    NOT_SERVED: ClassVar[frozenset[str]] = UNSERVED

    model: str | None = None
    max_tokens: Tokens = None
    temperature: TemperatureOrZero = None
    top_p: TopP = None
    n: Beam = None
    stop: str | tuple[str, ...] | None = None
    seed: Seed = None
    stream: bool | None = None
    stream_options: JsonObject | None = None
    frequency_penalty: Annotated[float | None, ONLY_ZERO] = None
    presence_penalty: Annotated[float | None, ONLY_ZERO] = None
    user: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class CompletionBody(Common):
    prompt: str | tuple[str, ...] = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class ChatBody(Common):
    messages: tuple[JsonObject, ...]
    max_completion_tokens: Tokens = None


@dataclass(frozen=True, kw_only=True, slots=True)
class EmbeddingsBody:
    input: str | tuple[str, ...]
    model: str | None = None
    encoding_format: Literal["float", "base64"] | None = None
    user: str | None = None


def _asked(run: Run, prompt: Prompt, body: Common, limits: Limits, tokens: int | None) -> tuple[Any, list[Any]]:
    request = GenerateRequest(
        max_tokens=tokens,
        temperature=body.temperature,
        top_p=None if body.temperature == 0 else body.top_p,
        samples=None if body.n == 1 else body.n,
        stop=body.stop or (),
        seed=body.seed,
    )
    return request, [GENERATE.prepared(run, prompt, request, limits)]


def _completion(run: Run, body: CompletionBody, limits: Limits) -> tuple[Any, list[Any]]:
    prompts = (body.prompt,) if isinstance(body.prompt, str) else body.prompt
    if len(prompts) != 1:
        raise Refused("bad_request", f"prompt has {len(prompts)} texts; send one per request")
    check_characters(prompts, "prompt", limits)
    return _asked(run, prompts[0], body, limits, body.max_tokens)


def _chat(run: Run, body: ChatBody, limits: Limits) -> tuple[Any, list[Any]]:
    form = _form(run)
    if form is None:
        raise DataError("the vocabulary of this model has no marks of a chat: use /v1/completions")
    talk = Conversation(form=form)
    for number, message in enumerate(body.messages):
        unknown = set(message) - {"role", "content", "name"}
        if unknown or not isinstance(message.get("role"), str):
            raise Refused("bad_request", f"messages[{number}] must have a role and a content")
        talk = talk.say(message["role"], _content(message.get("content"), number))
    check_characters([one.text for one in talk.messages], "messages", limits)
    return _asked(run, talk, body, limits, body.max_completion_tokens or body.max_tokens)


def _content(content: object, number: int) -> str:
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if not isinstance(parts, list) or not all(isinstance(one, Mapping) and one.get("type") == "text" for one in parts):
        raise Refused("bad_request", f"messages[{number}].content must be text")
    if not all(isinstance(one.get("text"), str) for one in parts):
        raise Refused("bad_request", f"messages[{number}].content must be text")
    return "".join(one["text"] for one in parts)


def _form(run: Run) -> str | None:
    """The form of a chat whose marks the vocabulary has."""
    vocabulary = run.vocabularies.target.inner
    known = (name for name, form in FORMS.items() if None not in map(vocabulary.token_to_id, (form.begin, form.end)))
    return next(known, None)


def _head(kind: str, model: str) -> JsonObject:
    short = "chatcmpl" if kind.startswith("chat") else "cmpl"
    return {"id": f"{short}-{uuid.uuid4().hex[:24]}", "object": kind, "created": int(time.time()), "model": model}


def _usage(read: int, written: int = 0) -> dict[str, int]:
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


def _choice(index: int, why: str | None, chat: bool, text: str, piece: bool) -> JsonObject:
    said: JsonObject = {"text": text}
    if chat:
        said = (
            {"delta": {"content": text} if text else {}}
            if piece
            else {"message": {"role": "assistant", "content": text}}
        )
    return {"index": index, **said, "logprobs": None, "finish_reason": why}


def _whole(chat: bool) -> Callable[[Exchange, Done], JsonObject]:
    def answer(exchange: Exchange, done: Done) -> JsonObject:
        (texts,) = done.results
        choices = [_choice(index, WHY[one.ended], chat, one.text, False) for index, one in enumerate(texts)]
        head = _head("chat.completion" if chat else "text_completion", exchange.model)
        return {**head, "choices": choices, "usage": _usage(done.read, done.written)}

    return answer


def _pieces(chat: bool) -> Callable[[Exchange], tuple[Shaped, str]]:
    def stream(exchange: Exchange) -> tuple[Shaped, str]:
        head = _head("chat.completion.chunk" if chat else "text_completion", exchange.model)
        asked, begun = bool((exchange.body.stream_options or {}).get("include_usage")), set[int]()

        def shaped(news: Sequence[Any] | Done) -> list[Any]:
            if not isinstance(news, Done):
                choices = [first(one.sample, _choice(one.sample, None, chat, one.text, True)) for one in news]
                return [{**head, "choices": [choice]} for choice in choices]
            (texts,) = news.results
            ends = [{**head, "choices": [_choice(i, WHY[one.ended], chat, "", True)]} for i, one in enumerate(texts)]
            return [*ends, *([{**head, "choices": [], "usage": _usage(news.read, news.written)}] if asked else [])]

        def first(index: int, choice: JsonObject) -> JsonObject:
            """The first piece of a message says whose it is."""
            if chat and index not in begun:
                begun.add(index)
                choice["delta"] = {"role": "assistant", **choice["delta"]}
            return choice

        return shaped, "[DONE]"

    return stream


def _embeddings(run: Run, body: EmbeddingsBody, limits: Limits) -> tuple[Any, Sequence[Any]]:
    request = EmbedRequest(text=body.input)
    return request, EMBED.check(run, request, EMBED.inputs_of(request), limits)


def _vectors(exchange: Exchange, done: Done) -> JsonObject:
    vectors = [one.vector for one in done.results]
    if exchange.body.encoding_format == "base64":
        shown: list[Any] = [base64.b64encode(np.asarray(one, dtype="<f4").tobytes()).decode() for one in vectors]
    else:
        shown = list(vectors)
    data = [{"object": "embedding", "index": index, "embedding": one} for index, one in enumerate(shown)]
    usage = {name: value for name, value in _usage(done.read).items() if name != "completion_tokens"}
    return {"object": "list", "data": data, "model": exchange.model, "usage": usage}


COMPLETIONS = Endpoint(
    "completions",
    "Continue a prompt, as other servers do.",
    GENERATE,
    CompletionBody,
    GENERATE.served,
    _completion,
    _whole(chat=False),
    _pieces(chat=False),
)
CHAT = Endpoint(
    "chat/completions",
    "Answer a conversation, as other servers do.",
    GENERATE,
    ChatBody,
    lambda run: GENERATE.served(run) and _form(run) is not None,
    _chat,
    _whole(chat=True),
    _pieces(chat=True),
)
EMBEDDINGS = Endpoint(
    "embeddings",
    "Turn texts into vectors, as other servers do.",
    EMBED,
    EmbeddingsBody,
    EMBED.served,
    _embeddings,
    _vectors,
)
