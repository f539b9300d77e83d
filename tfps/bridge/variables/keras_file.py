"""Large variables in files of Keras 3: written and read some rows at a time.

Keras keeps a variable as one dataset of HDF5, which it fills with an array and reads as one. The
file stays what Keras makes of it; only the way there is another one.
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

from tfps.bridge.variables.row_blocks import blocks_of, read_block, write_block
from tfps.bridge.variables.server_variable import ServerVariable
from tfps.bridge.variables.shards import WHOLE_BYTES

WEIGHTS_IN_MODEL = "model.weights.h5"  # the member of a .keras archive
BFLOAT16 = tf.bfloat16.as_numpy_dtype
_fills = threading.local()


def write_dataset(group: Any, name: str, variable: Any) -> None:
    """Write a Keras variable as a dataset of HDF5.

    Args:
        group: of the file.
        name: in it.
        variable: with one axis at least.
    """
    native = variable._value
    dtype = native.dtype.as_numpy_dtype
    dataset = group.create_dataset(name, shape=tuple(native.shape), dtype=dtype)
    if dtype == BFLOAT16:
        dataset.attrs["dtype"] = "bfloat16"  # as Keras notes it
    for block in blocks_of(native):
        dataset[block.start : block.stop] = read_block(native, block)


class StoredVariable(NDArrayOperatorsMixin):
    """The value of a large variable in a file, which is read when it is needed.

    A variable on servers takes it over block by block; for anybody else it is the array.

    Args:
        dataset: of HDF5.
    """

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        self.shape: tuple[int, ...] = tuple(dataset.shape)
        is_bfloat16 = dataset.attrs.get("dtype") == "bfloat16"  # which HDF5 has as two bytes
        self.dtype = np.dtype(BFLOAT16) if is_bfloat16 else dataset.dtype

    def read(self, block: range) -> np.ndarray[Any, Any]:
        """Some rows."""
        return self._dataset[block.start : block.stop].view(self.dtype)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return self.read(range(self.shape[0])).astype(dtype or self.dtype, copy=False)

    def __array_ufunc__(self, function: Any, method: str, *inputs: Any, **options: Any) -> Any:
        arrays = [np.asarray(i) if isinstance(i, StoredVariable) else i for i in inputs]
        return getattr(function, method)(*arrays, **options)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # NumPy asks for some before it makes the array
            raise AttributeError(name)
        return getattr(np.asarray(self), name)


def is_kept_in_file(dataset: Any) -> bool:
    """Whether a dataset is to be read block by block: it is large, and fills a model of ours."""
    fills = getattr(_fills, "is_open", False)
    return bool(fills and dataset.shape and dataset.size * dataset.dtype.itemsize > WHOLE_BYTES)


@contextlib.contextmanager
def filling() -> Iterator[None]:
    """While it is open, this thread fills a model of ours from a file."""
    previous, _fills.is_open = getattr(_fills, "is_open", False), True
    try:
        yield
    finally:
        _fills.is_open = previous


@contextlib.contextmanager
def seekable(path: Any) -> Iterator[Any]:
    """A file of weights in which blocks can be read: those of an archive are taken out of it.

    To go back in a member of an archive is to read it from its begin.

    Args:
        path: that `load_weights` was given.
    """
    if not str(path).endswith(".keras") or not zipfile.is_zipfile(path):
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="tfps-weights-") as folder:
        with zipfile.ZipFile(path) as archive:
            if WEIGHTS_IN_MODEL in archive.namelist():
                path = archive.extract(WEIGHTS_IN_MODEL, folder)
        yield path


def takes_over(variable: Any, stored: StoredVariable) -> bool:
    """Write a value of a file to a Keras variable; False: it is not one that can take it over."""
    native = variable._value
    if not isinstance(native, ServerVariable) or tuple(native.shape) != stored.shape:
        return False
    for block in blocks_of(native):
        write_block(native, block, stored.read(block))
    return True
