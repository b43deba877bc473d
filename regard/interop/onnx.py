"""Models as ONNX graphs, and decoding by onnxruntime: an encoder and one step of its decoder, or a language model's step.

The graphs are plain tensors in, tensors out, for any runtime:

| file | reads | gives |
| --- | --- | --- |
| `encoder.onnx` | `tokens` (sources, source length), `lengths` (sources) | `memory_key_N`, `memory_value_N`: what layer N of the decoder reads of the sources |
| `decoder.onnx` | `tokens` (sources, beam), `lengths`, `memory_*`, `past_key_N`, `past_value_N` (sources, beam, heads, past, head width) | `logits` (sources, beam, vocabulary), `present_key_N`, `present_value_N`: the past with this step |
| `decoder.onnx` of a language model | `tokens` (rows, new), `past_*` (rows, heads, past, head width) | `logits` of the next token (rows, vocabulary), `present_*` |

Past is empty before the first step. A prompt is read by one step of many tokens. A layer without heads has no tensors.
"""  # noqa: E501

import copy
import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.errors import ConfigError, RegardError, RunError
from regard.models.gpt import GPT
from regard.models.transformer import Transformer
from regard.nn.attention import Attention, NoHeads, attend
from regard.nn.batch import Pairs, Tokens
from regard.nn.blocks import Stack
from regard.tasks.run import Run

ENCODER, DECODER = "encoder.onnx", "decoder.onnx"
LARGEST_FILE = 1 << 30
"""Bytes of weights beyond which they lie in files of their own beside the graph, which may have 2 GiB."""


def need_packages(*names: str) -> None:
    """Refuse where packages are missing, and say how to get them."""
    if missing := [name for name in names if find_spec(name) is None]:
        raise RegardError(f"ONNX needs {' and '.join(missing)}: pip install 'regard[onnx]'")


# ---- graphs ----


def _gather(attention: Attention, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, past: int = 0) -> Tensor:
    """Attention written out: a graph has no kernel to choose, and no shape to choose it by."""
    repeats = attention.heads // attention.kv_heads
    if repeats > 1:
        k, v = k.repeat_interleave(repeats, 1), v.repeat_interleave(repeats, 1)
    bias = None if attention.distances is None else attention.distances(q.shape[2], k.shape[2], past)
    return attention.output(attend(q, k, v, mask, bias, attention.scale)[0].transpose(1, 2).flatten(2))


