"""Heads that a run can do without: which they are, and a smaller run without them."""

import fnmatch
import shutil
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import cycle, islice
from pathlib import Path
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn

from regard import config as settings
from regard.data import Corpus, PairStore, evaluation_batches
from regard.errors import ConfigError, DataError, RunError, nearest
from regard.look.edits import masked
from regard.look.watch import attentions, watch
from regard.nn.attention import Attention, NoHeads
from regard.nn.batch import Pairs
from regard.nn.gates import HardConcrete
from regard.runs.checkpoint import Progress, load_weights_strictly, save_checkpoint, weights_of
from regard.runs.config import RunConfig
from regard.runs.corpora import corpus_of
from regard.runs.describe import forward_flops
from regard.runs.evaluation import encode_pair
from regard.runs.files import whole_or_nothing, write_json, write_tensors
from regard.runs.run import CHECKPOINTS, CONFIG, MODEL, TOKENIZER, Run, build_model
from regard.training.average import ExponentialAverage
from regard.training.loop import validate
from regard.training.metrics import corpus_bleu
from regard.training.optim import make_optimizer
from regard.training.tasks import Translation

By = Literal["masking", "gradient", "gates"]
Head: TypeAlias = tuple[str, int]
"""A head: the name of its attention in the model, and its number there."""


class Pairing:
    """Held-out pairs to judge heads by: as text for BLEU, as batches for the loss."""

    def __init__(self, run: Run, corpus: Corpus | None = None, limit: int = 200) -> None:
        corpus = corpus or corpus_of(run.config.data, "valid") or corpus_of(run.config.data, "test")
        if corpus is None:
            raise ConfigError("nothing to judge heads by: the run names no validation or test set; give one")
        longest = run.translator.max_len
        full = (pair for pair in corpus if pair[0].strip() and pair[1].strip())
        fits = (pair for pair in full if max(map(len, encode_pair(run, *pair))) <= longest)
        self.pairs = list(islice(fits, limit))
        if not self.pairs:
            raise DataError("nothing to judge heads by: no pair has two sides that the model can read")
        rows = [encode_pair(run, *pair) for pair in self.pairs]
        store = PairStore.of(rows, run.vocabularies.source.pad)
        device = next(run.model.parameters()).device
        self.batches: list[Pairs] = [batch.to(device) for batch in evaluation_batches(store, max(2048, 2 * longest))]

    def nll(self, model: nn.Module) -> float:
        """The mean negative log-likelihood of a target token."""
        device = next(model.parameters()).device
        return validate(model, Translation(), iter(self.batches), device=device)["nll"]

    def bleu(self, run: Run) -> float:
        found = run.translate([source for source, _ in self.pairs], beam=1)
        return corpus_bleu(found, [target for _, target in self.pairs])[0]


def every_head(model: nn.Module, among: str = "*") -> list[Head]:
    """The heads of all attentions whose names fit the pattern, in the order of the model."""
    known = attentions(model)
    names = [name for name in known if fnmatch.fnmatchcase(name, among)]
    if not names:
        raise ConfigError(f"no attention is called '{among}'{nearest(among, known)}")
    return [(name, head) for name in names for head in range(known[name].heads)]  # type: ignore[arg-type]


def importance(run: Run, pairing: Pairing, by: By = "masking", among: str = "*") -> dict[Head, float]:
    """How much each head matters, more being more.

    `masking`: how much the loss rises without it. `gradient`: how much the loss would change with a little less of it,
    the mean over batches of the size of that slope (Michel, Levy and Neubig 2019). `gates`: the chance that a gate on
    it stays open when open gates cost something (Voita et al. 2019), the model's weights staying as they are.
    """
    run.model.eval()
    heads = every_head(run.model, among)
    if by == "masking":
        whole = pairing.nll(run.model)
        found = {}
        for name, head in heads:
            with masked(run.model, {name: [head]}):
                found[name, head] = pairing.nll(run.model) - whole
        return found
    values = _slopes(run.model, pairing, heads) if by == "gradient" else _gates(run.model, pairing, heads)
    return dict(zip(heads, values.tolist(), strict=True))


def _loss(model: nn.Module, batch: Pairs, heads: Sequence[Head], gates: Tensor) -> Tensor:
    """The loss a token with each head's weights multiplied by its gate."""
    places: dict[str, list[int]] = {}
    for index, (name, _) in enumerate(heads):
        places.setdefault(name, []).append(index)

    def scale(name: str, weights: Tensor) -> Tensor:
        return weights * gates[places[name]].to(weights.dtype)[:, None, None]

    with watch(model, list(places), parts=(), edit=scale):
        loss = Translation().loss(model, batch)
    return loss.total / loss.count


def _slopes(model: nn.Module, pairing: Pairing, heads: Sequence[Head]) -> Tensor:
    device = next(model.parameters()).device
    gates = torch.ones(len(heads), device=device, requires_grad=True)
    slopes = [torch.autograd.grad(_loss(model, batch, heads, gates), gates)[0].abs() for batch in pairing.batches]
    return torch.stack(slopes).mean(0)


