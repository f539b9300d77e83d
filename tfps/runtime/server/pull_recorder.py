"""What a server records when it answers a worker, for optimizers that ask what the worker knows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from tfps.optimizers.server_update import ServerUpdate
from tfps.optimizers.worker_memory import WorkerAt


class PullRecorder:
    """Traces that a worker is handed a server's parameters; nothing for most optimizers.

    Args:
        updates: of optimizers whose variables may be among those that are handed out.
        natives: what the answer brings: variables and slabs of one server.
        device: the server.
    """

    def __init__(
        self, updates: Sequence[ServerUpdate], *, natives: Iterable[Any], device: str
    ) -> None:
        self._device = device
        self._names = frozenset(native.shared_name for native in natives)
        self._updates = [update for update in updates if update.asks_what_is_known]

    def record(self, sender: WorkerAt, *, counts: tf.Tensor | bool = True, is_first: bool) -> None:
        """Trace it; called under the server's mutex, where the values for the reply are read.

        Args:
            sender: the worker, and the version of the values.
            counts: whether it takes part; one that was let out gets an answer that nobody uses.
            is_first: it holds nothing older.
        """
        if not self._updates:
            return

        def record() -> tf.Tensor:
            for update in self._updates:
                update.hand_out(self._names, sender, device=self._device, is_first=is_first)
            return tf.constant(0)

        if counts is True:
            record()
        else:
            tf.cond(counts, record, lambda: tf.constant(0))
