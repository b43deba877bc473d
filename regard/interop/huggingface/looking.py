"""Look inside a Hugging Face checkpoint as it is: transformers runs it, and nothing is imported into a run."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from regard.errors import ConfigError, RunError, warn
from regard.interop.hub import checkpoint
from regard.look.document import AttentionMap, Document, Sentence, Side, that_fit
from regard.look.given_attentions import given_maps
from regard.look.library_attentions import past_the_interface
from regard.look.watch import attention_map, attentions, last_calls, matching, product_neurons, watch
from regard.tasks.looking.look_options import LookOptions, left_out_note, watched_parts

MOST_NEW = 64
"""Tokens that a model with a decoder writes where no target is given."""


def look_at_checkpoint(
    directory: str | Path,
    texts: Sequence[str],
    options: LookOptions | None = None,
    *,
    device: str = "cpu",
    tell: Callable[[str], object] = warn,
) -> Document:
    """Every attention of the model in `directory` on each text; a pair of texts is written `first ||| second`.

    `directory` may also be a model's name on the hub, which is fetched unless the hub's cache has it; `tell` hears of
    that. A model with a decoder writes its greedy output first, unless `options` give targets. Only JSON, a tokenizer
    and safetensors are read, and no code from the directory runs.
    """
    options, name = options or LookOptions(), Path(directory).name
    directory = checkpoint(str(directory), tell=tell)
    model, tokenizer = _loaded(directory, device, tell)
    if (options.start, options.end) != (None, None):
        raise ConfigError(
            "start and end are for sounds, which a run hears: import the checkpoint with `regard import hf`"
        )
    if options.edits or options.history or options.features:
        raise ConfigError(
            "edits, a history and features of units are for runs: import the checkpoint with `regard import hf`"
        )
    if options.targets and (len(options.targets) != len(texts) or not model.config.is_encoder_decoder):
        raise ConfigError(
            f"{len(options.targets)} targets for {len(texts)} texts; a model with a decoder takes one each"
        )
    if not texts:
        raise ConfigError("nothing to look at: give a text")
    seen = [_sentence(model, tokenizer, texts, number, options) for number in range(len(texts))]
    notes = dict.fromkeys(note for _, note in seen if note)
    return Document(
        title=f"Where {name} looked",
        sentences=tuple(sentence for sentence, _ in seen),
        note=" ".join(notes),
    )


def _loaded(directory: Path, device: str, tell: Callable[[str], object]) -> tuple[Any, Any]:
    if find_spec("transformers") is None:
        raise ConfigError("transformers is not here: pip install 'regard[hf]'")
    if not (directory / "config.json").is_file():
        raise RunError(f"{directory} has no config.json: hf: is followed by a directory with a Hugging Face checkpoint")
    import transformers

    kept: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    try:
        config = transformers.AutoConfig.from_pretrained(directory, **kept)
        kind = transformers.AutoModelForSeq2SeqLM if config.is_encoder_decoder else transformers.AutoModel
        with _quiet():
            model, info = kind.from_pretrained(directory, use_safetensors=True, output_loading_info=True, **kept)
    except (OSError, ValueError) as error:
        raise RunError(f"transformers cannot load the model in {directory}: {_first_line(error)}") from None
    if missing := sorted(info["missing_keys"]):
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        tell(f"the checkpoint has no weights for {missing[0]}{more} of {type(model).__name__}: these are random")
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(directory, **kept)
    except (OSError, ValueError, KeyError) as error:
        raise RunError(f"{directory} has no tokenizer that turns text into tokens: {_first_line(error)}") from None
    if not attentions(model):
        # Past transformers' attention interface: the weights are those that the model itself reports.
        if not past_the_interface(model):
            raise ConfigError(f"{type(model).__name__} has no attention")
        with _quiet():
            model = kind.from_pretrained(directory, use_safetensors=True, attn_implementation="eager", **kept)
    chosen = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
    return model.to(chosen).eval(), tokenizer


@contextmanager
def _quiet() -> Iterator[None]:
    """Without transformers' progress and its table of heads that looking does without."""
    from transformers import logging

    verbosity, bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bar:
            logging.enable_progress_bar()


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


@torch.inference_mode()
def _sentence(model: Any, tokenizer: Any, texts: Sequence[str], number: int, options: LookOptions) -> tuple[Any, str]:
    text = texts[number]
    first, between, second = text.partition(" ||| ")
    pair = (first, second) if between else (text,)
    offsets = bool(tokenizer.is_fast)
    encoded = tokenizer(*pair, return_tensors="pt", return_offsets_mapping=offsets)
    spans = encoded.pop("offset_mapping")[0].tolist() if offsets else None
    # Offsets of a second text count from its own beginning.
    parts = encoded.sequence_ids(0) if offsets else []
    places = [
        (start + len(first + between) * (part == 1), end + len(first + between) * (part == 1))
        for part, (start, end) in zip(parts, spans or [], strict=True)
    ]
    inputs = {name: value.to(model.device) for name, value in encoded.items()}
    longest = model.config.to_dict().get("max_position_embeddings")
    if longest is not None and inputs["input_ids"].shape[1] > longest:
        raise ConfigError(f"{inputs['input_ids'].shape[1]} tokens; the model reads at most {longest}")
    target = None
    if model.config.is_encoder_decoder:
        target = _target(model, tokenizer, inputs, options.targets[number] if options.targets else None)
        inputs["decoder_input_ids"] = target
    cut = options.targets is None and target is not None and target.shape[1] > MOST_NEW
    maps, note = _seen(model, inputs, options) if attentions(model) else _reported(model, inputs, options)
    source = _pieces(tokenizer, encoded["input_ids"][0])
    sides = {} if target is None else _written(tokenizer, target[0].tolist())
    shown = Sentence(
        source=Side.of(text, source, places, specials=True) if offsets else Side(text=text, pieces=tuple(source)),
        target=sides.get("target"),
        prefix=sides.get("prefix"),
        attentions=maps,
    )
    told = f"An output was cut at {MOST_NEW} tokens." if cut else ""
    return shown, " ".join(filter(None, (note, told)))


