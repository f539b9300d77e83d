"""The files that a benchmark writes, and the reports of a chief about an epoch."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image
from rich.console import Console

from benchmarks.benchmark import Benchmark
from benchmarks.pages import FOLDER
from benchmarks.results import Results

KEYS = {"benchmark", "settings", "machine", "package_versions", "bars", "cases"}
FINDINGS = {"batch": {"choice"}, "network": {"links"}}
# Of the cases of benchmarks without a published run.
CASE_KEYS = {
    "checkpoint": "way what ps seconds pause_s chief_mib server_mib samples",
    "consistency": "scenario mode updates_per_s examples_per_s bytes_per_example dropped_per_s "
    "staleness_updates largest_gap_steps seconds_to_goal final_accuracy final_accuracy_minus "
    "cpu_ms_per_step worker_steps curves other_cores samples details",
    "placement": "model servers way shards bytes_per_server step_bytes_per_server "
    "least_imbalance bytes_imbalance traffic_imbalance planning_s",
    "rows": "optimizer mib by_rows steps_per_s cpu_ms_per_step other_cores samples details",
}


@dataclass(frozen=True)
class Outputs:
    """The text on the terminal, and the content of NAME.json."""

    text: str
    content: dict[str, Any]


def keys_of(content: Mapping[str, Any]) -> set[str]:
    """The keys of all cases of a report."""
    return {key for case in content["cases"] for key in case}


def expected_keys(name: str) -> set[str]:
    """The keys that the cases of a benchmark have: those of its published run."""
    if name in CASE_KEYS:
        return set(CASE_KEYS[name].split())
    return keys_of(json.loads((FOLDER / "data" / f"{name}.json").read_text()))


def check_report(content: Mapping[str, Any], name: str) -> None:
    """Check the properties that the reports of all benchmarks share."""
    assert content["benchmark"] == name
    assert set(content) == KEYS | FINDINGS.get(name, set())
    assert content["machine"]["cores"] >= 1
    assert {"python", "tensorflow", "keras", "tf_keras"} <= set(content["package_versions"])
    for bar in content["bars"]:
        assert set(bar) == {"name", "value", "aim", "is_cost", "holds"}
        assert (bar["value"] is None) == (bar["holds"] is None)
    assert content["cases"]


def outputs(benchmark: Benchmark, results: Results, folder: Path) -> Outputs:
    """Write all outputs; check that tables fit an ordinary terminal and the picture is one."""
    output = io.StringIO()
    Console(file=output, width=80).print(benchmark.present(results))
    text = output.getvalue()
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 80
    path = benchmark.write(results, folder)
    assert path.name == f"{benchmark.name}.json"
    benchmark.draw(results, path.with_suffix(".png"))
    with Image.open(path.with_suffix(".png")) as picture:
        assert picture.width > 800
        assert len(picture.convert("RGB").getcolors(maxcolors=2**24) or []) > 10
    return Outputs(text, json.loads(path.read_text()))


def sample(
    steps_per_s: float, *, steps: int = 100, cpu_ms: float = 3.0, **group_cpu_ms: float
) -> dict[str, Any]:
    """Returns a chief's report about an epoch; CPU times are those of one step."""
    seconds = steps / steps_per_s
    return {
        "steps": steps,
        "seconds": seconds,
        "cpu_seconds": steps * cpu_ms / 1e3,
        "other_cpu_seconds": 0.0,
        "group_cpu_seconds": {name: steps * ms / 1e3 for name, ms in group_cpu_ms.items()},
    }


def chief_result(*samples: dict[str, Any]) -> dict[str, Any]:
    """Returns a chief's reply to one turn."""
    return {"samples": [*samples], "details": {"fallback_steps": 0, "transports": ["direct"]}}
