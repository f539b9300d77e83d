"""The subset of Fashion-MNIST that ships with tfps, as one file that every process reads.

Never the full data, even where it is: a benchmark trains on the same examples on every machine.
"""

from __future__ import annotations

import lzma
from pathlib import Path

import numpy as np

import tfps
from tfps.errors import DataError

PACKAGE = Path(tfps.__file__).resolve().parent
# As installed from a wheel, and in a checkout.
FOLDERS = tuple(
    folder / "examples/fashion_mnist/subset" for folder in (PACKAGE / "bundled", PACKAGE.parent)
)
HEADERS = {"train-images-idx3-ubyte.xz": 16, "train-labels-idx1-ubyte.xz": 8}  # bytes


def write_images(folder: Path) -> Path:
    """Write the training images and their labels as an .npz file and return its path.

    Args:
        folder: where to write.

    Raises:
        DataError: the installation lacks the subset.
    """
    found = [place for place in FOLDERS if place.is_dir()]
    if not found:
        raise DataError(
            "the shipped images of Fashion-MNIST are missing; looked in "
            f"{' and '.join(map(str, FOLDERS))}; install tfps again"
        )
    images, labels = (
        np.frombuffer(lzma.decompress((found[0] / name).read_bytes()), np.uint8, offset=header)
        for name, header in HEADERS.items()
    )
    path = folder / "images.npz"
    np.savez(path, images=images.reshape(-1, 28, 28), labels=labels)
    return path
