"""A program compiled for a job: its functions on every server and its closure for workers."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.bridge.closures.closure_error import is_task_failure, tells_of_an_unread_request
from tfps.bridge.variables.shards import all_shards
from tfps.optimizers.server_update import ServerUpdate
from tfps.runtime.compile.regimes import REGIMES
from tfps.runtime.coordinator.runtime import Runtime
from tfps.runtime.coordinator.worker_error import explain
from tfps.runtime.program.program import Program
from tfps.runtime.server.fit_half import FitHalf
from tfps.runtime.worker.closure_run import BatchSource


class CompiledProgram:
    """A program's two halves, and the source of its batches.

    Args:
        source: the source of batches.
    """

    def __init__(
        self,
        program: Program,
        *,
        runtime: Runtime,
        source: BatchSource,
        update_of: Callable[[Any], ServerUpdate],
    ) -> None:
        self.program, self.source = program, source
        self._tables = runtime.function_tables
        self._places = [weakref.ref(shard._value) for shard in all_shards(program.variables)]
        self.servers = [
            FitHalf(program, runtime=runtime, server=server, update_of=update_of)
            for server in runtime.servers
        ]
        self._carriers = [
            runtime.data_plane.carrier_of(worker) for worker in range(runtime.workers)
        ]
        if program.schedule.local is not None:
            runtime.local_slots.note(program.schedule.local.slots)
        half = REGIMES[program.schedule.regime]
        self._functions = {
            carrier: half.loop(half.fit_step, self.servers, carrier=carrier).compile(source)
            for carrier in dict.fromkeys(self._carriers)
        }
        self._concrete: dict[Any, Any] = {}
        self.known_to: set[int] = set()  # workers that have run the closure to its end

    @property
    def is_current(self) -> bool:
        """Whether the program's variables still lie where they lay when it was traced."""
        pairs = zip(all_shards(self.program.variables), self._places, strict=True)
        return all(shard._value is place() for shard, place in pairs)

    def trace(self, *arguments: Any) -> None:
        """Trace the closure; on the main thread, which has Keras's own state."""
        before = dict(self._concrete)
        for carrier, function in self._functions.items():
            self._concrete[carrier] = function.get_concrete_function(*arguments)
        if self._concrete != before:
            self.known_to.clear()

    def run(self, coordinator: Any, worker: int, *arguments: Any) -> Any:
        """Run the traced closure on this thread's worker; cancelled when another closure fails."""
        concrete = self._concrete[self._carriers[worker]]
        self._tables.prepare(worker, concrete)
        try:
            return private.cancelable(coordinator, concrete)(*arguments)
        except tf.errors.OpError as error:
            if not is_task_failure(error) and not tells_of_an_unread_request(error):
                graphs = [concrete.graph, *self.source.input_graphs]
                explain(error, graphs, place=f"on worker {worker}")
            raise
