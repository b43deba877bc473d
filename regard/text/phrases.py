"""Phrases as text to the tokens that decoding requires, forbids or begins with."""

from collections.abc import Sequence

from regard.config import Setting
from regard.errors import ConfigError
from regard.text.tokenizer import Tokenizer


def phrase_ways(tokenizer: Tokenizer, phrase: str, name: str) -> list[list[int]]:
    """The tokens of a phrase at the beginning of a text and after a space, where these differ."""
    ids = _ids(tokenizer, phrase, name)
    before = tokenizer.encode("a")
    after = tokenizer.encode(f"a {phrase}")
    ways = [ids, after[len(before) :]] if after[: len(before)] == before else [ids]
    return [list(way) for way in dict.fromkeys(map(tuple, ways)) if way]


def phrase_settings(tokenizer: Tokenizer, decode: dict[str, Setting]) -> dict[str, Setting]:
    """Settings of decoding with the texts among `prefix`, `require` and `forbid` turned to tokens."""
    found = dict(decode)
    if isinstance(prefix := found.get("prefix"), str):
        found["prefix"] = _ids(tokenizer, prefix, "prefix") if prefix else []
    required = _listed(found.get("require"))
    if any(isinstance(one, str) for one in required):
        found["require"] = [phrase_ways(tokenizer, one, "require") if isinstance(one, str) else one for one in required]
    forbidden = _listed(found.get("forbid"))
    if texts := [one for one in forbidden if isinstance(one, str)]:
        given = _listed(found.get("forbid_phrases"))
        found["forbid_phrases"] = [*given, *(way for one in texts for way in phrase_ways(tokenizer, one, "forbid"))]
        found["forbid"] = [one for one in forbidden if not isinstance(one, str)]
        if not found["forbid"]:
            del found["forbid"]  # which tokens the run itself forbids is not changed by phrases
    return found


def _listed(value: object) -> Sequence[object]:
    return [value] if isinstance(value, str) else value if isinstance(value, list | tuple) else []


def _ids(tokenizer: Tokenizer, text: str, name: str) -> list[int]:
    ids = tokenizer.encode(text)
    if not text.strip() or not ids:
        raise ConfigError(f"{name}={text!r} has no tokens")
    if tokenizer.unk in ids and tokenizer.unk != tokenizer.eos:
        raise ConfigError(f"{name}={text!r} has a word that is not in the vocabulary, so the model cannot write it")
    return ids
