"""What a model looked at in anything that it read when it wrote each piece of a text of it."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from regard.errors import DataError
from regard.look.document import Feature, Recurrence, Sentence, Side
from regard.look.recurrence import text_features
from regard.look.watch import attentions, seen_recurrences
from regard.nn.attention import ACROSS, WITHIN
from regard.tasks.cross_attention import piece_spans
from regard.tasks.looking.look_options import LookOptions, attention_maps, left_out_note, looking
from regard.tasks.looking.steps import END, START, Judged, candidates, decoding, edited, readable
from regard.tasks.run import Run
from regard.tasks.verbs.spec import WrittenText
from regard.tasks.writing import Writer
from regard.text import Tokenizer


def given_targets(options: LookOptions, count: int, what: str) -> Sequence[str | None]:
    """What each input is to have been written as; None where the model is to write it."""
    if not count:
        raise DataError(f"nothing to look at: no {what} was given")
    targets = [None] * count if options.targets is None else options.targets
    if len(targets) != count:
        raise DataError(f"{len(targets)} targets for {count} {what}s; give one each")
    return targets


def written_row(writer: Writer, best: WrittenText, what: str) -> list[int]:
    """A text as a row of tokens, with its end where it has one; `what` it is."""
    first, last = writer.ends
    row = [first, *best.tokens, *([last] if best.finished else [])]
    if len(row) - 1 > writer.max_len:
        raise DataError(f"{what} is longer than the model reads, so it cannot be shown")
    return row


def written_sides(target: Tokenizer, best: WrittenText) -> dict[str, Any]:
    """A text as what was written, and as what was read before each piece of it."""
    pieces, spans = readable(target.pieces(best.tokens)), piece_spans(target, best.text, list(best.tokens))
    nowhere, steps = (0, 0), len(pieces) + best.finished
    return {
        "target": Side.of(best.text, [*pieces, END][:steps], [*spans, nowhere][:steps]),
        "prefix": Side.of(best.text, [START, *pieces][:steps], [nowhere, *spans][:steps]),
    }


@torch.inference_mode()
def written_sentence(
    run: Run,
    writer: Writer,
    item: Any,
    best: WrittenText,
    source: Side,
    options: LookOptions,
    again: Callable[[], str],
    *,
    what: str,
    other: tuple[int, Any] | None = None,
    features: Sequence[Feature] = (),
) -> tuple[Sentence, str]:
    """An input, shown as `source`, with its text, and what did not fit.

    Attention is read by teacher forcing, which sees what decoding saw. `again` writes the text anew, for edits; `other`
    is the place of another input and its batch, which heads can be swapped with; `features` are what is known of the
    input, for the units of recurrent cells to be compared with.
    """
    target, row, known = run.vocabularies.target, written_row(writer, best, what), attentions(run.model)
    sizes = {"source": len(source.pieces), "target": len(row) - 1, "prefix": len(row) - 1}
    names = options.fitting(run.model, lambda one: sizes[known[one].sides.queries] * sizes[known[one].sides.keys])
    batch, steps = writer.batch([item], [row]), max(sizes.values())
    with looking(run.model, names, steps, options) as trace:
        hidden = run.model(batch)
    log_probs = run.model.head(hidden).log_softmax(-1)[0].float().cpu()
    old = torch.tensor(row[1:])[:, None]

    def judge() -> Judged:
        return run.model.logits(batch).log_softmax(-1)[0].float().cpu().gather(1, old)[:, 0], again()

    shown = {"log-probability": f"{float(log_probs.gather(1, old).sum()):.3f}"}
    if not best.finished:
        shown["cut"] = "at its greatest length"
    crossing = [one for one in names if known[one].sides == ACROSS]
    seen = seen_recurrences(trace)
    cells = tuple(at_positions(one, sizes[one.steps]) for one in seen)
    read = [(0, 0), *piece_spans(target, best.text, list(best.tokens))][: len(row) - 1]
    found = Sentence(
        source=source,
        **written_sides(target, best),
        attentions=attention_maps(run.model, trace, options),
        candidates=candidates(target, log_probs.exp(), row[1:]),
        scores=shown if options.targets is not None else {"score": f"{best.score:.3f}", **shown},
        decoding=decoding(hidden[0], trace, crossing),
        recurrences=cells,
        features=(*features, *text_features(best.text, read, "prefix", options.features)) if cells else (),
        edited=edited(run.model, options, judge, other=other, swaps=lambda one: known[one].sides == WITHIN)
        if options.edits
        else (),
    )
    said = left_out_note(run.model, names, options, steps)
    folded = [one.name for one, shown in zip(seen, cells, strict=True) if one is not shown]
    if folded:
        said = (
            f"{said} Of {', '.join(folded)}, with several steps per position, the last step of each is shown.".strip()
        )
    return found, said


def at_positions(cell: Recurrence, positions: int) -> Recurrence:
    """A cell as it is after each position: of a pyramid's lower layer, which has several steps in each, the last read.

    From layer to layer positions are halved, so a position has a power of two of steps, the last position perhaps less.
    """
    steps = len(cell.parts[0].array())
    if steps == positions:
        return cell
    each = 1 << (-(-steps // positions) - 1).bit_length()
    starts = range(0, steps, each)
    chosen = list(starts) if cell.backward else [min(start + each, steps) - 1 for start in starts]
    return replace(cell, parts=tuple(replace(one, values=one.array()[chosen]) for one in cell.parts))
