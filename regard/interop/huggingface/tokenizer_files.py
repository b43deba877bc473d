"""The tokenizer of a Hugging Face directory: a `tokenizer.json`, a WordPiece `vocab.txt`, or SentencePiece models."""

import json
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors

from regard.errors import ConfigError, DataError, RunError, warn
from regard.interop.huggingface.config_fields import (
    LARGEST_JSON,
    Json,
    is_whole,
    plain_file,
    read_json,
    read_json_if_there,
)
from regard.runs.files import write_json
from regard.text import TokenizerConfig, Vocabularies
from regard.text.config import Kind
from regard.text.tokenizer import NOT_CUT, UNNUMBERED, Tokenizer

MARIAN = ("source.spm", "target.spm", "vocab.json")
T5 = "spiece.model"
KEPT = "tokenizer"
"""The folder of a run that keeps the files its tokenizer was made of, for an export."""
LARGEST_SENTENCEPIECE = 64 << 20
"""Bytes of the largest SentencePiece model that is read."""
UNIGRAM = 1
NORMAL, UNKNOWN, CONTROL, UNUSED = 1, 2, 3, 5
MARK = "▁"
_SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_ROLES = {"pad": "pad_token", "bos": "cls_token", "eos": "sep_token", "unk": "unk_token", "mask": "mask_token"}
_KINDS: dict[type[Any], Kind] = {
    models.BPE: "bpe",
    models.Unigram: "unigram",
    models.WordPiece: "wordpiece",
    models.WordLevel: "word",
}


def read_vocabularies(
    directory: Path,
    config: Json,
    *,
    entries: tuple[int, int],
    start: str | None = None,
    opened: tokenizers.Tokenizer | None = None,
    tell: Callable[[str], object] = warn,
) -> tuple[Vocabularies, TokenizerConfig]:
    """The directory's tokenizers, source and target, and our settings of them.

    `entries` are the sizes of the model's two tables. `start` is the field that names the token a decoder begins with,
    where the model has a decoder that begins with one. `opened` is a tokenizer that was read before; an encoder's names
    its own tokens.
    `tell` is told what is read otherwise than it is written.
    """
    inner = _open(directory, tell) if opened is None else (opened, opened)
    for one, most in zip(inner, entries, strict=True):
        if _entries(one) > most:
            where = directory / "tokenizer.json"
            raise DataError(f"{where} has {_entries(one)} entries; the model's vocab_size={most} is fewer")
        one.no_padding()
        one.no_truncation()
    eos = None if opened is not None and start is None else _named(inner[1], config, "eos_token_id")
    said = config.get("decoder_start_token_id") is not None
    bos = None if start is None else _named(inner[1], config, "decoder_start_token_id" if said else start)
    source = Tokenizer(inner[0], eos, bos)
    target = source if inner[0] is inner[1] else Tokenizer(inner[1], eos, bos)
    settings = TokenizerConfig(
        kind=_KINDS.get(type(inner[1].model), "bpe"),
        vocab_size=max(260, *entries),
        joint=source is target,
        eos=eos,
        bos=bos,
    )
    return Vocabularies(source, target), settings


def _entries(inner: tokenizers.Tokenizer) -> int:
    """How many pieces have a number."""
    beyond = inner.token_to_id(UNNUMBERED)
    return inner.get_vocab_size() if beyond is None else beyond


def read_tokenizer(path: Path) -> tokenizers.Tokenizer:
    """The tokenizer that a `tokenizer.json` describes."""
    described, settings = json.dumps(read_json(path)), path.with_name("tokenizer_config.json")
    try:
        inner = tokenizers.Tokenizer.from_str(described)
    except Exception as error:  # the library raises plain Exception
        raise DataError(f"{path} is not a tokenizer: {error}") from None
    _check_settings(inner, read_json_if_there(settings))
    return inner


def _check_settings(inner: tokenizers.Tokenizer, said: Json) -> None:
    """Refuse settings that theirs would put in the place of what tokenizer.json says."""
    kind, parts = str(said.get("tokenizer_class")), {}
    if "Bert" in kind and isinstance(inner.normalizer, normalizers.BertNormalizer):
        names = {"do_lower_case": "lowercase", "strip_accents": "strip_accents"}
        names |= {"tokenize_chinese_chars": "handle_chinese_chars"}
        parts |= {field: getattr(inner.normalizer, name) for field, name in names.items()}
    if kind.startswith(("GPT2", "Roberta", "Bart")) and isinstance(inner.pre_tokenizer, pre_tokenizers.ByteLevel):
        parts["add_prefix_space"] = inner.pre_tokenizer.add_prefix_space
        said = {"add_prefix_space": False, **said}  # what theirs does where nothing is said
    for field, found in parts.items():
        if field in said and said[field] != found:
            raise ConfigError(
                f"tokenizer_config.json: {field}={said[field]!r} disagrees with tokenizer.json, which has {found!r}"
            )


