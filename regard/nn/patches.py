"""Pictures to vectors: patches, a vector for the whole, and positions on a grid of any size."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.errors import DataError
from regard.nn.dropout import Dropout


def cut(pixels: Float[Tensor, "B C Y X"], size: int) -> Float[Tensor, "B P N"]:
    """The patches of `size` x `size` pixels, row by row from the top left, each as one row of numbers."""
    B, C, Y, X = pixels.shape
    grid = pixels.reshape(B, C, Y // size, size, X // size, size)
    return grid.permute(0, 2, 4, 1, 3, 5).reshape(B, (Y // size) * (X // size), C * size * size)


def resized_positions(
    positions: Float[Tensor, "1 P D"], before: tuple[int, int], after: tuple[int, int], leading: int = 1
) -> Float[Tensor, "1 Q D"]:
    """Positions learned on one grid of patches, stretched to another; the `leading` ones lie on no grid and stay."""
    if before == after:
        return positions
    fixed, grid = positions[:, :leading], positions[:, leading:]
    grid = grid.unflatten(1, before).permute(0, 3, 1, 2)
    stretched = F.interpolate(grid.float(), size=after, mode="bicubic", align_corners=False).to(grid.dtype)
    return torch.cat((fixed, stretched.permute(0, 2, 3, 1).flatten(1, 2)), dim=1)


class PatchEmbedding(nn.Module):
    """[CLS] and every patch as vectors, with their positions.

    The matrix of a patch is kept as the kernel of a convolution whose windows do not overlap, which is the same thing.
    Pictures of another size than the positions were learned on get them stretched.
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
            raise DataError(f"a picture with {C} channels; the model reads {self.weight.shape[1]}")
        if Y % size or X % size or not Y or not X:
            raise DataError(f"a picture of {Y} x {X} pixels cannot be cut into patches of {size} x {size}")
        patches = F.linear(cut(pixels, size), self.weight.flatten(1), self.bias)
        x = torch.cat((self.cls.to(patches.dtype).expand(B, -1, -1), patches), dim=1)
        positions = resized_positions(self.positions, (self.side, self.side), (Y // size, X // size))
        return self.dropout(x + positions.to(x.dtype))
