"""Models for CTranslate2, and translations by it: the weights as its own specification, the search as its options.

What a model has that CTranslate2 cannot express is refused by name, and so is what a search asks for that it cannot do.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regard.config import Dataclass
from regard.decode.config import DecodeConfig
from regard.decode.constraints import WordLimits
from regard.decode.stepper import Hypothesis
from regard.errors import ConfigError, RegardError, RunError
from regard.models.gpt import GPT, GPTConfig
from regard.models.transformer import Transformer, TransformerConfig
from regard.nn.attention import Attention, NoHeads
from regard.nn.blocks import DecoderBlock, EncoderBlock, FeedForward, Sublayer
from regard.nn.embeddings import Embedding, OutputProjection
from regard.nn.positions import RelativeBias
from regard.tasks.run import Run
from regard.tasks.translator import ANY_LENGTH, BUDGET, Gone, Row, Translator
from regard.tasks.verbs.translate import Translation
from regard.text import Tokenizer

QUANTIZATIONS = ("float32", "float16", "int8", "int8_float32")
"""How weights may be kept."""
ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "gelu-tanh": "GELUTanh", "silu": "SWISH"}

PATIENCE = 1.6
"""How many times `beam` hypotheses must have finished before CTranslate2 ends a search. It counts them, where we
compare them with what may still come; with 1, its default, it stops sooner than we do and may miss the better end."""


def need_package() -> Any:
    """The package, or how to get it."""
    try:
        import ctranslate2
    except ImportError:
        raise RegardError("CTranslate2 needs the package ctranslate2: pip install 'regard[ctranslate2]'") from None
    return ctranslate2


def write_model(run: Run, directory: Path, quantization: str = "float32") -> None:
    """The run's model with its vocabularies in a directory that is there, as CTranslate2 reads it."""
    need_package()
    if quantization not in QUANTIZATIONS:
        raise ConfigError(f"quantization={quantization} must be one of {', '.join(QUANTIZATIONS)}")
    spec = specification(run)
    spec.validate()
    spec.optimize(quantization=quantization)
    spec.save(str(directory))


def specification(run: Run) -> Any:
    """The model as CTranslate2 describes one, every weight in its place."""
    need_package()
    if isinstance(run.model, Transformer):
        if run.model.config.copy:
            raise ConfigError("model.copy=true is not supported by CTranslate2: its models do not copy")
        return _sequence_to_sequence(run.model, run)
    if isinstance(run.model, GPT):
        return _language_model(run.model, run)
    raise ConfigError(
        f"CTranslate2 has no model '{run.config.model['name']}': only transformer and gpt can be exported"
    )


def _sequence_to_sequence(model: Transformer, run: Run) -> Any:
    from ctranslate2.specs import transformer_spec

    config = model.config
    _check(config)
    shared = {"pre_norm": config.norm_first, "layernorm_embedding": config.norm_embedding, **_shared(config)}
    if config.positions == "relative":
        shared["relative_attention_bias"] = True
    encoder: Any = transformer_spec.TransformerEncoderSpec(config.encoder_layers, config.heads, **shared)
    decoder: Any = transformer_spec.TransformerDecoderSpec(config.decoder_layers, config.heads, **shared)
    _set_embedding(encoder, encoder.embeddings[0], model.source, config)
    _set_embedding(decoder, decoder.embeddings, model.target, config)
    for block, layer in zip(model.encoder, encoder.layer, strict=True):
        _set_block(layer, block, config, model.encoder_distances)
    for block, layer in zip(model.decoder, decoder.layer, strict=True):
        _set_block(layer, block, config, model.decoder_distances)
        _set_attention(layer.attention, block.cross_attention, config, within=False)
        _set_norm(layer.attention.layer_norm, block.around_cross_attention)
    if config.norm_first:
        _set_norm(encoder.layer_norm, model.encoder_norm)
        _set_norm(decoder.layer_norm, model.decoder_norm)
    _set_projection(decoder, model.head)
    spec: Any = transformer_spec.TransformerSpec(encoder, decoder)
    source, target = run.vocabularies.source, run.vocabularies.target
    names = entries(target, config.target_vocab_size)
    spec.register_source_vocabulary(entries(source, config.source_vocab_size))
    spec.register_target_vocabulary(names)
    said = spec.config
    said.bos_token, said.eos_token, said.unk_token = (names[one] for one in (target.bos, target.eos, target.unk))
    said.decoder_start_token, said.layer_norm_epsilon = names[target.bos], config.norm_epsilon
    said.add_source_bos = said.add_source_eos = False  # rows are given whole
    return spec


