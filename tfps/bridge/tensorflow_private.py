"""The private names of TensorFlow that tfps uses: the only way to ``tensorflow.python``.

TensorFlow may change these names: `private_places` has the place of each, and all that is missing
is reported together.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from tfps.bridge.private_names import find_names
from tfps.errors import TfpsError

_names = find_names("tensorflow")
atomic_function: Any = _names["atomic_function"]
auto_control_deps: Any = _names["auto_control_deps"]
cluster_coordinator: Any = _names["cluster_coordinator"]
context: Any = _names["context"]
control_flow_util_v2: Any = _names["control_flow_util_v2"]
coordinator_context: Any = _names["coordinator_context"]
distribute_lib: Any = _names["distribute_lib"]
distribute_utils: Any = _names["distribute_utils"]
executor: Any = _names["executor"]
lift_to_graph: Any = _names["lift_to_graph"]
mirrored_run: Any = _names["mirrored_run"]
ops: Any = _names["ops"]
polymorphic_function: Any = _names["polymorphic_function"]
pywrap_tf_session: Any = _names["pywrap_tf_session"]
pywrap_tfe: Any = _names["pywrap_tfe"]
record: Any = _names["record"]
resource_variable_ops: Any = _names["resource_variable_ops"]
save_context: Any = _names["save_context"]
saveable_object_util: Any = _names["saveable_object_util"]
script_ops: Any = _names["script_ops"]
strategy_v2: Any = _names["strategy_v2"]

BaseResourceVariable = resource_variable_ops.BaseResourceVariable
Context = context.Context
current_context = context.context
RANDOM_OPS: Any = _names["gen_random_ops"]
SAMPLING_OPS: Any = _names["gen_candidate_sampling_ops"]
function_def_to_graph = _names["function_def_to_graph"].function_def_to_graph
RUNTIME_FUNCTION_REFS = atomic_function.RUNTIME_FUNCTION_REFS
ParameterServerStrategyExtended = strategy_v2.ParameterServerStrategyV2Extended
RemoteValue = cluster_coordinator.RemoteValue
RemoteValueImpl = cluster_coordinator.RemoteValueImpl
ClosureInputError = cluster_coordinator.ClosureInputError
CoordinatedClosureQueue = cluster_coordinator._CoordinatedClosureQueue
WorkerPreemptionHandler = cluster_coordinator.WorkerPreemptionHandler
Closure = cluster_coordinator.Closure
TrackableSaveable = saveable_object_util.TrackableSaveable
RPC_ERROR_FROM_SERVER = cluster_coordinator._RPC_ERROR_FROM_PS
is_worker_failure = cluster_coordinator._is_worker_failure
is_server_failure = cluster_coordinator._is_ps_failure
_incarnation = pywrap_tf_session.TF_DeviceListIncarnation

_thread = threading.local()
# For this name VarHandleOp makes a new, reference-counted resource each time that it runs.
ANONYMOUS_NAME = "cd2c89b7-88b7-44c8-ad83-06c2a9158347"


def create_variable_handle(
    *, shape: Any, dtype: Any, shared_name: str, container: str = ""
) -> tf.Tensor:
    """Return a handle of a (named) variable on the current device, with its shape and dtype."""
    handle = tf.raw_ops.VarHandleOp(
        dtype=dtype, shape=shape, shared_name=shared_name, container=container
    )
    if tf.executing_eagerly():
        data = resource_variable_ops.handle_data_util.create_handle_data(shape, dtype)
        resource_variable_ops._set_handle_shapes_and_types(handle, data, False)
    return handle


def create_anonymous_variable(*, shape: Any, dtype: Any) -> Any:
    """Return an uninitialized variable of the traced function; every run has its own."""
    with tf.control_dependencies(None):
        handle = create_variable_handle(shape=shape, dtype=dtype, shared_name=ANONYMOUS_NAME)
    return BaseResourceVariable(
        trainable=False,
        shape=shape,
        dtype=dtype,
        handle=handle,
        name="local",
        handle_name="local",
        unique_id=f"local_{id(handle)}",
        in_graph_mode=False,
    )


@ops.RegisterGradient("TfpsRead")
def _compute_read_gradient(operation: Any, gradient: Any, *_: Any) -> list[Any]:
    known = [tf.identity(tensor) for tensor in operation.inputs[2:]]  # rows of a table, its shape
    return [None, tf.IndexedSlices(gradient, *known) if known else gradient, *(None for _ in known)]


def read_differentiably(variable: Any, read: Any, *, rows: Any = None) -> tf.Tensor:
    """Read a value in such a way that gradient tapes record a read of a variable.

    Tapes find the gradient by the variable's handle, also outside of the tf.function that reads.

    Args:
        variable: the variable; tapes watch it if it is trainable.
        read: returns the value.
        rows: int64, the row numbers of the value; None if it has all rows.
    """
    resource_variable_ops.variable_accessed(variable)
    known = [] if rows is None else [rows, tf.constant(variable.shape.as_list(), tf.int64)]
    with record.stop_recording():
        value = read()
        if not tf.executing_eagerly():
            # For the gradient of a whole function, which sees only operations and their inputs.
            with ops.get_default_graph().gradient_override_map({"IdentityN": "TfpsRead"}):
                value = tf.raw_ops.IdentityN(input=[value, variable.handle, *known])[0]
    record.record_operation(
        "Read",
        [value],
        [variable.handle],
        backward_function=lambda g: [tf.IndexedSlices(g, *known) if known else g],
        forward_function=lambda tangent: [tangent],
    )
    return value


def is_tracing_saved_model() -> bool:
    """Return whether the current trace goes into a SavedModel, which has its own variables."""
    return bool(save_context.in_save_context()) and not tf.executing_eagerly()


@contextlib.contextmanager
def replica_context(strategy: tf.distribute.Strategy) -> Iterator[None]:
    """Trace as the only replica of a strategy, on this thread."""
    with distribute_lib.ReplicaContext(strategy, 0):
        yield


def restore_strategy(strategy: tf.distribute.Strategy) -> None:
    """Make a strategy the present one again, so that its scope can end as usual.

    TensorFlow keeps the strategies of scopes in its default graph, which
    `keras.backend.clear_session` replaces.
    """
    distribute_lib._push_per_thread_mode(distribute_lib._CrossReplicaThreadMode(strategy))


@contextlib.contextmanager
def default_replica_context() -> Iterator[None]:
    """Trace in replica context; scheduled functions otherwise trace in cross-replica context."""
    distribute_lib._push_per_thread_mode(distribute_lib._get_default_replica_mode())
    try:
        yield
    finally:
        distribute_lib._pop_per_thread_mode()


def run_replicas(strategy: tf.distribute.Strategy, function: Callable[[], None]) -> None:
    """Trace a function for each of a strategy's ``extended.worker_devices``, each in a thread."""
    mirrored_run._call_for_each_replica(strategy, function, (), {})


