"""Processes for tests, forked from this one so that none has to import torch; and every kind of training, small."""

import json
import math
import os
import random
import select
import signal
import sys
import time
import traceback
import warnings
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.fsdp
import torch.distributed.tensor  # a second to import: once, before processes are forked
from safetensors.torch import load, save

from regard import make_config
from regard.data import Position
from regard.data.sharing import Idle, Share
from regard.nn.batch import map_tensors
from regard.tasks.run import build_model
from regard.tasks.spec import Silence
from regard.training.loop import fit
from regard.training.optim import ExponentialAverage, make_optimizer
from regard.training.processes import ONE, ProcessGroup
from regard.training.sharding import ShardedObjective, whole

sys.path += [str(Path(__file__).parents[1] / folder) for folder in ("runs", "data")]
from encoder_toys import SHAPE, write_texts  # pyright: ignore[reportMissingImports]
from image_toys import shapes  # pyright: ignore[reportMissingImports]

CPU = torch.device("cpu")


def together(world, work, *arguments, seconds=100):
    """What `work` gives in each of so many processes, which torch has brought together, or how each ended."""
    return Forked(world, work, *arguments).results(seconds)


class Forked:
    """Processes that were forked from this one, each with its end of a pipe."""

    def __init__(self, world, work, *arguments, timeout=60):
        folder = Path(os.environ.get("TMPDIR", "/tmp"))
        store = folder / f"regard-store-{os.getpid()}-{random.SystemRandom().randrange(1 << 40)}"
        self.pids, self.pipes = [], []
        for rank in range(world):
            read, write = os.pipe()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn where a thread runs
                pid = os.fork()
            if not pid:
                os.close(read)
                _child(write, str(store), rank, world, timeout, work, arguments)
            os.close(write)
            self.pids.append(pid)
            self.pipes.append(read)
        self.store = store

    def results(self, seconds=100, *, ends=False):
        """What each gave: a value, or ("raised", its exception), or ("ended", its signal or exit code).

        Whoever takes longer fails the test or, with `ends`, is ended, as a launcher would.
        """
        until = time.monotonic() + seconds
        found = [self.result(rank, max(0, until - time.monotonic()), ends=ends) for rank in range(len(self.pids))]
        self.store.unlink(missing_ok=True)
        return found

    def result(self, rank, seconds=100, *, ends=False):
        until, pipe, data = time.monotonic() + seconds, self.pipes[rank], b""
        while True:
            ready, _, _ = select.select([pipe], [], [], max(0, until - time.monotonic()))
            if not ready and ends:
                self.kill(rank)
                break
            if not ready:
                raise AssertionError(f"the processes did not end within {seconds} s")
            if not (more := os.read(pipe, 1 << 20)):
                break
            data += more
        os.close(pipe)
        _, status = os.waitpid(self.pids[rank], 0)
        return unpacked(data) if data else ("ended", os.waitstatus_to_exitcode(status))

    def kill(self, *ranks):
        for rank in ranks or range(len(self.pids)):
            os.kill(self.pids[rank], signal.SIGKILL)


def packed(value):
    """A value as bytes: its structure as JSON, then its tensors as safetensors."""
    tensors = {}

    def plain(one):
        if isinstance(one, torch.Tensor):
            tensors[str(len(tensors))] = one.detach().contiguous().clone()
            return {"tensor": str(len(tensors) - 1)}
        if isinstance(one, dict):
            return {"dict": [[plain(key), plain(each)] for key, each in one.items()]}
        if isinstance(one, list | tuple):
            return {type(one).__name__: [plain(each) for each in one]}
        assert one is None or isinstance(one, str | int | float), f"{type(one)} does not go through the pipe"
        return one

    text = json.dumps(plain(value)).encode()
    return len(text).to_bytes(8, "little") + text + save(tensors)


def unpacked(data):
    size = int.from_bytes(data[:8], "little")
    tensors = load(data[8 + size :])

    def restored(one):
        if not isinstance(one, dict):
            return one
        ((kind, held),) = one.items()
        if kind == "tensor":
            return tensors[held]
        if kind == "dict":
            return {restored(key): restored(each) for key, each in held}
        return {"list": list, "tuple": tuple}[kind](map(restored, held))

    return restored(json.loads(data[8 : 8 + size]))


def _child(write, store, rank, world, timeout, work, arguments):
    """The life of a forked process, which never returns."""
    status = 0
    try:
        torch.set_num_threads(1)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
        try:
            result = work(rank, world, *arguments)
        except Exception as error:
            result = (
                "raised",
                f"{type(error).__name__}: {error}",
                getattr(error, "quiet", None),
                traceback.format_exc(),
            )
        with os.fdopen(write, "wb") as pipe:
            pipe.write(packed(result))
    except BaseException:
        status = 1
    os._exit(status)  # nothing of the test's own process may run here


