"""The coordinator's line to one server for files: its calls take a server longer than others."""

from __future__ import annotations

import os
from typing import Any

import tensorflow as tf

from tfps.runtime.coordinator.control_plane import ControlPlane

# A block of 64 MiB takes a slow disk seconds. An attempt that was given up goes on, and does no
# harm: the same bytes come under the same name.
LONGEST_ATTEMPT_S = 60.0
PATIENCE_S = 300.0


class Line(ControlPlane):
    """Apart from the line that steers training, so that neither waits for the other.

    Args:
        server: `tfps.runtime.coordinator.server.Server`; once training has found it lost, every
            call raises.
    """

    def __init__(self, server: Any) -> None:
        self._server = server
        super().__init__(
            address=server.address, device=server.device, longest_attempt_s=LONGEST_ATTEMPT_S
        )
        self._read = self.function(_read, arguments=[tf.TensorSpec([], tf.string)])

    @property
    def lost(self) -> str | None:
        """Why no call is attempted."""
        reason: str | None = self._server.lost
        return reason

    @lost.setter
    def lost(self, reason: str | None) -> None:
        if reason is not None:
            self._server.lost = reason

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
