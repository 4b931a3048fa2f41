"""Augmentation on batches, per image: every image draws its own, and images that drew the same are changed together."""

from filtercov.lab.data.augment.pipeline import Augment, Draws, normalise

__all__ = ["Augment", "Draws", "normalise"]