def _pieces(tokenizer: Any, ids: Any) -> list[str]:
    """The tokens of `ids`; a model may have more than its tokenizer has names for."""
    found = tokenizer.convert_ids_to_tokens(ids)
    return [f"<{int(number)}>" if piece is None else piece for number, piece in zip(ids, found, strict=True)]


def _written(tokenizer: Any, ids: list[int]) -> dict[str, Side]:
    """What a decoder read, and what its steps predict; what the last step predicts is not known."""
    pieces = _pieces(tokenizer, ids)
    known = [number for number, piece in zip(ids, pieces, strict=True) if piece != f"<{number}>"]
    text = tokenizer.decode(known, skip_special_tokens=True)
    read, ends = [], [0]
    for number, piece in zip(ids, pieces, strict=True):
        read += [] if piece == f"<{number}>" else [number]
        so_far = tokenizer.decode(read, skip_special_tokens=True)
        ends.append(min(max(len(so_far), ends[-1]), len(text)))
    spans = list(pairwise(ends))
    unknown = (len(text), len(text))
    return {
        "prefix": Side.of(text, pieces, spans, specials=True),
        "target": Side.of(text, [*pieces[1:], "…"], [*spans[1:], unknown], specials=True),
    }


def _seen(model: Any, inputs: dict[str, Any], options: LookOptions) -> tuple[tuple[AttentionMap, ...], str]:
    """What `watch` sees of the attentions asked for, and what is left out."""
    names = _fitting(model, inputs, options)
    parts = watched_parts(model, names, max(value.shape[-1] for value in inputs.values()), options)
    with watch(model, names, heads=options.heads, parts=parts) as trace:
        model(**inputs)
    missed = past_the_interface(model)
    notes = [f"Not seen: {' and '.join(missed)}, past transformers' attention interface."] if missed else []
    notes.append(left_out_note(model, names, options))
    maps = [
        attention_map(shown_as, trace.sides[name], one.weights[0].float().cpu(), product_neurons(one), options.heads)
        for name, shown_as, one in last_calls(trace)[0]
        if one.weights is not None
    ]
    fitting, left_out = that_fit(maps)
    return fitting, " ".join(filter(None, (*notes, left_out)))


def _reported(model: Any, inputs: dict[str, Any], options: LookOptions) -> tuple[tuple[AttentionMap, ...], str]:
    """What a model whose attentions cannot be watched reports of them itself, all that was asked for."""
    found, _ = given_maps(model(**inputs, output_attentions=True, return_dict=True))
    chosen = set(matching([one.name for one in found], options.names))
    maps = [one for one in found if one.name in chosen]
    if options.heads is not None:
        for one in maps:
            if max(options.heads) >= len(one.weights):
                raise ConfigError(f"no head {max(options.heads)} in '{one.name}': it has {len(one.weights)}, from 0")
        maps = [replace(one, weights=one.weights[list(options.heads)], heads=options.heads) for one in maps]
    return that_fit(maps)


def _target(model: Any, tokenizer: Any, inputs: dict[str, Any], given: str | None) -> Any:
    """What the decoder reads: the start token and the pieces of a target, by default those that the model writes."""
    if given is None:
        found = model.generate(**inputs, max_new_tokens=MOST_NEW, num_beams=1, do_sample=False)
        return found[:, :-1] if found.shape[1] > 2 and found[0, -1] == model.generation_config.eos_token_id else found
    start = model.config.decoder_start_token_id
    if start is None:
        raise ConfigError("the checkpoint names no decoder_start_token_id, which a target would follow")
    own = tokenizer(text_target=given, return_tensors="pt", add_special_tokens=False)["input_ids"].to(model.device)
    return torch.cat([own.new_full((1, 1), start), own], 1)


def _fitting(model: Any, inputs: dict[str, Any], options: LookOptions) -> list[str]:
    known, chosen = attentions(model), matching(attentions(model), options.names)
    lengths = {"source": inputs["input_ids"].shape[1]}
    lengths["target"] = lengths["prefix"] = inputs.get("decoder_input_ids", inputs["input_ids"]).shape[1]
    fit = options.fitting(model, lambda name: lengths[known[name].sides.queries] * lengths[known[name].sides.keys])
    return [name for name in chosen if name in fit]
