"""Fashion-MNIST as one file that every process reads.

The subset that ships with tfps, even where the full data are: a benchmark trains on the same
examples on every machine. Those that look at accuracy take the full data from a folder, if told to.
"""

from __future__ import annotations

import gzip
import lzma
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

import tfps
from tfps.bench.examples import Examples
from tfps.errors import DataError

PACKAGE = Path(tfps.__file__).resolve().parent
# As installed from a wheel, and in a checkout.
FOLDERS = tuple(
    folder / "examples/fashion_mnist/subset" for folder in (PACKAGE / "bundled", PACKAGE.parent)
)
# What the arrays are called, the file of each, and the bytes before its first element.
FILES = {
    "images": ("train-images-idx3-ubyte", 16),
    "labels": ("train-labels-idx1-ubyte", 8),
    "test_images": ("t10k-images-idx3-ubyte", 16),
    "test_labels": ("t10k-labels-idx1-ubyte", 8),
}


@dataclass(frozen=True)
class LabelledImages:
    """What is trained on and what is tested with: bytes of (number, 28, 28), labels to 9."""

    images: np.ndarray
    labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray

    @classmethod
    def load(cls, path: str | Path) -> LabelledImages:
        """Read what `write_images` wrote."""
        with np.load(path) as arrays:
            return cls(**arrays)

    def write_pixels(self, folder: Path) -> Path:
        """Write the bytes of the training images and return the file's path."""
        path = folder / "pixels"
        self.images.tofile(path)
        return path


@dataclass(frozen=True)
class Images(Examples):
    """The training images as float32 from 0 to 1, repeated to the size of the whole set."""

    @classmethod
    def load(cls, path: str | Path, *, batch_size: int) -> Images:
        """Read what `write_images` wrote."""
        data = LabelledImages.load(path)
        pixels = (data.images / 255.0).astype("float32")
        return cls(pixels, data.labels.astype("int32"), batch_size)


@contextmanager
def image_files(source: Path | None = None) -> Iterator[dict[str, str]]:
    """Write what chief processes read, as `write_images`, and give its paths as they get them."""
    with tempfile.TemporaryDirectory(prefix="tfps-bench-") as name:
        images_path = write_images(Path(name), source)
        pixels_path = LabelledImages.load(images_path).write_pixels(Path(name))
        yield {"images_path": str(images_path), "pixels_path": str(pixels_path)}


def write_images(folder: Path, source: Path | None = None) -> Path:
    """Write the images and their labels as an .npz file and return its path.

    They are those of a folder with the four original .gz files, or of the shipped subset.

    Raises:
        DataError: the installation lacks the subset, or the folder one of the files.
    """
    path = folder / "images.npz"
    arrays: dict[str, Any] = _read(_subset(), lzma, ".xz") if source is None else _full(source)
    np.savez(path, **arrays)
    return path


def _subset() -> Path:
    found = [place for place in FOLDERS if place.is_dir()]
    if not found:
        raise DataError(
            "the shipped images of Fashion-MNIST are missing; looked in "
            f"{' and '.join(map(str, FOLDERS))}; install tfps again"
        )
    return found[0]


def _full(source: Path) -> dict[str, np.ndarray]:
    missing = [f"{stem}.gz" for stem, _ in FILES.values() if not (source / f"{stem}.gz").is_file()]
    if missing:
        raise DataError(
            f"{source}: the full Fashion-MNIST is not there, it lacks {', '.join(missing)}; "
            "expected a folder with the four original files, such as Debian's package "
            "dataset-fashion-mnist has, or no folder for the subset that ships with tfps"
        )
    return _read(source, gzip, ".gz")


def _read(source: Path, module: ModuleType, suffix: str) -> dict[str, np.ndarray]:
    arrays = {}
    for name, (stem, header_bytes) in FILES.items():
        content = module.decompress((source / f"{stem}{suffix}").read_bytes())
        array = np.frombuffer(content, np.uint8, offset=header_bytes)
        arrays[name] = array.reshape(-1, 28, 28) if name.endswith("images") else array
    return arrays
