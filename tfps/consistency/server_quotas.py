"""The workers' paces as a server keeps them in its ledger: the thin shell around `quota`."""

from __future__ import annotations

import tensorflow as tf

from tfps.consistency.ledger import NEVER, Entries
from tfps.consistency.quota import pace_after, quota_of
from tfps.consistency.server_ledger import ServerLedger
from tfps.consistency.waiters import TensorVectors


class Quotas:
    """How many batches each worker takes in a round. Called under the ticket server's mutex.

    Args:
        ledger: the server's ledger.
        adaptive_batches: how many a round has for each worker.
    """

    def __init__(self, ledger: ServerLedger, *, adaptive_batches: int) -> None:
        self._ledger, self._adaptive_batches = ledger, adaptive_batches
        self._vectors = TensorVectors()

    def known(self, slot: tf.Tensor) -> tf.Tensor:
        """The quota of a worker that has measured nothing new, such as one that joins."""
        paces, begins = self._by_slot()
        return self._quota(self._ledger.one_hot(slot), paces, begins)

    def measured(
        self, entries: Entries, slot: tf.Tensor, *, alive: tf.Tensor, microseconds: tf.Tensor
    ) -> tf.Tensor:
        """The quota of a worker that says how long its last batches have taken.

        Args:
            entries: collect the change.
            slot: the worker.
            alive: whether it takes part.
            microseconds: for each batch; below 1: not measured.
        """
        layout, worker = self._ledger.layout, self._ledger.one_hot(slot)
        paces, begins = self._by_slot()
        pace = pace_after(entries.read(layout.pace(slot)), microseconds, logic=entries.logic)
        entries.write_if(alive, layout.pace(slot), pace)
        return self._quota(worker, tf.where(worker == 1, pace, paces), begins)

    def _by_slot(self) -> list[tf.Tensor]:
        layout = self._ledger.layout
        return self._ledger.by_slot(layout.pace, layout.begins)

    def _quota(self, worker: tf.Tensor, paces: tf.Tensor, begins: tf.Tensor) -> tf.Tensor:
        return quota_of(
            worker,
            paces=paces,
            takes_part=tf.cast(begins < NEVER, tf.int64),
            adaptive_batches=self._adaptive_batches,
            vectors=self._vectors,
        )
