"""Verbs that other packages declare, as routes: the same declaration that their commands are made from."""

from collections.abc import Sequence
from dataclasses import MISSING, Field, field, fields, make_dataclass
from functools import partial
from typing import Any, get_type_hints

from regard.serve.bodies import check_characters
from regard.serve.limits import Limits
from regard.serve.refusals import Refused
from regard.serve.verbs.many import Many
from regard.serve.verbs.verb import Verb
from regard.tasks.run import Run
from regard.tasks.verbs import Verb as Declared


def declared(verb: Declared) -> Verb:
    """The route of a declared verb: its inputs done together with those of other requests that ask alike."""

    def work(run: Run, body: Any, limits: Limits) -> Many:
        items = getattr(body, verb.items)
        items = tuple(items) if isinstance(items, list | tuple) else (items,)
        if not items:
            raise Refused("bad_request", f"{verb.items} is an empty list")
        if len(items) > limits.texts:
            raise Refused("too_large", f"{verb.items} has {len(items)} inputs; this server takes {limits.texts}")
        check_characters([item for item in items if isinstance(item, str)], verb.items, limits)
        options = {name: value for name, value in verb.options(body).items() if name != "model"}

        def function(given: list[Any]) -> Sequence[Any]:
            return verb.answer(run, given, **options)

        def records(item: Any, result: Any) -> list[dict[str, Any]]:
            return [verb.record(item, result)]

        return Many((verb.name, tuple(sorted(options.items()))), items, partial(verb.checked, run), function, records)

    return Verb(verb.name, verb.help.strip().splitlines()[0], _body(verb), verb.offered, work)


def _body(verb: Declared) -> type[Any]:
    """The request with the name of a model beside it."""
    hints = get_type_hints(verb.request)

    def again(one: Field[Any]) -> Any:
        return field() if one.default is MISSING else field(default=one.default)

    own: list[Any] = [(one.name, hints[one.name], again(one)) for one in fields(verb.request)]
    model = ("model", str | None, field(default=None))
    return make_dataclass(f"{verb.request.__name__}Body", [*own, model], frozen=True, kw_only=True)
