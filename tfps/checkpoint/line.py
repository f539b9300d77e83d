"""The coordinator's line to one server for files: its calls take a server longer than others."""

from __future__ import annotations

import os
from typing import Any

import tensorflow as tf

from tfps.runtime.coordinator.connections import ControlLine

# A block of 64 MiB takes a slow disk seconds. An attempt that was given up goes on, and does no
# harm: the same bytes come under the same name.
LONGEST_ATTEMPT_S = 60.0
PATIENCE_S = 300.0


class Line:
    """Apart from the line that steers training, so that neither waits for the other.

    Args:
        server: `tfps.runtime.coordinator.server.Server`; once training has found it lost, every
            call raises.
    """

    def __init__(self, server: Any) -> None:
        self._control: ControlLine = server.open_line(longest_attempt_s=LONGEST_ATTEMPT_S)
        self.function, self.close = self._control.function, self._control.close
        self._read = self.function(_read, arguments=[tf.TensorSpec([], tf.string)])

    def sees(self, path: str | os.PathLike[str], content: bytes) -> bool:
        """Whether the server finds a file with this content under this path."""
        try:
            return bool(self._read(os.fsencode(path), patience_s=PATIENCE_S)[0] == content)
        except tf.errors.UnavailableError as error:
            if isinstance(error.__cause__, tf.errors.NotFoundError):
                return False
            raise


def _read(path: tf.Tensor) -> list[tf.Tensor]:
    return [tf.io.read_file(path)]
