"""The server's half of a scheduled function whose workers train by themselves for a while."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import tensorflow as tf

from tfps.bridge.server_variable import ServerVariable
from tfps.runtime.coordinator.runtime import Runtime
from tfps.runtime.coordinator.server import Server
from tfps.runtime.message.wire import CallWire, ServerShards, gradient_of, name_of, shards_on
from tfps.runtime.server.admission import Arrival, PushVerdict
from tfps.runtime.server.function_half import FunctionHalf
from tfps.runtime.server.push import Push
from tfps.runtime.server.server_optimizer_call import ServerOptimizerCall, when_done
from tfps.transport.message import Request


class WorkersMean:
    """Keeps a variable of a server at the mean of what workers have made of it.

    What somebody else writes to it moves them all.
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


class MeanHalf(FunctionHalf):
    """Of a function of the warm-up: the server keeps the mean of what workers make of weights."""

    @functools.cached_property
    def _means(self) -> dict[str, WorkersMean]:
        """Of the variables, by name."""
        return {
            name_of(shard): WorkersMean(shard._value, runtime=self.runtime, server=self.server)
            for shard in shards_on(self.program.calls[0].variables, self.server.device)
        }

    @functools.cached_property
    def _calls(self) -> ServerVariable | None:
        """How often each worker has called optimizers; None: another server counts that."""
        assert self.runtime.warm_up is not None
        return self.runtime.warm_up.calls() if self.server.hands_out_tickets else None

    @property
    def asks_who(self) -> bool:
        return True

    def slot_shards(self) -> ServerShards:
        """Not as slabs: another function may train a part of the variables in one."""
        shards = super().slot_shards()
        return ServerShards(shards.variables, tuple(shard._value for shard in shards.variables))

    def read_slot(self, native: Any, header: Sequence[tf.Tensor]) -> tf.Tensor:
        mean = self._means.get(native.shared_name)
        if mean is None:
            return super().read_slot(native, header)
        return mean.begin(header[Request.WORKER])

    def wire(self, number: int) -> CallWire:
        wire = super().wire(number)
        return replace(wire, server_request=wire.request)

    def push(self, number: int) -> Push:
        push = super().push(number)
        return replace(push, application=functools.partial(self._into_mean, push.call))

    def _into_mean(
        self,
        call: ServerOptimizerCall,
        tensors: Mapping[str, Any],
        arrival: Arrival,
        verdict: PushVerdict,
    ) -> tf.Tensor:
        """A push brings what the worker's own weights have changed by since the one before."""
        worker = arrival.header[Request.WORKER]
        if self._calls is not None:  # also of a push that was applied before: time has passed
            tf.raw_ops.ResourceScatterAdd(
                resource=self._calls.handle,
                indices=worker,
                updates=arrival.header[Request.CLOCK],
            )

        def change() -> None:
            for shard in call.wire.gradients.variables:
                difference = tensors[gradient_of(shard._value)]
                self._means[name_of(shard)].add(difference, worker=worker)

        return call.timed(verdict.fresh, lambda: when_done(change))
