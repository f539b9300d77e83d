"""Fetches the results of scheduled functions in a process without a cluster."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tfps.bridge.closures.connection import is_in_cluster
from tfps.bridge.tensorflow_private import RemoteValueImpl


def patch_fetch_without_cluster() -> None:
    """Make `RemoteValue.fetch` work in a process that is no task of a cluster.

    TensorFlow copies values to the job of this process, and fails if the process has no job.
    """
    if getattr(RemoteValueImpl, "_tfps_fetches", False):
        return
    copy_to_job = RemoteValueImpl._copy_to_local

    def copy_to_chief(self: Any) -> Any:
        if is_in_cluster() or self._values is None:
            return copy_to_job(self)
        with tf.device("/device:CPU:0"):
            return tf.nest.map_structure(_copy_tensor, self._values)

    RemoteValueImpl._copy_to_local = copy_to_chief
    RemoteValueImpl._tfps_fetches = True


def _copy_tensor(value: Any) -> Any:
    """Return a copy of a tensor or variable; any other value, such as an iterator, unchanged."""
    return tf.identity(value) if isinstance(value, tf.Tensor | tf.Variable) else value
