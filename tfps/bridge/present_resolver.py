"""A cluster resolver that returns the current addresses of the tasks."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from tfps.cluster import ClusterSpec


class CurrentAddressResolver(tf.distribute.cluster_resolver.SimpleClusterResolver):
    """A `SimpleClusterResolver` for a cluster whose tasks may move to other addresses.

    Args:
        spec: returns the cluster as it is now, as the chief sees it.
    """

    def __init__(self, spec: Callable[[], ClusterSpec]) -> None:
        self._spec = spec
        super().__init__(self.cluster_spec(), task_type="chief", task_id=0, rpc_layer="grpc")

    def cluster_spec(self) -> tf.train.ClusterSpec:
        """Return the current cluster; TensorFlow calls this again when a server is lost."""
        return tf.train.ClusterSpec({name: list(a) for name, a in self._spec().jobs.items()})
