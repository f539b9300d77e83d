"""A cluster within this process, for tests of models and training loops."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from tfps.cluster import ClusterSpec, close_clients
from tfps.cluster.validation import check_counts
from tfps.errors import ClusterError
from tfps.keras_backend import check_backend

if TYPE_CHECKING:
    import tensorflow as tf

_numbers = itertools.count()


class InProcessCluster:
    """A cluster within this process: workers and parameter servers are its logical devices.

    Use it for unit tests of models, losses, optimizers and training loops: it starts within
    milliseconds and needs no port. It runs the real strategy: servers with their ledgers and locks,
    workers that train in parallel threads, and every mode. `fit`, `evaluate`, `predict`, saving,
    checkpoints, `tfps.ClusterCoordinator` and eager code work as on a cluster.

    Some properties of a cluster of processes are missing: no task can be lost, nothing is sent over
    a network (``transport`` is checked but not used), workers share one Python interpreter and one
    thread pool, and a dataset made before the strategy stays usable. Use a `tfps.LocalCluster` if
    these matter.

    Each task needs a logical device, and TensorFlow creates these only when it starts, at the first
    operation of the process. Create the largest `InProcessCluster` before other code uses
    TensorFlow, or call `reserve` first, for example in ``conftest.py``. Leaving the ``with`` block
    closes the strategies that use it.

    Args:
        workers: the number of workers, which compute gradients.
        ps: the number of parameter servers.

    Raises:
        ConfigError: a count is below 1, or TensorFlow has started with too few devices or threads.
        BackendError: Keras runs on another backend than TensorFlow.

    Example:

    >>> import keras, numpy as np, tfps
    >>> with InProcessCluster(workers=2, ps=2) as cluster:
    ...     strategy = tfps.ParameterServerStrategy(cluster.cluster_resolver)
    ...     with strategy.scope():
    ...         model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    ...         model.compile("sgd", "mse")
    ...     history = model.fit(np.ones([8, 3]), np.ones([8, 1]), batch_size=2, verbose=0)
    ...     strategy.stats().updates_applied
    4
    """

    def __init__(self, workers: int = 2, ps: int = 1) -> None:
        check_counts("InProcessCluster", workers=workers, ps=ps)
        check_backend()
        from tfps.testing.in_process import InProcessConnections
        from tfps.testing.logical_devices import topology_for

        self._connections = InProcessConnections(topology_for(workers=workers, ps=ps))
        # Names without a listening port, by which its strategies are found again.
        name = f"one-process-{next(_numbers)}"
        self.spec = ClusterSpec(
            jobs={
                "chief": (f"chief.{name}:1",),
                "worker": tuple(f"worker-{index}.{name}:1" for index in range(workers)),
                "ps": tuple(f"ps-{index}.{name}:1" for index in range(ps)),
            },
            task_type="chief",
            task_index=0,
        )
        self._resolver = self.spec.tf_resolver()
        self._resolver.tfps_connections = self._connections
        self._closed = False

    @classmethod
    def reserve(cls, *, workers: int, ps: int) -> None:
        """Configure TensorFlow with the devices and threads for clusters up to this size.

        Args:
            workers: the largest number of workers of a later `InProcessCluster`.
            ps: the largest number of parameter servers of a later `InProcessCluster`.

        Raises:
            ConfigError: TensorFlow has already started, with fewer devices or threads.
            BackendError: Keras runs on another backend than TensorFlow.
        """
        check_counts("InProcessCluster.reserve", workers=workers, ps=ps)
        check_backend()
        from tfps.testing.logical_devices import reserve

        reserve(workers=workers, ps=ps)

    @property
    def cluster_resolver(self) -> tf.distribute.cluster_resolver.SimpleClusterResolver:
        """The cluster resolver to pass to a strategy.

        Raises:
            ClusterError: the cluster is closed.
        """
        if self._closed:
            raise ClusterError(
                "this InProcessCluster is closed; make the strategy inside the `with` block, or "
                "make another InProcessCluster"
            )
        return self._resolver

    def close(self) -> None:
        """Close the strategies on this cluster; closing again does nothing."""
        self._closed = True
        addresses = [address for _, _, address in self.spec.tasks("worker", "ps")]
        close_clients(addresses, reason="its InProcessCluster is closed")

    def __enter__(self) -> InProcessCluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __str__(self) -> str:
        return str(self.spec)
