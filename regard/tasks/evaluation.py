"""Measure a run on held-out pairs: text scores with their signatures and, where gold is known, what lies behind."""

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, cast

import torch
import torch.nn.functional as F

from regard.data import Corpus, Documents, PairStore, evaluation_batches
from regard.data.images import Pictures
from regard.data.puzzles.problems import Problem
from regard.data.world import Sentence, pronoun_accuracy, spans
from regard.errors import ConfigError, DataError
from regard.look.align import AlignmentCounts, HeadScores, best_head, merge, words_of_pieces
from regard.look.watch import attentions, watch
from regard.metrics.text import by_length, corpus_bleu, corpus_scores, perplexity
from regard.models.protocols import TextEncoder
from regard.nn.attention import ACROSS
from regard.nn.batch import Pairs, Tokens
from regard.tasks.accuracy import picture_accuracy
from regard.tasks.corpora import WorldCorpus, corpus_of, world_held_out
from regard.tasks.judging import judge
from regard.tasks.perplexity import text_perplexity
from regard.tasks.pointing_scores import pointing_scores, share
from regard.tasks.run import Run
from regard.tasks.translator import Overlong
from regard.text import Tokenizer
from regard.text.copying import surface
from regard.training.loop import validate
from regard.training.objectives import Translation

ALIGNED = 500
"""How many held-out sentences the alignment error rate is measured on, and how many its head is chosen on."""


def evaluate(
    run: Run,
    corpus: Corpus | Documents | Pictures | Sequence[str] | Sequence[Problem] | None = None,
    *,
    limit: int | None = None,
    stride: int | None = None,
    overlong: Overlong = "split",
    lowercase: bool = False,
    tokenize: str = "13a",
    alternatives: bool = False,
    out: Callable[[str], object] | None = None,
    progress: Callable[[int, int], None] | None = None,
    **decode: Any,
) -> dict[str, Any]:
    """Scores of the run on `corpus`, by default the test set its configuration names, as one JSON-ready object.

    `cut` counts the translations that reached their greatest length and are not finished; `decode` may raise it.
    With `alternatives` the targets of equal sources are equally right answers to one question. `out` is given each
    translation as it is found. Of a language model it is the perplexity on documents, as `text_perplexity` finds it, of
    a model of pictures its accuracy, as `picture_accuracy` does; the settings of a search then mean nothing.
    An encoder's run takes names of files, and is scored as its task asks: see `judge`. Of a pointing model it is what
    `pointing_scores` finds, on problems.
    """
    if run.config.task == "images":
        return picture_accuracy(run, cast("Pictures | None", corpus), progress=progress)
    if run.config.task == "pointing":
        problems = cast("Sequence[Problem] | None", corpus)
        return pointing_scores(run, problems, limit=limit, progress=progress, **decode)
    if run.config.task == "language":
        return text_perplexity(run, cast("Documents | None", corpus), stride=stride, progress=progress)
    if isinstance(run.model, TextEncoder):
        return judge(run, cast("Sequence[str] | None", corpus), progress)
    run.check_task("translation")
    corpus = cast("Corpus | None", corpus)
    corpus = corpus or corpus_of(run.config.data, "test") or corpus_of(run.config.data, "valid")
    if corpus is None:
        raise ConfigError("nothing to evaluate on: the run names no test or validation set; give one")
    pairs = list(islice((pair for pair in corpus if pair[0].strip() and pair[1].strip()), limit))
    if not pairs:
        raise DataError("nothing to evaluate on: no pair has both sides")
    sources, references = _questions(pairs, alternatives)
    config = run.decode_config(**decode)
    check_tokenizer(tokenize)
    hypotheses, cut = [], 0
    for found in run.translator.stream(sources, config, overlong=overlong, window=512):
        hypotheses.append(found[0].text)
        cut += not found[0].finished
        if out is not None:
            out(found[0].text)
        if progress is not None:
            progress(len(hypotheses), len(sources))
    likelihood, counted = corpus_perplexity(run, pairs)
    words = [len(source.split()) for source in sources]
    bands = by_length(hypotheses, references, words, lowercase=lowercase, tokenize=tokenize)
    result: dict[str, Any] = {
        "sentences": len(sources),
        "pairs": len(pairs),
        "cut": cut,
        **corpus_scores(hypotheses, references, lowercase=lowercase, tokenize=tokenize).to_mapping(),
        "perplexity": likelihood,
        "perplexity_sentences": counted,
        "by_length": [band.to_mapping() for band in bands],
        "decode": {"beam": config.beam, "length_penalty": config.length_penalty, "length_form": config.length_form},
    }
    if not alternatives:
        result |= unknown_words(run, hypotheses, [answers[0] for answers in references])
    if isinstance(corpus, WorldCorpus) and not alternatives:
        result |= _world_scores(run, corpus, hypotheses)
    return result