def _language_model(model: GPT, run: Run) -> Any:
    from ctranslate2.specs import transformer_spec

    config = model.config
    _check(config)
    decoder: Any = transformer_spec.TransformerDecoderSpec(
        config.layers, config.heads, pre_norm=True, with_encoder_attention=False, **_shared(config)
    )
    _set_embedding(decoder, decoder.embeddings, model.embedding, config)
    for block, layer in zip(model.blocks, decoder.layer, strict=True):
        _set_block(layer, block, config)
    _set_norm(decoder.layer_norm, model.norm)
    _set_projection(decoder, model.head)
    spec: Any = transformer_spec.TransformerDecoderModelSpec(decoder)
    tokenizer = run.vocabularies.target
    names = entries(tokenizer, config.vocab_size)
    spec.register_vocabulary(names)
    said = spec.config
    said.bos_token, said.eos_token, said.unk_token = (
        names[one] for one in (tokenizer.bos, tokenizer.eos, tokenizer.unk)
    )
    said.layer_norm_epsilon = config.norm_epsilon
    return spec


def _check(config: TransformerConfig | GPTConfig) -> None:
    """Refuse by name what CTranslate2 cannot express."""
    if config.norm == "none":
        raise _refusal(config, "norm", "its layers always have norms")
    if config.window is not None:
        raise _refusal(config, "window", "its window is another one: it counts from the end of the cache")
    if isinstance(config, GPTConfig):
        return
    if not config.residual:
        raise _refusal(config, "residual", "its layers always have residuals")
    if config.positions == "alibi":
        raise _refusal(config, "positions", "its encoder has no ALiBi")
    if config.qk_norm:
        raise _refusal(config, "qk_norm", "it leaves the keys of a source as they are")


def _refusal(config: Dataclass, name: str, why: str) -> ConfigError:
    return ConfigError(f"model.{name}={getattr(config, name)} cannot be exported to CTranslate2: {why}")


def _shared(config: TransformerConfig | GPTConfig) -> dict[str, Any]:
    """What encoder and decoder are told alike."""
    from ctranslate2.specs import common_spec

    block = config.block()
    found: dict[str, Any] = {
        "activation": getattr(common_spec.Activation, ACTIVATIONS[config.activation]),
        "ffn_glu": config.gated,
        "rms_norm": config.norm == "rms",
        "head_dim": block.per_head,
    }
    if isinstance(config, GPTConfig) and config.kv_heads not in (None, config.heads):
        found["num_heads_kv"] = config.kv_heads
    if config.positions == "rotary":
        found |= {"rotary_dim": block.per_head, "rotary_interleave": False, "rotary_base": config.rotary_base}
    return found


def _array(tensor: Tensor) -> np.ndarray:
    return tensor.detach().float().cpu().numpy().copy()  # CTranslate2 quantises in place


def _set_embedding(side: Any, spec: Any, embedding: Embedding, config: TransformerConfig | GPTConfig) -> None:
    """Token vectors, their scale and their places; where there is no place to add, it is a table of zeros."""
    tokens, positions, width = embedding.tokens.weight, embedding.positions, config.width
    side.scale_embeddings = embedding.scale != 1.0
    places = None
    if positions is None:
        if config.positions == "none":
            places = tokens.new_zeros(config.max_len, width)
    elif positions.how == "add":
        places = positions.table[positions.offset :]
    else:  # (words, place) is (words, 0) + (0, place)
        table = positions.table
        side.scale_embeddings = False
        tokens = nn.functional.pad(tokens * embedding.scale, (0, table.shape[1]))
        places = nn.functional.pad(table[positions.offset :], (width - table.shape[1], 0))
    spec.weight = _array(tokens)
    if places is not None:
        side.position_encodings.encodings = _array(places)
    if embedding.norm is not None:
        _set_norm(side.layernorm_embedding, embedding.norm)


