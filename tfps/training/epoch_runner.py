"""`model.train_function` and `model.test_function`: start a run, follow it, take its results."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.bridge.method_scope import count_thread_write
from tfps.consistency.local_steps import LocalSteps
from tfps.consistency.modes import whole_rounds
from tfps.runtime.coordinator.worker_error import shorten_message
from tfps.training.batch_hooks import BatchHooks
from tfps.training.fit_strategy import FitStrategy
from tfps.training.input.arrays import ResidentArrays
from tfps.training.input.epoch_iterator import EpochProgress, TicketRunRequest
from tfps.training.input.one_batch import OneBatch
from tfps.training.run.run_closure import advance_seeds, seeds_after_steps
from tfps.training.run.ticket_run import TicketRun
from tfps.training.step_compiler import StepCompiler, keras_step, stack_lists
from tfps.training.stop_request import StopRequested
from tfps.training.trainable_flags import TrainableFlags


class EpochRunner:
    """Runs one kind of a model's steps on the workers, and lets Keras's loop follow.

    Keras calls it once per execution, each time asking for some more steps. Workers do not wait
    for that: they take tickets until the epoch's end, and a call returns when its steps are done.
    Where `hooks` says so they wait: in lock-step each call hands out its own tickets only.

    Args:
        model: of this strategy.
        strategy: ours.
        step: ``"train"``, ``"test"`` or ``"predict"``.
    """

    def __init__(self, model: Any, *, strategy: FitStrategy, step: str) -> None:
        self._model, self._strategy, self._kind = model, strategy, step
        self._state = strategy.run_state
        self._flags = TrainableFlags(model, warns=step == "train")
        self.hooks = BatchHooks()
        self.compiler = StepCompiler(model, strategy=strategy, kind=step)
        self._run: TicketRun | None = None
        self._request: TicketRunRequest | None = None
        self._logs: dict[str, Any] = {}
        self._taken_samples = 0  # of the run, that the model's metrics have taken over
        self._outer_run: tuple[Any, Any] = (None, None)  # the run that this one interrupts
        self._thread = threading.get_ident()  # that the run belongs to
        self._done_steps = 0  # of this request, before the run
        self._has_computed_results = False  # whether the results of metrics were computed before

    def __call__(self, request_or_batches: Any) -> Any:
        request = request_or_batches
        if not isinstance(
            request_or_batches, TicketRunRequest
        ):  # `train_on_batch` hands over a generator
            request = TicketRunRequest.for_one_step(OneBatch(next(iter(request_or_batches))))
        if request.tickets == 0:
            raise StopIteration  # an empty input is no mistake to Keras
        if request is not self._request and 0 < request.progress.steps == request.tickets:
            return dict(self._model.get_metrics_result())  # all steps are of an earlier process
        return self._follow(request)

    def _follow(self, request: TicketRunRequest) -> Any:
        """Wait until the steps of a request are done, and return their logs."""
        self._strategy.runtime.followed.refresh()
        if request is not self._request:
            with self._flags.apply_first_flags():
                self._start(request)
        elif self._run is None:
            raise StopIteration  # the data ended within the call before
        run = self._run
        assert run is not None
        try:
            asked_steps, must_wait, reached = self._wait_for_call(request, run)
        except BaseException as error:
            self._abandon(run, error)
            raise
        if must_wait:
            run.drain()
        if not reached and run.completed <= asked_steps - self._steps_per_call():
            self.finish_epoch()
            return self._end_without_batch(run)
        if request.is_last or not reached:
            self.finish_epoch()
        else:
            self._update_logs()
        return self._logs

    def _wait_for_call(self, request: TicketRunRequest, run: TicketRun) -> tuple[int, bool, bool]:
        """Wait until the steps of a call are done, and save where a signal asks for it.

        Returns:
            The steps of the run that the call asks for, whether workers are to wait after them,
            and whether they were reached.
        """
        while True:
            try:
                return self._wait_for_steps(request, run)
            except StopRequested:
                run.finish_rounds(self._round_up)
                asked_steps = max(0, request.upto_steps - self._done_steps)
                # The process that goes on calls no hook of a step that is done.
                if run.completed >= asked_steps and self._state.stop_request.waits_for_hooks:
                    return asked_steps, False, True
                self._state.stop_request.save_and_end()

    def _wait_for_steps(self, request: TicketRunRequest, run: TicketRun) -> tuple[int, bool, bool]:
        self._state.stop_request.check()
        # With `stop_training` set before the epoch, Keras still runs one execution: no more.
        stops = self._kind == "train" and self._model.stop_training
        asked_steps = max(0, request.upto_steps - self._done_steps)
        stop = self.hooks.next_stop(request.upto_steps, steps_per_call=self._steps_per_call())
        must_wait = stop is not None and request.upto_steps >= stop
        rest = None if stop is None else max(0, stop - self._done_steps)
        limit = None if rest is None else self._round_up(rest)
        run.run_to(asked_steps if stops and not must_wait else limit)
        self._state.run, self._state.epoch_runner = run, self
        self._state.rates[self._kind] = run.rate
        if run.changes_variables:
            self._state.traffic = run.traffic
            self._state.staleness_before = run.staleness_before
        if isinstance(request.source, ResidentArrays):
            request.source.orders.draw_ahead()  # while the workers compute
        steps = limit if must_wait and limit else asked_steps
        reached = run.wait_for(steps, on_sample=self._show_progress, wait=self._wait)
        reached = reached or run.completed >= asked_steps
        if not reached and request.source.failure is not None:
            source = request.source
            shorten_message(
                source.failure, source.input_graphs, place="in the input, on the chief,"
            )
            raise source.failure from None
        return asked_steps, must_wait, reached

    def _round_up(self, steps: int) -> int:
        """Return the number of steps at which the round of a step ends."""
        strategy = self._strategy
        return whole_rounds(steps, strategy.consistency, alive=strategy.alive_workers)

    def _end_without_batch(self, run: TicketRun) -> dict[str, Any]:
        """Raise StopIteration; but return results if the data end where the epoch goes on."""
        if self._done_steps and not run.completed:
            return dict(self._model.get_metrics_result())
        raise StopIteration

    @property
    def is_of_this_thread(self) -> bool:
        """Whether the run was started by this thread."""
        return self._thread == threading.get_ident()

    @property
    def outer_run(self) -> tuple[TicketRun | None, Any]:
        """The run that this one interrupts, and its runner."""
        return self._outer_run

    def read_progress(self, request: TicketRunRequest) -> EpochProgress:
        """Return how far the epoch of a request has come, when its run is drained.

        Tickets that lost workers held are applied before.
        """
        run = self._run
        if run is None or self._request is not request:
            return request.progress
        if self._state.run is run:
            run.apply_returned_tickets()
        return self._make_progress(run)

    def _make_progress(self, run: TicketRun) -> EpochProgress:
        program = run.compiled.program
        values = program.totals.compute_values(run.metrics, run.metrics_before)
        seeds = seeds_after_steps(program, steps=run.completed, totals=run.metrics)
        return EpochProgress(
            self._done_steps + run.completed,
            metrics=list(zip(program.metrics, values, strict=True)),
            seeds=list(zip(program.seeds, seeds, strict=True)),
        )

    def has_started(self, request: TicketRunRequest | None) -> bool:
        """Return whether `request` is the one that started the latest run."""
        return request is not None and self._request is request

    def finish_epoch(self, *, is_whole: bool = True) -> None:
        """Stop the run, wait for every worker, and take its exact results.

        Args:
            is_whole: the loop has ended as it should; else an error has ended it.
        """
        run, self._run = self._run, None
        if run is None:
            return
        try:
            run.drain()
            if self._request is not None:
                self._request.progress = self._make_progress(run)
            if self._state.recovery is not None:
                self._state.recovery.end_run(run, is_whole=is_whole)
        finally:
            self._restore_outer_run()
            self._state.keep_ended_run(run, model=self._model)
            # Not when Python's collector comes: it does not know the memory of workers.
            run.release_input()
            if self._request is not None:
                self._request.data_pass = None
        self._take_final_results(run)

    def give_up(self, error: BaseException) -> None:
        """Abandon the run after an error in Keras's loop, such as in a user's hook."""
        if self._run is not None:
            self._abandon(self._run, error)

    def _restore_outer_run(self) -> None:
        self._state.run, self._state.epoch_runner = self._outer_run
        self._outer_run = (None, None)

    def _steps_per_call(self) -> int:
        return int(self._model.steps_per_execution)

    def _abandon(self, run: TicketRun, error: BaseException) -> None:
        """Stop following the run after an error; its workers stop at their next ticket."""
        self._run = self._request = None
        self._restore_outer_run()
        if self._state.recovery is not None:
            self._state.recovery.abandon_run()
        with contextlib.suppress(tf.errors.OpError):  # the first error is the one to report
            # Mirrored weights are brought home when all closures have ended.
            if isinstance(error, KeyboardInterrupt) or run.compiled.program.schedule.mirrored:
                run.give_up(error)
            else:
                run.dispatch.halt()

    def _start(self, request: TicketRunRequest) -> None:
        self.finish_epoch()
        self._outer_run = (self._state.run, self._state.epoch_runner)
        self._thread = threading.get_ident()
        if self._state.run is not None:  # a hook of its loop evaluates or trains
            self._state.run.drain_for_another_run()
        self._state.watch_tasks(self._strategy.coordinator)
        self._strategy.runtime.collect()
        self._logs, self._request = {}, request
        self._done_steps = request.progress.steps
        if self._should_warm_up(request):
            self._warm_up(request)
        tickets = request.tickets
        self._run = self._new_run(
            request, tickets=None if tickets is None else tickets - self._done_steps
        )
        if self._outer_run[0] is not None and self._run.changes_variables:
            count_thread_write()
        # A thread that refills a lost server writes this run's totals from here on, not the last's.
        self._state.run, self._state.epoch_runner = self._run, self
        if self._state.recovery is not None:
            self._state.recovery.begin_run(self._run)

    def _should_warm_up(self, request: TicketRunRequest) -> bool:
        """Return whether to warm up: at the start of a job, unless a checkpoint was restored."""
        strategy = self._strategy
        return (
            self._kind == "train"
            and strategy.consistency.warm_up_steps > 0
            and not isinstance(request.source, OneBatch)
            and int(self._model.optimizer.iterations.numpy()) == 0
            and not any(strategy.stats().versions)
        )

    def _warm_up(self, request: TicketRunRequest) -> None:
        """Run the first steps, each worker on its own copy; see `tfps.consistency.warm_up`."""
        steps = self._strategy.consistency.warm_up_steps
        tickets = steps * max(1, sum(self._strategy.alive_workers()))
        if request.tickets is not None:
            tickets = min(tickets, request.tickets)
        warm_up_mode = LocalSteps(steps, synchronous_periods=True)
        run = self._new_run(request, tickets=tickets, warm_up_mode=warm_up_mode)
        try:
            self._state.run, self._state.epoch_runner = run, self
            run.run_to(None)
            run.wait_for(tickets, on_sample=self._show_progress)
            run.drain()
            request.progress = self._make_progress(run)
        except BaseException as error:
            self._abandon(run, error)
            raise
        run.release_input()
        self._state.run, self._state.epoch_runner = self._outer_run
        self._state.keep_ended_run(run, model=self._model)
        self._take_final_results(run)
        self._done_steps = run.completed
        self._strategy.runtime.local_slots.free()  # the optimizer begins as new
        if self._state.recovery is not None:
            self._state.recovery.save_after_warm_up(run.completed)

    def _wait(self, seconds: float) -> None:
        """Wait until no closure runs, and let another thread use the workers meanwhile."""
        self._state.stop_request.check()
        strategy, run = self._strategy, self._run
        with strategy.runtime.turn.lend(lambda: self._state.run is run):
            private.get_closure_queue(strategy.coordinator).wait_until_idle(seconds)

    def _show_progress(self, completed: int) -> None:
        """Show the steps that are done on the progress line, also within an execution."""
        progress, request = self._state.progress, self._request
        if progress is None or request is None:
            return
        self.compiler.is_new = self.compiler.is_new and not completed
        if progress.kind == "train" and self._kind == "test":
            total = f"/{request.tickets}" if request.tickets else " steps"
            progress.show(progress.target or 0, f"validation: {completed}{total}")
        else:
            copies = isinstance(request.source, ResidentArrays)
            note = "" if self._run is None else self._run.repeat_note
            if self.compiler.is_new:
                note = "copying the data to every worker" if copies else "starting the workers"
            progress.show(self._done_steps + completed, note)

    def _new_run(
        self,
        request: TicketRunRequest,
        *,
        tickets: int | None,
        warm_up_mode: LocalSteps | None = None,
    ) -> TicketRun:
        compiled = self.compiler.compile(
            request.source, step=self._step(), hooks=self.hooks, warm_up_mode=warm_up_mode
        )
        for update in self._strategy.updates.get_program_updates(compiled.program):
            update.refresh_mirrors()
        self._taken_samples = 0
        offset = request.offset_steps + self._done_steps
        with self.compiler.compiling():
            return TicketRun(
                compiled,
                runtime=self._strategy.runtime,
                coordinator=self._strategy.coordinator,
                arguments=request.source.make_arguments(request.data_pass, offset),
                tickets=tickets,
            )

    def _step(self) -> Callable[[Any], Any]:
        if self._request is None or not isinstance(self._request.source, OneBatch):
            return keras_step(self._model, self._kind, stacks=True)
        step = keras_step(self._model, self._kind)
        return lambda batch: step((*batch, None, None)[:3])  # all three, as in Keras

    def _update_logs(self) -> None:
        """Write metric totals into the model, and update the logs that Keras shows."""
        run = self._run
        # One sample may serve many calls; its values are written once.
        if run is None or run.samples == self._taken_samples:
            return
        self._taken_samples = run.samples
        self._write_results(run)

    def _take_final_results(self, run: TicketRun) -> None:
        self._write_results(run)
        advance_seeds(run.compiled.program, steps=run.completed, totals=run.metrics)

    def _write_metrics(self, run: TicketRun) -> None:
        program = run.compiled.program
        values = program.totals.compute_values(run.metrics, run.metrics_before)
        for variable, value in zip(program.metrics, values, strict=True):
            variable._value.assign(value.astype(variable._dtype))

    def _write_results(self, run: TicketRun) -> None:
        self._write_metrics(run)
        if run.completed:
            self._logs.clear()
            if not self._has_computed_results:
                # Keras asks for them after the epoch, and what is new to TensorFlow then would wait
                # for a worker that hangs by that time.
                self._model.get_metrics_result()
                self._has_computed_results = True
            chief = self._strategy.runtime.topology.chief
            program = run.compiled.program
            logs = program.compute_logs(self._model, run.outputs, run.serialized, chief=chief)
            if not run.is_of_one_batch:
                logs = stack_lists(logs, model=self._model.name, kind=self._kind)
            self._logs.update(logs)
