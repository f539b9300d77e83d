"""How many bytes of parameters and gradients go to and fro for an example."""

from __future__ import annotations

from typing import Any

from benchmarks.results import Case, Spread


def traffic_between(before: Any, after: Any, *, batch_size: int) -> dict[str, int]:
    """Return the bytes that a whole training moved, first fetches included, and its examples.

    Args:
        before: `stats()` of the strategy when nothing was trained.
        after: the same at the end.
        batch_size: examples of a worker's step.
    """
    return {
        "examples": batch_size * (sum(after.worker_steps) - sum(before.worker_steps)),
        "bytes_pulled": after.bytes_pulled - before.bytes_pulled,
        "bytes_pushed": after.bytes_pushed - before.bytes_pushed,
    }


def bytes_per_example(case: Case) -> Spread:
    """Return the bytes that workers received and sent, divided by the number of examples."""
    runs = case.runs.values()
    return Spread.from_samples(
        (run["bytes_pulled"] + run["bytes_pushed"]) / run["examples"] for run in runs
    )
