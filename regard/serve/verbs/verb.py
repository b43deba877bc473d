"""A verb over HTTP: which runs do it, what a request for it says, and the work that this makes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from regard.serve.jobs import Done, Work
from regard.serve.limits import Limits
from regard.tasks.run import Run

Stream = tuple[Callable[[Any], list[Any]], str | None]
"""What turns new texts, and in the end the whole answer, into objects to send; and what is sent after them."""


def plain(model: str, body: Any, work: Work, done: Done) -> dict[str, Any]:
    return {"model": model, **done.answer}


def pieces(model: str, body: Any, work: Work) -> Stream:
    """Pieces of text as they come, `{"sample": ..., "text": ...}`, and in the end what an unstreamed answer is."""

    def shaped(news: Any) -> list[Any]:
        if isinstance(news, Done):
            return [{"done": True, **plain(model, body, work, news)}]
        return [{"sample": sample, "text": text} for sample, text in news]

    return shaped, None


@dataclass(frozen=True, slots=True)
class Verb:
    """`work(run, body, limits)` is cheap and refuses what can be refused before the request waits.

    `answer(model, body, work, done)` is what is sent, `stream` the same for who wants it as it is written.
    """

    name: str
    about: str
    body: type[Any]
    able: Callable[[Run], bool]
    work: Callable[[Run, Any, Limits], Work]
    answer: Callable[[str, Any, Work, Done], dict[str, Any]] = plain
    stream: Callable[[str, Any, Work], Stream] = pieces
