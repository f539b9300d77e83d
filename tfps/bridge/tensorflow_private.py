"""The only file that imports ``tensorflow.python``.

TensorFlow promises nothing about these names, so they are collected here under one version guard;
`tests/unit/bridge/test_tensorflow_private.py` checks that each of them still exists.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python import pywrap_tfe
from tensorflow.python.client import pywrap_tf_session
from tensorflow.python.distribute import distribute_lib, distribute_utils, mirrored_run
from tensorflow.python.distribute import parameter_server_strategy_v2 as strategy_v2
from tensorflow.python.distribute.coordinator import cluster_coordinator, coordinator_context
from tensorflow.python.eager import context, executor, record
from tensorflow.python.eager.polymorphic_function import atomic_function, polymorphic_function
from tensorflow.python.framework import auto_control_deps, ops
from tensorflow.python.ops import (
    control_flow_util_v2,
    gen_candidate_sampling_ops,
    gen_random_ops,
    resource_variable_ops,
    script_ops,
)
from tensorflow.python.saved_model import save_context
from tensorflow.python.training.saving import saveable_object_util

from tfps.bridge.thread_state import keeping_thread_state

SUPPORTED_TENSORFLOW = "2.21"

if not tf.__version__.startswith(SUPPORTED_TENSORFLOW + "."):
    raise ImportError(
        f"tfps uses private names of TensorFlow {SUPPORTED_TENSORFLOW} and was imported with "
        f"TensorFlow {tf.__version__}; pip install 'tensorflow=={SUPPORTED_TENSORFLOW}.*'"
    )

BaseResourceVariable = resource_variable_ops.BaseResourceVariable
Context = context.Context
current_context = context.context
RANDOM_OPS, SAMPLING_OPS = gen_random_ops, gen_candidate_sampling_ops
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
# VarHandleOp makes a fresh, reference-counted resource for this name each time that it runs.
ANONYMOUS_NAME = "cd2c89b7-88b7-44c8-ad83-06c2a9158347"


def variable_handle(*, shape: Any, dtype: Any, shared_name: str, container: str = "") -> tf.Tensor:
    """A handle of a (named) variable on the current device, carrying its shape and dtype."""
    handle = tf.raw_ops.VarHandleOp(
        dtype=dtype, shape=shape, shared_name=shared_name, container=container
    )
    if tf.executing_eagerly():
        data = resource_variable_ops.handle_data_util.create_handle_data(shape, dtype)
        resource_variable_ops._set_handle_shapes_and_types(handle, data, False)
    return handle


def anonymous_variable(*, shape: Any, dtype: Any) -> Any:
    """An uninitialised variable of the function that is traced; every run has its own."""
    with tf.control_dependencies(None):
        handle = variable_handle(shape=shape, dtype=dtype, shared_name=ANONYMOUS_NAME)
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
def _gradient_of_read(operation: Any, gradient: Any, *_: Any) -> list[Any]:
    known = [tf.identity(tensor) for tensor in operation.inputs[2:]]  # rows of a table, its shape
    return [None, tf.IndexedSlices(gradient, *known) if known else gradient, *(None for _ in known)]


def differentiable_read(variable: Any, read: Any, *, rows: Any = None) -> tf.Tensor:
    """Read what a resource holds as if it were a variable of its own.

    Tapes find the gradient under the variable's handle, also across the border of a tf.function.

    Args:
        variable: watched from now on where it is trainable; its handle stands for it.
        read: reads the value.
        rows: int64, the numbers of those that the value has; None where it has all.
    """
    resource_variable_ops.variable_accessed(variable)
    known = [] if rows is None else [rows, tf.constant(variable.shape.as_list(), tf.int64)]
    with record.stop_recording():
        value = read()
        if not tf.executing_eagerly():
            # For a gradient of the whole function, which knows operations and their inputs only.
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


def tracing_for_a_saved_model() -> bool:
    """Whether what is traced goes into a SavedModel, with variables that are made there."""
    return bool(save_context.in_save_context()) and not tf.executing_eagerly()


@contextlib.contextmanager
def replica_context(strategy: tf.distribute.Strategy) -> Iterator[None]:
    """Trace as the only replica of a strategy, on this thread."""
    with distribute_lib.ReplicaContext(strategy, 0):
        yield


@contextlib.contextmanager
def default_replica_context() -> Iterator[None]:
    """Trace as one replica; a scheduled function is otherwise traced in cross-replica context."""
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
    """Place operations on a device, whatever colocation or device scope is around."""
    with ops.colocate_with(None, ignore_existing=True), ops.device(None), ops.device(device):
        yield


@contextlib.contextmanager
def outside_of_cached_reads() -> Iterator[None]:
    """Trace as if `cache_variable_reads` were not around: what it keeps belongs to another trace.

    A scope inside counts as ever, because variables count along.
    """
    scope = distribute_utils.caching_scope_local
    around = scope.new_cache_scope_count - scope.cache_scope_exited_count
    scope.cache_scope_exited_count += around
    try:
        yield
    finally:
        scope.cache_scope_exited_count -= around


def work_apart() -> None:
    """Give this thread an executor of its own.

    TensorFlow waits for all that was begun on the one it exchanges for a worker's; on the one that
    threads share that may be what another thread has asked of a task that hangs.
    """
    if not hasattr(_thread, "executor"):
        _thread.executor = executor.new_executor(enable_async=False)
        context.context().executor = _thread.executor


def current_graph() -> Any:
    """The graph that is being traced."""
    return ops.get_default_graph()


def captures_from(devices: Collection[str]) -> bool:
    """Whether what is traced has so far taken hold of something on one of these devices."""
    return any(tensor.device in devices for tensor, _ in ops.get_default_graph().captures)


def keep_with_graph(thing: Any) -> None:
    """Keep an object alive as long as the function that is being traced."""
    ops.get_default_graph().add_to_collection("tfps_kept", thing)


def kept_with_graph(graph: Any) -> list[Any]:
    """What `keep_with_graph` was called with while a function was traced."""
    return list(graph.get_collection("tfps_kept"))


def run_independently(operation: Any) -> None:
    """Take an operation out of automatic control dependencies: only data order it.

    Calls to different servers would otherwise run one after the other.
    """
    manager = getattr(ops.get_default_graph(), "experimental_acd_manager", None)
    if manager is not None:
        manager.run_independently(operation)


def run_after(operation: Any, first: Any) -> None:
    """Let an operation of the graph that is traced start only when another one is done."""
    operation._add_control_input(first)


def keep_functional(graph: Any) -> None:
    """Run the control flow of a function that is traced as calls of functions.

    TensorFlow spreads a loop's body out in the graph around it, where a part that XLA compiles
    would then stand in several frames at once, which is refused.
    """
    for operation in graph.get_operations():
        if operation.type in ("While", "If", "Case"):
            control_flow_util_v2.maybe_set_lowering_attr(operation, lower_using_switch_merge=False)


def worker_index() -> int:
    """The index of the worker on whose behalf this thread of the coordinator runs, or -1."""
    return int(getattr(coordinator_context.get_current_dispatch_context(), "worker_index", -1))


def schedule_callable(coordinator: Any, function: Callable[[], Any]) -> Any:
    """Schedule a plain Python callable; it runs in the chosen worker's thread of the coordinator.

    `ClusterCoordinator.schedule` takes tf.functions only, and those cannot know which worker they
    run on nor act when it dies.
    """
    return coordinator._cluster.schedule(function, args=None, kwargs=None)


def cancelable(coordinator: Any, concrete_function: Any) -> Callable[..., Any]:
    """A concrete function that is cancelled with the coordinator's other closures."""
    return closure_queue(coordinator)._cancellation_mgr.get_cancelable_function(concrete_function)


