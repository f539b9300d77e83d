"""`tfps.ClusterCoordinator`, TensorFlow's coordinator with packed transport of variables."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.bridge.closures.closure_error import (
    ClosureObserver,
    is_lost_server_error,
    is_task_failure,
    watch_closures,
)
from tfps.bridge.closures.closure_membership import ClosureMembership
from tfps.bridge.closures.closure_queue import ClosureQueue
from tfps.bridge.closures.connection import early_device_error, names_early_device
from tfps.bridge.closures.failure_handler import FailureHandler
from tfps.bridge.closures.run_plan import RunLimits
from tfps.bridge.closures.step_closure import StepClosure, StepKind
from tfps.bridge.closures.worker_return import call_on_worker_return, drain_while_workers_return
from tfps.bridge.keras_patches import filter_traceback_lines
from tfps.bridge.step_scope import raise_recorded_errors, record_tfps_errors
from tfps.consistency.modes import Asynchronous, lets_workers_wait
from tfps.runtime.compile.packed_function import PackedStrategy, trace_packed
from tfps.runtime.compile.step_runs import trace_in_background
from tfps.runtime.coordinator.runtime import Runtime
from tfps.runtime.coordinator.worker_error import read_servers_error, shorten_message
from tfps.terminal import announce
from tfps.training.fit_strategy import FitStrategy
from tfps.training.input.dataset_function import refuse_outside_dataset


class ClusterCoordinator(tf.distribute.coordinator.ClusterCoordinator):
    """Schedules functions on workers; use it instead of TensorFlow's class of the same name.

    Functions need no change. Under a `tfps.ParameterServerStrategy` a function gets its Keras
    variables in one message per parameter server, and each optimizer call is one message back,
    which the servers apply under a lock. Raw `tf.Variable`s take TensorFlow's own path.

    Under `tfps.Synchronous` each optimizer call is a round, and under `tfps.BoundedStaleness` it is
    a step of the worker's clock. A worker takes part only while it has functions to run, so that no
    other one waits for an idle worker. Under `tfps.LocalSteps` calls change the worker's copies,
    and it sends a message after each period of calls, and after each function. With
    ``warm_up_steps`` a function that calls an optimizer is refused: only `fit` has a warm-up.

    Tasks are probed from the first `schedule` on. The function of a worker that hangs is run again
    by another one, as if the worker had died; each of its optimizer calls still counts only once on
    every server. A parameter server that hangs makes `schedule`, `join` and `done` raise
    `tf.errors.UnavailableError`.

    A strategy has one coordinator: making another one returns the same object, as in TensorFlow.
    TensorFlow's class returns this one too for a `tfps.ParameterServerStrategy`.

    Args:
        strategy: a `tfps.ParameterServerStrategy` or TensorFlow's own.

    Source: `tf.distribute.coordinator.ClusterCoordinator`, whose subclass it is.

    Example:

    >>> import keras, tfps.testing
    >>> with tfps.testing.InProcessCluster(workers=2, ps=1) as cluster:
    ...     strategy = tfps.ParameterServerStrategy(cluster.cluster_resolver)
    ...     with strategy.scope():
    ...         weight = keras.Variable([1.0, 2.0], name="weight")
    ...     coordinator = tfps.ClusterCoordinator(strategy)
    ...     total = coordinator.schedule(tf.function(lambda: keras.ops.sum(weight)))
    ...     coordinator.join()
    ...     float(total.fetch())
    3.0
    """

    def __init__(self, strategy: tf.distribute.Strategy) -> None:
        """Make the coordinator of a strategy; the class's documentation describes the argument."""
        with private.use_coordinator_classes(queue=ClosureQueue, failure_handler=FailureHandler):
            super().__init__(strategy)
        is_ours = getattr(strategy, "_is_tfps_strategy", False)
        if is_ours:
            private.set_worker_scopes(self, strategy.runtime.topology.worker_scopes)
            self._watch_workers(strategy)
        observer = ClosureObserver(
            functools.partial(_to_user_error, getattr(strategy, "runtime", None))
        )
        if is_ours:
            observer = observer._replace(prepare=strategy.runtime.function_tables.prepare)
        watch_closures(self, observer)

    def _watch_workers(self, strategy: FitStrategy) -> None:
        """Notify the parts of the strategy that need to know when workers leave and return."""
        queue, runtime = private.get_closure_queue(self), strategy.runtime
        membership: ClosureMembership = ClosureMembership()
        if lets_workers_wait(strategy.consistency):
            membership = runtime.membership
            drain_while_workers_return(self, runtime.membership.drain)
        queue.set_membership(membership)
        queue.workers = runtime.workers
        if isinstance(strategy.consistency, Asynchronous):
            queue.run_limits = RunLimits()
        strategy_ref = weakref.ref(strategy)

        def on_worker_return(worker: int) -> None:
            queue.on_worker_return(worker)
            if (strategy := strategy_ref()) is not None:
                strategy.runtime.data_plane.send_new_addresses(worker)

        call_on_worker_return(self, on_worker_return)
        if strategy.run_state.recovery is not None:
            strategy.run_state.recovery.watch_closures(self)
        private.get_failure_handler(self).health = strategy.run_state.guard

    def schedule(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
    ) -> tf.distribute.experimental.coordinator.RemoteValue:
        """Put a `tf.function` into the queue of functions, from which a free worker runs it.

        It returns immediately. Use `join` to wait until all functions have run.

        Args:
            fn: a `tf.function`; a concrete function runs as it was traced.
            args: positional arguments of the function. Where an argument is a value per worker,
                such as the iterator of a `create_per_worker_dataset`, the function gets the value
                of the worker that runs it.
            kwargs: keyword arguments of the function, likewise.

        Returns:
            A `tf.distribute.experimental.coordinator.RemoteValue`; its method ``fetch`` waits for
            the function and returns its result.

        Raises:
            Exception: another scheduled function has raised it. All functions that are scheduled or
                running are cancelled then. An iterator that was fetching a batch at that moment has
                ended for good, as is usual in tf.data: make new iterators.
        """
        if not getattr(self.strategy, "_is_tfps_strategy", False):
            return super().schedule(fn, args=args, kwargs=kwargs)
        self.strategy.run_state.watch_tasks(self)
        self.strategy.runtime.followed.refresh()
        if not isinstance(fn, tf.types.experimental.PolymorphicFunction):
            result = super().schedule(fn, args=args, kwargs=kwargs)
            self.strategy.runtime.fallback_steps += 1
            return result
        packed = self._get_packed_function(
            fn
        )  # `fn` may be referred to by nothing else, and is traced below
        queue: ClosureQueue = private.get_closure_queue(self)
        manager, runtime = queue.cancellation_manager, self.strategy.runtime
        closure = packed.make_closure(args, kwargs, strategy=self.strategy, manager=manager)
        result = closure.build_output_remote_value()
        queue.put(closure)
        if queue.is_run_due(closure):
            trace_in_background(closure, runtime=runtime, limits=queue.run_limits)
        runtime.fallback_steps += packed.is_fallback
        name = getattr(fn, "__name__", "a scheduled function")
        runtime.traces[name] = packed.function.experimental_get_tracing_count()
        return result

    def create_per_worker_dataset(
        self, dataset_fn: Callable[..., tf.data.Dataset] | tf.data.Dataset
    ) -> tf.distribute.experimental.coordinator.PerWorkerValues:
        """Make a dataset on every worker, for functions that take its iterator as an argument.

        Args:
            dataset_fn: a function that returns a `tf.data.Dataset`, called on each worker; or a
                dataset, which is copied to each worker.

        Returns:
            The datasets of all workers as one value; pass ``iter(value)`` to `schedule`.

        Raises:
            StrategyClosed: the strategy is closed.
            UnsupportedError: the function returns a dataset that was made outside of it.
        """
        if getattr(self.strategy, "_is_tfps_strategy", False):
            self.strategy.runtime.refuse_if_closed()
        if not callable(dataset_fn) or hasattr(dataset_fn, "structured_outputs"):
            return super().create_per_worker_dataset(dataset_fn)

        @functools.wraps(dataset_fn, updated=())
        def make(*defaults: Any) -> tf.data.Dataset:  # tf.function passes them
            dataset = dataset_fn(*defaults)
            if isinstance(dataset, tf.data.Dataset):
                with record_tfps_errors():
                    refuse_outside_dataset(dataset)
            return dataset

        with raise_recorded_errors():
            return super().create_per_worker_dataset(make)

    def _get_packed_function(self, function: Any) -> _PackedFunction:
        """Return the packed form of a function, made again only if variables have moved."""
        # The function keeps it: its traces refer to the function, and to the model that it trains.
        packed_functions = function.__dict__.setdefault("_tfps_packed", weakref.WeakKeyDictionary())
        packed: _PackedFunction | None = packed_functions.get(self)
        if packed is None:
            packed_functions[self] = packed = _PackedFunction(weakref.ref(function), self.strategy)
        elif packed.layouts not in (None, self.strategy.runtime.layouts):
            # The function's own traces, of parts without Keras variables, may use the old places.
            clone = function._clone(None)
            packed_functions[self] = packed = _PackedFunction(lambda: clone, self.strategy)
        return packed


