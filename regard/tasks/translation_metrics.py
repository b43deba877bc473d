"""How translations are measured beside BLEU: perplexity, unknown words and, of the bundled corpus, its annotations.

Those of a sentence say which source word each target word translates, and which noun a pronoun means.
"""

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

import torch
import torch.nn.functional as F

from regard.config import JsonObject
from regard.data import PairStore, evaluation_batches
from regard.data.synthetic.world.sentence import ParallelSentence, pronoun_accuracy, words_of
from regard.errors import ConfigError, DataError
from regard.look.alignment import AlignmentCounts, HeadScores, best_head, merge
from regard.look.watch import attentions, watch
from regard.metrics.classification_metrics import wilson_interval
from regard.metrics.text import References, bleu_tokenizer, corpus_bleu, perplexity
from regard.metrics.word_errors import WordErrors
from regard.nn.attention import ACROSS
from regard.nn.batch import Pairs, Tokens
from regard.tasks.corpora import WorldCorpus, sides_of, world_held_out
from regard.tasks.ensemble import Ensemble
from regard.tasks.run import Run
from regard.tasks.spec import Say
from regard.tasks.translator import encode_pair, words_of_row
from regard.training.loop import validate
from regard.training.objectives import SequenceToSequence

ALIGNED = 500
"""How many held-out sentences the alignment error rate is measured on, and how many its head is chosen on."""


def world_scores(run: Run, corpus: WorldCorpus, hypotheses: Sequence[str]) -> JsonObject:
    """How many pronouns are right, and the alignment error rate of the best cross-attention head."""
    result: JsonObject = {}
    gold = list(islice(corpus.sampled(), len(hypotheses)))
    if corpus.source == "en":
        right, total = pronoun_accuracy(gold, hypotheses)
        result = {"pronoun_accuracy": right / total if total else None, "pronouns": total}
    names = [name for name, one in attentions(run.model).items() if one.sides == ACROSS]
    if isinstance(run.model, Ensemble):
        names = []  # no one model to look into
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
def head_alignment(run: Run, sentences: Sequence[ParallelSentence], source: str = "en") -> HeadScores:
    """How well each cross-attention head, at the step that predicts a word, points at that word's translation.

    Where a layer has fewer heads than another, the error rate of those it lacks is 1. Sentences longer than the model
    reads are left out.
    """
    sentences = [sentence for sentence in sentences if _readable(run, sentence, source)]
    counts = AlignmentCounts()
    names = [name for name, one in attentions(run.model).items() if one.sides == ACROSS]
    run.model.eval()
    for start in range(0, len(sentences), 64):
        part = [sides_of(sentence, source) for sentence in sentences[start : start + 64]]
        rows = [encode_pair(run, texts[0], texts[1]) for texts, _, _ in part]
        pad = run.vocabularies.source.pad
        batch = Pairs(Tokens.of([row[0] for row in rows], pad), Tokens.of([row[1] for row in rows], pad))
        with watch(run.model, names) as trace:
            run.model(batch.to(run.device))
        weights = _stacked([trace.weights(name).cpu() for name in names])
        for index, (texts, words, alignment) in enumerate(part):
            S, T = len(rows[index][0]), len(rows[index][1])
            # Row t of the weights is the step that reads target token t and predicts token t + 1; eos is left out.
            own = weights[index, :, :, : T - 2, : S - 1]
            counts.add(
                merge(own, *words_by_piece(run, texts, words), sources=len(words[0]), targets=len(words[1])), alignment
            )
    return counts.scores()


def words_by_piece(run: Run, texts: Sequence[str], words: Sequence[Sequence[str]]) -> list[list[int | None]]:
    """On each side of a pair the word of each piece, the end left out; None for what belongs to no word."""
    tokenizers = (run.vocabularies.source, run.vocabularies.target)
    return [words_of_row(*side) for side in zip(tokenizers, texts, words, strict=True)]


def _stacked(layers: Sequence[torch.Tensor]) -> torch.Tensor:
    """The weights of all layers, (B, L, H, T, S); heads that a layer lacks look nowhere."""
    most = max(weights.shape[1] for weights in layers)
    return torch.stack([F.pad(weights, (0, 0, 0, 0, 0, most - weights.shape[1])) for weights in layers], dim=1)


def _readable(run: Run, sentence: ParallelSentence, source: str) -> bool:
    texts, _, _ = sides_of(sentence, source)
    return max(map(len, encode_pair(run, texts[0], texts[1]))) <= run.translator.max_len


def word_errors(corpus: WorldCorpus, hypotheses: list[str]) -> WordErrors:
    """Repeated, omitted and over-translated words, by the annotated alignments."""
    counts, written = WordErrors(), "fr" if corpus.source == "en" else "en"
    for sentence, hypothesis in zip(islice(corpus.sampled(), len(hypotheses)), hypotheses, strict=True):
        _, (source, target), alignment = sides_of(sentence, corpus.source)
        counts.add(words_of(hypothesis, written), target, alignment, len(source))
    return counts