def leave_open(session: Any) -> None:
    """Let a session go without a last call to its target, which is gone and would be waited for."""
    session._closed = True


def replace_message(error: Any, message: str) -> None:
    """Let an error of TensorFlow say something else."""
    error._message = message


def place_workers(coordinator: Any, scopes: Sequence[str]) -> None:
    """Let the closures of each worker run in a device scope; called before there are any."""
    for worker, scope in zip(coordinator._cluster.workers, scopes, strict=True):
        worker.device_name = scope


def create_on_workers(coordinator: Any, functions: Sequence[Callable[[], Any]]) -> list[Any]:
    """Run one function per worker there, and again on a worker that came back."""
    pairs = zip(coordinator._cluster.workers, functions, strict=True)
    return [worker.create_resource(function) for worker, function in pairs]


def remote_result(remote_value: Any) -> Any:
    """What `create_on_workers` made, waiting for it; raises what TensorFlow's closures raise."""
    error = remote_value._get_error()
    if error is not None:
        raise error if isinstance(error, ClosureInputError) else ClosureInputError(error)
    return coordinator_context.maybe_get_remote_value(remote_value)


def alive_workers(coordinator: Any) -> list[bool]:
    """For each worker whether the coordinator regards it as alive (not waiting for its return)."""
    return [not worker._is_dead_with_error for worker in coordinator._cluster.workers]


