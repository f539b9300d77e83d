"""Where variables go: the part of a TensorFlow strategy that creates them."""

from __future__ import annotations

import logging
import math
from typing import Any, cast

import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.bridge.keras_patches import variable_under_construction
from tfps.bridge.step_scope import StepScope, current_step
from tfps.placement.policy import Newcomer
from tfps.placement.slab import ITEM_BYTES
from tfps.runtime.devices import DividedFunction, device_of_thread
from tfps.training.feeder import CHIEF_DEVICE

logger = logging.getLogger(__name__)


class Extended(private.ParameterServerStrategyExtended):
    """TensorFlow's own, except for Keras variables: those are named and placed by our policy.

    A raw `tf.Variable` stays what TensorFlow makes of it. The state of metrics lies on the chief:
    workers report what they add to it, and results are read without a request.
    """

    _tfps_runtime: Any = None
    _tfps_register: Any = None
    _tfps_worker_devices: tuple[str, ...] = ()
    _tfps_said_whole = False

    def _create_variable(self, next_creator: Any, **kwargs: Any) -> Any:
        keras_variable = variable_under_construction()
        if keras_variable is None or kwargs.get("per_worker_variable"):
            variable = super()._create_variable(next_creator, **kwargs)
            if isinstance(variable, tf.Variable) and keras_variable is None:
                self._tfps_register(variable.name, variable)
            return variable
        if kwargs.get("synchronization") == tf.VariableSynchronization.ON_READ:
            with private.placed_on(CHIEF_DEVICE):
                return next_creator(**kwargs)
        reference = kwargs.get("colocate_with")
        if reference is not None and "/job:ps" in reference.device:
            device = reference.device
        else:
            self._say_whole(kwargs)
            device = self._tfps_runtime.choose_device(
                _newcomer(keras_variable, kwargs.get("initial_value")),
                variables_placed=self._variable_count,
            )
        self._variable_count += 1
        self._tfps_register(keras_variable.path, keras_variable)
        return self._tfps_runtime.create_variable(
            kwargs.get("initial_value"),
            device=device,
            trainable=kwargs.get("trainable", True),
            dtype=kwargs.get("dtype"),
            name=kwargs.get("name"),
            path=keras_variable.path,
            synchronization=kwargs.get("synchronization"),
            aggregation=kwargs.get("aggregation"),
            distribute_strategy=self._container_strategy(),
        )

    def _call_for_each_replica(self, fn: Any, args: Any, kwargs: Any) -> Any:
        step = current_step()
        if step is None:
            return super()._call_for_each_replica(fn, args, kwargs)
        # TensorFlow runs each replica in a thread of its own, out of the step's sight.
        if self._num_replicas_in_sync == 1:
            with private.replica_context(self._container_strategy()):
                return fn(*args, **kwargs)
        # Within a part of a model's own step TensorFlow refuses `strategy.run`.
        divided = cast("DividedFunction", step)
        # A tf.function would be a graph of its own, inside of which devices cannot meet.
        plain = getattr(fn, "python_function", fn)

        def run_part(*args: Any, **kwargs: Any) -> Any:
            with StepScope(divided.replica(device_of_thread())):
                return plain(*args, **kwargs)

        run = super()._call_for_each_replica
        return divided.divide(lambda: run(run_part, args, kwargs))

    @property
    def worker_devices(self) -> tuple[str, ...]:
        """Of every worker: its GPUs, else the logical devices of its CPU, without job and task."""
        return self._tfps_worker_devices

    @property
    def _num_replicas_in_sync(self) -> int:
        return len(self._tfps_worker_devices)

    def _say_whole(self, kwargs: dict[str, Any]) -> None:
        if self._variable_partitioner is not None and not self._tfps_said_whole:
            self._tfps_said_whole = True
            logger.warning(
                "variable_partitioner does not split Keras variables yet: %s and the others are "
                "placed whole, by the placement policy. Raw tf.Variables are split as TensorFlow "
                "does.",
                kwargs.get("name"),
            )


def _newcomer(keras_variable: Any, initial_value: Any) -> Newcomer:
    # Keras notes the shape before it calls an initializer, and after it has taken a value.
    shape = getattr(keras_variable, "_shape", None)
    shape = tuple(initial_value.shape) if shape is None else shape
    item_bytes = ITEM_BYTES.get(keras_variable._dtype, 1)
    return Newcomer(keras_variable.path, math.prod(shape) * item_bytes)
