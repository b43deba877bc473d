"""The weights of a checkpoint and of our models: which is which, whether they fit, filled in and written out."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import safetensors
import torch
from torch import Tensor, nn

from regard.config import JsonObject
from regard.errors import ConfigError, RunError, warn
from regard.interop.huggingface.config_fields import Json, plain_file, read_json
from regard.nn.attention import NoHeads
from regard.nn.positions import sinusoidal
from regard.runs.checkpoint import weights_of
from regard.tasks.config import RunConfig
from regard.tasks.run import build_model

DTYPES = ("F32", "F16", "BF16", "F64")
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
MOST_LAYERS = 2000
LARGEST_TABLE = 1 << 27
"""Numbers in the largest table of positions that is computed: no weight's shape says that it is meant."""
LONGEST = 200
"""Characters of an unknown weight's name that are shown, and how many faults: a file may hold any number of either."""
Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Name:
    """Their weight and ours: ours concatenated are theirs, transposed where `transposed`.

    `{}` stands for the number of a layer. Where `nested`, theirs has an axis of size one before ours. A weight that is
    `optional` may be missing and then keeps its initial value. `when` is a setting and the values of it with which the
    weight has this name.
    """

    theirs: str
    ours: tuple[str, ...]
    transposed: bool = False
    nested: bool = False
    optional: bool = False
    when: tuple[str, tuple[object, ...]] | None = None

    def of_layer(self, layer: int) -> "Name":
        number = str(layer)
        ours = tuple(name.replace("{}", number) for name in self.ours)
        return replace(self, theirs=self.theirs.replace("{}", number), ours=ours)

    def shape(self, shapes: Shapes) -> tuple[int, ...]:
        """The shape of theirs, given the shapes of ours."""
        joined = (sum(shapes[part][0] for part in self.ours), *shapes[self.ours[0]][1:])
        turned = joined[::-1] if self.transposed else joined
        return (1, *turned) if self.nested else turned

    def join(self, ours: Mapping[str, Tensor]) -> Tensor:
        """Theirs, made of ours."""
        joined = torch.cat([ours[part].detach() for part in self.ours])
        turned = joined.T if self.transposed else joined
        return turned[None] if self.nested else turned

    def split(self, theirs: Tensor, shapes: Shapes) -> dict[str, Tensor]:
        """Ours, each by its name, made of theirs."""
        turned = theirs[0] if self.nested else theirs
        turned = turned.T if self.transposed else turned
        return dict(zip(self.ours, turned.split([shapes[part][0] for part in self.ours]), strict=True))


