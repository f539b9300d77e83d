"""The results of `strategy.stats()` and `Attachment.stats()`: the counters of servers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from tfps.consistency.histogram import DURATION_BINS, mean_seconds, quantile_seconds
from tfps.consistency.ledger import LedgerLayout
from tfps.strategy.reading.traffic import Traffic, compute_traffic
from tfps.training.fit_strategy import FitStrategy

PUSH, PULL, WAIT, UPDATE, ENCODE, DECODE, REDUCE = range(7)


@dataclass(frozen=True)
class Quantiles:
    """Two quantiles and the mean of a duration, in seconds; None if nothing was measured.

    Attributes:
        count: the number of measured durations.
    """

    p50: float | None
    p99: float | None
    mean: float | None = None
    count: int = 0


@dataclass(frozen=True, kw_only=True)
class ServerStats:
    """The counters of one server, as in `JobStats`.

    Attributes:
        updates_applied: the number of its updates, its version.
        bytes_pulled: bytes of parameters sent to workers.
        bytes_pushed: bytes of gradients, state and reports of steps received.
        pull_seconds: the duration of pulls, as workers have reported it to this server.
        push_seconds: the duration of pushes, likewise; each goes to all servers at once.
        update_seconds: the duration of the optimizer's update.
        wait_seconds: the wait of workers for their next batch, as reported to this server.
        updates_per_s: updates in the current or last epoch of `fit` per second; None before that,
            and from `tfps.attach`.
        bytes_per_s: the bytes that it sends and receives per second in that epoch, likewise.
    """

    updates_applied: int
    bytes_pulled: int
    bytes_pushed: int
    pull_seconds: Quantiles
    push_seconds: Quantiles
    update_seconds: Quantiles
    wait_seconds: Quantiles
    updates_per_s: float | None = None
    bytes_per_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class JobStats:
    """The counters of a job's servers. A value that is not measured is None, never 0.

    Attributes:
        updates_applied: the smallest count of all servers; the counts are equal once all workers
            are drained.
        gradients_dropped: the number of refused gradients.
        examples_seen: the number of training examples of closed tickets.
        gradient_staleness_updates: staleness -> number of gradients; the last bin collects all
            above it.
        clock_gap_steps: (now, largest when a worker started a step) difference of completed steps
            between active workers; the asynchronous mode has no gate, so the largest is None.
        worker_steps: completed training steps of each worker.
        worker_evaluation_steps: completed evaluation steps of each worker.
        worker_step_seconds: each worker's own part of a step of `fit`, a moving mean: the wait for
            its batch and the computation, without the exchange, in which it may wait for others.
            None where it is not measured.
        versions: the version of each server.
        exchanges: the number of joins, pulls, pushes and row look-ups of each server.
        bytes_pulled: bytes of parameters sent to workers.
        bytes_pushed: bytes of gradients, state and reports of steps received.
        pull_seconds: the duration of exchanges with all servers that only fetch parameters for
            training: one when a scheduled function begins, and one when a worker joins an epoch
            of `fit`; `fit`'s steps have none, since the reply to a push brings the parameters. It
            includes the wait in modes in which workers wait for each other. A worker's first one
            is left out: it connects, and prepares the functions.
        push_seconds: the duration of exchanges with all servers that send gradients and return the
            newest parameters: one for each step of `fit`, and for each optimizer call of a
            scheduled function. It includes the mode's wait. A worker reports one with its next
            push, so each worker's newest is missing.
        update_seconds: the duration of the optimizer's update on a server.
        wait_seconds: the wait of a worker in `fit` for its next batch; scheduled functions get
            their batches themselves.
        encode_seconds: the duration of encoding the gradients of a push on its worker, or the
            parameters of a reply on the server; None without codecs.
        decode_seconds: the duration of decoding the gradients of a push on a server, or the
            parameters of all replies on the worker, which reports it with its next push.
        bytes_reduced: bytes that workers have sent to each other for the sums of `AllReduce`.
        reduce_seconds: the duration of these sums, with the wait for other workers.
        rounds_repeated: the number of rounds that were given up and came again, since one of the
            workers that add up gradients was lost or came back.
        servers: the counters of each server.
    """

    updates_applied: int
    gradients_dropped: int
    examples_seen: int
    gradient_staleness_updates: dict[int, int]
    clock_gap_steps: tuple[int, int | None]
    worker_steps: tuple[int, ...]
    worker_evaluation_steps: tuple[int, ...]
    worker_step_seconds: tuple[float | None, ...]
    versions: tuple[int, ...]
    exchanges: tuple[int, ...]
    bytes_pulled: int
    bytes_pushed: int
    pull_seconds: Quantiles
    push_seconds: Quantiles
    update_seconds: Quantiles
    wait_seconds: Quantiles
    encode_seconds: Quantiles
    decode_seconds: Quantiles
    bytes_reduced: int
    reduce_seconds: Quantiles
    rounds_repeated: int
    servers: tuple[ServerStats, ...]


@dataclass(frozen=True, kw_only=True)
class Stats(JobStats):
    """The counters of a job, and the values that only its chief knows.

    Attributes:
        steps_per_s: training steps of each worker per second in the current or last epoch of
            `fit`, from the first observed step to the last; None before that.
        transports: the transport to each server: ``"direct"`` or ``"grpc"``.
        tasks: name -> "alive", "lost" or "rejoining".
        worker_lives: the number of lives of each worker: 1, and one more each time that it worked
            again after it was lost.
        fallback_steps: the number of steps that took TensorFlow's own path.
        executors: how workers run the newest step of each kind (``"train"``, ``"test"`` or
            ``"predict"``): on one thread or with a thread pool, and why.
        traffic: the bytes sent by server and direction, and their size before coding.
        residuals_dropped: how often a codec's residual was lost with its worker
            (`tfps.compression`).
        updates_lost: the updates that rows of lost servers lack since they were restored from a
            checkpoint (`tfps.FaultTolerance`).
    """

    steps_per_s: tuple[float, ...] | None
    transports: tuple[str, ...]
    tasks: dict[str, str]
    worker_lives: tuple[int, ...]
    fallback_steps: int
    executors: dict[str, str]
    traffic: tuple[Traffic, ...]
    residuals_dropped: int
    updates_lost: int


class StrategyWithStats(FitStrategy, Protocol):
    """The members of a strategy that `take_stats` uses."""

    @property
    def tasks(self) -> dict[str, str]:
        """The state of each task, by its name."""

    def worker_rates(self) -> tuple[float, ...] | None:
        """Return the steps per second of each worker."""


def take_stats(strategy: StrategyWithStats) -> Stats:
    """Return the strategy's statistics; asks every server once."""
    runtime, state = strategy.runtime, strategy.run_state
    cells = runtime.cells()
    counted = job_stats(
        runtime.ticket_server.layout,
        cells,
        workers=runtime.workers,
        has_bound=strategy.consistency.bound_steps is not None,
    )
    rates = None if state.traffic is None else state.traffic.rates_by_server
    servers = counted.servers
    if rates is not None:
        servers = tuple(
            replace(server, updates_per_s=each.updates, bytes_per_s=each.received + each.sent)
            for server, each in zip(servers, rates, strict=True)
        )
    return Stats(
        **{**vars(counted), "servers": servers},
        steps_per_s=strategy.worker_rates(),
        transports=runtime.data_plane.carriers,
        tasks=strategy.tasks,
        worker_lives=state.worker_lives(),
        fallback_steps=runtime.fallback_steps,
        executors=dict(runtime.executors),
        traffic=compute_traffic(runtime, state.traffic, cells=cells),
        residuals_dropped=state.residuals_dropped(),
        updates_lost=0 if state.recovery is None else state.recovery.updates_lost,
    )


