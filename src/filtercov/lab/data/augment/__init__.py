"""Augmentation on batches, per image: every image draws its own, and images that drew the same are changed together.

Operations reproduce Pillow's arithmetic on bytes: equal to Pillow on every pixel, except the resized crop (within 1
level).
"""

from filtercov.lab.data.augment.draws import Draws
from filtercov.lab.data.augment.pipeline import Augment, normalise

__all__ = ["Augment", "Draws", "normalise"]
