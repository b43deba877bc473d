"""Whisper: its settings and weights, what `generation_config.json` tells of its tokens, and its feature extractor."""

from collections.abc import Mapping
from pathlib import Path

import tokenizers
from tokenizers import AddedToken, decoders, models, pre_tokenizers

from regard.config import JsonObject
from regard.decode.config import DecodeConfig
from regard.errors import ConfigError, DataError, RunError
from regard.interop.huggingface.config_fields import (
    Field,
    Json,
    activation,
    is_whole,
    only,
    rate,
    read_fields,
    read_json,
    read_json_if_there,
    whole,
    write_fields,
    yes_or_no,
)
from regard.interop.huggingface.weights import Family, Name, names
from regard.models.whisper import STRIDE, WhisperConfig
from regard.text import Tokenizer
from regard.text.whisper_tokens import HOP, RATE, WINDOW, timestamp_names, whisper_tokens

PREPROCESSOR = "preprocessor_config.json"
FIELDS = (
    Field("vocab_size", "vocab_size", whole, 51865),
    Field("num_mel_bins", "bands", whole, 80),
    Field("d_model", "width", whole, 384),
    Field("encoder_attention_heads", "heads", whole, 6),
    Field("encoder_layers", "encoder_layers", whole, 4),
    Field("decoder_layers", "decoder_layers", whole, 4),
    Field("encoder_ffn_dim", "feed_forward", whole, 1536),
    Field("activation_function", "activation", activation, "gelu"),
    Field("scale_embedding", "scale_embedding", yes_or_no, False),
    Field("max_target_positions", "max_len", whole, 448),
    Field("dropout", "dropout", rate, 0.0),
    Field("attention_dropout", "attention_dropout", rate, 0.0),
    Field("activation_dropout", "activation_dropout", rate, 0.0),
    Field("encoder_layerdrop", "layer_drop", rate, 0.0),
)
_ATTENTION = {"q_proj": "query", "k_proj": "key", "v_proj": "value", "out_proj": "output"}
_ENCODER = {
    **{f"self_attn.{theirs}": f"attention.{ours}" for theirs, ours in _ATTENTION.items()},
    "self_attn_layer_norm": "around_attention.norm",
    "fc1": "feed_forward.inner",
    "fc2": "feed_forward.outer",
    "final_layer_norm": "around_feed_forward.norm",
}
_DECODER = {
    **_ENCODER,
    **{f"encoder_attn.{theirs}": f"cross_attention.{ours}" for theirs, ours in _ATTENTION.items()},
    "encoder_attn_layer_norm": "around_cross_attention.norm",
}
_OUTSIDE = {
    "encoder.conv1": "source.first",
    "encoder.conv2": "source.second",
    "encoder.layer_norm": "encoder_norm",
    "decoder.layer_norm": "decoder_norm",
}
_TOKENS = "model.decoder.embed_tokens.weight"
MULTILINGUAL = 51865
"""Entries of the smallest vocabulary of a multilingual model, where nothing else says that it is one."""


def settings(config: Json) -> JsonObject:
    only(config, "is_encoder_decoder", True)
    only(config, "tie_word_embeddings", True)
    ours = read_fields(FIELDS, config)
    only(config, "decoder_attention_heads", ours["heads"])
    only(config, "decoder_ffn_dim", ours["feed_forward"])
    only(config, "decoder_layerdrop", ours["layer_drop"])
    ours["frames"] = STRIDE * whole(config, "max_source_positions", 1500)
    return ours


def configuration(config: WhisperConfig) -> dict[str, object]:
    return {
        "model_type": "whisper",
        "architectures": ["WhisperForConditionalGeneration"],
        "is_encoder_decoder": True,
        **write_fields(FIELDS, config),
        "decoder_attention_heads": config.heads,
        "decoder_ffn_dim": config.feed_forward,
        "decoder_layerdrop": config.layer_drop,
        "max_source_positions": config.places,
        "tie_word_embeddings": True,
    }


