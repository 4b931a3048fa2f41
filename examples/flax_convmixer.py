"""A ConvMixer in Flax whose depthwise filters are drawn by depth, trained for a few steps on random images.

Run `python examples/flax_convmixer.py`; it needs `pip install '.[jax]'`.
"""

from __future__ import annotations

import argparse
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

import filtercov.jax


class Block(nn.Module):
    """Mix pixels with a depthwise convolution around a skip connection, then channels with a pointwise one."""

    width: int
    kernel_size: int

    @nn.compact
    def __call__(self, x: jax.Array, *, train: bool) -> jax.Array:
        """Return images (batch, height, width, channels) of the same shape."""
        size = (self.kernel_size, self.kernel_size)
        mixed = nn.Conv(self.width, size, feature_group_count=self.width, name="depthwise")(x)
        x = x + nn.BatchNorm(not train)(nn.gelu(mixed))
        return nn.BatchNorm(not train)(nn.gelu(nn.Conv(self.width, (1, 1), name="pointwise")(x)))


class ConvMixer(nn.Module):
    """Patches, blocks, average, classes."""

    width: int = 64
    depth: int = 12
    kernel_size: int = 9
    patch_size: int = 2
    classes: int = 10

    @nn.compact
    def __call__(self, x: jax.Array, *, train: bool) -> jax.Array:
        """Return the logits (batch, classes) of images (batch, height, width, channels)."""
        patch = (self.patch_size, self.patch_size)
        x = nn.BatchNorm(not train)(nn.gelu(nn.Conv(self.width, patch, patch, name="patches")(x)))
        for i in range(self.depth):
            x = Block(self.width, self.kernel_size, name=f"block_{i}")(x, train=train)
        return nn.Dense(self.classes)(x.mean(axis=(1, 2)))


def train(model: ConvMixer, steps: int, seed: int = 0) -> tuple[Any, list[float]]:
    """Return the parameters after training on one random batch, and the loss of every step."""
    make, draw, fill = jax.random.split(jax.random.key(seed), 3)
    images, labels = jax.random.normal(draw, (32, 16, 16, 3)), jnp.arange(32) % model.classes
    variables = jax.jit(lambda key: model.init(key, images, train=False))(make)
    params = filtercov.jax.init_depthwise(variables["params"], "cifar-p2", key=fill)
    stats, optimiser = variables["batch_stats"], optax.adam(1e-3)
    state = optimiser.init(params)

    @jax.jit
    def step(params: Any, stats: Any, state: Any) -> tuple[Any, Any, Any, jax.Array]:
        def loss(params: Any) -> tuple[jax.Array, Any]:
            logits, changed = model.apply(
                {"params": params, "batch_stats": stats}, images, train=True, mutable=["batch_stats"]
            )
            return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean(), changed["batch_stats"]

        (value, stats), gradients = jax.value_and_grad(loss, has_aux=True)(params)
        updates, state = optimiser.update(gradients, state)
        return optax.apply_updates(params, updates), stats, state, value

    losses = []
    for _ in range(steps):
        params, stats, state, value = step(params, stats, state)
        losses.append(float(value))
    return params, losses


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--depth", type=int, default=12)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--steps", type=int, default=10)
    options = parser.parse_args()
    _, losses = train(ConvMixer(width=options.width, depth=options.depth), options.steps)
    print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f} after {len(losses)} steps")
