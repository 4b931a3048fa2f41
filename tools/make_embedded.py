"""Make the package's embedded data from the Fashion-MNIST originals, as Debian's dataset-fashion-mnist installs them.

    python tools/make_embedded.py /usr/share/datasets/fashion-mnist src/filtercov/lab/data/fashion_mnist.npz

keeps the first 1,000 training and the first 200 test images of each of the ten classes, in their original order, and
prints its size and checksum.
"""

import argparse
import gzip
import hashlib
import struct
from pathlib import Path

import numpy as np

CLASSES = 10


def read_idx(path: Path) -> np.ndarray:
    """Read one of the originals: big-endian magic (0, 0, 8 = uint8, dimensions), sizes, bytes."""
    raw = gzip.decompress(path.read_bytes())
    zero, kind, dimensions = struct.unpack(">HBB", raw[:4])
    if zero != 0 or kind != 8:
        raise SystemExit(f"{path} is not an IDX file of bytes")
    sizes = struct.unpack(f">{dimensions}I", raw[4 : 4 + 4 * dimensions])
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * dimensions).reshape(sizes)


def first_of_each_class(images: np.ndarray, labels: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    chosen = np.sort(np.concatenate([np.flatnonzero(labels == label)[:count] for label in range(CLASSES)]))
    return images[chosen], labels[chosen]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("originals", type=Path)
    parser.add_argument("output", type=Path)
    arguments = parser.parse_args()

    arrays = {}
    for split, prefix, count in (("train", "train", 1000), ("test", "t10k", 200)):
        images = read_idx(arguments.originals / f"{prefix}-images-idx3-ubyte.gz")
        labels = read_idx(arguments.originals / f"{prefix}-labels-idx1-ubyte.gz")
        arrays[f"{split}_images"], arrays[f"{split}_labels"] = first_of_each_class(images, labels, count)
    np.savez_compressed(arguments.output, **arrays)
    data = arguments.output.read_bytes()
    print(f"{arguments.output}: {len(data):,} bytes, sha256 {hashlib.sha256(data).hexdigest()}")


if __name__ == "__main__":
    main()
