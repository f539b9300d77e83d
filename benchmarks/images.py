"""Fashion-MNIST as one file that every process reads.

The subset that ships with tfps, even where the full data are: a benchmark trains on the same
examples on every machine. Those that look at accuracy take the full data from a folder, if told to.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.examples import Examples
from tfps.config import bundle
from tfps.errors import DataError


@dataclass(frozen=True)
class LabelledImages:
    """Training and test images as bytes of shape (number, 28, 28), and labels from 0 to 9."""

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


def image_paths(images: Path | None, folder: Path) -> dict[str, str]:
    """Write what chief processes read, as `write_images`, and give the paths as they get them."""
    images_path = write_images(folder, images)
    pixels_path = LabelledImages.load(images_path).write_pixels(folder)
    return {"images_path": str(images_path), "pixels_path": str(pixels_path)}


def write_images(folder: Path, source: Path | None = None) -> Path:
    """Write the images and their labels as an .npz file and return its path.

    They are those of a folder with the four original .gz files, or of the shipped subset.

    Raises:
        DataError: one of the files is missing or damaged.
    """
    data = bundle.find_example("fashion_mnist").module("data")
    try:
        found = data.load(source="idx" if source else "subset", path=source and str(source))
    except DataError as error:
        raise DataError(
            f"{error}\nFor --images expected a folder with the four original files, such as "
            "Debian's package dataset-fashion-mnist has. Without it the subset is taken that ships "
            "with tfps; if that is damaged, install tfps again."
        ) from error
    path = folder / "images.npz"
    np.savez(
        path,
        images=found.x_train[..., 0],
        labels=found.y_train,
        test_images=found.x_test[..., 0],
        test_labels=found.y_test,
    )
    return path
