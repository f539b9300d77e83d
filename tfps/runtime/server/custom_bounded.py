"""A custom loop's functions on one server where workers wait for the slowest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tfps.consistency.admission import count_update
from tfps.consistency.ledger import Status
from tfps.optimizers.worker_memory import WorkerAt
from tfps.optimizers.wrapped import drop_above_of
from tfps.runtime.message.answers import Answers
from tfps.runtime.server.custom_server import CustomServer, reply_header
from tfps.runtime.server.joining import join_if_new
from tfps.runtime.server.server_stage import count_durations
from tfps.runtime.server.server_tables import received_bytes, reply_ids, unpacked
from tfps.transport.message import Request
from tfps.transport.packing import pack


class BoundedServer(CustomServer):
    """The server's half of a scheduled function whose optimizer calls are steps of a clock.

    A worker joins with its first pull. Each of its optimizer calls is a step: its push is answered
    when it may start another one. So a call can stand in a loop or a branch.
    """

    takes_part = True

    @property
    def _answers(self) -> Answers:
        return Answers(self.job_id, self.plan_id)

    def _alive(self, header: tf.Tensor) -> tf.Tensor:
        return self._answers.is_alive(header, self.server.ledger.entries())

    def _pull(self, header: tf.Tensor, ids: tf.Tensor, payload: tf.Tensor) -> list[tf.Tensor]:
        ledger = self.server.ledger
        with (
            ledger.locked(),
            tf.control_dependencies([join_if_new(self.server, self._answers, header)]),
        ):
            alive = self._alive(header)
            entries = ledger.entries()
            clock = entries.read(ledger.books.clock(header[Request.SLOT]))
            version = entries.read(ledger.books.VERSION)
            entries.count_if(tf.constant(True), ledger.books.EXCHANGES)
            entries.count_traffic(received_bytes=0, sent_bytes=self.parameter_layout.size_bytes)
            ledger.post(entries)
            values = {native.shared_name: native.read_value() for native in self._held.natives}
            worker = WorkerAt(header[Request.SLOT], version)
            self._handing_out(self._held).note(worker, counts=alive, is_first=True)
        status = tf.where(alive, int(Status.OK), int(Status.EVICTED))
        reply = reply_header(version, status=status, clock=clock)
        return [reply, ids, pack(self._held.server_layout, values)]

    def _push_of(self, stage: int) -> Callable[..., Sequence[tf.Tensor]]:
        wire, optimizer = self.wires[stage], self.program.stages[stage].optimizer
        ledger, gate = self.server.ledger, self.server.gate

        def read() -> dict[str, tf.Tensor]:
            return {native.shared_name: native.read_value() for native in wire.values.natives}

        def read_again(worker: WorkerAt) -> list[tf.Tensor]:
            version = ledger.entries().read(ledger.books.VERSION)
            self._handing_out(wire.values).note(worker._replace(version=version), is_first=False)
            return [version, *read().values()]

        def push(header: tf.Tensor, ids: tf.Tensor, payload: tf.Tensor) -> list[tf.Tensor]:
            tensors, slot = unpacked(wire, ids, payload), header[Request.SLOT]
            worker = WorkerAt(slot, header[Request.BASE_VERSION])
            with ledger.locked():
                alive = self._alive(header)
                entries = ledger.entries()
                counted = count_update(
                    entries,
                    base_version=header[Request.BASE_VERSION],
                    drop_above=drop_above_of(optimizer),
                    alive=alive,
                )
                self._change(stage, tensors, counted, worker)
                entries.count_traffic(
                    received_bytes=received_bytes(wire, ids, payload),
                    sent_bytes=wire.reply.size_bytes,
                )
                count_durations(self.server, entries, header)
                ledger.post(entries)
                has_to_wait = gate.end_step(slot, counts=alive, clock=header[Request.CLOCK] + 1)
                assert has_to_wait is not None  # there is a bound
                values: Mapping[str, Any] = read()
                answered = worker._replace(version=counted.version)
                self._handing_out(wire.values).note(answered, counts=alive, is_first=False)
            version, *parts = tf.cond(
                has_to_wait,
                lambda: gate.wait(slot, lambda: read_again(worker)),
                lambda: [counted.version, *values.values()],
            )
            values = dict(zip(values, parts, strict=True))
            reply = reply_header(version, counted.staleness, counted.status)
            return [reply, reply_ids(wire, ids), pack(wire.server_reply, values)]

        return push