def job_stats(
    layout: LedgerLayout, all_cells: list[np.ndarray[Any, Any]], *, workers: int, has_bound: bool
) -> JobStats:
    """Compute a job's statistics from its servers' ledgers.

    Args:
        layout: the layout of each ledger.
        all_cells: the ledger of each server, int64, in the servers' order.
        workers: the number of workers.
        has_bound: whether the mode has a bound, so that servers measure the gap at the gate.
    """
    tickets = all_cells[0]
    places = range(workers)
    versions = tuple(int(cells[layout.VERSION]) for cells in all_cells)
    steps = tuple(int(tickets[layout.steps(worker)]) for worker in places)
    clocks = [int(tickets[layout.clock(worker)]) for worker in places] if has_bound else steps
    active = [clocks[worker] for worker in places if tickets[layout.active(worker)]]
    return JobStats(
        updates_applied=min(versions),
        gradients_dropped=int(max(cells[layout.DROPPED] for cells in all_cells)),
        examples_seen=int(tickets[layout.EXAMPLES]),
        gradient_staleness_updates=layout.staleness_counts(tickets),
        clock_gap_steps=(
            max(active) - min(active) if active else 0,
            int(max(cells[layout.LARGEST_GAP] for cells in all_cells)) if has_bound else None,
        ),
        worker_steps=steps,
        worker_evaluation_steps=tuple(
            int(tickets[layout.evaluation_steps(worker)]) for worker in places
        ),
        worker_step_seconds=worker_step_seconds(layout, tickets, workers=workers),
        versions=versions,
        exchanges=tuple(int(cells[layout.EXCHANGES]) for cells in all_cells),
        bytes_pulled=sum(int(cells[layout.BYTES_SENT]) for cells in all_cells),
        bytes_pushed=sum(int(cells[layout.BYTES_RECEIVED]) for cells in all_cells),
        pull_seconds=_quantiles(layout, all_cells, PULL),
        push_seconds=_quantiles(layout, all_cells, PUSH),
        update_seconds=_quantiles(layout, all_cells, UPDATE),
        wait_seconds=_quantiles(layout, all_cells[:1], WAIT),
        encode_seconds=_quantiles(layout, all_cells, ENCODE),
        decode_seconds=_quantiles(layout, all_cells, DECODE),
        bytes_reduced=int(tickets[layout.REDUCED_BYTES]),
        reduce_seconds=_quantiles(layout, all_cells, REDUCE),
        rounds_repeated=int(tickets[layout.REPEATED]),
        servers=tuple(
            ServerStats(
                updates_applied=int(cells[layout.VERSION]),
                bytes_pulled=int(cells[layout.BYTES_SENT]),
                bytes_pushed=int(cells[layout.BYTES_RECEIVED]),
                pull_seconds=_quantiles(layout, [cells], PULL),
                push_seconds=_quantiles(layout, [cells], PUSH),
                update_seconds=_quantiles(layout, [cells], UPDATE),
                wait_seconds=_quantiles(layout, [cells], WAIT),
            )
            for cells in all_cells
        ),
    )


def worker_step_seconds(
    layout: LedgerLayout, cells: np.ndarray[Any, Any], *, workers: int
) -> tuple[float | None, ...]:
    """Return each worker's own part of a step, in seconds, from the ticket server's ledger."""
    paces = [int(cells[layout.pace(worker)]) for worker in range(workers)]
    return tuple(pace / 1e6 if pace > 0 else None for pace in paces)


def _quantiles(layout: LedgerLayout, all_cells: list[np.ndarray[Any, Any]], kind: int) -> Quantiles:
    begin = layout.duration(kind, 0)
    counts = sum(cells[begin : begin + DURATION_BINS] for cells in all_cells)
    values = [int(count) for count in np.asarray(counts)]
    return Quantiles(
        quantile_seconds(values, 0.5),
        quantile_seconds(values, 0.99),
        mean_seconds(values),
        sum(values),
    )