def _set_block(
    layer: Any,
    block: EncoderBlock | DecoderBlock,
    config: TransformerConfig | GPTConfig,
    distances: nn.Module | None = None,
) -> None:
    """What every block has: self-attention, with what distances add to its scores, and feed-forward."""
    _set_attention(layer.self_attention, block.attention, config, within=True)
    _set_norm(layer.self_attention.layer_norm, block.around_attention)
    if isinstance(distances, RelativeBias):
        layer.self_attention.relative_attention_bias = _array(distances.table)
        layer.self_attention.relative_attention_max_distance = np.dtype("int32").type(distances.furthest)
    _set_feed_forward(layer.ffn, block.feed_forward, block.around_feed_forward)


def _set_norm(spec: Any, norm: nn.Module | None) -> None:
    norm = norm.norm if isinstance(norm, Sublayer) else norm
    assert isinstance(norm, nn.LayerNorm | nn.RMSNorm)
    spec.gamma = _array(norm.weight)
    if isinstance(norm, nn.LayerNorm):
        spec.beta = _array(norm.bias)


def _set_feed_forward(spec: Any, ours: FeedForward, around: Sublayer) -> None:
    _set_norm(spec.layer_norm, around)
    _set_linear(spec.linear_0, ours.inner.weight, ours.inner.bias)
    _set_linear(spec.linear_1, ours.outer.weight, ours.outer.bias)
    if ours.gate is not None:
        _set_linear(spec.linear_0_noact, ours.gate.weight, ours.gate.bias)


def _set_projection(decoder: Any, head: OutputProjection) -> None:
    _set_linear(decoder.projection, head.weight, head.bias)
    if head.scale != 1.0:
        decoder.scale_outputs = np.dtype("float32").type(head.scale)


def _set_linear(spec: Any, weight: Tensor, bias: Tensor | None) -> None:
    spec.weight = _array(weight)
    if bias is not None:
        spec.bias = _array(bias)


def _set_attention(
    spec: Any,
    ours: Attention | NoHeads,
    config: TransformerConfig | GPTConfig,
    *,
    within: bool,
) -> None:
    """Queries, keys and values in one matrix within a sequence; towards a source, keys and values in one.

    Heads that were pruned come back as zeros, which add nothing. Outside language models, heads that share keys and
    values have them each: the same numbers, though more of them.
    """
    weights, biases, output, output_bias = _whole(ours, config)
    parts = (slice(0, 3),) if within else (slice(0, 1), slice(1, 3))
    for linear, part in zip(spec.linear, parts, strict=False):
        _set_linear(linear, torch.cat(weights[part]), None if biases is None else torch.cat(biases[part]))
    _set_linear(spec.linear[-1], output, output_bias)
    if not config.block().scaled:
        spec.queries_scale = np.dtype("float32").type(1.0)


def _whole(
    ours: Attention | NoHeads, config: TransformerConfig | GPTConfig
) -> tuple[list[Tensor], list[Tensor] | None, Tensor, Tensor | None]:
    """The matrices of queries, keys and values, their biases, then the output's, with as many heads as the config."""
    block, grouped = config.block(), isinstance(config, GPTConfig)
    wide = block.heads * block.per_head
    if isinstance(ours, NoHeads):
        like = next(iter(ours.parameters()), torch.zeros(()))
        groups = (block.kv_heads or block.heads) if grouped else block.heads
        sizes = (wide, groups * block.per_head, groups * block.per_head)
        weights = [like.new_zeros(size, block.width) for size in sizes]
        biases = [like.new_zeros(size) for size in sizes] if block.bias else None
        return weights, biases, like.new_zeros(block.width, wide), ours.bias
    weights, biases = [], []
    for linear, heads in ((ours.query, ours.heads), (ours.key, ours.kv_heads), (ours.value, ours.kv_heads)):
        repeats = 1 if grouped else ours.heads // heads
        whole = heads * repeats * block.heads // ours.heads * block.per_head
        for found, given in ((weights, linear.weight), (biases, linear.bias)):
            if given is not None:
                each = given.unflatten(0, (heads, -1)).repeat_interleave(repeats, 0).flatten(0, 1)
                short = whole - each.shape[0]
                found.append(torch.cat((each, each.new_zeros(short, *each.shape[1:]))))
    output = ours.output.weight
    output = nn.functional.pad(output, (0, wide - output.shape[1]))
    return weights, biases or None, output, ours.output.bias


