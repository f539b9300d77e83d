"""The server-side updates of a job's optimizers."""

from __future__ import annotations

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


class ServerUpdates:
    """Makes the server-side update of each optimizer when it is first used, and keeps it.

    Args:
        runtime: the runtime of the job.
        strategy: the strategy of the optimizers.
        drain: waits until no closure runs, before variables move.
    """

    def __init__(
        self, runtime: Runtime, *, strategy: tf.distribute.Strategy, drain: Callable[[], None]
    ) -> None:
        self._runtime, self._strategy, self._drain = runtime, strategy, drain
        self._known: dict[int, tuple[Any, ServerUpdate]] = {}

    def known(self) -> list[ServerUpdate]:
        """Return all updates that were made."""
        return [update for _, update in self._known.values()]

    def get_update(self, optimizer: Any) -> ServerUpdate:
        """Return the update of a built optimizer."""
        found = self._known.get(id(optimizer))
        if found is None or not found[1].is_current_for(optimizer):
            runtime = self._runtime
            with outside_step():
                update = ServerUpdate(
                    optimizer,
                    storage=runtime,
                    strategy=self._strategy,
                    workers=runtime.workers if applies_each_gradient(runtime.mode) else 0,
                    replies=1 + runtime.mode.pipeline_steps,
                )
            self._known[id(optimizer)] = found = (optimizer, update)
            if update.depends_on_sent_values:
                runtime.layouts += 1  # later pulls of its variables have to be noted
        return found[1]

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
