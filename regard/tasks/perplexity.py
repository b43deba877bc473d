"""How well a language model predicts a text: perplexity, and bits for each character and byte of it."""

from collections.abc import Callable, Iterator
from typing import Any

from regard.data import Documents, TextStore, backward_windows, streamed_windows, strided_windows
from regard.errors import ConfigError
from regard.metrics.text import bits_per_character, perplexity
from regard.nn.batch import Stretch, Windows
from regard.tasks.corpora import documents_of
from regard.tasks.run import Run
from regard.training.loop import validate
from regard.training.streams import StreamedLanguageModelling
from regard.training.objectives import BackwardModelling, LanguageModelling, Objective

BUDGET = 8192
"""Tokens of one batch."""

STRETCH = 1024
"""Tokens of a stream that are read at once, where the state is carried; of no effect on the result."""


def text_perplexity(
    run: Run,
    documents: Documents | None = None,
    *,
    stride: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Scores of the run on `documents`, by default its test or validation text, as one JSON-ready object.

    Windows of the length it was trained on begin `stride` tokens apart, by default half a window, and only the last
    `stride` tokens of each count, so that each is predicted from at least the rest of a window. The `eos` after each
    document is predicted too. Bits a character and a byte spread the same sum over the text itself, so they can be
    compared between tokenizers.

    Of a model that also reads backward, that way is measured likewise: each token from at least the rest of a window
    after it. The scores are the means of both ways. A model that was trained with `data.carry` reads the whole text as
    one stream, so that each token is predicted from all before it; `window` and `stride` are then None.
    """
    data = run.config.data
    documents = documents or documents_of(data, "test") or documents_of(data, "valid")
    if documents is None:
        raise ConfigError("nothing to evaluate on: the run names no test or validation text; give one")
    if data.carry and stride is not None:
        raise ConfigError("a stride is for windows; this run carries its state over the whole text")
    length = data.max_len
    stride = max(1, length // 2) if stride is None else stride
    store = TextStore.of(iter(documents), run.vocabularies.target)
    total = len(store.ids) - 1
    device = next(run.model.parameters()).device

    def nll(task: Objective, windows: Iterator[Windows] | Iterator[Stretch]) -> float:
        return validate(run.model, task, _told(windows, total, progress), device=device)["nll"]

    budget = max(BUDGET, length)
    if data.carry:
        found = nll(StreamedLanguageModelling(), streamed_windows(store, STRETCH))
    else:
        found = nll(
            LanguageModelling(), strided_windows(store, length, stride=stride, budget=budget, isolate=data.isolate)
        )
        if getattr(run.model, "both_ways", False):
            back = nll(BackwardModelling(), backward_windows(store, length, stride=stride, budget=budget))
            found = (found + back) / 2
    nats = found * total
    return {
        "documents": store.counts.documents,
        "tokens": total,
        "characters": store.counts.characters,
        "bytes": store.counts.bytes,
        "nll": found,
        "perplexity": perplexity(nats, total),
        "bits_per_character": bits_per_character(nats, store.counts.characters),
        "bits_per_byte": bits_per_character(nats, store.counts.bytes),
        "carried": data.carry,
        "window": None if data.carry else min(length, total),
        "stride": None if data.carry else stride,
    }


def _told(
    windows: Iterator[Windows] | Iterator[Stretch], total: int, progress: Callable[[int, int], None] | None
) -> Iterator[Windows | Stretch]:
    done = 0
    for batch in windows:
        yield batch
        done += batch.count
        if progress is not None:
            progress(done, total)
