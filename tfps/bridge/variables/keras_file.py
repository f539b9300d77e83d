"""Writes and reads large variables in Keras 3 files a few rows at a time.

Keras stores a variable as one HDF5 dataset, which it writes and reads as a whole array. The format
of the file stays the same.
"""

from __future__ import annotations

import contextlib
import tempfile
import threading
import zipfile
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.lib.mixins import NDArrayOperatorsMixin

from tfps.bridge.variables.row_blocks import iter_row_ranges, read_block, write_block
from tfps.bridge.variables.server_variable import ServerVariable
from tfps.bridge.variables.shards import WHOLE_BYTES

WEIGHTS_IN_MODEL = "model.weights.h5"  # the member of a .keras archive
BFLOAT16 = tf.bfloat16.as_numpy_dtype
_fills = threading.local()


def write_dataset(group: Any, name: str, variable: Any) -> None:
    """Write a Keras variable as an HDF5 dataset.

    Args:
        group: the group of the file.
        name: the name of the dataset in the group.
        variable: a variable with at least one axis.
    """
    native = variable._value
    dtype = native.dtype.as_numpy_dtype
    dataset = group.create_dataset(name, shape=tuple(native.shape), dtype=dtype)
    if dtype == BFLOAT16:
        dataset.attrs["dtype"] = "bfloat16"  # as Keras does
    for block in iter_row_ranges(native):
        dataset[block.start : block.stop] = read_block(native, block)


class StoredVariable(NDArrayOperatorsMixin):
    """The value of a large variable in a file, read on demand.

    A variable on servers is assigned block by block; all other code can use the value as an array.

    Args:
        dataset: an HDF5 dataset.
    """

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        self.shape: tuple[int, ...] = tuple(dataset.shape)
        is_bfloat16 = dataset.attrs.get("dtype") == "bfloat16"  # stored as two bytes in HDF5
        self.dtype = np.dtype(BFLOAT16) if is_bfloat16 else dataset.dtype

    def read(self, block: range) -> np.ndarray[Any, Any]:
        """Read a block of neighbouring rows."""
        return self._dataset[block.start : block.stop].view(self.dtype)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return self.read(range(self.shape[0])).astype(dtype or self.dtype, copy=False)

    def __array_ufunc__(self, function: Any, method: str, *inputs: Any, **options: Any) -> Any:
        arrays = [np.asarray(i) if isinstance(i, StoredVariable) else i for i in inputs]
        return getattr(function, method)(*arrays, **options)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # NumPy looks for some before it makes the array
            raise AttributeError(name)
        return getattr(np.asarray(self), name)


def should_read_in_blocks(dataset: Any) -> bool:
    """Return whether to read a dataset block by block: it is large, and its model uses tfps."""
    fills = getattr(_fills, "is_open", False)
    return bool(fills and dataset.shape and dataset.size * dataset.dtype.itemsize > WHOLE_BYTES)


@contextlib.contextmanager
def mark_loading() -> Iterator[None]:
    """Mark this thread as loading a model with a tfps strategy while the context is open."""
    previous, _fills.is_open = getattr(_fills, "is_open", False), True
    try:
        yield
    finally:
        _fills.is_open = previous


@contextlib.contextmanager
def extract_weights(path: Any) -> Iterator[Any]:
    """Extract weights from an archive, and yield a path from which blocks can be read.

    Seeking backwards in a member of an archive would read it from its start each time.

    Args:
        path: the path that `load_weights` received.
    """
    if not str(path).endswith(".keras") or not zipfile.is_zipfile(path):
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="tfps-weights-") as folder:
        with zipfile.ZipFile(path) as archive:
            if WEIGHTS_IN_MODEL in archive.namelist():
                path = archive.extract(WEIGHTS_IN_MODEL, folder)
        yield path


def write_to_variable(variable: Any, stored: StoredVariable) -> bool:
    """Write a stored value to a variable on servers; return False if it does not fit."""
    native = variable._value
    if not isinstance(native, ServerVariable) or tuple(native.shape) != stored.shape:
        return False
    for block in iter_row_ranges(native):
        write_block(native, block, stored.read(block))
    return True
