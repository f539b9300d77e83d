"""Who may start a step on a server, if the bound is dynamic: the shell around `extra_steps`."""

from __future__ import annotations

import tensorflow as tf

from tfps.consistency import extra_steps
from tfps.consistency.clock import Clocks, Decision
from tfps.consistency.extra_steps import Limits, Pace
from tfps.consistency.gate import BoundedGate
from tfps.consistency.server_ledger import ServerLedger


class DynamicGate(BoundedGate):
    """A worker waits beyond a bound, unless the server lets it go on for some steps.

    Args:
        ledger: the server's ledger.
        limits: how far ahead a worker may start.
    """

    def __init__(self, ledger: ServerLedger, *, limits: Limits) -> None:
        super().__init__(ledger, bound_steps=limits.bound_steps)
        self._limits = limits

    def enter(self, worker: tf.Tensor, accepted: tf.Tensor) -> None:
        is_new = self._ledger.one_hot(worker) * tf.cast(accepted, tf.int64)
        self._keep(self._pace().entered(is_new))
        super().enter(worker, accepted)

    def end_step(self, worker: tf.Tensor, *, counts: tf.Tensor, clock: tf.Tensor) -> tf.Tensor:
        mask = self._ledger.one_hot(worker) * tf.cast(counts, tf.int64)
        now = tf.cast(tf.timestamp() * 1e6, tf.int64)
        self._keep(self._pace().ticked(mask, now, vectors=self._vectors))
        return super().end_step(worker, counts=counts, clock=clock)

    def _rule(self, state: Clocks, asking: tf.Tensor) -> Decision:
        decision, pace = extra_steps.decide(
            state, self._pace(), asking=asking, limits=self._limits, vectors=self._vectors
        )
        self._keep(pace)
        return decision

    def _pace(self) -> Pace:
        layout = self._ledger.layout
        return Pace(*self._ledger.by_worker(layout.pushed, layout.pushed_before, layout.granted))

    def _keep(self, pace: Pace) -> None:
        layout = self._ledger.layout
        self._ledger.write_by_worker(
            {
                layout.pushed: pace.pushed,
                layout.pushed_before: pace.pushed_before,
                layout.granted: pace.granted,
            }
        )
