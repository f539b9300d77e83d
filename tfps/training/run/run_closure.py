"""Run the closure of a ticket run, in which a worker takes tickets until none are left."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.bridge.closures.closure_error import LOST_SERVER
from tfps.bridge.functions.chief_constant import chief_constant, copy_to_chief
from tfps.consistency.ledger import Status
from tfps.runtime.compile.compiled import CompiledProgram, OneThreadRefusal
from tfps.runtime.coordinator.runtime import Runtime
from tfps.runtime.coordinator.worker_error import read_servers_error
from tfps.runtime.program.program import Program
from tfps.runtime.worker.closure_run import make_closure_control
from tfps.runtime.worker.mirrored_copies import NO_OWNER
from tfps.training.run.mirrored_home import make_lost_error
from tfps.training.run.run_progress import RunProgress

logger = logging.getLogger(__name__)

# A connection that breaks while its server lives is rare; one that breaks each time has a reason.
MAX_ATTEMPTS = 5
RECONNECT_AFTER_S = 0.2

Array = np.ndarray[Any, Any]


class Invitations:
    """Makes the servers' rounds wait for workers that are about to join.

    Each worker that is sent out takes one invitation. The coordinator does not say which worker
    takes a closure: where one takes another's, an invitation is left over that no worker would
    answer; so it is cancelled.

    Args:
        runtime: tells the servers.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime, self._lock = runtime, threading.Lock()
        self._open: set[int] = set()

    def renew(self, is_alive: Sequence[bool]) -> None:
        """Invite the workers that are alive: those whose item of ``is_alive`` is True."""
        with self._lock:
            self._open = {worker for worker, alive in enumerate(is_alive) if alive}
            self._runtime.members.expect(is_alive)

    def cancel(self, workers: frozenset[int]) -> None:
        """Cancel the invitations of workers that hang: they get no closure."""
        with self._lock:
            for worker in self._open & workers:
                self._open.remove(worker)
                self._runtime.members.cancel_expected(worker)

    def take(self, worker: int) -> None:
        """Use up the invitation of a worker that has begun its closure and joins now."""
        with self._lock:
            if worker in self._open:
                self._open.remove(worker)
            elif self._open:
                self._runtime.members.cancel_expected(self._open.pop())