@contextlib.contextmanager
def placed_on(device: str) -> Iterator[None]:
    """Place operations on a device, ignoring the enclosing colocation and device scopes."""
    with ops.colocate_with(None, ignore_existing=True), ops.device(None), ops.device(device):
        yield


@contextlib.contextmanager
def ignore_cached_reads() -> Iterator[None]:
    """Ignore outer `cache_variable_reads` scopes, whose cached tensors belong to another trace.

    A scope opened inside works as usual, because variables use the same counters.
    """
    scope = distribute_utils.caching_scope_local
    around = scope.new_cache_scope_count - scope.cache_scope_exited_count
    scope.cache_scope_exited_count += around
    try:
        yield
    finally:
        scope.cache_scope_exited_count -= around


def use_own_executor() -> None:
    """Give this thread an eager executor of its own.

    When TensorFlow switches to a worker's executor, it waits for all operations of the current one.
    On the shared executor these may be another thread's operations on a task that hangs.
    """
    if not hasattr(_thread, "executor"):
        _thread.executor = executor.new_executor(enable_async=False)
        context.context().executor = _thread.executor


def current_graph() -> Any:
    """Return the graph that is being traced."""
    return ops.get_default_graph()


def keep_with_graph(value: Any, name: str = "tfps_kept") -> None:
    """Keep an object, under a name, as long as the function that is being traced."""
    ops.get_default_graph().add_to_collection(name, value)


def get_kept_with_graph(graph: Any, name: str = "tfps_kept") -> list[Any]:
    """Return the objects that `keep_with_graph` attached to a function's graph under a name."""
    return list(graph.get_collection(name))


def run_independently(operation: Any) -> None:
    """Exclude an operation from automatic control dependencies, so that only its inputs order it.

    Calls to different servers would otherwise run one after the other.
    """
    manager = getattr(ops.get_default_graph(), "experimental_acd_manager", None)
    if manager is not None:
        manager.run_independently(operation)


def add_control_input(operation: Any, first: Any) -> None:
    """Let an operation of the traced graph start only after another one."""
    operation._add_control_input(first)


def keep_control_flow_functional(graph: Any) -> None:
    """Keep the control flow of a traced function as function calls.

    By default TensorFlow inlines a loop's body into the graph around it. A part that XLA compiles
    would then be in several frames at once, which is an error.
    """
    for operation in graph.get_operations():
        if operation.type.removeprefix("Stateless") in ("While", "If", "Case"):
            control_flow_util_v2.maybe_set_lowering_attr(operation, lower_using_switch_merge=False)


def get_worker_index() -> int:
    """Return the index of the worker that this thread of the coordinator serves, or -1."""
    return int(getattr(coordinator_context.get_current_dispatch_context(), "worker_index", -1))


def schedule_callable(coordinator: Any, function: Callable[[], Any]) -> Any:
    """Schedule a Python callable, which runs on a worker's thread in the coordinator.

    `ClusterCoordinator.schedule` accepts only tf.functions, which cannot find out which worker they
    run on, nor react when it dies.
    """
    return coordinator._cluster.schedule(function, args=None, kwargs=None)


