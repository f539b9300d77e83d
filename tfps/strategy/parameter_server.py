"""`tfps.ParameterServerStrategy`: TensorFlow's strategy, with Keras 3 and one exchange per step."""

from __future__ import annotations

import functools
from typing import Any

import tensorflow as tf

from tfps.bridge import keras_patches
from tfps.bridge.functions.function_registration import (
    patch_function_registration,
    patch_function_removal,
)
from tfps.bridge.named_functions import register_named_function
from tfps.cluster import ClusterSpec, announce_at_exit, devices_of_workers
from tfps.compression.directions import Codecs, PushPull
from tfps.consistency.mode import Mode
from tfps.partitioners import Partitioner
from tfps.placement.plan import Plan
from tfps.placement.policy import Placement
from tfps.recovery.fault_tolerance import FaultTolerance
from tfps.recovery.guard import Guard
from tfps.recovery.probing.liveness import ProbePolicy
from tfps.runtime.compile.server_updates import ServerUpdates
from tfps.runtime.coordinator.runtime import Runtime
from tfps.runtime.program.devices import Devices, MultipleDevices
from tfps.runtime.program.update_operations import UpdateOperation, update_operations
from tfps.strategy.arguments import check_arguments, refuse_renamed_arguments
from tfps.strategy.cluster_connections import get_or_make_connections
from tfps.strategy.coordinator import ClusterCoordinator, use_packed_functions
from tfps.strategy.extended import Extended
from tfps.strategy.job import Job
from tfps.strategy.named_job import job_name, open_job
from tfps.strategy.partitioning import Partitioning, to_raw_partitioner
from tfps.strategy.primitives.primitives import Primitives
from tfps.strategy.primitives.pull_and_push import PullAndPush
from tfps.strategy.reading.job_record import start_record
from tfps.strategy.reading.pace import describe_pace, describe_slow_worker
from tfps.strategy.reading.stats import Stats, take_stats
from tfps.strategy.shutdown import StrategyShutdown
from tfps.strategy.strategy_recovery import StrategyRecovery
from tfps.strategy.version_check import check_newer_versions
from tfps.strategy.weak_method import make_weak_method
from tfps.training.run_state import RunState
from tfps.training.trainer import Trainer
from tfps.training.worker_use import WORKER_USE
from tfps.transport.tokens import LEAVE


