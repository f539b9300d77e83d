"""What one optimizer call of a step, or the state at its end, changes on a server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import tensorflow as tf

from tfps.consistency.ledger import Entries
from tfps.optimizers.worker_memory import WorkerAt
from tfps.optimizers.wrapped import devices_of
from tfps.runtime.coordinator.server import Server
from tfps.runtime.message.wire import CallWire, gradient_of, name_of
from tfps.transport.message import Request

# The ledger' histograms of durations; the first three lie in a request's header in this order.
PUSH, PULL, WAIT, UPDATE = range(4)
DURATIONS = (Request.PUSH_MICROSECONDS, Request.PULL_MICROSECONDS, Request.WAIT_MICROSECONDS)


class Update(Protocol):
    """How a push changes the variables of a server: an optimizer, or a subtraction."""

    def apply(
        self,
        gradients: Mapping[str, tf.Tensor],
        *,
        device: str,
        staleness: tf.Tensor,
        sender: WorkerAt | None = None,
        compiled: bool = True,
    ) -> None:
        """Trace the update of a device's variables; gradients by name of a variable or slab."""


class ServerOptimizerCall:
    """Traces the changes of one call on one server; all of it runs under the server's mutex.

    Args:
        wire: the call's messages.
        number: of the call in the step.
        is_last: whether the step ends with it.
        optimizer: that the step calls; None: the call carries only state.
        server: the server.
        update_of: the server-side update of an optimizer.
    """

    def __init__(
        self,
        wire: CallWire,
        *,
        number: int,
        is_last: bool,
        optimizer: Any,
        server: Server,
        update_of: Callable[[Any], Update],
    ) -> None:
        self.wire, self.number, self.is_last = wire, number, is_last
        self.optimizer, self.server, self._update_of = optimizer, server, update_of

    @property
    def is_update(self) -> bool:
        """Whether it carries gradients."""
        return self.optimizer is not None

    def values(self) -> dict[str, tf.Tensor]:
        """What a reply brings: the newest values, by name."""
        return {native.shared_name: native.read_value() for native in self.wire.values.natives}

    def timed(self, condition: Any, work: Callable[[], tf.Tensor]) -> tf.Tensor:
        """Do the work if the condition holds, and count its duration; answers when it is done.

        Args:
            condition: a bool scalar; True: it holds always.
            work: what to trace.
        """

        def timed() -> tf.Tensor:
            return timed_update(self.server, work) if self.is_update else work()

        return timed() if condition is True else tf.cond(condition, timed, lambda: tf.constant(0))

    def change(
        self,
        tensors: Mapping[str, Any],
        *,
        staleness: tf.Tensor,
        workers: Any,
        sender: WorkerAt | None = None,
        compiled: bool = True,
    ) -> tf.Tensor:
        """Take over the state and apply the gradients; answers when it is done.

        Args:
            tensors: of a request, by name.
            staleness: int64 scalar, in updates.
            workers: an integer, of how many the state is one opinion.
            sender: whose gradients they are; None: of several workers together.
            compiled: whether XLA may compile the update.
        """

        def change() -> None:
            for variable in self.wire.state:
                _take_state(variable, tensors[name_of(variable)], workers)
            if self.is_update:
                self._update(
                    tensors, workers, staleness=staleness, sender=sender, compiled=compiled
                )

        return when_done(change)

    def _update(self, tensors: Mapping[str, tf.Tensor], workers: Any, **options: Any) -> None:
        """Trace what the optimizer does with gradients of several workers."""
        gradients = {n.shared_name: tensors[gradient_of(n)] for n in self.wire.updated}
        optimizer, device = self.optimizer, self.server.device
        if device in devices_of(optimizer):
            self._update_of(optimizer).apply(gradients, device=device, **options)


def timed_update(server: Server, work: Callable[[], tf.Tensor]) -> tf.Tensor:
    """Do the work and count its duration as an update's; answers when it is done."""
    begin = tf.timestamp()
    with tf.control_dependencies([begin]):
        done = work()
    with tf.control_dependencies([done]):
        server.ledger.count_seconds(UPDATE, tf.timestamp() - begin)
    return tf.constant(0)


def when_done(trace: Callable[[], None]) -> tf.Tensor:
    """Trace changes of variables; answers when they are made."""
    before = len(tf.compat.v1.get_default_graph().get_operations())
    trace()
    done = [
        operation
        for operation in tf.compat.v1.get_default_graph().get_operations()[before:]
        if operation.op_def.is_stateful and operation.type != "VarHandleOp"
    ]
    with tf.control_dependencies(done):
        return tf.constant(0)


def count_durations(server: Server, entries: Entries, header: tf.Tensor) -> None:
    """Count what a worker has measured; called after all other changes of the ledger."""
    measured = header[DURATIONS[0] : DURATIONS[-1] + 1]
    server.ledger.count_durations(entries, PUSH, measured)


def _take_state(variable: Any, new: tf.Tensor, workers: Any) -> None:
    """Moving averages of several workers mix; adding their changes made variances negative."""
    value = variable._value
    if value.dtype.is_floating:
        old = value.read_value()
        mixed = old + (new - old) / tf.cast(tf.maximum(workers, 1), value.dtype)
        value.assign(tf.where(workers <= 1, new, mixed), read_value=False)
    elif value.dtype.is_integer:
        value.assign_add(new, read_value=False)  # a count: the worker sends its increase
    else:
        value.assign(new, read_value=False)
