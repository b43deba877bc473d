"""POST /v1/look: where a model looked at one text or image, as the viewer's document and as its page."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from regard.config import JsonObject
from regard.errors import ConfigError, DataError
from regard.look.page import render
from regard.serve.jobs import Done
from regard.serve.routes import Endpoint, Exchange, declared
from regard.tasks.looking import LookOptions, document
from regard.tasks.run import Run
from regard.tasks.verbs import Asked, Cost, RequestLimits, Verb, option
from regard.tasks.verbs.spec import Beam, check_characters

TOKENS = 256
"""The longest text to look into: weights grow with its square."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LookRequest:
    """A text (or a problem to point at, or an image file in base64), and the options of `regard look`.

    `document=false` sends the URL alone.
    """

    text: Any
    beam: Beam = option(None, "Hypotheses kept at each step; 1 is greedy.")
    layers: tuple[str, ...] = option(("*",), "Names of attentions, with * for anything.")
    heads: tuple[int, ...] | None = option(None, "Numbers of heads.")
    target: str | None = option(None, "What the model is to have written.")
    document: bool = option(True, "Send the viewer's document too.")


@dataclass(frozen=True, slots=True)
class Looked:
    """The viewer's document, and its page."""

    document: JsonObject | None
    page: str


class Look(Verb[LookRequest, Looked]):
    """It changes the model while it looks, so it goes alone."""

    def offered(self, run: Run) -> bool:
        return run.task.looks(run)

    def key(self, run: Run, request: LookRequest) -> Hashable:
        return object()

    def inputs_of(self, request: LookRequest) -> list[Any]:
        return [request.text]

    def check(
        self, run: Run, request: LookRequest, items: Sequence[Any], limits: RequestLimits | None = None
    ) -> list[Any]:
        text = items[0]
        if not _reads_text(run):
            (text,) = run.task.requested(run, [text])
            if (size := run.task.size(text)) > TOKENS:
                raise DataError(f"text has {size} items; this server looks into {TOKENS}")
        elif not isinstance(text, str):
            raise ConfigError("text must be one text")
        else:
            check_characters([text, request.target or ""], "text", limits)
            if not text.strip():
                raise DataError("nothing to look at: every sentence is blank")
        if any(head < 0 for head in request.heads or ()):
            raise ConfigError(f"heads={list(request.heads or ())} must be numbers of heads, from 0")
        return [text]

    def cost(self, run: Run, asked: Asked) -> Cost:
        if not _reads_text(run):
            return Cost(run.task.size(asked.item))
        count = len(run.vocabularies.source.encode(asked.item))
        if count > TOKENS:
            raise DataError(f"text has {count} tokens; this server looks into {TOKENS}")
        return Cost(count)

    def together(self, run: Run, asked: Sequence[Asked], gone: Callable[[Asked], bool]) -> list[Looked]:
        return [_looked(run, one.item, one.request) for one in asked]


def _looked(run: Run, text: object, request: LookRequest) -> Looked:
    targets = None if request.target is None else (request.target,)
    options = LookOptions(names=request.layers, heads=request.heads, targets=targets)
    decode = {} if request.beam is None else {"beam": request.beam}
    found = replace(document(run, [text], options, **decode), title="Where the model looked")
    return Looked(found.to_mapping(packed=False) if request.document else None, render(found))


def _answer(exchange: Exchange, done: Done) -> JsonObject:
    (looked,) = done.results
    shown = {} if looked.document is None else {"document": looked.document}
    return {"model": exchange.model, **shown, "url": exchange.keep(looked.page)}


LOOK: Endpoint = replace(
    declared(Look(name="look", help="Show where a model looked.", request=LookRequest, items="text", result=Looked)),
    answer=_answer,
)


def _reads_text(run: Run) -> bool:
    return run.task.has_tokenizer and run.task.reads_text