class ParameterServerStrategy(tf.distribute.ParameterServerStrategy):
    """Trains Keras 3 models, and custom loops, with parameter servers.

    Use it instead of `tf.distribute.ParameterServerStrategy`. Models made in its scope keep their
    weights on the parameter servers; use `fit`, `evaluate`, `predict`, `save` and callbacks as on
    one machine. In each step, one message per parameter server carries gradients up and parameters
    down, and the servers apply the updates themselves.

    Source: Li et al., "Scaling Distributed Machine Learning with the Parameter Server", OSDI 2014.

    Args:
        cluster_resolver: any `tf.distribute.cluster_resolver.ClusterResolver`; None reads
            ``TF_CONFIG``.
        variable_partitioner: divides variables into shards along their first axis: one of
            `tfps.partitioners` or `tf.distribute.experimental.partitioners`; None: whole variables.
        placement: chooses the server of each Keras variable; `LeastLoaded()` when None.
        consistency: `tfps.Asynchronous()` when None.
        compression: a codec of `tfps.compression` for gradients, or a `tfps.compression.PushPull`;
            no compression when None.
        transport: how requests reach servers: ``"direct"`` (between tfps's own processes),
            ``"grpc"`` (TensorFlow's RPC, to any server), or ``"auto"``: what ``TFPS_TRANSPORT``
            says, else direct where it can be.
        batch_callbacks: ``"auto"``, ``"sampled"`` or ``"lock_step"``: whether batch hooks of
            callbacks see sampled progress or run between a batch and the next ticket.
        fault_tolerance: how many workers the job needs, and whether it goes on after the restart
            of a lost parameter server; `tfps.FaultTolerance()`, which does not, when None.
        job: a `tfps.Job`, or its name: the servers keep the variables until `close`, and the next
            chief of that name takes them over. None: ``TFPS_JOB_ID``, or a job of this chief alone.
        max_workers: the most workers that can take part; the cluster's number when None. The next
            chief of the job may have another number of workers, up to this one.

    Raises:
        ConfigError: arguments or ``TF_CONFIG`` are invalid; names every mistake.
        UnsupportedError: the mode cannot be combined with this ``compression``, or a TensorFlow or
            Keras that is newer than the tested ones fails the check.
        ConnectTimeout: tasks did not reply in time.
        ListenError: the chief cannot listen at its address.
        TasksInUse: the tasks serve another chief, which is alive.

    Example:

    With ``tfps.ParameterServerStrategy()``, which reads ``TF_CONFIG``, the same code trains on a
    real cluster.

    >>> import keras, numpy as np, tfps, tfps.testing
    >>> with tfps.testing.InProcessCluster(workers=2, ps=1) as cluster:
    ...     strategy = tfps.ParameterServerStrategy(cluster.cluster_resolver)
    ...     with strategy.scope():
    ...         model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    ...         model.compile("adam", "mse")
    ...     history = model.fit(np.ones([8, 3]), np.ones([8, 1]), batch_size=2, verbose=0)
    ...     strategy.stats().updates_applied
    4
    """

    @keras_patches.filter_traceback_lines
    @refuse_renamed_arguments
    def __init__(  # noqa: PLR0913 - each is a choice of its own
        self,
        cluster_resolver: tf.distribute.cluster_resolver.ClusterResolver | None = None,
        variable_partitioner: Partitioner
        | tf.distribute.experimental.partitioners.Partitioner
        | None = None,
        *,
        placement: Placement | str | None = None,
        consistency: Mode | str | None = None,
        compression: Codecs | PushPull | None = None,
        transport: str = "auto",
        batch_callbacks: str = "auto",
        fault_tolerance: FaultTolerance | None = None,
        job: Job | str | None = None,
        max_workers: int | None = None,
    ) -> None:
        """Connect to the cluster; the class's documentation describes the arguments."""
        arguments = check_arguments(
            cluster_resolver=cluster_resolver,
            variable_partitioner=variable_partitioner,
            placement=placement,
            consistency=consistency,
            compression=compression,
            transport=transport,
            batch_callbacks=batch_callbacks,
            fault_tolerance=fault_tolerance,
            job=job,
            max_workers=max_workers,
        )
        check_newer_versions()
        self.consistency, self.batch_callbacks = arguments.consistency, arguments.batch_callbacks
        self.fault_tolerance, self._spec = arguments.fault_tolerance, arguments.spec
        if cluster_resolver is None:
            cluster_resolver = self._spec.tf_resolver()
            announce_at_exit(self._spec)  # registered before `close`, so it runs after it
        self.connections = get_or_make_connections(
            cluster_resolver, self._spec, job=job_name(arguments)
        )
        self._tfps_timeout_s = arguments.connect_timeout_s
        servers = self._spec.count("ps")
        raw_partitioner = to_raw_partitioner(variable_partitioner, servers=servers)
        super().__init__(cluster_resolver, raw_partitioner)
        self._is_tfps_strategy = True
        self.runtime, self._job = open_job(arguments, self.connections)
        policy = ProbePolicy.from_environment()
        guard = Guard(self.runtime, policy=policy, fault_tolerance=self.fault_tolerance)
        self.run_state = RunState(self.runtime, guard)
        register_named_function(LEAVE, make_weak_method(self.run_state, "save_before_leave"))
        self._make_parts(Partitioning(variable_partitioner, servers=servers))
        _prepare_process(self.runtime)
        if self.fault_tolerance.checkpoints is not None and self.runtime.processes:
            self.run_state.recovery = StrategyRecovery(self, self.fault_tolerance)
        self._shutdown = StrategyShutdown(
            self, runtime=self.runtime, guard=guard, is_named=bool(self._job)
        )
        start_record(self)

    def _make_parts(self, partitioning: Partitioning) -> None:
        """Make the parts of the strategy, once the job is open."""
        runtime, state = self.runtime, self.run_state
        runtime.function_tables.make_room()
        state.describe_pace = make_weak_method(self, "_describe_pace")
        state.describe_slow_worker = make_weak_method(self, "_describe_slow_worker")
        runtime.on_access = make_weak_method(state, "drain")
        runtime.get_life = make_weak_method(state, "get_life")
        self.updates = ServerUpdates(runtime, strategy=self, drain=state.drain_all)
        self.primitives = Primitives(runtime, self.updates)
        names = devices_of_workers([d.name for d in tf.config.list_logical_devices()])
        self.devices = MultipleDevices(self, names) if len(names) > 1 else Devices(names)
        self._extended.__class__ = Extended
        self._extended.set_up(
            runtime,
            partitioning=partitioning,
            register=self.primitives.parameters.register,
            worker_devices=names,
        )

    def _connect_to_cluster(self, coordinator_name: str) -> None:
        """Connect to the cluster; TensorFlow's class calls it once it has checked the cluster."""
        self._num_workers, self._num_ps = self._spec.count("worker"), self._spec.count("ps")
        connect = functools.partial(super()._connect_to_cluster, coordinator_name)
        self.connections.connect(connect, timeout_s=self._tfps_timeout_s)

    @property
    def coordinator(self) -> ClusterCoordinator:
        """The `tfps.ClusterCoordinator` of this strategy, made at its first use."""
        return self.run_state.coordinator or ClusterCoordinator(self)

    @property
    def _cluster_coordinator(self) -> Any:
        return self.run_state.coordinator

    @_cluster_coordinator.setter
    def _cluster_coordinator(self, coordinator: Any) -> None:
        # TensorFlow's class keeps its one instance for a strategy here before it initialises it.
        if coordinator is not None:  # else the base class initialises the strategy
            use_packed_functions(coordinator)
            self.run_state.coordinator = coordinator

    @property
    def cluster(self) -> ClusterSpec:
        """The addresses of all tasks; of a parameter server that has moved, the new one."""
        return self.runtime.cluster

    @property
    def plan(self) -> Plan:
        """The plan, which assigns each variable or shard to a server; prints as a table."""
        return self.runtime.plan

    def stats(self) -> Stats:
        """Return a snapshot of the job's counters: steps, updates, staleness, bytes and others."""
        return take_stats(self)

    def close(self) -> None:
        """Free the variables of this strategy on the servers; it cannot be used afterwards.

        Predict, save and read weights before. Later uses of its models' variables, or of the
        strategy itself, raise `tfps.errors.StrategyClosed`. Leaving the ``with`` block of a
        `tfps.LocalCluster` closes the strategies that were made on it.
        """
        reason = "strategy.close() was called"
        recovery = self.run_state.recovery
        if recovery is None or not recovery.end(reason):
            self.run_state.drain()
        self._shutdown.close(reason)

    pull, push = PullAndPush.pull, PullAndPush.push
    pull_rows, push_rows = PullAndPush.pull_rows, PullAndPush.push_rows

    def update_operations(self) -> list[UpdateOperation]:
        """Return each operation with which pushes of `fit` write a variable, and its device."""
        return [
            operation
            for function in self.runtime.push_functions
            for operation in update_operations(function)
        ]

    def worker_rates(self) -> tuple[float, ...] | None:
        """Return each worker's training steps per second in the current or last epoch of `fit`."""
        rate = self.run_state.rates.get("train")
        return None if rate is None else rate.per_second_by_worker

    def _describe_pace(self) -> str:
        """Return the progress bar's text: workers alive, mean staleness of updates, traffic."""
        return describe_pace(self.alive_workers(), state=self.run_state, runtime=self.runtime)

    def _describe_slow_worker(self) -> str:
        """Return the progress bar's text, at the end of an epoch, about a slow worker."""
        alive = self.alive_workers()
        return describe_slow_worker(alive, state=self.run_state, runtime=self.runtime)

    def alive_workers(self) -> list[bool]:
        """Return for each worker whether its task is "alive", as far as the coordinator knows."""
        return [self.tasks[f"worker {i}"] == "alive" for i in range(self._num_workers)]

    @property
    def tasks(self) -> dict[str, str]:
        """The state of each worker and server by its name: "alive", "lost" or "rejoining".

        A task is rejoining while it replies again, but takes no part in training yet.
        """
        return self.run_state.guard.task_states(self.run_state.coordinator)


def _prepare_process(runtime: Runtime) -> None:
    """Install tfps's patches of Keras and TensorFlow; further calls in a process do nothing."""
    keras_patches.install_patches(Trainer())
    WORKER_USE.expect(runtime)
    patch_function_removal()
    patch_function_registration()