def _within(
    attention: Attention | NoHeads, x: Tensor, past: tuple[Tensor, Tensor] | None, places: Tensor, mask: Tensor | None
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Self-attention of new positions after a past, and the past with them."""
    if isinstance(attention, NoHeads):
        return attention(x), ()
    q, k, v = attention.queries_keys_values(x, places=places)
    length = 0
    if past is not None:
        length = past[0].shape[2]
        k, v = torch.cat((past[0], k), 2), torch.cat((past[1], v), 2)
    return _gather(attention, q, k, v, mask, length), (k, v)


def _near(gap: Tensor, window: int | None) -> Tensor | None:
    return None if window is None else (gap.abs() < window)[None, None]


def _layers(blocks: Stack[Any], name: str) -> list[int]:
    """The layers of a stack whose attention of that name has heads, of which there must be one."""
    found = [layer for layer, block in enumerate(blocks) if not isinstance(getattr(block, name), NoHeads)]
    if not found:
        raise ConfigError(f"a decoder without any head in its {name} cannot be exported to ONNX: it has no cache")
    return found


class EncoderGraph(nn.Module):
    """Sources to what each layer of the decoder reads of them: its keys and values."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor, lengths: Tensor) -> tuple[Tensor, ...]:
        model = self.model
        columns = torch.arange(tokens.shape[1], device=tokens.device)
        places = columns[None].expand(tokens.shape)
        mask = (columns < lengths[:, None])[:, None, None, :]
        near = _near(columns[:, None] - columns, model.config.window)
        mask = mask if near is None else mask & near
        x = model.source(tokens, places=places)
        for block in model.encoder:
            around = block.around_attention
            x = around.leave(x, _within(block.attention, around.enter(x), None, places, mask)[0])
            around = block.around_feed_forward
            x = around.leave(x, block.feed_forward(around.enter(x)))
        memory = model.encoder_norm(x)
        read = _layers(model.decoder, "cross_attention")
        return tuple(one for layer in read for one in model.decoder[layer].cross_attention.keys_values(memory))


class DecoderGraph(nn.Module):
    """One step of a decoder for the rows of each source, which share what is read of it."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, tokens: Tensor, lengths: Tensor, memories: Sequence[Tensor], past: Sequence[Tensor]
    ) -> tuple[Tensor, ...]:
        model, config = self.model, self.model.config
        B, W = tokens.shape
        cached, read = iter(past), iter(memories)
        length = past[0].shape[3]
        places = torch.full_like(tokens.flatten()[:, None], 0) + length
        columns = torch.arange(length + 1, device=tokens.device)
        mask = _near(length - columns[None], config.window)
        x = model.target(tokens.flatten()[:, None], places=places)
        present: list[Tensor] = []
        for block in model.decoder:
            around, own = block.around_attention, None
            if not isinstance(block.attention, NoHeads):
                own = (next(cached).flatten(0, 1), next(cached).flatten(0, 1))
            change, now = _within(block.attention, around.enter(x), own, places, mask)
            present += [one.unflatten(0, (B, W)) for one in now]
            x = around.leave(x, change)
            around, attention = block.around_cross_attention, block.cross_attention
            inner = around.enter(x)
            if isinstance(attention, NoHeads):
                change = attention(inner)
            else:
                k, v = next(read), next(read)
                seen = (torch.arange(k.shape[2], device=k.device) < lengths[:, None])[:, None, None, :]
                q = attention.queries(inner.reshape(B, W, -1))
                change = _gather(attention, q, k, v, seen).reshape(B * W, 1, -1)
            x = around.leave(x, change)
            around = block.around_feed_forward
            x = around.leave(x, block.feed_forward(around.enter(x)))
        logits = model.head(model.decoder_norm(x))
        return logits.reshape(B, W, -1), *present


class LanguageGraph(nn.Module):
    """Some tokens more of a language model after a past: the scores of the token after them."""

    def __init__(self, model: GPT) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor, past: Sequence[Tensor]) -> tuple[Tensor, ...]:
        model = self.model
        cached = iter(past)
        length, N = past[0].shape[2], tokens.shape[1]
        queries = torch.arange(N, device=tokens.device) + length
        gap = queries[:, None] - torch.arange(length + N, device=tokens.device)
        mask, near = (gap >= 0)[None, None], _near(gap, model.config.window)
        mask = mask if near is None else mask & near
        places = queries[None].expand(tokens.shape)
        x = model.embedding(tokens, places=places)
        present: list[Tensor] = []
        for block in model.blocks:
            around = block.around_attention
            own = None if isinstance(block.attention, NoHeads) else (next(cached), next(cached))
            change, now = _within(block.attention, around.enter(x), own, places, mask)
            present += now
            x = around.leave(x, change)
            around = block.around_feed_forward
            x = around.leave(x, block.feed_forward(around.enter(x)))
        return model.head(model.norm(x[:, -1])), *present


# ---- export ----


def write_model(run: Run, directory: Path) -> None:
    """The run's model as graphs in a directory that is there."""
    need_packages("onnx", "onnxscript")
    model = run.model
    if run.device.type != "cpu":  # where graphs are made
        model = copy.deepcopy(model).cpu()
    if isinstance(model, Transformer):
        if model.config.copy:
            raise ConfigError("model.copy=true is not supported in the ONNX graphs: export a model that does not copy")
        _write_translation(model, directory)
    elif isinstance(model, GPT):
        _write_language(model, directory)
    else:
        name = run.config.model["name"]
        raise ConfigError(f"a model '{name}' cannot be exported to ONNX: only transformer and gpt can")


B, W, S, P, R, N = 3, 2, 5, 4, 3, 2
"""Sizes of the examples that graphs are made from, none of which they keep."""


def _write_translation(model: Transformer, directory: Path) -> None:
    sources, beam, read, past = (torch.export.Dim(name) for name in ("sources", "beam", "source_length", "past_length"))
    own, cross = _layers(model.decoder, "attention"), _layers(model.decoder, "cross_attention")
    tokens, lengths = torch.ones(B, S, dtype=torch.long), torch.tensor([S, 2, 3])
    memory_names = [f"memory_{kind}_{layer}" for layer in cross for kind in ("key", "value")]
    _export(
        EncoderGraph(model),
        (tokens, lengths),
        directory / ENCODER,
        inputs=["tokens", "lengths"],
        outputs=memory_names,
        shapes=({0: sources, 1: read}, {0: sources}),
    )

    memories = _caches(model.decoder, "cross_attention", (B,), S)
    pasts = _caches(model.decoder, "attention", (B, W), P)
    _export(
        DecoderGraph(model),
        (torch.ones(B, W, dtype=torch.long), lengths, memories, pasts),
        directory / DECODER,
        inputs=["tokens", "lengths", *memory_names, *_cache_names("past", own)],
        outputs=["logits", *_cache_names("present", own)],
        shapes=(
            {0: sources, 1: beam},
            {0: sources},
            [{0: sources, 2: read}] * len(memories),
            [{0: sources, 1: beam, 3: past}] * len(pasts),
        ),
    )


def _write_language(model: GPT, directory: Path) -> None:
    rows, new, past = (torch.export.Dim(name) for name in ("rows", "new", "past_length"))
    own = _layers(model.blocks, "attention")
    pasts = _caches(model.blocks, "attention", (R,), P)
    _export(
        LanguageGraph(model),
        (torch.ones(R, N, dtype=torch.long), pasts),
        directory / DECODER,
        inputs=["tokens", *_cache_names("past", own)],
        outputs=["logits", *_cache_names("present", own)],
        shapes=({0: rows, 1: new}, [{0: rows, 2: past}] * len(pasts)),
    )


def _caches(blocks: Stack[Any], name: str, rows: tuple[int, ...], length: int) -> list[Tensor]:
    """Keys and values of `length` for each layer that has heads: an example."""
    kept = [getattr(blocks[layer], name) for layer in _layers(blocks, name)]
    return [torch.randn(*rows, one.kv_heads, length, one.head_width) for one in kept for _ in range(2)]


def _cache_names(when: str, layers: Sequence[int]) -> list[str]:
    return [f"{when}_{kind}_{layer}" for layer in layers for kind in ("key", "value")]


def _export(
    graph: nn.Module, example: tuple[Any, ...], path: Path, *, inputs: list[str], outputs: list[str], shapes: Any
) -> None:
    with _quiet(), torch.no_grad():
        program = torch.onnx.export(
            graph.eval(),
            example,
            dynamo=True,
            input_names=inputs,
            output_names=outputs,
            dynamic_shapes=shapes,
            verbose=False,
        )
        assert program is not None
        weights = sum(one.numel() * one.element_size() for one in graph.parameters())
        program.save(str(path), external_data=weights > LARGEST_FILE)


@contextmanager
def _quiet() -> Iterator[None]:
    """Torch's exporter tells of its own workings, which are nothing that its user could change."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir", "torch.export")]
    before = [one.level for one in loggers]
    for one in loggers:
        one.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for one, level in zip(loggers, before, strict=True):
            one.setLevel(level)


# ---- onnxruntime ----


def _session(path: Path, device: torch.device) -> Any:
    need_packages("onnxruntime")
    import onnxruntime

    if not path.is_file():
        raise RunError(f"{path.parent} is missing its {path.name}")
    wanted = "CUDAExecutionProvider" if device.type == "cuda" else "CPUExecutionProvider"
    if wanted not in onnxruntime.get_available_providers():
        raise ConfigError(f"this onnxruntime has no {wanted}: use --device cpu, or install the build that has it")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = torch.get_num_threads(), 1
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=[wanted])
    except Exception as error:  # its errors share no base that it exports
        raise RunError(f"onnxruntime cannot load {path}: {' '.join(str(error).split())[:300]}") from None


def _run(session: Any, feeds: dict[str, Tensor]) -> list[Tensor]:
    found = session.run(None, {name: one.contiguous().cpu().numpy() for name, one in feeds.items()})
    return [torch.from_numpy(np.ascontiguousarray(one)) for one in found]


@dataclass(frozen=True, slots=True)
class OnnxState:
    """What onnxruntime is given again at the next step: `past` by row, `lengths` and `memories` by source."""

    past: tuple[Float[Tensor, "R ..."], ...]
    count: int
    lengths: Int[Tensor, " B"] | None = None
    memories: tuple[Float[Tensor, "B ..."], ...] = ()

    def select(self, rows: Int[Tensor, " R"], sources: Int[Tensor, " B"] | None = None) -> "OnnxState":
        lengths, memories = self.lengths, self.memories
        if sources is not None and lengths is not None:
            lengths, memories = lengths[sources], tuple(one[sources] for one in memories)
        return OnnxState(tuple(one[rows] for one in self.past), len(rows), lengths, memories)


class OnnxTransformer(nn.Module):
    """Encoder and decoder in onnxruntime, as a `Stepper`: what our searches know of a model."""

    def __init__(self, run: Run, directory: Path) -> None:
        super().__init__()
        self.place = nn.Parameter(torch.empty(0), requires_grad=False)  # where tokens are to be: on the CPU
        self._encoder, self._decoder = (_session(directory / name, run.device) for name in (ENCODER, DECODER))
        self._memories = [one.name for one in self._encoder.get_outputs()]
        self._past = [one for one in self._decoder.get_inputs() if one.name.startswith("past_")]

    def start(self, batch: Pairs) -> OnnxState:
        source = batch.source
        assert isinstance(source, Tokens)
        ids, lengths = source.ids.long(), source.lengths.long()
        memories = _run(self._encoder, {"tokens": ids, "lengths": lengths})
        past = tuple(torch.zeros(len(ids), one.shape[2], 0, one.shape[4]) for one in self._past)
        return OnnxState(past, len(ids), lengths, tuple(memories))

    def step(self, choices: Int[Tensor, " R"], state: OnnxState) -> tuple[Float[Tensor, "R V"], OnnxState]:
        lengths = state.lengths
        assert lengths is not None
        sources = len(lengths)
        feeds = {"tokens": choices.long().view(sources, -1), "lengths": lengths}
        feeds |= dict(zip(self._memories, state.memories, strict=True))
        feeds |= {
            one.name: past.view(sources, len(choices) // sources, *past.shape[1:])
            for one, past in zip(self._past, state.past, strict=True)
        }
        known = {one.name for one in self._decoder.get_inputs()}
        logits, *present = _run(self._decoder, {name: one for name, one in feeds.items() if name in known})
        after = OnnxState(tuple(one.flatten(0, 1) for one in present), len(choices), lengths, state.memories)
        return logits.flatten(0, 1).log_softmax(-1), after


class OnnxLanguageModel(nn.Module):
    """A language model's step in onnxruntime, as a `Stepper`, for prompts of one length."""

    def __init__(self, run: Run, directory: Path) -> None:
        super().__init__()
        self.place = nn.Parameter(torch.empty(0), requires_grad=False)
        self._session = _session(directory / DECODER, run.device)
        self._past = [one for one in self._session.get_inputs() if one.name.startswith("past_")]

    def start(self, batch: Tokens) -> OnnxState:
        if int(batch.lengths.min()) != batch.ids.shape[1]:
            raise ConfigError("prompts of several lengths cannot be read together by the engine onnx")
        past = tuple(torch.zeros(len(batch.ids), one.shape[1], 0, one.shape[3]) for one in self._past)
        state = OnnxState(past, len(batch.ids))
        return self._read(batch.ids[:, :-1], state)[1] if batch.ids.shape[1] > 1 else state

    def step(self, choices: Int[Tensor, " R"], state: OnnxState) -> tuple[Float[Tensor, "R V"], OnnxState]:
        return self._read(choices[:, None], state)

    def _read(self, tokens: Int[Tensor, "R N"], state: OnnxState) -> tuple[Float[Tensor, "R V"], OnnxState]:
        feeds = {"tokens": tokens.long()}
        feeds |= {one.name: past for one, past in zip(self._past, state.past, strict=True)}
        logits, *present = _run(self._session, feeds)
        return logits.log_softmax(-1), OnnxState(tuple(present), len(tokens))
