"""How training goes, in words of the progress bar."""

from __future__ import annotations

from collections.abc import Sequence

from tfps.consistency.ledger import STALENESS_BINS
from tfps.runtime.coordinator.runtime import Runtime
from tfps.strategy.reading.traffic import describe, take_traffic
from tfps.training.report.traffic_rate import TrafficRate
from tfps.training.run.ticket_run import TicketRun


def describe_pace(
    alive: Sequence[bool],
    *,
    run: TicketRun | None,
    traffic: TrafficRate | None,
    runtime: Runtime,
) -> str:
    """Workers alive, mean staleness of all updates, and traffic.

    Args:
        alive: for each worker whether it takes part.
        run: the one at hand, or the last; None: there was none.
        traffic: of the run that the line is about, which an evaluation within it is not; None: of
            none.
        runtime: of the job.
    """
    text = f"{sum(alive)}/{len(alive)} workers"
    if run is None:
        return text
    begin = runtime.ticket_server.layout.staleness(0)
    counts = run.cells[begin : begin + STALENESS_BINS]
    if counts.sum():
        mean = float((counts * range(STALENESS_BINS)).sum() / counts.sum())
        text = f"{text} - staleness {mean:.1f}"
    moved = describe(take_traffic(runtime, traffic))
    return f"{text} - {moved}" if moved else text
