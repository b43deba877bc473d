"""What is known of the bundled corpus beside its pairs, and how a run is measured by it: pronouns, alignments, words.

The gold of a sentence says which source word each target word translates, and which noun a pronoun means.
"""

from collections.abc import Sequence
from itertools import islice
from typing import Any

import torch
import torch.nn.functional as F

from regard.data.synthetic.world import Sentence, pronoun_accuracy, words_of
from regard.look.align import AlignmentCounts, HeadScores, best_head, merge
from regard.look.watch import attentions, watch
from regard.metrics.word_errors import WordErrors
from regard.nn.attention import ACROSS
from regard.nn.batch import Pairs, Tokens
from regard.tasks.corpora import WorldCorpus, world_held_out
from regard.tasks.run import Run
from regard.tasks.translator import encode_pair, words_of_row

ALIGNED = 500
"""How many held-out sentences the alignment error rate is measured on, and how many its head is chosen on."""


def world_scores(run: Run, corpus: WorldCorpus, hypotheses: Sequence[str]) -> dict[str, Any]:
    """How many pronouns are right, and the alignment error rate of the best cross-attention head."""
    result: dict[str, Any] = {}
    gold = list(islice(corpus.drawn(), len(hypotheses)))
    if corpus.source == "en":
        right, total = pronoun_accuracy(gold, hypotheses)
        result = {"pronoun_accuracy": right / total if total else None, "pronouns": total}
    names = [name for name, one in attentions(run.model).items() if one.sides == ACROSS]
    readable = [sentence for sentence in gold[:ALIGNED] if _readable(run, sentence, corpus.source)]
    if names and readable:
        valid = world_held_out("valid", corpus.source, ALIGNED, corpus.grammar).sentences
        chosen = best_head(head_alignment(run, valid, corpus.source))
        scores = head_alignment(run, readable, corpus.source)
        result |= {
            "alignment_error_rate": float(scores.error_rate[chosen]),
            "alignment_head": {"attention": names[chosen[0]], "head": chosen[1]},
            "alignment_by_head": {
                name: rates[: attentions(run.model)[name].heads]
                for name, rates in zip(names, scores.error_rate.tolist(), strict=True)
            },
        }
    return result


@torch.inference_mode()
def head_alignment(run: Run, sentences: Sequence[Sentence], source: str = "en") -> HeadScores:
    """How well each cross-attention head, at the step that predicts a word, points at that word's translation.

    Where a layer has fewer heads than another, the error rate of those it lacks is 1. Sentences longer than the model
    reads are left out.
    """
    sentences = [sentence for sentence in sentences if _readable(run, sentence, source)]
    counts = AlignmentCounts()
    names = [name for name, one in attentions(run.model).items() if one.sides == ACROSS]
    device = next(run.model.parameters()).device
    run.model.eval()
    for start in range(0, len(sentences), 64):
        part = [_oriented(sentence, source) for sentence in sentences[start : start + 64]]
        rows = [encode_pair(run, texts[0], texts[1]) for texts, _, _ in part]
        pad = run.vocabularies.source.pad
        batch = Pairs(Tokens.of([row[0] for row in rows], pad), Tokens.of([row[1] for row in rows], pad))
        with watch(run.model, names) as trace:
            run.model(batch.to(device))
        weights = _stacked([trace.weights(name).cpu() for name in names])
        for index, (texts, words, alignment) in enumerate(part):
            S, T = len(rows[index][0]), len(rows[index][1])
            # Row t of the weights is the step that reads target token t and predicts token t + 1; eos is left out.
            own = weights[index, :, :, : T - 2, : S - 1]
            piece_words = [
                words_of_row(tokenizer, text, side)
                for tokenizer, text, side in zip(
                    (run.vocabularies.source, run.vocabularies.target), texts, words, strict=True
                )
            ]
            counts.add(merge(own, *piece_words, sources=len(words[0]), targets=len(words[1])), alignment)
    return counts.scores()


def _stacked(layers: Sequence[torch.Tensor]) -> torch.Tensor:
    """The weights of all layers, (B, L, H, T, S); heads that a layer lacks look nowhere."""
    most = max(weights.shape[1] for weights in layers)
    return torch.stack([F.pad(weights, (0, 0, 0, 0, 0, most - weights.shape[1])) for weights in layers], dim=1)


def _readable(run: Run, sentence: Sentence, source: str) -> bool:
    texts, _, _ = _oriented(sentence, source)
    return max(map(len, encode_pair(run, texts[0], texts[1]))) <= run.translator.max_len


def _oriented(sentence: Sentence, source: str):
    """(texts, words, alignment) of the sentence, source side first."""
    texts, words = (sentence.english, sentence.french), (sentence.english_words, sentence.french_words)
    if source == "en":
        return texts, words, sentence.alignment
    return texts[::-1], words[::-1], tuple((there, here) for here, there in sentence.alignment)


def word_errors(corpus: WorldCorpus, hypotheses: list[str]) -> WordErrors:
    """Repeated, omitted and over-translated words, by the gold alignments."""
    counts = WordErrors()
    forward = corpus.source == "en"
    for sentence, hypothesis in zip(islice(corpus.drawn(), len(hypotheses)), hypotheses, strict=True):
        sides = (sentence.english_words, sentence.french_words)
        source, target = sides if forward else sides[::-1]
        alignment = sentence.alignment if forward else tuple((there, here) for here, there in sentence.alignment)
        counts.add(words_of(hypothesis, "fr" if forward else "en"), target, alignment, len(source))
    return counts