def _gates(
    model: nn.Module, pairing: Pairing, heads: Sequence[Head], *, steps: int = 150, penalty: float = 1.0
) -> Tensor:
    device = next(model.parameters()).device
    gates = HardConcrete(len(heads)).to(device).train()
    optimizer = torch.optim.Adam(gates.parameters(), lr=0.1)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for batch in islice(cycle(pairing.batches), steps):
            loss = _loss(model, batch, heads, gates()) + penalty * gates.chance_open().mean()
            (gates.log_alpha.grad,) = torch.autograd.grad(loss, [gates.log_alpha])
            optimizer.step()
    return gates.chance_open().detach()


def prune(run: Run, remove: Sequence[Head], directory: Path | None = None) -> Run:
    """The run without these heads: smaller matrices, and otherwise the same to rounding. Nothing is written."""
    if run.config.model["name"] != "transformer":
        raise ConfigError(f"heads can be removed from a transformer, not from a {run.config.model['name']}")
    known = attentions(run.model)
    gone: dict[str, set[int]] = {}
    for name, head in remove:
        if (name, head) not in every_head(run.model):
            raise ConfigError(f"no head {head} in '{name}'{'' if name in known else nearest(name, known)}")
        gone.setdefault(name, set()).add(head)
    keep = {
        name: [head for head in range(known[name].heads) if head not in own]  # type: ignore[arg-type]
        for name, own in gone.items()
    }
    config = _smaller(run.config, run.model, keep)
    model = build_model(config)
    load_weights_strictly(model, _weights(run.model, keep), run.directory)
    model.to(next(run.model.parameters()).device).eval()
    return Run(directory or run.directory, config, run.vocabularies, model)


def _smaller(config: RunConfig, model: nn.Module, keep: dict[str, list[int]]) -> RunConfig:
    stacks = {"encoder_heads": [], "decoder_heads": [], "cross_heads": []}
    for name, module in model.named_modules():
        if isinstance(module, Attention | NoHeads):
            kind = "cross" if name.endswith("cross_attention") else name.partition(".")[0]
            stacks[f"{kind}_heads"].append(len(keep[name]) if name in keep else module.heads)
    return replace(config, model={**config.model, **stacks})


def _weights(model: nn.Module, keep: dict[str, list[int]]) -> dict[str, Tensor]:
    weights = dict(weights_of(model))
    for name, heads in keep.items():
        width = attentions(model)[name].head_width
        rows = torch.tensor([head * width + one for head in heads for one in range(width)], dtype=torch.long)  # type: ignore[operator, arg-type]
        own = [key for key in weights if key.startswith(f"{name}.")]
        if not heads:
            bias = weights.get(f"{name}.output.bias")
            for key in own:
                del weights[key]
            weights |= {} if bias is None else {f"{name}.bias": bias}
            continue
        for key in own:
            part, _, what = key.removeprefix(f"{name}.").partition(".")
            if part in ("query", "key", "value"):
                weights[key] = weights[key][rows.to(weights[key].device)]
            elif part == "output" and what == "weight":
                weights[key] = weights[key][:, rows.to(weights[key].device)]
    return weights


def save(run: Run, source: Path, out: Path) -> None:
    """Write a pruned run to `out`, with a checkpoint at step 0, so that training goes on from its weights."""
    if (out / CONFIG).exists():
        raise RunError(f"{out} already holds a run: choose another directory")
    with whole_or_nothing(out):
        shutil.copyfile(source / TOKENIZER, out / TOKENIZER)
        write_tensors(out / MODEL, weights_of(run.model))
        options = run.config.train
        average = ExponentialAverage(run.model, options.ema) if options.ema else None
        (out / CHECKPOINTS).mkdir()
        save_checkpoint(out / CHECKPOINTS, Progress(step=0), run.model, make_optimizer(run.model, options), average)
        write_json(out / CONFIG, settings.to_mapping(run.config, nulls=True))


def curve(
    run: Run,
    pairing: Pairing,
    order: Sequence[Head],
    counts: Sequence[int] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Iterator[dict[str, Any]]:
    """Score, size and speed with more and more heads removed, in `order`, the least important first."""
    counts = sorted({*range(0, len(order) + 1, max(1, len(order) // 12)), len(order)} if counts is None else counts)
    for number, count in enumerate(counts, 1):
        yield point(prune(run, order[:count]), pairing, count, len(order) - count)
        if progress is not None:
            progress(number, len(counts))


def point(run: Run, pairing: Pairing, removed: int, kept: int) -> dict[str, Any]:
    """One point of the curve: a run with its score, size and speed."""
    return {
        "removed": removed,
        "kept": kept,
        "bleu": pairing.bleu(run),
        "nll": pairing.nll(run.model),
        "parameters": sum(parameter.numel() for parameter in run.model.parameters()),
        "flops": forward_flops(run.model, min(32, run.translator.max_len - 1)),
        "milliseconds": _milliseconds(run.model, pairing.batches[0]),
    }


@torch.inference_mode()
def _milliseconds(model: nn.Module, batch: Pairs, times: int = 7) -> float:
    """The median time of a forward pass over one batch."""
    taken = []
    for _ in range(times + 1):
        began = time.perf_counter()
        float(model(batch).sum())  # reading a number waits for the device
        taken.append(time.perf_counter() - began)
    return 1000 * statistics.median(taken[1:])