def _open(directory: Path, tell: Callable[[str], object]) -> tuple[tokenizers.Tokenizer, tokenizers.Tokenizer]:
    path = directory / "tokenizer.json"
    if (directory / MARIAN[0]).exists():
        try:
            return _marian_directory(directory, tell)
        except RunError as error:  # what stands beside it may say the same another way
            if not path.exists():
                raise
            tell(f"{path} is read in the place of {', '.join(MARIAN)}: {error}")
    if path.exists():
        inner = read_tokenizer(path)
        return inner, inner
    if (directory / T5).exists():
        inner = t5_tokenizer(directory / T5, _extra_ids(directory))
        return inner, inner
    raise RunError(f"{directory} is missing its tokenizer.json; `transformers` writes one with save_pretrained")


def _marian_directory(
    directory: Path, tell: Callable[[str], object]
) -> tuple[tokenizers.Tokenizer, tokenizers.Tokenizer]:
    for name in MARIAN:
        if not (directory / name).exists():
            raise RunError(f"{directory} is missing its {name}")
    path = directory / "tokenizer_config.json"
    settings = read_json_if_there(path)
    for field in ("separate_vocabs", "sp_model_kwargs"):
        if settings.get(field):
            raise RunError(f"{path}: {field}={settings[field]!r} is not supported")
    source, target, numbers = (directory / name for name in MARIAN)
    return marian_tokenizers(source, target, numbers, tell)


def _extra_ids(directory: Path) -> int:
    path = directory / "tokenizer_config.json"
    count = read_json_if_there(path).get("extra_ids", 100)
    if not is_whole(count, 0, 1000):
        raise DataError(f"{path}: extra_ids={count!r} must be a whole number from 0 to 1,000")
    return count


def _named(inner: tokenizers.Tokenizer, config: Json, field: str) -> str | None:
    """The token of the number that a field holds, or of the first of several; None where there is no such token."""
    value = config.get(field)
    index = value[0] if isinstance(value, list) and value else value
    if index is None:
        return None
    if not isinstance(index, int) or isinstance(index, bool):
        raise ConfigError(f"config.json: {field}={value!r} must be the number of a token")
    return inner.id_to_token(index) if 0 <= index < _entries(inner) else None


def keep_files(directory: Path, out: Path, vocabularies: Vocabularies) -> None:
    """What a tokenizer was made of goes along into the run, where it is not a `tokenizer.json`."""
    names = () if (directory / "tokenizer.json").exists() else (T5,)
    names = [name for name in (names if vocabularies.joint else MARIAN) if (directory / name).exists()]
    if names:
        (out / KEPT).mkdir()
        for name in names:
            shutil.copyfile(directory / name, out / KEPT / name)


