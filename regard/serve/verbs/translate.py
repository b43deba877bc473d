"""POST /v1/translate: what `regard translate --json` prints, for sentences of many requests at a time."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from itertools import chain
from typing import Literal

from regard.decode.config import DecodeConfig
from regard.serve.bodies import at_most, given, texts
from regard.serve.jobs import Done
from regard.serve.limits import Limits
from regard.serve.verbs.verb import Verb
from regard.tasks.records import translated
from regard.tasks.run import Run
from regard.tasks.translator import Overlong


@dataclass(frozen=True, kw_only=True, slots=True)
class Body:
    """The sentences, and the options of `regard translate`."""

    text: str | tuple[str, ...]
    model: str | None = None
    beam: int | None = None
    top_beams: int | None = None
    length_penalty: float | None = None
    min_len: int | None = None
    max_len: int | Literal["none"] | None = None
    max_ratio: float | Literal["none"] | None = None
    max_extra: int | Literal["none"] | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    samples: int | None = None
    seed: int | None = None
    overlong: Overlong = "split"


@dataclass(frozen=True, slots=True)
class Work:
    run: Run
    sentences: tuple[str, ...]
    config: DecodeConfig
    overlong: Overlong
    alone: bool = False

    @property
    def key(self) -> Hashable:
        # A seed matters to drawing only.
        config = self.config if self.config.temperature is not None else replace(self.config, seed=0)
        return "translate", config, self.overlong

    def cost(self) -> int:
        tokenizer = self.run.vocabularies.source
        return sum(len(tokenizer.encode(sentence)) + 1 for sentence in self.sentences)

    def together(self, works: "list[Work]", gone: Callable[[int], bool]) -> list[Done]:
        # Each request counts its sentences from its own first: what is drawn goes by that number.
        numbers = list(chain.from_iterable(range(len(work.sentences)) for work in works))
        owners = [place for place, work in enumerate(works) for _ in work.sentences]
        found = iter(
            self.run.translator.translate(
                list(chain.from_iterable(work.sentences for work in works)),
                self.config,
                overlong=self.overlong,
                numbers=numbers,
                gone=lambda sentence: gone(owners[sentence]),
            )
        )
        return [_done(work.sentences, [next(found) for _ in work.sentences]) for work in works]


def _done(sentences: tuple[str, ...], found: list) -> Done:
    results = [translated(line, *pair) for line, pair in enumerate(zip(sentences, found, strict=True), 1)]
    return Done({"results": results}, sum(len(one.tokens) for best in found for one in best))


def _work(run: Run, body: Body, limits: Limits) -> Work:
    sentences = texts(body.text, "text", limits)
    at_most(body, {"beam": limits.beam, "samples": limits.beam})
    if body.max_len != "none":
        at_most(body, {"max_len": limits.tokens})
    config = run.decode_config(**given(body, "text", "model", "overlong"))
    # A length that a request names lifts the run's other limits, the server's own does not.
    config = replace(config, max_len=min(config.max_len, limits.tokens))
    return Work(run, sentences, config, body.overlong)


TRANSLATE = Verb(
    name="translate",
    about="Translate sentences.",
    body=Body,
    able=lambda run: "translate" in run.task.methods,
    work=_work,
)