@contextlib.contextmanager
def coordinators_with(*, queue: type, failure_handler: type) -> Iterator[None]:
    """Coordinators made inside have these classes: their threads begin in them right away."""
    cluster_coordinator._CoordinatedClosureQueue = queue
    cluster_coordinator.WorkerPreemptionHandler = failure_handler
    try:
        yield
    finally:
        cluster_coordinator._CoordinatedClosureQueue = CoordinatedClosureQueue
        cluster_coordinator.WorkerPreemptionHandler = WorkerPreemptionHandler


def closure_queue(coordinator: Any) -> Any:
    """The queue of a coordinator."""
    return coordinator._cluster.closure_queue


def failure_handler(coordinator: Any) -> Any:
    """What takes in the workers of a coordinator again."""
    return coordinator._cluster.failure_handler


def incarnations() -> tuple[int, dict[str, int]]:
    """A number of this process's connection to its cluster, and one of each device's task.

    A task that was started anew has another number; so has the connection to another cluster.
    """
    handle = context.context()._context_handle
    devices = pywrap_tfe.TFE_ContextListDevices(handle)
    try:
        found = {
            pywrap_tfe.TF_DeviceListName(devices, k): _incarnation(devices, k)
            for k in range(pywrap_tfe.TF_DeviceListCount(devices))
        }
    finally:
        pywrap_tfe.TF_DeleteDeviceList(devices)
    return pywrap_tfe.TFE_GetContextId(handle), found


def give_traces_their_own_functions(current_trace: Callable[[], Any]) -> None:
    """While a step is traced, the tf.functions inside it are traced for that step alone.

    TensorFlow keeps one trace of a nested function for all graphs; ours refers to the worker's
    copies of variables, which belong to one graph.

    Args:
        current_trace: answers the object of the trace under way, or None.
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


def tell_traces_of_ends(current_trace: Callable[[], Any]) -> None:
    """While a step is traced, tell it when the graph of a function, a branch or a loop is complete.

    Args:
        current_trace: answers the object of the trace under way, or None; its ``graph_ends`` is
            called with the graph, which is still the current one.
    """
    manager = auto_control_deps.AutomaticControlDependencies
    if getattr(manager, "_tfps_patched", False):
        return
    original = manager.__exit__

    def leave(self: Any, *exception: Any) -> Any:
        trace = current_trace()
        if trace is not None and exception[0] is None:
            trace.graph_ends(self._graph)
        return original(self, *exception)

    manager.__exit__ = leave
    manager._tfps_patched = True


def tells_of_its_end(graph: Any) -> bool:
    """Whether `tell_traces_of_ends` holds for a graph; AutoGraph's trial of a loop just stops."""
    return getattr(graph, "experimental_acd_manager", None) is not None


_registered_functions: dict[str, Callable[..., Any]] = {}
_registration_lock = threading.Lock()


def register_named_function(name: str, function: Callable[..., Any]) -> None:
    """Let PyFunc operations with this token, sent by any process, call a function of this one."""
    function = keeping_thread_state(function)
    with _registration_lock:
        _registered_functions[name] = function  # PyFunc's registry holds weak references only
        script_ops._py_funcs._funcs[name] = function


def release_arrays() -> None:
    """Let go of the arrays that were tensors' memory, where the tensors are gone.

    A tensor ends on a thread without the interpreter's lock, so TensorFlow gives the array back
    later: when a PyFunc ends, which is too late for one that needs the memory, or an eager tensor.
    """
    tensor = tf.constant(0)
    del tensor
