"""POST /v1/translate: what `regard translate --json` prints, for sentences of many requests at a time."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from itertools import accumulate, chain
from typing import Annotated, Literal

from regard.decode.config import BOUNDS, DecodeConfig
from regard.serve.bodies import (
    Beam,
    Between,
    LengthPenalty,
    Seed,
    Temperature,
    TopK,
    TopP,
    check_budget,
    given,
    texts,
)
from regard.serve.jobs import PART, Done, in_parts
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
    beam: Beam = None
    top_beams: Beam = None
    length_penalty: LengthPenalty = None
    min_len: Annotated[int | None, Between(0, "tokens")] = None
    max_len: Annotated[int | Literal["none"] | None, Between(1, "tokens")] = None
    max_ratio: Annotated[float | Literal["none"] | None, Between(*BOUNDS["max_ratio"])] = None
    max_extra: Annotated[int | Literal["none"] | None, Between(*BOUNDS["max_extra"])] = None
    temperature: Temperature = None
    top_k: TopK = None
    top_p: TopP = None
    samples: Beam = None
    seed: Seed = None
    overlong: Overlong = "split"


@dataclass(frozen=True, slots=True)
class Work:
    run: Run
    sentences: tuple[str, ...]
    config: DecodeConfig
    overlong: Overlong
    alone: bool = False
    first: int = 0

    @property
    def key(self) -> Hashable:
        # A seed matters to drawing only.
        config = self.config if self.config.temperature is not None else replace(self.config, seed=0)
        return "translate", config, self.overlong

    def cost(self) -> int:
        tokenizer = self.run.vocabularies.source
        return sum(len(tokenizer.encode(sentence)) + 1 for sentence in self.sentences)

    @property
    def rows(self) -> int:
        """Texts that the model writes at a time for one sentence."""
        return max(self.config.beam, self.config.samples)

    def parts(self, tokens: int) -> "list[Work]":
        """The same by pieces, of which each reads few tokens and keeps the model for a short time only."""
        tokenizer = self.run.vocabularies.source
        reads = [len(tokenizer.encode(sentence)) + 1 for sentence in self.sentences]
        places = in_parts(reads, tokens, most=max(1, PART // (self.rows * self.config.max_len)))
        firsts = accumulate(map(len, places), initial=0)
        return [
            replace(self, sentences=tuple(self.sentences[place] for place in part), first=first)
            for part, first in zip(places, firsts, strict=False)
        ]

    def together(self, works: "list[Work]", gone: Callable[[int], bool]) -> list[Done]:
        # Each request counts its sentences from its own first: what is drawn goes by that number.
        numbers = list(chain.from_iterable(range(work.first, work.first + len(work.sentences)) for work in works))
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
        return [_done(work, [next(found) for _ in work.sentences]) for work in works]


def _done(work: Work, found: list) -> Done:
    numbered = enumerate(zip(work.sentences, found, strict=True), work.first + 1)
    results = [translated(line, *pair) for line, pair in numbered]
    return Done({"results": results}, sum(len(one.tokens) for best in found for one in best))


def _work(run: Run, body: Body, limits: Limits) -> Work:
    sentences = texts(body.text, "text", limits)
    config = run.decode_config(**given(body, "text", "model", "overlong"))
    # A length that a request names lifts the run's other limits, the server's own does not.
    config = replace(config, max_len=min(config.max_len, limits.tokens))
    work = Work(run, sentences, config, body.overlong)
    said = f"{len(sentences)} texts x {work.rows} hypotheses x {work.config.max_len} tokens"
    check_budget(limits, len(sentences) * work.rows, work.config.max_len, said)
    return work


TRANSLATE = Verb(
    name="translate",
    about="Translate sentences.",
    body=Body,
    able=lambda run: "translate" in run.task.methods,
    work=_work,
)
