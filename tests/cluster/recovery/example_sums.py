"""A job of all-reduce whose weights tell how often each example was in an applied update."""

from __future__ import annotations

from collections import Counter
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfps
from tests.cluster.counting import Visits, mean_output, numbered
from tfps.bridge import tensorflow_private as private
from tfps.bridge.variables.named_resource import NamedResource
from tfps.bridge.variables.worker_local_variable import make_worker_local_name
from tfps.launch import LocalCluster
from tfps.runtime.worker.mirrored_copies import UPDATES_NAME

BATCH = 2
# The share of an example in the mean of a round: of two batches, or of one.
SHARES = {1 / (2 * BATCH), 1 / BATCH}


class ExampleSums(keras.layers.Layer):
    """A weight for each example, to which SGD at rate -1 adds the example's share of a round."""

    def __init__(self, examples: int) -> None:
        super().__init__()
        self.examples = examples

    def build(self, input_shape: Any) -> None:
        self.sums = self.add_weight(shape=(self.examples,), initializer="zeros", name="sums")
        self.kernel = self.add_weight(shape=(input_shape[-1], 33), name="kernel")

    def call(self, inputs: Any) -> Any:
        number = keras.ops.cast(inputs[:, 0], "int32")
        noise = keras.ops.tanh(inputs[:, 1:] @ self.kernel[1:])
        own = keras.ops.one_hot(number, self.examples) * self.sums
        return keras.ops.sum(own, 1, keepdims=True) + keras.ops.sum(noise, 1, keepdims=True)


def _rates() -> Any:
    counts, noise = keras.optimizers.SGD(-1.0), keras.optimizers.Adam(0.01)
    return keras.optimizers.MultiOptimizer(lambda v: counts if v.path.endswith("/sums") else noise)


def _read_on_all_servers(variable: Any) -> list[int]:
    """Return the values of a scalar on its server and of its copies on others."""
    native = variable.value
    found = []
    for device in native.devices:
        resource = NamedResource(native.container, native.shared_name, device)
        with private.placed_on(device):
            handle = resource.handle()
            found.append(int(tf.raw_ops.ReadVariableOp(resource=handle, dtype=native.dtype)))
    return found


class SummingJob:
    """A strategy with all-reduce, a model, and what its numbers must be.

    Args:
        cluster: has the tasks.
        examples: of an epoch.
        options: of the strategy.
    """

    def __init__(self, cluster: LocalCluster, *, examples: int, **options: Any) -> None:
        self.cluster, self.examples = cluster, examples
        self.strategy = tfps.ParameterServerStrategy(
            cluster.cluster_resolver,
            consistency=tfps.Synchronous(),
            placement="all_reduce",
            **options,
        )
        x, self.labels = numbered(examples)
        self.inputs = np.concatenate([np.arange(examples)[:, None], x], 1).astype(np.float32)
        with self.strategy.scope():
            self.visits = Visits(examples)
            self.layer = ExampleSums(examples)
            self.model = keras.Sequential([keras.Input((5,)), self.layer])
            self.model.compile(_rates(), mean_output, metrics=[self.visits])

    def fit(self, *callbacks: keras.callbacks.Callback, epochs: int) -> int:
        """Train; return the number of epochs that it took."""
        history = self.model.fit(
            self.inputs,
            self.labels,
            batch_size=BATCH,
            epochs=epochs,
            verbose=0,
            callbacks=list(callbacks),
        )
        return len(history.epoch)

    def worker_steps(self) -> tuple[int, ...]:
        return self.strategy.stats().worker_steps

    def updates(self) -> int:
        """Return the number of updates of the weights; servers and optimizers agree on it."""
        runtime, optimizer = self.strategy.runtime, self.model.optimizer
        cells, layout = runtime.ticket_server.cells(), runtime.ticket_server.layout
        updates = int(cells[layout.REDUCED])
        assert cells[layout.HOME] == updates
        counters = [each.iterations for each in (optimizer, *optimizer.optimizers)]
        assert {int(counter) for counter in counters} == {updates}
        if self.model.optimizer.built:
            assert {n for counter in counters for n in _read_on_all_servers(counter)} == {updates}
        return updates

    def read_copies(self, worker: int) -> tuple[int, list[np.ndarray]]:
        """Return the number of updates of a worker's copies, and the copies."""
        runtime, homes = self.strategy.runtime, self.homes

        def read(name: str, shape: Any, dtype: Any) -> tf.Tensor:
            handle = tf.raw_ops.VarHandleOp(
                container=runtime.container, shared_name=name, shape=shape, dtype=dtype
            )
            return tf.raw_ops.ReadVariableOp(resource=handle, dtype=dtype)

        def read_all() -> list[tf.Tensor]:
            own = [read(make_worker_local_name(v), tuple(v.shape), tf.float32) for v in homes]
            return [read(UPDATES_NAME, [], tf.int64), *own]

        updates, *copies = runtime.worker_channels[worker].make_function(read_all, arguments=0)()
        return int(updates), copies

    @property
    def homes(self) -> list[Any]:
        """The mirrored weights and their slots."""
        known = [v for leaf in self.model.optimizer.optimizers for v in leaf.variables]
        slots = [v for v in known if v.path.endswith(("_momentum", "_velocity"))]
        return [*self.model.trainable_variables, *slots]

    def assert_copies_are_home(self) -> None:
        """Check that all workers have the newest copies, with the same bits as the servers."""
        expected = [variable.numpy().tobytes() for variable in self.homes]
        assert len(expected) == 4
        for worker in range(self.strategy.runtime.workers):
            updates, copies = self.read_copies(worker)
            assert updates == self.updates()
            assert [each.tobytes() for each in copies] == expected


class SharesOfOneVisit(keras.callbacks.Callback):
    """Checks after each epoch that each example was visited once, and in one update."""

    def __init__(self, job: SummingJob) -> None:
        super().__init__()
        self.job = job
        self._sums, self._updates = job.layer.sums.numpy(), job.updates()
        self.wrong_epochs: dict[int, Any] = {}

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        sums, updates = self.job.layer.sums.numpy(), self.job.updates()
        shares = Counter((sums - self._sums).tolist())
        visits = Counter(self.job.visits.counts())
        # The shares of a round add up to one.
        rounds = sum(share * count for share, count in shares.items())
        is_exact = set(shares) <= SHARES and rounds == updates - self._updates
        if visits != {1: self.job.examples} or not is_exact:
            self.wrong_epochs[epoch] = (visits, shares, updates - self._updates)
        self._sums, self._updates = sums, updates
