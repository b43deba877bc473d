"""`generation_config.json`: how an encoder-decoder is decoded, as our settings and back."""

from collections.abc import Callable, Iterator

from regard.config import JsonObject
from regard.decode.config import DecodeConfig
from regard.errors import ConfigError, warn
from regard.interop.huggingface.config_fields import LARGEST, Json, is_number, is_whole, number, yes_or_no

MOST_BEAMS = 1000
TOKENS = ("decoder_start_token_id", "bos_token_id", "eos_token_id", "pad_token_id")
"""Fields that name tokens: those of `generation_config.json`, else of `config.json`."""
FIELDS = (
    *("forced_bos_token_id", "forced_eos_token_id", "bad_words_ids", "suppress_tokens", "num_beams", "length_penalty"),
    *("early_stopping", "max_length", "min_length", "max_new_tokens", "min_new_tokens", "no_repeat_ngram_size"),
    *("do_sample", "temperature", "top_k", "top_p", "renormalize_logits"),
)
"""Settings of decoding that are taken over."""
NEUTRAL: dict[str, tuple[object, ...]] = {
    **dict.fromkeys(("repetition_penalty", "encoder_repetition_penalty", "typical_p"), (1.0,)),
    **dict.fromkeys(("num_beam_groups", "num_return_sequences", "guidance_scale"), (1,)),
    **dict.fromkeys(("encoder_no_repeat_ngram_size", "diversity_penalty", "epsilon_cutoff", "eta_cutoff"), (0,)),
    **dict.fromkeys(("begin_suppress_tokens", "force_words_ids", "stop_strings", "constraints"), ([],)),
    **dict.fromkeys(("penalty_alpha", "min_p", "top_h", "sequence_bias", "exponential_decay_length_penalty"), ()),
    **dict.fromkeys(
        ("watermarking_config", "max_time", "forced_decoder_ids", "dola_layers", "token_healing"), (False,)
    ),
}
"""What is not supported here, and the values with which it changes no output, besides null."""
SAMPLING_ONLY = ("typical_p", "epsilon_cutoff", "eta_cutoff", "min_p", "top_h")


def decoding_fields(config: Json, generation: Json | None) -> dict[str, object]:
    """The fields that concern decoding: of `generation_config.json`, or where there is none, of `config.json`."""
    searching = config if generation is None else generation
    said = {field: searching[field] for field in (*FIELDS, *NEUTRAL) if searching.get(field) is not None}
    tokens = {field: one[field] for one in (config, generation or {}) for field in TOKENS if one.get(field) is not None}
    return {**said, **tokens}


def unsupported(said: Json) -> list[str]:
    """Fields that would change outputs and are not supported here, as `field=value`."""
    found = [field for field, neutral in NEUTRAL.items() if said.get(field) not in (None, False, *neutral)]
    if said.get("do_sample") in (None, False):
        found = [field for field in found if field not in SAMPLING_ONLY]
    return [f"{field}={said[field]!r}" for field in found]


def warn_not_taken_over(said: Json, tell: Callable[[str], object]) -> None:
    """Say which settings of decoding are not taken over: a language model is given its own with each prompt."""
    usual = {"num_beams": 1, "do_sample": False, "temperature": 1.0, "top_k": 50, "top_p": 1.0, "length_penalty": 1.0}
    usual |= {"early_stopping": False, "min_length": 0, "no_repeat_ngram_size": 0, "renormalize_logits": False}
    wished = [f"{field}={said[field]!r}" for field in FIELDS if field in said and said[field] != usual.get(field)]
    if wished := wished + unsupported(said):
        tell(f"generation_config.json: {', '.join(wished)}: not taken over; say with each text how it is to go on")
    if isinstance(eos := said.get("eos_token_id"), list) and len(eos) > 1:
        tell(f"generation_config.json: eos_token_id={eos!r}: a text ends at {eos[0]}, not at the others")


