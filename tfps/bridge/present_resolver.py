"""A cluster resolver that answers where the tasks are now."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from tfps.cluster import ClusterSpec


class PresentResolver(tf.distribute.cluster_resolver.SimpleClusterResolver):
    """TensorFlow's simple one, but for a cluster whose tasks may move.

    Args:
        spec: answers the cluster as it is now, seen by the chief.
    """

    def __init__(self, spec: Callable[[], ClusterSpec]) -> None:
        self._spec = spec
        super().__init__(self.cluster_spec(), task_type="chief", task_id=0, rpc_layer="grpc")

    def cluster_spec(self) -> tf.train.ClusterSpec:
        """Asked again when a parameter server is lost."""
        return tf.train.ClusterSpec({name: list(a) for name, a in self._spec().jobs.items()})
