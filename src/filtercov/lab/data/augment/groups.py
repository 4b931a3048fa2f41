"""Applying a different operation to each image of a batch.

The batch is sorted by the operation drawn, so that the images of each are one contiguous stretch; every operation runs
once, on its stretch; then the images go back to their places.
"""

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from filtercov.lab.data.augment.planes import apply_tables

# Images (n, C, H, W) and one parameter (n,) for each.
Operation = Callable[[Tensor, Tensor], Tensor]
# The same for a stretch of related operations, with the number (n,) of each image's, in ascending order of first use.
StretchOperation = Callable[[Tensor, Tensor, Tensor], Tensor]


def apply_to_groups(
    images: Tensor,
    drawn: Tensor,
    parameters: Tensor,
    groups: Sequence[tuple[Sequence[int], StretchOperation]],
) -> Tensor:
    """Apply to image i the operation of the group that lists drawn[i]; numbers that none lists leave images alone.

    `drawn` and `parameters` are on the CPU, so that a GPU is never waited for.

    >>> add = lambda images, _drawn, amount: images + amount.view(-1, 1, 1, 1).to(torch.uint8)
    >>> batch = torch.ones(3, 1, 1, 1, dtype=torch.uint8)
    >>> apply_to_groups(batch, torch.tensor([5, 1, 5]), torch.tensor([2, 2, 3]), [((5,), add)]).flatten().tolist()
    [3, 1, 4]
    """
    if not len(images):  # a rank's share of a last batch may be empty
        return images
    listed = [number for numbers, _ in groups for number in numbers]
    place = torch.full((max([*listed, int(drawn.max())]) + 1,), len(listed))
    place[listed] = torch.arange(len(listed))
    order = place[drawn].argsort(stable=True)
    drawn, parameters = drawn[order], parameters[order]
    images = images.index_select(0, order.to(images.device))
    start = 0
    for numbers, operation in groups:
        stop = start + int(torch.isin(drawn, torch.tensor(numbers)).sum())
        if stop > start:
            stretch = slice(start, stop)
            images[stretch] = operation(images[stretch], drawn[stretch], parameters[stretch])
        start = stop
    return images.index_select(0, order.argsort().to(images.device))


def each(operation: Operation) -> StretchOperation:
    """Return the stretch operation of a single operation, which moves its parameters to the images' device."""
    return lambda images, _drawn, parameters: operation(images, parameters.to(images.device))


def through_tables(tables: dict[int, Operation]) -> StretchOperation:
    """Return the stretch operation of those that are tables (see `points`): made one by one, looked up all at once."""

    def apply(images: Tensor, drawn: Tensor, parameters: Tensor) -> Tensor:
        made = torch.empty(*images.shape[:2], 256, dtype=torch.uint8, device=images.device)
        for number, run in _runs(drawn):
            made[run] = tables[number](images[run], parameters[run].to(images.device))
        return apply_tables(images, made)

    return apply


def _runs(drawn: Tensor) -> Iterator[tuple[int, slice]]:
    numbers, counts = torch.unique_consecutive(drawn, return_counts=True)
    start = 0
    for number, count in zip(numbers.tolist(), counts.tolist(), strict=True):
        yield number, slice(start, start + count)
        start += count
