"""Matrices of int8 for inference on a CPU: a scale for each output feature; inputs are quantised row by row."""

import platform
import warnings
from functools import cache
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.errors import ConfigError, RunError
from regard.nn.attention import ACROSS, Attention
from regard.nn.blocks import FeedForward
from regard.nn.embeddings import OutputProjection

Engine = Literal["fbgemm", "onednn"]
"""Whose kernels multiply. fbgemm's cost half as much per call where rows are few; but torch will drop the tensors that
it packs its matrices from (github.com/pytorch/pytorch/issues/184982), and then oneDNN's are left."""


def choose_engine() -> Engine:
    """The fastest that this torch has; where it has none, int8 is refused."""
    if (
        "fbgemm" in torch.backends.quantized.supported_engines
        and hasattr(torch, "_make_per_channel_quantized_tensor")
        and hasattr(torch.ops.quantized, "linear_with_input_q_dq_qweight_dq_output_fp32")
    ):
        return "fbgemm"
    if torch.backends.mkldnn.is_available() and hasattr(torch.ops.onednn, "qlinear_pointwise"):
        return "onednn"
    raise ConfigError("precision=int8 needs a torch that is built with fbgemm or oneDNN; use float32 or bfloat16")


@cache
def saturates(engine: Engine) -> bool:
    """Whether sums of 8-bit products could overflow here.

    Without VNNI, kernels for x86 add pairs of products in 16 bits: 2 x 255 x 127 does not fit, 2 x 127 x 127 does. So
    there inputs have 7 bits. The kernel itself is asked as well, since oneDNN can be told to leave instructions unused.
    """
    if platform.machine() in ("x86_64", "AMD64") and not torch.cpu._is_vnni_supported():
        return True
    largest = Int8Linear(torch.ones(64, 64), nonnegative=True, reduced=False, engine=engine)
    return bool((largest(torch.ones(64, 64)) - 64).abs().max() > 1)


class Int8Linear(nn.Module):
    """x W' + b with W in int8, of which each row has its own scale; what comes out is float32.

    Every row of `x` is quantised by its own largest entry, so that no row's result depends on its neighbours in a
    batch. With `nonnegative`, inputs are known to be so, and all steps are there. `reduced` inputs have 7 bits.
    `stands_for` is how many of the model's parameters this replaces.
    """

    def __init__(
        self,
        weight: Float[Tensor, "N D"],
        bias: Float[Tensor, " N"] | None = None,
        *,
        nonnegative: bool = False,
        reduced: bool | None = None,
        engine: Engine | None = None,
        stands_for: int = 0,
    ) -> None:
        super().__init__()
        engine = engine or choose_engine()
        self.out_features, self.in_features = weight.shape
        self.nonnegative, self.stands_for = nonnegative, stands_for
        self.reduced = saturates(engine) if reduced is None else reduced
        weight = weight.detach().float()
        scales = (weight.abs().amax(1) / 127).clamp(min=torch.finfo(torch.float32).tiny)
        numbers = (weight / scales[:, None]).round().clamp(-127, 127).to(torch.int8)
        kind = Fbgemm if engine == "fbgemm" else OneDnn
        # No buffers: these stay on the CPU in float32 whatever the model is told, and torch finds attributes sooner.
        self._multiply = kind(numbers, scales, nonnegative=nonnegative, reduced=self.reduced)
        self.bias = None if bias is None else bias.detach().float().clone()

    def forward(self, x: Float[Tensor, "*batch D"]) -> Float[Tensor, "*batch N"]:
        if x.requires_grad and torch.is_grad_enabled():
            raise RunError("an int8 model has no gradients: load the run with precision='float32'")
        return self.multiply(x.reshape(-1, self.in_features)).view(*x.shape[:-1], self.out_features)

    def multiply(self, rows: Float[Tensor, "R D"]) -> Float[Tensor, "R N"]:
        """The same of rows, without a look at whether anybody wants gradients."""
        sizes = (rows if self.nonnegative else rows.abs()).amax(-1, keepdim=True)
        y = self._multiply(rows, sizes)
        # The bias comes last, when the rows have their sizes again.
        return y.mul_(sizes) if self.bias is None else torch.addcmul(self.bias, y, sizes)

    @property
    def weight(self) -> Tensor:
        raise RunError("int8 weights can neither be read nor changed: load the run with precision='float32'")

    def _save_to_state_dict(self, destination: object, prefix: str, keep_vars: bool) -> None:
        raise RunError("int8 weights are not saved: load the run with precision='float32' and save that")

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