def names(
    parts: Mapping[str, str] | Mapping[str, tuple[str, ...]],
    theirs: str = "",
    ours: str = "",
    *,
    transposed: bool = False,
    when: tuple[str, tuple[object, ...]] | None = None,
) -> tuple[Name, ...]:
    """The names of weight and bias of these modules, theirs to ours, each behind what all of theirs or ours begin with.

    A bias that a model does not have is left out when its table is made.
    """
    return tuple(
        Name(
            f"{theirs}{one}.{kind}",
            tuple(f"{ours}{part}.{kind}" for part in ((other,) if isinstance(other, str) else other)),
            transposed=kind == "weight" and transposed,
            when=when,
        )
        for one, other in parts.items()
        for kind in ("weight", "bias")
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Family:
    """How the models of one `model_type` are configured and stored, and which model of ours is the same.

    `settings` are ours from a configuration of theirs, and `found` those that only the stored weights tell;
    `configuration` is the way back, for a model of ours that `fits`. `outside` and `stacks` name the weights, the
    latter by the setting that counts a stack's layers. `head` is the output projection, which `copies` may store once
    more, each with what it is a copy of. Names have no `prefix` where a checkpoint has no head. Weights that match
    `ignored` mean nothing; those in `sinusoids` can be computed, and some store them all the same. `aliases` are
    further names of fields, and `start` is the field with the token that a decoder begins with. `generation` takes what
    is the model's own out of the settings of decoding: given both files, the second of which may not be there, and the
    fields that concern decoding, it tells settings of the model and the fields that are left.
    """

    model: str
    task: str
    settings: Callable[[Json], JsonObject]
    found: Callable[[Json, Shapes], dict[str, object]] = lambda config, shapes: {}
    fits: Callable[[Any], bool] = lambda config: True
    configuration: Callable[[Any], dict[str, object]]
    outside: tuple[Name, ...]
    stacks: Mapping[str, tuple[Name, ...]]
    head: str
    copies: tuple[tuple[str, str], ...] = ()
    prefix: str = ""
    ignored: str = r"(?!)"
    sinusoids: tuple[str, ...] = ()
    aliases: Mapping[str, str] = field(default_factory=dict)
    start: str | None = None
    generation: Callable[[Json, Json | None, Json], tuple[JsonObject, Json]] = lambda config, said, left: ({}, left)

    def table(self, model: Json, shapes: Shapes) -> list[Name]:
        """The names of this very model: those of weights that it does not have, such as biases, are left out."""
        rows = [*self.outside, Name(self.head, ("head.weight",))]
        for count, stack in self.stacks.items():
            layers: Any = model[count]
            rows += [row.of_layer(layer) for layer in range(layers) for row in stack]
        rows = [row for row in rows if row.when is None or model[row.when[0]] in row.when[1]]
        found = [row for row in rows if row.ours[0] in shapes]
        covered = {name for row in found for name in row.ours}
        assert covered == shapes.keys(), f"no name for {sorted(shapes.keys() - covered)}"
        return found

    def copies_in(self, stored: Mapping[str, str]) -> dict[str, str]:
        """Names that a checkpoint may store once more, though the model ties them, and what each is a copy of."""
        bare = any(name != theirs for theirs, name in stored.items())
        there = {copy: name for copy, name in self.copies if name in stored and copy not in stored}
        return {copy.removeprefix(self.prefix) if bare else copy: stored[name] for copy, name in there.items()}


class Weights:
    """The weights of a checkpoint, known by shape from the files' headers; a weight is read when it is asked for."""

    def __init__(self, files: dict[str, Any], where: Path) -> None:
        self._files, self.where = files, where
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.dtypes: dict[str, str] = {}
        for name, file in files.items():
            part = file.get_slice(name)
            self.shapes[name], self.dtypes[name] = tuple(part.get_shape()), part.get_dtype()

    def __getitem__(self, name: str) -> Tensor:
        return self._files[name].get_tensor(name)


@contextmanager
def open_weights(directory: Path) -> Iterator[Weights]:
    """The weights in `model.safetensors`, or in the shards that `model.safetensors.index.json` lists."""
    with ExitStack() as stack:
        files: dict[str, Any] = {}
        for path in _shards(directory):
            try:
                file: Any = stack.enter_context(safetensors.safe_open(path, framework="pt"))
            except FileNotFoundError:
                raise RunError(f"{directory} is missing its {path.name}") from None
            except (safetensors.SafetensorError, OSError, ValueError) as error:
                raise RunError(f"{path} was cut short or is not safetensors ({error})") from None
            for name in file.keys():  # noqa: SIM118, the library's own object
                if name in files:
                    raise RunError(f"{path} holds {name}, which another part holds too")
                files[name] = file
        yield Weights(files, directory)


def _shards(directory: Path) -> list[Path]:
    whole, index = directory / "model.safetensors", directory / "model.safetensors.index.json"
    if whole.exists():
        return [plain_file(whole)]
    if index.exists():
        table = read_json(index).get("weight_map")
        if not isinstance(table, dict) or not table:
            raise RunError(f"{index} lists no weights")
        for name in table.values():
            # A name, not a path: an index must not lead out of its directory.
            if not isinstance(name, str) or not re.fullmatch(r"[\w-][\w.-]*\.safetensors", name):
                raise RunError(f"{index} names {name!r}, which is no part of it")
        return [plain_file(directory / name) for name in sorted(set(table.values()))]
    pickles = sorted(path.name for path in directory.iterdir() if path.suffix in PICKLES)
    if pickles:
        raise RunError(f"{directory} has its weights as pickle ({pickles[0]}), which is never read: save safetensors")
    raise RunError(f"{directory} is missing its model.safetensors")


def model_from_weights(
    config: RunConfig, weights: Weights, family: Family, tell: Callable[[str], object] = warn
) -> nn.Module:
    """The model with the checkpoint's weights. No memory is taken for it before all are known to fit."""
    settings = asdict(config.model_config())
    layers = sum(settings[count] for count in family.stacks)
    if layers > min(MOST_LAYERS, len(weights.shapes)):
        raise RunError(
            f"config.json says {layers} layers; {weights.where} has {len(weights.shapes)} weights, and no more than "
            f"{MOST_LAYERS:,} layers are read"
        )
    if "positions" in settings:
        _check_positions(settings)
    try:
        with torch.device("meta"):  # shapes alone
            shapes = shapes_of(build_model(config))
    except (RuntimeError, OverflowError) as error:  # no number can say how many bytes that would be
        raise RunError(f"config.json in {weights.where} says sizes that no model can have ({error})") from None
    table = family.table(settings, shapes)
    stored = _check_weights(weights, table, shapes, family)
    _check_copies(weights, family, settings, stored, tell)
    model = build_model(config)
    _fill(model, weights, table, stored)
    return model


def weights_by_their_names(model: nn.Module, config: Any, family: Family, *, bare: bool) -> dict[str, Tensor]:
    """The model's weights by their names there; `bare` without the prefix that names have where there is a head."""
    ours = with_all_heads(model, config)
    rows = family.table(asdict(config), {name: tuple(value.shape) for name, value in ours.items()})
    return {row.theirs.removeprefix(family.prefix if bare else ""): row.join(ours) for row in rows}


def shapes_of(model: nn.Module) -> Shapes:
    return {name: tuple(value.shape) for name, value in weights_of(model).items()}


def _check_positions(model: Mapping[str, Any]) -> None:
    """Refuse a length that asks for more memory than its checkpoint gives reason for."""
    per_head = model["head_width"] or model["width"] // model["heads"] if "head_width" in model else 1
    width = model["width"] if model["positions"] == "sinusoidal" else per_head
    if model["positions"] in ("sinusoidal", "rotary") and model["max_len"] * width > LARGEST_TABLE:
        raise ConfigError(
            f"config.json: a length of {model['max_len']:,} at a width of {width:,} is not supported: a table of "
            f"{model['positions']} positions has at most {LARGEST_TABLE:,} numbers"
        )


def _check_weights(weights: Weights, table: list[Name], shapes: Shapes, family: Family) -> dict[str, str]:
    """The name each weight is stored under; or every one that is missing, extra or misshapen, said at once."""
    bare = not any(name.startswith(family.prefix) for name in weights.shapes)
    stored = {row.theirs: row.theirs.removeprefix(family.prefix) if bare else row.theirs for row in table}
    faults = []
    for row in table:
        name = stored[row.theirs]
        wanted = row.shape(shapes)
        if name not in weights.shapes:
            faults += [] if row.optional else [f"missing {name}"]
        elif weights.shapes[name] != wanted:
            faults.append(f"{name} is {weights.shapes[name]}, not {wanted}")
        elif weights.dtypes[name] not in DTYPES:
            faults.append(f"{name} holds {weights.dtypes[name]}, not one of {', '.join(DTYPES)}")
    known = {*stored.values(), *family.copies_in(stored), *family.sinusoids}
    unknown = [name for name in weights.shapes if name not in known and not re.fullmatch(family.ignored, name)]
    faults += [f"extra {name[:LONGEST]}" for name in unknown]
    if faults:
        raise RunError(f"the weights in {weights.where} do not fit its config.json: {in_one_line(faults)}")
    return stored


def _check_copies(
    weights: Weights,
    family: Family,
    model: Mapping[str, Any],
    stored: Mapping[str, str],
    tell: Callable[[str], object],
) -> None:
    """Refuse a second copy of a weight that is not equal to the first: readers differ in which of the two they take."""
    for copy, name in family.copies_in(stored).items():
        if copy in weights.shapes and not torch.equal(weights[copy], weights[name].to(weights[copy].dtype)):
            raise RunError(
                f"{weights.where} holds {copy} beside {name}, which config.json says are one, and they are not equal: "
                f"remove the one that is not meant, or untie them with tie_word_embeddings=false where the model can"
            )
    for name in (name for name in family.sinusoids if name in weights.shapes):
        found, table = weights[name], sinusoidal(model["max_len"], model["width"], model["position_layout"])
        rounded = found.dtype not in (torch.float32, torch.float64)
        close = torch.finfo(found.dtype).eps if rounded else 1e-5
        if found.shape != table.shape or not torch.allclose(found.float(), table, rtol=0.0, atol=close):
            raise RunError(f"{weights.where} holds {name}, which is not the table of sinusoids that this family has")
        if rounded:
            tell(
                f"{weights.where} holds {name} as {str(found.dtype).removeprefix('torch.')}; here sinusoids are exact: "
                f"outputs may differ in that digit"
            )


@torch.no_grad()
def _fill(model: nn.Module, weights: Weights, table: list[Name], stored: Mapping[str, str]) -> None:
    ours, shapes = weights_of(model), shapes_of(model)
    broken = []
    for row in table:
        if (name := stored[row.theirs]) not in weights.shapes:
            continue
        for part, value in row.split(weights[name], shapes).items():
            ours[part].copy_(value)
        if not all(bool(ours[part].isfinite().all()) for part in row.ours):
            broken.append(name)
    if broken:
        raise RunError(f"the weights in {weights.where} are not all finite numbers: {in_one_line(broken)}")


def in_one_line(faults: Iterable[str]) -> str:
    """All faults; those that differ by the number of a layer alone as one: `missing h.{3,4}.ln_1.bias`."""
    groups: dict[tuple[str, str], list[str]] = {}
    for fault in faults:
        before, *layer = re.split(r"\.(\d+)\.", fault, maxsplit=1)
        groups.setdefault((before, layer[1] if layer else ""), []).extend(layer[:1])
    said = [
        f"{before}.{numbers[0] if len(numbers) == 1 else '{' + ','.join(numbers) + '}'}.{after}" if numbers else before
        for (before, after), numbers in groups.items()
    ]
    return "; ".join(said[:LONGEST]) + (f"; and {len(said) - LONGEST} more" if len(said) > LONGEST else "")


@torch.no_grad()
def with_all_heads(model: nn.Module, config: Any) -> dict[str, Tensor]:
    """The weights of a model, every attention with as many heads as `config` gives a layer that was not pruned.

    Their formats know one number of heads for all layers. A head whose columns of the output matrix are zero adds
    nothing, so a model with such heads in place of removed ones has the same outputs.
    """
    weights, block = dict(weights_of(model)), config.block()
    queries, keys = block.heads * block.per_head, (block.kv_heads or block.heads) * block.per_head
    wanted = {"query": queries, "key": keys, "value": keys}
    for name, module in model.named_modules():
        output = f"{name}.output.weight"
        if isinstance(module, NoHeads):  # an attention that has lost all its heads: weights of no rows
            bias = weights.pop(f"{name}.bias", None)
            weights |= {f"{name}.{part}.weight": torch.zeros(0, block.width) for part in wanted}
            weights[output] = torch.zeros(block.width, 0)
            if bias is not None:
                biased = [part for part in wanted if part != "key" or block.key_bias]
                weights |= {f"{name}.{part}.bias": torch.zeros(0) for part in biased} | {f"{name}.output.bias": bias}
        if f"{name}.query.weight" in weights and output in weights:
            for part, rows in wanted.items():
                for key in (f"{name}.{part}.weight", f"{name}.{part}.bias"):
                    if key in weights:
                        weights[key] = _zeros_below(weights[key], rows)
            weights[output] = _zeros_below(weights[output].mT, queries).mT
    return weights


def _zeros_below(weight: Tensor, rows: int) -> Tensor:
    missing = rows - weight.shape[0]
    return weight if not missing else torch.cat([weight, weight.new_zeros(missing, *weight.shape[1:])])
