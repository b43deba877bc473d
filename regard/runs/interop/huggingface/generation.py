"""How a checkpoint says that an encoder-decoder should be decoded, in our words and back."""

from collections.abc import Mapping
from typing import Any

from regard.decode.config import DecodeConfig
from regard.errors import ConfigError
from regard.runs.interop.huggingface.names import LARGEST

MOST_BEAMS = 1000
FIELDS = (
    *("decoder_start_token_id", "forced_bos_token_id", "forced_eos_token_id", "bad_words_ids", "suppress_tokens"),
    *("num_beams", "length_penalty", "early_stopping", "max_length", "min_length", "no_repeat_ngram_size"),
)


def decode_settings(config: Mapping[str, Any], longest: int, entries: int) -> DecodeConfig:
    """The settings of a search. `longest` is the model's own length, `entries` the size of its vocabulary; what a
    checkpoint leaves out is as in theirs."""
    most = _whole(config, "max_length", longest + 1) - 1  # theirs counts the token that a decoder begins with
    return DecodeConfig(
        beam=max(1, _whole(config, "num_beams", 1, MOST_BEAMS)),
        length_penalty=_penalty(config),
        length_form="power",
        exact=config.get("early_stopping") == "never",
        min_len=max(0, min(_whole(config, "min_length", 0), most) - 1),
        max_len=max(1, min(most, longest)),
        max_ratio=None,
        forbid=_forbidden(config, entries),
        force_first=_token(config, "forced_bos_token_id", entries),
        force_end=_forces_end(config, entries),
        no_repeat=_whole(config, "no_repeat_ngram_size", 0),
    )


def generation_settings(config: DecodeConfig, *, start: int, pad: int, eos: int) -> dict[str, Any]:
    """The same, for their `generation_config.json`."""
    theirs: dict[str, Any] = {
        "decoder_start_token_id": start,
        "pad_token_id": pad,
        "eos_token_id": eos,
        "num_beams": config.beam,
        "max_length": config.max_len + 1,
        "min_length": config.min_len + 1 if config.min_len else 0,
    }
    if config.beam > 1:
        theirs["early_stopping"] = "never" if config.exact else False
        if config.length_form == "power":
            theirs["length_penalty"] = config.length_penalty
    if config.forbid:
        theirs["bad_words_ids"] = [[token] for token in config.forbid]
    if config.force_first is not None:
        theirs["forced_bos_token_id"] = config.force_first
    if config.force_end:
        theirs["forced_eos_token_id"] = eos
    if config.no_repeat:
        theirs["no_repeat_ngram_size"] = config.no_repeat
    return theirs


def _whole(config: Mapping[str, Any], field: str, default: int, most: int = LARGEST) -> int:
    value = config.get(field)
    value = default if value is None else value
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise ConfigError(f"{field}={value!r} must be a whole number from 0 to {most:,}")
    return value


def _token(config: Mapping[str, Any], field: str, entries: int) -> int | None:
    value = config.get(field)
    value = value[0] if isinstance(value, list) and len(value) == 1 else value
    return None if value is None else _whole({field: value}, field, 0, entries - 1)


def _penalty(config: Mapping[str, Any]) -> float:
    value = config.get("length_penalty")
    value = 1.0 if value is None else value
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value < float("inf"):
        raise ConfigError(f"length_penalty={value!r} is not supported, only a number of 0 or more")
    return float(value)


def _forbidden(config: Mapping[str, Any], entries: int) -> tuple[int, ...]:
    tokens: set[int] = set()
    for field in ("bad_words_ids", "suppress_tokens"):
        words = config.get(field) or []
        if not isinstance(words, list) or any(isinstance(word, list) and len(word) != 1 for word in words):
            raise ConfigError(f"{field}={words!r} is not supported, only a list of words of one token each")
        tokens |= {
            _whole({field: word[0] if isinstance(word, list) else word}, field, 0, entries - 1) for word in words
        }
    return tuple(sorted(tokens))


def _forces_end(config: Mapping[str, Any], entries: int) -> bool:
    forced, eos = _token(config, "forced_eos_token_id", entries), config.get("eos_token_id")
    if forced is not None and forced not in (eos if isinstance(eos, list) else [eos]):
        raise ConfigError(f"forced_eos_token_id={forced} is not supported, only eos_token_id={eos!r}")
    return forced is not None