def _questions(pairs: Sequence[tuple[str, str]], alternatives: bool) -> tuple[list[str], list[list[str]]]:
    """What to translate, and the right answers to each."""
    if not alternatives:
        return [source for source, _ in pairs], [[target] for _, target in pairs]
    answers: dict[str, list[str]] = {}
    for source, target in pairs:
        answers.setdefault(source, []).append(target)
    return list(answers), list(answers.values())


def check_tokenizer(tokenize: str) -> None:
    """Refuse a tokenizer of sacreBLEU's that is unknown or not installed before anything is translated."""
    try:
        corpus_bleu(["a"], ["a"], tokenize=tokenize)
    except (ImportError, RuntimeError, OSError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ConfigError(f"sacreBLEU cannot tokenize with {tokenize!r}: {reason}") from None


def corpus_perplexity(run: Run, pairs: Sequence[tuple[str, str]]) -> tuple[float, int]:
    """exp of the mean negative log-likelihood of a target token, given the source and the tokens before it.

    And over how many pairs: those that the model can read whole.
    """
    longest = run.translator.max_len
    rows = [pair for pair in (encode_pair(run, *pair) for pair in pairs) if max(map(len, pair)) <= longest]
    if not rows:
        raise DataError(f"every pair is longer than the model's max_len={longest}")
    store = PairStore.of(rows, run.vocabularies.source.pad)
    device = next(run.model.parameters()).device
    values = validate(run.model, Translation(), evaluation_batches(store, max(8192, 2 * longest)), device=device)
    return perplexity(values["nll"], 1), len(rows)


def unknown_words(run: Run, hypotheses: Sequence[str], references: Sequence[str]) -> dict[str, Any]:
    """How often the words of a reference that a word vocabulary does not know come out right, all and in order.

    Nothing where every word is known. `right` is over the sentences that have such words.
    """
    tokenizer = run.vocabularies.target
    if set(run.config.tokenizer.kinds) != {"word"}:
        return {}

    def unknown(text: str) -> list[str]:
        pairs = zip(surface(tokenizer, text), tokenizer.encode(text), strict=True)
        return [word for word, index in pairs if index == tokenizer.unk]

    judged = [(unknown(one), unknown(other)) for one, other in zip(hypotheses, references, strict=True)]
    judged = [(found, wanted) for found, wanted in judged if wanted]
    if not judged:
        return {}
    shares = share("right", [found == wanted for found, wanted in judged])
    return {"unknown_words": {"sentences": len(judged), "words": sum(len(words) for _, words in judged), **shares}}


def encode_pair(run: Run, source: str, target: str) -> tuple[list[int], list[int]]:
    """The pair as rows of ids: the source with `eos`, the target from `bos` to `eos`."""
    vocabularies = run.translator.reading(source)
    ids, other = vocabularies.source.encode(source), vocabularies.target.encode(target)
    return vocabularies.source_row(ids), vocabularies.target_row(other)


def words_of_row(tokenizer: Tokenizer, text: str, words: Sequence[str]) -> list[int | None]:
    """The word of each piece of a row, its end left out; None for what belongs to no word."""
    return [None] * len(tokenizer.opening) + words_of_pieces(tokenizer.offsets(text), spans(text, list(words)))


def _world_scores(run: Run, corpus: WorldCorpus, hypotheses: Sequence[str]) -> dict[str, Any]:
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
