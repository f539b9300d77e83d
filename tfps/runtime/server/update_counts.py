"""Counts updates in the optimizers of a server as workers count those of mirrored weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tfps.consistency.server_ledger import ServerLedger


class UpdateCounts:
    """The counts of the optimizers on a server that does not decide about the workers' group.

    If a worker dies when this server has completed a round and server 0 has not, or the other way
    round, tickets come again in rounds of only one of them.

    Args:
        counts: the counts of optimizers, as Keras variables.
        ledger: the ledger of the server.
    """

    def __init__(self, counts: Sequence[Any], *, ledger: ServerLedger) -> None:
        self._ledger = ledger
        self._natives = [c._value for c in counts if ledger.contents.device in c._value.devices]

    def set(self, updates: tf.Tensor, *, condition: tf.Tensor | bool = True) -> None:
        """Set all counts to a number of updates if a condition holds; traced under the mutex."""
        cell = self._ledger.layout.REDUCED
        known = self._ledger.read(cell)
        new = tf.where(condition, updates, known)
        for native in self._natives:  # they may have begun with another number
            native.assign_add(tf.cast(new - known, native.dtype), read_value=False)
        self._ledger.write(tf.constant(cell, tf.int64), new)
