"""Tokens and image patches to vectors, and vectors to scores over a vocabulary or classes."""

from importlib.util import find_spec

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.errors import DataError
from regard.nn.dropout import Dropout, SharedDropout
from regard.nn.losses.cross_entropy import (
    interleaved,
    linear_cross_entropy,
    loss_and_gradient,
    r_drop_kernel,
    r_drop_loss_and_gradient,
)
from regard.nn.positions import Positions


class Embedding(nn.Module):
    """Token vectors, times sqrt(width) as in the 2017 paper when `scale`, plus their positions, then a norm if given.

    `tokens` is a table to share with another embedding. `token_dropout` is the share of the vocabulary whose vectors
    are zeros for one pass, wherever they occur; `word_dropout` that of the tokens of a text, each for itself. `shared`
    takes the same features from every position of a row.
    """

    def __init__(
        self,
        vocab_size: int,
        width: int,
        *,
        positions: Positions | None = None,
        scale: bool = True,
        dropout: float = 0.0,
        token_dropout: float = 0.0,
        word_dropout: float = 0.0,
        shared: bool = False,
        norm: nn.Module | None = None,
        tokens: nn.Embedding | None = None,
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, width) if tokens is None else tokens
        self.positions = positions
        self.scale = width**0.5 if scale else 1.0
        self.norm = norm
        self.dropout = SharedDropout(dropout) if shared else Dropout(dropout)
        self.token_dropout = Dropout(token_dropout)
        self.word_dropout = Dropout(word_dropout)

    def forward(
        self, ids: Int[Tensor, "B T"], past: int = 0, places: Int[Tensor, "B T"] | None = None
    ) -> Float[Tensor, "B T D"]:
        """The vectors of these tokens, at the places given, or at those after `past`."""
        x = self.tokens(ids)
        if self.training and self.token_dropout.p:
            kept = self.token_dropout(x.new_ones(self.tokens.num_embeddings))
            x = x * kept[ids][..., None]
        if self.training and self.word_dropout.p:
            x = x * self.word_dropout(x.new_ones(x.shape[:-1]))[..., None]
        if self.scale != 1.0:
            x = x * self.scale
        if self.positions is not None:
            x = self.positions(x, past, places)
        if self.norm is not None:
            x = self.norm(x)
        return self.dropout(x)

    def step(self, ids: Int[Tensor, " R"], place: int) -> Float[Tensor, "R D"]:
        """The vectors of tokens that all stand at one place, for inference."""
        x = F.embedding(ids, self.tokens.weight)
        if self.scale != 1.0:
            x = x * self.scale
        if self.positions is not None:
            x = self.positions.step(x, place)
        return x if self.norm is None else self.norm(x)


class OutputProjection(nn.Module):
    """Scores over the vocabulary. `weight` may be the embedding's own, so that both are one matrix.

    With `scale` the vectors are first divided by sqrt(width), as where a tied table's entries are large.
    """

    def __init__(
        self, width: int, vocab_size: int, *, bias: bool = False, tied: Tensor | None = None, scale: bool = False
    ) -> None:
        super().__init__()
        self.scale = width**-0.5 if scale else 1.0
        self.weight = nn.Parameter(torch.empty(vocab_size, width)) if tied is None else tied
        self.bias = nn.Parameter(torch.zeros(vocab_size)) if bias else None
        self.kernel, self.pair_kernel = loss_and_gradient, r_drop_loss_and_gradient
        self.int8: nn.Module | None = None  # the same in int8, where `nn/quantized.py` has made it

    def fuse(self) -> None:
        """The loss's elementwise work in few kernels: worth it on a GPU."""
        if self.weight.is_cuda and find_spec("triton"):
            from regard.nn.losses.fused_cross_entropy import fused_loss_and_gradient

            self.kernel = fused_loss_and_gradient
        else:
            self.kernel = torch.compile(loss_and_gradient)
        self.pair_kernel = torch.compile(r_drop_loss_and_gradient)

    def forward(self, x: Float[Tensor, "*batch D"]) -> Float[Tensor, "*batch V"]:
        x = self._scaled(x)
        return nn.functional.linear(x, self.weight, self.bias) if self.int8 is None else self.int8(x)

    def log_probs(self, x: Float[Tensor, "*batch D"], *, unseen: bool = False) -> Float[Tensor, "*batch V"]:
        """The log-probabilities of every entry, in float32 or better whatever the model runs in.

        Logits that are `unseen` by anybody else make room for them: fresh memory costs a CPU a third of the time.
        """
        logits = self(x)
        kind = torch.promote_types(logits.dtype, torch.float32)
        if unseen and kind == logits.dtype and not logits.requires_grad:
            return torch.log_softmax(logits, -1, out=logits)
        return logits.log_softmax(-1, dtype=kind)

    def narrowed(self, kept: Int[Tensor, " C"]) -> "OutputProjection":
        """The projection to some entries alone, in the order given, for inference."""
        weight, bias = self.weight[kept], None if self.bias is None else self.bias[kept]
        narrow = OutputProjection(weight.shape[1], len(kept), tied=weight)
        narrow.scale, narrow.bias = self.scale, bias  # pyright: ignore[reportAttributeAccessIssue]
        narrow.int8 = None if self.int8 is None else type(self.int8)(weight, bias)
        return narrow

    def _scaled(self, x: Tensor) -> Tensor:
        return x if self.scale == 1.0 else x * self.scale

    def loss(
        self, x: Float[Tensor, "B T D"], labels: Int[Tensor, "B T"], smoothing: float = 0.0
    ) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
        """The summed smoothed loss and the summed plain negative log-likelihood over labels that are not -100."""
        x = self._scaled(x)
        return linear_cross_entropy(x.flatten(0, 1), self.weight, self.bias, labels.flatten(), smoothing, self.kernel)

    def r_drop_loss(
        self, x: Float[Tensor, "B T D"], labels: Int[Tensor, "B T"], smoothing: float, alpha: float
    ) -> tuple[Float[Tensor, ""], Float[Tensor, ""], Float[Tensor, ""]]:
        """The same for a batch whose second half repeats its first: summed loss, plain loss, and divergence."""
        rows, doubled_labels = interleaved(self._scaled(x)), interleaved(labels[..., None]).squeeze(1)
        kernel = r_drop_kernel(alpha, self.pair_kernel)
        total, sums = linear_cross_entropy(rows, self.weight, self.bias, doubled_labels, smoothing, kernel, together=2)
        plain, divergence = sums.unbind()
        return total, plain, divergence


