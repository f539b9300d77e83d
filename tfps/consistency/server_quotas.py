"""Keep the workers' paces in a server's ledger; the decisions are in `quota`."""

from __future__ import annotations

import tensorflow as tf

from tfps.consistency.ledger import NEVER, Ledger
from tfps.consistency.quota import pace_after, quota_of
from tfps.consistency.server_ledger import ServerLedger
from tfps.consistency.waiters import TensorVectors


class Quotas:
    """The number of batches of each worker in a round. Used under the ticket server's mutex.

    Args:
        ledger: the server's ledger.
        adaptive_batches: the number of batches in a round for each worker.
    """

    def __init__(self, ledger: ServerLedger, *, adaptive_batches: int) -> None:
        self._ledger, self._adaptive_batches = ledger, adaptive_batches
        self._vectors = TensorVectors()

    def current(self, worker: tf.Tensor) -> tf.Tensor:
        """Return the quota of a worker without a new measurement, such as one that joins."""
        paces, begins = self._by_worker()
        return self._quota(self._ledger.one_hot(worker), paces, begins)

    def after_measurement(
        self, ledger: Ledger, worker: tf.Tensor, *, alive: tf.Tensor, microseconds: tf.Tensor
    ) -> tf.Tensor:
        """Return the quota of a worker that reports the time for its last batches.

        Args:
            ledger: collects the change.
            worker: the worker's index.
            alive: whether it takes part.
            microseconds: the time for each batch; below 1: not measured.
        """
        layout, mask = self._ledger.layout, self._ledger.one_hot(worker)
        paces, begins = self._by_worker()
        pace = pace_after(ledger.read(layout.pace(worker)), microseconds, logic=ledger.logic)
        ledger.write_if(alive, layout.pace(worker), pace)
        return self._quota(mask, tf.where(mask == 1, pace, paces), begins)

    def _by_worker(self) -> list[tf.Tensor]:
        layout = self._ledger.layout
        return self._ledger.by_worker(layout.pace, layout.begins)

    def _quota(self, mask: tf.Tensor, paces: tf.Tensor, begins: tf.Tensor) -> tf.Tensor:
        return quota_of(
            mask,
            paces=paces,
            takes_part=tf.cast(begins < NEVER, tf.int64),
            adaptive_batches=self._adaptive_batches,
            vectors=self._vectors,
        )
