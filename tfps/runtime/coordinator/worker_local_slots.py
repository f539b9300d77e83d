"""Records the names of variables on workers, so that the coordinator can free them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import tensorflow as tf

from tfps.bridge.variables.named_resource import open_variable
from tfps.bridge.variables.worker_local_variable import make_worker_local_name
from tfps.runtime.coordinator.connections import ControlChannel

logger = logging.getLogger(__name__)

# A worker that does not reply ends soon, and its memory with it.
PATIENCE_S = 3.0


class WorkerLocalSlots:
    """The job's variables on every worker, which the coordinator frees through its channels."""

    def __init__(self, *, container: str, channels: Sequence[ControlChannel]) -> None:
        self._container, self._channels = container, channels
        self._names: dict[str, None] = {}
        self._free_functions: list[Callable[..., Any]] | None = None  # free all of them, by worker

    def register(self, variables: Iterable[Any]) -> None:
        """Record Keras variables for which workers may create local variables."""
        for variable in variables:
            self.register_name(make_worker_local_name(variable))

    def register_name(self, name: str) -> None:
        """Record the name of a resource that workers may create from now on."""
        if name not in self._names:
            self._names[name], self._free_functions = None, None

    @property
    def has_names(self) -> bool:
        """Whether workers may have created recorded resources."""
        return bool(self._names)

    def free(self, *, without: Collection[int] = ()) -> None:
        """Free the recorded variables on all workers except those in ``without``."""
        if not self._names:
            return
        if self._free_functions is None:
            self._free_functions = [
                channel.make_function(self._trace, arguments=0) for channel in self._channels
            ]
        for worker, free in enumerate(self._free_functions):
            try:
                if worker not in without:
                    free(patience_s=PATIENCE_S)
            except tf.errors.UnavailableError as error:
                logger.info("could not free the optimizer state on a worker: %s", error)
        if not without:
            self._names.clear()
            self._free_functions = None

    def _trace(self) -> list[tf.Tensor]:
        handles = [open_variable(self._container, name) for name in self._names]
        freed = [
            tf.raw_ops.DestroyResourceOp(resource=handle, ignore_lookup_error=True)
            for handle in handles
        ]
        with tf.control_dependencies(freed):
            return [tf.constant(len(freed), tf.int64)]