def make_cancelable(coordinator: Any, concrete_function: Any) -> Callable[..., Any]:
    """Return a concrete function that is cancelled together with the coordinator's closures."""
    return get_closure_queue(coordinator)._cancellation_mgr.get_cancelable_function(
        concrete_function
    )


def mark_session_closed(session: Any) -> None:
    """Mark a session as closed without a call to its target, which would never reply."""
    session._closed = True


def replace_message(error: Any, message: str) -> None:
    """Replace the message of a TensorFlow error."""
    error._message = message


def set_worker_scopes(coordinator: Any, scopes: Sequence[str]) -> None:
    """Set the device scope in which each worker's closures run; called before the first closure."""
    for worker, scope in zip(coordinator._cluster.workers, scopes, strict=True):
        worker.device_name = scope


def create_on_workers(coordinator: Any, functions: Sequence[Callable[[], Any]]) -> list[Any]:
    """Run one function on each worker, and again on each worker that returns after a loss."""
    pairs = zip(coordinator._cluster.workers, functions, strict=True)
    return [worker.create_resource(function) for worker, function in pairs]


def wait_for_result(remote_value: Any) -> Any:
    """Wait for a result of `create_on_workers` and return it.

    Raises:
        TfpsError: the closure has failed with it.
        ClosureInputError: the closure has failed otherwise; it holds the closure's error.
    """
    error = remote_value._get_error()
    if error is not None:
        is_final = isinstance(error, (ClosureInputError, TfpsError))
        raise error if is_final else ClosureInputError(error)
    return coordinator_context.maybe_get_remote_value(remote_value)


def get_alive_workers(coordinator: Any) -> list[bool]:
    """Return, for each worker, whether the coordinator regards it as alive."""
    return [not worker._is_dead_with_error for worker in coordinator._cluster.workers]


@contextlib.contextmanager
def use_coordinator_classes(*, queue: type, failure_handler: type) -> Iterator[None]:
    """Make coordinators that are created in the context use these classes from their start."""
    cluster_coordinator._CoordinatedClosureQueue = queue
    cluster_coordinator.WorkerPreemptionHandler = failure_handler
    try:
        yield
    finally:
        cluster_coordinator._CoordinatedClosureQueue = CoordinatedClosureQueue
        cluster_coordinator.WorkerPreemptionHandler = WorkerPreemptionHandler


def get_closure_queue(coordinator: Any) -> Any:
    """Return the queue of a coordinator."""
    return coordinator._cluster.closure_queue


def get_failure_handler(coordinator: Any) -> Any:
    """Return the handler that reconnects lost workers of a coordinator."""
    return coordinator._cluster.failure_handler


def read_incarnations() -> tuple[int, dict[str, int]]:
    """Return the id of this process's connection, and the incarnation of each device's task.

    A restarted task has another number; so has a connection to another cluster.
    """
    handle = context.context()._context_handle
    devices = pywrap_tfe.TFE_ContextListDevices(handle)
    try:
        incarnations = {
            pywrap_tfe.TF_DeviceListName(devices, k): _incarnation(devices, k)
            for k in range(pywrap_tfe.TF_DeviceListCount(devices))
        }
    finally:
        pywrap_tfe.TF_DeleteDeviceList(devices)
    return pywrap_tfe.TFE_GetContextId(handle), incarnations


def patch_nested_functions(current_trace: Callable[[], Any]) -> None:
    """Patch tf.functions so that those called in a traced step are traced for that step only.

    TensorFlow uses one trace of a nested function in all graphs. In a step the trace refers to the
    worker's copies of variables, which belong to one graph.

    Args:
        current_trace: returns the object of the current trace, or None.
    """
    if getattr(polymorphic_function.Function, "_tfps_patched", False):
        return
    original = polymorphic_function.Function.__call__

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        trace = current_trace()
        if trace is None:
            return original(self, *args, **kwargs)
        clones = trace.__dict__.setdefault("_nested_functions", {})
        if id(self) not in clones:
            clones[id(self)] = (self, self._clone(None))
        return original(clones[id(self)][1], *args, **kwargs)

    polymorphic_function.Function.__call__ = call
    polymorphic_function.Function._tfps_patched = True


def patch_graph_completion(current_trace: Callable[[], Any]) -> None:
    """Notify a step that is being traced when a function, a branch or a loop inside is complete.

    Args:
        current_trace: returns the object of the current trace, or None; its ``on_graph_complete``
            is called with the graph, which is still the current one.
    """
    manager = auto_control_deps.AutomaticControlDependencies
    if getattr(manager, "_tfps_patched", False):
        return
    original = manager.__exit__

    def leave(self: Any, *exception: Any) -> Any:
        trace = current_trace()
        if trace is not None and exception[0] is None:
            trace.on_graph_complete(self._graph)
        return original(self, *exception)

    manager.__exit__ = leave
    manager._tfps_patched = True


def reports_completion(graph: Any) -> bool:
    """Return whether a graph's completion is reported, unlike that of AutoGraph's trial loops."""
    return getattr(graph, "experimental_acd_manager", None) is not None
