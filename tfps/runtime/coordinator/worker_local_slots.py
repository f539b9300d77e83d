"""What optimizers keep on workers, noted so that it can be freed there."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import tensorflow as tf

from tfps.bridge.variables.named_resource import open_variable
from tfps.bridge.variables.worker_local_variable import worker_local_name
from tfps.runtime.coordinator.connections import ControlLine

logger = logging.getLogger(__name__)

# A worker that does not answer ends soon, and its memory with it.
PATIENCE_S = 3.0


class WorkerLocalSlots:
    """The job's variables that lie on every worker, to which the coordinator has a line."""

    def __init__(self, *, container: str, lines: Sequence[ControlLine]) -> None:
        self._container, self._lines = container, lines
        self._names: dict[str, None] = {}
        self._functions: list[Callable[..., Any]] | None = None  # that free them all

    def note(self, variables: Iterable[Any]) -> None:
        """Workers may make these from now on."""
        for variable in variables:
            self.note_name(worker_local_name(variable))

    def note_name(self, name: str) -> None:
        """Workers may make a resource of this name from now on."""
        if name not in self._names:
            self._names[name], self._functions = None, None

    @property
    def has_names(self) -> bool:
        """Whether workers may have made anything."""
        return bool(self._names)

    def free(self, *, without: Collection[int] = ()) -> None:
        """Free them on the workers that answer, without some that the next call asks."""
        if not self._names:
            return
        if self._functions is None:
            self._functions = [line.function(self._trace, arguments=0) for line in self._lines]
        for worker, free in enumerate(self._functions):
            try:
                if worker not in without:
                    free(patience_s=PATIENCE_S)
            except tf.errors.UnavailableError as error:
                logger.info("what an optimizer kept on a worker could not be freed: %s", error)
        if not without:
            self._names.clear()
            self._functions = None

    def _trace(self) -> list[tf.Tensor]:
        handles = [open_variable(self._container, name) for name in self._names]
        freed = [
            tf.raw_ops.DestroyResourceOp(resource=handle, ignore_lookup_error=True)
            for handle in handles
        ]
        with tf.control_dependencies(freed):
            return [tf.constant(len(freed), tf.int64)]
