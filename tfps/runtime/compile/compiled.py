"""Compiles a program for a job: functions for every server, and a closure for workers."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.bridge.closures.closure_error import is_task_failure, is_unparsed_request_error
from tfps.bridge.variables.shards import get_all_shards
from tfps.optimizers.server_update import ServerUpdate
from tfps.runtime.compile.regimes import REGIMES
from tfps.runtime.coordinator.runtime import Runtime
from tfps.runtime.coordinator.worker_error import shorten_message
from tfps.runtime.program.program import Program
from tfps.runtime.server.fit_half import FitHalf
from tfps.runtime.worker.closure_run import BatchSource
from tfps.transport.carrier import Carrier


class CompiledProgram:
    """A compiled program: its server functions, its closure for workers, its source of batches.

    Args:
        source: the source of batches.

    Attributes:
        traced: the traced closures, by the carrier of their requests.
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
        if program.schedule.local is not None:
            runtime.local_slots.register(program.schedule.local.slots)
        half = REGIMES[program.schedule.regime]
        self._functions = {
            carrier: half.loop(half.fit_step, self.servers, carrier=carrier).compile(source)
            for carrier in dict.fromkeys(self._carriers)
        }
        self.traced: dict[Carrier, Any] = {}
        self.workers_with_run: set[int] = set()  # workers that have run the closure to its end

    @property
    def is_current(self) -> bool:
        """Whether the program's variables are still stored where they were during the trace."""
        pairs = zip(get_all_shards(self.program.variables), self._value_refs, strict=True)
        return all(shard._value is place() for shard, place in pairs)

    def trace(self, *arguments: Any) -> None:
        """Trace the closure; call it on the main thread, which has Keras's state."""
        before = dict(self.traced)
        for carrier, function in self._functions.items():
            self.traced[carrier] = function.get_concrete_function(*arguments)
        if self.traced != before:
            self.workers_with_run.clear()

    def run(self, coordinator: Any, worker: int, *arguments: Any) -> Any:
        """Run the traced closure on this thread's worker; cancelled when another closure fails."""
        concrete = self.traced[self._carriers[worker]]
        self._tables.prepare(worker, concrete)
        try:
            return private.make_cancelable(coordinator, concrete)(*arguments)
        except tf.errors.OpError as error:
            if not is_task_failure(error) and not is_unparsed_request_error(error):
                graphs = [concrete.graph, *self.source.input_graphs]
                shorten_message(error, graphs, place=f"on worker {worker}")
            raise
