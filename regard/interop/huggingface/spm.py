"""SentencePiece models as pipelines of the `tokenizers` library, where those give the same pieces."""

import re
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors

from regard.errors import ConfigError, DataError, RunError
from regard.interop.huggingface.files import plain_file, read_json
from regard.text.tokenizer import NOT_CUT, UNNUMBERED

LARGEST = 64 << 20
"""Bytes of the largest model that is read."""
UNIGRAM = 1
NORMAL, UNKNOWN, CONTROL, UNUSED = 1, 2, 3, 5
MARK = "▁"


def t5_tokenizer(path: Path, extra_ids: int) -> tokenizers.Tokenizer:
    """The model's own numbers, followed by T5's extra ones, of which the last is number 0."""
    model = _read(path)
    extra = [f"<extra_id_{index}>" for index in reversed(range(extra_ids))]
    vocabulary = [(piece.piece, piece.score) for piece in model.pieces] + [(name, 0.0) for name in extra]
    made = _pipeline(model, vocabulary, _unknown(path, model))
    special = [piece.piece for piece in model.pieces if piece.type in (UNKNOWN, CONTROL)]
    made.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in (*special, *extra)])
    if (eos := made.token_to_id("</s>")) is not None:
        made.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", eos)])
    return made


def marian_tokenizers(
    source: Path, target: Path, vocabulary: Path, tell: Callable[[str], object] = warnings.warn
) -> tuple[tokenizers.Tokenizer, tokenizers.Tokenizer]:
    """One pipeline a side, both with the numbers of `vocab.json`: a side knows the pieces of its own model alone.

    A piece that `vocab.json` has no number for is unknown to the model, and text is cut into it all the same.
    """
    numbers, models = _numbers(vocabulary), {path: _read(path) for path in (source, target)}
    lost = {path: sorted(_scores(model).keys() - set(numbers)) for path, model in models.items()}
    if any(lost.values()):
        counts = " and ".join(f"{path.name} {len(pieces)}" for path, pieces in lost.items() if pieces)
        example = next(pieces[0] for pieces in lost.values() if pieces)
        tell(
            f"{vocabulary.parent}: {counts} pieces that vocab.json has no number for, such as {example!r}: they count "
            f"as unknown"
        )
    made = [_marian(path, model, numbers, lost[path]) for path, model in models.items()]
    return made[0], made[-1]


def _scores(model: Any) -> dict[str, float]:
    return {piece.piece: piece.score for piece in model.pieces if piece.type == NORMAL}


def _marian(path: Path, model: Any, numbers: Sequence[str], lost: Sequence[str]) -> tokenizers.Tokenizer:
    scores = _scores(model)
    special = [piece.piece for piece in model.pieces if piece.type in (UNKNOWN, CONTROL)]
    special = [name for name in (*special, "<pad>") if name in numbers]
    languages = [name for name in numbers if re.fullmatch(">>.+<<", name)]  # written before a text
    if (unknown := _unknown(path, model)) not in special:
        raise DataError(f"{path} calls an unknown piece {unknown!r}, for which vocab.json has no number")
    known, lowest = {*scores, *special, *languages}, min(scores.values(), default=0.0)
    # The other side's pieces keep their numbers but cannot be met.
    entries = [(name if name in known else f"{NOT_CUT}{name}", scores.get(name, lowest)) for name in numbers]
    if lost:
        entries += [(UNNUMBERED, lowest), *((name, scores[name]) for name in lost)]
    made = _pipeline(model, entries, unknown)
    # A text may hold anything. Neither of the two is a character.
    parts: list[Any] = [normalizers.Replace(NOT_CUT, "\ufffe"), made.normalizer]
    made.normalizer = normalizers.Sequence(parts)
    # As SentencePiece joins pieces, whichever side they are of.
    made.decoder = decoders.Sequence(
        [decoders.Replace(MARK, " "), decoders.Fuse(), decoders.Replace(Regex(f"^[ {NOT_CUT}]+| +$"), "")]
    )
    made.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in special])
    made.add_tokens([AddedToken(name, normalized=False) for name in languages])
    return made


def _numbers(path: Path) -> list[str]:
    table = read_json(path)
    if sorted(index for index in table.values() if isinstance(index, int)) != list(range(len(table))):
        raise DataError(f"{path} does not number its pieces from 0 on")
    return sorted(table, key=table.__getitem__)


def _pipeline(model: Any, vocabulary: list[tuple[str, float]], unknown: str) -> tokenizers.Tokenizer:
    index = next(place for place, (name, _) in enumerate(vocabulary) if name == unknown)
    made = tokenizers.Tokenizer(models.Unigram(vocabulary, index, model.trainer_spec.byte_fallback))
    parts: list[normalizers.Normalizer] = [normalizers.Replace(Regex(" {2,}"), " "), normalizers.Strip()]
    if charsmap := model.normalizer_spec.precompiled_charsmap:
        parts.insert(0, normalizers.Precompiled(charsmap))
    made.normalizer = normalizers.Sequence(parts)
    crossing = any(MARK in piece.piece[1:] for piece in model.pieces)
    made.pre_tokenizer = pre_tokenizers.Metaspace(MARK, prepend_scheme="always", split=not crossing)
    made.decoder = decoders.Metaspace(MARK, prepend_scheme="always")
    return made


def _unknown(path: Path, model: Any) -> str:
    found = [piece.piece for piece in model.pieces if piece.type == UNKNOWN]
    if len(found) != 1:
        raise DataError(f"{path} has {len(found)} unknown pieces; a model has one")
    return found[0]


def _read(path: Path) -> Any:
    """The model, or why a pipeline would not cut text as it does."""
    try:
        from google.protobuf.message import DecodeError
        from sentencepiece import sentencepiece_model_pb2
    except ImportError:
        raise ConfigError(f"{path.name} can only be read with SentencePiece: pip install 'regard[hf]'") from None
    plain_file(path)
    if path.stat().st_size > LARGEST:
        raise DataError(f"{path} has {path.stat().st_size:,} bytes; at most {LARGEST:,} are read")
    model = sentencepiece_model_pb2.ModelProto()  # type: ignore[attr-defined]
    try:
        model.ParseFromString(path.read_bytes())
    except DecodeError:
        raise DataError(f"{path} was cut short or is not a SentencePiece model") from None
    trainer, normalizer = model.trainer_spec, model.normalizer_spec
    kinds = {piece.type for piece in model.pieces} - {NORMAL, UNKNOWN, CONTROL, UNUSED}
    strange = {
        "model_type is not unigram": trainer.model_type != UNIGRAM,
        "treat_whitespace_as_suffix is set": trainer.treat_whitespace_as_suffix,
        "byte_fallback is set": trainer.byte_fallback,
        "add_dummy_prefix is off": not normalizer.add_dummy_prefix,
        "remove_extra_whitespaces is off": not normalizer.remove_extra_whitespaces,
        "escape_whitespaces is off": not normalizer.escape_whitespaces,
        "some pieces are defined by its user": bool(kinds),
        "it has no pieces": not model.pieces,
    }
    if found := [what for what, so in strange.items() if so]:
        raise RunError(
            f"{path} cannot be turned into a pipeline that cuts text alike: {found[0]}; put a tokenizer.json beside it"
        )
    return model
