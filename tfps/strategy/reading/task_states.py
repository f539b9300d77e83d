"""What is known of each task of a strategy."""

from __future__ import annotations

from tfps.bridge import tensorflow_private as private
from tfps.cluster import ClusterSpec
from tfps.recovery.probing.liveness import Verdict
from tfps.training.run_state import RunState


def task_states(cluster: ClusterSpec, state: RunState) -> dict[str, str]:
    """Each worker and server by its name: "alive", "lost", or "rejoining"."""
    lost = {
        (task_type, index): state.guard.verdict(task_type, index) is Verdict.LOST
        for task_type, index, _ in cluster.tasks("worker", "ps")
    }
    tasks = {
        f"{task_type} {index}": "lost" if is_lost else "alive"
        for (task_type, index), is_lost in lost.items()
    }
    if state.coordinator is not None:
        queue = private.closure_queue(state.coordinator)
        kept_out = queue.recalled | queue.barred
        for index, alive in enumerate(private.alive_workers(state.coordinator)):
            if not alive or index in kept_out:
                answers = state.guard.verdict("worker", index) is Verdict.ALIVE
                tasks[f"worker {index}"] = "rejoining" if answers else "lost"
    return tasks
