"""The cells of the short tables of the strategies, by row and heading."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks.results import Spread
from benchmarks.script_run import CANNOT
from benchmarks.strategy_rows import ROWS, SHAPES, SLOW_WORKERS, StrategyShape
from benchmarks.table import number_text, spread_text
from tfps.units import counted

Entry = Mapping[str, Any]  # a case of a report


def strategy_row(is_wanted: Callable[[StrategyShape], bool]) -> Callable[[Entry], str | None]:
    """Return the row of an entry, on the shapes that are wanted."""

    def row(entry: Entry) -> str | None:
        is_shown = is_wanted(SHAPES[entry["shape"]])
        return ROWS[entry["row"]].title if is_shown else None

    return row


def trained_cells(entry: Entry) -> Mapping[str, str]:
    """Return how fast a model is trained, and how well."""
    title = entry["model"]
    if CANNOT in entry:
        return {f"{title}: examples/s": "; ".join(entry[CANNOT])}
    found = {f"{title}: examples/s": _spread_text(entry["examples_per_s"])}
    if any(entry["accuracy"].values()):
        accuracies = [100 * each[-1] for each in entry["accuracy"].values()]
        found[f"{title}: accuracy, %"] = _spread_of(accuracies)
        reached = [seconds for seconds in entry["seconds_to_goal"].values() if seconds is not None]
        seeds = len(entry["seconds_to_goal"])
        times = [number_text(statistics.median(reached))] if reached else []
        missed = [f"{len(reached)} of {seeds} seeds"] if len(reached) < seeds else []
        found[f"{title}: s to goal"] = ", ".join([*times, *missed])
    return found


def task_cells(entry: Entry) -> Mapping[str, str]:
    """Return the cells with the bytes, memory and CPU that the tasks use."""
    if CANNOT in entry:
        return {}
    ways = [entry[name] for name in ("bytes_up", "bytes_down")]
    moved = " / ".join("0" if each is None else number_text(each) for each in ways)
    largest, cpu = (_median(entry, name) for name in ("largest_task_mib", "cpu_s"))
    title = entry["model"]
    return {
        f"{title}: bytes of an example up / down": moved,
        f"{title}: largest task, MiB": largest,
        f"{title}: CPU s": cpu,
    }


def slow_cells(entry: Entry) -> Mapping[str, str]:
    """Return steps that wait, by the number of workers."""
    if CANNOT in entry:
        return {}
    workers = entry["workers"]
    found = {counted(workers, "worker"): _median(entry, "examples_per_s")}
    if workers < max(SLOW_WORKERS):
        return found
    shares = {"of linear": "share_of_linear", "waits": "waiting_share"}
    found |= {title: f"{entry[name]:.2f}" for title, name in shares.items() if entry[name]}
    if "beside_slow" in entry:
        found["beside a slow one"] = f"{entry['beside_slow'] / entry['steps_per_s']:.2f}"
        rests = entry["after_kill"]
        if rests == "goes on":
            rests = f"rests {number_text(entry['rest_s'])} s"
            if entry["back_s"] is not None:
                rests += f", it is back in {number_text(entry['back_s'])} s"
        found["after a kill"] = rests
    return found


def asks_cells(entry: Entry) -> Mapping[str, str]:
    """Return the cells with what a strategy asks of its user: changed lines, and a cluster."""
    found = {"lines changed": str(entry["lines_changed"]), "of the cluster": entry["needs"]}
    if entry.get("largest_model_per_gib") is not None:
        found["GiB of tables for a GiB of each task"] = f"{entry['largest_model_per_gib']:.2f}"
    return found


def _spread_of(values: Sequence[float]) -> str:
    return spread_text(Spread.from_samples(values))


def _median(entry: Entry, quantity: str) -> str:
    return number_text(entry[quantity]["median"])


def _spread_text(entry: Mapping[str, float]) -> str:
    return spread_text(Spread(entry["min"], entry["median"], entry["max"]))