def generation(config: Json, said: Json | None, decoding: Json) -> tuple[JsonObject, Json]:
    """Settings of the model that `generation_config.json` has, or else `config.json`, and what is left of decoding.

    Which tokens a decoder is forced to begin with follows from the language and what is asked for, so that
    `forced_decoder_ids` says nothing more.
    """
    where, theirs = ("config.json", config) if said is None else ("generation_config.json", said)
    multilingual = theirs.get("is_multilingual")
    if multilingual is None:
        large = whole(config, "vocab_size", MULTILINGUAL) >= MULTILINGUAL
        multilingual = bool(theirs.get("lang_to_id")) if said is not None else large
    heads, latest = theirs.get("alignment_heads") or [], theirs.get("max_initial_timestamp_index")
    if not isinstance(heads, list) or not all(
        isinstance(one, list) and len(one) == 2 and all(is_whole(number, 0) for number in one) for one in heads
    ):
        raise ConfigError(f"{where}: alignment_heads={heads!r} must be pairs of a layer and a head")
    if latest is not None and not is_whole(latest, 0):
        raise ConfigError(f"{where}: max_initial_timestamp_index={latest!r} must be a whole number of at least 0")
    begin = decoding.get("begin_suppress_tokens") or []
    if not isinstance(begin, list) or not all(is_whole(token, 0) for token in begin):
        raise ConfigError(f"{where}: begin_suppress_tokens={begin!r} must be a list of tokens")
    ours = {
        "multilingual": multilingual is True,
        "begin_suppress": begin,
        "alignment_heads": heads,
        "max_initial_timestamp": latest,
    }
    taken = ("begin_suppress_tokens", "forced_decoder_ids")
    left = {name: value for name, value in decoding.items() if name not in taken}
    if is_whole(length := left.get("max_length"), 1):
        left["max_length"] = length + 1  # which counts new tokens alone here
    if left.get("suppress_tokens") == [-1]:  # "the default ones", which another file of the checkpoint would name
        raise ConfigError(f"{where}: suppress_tokens=[-1] is not supported: name the tokens")
    return ours, left


def generation_fields(config: WhisperConfig, decode: DecodeConfig, tokenizer: Tokenizer) -> dict[str, object]:
    """What `generation_config.json` says of Whisper, beside or instead of a search's settings."""
    tokens = whisper_tokens(tokenizer)
    fields: dict[str, object] = {
        "max_length": decode.max_len,  # which counts new tokens alone
        "bad_words_ids": None,
        "suppress_tokens": list(decode.forbid) or None,
        "begin_suppress_tokens": list(config.begin_suppress) or None,
        "is_multilingual": config.multilingual,
        "no_timestamps_token_id": tokens.no_timestamps,
        "prev_sot_token_id": tokens.previous,
        "return_timestamps": False,
        "max_initial_timestamp_index": config.max_initial_timestamp,
    }
    if config.alignment_heads:
        fields["alignment_heads"] = [list(one) for one in config.alignment_heads]
    if config.multilingual:
        fields["lang_to_id"] = {f"<|{code}|>": token for code, token in tokens.languages.items()}
        fields["task_to_id"] = {"transcribe": tokens.transcribe, "translate": tokens.translate}
    return fields


def check_preprocessor(directory: Path, bands: int, frames: int) -> None:
    """Refuse sound that is prepared otherwise than by Whisper's own feature extractor."""
    path, nested = directory / PREPROCESSOR, directory / "processor_config.json"
    plain = read_json(path) if path.exists() else None
    within = read_json(nested).get("feature_extractor") if nested.exists() else None
    found = within if plain is None else plain
    if found is None:
        return
    if not isinstance(found, Mapping):
        raise ConfigError(f"{nested.name}: feature_extractor={found!r} must be an object")
    name = nested.name if plain is None else PREPROCESSOR
    wanted = {
        **{"feature_extractor_type": "WhisperFeatureExtractor", "feature_size": bands, "sampling_rate": RATE},
        **{"hop_length": HOP, "n_fft": WINDOW, "chunk_length": frames * HOP / RATE, "padding_value": 0.0},
        **{"dither": 0.0, "do_normalize": False},
    }
    for field, value in wanted.items():
        if found.get(field, value) != value:
            raise ConfigError(f"{name}: {field}={found[field]!r} is not supported, only {value!r}")


