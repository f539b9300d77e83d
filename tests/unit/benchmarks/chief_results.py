"""Runs of benchmarks with chiefs that return at once, without a cluster."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.categories import IDS
from benchmarks.contestant_runs import TUNING_SEED
from benchmarks.embedding_rows import LENGTHS
from benchmarks.placement import BALANCED, PLANNED, WAYS, PlacementBenchmark
from benchmarks.results import Results
from benchmarks.runner import Bench, measure_all
from benchmarks.staleness import Staleness
from benchmarks.transport import LARGE_BYTES, MLP_BYTES
from benchmarks.turn import Turn
from tests.unit.benchmarks.outputs import chief_result, sample

MakeResult = Callable[[Mapping[str, Any]], Any]


def epoch(_: Mapping[str, Any]) -> Any:
    return chief_result(sample(100, worker=1.0, ps=0.5))


def exchanges(case: Mapping[str, Any]) -> Any:
    rows = [("echo", transport) for transport in case["transports"]]
    small = [(*row, MLP_BYTES) for row in rows]
    work = [("ledger", MLP_BYTES), ("adam", MLP_BYTES)]
    work += [(row, LARGE_BYTES) for row in ("echo", "pass", "adam")]
    ours = [(row, "unix", size) for row, size in work] if case["has_work"] else []
    ours += [("sum", "unix", MLP_BYTES)] if case.get("has_sums") else []
    return [
        {
            "row": row,
            "transport": transport,
            "size_bytes": size,
            "sample": sample(100, worker=1.0, ps=0.5),
        }
        for row, transport, size in small + ours
    ]


def saves(case: Mapping[str, Any]) -> Any:
    Path(case["folder"]).mkdir(parents=True, exist_ok=True)
    numbers = {"seconds": 2.0, "pause_s": 0.1, "chief_mib": 1.0, "server_mib": 8.0}
    pairs = [(way, what) for way in case["ways"] for what in ("save", "restore")]
    return [{"way": way, "what": what, **numbers} for way, what in pairs or [("tfps", "restore")]]


def lengths(_: Mapping[str, Any]) -> Any:
    numbers = {"first_step_s": 1.5, "memory_mib": {"chief": 700.0, "worker": 500.0, "ps": 400.0}}
    rates = {"1": 50, "50": 100}
    measured = {length: {"samples": [sample(rate)], **numbers} for length, rate in rates.items()}
    return {"lengths": measured, "details": {}}


def pair(_: Mapping[str, Any]) -> Any:
    curve = [(0.0, 0.1), (2.0, 0.86)]
    moved = {"examples": 6400, "bytes_pulled": 100, "bytes_pushed": 100}
    found = {"learning_rate": 0.001, "curve": curve, "memory_mib": 500.0}
    return {**chief_result(sample(100)), **found, **moved}


def trainings(case: Mapping[str, Any]) -> Any:
    ordered = [(rate, TUNING_SEED) for rate in Staleness().quick().rates_of(case["base"])]
    ordered += [(0.03, seed) for seed in (1, 2)]
    return [
        {
            "contestant": name,
            "learning_rate": rate,
            "seed": seed,
            "validation_accuracy": 0.8,
            "test_accuracy": 0.8 + rate / 100 + seed / 1000,
            "staleness_updates": {"9": 10},
        }
        for name in case["contestants"]
        for rate, seed in ordered
    ]


def scenarios(case: Mapping[str, Any]) -> Any:
    run = {
        "samples": [sample(100)],
        "curve": [(0.0, 0.1), (2.0, 0.86)],
        "updates": 90,
        "dropped": 10,
        "worker_steps": [50, 50],
        "staleness_updates": {"1": 90},
        "largest_gap_steps": 3,
        "examples": 6400,
        "bytes_pulled": 100,
        "bytes_pushed": 100,
    }
    return {"scenarios": dict.fromkeys(case["scenarios"], run), "details": {}}


def faults(case: Mapping[str, Any]) -> Any:
    if case["what"] in ("with", "without"):
        return chief_result(sample(100))
    if case["what"] == "worker":
        return {"pause_s": 0.2, "trains_s": 2.0}
    moments = {"detected_s": 0.5, "connected_s": 1.5, "restored_s": 3.0, "first_step_s": 4.0}
    return moments if case["what"] == "server" else {**moments, "first_step_s": 20.0}


def script(case: Mapping[str, Any]) -> Any:
    if case["shape"].startswith("slow"):
        faults = {"beside_slow": 20.0, "after_kill": "goes on", "rest_s": 0.5, "back_s": 2.0}
        return {"steps_per_s": 40.0, **faults}
    return {
        "accuracies": [] if case["shape"] == "large" else [0.5, 0.8],
        "examples": 1280,
        "epochs_s": [9.0, 2.0],
        "seconds": 20.0,
        "largest_task_mib": 1024.0,
        "all_tasks_mib": 2000.0,
        "cpu_s": 30.0,
        "tasks": {"worker": {"mib": 500.0, "cpu_s": 9.0}},
        "bytes_up": 1000.0,
        "bytes_down": 2000.0,
    }


def tables(case: Mapping[str, Any]) -> Any:
    return [
        {
            **chief_result(sample(100)),
            "place": {"tables": count, "ids": ids, "steps_per_execution": length},
            "least_bytes": 1000.0,
            "server_bytes": [] if case["row"] == "single_loop" else [[700.0, 500.0]],
        }
        for count in (1, 26)
        for ids in IDS
        for length in LENGTHS[case["row"]]
    ]


def links(case: Mapping[str, Any]) -> Any:
    if seeds := case.get("seeds"):
        curve = {"curve": [(1.0, 0.5), (2.0, 0.8)], "bytes": [1_000_000, 2_000_000]}
        trainings = {seed: {**chief_result(sample(100)), **curve} for seed in seeds}
        return {"trainings": trainings, "details": chief_result()["details"]}
    bytes_per_step = {"up_bytes_per_step": 2e5, "down_bytes_per_step": 1e5}
    sockets = {"socket_bytes_per_step": 3.1e5, "accounting": 0.99, "has_links": True}
    result = chief_result(sample(30.0 if case["way"] == "changes" else 10))
    return {**result, **bytes_per_step, **sockets}


def places(case: Mapping[str, Any]) -> Any:
    """Two servers of four hold all."""
    if case["models"] == [PLANNED]:
        place = {"model": PLANNED, "servers": PlacementBenchmark().planned_servers, "way": BALANCED}
        return [{**place, "planned": {"planning_s": 0.2}}]
    held = {1: [8], 4: [4, 4, 0, 0]}
    return [
        {
            "model": model,
            "servers": servers,
            "way": way,
            "planned": {
                "shards": servers,
                "bytes_per_server": held[servers],
                "step_bytes_per_server": held[servers],
                "least_imbalance": 1.0,
            },
        }
        for model in case["models"]
        for servers in PlacementBenchmark().quick().servers
        for way in WAYS
    ]


RESULTS: dict[str, MakeResult] = {
    "batch": pair,
    "checkpoint": saves,
    "consistency": scenarios,
    "embedding": tables,
    "network": links,
    "placement": places,
    "recovery": faults,
    "rows": epoch,
    "scaling": epoch,
    "staleness": trainings,
    "strategies": script,
    "throughput": lengths,
    "transport": exchanges,
}


@dataclass(frozen=True)
class BenchWithoutChiefs(Bench):
    """A run whose chiefs return at once, and that remembers what they were asked."""

    journal: Any = None  # keeps nothing
    titles: list[str] = field(default_factory=list)
    cases: list[Mapping[str, Any]] = field(default_factory=list)

    def get_result(self, turn: Turn) -> Any:
        case = dict(turn.case) | ({"began_s": 0.0} if turn.is_timed else {})
        if turn.tasks is not None and turn.tasks.is_linked:
            case["has_links"] = True
        self.cases.append(json.loads(json.dumps(case)))
        return RESULTS[self.benchmark.name](case)

    def run(self) -> Results:
        """Take all turns."""

        def progress(number: int, count: int, title: str) -> None:
            self.titles.append(title)
            assert number == len(self.titles) <= count

        return measure_all(self.benchmark, self.log_dir, self, progress=progress)
