"""Which words a parser looked at when it wrote each bracket of a tree."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from regard.config import Setting
from regard.data.trees import linearised, tree_of
from regard.errors import DataError
from regard.look.document import AttentionMap, Candidate, Document, Sentence, Side, TreeNode
from regard.look.watch import Trace, attention_map, attentions, watch
from regard.models.tree_parser import EDGES
from regard.nn.attention import WITHIN
from regard.nn.batch import CLOSE, END
from regard.tasks.looking.look_options import LookOptions, left_out_note
from regard.tasks.looking.steps import CANDIDATES, Judged, edited, looked
from regard.tasks.looking.steps import END as LAST
from regard.tasks.looking.steps import START as FIRST
from regard.tasks.run import Run

BEFORE_WORDS, AFTER_WORDS = "⟨before⟩", "⟨after⟩"


def parse_document(run: Run, inputs: Sequence[Any], options: LookOptions, **decode: Setting) -> Document:
    """Each sentence with its tree, written or given in brackets. Attention is read by teacher forcing."""
    parser, config = run.parser, run.decode_config(**decode)
    sentences = parser.sentences(inputs)
    if options.targets is not None:
        if len(options.targets) != len(sentences):
            raise DataError(f"{len(options.targets)} targets for {len(sentences)} sentences; give one each")
        rows = [_given(run, words, text) for words, text in zip(sentences, options.targets, strict=True)]
        scores: list[float | None] = [None] * len(rows)
    else:
        best = [found[0] for found in parser.parse(sentences, config)]
        rows, scores = [list(one.choices) for one in best], [one.score for one in best]

    def again(words: Sequence[str]) -> str:
        return parser.parse([words], config)[0][0].tree

    found = zip(sentences, rows, scores, strict=True)
    return looked(run, [_sentence(run, *one, options, again) for one in found])


def _given(run: Run, words: Sequence[str], text: str) -> list[int]:
    from regard.tasks.parsing import symbol_numbers

    tree = tree_of(text)
    if tree.words != tuple(words):
        raise DataError(f"the tree given is not over the words of its sentence: {text[:60]}")
    found = linearised(tree, symbol_numbers(run.parser.labels))
    if isinstance(found, str):
        raise DataError(f"the tree given has the label '{found}', which the run does not write")
    return found


@torch.inference_mode()
def _sentence(
    run: Run, words: Sequence[str], choices: list[int], score: float | None, options: LookOptions, again: Any
) -> tuple[Sentence, str]:
    parser, row = run.parser, [END, *choices, END]
    batch = parser.batch([words], [row])
    known, pieces = attentions(run.model), batch.word_of[0].tolist()
    sizes = {"source": max(len(pieces), len(words) + EDGES), "target": len(row) - 1, "prefix": len(row) - 1}
    names = options.fitting(run.model, lambda one: sizes[known[one].sides.queries] * sizes[known[one].sides.keys])
    with watch(run.model, names, heads=options.heads) as trace:
        log_probs = run.model(batch)[0].float().cpu()
    old = torch.tensor(row[1:])[:, None]
    run.model.eval()

    def judge() -> Judged:
        return run.model(batch)[0].float().cpu().gather(1, old)[:, 0], again(words)

    symbols = [*parser.names(choices), LAST]
    text = " ".join(words)
    shown = {"log-probability": f"{float(log_probs.gather(1, old).sum()):.3f}"}
    return Sentence(
        source=Side(
            text=text,
            pieces=(BEFORE_WORDS, AFTER_WORDS, *words),
            words=tuple(words),
            word_of=(None, None, *range(len(words))),
        ),
        target=Side(text=" ".join(symbols[:-1]), pieces=tuple(symbols), names=True),
        prefix=Side(text=" ".join(symbols[:-1]), pieces=(FIRST, *symbols[:-1]), names=True),
        attentions=_maps(run, trace, pieces, len(words), options),
        candidates=_candidates(run, log_probs, row[1:]),
        scores=shown if score is None else {"score": f"{score:.3f}", **shown},
        edited=edited(run.model, options, judge) if options.edits else (),
        tree=_nodes(run, choices),
    ), left_out_note(run.model, names, options)


def _maps(run: Run, trace: Trace, pieces: Sequence[int], words: int, options: LookOptions) -> tuple[AttentionMap, ...]:
    """Every attention; an encoder's by word: summed over the pieces looked at, the mean of the pieces that look.

    Special tokens before the words count as what is before them, the others as what is after.
    """
    first = next((place for place, word in enumerate(pieces) if word), 0)
    of = torch.zeros(words + EDGES, len(pieces))
    for place, word in enumerate(pieces):
        of[word - 1 + EDGES if word else int(place >= first), place] = 1.0
    mean = of / of.sum(1, keepdim=True).clamp_min(1.0)
    found = []
    for name, attention in attentions(run.model).items():
        if name in trace.names:
            weights = trace.weights(name)[0].float().cpu()
            if attention.sides == WITHIN:
                weights = mean @ weights @ of.T
            found.append(attention_map(name, attention.sides, weights, None, options.heads))
    return tuple(found)


def _candidates(run: Run, log_probs: torch.Tensor, given: Sequence[int]) -> tuple[tuple[Candidate, ...], ...]:
    found = []
    for row, symbol in zip(log_probs.exp().numpy(), given, strict=True):
        likely = [int(one) for one in np.argsort(-row, kind="stable")[:CANDIDATES] if row[one] > 0]
        chosen = likely if symbol in likely else [*likely, symbol]
        found.append(tuple(Candidate(piece=_name(run, one), probability=float(row[one])) for one in chosen))
    return tuple(found)


def _name(run: Run, symbol: int) -> str:
    return LAST if symbol == END else run.parser.names([symbol])[0]


def _nodes(run: Run, choices: Sequence[int]) -> tuple[TreeNode, ...]:
    nodes: list[TreeNode] = []
    stack, word = [-1], EDGES
    for step, (choice, name) in enumerate(zip(choices, run.parser.names(choices), strict=True)):
        if choice == CLOSE:
            stack.pop()
        elif name.startswith("("):
            nodes.append(TreeNode(label=name[1:], parent=stack[-1], step=step))
            stack.append(len(nodes) - 1)
        else:
            nodes.append(TreeNode(label=name, parent=stack[-1], step=step, word=word))
            word += 1
    return tuple(nodes)
