"""Holds a worker's copies of Keras variables, one on each of its devices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tfps.bridge.variables.worker_variable import WorkerVariable
from tfps.runtime.program.examples import compute_weighted_mean

# Between the seeds of two streams; users' seeds are small or random, and rarely this far apart.
SEED_STRIDE = 0x9E3779B


class WorkerCopies:
    """The copies that steps of one closure read and write.

    Outside of the parts that devices compute separately, all copies of a variable are equal. After
    such parts they get one value by the variable's ``aggregation``, a setting of Keras, as under
    TensorFlow's `MirroredStrategy`.

    Args:
        variables: Keras variables.
        devices: the worker's devices; None for a worker with one device.
    """

    def __init__(self, variables: Sequence[Any], *, devices: Sequence[str | None]) -> None:
        self._by_device: list[dict[int, WorkerVariable]] = []
        for device in devices:
            with tf.device(device):
                self._by_device.append({id(v): WorkerVariable(v) for v in variables})

    def __len__(self) -> int:
        """Return the number of copies of a variable."""
        return len(self._by_device)

    def get_copy(self, device: int, keras_variable: Any) -> WorkerVariable:
        """Return the copy that a device reads and writes."""
        copy = self._by_device[device].get(id(keras_variable))
        if copy is None:
            raise RuntimeError(
                f"{keras_variable.path}: received a use of the variable in this trace of the "
                "step, but none in its first trace; use the same variables in each trace"
            )
        return copy

    def load(self, keras_variable: Any, value: tf.Tensor) -> None:
        """Load a value that came from a server; does not count as an assignment."""
        for copy in self._get_copies(keras_variable):
            copy.load(value)

    def load_seed(
        self, keras_variable: Any, state: tf.Tensor, *, stream: tf.Tensor | int = 0
    ) -> None:
        """Load the state of a seed generator, with a stream for each device so that masks differ.

        Args:
            keras_variable: the state, [seed, count of draws].
            state: the state in stream 0, for the first device: the numbers of one process.
            stream: the index of a stream; each device draws from its own part of it.
        """
        for device, copy in enumerate(self._get_copies(keras_variable)):
            number = tf.cast(stream, tf.int64) * len(self) + device
            own = tf.cast(state, tf.int64) + tf.stack([number * SEED_STRIDE, 0])
            copy.load(tf.cast(own, keras_variable._dtype))

    def assign(self, keras_variable: Any, value: Any) -> None:
        """Write all copies of a variable."""
        for copy in self._get_copies(keras_variable):
            copy.assign(value)

    def read(self, keras_variable: Any) -> tf.Tensor:
        """Return the value that all copies have."""
        return self.get_copy(0, keras_variable).read_value()

    def is_assigned(self, keras_variable: Any) -> bool:
        """Return whether a traced operation writes a variable."""
        return any(copy.is_assigned for copy in self._get_copies(keras_variable))

    def merge_into_all(
        self, variables: Iterable[Any], before: Mapping[int, tf.Tensor], shares: Sequence[tf.Tensor]
    ) -> None:
        """Give all copies of each variable the value of `merge_value`."""
        for variable in variables:
            self.load(variable, self.merge_value(variable, before, shares))

    def merge_value(
        self, keras_variable: Any, before: Mapping[int, tf.Tensor], shares: Sequence[tf.Tensor]
    ) -> tf.Tensor:
        """Merge the values of all copies of a variable into one.

        Args:
            keras_variable: the variable.
            before: the values of all copies at the begin, by id of the variable; needed for sums of
                changes.
            shares: the shares of the devices in the batch (see `runtime.program.examples`).
        """
        values = [copy.read_value() for copy in self._get_copies(keras_variable)]
        if len(values) == 1 or values[0].dtype.is_bool:
            return values[0]
        if keras_variable.aggregation == "sum":
            changes = [value - before[id(keras_variable)] for value in values]
            return before[id(keras_variable)] + sum(changes[1:], changes[0])
        if keras_variable.aggregation == "only_first_replica" or not values[0].dtype.is_floating:
            return values[0]
        return compute_weighted_mean(values, shares)

    def _get_copies(self, keras_variable: Any) -> list[WorkerVariable]:
        return [self.get_copy(device, keras_variable) for device in range(len(self))]