TINY = ["model.width=8", "model.heads=2", "model.feed_forward=12", "model.dropout=0", "train.threads=1"]
PAIRS = [*TINY, "model.encoder_layers=1", "model.decoder_layers=2", "tokenizer.kind=word"]
ENCODER = [*SHAPE, *TINY, "model.attention_dropout=0", "model.head_dropout=0", "data.max_len=32"]
RECURRENT = [f"model.{name}=0" for name in ("dropout", "layer_dropout", "token_dropout", "weight_drop")]
SUMMARIES = ["data.telegrams=0", "data.document=1", "data.summary=2", "data.header=false", "tokenizer.min_count=1"]
SOURCES = ["model.encoder_layers=1", "model.decoder_layers=1", "model.source_dropout=0"]
STATES = ["model.dropout=0", "data.max_len=8", "train.batch_tokens=40"]
KINDS = {
    # Tied weights, clipped, several batches per update: each is halved, since 3 batches are no two equal shares.
    "padded": ("tiny", [*PAIRS, "train.batch_tokens=200", "train.accumulate=3", "train.clip=0.5"], ".pairs"),
    # Two batches per update: each process has a whole one.
    "packed": ("tiny", [*PAIRS, "train.batch_tokens=900", "train.pack=always", "train.accumulate=2"], ".pairs"),
    "muon": ("tiny", [*PAIRS, "train.batch_tokens=900", "train.pack=always", "train.optimizer=muon"], ".pairs"),
    "r-drop": ("tiny", [*PAIRS, "train.batch_tokens=200", "train.r_drop=1.0", "train.weight_decay=0.1"], ".pairs"),
    # Batches of one row or two: there is nothing in them for all.
    "lone": ("tiny", [*PAIRS, "train.batch_tokens=22"], ".pairs"),
    "language": ("gpt-tiny", [*TINY, "model.layers=2", "data.max_len=16", "train.batch_tokens=64"], ".txt"),
    "carried": ("lstm-words", ["model.width=8", *RECURRENT, "data.max_len=8", "train.batch_tokens=40"], ".txt"),
    "masking": ("bert-tiny", [*ENCODER, "train.batch_tokens=256"], ".txt"),
    "classification": ("bert-classify", [*ENCODER, "train.batch_tokens=256"], ".tsv"),
    "tagging": ("bert-tag", [*ENCODER, "train.batch_tokens=256"], "-tags.tsv"),
    "answering": ("bert-answer", [*ENCODER, "train.batch_tokens=256", "train.smoothing=0"], "-asked.jsonl"),
    "images": ("vit-digits", [*TINY, "model.layers=2", "train.batch_tokens=340", "images.mixup=0.3"], ".npz"),
    "pointing": (
        "pointer-sort",
        [*TINY, "model.max_len=64", "data.puzzle_sizes=[4,6]", "train.batch_tokens=120", "train.smoothing=0"],
        None,
    ),
    "captioning": ("caption-tiny", [*TINY, "model.word_dropout=0", "data.scenes=12", "train.batch_tokens=700"], None),
    "layered captioning": (
        "caption-recurrent",
        ["model.width=8", "model.dropout=0", "model.word_dropout=0", "data.scenes=12", "train.batch_tokens=700"],
        None,
    ),
    # One head copies, and is asked where it looked: another way through its block.
    "summarization": ("summarize-tiny", [*PAIRS, *SUMMARIES, "train.batch_tokens=200"], ".pairs"),
    "recurrent summarization": (
        "summarize-recurrent",
        ["model.width=8", "model.dropout=0", *SUMMARIES, "train.batch_tokens=200"],
        ".pairs",
    ),
    "parsing": ("parse-tiny", [*TINY, "model.attention_dropout=0", "train.batch_tokens=100"], "-trees.txt"),
    "sources": ("sources-ambiguous", [*TINY, *SOURCES, "data.examples=40", "train.batch_tokens=400"], None),
    "spoken sources": ("sources-spoken", [*TINY, *SOURCES, "data.examples=30", "train.batch_tokens=900"], None),
    # With CTC, whose loss is of whole rows and not of tokens.
    "transcribing": ("speech-tiny", [*TINY, "model.bands=8", "data.speech=40", "train.batch_tokens=700"], None),
    "spelling": (
        "listen-attend-spell",
        ["model.width=8", "model.dropout=0", "model.bands=8", "data.speech=40", "train.batch_tokens=700"],
        None,
    ),
    "both ways": ("elmo-tiny", ["model.width=8", *STATES], ".txt"),
    "copying": ("see-2017", ["model.width=8", "train.batch_tokens=200"], ".pairs"),
}
QUICK = ["padded", "packed", "muon", "r-drop", "lone", "language", "carried", "masking", "classification", "images"]
QUICK += ["summarization", "parsing", "sources"]
# With a small epsilon Adam would make a step of the rounding in gradients that are zero, as those of keys' biases are.
EVERY = ["train.seed=3", "train.validate_sentences=4", "train.warmup=3", "train.smoothing=0.1", "train.epsilon=1e-5"]


