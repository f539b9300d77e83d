"""Bytes and updates of a ticket run per second, as the ledgers of all servers count them."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tfps.runtime.coordinator.runtime import Runtime
from tfps.training.report.step_rate import MIN_MEASURED_S, StepRate
from tfps.transport.traffic import message_bytes

# Each sample costs the chief and every server a millisecond.
SAMPLE_PERIOD_S = 1.0


class ServerRates(NamedTuple):
    """The bytes and updates of one server per second."""

    received: float  # bytes
    sent: float  # bytes
    updates: float


class TrafficRate:
    """The bytes and updates per second, from the first step that was seen to the last.

    Args:
        runtime: the job.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime, self._rate, self._due_s = runtime, StepRate(), 0.0
        self.cells: list[np.ndarray[Any, Any]] = []  # of all servers, when they were last asked

    def sample(self, steps: int, *, now_s: float, is_last: bool = False) -> None:
        """Read the ledgers of all servers, if a second has passed and no server is lost.

        Args:
            steps: of the run that are done.
            now_s: when.
            is_last: no more steps follow; read sooner then, so that a short epoch has a rate.
        """
        servers = self._runtime.servers
        due_s = self._due_s - (SAMPLE_PERIOD_S - MIN_MEASURED_S if is_last else 0.0)
        is_due = steps > self._rate.steps and now_s >= due_s
        if not is_due or any(server.lost is not None for server in servers):
            return
        self._due_s = now_s + SAMPLE_PERIOD_S
        try:
            self.cells = [server.cells(patience_s=0.0) for server in servers]
        except tf.errors.UnavailableError:
            return  # whether a server is lost is for others to say; a rate can wait
        layout = self._runtime.ticket_server.layout
        counted = itertools.chain(
            *((*message_bytes(layout, cells), int(cells[layout.VERSION])) for cells in self.cells)
        )
        self._rate.count(steps, now_s=now_s, by_worker=list(counted))

    @property
    def rates_by_server(self) -> list[ServerRates] | None:
        """The rates of each server; None if not measured."""
        found = self._rate.per_second_by_worker
        if found is None:
            return None
        return [ServerRates(*each) for each in zip(*[iter(found)] * 3, strict=True)]
