"""The progress bar's text about the pace of training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tfps.observe import slow_worker
from tfps.runtime.coordinator.runtime import Runtime
from tfps.strategy.reading.stats import worker_step_seconds
from tfps.strategy.reading.traffic import compute_traffic, describe_traffic
from tfps.training.run_state import RunState


def describe_pace(alive: Sequence[bool], *, state: RunState, runtime: Runtime) -> str:
    """Return a text with the workers alive, the mean staleness of the epoch, and the traffic.

    Args:
        alive: for each worker whether it takes part.
        state: the state of the runs; an evaluation within a run does not count as traffic.
        runtime: the job.
    """
    text = f"{sum(alive)}/{len(alive)} workers"
    run, progress = state.newest_run, state.progress
    if run is None:
        return text
    counts = Counter(runtime.ticket_server.layout.staleness_counts(run.cells))
    counts.subtract(state.staleness_before)
    if (gradients := counts.total()) > 0:
        mean = sum(value * count for value, count in counts.items()) / gradients
        text = f"{text} - staleness {mean:.1f}"
    in_training = progress is not None and progress.kind == "train"
    moved = describe_traffic(
        compute_traffic(runtime, state.traffic if in_training else run.traffic)
    )
    return f"{text} - {moved}" if moved else text


def describe_slow_worker(alive: Sequence[bool], *, state: RunState, runtime: Runtime) -> str:
    """Return a text about a worker that is much slower than the others; empty without one.

    Args:
        alive: for each worker whether it takes part.
        state: the state of the runs.
        runtime: the job.
    """
    run = state.newest_run
    if run is None or not run.changes_variables:
        return ""
    layout, workers = runtime.ticket_server.layout, len(alive)
    paces = worker_step_seconds(layout, run.cells, workers=workers)
    present = [pace if lives else None for pace, lives in zip(paces, alive, strict=True)]
    return slow_worker.describe_slow_worker(present, mode=repr(runtime.mode))
