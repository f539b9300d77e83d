"""Versions that servers have reported, which a push may name without asking them again."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import tensorflow as tf


class ReachedVersions:
    """Records the versions that servers have reported, for the process that pushes.

    A server refuses a version that it has not reached, but by then other servers would have applied
    the push. So a push asks all servers first, unless it knows its version to be reached: on the
    coordinator any version up to the newest, in a graph the tensors that a pull or push returned.

    Args:
        servers: the number of servers.
    """

    def __init__(self, servers: int) -> None:
        self._newest = np.zeros([servers], np.int64)
        self._recorded: WeakKeyDictionary[Any, set[str]] = WeakKeyDictionary()

    def record_version(self, version: Any) -> Any:
        """Record a version that servers have reported, and return it."""
        if isinstance(version, np.ndarray):
            self._newest = np.maximum(self._newest, version)
        else:
            self._recorded.setdefault(version.graph, set()).add(version.name)
        return version

    def has_reached(self, version: tf.Tensor) -> bool:
        """Return whether all servers are known to have reached a version."""
        if tf.is_symbolic_tensor(version):
            return version.name in self._recorded.get(version.graph, ())
        return bool((version.numpy() <= self._newest).all())


def refuse_unreached(
    version: tf.Tensor, reached: tf.Tensor, *, where: tf.Tensor, changed: str
) -> tf.Operation:
    """Raise an error if a push names a version that a server has not reached.

    Args:
        version: the version that the push names, int64, of each server.
        reached: the version that each server has reached, int64.
        where: whether a server has not reached the version, bool.
        changed: the end of the message: what the push has changed.
    """
    return tf.raw_ops.Assert(
        condition=tf.logical_not(tf.reduce_any(where)),
        data=[
            "version: received",
            version,
            "expected a version that a pull has returned; the servers have reached",
            reached,
            f"and {changed}; pull again, and push with the returned version.",
        ],
        summarize=version.shape[0] or 1,
        name="check_version",
    )
