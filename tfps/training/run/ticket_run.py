"""One ticket run: a training epoch or an evaluation, from the first ticket to the last."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.consistency.shard_book import ShardBook
from tfps.errors import CheckpointError
from tfps.runtime.compile.compiled import CompiledProgram
from tfps.runtime.coordinator.runtime import Runtime
from tfps.runtime.coordinator.server import UNLIMITED_TICKETS
from tfps.runtime.worker.visit import closure_control
from tfps.training.input.feeder import BatchKeeper, Feeder
from tfps.training.input.one_batch import OneBatch
from tfps.training.report.step_rate import SAMPLE_PERIOD_S, StepRate
from tfps.training.report.traffic_rate import TrafficRate
from tfps.training.run.run_closure import RunClosure
from tfps.training.run.run_progress import RunProgress


class TicketRun(RunProgress):
    """Workers take tickets of one program until none are left.

    Args:
        compiled: the program, compiled for servers and workers.
        runtime: the job.
        coordinator: schedules the closures, one per worker.
        arguments: of the batch source, for this run.
        tickets: how many steps, or None for as many as the input has.
        seeds: int64 [generators, 2], the seed generators' states at the first ticket.
        metrics: float64 [items], the totals of metrics there.
    """

    def __init__(
        self,
        compiled: CompiledProgram,
        *,
        runtime: Runtime,
        coordinator: Any,
        arguments: Any,
        tickets: int | None,
        seeds: np.ndarray[Any, Any],
        metrics: np.ndarray[Any, Any],
    ) -> None:
        self._compiled, self._runtime, self._coordinator = compiled, runtime, coordinator
        self._queue = private.closure_queue(coordinator)
        self.tickets = tickets
        self.in_rounds = compiled.program.schedule.in_rounds  # also in a warm-up
        specs = compiled.source.argument_specs(arguments)
        compiled.trace(closure_control(0, 0, 0, 0), tf.constant(seeds, tf.int64), specs)
        server = runtime.ticket_server
        while True:
            self._starts = server.starts
            cells, *_ = compiled.servers[0].report(reset_to=metrics)
            first = server.open_tickets(0)
            if server.starts == self._starts:
                break  # else it has the totals of the run before again
        self._sent_out_at = self._starts
        self._steps = UNLIMITED_TICKETS if tickets is None else tickets
        super().__init__(
            server.layout,
            program=compiled.program,
            cells=cells,
            metrics=metrics,
            first=first,
            end=first + self._periods(self._steps),
        )
        self.sampled_s = time.monotonic()
        self.rate = StepRate(self.sampled_s)
        self.traffic = TrafficRate(runtime)
        self.resumed: Callable[[], None] = lambda: None  # called before it goes on after another
        self._meanwhile: Callable[[int], None] = lambda _: None
        self._upto: int | None = None  # the steps that workers may take tickets for
        self._failure: Exception | None = None  # that another thread met when it drained the run
        self.samples = 0
        self._ended = False  # whether all closures had, when the latest sample was taken
        self._failures = private.failure_handler(coordinator)
        self._interrupted = False
        self._invited = Invitations(runtime)
        self._closure = RunClosure(
            compiled,
            runtime=runtime,
            coordinator=coordinator,
            arguments=arguments,
            seeds=seeds,
            control=lambda: (self.first, self._steps),
            begins=self._invited.take,
        )

    @property
    def trains(self) -> bool:
        """Whether its steps change variables."""
        return self._compiled.program.trains

    @property
    def is_of_one_batch(self) -> bool:
        """Whether it is the one step of `train_on_batch`."""
        return isinstance(self._compiled.source, OneBatch)

    @property
    def is_repeatable(self) -> bool:
        """Whether workers can draw the batch of a ticket once more."""
        return not (self.is_of_one_batch or self._compiled.source.is_per_worker)

    def run_to(self, steps: int | None) -> None:
        """Let workers take tickets up to a number of steps of this run (None: all)."""
        self._upto = steps
        if self._interrupted:
            self._resume()
            self.resumed()
        limit = self._end if steps is None else min(self._end, self.first + self._periods(steps))
        is_new, self._limit = limit != self._limit, limit
        if not self.running:
            self._send_out()
        elif is_new and not self._recalled:
            self._runtime.ticket_server.set_limit(limit)

    def _periods(self, steps: int) -> int:
        """How many tickets of the servers so many steps are."""
        return -(-steps // self._compiled.program.schedule.period_steps)

    def _send_out(self) -> None:
        """One closure per worker; each ends when it finds no ticket."""
        self.running = True
        self._sent_out_at = self._runtime.ticket_server.starts
        # A server that was started anew may hand out again what had been closed.
        if self._sent_out_at == self._starts:
            self._compiled.source.on_drained()
        if self.in_rounds:
            alive = private.alive_workers(self._coordinator)
            self._runtime.membership.evict_all()  # those of scheduled functions just before
            away = self._queue.barred | self._queue.recalled
            self._invited.renew([there and i not in away for i, there in enumerate(alive)])
        self._runtime.ticket_server.set_limit(self._limit)
        self._schedule(self._runtime.workers)

    def _schedule(self, closures: int) -> None:
        self._ended = False
        for _ in range(closures):
            private.schedule_callable(self._coordinator, self._closure)

    def wait_for(
        self,
        steps: int,
        *,
        meanwhile: Callable[[int], None],
        wait: Callable[[float], None] | None = None,
    ) -> bool:
        """Sample until so many steps are done; False if the run ended before.

        Args:
            steps: of this run.
            meanwhile: called with the steps that are done, after each sample.
            wait: called with the seconds until the next sample; it may let another thread drain
                the run, which goes on afterwards. None: no other thread can.

        Raises:
            Exception: what a closure raised, from the coordinator.
        """
        self._meanwhile, goes_on = meanwhile, False
        while self.completed < steps:
            due_s = self.sampled_s + self.rate.period_s(steps - self.completed)
            # After another thread has drained it, it takes some steps before it is drained again.
            pause = self._queue.wait_until_idle if wait is None or goes_on else wait
            pause(max(0.0, due_s - time.monotonic()))
            if self._failure is not None:
                raise self._failure
            goes_on = not self.running
            if goes_on:
                self._runtime.refuse_if_closed()
                self.run_to(self._upto)
                continue
            self._ended = self._coordinator.done()
            self._invited.cancel(self._queue.barred)
            self.sample()
            meanwhile(self.completed)
            if self._ended and self.completed < steps:
                if self._recalled or self._may_have_forgotten:
                    self._recalled = False
                    self._send_out()
                elif left_out := self._left_out(steps):
                    self._schedule(left_out)
                else:
                    return False
            elif self._failures.connects and not self._recalled:
                # TensorFlow takes a worker in only when no closure runs: end them for a moment.
                self._recalled = True
                self._runtime.ticket_server.halt()
        return True

    @property
    def _may_have_forgotten(self) -> bool:
        """Whether the ticket server was started anew since closures were sent out.

        They may have ended before that, with steps that no sample had seen: those are open again.
        """
        return self._runtime.ticket_server.starts != self._sent_out_at

    def _left_out(self, steps: int) -> int:
        """How many closures shall look for data that nobody has asked for.

        The coordinator does not say which worker takes a closure: while one still builds its
        pipeline, another can take both, and the second finds its own data used up.
        """
        alive = private.alive_workers(self._coordinator)
        away = self._queue.barred | self._queue.recalled
        present = {worker for worker, there in enumerate(alive) if there} - away
        shards = self._compiled.source.shards
        if shards is not None:
            return max(1, len(present)) if self._goes_on(shards, steps) else 0
        return len(present - self._closure.visited) if self._compiled.source.is_per_worker else 0

    def _goes_on(self, shards: ShardBook, steps: int) -> bool:
        """Whether there are batches left, now that no worker found any, and tickets for them."""
        if shards.exhausted:
            return self._has_returned()
        layout = self._runtime.ticket_server.layout
        if self.cells[layout.RETURNED] or self.cells[layout.NEXT] < self._limit:
            return True
        if self._limit < self._end:  # periods were cut short where a shard ends
            self._limit = min(self._end, self._limit + self._periods(steps - self.completed))
            self._runtime.ticket_server.set_limit(self._limit)
            return True
        return False

    def _has_returned(self) -> bool:
        """Whether a ticket came back that surely has a batch.

        Once all shards are used up, those without one go: they would be drawn before it.
        """
        shards, layout = self._compiled.source.shards, self._runtime.ticket_server.layout
        if shards is None:
            return False
        returned = {int(self.cells[layout.returned(k)]) for k in range(self.cells[layout.RETURNED])}
        steps = self._compiled.program.schedule.period_steps
        placed = {t for t in returned if shards.has_place((t - self.first) * steps)}
        if placed and shards.exhausted:
            for ticket in returned - placed:
                self._runtime.ticket_server.withdraw(ticket)
        return bool(placed)

    def sample(self) -> None:
        """Read progress, metric totals and outputs from the ticket server."""
        server = self._runtime.ticket_server
        keeper, layout = self._keeper, server.layout
        while True:
            starts, closed = server.starts, 0 if keeper is None else keeper.closed
            went_back = self._went_back
            report = self._compiled.servers[0].report()
            is_same = (server.starts, server.lost) == (starts, None)
            if is_same and self.take_report(report, went_back=went_back):
                break  # else it goes on from what was seen before
        if keeper is not None:
            keeper.are_seen(closed)
        self.samples += 1
        self.sampled_s = time.monotonic()
        by_worker = [int(self.cells[layout.steps(w)]) for w in range(self._runtime.workers)]
        self.rate.count(self.completed, now_s=self.sampled_s, by_worker=by_worker)
        is_last = self.completed >= self._steps or not self.running
        self.traffic.sample(self.completed, now_s=self.sampled_s, is_last=is_last)

    def hold_from(self, position: int) -> None:
        source: object = self._compiled.source
        if isinstance(source, Feeder):
            source.hold_from(position)

    @property
    def _keeper(self) -> BatchKeeper | None:
        source: object = self._compiled.source
        return source.keeper if isinstance(source, Feeder) else None

    def write_totals(self) -> None:
        """Write the totals of the latest sample to a ticket server that was started anew."""
        if self._keeper is not None:
            self._keeper.on_server_return()
        reports = self._compiled.servers[0].reports
        if reports is not None:
            reports.write(self.metrics, self.outputs)

    def drain(self) -> None:
        """Hand out no more tickets and wait until every worker has left.

        All weights are of one version then, and no older than what anybody has heard of. A worker
        that hangs is not waited for once it was let out on the servers.

        Raises:
            CheckpointError: steps had to be repeated, and the input did not have their batches.
        """
        self._failures.servers.settle()
        while True:
            if self.running and not self._ended:
                self._runtime.ticket_server.halt()
                try:
                    self._coordinator.join()
                except Exception as error:
                    self._failure = error
                    raise
                finally:
                    self.running = self._recalled = False
                self.sample()
            self.running = self._recalled = False
            if self._runtime.equal_counts():
                self.sample()
            if not self.is_behind:
                return
            self._catch_up()

    def _catch_up(self) -> None:
        """Repeat the steps that somebody has heard of, and no others."""
        self._limit = min(self._end, self.first + self._periods(self.known))
        self._meanwhile(self.completed)
        self._send_out()
        if not self.wait_for(self.known, meanwhile=self._meanwhile):
            raise CheckpointError(
                f"{self.known} steps were done before a parameter server was lost, and the input "
                f"had batches for {self.completed} when they were repeated; expected the same "
                "batches again"
            )

    def drain_for_another_run(self) -> None:
        """Drain for another run; the next `run_to` goes on where this one has stopped."""
        self.drain()
        layout, before = self._runtime.ticket_server.layout, -1
        # Those that lost workers held; what lies behind the end of the data comes back each time.
        while self.cells[layout.RETURNED] and (self.completed > before or self._has_returned()):
            before, self.running = self.completed, True
            self._schedule(self._runtime.workers)
            self.drain()
        self._interrupted = True

    def _resume(self) -> None:
        """Number the steps that are left after the tickets that others have taken meanwhile."""
        self._interrupted = False
        server = self._runtime.ticket_server
        cells = server.cells()
        taken = server.open_tickets(0) - int(self.cells[server.layout.NEXT])
        self.first, self._end, self._limit = self.first + taken, self._end + taken, self.first
        self._completed_before += int(
            cells[server.layout.COMPLETED] - self.cells[server.layout.COMPLETED]
        )

    def give_up(self) -> None:
        """End the run for good; no worker need be there to begin what is left of it."""
        self._failures.servers.interrupt()
        if self._runtime.ticket_server.lost is None and not self._runtime.closed:
            self._runtime.ticket_server.halt()
        with self._queue.hold():
            while not self._queue.wait(timeout=SAMPLE_PERIOD_S):
                # A worker that had begun one may wait for a lost server only now.
                self._failures.servers.interrupt()
                self._queue.discard_queued()
        self.running = self._recalled = False


class Invitations:
    """Keeps the servers from completing rounds without workers that are about to join.

    Each worker that is sent out takes one invitation. The coordinator does not say which worker
    takes a closure: where one takes another's, an invitation is left over that no worker would
    answer; so it is cancelled.

    Args:
        runtime: tells the servers.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime, self._lock = runtime, threading.Lock()
        self._open: set[int] = set()

    def renew(self, there: Sequence[bool]) -> None:
        """Invite workers; for each whether it is alive."""
        with self._lock:
            self._open = {worker for worker, alive in enumerate(there) if alive}
            self._runtime.expect(there)

    def cancel(self, workers: frozenset[int]) -> None:
        """Workers that hang get no closure."""
        with self._lock:
            for worker in self._open & workers:
                self._open.remove(worker)
                self._runtime.cancel_expected(worker)

    def take(self, worker: int) -> None:
        """A worker has begun its closure, and joins now."""
        with self._lock:
            if worker in self._open:
                self._open.remove(worker)
            elif self._open:
                self._runtime.cancel_expected(self._open.pop())
