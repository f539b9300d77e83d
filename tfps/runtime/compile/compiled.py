"""Compiles a program for a job: functions for every server, and a closure for workers."""

from __future__ import annotations

import contextlib
import logging
import weakref
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.bridge.closures.closure_error import is_task_failure, is_unparsed_request_error
from tfps.bridge.functions.chief_constant import chief_constant
from tfps.bridge.variables.shards import get_all_shards
from tfps.optimizers.server_update import ServerUpdate
from tfps.runtime.compile.regimes import REGIMES
from tfps.runtime.coordinator.runtime import Runtime
from tfps.runtime.coordinator.worker_error import shorten_message
from tfps.runtime.program.program import Program
from tfps.runtime.server.fit_half import FitHalf
from tfps.runtime.worker.closure_run import BatchSource
from tfps.runtime.worker.executor_choice import ExecutorChoice
from tfps.runtime.worker.mirrored_copies import UPDATES_NAME
from tfps.transport.carrier import Carrier

ONE_THREAD = "SINGLE_THREADED_EXECUTOR"
REFUSAL = "Single-threaded executor does not support"

logger = logging.getLogger(__name__)


class OneThreadRefusal(Exception):
    """TensorFlow refused to run a closure on one thread; the next run has a thread pool."""


class CompiledProgram:
    """A compiled program: its server functions, its closure for workers, its source of batches.

    Args:
        source: the source of batches.

    Attributes:
        traced: the traced closures, by the carrier of their requests.
        executors: the executors that run them.
    """

    def __init__(
        self,
        program: Program,
        *,
        runtime: Runtime,
        source: BatchSource,
        get_update: Callable[[Any], ServerUpdate],
    ) -> None:
        self.program, self.source = program, source
        self._tables = runtime.function_tables
        self._value_refs = [
            weakref.ref(shard._value) for shard in get_all_shards(program.variables)
        ]
        self.servers = [
            FitHalf(program, runtime=runtime, server=server, get_update=get_update)
            for server in runtime.servers
        ]
        self._carriers = [
            runtime.data_plane.get_carrier(worker) for worker in range(runtime.workers)
        ]
        runtime.local_slots.register(program.schedule.worker_slots)
        self._mirrored = program.schedule.mirrored
        self._find_peers: Callable[[int], str] = lambda worker: runtime.data_plane.find_peers(
            worker, addresses=runtime.worker_addresses
        )
        if self._mirrored is not None:
            runtime.local_slots.register(self._mirrored.weights)
            runtime.local_slots.register_name(UPDATES_NAME)
        half = REGIMES[program.schedule.regime]
        self._functions = {
            carrier: half.loop(half.fit_step, self.servers, carrier=carrier).compile(source)
            for carrier in dict.fromkeys(self._carriers)
        }
        self.traced: dict[Carrier, Any] = {}
        self.executors: dict[Carrier, ExecutorChoice] = {}
        self._executor_names = runtime.executors
        self.workers_with_run: set[int] = set()  # workers that have run the closure to its end

    @property
    def is_current(self) -> bool:
        """Whether the program's variables are still stored where they were during the trace."""
        pairs = zip(get_all_shards(self.program.variables), self._value_refs, strict=True)
        return all(shard._value is place() for shard, place in pairs)

    def trace(self, *arguments: Any) -> None:
        """Trace the closure; call it on the main thread, which has Keras's state."""
        if self._mirrored is not None:
            *others, own = arguments
            arguments = (*others, (tf.TensorSpec([], tf.string), own))
        before = dict(self.traced)
        for carrier, function in self._functions.items():
            self.traced[carrier] = function.get_concrete_function(*arguments)
        if self.traced != before:
            self.workers_with_run.clear()
            for carrier, concrete in self.traced.items():
                kept = private.get_kept_with_graph(concrete.graph)
                (choice,) = (each for each in kept if isinstance(each, ExecutorChoice))
                self._set_executor(carrier, choice)

    def run(self, coordinator: Any, worker: int, *arguments: Any) -> Any:
        """Run the traced closure on this thread's worker; cancelled when another closure fails.

        Raises:
            OneThreadRefusal: the worker may have joined, and has to join again.
        """
        carrier, given = self._carriers[worker], arguments
        concrete, choice = self.traced[carrier], self.executors[carrier]
        if self._mirrored is not None:
            *others, own = arguments
            peers = chief_constant(self._find_peers(worker), tf.string)
            given = (*others, (peers, own))
        self._tables.prepare(worker, concrete)
        one_thread = tf.experimental.function_executor_type(ONE_THREAD)
        try:
            with one_thread if choice.is_one_thread else contextlib.nullcontext():
                return private.make_cancelable(coordinator, concrete)(*given)
        except tf.errors.OpError as error:
            if choice.is_one_thread and REFUSAL in error.message:  # maybe of the loop's body only
                reason = next(line for line in error.message.splitlines() if REFUSAL in line)
                self._set_executor(carrier, ExecutorChoice(is_one_thread=False, reason=reason))
                raise OneThreadRefusal from error
            if not is_task_failure(error) and not is_unparsed_request_error(error):
                graphs = [concrete.graph, *self.source.input_graphs]
                place = f"on worker {worker}"
                shorten_message(error, graphs, place=place, is_named=not choice.is_one_thread)
            raise

    def _set_executor(self, carrier: Carrier, choice: ExecutorChoice) -> None:
        if self.executors.get(carrier) != choice:
            logger.info("workers run the step %s on %s", self.program.name, choice)
        self.executors[carrier] = choice
        kind, _, _ = self.program.name.rpartition("_")
        self._executor_names[kind] = "; ".join(dict.fromkeys(map(str, self.executors.values())))
