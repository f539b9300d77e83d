"""Track the progress of a ticket run, and the points that it can go back to."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection
from typing import Any, NamedTuple

import numpy as np

from tfps.consistency.round_point import RoundPoint, index_of_oldest_kept, list_returned_tickets
from tfps.runtime.compile.compiled import CompiledProgram
from tfps.runtime.coordinator.runtime import Runtime
from tfps.runtime.coordinator.server import UNLIMITED_TICKETS
from tfps.training.input.feeder import BatchKeeper, Feeder
from tfps.training.report.step_rate import StepRate
from tfps.training.report.traffic_rate import TrafficRate


class RunPoint(NamedTuple):
    """Describes a run's state between two rounds, as the chief knows it.

    Data, seeds and the order of the examples go by the tickets' positions in the run, so nothing
    is kept of them.
    """

    servers: RoundPoint  # their state
    first_ticket: int  # of the run
    end_ticket: int  # the first ticket behind the run
    completed_before: int  # steps that the ticket server had counted before the run
    completed: int  # steps of the run
    open_position: int  # of the first ticket that had not been closed
    cells: np.ndarray[Any, Any]  # of the ticket server
    metrics: np.ndarray[Any, Any]  # the totals of the run so far
    outputs: np.ndarray[Any, Any]


class RunProgress:
    """The progress that the chief reads from the ticket server; recovery of servers resets it.

    Args:
        compiled: the program, compiled for servers and workers.
        runtime: the job.
        tickets: how many steps, or None for as many as the input has.
        cells: of the ticket server, before the first ticket.
        metrics: the totals there.
        first: the first ticket.

    Attributes:
        steps: how many the run has at most.
        completed: steps that count; fewer than `known_completed` after servers went back.
        staleness_before: the job's staleness counts before the run.
        known_completed: the most steps that the chief has ever read.
        running: whether closures may be at work.
        samples: how often progress was read.
        sampled_s: when it was read last, on the monotonic clock.
        rate: the speed of the run.
        traffic: what it sends and receives.
        serialized: the last ticket that a worker has returned outputs for, and these; or empty.
    """

    def __init__(
        self,
        compiled: CompiledProgram,
        *,
        runtime: Runtime,
        tickets: int | None,
        cells: np.ndarray[Any, Any],
        metrics: np.ndarray[Any, Any],
        first: int,
    ) -> None:
        self.compiled, self._runtime = compiled, runtime
        self._layout, self.cells = runtime.ticket_server.layout, cells
        self.tickets = tickets
        self.steps = UNLIMITED_TICKETS if tickets is None else tickets
        self.first, self._end, self._limit = first, first + self._periods(self.steps), first
        self._completed_before = int(cells[self._layout.COMPLETED])
        self.staleness_before = self._layout.staleness_counts(cells)
        self.metrics = metrics
        self.outputs = np.zeros([compiled.program.output_items])
        self.serialized: list[bytes] = []
        self.completed = self.known_completed = 0
        self.running = False
        self._recalled = False  # closures end for a moment, and are sent out once more
        self._points: list[RunPoint] = []
        self._went_back_count = self._repeated = 0  # how often, and by how many steps the last time
        self._sampling = threading.Lock()  # servers are recovered in a thread of its own
        self.samples, self.sampled_s = 0, time.monotonic()
        self.rate, self.traffic = StepRate(self.sampled_s), TrafficRate(runtime)

    def _periods(self, steps: int) -> int:
        """Return how many tickets of the servers a number of steps take."""
        return -(-steps // self.compiled.program.schedule.period_steps)

    def sample(self) -> None:
        """Read progress, metric totals and outputs from the ticket server."""
        server, keeper = self._runtime.ticket_server, self._keeper
        while True:
            starts, closed = server.starts, 0 if keeper is None else keeper.closed
            went_back_count = self._went_back_count
            report = self.compiled.servers[0].read_report()
            is_same = (server.starts, server.lost) == (starts, None)
            if is_same and self.take_report(report, went_back_count=went_back_count):
                break  # else it goes on from what was seen before
        if keeper is not None:
            keeper.drop_seen(closed)
        self.samples += 1
        self.sampled_s = time.monotonic()
        by_worker = [int(self.cells[server.layout.steps(w)]) for w in range(self._runtime.workers)]
        self.rate.count(self.completed, now_s=self.sampled_s, by_worker=by_worker)
        is_last = self.completed >= self.steps or not self.running
        self.traffic.sample(self.completed, now_s=self.sampled_s, is_last=is_last)

    def take_report(
        self, report: tuple[np.ndarray[Any, Any], ...], *, went_back_count: int
    ) -> bool:
        """Use a report of the ticket server, unless the run went back since it was requested.

        Args:
            report: its ledger, the totals of metrics, and the newest outputs.
            went_back_count: how often it had gone back when the report was asked for.
        """
        with self._sampling:
            if self._went_back_count != went_back_count:
                return False
            self.cells, self.metrics, self.outputs = report
            self.completed = int(self.cells[self._layout.COMPLETED]) - self._completed_before
            self.known_completed = max(self.known_completed, self.completed)
            return True

    def keep_serialized(self, outputs: list[bytes]) -> None:
        """Keep the outputs of a worker's last step, unless those of a later ticket are known."""
        with self._sampling:
            self.serialized = max(self.serialized, outputs if outputs[0] else [])

    @property
    def has_steps_to_repeat(self) -> bool:
        """Whether steps that the chief has seen completed must still be repeated."""
        return self.completed < self.known_completed

    @property
    def repeat_note(self) -> str:
        """A note for the progress line while lost steps are repeated; else empty."""
        return f"repeating {self._repeated} steps" if self.has_steps_to_repeat else ""

    @property
    def points(self) -> list[RoundPoint]:
        """The points that the run can go back to, the oldest first."""
        return [point.servers for point in self._points]

    def add_point(self, servers: RoundPoint, *, committed: Collection[int]) -> None:
        """Add the present state as a point to go back to, unless the run has gone on.

        Args:
            servers: where they are, while no worker takes part.
            committed: the numbers of the checkpoints that are complete.
        """
        layout = self._layout
        with self._sampling:
            same = (layout.COMPLETED, layout.NEXT)
            if any(self.cells[cell] != servers.ledgers[0][cell] for cell in same):
                return
            self._points = [p for p in self._points if p.servers.checkpoint != servers.checkpoint]
            still_open = [
                *list_returned_tickets(layout, servers.ledgers[0]),
                self.cells[layout.NEXT],
            ]
            self._points.append(
                RunPoint(
                    servers,
                    first_ticket=self.first,
                    end_ticket=self._end,
                    completed_before=self._completed_before,
                    completed=self.completed,
                    open_position=int(min(still_open)) - self.first,
                    cells=self.cells,
                    metrics=self.metrics,
                    outputs=self.outputs,
                )
            )
            numbers = [point.servers.checkpoint for point in self._points]
            del self._points[: index_of_oldest_kept(numbers, committed=committed)]
            held_from = self._points[0].open_position
        self.hold_from(held_from)

    def go_back(self, point: RoundPoint) -> int:
        """Begin again from a point, and return how many known steps are repeated."""
        with self._sampling:
            at = [known_completed.servers for known_completed in self._points].index(point)
            back = self._points[at]
            del self._points[at + 1 :]
            self._limit += back.first_ticket - self.first
            self.first, self._end = back.first_ticket, back.end_ticket
            self._completed_before, self.completed = back.completed_before, back.completed
            self.cells, self.metrics, self.outputs = back.cells, back.metrics, back.outputs
            self._went_back_count += 1
            self.serialized = []  # tickets have the same numbers again
            self._recalled = self.running  # closures find no tickets; they are sent out once more
            self._repeated = self.known_completed - self.completed
            return self._repeated

    def hold_from(self, position: int) -> None:
        """Keep the batches from a position on: their tickets may be handed out again."""
        source: object = self.compiled.source
        if isinstance(source, Feeder):
            source.hold_from(position)

    @property
    def _keeper(self) -> BatchKeeper | None:
        source: object = self.compiled.source
        return source.keeper if isinstance(source, Feeder) else None

    def write_totals(self) -> None:
        """Write the totals of the latest sample to a restarted ticket server."""
        if self._keeper is not None:
            self._keeper.on_server_return()
        reports = self.compiled.servers[0].reports
        if reports is not None:
            reports.write(self.metrics, self.outputs)
