"""What is done to normalised float images: random erasing, and mixing each with a partner (mixup, cutmix).

Random erasing: Zhong et al., 2020 (arXiv 1708.04896). Mixup: Zhang et al., 2018 (arXiv 1710.09412). Cutmix: Yun et al.,
2019 (arXiv 1905.04899). Weights are drawn per image. A box is (top, left, height, width).
"""

import torch
from torch import Tensor

from filtercov.lab.data.augment.geometry import random_boxes


def erase_(images: Tensor, chosen: Tensor, box_draws: Tensor) -> Tensor:
    """Set a random rectangle (2 to 33 % of the area, aspect 0.3 to 3.3) to zero, the mean, where `chosen`, (N,)."""
    height, width = images.shape[-2:]
    rows = chosen.nonzero().squeeze(1)
    boxes, found = random_boxes(box_draws[rows], height, width, scale=(0.02, 0.33), ratio=(0.3, 3.3))
    inside = (_rectangles(boxes, height, width) & found.view(-1, 1, 1)).unsqueeze(1).to(images.device)
    rows = rows.to(images.device)
    return images.index_copy_(0, rows, images.index_select(0, rows).masked_fill_(inside, 0.0))


def cut_boxes(weight: Tensor, centre: Tensor, height: int, width: int) -> Tensor:
    """Cutmix's boxes (N, 4): 1 − weight of the area about a centre, clipped to the image."""
    side = torch.sqrt(1.0 - weight)
    half_height, half_width = (height * side).long() // 2, (width * side).long() // 2
    y, x = (centre[:, 0] * height).long(), (centre[:, 1] * width).long()
    top, bottom = (y - half_height).clamp(0, height), (y + half_height).clamp(0, height)
    left, right = (x - half_width).clamp(0, width), (x + half_width).clamp(0, width)
    return torch.stack([top, left, bottom - top, right - left], dim=1)


def cut(images: Tensor, partners: Tensor, boxes: Tensor) -> tuple[Tensor, Tensor]:
    """Paste each partner's box into its image; also return the share of each image, (N,), that is still its own."""
    height, width = images.shape[-2:]
    inside = _rectangles(boxes, height, width)
    kept = 1.0 - boxes[:, 2].double() * boxes[:, 3] / (height * width)
    return torch.where(inside.unsqueeze(1).to(images.device), partners, images), kept


def soften(targets: Tensor, partners: Tensor, kept: Tensor, *, num_classes: int) -> Tensor:
    """Float32 targets (N, num_classes): `kept` of one's own class, the rest of the partner's.

    >>> soften(torch.tensor([0]), torch.tensor([2]), torch.tensor([0.75]), num_classes=3).tolist()
    [[0.75, 0.0, 0.25]]
    """
    kept = kept.to(targets.device, torch.float32).view(-1, 1)
    soft = torch.zeros(len(targets), num_classes, device=targets.device)
    soft.scatter_(1, targets.view(-1, 1), kept)
    return soft.scatter_add_(1, partners.view(-1, 1), 1.0 - kept)


def _rectangles(boxes: Tensor, height: int, width: int) -> Tensor:
    """Boolean (N, H, W) masks of the insides of boxes."""
    top, left, box_height, box_width = (boxes[:, i].view(-1, 1, 1) for i in range(4))
    y, x = torch.arange(height).view(1, -1, 1), torch.arange(width).view(1, 1, -1)
    return (y >= top) & (y < top + box_height) & (x >= left) & (x < left + box_width)
