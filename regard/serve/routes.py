"""What can be asked over HTTP: every verb that is declared, and the same verbs in other servers' shapes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from regard.config import JsonObject
from regard.serve.bodies import body_of, request_of
from regard.serve.jobs import Done, Job
from regard.serve.limits import Limits
from regard.tasks.run import Run
from regard.tasks.verbs import VERBS, Verb
from regard.tasks.verbs.spec import plain

Shaped = Callable[[Sequence[Any] | Done], list[Any]]
"""New pieces, or the whole answer in the end, as the objects to send."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request being answered: the model's name, the body as it came, its job, and where to `keep` a page, by URL."""

    model: str
    body: Any
    job: Job
    keep: Callable[[str], str]


def results(exchange: Exchange, done: Done) -> JsonObject:
    """The results of all inputs, one after another."""
    verb = exchange.job.verb
    return {"model": exchange.model, "results": [record for one in done.results for record in verb.records(one)]}


def pieces(exchange: Exchange) -> tuple[Shaped, str | None]:
    """Pieces as they come, and in the end what an unstreamed answer is."""

    def shaped(news: Sequence[Any] | Done) -> list[Any]:
        return [{"done": True, **results(exchange, news)}] if isinstance(news, Done) else [plain(one) for one in news]

    return shaped, None


@dataclass(frozen=True, slots=True)
class Endpoint:
    """POST /v1/NAME: which runs do it, what a body says, and how an answer is shaped.

    `request(run, body, limits)` is cheap: the request and its inputs, checked before they wait. `answer` is what is
    sent, `stream` the same for who wants it as it is written, and what is sent after that.
    """

    name: str
    about: str
    verb: Verb
    body: type[Any]
    able: Callable[[Run], bool]
    request: Callable[[Run, Any, Limits], tuple[Any, Sequence[Any]]]
    answer: Callable[[Exchange, Done], JsonObject] = results
    stream: Callable[[Exchange], tuple[Shaped, str | None]] = pieces


def declared(verb: Verb) -> Endpoint:
    """The route of a verb, in its own shape."""

    def request(run: Run, body: object, limits: Limits) -> tuple[Any, Sequence[Any]]:
        asked = request_of(verb, body)
        return asked, verb.check(run, asked, verb.inputs_of(asked), limits)

    about = verb.help.strip().partition("\n")[0]
    return Endpoint(verb.name, about, verb, body_of(verb), verb.served, request)


def endpoints() -> dict[str, Endpoint]:
    """All of them, by name."""
    from regard.serve.look import LOOK
    from regard.serve.openai import CHAT, COMPLETIONS, EMBEDDINGS

    found = [*(declared(VERBS[name]) for name in VERBS), LOOK, COMPLETIONS, CHAT, EMBEDDINGS]
    return {one.name: one for one in found}
