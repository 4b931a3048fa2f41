"""Datasets, batches and augmentation.

    data = load("embedded")              # or "cifar10", or "folder:PATH" of train/CLASS/*.jpg, test/CLASS/*.jpg
    loader = BatchLoader(data.train, batch_size=512, seed=0, augment=Augment.preset("cifar"), shuffle=True,
                         drop_last=True, mean=data.mean, std=data.std)
    for images, targets in loader.epoch(3, start_batch=17): ...

`load` returns a `Dataset`: training, test and perhaps validation images, with their classes, size, mean and standard
deviation. Its sets are `ImageArrays`, bytes (N, H, W, C) in memory or in a memory map, or `StreamedImages`, decoded by
worker processes as they are needed. A `BatchLoader` yields float32 (n, C, H, W) images in channels_last memory and
int64 labels, or float32 (n, classes) targets where `Augment` mixes images. `epoch` is a pure function of seed, epoch
and batch number: starting at any batch yields the identical rest, and the ranks of a distributed run get shares of the
batches that one process would get.
"""

from filtercov.lab.data.augment import Augment
from filtercov.lab.data.by_name import load
from filtercov.lab.data.dataset import Dataset, ImageArrays, ImageSource
from filtercov.lab.data.folder import StreamedImages
from filtercov.lab.data.loader import BatchLoader

__all__ = ["Augment", "BatchLoader", "Dataset", "ImageArrays", "ImageSource", "StreamedImages", "load"]
