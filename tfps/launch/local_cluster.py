"""Run a cluster of processes on this machine, for a `with` block."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal as signals
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tfps.cluster import ClusterSpec, close_clients, lease_ports, wait_for_tasks
from tfps.cluster.validation import check_counts
from tfps.errors import ClusterError, TaskFailed
from tfps.launch.environment import common_environment, task_environment
from tfps.launch.log_folder import LogFolder
from tfps.launch.process import TaskProcess, describe_status
from tfps.launch.process_supervisor import ProcessSupervisor
from tfps.launch.starter import make_starter
from tfps.recovery.events import EVENTS_FILE, EventLog
from tfps.recovery.fault_tolerance import FaultTolerance, check_fault_tolerance
from tfps.recovery.restarts.task_supervisor import register_supervisor, unregister_supervisor

if TYPE_CHECKING:
    import tensorflow as tf

HOST = "127.0.0.1"
SERVED_TASK_TYPES = ("worker", "ps")
START_TIMEOUT_S = 300.0  # importing TensorFlow takes seconds on an idle machine, minutes on a busy


class LocalCluster:
    """Workers and parameter servers as processes of this machine; this process is the chief.

    Use it to try, test and debug distributed training. The tasks are real processes that run as
    `python -m tfps serve` does, so it works from a notebook, standard input and a script without a
    ``__main__`` guard, and a task can be killed like a lost machine. A task that dies is reported
    and started again, as `fault_tolerance` allows. The tasks listen on loopback ports that stay
    reserved until the cluster is closed. Leaving the ``with`` block closes the strategies that were
    made on the cluster, then kills and reaps the tasks: predict, save and read weights inside of
    it. The tasks always end with this process. Methods take a task as its type, ``worker`` or
    ``ps``, and its index, from 0, and raise a `ClusterError` for a task that the cluster does not
    have.

    Args:
        workers: the number of workers.
        ps: the number of parameter servers.
        log_dir: a folder for one log per task; None makes a temporary one, which is removed when
            this process ends without a failed task.
        environment: further environment variables of the tasks.
        start_timeout_s: the seconds that the tasks may take until they listen.
        wait: whether to return only when all tasks listen.
        fault_tolerance: how often a task that dies is started again; None is
            `tfps.FaultTolerance()`. A task that `kill` has ended is not. A parameter server, whose
            parameters are lost, is started again only if a strategy on this cluster has
            `tfps.FaultTolerance.checkpoints`.

    Raises:
        ConfigError: a count is below 1, or ``log_dir`` cannot be written to.
        TaskFailed: a task ended while it started; the message has its status and last lines.
        ConnectTimeout: a task does not listen in time.

    Example:

    >>> with LocalCluster(workers=2, ps=1) as cluster:
    ...     strategy = tfps.ParameterServerStrategy(cluster.cluster_resolver)  # doctest: +SKIP
    """

    chief_command: tuple[str, ...] = ()  # a prefix of the command of a chief process

    def __init__(
        self,
        workers: int = 2,
        ps: int = 1,
        *,
        log_dir: str | os.PathLike[str] | None = None,
        environment: Mapping[str, str] | None = None,
        start_timeout_s: float = START_TIMEOUT_S,
        wait: bool = True,
        fault_tolerance: FaultTolerance | None = None,
    ) -> None:
        check_counts("LocalCluster", workers=workers, ps=ps)
        fault_tolerance = check_fault_tolerance(fault_tolerance, workers=workers)
        self._folder = LogFolder(log_dir, prefix="tfps-")  # first: it may raise an error
        self.log_dir = self._folder.path
        self._owner = os.getpid()
        self._closed = False
        self._resolver: tf.distribute.cluster_resolver.SimpleClusterResolver | None = None
        self._extra_environment = dict(environment or {})
        self._start_timeout_s = start_timeout_s
        self._tasks: dict[tuple[str, int], TaskProcess] = {}
        self._lease = lease_ports(1 + workers + ps, host=HOST)
        addresses = [f"{HOST}:{port}" for port in self._lease.ports]
        self.spec = ClusterSpec(
            jobs={
                "chief": tuple(addresses[:1]),
                "worker": tuple(addresses[1 : 1 + workers]),
                "ps": tuple(addresses[1 + workers :]),
            },
            task_type="chief",
            task_index=0,
        )
        self._addresses = {
            address for _, _, address in self.spec.tasks(*SERVED_TASK_TYPES)
        }  # of all times
        self._lease.share_with_this_process()  # which listens on the chief's port
        self.lock = threading.RLock()  # held during each restart of a task
        self.supervisor = ProcessSupervisor(
            self,
            [(task_type, index) for task_type, index, _ in self.spec.tasks(*SERVED_TASK_TYPES)],
            fault_tolerance=fault_tolerance,
            events=EventLog(self.log_dir / EVENTS_FILE),
        )
        self._stack = contextlib.ExitStack()
        common = common_environment(extra=self._extra_environment)
        self._starter = self._stack.enter_context(make_starter(common))
        atexit.register(self._stop_tasks)
        try:
            for task_type, index, _ in self.spec.tasks(*SERVED_TASK_TYPES):
                self._start(task_type, index)
            register_supervisor(self._addresses, self.supervisor)
            self.supervisor.start()
            if wait:
                self._wait_until_serving(*SERVED_TASK_TYPES)
                self.supervisor.mark_started()
        except BaseException:
            self.close()
            raise

    @property
    def cluster_resolver(self) -> tf.distribute.cluster_resolver.SimpleClusterResolver:
        """The resolver to pass to a strategy; imports TensorFlow at the first use.

        Raises:
            ClusterError: the cluster is closed.
        """
        if self._closed:
            raise ClusterError(
                "this LocalCluster is closed; make the strategy inside the `with` block, or start "
                "another cluster"
            )
        if self._resolver is None:
            from tfps.bridge.present_resolver import CurrentAddressResolver

            self._resolver = CurrentAddressResolver(self._present_spec)
        return self._resolver

    def _present_spec(self) -> ClusterSpec:
        """Return the cluster, with a chief's address at which this process can listen."""
        from tfps.bridge.functions.server_start import is_abandoned

        with self.lock:
            if is_abandoned(self.spec.address("chief", 0)):
                self._assign_new_port("chief", 0)
            return self.spec

    @property
    def logs(self) -> dict[str, Path]:
        """The path of every task's log, by the task's name, for example ``worker 0``."""
        return {
            f"{task_type} {index}": self.log_dir / f"{task_type}-{index}.log"
            for task_type, index, _ in self.spec.tasks(*SERVED_TASK_TYPES)
        }

    def pid(self, task_type: str, index: int) -> int:
        """Return the process id of a task.

        Args:
            task_type: ``worker`` or ``ps``.
            index: the index of the task.
        """
        return self._task(task_type, index).pid

    def status(self, task_type: str, index: int) -> int | None:
        """Return a task's exit status (negative: the signal that ended it), None while it runs.

        Args:
            task_type: ``worker`` or ``ps``.
            index: the index of the task.
        """
        return self._task(task_type, index).status()

    def kill(self, task_type: str, index: int, signal: int = signals.SIGKILL) -> None:
        """Kill a task, as if its machine were lost; return once it has ended.

        Args:
            task_type: ``worker`` or ``ps``.
            index: the index of the task.
            signal: a signal instead of SIGKILL.

        Raises:
            ClusterError: the signal did not end the task.
        """
        with self.lock:
            task = self._task(task_type, index)
            task.expected_to_end = True
        if signal == signals.SIGKILL:
            status = task.kill()
        else:
            task.send(signal)
            status = task.wait(10.0)
        if status is None:
            raise ClusterError(
                f"{task.name}: still runs 10 s after {signals.Signals(signal).name}, expected it "
                "to end; kill it with SIGKILL"
            )

    def suspend(self, task_type: str, index: int) -> None:
        """Stop a task (SIGSTOP), as if its machine hung; its connections stay open.

        Args:
            task_type: ``worker`` or ``ps``.
            index: the index of the task.

        Raises:
            ClusterError: the task still runs some seconds after the signal.
        """
        self._task(task_type, index).suspend()

    def resume(self, task_type: str, index: int) -> None:
        """Let a suspended task run again (SIGCONT).

        Args:
            task_type: ``worker`` or ``ps``.
            index: the index of the task.
        """
        self._task(task_type, index).send(signals.SIGCONT)

    def restart(
        self, task_type: str, index: int, *, new_port: bool = False, wait: bool = True
    ) -> None:
        """Start a task again at its address, after killing it if it still runs.

        Args:
            task_type: ``worker`` or ``ps``.
            index: the index of the task.
            new_port: whether the task gets another port, as after a move to another machine;
                `cluster_resolver` returns the new address from now on.
            wait: whether to return only when the task listens.

        Raises:
            TaskFailed: the task ended while it started.
            ConnectTimeout: the task does not listen in time.
        """
        with self.lock:
            self._task(task_type, index).kill()
            if new_port:
                self._assign_new_port(task_type, index)
            self._start(task_type, index)
        if wait:
            self._wait_until_serving(task_type, index=index)

    def process(self, task: tuple[str, int]) -> TaskProcess | None:
        """Return the newest process of a task; None before its start.

        Args:
            task: the type and the index of the task.
        """
        return self._tasks.get(task)

    def start_again(self, task: tuple[str, int]) -> None:
        """Start a task if it has died and was not killed by `kill`.

        Args:
            task: the type and the index of the task.
        """
        process = self._task(*task)
        if process.status() is not None and not process.expected_to_end:
            self._start(*task)

    def starter_failures(self) -> list[TaskFailed]:
        """Return the errors of the process that starts the tasks; empty while it works."""
        return self._starter.failures()

    def failures(self) -> list[TaskFailed]:
        """Return an error for each task that ended unexpectedly and was not started again."""
        return self._starter.failures() + [
            TaskFailed(task.report(describe_status(status)))
            for task in self._tasks.values()
            if (status := task.status()) is not None and not task.expected_to_end
        ]

    def close(self) -> None:
        """Close the strategies on this cluster, kill and reap all tasks and give up their ports.

        Closing again does nothing.
        """
        if os.getpid() != self._owner:
            return  # a fork of the owner ends; the tasks are not its own
        self._closed = True
        self.supervisor.close()
        unregister_supervisor(self._addresses)
        try:
            close_clients(self._addresses, reason="its LocalCluster is closed")
        finally:
            self._stop_tasks()

    def _stop_tasks(self) -> None:
        """Kill the tasks; at the end of the process, close the strategies first."""
        if os.getpid() != self._owner:
            return
        self.supervisor.close()
        failed = bool(self.failures() or self.supervisor.restarts)
        for task in self._tasks.values():
            task.kill()
        self._stack.close()
        self._lease.close()
        atexit.unregister(self._stop_tasks)
        if not failed:
            # Not now: the logs may be needed after the block.
            atexit.register(self._folder.end, succeeded=True)

    def __enter__(self) -> LocalCluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __str__(self) -> str:
        return str(self.spec)

    def _task(self, task_type: str, index: int) -> TaskProcess:
        task = self._tasks.get((task_type, index))
        if task is None:
            known = ", ".join(f"{kind} {number}" for kind, number in self._tasks)
            raise ClusterError(f"received {task_type} {index}, expected one of {known}")
        return task

    def _assign_new_port(self, task_type: str, index: int) -> None:
        """Give a task another port; its old one stays reserved, so that no process can take it."""
        lease = lease_ports(1, host=HOST)
        address = f"{HOST}:{lease.ports[0]}"
        self._lease.absorb(lease)
        self.spec = self.spec.with_address(task_type, index, address)
        unregister_supervisor(self._addresses)
        self._addresses.add(address)
        register_supervisor(self._addresses, self.supervisor)

    def _start(self, task_type: str, index: int) -> None:
        name = f"{task_type} {index}"
        if not self._lease.can_share:
            self._lease.release(int(self.spec.address(task_type, index).rpartition(":")[2]))
        self._tasks[task_type, index] = self._starter.start(
            name=name,
            environment=task_environment(
                self.spec, task_type, index, extra=self._extra_environment
            ),
            log_path=self.logs[name],
        )

    def _wait_until_serving(self, *task_types: str, index: int | None = None) -> None:
        wait_for_tasks(
            self.spec,
            timeout_s=self._start_timeout_s,
            task_types=task_types,
            index=index,
            check=self._raise_failure,
        )

    def _raise_failure(self) -> None:
        failures = self.failures()
        if failures:
            raise failures[0]
