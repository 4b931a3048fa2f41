"""Datasets, batches and augmentation.

    data = load("embedded")              # or "cifar10", or "folder:PATH" of train/CLASS/*.jpg, test/CLASS/*.jpg
    loader = BatchLoader(data.train, batch_size=512, seed=0, augment=Augment.preset("cifar"), shuffle=True,
                         drop_last=True, mean=data.mean, std=data.std)
    for images, targets in loader.epoch(3, start_batch=17): ...

`load` returns a `Dataset` (name, train, test, num_classes, in_channels, image_size, mean, std, and validation images to
choose settings with, if it has or was asked for any) whose sets are `ImageArrays`, bytes (N, H, W, C) in memory or in a
memory map, or `StreamedImages`, decoded by worker processes as they are needed. A `BatchLoader` yields float32
(n, C, H, W) images in channels_last memory and int64 labels, or float32 (n, classes) targets where `Augment` mixes
images. `epoch` is a pure function of the seed, the epoch's number and the batch's: starting at any batch yields the
identical rest, and the ranks of a distributed run get shares of the same batches that one process would get. Files from
others are read as hostile: a checksum before anything else where one is known, an unpickler that can build nothing but
arrays, and limits on what is decoded.
"""

from filtercov.lab.data.arrays import Dataset, ImageArrays
from filtercov.lab.data.augment import Augment
from filtercov.lab.data.load import load
from filtercov.lab.data.loader import BatchLoader
from filtercov.lab.data.scan import BadFile, ScanReport, scan
from filtercov.lab.data.source import ImageSource
from filtercov.lab.data.streaming import StreamedImages

__all__ = [
    "Augment",
    "BadFile",
    "BatchLoader",
    "Dataset",
    "ImageArrays",
    "ImageSource",
    "ScanReport",
    "StreamedImages",
    "load",
    "scan",
]