class Fbgemm:
    """Rows over their sizes, times a matrix of int8, by a kernel that quantises what it is given on a given grid."""

    def __init__(self, numbers: Tensor, scales: Tensor, *, nonnegative: bool, reduced: bool) -> None:
        largest = 127 if reduced else 255
        # From -1 to 1, or from 0 to 1, in as many steps as there are numbers.
        self._grid = (1 / largest, 0) if nonnegative else (2 / largest, largest // 2 + 1)
        zeros, before = torch.zeros(len(scales), dtype=torch.int64), torch.backends.quantized.engine
        torch.backends.quantized.engine = "fbgemm"  # asked at packing alone; what is packed knows its own
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message=r"torch\.quantize_per_tensor")  # said at `Engine`
                weight = torch._make_per_channel_quantized_tensor(numbers, scales.double(), zeros, 0)  # pyright: ignore[reportPrivateImportUsage]
            self._packed = torch.ops.quantized.linear_prepack(weight, None)
        finally:
            torch.backends.quantized.engine = before
        product = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32.default
        # What torch puts around an operator for its compiler takes a tenth of the time of a small product.
        self._product = getattr(product, "_op", product)

    def __call__(self, rows: Float[Tensor, "R D"], sizes: Float[Tensor, "R 1"]) -> Float[Tensor, "R N"]:
        # A row of zeros gives whatever numbers, and zeros in the end, when they are multiplied by its size.
        return self._product(rows / sizes, *self._grid, self._packed)


class OneDnn:
    """The same by a kernel that is given whole numbers: unsigned, so what may be below zero is moved up."""

    def __init__(self, numbers: Tensor, scales: Tensor, *, nonnegative: bool, reduced: bool) -> None:
        largest = 127 if reduced else 255
        levels, zero = (largest, 0) if nonnegative else (largest // 2, largest // 2 + 1)
        self._levels, self._half = float(levels), torch.tensor(zero + 0.5)
        packed, zeros = torch.ops.onednn.qlinear_prepack(numbers, None), torch.zeros(len(scales), dtype=torch.int64)
        self._matrix = (1 / levels, zero, packed, scales, zeros)
        self._product = torch.ops.onednn.qlinear_pointwise.default

    def __call__(self, rows: Float[Tensor, "R D"], sizes: Float[Tensor, "R 1"]) -> Float[Tensor, "R N"]:
        numbers = torch.addcdiv(self._half, rows, sizes, value=self._levels).to(torch.uint8)
        return self._product(numbers, *self._matrix, None, 1.0, 0, torch.float32, "none", (), "")


@torch.no_grad()
def quantize(model: nn.Module) -> nn.Module:
    """The same model, its attention and feed-forward matrices and its output projection now in int8.

    Embeddings, norms, attention itself, the KV cache and the logits stay float32; so does the table of an output
    projection, of which a copy is quantised. It can be watched as before, but not trained.
    """
    parts = [part for part in model.modules() if isinstance(part, (Attention, FeedForward, OutputProjection))]
    if not parts:
        raise ConfigError(f"precision=int8 does not apply to a {type(model).__name__}: it has no Transformer block")
    for part in parts:
        if isinstance(part, Attention):
            _quantize_attention(part)
        elif isinstance(part, FeedForward):
            _replace(part, "inner", *(() if part.gate is None else ("gate",)))
            _replace(part, "outer", nonnegative=part.activation == "relu" and part.gate is None)
        else:
            part.int8 = Int8Linear(part.weight, part.bias)
    return model.requires_grad_(False)


def _quantize_attention(attention: Attention) -> None:
    if attention.sides != ACROSS:
        attention.int8 = Int8Linear(*attention.concatenated())
    _replace(attention, "query", "key", "value", "output")


def _replace(part: nn.Module, *names: str, nonnegative: bool = False) -> None:
    for name in names:
        linear = getattr(part, name)
        assert isinstance(linear, nn.Linear), f"{name} is not a linear layer, or was quantised before"
        replaced = sum(parameter.numel() for parameter in linear.parameters())
        setattr(part, name, Int8Linear(linear.weight, linear.bias, nonnegative=nonnegative, stands_for=replaced))


def parameter_count(model: nn.Module) -> int:
    """How many parameters a model has, those that are held in int8 included."""
    held = sum(part.stands_for for part in model.modules() if isinstance(part, Int8Linear))
    return held + sum(parameter.numel() for parameter in model.parameters())
