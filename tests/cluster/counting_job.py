"""A job whose numbers tell whether `fit` visited each example once and applied each update once."""

from __future__ import annotations

from collections import Counter
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfps
from tests.cluster.counting import UnitGradients, Visits, mean_output, numbered
from tfps.launch import LocalCluster


class CountingJob:
    """A strategy with a model that counts visits of examples and applied updates.

    Args:
        cluster: has the tasks.
        examples: of an epoch.
        batch_size: of a worker's step.
        counters: a layer whose weights grow by one with each update of SGD at rate -1.
        strategy: one that is there already, with sampled callbacks.
        options: of the strategy, if it is made.
    """

    def __init__(
        self,
        cluster: LocalCluster,
        *,
        examples: int = 2000,
        batch_size: int = 2,
        counters: type[keras.layers.Layer] = UnitGradients,
        strategy: tfps.ParameterServerStrategy | None = None,
        **options: Any,
    ) -> None:
        self.cluster, self.examples, self.batch_size = cluster, examples, batch_size
        self.epoch_steps = examples // batch_size
        self.strategy = strategy or tfps.ParameterServerStrategy(
            cluster.cluster_resolver, batch_callbacks="sampled", **options
        )
        with self.strategy.scope():
            self.visits = Visits(examples)
            self.model = keras.Sequential([keras.Input((4,)), counters()])
            self.model.compile(keras.optimizers.SGD(-1.0), mean_output, metrics=[self.visits])

    def fit(self, *callbacks: keras.callbacks.Callback, epochs: int, data: Any = None) -> int:
        """Train, on arrays if there are no other data; return the number of epochs it took."""
        x, labels = numbered(self.examples)
        arrays = {"x": x, "y": labels, "batch_size": self.batch_size}
        history = self.model.fit(
            **(arrays if data is None else {"x": data}),
            epochs=epochs,
            verbose=0,
            callbacks=list(callbacks),
        )
        return len(history.epoch)

    def share(self, context: tf.distribute.InputContext) -> tf.data.Dataset:
        """A dataset function whose order differs each time."""
        shard = tf.data.Dataset.from_tensor_slices(numbered(self.examples)).shard(
            context.num_input_pipelines, context.input_pipeline_id
        )
        return shard.shuffle(self.examples).batch(self.batch_size)

    def updates(self) -> list[int]:
        """The updates that each item of the weights, the optimizer and the ledgers have counted."""
        weights = [int(item) for weight in self.model.get_weights() for item in np.unique(weight)]
        stats = self.strategy.stats()
        iterations = int(self.model.optimizer.iterations)
        return [*weights, iterations, *stats.versions, stats.updates_applied]

    def updates_of_servers(self) -> tuple[int, ...]:
        """The updates of each server, by its weights, with those that only other servers made.

        If a worker dies after one server alone got its gradient, the others take it in a round of
        their own.
        """
        servers = self.strategy.runtime.servers
        apart = [int(server.cells()[server.layout.APART]) for server in servers]
        found: list[set[int]] = [set() for _ in servers]
        counts = [*self.model.trainable_variables, self.model.optimizer.iterations]
        for variable in counts:
            index = self.strategy.runtime.get_server_index(variable.value.device)
            found[index].update(int(item) + apart[index] for item in np.unique(variable.numpy()))
        assert all(len(items) == 1 for items in found), found
        return tuple(items.pop() for items in found)

    def updates_after(self, before: list[int], *, epochs: int) -> list[int]:
        """The value that `updates` must have `epochs` epochs after it had the value `before`."""
        return [count + epochs * self.epoch_steps for count in before]


class EpochsOfOneVisit(keras.callbacks.Callback):
    """Compares each epoch's visits with one per example."""

    def __init__(self, job: CountingJob) -> None:
        super().__init__()
        self.job = job
        self.wrong_epochs: dict[int, Counter[int]] = {}

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        visits = Counter(self.job.visits.counts())
        if visits != {1: self.job.examples}:
            self.wrong_epochs[epoch] = visits
