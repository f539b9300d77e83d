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
ANOTHER_FOLDER = "download the files again, or set data.path to another folder"
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
    problems += _find_mismatches(arrays, folder=folder, suffix=suffix)
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
    data = _decompress(path)
    header_bytes = 4 + 4 * dimensions
    if len(data) < header_bytes:
        raise DataError(
            f"{path}: received {len(data)} bytes after decompression, expected at least "
            f"{header_bytes}, the header of an IDX file; download it again"
        )
    zero, kind, count = struct.unpack(">HBB", data[:4])
    if (zero, kind, count) != (0, UNSIGNED_BYTES, dimensions):
        raise DataError(
            f"{path}: received the first bytes {data[:4].hex(' ')}, expected 00 00 08 "
            f"0{dimensions}, an IDX file of bytes with {dimensions} "
            f"dimension{'s' if dimensions > 1 else ''}; download it again"
        )
    shape = struct.unpack(f">{dimensions}I", data[4:header_bytes])
    if len(data) - header_bytes != int(np.prod(shape)):
        raise DataError(
            f"{path}: received {len(data) - header_bytes} bytes after the header, expected "
            f"{' x '.join(map(str, shape))}; download it again"
        )
    return np.frombuffer(data, np.uint8, offset=header_bytes).reshape(shape)


def encode(array: np.ndarray) -> bytes:
    """Encode an array as the uncompressed bytes of an IDX file; `read` is the inverse."""
    header = struct.pack(">HBB", 0, UNSIGNED_BYTES, array.ndim)
    return header + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def _decompress(path: Path) -> bytes:
    module = lzma if path.suffix == ".xz" else gzip
    try:
        with module.open(path, "rb") as file:
            return file.read()
    except FileNotFoundError as error:
        raise DataError(
            f"{path}: received no such file, expected an IDX file; download it, or set data.path"
        ) from error
    except EOFError as error:
        raise DataError(
            f"{path}: received a truncated file ({error}), expected a whole one; download it again"
        ) from error
    except (gzip.BadGzipFile, lzma.LZMAError, zlib.error) as error:
        raise DataError(
            f"{path}: received a corrupt file ({error}), expected {path.suffix} data; download it "
            "again"
        ) from error
    except OSError as error:
        raise DataError(
            f"{path}: received an unreadable file ({error.strerror or error}), expected an IDX "
            "file; check the file and its permissions"
        ) from error


def _find_mismatches(arrays: dict[str, np.ndarray], *, folder: Path, suffix: str) -> list[str]:
    problems = []
    for part in ("train", "t10k"):
        images = arrays.get(f"{part}-images-idx3-ubyte")
        labels = arrays.get(f"{part}-labels-idx1-ubyte")
        label_path = folder / f"{part}-labels-idx1-ubyte{suffix}"
        if images is not None and images.shape[1:] != (28, 28):
            path = folder / f"{part}-images-idx3-ubyte{suffix}"
            size = " x ".join(map(str, images.shape[1:]))
            problems.append(
                f"{path}: received images of {size} pixels, expected 28 x 28; {ANOTHER_FOLDER}"
            )
        if images is not None and labels is not None and len(images) != len(labels):
            problems.append(
                f"{label_path}: received {len(labels)} labels, expected {len(images)}, one for "
                f"each image; {ANOTHER_FOLDER}"
            )
        if labels is not None and labels.size and labels.max() >= CLASS_COUNT:
            problems.append(
                f"{label_path}: received the label {labels.max()}, expected 0 to "
                f"{CLASS_COUNT - 1}; {ANOTHER_FOLDER}"
            )
        if labels is not None and not labels.size:
            problems.append(
                f"{label_path}: received no label, expected at least one; {ANOTHER_FOLDER}"
            )
    return problems
