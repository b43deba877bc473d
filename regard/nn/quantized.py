"""Matrices of int8 for inference on a CPU: a scale per output feature, activations quantised row by row as they come."""

from collections.abc import Iterable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.errors import ConfigError, RunError
from regard.nn.attention import ACROSS, Attention
from regard.nn.blocks import FeedForward
from regard.nn.embeddings import OutputProjection

ENGINES = ("fbgemm", "onednn", "qnnpack")
"""torch's kernels for int8 products, the fastest first."""


def engine() -> str:
    """The fastest of torch's engines for int8 products that is built in."""
    built = torch.backends.quantized.supported_engines
    for name in ENGINES:
        if name in built:
            return name
    raise ConfigError("precision=int8 needs a torch with an engine for int8 products; use float32 or bfloat16")


def saturates() -> bool:
    """Whether products of 8-bit numbers could overflow here.

    Without VNNI, x86 kernels add pairs of products in 16 bits: 2 x 255 x 127 does not fit, 2 x 127 x 127 does. There
    activations have 7 bits.
    """
    return not torch.cpu._is_vnni_supported()


class Int8Linear(nn.Module):
    """x W' + b with W in int8, of which each row has its own scale; what comes out is float32.

    Every row of `x` is brought to the same size and then quantised on one fixed grid, so that no row's result depends on
    its neighbours in a batch. With `nonnegative`, inputs are known to be so, and the grid has all its steps there.
    `stands_for` is how many of the model's parameters this replaces.
    """

    ends: Tensor
    bias: Tensor | None

    def __init__(
        self,
        weight: Float[Tensor, "N D"],
        bias: Float[Tensor, " N"] | None = None,
        *,
        nonnegative: bool = False,
        engine_name: str | None = None,
        reduced: bool | None = None,
        stands_for: int = 0,
    ) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self.reduced = saturates() if reduced is None else reduced
        self.stands_for = stands_for
        weight = weight.detach().float()
        scales = (weight.abs().amax(1) / 127).clamp(min=torch.finfo(torch.float32).tiny)
        numbers = (weight / scales[:, None]).round().clamp(-127, 127).to(torch.int8)
        self.packed = _packed(numbers, scales, engine_name or engine())
        # A row that holds both ends of the grid goes along with every batch: torch takes its grid from what it is given.
        ends = torch.zeros(1, self.in_features)
        ends[0, 0] = 1.0
        if not nonnegative:
            ends = torch.cat((ends, -ends))
        self.register_buffer("ends", ends, persistent=False)
        self.register_buffer("bias", None if bias is None else bias.detach().float().clone(), persistent=False)

    def forward(self, x: Float[Tensor, "*batch D"]) -> Float[Tensor, "*batch N"]:
        if x.requires_grad and torch.is_grad_enabled():
            raise RunError("an int8 model has no gradients: load the run with precision='float32'")
        rows = x.reshape(-1, self.in_features)
        sizes = torch.linalg.vector_norm(rows, torch.inf, -1, keepdim=True).clamp_min_(1e-30)
        grid = torch.cat((self.ends, rows / sizes))
        y = torch.ops.quantized.linear_dynamic(grid, self.packed, self.reduced)[self.ends.shape[0] :]
        y = y.mul_(sizes) if self.bias is None else torch.addcmul(self.bias, y, sizes)
        return y.view(*x.shape[:-1], self.out_features)

    @property
    def weight(self) -> Tensor:
        raise RunError("int8 weights can neither be read nor changed: load the run with precision='float32'")

    def _save_to_state_dict(self, destination: object, prefix: str, keep_vars: bool) -> None:
        raise RunError("int8 weights are not saved: load the run with precision='float32' and save that")

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


def _packed(numbers: Tensor, scales: Tensor, engine_name: str) -> torch.ScriptObject:
    """The matrix in the order in which the engine's kernels read it."""
    zeros = torch.zeros(len(scales), dtype=torch.int64)
    weight = torch._make_per_channel_quantized_tensor(numbers, scales.double(), zeros, 0)
    before = torch.backends.quantized.engine
    torch.backends.quantized.engine = engine_name  # asked at packing alone; what is packed knows its own
    try:
        return torch.ops.quantized.linear_prepack(weight, None)
    finally:
        torch.backends.quantized.engine = before


@torch.no_grad()
def quantize(model: nn.Module) -> nn.Module:
    """The same model, its attention and feed-forward matrices and its output projection now in int8.

    Embeddings, norms, attention itself, the KV cache and the logits stay float32; so does the table of an output
    projection that is the embedding's as well, of which a copy is quantised. It can be watched as before, and not trained.
    """
    parts = [part for part in model.modules() if isinstance(part, (Attention, FeedForward, OutputProjection))]
    if not parts:
        raise ConfigError(f"precision=int8 does not apply to a {type(model).__name__}: it has no Transformer block")
    for part in parts:
        if isinstance(part, Attention):
            _quantize_attention(part)
        elif isinstance(part, FeedForward):
            part.inner = _int8(part.inner)
            part.gate = None if part.gate is None else _int8(part.gate)
            part.outer = _int8(part.outer, nonnegative=part.activation == "relu" and part.gate is None)
        else:
            part.int8 = Int8Linear(part.weight, part.bias)
    return model.requires_grad_(False)


def _quantize_attention(attention: Attention) -> None:
    if attention.sides != ACROSS:
        attention.int8 = Int8Linear(*attention.joined())
    for name in ("query", "key", "value", "output"):
        setattr(attention, name, _int8(getattr(attention, name)))


def _int8(linear: nn.Module, *, nonnegative: bool = False) -> Int8Linear:
    assert isinstance(linear, nn.Linear), f"{type(linear).__name__} is not a linear layer, or was quantised before"
    replaced = sum(parameter.numel() for parameter in linear.parameters())
    return Int8Linear(linear.weight, linear.bias, nonnegative=nonnegative, stands_for=replaced)


def parameter_count(modules: Iterable[nn.Module] | nn.Module) -> int:
    """How many parameters a model has, those that are held in int8 included."""
    modules = [modules] if isinstance(modules, nn.Module) else modules
    return sum(
        sum(parameter.numel() for parameter in module.parameters())
        + sum(part.stands_for for part in module.modules() if isinstance(part, Int8Linear))
        for module in modules
    )
