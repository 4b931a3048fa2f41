"""Batched augmentation: every image draws its own operations; images with the same draw are processed together."""

from filtercov.lab.data.augment.pipeline import Augment, Draws, normalise

__all__ = ["Augment", "Draws", "normalise"]
