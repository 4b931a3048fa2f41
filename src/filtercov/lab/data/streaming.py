"""Large images, decoded and cropped by worker processes while the model trains."""

import hashlib
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset

from filtercov.errors import DataError
from filtercov.files import atomic_write, cache_directory
from filtercov.lab.data.augment.geometry import crop_boxes
from filtercov.lab.data.dataset import Fetched, Plan
from filtercov.lab.data.decode import BadFiles, UndecodableError, crop_and_resize, fit_square, pixels, read_image
from filtercov.lab.data.tree import Tree, ZipTree

CENTRE_SHARE = 0.95  # of the shorter side, for images that are not randomly cropped: the evaluation crop of A1
_NEIGHBOURS = 10  # images tried, itself included, in place of one that cannot be read


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
    crops_while_reading = True

    @classmethod
    def of(cls, tree: Tree, split: str, *, size: int, channels: int, workers: int, bad: BadFiles) -> "StreamedImages":
        """Return the files of one split."""
        numbers = {label: number for number, label in enumerate(tree.classes)}
        files = [file for file in tree.files if file.split == split]
        labels = np.array([numbers[file.label] for file in files], dtype=np.int64)
        return cls(tree, tuple(file.path for file in files), labels, tree.classes, size, channels, workers, bad)

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
            generator=torch.Generator(),  # else it draws from torch's own, which a resumed run must find unmoved
        )
        for fetched, bad, failure in batches:
            for path, reason in bad.items():
                self.bad.add(path, reason)
            if failure:
                raise DataError(failure)
            yield fetched

    def digest(self) -> str:
        """Return a checksum of every file's name, size and CRC, and of the crop that evaluation takes.

        A zip lists the CRCs. A directory has to be read for them, once: the result is kept until the size, times or
        inode of a file change.
        """
        return f"{self._files_digest()} centre {CENTRE_SHARE}"

    def _files_digest(self) -> str:
        stamps = {file.path: file.stamp for file in self.tree.files}
        stamped = _sha256(f"{path}\0{stamps[path]}" for path in self.paths)
        if isinstance(self.tree, ZipTree):
            return stamped.hexdigest()
        stamped.update(str(self.tree.path.absolute()).encode(errors="replace"))
        kept = cache_directory() / "contents" / stamped.hexdigest()
        with suppress(OSError):
            return kept.read_text(encoding="utf-8")
        found = _sha256(f"{path}\0{self._size_and_crc(path)}" for path in self.paths).hexdigest()
        with suppress(OSError):  # a cache that cannot be written costs time, not correctness
            kept.parent.mkdir(parents=True, exist_ok=True)
            with atomic_write(kept) as temporary:
                temporary.write_text(found, encoding="utf-8")
        return found

    def _size_and_crc(self, path: str) -> str:
        try:
            content = self.tree.read(path)
        except OSError:
            return "unreadable"
        return f"{len(content)} {zlib.crc32(content)}"


def _sha256(lines: Iterable[str]) -> "hashlib._Hash":
    return hashlib.sha256("\n".join(lines).encode(errors="replace"))


# Images, bad files with reasons, and why the batch could not be made, if so: an exception would leave a worker process
# as its traceback.
_Batch = tuple[Fetched, dict[str, str], str]


class _Reader(TorchDataset[_Batch]):
    """What a worker process runs: a plan in, its images out."""

    def __init__(self, source: StreamedImages) -> None:
        self.source = source

    def __getitem__(self, plan: Plan) -> _Batch:
        source = self.source
        bad: dict[str, str] = {}
        failure = ""
        images, targets, rows = [], [], []
        for row, index in enumerate(plan.indices.tolist()):
            tries = range(_NEIGHBOURS if plan.replace_unreadable else 1)
            for candidate in ((index + step) % len(source) for step in tries):
                try:
                    image = self._image(candidate, plan, row)
                except UndecodableError as error:
                    bad[source.paths[candidate]] = str(error)
                    continue
                images.append(torch.from_numpy(image.copy()))
                targets.append(int(source.labels[candidate]))
                rows.append(row)
                break
            else:
                if plan.replace_unreadable:
                    failure = f"{source.paths[index]} and the next {_NEIGHBOURS - 1} images cannot be read; repair them"
                    break
        empty = torch.empty(0, source.size, source.size, source.channels, dtype=torch.uint8)
        stacked = torch.stack(images) if images else empty
        complete = len(rows) == len(plan.indices)
        fetched = Fetched(
            stacked.permute(0, 3, 1, 2),
            torch.tensor(targets, dtype=torch.int64),
            None if complete else torch.tensor(rows, dtype=torch.int64),
        )
        return fetched, bad, failure

    def _image(self, index: int, plan: Plan, row: int) -> NDArray[np.uint8]:
        source = self.source
        image = read_image(source.tree, source.paths[index], channels=source.channels)
        if plan.crop_draws is None:
            return pixels(fit_square(image, source.size, crop_share=CENTRE_SHARE))
        draws = torch.from_numpy(plan.crop_draws[row : row + 1])
        boxes = crop_boxes(draws, image.height, image.width, scale=plan.crop_scale, ratio=plan.crop_ratio)
        top, left, height, width = boxes[0].tolist()
        return pixels(crop_and_resize(image, (left, top, left + width, top + height), source.size))
