"""Keep depthwise filters as they are initialised, or let them train; nothing else of the model is touched."""

from __future__ import annotations

from typing import TypeVar

from torch import nn

from filtercov.depthwise.model import LayerFilter, depthwise_layers

Model = TypeVar("Model", bound=nn.Module)


def freeze_(model: Model, *, filter_fn: LayerFilter | None = None) -> Model:
    """Stop training the filters of every depthwise convolution; biases and all other parameters keep training.

    >>> net = freeze_(nn.Conv2d(8, 8, 7, groups=8))
    >>> net.weight.requires_grad, net.bias.requires_grad
    (False, True)
    """
    return _train_filters_(model, False, filter_fn)


def thaw_(model: Model, *, filter_fn: LayerFilter | None = None) -> Model:
    """Train the filters of every depthwise convolution again: the reverse of `freeze_`.

    >>> thaw_(freeze_(nn.Conv2d(8, 8, 7, groups=8))).weight.requires_grad
    True
    """
    return _train_filters_(model, True, filter_fn)


def _train_filters_(model: Model, train: bool, filter_fn: LayerFilter | None) -> Model:
    chosen = [layer for layer in depthwise_layers(model) if filter_fn is None or filter_fn(layer)]
    for parameter in [parameter for layer in chosen for parameter in layer.trainable()]:
        parameter.requires_grad_(train)
    return model
