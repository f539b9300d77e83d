"""The coordinator's channel to one server for files, whose calls take longer than others."""

from __future__ import annotations

import os
from typing import Any

import tensorflow as tf

from tfps.runtime.coordinator.connections import ControlChannel

# A block of 64 MiB takes a slow disk seconds. An abandoned attempt continues, and does no harm: it
# writes the same bytes under the same name.
LONGEST_ATTEMPT_S = 60.0
PATIENCE_S = 300.0


class FileChannel:
    """Calls a server's file functions over a channel of its own, so that training does not wait.

    Args:
        server: `tfps.runtime.coordinator.server.Server`; if training finds it lost, every call
            raises.
    """

    def __init__(self, server: Any) -> None:
        self._channel: ControlChannel = server.open_channel(longest_attempt_s=LONGEST_ATTEMPT_S)
        self.make_function, self.close = self._channel.make_function, self._channel.close
        self._read = self.make_function(_read, arguments=[tf.TensorSpec([], tf.string)])

    def sees(self, path: str | os.PathLike[str], content: bytes) -> bool:
        """Return whether the server finds a file with this content under this path."""
        try:
            return bool(self._read(os.fsencode(path), patience_s=PATIENCE_S)[0] == content)
        except tf.errors.UnavailableError as error:
            if isinstance(error.__cause__, tf.errors.NotFoundError):
                return False
            raise


def _read(path: tf.Tensor) -> list[tf.Tensor]:
    return [tf.io.read_file(path)]
