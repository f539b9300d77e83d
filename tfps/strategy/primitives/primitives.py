"""Pull and push by name: the two primitives of a parameter server."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from tfps.bridge.closures.closure_error import unify_lost_server_errors
from tfps.bridge.step_scope import read_current_value
from tfps.optimizers.sparse_updates import refuse_to_densify
from tfps.optimizers.whole_model import prepare_gradients
from tfps.runtime.compile.server_updates import ServerUpdates
from tfps.runtime.coordinator.runtime import Runtime
from tfps.runtime.message.payload import decode_values, encode_push
from tfps.runtime.message.wire import collect_loss_scale, get_gradient_name, split_tensors
from tfps.runtime.server.function_half import FunctionHalf
from tfps.runtime.worker.exchange import build_requests, get_payloads
from tfps.runtime.worker.residuals import PushEncoder, Residuals
from tfps.runtime.worker.worker_index import capture_worker_index
from tfps.strategy.primitives.gradient_subtraction import GradientSubtraction
from tfps.strategy.primitives.named_parameter import NamedParameters
from tfps.strategy.primitives.primitive_exchange import PrimitiveExchange
from tfps.strategy.primitives.primitive_programs import PrimitivePrograms
from tfps.strategy.primitives.push_refusal import refuse_where_others_wait
from tfps.strategy.primitives.row_primitives import RowPrimitives
from tfps.transport.message import COORDINATOR, Kind

# The values of `pull` and `push`: arrays on the coordinator, tensors in a scheduled function.
Tensor: TypeAlias = tf.Tensor | np.ndarray[Any, Any]


class Primitives:
    """Pulls and pushes by name, on the coordinator and inside functions that workers run.

    Args:
        runtime: the job.
        updates: the updates of the strategy's optimizers.
    """

    def __init__(self, runtime: Runtime, updates: ServerUpdates) -> None:
        self._runtime, self.parameters = runtime, NamedParameters()
        self._programs = PrimitivePrograms(runtime, self.parameters, updates)
        self.rows = RowPrimitives(runtime, self.parameters, self._programs)

    def pull(self, names: Sequence[str] | None = None) -> tuple[dict[str, Tensor], Tensor]:
        """Return the values and the version; see `strategy.pull`."""
        chosen = tuple(self.parameters.names if names is None else names)
        servers = self._programs.halves_for_names(chosen)
        if tf.executing_eagerly():
            call = self._programs.cached_function(
                ("pull", chosen),
                lambda: self._pull(self._programs.halves_for_names(chosen), on_worker=False),
            )
            with unify_lost_server_errors():
                values, version = call()
            return {name: value.numpy() for name, value in values.items()}, version.numpy()
        return self._pull(servers, on_worker=True)

    def push(
        self, gradients: Mapping[str, Tensor], version: Tensor, *, optimizer: Any = None
    ) -> tuple[Tensor, Tensor]:
        """Send gradients; see `strategy.push`."""
        refuse_where_others_wait(self._runtime, "push")
        chosen = tuple(gradients)
        for name in chosen if optimizer is not None else ():
            refuse_to_densify(optimizer, gradients[name], self.parameters.by_name.get(name))
        tensors = [tf.convert_to_tensor(gradients[name]) for name in chosen]
        version = tf.cast(tf.convert_to_tensor(version), tf.int64)
        on_worker = not tf.executing_eagerly()
        # This may move variables, so it comes before anything is traced.
        servers = self._programs.halves_for_names(chosen, optimizer, coded=on_worker)
        if on_worker:
            return self._push(servers, tensors, version, on_worker=True)
        call = self._programs.cached_function(
            ("push", chosen, id(optimizer)),
            lambda v, *g: self._push(
                self._programs.halves_for_names(chosen, optimizer), list(g), v, on_worker=False
            ),
        )
        self._runtime.chief_pushes += 1
        with unify_lost_server_errors():
            new, staleness = call(version, *tensors)
        return new.numpy(), int(staleness)

    def apply(self, optimizer: Any, gradients: Sequence[Any], variables: Sequence[Any]) -> None:
        """Push gradients for `optimizer.apply(gradients, variables)` on the coordinator.

        Args:
            optimizer: a built Keras optimizer.
            gradients: the gradients, of the variables' shapes; None for a variable without one.
            variables: Keras variables on servers.
        """
        pairs = [(g, v) for g, v in zip(gradients, variables, strict=True) if g is not None]
        for gradient, variable in pairs:
            refuse_to_densify(optimizer, gradient, variable)
        tensors = [tf.convert_to_tensor(gradient) for gradient, _ in pairs]
        chosen = [variable for _, variable in pairs]

        def servers() -> list[FunctionHalf]:
            return self._programs.halves_for_variables(chosen, optimizer)

        servers()  # this may move variables, so it comes before anything is traced
        call = self._programs.cached_function(
            ("apply", *map(id, chosen), id(optimizer)),
            lambda version, *g: self._push(servers(), list(g), version, on_worker=False),
        )
        versions = [server.cells()[server.layout.VERSION] for server in self._runtime.servers]
        self._runtime.chief_pushes += 1
        with unify_lost_server_errors():
            call(tf.constant(versions, tf.int64), *tensors)

    def _pull(self, servers: Sequence[FunctionHalf], *, on_worker: bool) -> tuple[Any, tf.Tensor]:
        exchange = PrimitiveExchange(self._runtime, on_worker=on_worker)
        calls = build_requests(servers, Kind.PULL)
        replies, version = exchange.pull(calls)
        layouts = [server.parameter_layout for server in servers]
        parameters = servers[0].program.calls[0].variables
        found = decode_values(layouts, get_payloads(replies), parameters)
        return {parameter.path: value for parameter, value in found}, version

    def _push(
        self,
        servers: Sequence[FunctionHalf],
        gradients: list[tf.Tensor],
        version: tf.Tensor,
        *,
        on_worker: bool,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        exchange = PrimitiveExchange(self._runtime, on_worker=on_worker)
        (call,), residuals = servers[0].program.calls, Residuals.get_for_graph(servers)
        if not isinstance(call.optimizer, GradientSubtraction):
            gradients = prepare_gradients(
                call.optimizer, gradients, variables=call.variables, read=read_current_value
            )
        named = {get_gradient_name(p): g for p, g in zip(call.variables, gradients, strict=True)}
        cut = split_tensors(
            call.variables, lambda p: named[get_gradient_name(p)], name=get_gradient_name
        )
        # These pushes have no number: a worker's pushes from one version draw the same numbers.
        worker = capture_worker_index() if on_worker else tf.constant(COORDINATOR, tf.int64)
        scale = collect_loss_scale(call.optimizer, read_current_value)
        seed = tf.stack([worker, tf.reduce_sum(version)])
        coding = PushEncoder(residuals, seed=seed, scale=next(iter(scale.values()), None))
        residuals.prepare()
        bodies = {
            p: encode_push(
                server.wires[0], {**cut, **scale}, encode_vector=functools.partial(coding.encode, p)
            )
            for p, server in enumerate(servers)
        }
        codec_fields = coding.codec_fields
        return exchange.push(
            servers, bodies, version, commit_residuals=coding.commit_residuals, coding=codec_fields
        )
