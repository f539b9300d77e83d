"""Fashion-MNIST as arrays of bytes, from the best source that this machine has.

In this order: tensorflow-datasets (prepared earlier, or downloaded now); where the network does not
answer within seconds, the four original IDX files; else the class-balanced subset that ships with
tfps. A notice says what was used instead of the full data, and how to get that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fashion_mnist import idx, prepared
from tfps.errors import DataError

DEBIAN_FOLDER = Path("/usr/share/datasets/fashion-mnist")  # of the package dataset-fashion-mnist
SUBSET_FOLDER = Path(__file__).parent / "subset"
HOW_TO_GET_ALL = (
    "For all 60,000 + 10,000 images, train once with a network (tensorflow-datasets downloads "
    "30 MB), install Debian's package dataset-fashion-mnist, or pass a folder that holds the four "
    "original .gz files: --set data.path=FOLDER"
)


@dataclass(frozen=True)
class FashionMnist:
    """Images of shape (count, 28, 28, 1) and labels from 0 to 9, as bytes.

    Args:
        x_train: the images to train on.
        y_train: their labels.
        x_test: the images of the final test.
        y_test: their labels.
        source: where they come from, in words.
        notice: what the user should know about it; empty for the full data.
    """

    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    source: str
    notice: str = ""


def load(
    *, source: str = "auto", path: str | None = None, say: Callable[[str], None] = print
) -> FashionMnist:
    """Load the data, and report steps that take long.

    Args:
        source: ``tensorflow-datasets``, ``idx`` or ``subset``; ``auto`` takes the first that works.
        path: a folder with the four IDX files, or the data_dir of tensorflow-datasets if that is
            the source.
        say: receives a line before a download.

    Raises:
        DataError: the data are not there, corrupt or truncated; the message names the files.
    """
    if source == "subset":
        return _subset(reason="")
    if source == "idx" or (source == "auto" and path):
        return _from_idx_files(Path(path) if path else DEBIAN_FOLDER)
    try:
        arrays, folder = prepared.read(data_dir=path, say=say)
    except prepared.Unavailable as error:
        if source == "tensorflow-datasets":
            raise DataError(
                f"data.source: received 'tensorflow-datasets', which cannot read fashion_mnist "
                f"({error}), expected a source that this machine can read; set data.source to "
                "'auto' or 'subset'"
            ) from error
        if DEBIAN_FOLDER.is_dir():
            return _from_idx_files(DEBIAN_FOLDER)
        return _subset(reason=f"tensorflow-datasets: {error}. ")
    return FashionMnist(**arrays, source=f"tensorflow-datasets in {folder}")


def check(*, source: str = "auto", path: str | None = None) -> str:
    """Read the files on this machine and return a text about the data that `load` would use.

    Args:
        source: as for `load`.
        path: as for `load`.

    Raises:
        DataError: files are missing, corrupt or truncated.
    """
    if source == "tensorflow-datasets" or (source == "auto" and not path):
        folder = prepared.folder(path)
        if prepared.is_prepared(path):
            return f"tensorflow-datasets in {folder}"
        download = f"a download with tensorflow-datasets to {folder}"
        if source == "tensorflow-datasets":
            return download
        other = load(source="idx" if DEBIAN_FOLDER.is_dir() else "subset").source
        return f"{download}; without a network {other}"
    return load(source=source, path=path).source


def _from_idx_files(folder: Path) -> FashionMnist:
    arrays = idx.read_folder(folder, suffix=".gz")
    return _from_arrays(arrays, source=f"IDX files in {folder}", notice="")


def _subset(*, reason: str) -> FashionMnist:
    arrays = idx.read_folder(SUBSET_FOLDER, suffix=".xz")
    train, test = (len(arrays[f"{part}-labels-idx1-ubyte"]) for part in ("train", "t10k"))
    used = f"shipped subset ({train:,} + {test:,} images)"
    return _from_arrays(
        arrays, source=used, notice=f"{reason}This run uses the {used}. {HOW_TO_GET_ALL}"
    )


def _from_arrays(arrays: dict[str, np.ndarray], *, source: str, notice: str) -> FashionMnist:
    return FashionMnist(
        x_train=arrays["train-images-idx3-ubyte"][..., np.newaxis],
        y_train=arrays["train-labels-idx1-ubyte"],
        x_test=arrays["t10k-images-idx3-ubyte"][..., np.newaxis],
        y_test=arrays["t10k-labels-idx1-ubyte"],
        source=source,
        notice=notice,
    )
