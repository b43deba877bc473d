"""POST /v1/completions, chat/completions and embeddings: the same works under names that many clients speak.

What these clients send and a model here cannot do is refused by name; what does not apply to it is taken and left.
"""

import base64
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Annotated, Any, ClassVar, Literal

import numpy as np

from regard.errors import DataError
from regard.serve.bodies import Beam, Between, Seed, TemperatureOrZero, Tokens, TopP, check_characters
from regard.serve.jobs import Done, Work
from regard.serve.limits import Limits
from regard.serve.refusals import Refused
from regard.serve.verbs import generate
from regard.serve.verbs.encoders import EMBED, EmbedBody
from regard.serve.verbs.generate import Drawn
from regard.serve.verbs.many import Many
from regard.serve.verbs.verb import Stream, Verb
from regard.tasks.run import Run
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
    stream_options: dict[str, Any] | None = None
    frequency_penalty: Annotated[float | None, ONLY_ZERO] = None
    presence_penalty: Annotated[float | None, ONLY_ZERO] = None
    user: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class CompletionBody(Common):
    prompt: str | tuple[str, ...] = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class ChatBody(Common):
    messages: tuple[dict[str, Any], ...]
    max_completion_tokens: Tokens = None


@dataclass(frozen=True, kw_only=True, slots=True)
class EmbeddingsBody:
    input: str | tuple[str, ...]
    model: str | None = None
    encoding_format: Literal["float", "base64"] | None = None
    user: str | None = None


def _drawn(run: Run, prompt: Any, body: Common, limits: Limits, tokens: int | None) -> Drawn:
    greedy = body.temperature == 0
    settings = generate.Body(
        max_tokens=tokens,
        temperature=body.temperature,
        top_p=None if greedy else body.top_p,
        samples=None if body.n == 1 else body.n,
        stop=body.stop or (),
        seed=body.seed,
        stream=bool(body.stream),
    )
    found = generate.writing(run, prompt, settings, limits)
    assert isinstance(found, Drawn)
    return found


def _completion(run: Run, body: CompletionBody, limits: Limits) -> Drawn:
    prompts = (body.prompt,) if isinstance(body.prompt, str) else body.prompt
    if len(prompts) != 1:
        raise Refused("bad_request", f"prompt has {len(prompts)} texts; send one a request")
    check_characters(prompts, "prompt", limits)
    return _drawn(run, prompts[0], body, limits, body.max_tokens)


def _chat(run: Run, body: ChatBody, limits: Limits) -> Drawn:
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
    return _drawn(run, talk, body, limits, body.max_completion_tokens or body.max_tokens)


def _content(content: Any, number: int) -> str:
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


def _head(kind: str, model: str) -> dict[str, Any]:
    short = "chatcmpl" if kind.startswith("chat") else "cmpl"
    return {"id": f"{short}-{uuid.uuid4().hex[:24]}", "object": kind, "created": int(time.time()), "model": model}


def _usage(read: int, written: int = 0) -> dict[str, int]:
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


def _choice(index: int, why: str | None, chat: bool, text: str, piece: bool) -> dict[str, Any]:
    said: dict[str, Any] = {"text": text}
    if chat:
        said = (
            {"delta": {"content": text} if text else {}}
            if piece
            else {"message": {"role": "assistant", "content": text}}
        )
    return {"index": index, **said, "logprobs": None, "finish_reason": why}


def _whole(chat: bool) -> Callable[[str, Any, Work, Done], dict[str, Any]]:
    def answer(model: str, body: Any, work: Work, done: Done) -> dict[str, Any]:
        results = enumerate(done.answer["results"])
        choices = [_choice(index, WHY[one["ended"]], chat, one["text"], False) for index, one in results]
        head = _head("chat.completion" if chat else "text_completion", model)
        return {**head, "choices": choices, "usage": _usage(work.cost(), done.tokens)}

    return answer


def _pieces(chat: bool) -> Callable[[str, Any, Work], Stream]:
    def stream(model: str, body: Any, work: Work) -> Stream:
        head = _head("chat.completion.chunk" if chat else "text_completion", model)
        asked, begun = bool((body.stream_options or {}).get("include_usage")), set[int]()

        def shaped(news: Any) -> list[Any]:
            if not isinstance(news, Done):
                return [
                    {**head, "choices": [first(index, _choice(index, None, chat, text, True))]} for index, text in news
                ]
            results = enumerate(news.answer["results"])
            ends = [{**head, "choices": [_choice(index, WHY[one["ended"]], chat, "", True)]} for index, one in results]
            return [*ends, *([{**head, "choices": [], "usage": _usage(work.cost(), news.tokens)}] if asked else [])]

        def first(index: int, choice: dict[str, Any]) -> dict[str, Any]:
            """The first piece of a message says whose it is."""
            if chat and index not in begun:
                begun.add(index)
                choice["delta"] = {"role": "assistant", **choice["delta"]}
            return choice

        return shaped, "[DONE]"

    return stream


def _embeddings(run: Run, body: EmbeddingsBody, limits: Limits) -> Many:
    found = EMBED.work(run, EmbedBody(text=body.input), limits)
    assert isinstance(found, Many)
    return found


def _vectors(model: str, body: EmbeddingsBody, work: Work, done: Done) -> dict[str, Any]:
    vectors: Sequence[list[float]] = [one["vector"] for one in done.answer["results"]]
    if body.encoding_format == "base64":
        shown: list[Any] = [base64.b64encode(np.asarray(one, dtype="<f4").tobytes()).decode() for one in vectors]
    else:
        shown = list(vectors)
    data = [
        {"object": "embedding", "index": index, "embedding": one} for index, one in zip(count(), shown, strict=False)
    ]
    usage = {name: value for name, value in _usage(work.cost()).items() if name != "completion_tokens"}
    return {"object": "list", "data": data, "model": model, "usage": usage}


COMPLETIONS = Verb(
    "completions",
    "Write on from a prompt, as other servers do.",
    CompletionBody,
    generate.GENERATE.able,
    _completion,
    _whole(chat=False),
    _pieces(chat=False),
)
CHAT = Verb(
    "chat/completions",
    "Answer a conversation, as other servers do.",
    ChatBody,
    lambda run: generate.GENERATE.able(run) and _form(run) is not None,
    _chat,
    _whole(chat=True),
    _pieces(chat=True),
)
EMBEDDINGS = replace(
    EMBED,
    name="embeddings",
    about="Turn texts into vectors, as other servers do.",
    body=EmbeddingsBody,
    work=_embeddings,
    answer=_vectors,
)
