"""Limits on the sizes of a model, far beyond any that is used, so that a number in a file cannot exhaust the memory."""

from collections.abc import Mapping
from typing import Any

from regard.errors import ConfigError
from regard.text.tokenizer import LARGEST_VOCABULARY

LARGEST = {
    **dict.fromkeys(("layers", "encoder_layers", "decoder_layers"), 2_000),
    **dict.fromkeys(("width", "feed_forward", "head_width", "position_width"), 1 << 18),
    **dict.fromkeys(("heads", "kv_heads", "encoder_kernel", "decoder_kernel", "octaves", "glimpses"), 1 << 14),
    **dict.fromkeys(("vocab_size", "source_vocab_size", "target_vocab_size"), LARGEST_VOCABULARY),
    **dict.fromkeys(("image_size", "patch_size", "channels", "inputs", "segments"), 1 << 16),
}
"""The most of each size. The deepest models published have 1,000 layers, the widest are some 20,000 wide."""

LARGEST_OF_OTHERS = 1 << 20
"""Of every other whole number, such as `max_len`."""

LARGEST_TABLE = 1 << 28
"""Numbers in a table of positions that is computed and not read from a file: a gigabyte."""


def check_sizes(settings: Mapping[str, Any], where: str = "model") -> None:
    """Refuse sizes of a model that no memory holds, in the settings themselves, before anything is allocated."""
    for name, value in settings.items():
        most = LARGEST.get(name, LARGEST_OF_OTHERS)
        numbers = value if isinstance(value, (list, tuple)) else [value]
        if len(numbers) > LARGEST_OF_OTHERS:
            raise ConfigError(f"{where}.{name} has {len(numbers):,} entries; at most {LARGEST_OF_OTHERS:,} can be")
        for number in numbers:
            if isinstance(number, int) and number > most:
                raise ConfigError(f"{where}.{name}={number} must be at most {most:,}")


def check_table(config: Any, where: str = "model") -> None:
    """Refuse a table of positions that no memory holds, of a configuration whose sizes have been checked."""
    kind = getattr(config, "positions", None)
    if kind not in ("sinusoidal", "linear", "linear-unscaled", "rotary"):
        return
    longest, width = config.max_len, config.width
    if kind == "rotary":
        width = getattr(config, "head_width", None) or max(1, width // config.heads)
    if longest * width > LARGEST_TABLE:
        raise ConfigError(
            f"{where}.max_len={longest} makes a table of {longest * width:,} numbers, {width} for each position; "
            f"at most {LARGEST_TABLE:,} can be"
        )