def entries(tokenizer: Tokenizer, count: int) -> list[str]:
    """A name for each of `count` tokens, no two alike: those of the tokenizer, and for the rest their numbers."""
    names: list[str] = []
    seen: set[str] = set()
    for index in range(count):
        name = tokenizer.inner.id_to_token(index) if index < tokenizer.vocab_size else None
        name = f"<token {index}>" if name is None or name in seen else name
        seen.add(name)
        names.append(name)
    return names


def generator(directory: Path, device: torch.device) -> Any:
    """The language model in a directory, loaded by CTranslate2."""
    package = need_package()
    with _their_errors(directory):
        return package.Generator(str(directory), **_placed(device))


def _placed(device: torch.device) -> dict[str, Any]:
    kind = "cuda" if device.type == "cuda" else "cpu"  # all that it knows
    return {"device": kind, "device_index": device.index or 0, "intra_threads": torch.get_num_threads()}


@contextmanager
def _their_errors(directory: Path) -> Iterator[None]:
    """What CTranslate2 cannot load or do, in one line."""
    try:
        yield
    except (RuntimeError, ValueError) as error:
        raise RunError(f"CTranslate2 and {directory}: {' '.join(str(error).split())}") from None


SEARCHES = ("beam", "top_beams", "length_penalty", "length_form", "force_end")
LIMITS = ("min_len", "max_len", "max_ratio", "max_extra", "forbid", "no_repeat")
SAMPLES = ("temperature", "top_k", "top_p", "samples")
SUPPORTED = frozenset((*SEARCHES, *LIMITS, *SAMPLES))
"""The settings of a search that CTranslate2 has a counterpart of."""


def unsupported(config: DecodeConfig) -> dict[str, Any]:
    """The settings that CTranslate2 has no counterpart of and that are not as by default, with those defaults."""
    # It seeds a thread when that first samples, and never again; where nothing is sampled, no seed matters.
    known = SUPPORTED if config.temperature is not None else SUPPORTED | {"seed"}
    others = [field for field in dataclasses.fields(config) if field.name not in known]
    return {field.name: field.default for field in others if getattr(config, field.name) != field.default}


