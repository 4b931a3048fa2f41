"""Large images, decoded and cut by worker processes while the model trains."""

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset

from filtercov.errors import DataError
from filtercov.lab.data.augment.crops import crop_boxes
from filtercov.lab.data.decode import UndecodableError, fit_square, open_image, pixels
from filtercov.lab.data.scan import BadFile, BadFiles, read
from filtercov.lab.data.source import Fetched, Plan
from filtercov.lab.data.tree import Tree

_LOG = logging.getLogger("filtercov.lab.data")
_NEIGHBOURS = 10  # how many are tried in place of an image that cannot be read
CENTRE_SHARE = 0.95  # of the shorter side, for images that are not cut at random: the evaluation crop of A1


@dataclass(frozen=True, eq=False)
class StreamedImages:
    """Files of a tree, read when a batch needs them; their labels are known from the start."""

    tree: Tree
    paths: tuple[str, ...]
    labels: NDArray[np.int64]
    classes: tuple[str, ...]
    size: int
    channels: int
    workers: int
    bad: BadFiles
    cuts_while_reading = True

    def __len__(self) -> int:
        return len(self.paths)

    def subset(self, indices: NDArray[np.int64]) -> "StreamedImages":
        """Return a stream of some of the files, in the order given."""
        return replace(self, paths=tuple(self.paths[index] for index in indices), labels=self.labels[indices])

    def fetch(self, plans: Iterable[Plan]) -> Iterator[Fetched]:
        """Yield the images of each plan as uint8 (n, C, size, size); a worker decodes a whole batch."""
        batches = DataLoader(
            _Reader(self),
            sampler=plans,  # what is "sampled" is a whole batch
            batch_size=None,
            num_workers=self.workers,
            generator=torch.Generator(),  # or it would draw from torch's own, which a resumed run must find unmoved
        )
        for batch in batches:
            for bad in batch.bad:
                if bad.path not in self.bad.found:
                    _LOG.warning("skipped %s", bad)
                self.bad.add(bad)
            if batch.failure:
                raise DataError(batch.failure)
            yield Fetched(batch.images, batch.targets, batch.rows)


@dataclass(frozen=True)
class _Batch:
    images: Tensor
    targets: Tensor
    rows: Tensor | None
    bad: tuple[BadFile, ...]
    failure: str = ""  # why it could not be made, said in words: an exception would leave a process as its traceback


class _Reader(TorchDataset[_Batch]):
    """What a worker process runs: a plan in, its images out."""

    def __init__(self, source: StreamedImages) -> None:
        self.source = source

    def __getitem__(self, plan: Plan) -> _Batch:
        bad: list[BadFile] = []
        images, targets, rows = [], [], []
        failure = ""
        for row, index in enumerate(plan.indices.tolist()):
            tries = range(_NEIGHBOURS if plan.replace_unreadable else 1)
            for candidate in ((index + step) % len(self.source) for step in tries):
                try:
                    image = self._image(candidate, plan, row)
                except UndecodableError as error:
                    bad.append(BadFile(self.source.paths[candidate], str(error)))
                    continue
                images.append(torch.from_numpy(image.copy()))
                targets.append(int(self.source.labels[candidate]))
                rows.append(row)
                break
            else:
                if plan.replace_unreadable:
                    failure = f"{bad[-1]}, and so for the {_NEIGHBOURS - 1} images before it; repair the folder"
                    break
        size, channels = self.source.size, self.source.channels
        stacked = torch.stack(images) if images else torch.empty(0, size, size, channels, dtype=torch.uint8)
        complete = len(rows) == len(plan.indices)
        return _Batch(
            stacked.permute(0, 3, 1, 2),
            torch.tensor(targets, dtype=torch.int64),
            None if complete else torch.tensor(rows, dtype=torch.int64),
            tuple(bad),
            failure,
        )

    def _image(self, index: int, plan: Plan, row: int) -> NDArray[np.uint8]:
        source = self.source
        image = open_image(read(source.tree, source.paths[index]), channels=source.channels)
        if plan.crop_draws is None:
            return pixels(fit_square(image, source.size, crop_share=CENTRE_SHARE))
        draws = torch.from_numpy(plan.crop_draws[row : row + 1])
        boxes = crop_boxes(draws, image.height, image.width, scale=plan.crop_scale, ratio=plan.crop_ratio)
        top, left, height, width = boxes[0].tolist()
        box = (left, top, left + width, top + height)
        # Cut first: the filter must not see beyond the box, as it does not in torchvision.
        return pixels(image.crop(box).resize((source.size, source.size), Image.Resampling.BILINEAR))
