"""A custom loop's functions on one server whose workers train by themselves for a while."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tfps.consistency.ledger import Status
from tfps.runtime.coordinator.runtime import Runtime
from tfps.runtime.coordinator.server import Server
from tfps.runtime.message.wire import Parts, StageWire, gradient_of, name_of, pieces_on
from tfps.runtime.program.program import Program
from tfps.runtime.server.custom_delta import DeltaServer
from tfps.runtime.server.custom_server import reply_header
from tfps.runtime.server.server_stage import count_durations
from tfps.runtime.warm_up.warm_up_sums import WarmUpSums, sum_dtype
from tfps.transport.layout import Layout
from tfps.transport.message import Kind, Request
from tfps.transport.packing import pack, unpack
from tfps.transport.service import Entry

WEIGHTS = 2  # the stage of a pull that asks for what workers began with, and for the mean
CALLS = "calls"


class MeanServer(DeltaServer):
    """The server's half of a scheduled function of the warm-up.

    A push brings what the worker's difference, times its optimizer calls, has changed by. A worker
    that is new asks for what all began with, and for the mean: who comes back begins with that.

    Args:
        program: what the function touches; its weights stay on the worker.
        sums: of the server.
        runtime: the job.
        server: the server.
    """

    def __init__(
        self, program: Program, *, sums: WarmUpSums, runtime: Runtime, server: Server
    ) -> None:
        self._sums = sums
        self._kept = pieces_on(program.kept, server.device)
        sums.note(self._kept)
        super().__init__(
            program,
            runtime=runtime,
            server=server,
            update_of=lambda _: None,  # type: ignore[arg-type,return-value]  # workers update
            handed=(),
            uses_replies=False,
        )

    @functools.cached_property
    def kept_layout(self) -> Layout:
        """Of each half of an answer: what workers began with, then the mean."""
        return Layout.of(self._entries(name_of))

    def _entries(self, name: Callable[[Any], str]) -> list[tuple[str, str, tuple[int, ...]]]:
        return [(name(p), sum_dtype(p._value).name, tuple(p._value.shape)) for p in self._kept]

    def _all_functions(self) -> dict[tuple[Kind, int], tuple[Entry, Any]]:
        functions = super()._all_functions()
        entry = Entry(Kind.PULL, WEIGHTS, 0, 2 * self.kept_layout.size_bytes)
        functions[Kind.PULL, WEIGHTS] = (entry, self._function(self._pull_weights))
        return functions

    def _wire(self, variables: Sequence[Any]) -> StageWire:
        entries = self._entries(lambda piece: gradient_of(piece._value))
        request = Layout.of([*entries, (CALLS, "float64", ())])
        nothing = Parts((), ())
        return StageWire(
            gradients=Parts(self._kept, tuple(piece._value for piece in self._kept)),
            state=(),
            counts=(),
            values=nothing,
            request=request,
            reply=nothing.layout,
            server_request=request,
            server_reply=nothing.layout,
        )

    def _push_of(self, stage: int) -> Callable[..., Sequence[tf.Tensor]]:
        wire = self.wires[stage]

        def push(header: tf.Tensor, ids: tf.Tensor, payload: tf.Tensor) -> list[tf.Tensor]:
            ledger, tensors = self.server.ledger, unpack(wire.server_request, payload)
            with ledger.locked():
                entries = ledger.entries()
                version = entries.read(ledger.books.VERSION)
                entries.count(ledger.books.EXCHANGES)
                entries.count_traffic(received_bytes=wire.request.size_bytes, sent_bytes=0)
                count_durations(self.server, entries, header)
                ledger.post(entries)
                # A worker that hung until now has not heard that the warm-up is over.
                is_open = self._sums.is_open()
                tf.cond(
                    is_open,
                    lambda: self._sums.add(
                        self._kept,
                        tensors,
                        calls=tf.cast(tensors[CALLS], tf.int64),
                        slot=header[Request.SLOT],
                    ),
                    lambda: tf.constant(0),
                )
            status = tf.where(is_open, int(Status.OK), int(Status.EVICTED))
            return [reply_header(version, status=status), ids, tf.zeros([0], tf.uint8)]

        return push

    def _pull_weights(
        self, header: tf.Tensor, ids: tf.Tensor, payload: tf.Tensor
    ) -> list[tf.Tensor]:
        ledger, sent_bytes = self.server.ledger, 2 * self.kept_layout.size_bytes

        def weights() -> tf.Tensor:
            means = {name_of(piece): piece._value.read_value() for piece in self._kept}
            halves = [self._sums.begins(self._kept), means]
            return tf.concat([pack(self.kept_layout, half) for half in halves], 0)

        with ledger.locked():
            entries = ledger.entries()
            version = entries.read(ledger.books.VERSION)
            entries.count_traffic(received_bytes=0, sent_bytes=sent_bytes)
            ledger.post(entries)
            is_open = self._sums.is_open()
            answer = tf.cond(is_open, weights, lambda: tf.zeros([sent_bytes], tf.uint8))
        return [reply_header(version), ids, answer]