class CTranslate2Translator(Translator):
    """A `Translator` whose search is CTranslate2's own; tokens, splitting, scores and results are ours.

    Scores are log-probabilities divided for length as the settings say: CTranslate2 is asked for the former alone. Its
    search ends when `PATIENCE` times `beam` hypotheses have finished. Where tokens are forbidden (`min_len`, `forbid`,
    `no_repeat`), its log-probabilities are among those that are left. What is sampled differs from call to call.
    """

    def __init__(self, run: Run, directory: Path) -> None:
        super().__init__(run.model, run.vocabularies, run.config.decode, run.config.model_config().max_len)
        package, config = need_package(), run.config.model_config()
        with _their_errors(directory):
            self._engine = package.Translator(str(directory), **_placed(self.device))
        self._directory = directory
        self._source = entries(self.vocabularies.source, config.source_vocab_size)
        self._target = entries(self.vocabularies.target, config.target_vocab_size)
        self._ids = {name: index for index, name in enumerate(self._target)}

    def resident(self, config: DecodeConfig) -> bool:
        return False

    def check(self, config: DecodeConfig, alignments: bool = False) -> None:
        super().check(config, alignments)
        for name in unsupported(config):
            raise ConfigError(f"decode.{name}={getattr(config, name)} does not apply to the engine ctranslate2")

    def _decode(
        self,
        rows: list[Row],
        config: DecodeConfig,
        budget: int | None,
        gone: Gone | None = None,
        words: WordLimits = ANY_LENGTH,
    ) -> list[list[Translation]]:
        self.check(config)
        if words:
            raise ConfigError("min_words and max_words are not for CTranslate2's search: use --engine torch")
        limits = [min(limit, self.max_len) for limit in config.limits([len(row) for _, row, _, _ in rows])]
        found: list[list[Translation]] = [[] for _ in rows]
        wanted = [place for place, row in enumerate(rows) if gone is None or not gone(row[3])]
        # One call has one greatest length.
        for limit, places in groupby(sorted(wanted, key=lambda place: limits[place]), key=lambda place: limits[place]):
            chosen = list(places)
            best = self._search([rows[place][1] for place in chosen], config, limit, budget or BUDGET)
            for place, hypotheses in zip(chosen, best, strict=True):
                target = rows[place][2]
                found[place] = [self.text(one, target) for one in hypotheses]
        count = config.top_beams if config.temperature is None else config.samples
        return [best or [_NOTHING] * count for best in found]

    def _search(
        self, rows: Sequence[list[int]], config: DecodeConfig, limit: int, budget: int
    ) -> list[list[Hypothesis]]:
        width = config.beam if config.temperature is None else config.samples
        options = search_options(config, [self._target[one] for one in config.forbid])
        with _their_errors(self._directory):
            results = self._engine.translate_batch(
                [[self._source[one] for one in row] for row in rows],
                max_batch_size=budget // width + 1,
                batch_type="tokens",
                max_input_length=0,
                max_decoding_length=limit,
                min_decoding_length=config.min_len,
                **options,
            )
        return [self._ranked(one, config) for one in results]

    def _ranked(self, result: Any, config: DecodeConfig) -> list[Hypothesis]:
        eos = self.vocabularies.target.eos
        return ranked([[self._ids[name] for name in names] for names in result.hypotheses], result.scores, config, eos)


_NOTHING = Translation(text="", score=0.0, log_prob=0.0, tokens=(), pieces=())
"""What comes back for a sentence that nobody waits for."""


def search_options(config: DecodeConfig, forbidden: Sequence[str]) -> dict[str, Any]:
    """A search as CTranslate2 is asked for it: every end that it finds, with its log-probability as it is."""
    options: dict[str, Any] = {
        "beam_size": 1,
        "length_penalty": 0.0,
        "no_repeat_ngram_size": config.no_repeat,
        "suppress_sequences": [[one] for one in forbidden] or None,
        "return_scores": True,
        "return_end_token": True,
    }
    if config.temperature is not None:
        return options | {
            "num_hypotheses": config.samples,
            "sampling_temperature": config.temperature,
            "sampling_topk": config.top_k or 0,
            "sampling_topp": 1.0 if config.top_p is None else config.top_p,
        }
    if config.beam > 1:
        options |= {
            "beam_size": config.beam,
            "patience": PATIENCE,
            "num_hypotheses": round(PATIENCE * config.beam),
        }
    return options


def ranked(
    outputs: Sequence[Sequence[int]], log_probs: Sequence[float], config: DecodeConfig, eos: int
) -> list[Hypothesis]:
    """CTranslate2's hypotheses as ours, scored and ranked as we do: what was cut short comes after what has ended."""
    found = []
    for tokens, log_prob in zip(outputs, log_probs, strict=True):
        finished = bool(tokens) and tokens[-1] == eos
        # Where an end is forced, the last choice gives way to it.
        kept = len(tokens) - (finished or config.force_end)
        found.append(
            Hypothesis(
                tokens=list(tokens[:kept]),
                score=config.score(log_prob, max(len(tokens), 1)),
                log_prob=float(log_prob),
                finished=finished,
                token_log_probs=[],
                rows=[],
            )
        )
    if config.temperature is not None:
        return found
    # Those with a forced end compete with the others.
    found.sort(key=lambda one: (not one.finished and not config.force_end, -one.score))
    return found[: config.top_beams]
