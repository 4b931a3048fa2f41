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

from filtercov.files import atomic_write, cache_directory
from filtercov.lab.data.augment.geometry import crop_boxes
from filtercov.lab.data.dataset import Fetched, Plan
from filtercov.lab.data.decode import BadFiles, UndecodableError, crop_and_resize, fit_square, pixels, read_image
from filtercov.lab.data.tree import Tree, ZipTree

CENTRE_SHARE = 0.95  # of the shorter side, for images that are not randomly cropped: the evaluation crop of A1
NEIGHBOURS = 10  # images tried, itself included, in place of one that cannot be read


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
    def of(cls, tree: Tree, split: str, size: int, channels: int, workers: int, bad: BadFiles) -> "StreamedImages":
        """The files of one split."""
        files = [file for file in tree.files if file.split == split]
        paths = tuple(file.path for file in files)
        return cls(tree, paths, tree.labels(files), tree.classes, size, channels, workers, bad)

    def __len__(self) -> int:
        return len(self.paths)

    def subset(self, indices: NDArray[np.int64]) -> "StreamedImages":
        """A stream of some of the files, in the order given."""
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
        for fetched, bad in batches:
            for path, reason in bad.items():
                self.bad.add(path, reason)
            yield fetched

    def digest(self) -> str:
        """A checksum of every file's name, size and CRC, and of the crop that evaluation takes.

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

    def read(self, index: int, plan: Plan, row: int) -> NDArray[np.uint8]:
        """Decode an image, cropped at random by the draws of a row of the plan or to its centre; (size, size, C)."""
        image = read_image(self.tree, self.paths[index], channels=self.channels)
        if plan.crop_draws is None:
            return pixels(fit_square(image, self.size, crop_share=CENTRE_SHARE))
        draws = torch.from_numpy(plan.crop_draws[row : row + 1])
        boxes = crop_boxes(draws, image.height, image.width, scale=plan.crop_scale, ratio=plan.crop_ratio)
        top, left, height, width = boxes[0].tolist()
        return pixels(crop_and_resize(image, (left, top, left + width, top + height), self.size))


def _sha256(lines: Iterable[str]) -> "hashlib._Hash":
    return hashlib.sha256("\n".join(lines).encode(errors="replace"))


class _Reader(TorchDataset[tuple[Fetched, dict[str, str]]]):
    """What a worker process runs: a plan in, its images and the bad files with reasons out."""

    def __init__(self, source: StreamedImages) -> None:
        self.source = source

    def __getitem__(self, plan: Plan) -> tuple[Fetched, dict[str, str]]:
        source = self.source
        bad: dict[str, str] = {}
        images, targets, rows = [], [], []
        for row, index in enumerate(plan.indices.tolist()):
            for step in range(NEIGHBOURS if plan.replace_unreadable else 1):
                candidate = (index + step) % len(source)
                try:
                    image = source.read(candidate, plan, row)
                except UndecodableError as error:
                    bad[source.paths[candidate]] = str(error)
                    continue
                images.append(torch.from_numpy(image.copy()))
                targets.append(int(source.labels[candidate]))
                rows.append(row)
                break
        empty = torch.empty(0, source.size, source.size, source.channels, dtype=torch.uint8)
        fetched = Fetched(
            (torch.stack(images) if images else empty).permute(0, 3, 1, 2),
            torch.tensor(targets, dtype=torch.int64),
            None if len(rows) == len(plan.indices) else torch.tensor(rows, dtype=torch.int64),
        )
        return fetched, bad
