"""Values of what a coordinator has scheduled, without a cluster."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tfps.bridge.closures.connection import is_on_a_cluster
from tfps.bridge.tensorflow_private import RemoteValueImpl


def fetch_without_a_cluster() -> None:
    """Let values be fetched in a process that is no task of a cluster.

    TensorFlow copies them to the job of this process, and fails where there is none.
    """
    if getattr(RemoteValueImpl, "_tfps_fetches", False):
        return
    copy_to_job = RemoteValueImpl._copy_to_local

    def copy_to_chief(self: Any) -> Any:
        if is_on_a_cluster() or self._values is None:
            return copy_to_job(self)
        with tf.device("/device:CPU:0"):
            return tf.nest.map_structure(_copied, self._values)

    RemoteValueImpl._copy_to_local = copy_to_chief
    RemoteValueImpl._tfps_fetches = True


def _copied(value: Any) -> Any:
    """What is no tensor, an iterator for example, stays where it is."""
    return tf.identity(value) if isinstance(value, tf.Tensor | tf.Variable) else value
