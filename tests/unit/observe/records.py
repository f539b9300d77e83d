"""Records as a job writes them, with a fault or without."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

from tfps.observe.record import format_line, parse_line

Line = dict[str, Any]
WORKERS, SERVERS = 3, 2
STEP_S = 0.1  # each worker's own part; the exchange takes as long again


def _durations(mean_s: float, count: int) -> Line:
    return {"p50": mean_s, "p99": mean_s, "mean": mean_s if count else None, "count": count}


def _line(second: int) -> Line:
    """Return the line of a second of a job that trains well."""
    steps = 5 * second
    exchanges = WORKERS * steps
    server = {
        "updates_applied": exchanges,
        "bytes_pulled": 20_000_000 * exchanges,
        "bytes_pushed": 20_000_000 * exchanges,
        "push_seconds": _durations(0.08, exchanges),
        "update_seconds": _durations(0.01, exchanges),
    }
    return {
        "time_s": 1000.0 + second,
        "began_s": 999.0,
        "usage": {
            task: {"cpu_s": 1.0 * second, "memory_bytes": 10**9, "memory_limit_bytes": 10**10}
            for task in ("chief 0", "ps 0", "ps 1", "worker 0", "worker 1", "worker 2")
        },
        "mode": "Asynchronous(warm_up_steps=0)",
        "largest": ["dense/kernel", "table/shard_1"],
        "traces": {"the train step of sequential": 1},
        "loss": 2.0 / (second + 1),
        "run": {"kind": "train", "steps": steps * WORKERS, "waiting": [], "computing": [0, 1, 2]},
        "stats": {
            "worker_steps": [steps] * WORKERS,
            "worker_evaluation_steps": [0] * WORKERS,
            "worker_step_seconds": [STEP_S] * WORKERS,
            "gradient_staleness_updates": {2: exchanges},
            "wait_seconds": _durations(0.01, exchanges),
            "push_seconds": _durations(0.08, 2 * exchanges),
            "servers": [copy.deepcopy(server) for _ in range(SERVERS)],
            "transports": ["direct"] * SERVERS,
            "tasks": {f"worker {worker}": "alive" for worker in range(WORKERS)},
        },
    }


def record(seconds: int = 90, fault: Callable[[int, Line], None] | None = None) -> list[Line]:
    """Return the lines of a job as they are read from its file.

    Args:
        seconds: the number of lines.
        fault: changes the line of a second.
    """
    lines = []
    for second in range(seconds):
        line = _line(second)
        if fault is not None:
            fault(second, line)
        now_s, began_s = line.pop("time_s"), line.pop("began_s")
        parsed = parse_line(format_line(line, now_s=now_s, began_s=began_s))
        assert parsed is not None
        assert json.dumps(parsed)
        lines.append(parsed)
    return lines
