"""Plain PyTorch: draw the depthwise filters, freeze them, take the fast layers, and train as ever.

Run `python examples/plain_pytorch.py`; it needs `pip install '.[lab]'`, for the embedded images alone.
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import filtercov
from filtercov.lab.data import ImageArrays, load


class Block(nn.Module):
    """Mix pixels with a depthwise convolution around a skip connection, then channels with a pointwise one."""

    def __init__(self, width: int, kernel_size: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, kernel_size, padding=kernel_size // 2, groups=width)
        self.norm = nn.BatchNorm2d(width)
        self.pointwise = nn.Sequential(nn.Conv2d(width, width, 1), nn.GELU(), nn.BatchNorm2d(width))

    def forward(self, x: Tensor) -> Tensor:
        """Return images (batch, width, height, width) of the same shape."""
        return self.pointwise(x + self.norm(nn.functional.gelu(self.depthwise(x))))


def network(width: int = 32, depth: int = 4, kernel_size: int = 9) -> nn.Module:
    """Return a network of yours: any with depthwise convolutions will do."""
    return nn.Sequential(
        nn.Sequential(nn.Conv2d(1, width, 2, stride=2), nn.GELU(), nn.BatchNorm2d(width)),
        *[Block(width, kernel_size) for _ in range(depth)],
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(width, 10),
    )


def batches(images: ImageArrays, batch_size: int, *, shuffle: bool) -> DataLoader[tuple[Tensor, ...]]:
    """Return batches of images (n, 1, 28, 28) around zero, and labels."""
    pixels = torch.as_tensor(images.images).permute(0, 3, 1, 2).float() / 127.5 - 1
    labels = torch.as_tensor(images.labels)
    return DataLoader(TensorDataset(pixels, labels), batch_size, shuffle=shuffle)


def train(model: nn.Module, *, limit: int, epochs: int, seed: int = 0) -> float:
    """Train what is not frozen, and return the share of test images that end up in their class."""
    torch.manual_seed(seed)
    data = load("embedded", limit=limit)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.01)
    loader = batches(data.train, 50, shuffle=True)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.01, total_steps=epochs * len(loader))
    for epoch in range(epochs):
        model.train()
        for images, labels in loader:
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
        print(f"epoch {epoch + 1}: loss {loss.item():.3f}")
    model.eval()
    with torch.no_grad():
        right = [(model(x).argmax(1) == y).float() for x, y in batches(data.test, 500, shuffle=False)]
    return torch.cat(right).mean().item()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--limit", type=int, default=10_000, help="training images")
    parser.add_argument("--epochs", type=int, default=2)
    options = parser.parse_args()
    torch.manual_seed(0)
    model = network()
    report = filtercov.init_(model, "cifar-p2", generator=torch.Generator().manual_seed(0))
    print(report)
    filtercov.freeze_(model, report)
    filtercov.nn.accelerate_(model)
    accuracy = train(model, limit=options.limit, epochs=options.epochs)
    print(f"{accuracy:.1%} of the test images")