class RunClosure:
    """Runs steps on any worker; connects again after a connection to a living server broke.

    Args:
        progress: knows the run's program, its first ticket, and how many steps it has.
        runtime: the job.
        coordinator: schedules the closures.
        arguments: of the batch source.
        seeds: int64 [generators, 2], the seed generators' states at the first ticket.

    Attributes:
        invitations: to the rounds that the run begins with; each call takes one.
        visited: the workers that ran a closure to its end since closures were sent out.
    """

    def __init__(
        self,
        progress: RunProgress,
        *,
        runtime: Runtime,
        coordinator: Any,
        arguments: Any,
        seeds: Array,
    ) -> None:
        self._runtime, self._coordinator, self._seeds = runtime, coordinator, seeds
        self._work: tuple[RunProgress, Any] | None = (progress, arguments)  # None: it has ended
        self._queue = private.get_closure_queue(coordinator)
        self._failures = private.get_failure_handler(coordinator)
        self.invitations = Invitations(runtime)
        self.visited: set[int] = set()

    def release_input(self) -> None:
        """Release the input of a run that has ended, which takes memory of workers."""
        self._work = None

    def __call__(self) -> None:
        """Run the closure on a worker's thread; a lost worker's tickets go back immediately."""
        worker = private.get_worker_index()
        self.invitations.take(worker)
        for attempt in range(1, MAX_ATTEMPTS + 1):
            incarnation = self._runtime.members.next_incarnation(worker)
            work = self._work
            if work is None or self._queue.is_recalled():
                self._runtime.members.cancel_expected(worker)
                return  # only the incarnation before this one may have been evicted with the recall
            try:
                while (is_over := self._run_as(worker, incarnation, *work)) is None:
                    if self._queue.is_recalled() or self._runtime.closed:
                        return
                    incarnation = self._runtime.members.next_incarnation(worker)
                if is_over:
                    if not self._queue.is_recalled():
                        self.visited.add(worker)
                    return
            except BaseException as error:
                if isinstance(error, tf.errors.CancelledError) and not self._runtime.closed:
                    # Evicted at once, it could have its gradient on some servers and not on others.
                    self._runtime.data_plane.cancel(worker, incarnation)
                with contextlib.suppress(tf.errors.OpError):  # a lost server cannot be told
                    self._runtime.members.evict(worker, incarnation)
                raise
            if self._runtime.closed:
                return  # with its connections: this run is over
            # The connection to a server broke. If the server lives, the worker enters anew.
            self._runtime.members.evict(worker, incarnation)
            logger.warning(
                "worker %d lost its connection to a parameter server and reconnects (attempt %d "
                "of %d)",
                worker,
                attempt,
                MAX_ATTEMPTS,
            )
            time.sleep(RECONNECT_AFTER_S * attempt)
        raise tf.errors.UnavailableError(
            None,
            None,
            f"worker {worker} cannot exchange messages with the parameter servers, although they "
            "run. " + self._runtime.data_plane.read_last_failures(),
        )

    def _run_as(
        self, worker: int, incarnation: int, progress: RunProgress, run_arguments: Any
    ) -> bool | None:
        """Run a closure; return whether every server replied to its last message.

        Return None if it has to join again: its group has another member, or has lost one, or it
        runs with another executor.
        """
        compiled = progress.compiled
        known_to, first, steps = compiled.workers_with_run, progress.first, progress.steps
        control = make_closure_control(
            worker, incarnation, first, steps, has_run_before=worker in known_to
        )
        known_to.discard(worker)  # unless it ends well: it may be another process next time
        seeds = _seeds_of_closure_run(compiled, self._seeds, workers=self._runtime.workers)
        arguments = compiled.source.select_arguments(run_arguments, worker)
        try:
            result, *outputs = compiled.run(self._coordinator, worker, control, seeds, arguments)
        except OneThreadRefusal:
            self._runtime.members.evict(worker, incarnation)
            return None
        except tf.errors.InvalidArgumentError as failure:
            if NO_OWNER in failure.message:
                raise make_lost_error(self._runtime.checkpoint_folder) from failure
            raise
        statuses = copy_to_chief(result).numpy()[1:]
        if compiled.program.schedule.mirrored is not None and statuses[0] == Status.EVICTED:
            return None
        if Status.LOST not in statuses:
            known_to.add(worker)
            for each in outputs:
                progress.keep_serialized(copy_to_chief(each).numpy().tolist())
            return True
        if self._failures.servers.is_caused_by_server_loss():
            raise tf.errors.UnavailableError(None, None, LOST_SERVER)  # it runs again
        error = read_servers_error(compiled.servers, self._runtime.data_plane)
        if error is not None:
            raise error
        return False


def seed_states(program: Program) -> Array:
    """Return the states of seed generators at the first ticket, int64 [generators, 2]."""
    states = [np.asarray(v._value.numpy(), np.int64) for v in program.seeds]
    return np.stack(states) if states else np.zeros([0, 2], np.int64)


def _seeds_after_draws(program: Program, seeds: Array, *, steps: int = 0, totals: Array) -> Array:
    """Return the states of seed generators after the draws of some steps.

    Args:
        program: what the step touches.
        seeds: int64 [generators, 2], the states before.
        steps: that all workers have completed, whose draws can be counted.
        totals: of what all steps have reported (see `MetricTotals`).
    """
    states, reported = seeds.copy(), iter(program.totals.read_draws(totals))
    for state, draws in zip(states, program.draws_per_step, strict=True):
        state += next(reported) if draws is None else np.array([0, steps * draws])
    return states


def _seeds_of_closure_run(compiled: CompiledProgram, seeds: Array, *, workers: int) -> tf.Tensor:
    """Return a worker's first seed states; a single worker continues after its own draws.

    Args:
        compiled: the program.
        seeds: int64 [generators, 2], at the first ticket of the run.
        workers: of the cluster.
    """
    if None in compiled.program.draws_per_step and workers == 1:
        _, totals, _ = compiled.servers[0].read_report()
        seeds = _seeds_after_draws(compiled.program, seeds, totals=totals)
    return chief_constant(seeds, tf.int64)


def seeds_after_steps(program: Program, *, steps: int, totals: Array) -> Array:
    """Return the states of seed generators after the draws of all steps of a run."""
    return _seeds_after_draws(program, seed_states(program), steps=steps, totals=totals)


def advance_seeds(program: Program, *, steps: int, totals: Array) -> None:
    """Advance the seed generators past the draws of all steps."""
    for variable, state in zip(
        program.seeds, seeds_after_steps(program, steps=steps, totals=totals), strict=True
    ):
        variable._value.assign(state.astype(variable._dtype))