def write_files(folder):
    """Data of every kind."""
    write_texts(folder)
    dice = random.Random(0)
    words = ["the", "cat", "dog", "sees", "hears", "big", "red", "house", "runs"]
    for name, count in (("train", 80), ("valid", 12)):
        lines = [[dice.choice(words) for _ in range(dice.randrange(2, 8))] for _ in range(count)]
        text = "".join(f"{' '.join(line)}\t{' '.join(reversed(line)).upper()}\n" for line in lines)
        (folder / f"{name}.pairs").with_suffix(".pairs.tsv").write_text(text, encoding="utf-8")
        trees = "".join(
            f"(S (NP (N {line[0]})) (VP {' '.join(f'(V {word})' for word in line[1:])}))\n" for line in lines
        )
        (folder / f"{name}-trees.txt").write_text(trees, encoding="utf-8")
        pictures, labels = shapes(60)
        np.savez(folder / f"{name}.npz", train_images=pictures, train_labels=labels)
    return folder


def config_of(kind, files, *settings):
    preset, own, suffix = KINDS[kind]
    data = {}
    if suffix is not None:
        suffix = ".pairs.tsv" if suffix == ".pairs" else suffix
        parts = ("train",) if suffix == ".npz" else ("train", "valid")
        data = {part: [str(files / f"{part}{suffix}")] for part in parts}
    return make_config(None, preset, [*EVERY, *own, *settings], {"data": data})


def prepared(kind, files, directory, *settings):
    """The configuration and the data of a kind, ready to train on."""
    config = config_of(kind, files, *settings)
    directory.mkdir(parents=True, exist_ok=True)
    return config.kind.prepare(config, directory, Silence(), new=True)


def group(rank, world):
    return ProcessGroup(CPU, 60)


def updates(config, data, processes, steps, dtype, *, shard=False):
    """The loss, its parts, the gradient norm and the gradients of each update; the last weights and their average."""
    model, objective = build_model(config).to(dtype), data.objective
    if shard:
        objective, processes.sharded = ShardedObjective(objective, model, CPU), True
    optimizer = make_optimizer(model, config.train, processes)
    average = ExponentialAverage(model, 0.9)
    gradients = []

    def note(*_):
        grads = {name: parameter.grad for name, parameter in model.named_parameters()}
        gradients.append({name: None if grad is None else whole(grad).clone() for name, grad in grads.items()})

    optimizer.register_step_pre_hook(note)

    own = None if processes is ONE else Share(processes.rank, processes.world, config.train.accumulate)
    stream = data.stream(Position(), pin=False, pack=config.train.pack == "always", share=own)

    def shares():
        while True:
            yield [as_type(next(stream), dtype) for _ in range(stream.parts if own else config.train.accumulate)]

    found = []
    made = fit(
        *(model, objective, shares(), optimizer, lambda number: 1e-3),
        clip=config.train.clip,
        seed=1,
        average=average,
        processes=processes,
    )
    for step, grads in zip(made, gradients_of(gradients), strict=False):
        values = {"loss": step.loss, "norm": step.grad_norm, **step.parts}
        found.append(({name: float(value) for name, value in values.items()}, grads, step.count))
        if step.number == steps:
            break
    stream.close()
    weights = {name: whole(parameter.detach()).clone() for name, parameter in model.named_parameters()}
    averaged = {name: whole(value).clone() for name, value in average.weights.items()}
    if shard:
        processes.sharded = False
    return found, weights, averaged


def gradients_of(noted):
    while True:
        yield noted[-1] if noted else None


def as_type(batch, dtype):
    if isinstance(batch, Idle):
        return Idle(as_type(batch.batch, dtype))
    return map_tensors(batch, lambda tensor: tensor.to(dtype) if tensor.is_floating_point() else tensor)


def alone(config, data, steps, dtype):
    return updates(config, data, ONE, steps, dtype)


def apart(one, other):
    """The largest difference of two lots of updates: of figures, and of gradients in units of their norm."""
    worst = 0.0
    assert len(one[0]) == len(other[0])
    for (figures, grads, count), (others, their_grads, their_count) in zip(one[0], other[0], strict=True):
        assert count == their_count
        assert figures.keys() == others.keys()
        worst = max(worst, *(abs(figures[name] - others[name]) / max(1.0, abs(figures[name])) for name in figures))
        worst = max(worst, _apart(grads, their_grads))
    return max(worst, _apart(one[1], other[1]), _apart(one[2], other[2]))


def _apart(one, other):
    assert one.keys() == other.keys()
    assert [name for name in one if one[name] is None] == [name for name in other if other[name] is None]
    there = [name for name in one if one[name] is not None]
    norm = math.sqrt(sum(float(one[name].double().square().sum()) for name in there))
    gap = math.sqrt(sum(float((one[name] - other[name]).double().square().sum()) for name in there))
    return gap / max(norm, 1e-12)