def cut_patches(pixels: Float[Tensor, "B C Y X"], size: int) -> Float[Tensor, "B P N"]:
    """The patches of `size` x `size` pixels, row by row from the top left, each as one row of numbers."""
    B, C, Y, X = pixels.shape
    grid = pixels.reshape(B, C, Y // size, size, X // size, size)
    return grid.permute(0, 2, 4, 1, 3, 5).reshape(B, (Y // size) * (X // size), C * size * size)


def resized_positions(
    positions: Float[Tensor, "1 P D"], before: tuple[int, int], after: tuple[int, int], leading: int = 1
) -> Float[Tensor, "1 Q D"]:
    """Positions learned on one grid of patches, interpolated to another; the `leading` ones lie on no grid and stay."""
    if before == after:
        return positions
    fixed, grid = positions[:, :leading], positions[:, leading:]
    grid = grid.unflatten(1, before).permute(0, 3, 1, 2)
    stretched = F.interpolate(grid.float(), size=after, mode="bicubic", align_corners=False).to(grid.dtype)
    return torch.cat((fixed, stretched.permute(0, 2, 3, 1).flatten(1, 2)), dim=1)


class PatchEmbedding(nn.Module):
    """[CLS] and every patch as vectors, with their positions.

    The matrix of a patch is kept as the kernel of a convolution whose windows do not overlap, which is the same thing.
    For images of another size than the positions were learned on, these are interpolated.
    """

    def __init__(self, image_size: int, patch_size: int, channels: int, width: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.patch_size, self.side = patch_size, image_size // patch_size
        self.weight = nn.Parameter(torch.empty(width, channels, patch_size, patch_size))
        self.bias = nn.Parameter(torch.zeros(width))
        self.cls = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(torch.empty(1, 1 + self.side**2, width))
        self.dropout = Dropout(dropout)
        # A patch enters with the variance of its pixels.
        nn.init.normal_(self.weight, std=(channels * patch_size**2) ** -0.5)
        nn.init.normal_(self.positions, std=0.02)

    def forward(self, pixels: Float[Tensor, "B C Y X"]) -> Float[Tensor, "B T D"]:
        B, C, Y, X = pixels.shape
        size = self.patch_size
        if self.weight.shape[1] != C:
            raise DataError(f"an image with {C} channels; the model reads {self.weight.shape[1]}")
        if Y % size or X % size or not Y or not X:
            raise DataError(f"an image of {Y} x {X} pixels cannot be cut into patches of {size} x {size}")
        patches = F.linear(cut_patches(pixels, size), self.weight.flatten(1), self.bias)
        x = torch.cat((self.cls.to(patches.dtype).expand(B, -1, -1), patches), dim=1)
        positions = resized_positions(self.positions, (self.side, self.side), (Y // size, X // size))
        return self.dropout(x + positions.to(x.dtype))