def write_vocabularies(vocabularies: Vocabularies, run: Path, out: Path, names: Json) -> None:
    """The tokenizer as `transformers` reads it, with its settings."""
    if vocabularies.joint:
        (out / "tokenizer.json").write_text(vocabularies.target.to_json(), encoding="utf-8", newline="\n")
        write_json(out / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", **names})
        return
    kept = [run / KEPT / name for name in MARIAN]
    if not all(path.exists() for path in kept):
        raise RunError("a tokenizer per side is not supported in a Hugging Face directory: train with a joint one")
    for path in kept:
        shutil.copyfile(path, out / path.name)
    write_json(out / "tokenizer_config.json", {"tokenizer_class": "MarianTokenizer", **names})


def encoder_tokenizer(directory: Path) -> tokenizers.Tokenizer:
    """The directory's tokenizer.json, or a WordPiece tokenizer of its vocab.txt."""
    if (directory / "tokenizer.json").exists():
        return read_tokenizer(directory / "tokenizer.json")
    if not (directory / "vocab.txt").exists():
        raise RunError(f"{directory} is missing its tokenizer.json or vocab.txt")
    return _wordpiece(directory)


def _wordpiece(directory: Path) -> tokenizers.Tokenizer:
    path = directory / "vocab.txt"
    try:
        if (size := plain_file(path).stat().st_size) > LARGEST_JSON:
            raise DataError(f"{path} has {size:,} bytes; at most {LARGEST_JSON:,} are read")
        entries = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read {path}: {error}") from None
    vocabulary = {entry.removesuffix("\r"): index for index, entry in enumerate(entries)}
    if len(vocabulary) < len(entries) or not set(_SPECIALS) <= vocabulary.keys():
        missing = [name for name in _SPECIALS if name not in vocabulary]
        raise DataError(f"{path} is not a vocabulary: {f'it lacks {missing[0]}' if missing else 'an entry is twice'}")
    config = read_json_if_there(directory / "tokenizer_config.json")
    inner = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    inner.normalizer = normalizers.BertNormalizer(
        lowercase=config.get("do_lower_case", True) is True,
        handle_chinese_chars=config.get("tokenize_chinese_chars", True) is True,
        strip_accents=config.get("strip_accents") if isinstance(config.get("strip_accents"), bool) else None,
    )
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    inner.decoder = decoders.WordPiece(prefix="##")
    ends = ("[SEP]", vocabulary["[SEP]"]), ("[CLS]", vocabulary["[CLS]"])
    inner.post_processor = processors.BertProcessing(*ends)
    inner.add_special_tokens(list(_SPECIALS))
    return inner


def special_tokens(tokenizer: Tokenizer, *, segments: bool) -> dict[str, object]:
    """What their tokenizer's settings call the special tokens, and what it gives the model."""
    roles = {role: getattr(tokenizer, role) for role in _ROLES}
    inputs = ["input_ids", *(["token_type_ids"] if segments else []), "attention_mask"]
    names = {_ROLES[role]: tokenizer.pieces([index])[0] for role, index in roles.items() if index is not None}
    return {**names, "model_input_names": inputs}


def t5_tokenizer(path: Path, extra_ids: int) -> tokenizers.Tokenizer:
    """The model's own numbers, followed by T5's extra ones, of which the last is number 0."""
    model = _read_sentencepiece(path)
    extra = [f"<extra_id_{index}>" for index in reversed(range(extra_ids))]
    vocabulary = [(piece.piece, piece.score) for piece in model.pieces] + [(name, 0.0) for name in extra]
    made = _pipeline(model, vocabulary, _unknown(path, model))
    special = [piece.piece for piece in model.pieces if piece.type in (UNKNOWN, CONTROL)]
    made.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in (*special, *extra)])
    if (eos := made.token_to_id("</s>")) is not None:
        made.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", eos)])
    return made


def marian_tokenizers(
    source: Path, target: Path, vocabulary: Path, tell: Callable[[str], object] = warn
) -> tuple[tokenizers.Tokenizer, tokenizers.Tokenizer]:
    """One pipeline per side, both with the numbers of `vocab.json`: a side knows the pieces of its own model alone.

    A piece that `vocab.json` has no number for is unknown to the model, and text is cut into it all the same.
    """
    numbers, models = _numbers(vocabulary), {path: _read_sentencepiece(path) for path in (source, target)}
    lost = {path: sorted(_scores(model).keys() - set(numbers)) for path, model in models.items()}
    if any(lost.values()):
        counts = " and ".join(f"{path.name} {len(pieces)}" for path, pieces in lost.items() if pieces)
        example = next(pieces[0] for pieces in lost.values() if pieces)
        tell(
            f"{vocabulary.parent}: {counts} pieces that vocab.json has no number for, such as {example!r}: they count "
            f"as unknown"
        )
    made = [_marian_tokenizer(path, model, numbers, lost[path]) for path, model in models.items()]
    return made[0], made[-1]


def _scores(model: Any) -> dict[str, float]:
    return {piece.piece: piece.score for piece in model.pieces if piece.type == NORMAL}


def _marian_tokenizer(path: Path, model: Any, numbers: Sequence[str], lost: Sequence[str]) -> tokenizers.Tokenizer:
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


def _read_sentencepiece(path: Path) -> Any:
    """The model, or why a pipeline would not cut text as it does."""
    try:
        from google.protobuf.message import DecodeError
        from sentencepiece import sentencepiece_model_pb2
    except ImportError:
        wanted = "pip install 'regard[sentencepiece]'"
        raise ConfigError(f"{path.name} can only be read with SentencePiece: {wanted}") from None
    plain_file(path)
    if path.stat().st_size > LARGEST_SENTENCEPIECE:
        raise DataError(f"{path} has {path.stat().st_size:,} bytes; at most {LARGEST_SENTENCEPIECE:,} are read")
    generated: Any = sentencepiece_model_pb2  # its classes are made when it is imported
    model = generated.ModelProto()
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
