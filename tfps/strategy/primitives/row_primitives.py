"""Pulls and pushes of some rows of a table, by their ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfps.bridge.closures.closure_error import unify_lost_server_errors
from tfps.bridge.id_check import RequestedIds, check_ids
from tfps.bridge.step_scope import read_current_value
from tfps.optimizers.sparse_updates import refuse_without_row_updates
from tfps.optimizers.whole_model import prepare_gradients
from tfps.runtime.coordinator.runtime import Runtime
from tfps.runtime.message.payload import Body, encode_push
from tfps.runtime.message.wire import collect_loss_scale
from tfps.runtime.server.function_half import FunctionHalf
from tfps.runtime.worker.exchange import build_requests
from tfps.runtime.worker.look_ups import LookUps, NoPushes
from tfps.runtime.worker.row_gradients import RowValues, build_row_bodies
from tfps.runtime.worker.shard_rows import DistinctRows
from tfps.strategy.primitives.gradient_subtraction import GradientSubtraction
from tfps.strategy.primitives.named_parameter import NamedParameters
from tfps.strategy.primitives.primitive_exchange import PrimitiveExchange
from tfps.strategy.primitives.primitive_programs import PrimitivePrograms
from tfps.strategy.primitives.push_refusal import refuse_where_others_wait
from tfps.strategy.primitives.reached_versions import ReachedVersions, refuse_unreached
from tfps.strategy.primitives.row_arguments import (
    find_table,
    get_keras_variable,
    to_row_gradients,
    to_row_ids,
    to_version,
)
from tfps.transport.carrier import Message
from tfps.transport.message import Kind

IDS_SPEC = tf.TensorSpec([None], tf.int64)
NO_PUSH_APPLIED = "no server has applied the push"
TABLE_POSITION = 0  # the index of the program's only table


class RowPrimitives:
    """Pulls and pushes rows, on the coordinator and inside functions that workers run.

    Args:
        runtime: the job.
        parameters: the variables that users can name.
        programs: the programs of all primitives.
    """

    def __init__(
        self, runtime: Runtime, parameters: NamedParameters, programs: PrimitivePrograms
    ) -> None:
        self._runtime, self._parameters, self._programs = runtime, parameters, programs
        self._reached = ReachedVersions(len(runtime.servers))

    def pull(self, name: str, ids: Any) -> tuple[Any, Any]:
        """Return the rows and the version; see `strategy.pull_rows`."""
        source = "strategy.pull_rows()"
        self._runtime.refuse_if_closed()
        table = find_table(self._parameters, name, source=source)
        ids = to_row_ids(ids, table, source=source)
        servers = self._programs.halves_for_rows(name)
        if not tf.executing_eagerly():
            rows, version = self._pull(servers, ids, on_worker=True)
            return rows, self._reached.record_version(version)
        call = self._programs.cached_function(
            ("pull rows", name),
            lambda ids: self._pull(self._programs.halves_for_rows(name), ids, on_worker=False),
            signature=[IDS_SPEC],
        )
        with unify_lost_server_errors():
            rows, version = call(ids)
        return rows.numpy(), self._reached.record_version(version.numpy())

    def push(
        self, name: str, ids: Any, gradients: Any, version: Any, *, optimizer: Any = None
    ) -> tuple[Any, Any]:
        """Send gradients of rows; see `strategy.push_rows`."""
        source = "strategy.push_rows()"
        self._runtime.refuse_if_closed()
        refuse_where_others_wait(self._runtime, "push_rows")
        table = find_table(self._parameters, name, source=source)
        ids = to_row_ids(ids, table, source=source)
        gradients = to_row_gradients(gradients, table, ids, source=source)
        named = to_version(version, servers=len(self._runtime.servers), source=source)
        is_reached = self._reached.has_reached(version if tf.is_tensor(version) else named)
        if optimizer is not None:
            variable = get_keras_variable(table, source=source)
            refuse_without_row_updates(optimizer, variable, source=source)
        # This may move variables, so it comes before anything is traced.
        servers = self._programs.halves_for_rows(name, optimizer)
        if not tf.executing_eagerly():
            if not is_reached:
                named = self._after_servers_reached(servers, named)
            new, staleness = self._push(servers, ids, gradients, named, on_worker=True)
            return self._reached.record_version(new), staleness
        if not is_reached:
            self._refuse_unreached(named)
        call = self._programs.cached_function(
            ("push rows", name, id(optimizer)),
            lambda *arguments: self._push(
                self._programs.halves_for_rows(name, optimizer), *arguments, on_worker=False
            ),
            signature=[
                IDS_SPEC,
                tf.TensorSpec([None, *table.shape[1:]], gradients.dtype),
                tf.TensorSpec(named.shape, tf.int64),
            ],
        )
        self._runtime.chief_pushes += 1
        with unify_lost_server_errors():
            new, staleness = call(ids, gradients, named)
        return self._reached.record_version(new.numpy()), int(staleness)

    def _refuse_unreached(self, version: tf.Tensor) -> None:
        """Raise an error on the coordinator if a server has not reached a version."""
        servers = self._runtime.servers
        with unify_lost_server_errors():
            reached = np.array([server.cells()[server.layout.VERSION] for server in servers])
        refuse_unreached(version, reached, where=version > reached, changed=NO_PUSH_APPLIED)
        self._reached.record_version(reached)

    def _after_servers_reached(
        self, servers: Sequence[FunctionHalf], version: tf.Tensor
    ) -> tf.Tensor:
        """In a scheduled function, return the version once all servers have reached it."""
        exchange = PrimitiveExchange(self._runtime, on_worker=True)
        # This pull waits for the pushes before this one.
        _, reached = exchange.pull(build_requests(servers, Kind.PULL))
        refused = refuse_unreached(
            version, reached, where=version > reached, changed=NO_PUSH_APPLIED
        )
        with tf.control_dependencies([refused]):
            return tf.identity(version)

    def _pull(
        self, servers: Sequence[FunctionHalf], ids: tf.Tensor, *, on_worker: bool
    ) -> tuple[tf.Tensor, tf.Tensor]:
        exchange, versions = PrimitiveExchange(self._runtime, on_worker=on_worker), []

        def ask_servers(bodies: Mapping[int, Body], **_: Any) -> dict[int, Message]:
            """Look rows up; pull only the version from servers that have none of the rows."""
            others = [p for p in range(len(servers)) if p not in bodies]
            empty = {p: Body(tf.zeros([0], tf.uint8)) for p in others}
            calls = build_requests(servers, Kind.LOOK_UP, bodies)
            calls |= build_requests(servers, Kind.PULL, empty)
            replies, version = exchange.pull(calls)
            versions.append(version)
            return {p: replies[p] for p in bodies}

        rows = LookUps(servers, send=ask_servers, pushes=NoPushes()).look_up_now(
            TABLE_POSITION, ids
        )
        return rows, versions[0]

    def _push(
        self,
        servers: Sequence[FunctionHalf],
        ids: tf.Tensor,
        gradients: tf.Tensor,
        version: tf.Tensor,
        *,
        on_worker: bool,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        (call,) = servers[0].program.calls
        table, devices = (
            call.variables[TABLE_POSITION],
            [server.server.device for server in servers],
        )
        with tf.control_dependencies([check_ids([RequestedIds.from_ids(ids, table)])]):
            checked = tf.identity(ids)
        (distinct,) = DistinctRows.from_ids([table], [checked], devices=devices)
        rows = RowValues.from_gradient(tf.IndexedSlices(gradients, checked), distinct)
        if not isinstance(call.optimizer, GradientSubtraction):
            values = prepare_gradients(
                call.optimizer, [rows.values], variables=call.variables, read=read_current_value
            )
            rows = rows._replace(values=values[0])
        bodies = build_row_bodies(
            [rows], optimizer=call.optimizer, wires=[server.wires[0] for server in servers]
        )
        scale = collect_loss_scale(call.optimizer, read_current_value)
        every = {p: encode_push(s.wires[0], scale, bodies.get(p)) for p, s in enumerate(servers)}
        return PrimitiveExchange(self._runtime, on_worker=on_worker).push(servers, every, version)
