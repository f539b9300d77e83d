"""`tfps.ClusterCoordinator`: TensorFlow's, for our strategy."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


class ClusterCoordinator(tf.distribute.coordinator.ClusterCoordinator):  # type: ignore[misc, name-defined]
    """Schedules functions on workers; takes the place of `tf.distribute.coordinator.ClusterCoordinator`.

    A strategy has one coordinator: asking again returns the same object, as in TensorFlow.

    Args:
        strategy: a `tfps.ParameterServerStrategy` or TensorFlow's own.

    Example:

    ```python
    coordinator = tfps.ClusterCoordinator(strategy)
    dataset = coordinator.create_per_worker_dataset(make_dataset)
    coordinator.schedule(train_step, args=(iter(dataset),))
    coordinator.join()
    ```
    """

    def __init__(self, strategy: Any) -> None:
        super().__init__(strategy)
