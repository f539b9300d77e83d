"""A custom loop's functions on one server whose workers run the optimizers."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from tfps.consistency.admission import Counted
from tfps.optimizers.worker_memory import WorkerAt
from tfps.runtime.message.wire import Parts, StageWire, parts_of, pieces_on, stage_wire
from tfps.runtime.server.custom_round import RoundServer
from tfps.runtime.server.custom_server import CustomServer, reply_header
from tfps.runtime.server.server_delta import DeltaStage
from tfps.runtime.server.server_stage import timed_update
from tfps.transport.layout import Layout
from tfps.transport.message import Kind
from tfps.transport.packing import pack
from tfps.transport.service import Entry

SLOTS = 1  # the stage of a pull that asks for what optimizers begin with


class DeltaServer(CustomServer):
    """The server's half of a scheduled function that takes local steps.

    A push ends a period: it brings what the worker's weights have changed by. Each is divided by
    the number of workers in the cluster, since a server does not know who has functions to run.
    """

    @functools.cached_property
    def _slots(self) -> Parts:
        return parts_of(pieces_on(self.program.local.slots, self.server.device))

    @property
    def slots(self) -> Sequence[Any]:
        """What the optimizers keep, of this server's variables."""
        return self._slots.variables

    @property
    def slot_layout(self) -> Layout:
        """Of the answer to a pull of them."""
        return self._slots.layout

    def _all_functions(self) -> dict[tuple[Kind, int], tuple[Entry, Any]]:
        functions = super()._all_functions()
        entry = Entry(Kind.PULL, SLOTS, 0, self.slot_layout.size_bytes)
        functions[Kind.PULL, SLOTS] = (entry, self._function(self._pull_slots))
        return functions

    def _wire(self, variables: Sequence[Any]) -> StageWire:
        """Up go differences and counts; down come weights, counts and learning rates."""
        local, assigned = self.program.local, {id(v) for v in self.program.state}
        rates = [rate for rate in local.rates if id(rate) not in assigned]
        exchanged = dataclasses.replace(
            self.program, variables=[*variables, *local.counts, *rates], state=[]
        )
        return stage_wire(exchanged, 0, device=self.server.device, reports=False)

    def _change(
        self, stage: int, tensors: Mapping[str, tf.Tensor], counted: Counted, sender: WorkerAt
    ) -> None:
        delta = DeltaStage(
            self.wires[stage],
            number=stage,
            is_last=True,
            optimizer=self.program.stages[stage].optimizer,
            server=self.server,
            update_of=self._update_of,  # type: ignore[arg-type]  # never called: workers update
        )
        workers = tf.constant(self.server.ledger.books.slots, tf.int64)
        timed_update(
            self.server,
            lambda: delta.change(
                tensors, staleness=counted.staleness, workers=workers, sender=sender
            ),
        )

    def _begin(self, native: Any, header: tf.Tensor) -> tf.Tensor:
        """The value that a slot begins with on a worker that is new.

        Args:
            native: the slot.
            header: of the worker's request.
        """
        value: tf.Tensor = native.read_value()
        return value

    def _pull_slots(self, header: tf.Tensor, ids: tf.Tensor, payload: tf.Tensor) -> list[tf.Tensor]:
        ledger = self.server.ledger
        with ledger.locked():
            entries = ledger.entries()
            version = entries.read(ledger.books.VERSION)
            entries.count_traffic(received_bytes=0, sent_bytes=self.slot_layout.size_bytes)
            ledger.post(entries)
            values = {n.shared_name: self._begin(n, header) for n in self._slots.natives}
        return [reply_header(version), ids, pack(self._slots.server_layout, values)]


class DeltaRoundServer(DeltaServer, RoundServer):
    """The same where the end of a period is a round of all workers that have functions to run."""

    stage_kind = DeltaStage
