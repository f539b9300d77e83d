"""Files of TensorFlow's checkpoint format, written and read by the chief itself."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tfps.checkpoint.file_error import short_reason
from tfps.errors import CheckpointDamaged


def write_bundle(
    prefix: str | os.PathLike[str], arrays: Mapping[str, np.ndarray[Any, Any]]
) -> None:
    """Write arrays, given by their keys, to the files of one prefix.

    In a session of its own: eager operations of a chief may have to wait until a returned worker is
    taken in.

    Args:
        prefix: the prefix of the files' names.
        arrays: arrays of any dtype of TensorFlow.
    """
    graph = tf.Graph()
    with graph.as_default():
        inputs = [tf.compat.v1.placeholder(a.dtype, a.shape) for a in arrays.values()]
        write = tf.raw_ops.SaveV2(
            prefix=os.fspath(prefix),
            tensor_names=list(arrays),
            shape_and_slices=[""] * len(arrays),
            tensors=inputs,
        )
    options = tf.compat.v1.ConfigProto(device_count={"GPU": 0})
    with tf.compat.v1.Session(graph=graph, config=options) as session:
        session.run(write, dict(zip(inputs, arrays.values(), strict=True)))


class Bundle:
    """Files that were written under one prefix.

    Args:
        prefix: the prefix of their names.

    Raises:
        CheckpointDamaged: the files are missing or damaged.
    """

    def __init__(self, prefix: str | os.PathLike[str]) -> None:
        self._prefix = prefix
        with self._translate_read_errors():
            self._reader = tf.train.load_checkpoint(os.fspath(prefix))

    def array(self, key: str) -> np.ndarray[Any, Any]:
        """Read the array of a key.

        Raises:
            CheckpointDamaged: its file is damaged.
        """
        with self._translate_read_errors():
            return np.asarray(self._reader.get_tensor(key))

    @contextlib.contextmanager
    def _translate_read_errors(self) -> Iterator[None]:
        try:
            yield
        except (tf.errors.OpError, IndexError) as error:  # IndexError if a file ends early
            said = short_reason(error) if isinstance(error, tf.errors.OpError) else str(error)
            raise CheckpointDamaged(f"{os.fspath(self._prefix)}: {said}") from error
