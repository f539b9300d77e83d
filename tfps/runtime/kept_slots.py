"""What optimizers keep on workers, noted so that it can be freed there."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from tfps.bridge.kept_variable import KeptVariable
from tfps.runtime.control_plane import ControlPlane

logger = logging.getLogger(__name__)

# A worker that does not answer ends soon, and its memory with it.
PATIENCE_S = 3.0


class KeptSlots:
    """The job's variables that lie on every worker.

    Args:
        container: of the job.
        lines: the coordinator's line to each worker.
    """

    def __init__(self, *, container: str, lines: Sequence[ControlPlane]) -> None:
        self._container, self._lines = container, lines
        self._slots: dict[str, Any] = {}

    def note(self, variables: Iterable[Any]) -> None:
        """Workers may make these from now on; Keras variables."""
        self._slots.update((variable._value.shared_name, variable) for variable in variables)

    def free(self) -> None:
        """Free them on the workers that answer."""
        if not self._slots:
            return
        for line in self._lines:
            try:
                line.function(self._trace, arguments=0)(patience_s=PATIENCE_S)
            except tf.errors.UnavailableError as error:
                logger.info("what an optimizer kept on a worker could not be freed: %s", error)
        self._slots.clear()

    def _trace(self) -> list[tf.Tensor]:
        freed = []
        for variable in self._slots.values():
            kept = KeptVariable(variable, container=self._container)
            freed.append(
                tf.raw_ops.DestroyResourceOp(resource=kept.handle, ignore_lookup_error=True)
            )
        with tf.control_dependencies(freed):
            return [tf.constant(len(freed), tf.int64)]