class _PackedFunction:
    """Wraps a user's function to get and change variables by packed messages.

    Attributes: is_fallback: whether the function was traced, and nothing in it could be packed.
    """

    def __init__(self, get_function: Callable[[], Any], strategy: PackedStrategy) -> None:
        self.layouts: int | None = None
        self.is_fallback = False
        self._template: StepClosure | None = None
        self._kinds: weakref.WeakKeyDictionary[Any, StepKind] = weakref.WeakKeyDictionary()
        strategy_ref = weakref.ref(strategy)

        def packed(*args: Any, **kwargs: Any) -> Any:
            strategy = strategy_ref()
            assert strategy is not None
            if self.layouts is None:
                announce(
                    f"compiling {getattr(get_function(), '__name__', 'a function')} for the workers"
                )
            call = functools.partial(get_function(), *args, **kwargs)
            outputs, self.is_fallback = trace_packed(call, strategy=strategy)
            if self.layouts is None:
                self.layouts = strategy.runtime.layouts
            return outputs

        function: Any = get_function()
        reduces_retracing = function._reduce_retracing or function.input_signature is not None
        self.function = tf.function(packed, autograph=False, reduce_retracing=reduces_retracing)

    def make_closure(
        self, args: Any, kwargs: Any, *, strategy: PackedStrategy, manager: Any
    ) -> StepClosure:
        """Return a new closure: a copy if it would be equal to the last one.

        Args:
            args: the positional arguments.
            kwargs: the keyword arguments.
            strategy: the strategy of the function.
            manager: cancels the closure.
        """
        strategy.runtime.refuse_if_closed()
        args, kwargs = args or (), kwargs or {}
        closure = self._template and self._template.copy_if_equal(args, kwargs, manager=manager)
        if closure is None:
            closure = StepClosure(self.function, args, kwargs, strategy=strategy, manager=manager)
            closure.kind = self._kinds.setdefault(closure.concrete, StepKind())
            self._template = closure.copy_with(())
        return closure


