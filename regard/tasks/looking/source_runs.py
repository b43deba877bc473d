"""What a run of several sources looked at: all sources side by side, each with its name before it."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

from regard.config import Setting
from regard.errors import ConfigError
from regard.look.document import Document, Sentence, Side
from regard.look.watch import attention_map, attentions, watch
from regard.nn.attention import ACROSS, BEFORE
from regard.tasks.looking.look_options import LookOptions
from regard.tasks.looking.steps import END, candidates, looked, readable
from regard.tasks.looking.written_runs import given_targets, written_row, written_sides
from regard.tasks.run import Run
from regard.tasks.verbs.spec import WrittenText


def sources_document(run: Run, rows: Sequence[Any], options: LookOptions, **decode: Setting) -> Document:
    """Each row with the text written of it. Attention is read by teacher forcing, which sees what decoding saw."""
    if options.edits or options.vectors:
        raise ConfigError("of a run of several sources only weights can be shown: no edits or vectors")
    combiner = run.combiner
    given = [combiner.checked(row, number) for number, row in enumerate(rows, 1)]
    targets = given_targets(options, len(given), "row")
    written = combiner.combine(given, run.decode_config(**decode))
    texts = [
        best[0] if target is None else combiner.given(target) for best, target in zip(written, targets, strict=True)
    ]
    return looked(run, [(_row(run, *one, options), "") for one in zip(given, texts, strict=True)])


@torch.inference_mode()
def _row(run: Run, given: tuple[Any, ...], best: WrittenText, options: LookOptions) -> Sentence:
    combiner, target = run.combiner, run.vocabularies.target
    row = written_row(combiner, best, f"a text of {len(best.tokens)} tokens")
    batch = combiner.batch([given], [row])
    known = {name: one for name, one in attentions(run.model).items() if one.sides in (ACROSS, BEFORE)}
    with watch(run.model, list(known), heads=options.heads) as trace:
        hidden = run.model(batch)
    log_probs = run.model.head(hidden).log_softmax(-1)[0].float().cpu()
    pieces, sizes = _pieces(run, given, batch)
    starts = [sum(sizes[:place]) for place in range(len(sizes))]
    maps = []
    for name, one in known.items():
        weights = trace.weights(name)[0].float().cpu()
        if one.sides == ACROSS:
            weights = _placed(weights, name, sizes, starts, run.config.model_config().combine)
        maps.append(attention_map(name, one.sides, weights, heads=options.heads))
    shares = run.model.shares(batch)[0].mean(0).tolist()
    said = {name: f"{100 * share:.1f} %" for name, share in zip(combiner.names, shares, strict=True)}
    kinds = zip(given, combiner.reader.kinds, strict=True)
    named = [one if isinstance(one, str) else "-" if one is None else kind for one, kind in kinds]
    return Sentence(
        source=Side(text=" | ".join(named), pieces=pieces),
        **written_sides(target, best),
        attentions=tuple(maps),
        candidates=candidates(target, log_probs.exp(), row[1:]),
        scores={"score": f"{best.score:.3f}", **said},
    )


def _pieces(run: Run, given: tuple[Any, ...], batch: Any) -> tuple[tuple[str, ...], list[int]]:
    """The pieces of all sources, and how many places the model has for each: texts are padded to one length."""
    combiner, model = run.combiner, run.config.model_config()
    grid = model.image_size // model.patch_size
    pieces, sizes = [], []
    for place, one in enumerate(given):
        if place in combiner.reader.images:
            own = [f"{row},{column}" for row in range(1, grid + 1) for column in range(1, grid + 1)]
        elif place in combiner.reader.sounds:
            step = model.subsampling * model.hop / model.rate
            heard = 0 if one is None else -(-len(one) // model.subsampling)
            own = [f"{number * step:.2f}" for number in range(heard)]
            own += ["·"] * (-(-batch.frames.shape[2] // model.subsampling) - heard)
        else:
            row = combiner.reader.tokens(one)
            own = [*readable(run.vocabularies.source.pieces(row[:-1])), END] if row else []
            own += ["·"] * (batch.ids.shape[2] - len(own))
        pieces += own
        sizes.append(len(own))
    return tuple(pieces), sizes


def _placed(
    weights: torch.Tensor, name: str, sizes: Sequence[int], starts: Sequence[int], combine: str
) -> torch.Tensor:
    """The weights over one source, put where it stands among all of them."""
    if combine == "concatenate":
        return weights
    place = int(name.rpartition(".")[2])
    return F.pad(weights, (starts[place], sum(sizes) - starts[place] - sizes[place]))
