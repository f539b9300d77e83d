"""Defines the mixin of optimizers that store a tensor for each worker on the servers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from tfps.optimizers.update_targets import UpdateTarget
from tfps.optimizers.worker_memory import WorkerMemory, WorkerVersion


class SenderState(NamedTuple):
    """The tensor that a server stores for one variable and the worker that pushes."""

    memory: WorkerMemory  # stores the tensors of all workers
    target: UpdateTarget  # the variable
    sender: WorkerVersion  # the worker that pushes

    @property
    def has_own_state(self) -> tf.Tensor:
        """Whether the server stores a tensor for this worker; worker 0 uses the slot itself."""
        return self.sender.worker >= 0

    def read(self) -> tf.Tensor:
        """Return the tensor, with the variable's shape and dtype."""
        return self.memory.read(self.target, self.sender)

    def write(self, value: tf.Tensor) -> None:
        """Replace the tensor."""
        self.memory.write(self.target, self.sender, value)


class WorkerStateMixin:
    """A mixin for an optimizer whose update uses a tensor stored for the worker that pushes.

    The tensor is zero at first; later it is what the update wrote for this worker. It has no
    meaning if the gradients of several workers are applied together.

    Attributes:
        per_worker_slot: the attribute of the slot of which each worker has a copy; worker 0 uses
            the slot itself.
        sender_states: key of a variable -> the worker's tensor; empty if none are stored.
    """

    per_worker_slot: str
    sender_states: Mapping[Any, SenderState | None] = {}
