"""The tokenizer of a Hugging Face directory: a `tokenizer.json`, or what stands for one."""

import json
import shutil
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import models, normalizers, pre_tokenizers

from regard.errors import ConfigError, DataError, RunError
from regard.interop.huggingface.files import read_json
from regard.interop.huggingface.spm import marian_tokenizers, t5_tokenizer
from regard.runs.files import write_json
from regard.text import TokenizerConfig, Vocabularies
from regard.text.config import Kind
from regard.text.tokenizer import UNNUMBERED, Tokenizer

MARIAN = ("source.spm", "target.spm", "vocab.json")
T5 = "spiece.model"
KEPT = "tokenizer"
"""The folder of a run that keeps the files its tokenizer was made of, for an export."""
_KINDS: dict[type[Any], Kind] = {
    models.BPE: "bpe",
    models.Unigram: "unigram",
    models.WordPiece: "wordpiece",
    models.WordLevel: "word",
}


def read_vocabularies(
    directory: Path,
    config: Mapping[str, Any],
    *,
    entries: tuple[int, int],
    start: str | None = None,
    opened: tokenizers.Tokenizer | None = None,
    tell: Callable[[str], object] = warnings.warn,
) -> tuple[Vocabularies, TokenizerConfig]:
    """The directory's tokenizers, source and target, and our settings of them.

    `entries` are the sizes of the model's two tables. `start` is the field that names the token a decoder begins with,
    where the model has a decoder that begins with one. `opened` is an encoder's tokenizer, which names its own tokens.
    `tell` is told what is read otherwise than it is written.
    """
    inner = _open(directory, tell) if opened is None else (opened, opened)
    for one, most in zip(inner, entries, strict=True):
        if _entries(one) > most:
            where = directory / "tokenizer.json"
            raise DataError(f"{where} has {_entries(one)} entries; the model's vocab_size={most} is fewer")
        one.no_padding()
        one.no_truncation()
    eos = _named(inner[1], config, "eos_token_id") if opened is None else None
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
    _check_settings(inner, read_json(settings) if settings.exists() else {})
    return inner


def _check_settings(inner: tokenizers.Tokenizer, said: Mapping[str, Any]) -> None:
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
            return _marian(directory, tell)
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


def _marian(directory: Path, tell: Callable[[str], object]) -> tuple[tokenizers.Tokenizer, tokenizers.Tokenizer]:
    for name in MARIAN:
        if not (directory / name).exists():
            raise RunError(f"{directory} is missing its {name}")
    path = directory / "tokenizer_config.json"
    said = read_json(path) if path.exists() else {}
    for field in ("separate_vocabs", "sp_model_kwargs"):
        if said.get(field):
            raise RunError(f"{path}: {field}={said[field]!r} is not supported")
    source, target, numbers = (directory / name for name in MARIAN)
    return marian_tokenizers(source, target, numbers, tell)


def _extra_ids(directory: Path) -> int:
    path = directory / "tokenizer_config.json"
    count = read_json(path).get("extra_ids", 100) if path.exists() else 100
    if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count <= 1000:
        raise DataError(f"{path}: extra_ids={count!r} must be a whole number from 0 to 1,000")
    return count


def _named(inner: tokenizers.Tokenizer, config: Mapping[str, Any], field: str) -> str | None:
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


def write_vocabularies(vocabularies: Vocabularies, run: Path, out: Path, names: Mapping[str, Any]) -> None:
    """The tokenizer as `transformers` reads it, with its settings."""
    if vocabularies.joint:
        (out / "tokenizer.json").write_text(vocabularies.target.to_json(), encoding="utf-8")
        write_json(out / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", **names})
        return
    kept = [run / KEPT / name for name in MARIAN]
    if not all(path.exists() for path in kept):
        raise RunError("two tokenizers, one a side, cannot be said in a Hugging Face directory: train with a joint one")
    for path in kept:
        shutil.copyfile(path, out / path.name)
    write_json(out / "tokenizer_config.json", {"tokenizer_class": "MarianTokenizer", **names})