for _method in ("schedule", "join", "done", "fetch", "create_per_worker_dataset"):
    setattr(
        ClusterCoordinator, _method, filter_traceback_lines(getattr(ClusterCoordinator, _method))
    )


def _to_user_error(runtime: Runtime | None, error: Exception, graph: Any, worker: int) -> Exception:
    """Return the error that the user sees instead of the error that a closure raised."""
    if names_early_device(error):  # TensorFlow would take it for a lost worker, and try for ever
        return early_device_error("a function of a worker")
    graphs = [] if graph is None else [graph]
    if runtime is not None and is_lost_server_error(error):
        groups = [servers for graph in graphs for servers in private.get_kept_with_graph(graph)]
        servers = [server for servers in groups for server in servers]
        error = read_servers_error(servers, runtime.data_plane) or error
    if not is_task_failure(error):
        shorten_message(error, graphs, place=f"on worker {worker}")
    return error


def use_packed_functions(coordinator: Any) -> None:
    """Change a new instance of TensorFlow's coordinator class, or of a subclass, to tfps's class.

    A user's subclass keeps its own methods, and inherits the others from tfps's class.

    Args:
        coordinator: an instance that is not initialised yet.
    """
    given_class = type(coordinator)
    if issubclass(given_class, ClusterCoordinator):
        return
    if issubclass(ClusterCoordinator, given_class):
        coordinator.__class__ = ClusterCoordinator
    else:
        coordinator.__class__ = type(given_class.__name__, (given_class, ClusterCoordinator), {})
