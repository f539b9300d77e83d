"""Optimizers of their own that have something for each worker on the servers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from tfps.optimizers.update_targets import UpdateTarget
from tfps.optimizers.worker_memory import WorkerAt, WorkerMemory


class OfSender(NamedTuple):
    """What a server remembers of one variable for the worker that pushes."""

    memory: WorkerMemory
    target: UpdateTarget
    sender: WorkerAt

    @property
    def has_row(self) -> tf.Tensor:
        """Whether there is anything: the slot itself is that of worker 0."""
        return self.sender.worker >= 0

    def read(self) -> tf.Tensor:
        """It, of the variable's shape and dtype."""
        return self.memory.read(self.target, self.sender)

    def write(self, value: tf.Tensor) -> None:
        """Remember something else."""
        self.memory.write(self.target, self.sender, value)


class Remembering:
    """Mixed into an optimizer whose update asks what is remembered for the worker.

    That is what the update itself wrote for it, and zeros at first. It makes no sense where
    workers' gradients are applied together.

    Attributes:
        remembered_slot: the attribute of the slot that there is one more of for each worker but
            worker 0, whose it is.
        of_sender: by the key of a variable; empty where nothing is remembered.
    """

    remembered_slot: str
    of_sender: Mapping[Any, OfSender | None] = {}
