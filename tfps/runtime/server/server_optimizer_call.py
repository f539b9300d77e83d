"""Traces the changes of variables on a server by one optimizer call, or by a step's state."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import tensorflow as tf

from tfps.bridge.functions.server_function import collect_stateful_operations, mask_assignments
from tfps.consistency.ledger import Ledger
from tfps.optimizers.server_update import ServerUpdate, UpdateContext
from tfps.optimizers.wrapped import get_devices
from tfps.runtime.coordinator.server import Server
from tfps.runtime.message.moved_state import MovedState, add_change
from tfps.runtime.message.wire import (
    CallWire,
    get_count_name,
    get_native_gradient_name,
    get_scale_name,
    get_variable_name,
)
from tfps.runtime.server.admission import PushVerdict, ReceivedPush
from tfps.transport.message import Request

# Histograms of durations in the ledger; the first three are fields of a request's header, in this
# order.
PUSH, PULL, WAIT, UPDATE, ENCODE, DECODE, REDUCE = range(7)
DURATIONS = (Request.PUSH_MICROSECONDS, Request.PULL_MICROSECONDS, Request.WAIT_MICROSECONDS)

# Applies the tensors of an admitted push: to variables, a round or a mean. Traced under the
# server's mutex; returns a tensor that is ready after that.
Application = Callable[[Mapping[str, Any], ReceivedPush, PushVerdict], tf.Tensor]


class Update(Protocol):
    """A change of a server's variables by a push: an optimizer, or a subtraction."""

    @property
    def depends_on_sender(self) -> bool:
        """Whether the change depends on the worker that sent the gradients."""

    def apply(self, gradients: Mapping[str, tf.Tensor], context: UpdateContext) -> None:
        """Trace the change; gradients by name of a variable or slab."""


@dataclass(frozen=True)
class ServerOptimizerCall:
    """Traces the changes of one call on one server; all of it runs under the server's mutex."""

    wire: CallWire  # the layouts of its messages
    number: int  # the index of the call in the step
    is_last: bool  # whether it ends the step
    optimizer: Any  # the step's optimizer; None: the call carries only state
    server: Server
    get_update: Callable[[Any], Update]  # from the optimizer

    @property
    def is_update(self) -> bool:
        """Whether the call carries gradients."""
        return self.optimizer is not None

    @property
    def counts_as_update(self) -> bool:
        """Whether its pushes count as updates: with gradients, or as all that a step changes."""
        return self.is_update or (self.number == 0 and self.is_last)

    def apply_at_once(
        self, tensors: Mapping[str, Any], arrival: ReceivedPush, verdict: PushVerdict
    ) -> tf.Tensor:
        """Apply a push immediately, as an update of its own; see `Application`."""
        context = self._context(arrival, verdict)
        if self.wire.scale is not None:
            context = replace(context, loss_scale=tensors[get_scale_name(self.wire.scale)])
        return self.run_timed(
            verdict.fresh, lambda: self.apply_changes(tensors, context, workers=verdict.workers)
        )

    @property
    def is_maskable(self) -> bool:
        """Whether XLA can compile the decision and all changes of a push."""
        device, wire = self.server.device, self.wire
        if wire.state or wire.tables or not self.is_update:
            return False
        if device not in get_devices(self.optimizer):
            return False
        update = self.get_update(self.optimizer)
        names = [native.shared_name for native in wire.gradients.natives]
        return isinstance(update, ServerUpdate) and update.is_maskable(names, device=device)

    def trace_learning_rate(self) -> tf.Tensor:
        """Trace the learning rate of the next update, for a call that `is_maskable`."""
        update = self.get_update(self.optimizer)
        assert isinstance(update, ServerUpdate)
        return update.trace_learning_rate()

    def apply_if_fresh(
        self,
        tensors: Mapping[str, Any],
        arrival: ReceivedPush,
        verdict: PushVerdict,
        *,
        rate: tf.Tensor,
    ) -> None:
        """Apply a fresh push, or else write the old values; traced for XLA."""
        context = replace(self._context(arrival, verdict), may_be_compiled=False, rate=rate)
        keeps = contextlib.nullcontext()
        with keeps if verdict.fresh is True else mask_assignments(verdict.fresh):
            self._update(tensors, context, workers=verdict.workers)

    def _context(self, arrival: ReceivedPush, verdict: PushVerdict) -> UpdateContext:
        sender = arrival.header[Request.WORKER]
        return UpdateContext(self.server.device, verdict.staleness, sender, workers=verdict.workers)

    def run_timed(self, condition: Any, work: Callable[[], tf.Tensor]) -> tf.Tensor:
        """Run work if a condition holds, count its duration, and return a tensor ready after it.

        Args:
            condition: a bool scalar; True: always do it.
            work: the function to trace.
        """

        def timed() -> tf.Tensor:
            begin = tf.timestamp()
            with tf.control_dependencies([begin]):
                done = work()
            with tf.control_dependencies([done]):
                self.server.ledger.count_seconds(UPDATE, tf.timestamp() - begin)
            return tf.constant(0)

        traced = timed if self.is_update else work
        return traced() if condition is True else tf.cond(condition, traced, lambda: tf.constant(0))

    def apply_changes(
        self, tensors: Mapping[str, Any], context: UpdateContext, *, workers: Any
    ) -> tf.Tensor:
        """Trace assigning the state, averaged over some workers, and applying the gradients.

        Returns a tensor that is ready after that.
        """

        def change() -> None:
            for variable in self.wire.state:
                apply_state(variable, tensors[get_variable_name(variable)], workers)
            if self.is_update:
                self._update(tensors, context, workers=workers)

        return trace_done(change)

    def _update(self, tensors: Mapping[str, Any], context: UpdateContext, *, workers: Any) -> None:
        """Trace the optimizer's update from gradients."""
        if self.server.device in get_devices(self.optimizer):
            gradients = {
                n.shared_name: tensors[get_native_gradient_name(n)]
                for n in self.wire.updated_variables
            }
            self.get_update(self.optimizer).apply(gradients, context)


