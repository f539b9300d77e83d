"""Versions that servers have told, which a push may name without asking again."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import tensorflow as tf


class ReachedVersions:
    """What is known of the versions that servers have reached, where pushes are made.

    A server refuses a version that it has not reached, and the others would have counted the push
    by then. So a push asks all of them first, unless its version is one that they have told: on the
    coordinator any up to the newest, in a graph the tensors that a pull or a push has answered.

    Args:
        servers: how many there are.
    """

    def __init__(self, servers: int) -> None:
        self._newest = np.zeros([servers], np.int64)
        self._told: WeakKeyDictionary[Any, set[str]] = WeakKeyDictionary()

    def note(self, version: Any) -> Any:
        """Keep in mind what servers have told; answers it."""
        if isinstance(version, np.ndarray):
            self._newest = np.maximum(self._newest, version)
        else:
            self._told.setdefault(version.graph, set()).add(version.name)
        return version

    def has(self, version: tf.Tensor) -> bool:
        """Whether servers are known to have reached a version."""
        if tf.is_symbolic_tensor(version):
            return version.name in self._told.get(version.graph, ())
        return bool((version.numpy() <= self._newest).all())


def refuse_unreached(
    version: tf.Tensor, reached: tf.Tensor, *, where: tf.Tensor, changed: str
) -> tf.Operation:
    """Raise an error if a push names a version that a server has not reached.

    Args:
        version: that it names, by server.
        reached: by the servers.
        where: it is not reached.
        changed: what has become of the push.
    """
    return tf.raw_ops.Assert(
        condition=tf.logical_not(tf.reduce_any(where)),
        data=[
            "version: received",
            version,
            "expected what a pull has answered; the servers have reached",
            reached,
            f"and {changed}. Pull, and push with that version.",
        ],
        summarize=version.shape[0] or 1,
        name="check_version",
    )