def decode_settings(config: Json, longest: int, entries: int, tell: Callable[[str], object] = warn) -> DecodeConfig:
    """The settings of decoding. `longest` is the model's own length, `entries` the size of its vocabulary.

    What a checkpoint leaves out has their default, but for the length, which is then the model's.
    """
    if found := unsupported(config):
        raise ConfigError(
            f"generation_config.json: {found[0]} is not supported; take it out to decode without it, to other outputs"
        )
    if isinstance(eos := config.get("eos_token_id"), list) and len(eos) != 1:
        raise ConfigError(f"eos_token_id={eos!r} is not supported, only one token that ends an output")
    if config.get("no_repeat_ngram_size") == 1:
        raise ConfigError("no_repeat_ngram_size=1 is not supported, only 2 or more, or 0 for none")
    # Their length counts the token that a decoder begins with.
    most = _whole(config, "max_length", min(longest + 1, LARGEST)) - 1
    least = max(0, min(_whole(config, "min_length", 0), most) - 1)
    if config.get("max_new_tokens") is not None:
        most = _whole(config, "max_new_tokens", 0)
    least = _whole(config, "min_new_tokens", least)
    made = DecodeConfig(
        beam=max(1, _whole(config, "num_beams", 1, MOST_BEAMS)),
        length_penalty=_penalty(config),
        length_form="power",
        exact=_exact(config),
        min_len=min(least, max(0, min(most, longest) - 1)),
        max_len=max(1, min(most, longest)),
        max_ratio=None,
        forbid=_forbidden(config, entries),
        force_first=_token(config, "forced_bos_token_id", entries),
        force_end=_forces_end(config, entries),
        no_repeat=_whole(config, "no_repeat_ngram_size", 0),
        **_sampling(config),
    )
    if reasons := list(_differences(config, made)):
        tell(f"generation_config.json: outputs may differ from those of transformers, for {'; '.join(reasons)}")
    return made


def _differences(config: Json, made: DecodeConfig) -> Iterator[str]:
    """Where a search that is set up alike finds other outputs, now and then, than theirs."""
    if made.beam > 1 and config.get("early_stopping") is True:
        yield "early_stopping=True is as False here: a search goes on while a better output may be found"
    if made.beam > 1 and not made.force_end:
        yield "without forced_eos_token_id, outputs that end come here before those that reach the greatest length"
    if made.beam > 1 and config.get("renormalize_logits") is True and (made.forbid or made.min_len or made.no_repeat):
        yield "renormalize_logits=True is not done here"
    start = config.get("decoder_start_token_id", config.get("pad_token_id"))
    if made.no_repeat and start not in (*made.forbid, config.get("eos_token_id")):
        yield f"no_repeat_ngram_size={made.no_repeat} counts here without the token that a decoder begins with"


def _exact(config: Json) -> bool:
    said = config.get("early_stopping")
    if said not in (None, True, False, "never"):
        raise ConfigError(f"early_stopping={said!r} is not supported, only true, false or 'never'")
    return said == "never"


def _sampling(config: Json) -> JsonObject:
    """How outputs are sampled, where they are."""
    if not yes_or_no(config, "do_sample", False):
        return {}
    if _whole(config, "num_beams", 1, MOST_BEAMS) > 1:
        raise ConfigError(f"do_sample=true with num_beams={config['num_beams']} is not supported, only one of the two")
    top_p, temperature = (number({name: config.get(name) or 1.0}, name, 1.0) for name in ("top_p", "temperature"))
    top_k = _whole(config, "top_k", 50) or None
    return {"temperature": temperature, "top_k": top_k, "top_p": top_p if top_p < 1 else None}


def generation_settings(config: DecodeConfig, *, start: int, pad: int, eos: int) -> dict[str, object]:
    """Our settings as a `generation_config.json`."""
    theirs: dict[str, object] = {
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


def _whole(config: Json, field: str, default: int, most: int = LARGEST) -> int:
    value = default if config.get(field) is None else config[field]
    if not is_whole(value, 0, most):
        raise ConfigError(f"{field}={value!r} must be a whole number from 0 to {most:,}")
    return value


def _token(config: Json, field: str, entries: int) -> int | None:
    value = config.get(field)
    value = value[0] if isinstance(value, list) and len(value) == 1 else value
    return None if value is None else _whole({field: value}, field, 0, entries - 1)


def _penalty(config: Json) -> float:
    value = 1.0 if config.get("length_penalty") is None else config["length_penalty"]
    if not is_number(value) or not 0 <= value < float("inf"):
        raise ConfigError(f"length_penalty={value!r} is not supported, only a number of 0 or more")
    return float(value)


def _forbidden(config: Json, entries: int) -> tuple[int, ...]:
    tokens: set[int] = set()
    for field in ("bad_words_ids", "suppress_tokens"):
        words = config.get(field) or []
        if not isinstance(words, list) or any(isinstance(word, list) and len(word) != 1 for word in words):
            raise ConfigError(f"{field}={words!r} is not supported, only a list of words of one token each")
        tokens |= {
            _whole({field: word[0] if isinstance(word, list) else word}, field, 0, entries - 1) for word in words
        }
    return tuple(sorted(tokens))


def _forces_end(config: Json, entries: int) -> bool:
    forced, eos = _token(config, "forced_eos_token_id", entries), config.get("eos_token_id")
    if forced is not None and forced not in (eos if isinstance(eos, list) else [eos]):
        raise ConfigError(f"forced_eos_token_id={forced} is not supported, only eos_token_id={eos!r}")
    return forced is not None
