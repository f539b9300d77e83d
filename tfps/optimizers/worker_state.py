"""Defines the mixin of optimizers whose update depends on the worker that pushes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tfps.bridge.functions.compiled_function import compiled_function
from tfps.optimizers.update_targets import UpdateTarget
from tfps.optimizers.worker_memory import WorkerMemory


class SenderState(NamedTuple):
    """The tensor that a server stores for one variable and the worker that pushes."""

    memory: WorkerMemory  # stores the tensors of all workers
    target: UpdateTarget  # the variable
    slot: Any  # the tensor of worker 0
    place: tf.Tensor  # of the worker that pushes in the memory, which worker 0 is not in

    def read(self) -> tf.Tensor:
        """Return the tensor, with the variable's shape and dtype."""
        return tf.cond(
            self._is_in_memory,
            lambda: self.memory.read(self.target, self.place),
            self.slot.value.read_value,
        )

    def write(self, value: tf.Tensor) -> None:
        """Replace the tensor."""

        def write_slot() -> tf.Tensor:
            self.slot.assign(value)
            return tf.constant(0)

        def write_memory() -> tf.Tensor:
            self.memory.write(self.target, self.place, value)
            return tf.constant(0)

        tf.cond(self._is_in_memory, write_memory, write_slot)

    @property
    def _is_in_memory(self) -> tf.Tensor:
        """Whether the server stores a tensor for this worker; that of worker 0 is the slot."""
        return self.place >= 0


class PushStaleness(NamedTuple):
    """How late a push reaches a server, and among how many workers.

    Args:
        staleness: int64 scalar, the number of updates since the parameters were read.
        workers: int64 scalar, the number of workers that take part.
    """

    staleness: Any
    workers: Any


class WorkerStateMixin:
    """A mixin for an optimizer whose update depends on the worker that pushes.

    It uses a tensor stored for the worker, or how late the push is. A stored tensor is zero at
    first; later it is what the update wrote for this worker. Neither has a meaning if the gradients
    of several workers are applied together.

    Attributes:
        per_worker_slot: the attribute of the slot of which each worker has a copy; worker 0 uses
            the slot itself. None if workers have no copies.
        sender_states: key of a variable -> the worker's tensor; empty if none are stored.
        push_staleness: how late the push is; on one machine it is never late.
        has_long_formula: whether the formula has enough operations to be worth compiling.
        is_compiled: whether XLA compiles the formula of this update into one loop.
    """

    per_worker_slot: str | None
    sender_states: Mapping[Any, SenderState] = {}
    push_staleness = PushStaleness(staleness=0, workers=1)
    has_long_formula = False
    is_compiled = False

    def update_with_momentum(
        self: Any, variable: Any, slot: Any, formula: Callable[..., Sequence[Any]], *values: Any
    ) -> list[Any]:
        """Update a variable and the momentum of the worker that sent the gradient.

        Args:
            variable: the variable.
            slot: the slot with the momentum of worker 0, or of all workers.
            formula: a pure function of the momentum and the values. It returns the next momentum,
                the change of the variable, and more results.
            values: tensors, item by item or scalar.

        Returns:
            The further results of the formula.
        """
        state = self.sender_states.get(self._var_key(variable))
        momentum = tf.convert_to_tensor(slot.value) if state is None else state.read()

        def worker_momentum(*tensors: Any) -> list[Any]:
            return list(formula(*tensors))

        compute = compiled_function(worker_momentum) if self.is_compiled else worker_momentum
        momentum, change, *others = compute(momentum, *values)
        if state is None:
            self.assign(slot, momentum)
        else:
            state.write(momentum)
        self.assign_add(variable, change)
        return others
