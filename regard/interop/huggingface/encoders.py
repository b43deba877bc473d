"""What BERT and its kin have in common: heads told by their weights, labels, tokenizers that frame texts."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from regard.errors import ConfigError, DataError, RunError
from regard.interop.huggingface.files import LARGEST_JSON, plain_file, read_json
from regard.interop.huggingface.names import LARGEST, Name
from regard.interop.huggingface.vocabulary import read_tokenizer
from regard.models.bert import BertConfig
from regard.text.tokenizer import Tokenizer

TASKS = {
    "none": "embedding",
    "pretraining": "masking",
    "words": "masking",
    "classes": "classification",
    "tags": "tagging",
    "spans": "answering",
}
"""What a run with this head is for."""
ENDINGS = {"none": "Model", "pretraining": "ForPreTraining", "words": "ForMaskedLM"} | {
    "classes": "ForSequenceClassification",
    "tags": "ForTokenClassification",
    "spans": "ForQuestionAnswering",
}
_SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_ROLES = {"pad": "pad_token", "bos": "cls_token", "eos": "sep_token", "unk": "unk_token", "mask": "mask_token"}


def task(model: Mapping[str, Any]) -> str:
    return TASKS[model["head"]]


def both(theirs: str, ours: str) -> tuple[Name, Name]:
    """A matrix or a norm and its bias."""
    return Name(f"{theirs}.weight", (f"{ours}.weight",)), Name(f"{theirs}.bias", (f"{ours}.bias",))


def head_of(config: Mapping[str, Any], names: Collection[str], words: str, next_text: str | None = None) -> str:
    """Our name of the head whose weights are there. Two that look alike are told apart by `architectures`."""
    if next_text in names:
        return "pretraining"
    if words in names:
        return "words"
    if "qa_outputs.weight" in names:
        return "spans"
    if not any(name.startswith("classifier.") for name in names):
        return "none"
    kinds = config.get("architectures")
    kind = kinds[0] if isinstance(kinds, list) and kinds else None
    for head in ("classes", "tags"):
        if isinstance(kind, str) and kind.endswith(ENDINGS[head]):
            return head
    raise ConfigError(
        f"config.json: architectures={kinds!r} is not supported with a classifier, only "
        f"...{ENDINGS['classes']} or ...{ENDINGS['tags']}"
    )


def labels_of(config: Mapping[str, Any], head: str) -> list[str]:
    """The names of the classes, in the order of the classifier's rows."""
    if head not in ("classes", "tags"):
        return []
    table = config.get("id2label") or {"0": "LABEL_0", "1": "LABEL_1"}  # their default
    if not isinstance(table, Mapping) or len(table) > LARGEST:
        raise ConfigError(f"config.json: id2label={str(table)[:60]!r} must be an object")
    names = [name for index in range(len(table)) if isinstance(name := table.get(str(index)), str)]
    if len(names) < len(table):
        raise ConfigError(f"config.json: id2label={str(dict(table))[:60]} must name 0 to {len(table) - 1}")
    if head == "classes" and (
        len(names) < 2 or config.get("problem_type") not in (None, "single_label_classification")
    ):
        raise ConfigError(
            f"config.json: problem_type={config.get('problem_type')!r} with {len(names)} labels is not supported, only "
            f"one class of two or more"
        )
    return names


def label_tables(config: BertConfig) -> dict[str, Any]:
    """The labels as their configurations say them."""
    if not config.labels:
        return {}
    return {
        "id2label": {str(index): label for index, label in enumerate(config.labels)},
        "label2id": {label: index for index, label in enumerate(config.labels)},
    }


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
    config = read_json(directory / "tokenizer_config.json") if (directory / "tokenizer_config.json").exists() else {}
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


def tokenizer_settings(tokenizer: Tokenizer, *, segments: bool) -> dict[str, Any]:
    """What their tokenizer's settings call the special tokens, and what it gives the model."""
    roles = {role: getattr(tokenizer, role) for role in _ROLES}
    inputs = ["input_ids", *(["token_type_ids"] if segments else []), "attention_mask"]
    names = {_ROLES[role]: tokenizer.pieces([index])[0] for role, index in roles.items() if index is not None}
    return {**names, "model_input_names": inputs}