def preprocessor_config(config: WhisperConfig) -> dict[str, object]:
    samples = config.frames * HOP
    length = samples // RATE if samples % RATE == 0 else samples / RATE
    return {
        "feature_extractor_type": "WhisperFeatureExtractor",
        "processor_class": "WhisperProcessor",
        "feature_size": config.bands,
        "sampling_rate": RATE,
        "hop_length": HOP,
        "n_fft": WINDOW,
        "chunk_length": length,
        "n_samples": samples,
        "nb_max_frames": config.frames,
        "padding_side": "right",
        "padding_value": 0.0,
        "return_attention_mask": False,
    }


def byte_level_tokenizer(directory: Path) -> tokenizers.Tokenizer:
    """The tokenizer of a directory with `vocab.json` and `merges.txt`, and perhaps `added_tokens.json`."""
    vocabulary, merges = directory / "vocab.json", directory / "merges.txt"
    for path in (vocabulary, merges):
        if not path.exists():
            raise RunError(f"{directory} is missing its tokenizer.json, or its vocab.json and merges.txt")
    lines = merges.read_text(encoding="utf-8").splitlines()
    pairs = [tuple(line.split(" ")) for line in lines if line and not line.startswith("#version")]
    if not all(len(pair) == 2 for pair in pairs):
        raise DataError(f"{merges} must have two pieces on each line")
    try:
        model = models.BPE(vocab=dict(read_json(vocabulary)), merges=pairs)  # type: ignore[arg-type]
    except Exception as error:  # the library raises plain Exception
        raise DataError(f"{vocabulary} and {merges.name} make no tokenizer: {error}") from None
    return byte_level(model, read_json_if_there(directory / "added_tokens.json"))


def byte_level(model: models.BPE, added: Json) -> tokenizers.Tokenizer:
    """A byte-level tokenizer as Whisper has it; `added` numbers its special tokens."""
    made = tokenizers.Tokenizer(model)
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    numbers = {name: number for name, number in added.items() if is_whole(number, 0)}
    if len(numbers) < len(added):
        raise DataError("added_tokens.json must give each token a whole number")
    for name in sorted(numbers, key=numbers.__getitem__):
        made.add_special_tokens([AddedToken(name, special=True, normalized=False)])
        if made.token_to_id(name) != added[name]:
            raise DataError(f"added_tokens.json gives {name!r} the number {added[name]}, not {made.token_to_id(name)}")
    return made


def with_timestamps(inner: tokenizers.Tokenizer, entries: int, places: int) -> tokenizers.Tokenizer:
    """The tokenizer with its timestamps, which some checkpoints number in the model alone."""
    first = inner.token_to_id("<|notimestamps|>")
    if first is not None and inner.get_vocab_size() == first + 1 and entries > first + 1:
        names_of = timestamp_names(min(places + 1, entries - first - 1))
        inner.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in names_of])
    return inner


WHISPER = Family(
    model="whisper",
    task="whisper",
    start="decoder_start_token_id",
    settings=settings,
    configuration=configuration,
    generation=generation,
    outside=(
        Name(_TOKENS, ("target.tokens.weight",)),
        Name("model.decoder.embed_positions.weight", ("target.positions.table",)),
        Name("model.encoder.embed_positions.weight", ("source.table",), optional=True),
        *names(_OUTSIDE, "model."),
    ),
    stacks={
        "encoder_layers": names(_ENCODER, "model.encoder.layers.{}.", "encoder.{}."),
        "decoder_layers": names(_DECODER, "model.decoder.layers.{}.", "decoder.{}."),
    },
    head="proj_out.weight",
    copies=(("proj_out.weight", _TOKENS),),
    prefix="model.",
    aliases={
        "num_attention_heads": "encoder_attention_heads",
        "hidden_size": "d_model",
        "num_hidden_layers": "encoder_layers",
    },
)
