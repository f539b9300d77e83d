"""Evict workers and fail jobs by the results of probes."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.bridge.closures.closure_queue import ClosureQueue
from tfps.bridge.closures.failure_handler import FailureHandler
from tfps.recovery.fault_tolerance import FaultTolerance
from tfps.recovery.probing.collected_functions import remove_collected_functions
from tfps.recovery.probing.connections import cut_connections
from tfps.recovery.probing.liveness import Liveness, ProbePolicy, Verdict
from tfps.recovery.probing.probe import Observation, Prober, Task, all_tasks_reply
from tfps.recovery.probing.quorum import Quorum
from tfps.recovery.restarts.task_supervisor import are_restarted, get_supervisor
from tfps.recovery.servers.new_addresses import NewAddresses
from tfps.recovery.servers.server_return import ServerReturn
from tfps.runtime.coordinator.runtime import Runtime
from tfps.runtime.coordinator.server import Server

logger = logging.getLogger(__name__)

POLL_INTERVAL_S = 0.1
LOST_SERVER_REMEDY = (
    "Continue or restart it, then run the script again from its last checkpoint. To tolerate "
    "longer pauses, raise TFPS_PROBE_DEADLINE_S or TFPS_PROBE_MISSES."
)


class Guard:
    """Probes the tasks of a job and acts on the verdicts, all on the probing thread.

    A *worker* that is lost gets no more closures. The closure that it runs is recalled, and its
    incarnation is evicted on every server, which returns its tickets; only then another worker
    takes the closure over. If the worker goes on later, the servers refuse its late pushes, and it
    takes part again under a new incarnation.

    A *parameter server* that is lost fails the coordinator with `UnavailableError`, which cancels
    the workers' requests that wait for it; those of this process end with its connections. No
    worker is evicted on that server, since it cannot be told. The error is final for every round
    and closure that had begun. Once the server replies again, the next round may use it: the
    workers join under new incarnations, and from then on the server refuses pushes that were on
    their way while it hung. A push that it applies before that join counts on this server alone,
    so go on from a checkpoint.

    A worker that was started again at another address is looked for there while it is lost.

    If too few *workers* reply for too long, or can never be enough again, the coordinator fails
    likewise until enough of them reply.

    Args:
        runtime: the job.
        policy: how often tasks are probed, and when a task is lost.
        fault_tolerance: how many workers the job needs.
    """

    def __init__(
        self, runtime: Runtime, *, policy: ProbePolicy, fault_tolerance: FaultTolerance
    ) -> None:
        self._runtime = runtime
        self.policy = policy
        self.fault_tolerance = fault_tolerance
        self._quorum = Quorum(workers=runtime.workers, fault_tolerance=fault_tolerance)
        self._new_addresses = NewAddresses(
            runtime.connections.resolve,
            cluster=lambda: runtime.cluster,
            deadline_s=policy.deadline_s,
        )
        self._end_reason = ""  # why the job ends with too few workers
        self._liveness = Liveness[Task](self._addresses, policy=policy)
        self._evicted: dict[int, int] = {}  # worker -> incarnation
        self._problems: dict[int, str] = {}  # worker -> why it cannot take part
        self._lock = threading.Lock()
        self._prober: Prober | None = None
        self._queue: ClosureQueue | None = None
        self._failures: FailureHandler | None = None
        self._has_warned_no_worker = False
        self.servers: ServerReturn | None = None  # brings lost servers back
        self._hanging_workers: frozenset[int] = frozenset()  # workers that hang

    @property
    def _addresses(self) -> dict[Task, str]:
        return {
            **{("worker", i): address for i, address in enumerate(self._runtime.worker_addresses)},
            **{("ps", server.index): server.address for server in self._runtime.servers},
        }

    def start(self, queue: ClosureQueue, failures: FailureHandler) -> None:
        """Begin to probe, unless that has begun; called before each schedule of work.

        Args:
            queue: the closure queue of the strategy's coordinator.
            failures: the failure handler of the strategy's coordinator.
        """
        with self._lock:
            if self._prober is not None:
                return
            self._queue, self._failures = queue, failures
            queue.on_failure = self._mark_suspect
            self._prober = Prober(
                self._runtime.processes, policy=self.policy, report=self._apply_probe_results
            )
            self._prober.start()

    def close(self) -> None:
        """Stop probing; ends the thread and its connections."""
        with self._lock:
            prober = self._prober
        if prober is not None:
            prober.close()
        self._hanging_workers = frozenset()
        self._report_lost_tasks(())
        self._runtime.connections.report_alive(())

    def verdict(self, task_type: str, index: int) -> Verdict:
        """Return whether a task is alive, suspect or lost."""
        return self._liveness.verdict((task_type, index))

    def task_states(self, coordinator: Any) -> dict[str, str]:
        """Return each task's state by its name: "alive", "lost" or "rejoining" (not yet admitted).

        Args:
            coordinator: the strategy's TensorFlow coordinator; None: it has none yet.
        """
        tasks = {
            f"{task_type} {index}": (
                "lost" if self.verdict(task_type, index) is Verdict.LOST else "alive"
            )
            for task_type, index in self._addresses
        }
        if coordinator is not None:
            queue = private.get_closure_queue(coordinator)
            kept_out = queue.recalled_workers | queue.blocked_workers
            for index, alive in enumerate(private.get_alive_workers(coordinator)):
                if not alive or index in kept_out:
                    is_responding = self.verdict("worker", index) is Verdict.ALIVE
                    tasks[f"worker {index}"] = "rejoining" if is_responding else "lost"
        return tasks

    def server_is_back(self, index: int) -> None:
        """Record that a lost server has been brought back."""
        self._liveness.record_reply(("ps", index), sent_s=time.monotonic())

    def is_responding(self, worker: int) -> bool:
        """Probe a worker once, and return whether it replies; a worker that hangs does not."""
        task = "worker", worker
        return all_tasks_reply({task: self._addresses[task]}, deadline_s=self.policy.deadline_s)

    def is_incompatible(self, worker: int) -> bool:
        """Return whether a restarted worker does not fit the job; logs each reason once."""
        problem = self._runtime.find_incompatibility(("worker", worker))
        if problem and problem != self._problems.get(worker):
            logger.warning("%s Training continues without it.", problem)
        self._problems[worker] = problem
        return bool(problem)

    def mark_worker_lost(self, worker: int) -> bool:
        """Give no more work to a worker that refuses connections.

        Returns False, and does nothing, before work is handed out for the first time.
        """
        queue = self._queue
        if queue is not None:
            self._liveness.mark_lost(("worker", worker))
            self._apply_worker_verdict(queue, worker)
        return queue is not None

    def wait_for_silent_workers(self) -> None:
        """Wait until no worker hangs, since TensorFlow would wait for it without a deadline.

        TensorFlow registers each new function with every worker, without a deadline and holding
        the interpreter's lock: while a worker hangs, not even Ctrl-C would reach this process.
        Called before a function is traced. A worker that is killed, or goes on, ends the wait.
        """
        has_warned = False
        while self._hanging_workers and not self._end_reason:
            if not has_warned:
                names = ", ".join(
                    f"worker {worker} at {self._addresses['worker', worker]}"
                    for worker in sorted(self._hanging_workers)
                )
                logger.warning(
                    "%s hangs, and TensorFlow waits for every worker before a new function begins: "
                    "continue it (SIGCONT), or kill and restart it.",
                    names,
                )
                has_warned = True
            time.sleep(POLL_INTERVAL_S)

    def _mark_suspect(self, worker: int) -> None:
        self._liveness.mark_suspect(("worker", worker), now_s=time.monotonic())

    def _apply_probe_results(self, observations: Mapping[Task, Observation]) -> None:
        for task, observation in observations.items():
            if observation.replied:
                self._liveness.record_reply(task, sent_s=observation.sent_s)
            else:
                self._liveness.record_miss(
                    task, sent_s=observation.sent_s, judged_s=observation.judged_s
                )
        self._hanging_workers = frozenset(
            index
            for (task_type, index), observation in observations.items()
            if task_type == "worker"
            and observation.silent
            and self.verdict(task_type, index) is Verdict.LOST
        )
        assert self._queue is not None
        for server in self._runtime.servers:
            self._apply_server_verdict(self._queue, server)
        for worker in range(self._runtime.workers):
            self._apply_worker_verdict(self._queue, worker)
        # Every round of probes tries again, until the servers have replied.
        for worker in self._queue.recalled_workers:
            if self._evict(worker):
                self._queue.requeue_recalled(worker)
        self._warn_if_no_worker_replies(self._queue)
        self._check_quorum(self._queue)
        lost = [task for task in observations if self.verdict(*task) is Verdict.LOST]
        self._report_lost_tasks(lost)  # after their eviction
        self._runtime.connections.report_alive(self._addresses.keys() - set(lost))
        self._move_lost_workers([task for task in lost if task[0] == "worker"])
        addresses = self._addresses
        responding = {
            task: addresses[task]
            for task, observation in observations.items()
            if observation.replied
        }
        remove_collected_functions(responding, deadline_s=self.policy.deadline_s)

    def _report_lost_tasks(self, lost: Sequence[Task]) -> None:
        """Report lost tasks to their supervisor, which kills tasks that hang for too long."""
        supervisor = get_supervisor(self._addresses.values())
        if supervisor is not None:
            supervisor.report_lost(lost)

    def _move_lost_workers(self, lost: Sequence[Task]) -> None:
        """Move lost workers to the new addresses at which they reply; they then join again."""
        assert self._failures is not None
        for task, address in self._new_addresses.find(lost).items():
            before = self._addresses[task]
            logger.warning("%s %d moved to %s from %s", *task, address, before)
            self._runtime.set_task_address(task, address)
            self._failures.set_task_address(task, address)
            cut_connections(before)  # ends a closure that waits for a machine that is gone

    def _apply_server_verdict(self, queue: ClosureQueue, server: Server) -> None:
        verdict = self.verdict("ps", server.index)
        if verdict is Verdict.LOST and server.lost is None:
            reason = self._describe_lost_server(server)
            if self.servers is not None:
                self.servers.begin_return(server.index, reason)
                return
            reason = f"{reason} {LOST_SERVER_REMEDY}"
            server.lost = reason
            logger.error("%s", reason)
            self._runtime.hang_up(server.index)
            queue.fail(lambda: tf.errors.UnavailableError(None, None, reason))
            cut_connections(server.address)
        elif verdict is Verdict.ALIVE and server.lost is not None and self.servers is None:
            logger.warning("ps %d at %s responds again", server.index, server.address)
            server.lost = None
            self._clear_failure(queue)

    def _apply_worker_verdict(self, queue: ClosureQueue, worker: int) -> None:
        verdict = self.verdict("worker", worker)
        if verdict is Verdict.LOST and worker not in queue.blocked_workers:
            logger.warning(
                "worker %d at %s does not respond: the others take over its batches until it "
                "responds again.",
                worker,
                self._addresses["worker", worker],
            )
            queue.block_worker(worker)
        elif (
            verdict is Verdict.ALIVE
            and worker in queue.blocked_workers
            and not self._is_left_out(worker)
        ):
            logger.warning("worker %d responds again", worker)
            queue.unblock_worker(worker)

    def _check_quorum(self, queue: ClosureQueue) -> None:
        """Fail the queue if too few workers reply for too long; end the failure when enough do."""
        supervisor = get_supervisor(self._addresses.values())
        workers = range(self._runtime.workers)
        reason = self._quorum.end_reason(
            responding=sum(self.verdict("worker", i) is not Verdict.LOST for i in workers),
            now_s=time.monotonic(),
            supervisor_reason=supervisor.end_reason if supervisor else "",
        )
        if reason == self._end_reason:
            return
        was_over, self._end_reason = bool(self._end_reason), reason
        if not reason:
            self._clear_failure(queue)
        elif not was_over:
            message = f"The job cannot continue: {reason}."
            logger.error("%s", message)
            queue.fail(lambda: tf.errors.UnavailableError(None, None, message))

    def _clear_failure(self, queue: ClosureQueue) -> None:
        """Allow closures to be scheduled again if enough workers reply and no server is lost."""
        if not self._end_reason and all(each.lost is None for each in self._runtime.servers):
            queue.clear_failure()

    def _is_left_out(self, worker: int) -> bool:
        """Return whether TensorFlow's cluster does not contain a worker now."""
        return self._failures is not None and worker in self._failures.excluded_workers

    def _evict(self, worker: int) -> bool:
        """Evict a worker's latest incarnation, once. Returns False if a server did not reply."""
        incarnation = self._runtime.members.latest_incarnation(worker)
        if incarnation is not None and self._evicted.get(worker) != incarnation:
            try:
                self._runtime.members.evict(worker, incarnation, patience_s=0.0)
            except tf.errors.UnavailableError as error:
                logger.info("worker %d is not evicted yet: %s", worker, error.message)
                return False
            self._evicted[worker] = incarnation
        return True

    def _warn_if_no_worker_replies(self, queue: ClosureQueue) -> None:
        no_worker_replies = len(queue.blocked_workers) == self._runtime.workers
        if no_worker_replies and not self._has_warned_no_worker:
            names = ", ".join(
                f"worker {index} at {address}"
                for index, address in enumerate(self._runtime.worker_addresses)
            )
            if are_restarted(self._addresses.values()):
                logger.warning(
                    "no worker responds (%s): training waits for one. Dead workers restart; "
                    "continue stopped ones (SIGCONT).",
                    names,
                )
            else:
                logger.warning(
                    "no worker responds (%s): training waits for one, for at most %g s "
                    "(no_worker_timeout_s). Restart them, continue stopped ones (SIGCONT), or end "
                    "this script (Ctrl-C).",
                    names,
                    self.fault_tolerance.no_worker_timeout_s,
                )
        self._has_warned_no_worker = no_worker_replies

    def _describe_lost_server(self, server: Server) -> str:
        policy = self.policy
        return (
            f"The parameter server /job:ps/replica:0/task:{server.index} at {server.address} is "
            f"lost: it missed {policy.misses} probes of {policy.deadline_s:g} s each."
        )
