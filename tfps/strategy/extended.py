"""The `extended` part of a strategy, which creates variables and places them on servers."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple, cast

import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.bridge.keras_patches import get_current_initializer, get_current_variable
from tfps.bridge.step_scope import StepScope, current_step
from tfps.bridge.variables.block_draw import BlockDraw, can_draw_blocks, take_seed
from tfps.bridge.variables.sharded_variable import ShardedVariable
from tfps.bridge.variables.shards import WHOLE_BYTES, split_by_rule
from tfps.errors import UnsupportedError
from tfps.partitioners import RowRule, Sharding, VariableSpec
from tfps.partitioners.row_rule import rows_per_shard
from tfps.runtime.coordinator.runtime import Runtime
from tfps.runtime.program.devices import DividedFunction
from tfps.strategy.partitioning import Partitioning

CLEARED = (
    "strategy.scope(): received a call of keras.backend.clear_session() inside of it, which makes "
    "TensorFlow forget the scope: variables that were made since are not on the servers. Expected "
    "that call before the scope; create the model again."
)


class _ShardPlacement(NamedTuple):
    """The division of a variable into shards, and the device of each shard."""

    rule: RowRule
    device_of: Callable[[int], str]  # of a shard; called in the shards' order


class CheckedScope:
    """A strategy's scope that raises, at its end, if the job has variables of other shapes.

    Likewise if `keras.backend.clear_session` has ended it early.

    Args:
        scope: TensorFlow's scope.
        strategy: the strategy.
        runtime: the job.
    """

    def __init__(self, scope: Any, *, strategy: tf.distribute.Strategy, runtime: Runtime) -> None:
        self._scope, self._strategy, self._runtime = scope, strategy, runtime

    def __enter__(self) -> Any:
        return self._scope.__enter__()

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        was_cleared = not tf.distribute.has_strategy()
        if was_cleared:
            private.restore_strategy(self._strategy)
        self._scope.__exit__(kind, error, trace)
        if was_cleared:
            raise UnsupportedError(CLEARED) from error
        if error is None:
            self._runtime.refuse_mismatches()


class Extended(private.ParameterServerStrategyExtended):
    """Extends TensorFlow's class: tfps names Keras variables and places them by its policy.

    A raw `tf.Variable` is made as in TensorFlow. The state of metrics lies on the chief: workers
    report their additions, and results are read without a request.
    """

    def set_up(
        self,
        runtime: Runtime,
        *,
        partitioning: Partitioning,
        register: Callable[[str, Any], None],
        worker_devices: tuple[str, ...],
    ) -> None:
        """Set the attributes of this class on an object that TensorFlow has made.

        Args:
            runtime: the job.
            partitioning: divides variables into shards.
            register: called with each variable's name and the variable.
            worker_devices: the devices of each worker, without job and task.
        """
        self._tfps_runtime, self._tfps_register = runtime, register
        self._tfps_partitioning, self._tfps_worker_devices = partitioning, worker_devices

    def _scope(self, strategy: tf.distribute.Strategy) -> Any:
        return CheckedScope(super()._scope(strategy), strategy=strategy, runtime=self._tfps_runtime)

    def _create_variable(self, next_creator: Any, **kwargs: Any) -> Any:
        self._tfps_runtime.refuse_if_closed()
        keras_variable = get_current_variable()
        if keras_variable is None or kwargs.get("per_worker_variable"):
            variable = super()._create_variable(next_creator, **kwargs)
            if isinstance(variable, tf.Variable) and keras_variable is None:
                self._tfps_register(variable.name, variable)
            return variable
        if kwargs.get("synchronization") == tf.VariableSynchronization.ON_READ:
            with private.placed_on(self._tfps_runtime.topology.chief):
                return next_creator(**kwargs)
        self._tfps_register(keras_variable.path, keras_variable)
        value = kwargs.get("initial_value")
        options = {
            "trainable": kwargs.get("trainable", True),
            "dtype": kwargs.get("dtype"),
            "name": kwargs.get("name"),
            "path": keras_variable.path,
            "synchronization": kwargs.get("synchronization"),
            "aggregation": kwargs.get("aggregation"),
            "distribute_strategy": self._container_strategy(),
        }
        spec = _variable_spec(keras_variable, value)
        place = self._choose_place(spec, kwargs)
        draw = _block_draw_for(spec)
        if draw is not None:
            return self._create_drawn_variable(draw, place, options)
        if place.rule.shards == 1:
            device = place.device_of(0)
            return self._tfps_runtime.create_variable(value, device=device, **options)
        whole = value() if callable(value) else value
        return self._tfps_runtime.create_sharded(
            split_by_rule(whole, place.rule), rule=place.rule, device_of=place.device_of, **options
        )

    def _create_variable_round_robin(self, next_creator: Any, **kwargs: Any) -> Any:
        """Create a raw `tf.Variable` where TensorFlow would place it."""
        servers = self._tfps_runtime.topology.servers
        with private.placed_on(servers[self._variable_count % len(servers)]):
            variable = next_creator(**kwargs)
        self._variable_count += 1
        return variable

    def _create_drawn_variable(
        self, draw: BlockDraw, place: _ShardPlacement, options: dict[str, Any]
    ) -> Any:
        """Create a variable whose value is drawn on its servers, in blocks."""
        begins = [functools.partial(draw.begin, rows) for rows in rows_per_shard(place.rule)]
        runtime = self._tfps_runtime
        if place.rule.shards == 1:
            variable = runtime.create_variable(begins[0], device=place.device_of(0), **options)
            natives = [variable]
        else:
            variable = runtime.create_sharded(
                begins, rule=place.rule, device_of=place.device_of, **options
            )
            natives = variable.variables
        for shard, native in enumerate(natives):
            if not native.existed:
                draw.fill(native, rule=place.rule, shard=shard)
        return variable

    def _choose_place(self, spec: VariableSpec, kwargs: dict[str, Any]) -> _ShardPlacement:
        """Return the place of a new variable: the place of its reference if it has one."""
        reference = kwargs.get("colocate_with")
        if reference is not None and reference.device in self._tfps_runtime.topology.servers:
            if isinstance(reference, ShardedVariable) and spec.shape == reference.shape:
                self._variable_count += reference.rule.shards
                return _ShardPlacement(
                    reference.rule, lambda shard: reference.variables[shard].device
                )
            self._variable_count += 1
            return _ShardPlacement(Sharding.whole(spec).rule, lambda _: reference.device)
        is_trained = kwargs.get("trainable", True)
        sharding = self._tfps_partitioning.sharding(spec, is_trained=is_trained)

        def choose_device(shard: int) -> str:
            path = spec.path if sharding.shards == 1 else f"{spec.path}/{shard}"
            device: str = self._tfps_runtime.choose_device(
                replace(spec, path=path, shape=sharding.shapes[shard]),
                variables_placed=self._variable_count,
            )
            self._variable_count += 1
            return device

        return _ShardPlacement(sharding.rule, choose_device)

    def _call_for_each_replica(self, fn: Any, args: Any, kwargs: Any) -> Any:
        step = current_step()
        if step is None:
            return super()._call_for_each_replica(fn, args, kwargs)
        # TensorFlow runs each replica in a thread of its own, which the step cannot trace.
        if self._num_replicas_in_sync == 1:
            with private.replica_context(self._container_strategy()):
                return fn(*args, **kwargs)
        # Within a part of a model's own step TensorFlow refuses `strategy.run`.
        divided = cast("DividedFunction", step)
        # A tf.function would be a graph of its own, within which devices cannot meet.
        plain = getattr(fn, "python_function", fn)

        def run_part(*args: Any, **kwargs: Any) -> Any:
            with StepScope(divided.barrier.get_replica()):
                return plain(*args, **kwargs)

        run = super()._call_for_each_replica
        return divided.run_parts(lambda: run(run_part, args, kwargs))

    @property
    def worker_devices(self) -> tuple[str, ...]:
        """The GPUs of every worker, else its CPU's logical devices, without job and task."""
        return self._tfps_worker_devices

    @property
    def _num_replicas_in_sync(self) -> int:
        return len(self._tfps_worker_devices)


def _block_draw_for(spec: VariableSpec) -> BlockDraw | None:
    """Return how the servers draw a variable that is too large for the chief, or None."""
    initializer = get_current_initializer()
    if spec.size_bytes <= WHOLE_BYTES or not can_draw_blocks(initializer):
        return None
    return BlockDraw(initializer, take_seed(initializer), spec.shape, spec.dtype)


def _variable_spec(keras_variable: Any, initial_value: Any) -> VariableSpec:
    # Keras sets the shape before it calls an initializer, but after it has taken a value.
    shape = getattr(keras_variable, "_shape", None)
    shape = tuple(initial_value.shape) if shape is None else tuple(shape)
    return VariableSpec(keras_variable.path, shape, keras_variable._dtype)
