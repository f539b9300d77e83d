"""The IDX files in which Fashion-MNIST is published, compressed with gzip or xz.

A file starts with a magic number (element type, number of dimensions) and the dimensions, each as a
big-endian 32-bit number; the bytes follow. Everything is checked, so that a damaged file is named
before a cluster starts.
"""

from __future__ import annotations

import gzip
import lzma
import struct
import zlib
from pathlib import Path

import numpy as np

from tfps.errors import DataError

STEMS = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
CLASS_COUNT = 10
UNSIGNED_BYTES = 0x08  # the IDX code of the only element type in these files


def read_folder(folder: Path, *, suffix: str) -> dict[str, np.ndarray]:
    """Read the four files of a folder and return them by their stems.

    Args:
        folder: where they lie.
        suffix: ``.gz`` as published, ``.xz`` in the shipped subset.

    Raises:
        DataError: names every file that is missing, damaged, or does not fit the others.
    """
    arrays: dict[str, np.ndarray] = {}
    problems: list[str] = []
    for stem in STEMS:
        path = folder / f"{stem}{suffix}"
        try:
            arrays[stem] = read(path, dimensions=3 if "idx3" in stem else 1)
        except DataError as error:
            problems.append(str(error))
    problems += _mismatches(arrays, folder=folder, suffix=suffix)
    if problems:
        raise DataError("\n".join(problems))
    return arrays


def read(path: Path, *, dimensions: int) -> np.ndarray:
    """Read one file, whole and checked.

    Args:
        path: the file; its name ends in ``.gz`` or ``.xz``.
        dimensions: how many it must have: 3 for images, 1 for labels.

    Raises:
        DataError: it is missing, damaged, or holds something else.
    """
    data = _decompressed(path)
    header_bytes = 4 + 4 * dimensions
    if len(data) < header_bytes:
        raise DataError(f"{path}: {len(data)} bytes after decompression are no IDX file.")
    zero, kind, count = struct.unpack(">HBB", data[:4])
    if (zero, kind, count) != (0, UNSIGNED_BYTES, dimensions):
        raise DataError(
            f"{path}: starts with {data[:4].hex(' ')}; expected 00 00 08 0{dimensions}, "
            f"an IDX file of bytes with {dimensions} dimension{'s' if dimensions > 1 else ''}."
        )
    shape = struct.unpack(f">{dimensions}I", data[4:header_bytes])
    if len(data) - header_bytes != int(np.prod(shape)):
        raise DataError(
            f"{path}: its header promises {' x '.join(map(str, shape))} bytes, "
            f"{len(data) - header_bytes} follow. Download it again."
        )
    return np.frombuffer(data, np.uint8, offset=header_bytes).reshape(shape)


def encode(array: np.ndarray) -> bytes:
    """Give the uncompressed bytes of an IDX file; `read` is the inverse."""
    header = struct.pack(">HBB", 0, UNSIGNED_BYTES, array.ndim)
    return header + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def _decompressed(path: Path) -> bytes:
    module = lzma if path.suffix == ".xz" else gzip
    try:
        with module.open(path, "rb") as file:
            return file.read()
    except FileNotFoundError as error:
        raise DataError(f"{path}: there is no such file.") from error
    except EOFError as error:
        raise DataError(f"{path}: truncated ({error}). Download it again.") from error
    except (gzip.BadGzipFile, lzma.LZMAError, zlib.error) as error:
        raise DataError(f"{path}: corrupt ({error}). Download it again.") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error}).") from error


def _mismatches(arrays: dict[str, np.ndarray], *, folder: Path, suffix: str) -> list[str]:
    problems = []
    for part in ("train", "t10k"):
        images = arrays.get(f"{part}-images-idx3-ubyte")
        labels = arrays.get(f"{part}-labels-idx1-ubyte")
        label_path = folder / f"{part}-labels-idx1-ubyte{suffix}"
        if images is not None and images.shape[1:] != (28, 28):
            path = folder / f"{part}-images-idx3-ubyte{suffix}"
            size = " x ".join(map(str, images.shape[1:]))
            problems.append(f"{path}: images of {size} pixels; expected 28 x 28.")
        if images is not None and labels is not None and len(images) != len(labels):
            problems.append(f"{label_path}: {len(labels)} labels for {len(images)} images.")
        if labels is not None and labels.size and labels.max() >= CLASS_COUNT:
            problems.append(f"{label_path}: label {labels.max()}; expected 0 to {CLASS_COUNT - 1}.")
        if labels is not None and not labels.size:
            problems.append(f"{label_path}: holds no example.")
    return problems
