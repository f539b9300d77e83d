"""One ticket run: a training epoch or an evaluation, from the first ticket to the last."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tfps.consistency.shard_book import ShardBook
from tfps.errors import CheckpointError
from tfps.runtime.compile.compiled import CompiledProgram
from tfps.runtime.coordinator.runtime import Runtime
from tfps.runtime.worker.closure_run import make_closure_control
from tfps.training.input.one_batch import OneBatch
from tfps.training.run.dispatch import Dispatch
from tfps.training.run.mirrored_home import bring_home
from tfps.training.run.run_closure import RunClosure, seed_states
from tfps.training.run.run_progress import RunProgress


class TicketRun(RunProgress):
    """Lets workers take the tickets of one program until none are left.

    Args:
        compiled: the program, compiled for servers and workers.
        runtime: the job.
        coordinator: schedules the closures, one per worker.
        arguments: of the batch source, for this run.
        tickets: how many steps, or None for as many as the input has.

    Attributes:
        metrics_before: the state of each metric of the program before the first step.
    """

    def __init__(
        self,
        compiled: CompiledProgram,
        *,
        runtime: Runtime,
        coordinator: Any,
        arguments: Any,
        tickets: int | None,
    ) -> None:
        seeds = seed_states(compiled.program)
        self.metrics_before = [
            np.asarray(v._value.numpy(), np.float64) for v in compiled.program.metrics
        ]
        metrics = compiled.program.totals.create_first_total(self.metrics_before)
        specs = compiled.source.get_argument_specs(arguments)
        compiled.trace(make_closure_control(0, 0, 0, 0), tf.constant(seeds, tf.int64), specs)
        server = runtime.ticket_server
        while True:
            starts = server.starts
            cells, *_ = compiled.servers[0].read_report(reset_to=metrics)
            first = server.open_tickets(0)
            if server.starts == starts:
                break  # else it has the totals of the run before again
        super().__init__(
            compiled, runtime=runtime, tickets=tickets, cells=cells, metrics=metrics, first=first
        )
        self.in_rounds = compiled.program.schedule.in_rounds  # also in a warm-up
        self.resumed: Callable[[], None] = lambda: None  # called before it goes on after another
        self._on_sample: Callable[[int], None] = lambda _: None
        self._requested_steps: int | None = None  # the steps that workers may take tickets for
        self._failure: Exception | None = None  # that another thread met when it drained the run
        self._interrupted = False
        closure = RunClosure(
            self, runtime=runtime, coordinator=coordinator, arguments=arguments, seeds=seeds
        )
        self.release_input = closure.release_input  # called when it has ended
        self.dispatch = Dispatch(
            closure, progress=self, runtime=runtime, coordinator=coordinator, starts=starts
        )

    @property
    def changes_variables(self) -> bool:
        """Whether its steps change variables."""
        return self.compiled.program.changes_variables

    @property
    def is_of_one_batch(self) -> bool:
        """Whether the run has only the single step of `train_on_batch`."""
        return isinstance(self.compiled.source, OneBatch)

    @property
    def is_repeatable(self) -> bool:
        """Whether workers can draw the batch of a ticket once more."""
        return not (self.is_of_one_batch or self.compiled.source.is_per_worker)

    def run_to(self, steps: int | None) -> None:
        """Issue tickets up to a number of steps of this run; None: all."""
        self._requested_steps = steps
        if self._interrupted:
            self._resume()
            self.resumed()
        limit = self._end if steps is None else min(self._end, self.first + self._periods(steps))
        is_new, self._limit = limit != self._limit, limit
        if not self.running:
            self._schedule_closures()
        elif is_new and not self._recalled:
            self._runtime.ticket_server.set_limit(limit)

    def _schedule_closures(self) -> None:
        """Schedule a closure per worker; each ends when it finds no ticket."""
        self.running = True
        self.dispatch.prepare()
        self._runtime.ticket_server.set_limit(self._limit)
        self.dispatch.schedule(self._runtime.workers)

    def wait_for(
        self,
        steps: int,
        *,
        on_sample: Callable[[int], None],
        wait: Callable[[float], None] | None = None,
    ) -> bool:
        """Sample until `steps` are done; return False if the run ended before.

        Args:
            steps: of this run.
            on_sample: called with the steps that are done, after each sample.
            wait: called with the seconds until the next sample; it may let another thread drain
                the run, which goes on afterwards. None: no other thread can.

        Raises:
            Exception: what a closure raised, from the coordinator.
        """
        self._on_sample, goes_on = on_sample, False
        while self.completed < steps:
            due_s = self.sampled_s + self.rate.period_s(steps - self.completed)
            # After another thread has drained it, it takes some steps before it is drained again.
            pause = self.dispatch.queue.wait_until_idle if wait is None or goes_on else wait
            pause(max(0.0, due_s - time.monotonic()))
            if self._failure is not None:
                raise self._failure
            goes_on = not self.running
            if goes_on:
                self._runtime.refuse_if_closed()
                self.run_to(self._requested_steps)
                continue
            self.dispatch.check()
            self.sample()
            on_sample(self.completed)
            if self.dispatch.ended and self.completed < steps:
                if self._recalled or self.dispatch.has_lost_tickets:
                    self._recalled = False
                    self._schedule_closures()
                elif workers_without_closure := self._count_further_closures(steps):
                    self.dispatch.schedule(workers_without_closure)
                else:  # the end of data of unknown length
                    self.traffic.sample(self.completed, now_s=self.sampled_s, is_last=True)
                    return False
            elif self.dispatch.failures.is_reconnecting and not self._recalled:
                # TensorFlow takes a worker in only when no closure runs: end them for a moment.
                self._recalled = True
                self._runtime.ticket_server.halt()
        return True

    def _count_further_closures(self, steps: int) -> int:
        """Return how many closures to schedule for data that no worker has requested.

        The coordinator does not say which worker takes a closure: while one still builds its
        pipeline, another can take both, and the second finds its own data used up.
        """
        source, dispatch = self.compiled.source, self.dispatch
        if source.shard_leases is not None:
            return (
                max(1, len(dispatch.present_workers))
                if self._has_more_batches(source.shard_leases, steps)
                else 0
            )
        return len(dispatch.workers_without_closure) if source.is_per_worker else 0

    def _has_more_batches(self, shards: ShardBook, steps: int) -> bool:
        """Return whether there are still batches, and tickets for them."""
        if shards.exhausted:
            return self._has_returned_batch()
        layout = self._runtime.ticket_server.layout
        if self.cells[layout.RETURNED] or self.cells[layout.NEXT] < self._limit:
            return True
        if self._limit < self._end:  # periods were cut short where a shard ends
            self._limit = min(self._end, self._limit + self._periods(steps - self.completed))
            self._runtime.ticket_server.set_limit(self._limit)
            return True
        return False

    def _has_returned_batch(self) -> bool:
        """Return whether a ticket came back that surely has a batch.

        Once all shards are used up, withdraw those without one: they would be drawn before it.
        """
        shards, layout = self.compiled.source.shard_leases, self._runtime.ticket_server.layout
        if shards is None:
            return False
        returned = {int(self.cells[layout.returned(k)]) for k in range(self.cells[layout.RETURNED])}
        steps = self.compiled.program.schedule.period_steps
        placed = {t for t in returned if shards.has_place((t - self.first) * steps)}
        if placed and shards.exhausted:
            for ticket in returned - placed:
                self._runtime.ticket_server.withdraw_ticket(ticket)
        return bool(placed)

    def drain(self) -> None:
        """Hand out no more tickets and wait until every worker has left.

        All weights are of one version then, and no older than the steps that the chief has read. A
        worker that hangs is not waited for once the servers have removed it.

        Raises:
            CheckpointError: steps had to be repeated, and the input did not have their batches; or
                all workers were lost that had the weights of `AllReduce`.
        """
        self.dispatch.failures.servers.wait_for_return()
        while True:
            if self.running and not self.dispatch.ended:
                cause: BaseException | None = None
                self._runtime.ticket_server.halt()
                try:
                    self.dispatch.join()
                except BaseException as error:
                    cause = error
                    self._failure = error if isinstance(error, Exception) else self._failure
                    raise
                finally:
                    self.running = self._recalled = False
                    self._bring_home(cause)
                self.sample()
            self.running = self._recalled = False
            if self._runtime.members.equalize_counts():
                self.sample()
            if not self.has_steps_to_repeat:
                return
            self._repeat_lost_steps()

    def _repeat_lost_steps(self) -> None:
        """Repeat the steps that the chief has already seen completed."""
        self._limit = min(self._end, self.first + self._periods(self.known_completed))
        self._on_sample(self.completed)
        self._schedule_closures()
        if not self.wait_for(self.known_completed, on_sample=self._on_sample):
            raise CheckpointError(
                f"input: received batches for {self.completed} steps in the repetition after the "
                "loss of a parameter server, expected the same batches again for all "
                f"{self.known_completed} completed steps"
            )

    def finish_rounds(self, round_up: Callable[[int], int]) -> None:
        """Let workers end the steps that they have begun, up to the end of a round, and drain.

        Args:
            round_up: returns the number of steps at which the round of a step ends.
        """
        if self.running:
            period_steps = self.compiled.program.schedule.period_steps
            server, together = self._runtime.ticket_server, round_up(1) // period_steps
            self._limit = server.end_rounds(self.first, together=together)
            self._requested_steps = (self._limit - self.first) * period_steps
            self.wait_for(self._requested_steps, on_sample=self._on_sample)
        self.drain()
        self.apply_returned_tickets()

    def drain_for_another_run(self) -> None:
        """Drain for another run; the next `run_to` continues where this run has stopped."""
        self.drain()
        self.apply_returned_tickets()
        self._interrupted = True

    def apply_returned_tickets(self) -> None:
        """Let workers apply the tickets that lost workers held, after the run was drained.

        All steps before the next ticket are applied then, each once.
        """
        layout, before = self._runtime.ticket_server.layout, -1
        # Those that lost workers held; what lies behind the end of the data comes back each time.
        while self.cells[layout.RETURNED] and (
            self.completed > before or self._has_returned_batch()
        ):
            before, self.running = self.completed, True
            self.dispatch.schedule(self._runtime.workers)
            self.drain()

    def _resume(self) -> None:
        """Renumber the remaining tickets after the tickets of the run in between."""
        self._interrupted = False
        server = self._runtime.ticket_server
        cells = server.cells()
        taken = server.open_tickets(0) - int(self.cells[server.layout.NEXT])
        self.first, self._end, self._limit = self.first + taken, self._end + taken, self.first
        self._completed_before += int(
            cells[server.layout.COMPLETED] - self.cells[server.layout.COMPLETED]
        )

    def give_up(self, cause: BaseException) -> None:
        """End the run for good after an error, and cancel closures that have not begun."""
        try:
            self.dispatch.give_up()
        finally:
            self.running = self._recalled = False
            self._bring_home(cause)

    def _bring_home(self, cause: BaseException | None) -> None:
        mirrored, halves = self.compiled.program.schedule.mirrored, self.compiled.servers
        if mirrored is not None:
            with contextlib.suppress(tf.errors.OpError):  # of a lost server, which others report
                bring_home(mirrored, runtime=self._runtime, halves=halves, cause=cause)
