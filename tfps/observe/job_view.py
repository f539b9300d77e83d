"""The present state of a job, from the newest lines of its record. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tfps.observe.cluster_warning import find_warnings, mean_growth

RATE_WINDOW_S = 10.0


def view_job(lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the newest counts, the rates of the last seconds, and warnings, as JSON values.

    Args:
        lines: the newest lines of a record, the oldest first; at least one. While a server is lost
            they have no statistics, and the newest that has any counts.
    """
    newest = lines[-1]
    whole = [
        line
        for line in lines
        if line["began_s"] == newest["began_s"] and "worker_steps" in line["stats"]
    ]
    last = whole[-1] if whole else newest
    first = next((x for x in whole if x["time_s"] >= last["time_s"] - RATE_WINDOW_S), last)
    seconds, old, stats = last["time_s"] - first["time_s"], first["stats"], last["stats"]

    def view_task(task: str, counts: Sequence[int], took_s: float | None, moved: Any) -> Any:
        used = [line["usage"].get(task, {"cpu_s": None}) for line in (first, last)]
        pairs = {"per_s": counts, "bytes_per_s": moved, "cpu": [each["cpu_s"] for each in used]}
        rates = {
            name: (pair[1] - pair[0]) / seconds if seconds and None not in pair else None
            for name, pair in pairs.items()
        }
        state, memory = newest["stats"]["tasks"].get(task), used[1].get("memory_bytes")
        names = {"task": task, "state": state, "count": counts[1], "took_s": took_s}
        return {**names, **rates, "memory_bytes": memory}

    tasks = []
    if whole:
        steps = zip(old["worker_steps"], stats["worker_steps"], strict=True)
        for i, counts in enumerate(steps):
            took_s = stats["worker_step_seconds"][i]
            tasks.append(view_task(f"worker {i}", counts, took_s, (None, None)))
        for i, pair in enumerate(zip(old["servers"], stats["servers"], strict=True)):
            took_s = mean_growth(*(each["update_seconds"] for each in pair))
            moved = [each["bytes_pulled"] + each["bytes_pushed"] for each in pair]
            counts = tuple(each["updates_applied"] for each in pair)
            tasks.append(view_task(f"ps {i}", counts, took_s, moved))
    warnings = [each.sentence for each in find_warnings(lines)]
    return {
        "time_s": newest["time_s"],
        "loss": newest.get("loss"),
        "states": newest["stats"]["tasks"],
        "tasks": tasks,
        "warnings": warnings,
    }
