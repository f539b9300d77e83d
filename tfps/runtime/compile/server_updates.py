"""Creates and caches the server-side updates of a job's optimizers."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfps.bridge.step_scope import outside_step
from tfps.consistency.modes import applies_each_gradient
from tfps.optimizers.optimizer_call import collect_optimizers
from tfps.optimizers.server_update import ServerUpdate
from tfps.optimizers.slabs import create_slab, plan_slabs
from tfps.runtime.coordinator.runtime import Runtime
from tfps.runtime.program.program import Program

# The attribute of an optimizer that has its update for each `ServerUpdates`.
KEPT_UPDATES = "_tfps_updates"


class ServerUpdates:
    """Creates the server-side update of each optimizer on first use.

    The optimizer keeps its update: what both have on the servers is freed with the optimizer.

    Args:
        runtime: the runtime of the job.
        strategy: the strategy of the optimizers.
        drain: waits until no closure runs, before variables move.
    """

    def __init__(
        self, runtime: Runtime, *, strategy: tf.distribute.Strategy, drain: Callable[[], None]
    ) -> None:
        self._runtime, self._strategy, self._drain = runtime, strategy, drain

    def get_update(self, optimizer: Any) -> ServerUpdate:
        """Return the update of a built optimizer."""
        updates = optimizer.__dict__.setdefault(KEPT_UPDATES, weakref.WeakKeyDictionary())
        update: ServerUpdate | None = updates.get(self)
        if update is None or not update.is_current_for(optimizer):
            runtime = self._runtime
            with outside_step():
                update = ServerUpdate(
                    optimizer,
                    storage=runtime,
                    strategy=self._strategy,
                    workers=runtime.workers if applies_each_gradient(runtime.mode) else 0,
                )
            updates[self] = update
        return update

    def get_program_updates(self, program: Program) -> list[ServerUpdate]:
        """Return the updates of a program; move variables that it trains together into slabs."""
        runtime, calls = self._runtime, program.optimizer_calls
        with outside_step():
            if layouts := plan_slabs(calls, servers=runtime.topology.servers):
                self._drain()
            for layout, variables in layouts:
                create_slab(layout, variables, storage=runtime)
            runtime.collect()
        return [self.get_update(optimizer) for optimizer in collect_optimizers(calls)]
