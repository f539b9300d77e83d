"""The server's half of a scheduled function whose workers train by themselves for a while."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tensorflow as tf

from tfps.bridge.server_variable import ServerVariable
from tfps.optimizers.worker_memory import WorkerAt
from tfps.runtime.coordinator.runtime import Runtime
from tfps.runtime.coordinator.server import Server
from tfps.runtime.message.wire import CallWire, Parts, gradient_of, name_of, shards_on
from tfps.runtime.program.program import Program
from tfps.runtime.server.admission import Arrival, PushVerdict
from tfps.runtime.server.function_half import FunctionHalf
from tfps.runtime.server.push import Push
from tfps.runtime.server.requests import SlotPull
from tfps.runtime.server.server_optimizer_call import timed_update, when_done
from tfps.transport.message import Request


class WorkersMean:
    """Keeps a variable of a server at the mean of what workers have made of it.

    What somebody else writes to it moves them all.

    Args:
        native: the variable.
        runtime: of the job.
        server: the server.
    """

    def __init__(self, native: Any, *, runtime: Runtime, server: Server) -> None:
        assert runtime.warm_up is not None
        name, self._native = f"{native.shared_name}_in_warm_up", native
        variable = functools.partial(runtime.warm_up.variable, device=server.device)
        self._differences = variable(
            f"{name}_differences", lambda: tf.zeros(native.shape, native.dtype)
        )
        self._is_in = variable(f"{name}_is_in", np.zeros([runtime.workers], np.int64))

    def begin(self, worker: tf.Tensor) -> tf.Tensor:
        """What a worker begins with: as all have; if it has sent and is new again, the mean."""
        is_new = self._is_in.read_value()[worker] == 0
        change = self._change()
        value: tf.Tensor = self._native.read_value() - tf.where(is_new, change, 0)
        return value

    def add(self, difference: tf.Tensor, *, worker: tf.Tensor) -> None:
        """Take over what a worker's own value has changed by."""
        before = self._change()
        self._differences.assign_add(difference, read_value=False)
        tf.raw_ops.ResourceScatterUpdate(
            resource=self._is_in.handle, indices=worker, updates=tf.constant(1, tf.int64)
        )
        self._native.assign_add(self._change() - before, read_value=False)

    def _change(self) -> tf.Tensor:
        """Of the mean since all began."""
        workers = tf.maximum(tf.reduce_sum(self._is_in.read_value()), 1)
        return self._differences.read_value() / tf.cast(workers, self._differences.dtype)


@dataclass(frozen=True)
class IntoMean:
    """A push brings what the worker's own weights have changed by since the one before.

    Args:
        means: of the variables, by name.
        wire: of the push.
        server: the server.
        calls: how often each worker has called optimizers; None: another server counts that.
    """

    means: Mapping[str, WorkersMean]
    wire: CallWire
    server: Server
    calls: ServerVariable | None

    def take(
        self, tensors: Mapping[str, Any], arrival: Arrival, verdict: PushVerdict, sender: WorkerAt
    ) -> tf.Tensor:
        if self.calls is not None:
            tf.raw_ops.ResourceScatterAdd(
                resource=self.calls.handle,
                indices=sender.worker,
                updates=arrival.header[Request.CLOCK],
            )

        def change() -> None:
            for shard in self.wire.gradients.variables:
                difference = tensors[gradient_of(shard._value)]
                self.means[name_of(shard)].add(difference, worker=sender.worker)

        return timed_update(self.server, lambda: when_done(change))


class MeanSlotPull(SlotPull):
    """What a worker begins with.

    Args:
        means: of the variables, by name.
        options: of a request.
    """

    def __init__(self, *arguments: Any, means: Mapping[str, WorkersMean], **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._means = means

    def read(self, native: Any, header: tf.Tensor) -> tf.Tensor:
        mean = self._means.get(native.shared_name)
        return super().read(native, header) if mean is None else mean.begin(header[Request.WORKER])


class MeanHalf(FunctionHalf):
    """Of a function of the warm-up: the server keeps the mean of what workers make of weights."""

    def __init__(
        self, program: Program, *, runtime: Runtime, server: Server, **options: Any
    ) -> None:
        assert runtime.warm_up is not None
        self._means = {
            name_of(shard): WorkersMean(shard._value, runtime=runtime, server=server)
            for shard in shards_on(program.calls[0].variables, server.device)
        }
        self._calls = runtime.warm_up.calls() if server.hands_out_tickets else None
        super().__init__(program, runtime=runtime, server=server, **options)

    @property
    def asks_who(self) -> bool:
        return True

    def slot_shards(self) -> Parts:
        """Not as slabs: another function may train a part of the variables in one."""
        parts = super().slot_shards()
        return Parts(parts.variables, tuple(shard._value for shard in parts.variables))

    def slot_pull(self) -> SlotPull:
        return MeanSlotPull(self.server, plan=self.plan, held=self.slots, means=self._means)

    def wire(self, number: int) -> CallWire:
        wire = super().wire(number)
        return replace(wire, server_request=wire.request)

    def push_of(self, *arguments: Any, **options: Any) -> Push:
        push = super().push_of(*arguments, **options)
        application = IntoMean(self._means, push.call.wire, self.server, self._calls)
        return replace(push, application=application)
