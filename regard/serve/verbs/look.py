"""POST /v1/look: where a model looked at one text, as the viewer's document and as its page."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import Any

from regard.errors import DataError
from regard.look.page import render
from regard.serve.bodies import Beam, check_characters
from regard.serve.jobs import Done
from regard.serve.limits import Limits
from regard.serve.refusals import Refused
from regard.serve.verbs.verb import Verb
from regard.tasks.looking import LookOptions as Wanted
from regard.tasks.looking import document
from regard.tasks.run import Run

TOKENS = 256
"""The longest text to look into: weights grow with its square."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Body:
    """A text (or a problem to point at), and the options of `regard look`; `document=false` sends the URL alone."""

    text: Any
    model: str | None = None
    beam: Beam = None
    layers: tuple[str, ...] = ("*",)
    heads: tuple[int, ...] | None = None
    target: str | None = None
    document: bool = True


@dataclass(frozen=True, slots=True)
class Work:
    """It changes the model while it looks, so it goes alone."""

    run: Run
    text: Any
    wanted: Wanted
    decode: dict[str, Any]
    whole: bool
    alone: bool = True

    @property
    def key(self) -> Hashable:
        return "look"

    def cost(self) -> int:
        if not isinstance(self.text, str):
            return len(self.text)
        count = len(self.run.vocabularies.source.encode(self.text))
        if count > TOKENS:
            raise DataError(f"text has {count} tokens; this server looks into {TOKENS}")
        return count

    def together(self, works: "list[Work]", gone: Callable[[int], bool]) -> list[Done]:
        found = replace(document(self.run, [self.text], self.wanted, **self.decode), title="Where the model looked")
        answer = {"document": found.to_mapping(packed=False)} if self.whole else {}
        return [Done(answer, page=render(found))]


def _work(run: Run, body: Body, limits: Limits) -> Work:
    text = body.text
    if not run.task.has_tokenizer:
        (text,) = run.task.requested(run, [text])
        if (items := run.task.size(text)) > TOKENS:
            raise DataError(f"text has {items} items; this server looks into {TOKENS}")
    elif not isinstance(text, str):
        raise Refused("bad_request", "text must be one text")
    else:
        check_characters([text, body.target or ""], "text", limits)
        if not text.strip():
            raise DataError("nothing to look at: every sentence is blank")
    if any(head < 0 for head in body.heads or ()):
        raise Refused("bad_request", f"heads={list(body.heads or ())} must be numbers of heads, from 0")
    wanted = Wanted(names=body.layers, heads=body.heads, targets=None if body.target is None else (body.target,))
    decode = {} if body.beam is None else {"beam": body.beam}
    return Work(run, text, wanted, decode, body.document)


def _able(run: Run) -> bool:
    return run.task.looks(run)


LOOK = Verb("look", "Show where a model looked.", Body, _able, _work)
