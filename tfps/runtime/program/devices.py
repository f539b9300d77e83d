"""Runs a step on all devices of a worker, each with a part of the batch."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.bridge.step_scope import StepScope, StepTrace
from tfps.optimizers.sparse_updates import refuse_to_densify
from tfps.runtime.program.examples import (
    compute_weighted_mean,
    concat_examples,
    count_examples,
    split_batch,
    take_examples,
)


class DividedStep(StepTrace, Protocol):
    """The interface of a step that is traced on several devices.

    Each device has one copy of each variable.
    """

    def get_copy_on(self, device: int, keras_variable: Any) -> Any:
        """Return the copy of a variable that a device reads and writes."""

    def look_up_on(self, device: int, keras_variable: Any, ids: tf.Tensor) -> tf.Tensor | None:
        """Return rows of a table for a device; None if the worker has a copy of the table."""

    def keeps_row_gradients(self, keras_variable: Any) -> bool:
        """Return whether gradients of a variable may be sparse rows."""

    def apply_parts(
        self, optimizer: Any, parts: Sequence[Sequence[Any]], variables: Sequence[Any]
    ) -> None:
        """Apply an optimizer to the gradients of all devices, a sequence for each device."""


class DividedFunction(Protocol):
    """The interface of a user's function that calls `strategy.run`."""

    barrier: ReplicaBarrier

    def run_parts(self, run: Callable[[], Any]) -> Any:
        """Run the parts of all devices, and merge the values that they wrote to each variable."""


class ReplicaBarrier:
    """Lets the devices of a step wait for each other while one part of the step runs once."""

    def __init__(self, step: DividedStep, *, shares: Sequence[tf.Tensor]) -> None:
        self.step, self._shares = step, shares
        self._device_values: list[Any] = [None] * len(shares)

    def get_replica(self) -> Replica:
        """Return the view of the step for the device of this thread's trace."""
        context = tf.distribute.get_replica_context()
        return Replica(self, int(tf.get_static_value(context.replica_id_in_sync_group)))

    def run_once(self, device: int, value: Any, function: Callable[[list[Any]], Any]) -> Any:
        """Call a function once, with a list of the values that all devices pass to this method."""
        self._device_values[device] = value

        def together(_: Any) -> Any:
            with StepScope(self.step):
                return function(list(self._device_values))

        return tf.distribute.get_replica_context().merge_call(together)

    def concat_parts(self, parts: Sequence[Any]) -> Any:
        """Concatenate the rows of all parts of a batch; rows of empty parts are left out."""
        return concat_examples(
            [
                take_examples(part, 0, tf.where(share > 0, count_examples(part), 0))
                for part, share in zip(parts, self._shares, strict=True)
            ]
        )


class Replica:
    """The view that one of several devices has of a step (see `bridge.step_scope.StepTrace`)."""

    def __init__(self, barrier: ReplicaBarrier, device: int) -> None:
        self._step, self._barrier, self.device = barrier.step, barrier, device

    @property
    def position(self) -> Any:
        return self._step.position

    def get_copy(self, keras_variable: Any) -> Any:
        return self._step.get_copy_on(self.device, keras_variable)

    def assign(self, keras_variable: Any, value: Any) -> None:
        self.get_copy(keras_variable).assign(value)

    def apply(self, optimizer: Any, gradients: Any, variables: Any) -> None:
        variables = list(variables if variables is not None else optimizer._trainable_variables)
        pairs = [(g, v) for g, v in zip(gradients, variables, strict=True) if g is not None]

        def part(gradient: Any, variable: Any) -> Any:
            if self._step.keeps_row_gradients(variable):
                return gradient
            refuse_to_densify(optimizer, gradient, variable)
            return tf.convert_to_tensor(gradient)

        self._barrier.run_once(
            self.device,
            [part(*pair) for pair in pairs],
            lambda parts: self._step.apply_parts(optimizer, parts, [v for _, v in pairs]),
        )

    def draw_seed(self) -> tf.Tensor | None:
        return self._step.draw_seed()

    def look_up(self, keras_variable: Any, ids: tf.Tensor) -> tf.Tensor | None:
        return self._step.look_up_on(self.device, keras_variable, ids)

    def on_normalization(self, layer: Any, *, uses_whole_batch: bool) -> None:
        self._step.on_normalization(layer, uses_whole_batch=uses_whole_batch)

    def on_graph_complete(self, graph: Any) -> None:
        self._step.on_graph_complete(graph)

    def merge_replicas(self, function: Callable[..., Any], tensors: Sequence[tf.Tensor]) -> Any:
        return self._barrier.run_once(
            self.device,
            list(tensors),
            lambda parts: function(
                [self._barrier.concat_parts(each) for each in zip(*parts, strict=True)]
            ),
        )


class Devices:
    """The only device of a worker; TensorFlow chooses it.

    Args:
        names: the names of the devices, without job and task.
    """

    names: Sequence[str | None] = (None,)

    def __init__(self, names: Sequence[str] = ("/device:CPU:0",)) -> None:
        # Whether results lie in main memory, and not in the memory of GPUs.
        self.use_main_memory = all(
            tf.DeviceSpec.from_string(name).device_type == "CPU" for name in names
        )

    def run(self, step: Any, batch: Any) -> Any:
        """Trace a program's step on the devices, and return its outputs."""
        with private.default_replica_context(), StepScope(step):
            return step.program.step(batch)


class MultipleDevices(Devices):
    """Several devices, each for a part of a batch; the step pushes the sum of their gradients.

    Source: synchronous data parallelism as in `tf.distribute.MirroredStrategy`, within a worker.

    Args:
        strategy: the strategy of tfps; its replicas are these devices.
        names: the names of the devices, without job and task.
    """

    def __init__(self, strategy: tf.distribute.Strategy, names: Sequence[str]) -> None:
        super().__init__(names)
        self._strategy, self.names = weakref.ref(strategy), tuple(names)

    def run(self, step: Any, batch: Any) -> Any:
        parts, shares = split_batch(batch, len(self.names))
        step.shares = shares
        barrier = ReplicaBarrier(step, shares=shares)
        outputs: list[Any] = [None] * len(parts)

        def run_part() -> None:
            replica = barrier.get_replica()
            with StepScope(replica):
                outputs[replica.device] = step.program.step(parts[replica.device])

        private.run_replicas(self._strategy(), run_part)

        def combine(spec: Any, *each: Any) -> Any:
            if not isinstance(spec, tf.TensorSpec | tf.RaggedTensorSpec | tf.SparseTensorSpec):
                return each[0]
            is_dense = isinstance(spec, tf.TensorSpec)
            if spec.shape.rank and (spec.shape[0] is None or spec.shape[0] != each[0].shape[0]):
                whole = barrier.concat_parts(each)
                return tf.ensure_shape(whole, spec.shape) if is_dense else whole
            has_mean = is_dense and spec.dtype.is_floating and spec.shape.is_fully_defined()
            return compute_weighted_mean(each, shares) if has_mean else each[0]

        return tf.nest.map_structure(combine, step.program.outputs, *outputs)