def corpus_perplexity(run: Run, pairs: Sequence[tuple[str, str]]) -> tuple[float, int]:
    """exp of the mean negative log-likelihood of a target token, given the source and the tokens before it.

    And over how many pairs: those that the model can read whole.
    """
    longest = run.translator.max_len
    rows = [pair for pair in (encode_pair(run, *pair) for pair in pairs) if max(map(len, pair)) <= longest]
    if not rows:
        raise DataError(f"every pair is longer than the model's max_len={longest}")
    if isinstance(run.model, Ensemble):
        fitting = [pair for pair in pairs if max(map(len, encode_pair(run, *pair))) <= longest]
        scored = run.scorer.score([run.scorer.checked(pair) for pair in fitting])
        return perplexity(-sum(one.log_prob for each in scored for one in each), sum(map(len, scored))), len(rows)
    store = PairStore.of(rows, run.vocabularies.source.pad)
    batches = evaluation_batches(store, max(8192, 2 * longest))
    values = validate(run.model, SequenceToSequence(), batches, device=run.device)
    return perplexity(values["nll"], 1), len(rows)


def unknown_words(run: Run, hypotheses: Sequence[str], references: Sequence[str]) -> JsonObject:
    """How often the words of a reference that a word vocabulary does not know come out right, all and in order.

    Nothing where every word is known. `right` is over the sentences that have such words.
    """
    tokenizer = run.vocabularies.target
    if set(run.config.tokenizer.kinds) != {"word"}:
        return {}

    def unknown(text: str) -> list[str]:
        pairs = zip(tokenizer.split(text), tokenizer.encode(text), strict=True)
        return [word for word, index in pairs if index == tokenizer.unk]

    judged = [(unknown(one), unknown(other)) for one, other in zip(hypotheses, references, strict=True)]
    judged = [(found, wanted) for found, wanted in judged if wanted]
    if not judged:
        return {}
    right, words = sum(found == wanted for found, wanted in judged), sum(len(wanted) for _, wanted in judged)
    scores = {"right": right / len(judged), "right_interval": list(wilson_interval(right, len(judged), 1.96))}
    return {"unknown_words": {"sentences": len(judged), "words": words, **scores}}


def per_character(tokenize: str) -> str:
    """What is said where references have chosen a tokenizer for BLEU."""
    return f"BLEU is per character (tokenize={tokenize}): the references have no spaces between words"


def tokenizer_for(asked: str | None, references: References, say: Say | None) -> str:
    """The tokenizer of BLEU that was asked for, else the one that the references need, which is said."""
    chosen = asked or bleu_tokenizer(references)
    if asked is None and chosen != "13a" and say is not None:
        say(f"{per_character(chosen)}; --tokenize chooses another")
    return chosen


def check_tokenizer(tokenize: str | None) -> None:
    """Refuse a tokenizer of sacreBLEU's that is unknown or not installed before anything is translated."""
    if tokenize is None:
        return
    try:
        corpus_bleu(["a"], ["a"], tokenize=tokenize)
    except (ImportError, RuntimeError, OSError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ConfigError(f"sacreBLEU cannot tokenize with {tokenize!r}: {reason}") from None


def _searched(decode: Mapping[str, Any]) -> str:
    """How translations were found: the beam, and what else was asked for."""
    usual = ("beam", "length_penalty", "length_form")
    more = [f"{name} {value}" for name, value in decode.items() if name not in usual]
    sampled = decode.get("mbr") or decode.get("temperature")
    return ", ".join([*([] if sampled else [f"beam {decode['beam']}"]), *more])


def show_scores(result: Mapping[str, Any]) -> str:
    """The scores for a person, every one with its setting."""
    low, high = result["bleu_interval"]
    exact_low, exact_high = result["exact_match_interval"]
    too_long = result["pairs"] - result["perplexity_sentences"]
    left_out = f"; {too_long:,} pairs too long for the model left out" if too_long else ""
    lines = [
        f"sentences          {result['sentences']:,}  ({_searched(result['decode'])})",
        f"BLEU               {result['bleu']:.2f}  [{low:.2f}, {high:.2f}]  {result['bleu_signature']}",
        f"BLEU, tokenised    {result['tokenised_bleu']:.2f}  {result['tokenised_bleu_signature']}",
        f"chrF               {result['chrf']:.2f}  {result['chrf_signature']}",
        f"TER                {result['ter']:.2f}  {result['ter_signature']}",
        f"exact match        {100 * result['exact_match']:.2f} %  [{100 * exact_low:.2f}, {100 * exact_high:.2f}]",
        f"token error rate   {100 * result['token_error_rate']:.2f} %  (edits per reference word)",
        f"perplexity         {result['perplexity']:.3f}  (per target token of the run's own vocabulary{left_out})",
    ]
    if result.get("pronoun_accuracy") is not None:
        lines.append(f"pronoun accuracy   {100 * result['pronoun_accuracy']:.2f} %  of {result['pronouns']}")
    if "alignment_error_rate" in result:
        head = result["alignment_head"]
        lines.append(
            f"alignment error    {result['alignment_error_rate']:.3f}  ({head['attention']}, head {head['head']}, "
            f"chosen on validation sentences, at the step that predicts the word)"
        )
    if words := result.get("unknown_words"):
        low, high = words["right_interval"]
        lines.append(
            f"unknown words      {100 * words['right']:.2f} %  [{100 * low:.2f}, {100 * high:.2f}]  right in "
            f"{words['sentences']:,} sentences that have any"
        )
    lines.append("by source length   words   sentences   exact match   BLEU")
    for band in result["by_length"]:
        if band["count"]:
            words = f"{band['low']}-{band['high'] - 1}" if band["high"] else f"{band['low']}+"
            exact, bleu = 100 * band["exact_match"], band["bleu"]
            lines.append(f"{'':18} {words:>6}   {band['count']:>9,}   {exact:>9.1f} %   {bleu:>5.1f}")
    return "\n".join(lines)
