"""Datasets, batches and augmentation.

    data = load("embedded")              # or "cifar10", or "folder:PATH" of train/CLASS/*.jpg, test/CLASS/*.jpg
    loader = BatchLoader(data.train, batch_size=512, seed=0, augment=Augment.preset("cifar"), shuffle=True,
                         drop_last=True, mean=data.mean, std=data.std)
    for images, targets in loader.epoch(3, start_batch=17): ...

A `Dataset` has training, test and perhaps validation images: `ImageArrays` in memory, or `StreamedImages`, decoded by
worker processes as they are needed. Starting an epoch at any batch yields the identical rest.
"""

from filtercov.lab.data.augment import Augment
from filtercov.lab.data.by_name import load
from filtercov.lab.data.dataset import Dataset, ImageArrays, ImageSource
from filtercov.lab.data.folder import StreamedImages
from filtercov.lab.data.loader import BatchLoader

__all__ = ["Augment", "BatchLoader", "Dataset", "ImageArrays", "ImageSource", "StreamedImages", "load"]
