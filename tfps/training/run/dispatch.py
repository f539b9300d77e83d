"""The dispatch of a ticket run's closures to the workers."""

from __future__ import annotations

from typing import Any

from tfps.bridge import tensorflow_private as private
from tfps.bridge.closures.closure_queue import ClosureQueue
from tfps.runtime.coordinator.runtime import Runtime
from tfps.training.report.step_rate import SAMPLE_PERIOD_S
from tfps.training.run.run_closure import RunClosure
from tfps.training.run.run_progress import RunProgress


class Dispatch:
    """Sends the closures of a ticket run to the workers, and tells when they have ended.

    Args:
        closure: what is sent, once to each worker.
        progress: how far the run has come.
        runtime: the job.
        coordinator: schedules closures.
        starts: how often the ticket server had been started when the run began.

    Attributes:
        queue: the closures of the coordinator.
        failures: the coordinator's handler of lost workers and servers.
        ended: whether all closures had ended when they were last checked.
    """

    def __init__(
        self,
        closure: RunClosure,
        *,
        progress: RunProgress,
        runtime: Runtime,
        coordinator: Any,
        starts: int,
    ) -> None:
        self._closure, self._compiled = closure, progress.compiled
        self._runtime, self._coordinator = runtime, coordinator
        self._starts = self._sent_out_at = starts
        self.queue: ClosureQueue = private.get_closure_queue(coordinator)
        self.failures = private.get_failure_handler(coordinator)
        self.ended = False

    def prepare(self) -> None:
        """Make the input and the servers ready for one closure per worker."""
        self._sent_out_at = self._runtime.ticket_server.starts
        self._closure.visited.clear()  # those of before may have ended with data left
        # A server that was started anew may hand out again what had been closed.
        if self._sent_out_at == self._starts:
            self._compiled.source.on_drained()
        if self._compiled.program.schedule.in_rounds:
            self._runtime.membership.evict_all()  # those of scheduled functions just before
            present_workers = self.present_workers
            self._closure.invitations.renew(
                [w in present_workers for w in range(self._runtime.workers)]
            )

    def schedule(self, closures: int) -> None:
        """Schedule a number of closures, each for the next worker that is free."""
        self.ended = False
        for _ in range(closures):
            private.schedule_callable(self._coordinator, self._closure)

    def check(self) -> None:
        """Check whether all closures have ended, and stop inviting workers that hang.

        Raises:
            Exception: what a closure raised, from the coordinator.
        """
        self.ended = self._coordinator.done()
        self._closure.invitations.cancel(self.queue.blocked_workers)

    def join(self) -> None:
        """Wait until all closures have ended.

        Raises:
            Exception: what a closure raised, from the coordinator.
        """
        self._coordinator.join()

    @property
    def has_lost_tickets(self) -> bool:
        """Whether the ticket server was restarted since closures were sent out.

        They may have ended before that, with steps that no sample had seen: those are open again.
        """
        return self._runtime.ticket_server.starts != self._sent_out_at

    @property
    def present_workers(self) -> frozenset[int]:
        """The workers that are alive and take closures."""
        alive = private.get_alive_workers(self._coordinator)
        away = self.queue.blocked_workers | self.queue.recalled_workers
        return frozenset(worker for worker, there in enumerate(alive) if there) - away

    @property
    def workers_without_closure(self) -> frozenset[int]:
        """The workers that are present and have ended no closure since closures were sent out."""
        return self.present_workers - self._closure.visited

    def halt(self) -> None:
        """Stop handing out tickets, without waiting for workers."""
        if self.queue.has_failed:
            self._coordinator.done()  # cancels what still waits for a lost server
        else:
            self._runtime.ticket_server.halt()

    def give_up(self) -> None:
        """End all closures without waiting for a worker to begin those that are queued."""
        self.failures.servers.interrupt()
        if self._runtime.ticket_server.lost is None and not self._runtime.closed:
            self._runtime.ticket_server.halt()
        with self.queue.hold():
            while not self.queue.wait(timeout=SAMPLE_PERIOD_S):
                # A worker that had begun one may wait for a lost server only now.
                self.failures.servers.interrupt()
                self.queue.discard_queued()