class DeltaCall(ServerOptimizerCall):
    """Applies the difference of a period, in which workers have run the optimizers.

    Asynchronous differences are divided by the number of workers, since they all start from about
    the same parameters. The average of a round comes as if from one worker. Under elastic averaging
    a worker sends its parameters, and the server moves towards them.

    Source: for the division, Geo-SGD as in Paddle; for elastic averaging, Zhang, Choromanska and
    LeCun, "Deep Learning with Elastic Averaging SGD", NeurIPS 2015.
    """

    @property
    def is_maskable(self) -> bool:
        return False

    def _update(self, tensors: Mapping[str, Any], context: UpdateContext, *, workers: Any) -> None:
        elasticity = self.optimizer.elasticity
        for native in self.wire.gradients.natives:
            sent = tensors[get_native_gradient_name(native)]
            if elasticity is None:
                change = sent / tf.cast(tf.maximum(workers, 1), sent.dtype)
            else:
                change = tf.cast(elasticity, sent.dtype) * (sent - native.read_value())
            native.assign_add(change, read_value=False)
        for count in self.wire.counts:
            increase = tf.round(tensors[get_count_name(count)])
            count._value.assign_add(tf.cast(increase, count._value.dtype), read_value=False)


def trace_done(trace: Callable[[], None]) -> tf.Tensor:
    """Trace changes of variables, and return a tensor that is ready after them."""
    with collect_stateful_operations() as done:
        trace()
    with tf.control_dependencies(done):
        return tf.constant(0)


def count_durations(server: Server, ledger: Ledger, header: Sequence[tf.Tensor]) -> None:
    """Count the durations that a worker has measured; call it after all other ledger changes."""
    measured = tf.stack(header[DURATIONS[0] : DURATIONS[-1] + 1])
    server.ledger.count_durations(ledger, PUSH, measured)


def apply_state(variable: Any, new: Any, workers: Any) -> None:
    """Apply a value that a worker has assigned to a variable.

    If only the new value is known, real numbers of several workers are averaged: the sum of their
    changes would be larger than the change of any one worker.

    Args:
        variable: a Keras variable, or a shard of one.
        new: its value, or a `MovedState` if more is known.
        workers: the number of workers that assign the variable.
    """
    value = variable._value
    if isinstance(new, MovedState):
        value.assign(new.apply_to(value.read_value()), read_value=False)
    elif value.dtype.is_floating:
        old = value.read_value()
        value.assign(average_with_old(old, new, workers), read_value=False)
    elif value.dtype.is_integer:
        value.assign_add(new, read_value=False)  # a count: the worker sends its increase
    else:
        value.assign(new, read_value=False)


def average_with_old(old: tf.Tensor, new: tf.Tensor, workers: Any) -> tf.Tensor:
    """Return the mean of one worker's new value and, for all other workers, the old value."""
    return add_change(old, new=new, begin=old, workers=workers)
